"""The nodes of an alternative: its events are joined group by group, from the inside out.

The groups are those that operators speak of, so equal expressions become equal nodes. A condition
is tried at the first node that has all it speaks of.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ensue.algebra.alternatives import (
    Alternative,
    Compared,
    Condition,
    Gone,
    Group,
    Later,
    Near,
    alternatives,
)
from ensue.algebra.event_test import EventTest
from ensue.algebra.subscription import Length, Moment, Region, Select, Subscription
from ensue.algebra.tied import tie
from ensue.plan.subscriptions.nodes import (
    Absence,
    Bar,
    FieldTest,
    Join,
    Leaf,
    Node,
    PlaceTest,
    Sieve,
    Slots,
    Test,
    Time,
    TimeTest,
)
from ensue.plan.subscriptions.waiting import Waiting

Lengths = Callable[[Length | None], Time]
Moments = Callable[[Moment], Time]


@dataclass(frozen=True)
class Units:
    """How lengths and moments of a text are numbers of the time column."""

    lengths: Lengths
    moments: Moments
    points: bool  # events have no duration


@dataclass(frozen=True)
class _Unit:
    """Parts that are joined already, in the order of their slots."""

    node: Node
    parts: tuple[int, ...]
    # that it is made of, to say how long they wait for each other
    sides: tuple["_Unit", ...] = ()

    @property
    def group(self) -> Group:
        return frozenset(self.parts)

    def slots(self, group: Iterable[int]) -> Slots:
        return sum(1 << self.parts.index(part) for part in group)


@dataclass(frozen=True)
class Root:
    """The node whose values are matches; where it has a key, the slot and the field of that."""

    node: Node
    slot: int = -1
    field: str | None = None


def roots_of(subscription: Subscription, units: Units) -> list[Root]:
    """The nodes of a subscription, one for each way to satisfy it."""
    ways = alternatives(subscription)
    ties = [tie(way) for way in ways] if subscription.select is Select.ONCE else [None]
    keyed = all(tied is not None for tied in ties)
    found = []
    for place, way in enumerate(ways):
        unit = _Planning(way, units, math.inf).unit()
        tied = ties[place] if keyed else None
        if tied is None:
            found.append(Root(unit.node))
        else:
            found.append(Root(unit.node, unit.parts.index(tied[0]), tied[1]))
    return found


def unbounded(node: Node) -> bool:
    """Whether something has to wait for ever."""
    return any(math.inf in waits for waits in _waits(node))


def _waits(node: Node) -> Iterator[tuple[float, ...]]:
    match node:
        case Leaf():
            return
        case Sieve(child):
            yield from _waits(child)
        case Join():
            yield node.left_waits, node.right_waits
            yield from _waits(node.left)
            yield from _waits(node.right)
        case Absence():
            yield (node.bars_wait,)
            for bar in node.bars:
                yield from _waits(bar.node)
            if node.child is not None:
                yield from _waits(node.child)


class _Planning:
    def __init__(self, way: Alternative, units: Units, span: float) -> None:
        self.way = way
        self.units = units
        self.span = span
        self.done: set[Condition | int] = set()  # conditions, and absences by number
        self.formed: list[Group] = []

    def unit(self) -> _Unit:
        """The whole, with the order of its slots."""
        parts = enumerate(self.way.parts)
        found = [self._settled(_Unit(Leaf(p), (n,))) for n, p in parts if isinstance(p, EventTest)]
        found += self._of_no_event()
        for group in self.way.together:
            touched = [unit for unit in found if unit.group & group]
            found = [unit for unit in found if not unit.group & group]
            found += [self._merged(touched)] if touched else []
        (whole,) = [self._merged(found)] if len(found) > 1 else found
        waiting = Waiting.of(
            self.way, self.formed, self.units.lengths, self.units.moments,
            points=self.units.points, span=self.span,
        )  # fmt: skip
        return replace(whole, node=self._waiting(whole, waiting))

    def _of_no_event(self) -> Iterator[_Unit]:
        for number, part in enumerate(self.way.parts):
            if isinstance(part, Gone) and not part.group:
                yield self._settled(self._absence(number, part, None))

    def _merged(self, units: Sequence[_Unit]) -> _Unit:
        whole, *rest = sorted(units, key=lambda unit: unit.node.key)
        for unit in rest:
            whole = self._joined(whole, unit)
        return whole

    def _joined(self, a: _Unit, b: _Unit) -> _Unit:
        ready = self._ready(a.group | b.group)
        ways = [(a, b), (b, a)] if a.node.key == b.node.key else [(a, b)]
        found = []
        for left, right in ways:
            parts = (*left.parts, *right.parts)
            tests = self._tests(ready, parts)
            found.append(_Unit(Join(left.node, right.node, tests), parts, (left, right)))
        return self._settled(min(found, key=lambda unit: unit.node.key))

    def _settled(self, unit: _Unit) -> _Unit:
        """The unit, with the conditions and absences that it has all parts for."""
        while True:
            ready = self._ready(unit.group)
            if ready:
                sieve = Sieve(unit.node, self._tests(ready, unit.parts))
                unit = replace(unit, node=sieve, sides=(unit,))
                continue
            for number, part in enumerate(self.way.parts):
                if (
                    isinstance(part, Gone)
                    and number not in self.done
                    and part.group
                    and part.group <= unit.group
                ):
                    unit = self._absence(number, part, unit)
                    break
            else:
                self.formed.append(unit.group)
                return unit

    def _ready(self, group: Group) -> list[Condition]:
        found = [c for c in self.way.conditions if c not in self.done and c.group <= group]
        self.done |= set(found)
        return found

    # ---------------------------------------------------------------------------- absences

    def _absence(self, number: int, gone: Gone, unit: _Unit | None) -> _Unit:
        self.done.add(number)
        child = None if unit is None else unit.node
        parts = () if unit is None else unit.parts
        here = _Unit(Leaf(EventTest(())), parts)
        bars = []
        for place, other in enumerate(gone.absent):
            bar = _Planning(other, self.units, self._inner_span(gone)).unit()
            asks = [compared for which, compared in gone.asks if which == place]
            tests = (
                FieldTest(
                    len(parts) + bar.parts.index(c.part), c.name, c.operator,
                    parts.index(c.other), c.other_name,
                )
                for c in asks
            )  # fmt: skip
            bars.append(Bar(bar.node, tuple(sorted(tests, key=repr))))
        at = self.units.moments(gone.since.of) if isinstance(gone.since.of, Moment) else 0
        node = Absence(
            child,
            here.slots(gone.base & frozenset(parts)),
            here.slots(gone.since.group),
            here.slots(gone.until.group),
            gone.until.end,
            self.units.lengths(gone.length),
            at,
            tuple(bars),
        )
        return _Unit(node, (*parts, number), () if unit is None else (unit,))

    def _inner_span(self, gone: Gone) -> float:
        """How long what must not happen lasts at the most: it is inside the interval."""
        if gone.length is not None:
            return self.units.lengths(gone.length)
        waiting = Waiting.of(
            self.way, self.formed, self.units.lengths, self.units.moments,
            points=self.units.points, span=self.span,
        )  # fmt: skip
        return waiting.longest_behind(gone.since, gone.until.group)

    # ---------------------------------------------------------------------------- waits

    def _waiting(self, unit: _Unit, waiting: Waiting) -> Node:
        node = unit.node
        sides = [self._waiting(side, waiting) for side in unit.sides]
        match node:
            case Leaf():
                return node
            case Sieve():
                return replace(node, child=sides[0])
            case Join():
                left, right = (side.group for side in unit.sides)
                return replace(
                    node,
                    left=sides[0],
                    right=sides[1],
                    left_waits=waiting.longest(left, right),
                    right_waits=waiting.longest(right, left),
                )
            case Absence():
                gone = self.way.parts[unit.parts[-1]]
                assert isinstance(gone, Gone)
                behind = frozenset(unit.parts[:-1])
                waits = waiting.longest_behind(gone.since, behind) if behind else 0.0
                return replace(node, child=sides[0] if sides else None, bars_wait=waits)

    # ---------------------------------------------------------------------------- tests

    def _tests(self, conditions: Sequence[Condition], parts: tuple[int, ...]) -> tuple[Test, ...]:
        here = _Unit(Leaf(EventTest(())), parts)
        return tuple(sorted((self._test(c, here) for c in conditions), key=repr))

    def _test(self, condition: Condition, here: _Unit) -> Test:
        match condition:
            case Later(earlier, later, by, strict):
                of = [p.of for p in (earlier, later) if isinstance(p.of, Moment)]
                at = [self.units.moments(moment) for moment in of]
                return TimeTest(
                    here.slots(earlier.group), earlier.end, here.slots(later.group), later.end,
                    self.units.lengths(by), strict, *at,
                )  # fmt: skip
            case Near(where, first, second, comparison, number, tolerance):
                region = first if isinstance(first, Region) else None
                slots = 0 if isinstance(first, Region) else here.slots(first)
                return PlaceTest(
                    where, slots, here.slots(second), region, comparison, number, tolerance
                )
            case Compared(part, name, operator, other, other_name):
                mine, theirs = here.parts.index(part), here.parts.index(other)
                return FieldTest(mine, name, operator, theirs, other_name)
