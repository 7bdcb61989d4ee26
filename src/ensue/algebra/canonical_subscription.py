"""The text that a subscription, or a part of one, is known by: for sharing and for match ids.

Two parts have the same text if they differ at most in the names of variables and regions, in the
order of `&&`, `||` and predicates, and in what is written where: tolerances of the whole
subscription count where they are used, and a variable that stands once is what it stands for.

Parts of `&&` are ordered by their texts, and those need labels for variables, which are numbered
by the texts they stand in. Labels are refined until each variable has its own; variables that
still look alike are told apart one by one, each way in turn, and the least text counts.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ensue.algebra.predicate import Constant
from ensue.algebra.subscription import (
    Amid,
    Atomic,
    Both,
    Concurrent,
    Either,
    Expression,
    FieldOf,
    Interval,
    Length,
    Moment,
    Placed,
    Predicate,
    Region,
    Since,
    Subscription,
    Timed,
    Use,
    When,
    Where,
    parts_of,
)
from ensue.algebra.window import ByTime, ByUnits

Labels = Mapping[str, str]
_EFFORT = 5_000  # texts that are written for one subscription at most


def canonical_text(subscription: Subscription) -> str:
    """The text of a whole subscription.

    >>> from ensue.algebra.subscription import PredicateType
    >>> one, two = (Atomic((Predicate(PredicateType.ARITH, "id", "=", n),)) for n in (1, 2))
    >>> canonical_text(Subscription(Both((two, one))))
    'select=latest within=none both(event(ARITH id = 1) event(ARITH id = 2))'
    """
    within = "none" if subscription.within is None else _length(subscription.within)
    return (
        f"select={subscription.select.value} within={within} "
        f"{canonical_part(subscription.root, subscription)}"
    )


def canonical_part(expression: Expression, subscription: Subscription) -> str:
    """The text of a part by itself: what of the subscription is around it does not count.

    Where a great many variables look alike, the names decide which of several texts it is: equal
    texts always mean equal parts, but equal parts may then have different ones.
    """
    return _Canonical(expression, subscription).text()


class _Canonical:
    def __init__(self, expression: Expression, subscription: Subscription) -> None:
        self.subscription = subscription
        uses, read = _occurrences(expression, subscription.variables)
        defined = subscription.variables
        once = {n: defined[n] for n, count in uses.items() if count == 1 and n not in read}
        self.root = _inlined(expression, once)
        kept = (uses.keys() | read) - once.keys()
        self.variables = {name: _inlined(defined[name], once) for name in kept}
        self._effort = 0

    def text(self) -> str:
        if not self.variables:
            return self._written({})
        return min(self._least(self._refined(dict.fromkeys(self.variables, 0))))

    # -------------------------------------------------------------------------------- labels

    def _least(self, colours: dict[str, int]) -> set[str]:
        """Texts under these colours, the least one among them.

        Two ways that share a text are the same but for names, so one of them is enough.
        """
        if (alike := _first_alike(colours)) is None:
            return {self._written({name: str(colour) for name, colour in colours.items()})}
        found = self._least(self._refined(_told_apart(colours, alike[0])))
        for name in alike[1:]:
            if self._effort > _EFFORT:
                break
            other = self._refined(_told_apart(colours, name))
            if self._one(other) not in found:
                found |= self._least(other)
        return found

    def _one(self, colours: dict[str, int]) -> str:
        """One of the texts under these colours."""
        while (alike := _first_alike(colours)) is not None:
            colours = self._refined(_told_apart(colours, alike[0]))
        return self._written({name: str(colour) for name, colour in colours.items()})

    def _refined(self, colours: dict[str, int]) -> dict[str, int]:
        """Variables that stand in different texts have different colours."""
        while True:
            labels = {name: str(colour) for name, colour in colours.items()}
            keys = {
                name: (colour, self._written({**labels, name: "*"}))
                for name, colour in colours.items()
            }
            ranks = {key: rank for rank, key in enumerate(sorted(set(keys.values())))}
            if len(ranks) == len(set(colours.values())):
                return {name: ranks[key] for name, key in keys.items()}
            colours = {name: ranks[key] for name, key in keys.items()}

    def _written(self, labels: Labels) -> str:
        self._effort += 1
        writer = _Writer(self.subscription, labels)
        defined = sorted(
            f"${labels[name]}={writer.expression(part)}" for name, part in self.variables.items()
        )
        return " ".join((writer.expression(self.root), *defined))


def _first_alike(colours: Mapping[str, int]) -> list[str] | None:
    """The variables of the least colour that several have."""
    cells: dict[int, list[str]] = {}
    for name, colour in colours.items():
        cells.setdefault(colour, []).append(name)
    return next((cells[colour] for colour in sorted(cells) if len(cells[colour]) > 1), None)


def _told_apart(colours: Mapping[str, int], name: str) -> dict[str, int]:
    return {other: 2 * colour + (other != name) for other, colour in colours.items()}


# ------------------------------------------------------------------------------- variables


def _occurrences(
    expression: Expression, variables: Mapping[str, Expression]
) -> tuple[dict[str, int], set[str]]:
    """How often each variable is used in an expression and what it is made of; those read."""
    uses: dict[str, int] = {}
    read: set[str] = set()
    seen: set[str] = set()
    left = [expression]
    while left:
        part = left.pop()
        left += parts_of(part)
        names: list[str] = []
        if isinstance(part, Use):
            uses[part.variable] = uses.get(part.variable, 0) + 1
            names = [part.variable]
        elif isinstance(part, Atomic):
            names = [p.value.variable for p in part.predicates if isinstance(p.value, FieldOf)]
            read |= set(names)
        left += [variables[name] for name in dict.fromkeys(names) if name not in seen]
        seen |= set(names)
    return uses, read


def _inlined(expression: Expression, once: Mapping[str, Expression]) -> Expression:
    """Without the variables that stand once."""
    match expression:
        case Atomic():
            return expression
        case Use(name):
            return _inlined(once[name], once) if name in once else expression
        case Timed(_, interval, part):
            return replace(
                expression, interval=_interval_inlined(interval, once), part=_inlined(part, once)
            )
        case Concurrent(first, second):
            first, second = _inlined(first, once), _inlined(second, once)
            return replace(expression, first=first, second=second)
        case Placed(_, place, part):
            where = place if isinstance(place, Region) else _inlined(place, once)
            return replace(expression, place=where, part=_inlined(part, once))
        case Both(parts):
            return Both(tuple(_spliced((_inlined(part, once) for part in parts), Both)))
        case Either(parts):
            return Either(tuple(_spliced((_inlined(part, once) for part in parts), Either)))


def _interval_inlined(interval: Interval, once: Mapping[str, Expression]) -> Interval:
    match interval:
        case Since(Moment(), _):
            return interval
        case Since(base, length):
            assert not isinstance(base, Moment)
            return Since(_inlined(base, once), length)
        case Amid(first, second):
            return Amid(_inlined(first, once), _inlined(second, once))


def _spliced(parts: Iterable[Expression], kind: type[Both] | type[Either]) -> Iterator[Expression]:
    for part in parts:
        if isinstance(part, Both | Either) and type(part) is kind:
            yield from part.parts
        else:
            yield part


# ----------------------------------------------------------------------------------- texts


@dataclass(frozen=True, slots=True)
class _Writer:
    """Expressions as text, variables by their labels."""

    subscription: Subscription
    labels: Labels

    def expression(self, expression: Expression) -> str:
        match expression:
            case Atomic(predicates):
                return _node("event", sorted({self.predicate(p) for p in predicates}))
            case Use(name):
                return f"${self.labels[name]}"
            case Timed(when, interval, part):
                return _node(_WHEN[when], (self.interval(interval), self.expression(part)))
            case Concurrent(first, second, tolerance):
                by = _length(tolerance or self.subscription.concurrent)
                return _node("concurrent", (self.expression(first), self.expression(second), by))
            case Placed():
                return self.placed(expression)
            case Both(parts):
                return _node("both", sorted(map(self.expression, parts)))
            case Either(parts):
                return _node("either", sorted(map(self.expression, parts)))

    def interval(self, interval: Interval) -> str:
        match interval:
            case Since(Moment(at), length):
                return _node("since", (_constant(at), _length(length)))
            case Since(base, length):
                assert not isinstance(base, Moment)
                return _node("since", (self.expression(base), _length(length)))
            case Amid(first, second):
                return _node("amid", (self.expression(first), self.expression(second)))

    def placed(self, placed: Placed) -> str:
        place = placed.place
        shown = repr(place.text) if isinstance(place, Region) else self.expression(place)
        parts = [shown, self.expression(placed.part)]
        match placed.where:
            case Where.INSIDE:
                return _node("inside", parts)
            case Where.OVERLAP:
                return _node("overlap", parts)
            case Where.SAME:
                usual = self.subscription.same_place
                number = usual if placed.number is None else placed.number
                return _node("same_place", (*parts, _constant(number)))
            case Where.DISTANCE:
                parts += [str(placed.comparison), _constant(placed.number)]
                if placed.comparison == "=":
                    parts.append(_constant(self.subscription.equal))
                return _node("distance", parts)

    def predicate(self, predicate: Predicate) -> str:
        match predicate.value:
            case FieldOf(variable, name):
                value = f"${self.labels[variable]}.{_name(name)}"
            case tuple() as values:
                value = _node("", sorted({_constant(one) for one in values}))
            case constant:
                value = _constant(constant)
        return f"{predicate.type.name} {_name(predicate.name)} {predicate.operator} {value}"


_WHEN = {When.ABSENT: "absent", When.BETWEEN: "between", When.AFTER: "after"}


def _node(name: str, parts: Iterable[str]) -> str:
    return f"{name}({' '.join(parts)})"


def _name(name: str) -> str:
    return name if name.isidentifier() else repr(name)


def _constant(value: Constant) -> str:
    """Equal values have equal texts: 5 and 5.0, and a moment in any time zone."""
    match value:
        case float() if value.is_integer():
            return str(int(value))
        case datetime() if value.tzinfo is not None:
            return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"
        case datetime():
            return value.isoformat()
        case _:
            return repr(value)


def _length(length: Length | None) -> str:
    match length:
        case None | ByTime(0) | ByUnits(0):
            return "0"
        case ByTime(nanoseconds):
            return f"{nanoseconds}ns"
        case ByUnits(amount):
            return _constant(amount)
