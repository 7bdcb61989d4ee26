"""What a subscription means: all ways to fill its expression with events, and those that fit.

Slow and plain. A match is its members, its start, its end, and the moment it is known: two ways
to fill the same roles with the same events are one match.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
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
from ensue.algebra.values import instant
from ensue.algebra.values import number as number_of
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
    timestamps: bool = False  # times are nanoseconds since 1970; else numbers of any unit

    def value(self, event: Event, name: str) -> object:
        """What predicates compare."""
        if name == "type" and name not in event.values and self.type_column is not None:
            return event.type
        return event.values[name]

    def holds(self, event: Event, name: str, operator: str, wanted: object) -> bool:
        """Whether a predicate holds; NULL satisfies none."""
        value = self.value(event, name)
        if value is None or wanted is None:
            return False
        return compared(operator, value, wanted)

    def place(self, positions: Iterable[int]) -> places.Place | None:
        """The hull of all members' places; one that has none is passed over."""
        found = [self.corners.get(p, ()) for p in sorted(positions)]
        corners = [corner for one in found for corner in one]
        if corners and self.space == places.EARTH:
            corners = [(_beside(x, corners[0][0]), y) for x, y in corners]
        return places.hull_of(corners)


def matches(subscription: Subscription, stream: Stream) -> list[SubscriptionMatch]:
    """All matches in the order in which they become known."""
    meaning = _Meaning(subscription, stream)
    found = {meaning.match(value): meaning.key(value) for value in meaning.whole()}
    return choice(found, subscription.select).delivered


@dataclass(frozen=True, slots=True)
class Choice:
    """Which matches are delivered, and what each other one gave way to."""

    delivered: list[SubscriptionMatch] = field(default_factory=list)
    used: dict[SubscriptionMatch, SubscriptionMatch] = field(default_factory=dict)  # events of it
    outdone: dict[SubscriptionMatch, SubscriptionMatch] = field(default_factory=dict)


def choice(found: Mapping[SubscriptionMatch, object], select: Select) -> Choice:
    """Chooses among all matches, given with their keys."""
    ordered = sorted(found, key=lambda m: (m.known, m.last, m.newness))
    if select is Select.ALL:
        return Choice(ordered)
    groups: dict[object, list[SubscriptionMatch]] = {}
    for match in ordered:
        groups.setdefault((match.known, match.last), []).append(match)
    chosen = Choice()
    using: dict[object, SubscriptionMatch] = {}  # by key: up to its last event all are used up
    for group in groups.values():
        free = []
        for match in group:
            by = using.get(found[match]) if select is Select.ONCE and match.members else None
            if by is not None and match.members[0] <= by.last:
                chosen.used[match] = by
            else:
                free.append(match)
        if free:
            latest = max(free, key=lambda m: m.newness)
            chosen.delivered.append(latest)
            chosen.outdone.update((m, latest) for m in free if m is not latest)
            before = using.get(found[latest])
            if before is None or latest.last > before.last:
                using[found[latest]] = latest
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
                if max(ends) - min(starts) > length_of(within):
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
                return self.stream.value(value.members[position], name)
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
                allowed = length_of(tolerance or self.subscription.concurrent)
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
                    if self._fits(expression, self.stream.place(a.members), b):
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
            if all(self.stream.holds(event, p.name, p.operator, p.value) for p in rest):
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
                yield None, since, since + length_of(length), since + length_of(length)
            case Since(base, length):
                assert not isinstance(base, Moment)
                for a in self.values(base):
                    yield a, a.end, a.end + length_of(length), a.end + length_of(length)
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
            theirs = self.stream.value(other, wanted.name)
            name, operator = asked.predicate.name, asked.predicate.operator
            if not self.stream.holds(asked.event, name, operator, theirs):
                return False
        return True

    # ---------------------------------------------------------------------------- places

    def _fits(self, test: Placed, place: places.Place | places.Shape | None, q: Value) -> bool:
        asked = self.subscription
        number = test.number
        if number is None:
            number = asked.same_place if test.where is Where.SAME else 0.0
        found = self.stream.place(q.members)
        return places.satisfies(
            test.where, place, found, test.comparison, number, asked.equal, self.stream.space
        )


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


def length_of(length: Length | None) -> Time:
    """How long that is in the units of a stream's times."""
    if length is None:
        return 0
    return length.nanoseconds if isinstance(length, ByTime) else length.amount


def compared(operator: str, value: Any, wanted: Any) -> bool:
    """Whether a comparison holds; NaN differs from everything, and is nothing else.

    >>> compared("IN", 3, (1, 3)), compared("LIKE", "truck", "tr_ck%"), compared("<", 2, 2)
    (True, True, False)
    """
    value = comparable(value)
    wanted = tuple(map(comparable, wanted)) if operator == "IN" else comparable(wanted)
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


def comparable(value: Any) -> Any:
    """A value whose order and equality in Python are those meant: instants, and numbers.

    >>> comparable(Decimal("0.1")) == comparable(0.1), comparable(date(2026, 1, 31))
    (True, datetime.datetime(2026, 1, 31, 0, 0, tzinfo=datetime.timezone.utc))
    """
    if isinstance(value, date):
        return instant(value)
    return number_of(value) if isinstance(value, Decimal) else value
