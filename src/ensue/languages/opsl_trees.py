"""Syntax trees of OPSL to algebra: names are written out where they are used."""

from collections.abc import Mapping

from lark import Token

from ensue.algebra.subscription import (
    Amid,
    Both,
    Concurrent,
    Either,
    Expression,
    Interval,
    Placed,
    Region,
    Since,
    Timed,
    Use,
    When,
    Where,
)
from ensue.errors import QueryError, did_you_mean
from ensue.languages.expressions import Node, pieces, span_of
from ensue.languages.opsl_values import (
    atomic_of,
    distance_of,
    length_of,
    moment_of,
    variable_of,
)
from ensue.languages.region_texts import region_text
from ensue.span import Span

ATOMS = 64  # of a subscription, names written out
LEAVES = 1_024  # atoms and uses of variables, names written out
DEEPEST = 100  # levels of operators, names written out

_PLACES = {"@": Where.INSIDE, "IN": Where.INSIDE, "OVLP": Where.OVERLAP, "SPL": Where.SAME}
_DISTANCES = ("<", "=", ">")


class Names:
    """What the names of one text stand for, and how much has been written out of them."""

    def __init__(self, defined: Mapping[str, Node], given: Mapping[str, str]) -> None:
        self.defined = defined
        self.given = given
        self.used: set[str] = set()
        self._within: list[str] = []  # names that are being written out
        self._atoms = 0
        self._leaves = 0
        self._depth = 0
        self._regions: dict[int, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.defined or name in self.given

    def unknown(self, token: Token) -> QueryError:
        """No name of this spelling is defined."""
        if token.lower() in ("nan", "inf", "infinity"):
            hint = "it is a name here, not a number: lengths must be finite"
        else:
            hint = did_you_mean(token, [*self.defined, *self.given]) or ""
            if not hint.startswith("did"):
                define = f"define it after the subscription: , {token} = (ARITH:id = 17)"
                hint = "; ".join(filter(None, (hint, define)))
        return QueryError(f"unknown name '{token}'", hint=hint, span=span_of(token))

    def entered(self, token: Token) -> Node:
        """What a name stands for, to be written out; one that is made of itself has no end."""
        name = str(token)
        if name in self._within:
            way = [*self._within[self._within.index(name) :], name]
            raise QueryError(
                f"'{name}' is defined in terms of itself: {' -> '.join(way)}",
                hint="a name is expanded to its definition: break the cycle",
                span=span_of(token),
            )
        self.used.add(name)
        self._within.append(name)
        return self.defined[name]

    def left(self) -> None:
        """The last name that was entered is written out."""
        self._within.pop()

    def deeper(self, node: Node) -> None:
        """One level of operators more."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise QueryError(
                f"this is nested too deeply: at most {DEEPEST} levels after expanding names",
                hint="use fewer levels, or split the subscription",
                span=span_of(node),
            )

    def higher(self) -> None:
        """One level less."""
        self._depth -= 1

    def leaf(self, span: Span, *, atom: bool) -> None:
        """One event, or one use of a variable, more."""
        self._leaves += 1
        self._atoms += atom
        if self._atoms > ATOMS:
            raise QueryError(
                f"this subscription has more than {ATOMS} atoms after expanding names",
                hint="each use of a name is another event; $x; is a single event, however often "
                "you use it",
                span=span,
            )
        if self._leaves > LEAVES:
            raise QueryError(
                f"this subscription has more than {LEAVES:,} uses after expanding names",
                hint="a name made of names that are used twice doubles each time",
                span=span,
            )

    def region(self, node: Node) -> Region:
        """A region that is written in the text; read once, however often its name is used."""
        span = span_of(node)
        if id(node) not in self._regions:
            self._regions[id(node)] = region_text(str(pieces(node)[0]), span)
        return Region(self._regions[id(node)], None, span)


def expression_of(node: Node, names: Names) -> Expression:
    """The expression that a syntax tree stands for."""
    names.deeper(node)
    found = _expression(node, names)
    names.higher()
    return found


def _expression(node: Node, names: Names) -> Expression:
    span = span_of(node)
    match node.data, pieces(node):
        case "bracketed", [inside]:
            return expression_of(inside, names)
        case "either", parts:
            found = [expression_of(part, names) for part in parts]
            return Either(_flat(found, Either), span)
        case "both", parts:
            found = [expression_of(part, names) for part in parts]
            return Both(_flat(found, Both), span)
        case "timed", [when, interval, part]:
            return Timed(When(when), _interval(interval, names), expression_of(part, names), span)
        case "concurrent", [first, length, second]:
            return Concurrent(
                expression_of(first, names),
                expression_of(second, names),
                length_of(length) if length else None,
                span,
            )
        case "placed" | "distant", _:
            return _placed(node, names)
        case "use", [token]:
            names.leaf(span, atom=False)
            return Use(*variable_of(token))
        case "named", [token]:
            return _written_out(token, names)
        case "region", _:
            raise _no_event("this", span)
        case _:
            names.leaf(span, atom=True)
            return atomic_of(node)


def _flat(parts: list[Expression], kind: type[Both] | type[Either]) -> tuple[Expression, ...]:
    """`A && (B && C)` is `A && B && C`."""
    flat: list[Expression] = []
    for part in parts:
        flat += part.parts if isinstance(part, Both | Either) and type(part) is kind else [part]
    return tuple(flat)


def _written_out(token: Token, names: Names) -> Expression:
    if str(token) not in names:
        raise names.unknown(token)
    place = _region_of(token, names)
    if place is not None:
        raise _no_event(f"'{token}'", span_of(token))
    found = expression_of(names.entered(token), names)
    names.left()
    return found


def _no_event(what: str, span: Span) -> QueryError:
    return QueryError(
        f"{what} is a region, and an event is needed here",
        hint="a region goes into an operator: @(Region)(A)",
        span=span,
    )


# ------------------------------------------------------------------------------------- places


def _placed(node: Node, names: Names) -> Placed:
    span = span_of(node)
    if node.data == "placed":
        word, place, threshold, part = pieces(node)
        where = _PLACES[word.upper()]
        number = None
        if threshold is not None:
            if where is not Where.SAME:
                raise QueryError(
                    f"{word} takes a place but no number",
                    hint=f"leave it out; for distances use DIST(place; <; {threshold})",
                    span=span_of(threshold),
                )
            number = distance_of(threshold, "the threshold of SPL", positive=True)
        return Placed(where, _place(place, names), expression_of(part, names), None, number, span)
    place, comparison, distance, part = pieces(node)
    if comparison not in _DISTANCES:
        raise QueryError(
            f"DIST compares with <, = or >, not with {comparison}",
            hint=f"write DIST(place; {comparison[0] if comparison[0] in '<>' else '>'}; "
            f"{distance.strip()})",
            span=span_of(comparison),
        )
    return Placed(
        Where.DISTANCE,
        _place(place, names),
        expression_of(part, names),
        str(comparison),
        distance_of(distance, "a distance"),
        span,
    )


def _place(node: Node, names: Names) -> Region | Expression:
    """A region, or the place of an event."""
    inside = _unwrapped(node)
    match inside.data, pieces(inside):
        case "region", _:
            return names.region(inside)
        case "named", [token] if token in names:
            found = _region_of(token, names)
            return expression_of(node, names) if found is None else found
        case _:
            return expression_of(node, names)


def _unwrapped(node: Node) -> Node:
    while node.data == "bracketed":
        node = pieces(node)[0]
    return node


def _region_of(token: Token, names: Names) -> Region | None:
    """The region that a name stands for, be it by way of other names; None for other names."""
    name, passed = str(token), [str(token)]
    while name not in names.given:
        node = _unwrapped(names.defined[name])
        if node.data == "region":
            names.used.update(passed)
            return Region(names.region(node).text, name, span_of(token))
        if node.data != "named":
            return None
        name = str(pieces(node)[0])
        if name in passed or name not in names:
            return None  # said where it is written out
        passed.append(name)
    names.used.update(passed)
    return Region(names.given[name], name, span_of(token))


# ---------------------------------------------------------------------------------- intervals


def _interval(node: Node, names: Names) -> Interval:
    first, second = pieces(node)
    if node.data == "amid":
        return Amid(expression_of(first, names), expression_of(second, names))
    if first.data in ("number", "timestamp"):
        return Since(moment_of(first), length_of(second))
    return Since(expression_of(first, names), length_of(second))
