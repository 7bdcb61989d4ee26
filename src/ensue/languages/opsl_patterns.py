"""A subscription as a text of the pattern language: an OR of ANDs, with conditions on groups.

The start of a group of events is the least of theirs, its end the greatest, its place their hull.
What the pattern language finds more than once, in different roles, is one match of a subscription.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
from ensue.algebra.event_test import EventTest
from ensue.algebra.subscription import Length, Moment, Predicate, Region, Select, Subscription
from ensue.algebra.text import show_name
from ensue.errors import QueryError
from ensue.languages.opsl_pattern_terms import (
    Time,
    as_near,
    is_zero,
    later,
    show_length_of_time,
    show_near,
    show_predicate,
    show_region,
    time_of,
)
from ensue.languages.opsl_text import show_value

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
    found = [written for way in ways if (written := writer.way(way)) is not None]
    if not found:
        raise QueryError(
            "nothing satisfies this subscription: it needs the place of something without one, "
            "or for a moment before itself",
            hint="an absence from a moment on has no event, and so no place",
        )
    patterns = [_pattern(written, alone=len(found) == 1) for written in found]
    (pattern,) = patterns if len(patterns) == 1 else (f"OR({', '.join(patterns)})",)
    conditions = [c for written in found for c in dict.fromkeys(written.conditions)]
    lines = [f"PATTERN {pattern}"]
    lines += [f"WHERE {condition}" for condition in conditions[:1]]
    lines += [f"    and {condition}" for condition in conditions[1:]]
    if subscription.select is not Select.ALL and any(written.names for written in found):
        lines.append(f"CHOOSE {subscription.select.name}")
    return "\n".join(lines)


def _pattern(written: "_Way", *, alone: bool) -> str:
    parts = written.parts
    if not written.names and (not alone or len(parts) != 1):
        raise QueryError(
            "an alternative has no event that must occur, so it cannot be a pattern",
            hint="an absence between fixed times must be the whole pattern",
        )
    return parts[0] if len(parts) == 1 else f"AND({', '.join(parts)})"


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
    events: int = 0  # variables so far

    def way(self, way: Alternative) -> "_Way | None":
        """An alternative as parts of a pattern and conditions; None: it never holds."""
        written = _Way(self, way)
        if not written.possible():
            return None
        written.parts += written.written()
        return written

    def variable(self) -> str:
        self.events += 1
        return f"e{self.events}"

    def atom(self, test: EventTest, variable: str) -> tuple[str, list[str]]:
        """An event by its type, and the conditions on it."""
        fixed = _fixed(test)
        if self.typed and not fixed:
            raise QueryError(
                "this atom does not test the type of its event, so it cannot become a pattern",
                hint="write STRING:type = '...' in each atom, or in none",
                span=test.predicates[0].span if test.predicates else None,
            )
        type = self.type_of(test)
        rest = [p for p in test.predicates if p not in fixed[:1]]
        conditions = [show_predicate(p, variable) for p in rest]
        place = f"{variable}.location"
        conditions += [
            show_near(as_near(one), show_region(one.region), place) for one in test.places
        ]
        return f"{show_name(type)} {variable}", conditions

    def type_of(self, test: EventTest) -> str:
        fixed = _fixed(test)
        return str(fixed[0].value) if fixed else ANY_TYPE


class _Way:
    """One alternative: its parts by their variables."""

    def __init__(self, writer: _Writer, way: Alternative) -> None:
        self.writer = writer
        self.way = way
        self.parts: list[str] = []
        self.conditions: list[str] = []
        self.names = {
            number: writer.variable()
            for number, part in enumerate(way.parts)
            if isinstance(part, EventTest)
        }

    def possible(self) -> bool:
        """Whether what is asked for its place has events, and moments are in order."""
        return not any(self._never(condition) for condition in self.way.conditions)

    def _never(self, condition: Condition) -> bool:
        match condition:
            case Near(first=first, second=second):
                groups = [g for g in (first, second) if not isinstance(g, Region)]
                return not all(self.names.keys() & group for group in groups)
            case Later():
                return self._known(condition) is False
            case Compared():
                return False

    def _known(self, condition: Later) -> bool | None:
        """Whether two moments lie as asked for; None if events decide it."""
        earlier, behind = self._moment(condition.earlier), self._moment(condition.later)
        if earlier is None or behind is None:
            return None
        limit = later(earlier, condition.by)
        if condition.most:
            return bool(behind <= limit)
        return bool(behind > limit if condition.strict else behind >= limit)

    def written(self) -> Iterator[str]:
        for number, part in enumerate(self.way.parts):
            if isinstance(part, EventTest):
                shown, conditions = self.writer.atom(part, self.names[number])
                self.conditions += conditions
                yield shown
        for condition in self.way.conditions:
            if not isinstance(condition, Later) or self._known(condition) is None:
                self.conditions.append(self.condition(condition))
        for part in self.way.parts:
            if isinstance(part, Gone):
                yield from self.absences(part)

    # ------------------------------------------------------------------------- conditions

    def condition(self, condition: Condition) -> str:
        match condition:
            case Later(strict=strict, most=most):
                operator = "<=" if most else ">" if strict else ">="
                limit = self.behind(condition.earlier, condition.by)
                return f"{self.point(condition.later)} {operator} {limit}"
            case Near(first=first, second=second):
                place = show_region(first) if isinstance(first, Region) else self.place(first)
                return show_near(condition, place, self.place(second))
            case Compared(part, name, operator, other, other_name):
                mine = f"{self.names[part]}.{show_name(name)}"
                return f"{mine} {operator} {self.names[other]}.{show_name(other_name)}"

    def behind(self, point: Point, by: Length | None) -> str:
        moment = self._moment(point)
        if moment is not None:
            return show_value(later(moment, by))
        shown = self.point(point)
        return shown if by is None or is_zero(by) else f"{shown} + {show_length_of_time(by)}"

    def point(self, point: Point) -> str:
        """A point in time. What is absent in a length of time lasts until that is over."""
        moment = self._moment(point)
        if moment is not None:
            return show_value(moment)
        function = "greatest" if point.end else "least"
        return _one_of(function, list(self._times(point.group, end=point.end)))

    def _moment(self, point: Point) -> Time | None:
        """A point in time that no event decides."""
        if isinstance(point.of, Moment):
            return time_of(point.of.at)
        times = []
        for number in point.of:
            part = self.way.parts[number]
            if isinstance(part, EventTest) or not part.lasts:
                return None
            moment = self._moment(part.until if point.end else part.since)
            if moment is None:
                return None
            times.append(later(moment, part.length if point.end else None))
        return max(times) if point.end else min(times)

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
                        "the absent part has several events, so it cannot become a pattern",
                        hint="in a pattern, an absence with an interval is about one event",
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
