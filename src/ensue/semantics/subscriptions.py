"""What a subscription means: all ways to fill its expression with events, and those that fit.

Slow and plain. A match is its members, its start, its end, and the moment it is known: two ways
to fill the same roles with the same events are one match.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ensue.algebra import places
from ensue.algebra.alternatives import alternatives
from ensue.algebra.subscription import (
    Amid,
    Atomic,
    Both,
    Concurrent,
    Either,
    Expression,
    FieldOf,
    Length,
    Moment,
    Placed,
    Predicate,
    Region,
    Select,
    Since,
    Subscription,
    Timed,
    Use,
    When,
    Where,
)
from ensue.algebra.tied import tie
from ensue.algebra.window import ByTime
from ensue.semantics.events import Event

Time = int | float
Known = tuple[Time, int]  # a time; 0: at an event of it, 1: once it has passed
Corners = tuple[tuple[float, float], ...]
Bound = Mapping[str, "Value"]


@dataclass(frozen=True, slots=True)
class Asked:
    """`$x;.id` in a predicate: what one event needs of another."""

    event: Event
    predicate: Predicate


@dataclass(frozen=True, slots=True)
class Absence:
    """Nothing of `part` may lie in (since, until]; the events of the base do not count."""

    since: Time
    until: Time
    base: frozenset[int]
    part: Expression


@dataclass(frozen=True, slots=True)
class Value:
    """An event, or a complex event, that fills an expression."""

    members: Mapping[int, Event]  # by position
    start: Time
    end: Time
    bound: Bound = field(default_factory=dict)  # what its variables stand for
    asked: tuple[Asked, ...] = ()
    absences: tuple[Absence, ...] = ()

    @property
    def positions(self) -> frozenset[int]:
        return frozenset(self.members)


@dataclass(frozen=True, slots=True)
class SubscriptionMatch:
    """What is delivered: events by position in the stream, ascending."""

    members: tuple[int, ...]
    start: Time
    end: Time
    known: Known

    @property
    def last(self) -> int:
        return self.members[-1] if self.members else -1

    @property
    def newness(self) -> tuple[Any, ...]:
        """The greatest is the latest."""
        return self.members[::-1], self.end, self.start


@dataclass(frozen=True)
class Stream:
    """The events in order, where each is, and how space and time are measured."""

    events: Sequence[Event]
    corners: Mapping[int, Corners] = field(default_factory=dict)  # by position; missing: nowhere
    space: str = "plane"
    moment: Callable[[Any], Time] = float
    type_column: str | None = None  # where `type` is, if no column is called so


def matches(subscription: Subscription, stream: Stream) -> list[SubscriptionMatch]:
    """All matches in the order in which they become known."""
    meaning = _Meaning(subscription, stream)
    found = {meaning.match(value): meaning.key(value) for value in meaning.whole()}
    ordered = sorted(found, key=lambda m: (m.known, m.last, m.newness))
    if subscription.select is Select.ALL:
        return ordered
    groups: dict[object, list[SubscriptionMatch]] = {}
    for match in ordered:
        groups.setdefault((match.known, match.last), []).append(match)
    chosen: list[SubscriptionMatch] = []
    used: dict[object, int] = {}  # by key: up to where events are used up
    for group in groups.values():
        if subscription.select is Select.ONCE:
            group = [m for m in group if not m.members or m.members[0] > used.get(found[m], -1)]
        if group:
            latest = max(group, key=lambda m: m.newness)
            chosen.append(latest)
            used[found[latest]] = max(used.get(found[latest], -1), latest.last)
    return chosen


class _Meaning:
    def __init__(self, subscription: Subscription, stream: Stream) -> None:
        self.subscription = subscription
        self.stream = stream
        self.tied = all(tie(way) is not None for way in alternatives(subscription))
        self._values: dict[Expression, list[Value]] = {}

    def whole(self) -> Iterator[Value]:
        """The values of the root that fit as a whole."""
        within = self.subscription.within
        for value in self.values(self.subscription.root):
            if within is not None and value.members:
                ends = [event.end for event in value.members.values()]
                starts = [event.start for event in value.members.values()]
                if max(ends) - min(starts) > _length(within):
                    continue
            if self._asked(value, value.bound) and not any(
                self._happened(absence, value.bound) for absence in value.absences
            ):
                yield value

    def match(self, value: Value) -> SubscriptionMatch:
        members = tuple(sorted(value.members))
        times = [value.members[p].end for p in members]
        untils = [absence.until for absence in value.absences]
        last = (times[-1], 0) if times else None
        until = (max(untils), 1) if untils else None
        known = max(k for k in (last, until) if k is not None)
        return SubscriptionMatch(members, value.start, value.end, known)

    def key(self, value: Value) -> object:
        """The value that fields tie all members to each other by, if they do in every way."""
        if not self.tied:
            return None
        tied: dict[tuple[int, str], set[tuple[int, str]]] = {}
        for asked in value.asked:
            wanted = asked.predicate.value
            assert isinstance(wanted, FieldOf)
            if asked.predicate.operator == "=":
                (other,) = value.bound[wanted.variable].members
                mine, theirs = (asked.event.position, asked.predicate.name), (other, wanted.name)
                joined = tied.get(mine, {mine}) | tied.get(theirs, {theirs})
                tied |= dict.fromkeys(joined, joined)
        for together in tied.values():
            if {position for position, _ in together} == set(value.members):
                position, name = min(together)
                return self._field(value.members[position], name)
        return None

    # ---------------------------------------------------------------------------- values

    def values(self, expression: Expression) -> list[Value]:
        if expression not in self._values:
            self._values[expression] = list(self._each(expression))
        return self._values[expression]

    def _each(self, expression: Expression) -> Iterator[Value]:
        match expression:
            case Atomic(predicates):
                yield from self._events(predicates)
            case Use(variable):
                for value in self.values(self.subscription.variables[variable]):
                    yield replace(value, bound={**value.bound, variable: value})
            case Both(parts):
                yield from self._all(parts)
            case Either(parts):
                for part in parts:
                    yield from self.values(part)
            case Concurrent(first, second, tolerance):
                allowed = _length(tolerance or self.subscription.concurrent)
                for a, b, both in self._pairs(first, second):
                    if max(a.start, b.start) - min(a.end, b.end) <= allowed:
                        yield both
            case Placed(place=Region() as region, part=part):
                shape = places.shape_of(region.text, self.stream.space)
                for value in self.values(part):
                    if self._fits(expression, shape, value):
                        yield value
            case Placed(place=place, part=part):
                assert not isinstance(place, Region)
                for a, b, both in self._pairs(place, part):
                    if self._fits(expression, self._place(a), b):
                        yield both
            case Timed(When.ABSENT, interval, part):
                yield from self._absent(interval, part)
            case Timed(when, interval, part):
                for base, since, until, behind in self._bases(interval):
                    for c in self.values(part):
                        inside = since < c.start and c.end <= until
                        fits = inside if when is When.BETWEEN else c.start > behind
                        whole = c if base is None else _together(base, c)
                        if fits and whole is not None:
                            yield whole

    def _events(self, predicates: Sequence[Predicate]) -> Iterator[Value]:
        for event in self.stream.events:
            open_ = [p for p in predicates if isinstance(p.value, FieldOf)]
            rest = [p for p in predicates if not isinstance(p.value, FieldOf)]
            if all(self._holds(p, event, p.value) for p in rest):
                asked = tuple(Asked(event, p) for p in open_)
                yield Value({event.position: event}, event.start, event.end, asked=asked)

    def _all(self, parts: Sequence[Expression]) -> Iterator[Value]:
        found = self.values(parts[0])
        for part in parts[1:]:
            pairs = ((a, b) for a in found for b in self.values(part))
            found = [both for a, b in pairs if (both := _together(a, b)) is not None]
        yield from found

    def _pairs(
        self, first: Expression, second: Expression
    ) -> Iterator[tuple[Value, Value, Value]]:
        for a in self.values(first):
            for b in self.values(second):
                if (both := _together(a, b)) is not None:
                    yield a, b, both

    def _bases(self, interval: Since | Amid) -> Iterator[tuple[Value | None, Time, Time, Time]]:
        """What an interval adds, from and to, and what *after* is behind."""
        match interval:
            case Since(Moment(at), length):
                since = self.stream.moment(at)
                yield None, since, since + _length(length), since + _length(length)
            case Since(base, length):
                assert not isinstance(base, Moment)
                for a in self.values(base):
                    yield a, a.end, a.end + _length(length), a.end + _length(length)
            case Amid(first, second):
                for a, b, both in self._pairs(first, second):
                    if a.end < b.start:
                        yield both, a.end, b.start, b.end

    def _absent(self, interval: Since | Amid, part: Expression) -> Iterator[Value]:
        for base, since, until, _ in self._bases(interval):
            if base is None:
                yield Value({}, since, until, absences=(Absence(since, until, frozenset(), part),))
                continue
            absence = Absence(since, until, base.positions, part)
            end = until if isinstance(interval, Since) else base.end
            yield replace(base, end=end, absences=(*base.absences, absence))

    # ---------------------------------------------------------------------------- conditions

    def _happened(self, absence: Absence, bound: Bound) -> bool:
        return any(
            absence.since < c.start
            and c.end <= absence.until
            and not absence.base & c.positions
            and self._asked(c, {**bound, **c.bound})
            and not any(self._happened(inner, {**bound, **c.bound}) for inner in c.absences)
            for c in self.values(absence.part)
        )

    def _asked(self, value: Value, bound: Bound) -> bool:
        for asked in value.asked:
            wanted = asked.predicate.value
            assert isinstance(wanted, FieldOf)
            if wanted.variable not in bound:
                return False
            (other,) = bound[wanted.variable].members.values()
            if not self._holds(asked.predicate, asked.event, self._field(other, wanted.name)):
                return False
        return True

    def _holds(self, predicate: Predicate, event: Event, wanted: object) -> bool:
        value = self._field(event, predicate.name)
        if value is None or wanted is None:
            return False
        return compared(predicate.operator, value, wanted)

    def _field(self, event: Event, name: str) -> object:
        if name == "type" and name not in event.values and self.stream.type_column is not None:
            return event.type
        return event.values[name]

    # ---------------------------------------------------------------------------- places

    def _fits(self, test: Placed, place: places.Place | places.Shape | None, q: Value) -> bool:
        asked = self.subscription
        number = test.number
        if number is None:
            number = asked.same_place if test.where is Where.SAME else 0.0
        found = self._place(q)
        return places.satisfies(
            test.where, place, found, test.comparison, number, asked.equal, self.stream.space
        )

    def _place(self, value: Value) -> places.Place | None:
        """The hull of all members' places; one that has none is passed over."""
        found = [self.stream.corners.get(p, ()) for p in sorted(value.members)]
        corners = [corner for one in found for corner in one]
        if corners and self.stream.space == places.EARTH:
            corners = [(_beside(x, corners[0][0]), y) for x, y in corners]
        return places.hull_of(corners)


def _beside(x: float, origin: float) -> float:
    """A longitude on the side of another, be it beyond 180 degrees."""
    while x - origin > 180:
        x -= 360
    while x - origin < -180:
        x += 360
    return x


def _together(a: Value, b: Value) -> Value | None:
    """Both, if their variables agree and no event plays two roles but through one of these."""
    shared: set[int] = set()
    for variable in a.bound.keys() & b.bound.keys():
        if not _same(a.bound[variable], b.bound[variable]):
            return None
        shared |= a.bound[variable].positions
    if (a.positions & b.positions) - shared:
        return None
    absences = (*a.absences, *(x for x in b.absences if x not in a.absences))
    return Value(
        {**a.members, **b.members},
        min(a.start, b.start),
        max(a.end, b.end),
        {**a.bound, **b.bound},
        (*a.asked, *(x for x in b.asked if x not in a.asked)),
        absences,
    )


def _same(a: Value, b: Value) -> bool:
    """Whether a variable stands for the same: the same events in the same roles."""
    return (
        a.positions == b.positions
        and (a.start, a.end, a.asked, a.absences) == (b.start, b.end, b.asked, b.absences)
        and a.bound.keys() == b.bound.keys()
        and all(_same(a.bound[v], b.bound[v]) for v in a.bound)
    )


def _length(length: Length | None) -> Time:
    if length is None:
        return 0
    return length.nanoseconds if isinstance(length, ByTime) else length.amount


def compared(operator: str, value: Any, wanted: Any) -> bool:
    """Whether a comparison holds; NaN differs from everything, and is nothing else.

    >>> compared("IN", 3, (1, 3)), compared("LIKE", "truck", "tr_ck%"), compared("<", 2, 2)
    (True, True, False)
    """
    match operator:
        case "=":
            return bool(value == wanted)
        case "!=":
            return bool(value != wanted)
        case "<":
            return bool(value < wanted)
        case "<=":
            return bool(value <= wanted)
        case ">":
            return bool(value > wanted)
        case ">=":
            return bool(value >= wanted)
        case "IN":
            return any(value == one for one in wanted)
        case _:
            pattern = "".join({"%": ".*", "_": "."}.get(c, re.escape(c)) for c in wanted)
            return re.fullmatch(pattern, value, re.DOTALL) is not None
