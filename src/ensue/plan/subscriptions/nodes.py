"""The nodes that subscriptions are run by. Equal ones, of whichever subscription, are one node.

A node gives values: one event, or what a join or an absence makes of others. A value has a slot
for each event, or absence, that it is made of; tests speak of groups of slots, as bits.
"""

from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b

from ensue.algebra.event_test import EventTest
from ensue.algebra.subscription import Predicate, Region, Where

Slots = int  # a bit for each slot
Time = int | float


@dataclass(frozen=True, slots=True)
class TimeTest:
    """later - earlier <= by; with `strict` later - earlier > by instead.

    Where there are no slots, the time is `at`.
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
    """How the places of two groups lie, or of a region and a group."""

    where: Where
    first: Slots
    second: Slots
    region: Region | None = None
    comparison: str | None = None
    number: float = 0.0
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class FieldTest:
    """A field of one slot against a field of another."""

    slot: int
    name: str
    operator: str
    other: int
    other_name: str


Test = TimeTest | PlaceTest | FieldTest


@dataclass(frozen=True)
class Leaf:
    """The events that pass a test, one slot."""

    test: EventTest

    slots = 1

    @cached_property
    def key(self) -> bytes:
        return _digest("leaf", *sorted(map(_predicate, self.test.predicates)),
                       *sorted(map(repr, self.test.places)))  # fmt: skip


@dataclass(frozen=True)
class Sieve:
    """The values of a node that pass tests."""

    child: "Node"
    tests: tuple[Test, ...]

    @property
    def slots(self) -> int:
        return self.child.slots

    @cached_property
    def key(self) -> bytes:
        return _digest("sieve", self.child.key.hex(), *sorted(map(repr, self.tests)))


@dataclass(frozen=True)
class Join:
    """Pairs of values that share no event and pass tests; the slots of the right come behind.

    A value of a side waits so long for one of the other: less than 0, never.
    """

    left: "Node"
    right: "Node"
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
class Bar:
    """What must not have happened: values of a node, as far as they fit to what waits.

    Slots of the tests are those of what waits, then those of the value.
    """

    node: "Node"
    tests: tuple[FieldTest, ...]


@dataclass(frozen=True)
class Absence:
    """The values of a node in whose interval (since, until] nothing happened that bars them.

    Without a child there is one value, of no event. It adds a slot of its own, from since to
    until. Events of the base do not bar.
    """

    child: "Node | None"
    base: Slots
    since: Slots
    until: Slots
    until_end: bool
    length: Time  # until is so much behind
    at: Time  # since and until, where they are of no slots
    bars: tuple[Bar, ...]
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


Node = Leaf | Sieve | Join | Absence


def _predicate(predicate: Predicate) -> str:
    value = predicate.value
    if isinstance(value, tuple):
        value = tuple(sorted(value, key=repr))
    return repr((predicate.type.value, predicate.name, predicate.operator, value))


def _digest(*texts: str) -> bytes:
    return blake2b("\0".join(texts).encode(), digest_size=16).digest()
