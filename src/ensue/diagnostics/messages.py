"""The phrases of *why not?*: names, values, tests and conditions in words."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

from ensue.analyzer import normal_form
from ensue.diagnostics.search_context import Assignment, AtomTest, list_tests
from ensue.diagnostics.why_not_report import SeenEvent
from ensue.geo import geometry
from ensue.ir.subscription import EventTest, Predicate, Region, RegionTest, SpatialRelation, TimePoint
from ensue.ir.values import UNITS
from ensue.reference.conditions import Event
from ensue.reference.subscription_matches import ReferenceStream, Time, compute_length

_RELATIONS = {"<": "less than", "<=": "at most", ">": "more than", ">=": "at least"}
_MAX_UNITS = 2  # of a length
_MAX_FIELDS = 3  # by which an event is known
_MAX_REGION = 40  # characters of a region without a name
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# ----------------------------------------------------------------------------------- values


class ReportUnits:
    """Formats the times, lengths and distances of a stream."""

    def __init__(self, *, timestamps: bool = False, space: str = "plane") -> None:
        self.timestamps = timestamps
        self.space = space

    def format_length(self, length: Time, other: Time | None = None) -> str:
        """Formats a length of time, exactly if it would else read as a different `other`.

        >>> print(ReportUnits(timestamps=True).format_length(1_872_000_000_000))
        31 minutes 12 seconds
        >>> print(ReportUnits(timestamps=True).format_length(86_400_000_000_001))
        1 day 1 nanosecond
        """
        if not self.timestamps:
            return _format_number(length)
        units, rest = [], abs(round(length))
        for size, (name, *_) in UNITS[1:]:  # from days on
            count, rest = divmod(rest, size)
            if count:
                units.append(f"{count} {name}{'' if count == 1 else 's'}")
        shown = " ".join(units[:_MAX_UNITS]) or "0 seconds"
        if other is not None and length != other and shown == self.format_length(other):
            return " ".join(units)
        return shown

    def format_time(self, time: Time) -> str:
        """Formats a point in time.

        >>> print(ReportUnits(timestamps=True).format_time(1_769_855_400_000_000_000))
        2026-01-31 10:30:00
        >>> print(ReportUnits().format_time(3.0))
        3
        """
        if not self.timestamps:
            return _format_number(time)
        at = _to_datetime(time)
        return f"{time} ns" if at is None else at.replace(tzinfo=None).isoformat(sep=" ")

    def to_json(self, time: Time) -> str | int | float:
        at = _to_datetime(time) if self.timestamps else None
        return convert_value(time) if at is None else at.isoformat()

    def format_distance(self, distance: float, other: float | None = None) -> str:
        """Formats a distance, exactly if it would else read as a different `other`.

        >>> print(ReportUnits().format_distance(14.000012))
        14
        >>> print(ReportUnits(space="earth").format_distance(20.0004, 20))
        20.0004 m
        """
        shown = _round_number(distance)
        if other is not None and distance != other and shown == _round_number(other):
            shown = _format_number(distance)
        return f"{shown} m" if self.space == geometry.EARTH else shown


def _to_datetime(time: Time) -> datetime | None:
    try:
        return _EPOCH + timedelta(microseconds=int(time) // 1_000)
    except OverflowError:
        return None  # Python has no such time


def _round_number(number: float) -> str:
    return _format_number(round(number) if abs(number) >= 1_000 else float(f"{number:.4g}"))


def _format_number(number: float) -> str:
    return repr(number).removesuffix(".0")


def convert_value(value: object) -> Any:
    """Converts the value of a field to JSON.

    >>> convert_value({"at": datetime(2026, 1, 31), "load": Decimal("1.5"), "by": float("nan")})
    {'at': '2026-01-31T00:00:00', 'load': 1.5, 'by': 'nan'}
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else repr(value)
        case Decimal():
            return convert_value(float(value))
        case date():
            return value.isoformat()
        case bytes():
            return value.hex()
        case Mapping():
            return {str(key): convert_value(item) for key, item in value.items()}
        case Sequence():
            return [convert_value(item) for item in value]
        case _:
            return str(value)


def format_value(value: object) -> str:
    """Formats a value as a subscription writes it.

    >>> print(*map(format_value, ("truck", True, (1, 2), datetime(2026, 1, 31, 10))))
    'truck' TRUE (1, 2) 2026-01-31 10:00:00
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case tuple():
            return f"({', '.join(map(format_value, value))})"
        case datetime():
            return value.isoformat(sep=" ")
        case float():
            return _format_number(value)
        case _:
            return str(value)


# ------------------------------------------------------------------------- events and tests


class EventMessages:
    """Describes the events of one stream by the fields that a subscription reads."""

    def __init__(self, stream: ReferenceStream, fields: Iterable[str]) -> None:
        self.stream = stream
        self.units = ReportUnits(timestamps=stream.timestamps, space=stream.space)
        self.fields = tuple(dict.fromkeys(fields))[:_MAX_FIELDS]

    def show_event(self, event: Event, name: str) -> SeenEvent:
        start, end = self.units.to_json(event.start), self.units.to_json(event.end)
        values = {str(field): convert_value(value) for field, value in event.values.items()}
        corners = tuple(self.stream.corners.get(event.position, ()))
        known_as = self._identify(event)
        return SeenEvent(name, known_as, event.position, start, end, values, corners)

    def _identify(self, event: Event) -> str:
        values = [(name, self.stream.value(event, name)) for name in self.fields]
        return ", ".join(f"{name} {format_value(v)}" for name, v in values if v is not None)

    def locate_event(self, event: Event) -> str:
        """Returns `id 17 at 10:31`."""
        return f"{self._identify(event) or 'one'} at {self.units.format_time(event.end)}"

    def describe_test(self, test: AtomTest) -> str:
        """Returns `id = 17`, or `inside Depot`."""
        if isinstance(test, Predicate):
            return f"{test.name} {test.operator} {format_value(test.value)}"
        return self.describe_relation(test, _name_region(test.region))

    def explain_failure(self, test: AtomTest, event: Event, name: str = "it") -> tuple[str, float | None]:
        """Explains why an event fails a test, with its distance from the region."""
        if isinstance(test, Predicate):
            value = self.stream.value(event, test.name)
            field = test.name if name == "it" else f"{test.name} of {name}"
            if value is None:
                return f"{field} is NULL, which satisfies nothing", None
            required = f"{self.describe_test(test)} is required"
            return f"{field} is {format_value(value)}, {required}", None
        place = self.stream.place((event.position,))
        if place is None:
            return f"{name} has no place", None
        shape = geometry.parse_region(test.region.text, self.stream.space)
        why = self.explain_place(test, name, _name_region(test.region), shape, place)
        return why, geometry.compute_distance(shape, place, self.stream.space)

    def describe_relation(self, test: RegionTest | normal_form.SpatialConstraint, other: str) -> str:
        """Describes how something must lie to a place."""
        match test.where:
            case SpatialRelation.INSIDE:
                return f"inside {other}"
            case SpatialRelation.OVERLAP:
                return f"overlaps {other}"
            case SpatialRelation.SAME:
                limit = self.units.format_distance(test.number)
                return f"less than {limit} from the centre of {other}"
            case SpatialRelation.DISTANCE:
                return f"{self._describe_distance(test)} away from {other}"

    def explain_place(
        self,
        test: RegionTest | normal_form.SpatialConstraint,
        name: str,
        other: str,
        expected: geometry.ConvexHull | geometry.Shape,
        actual: geometry.ConvexHull,
    ) -> str:
        """Explains how a place violates its relation to another one."""
        space, units = self.stream.space, self.units
        was = "were" if " and " in name else "was"
        if test.where is SpatialRelation.SAME:
            there, here = (geometry.compute_centroid(p, space) for p in (expected, actual))
            distance = geometry.compute_point_distance(there, here, space)
            apart = units.format_distance(distance, test.number)
            centre = "its centre" if name == "it" else f"the centre of {name}"
            limit = units.format_distance(test.number)
            return f"{centre} was {apart} away from that of {other}, less than {limit} is required"
        distance = geometry.compute_distance(expected, actual, space)
        if test.where is SpatialRelation.DISTANCE:
            apart = units.format_distance(distance, test.number)
            required = self._describe_distance(test)
            return f"{name} {was} {apart} away from {other}, {required} is required"
        if test.where is SpatialRelation.INSIDE and distance == 0:
            return f"{name} {was} not completely inside {other}"
        must = "be inside" if test.where is SpatialRelation.INSIDE else "share a point with it"
        return f"{name} {was} {units.format_distance(distance)} away from {other}, and must {must}"

    def _describe_distance(self, test: RegionTest | normal_form.SpatialConstraint) -> str:
        number = self.units.format_distance(test.number)
        if test.comparison == "=":
            return f"{number} plus or minus {self.units.format_distance(test.tolerance)}"
        assert test.comparison is not None
        return f"{_RELATIONS[test.comparison]} {number}"


def _name_region(region: Region) -> str:
    """Returns the name of a region, or the start of its text."""
    if region.name is not None:
        return region.name
    text = region.text
    return text if len(text) <= _MAX_REGION else f"{text[: _MAX_REGION - 3]}..."


class PartNames:
    """Names parts: variables by their name; other events e1, e2 and so on, as written.

    >>> from ensue.analyzer.normal_form import SubscriptionAlternative
    >>> atom = EventTest(())
    >>> names = PartNames(normal_form.SubscriptionAlternative((atom, atom, atom), bound=(("A", frozenset({1})),)))
    >>> names.name_part(0), names.name_part(1), names.name_group(frozenset({0, 1, 2}))
    ('e1', '$A;', 'e1, $A; and e3')
    """

    def __init__(self, way: normal_form.SubscriptionAlternative) -> None:
        self._variables = {group: f"${variable};" for variable, group in way.bound}
        events = [n for n, part in enumerate(way.parts) if isinstance(part, EventTest)]
        names = enumerate(events, 1)
        self._events = {n: self._variables.get(frozenset((n,)), f"e{k}") for k, n in names}

    def name_part(self, part: int) -> str:
        return self._events[part]

    def name_group(self, group: normal_form.Group) -> str:
        """Names a variable or all events of a group; without events it is an absence."""
        if group in self._variables:
            return self._variables[group]
        names = [self._events[n] for n in sorted(group) if n in self._events]
        *others, last = names or ["the absence"]
        return f"{', '.join(others)} and {last}" if others else last


class ConditionMessages(PartNames):
    """Describes the conditions and absences of one alternative."""

    def __init__(self, way: normal_form.SubscriptionAlternative, events: EventMessages) -> None:
        super().__init__(way)
        self.events = events
        self.units = events.units

    def describe(self, condition: normal_form.Condition | normal_form.AbsentPart) -> str:
        match condition:
            case normal_form.TimeConstraint():
                return self._describe_order(condition)
            case normal_form.SpatialConstraint(first=first, second=second):
                relation = self.events.describe_relation(condition, self._name_place(first))
                return f"{self.name_group(second)} {relation}"
            case normal_form.FieldComparison(part, name, operator, other, other_name):
                left, right = self.name_part(part), self.name_part(other)
                return f"{name} of {left} {operator} {other_name} of {right}"
            case normal_form.AbsentPart():
                return self._describe_absence(condition)

    def explain(self, condition: normal_form.Condition, assignment: Assignment) -> str:
        match condition:
            case normal_form.TimeConstraint():
                return self._explain_order(condition, assignment)
            case normal_form.SpatialConstraint():
                return self._explain_location(condition, assignment)
            case normal_form.FieldComparison():
                return self._explain_comparison(condition, assignment)

    def explain_violation(self, events: Sequence[Event]) -> str:
        if not events:
            return "the absence that must not occur did: nothing came"
        shown = " and ".join(self.events.locate_event(event) for event in events)
        subject = "an event" if len(events) == 1 else "events"
        return f"{subject} that must not come did come: {shown}"

    def describe_wait(self, part: int | None, until: Time) -> str:
        """Describes which event may still complete a candidate."""
        subject = "nothing" if part is None else self.name_part(part)
        return f"still waiting: {subject} may come until {self.units.format_time(until)}"

    def _describe_order(self, later: normal_form.TimeConstraint) -> str:
        length = compute_length(later.by)
        shown, name = self.units.format_length(length), self._name_point(later.later)
        if _limits_duration(later):
            return f"at most {shown} from the first to the last of {name}"
        earlier = self._name_point(later.earlier)
        if not length:
            return f"{name} not after {earlier}" if later.most else f"{name} after {earlier}"
        return f"{name} {_name_relation(later)} {shown} after {earlier}"

    def _explain_order(self, later: normal_form.TimeConstraint, assignment: Assignment) -> str:
        earlier, time = assignment.get_time(later.earlier), assignment.get_time(later.later)
        assert earlier is not None
        assert time is not None
        by = compute_length(later.by)
        limit = self.units.format_length(by)
        apart = self.units.format_length(abs(time - earlier), by)
        are = "are" if limit.endswith("s") else "is"  # 25 minutes are, 1 minute is, 25 is
        needed = "allowed" if later.most else "required"
        required = f"{_name_relation(later)} {limit} {are} {needed}"
        if _limits_duration(later):
            return f"from the first to the last event it is {apart}, {required}"
        lasting = any(event.start != event.end for event in assignment.events.values())
        came = f"{self._name_point(later.later)} {_select_verb(later.later, lasting)}"
        other = self._name_point(later.earlier)
        if lasting and not isinstance(later.earlier.anchor, TimePoint):
            other = f"{other} {_select_verb(later.earlier, lasting)}"
        if time == earlier:
            fact = f"{came} at the same time as {other}"
        else:
            fact = f"{came} {apart} {'after' if time > earlier else 'before'} {other}"
        if by:
            return f"{fact}, {required}"
        return f"{fact}, and must {'not come later' if later.most else 'come after it'}"

    def _name_point(self, point: normal_form.TimeAnchor) -> str:
        if isinstance(point.anchor, TimePoint):
            return self.units.format_time(self.events.stream.moment(point.anchor.at))
        return self.name_group(point.anchor)

    def _name_place(self, place: Region | normal_form.Group) -> str:
        return _name_region(place) if isinstance(place, Region) else self.name_group(place)

    def _explain_location(self, near: normal_form.SpatialConstraint, assignment: Assignment) -> str:
        stream = self.events.stream
        name, other = self.name_group(near.second), self._name_place(near.first)
        expected = (
            geometry.parse_region(near.first.text, stream.space)
            if isinstance(near.first, Region)
            else stream.place(assignment.get_positions(near.first))
        )
        actual = stream.place(assignment.get_positions(near.second))
        if expected is None or actual is None:
            nowhere = name if actual is None else other
            return f"{nowhere} {'have' if ' and ' in nowhere else 'has'} no place"
        return self.events.explain_place(near, name, other, expected, actual)

    def _explain_comparison(self, compared: normal_form.FieldComparison, assignment: Assignment) -> str:
        sides = (compared.name, compared.part), (compared.other_name, compared.other)
        values = [self.events.stream.value(assignment.events[p], name) for name, p in sides]
        for (name, part), value in zip(sides, values, strict=True):
            if value is None:
                return f"{name} of {self.name_part(part)} is NULL, which satisfies nothing"
        left, right = map(format_value, values)
        field = "that" if compared.name == compared.other_name else compared.other_name
        fact = f"{compared.name} {left} is"
        other = f"{field} of {self.name_part(compared.other)} ({right})"
        match compared.operator:
            case "=":
                return f"{fact} not {other}"
            case "!=":
                return f"{fact} {other}, and must be different"
            case operator:
                return f"{fact} not {_RELATIONS[operator]} {other}"

    def _describe_absence(self, gone: normal_form.AbsentPart) -> str:
        absent = " or ".join(self._describe_absent(gone, n) for n in range(len(gone.absent)))
        subject, since = f"no {absent or 'nothing'}", self._name_point(gone.since)
        if gone.length is None:
            return f"{subject} between {since} and {self._name_point(gone.until)}"
        length = self.units.format_length(compute_length(gone.length))
        return f"{subject} for {length} after {since}"

    def _describe_absent(self, gone: normal_form.AbsentPart, index: int) -> str:
        """Describes one alternative of an absence."""
        atoms = []
        for number, part in enumerate(gone.absent[index].parts):
            if isinstance(part, EventTest):
                tests = [self.events.describe_test(test) for test in list_tests(part)]
                tests += [
                    f"{c.name} {c.operator} {c.other_name} of {self.name_part(c.other)}"
                    for which, c in gone.asks
                    if (which, c.part) == (index, number)
                ]
                atoms.append(f"({', '.join(tests) or 'any event'})")
        return " with ".join(atoms) or "absence"


def _limits_duration(later: normal_form.TimeConstraint) -> bool:
    """Returns whether a condition limits how long a group lasts."""
    return later.most and later.earlier.anchor == later.later.anchor


def _name_relation(later: normal_form.TimeConstraint) -> str:
    if later.most:
        return "at most"
    return "more than" if later.strict else "at least"


def _select_verb(point: normal_form.TimeAnchor, lasting: bool) -> str:
    if not lasting or isinstance(point.anchor, TimePoint):
        return "came"
    return "ended" if point.end else "started"
