"""From one event to the matching ones of very many atoms."""

import json
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.algebra.event_test import EventTest
from ensue.columns.buffers import frozen
from ensue.columns.regions import Regions
from ensue.columns.stream import Shape
from ensue.errors import QueryError, StateError
from ensue.kernels import routing, routing_arrays, routing_atoms
from ensue.kernels.polygons import RINGS, RegionTable
from ensue.kernels.routing_arrays import LATE
from ensue.workload.subscriptions.routing.arrays import Arrays
from ensue.workload.subscriptions.routing.fields import REAL, values_of
from ensue.workload.subscriptions.routing.groups import Groups
from ensue.workload.subscriptions.routing.late import LateTests
from ensue.workload.subscriptions.routing.places import Corners, boxes_of
from ensue.workload.subscriptions.routing.texts import Texts
from ensue.workload.subscriptions.routing.written import WORDS, Writer

Rows = npt.NDArray[np.int32]

VERSION = 1  # of the files
_BULK = 1 << 13  # atoms that are added together
_SLICE = 1 << 16  # events whose values are laid out together
_MOST_PAIRS = 1 << 20  # that are held before they are tested
_NO_REGIONS = RegionTable(np.zeros((0, RINGS + 1)), np.zeros((0, 2)))


class Hits(NamedTuple):
    """What routing has done so far."""

    probes: int  # keys that events asked for
    passed: int  # of those, how many the filter let through
    candidates: int  # entries under them
    tested: int  # entries in whose box the event was
    found: int  # pairs of event and atom


class AtomIndex:
    """Atoms, each hung under its most selective predicate, and the way from events to them.

    Adding and cancelling compile nothing, and none waits for all the others. NULL satisfies no
    predicate; NaN satisfies `!=` alone; an event without place satisfies no region test. The
    regions of atoms are rows of `regions`, which is saved beside the index.
    """

    def __init__(self, shape: Shape, regions: Regions | None, space: int) -> None:
        self._shape = shape
        self._regions = regions
        self._space = space
        self._writer = Writer(shape, regions)
        self._arrays = Arrays.empty()

    def __len__(self) -> int:
        return int(self._arrays["atom_state"][routing_arrays.ALIVE])

    # ---- changes

    def add(self, atom: EventTest) -> int:
        """Adds an atom; returns its slot, which no other living atom has."""
        return int(self._add([atom])[0])

    def check(self, atom: EventTest) -> None:
        """QueryError if an atom could not be added."""
        self._writer.check(atom)

    def add_many(self, atoms: Iterable[EventTest]) -> Rows:
        """Adds atoms together, in less time for each; returns their slots.

        If one does not fit its columns, none is added.
        """
        found: list[Rows] = []
        atoms = iter(atoms)
        try:
            while batch := list(islice(atoms, _BULK)):
                found.append(self._add(batch))
        except QueryError:
            for slots in found:
                self._cancel(slots)
            raise
        return np.concatenate([np.zeros(0, np.int32), *found])

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
            done = routing_atoms.add_atoms(
                arrays.table,
                arrays.atoms,
                self._region_table,
                self._space,
                written.begins,
                written.tests,
                written.groups,
                writer.fields.type_number,
                slots,
                done,
            )
        return slots

    def cancel(self, slot: int) -> None:
        """Takes an atom out; its slot may be used again, with another generation."""
        self._cancel(np.array([slot], np.int32))

    def _cancel(self, slots: Rows) -> None:
        arrays = self._arrays
        for slot in slots.tolist():
            self._check(slot)
        for slot in slots.tolist():
            group = (int(arrays["access"][slot, 0]) >> 8) & ((1 << 28) - 1)
            self._writer.give_back(self._tests(slot), group)
        routing_atoms.cancel_atoms(arrays.table, arrays.atoms, slots)
        arrays.tidy()

    def _tests(self, slot: int) -> list[list[int]]:
        """The tests of an atom."""
        out = np.empty((8, WORDS), np.int64)
        count = routing_atoms.tests_of(self._arrays.atoms, slot, out)
        if count > len(out):
            out = np.empty((count, WORDS), np.int64)
            routing_atoms.tests_of(self._arrays.atoms, slot, out)
        found: list[list[int]] = out[:count].tolist()
        return found

    def _check(self, slot: int) -> None:
        top = self._arrays["atom_state"][routing_arrays.SLOT_TOP]
        if not 0 <= slot < top or self._arrays["access"][slot, 0] < 0:
            raise KeyError(f"no atom has slot {slot}")

    def generation(self, slot: int) -> int:
        """How many atoms have had a slot before."""
        return int(self._arrays["generation"][slot])

    def broad(self, slot: int) -> bool:
        """Whether only its type, or nothing, tells an atom from others: every event meets it."""
        self._check(slot)
        access = int(self._arrays["access"][slot, 0])
        kind, path = access & 255, access >> 36
        if kind == routing_arrays.EQUAL:
            what = int(self._arrays["paths"][path, routing_arrays.WHAT])
            return (what >> 8) & 0xFFFFFF == self._writer.fields.type_number
        return kind == routing_arrays.ALL

    def paths(self) -> list[str]:
        """By what each atom is found."""
        top = int(self._arrays["atom_state"][routing_arrays.SLOT_TOP])
        alive = [slot for slot in range(top) if self._arrays["access"][slot, 0] >= 0]
        return [self._path(slot) for slot in alive]

    def _path(self, slot: int) -> str:
        access = int(self._arrays["access"][slot, 0])
        match access & 255:
            case routing_arrays.EQUAL:
                return "type" if self.broad(slot) else "equality"
            case routing_arrays.GRID:
                return "region"
            case routing_arrays.SPAN:
                return "range"
            case routing_arrays.ALL:
                return "type" if (access >> 8) & ((1 << 28) - 1) else "no field: all events fit"
            case _:
                return "no field: no event fits"

    # ---- routing

    def route(self, events: pa.Table, places: Corners | None) -> tuple[Rows, Rows]:
        """Rows of events and slots of the atoms that each satisfies, by row, then slot."""
        cuts = [*range(0, events.num_rows, _SLICE), events.num_rows]
        found = [self._route(events, places, begin, end) for begin, end in pairwise(cuts)]
        rows = np.concatenate([np.zeros(0, np.int32), *(rows for rows, _ in found)])
        slots = np.concatenate([np.zeros(0, np.int32), *(slots for _, slots in found)])
        return rows, slots

    def _route(
        self, events: pa.Table, places: Corners | None, begin: int, end: int
    ) -> tuple[Rows, Rows]:
        part = events.slice(begin, end - begin)
        pairs = self._pairs(self._batch(part, places, begin, end))
        rows = (pairs >> 32).astype(np.int32)
        slots = ((pairs & 0xFFFFFFFF) >> 1).astype(np.int32)
        late = np.flatnonzero(pairs & 1)
        if len(late):
            keep = np.ones(len(pairs), np.bool_)
            keep[late] = self._late_pass(part, rows[late], slots[late])
            rows, slots = rows[keep], slots[keep]
        self._arrays["counters"][routing.FOUND] += len(rows)
        return rows + np.int32(begin), slots

    def _pairs(self, batch: routing.Events) -> npt.NDArray[np.int64]:
        """Rows and slots of what passes all tests but late ones, as one number, in order."""
        arrays = self._arrays
        counters = arrays["counters"]
        found, done = [np.zeros(0, np.int64)], 0
        while done < len(batch.groups):
            pairs, done = routing.candidates(
                arrays.table, arrays.atoms, self._space, batch, done, _MOST_PAIRS, counters
            )
            counters[routing.TESTED] += len(pairs)
            found.append(
                routing.matching(arrays.atoms, self._region_table, self._space, batch, pairs)
            )
        whole = np.concatenate(found)
        whole.sort()
        first = np.ones(len(whole), np.bool_)
        np.not_equal(whole[1:], whole[:-1], out=first[1:])  # what was found in two cells
        return whole[first]

    def _batch(
        self, events: pa.Table, places: Corners | None, begin: int, end: int
    ) -> routing.Events:
        fields = self._writer.fields
        values, numbers = values_of(events, self._shape, fields.all, self._writer.texts)
        groups = np.zeros(len(values), np.int32)
        if fields.type_number >= 0:
            groups = self._writer.groups.of(values[:, fields.type_number])
        x = y = np.zeros(0, np.float64)
        first = np.zeros(end - begin + 1, np.int64)
        if places is not None:
            # arrays that may be written to, as elsewhere: else geometry is compiled twice
            x, y = (np.require(a, np.float64, ["C", "W"]) for a in (places.x, places.y))
            first = np.asarray(places.first[begin : end + 1], np.int64)
        boxes = boxes_of(x, y, first, self._space)
        return routing.Events(values, numbers, groups, boxes, x, y, frozen(first))

    def _late_pass(self, events: pa.Table, rows: Rows, slots: Rows) -> npt.NDArray[np.bool_]:
        """Where the late tests of pairs hold."""
        atoms = self._arrays.atoms
        none = np.empty(0, np.int64)
        count = routing_atoms.numbers_of_tests(atoms, slots, LATE, np.empty(0, np.int32), none)
        owners, numbers = np.empty(count, np.int32), np.empty(count, np.int64)
        routing_atoms.numbers_of_tests(atoms, slots, LATE, owners, numbers)
        passed = np.ones(len(rows), np.bool_)
        passed[owners[self._writer.late.failed(events, rows[owners], numbers)]] = False
        return passed

    @property
    def _region_table(self) -> RegionTable:
        return _NO_REGIONS if self._regions is None else self._regions.table

    def hits(self) -> Hits:
        """What routing has done so far."""
        return Hits(*map(int, self._arrays["counters"]))

    @property
    def nbytes(self) -> int:
        """How much memory the index holds, without the regions."""
        return self._arrays.nbytes + self._writer.texts.nbytes

    # ---- files

    def save(self, folder: Path) -> None:
        """Writes the index into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        self._arrays.save(folder)
        self._writer.texts.save(folder)
        about = {
            "version": VERSION,
            "space": self._space,
            "fields": [(field.column, field.kind.value) for field in self._writer.fields.all],
            "groups": self._writer.groups.items(),
            "late": self._writer.late.items(),
        }
        (folder / "index.json").write_text(json.dumps(about))

    @classmethod
    def open(cls, folder: Path, shape: Shape, regions: Regions | None, space: int) -> "AtomIndex":
        """An index from its files, which are mapped; changes stay in memory."""
        try:
            about = json.loads((folder / "index.json").read_text())
        except (OSError, ValueError) as error:
            raise StateError(f"{folder} holds no index of atoms: {error}") from None
        if about["version"] != VERSION or about["space"] != space:
            raise StateError(
                f"{folder} was written by another version, or for another space\n"
                "  hint: build the index again from the subscriptions"
            )
        index = cls(shape, regions, space)
        writer = index._writer
        for column, kind in about["fields"]:
            if column not in shape.arrow.names or writer.fields.take(column).kind.value != kind:
                raise StateError(
                    f"{folder} was written for events with a column '{column}' of kind {kind}\n"
                    "  hint: build the index again from the subscriptions"
                )
        writer.texts = Texts.open(folder)
        writer.late = LateTests.restore(about["late"])
        writer.groups = Groups.restore(about["groups"])
        index._arrays = Arrays.open(folder)
        index._arrays["counters"][:] = 0
        return index
