"""The join network of a subscription, and how it is planned. Equal nodes of different subscriptions are one.

A node emits values: an event, or the result of a join or an absence. A value has a slot for each
of its events and absences; tests refer to groups of slots, as bit sets.

Events are joined by group, from the inside out. The groups are those of the subscription's
operators, so equal expressions become equal nodes. A condition is evaluated at the first node that
has all events it reads.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b

from ensue.analyzer.normal_form import (
    AbsentPart,
    Condition,
    FieldComparison,
    Group,
    SpatialConstraint,
    SubscriptionAlternative,
    TimeAnchor,
    TimeConstraint,
    build_alternatives,
    find_common_key,
)
from ensue.ir.subscription import EventTest, Length, Predicate, Region, Select, SpatialRelation, Subscription, TimePoint

Slots = int  # a bit for each slot
Time = int | float


@dataclass(frozen=True, slots=True)
class TimeTest:
    """later - earlier <= by; with `strict` later - earlier > by instead.

    Without slots, the time is `at`.
    """

    earlier: Slots
    earlier_end: bool
    later: Slots
    later_end: bool
    by: Time
    strict: bool
    at: Time = 0


@dataclass(frozen=True, slots=True)
class PlaceTest:
    """Compares the locations of two groups, or of a region and a group."""

    where: SpatialRelation
    first: Slots
    second: Slots
    region: Region | None = None
    comparison: str | None = None
    number: float = 0.0
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class FieldTest:
    """Compares a field of one slot with a field of another."""

    slot: int
    name: str
    operator: str
    other: int
    other_name: str


Test = TimeTest | PlaceTest | FieldTest


@dataclass(frozen=True)
class NetworkLeaf:
    """The events that pass a test, with one slot."""

    test: EventTest

    slots = 1

    @cached_property
    def key(self) -> bytes:
        return _digest("leaf", *sorted(map(_predicate, self.test.predicates)),
                       *sorted(map(repr, self.test.places)))  # fmt: skip


@dataclass(frozen=True)
class NetworkFilter:
    """The values of a node that pass tests."""

    child: "NetworkNode"
    tests: tuple[Test, ...]

    @property
    def slots(self) -> int:
        return self.child.slots

    @cached_property
    def key(self) -> bytes:
        return _digest("sieve", self.child.key.hex(), *sorted(map(repr, self.tests)))


@dataclass(frozen=True)
class NetworkJoin:
    """Pairs of values that share no event and pass tests; the slots of the right side follow.

    `left_waits` and `right_waits` bound how long a value waits for the other; negative: never.
    """

    left: "NetworkNode"
    right: "NetworkNode"
    tests: tuple[Test, ...]
    left_waits: float = field(default=0.0, compare=False)
    right_waits: float = field(default=0.0, compare=False)

    @property
    def slots(self) -> int:
        return self.left.slots + self.right.slots

    @cached_property
    def key(self) -> bytes:
        tests = sorted(map(repr, self.tests))
        return _digest("join", self.left.key.hex(), self.right.key.hex(), *tests)


@dataclass(frozen=True)
class NetworkBar:
    """Forbidden values of a node that pass the tests against the waiting value.

    The tests' slots are those of the waiting value, then those of the forbidden one.
    """

    node: "NetworkNode"
    tests: tuple[FieldTest, ...]


@dataclass(frozen=True)
class NetworkAbsence:
    """The values of a node in whose interval (since, until] no forbidden value occurred.

    Without a child it has one value, without events. It adds a slot for the interval. Events of
    the base are not forbidden.
    """

    child: "NetworkNode | None"
    base: Slots
    since: Slots
    until: Slots
    until_end: bool
    length: Time  # added to until
    at: Time  # since and until, if they have no slots
    bars: tuple[NetworkBar, ...]
    bars_wait: float = field(default=0.0, compare=False)

    @property
    def slots(self) -> int:
        return 1 + (0 if self.child is None else self.child.slots)

    @cached_property
    def key(self) -> bytes:
        child = "" if self.child is None else self.child.key.hex()
        where = (self.base, self.since, self.until, self.until_end, self.length, self.at)
        bars = sorted(f"{b.node.key.hex()} {sorted(map(repr, b.tests))}" for b in self.bars)
        return _digest("absence", child, repr(where), *bars)


NetworkNode = NetworkLeaf | NetworkFilter | NetworkJoin | NetworkAbsence


def _predicate(predicate: Predicate) -> str:
    value = predicate.value
    if isinstance(value, tuple):
        value = tuple(sorted(value, key=repr))
    return repr((predicate.type.value, predicate.name, predicate.operator, value))


def _digest(*texts: str) -> bytes:
    return blake2b("\0".join(texts).encode(), digest_size=16).digest()


# ---------------------------------------------------------------------------- times

NOW = ("moment", frozenset[int](), True)
_Node = tuple[str, Group, bool]  # ("group", parts, end)


@dataclass(frozen=True)
class TimeUnits:
    """Conversion of lengths and moments to numbers of the time column."""

    lengths: Callable[[Length | None], Time]
    moments: Callable[[TimePoint], Time]
    points: bool  # events have no duration


@dataclass
class TimeConstraints:
    """Difference constraints on the times of an alternative."""

    units: TimeUnits
    instants: Group  # parts that start and end at the same time
    _edges: dict[tuple[_Node, _Node], Time] = field(default_factory=dict)  # (v, u): v - u <= c
    _groups: set[Group] = field(default_factory=set)

    @classmethod
    def from_alternative(
        cls, alternative: SubscriptionAlternative, groups: Iterable[Group], units: TimeUnits, span: float = math.inf
    ) -> "TimeConstraints":
        """`span`: known upper bound on the time from the least start to the greatest end."""
        events = (n for n, part in enumerate(alternative.parts) if not isinstance(part, AbsentPart))
        bounds = cls(units, frozenset(events) if units.points else frozenset())
        for group in (*groups, *(frozenset((n,)) for n in range(len(alternative.parts)))):
            bounds._add(group)
        for condition in alternative.conditions:
            if isinstance(condition, TimeConstraint):
                bounds._later(condition)
        for number, part in enumerate(alternative.parts):
            if isinstance(part, AbsentPart):
                bounds._add_absence(number, part)
        if span < math.inf and alternative.root:
            bounds._add(alternative.root)
            bounds._edge(_end(alternative.root), _start(alternative.root), span)
        bounds._relate()
        return bounds

    def longest(self, waiting: Group, others: Group) -> float:
        """The maximum time after the end of a group until all of the others have ended."""
        return self._longest(_end(waiting), others)

    def longest_after(self, point: TimeAnchor, others: Group) -> float:
        """The same, after a point."""
        return self._longest(self._node(point), others)

    def _longest(self, source: _Node, others: Group) -> float:
        distance: dict[_Node, float] = {source: 0.0}
        nodes = 2 * len(self._groups) + 2
        for _ in range(nodes):
            changed = False
            for (v, u), c in self._edges.items():
                far = distance.get(u, math.inf) + c
                if far < distance.get(v, math.inf):
                    distance[v] = far
                    changed = True
            for group in self._groups:
                if len(group) > 1:
                    far = max(distance.get(_end(frozenset((p,))), math.inf) for p in group)
                    if far < distance.get(_end(group), math.inf):
                        distance[_end(group)] = far
                        changed = True
            if not changed:
                break
        return max((distance.get(_end(frozenset((p,))), math.inf) for p in others), default=0.0)

    def _add(self, group: Group) -> None:
        if group:
            self._groups.add(group)

    def _edge(self, v: _Node, u: _Node, c: Time) -> None:
        """Adds the constraint v - u <= c."""
        if c < self._edges.get((v, u), math.inf):
            self._edges[v, u] = c

    def _fix(self, v: _Node, u: _Node, c: Time) -> None:
        """Adds the constraint v - u = c."""
        self._edge(v, u, c)
        self._edge(u, v, -c)

    def _node(self, point: TimeAnchor) -> _Node:
        if isinstance(point.anchor, TimePoint):
            return NOW
        self._add(point.anchor)
        return _end(point.anchor) if point.end else _start(point.anchor)

    def _shift(self, point: TimeAnchor) -> Time:
        """The offset of a point from its node: moments are relative to 0."""
        return self.units.moments(point.anchor) if isinstance(point.anchor, TimePoint) else 0

    def _later(self, condition: TimeConstraint) -> None:
        later, earlier = self._node(condition.later), self._node(condition.earlier)
        shift = self._shift(condition.earlier) - self._shift(condition.later)
        by = self.units.lengths(condition.by) + shift
        if condition.most:
            self._edge(later, earlier, by)
        else:
            self._edge(earlier, later, -by)

    def _add_absence(self, number: int, gone: AbsentPart) -> None:
        group = frozenset((number,))
        since, until = self._node(gone.since), self._node(gone.until)
        self._fix(_start(group), since, self._shift(gone.since))
        self._fix(_end(group), until, self._shift(gone.until) + self.units.lengths(gone.length))

    def _relate(self) -> None:
        for group in self._groups:
            self._edge(_start(group), _end(group), 0)
            if len(group) == 1 and group <= self.instants:
                self._edge(_end(group), _start(group), 0)
            for other in self._groups:
                if group < other:
                    self._edge(_start(other), _start(group), 0)
                    self._edge(_end(group), _end(other), 0)


def _start(group: Group) -> _Node:
    return "group", group, False


def _end(group: Group) -> _Node:
    return "group", group, True


@dataclass(frozen=True)
class _Unit:
    """Joined parts, in the order of their slots."""

    node: NetworkNode
    parts: tuple[int, ...]
    # its inputs, to compute how long they wait for each other
    sides: tuple["_Unit", ...] = ()

    @property
    def group(self) -> Group:
        return frozenset(self.parts)

    def slots(self, group: Iterable[int]) -> Slots:
        return sum(1 << self.parts.index(part) for part in group)


@dataclass(frozen=True)
class NetworkRoot:
    """The node whose values are matches, with the slot and field of its key, if it has one."""

    node: NetworkNode
    slot: int = -1
    field: str | None = None


def plan_network(subscription: Subscription, units: TimeUnits) -> list[NetworkRoot]:
    """Plans the nodes of a subscription, one for each alternative."""
    ways = build_alternatives(subscription)
    ties = [find_common_key(way) for way in ways] if subscription.select is Select.ONCE else [None]
    keyed = all(tie is not None for tie in ties)
    roots = []
    for number, way in enumerate(ways):
        unit = _AlternativePlanner(way, units, math.inf).unit()
        tie = ties[number] if keyed else None
        if tie is None:
            roots.append(NetworkRoot(unit.node))
        else:
            roots.append(NetworkRoot(unit.node, unit.parts.index(tie[0]), tie[1]))
    return roots


def is_unbounded(node: NetworkNode) -> bool:
    """Whether a value has to be stored without a time limit."""
    return any(math.inf in waits for waits in _iterate_waits(node))


def _iterate_waits(node: NetworkNode) -> Iterator[tuple[float, ...]]:
    match node:
        case NetworkLeaf():
            return
        case NetworkFilter(child):
            yield from _iterate_waits(child)
        case NetworkJoin():
            yield node.left_waits, node.right_waits
            yield from _iterate_waits(node.left)
            yield from _iterate_waits(node.right)
        case NetworkAbsence():
            yield (node.bars_wait,)
            for bar in node.bars:
                yield from _iterate_waits(bar.node)
            if node.child is not None:
                yield from _iterate_waits(node.child)


class _AlternativePlanner:
    def __init__(self, way: SubscriptionAlternative, units: TimeUnits, span: float) -> None:
        self.way = way
        self.units = units
        self.span = span
        self.done: set[Condition | int] = set()  # conditions, and absences by number
        self.formed: list[Group] = []

    def unit(self) -> _Unit:
        """Plans the alternative as one unit."""
        units = [
            self._settle(_Unit(NetworkLeaf(part), (number,)))
            for number, part in enumerate(self.way.parts)
            if isinstance(part, EventTest)
        ]
        for number, part in enumerate(self.way.parts):
            if isinstance(part, AbsentPart) and not part.group:
                units.append(self._settle(self._absence(number, part, None)))
        for group in self.way.together:
            touched = [unit for unit in units if unit.group & group]
            units = [unit for unit in units if not unit.group & group]
            units += [self._merge(touched)] if touched else []
        (root,) = [self._merge(units)] if len(units) > 1 else units
        return replace(root, node=self._add_waits(root, self._wait_bounds()))

    def _wait_bounds(self) -> TimeConstraints:
        return TimeConstraints.from_alternative(self.way, self.formed, self.units, self.span)

    def _merge(self, units: Sequence[_Unit]) -> _Unit:
        merged, *rest = sorted(units, key=lambda unit: unit.node.key)
        for unit in rest:
            merged = self._join(merged, unit)
        return merged

    def _join(self, a: _Unit, b: _Unit) -> _Unit:
        ready = self._take_ready(a.group | b.group)
        orders = [(a, b), (b, a)] if a.node.key == b.node.key else [(a, b)]
        candidates = []
        for left, right in orders:
            parts = (*left.parts, *right.parts)
            tests = self._tests(ready, parts)
            candidates.append(_Unit(NetworkJoin(left.node, right.node, tests), parts, (left, right)))
        return self._settle(min(candidates, key=lambda unit: unit.node.key))

    def _settle(self, unit: _Unit) -> _Unit:
        """Adds the conditions and absences whose parts the unit has."""
        while True:
            ready = self._take_ready(unit.group)
            if ready:
                sieve = NetworkFilter(unit.node, self._tests(ready, unit.parts))
                unit = replace(unit, node=sieve, sides=(unit,))
                continue
            for number, part in enumerate(self.way.parts):
                if isinstance(part, AbsentPart) and number not in self.done and part.group and part.group <= unit.group:
                    unit = self._absence(number, part, unit)
                    break
            else:
                self.formed.append(unit.group)
                return unit

    def _take_ready(self, group: Group) -> list[Condition]:
        ready = [c for c in self.way.conditions if c not in self.done and c.group <= group]
        self.done |= set(ready)
        return ready

    def _absence(self, number: int, gone: AbsentPart, unit: _Unit | None) -> _Unit:
        self.done.add(number)
        child = None if unit is None else unit.node
        parts = () if unit is None else unit.parts
        positive = _Unit(NetworkLeaf(EventTest(())), parts)
        bars = []
        for number_of_bar, other in enumerate(gone.absent):
            bar = _AlternativePlanner(other, self.units, self._inner_span(gone)).unit()
            asks = [compared for which, compared in gone.asks if which == number_of_bar]
            tests = (
                FieldTest(
                    len(parts) + bar.parts.index(c.part), c.name, c.operator,
                    parts.index(c.other), c.other_name,
                )
                for c in asks
            )  # fmt: skip
            bars.append(NetworkBar(bar.node, tuple(sorted(tests, key=repr))))
        at = self.units.moments(gone.since.anchor) if isinstance(gone.since.anchor, TimePoint) else 0
        node = NetworkAbsence(
            child,
            positive.slots(gone.base & frozenset(parts)),
            positive.slots(gone.since.group),
            positive.slots(gone.until.group),
            gone.until.end,
            self.units.lengths(gone.length),
            at,
            tuple(bars),
        )
        return _Unit(node, (*parts, number), () if unit is None else (unit,))

    def _inner_span(self, gone: AbsentPart) -> float:
        """The maximum duration of a forbidden value, which is inside the interval."""
        if gone.length is not None:
            return self.units.lengths(gone.length)
        return self._wait_bounds().longest_after(gone.since, gone.until.group)

    def _add_waits(self, unit: _Unit, waiting: TimeConstraints) -> NetworkNode:
        node = unit.node
        sides = [self._add_waits(side, waiting) for side in unit.sides]
        match node:
            case NetworkLeaf():
                return node
            case NetworkFilter():
                return replace(node, child=sides[0])
            case NetworkJoin():
                left, right = (side.group for side in unit.sides)
                node = replace(node, left=sides[0], right=sides[1])
                waits = waiting.longest(left, right), waiting.longest(right, left)
                return replace(node, left_waits=waits[0], right_waits=waits[1])
            case NetworkAbsence():
                gone = self.way.parts[unit.parts[-1]]
                assert isinstance(gone, AbsentPart)
                others = frozenset(unit.parts[:-1])
                wait = waiting.longest_after(gone.since, others) if others else 0.0
                return replace(node, child=sides[0] if sides else None, bars_wait=wait)

    def _tests(self, conditions: Sequence[Condition], parts: tuple[int, ...]) -> tuple[Test, ...]:
        here = _Unit(NetworkLeaf(EventTest(())), parts)
        return tuple(sorted((self._test(c, here) for c in conditions), key=repr))

    def _test(self, condition: Condition, here: _Unit) -> Test:
        match condition:
            case TimeConstraint(earlier, later, by, strict):
                points = [p.anchor for p in (earlier, later) if isinstance(p.anchor, TimePoint)]
                at = [self.units.moments(moment) for moment in points]
                return TimeTest(
                    here.slots(earlier.group), earlier.end, here.slots(later.group), later.end,
                    self.units.lengths(by), strict, *at,
                )  # fmt: skip
            case SpatialConstraint(where, first, second, comparison, number, tolerance):
                region = first if isinstance(first, Region) else None
                slots = 0 if isinstance(first, Region) else here.slots(first)
                return PlaceTest(where, slots, here.slots(second), region, comparison, number, tolerance)
            case FieldComparison(part, name, operator, other, other_name):
                return FieldTest(here.parts.index(part), name, operator, here.parts.index(other), other_name)
