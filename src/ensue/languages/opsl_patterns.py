"""A subscription as a text of the pattern language: an OR of ANDs, with conditions on groups.

The start of a group of events is the least of theirs, its end the greatest, its place their hull.
What the pattern language finds more than once, in different roles, is one match of a subscription.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ensue.algebra.alternatives import (
    Alternative,
    Compared,
    Condition,
    Gone,
    Group,
    Later,
    Near,
    Point,
    alternatives,
)
from ensue.algebra.event_test import EventTest, RegionTest
from ensue.algebra.predicate import Constant
from ensue.algebra.subscription import (
    FieldOf,
    Length,
    Moment,
    Predicate,
    Region,
    Select,
    Subscription,
    Where,
)
from ensue.algebra.text import show_name
from ensue.algebra.window import ByTime, ByUnits
from ensue.algebra.wkt import Circle, read_wkt
from ensue.errors import QueryError
from ensue.languages.opsl_text import show_length, show_number, show_value

TYPE = "type"  # the field whose value is the type of an atom
ANY_TYPE = "Any"  # where no atom asks for one, all events are of one type


def show(subscription: Subscription) -> str:
    """The pattern, with a condition a line.

    >>> from ensue.languages.opsl import parse
    >>> print(show(parse("=|(A; 5)B, A = (STRING:type = 'a'), B = (STRING:type = 'b')")))
    PATTERN AND(a e1, b e2)
    WHERE e2.start > e1.end
        and e2.end <= e1.end + 5
    CHOOSE LATEST
    """
    try:
        return _shown(subscription)
    except QueryError as error:
        raise error.at(None, subscription.text) from None


def _shown(subscription: Subscription) -> str:
    ways = alternatives(subscription)
    writer = _Writer(typed=any(_fixed(test) for way in ways for test in _tests(way)))
    shown = [pattern for way in ways if (pattern := writer.pattern(way)) is not None]
    if not shown:
        raise QueryError(
            "this subscription asks for the place of what has none, so nothing satisfies it",
            hint="an absence from a moment on has no event, and so no place",
        )
    (pattern,) = shown if len(shown) == 1 else (f"OR({', '.join(shown)})",)
    lines = [f"PATTERN {pattern}"]
    lines += [f"WHERE {condition}" for condition in writer.conditions[:1]]
    lines += [f"    and {condition}" for condition in writer.conditions[1:]]
    if subscription.select is not Select.ALL:
        lines.append(f"CHOOSE {subscription.select.name}")
    return "\n".join(lines)


def _tests(way: Alternative) -> Iterator[EventTest]:
    for part in way.parts:
        if isinstance(part, EventTest):
            yield part
        else:
            for absent in part.absent:
                yield from _tests(absent)


def _fixed(test: EventTest) -> list[Predicate]:
    """The predicates that say of which type an event is."""
    return [p for p in test.predicates if p.name == TYPE and p.operator == "="]


@dataclass
class _Writer:
    typed: bool  # whether atoms ask for types
    conditions: list[str] = field(default_factory=list)
    events: int = 0  # variables so far

    def pattern(self, way: Alternative) -> str | None:
        """The events of an alternative; its conditions are added. None: it never holds."""
        written = _Way(self, way)
        if not written.located():
            return None
        parts = list(written.parts())
        self.conditions += dict.fromkeys(written.conditions)
        return parts[0] if len(parts) == 1 else f"AND({', '.join(parts)})"

    def variable(self) -> str:
        self.events += 1
        return f"e{self.events}"

    def atom(self, test: EventTest, variable: str) -> tuple[str, list[str]]:
        """An event by its type, and the conditions on it."""
        fixed = _fixed(test)
        if self.typed and not fixed:
            raise QueryError(
                "this atom does not say of which type its event is, so it is no pattern",
                hint="write STRING:type = '...' in each atom, or in none",
                span=test.predicates[0].span if test.predicates else None,
            )
        type = self.type_of(test)
        rest = [p for p in test.predicates if p not in fixed[:1]]
        conditions = [_predicate(p, variable) for p in rest]
        place = f"{variable}.location"
        conditions += [_lies(_as_near(one), _region(one.region), place) for one in test.places]
        return f"{show_name(type)} {variable}", conditions

    def type_of(self, test: EventTest) -> str:
        fixed = _fixed(test)
        return str(fixed[0].value) if fixed else ANY_TYPE


class _Way:
    """One alternative: its parts by their variables."""

    def __init__(self, writer: _Writer, way: Alternative) -> None:
        self.writer = writer
        self.way = way
        self.conditions: list[str] = []
        self.names = {
            number: writer.variable()
            for number, part in enumerate(way.parts)
            if isinstance(part, EventTest)
        }

    def located(self) -> bool:
        """Whether everything that is asked for its place has events."""
        nears = [c for c in self.way.conditions if isinstance(c, Near)]
        groups = [g for n in nears for g in (n.first, n.second) if not isinstance(g, Region)]
        return all(self.names.keys() & group for group in groups)

    def parts(self) -> Iterator[str]:
        for number, part in enumerate(self.way.parts):
            if isinstance(part, EventTest):
                shown, conditions = self.writer.atom(part, self.names[number])
                self.conditions += conditions
                yield shown
        for condition in self.way.conditions:
            self.conditions.append(self.condition(condition))
        for part in self.way.parts:
            if isinstance(part, Gone):
                yield from self.absences(part)

    # ------------------------------------------------------------------------- conditions

    def condition(self, condition: Condition) -> str:
        match condition:
            case Later(earlier, later, by, strict, most):
                operator = "<=" if most else ">" if strict else ">="
                return f"{self.point(later)} {operator} {self.behind(earlier, by)}"
            case Near(first=first, second=second):
                place = _region(first) if isinstance(first, Region) else self.place(first)
                return _lies(condition, place, self.place(second))
            case Compared(part, name, operator, other, other_name):
                mine = f"{self.names[part]}.{show_name(name)}"
                return f"{mine} {operator} {self.names[other]}.{show_name(other_name)}"

    def behind(self, point: Point, by: Length | None) -> str:
        if isinstance(point.of, Moment):
            return show_value(_later(point.of.at, by))
        shown = self.point(point)
        return shown if by is None or _zero(by) else f"{shown} + {_length(by)}"

    def point(self, point: Point) -> str:
        """A point in time. What is absent in a length of time lasts until that is over."""
        if isinstance(point.of, Moment):
            return show_value(point.of.at)
        function = "greatest" if point.end else "least"
        return _one_of(function, list(self._times(point.of, end=point.end)))

    def _times(self, group: Group, *, end: bool) -> Iterator[str]:
        """The times of which one is the start or the end of a group."""
        gone = [part for n in sorted(group) if isinstance(part := self.way.parts[n], Gone)]
        passed = frozenset[int]().union(*(part.until.group for part in gone if part.lasts))
        for number in sorted(group - passed if end else group):
            if number in self.names:
                yield f"{self.names[number]}.{'end' if end else 'start'}"
        for part in gone:
            if end and part.lasts:
                yield self.behind(part.until, part.length)
            elif not end and isinstance(part.since.of, Moment):
                yield self.point(part.since)

    def place(self, group: Group) -> str:
        places = [f"{self.names[n]}.location" for n in sorted(group) if n in self.names]
        return _one_of("hull", places)

    # ------------------------------------------------------------------------- absences

    def absences(self, gone: Gone) -> Iterator[str]:
        """One of several that is absent is each of them absent."""
        since, until = self.point(gone.since), self.behind(gone.until, gone.length)
        for number, absent in enumerate(gone.absent):
            match absent.parts:
                case (EventTest() as test,):
                    asks = [compared for which, compared in gone.asks if which == number]
                    variable = self.writer.variable()
                    shown, conditions = self._absent(test, variable, absent, asks)
                    self.conditions += conditions
                    for other in sorted(self.names.keys() - gone.base):
                        self.conditions += self._none(other, test, absent, asks, (since, until))
                    yield f"!{shown} FROM {since} TO {until}"
                case _:
                    raise QueryError(
                        "what is absent here is made of several events, so it is no pattern",
                        hint="a pattern with an interval of its own says of one event that it "
                        "is absent",
                    )

    def _absent(
        self, test: EventTest, variable: str, absent: Alternative, asks: Sequence[Compared]
    ) -> tuple[str, list[str]]:
        shown, conditions = self.writer.atom(test, variable)
        conditions += [self._asked(compared, variable) for compared in asks]
        return shown, conditions + _own(absent, variable)

    def _none(
        self,
        other: int,
        test: EventTest,
        absent: Alternative,
        asks: Sequence[Compared],
        interval: tuple[str, str],
    ) -> Iterator[str]:
        """An event of the match counts as well, which a pattern's absence passes over."""
        part = self.way.parts[other]
        assert isinstance(part, EventTest)
        if self.writer.type_of(part) != self.writer.type_of(test):
            return
        name = self.names[other]
        _, conditions = self._absent(test, name, absent, asks)
        conditions += [f"{name}.start > {interval[0]}", f"{name}.end <= {interval[1]}"]
        yield f"NOT coalesce({' and '.join(conditions)}, FALSE)"

    def _asked(self, compared: Compared, variable: str) -> str:
        other = f"{self.names[compared.other]}.{show_name(compared.other_name)}"
        return f"{variable}.{show_name(compared.name)} {compared.operator} {other}"


def _own(absent: Alternative, variable: str) -> list[str]:
    """The conditions on one absent event."""
    alone = _Way(_Writer(typed=False), absent)
    alone.names = {0: variable}
    return [alone.condition(condition) for condition in absent.conditions]


def _one_of(function: str, values: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(values))
    return distinct[0] if len(distinct) == 1 else f"{function}({', '.join(distinct)})"


# -------------------------------------------------------------------------------------- times


def _zero(length: Length) -> bool:
    return length in (ByTime(0), ByUnits(0))


def _length(length: Length) -> str:
    if isinstance(length, ByTime) and length.nanoseconds % 1000:
        raise QueryError(
            "lengths of patterns are whole microseconds", hint="round it: 1 us", span=length.span
        )
    return show_length(length)


def _later(at: Constant, by: Length | None) -> Constant:
    """A moment, so much later."""
    match at, by:
        case (_, None):
            return at
        case (int() | float(), ByUnits(amount)):
            return at + amount
        case (datetime(), ByTime(nanoseconds)) if nanoseconds % 1000 == 0:
            return at + timedelta(microseconds=nanoseconds // 1000)
        case _:
            raise QueryError(
                "this moment and this length do not go together",
                hint="numbers go with numbers, timestamps with whole microseconds",
                span=by.span,
            )


# ------------------------------------------------------------------------------------- places


def _as_near(test: RegionTest) -> Near:
    return Near(test.where, test.region, frozenset(), test.comparison, test.number, test.tolerance)


def _region(region: Region) -> str:
    match read_wkt(region.text):
        case Circle(x, y, radius):
            return f"CIRCLE({', '.join(map(show_number, (x, y, radius)))})"
        case _:
            return f"WKT '{region.text}'"


def _lies(near: Near, p: str, q: str) -> str:
    number = show_number(near.number)
    match near.where:
        case Where.INSIDE:
            return f"inside({q}, {p})"
        case Where.OVERLAP:
            return f"overlaps({p}, {q})"
        case Where.SAME:
            return f"same_place({p}, {q}, {number})"
        case Where.DISTANCE if near.comparison == "=":
            return f"abs(distance({p}, {q}) - {number}) <= {show_number(near.tolerance)}"
        case Where.DISTANCE:
            return f"distance({p}, {q}) {near.comparison} {number}"


# --------------------------------------------------------------------------------- predicates


def _predicate(predicate: Predicate, variable: str) -> str:
    head = f"{variable}.{show_name(predicate.name)} {predicate.operator}"
    match predicate.value:
        case tuple() as values:
            return f"{head} ({', '.join(show_value(value) for value in values)})"
        case str() as text if predicate.operator == "LIKE":
            escaped = text.replace("\\", "\\\\")  # a sign like any other in OPSL
            return f"{head} {show_value(escaped)}"
        case FieldOf():
            raise AssertionError(predicate)  # alternatives have made conditions of them
        case value:
            return f"{head} {show_value(value)}"
