"""Transforms the syntax trees of OPSL to the IR, and expands names where they are used."""

import math
import re
from collections.abc import Mapping

from lark import Token

from ensue.errors import QueryError, Span, did_you_mean
from ensue.geo.wkt import HINT, Points, check_geometry, format_wkt, read_wkt
from ensue.ir import subscription
from ensue.ir.expression import Constant, Literal
from ensue.ir.selection import ByTime, ByUnits
from ensue.ir.values import convert_to_nanoseconds
from ensue.parser.expressions import OPERATORS, Node, build_expression, get_children, get_span, unquote_name

_VARIABLE = re.compile(r"\$(?P<name>[^;\s]+)\s*;")
_LARGEST = 2**63  # the bound of 64-bit integers
_VALUES: Mapping[subscription.PredicateType, tuple[str, str]] = {
    subscription.PredicateType.ARITH: ("a number", "ARITH:id = 17; for texts use STRING:name = 'x'"),
    subscription.PredicateType.STRING: ("a text", "STRING:type = 'truck'; for numbers use ARITH:id = 17"),
    subscription.PredicateType.BOOL: ("TRUE or FALSE", "BOOL:loaded = TRUE"),
    subscription.PredicateType.TIME: ("a moment", "TIME:seen > TIMESTAMP '2026-01-31 10:00:00'"),
}


def parse_variable(token: Token) -> tuple[str, Span]:
    """Returns the name of a variable, and the position of `$name;`."""
    parsed = _VARIABLE.match(token)
    assert parsed is not None
    start = get_span(token).start
    return parsed["name"], Span(start, start + parsed.end())


def _predicate(node: Node) -> subscription.Predicate:
    type_name, field, *rest = get_children(node)
    type, name, span = _get_type(type_name), unquote_name(field), get_span(node)
    match node.data, rest:
        case "comparison", [operator, value]:
            symbol = OPERATORS.get(operator, str(operator))
            if type is subscription.PredicateType.BOOL and symbol not in ("=", "!="):
                raise QueryError(
                    f"BOOL can be compared with = and !=, not with {operator}",
                    hint=f"write BOOL:{name} = TRUE",
                    span=get_span(operator),
                )
            return subscription.Predicate(type, name, symbol, _value(value, type), span)
        case "like", [value]:
            return subscription.Predicate(type, name, "LIKE", _like(value, type, name, span), span)
        case _, values:
            return subscription.Predicate(type, name, "IN", _in_list(values, type, name, span), span)


def _get_type(token: Token) -> subscription.PredicateType:
    try:
        return subscription.PredicateType[token.upper()]
    except KeyError:
        known = [type.value for type in subscription.PredicateType]
        raise QueryError(
            f"'{token}' is not a type of predicate", hint=did_you_mean(token.upper(), known), span=get_span(token)
        ) from None


def _like(value: Node, type: subscription.PredicateType, name: str, span: Span) -> str:
    if type is not subscription.PredicateType.STRING:
        raise QueryError(
            f"LIKE works on texts, and '{name}' is declared as {type.value}",
            hint=f"write STRING:{name} LIKE 'ab%'",
            span=span,
        )
    pattern = _value(value, type)
    if not isinstance(pattern, str):
        raise QueryError(
            "LIKE needs a text, not a field of another event",
            hint=f"write STRING:{name} LIKE 'ab%'",
            span=get_span(value),
        )
    return pattern


def _in_list(values: list[Node], type: subscription.PredicateType, name: str, span: Span) -> tuple[Constant, ...]:
    if type is subscription.PredicateType.BOOL:
        raise QueryError("BOOL can be compared with = and !=, not with IN", hint=f"write BOOL:{name} = TRUE", span=span)
    constants: list[Constant] = []
    for value in values:
        constant = _value(value, type)
        if isinstance(constant, subscription.VariableField):
            raise QueryError(
                "an IN list takes values, not fields of other events",
                hint="compare with a field using =, and join the cases with ||",
                span=constant.span,
            )
        constants.append(constant)
    return tuple(constants)


def _value(node: Node, type: subscription.PredicateType) -> Constant | subscription.VariableField:
    span = get_span(node)
    match node.data, get_children(node):
        case "field_of", [variable, field]:
            return subscription.VariableField(parse_variable(variable)[0], unquote_name(field), span)
        case "number", [digits] if type in (subscription.PredicateType.ARITH, subscription.PredicateType.TIME):
            return parse_signed_number(digits)
        case "string", _ if type is subscription.PredicateType.STRING:
            return _plain(node)
        case "truth", [word] if type is subscription.PredicateType.BOOL:
            return bool(word.upper() == "TRUE")
        case "timestamp", _ if type is subscription.PredicateType.TIME:
            return _plain(node)
        case _:
            expected, example = _VALUES[type]
            raise QueryError(f"{type.value} must be compared with {expected}", hint=f"as in {example}", span=span)


def parse_signed_number(token: Token) -> int | float:
    """Parses a number: an integer if it is written as one."""
    digits = re.sub(r"\s", "", token)
    whole = digits.lstrip("+-").isdigit()
    if not whole or len(digits) > 30:
        value = float(digits)
        if math.isfinite(value) and not whole:
            return value
    elif -_LARGEST <= (exact := int(digits)) < _LARGEST:
        return exact
    raise QueryError(
        "this number is too large",
        hint="integers have at most 64 bits, other numbers end at 1.8e308",
        span=get_span(token),
    )


def _plain(node: Node) -> Constant:
    """Builds a string or a timestamp, which are written as in the pattern language."""
    literal = build_expression(node)
    assert isinstance(literal, Literal)
    return literal.value


def build_length(node: Node) -> subscription.Length:
    """Builds `25 minutes`, or a number in the units of the time column."""
    amount, unit = get_children(node)
    span = get_span(node)
    value = parse_signed_number(amount)
    if value < 0:
        raise QueryError("a length of time cannot be negative", hint="leave out the sign", span=span)
    if unit is None:
        return ByUnits(value, span)
    return ByTime(convert_to_nanoseconds(re.sub(r"[\s+]", "", amount), unit, span), span)


def parse_distance(token: Token, what: str, *, positive: bool = False) -> float:
    """Parses a distance; `what` names it in errors."""
    value = float(parse_signed_number(token))
    if value < 0 or (positive and value == 0):
        raise QueryError(
            f"{what} is {'more than 0' if positive else 'not negative'}",
            hint="leave out the sign" if value < 0 else "the distance between centres must be below it",
            span=get_span(token),
        )
    return value


MAX_ATOMS = 64  # of a subscription, with names expanded
MAX_LEAVES = 1_024  # atoms and uses of variables, with names expanded
MAX_DEPTH = 100  # levels of operators, with names expanded

_PLACES = {
    "@": subscription.SpatialRelation.INSIDE,
    "IN": subscription.SpatialRelation.INSIDE,
    "OVLP": subscription.SpatialRelation.OVERLAP,
    "SPL": subscription.SpatialRelation.SAME,
}
_DISTANCES = ("<", "=", ">")


class NameExpansion:
    """Resolves the names of one text, and limits how much their expansion adds."""

    def __init__(self, defined: Mapping[str, Node], regions: Mapping[str, str]) -> None:
        self.defined = defined
        self.regions = regions
        self.used: set[str] = set()
        self._expanding: list[str] = []  # names whose expansion has begun
        self._atoms = 0
        self._leaves = 0
        self._depth = 0
        self._regions: dict[int, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.defined or name in self.regions

    def unknown(self, token: Token) -> QueryError:
        """Creates the error for an undefined name."""
        hint = did_you_mean(token, [*self.defined, *self.regions]) or ""
        if token.lower() in ("nan", "inf", "infinity"):
            hint = "it is a name here, not a number: lengths must be finite"
        elif not hint.startswith("did"):
            define = f"define it after the subscription: , {token} = (ARITH:id = 17)"
            hint = "; ".join(filter(None, (hint, define)))
        return QueryError(f"unknown name '{token}'", hint=hint, span=get_span(token))

    def enter(self, token: Token) -> Node:
        """Returns the definition of a name to expand, and refuses recursive definitions."""
        name = str(token)
        if name in self._expanding:
            cycle = [*self._expanding[self._expanding.index(name) :], name]
            raise QueryError(
                f"'{name}' is defined in terms of itself: {' -> '.join(cycle)}",
                hint="a name is expanded to its definition: break the cycle",
                span=get_span(token),
            )
        self.used.add(name)
        self._expanding.append(name)
        return self.defined[name]

    def leave(self) -> None:
        """Ends the expansion of the last name."""
        self._expanding.pop()

    def descend(self, node: Node) -> None:
        """Counts one more level of operators."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise QueryError(
                f"this is nested too deeply: at most {MAX_DEPTH} levels after expanding names",
                hint="use fewer levels, or split the subscription",
                span=get_span(node),
            )

    def ascend(self) -> None:
        """Counts one level of operators less."""
        self._depth -= 1

    def leaf(self, span: Span, *, atom: bool) -> None:
        """Counts one more event or use of a variable."""
        self._leaves += 1
        self._atoms += atom
        if self._atoms > MAX_ATOMS:
            raise QueryError(
                f"this subscription has more than {MAX_ATOMS} atoms after expanding names",
                hint="each use of a name is another event; $x; is a single event, however often you use it",
                span=span,
            )
        if self._leaves > MAX_LEAVES:
            raise QueryError(
                f"this subscription has more than {MAX_LEAVES:,} uses after expanding names",
                hint="a name made of names that are used twice doubles each time",
                span=span,
            )

    def region(self, node: Node) -> subscription.Region:
        """Builds a region of the text, which is parsed only once."""
        span = get_span(node)
        if id(node) not in self._regions:
            self._regions[id(node)] = _region_text(str(get_children(node)[0]), span)
        return subscription.Region(self._regions[id(node)], None, span)


def _region_text(text: str, span: Span | None) -> str:
    """Returns the canonical text of a region, or raises a QueryError.

    Crossing edges are only detected later, when the region is prepared: that check is slow.
    """
    try:
        geometry = read_wkt(text)
        check_geometry(geometry)
        if isinstance(geometry, Points):
            raise QueryError("it has no area", hint=HINT)
    except QueryError as error:
        raise error.at(span, None) from None
    return format_wkt(geometry)


def build_subscription_expression(node: Node, names: NameExpansion) -> subscription.Expression:
    """Builds the expression of a syntax tree."""
    names.descend(node)
    expression = _expression(node, names)
    names.ascend()
    return expression


def _expression(node: Node, names: NameExpansion) -> subscription.Expression:
    span = get_span(node)

    def inner(part: Node) -> subscription.Expression:
        return build_subscription_expression(part, names)

    match node.data, get_children(node):
        case "bracketed", [inside]:
            return inner(inside)
        case "either", parts:
            return subscription.Disjunction(
                tuple(subscription.flatten_parts(map(inner, parts), subscription.Disjunction)), span
            )
        case "both", parts:
            return subscription.Conjunction(
                tuple(subscription.flatten_parts(map(inner, parts), subscription.Conjunction)), span
            )
        case "timed", [when, interval, part]:
            during = _interval(interval, names)
            return subscription.TemporalCondition(subscription.TemporalRelation(when), during, inner(part), span)
        case "concurrent", [first, length, second]:
            tolerance = build_length(length) if length else None
            return subscription.Concurrent(inner(first), inner(second), tolerance, span)
        case "placed" | "distant", _:
            return _build_spatial(node, names)
        case "use", [token]:
            names.leaf(span, atom=False)
            return subscription.VariableUse(*parse_variable(token))
        case "named", [token]:
            return _expand(token, names)
        case "region", _:
            raise _region_error("this", span)
        case _:
            names.leaf(span, atom=True)
            return subscription.EventAtom(tuple(map(_predicate, get_children(node))), span)


def _expand(token: Token, names: NameExpansion) -> subscription.Expression:
    if str(token) not in names:
        raise names.unknown(token)
    region = _resolve_region(token, names)
    if region is not None:
        raise _region_error(f"'{token}'", get_span(token))
    expression = build_subscription_expression(names.enter(token), names)
    names.leave()
    return expression


def _region_error(what: str, span: Span) -> QueryError:
    return QueryError(
        f"{what} is a region, and an event is needed here",
        hint="a region goes into an operator: @(Region)(A)",
        span=span,
    )


def _build_spatial(node: Node, names: NameExpansion) -> subscription.SpatialCondition:
    comparison, number = None, None
    if node.data == "placed":
        word, place, threshold, part = get_children(node)
        where = _PLACES[word.upper()]
        if threshold is not None:
            if where is not subscription.SpatialRelation.SAME:
                raise QueryError(
                    f"{word} takes a place but no number",
                    hint=f"leave it out; for distances use DIST(place; <; {threshold})",
                    span=get_span(threshold),
                )
            number = parse_distance(threshold, "the threshold of SPL", positive=True)
    else:
        where = subscription.SpatialRelation.DISTANCE
        place, sign, distance, part = get_children(node)
        if sign not in _DISTANCES:
            near = sign[0] if sign[0] in "<>" else ">"
            raise QueryError(
                f"DIST compares with <, = or >, not with {sign}",
                hint=f"write DIST(place; {near}; {distance.strip()})",
                span=get_span(sign),
            )
        comparison, number = str(sign), parse_distance(distance, "a distance")
    expression = build_subscription_expression(part, names)
    return subscription.SpatialCondition(where, _place(place, names), expression, comparison, number, get_span(node))


def _place(node: Node, names: NameExpansion) -> subscription.Region | subscription.Expression:
    """Builds a region, or the event whose place is meant."""
    inner = _unwrap(node)
    match inner.data, get_children(inner):
        case "region", _:
            return names.region(inner)
        case "named", [token] if token in names:
            region = _resolve_region(token, names)
            return build_subscription_expression(node, names) if region is None else region
        case _:
            return build_subscription_expression(node, names)


def _unwrap(node: Node) -> Node:
    while node.data == "bracketed":
        node = get_children(node)[0]
    return node


def _resolve_region(token: Token, names: NameExpansion) -> subscription.Region | None:
    """Returns the region of a name, also via other names; None if it is no region."""
    name, chain = str(token), [str(token)]
    while name not in names.regions:
        node = _unwrap(names.defined[name])
        if node.data == "region":
            names.used.update(chain)
            return subscription.Region(names.region(node).text, name, get_span(token))
        if node.data != "named":
            return None
        name = str(get_children(node)[0])
        if name in chain or name not in names:
            return None  # reported when it is expanded
        chain.append(name)
    names.used.update(chain)
    return subscription.Region(names.regions[name], name, get_span(token))


def _interval(node: Node, names: NameExpansion) -> subscription.SubscriptionInterval:
    first, second = get_children(node)
    if first.data in ("number", "timestamp"):
        digits = get_children(first)[0]
        moment = parse_signed_number(digits) if first.data == "number" else _plain(first)
        return subscription.IntervalSince(subscription.TimePoint(moment, get_span(first)), build_length(second))
    base = build_subscription_expression(first, names)
    if node.data == "amid":
        return subscription.IntervalBetween(base, build_subscription_expression(second, names))
    return subscription.IntervalSince(base, build_length(second))
