"""Evaluates subscriptions by trying all assignments of events to their expressions.

A match consists of its members, its start, its end, and the time at which it is known: assignments
with the same events in the same roles are one match.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from ensue.analyzer.normal_form import build_alternatives, find_common_key
from ensue.geo import geometry
from ensue.ir.selection import ByTime
from ensue.ir.subscription import (
    Concurrent,
    Conjunction,
    Disjunction,
    EventAtom,
    Expression,
    IntervalBetween,
    IntervalSince,
    Length,
    Predicate,
    Region,
    Select,
    SpatialCondition,
    SpatialRelation,
    Subscription,
    TemporalCondition,
    TemporalRelation,
    TimePoint,
    VariableField,
    VariableUse,
)
from ensue.ir.values import to_instant, to_number
from ensue.reference.conditions import Event

Time = int | float
KnownTime = tuple[Time, int]  # a time; 0: with an event of it, 1: after it
Corners = tuple[tuple[float, float], ...]
VariableBindings = Mapping[str, "FilledExpression"]


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """A predicate with `$x;.id`, which compares an event with another one."""

    event: Event
    predicate: Predicate


@dataclass(frozen=True, slots=True)
class AbsenceInterval:
    """Nothing of `part` may be in (since, until]; the events of the base do not count."""

    since: Time
    until: Time
    base: frozenset[int]
    part: Expression


@dataclass(frozen=True, slots=True)
class FilledExpression:
    """An event or a complex event assigned to an expression."""

    members: Mapping[int, Event]  # by position
    start: Time
    end: Time
    bound: VariableBindings = field(default_factory=dict)  # its variables
    requirements: tuple[FieldRequirement, ...] = ()
    absences: tuple[AbsenceInterval, ...] = ()

    @property
    def positions(self) -> frozenset[int]:
        return frozenset(self.members)


@dataclass(frozen=True, slots=True)
class SubscriptionMatch:
    """A delivered match: positions of events in the stream, ascending."""

    members: tuple[int, ...]
    start: Time
    end: Time
    known: KnownTime

    @property
    def last(self) -> int:
        return self.members[-1] if self.members else -1

    @property
    def newness(self) -> tuple[Any, ...]:
        """The sort key, whose greatest value is the latest match."""
        return self.members[::-1], self.end, self.start


@dataclass(frozen=True)
class ReferenceStream:
    """The sorted events, their places, and the units of space and time."""

    events: Sequence[Event]
    corners: Mapping[int, Corners] = field(default_factory=dict)  # by position; missing: no place
    space: str = "plane"
    moment: Callable[[Any], Time] = float
    type_column: str | None = None  # the column of `type`, if it has another name
    timestamps: bool = False  # times are nanoseconds since 1970; else numbers of any unit

    def value(self, event: Event, name: str) -> object:
        """Returns the value that predicates compare."""
        if name == "type" and name not in event.values and self.type_column is not None:
            return event.type
        return event.values[name]

    def holds(self, event: Event, name: str, operator: str, operand: object) -> bool:
        """Whether a predicate holds; NULL satisfies none."""
        value = self.value(event, name)
        if value is None or operand is None:
            return False
        return compare_values(operator, value, operand)

    def place(self, positions: Iterable[int]) -> geometry.ConvexHull | None:
        """Returns the hull of all members' places; members without a place are ignored."""
        member_corners = [self.corners.get(p, ()) for p in sorted(positions)]
        corners = [corner for corners_ in member_corners for corner in corners_]
        if corners and self.space == geometry.EARTH:
            corners = [(_unwrap_longitude(x, corners[0][0]), y) for x, y in corners]
        return geometry.build_hull(corners)


def find_subscription_matches(subscription: Subscription, stream: ReferenceStream) -> list[SubscriptionMatch]:
    """Returns all matches in the order in which they become known."""
    evaluator = _Evaluator(subscription, stream)
    keys = {evaluator.match(value): evaluator.key(value) for value in evaluator.iterate_assignments()}
    return select_matches(keys, subscription.select).delivered


@dataclass(frozen=True, slots=True)
class SelectionResult:
    """The delivered matches, and the matches that superseded the others."""

    delivered: list[SubscriptionMatch] = field(default_factory=list)
    # matches whose events an earlier match used
    used: dict[SubscriptionMatch, SubscriptionMatch] = field(default_factory=dict)
    outdone: dict[SubscriptionMatch, SubscriptionMatch] = field(default_factory=dict)


def select_matches(keys: Mapping[SubscriptionMatch, object], select: Select) -> SelectionResult:
    """Selects among all matches, by their keys."""
    ordered = sorted(keys, key=lambda m: (m.known, m.last, m.newness))
    if select is Select.ALL:
        return SelectionResult(ordered)
    groups: dict[object, list[SubscriptionMatch]] = {}
    for match in ordered:
        groups.setdefault((match.known, match.last), []).append(match)
    result = SelectionResult()
    using: dict[object, SubscriptionMatch] = {}  # by key: its events are used up to its last one
    for group in groups.values():
        free = []
        for match in group:
            user = using.get(keys[match]) if select is Select.ONCE and match.members else None
            if user is not None and match.members[0] <= user.last:
                result.used[match] = user
            else:
                free.append(match)
        if free:
            latest = max(free, key=lambda m: m.newness)
            result.delivered.append(latest)
            result.outdone.update((m, latest) for m in free if m is not latest)
            previous = using.get(keys[latest])
            if previous is None or latest.last > previous.last:
                using[keys[latest]] = latest
    return result


class _Evaluator:
    def __init__(self, subscription: Subscription, stream: ReferenceStream) -> None:
        self.subscription = subscription
        self.stream = stream
        keys = map(find_common_key, build_alternatives(subscription))
        self.tied = all(key is not None for key in keys)
        self._values: dict[Expression, list[FilledExpression]] = {}

    def iterate_assignments(self) -> Iterator[FilledExpression]:
        """Yields the assignments of the root that satisfy all conditions."""
        within = self.subscription.within
        for value in self.values(self.subscription.root):
            if within is not None and value.members:
                ends = [event.end for event in value.members.values()]
                starts = [event.start for event in value.members.values()]
                if max(ends) - min(starts) > compute_length(within):
                    continue
            if self._satisfies_comparisons(value, value.bound) and not any(
                self._is_violated(absence, value.bound) for absence in value.absences
            ):
                yield value

    def match(self, value: FilledExpression) -> SubscriptionMatch:
        members = tuple(sorted(value.members))
        known = [(value.members[members[-1]].end, 0)] if members else []
        known += [(absence.until, 1) for absence in value.absences]
        return SubscriptionMatch(members, value.start, value.end, max(known))

    def key(self, value: FilledExpression) -> object:
        """Returns the value of the key that equates all members, if every alternative has one."""
        if not self.tied:
            return None
        tied: dict[tuple[int, str], set[tuple[int, str]]] = {}
        for requirement in value.requirements:
            reference = requirement.predicate.value
            assert isinstance(reference, VariableField)
            if requirement.predicate.operator == "=":
                (other,) = value.bound[reference.variable].members
                left, right = (requirement.event.position, requirement.predicate.name), (other, reference.name)
                joined = tied.get(left, {left}) | tied.get(right, {right})
                tied |= dict.fromkeys(joined, joined)
        for group in tied.values():
            if {position for position, _ in group} == set(value.members):
                position, name = min(group)
                return self.stream.value(value.members[position], name)
        return None

    def values(self, expression: Expression) -> list[FilledExpression]:
        if expression not in self._values:
            self._values[expression] = list(self._assign(expression))
        return self._values[expression]

    def _assign(self, expression: Expression) -> Iterator[FilledExpression]:
        match expression:
            case EventAtom(predicates):
                yield from self._events(predicates)
            case VariableUse(variable):
                for value in self.values(self.subscription.variables[variable]):
                    yield replace(value, bound={**value.bound, variable: value})
            case Conjunction(parts):
                yield from self._all(parts)
            case Disjunction(parts):
                for part in parts:
                    yield from self.values(part)
            case Concurrent(first, second, tolerance):
                allowed = compute_length(tolerance or self.subscription.concurrent)
                for a, b, both in self._pairs(first, second):
                    if max(a.start, b.start) - min(a.end, b.end) <= allowed:
                        yield both
            case SpatialCondition(place=Region() as region, part=part):
                shape = geometry.parse_region(region.text, self.stream.space)
                for value in self.values(part):
                    if self._fits(expression, shape, value):
                        yield value
            case SpatialCondition(place=place, part=part):
                assert not isinstance(place, Region)
                for a, b, both in self._pairs(place, part):
                    if self._fits(expression, self.stream.place(a.members), b):
                        yield both
            case TemporalCondition(TemporalRelation.ABSENT, interval, part):
                yield from self._absent(interval, part)
            case TemporalCondition(when, interval, part):
                for base, since, until, after in self._bases(interval):
                    for c in self.values(part):
                        inside = since < c.start and c.end <= until
                        fits = inside if when is TemporalRelation.BETWEEN else c.start > after
                        combined = c if base is None else _combine(base, c)
                        if fits and combined is not None:
                            yield combined

    def _events(self, predicates: Sequence[Predicate]) -> Iterator[FilledExpression]:
        open_ = [p for p in predicates if isinstance(p.value, VariableField)]
        rest = [p for p in predicates if not isinstance(p.value, VariableField)]
        for event in self.stream.events:
            if all(self.stream.holds(event, p.name, p.operator, p.value) for p in rest):
                requirements = tuple(FieldRequirement(event, p) for p in open_)
                members = {event.position: event}
                yield FilledExpression(members, event.start, event.end, requirements=requirements)

    def _all(self, parts: Sequence[Expression]) -> Iterator[FilledExpression]:
        combined = self.values(parts[0])
        for part in parts[1:]:
            pairs = ((a, b) for a in combined for b in self.values(part))
            combined = [both for a, b in pairs if (both := _combine(a, b)) is not None]
        yield from combined

    def _pairs(
        self, first: Expression, second: Expression
    ) -> Iterator[tuple[FilledExpression, FilledExpression, FilledExpression]]:
        for a in self.values(first):
            for b in self.values(second):
                if (both := _combine(a, b)) is not None:
                    yield a, b, both

    def _bases(
        self, interval: IntervalSince | IntervalBetween
    ) -> Iterator[tuple[FilledExpression | None, Time, Time, Time]]:
        """Yields the base of an interval, its start, its end, and the time for *after*."""
        match interval:
            case IntervalSince(TimePoint(at), length):
                since = self.stream.moment(at)
                yield None, since, since + compute_length(length), since + compute_length(length)
            case IntervalSince(base, length):
                assert not isinstance(base, TimePoint)
                for a in self.values(base):
                    yield a, a.end, a.end + compute_length(length), a.end + compute_length(length)
            case IntervalBetween(first, second):
                for a, b, both in self._pairs(first, second):
                    if a.end < b.start:
                        yield both, a.end, b.start, b.end

    def _absent(self, interval: IntervalSince | IntervalBetween, part: Expression) -> Iterator[FilledExpression]:
        for base, since, until, _ in self._bases(interval):
            base = FilledExpression({}, since, until) if base is None else base
            absence = AbsenceInterval(since, until, base.positions, part)
            end = until if isinstance(interval, IntervalSince) else base.end
            yield replace(base, end=end, absences=(*base.absences, absence))

    def _is_violated(self, absence: AbsenceInterval, bound: VariableBindings) -> bool:
        return any(
            absence.since < c.start
            and c.end <= absence.until
            and not absence.base & c.positions
            and self._satisfies_comparisons(c, {**bound, **c.bound})
            and not any(self._is_violated(inner, {**bound, **c.bound}) for inner in c.absences)
            for c in self.values(absence.part)
        )

    def _satisfies_comparisons(self, value: FilledExpression, bound: VariableBindings) -> bool:
        for requirement in value.requirements:
            reference = requirement.predicate.value
            assert isinstance(reference, VariableField)
            if reference.variable not in bound:
                return False
            (other,) = bound[reference.variable].members.values()
            other_value = self.stream.value(other, reference.name)
            name, operator = requirement.predicate.name, requirement.predicate.operator
            if not self.stream.holds(requirement.event, name, operator, other_value):
                return False
        return True

    def _fits(
        self, test: SpatialCondition, place: geometry.ConvexHull | geometry.Shape | None, q: FilledExpression
    ) -> bool:
        subscription, number = self.subscription, test.number
        if number is None:
            number = subscription.same_place if test.where is SpatialRelation.SAME else 0.0
        relation = test.comparison, number, subscription.equal, self.stream.space
        return geometry.evaluate_relation(test.where, place, self.stream.place(q.members), *relation)


def _unwrap_longitude(x: float, origin: float) -> float:
    """Shifts a longitude to within 180 degrees of another."""
    while x - origin > 180:
        x -= 360
    while x - origin < -180:
        x += 360
    return x


def _combine(a: FilledExpression, b: FilledExpression) -> FilledExpression | None:
    """Combines two assignments if their variables agree and share no other events."""
    shared: set[int] = set()
    for variable in a.bound.keys() & b.bound.keys():
        if not _are_same(a.bound[variable], b.bound[variable]):
            return None
        shared |= a.bound[variable].positions
    if (a.positions & b.positions) - shared:
        return None
    absences = (*a.absences, *(x for x in b.absences if x not in a.absences))
    requirements = (*a.requirements, *(x for x in b.requirements if x not in a.requirements))
    members, bound = {**a.members, **b.members}, {**a.bound, **b.bound}
    start, end = min(a.start, b.start), max(a.end, b.end)
    return FilledExpression(members, start, end, bound, requirements, absences)


def _are_same(a: FilledExpression, b: FilledExpression) -> bool:
    """Whether two assignments have the same events in the same roles."""
    return (
        a.positions == b.positions
        and (a.start, a.end, a.requirements, a.absences) == (b.start, b.end, b.requirements, b.absences)
        and a.bound.keys() == b.bound.keys()
        and all(_are_same(a.bound[v], b.bound[v]) for v in a.bound)
    )


def compute_length(length: Length | None) -> Time:
    """Returns a length in the units of the stream's times."""
    if length is None:
        return 0
    return length.nanoseconds if isinstance(length, ByTime) else length.amount


def compare_values(operator: str, value: Any, operand: Any) -> bool:
    """Whether a comparison holds; NaN differs from everything.

    >>> (compare_values("IN", 3, (1, 3)), compare_values("LIKE", "truck", "tr_ck%"), compare_values("<", 2, 2))
    (True, True, False)
    """
    value = normalize_value(value)
    if operator == "IN":
        return any(value == normalize_value(option) for option in operand)
    if operator in _COMPARISONS:
        return bool(_COMPARISONS[operator](value, normalize_value(operand)))
    pattern = "".join({"%": ".*", "_": "."}.get(c, re.escape(c)) for c in operand)
    return re.fullmatch(pattern, value, re.DOTALL) is not None


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge
}  # fmt: skip


def normalize_value(value: Any) -> Any:
    """Converts dates and decimals to values that Python compares correctly.

    >>> normalize_value(Decimal("0.1")) == normalize_value(0.1), normalize_value(date(2026, 1, 31))
    (True, datetime.datetime(2026, 1, 31, 0, 0, tzinfo=datetime.timezone.utc))
    """
    if isinstance(value, date):
        return to_instant(value)
    return to_number(value) if isinstance(value, Decimal) else value
