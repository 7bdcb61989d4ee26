"""The subscriptions of a fleet that are written in the pattern language."""

import json
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ensue.algebra.check.query import check
from ensue.algebra.event_test import EventTest
from ensue.algebra.query import Query
from ensue.columns.stream import Shape
from ensue.errors import QueryError
from ensue.languages.subscribed_queries import subscribed_query
from ensue.languages.table import PATTERNS, language_named, language_of
from ensue.results.identity import fingerprint
from ensue.workload.subscriptions.catalogue.change import Change
from ensue.workload.subscriptions.nodes.growing import Growing
from ensue.workload.subscriptions.routing.index import AtomIndex
from ensue.workload.subscriptions.shapes.atoms import EVERY_EVENT, Values
from ensue.workload.subscriptions.shapes.shape import PatternShape, ShapeId, shape_for

FIRST = -2  # leaves of patterns are numbered downwards from here; -1 is none

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PatternMember:
    """A subscription in the pattern language."""

    name: str
    text: str
    number: int  # by which events are routed to it
    key: int  # by which its rows are known, in every process; no other ever has it
    identity: bytes  # by which its matches are known
    since: int  # the version that it came with
    shape: PatternShape
    place: int  # of its constants
    slots: tuple[int, ...]  # of its atoms


@dataclass(frozen=True, slots=True)
class Ready:
    """A subscription that fits the events, not yet added."""

    text: str
    query: Query
    shape: PatternShape
    constants: Values
    tests: tuple[EventTest, ...]


class Patterns:
    """Subscriptions by shape. One of a shape that is known compiles nothing.

    Events are routed to leaves of nodes and to patterns alike: `leaf_of` says where a slot leads.
    """

    def __init__(self, shape: Shape, index: AtomIndex, leaf_of: Growing, streaming: bool) -> None:
        self.shape = shape
        self.index = index
        self.leaf_of = leaf_of
        self.streaming = streaming
        self.members: dict[str, PatternMember] = {}
        self.by_key: dict[int, PatternMember] = {}
        self.by_number: list[PatternMember | None] = []
        self.shapes: dict[ShapeId, PatternShape] = {}
        self.cancelled = 0  # how many so far: who holds something of theirs lets it go
        self._free: list[int] = []
        self._keys = Growing((), np.int64)
        self._since = Growing((), np.int64)
        self._places = Growing((), np.int64)

    def __len__(self) -> int:
        return len(self.members)

    # ---------------------------------------------------------------------------- changes

    def ready(self, change: Change) -> Ready:
        """A subscription against the events. QueryError if it does not fit them."""
        assert change.text is not None
        query = subscribed_query(change.text)
        try:
            checked = check(query, self.shape.schema, streaming=self.streaming)
        except QueryError as error:
            raise error.at(None, change.text) from None
        shape, constants = shape_for(checked, self.shape, self.shapes)
        tests = (EVERY_EVENT,) if shape.way.every_event else tuple(shape.atoms.of(constants))
        return Ready(change.text, checked, shape, constants, tests)

    def add(self, name: str, version: int, ready: Ready) -> None:
        """One more, which sees events from this version on."""
        slots = tuple(int(slot) for slot in self.index.add_many(ready.tests))
        self._put(name, version, ready, slots)

    def _put(self, name: str, version: int, ready: Ready, slots: tuple[int, ...]) -> None:
        identity = _digest(name.encode()) + fingerprint(ready.query)
        key = int.from_bytes(_digest(identity + version.to_bytes(8))[:8], signed=True)
        if key in self.by_key:
            raise QueryError(
                f"'{name}' and '{self.by_key[key].name}' cannot be told apart by their hashes",
                hint="give it another name",
            )
        shape = self.shapes.setdefault(ready.shape.id, ready.shape)
        shape.users += 1
        number = self._free.pop() if self._free else self._new()
        place = shape.constants.add(ready.constants)
        member = PatternMember(
            name, ready.text, number, key, identity, version, shape, place, slots
        )
        self.members[name] = self.by_key[key] = self.by_number[number] = member
        self._keys.array[number], self._since.array[number] = key, version
        self._places.array[number] = place
        for slot in slots:
            if slot >= self.leaf_of.count:
                self.leaf_of.add(slot + 1 - self.leaf_of.count)
            self.leaf_of.array[slot] = FIRST - number

    def _new(self) -> int:
        self.by_number.append(None)
        self._since.add()
        self._places.add()
        return self._keys.add()

    def cancel(self, name: str) -> bool:
        """One less; whether there was one."""
        member = self.members.pop(name, None)
        if member is None:
            return False
        for slot in member.slots:
            self.index.cancel(slot)
            self.leaf_of.array[slot] = -1
        del self.by_key[member.key]
        self.by_number[member.number] = None
        self._free.append(member.number)
        member.shape.constants.drop(member.place)
        member.shape.users -= 1
        if not member.shape.users:
            del self.shapes[member.shape.id]
        self.cancelled += 1
        return True

    # ---------------------------------------------------------------------------- rows

    def keys(self, numbers: Ints) -> Ints:
        """The keys of some, by number."""
        return self._keys.array[numbers]

    def places(self, numbers: Ints) -> Ints:
        """Where their constants are."""
        return self._places.array[numbers]

    def sees(self, numbers: Ints, versions: Ints) -> npt.NDArray[np.bool_]:
        """Whether events that were routed by these versions are seen."""
        found: npt.NDArray[np.bool_] = versions >= self._since.array[numbers]
        return found

    def lanes(self, numbers: Ints, lanes: int) -> Ints:
        """The lane of each."""
        return (self._keys.array[numbers].view(np.uint64) % np.uint64(lanes)).astype(np.int64)

    def lane_bits(self, numbers: Ints, lanes: int) -> npt.NDArray[np.uint64]:
        """The lane of each, modulo 64, as a bit."""
        lane = self.lanes(numbers, lanes).astype(np.uint64) & np.uint64(63)
        return np.uint64(1) << lane

    # ---------------------------------------------------------------------------- files

    def save(self, folder: Path) -> None:
        """Writes them down; their atoms are in the index."""
        rows = [(m.name, m.text, m.since, m.slots) for m in self.members.values()]
        (folder / "patterns.json").write_text(json.dumps(rows))

    def open(self, folder: Path) -> None:
        """Goes on with those that were written down, whose atoms are in the index."""
        for name, text, since, slots in json.loads((folder / "patterns.json").read_text()):
            change = Change.add(name, text, language=PATTERNS.name)
            self._put(name, since, self.ready(change), tuple(slots))


def is_pattern(change: Change) -> bool:
    """Whether a subscription is written in the pattern language."""
    assert change.text is not None
    read = language_of(change.text) if change.language is None else language_named(change.language)
    return read is PATTERNS


def pattern_rows(leaves: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Which leaves are patterns.

    >>> pattern_rows(np.array([3, -1, -2], np.int32)).tolist()
    [False, False, True]
    """
    found: npt.NDArray[np.bool_] = leaves <= FIRST
    return found


def numbers_of(leaves: npt.NDArray[np.int32]) -> Ints:
    """The numbers of patterns that are leaves."""
    return FIRST - leaves.astype(np.int64)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
