"""Nodes of the shared subscription network; equal nodes of several subscriptions are one.

A node emits values: an event, or the result of a join or an absence. A value has a slot for each
of its events and absences; tests refer to groups of slots, as bit sets.
"""

from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b

from ensue.ir.subscription import EventTest, Predicate, Region, SpatialRelation

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
