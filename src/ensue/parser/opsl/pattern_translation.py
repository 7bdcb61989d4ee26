"""Translates a subscription to the pattern language: an OR of ANDs, with conditions on groups.

A group of events starts with its first event, ends with its last, and its place is their hull.
Matches that differ only in the roles of their events are one match of a subscription.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ensue.analyzer import normal_form
from ensue.errors import QueryError
from ensue.geo.wkt import Circle, format_number, read_wkt
from ensue.ir.selection import ByTime, ByUnits
from ensue.ir.subscription import (
    EventTest,
    Length,
    Predicate,
    Region,
    RegionTest,
    Select,
    SpatialRelation,
    Subscription,
    TimePoint,
    VariableField,
)
from ensue.printing.expression_printer import format_name
from ensue.printing.opsl_printer import format_constant, format_length

TYPE = "type"  # the field whose value is the type of an atom
ANY_TYPE = "Any"  # the type of all events, if no atom tests it
Time = Any  # a number or a datetime, as the moments of the text


def translate_subscription(subscription: Subscription) -> str:
    """Translates a subscription to a pattern with one condition per line.

    >>> from ensue.parser.opsl.opsl_parser import parse_subscription
    >>> text = "=|(A; 5)B, A = (STRING:type = 'a'), B = (STRING:type = 'b')"
    >>> print(translate_subscription(parse_subscription(text)))
    PATTERN AND(a e1, b e2)
    WHERE e2.start > e1.end
        and e2.end <= e1.end + 5
    CHOOSE LATEST
    """
    try:
        return _translate(subscription)
    except QueryError as error:
        raise error.at(None, subscription.text) from None


def _translate(subscription: Subscription) -> str:
    ways = normal_form.build_alternatives(subscription)
    writer = _Writer(typed=any(_type_predicates(test) for way in ways for test in _tests(way)))
    outputs = [output for way in ways if (output := writer.write(way)) is not None]
    if not outputs:
        raise QueryError(
            "nothing satisfies this subscription: it needs a place where there is no event, or a moment before itself",
            hint="an absence from a moment on has no event, and therefore no place",
        )
    patterns = [_pattern(output, alone=len(outputs) == 1) for output in outputs]
    (pattern,) = patterns if len(patterns) == 1 else (f"OR({', '.join(patterns)})",)
    conditions = [c for output in outputs for c in dict.fromkeys(output.conditions)]
    lines = [f"PATTERN {pattern}"]
    lines += [f"WHERE {condition}" for condition in conditions[:1]]
    lines += [f"    and {condition}" for condition in conditions[1:]]
    if subscription.select is not Select.ALL and any(output.names for output in outputs):
        lines.append(f"CHOOSE {subscription.select.name}")
    return "\n".join(lines)


def _pattern(writer: "_AlternativeWriter", *, alone: bool) -> str:
    parts = writer.parts
    if not writer.names and (not alone or len(parts) != 1):
        raise QueryError(
            "an alternative has no event that must occur, so it cannot be a pattern",
            hint="an absence between fixed times must be the whole pattern",
        )
    return parts[0] if len(parts) == 1 else f"AND({', '.join(parts)})"


def _tests(alternative: normal_form.SubscriptionAlternative) -> Iterator[EventTest]:
    for part in alternative.parts:
        if isinstance(part, EventTest):
            yield part
        else:
            for absent in part.absent:
                yield from _tests(absent)


def _type_predicates(test: EventTest) -> list[Predicate]:
    """Returns the predicates that set the type of an event."""
    return [p for p in test.predicates if p.name == TYPE and p.operator == "="]


@dataclass
class _Writer:
    typed: bool  # whether atoms test types
    events: int = 0  # variables created

    def write(self, alternative: normal_form.SubscriptionAlternative) -> "_AlternativeWriter | None":
        """Writes an alternative as parts and conditions; None if it can never hold."""
        writer = _AlternativeWriter(self, alternative)
        if not writer.is_possible():
            return None
        writer.parts += writer.write_parts()
        return writer

    def variable(self) -> str:
        self.events += 1
        return f"e{self.events}"

    def atom(self, test: EventTest, variable: str) -> tuple[str, list[str]]:
        """Writes an event by its type, and the conditions on it."""
        fixed = _type_predicates(test)
        if self.typed and not fixed:
            raise QueryError(
                "this atom does not test the type of its event, so it cannot become a pattern",
                hint="write STRING:type = '...' in each atom, or in none",
                span=test.predicates[0].span if test.predicates else None,
            )
        type = self.get_type(test)
        rest = [p for p in test.predicates if p not in fixed[:1]]
        conditions = [show_predicate(p, variable) for p in rest]
        place = f"{variable}.location"
        conditions += [show_near(near, show_region(near.region), place) for near in test.places]
        return f"{format_name(type)} {variable}", conditions

    def get_type(self, test: EventTest) -> str:
        fixed = _type_predicates(test)
        return str(fixed[0].value) if fixed else ANY_TYPE


class _AlternativeWriter:
    """Writes one alternative, with a variable for each event."""

    def __init__(self, writer: _Writer, way: normal_form.SubscriptionAlternative) -> None:
        self.writer = writer
        self.way = way
        self.parts: list[str] = []
        self.conditions: list[str] = []
        self.names = {number: writer.variable() for number, part in enumerate(way.parts) if isinstance(part, EventTest)}

    def is_possible(self) -> bool:
        """Whether every place has events, and moments are in order."""
        return not any(self._is_impossible(condition) for condition in self.way.conditions)

    def _is_impossible(self, condition: normal_form.Condition) -> bool:
        match condition:
            case normal_form.SpatialConstraint(first=first, second=second):
                groups = [g for g in (first, second) if not isinstance(g, Region)]
                return not all(self.names.keys() & group for group in groups)
            case normal_form.TimeConstraint():
                return self._compare_moments(condition) is False
            case normal_form.FieldComparison():
                return False

    def _compare_moments(self, condition: normal_form.TimeConstraint) -> bool | None:
        """Whether two moments are in the required order; None if events decide it."""
        earlier, later_time = self._moment(condition.earlier), self._moment(condition.later)
        if earlier is None or later_time is None:
            return None
        limit = add_length(earlier, condition.by)
        if condition.most:
            return bool(later_time <= limit)
        return bool(later_time > limit if condition.strict else later_time >= limit)

    def write_parts(self) -> Iterator[str]:
        for number, part in enumerate(self.way.parts):
            if isinstance(part, EventTest):
                shown, conditions = self.writer.atom(part, self.names[number])
                self.conditions += conditions
                yield shown
        for condition in self.way.conditions:
            if not isinstance(condition, normal_form.TimeConstraint) or self._compare_moments(condition) is None:
                self.conditions.append(self.condition(condition))
        for part in self.way.parts:
            if isinstance(part, normal_form.AbsentPart):
                yield from self.absences(part)

    def condition(self, condition: normal_form.Condition) -> str:
        match condition:
            case normal_form.TimeConstraint(strict=strict, most=most):
                operator = "<=" if most else ">" if strict else ">="
                limit = self.write_shifted(condition.earlier, condition.by)
                return f"{self.point(condition.later)} {operator} {limit}"
            case normal_form.SpatialConstraint(first=first, second=second):
                place = show_region(first) if isinstance(first, Region) else self.place(first)
                return show_near(condition, place, self.place(second))
            case normal_form.FieldComparison(part, name, operator, other, other_name):
                field = f"{self.names[part]}.{format_name(name)}"
                return f"{field} {operator} {self.names[other]}.{format_name(other_name)}"

    def write_shifted(self, point: normal_form.TimeAnchor, by: Length | None) -> str:
        moment = self._moment(point)
        if moment is not None:
            return format_constant(add_length(moment, by))
        shown = self.point(point)
        return shown if by in (None, ByTime(0), ByUnits(0)) else f"{shown} + {show_duration(by)}"

    def point(self, point: normal_form.TimeAnchor) -> str:
        """Writes a point in time; an absence of a given length lasts until that is over."""
        moment = self._moment(point)
        if moment is not None:
            return format_constant(moment)
        function = "greatest" if point.end else "least"
        return _call_over(function, list(self._times(point.group, end=point.end)))

    def _moment(self, point: normal_form.TimeAnchor) -> Time | None:
        """Returns a point in time that does not depend on events."""
        if isinstance(point.anchor, TimePoint):
            return point.anchor.at
        times = []
        for number in point.anchor:
            part = self.way.parts[number]
            if isinstance(part, EventTest) or not part.lasts:
                return None
            moment = self._moment(part.until if point.end else part.since)
            if moment is None:
                return None
            times.append(add_length(moment, part.length if point.end else None))
        return max(times) if point.end else min(times)

    def _times(self, group: normal_form.Group, *, end: bool) -> Iterator[str]:
        """Yields the times of which one is the start or the end of a group."""
        absences = [part for n in sorted(group) if isinstance(part := self.way.parts[n], normal_form.AbsentPart)]
        ended = frozenset[int]().union(*(part.until.group for part in absences if part.lasts))
        for number in sorted(group - ended if end else group):
            if number in self.names:
                yield f"{self.names[number]}.{'end' if end else 'start'}"
        for part in absences:
            if end and part.lasts:
                yield self.write_shifted(part.until, part.length)
            elif not end and isinstance(part.since.anchor, TimePoint):
                yield self.point(part.since)

    def place(self, group: normal_form.Group) -> str:
        places = [f"{self.names[n]}.location" for n in sorted(group) if n in self.names]
        return _call_over("hull", places)

    def absences(self, absence: normal_form.AbsentPart) -> Iterator[str]:
        """Writes the absence of alternatives as the absence of each of them."""
        since, until = self.point(absence.since), self.write_shifted(absence.until, absence.length)
        for number, absent in enumerate(absence.absent):
            match absent.parts:
                case (EventTest() as test,):
                    asks = [compared for which, compared in absence.asks if which == number]
                    variable = self.writer.variable()
                    shown, conditions = self._absent(test, variable, absent, asks)
                    self.conditions += conditions
                    for other in sorted(self.names.keys() - absence.base):
                        self.conditions += self._exclude_event(other, test, absent, asks, (since, until))
                    yield f"!{shown} FROM {since} TO {until}"
                case _:
                    raise QueryError(
                        "the absent part has several events, so it cannot become a pattern",
                        hint="in a pattern, an absence with an interval is about one event",
                    )

    def _absent(
        self,
        test: EventTest,
        variable: str,
        absent: normal_form.SubscriptionAlternative,
        asks: Sequence[normal_form.FieldComparison],
    ) -> tuple[str, list[str]]:
        shown, conditions = self.writer.atom(test, variable)
        conditions += [self._comparison(compared, variable) for compared in asks]
        return shown, conditions + _absent_conditions(absent, variable)

    def _exclude_event(
        self,
        other: int,
        test: EventTest,
        absent: normal_form.SubscriptionAlternative,
        asks: Sequence[normal_form.FieldComparison],
        interval: tuple[str, str],
    ) -> Iterator[str]:
        """Excludes an event of the match itself, which a pattern's absence ignores."""
        part = self.way.parts[other]
        assert isinstance(part, EventTest)
        if self.writer.get_type(part) != self.writer.get_type(test):
            return
        name = self.names[other]
        _, conditions = self._absent(test, name, absent, asks)
        conditions += [f"{name}.start > {interval[0]}", f"{name}.end <= {interval[1]}"]
        yield f"NOT coalesce({' and '.join(conditions)}, FALSE)"

    def _comparison(self, compared: normal_form.FieldComparison, variable: str) -> str:
        other = f"{self.names[compared.other]}.{format_name(compared.other_name)}"
        return f"{variable}.{format_name(compared.name)} {compared.operator} {other}"


def _absent_conditions(absent: normal_form.SubscriptionAlternative, variable: str) -> list[str]:
    """Writes the conditions on one absent event."""
    alone = _AlternativeWriter(_Writer(typed=False), absent)
    alone.names = {0: variable}
    return [alone.condition(condition) for condition in absent.conditions]


def _call_over(function: str, values: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(values))
    return distinct[0] if len(distinct) == 1 else f"{function}({', '.join(distinct)})"


def show_duration(length: Length) -> str:
    """Prints a length that conditions can add."""
    if isinstance(length, ByTime) and length.nanoseconds % 1000:
        raise QueryError("lengths in patterns must be whole microseconds", hint="round it: 1 us", span=length.span)
    return format_length(length)


def add_length(at: Time, by: Length | None) -> Any:
    """Adds a length to a moment."""
    match at, by:
        case (_, None):
            return at
        case (int() | float(), ByUnits(amount)):
            return at + amount
        case (datetime(), ByTime(nanoseconds)) if nanoseconds % 1000 == 0:
            return at + timedelta(microseconds=nanoseconds // 1000)
        case _:
            raise QueryError(
                "this moment and this length do not fit together",
                hint="numbers go with numbers, timestamps with whole microseconds",
                span=by.span,
            )


def show_region(region: Region) -> str:
    """Prints a region as a constant of the pattern language."""
    match read_wkt(region.text):
        case Circle(x, y, radius):
            return f"CIRCLE({', '.join(map(format_number, (x, y, radius)))})"
        case _:
            return f"WKT '{region.text}'"


def show_near(near: normal_form.SpatialConstraint | RegionTest, p: str, q: str) -> str:
    """Prints a spatial condition on two places."""
    number = format_number(near.number)
    match near.where:
        case SpatialRelation.INSIDE:
            return f"inside({q}, {p})"
        case SpatialRelation.OVERLAP:
            return f"overlaps({p}, {q})"
        case SpatialRelation.SAME:
            return f"same_place({p}, {q}, {number})"
        case SpatialRelation.DISTANCE if near.comparison == "=":
            return f"abs(distance({p}, {q}) - {number}) <= {format_number(near.tolerance)}"
        case SpatialRelation.DISTANCE:
            return f"distance({p}, {q}) {near.comparison} {number}"


def show_predicate(predicate: Predicate, variable: str) -> str:
    """Prints a predicate on a field of one event."""
    head = f"{variable}.{format_name(predicate.name)} {predicate.operator}"
    match predicate.value:
        case tuple() as values:
            return f"{head} ({', '.join(format_constant(value) for value in values)})"
        case str() as text if predicate.operator == "LIKE":
            escaped = text.replace("\\", "\\\\")  # OPSL has no escape character
            return f"{head} {format_constant(escaped)}"
        case VariableField():
            raise AssertionError(predicate)  # the normal form has converted them to conditions
        case value:
            return f"{head} {format_constant(value)}"
