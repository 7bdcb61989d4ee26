"""The predicate index: finds the matching atoms of an event among very many."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.errors import QueryError, StateError
from ensue.ir.subscription import EventTest
from ensue.kernels import predicate_index, predicate_index_arrays, predicate_index_hash, predicate_index_updates
from ensue.kernels.polygons import RINGS, RegionTable
from ensue.kernels.predicate_index_arrays import LATE, SKETCH, Atoms
from ensue.kernels.predicate_index_hash import FILTER_BITS, LARGE, UNIT, HashTable
from ensue.operators.subscriptions.atom_encoder import NO_TYPE, WORDS, AtomEncoder
from ensue.operators.subscriptions.field_values import REAL, AtomTextCodes, ResidualTests, encode_field_values
from ensue.operators.subscriptions.growing_columns import map_arrays, save_arrays
from ensue.vector.arrow_numpy import as_read_only
from ensue.vector.event_table import StreamSchema
from ensue.vector.geo_columns import ConvexPlaces
from ensue.vector.geo_regions import Regions

Floats = npt.NDArray[np.float64]


def compute_bounding_boxes(x: Floats, y: Floats, first: npt.NDArray[np.int64], space: int) -> Floats:
    """Returns x0, y0, x1, y1 of each location, NaN without a location or with a NaN corner.

    On the earth a box starts between -180 and 180.

    >>> compute_bounding_boxes(np.array([1.0, 0.0, 2.0]), np.array([5.0, 1.0, 3.0]), np.array([0, 1, 1, 3]), 0)
    array([[ 1.,  5.,  1.,  5.],
           [nan, nan, nan, nan],
           [ 0.,  1.,  2.,  3.]])
    """
    rows = len(first) - 1
    boxes = np.full((rows, 4), np.nan)
    sizes = np.diff(first)
    located = np.flatnonzero(sizes)
    if len(located):
        x, y = x[first[0] : first[-1]], y[first[0] : first[-1]]
        if len(x) == len(located):  # points
            boxes[located, 0] = boxes[located, 2] = x
            boxes[located, 1] = boxes[located, 3] = y
        else:
            begins = first[located] - first[0]
            boxes[located, 0] = np.minimum.reduceat(x, begins)
            boxes[located, 1] = np.minimum.reduceat(y, begins)
            boxes[located, 2] = np.maximum.reduceat(x, begins)
            boxes[located, 3] = np.maximum.reduceat(y, begins)
    boxes[np.isnan(boxes).any(axis=1)] = np.nan
    if space == 1:
        turns = 360 * np.floor((boxes[:, 0] + 180) / 360)
        boxes[:, 0] -= turns
        boxes[:, 2] -= turns
    return boxes


# ---------------------------------------------------------------------------- index

Rows = npt.NDArray[np.int32]

VERSION = 1  # of the files
_BULK = 1 << 13  # atoms per insertion
_SLICE = 1 << 16  # events per call of the kernels
_MOST_PAIRS = 1 << 20  # candidate pairs in memory
_NO_REGIONS = RegionTable(np.zeros((0, RINGS + 1)), np.zeros((0, 2)))


class RoutingCounters(NamedTuple):
    """Counters of the routing."""

    probes: int  # looked up keys
    passed: int  # keys that passed the filter
    candidates: int  # entries of these keys
    tested: int  # entries whose box contains the event
    found: int  # pairs of event and atom


class AtomIndex:
    """Indexes each atom by its most selective predicate, and routes events to atoms.

    Adding and cancelling compile no code, and take bounded time. NULL satisfies no
    predicate; NaN satisfies `!=` alone; an event without location satisfies no region test. The
    regions of atoms are rows of `regions`, which is saved beside the index.
    """

    def __init__(self, shape: StreamSchema, regions: Regions | None, space: int) -> None:
        self._shape = shape
        self._regions = regions
        self._space = space
        self._writer = AtomEncoder(shape, regions)
        self._arrays = IndexArrays.empty()

    def __len__(self) -> int:
        return int(self._arrays["atom_state"][predicate_index_arrays.ALIVE])

    def add(self, atom: EventTest) -> int:
        """Adds an atom and returns its slot."""
        return int(self._add([atom])[0])

    def check(self, atom: EventTest) -> None:
        """Raises a QueryError if an atom could not be added."""
        self._writer.readers.read(atom)

    def add_many(self, atoms: Iterable[EventTest]) -> Rows:
        """Adds all atoms or none, faster than one by one, and returns their slots."""
        added: list[Rows] = []
        atoms = iter(atoms)
        try:
            while batch := list(islice(atoms, _BULK)):
                added.append(self._add(batch))
        except QueryError:
            for slots in added:
                self._cancel(slots)
            raise
        return np.concatenate([np.zeros(0, np.int32), *added])

    def _add(self, atoms: Sequence[EventTest]) -> Rows:
        arrays, writer = self._arrays, self._writer
        written = writer.write(atoms)
        fields = writer.fields.all
        arrays.reach(dict.fromkeys(("kinds", "sketches", "seen"), len(fields)))
        arrays["kinds"][: len(fields)] = [field.kind in REAL for field in fields]
        arrays.reach({"groups": writer.texts.end + 1})
        slots = np.empty(len(atoms), np.int32)
        done = 0
        while done < len(atoms):
            arrays.make_room(written.longest)
            done = predicate_index_updates.add_atoms(
                arrays.table, arrays.atoms, self._region_table, self._space, *written,
                writer.fields.type_number, slots, done,
            )  # fmt: skip
        return slots

    def cancel(self, slot: int) -> None:
        """Removes an atom; its slot may be reused."""
        self._cancel(np.array([slot], np.int32))

    def _cancel(self, slots: Rows) -> None:
        arrays = self._arrays
        for slot in slots.tolist():
            self._check(slot)
        for slot in slots.tolist():
            self._writer.give_back(self._tests(slot))
        predicate_index_updates.remove_atoms(arrays.table, arrays.atoms, slots)
        arrays.tidy()

    def _tests(self, slot: int) -> list[list[int]]:
        out = np.empty((8, WORDS), np.int64)
        count = predicate_index_updates.list_tests(self._arrays.atoms, slot, out)
        if count > len(out):
            out = np.empty((count, WORDS), np.int64)
            predicate_index_updates.list_tests(self._arrays.atoms, slot, out)
        tests: list[list[int]] = out[:count].tolist()
        return tests

    def _check(self, slot: int) -> None:
        top = self._arrays["atom_state"][predicate_index_arrays.SLOT_TOP]
        if not 0 <= slot < top or self._arrays["access"][slot, 0] < 0:
            raise KeyError(f"no atom has slot {slot}")

    def broad(self, slot: int) -> bool:
        """Whether an atom requires at most a type, so that it matches very many events."""
        self._check(slot)
        access = int(self._arrays["access"][slot, 0])
        kind, path = access & 255, access >> 36
        if kind == predicate_index_arrays.EQUAL:
            word = int(self._arrays["paths"][path, predicate_index_arrays.WHAT])
            return (word >> 8) & 0xFFFFFF == self._writer.fields.type_number
        return kind == predicate_index_arrays.ALL

    def paths(self) -> list[str]:
        """Returns the access path of each atom."""
        top = int(self._arrays["atom_state"][predicate_index_arrays.SLOT_TOP])
        alive = [slot for slot in range(top) if self._arrays["access"][slot, 0] >= 0]
        return [self._describe_path(slot) for slot in alive]

    def _describe_path(self, slot: int) -> str:
        access = int(self._arrays["access"][slot, 0])
        match access & 255:
            case predicate_index_arrays.EQUAL:
                return "type" if self.broad(slot) else "equality"
            case predicate_index_arrays.GRID:
                return "region"
            case predicate_index_arrays.SPAN:
                return "range"
            case predicate_index_arrays.ALL:
                return "type" if (access >> 8) & ((1 << 28) - 1) else "no field: all events fit"
            case _:
                return "no field: no event fits"

    def route(self, events: pa.Table, places: ConvexPlaces | None) -> tuple[Rows, Rows]:
        """Returns rows of events and slots of the atoms that match them, by row, then slot."""
        cuts = [*range(0, events.num_rows, _SLICE), events.num_rows]
        parts = [self._route(events, places, begin, end) for begin, end in pairwise(cuts)]
        rows = np.concatenate([np.zeros(0, np.int32), *(rows for rows, _ in parts)])
        slots = np.concatenate([np.zeros(0, np.int32), *(slots for _, slots in parts)])
        return rows, slots

    def _route(self, events: pa.Table, places: ConvexPlaces | None, begin: int, end: int) -> tuple[Rows, Rows]:
        part = events.slice(begin, end - begin)
        pairs = self._find_pairs(self._batch(part, places, begin, end))
        rows = (pairs >> 32).astype(np.int32)
        slots = ((pairs & 0xFFFFFFFF) >> 1).astype(np.int32)
        late = np.flatnonzero(pairs & 1)
        if len(late):
            keep = np.ones(len(pairs), np.bool_)
            keep[late] = self._test_residuals(part, rows[late], slots[late])
            rows, slots = rows[keep], slots[keep]
        self._arrays["counters"][predicate_index.FOUND] += len(rows)
        return rows + np.int32(begin), slots

    def _find_pairs(self, batch: predicate_index.IndexedEvents) -> npt.NDArray[np.int64]:
        """Returns the rows and slots that pass all but residual tests, packed and sorted."""
        arrays = self._arrays
        counters = arrays["counters"]
        parts, done = [np.zeros(0, np.int64)], 0
        while done < len(batch.groups):
            pairs, done = predicate_index.find_candidates(
                arrays.table, arrays.atoms, self._space, batch, done, _MOST_PAIRS, counters
            )
            counters[predicate_index.TESTED] += len(pairs)
            parts.append(predicate_index.filter_candidates(arrays.atoms, self._region_table, self._space, batch, pairs))
        merged = np.concatenate(parts)
        merged.sort()
        first = np.ones(len(merged), np.bool_)
        np.not_equal(merged[1:], merged[:-1], out=first[1:])  # drops pairs found in two cells
        return merged[first]

    def _batch(
        self, events: pa.Table, places: ConvexPlaces | None, begin: int, end: int
    ) -> predicate_index.IndexedEvents:
        fields = self._writer.fields
        values, numbers = encode_field_values(events, self._shape, fields.all, self._writer.texts)
        groups = np.zeros(len(values), np.int32)
        if fields.type_number >= 0:
            codes = values[:, fields.type_number]  # below 0 if there is no type, or no atom has it
            groups = np.maximum(codes + 1, NO_TYPE).astype(np.int32)
        x = y = np.zeros(0, np.float64)
        first = np.zeros(end - begin + 1, np.int64)
        if places is not None:
            # writable arrays, as elsewhere: read-only ones would compile the kernels twice
            x, y = (np.require(a, np.float64, ["C", "W"]) for a in (places.x, places.y))
            first = np.asarray(places.first[begin : end + 1], np.int64)
        boxes = compute_bounding_boxes(x, y, first, self._space)
        return predicate_index.IndexedEvents(values, numbers, groups, boxes, x, y, as_read_only(first))

    def _test_residuals(self, events: pa.Table, rows: Rows, slots: Rows) -> npt.NDArray[np.bool_]:
        """Returns where the residual tests of pairs hold."""
        atoms = self._arrays.atoms
        empty = np.empty(0, np.int64)
        count = predicate_index_updates.list_operands(atoms, slots, LATE, np.empty(0, np.int32), empty)
        owners, numbers = np.empty(count, np.int32), np.empty(count, np.int64)
        predicate_index_updates.list_operands(atoms, slots, LATE, owners, numbers)
        passed = np.ones(len(rows), np.bool_)
        passed[owners[self._writer.late.find_failures(events, rows[owners], numbers)]] = False
        return passed

    @property
    def _region_table(self) -> RegionTable:
        return _NO_REGIONS if self._regions is None else self._regions.table

    def get_counters(self) -> RoutingCounters:
        return RoutingCounters(*map(int, self._arrays["counters"]))

    @property
    def nbytes(self) -> int:
        """The memory of the index, without the regions."""
        return self._arrays.nbytes + self._writer.texts.nbytes

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._arrays.save(folder)
        self._writer.texts.save(folder)
        metadata = {
            "version": VERSION,
            "space": self._space,
            "fields": [(field.column, field.kind.value) for field in self._writer.fields.all],
            "late": self._writer.late.items(),
        }
        (folder / "index.json").write_text(json.dumps(metadata))

    @classmethod
    def open(cls, folder: Path, shape: StreamSchema, regions: Regions | None, space: int) -> "AtomIndex":
        """Opens an index; its files are mapped, and changes stay in memory."""
        try:
            metadata = json.loads((folder / "index.json").read_text())
        except (OSError, ValueError) as error:
            raise StateError(f"{folder} holds no index of atoms: {error}") from None
        if metadata["version"] != VERSION or metadata["space"] != space:
            raise StateError(
                f"{folder} was written by another version, or for another space\n"
                "  hint: build the index again from the subscriptions"
            )
        index = cls(shape, regions, space)
        writer = index._writer
        for column, kind in metadata["fields"]:
            if column not in shape.arrow.names or writer.fields.take(column).kind.value != kind:
                raise StateError(
                    f"{folder} was written for events with a column '{column}' of kind {kind}\n"
                    "  hint: build the index again from the subscriptions"
                )
        writer.texts = AtomTextCodes.open(folder)
        writer.late = ResidualTests.restore(metadata["late"])
        index._arrays = IndexArrays.open(folder)
        index._arrays["counters"][:] = 0
        return index


# ---------------------------------------------------------------------------- arrays

Array = npt.NDArray[Any]

_FIRST_KEYS = 1 << 10
_FULL_AGAIN = 0.4  # largest load factor after a rebuild
_STEP = 1 << 19  # bytes that are cleared or released in well below a millisecond
_ROWS: dict[str, tuple[int, Any]] = {  # words of a row (0: the row is one number), and their type
    "words": (0, np.int32),
    "tests": (4, np.int64),
    "first": (0, np.int32),
    "access": (4, np.int64),
    "paths": (predicate_index_arrays.PATH_WORDS, np.int64),
    "scales": (0, np.float64),
    "groups": (0, np.int32),
    "kinds": (0, np.int32),
    "sketches": (SKETCH // 64, np.uint64),
    "seen": (predicate_index_arrays.SEEN, np.float64),
}
_TABLE = ("keys", "heads", "bits")
_OLD = ("old_keys", "old_heads", "old_bits")
_FIXED = ("table_state", "atom_state", "extent", "counters")


class IndexArrays:
    """Named arrays that grow in steps, and the tuples in which kernels take them.

    Growing reallocates memory, which moves no bytes of large arrays.
    """

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays = arrays
        self._retired: list[Array] = []  # old tables, which are released in steps
        self._build()

    @classmethod
    def empty(cls) -> "IndexArrays":
        arrays: dict[str, Array] = {
            name: np.zeros((16, width) if width else 16, type) for name, (width, type) in _ROWS.items()
        }
        arrays |= dict(zip(_TABLE, _new_table(_FIRST_KEYS), strict=True))
        arrays |= dict(zip(_OLD, _new_table(0), strict=True))
        arrays["table_state"] = np.zeros(predicate_index_hash.STATE, np.int64)
        arrays["table_state"][[predicate_index_hash.FREE_SMALL, predicate_index_hash.FREE_LARGE]] = -1
        arrays["atom_state"] = np.zeros(predicate_index_arrays.STATE, np.int64)
        arrays["extent"] = np.zeros(5, np.float64)
        arrays["counters"] = np.zeros(5, np.int64)
        return cls(arrays)

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def _build(self) -> None:
        a = self._arrays
        shared = a | {"reals": a["words"].view(np.float32), "numbers": a["tests"].view(np.float64)}
        table, atoms = shared | {"state": a["table_state"]}, shared | {"state": a["atom_state"]}
        self.table = HashTable(**{name: table[name] for name in HashTable._fields})
        self.atoms = Atoms(**{name: atoms[name] for name in Atoms._fields})

    def reach(self, needed: Mapping[str, int]) -> None:
        """Grows arrays to at least these lengths."""
        short = {n: size for n, size in needed.items() if len(self._arrays[n]) < size}
        if not short:
            return
        del self.table, self.atoms  # they hold views of memory that may move
        for name, size in short.items():
            array = self._arrays[name]
            step = max(1, _STEP // max(array[:1].nbytes, 1))
            length = max(size, min(2 * len(array), len(array) + step))
            if array.flags.owndata:
                array.resize((length, *array.shape[1:]), refcheck=False)
            else:  # mapped from a file
                more = np.zeros((length, *array.shape[1:]), array.dtype)
                more[: len(array)] = array
                self._arrays[name] = more
        self._build()

    @property
    def growing(self) -> bool:
        state = self._arrays["table_state"]
        return bool(state[predicate_index_hash.CURSOR] < len(self._arrays["old_keys"]))

    def rebuild(self, size: int) -> None:
        """Starts to move all keys to a table of another size; later changes continue the move."""
        arrays, state = self._arrays, self._arrays["table_state"]
        for old, name, fresh in zip(_OLD, _TABLE, _new_table(size), strict=True):
            arrays[old], arrays[name] = arrays[name], fresh
        state[predicate_index_hash.LEFT] = state[predicate_index_hash.USED]
        state[predicate_index_hash.USED] = 0
        state[predicate_index_hash.CURSOR] = 0
        state[predicate_index_hash.GONE] = 0
        self._build()

    def forget_old(self) -> None:
        """Releases the old table after all keys were moved."""
        self._retired += [a for a in (self._arrays[n] for n in _OLD) if a.flags.owndata]
        self._arrays |= dict(zip(_OLD, _new_table(0), strict=True))
        self._arrays["table_state"][predicate_index_hash.CURSOR] = 0
        self._build()

    def _release_step(self) -> None:
        """Returns a part of a retired table to the system."""
        array = self._retired[-1]
        left = len(array) - _STEP // array.itemsize
        if left > 0:
            array.resize(left, refcheck=False)
        else:
            self._retired.pop()

    def make_room(self, tests: int) -> None:
        """Reserves space for one more atom with this number of tests."""
        table, atoms = self._arrays["table_state"], self._arrays["atom_state"]
        entries = max(predicate_index_updates.ENTRIES, 2 * tests)
        units = int(table[predicate_index_hash.TOP]) + LARGE * entries
        slots = int(atoms[predicate_index_arrays.SLOT_TOP]) + 1
        paths = int(atoms[predicate_index_arrays.PATH_TOP]) + 1
        self.reach(
            {
                "words": units * UNIT,
                "tests": int(atoms[predicate_index_arrays.TEST_TOP]) + tests,
                **dict.fromkeys(("first", "access"), slots),
                **dict.fromkeys(("paths", "scales"), paths),
            }
        )
        self.tidy()
        size = len(self._arrays["keys"])
        held = int(table[predicate_index_hash.USED] + table[predicate_index_hash.LEFT]) + entries
        if held <= (predicate_index_hash.MOST if self.growing else predicate_index_updates.FULL) * size:
            return
        if self.growing:  # an atom with very many values
            predicate_index_hash.move_slots(self.table, len(self._arrays["old_keys"]))
            self.tidy()
        while held > predicate_index_updates.FULL * size:
            size *= 2
        self.rebuild(size)

    def tidy(self) -> None:
        """Releases an old table, and starts a rebuild if most of the filter is stale."""
        table = self._arrays["table_state"]
        if self._retired:
            self._release_step()
        if self.growing:
            return
        if len(self._arrays["old_keys"]):
            self.forget_old()
        if table[predicate_index_hash.GONE] > len(self._arrays["keys"]) // 2:
            size = _FIRST_KEYS
            while table[predicate_index_hash.USED] > _FULL_AGAIN * size:
                size *= 2
            self.rebuild(size)

    def save(self, folder: Path) -> None:
        save_arrays(folder, self._arrays)

    @classmethod
    def open(cls, folder: Path) -> "IndexArrays":
        """Maps the files; changes stay in memory."""
        return cls(map_arrays(folder, (*_ROWS, *_TABLE, *_OLD, *_FIXED)))

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays.values())


def _new_table(size: int) -> tuple[Array, Array, Array]:
    return (np.zeros(size, np.uint64), np.zeros(size, np.int32), np.zeros(size * FILTER_BITS // 64, np.uint64))
