"""The predicate index: finds the matching atoms of an event among very many."""

import json
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.errors import QueryError, StateError
from ensue.ir.subscription import EventTest
from ensue.kernels import predicate_index, predicate_index_arrays, predicate_index_updates
from ensue.kernels.polygons import RINGS, RegionTable
from ensue.kernels.predicate_index_arrays import LATE
from ensue.operators.subscriptions.predicate_index.constraints import TypeGroups
from ensue.operators.subscriptions.predicate_index.encoding import WORDS, AtomEncoder
from ensue.operators.subscriptions.predicate_index.field_values import REAL, ResidualTests, encode_field_values
from ensue.operators.subscriptions.predicate_index.index_arrays import IndexArrays
from ensue.operators.subscriptions.predicate_index.sortable_encoding import AtomTextCodes
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
        arrays.reach({"groups": len(writer.groups)})
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
        """Removes an atom; its slot may be reused with another generation."""
        self._cancel(np.array([slot], np.int32))

    def _cancel(self, slots: Rows) -> None:
        arrays = self._arrays
        for slot in slots.tolist():
            self._check(slot)
        for slot in slots.tolist():
            group = (int(arrays["access"][slot, 0]) >> 8) & ((1 << 28) - 1)
            self._writer.give_back(self._tests(slot), group)
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

    def generation(self, slot: int) -> int:
        """Counts the earlier atoms of a slot."""
        return int(self._arrays["generation"][slot])

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
            groups = self._writer.groups.get_groups(values[:, fields.type_number])
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
            "groups": self._writer.groups.items(),
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
        writer.groups = TypeGroups.restore(metadata["groups"])
        index._arrays = IndexArrays.open(folder)
        index._arrays["counters"][:] = 0
        return index
