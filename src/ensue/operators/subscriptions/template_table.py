"""The subscriptions of a set in the pattern language, grouped by template."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ensue.analyzer.query import check_query
from ensue.errors import QueryError
from ensue.ir.canonical_form import compute_fingerprint
from ensue.ir.query import Query
from ensue.ir.subscription import EventTest
from ensue.operators.subscriptions.atom_index import AtomIndex
from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from ensue.operators.subscriptions.growing_columns import Column, GrowingColumns
from ensue.operators.subscriptions.query_template import EVERY_EVENT, QueryTemplate, TemplateId, Values, find_template
from ensue.parser.registry import PATTERNS, detect_language, get_language
from ensue.parser.subscribed_patterns import parse_subscribed_query
from ensue.vector.event_table import StreamSchema

FIRST = -2  # leaves of patterns are numbered downwards from here; -1 is none

Ints = npt.NDArray[np.int64]
EngineId = tuple[TemplateId, int | None]  # a template, and its only subscription if it has an engine of its own


@dataclass(frozen=True, slots=True)
class PatternMember:
    """A subscription in the pattern language."""

    name: str
    text: str
    number: int  # routes events to it
    key: int  # identifies its rows in every process, never reused
    identity: bytes  # part of its match ids
    since: int  # the version that added it
    shape: QueryTemplate
    place: int  # the row of its constants
    slots: tuple[int, ...]  # of its atoms


@dataclass(frozen=True, slots=True)
class CompiledPattern:
    """A compiled subscription that is not added yet."""

    text: str
    query: Query
    shape: QueryTemplate
    constants: Values
    tests: tuple[EventTest, ...]


class TemplateTable:
    """Subscriptions by template. Adding one with a known template compiles no code.

    The index routes events to network leaves and to patterns: `leaf_of` maps slots to both.
    """

    def __init__(self, shape: StreamSchema, index: AtomIndex, leaf_of: GrowingColumns, streaming: bool) -> None:
        self.shape = shape
        self.index = index
        self.leaf_of = leaf_of
        self.streaming = streaming
        self.members: dict[str, PatternMember] = {}
        self.by_key: dict[int, PatternMember] = {}
        self.shapes: dict[TemplateId, QueryTemplate] = {}
        self.gone = False  # some were cancelled, and their state is not dropped yet
        self.rows = GrowingColumns(key=Column(np.int64), since=Column(np.int64), place=Column(np.int64))  # by number

    def __len__(self) -> int:
        return len(self.members)

    def ready(self, change: SubscriptionChange) -> CompiledPattern:
        """Compiles a subscription; a QueryError if it does not fit the events."""
        assert change.text is not None
        query = parse_subscribed_query(change.text)
        try:
            checked = check_query(query, self.shape.schema, streaming=self.streaming)
        except QueryError as error:
            raise error.at(None, change.text) from None
        shape, constants = find_template(checked, self.shape, self.shapes)
        tests = (EVERY_EVENT,) if shape.mode.every_event else tuple(shape.atoms.list_atoms(constants))
        return CompiledPattern(change.text, checked, shape, constants, tests)

    def add(self, name: str, version: int, compiled: CompiledPattern) -> None:
        """Adds a subscription, which sees events from this version on."""
        slots = tuple(int(slot) for slot in self.index.add_many(compiled.tests))
        self._insert(name, version, compiled, slots)

    def _insert(self, name: str, version: int, compiled: CompiledPattern, slots: tuple[int, ...]) -> None:
        identity = _digest(name.encode()) + compute_fingerprint(compiled.query)
        key = int.from_bytes(_digest(identity + version.to_bytes(8))[:8], signed=True)
        if key in self.by_key:
            raise QueryError(f"'{name}' and '{self.by_key[key].name}' have the same hash", hint="give it another name")
        shape = self.shapes.setdefault(compiled.shape.id, compiled.shape)
        shape.users += 1
        number = self.rows.take()
        place = shape.constants.add(compiled.constants)
        member = PatternMember(name, compiled.text, number, key, identity, version, shape, place, slots)
        self.members[name] = self.by_key[key] = member
        self.rows["key"][number], self.rows["since"][number], self.rows["place"][number] = key, version, place
        for slot in slots:
            self.leaf_of.reach(slot + 1)
            self.leaf_of["node"][slot] = FIRST - number

    def cancel(self, name: str) -> bool:
        """Removes a subscription; returns whether it existed."""
        member = self.members.pop(name, None)
        if member is None:
            return False
        for slot in member.slots:
            self.index.cancel(slot)
            self.leaf_of["node"][slot] = -1
        del self.by_key[member.key]
        self.rows.unused.append(member.number)
        member.shape.constants.drop(member.place)
        member.shape.users -= 1
        if not member.shape.users:
            del self.shapes[member.shape.id]
        self.gone = True
        return True

    def has_engine(self, template: TemplateId, key: int | None) -> bool:
        """Whether an engine of a template, or of one of its subscriptions, is still used."""
        return template in self.shapes and (key is None or key in self.by_key)

    def are_alive(self, keys: Ints) -> npt.NDArray[np.bool_]:
        """Returns which keys are of active subscriptions."""
        unique, which = np.unique(keys, return_inverse=True)
        return np.array([key in self.by_key for key in unique.tolist()], np.bool_)[which]

    def split(self, rows: Ints, numbers: Ints) -> Iterator[tuple[QueryTemplate, int | None, Ints, Ints]]:
        """Yields the rows of each engine in stream order: its template, its only key, rows and numbers."""
        if not len(rows):
            return
        pairs = np.unique(numbers << 32 | rows)  # an event that fits two variables counts once
        rows, numbers = pairs & 0xFFFFFFFF, pairs >> 32
        begins = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
        owner = np.repeat(np.arange(len(begins)), np.diff([*begins, len(rows)]))
        engines: dict[tuple[QueryTemplate, int | None], list[int]] = {}
        for place, key in enumerate(self.rows["key"][numbers[begins]].tolist()):
            template = self.by_key[key].shape
            engines.setdefault((template, None if template.mode.alone is None else key), []).append(place)
        for (template, only), places in engines.items():
            selected = np.zeros(len(begins), np.bool_)
            selected[places] = True
            chosen = np.flatnonzero(selected[owner])
            chosen = chosen[np.argsort(rows[chosen], kind="stable")]
            yield template, only, rows[chosen], numbers[chosen]

    def key_groups(self, numbers: Ints, key_groups: int) -> Ints:
        """Returns the task of each."""
        return (self.rows["key"][numbers].view(np.uint64) % np.uint64(key_groups)).astype(np.int64)

    def save(self, folder: Path) -> None:
        """Writes the subscriptions; the index has their atoms."""
        rows = [(m.name, m.text, m.since, m.slots) for m in self.members.values()]
        (folder / "patterns.json").write_text(json.dumps(rows))

    def open(self, folder: Path) -> None:
        """Reads saved subscriptions; the index has their atoms."""
        for name, text, since, slots in json.loads((folder / "patterns.json").read_text()):
            change = SubscriptionChange.add(name, text, language=PATTERNS.name)
            self._insert(name, since, self.ready(change), tuple(slots))


def is_pattern(change: SubscriptionChange) -> bool:
    """Whether a subscription is in the pattern language."""
    assert change.text is not None
    parsed_as = detect_language(change.text) if change.language is None else get_language(change.language)
    return parsed_as is PATTERNS


def is_pattern_leaf(leaves: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Returns which leaves are patterns.

    >>> is_pattern_leaf(np.array([3, -1, -2], np.int32)).tolist()
    [False, False, True]
    """
    return np.asarray(leaves <= FIRST)


def decode_pattern_numbers(leaves: npt.NDArray[np.int32]) -> Ints:
    return FIRST - leaves.astype(np.int64)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
