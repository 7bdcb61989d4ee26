"""From one event to the matching ones of very many atoms."""

import json
import struct
from array import array
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.algebra.event_test import EventTest
from ensue.algebra.subscription import Where
from ensue.columns.stream import Shape
from ensue.errors import QueryError, StateError
from ensue.kernels import routing, routing_arrays, routing_atoms, routing_table
from ensue.kernels.polygons import RINGS, RegionTable
from ensue.kernels.routing_arrays import AMONG, AMONG_LAST, LATE, OPS, REGION, UNLIKE, WITHIN
from ensue.schema import Kind
from ensue.workload.subscriptions.routing.arrays import Arrays
from ensue.workload.subscriptions.routing.asked import Asked, OfField, Readers
from ensue.workload.subscriptions.routing.fields import REAL, Fields, values_of
from ensue.workload.subscriptions.routing.late import LateTests
from ensue.workload.subscriptions.routing.ordered import EVERYTHING
from ensue.workload.subscriptions.routing.places import boxes_of
from ensue.workload.subscriptions.routing.texts import Texts

if TYPE_CHECKING:
    from ensue.columns.location import Places
    from ensue.columns.regions import Regions

Rows = npt.NDArray[np.int32]

VERSION = 1
_BULK = 1 << 13  # atoms that are added together
_SLICE = 1 << 16  # events whose values are laid out together
_WHERE = {Where.INSIDE: 0, Where.OVERLAP: 1, Where.SAME: 2, Where.DISTANCE: 3}
_NO_REGIONS = RegionTable(np.zeros((0, RINGS + 1)), np.zeros((0, 2)))
_COMPARISON = {None: 0, "<": 0, "=": 1, ">": 2}


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
    predicate; NaN satisfies `!=` alone; an event without place satisfies no region test.
    """

    def __init__(self, shape: Shape, regions: "Regions | None", space: int) -> None:
        self._shape = shape
        self._regions = regions
        self._space = space
        self._fields = Fields(shape)
        self._readers = Readers(self._fields, shape.unit)
        self._texts = Texts()
        self._late = LateTests()
        self._arrays = Arrays.empty()
        self._groups: dict[int, int] = {}  # by code of the type
        self._group_uses: list[int] = [0]  # group 0: no type
        self._group_codes: list[int] = [-1]
        self._free_groups: list[int] = []

    def __len__(self) -> int:
        return int(self._arrays["atom_state"][routing_arrays.ALIVE])

    # ---- changes

    def add(self, atom: EventTest) -> int:
        """Adds an atom; returns its slot, which no other living atom has."""
        return int(self._add([atom])[0])

    def add_many(self, atoms: Iterable[EventTest]) -> Rows:
        """Adds atoms together, which takes far less time for each; returns their slots.

        If one does not fit its columns, those before it may have been added and are cancelled.
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
        asked = [self._readers.read(atom) for atom in atoms]
        placed = [
            self._region_rows(atom, part) if atom.places else ()
            for atom, part in zip(atoms, asked, strict=True)
        ]
        rows = array("q")
        begins, groups = array("q", [0]), array("i")
        for part, regions in zip(asked, placed, strict=True):
            groups.append(self._take_rows(part, rows))
            rows.extend(regions)
            if part.late:
                rows.extend(self._late_rows(part))
            begins.append(len(rows) // 4)
        self._note_fields()
        slots = np.empty(len(atoms), np.int32)
        tests = np.array(rows, np.int64).reshape(-1, 4)
        firsts = np.array(begins, np.int64)
        widest = int(np.diff(firsts).max(initial=0))
        done = 0
        while True:
            self._make_room(widest)
            done = routing_atoms.add_atoms(
                self._arrays.table,
                self._arrays.atoms,
                self._region_table(),
                self._space,
                firsts,
                tests,
                np.array(groups, np.int32),
                self._type_field(),
                slots,
                done,
            )
            if done == len(atoms):
                return slots

    def cancel(self, slot: int) -> None:
        """Takes an atom out; its slot may be used again, with another generation."""
        self._cancel(np.array([slot], np.int32))

    def _cancel(self, slots: Rows) -> None:
        access = self._arrays["access"]
        top = int(self._arrays["atom_state"][routing_arrays.SLOT_TOP])
        for slot in slots.tolist():
            if not 0 <= slot < top or access[slot, 0] < 0:
                raise KeyError(f"no atom has slot {slot}")
        for slot in slots.tolist():
            self._give_back(slot)
        routing_atoms.cancel_atoms(self._arrays.table, self._arrays.atoms, slots)
        self._tidy()

    def _give_back(self, slot: int) -> None:
        """Texts, late tests and the group of an atom are used once less."""
        arrays = self._arrays
        count = routing_atoms.tests_of(arrays.atoms, slot, np.empty((0, 4), np.int64))
        tests = np.empty((count, 4), np.int64)
        routing_atoms.tests_of(arrays.atoms, slot, tests)
        for what, low, high, _ in tests.tolist():
            op, number = what & 15, what >> OPS
            if op == LATE:
                self._late.give_back(low)
            elif op != REGION and self._fields.all[number].kind is Kind.STRING:
                if (low, high) == EVERYTHING:
                    continue
                self._texts.give_back(low)
                if high != low:
                    self._texts.give_back(high)
        group = (int(arrays["access"][slot, 0]) >> 8) & ((1 << 28) - 1)
        if group:
            self._group_uses[group] -= 1
            if not self._group_uses[group]:
                del self._groups[self._group_codes[group]]
                self._free_groups.append(group)

    def generation(self, slot: int) -> int:
        """How many atoms have had a slot before."""
        return int(self._arrays["generation"][slot])

    def broad(self, slot: int) -> bool:
        """Whether only its type, or nothing, tells an atom from others: every event meets it."""
        access = int(self._arrays["access"][slot, 0])
        kind, path = access & 255, access >> 36
        if kind == routing_arrays.EQUAL:
            field = (int(self._arrays["paths"][path, routing_arrays.WHAT]) >> 8) & 0xFFFFFF
            return field == self._type_field()
        return kind == routing_arrays.ALL

    # ---- what an atom asks, in numbers

    def _take_rows(self, asked: Asked, rows: "array[int]") -> int:
        """Appends the tests of an atom on fields; returns its group."""
        if asked.never:
            return -1
        group = 0
        for number, part in asked.fields.items():
            what = number << OPS
            if part.among is None and part.unlike is None:
                if part.field.kind is not Kind.STRING:  # of texts only late tests are left
                    rows.extend((WITHIN + what, part.low, part.high, 0))
                continue
            values = self._values(part)
            if values is None:
                self._append_unlike(part, rows)
            elif len(values) == 1:
                rows.extend((WITHIN + what, values[0], values[0], 0))
                if part.field.column == self._fields.type_column:
                    group = self._group(values[0])
            else:
                last = len(values) - 1
                for k in range(0, last + 1, 2):
                    op = AMONG if k + 2 <= last else AMONG_LAST
                    rows.extend((op + what, values[k], values[min(k + 1, last)], 0))
        return group

    def _values(self, part: OfField) -> list[int] | None:
        """The values, or codes of texts, that a field may have; None: there is no set."""
        allowed = part.allowed()
        if allowed is None:
            return None
        return sorted(self._texts.take(v) if isinstance(v, str) else v for v in allowed)

    def _append_unlike(self, part: OfField, rows: "array[int]") -> None:
        what, before = part.field.number << OPS, len(rows)
        if (part.low, part.high) != EVERYTHING:
            rows.extend((WITHIN + what, part.low, part.high, 0))
        for value in part.unlike or ():
            code = self._texts.take(value) if isinstance(value, str) else value
            if part.low <= code <= part.high:
                rows.extend((UNLIKE + what, code, code, 0))
        if len(rows) == before:  # whatever it is, it is not NULL
            rows.extend((WITHIN + what, *EVERYTHING, 0))

    def _group(self, code: int) -> int:
        group = self._groups.get(code)
        if group is None:
            if self._free_groups:
                group = self._free_groups.pop()
            else:
                group = len(self._group_uses)
                self._group_uses.append(0)
                self._group_codes.append(code)
            self._groups[code] = group
            self._group_codes[group] = code
        self._group_uses[group] += 1
        return group

    def _region_rows(self, atom: EventTest, asked: Asked) -> "array[int]":
        rows = array("q")
        if asked.never:
            return rows
        if self._regions is None:
            raise QueryError(
                "events have no place, so nothing can be asked of it",
                hint='name the columns of their places: location=("lon", "lat")',
                span=atom.places[0].region.span,
            )
        for test in atom.places:
            how = _WHERE[test.where] + (_COMPARISON[test.comparison] << 2)
            row = self._regions.add(test.region)
            rows.extend((REGION + (how << OPS), row, _bits(test.number), _bits(test.tolerance)))
        return rows

    def _late_rows(self, asked: Asked) -> list[int]:
        if asked.never:
            return []
        rows = []
        for field, operator, text in asked.late:
            rows += [LATE, self._late.take((field.column, operator, text)), 0, 0]
        return rows

    def _note_fields(self) -> None:
        fields = self._fields.all
        count = len(fields)
        self._arrays.reach({"kinds": count, "sketches": count, "seen": count})
        self._arrays["kinds"][:count] = [field.kind in REAL for field in fields]

    def _type_field(self) -> int:
        column = self._fields.type_column
        for field in self._fields.all:
            if field.column == column:
                return field.number
        return -1

    # ---- room

    def _make_room(self, tests: int) -> None:
        """Room for one more atom of so many tests, at least."""
        arrays = self._arrays
        table, atoms = arrays["table_state"], arrays["atom_state"]
        entries = max(routing_atoms.ENTRIES, 2 * tests)
        units = int(table[routing_table.TOP]) + routing_table.LARGE * entries
        arrays.reach(
            {
                "words": units * routing_table.UNIT,
                "tests": int(atoms[routing_arrays.TEST_TOP]) + tests,
                **dict.fromkeys(
                    ("first", "access", "generation"), int(atoms[routing_arrays.SLOT_TOP]) + 1
                ),
                **dict.fromkeys(("paths", "scales"), int(atoms[routing_arrays.PATH_TOP]) + 1),
                "groups": len(self._group_uses),
            }
        )
        self._tidy()
        size = len(arrays["keys"])
        held = int(table[routing_table.USED] + table[routing_table.LEFT]) + entries
        full = routing_table.MOST if arrays.growing else routing_atoms.FULL
        if held <= full * size:
            return
        if arrays.growing:
            routing_table.move_some(arrays.table, len(arrays["old_keys"]))
            self._tidy()
        while held > routing_atoms.FULL * size:
            size *= 2
        arrays.rebuild(size)

    def _tidy(self) -> None:
        """Lets an old table go; begins a new one where most bits of the filter are stale."""
        arrays, table = self._arrays, self._arrays["table_state"]
        if arrays.growing:
            return
        if len(arrays["old_keys"]):
            arrays.forget_old()
        if table[routing_table.GONE] > len(arrays["keys"]) // 2:
            size = 1 << 10
            while table[routing_table.USED] > 0.4 * size:
                size *= 2
            arrays.rebuild(size)

    # ---- routing

    def route(self, events: pa.Table, places: "Places | None") -> tuple[Rows, Rows]:
        """Rows of events and slots of the atoms that each satisfies, by row, then slot."""
        cuts = [*range(0, events.num_rows, _SLICE), events.num_rows]
        found = [self._route(events, places, begin, end) for begin, end in pairwise(cuts)]
        rows = np.concatenate([np.zeros(0, np.int32), *(rows for rows, _ in found)])
        slots = np.concatenate([np.zeros(0, np.int32), *(slots for _, slots in found)])
        return rows, slots

    def _route(
        self, events: pa.Table, places: "Places | None", begin: int, end: int
    ) -> tuple[Rows, Rows]:
        part = events.slice(begin, end - begin)
        values, numbers = values_of(part, self._shape, self._fields.all, self._texts)
        x = y = np.zeros(0, np.float64)
        first = np.zeros(end - begin + 1, np.int64)
        if places is not None:
            x, y = places.x, places.y
            first = np.asarray(places.first[begin : end + 1], np.int64)
        boxes = boxes_of(x, y, first, self._space)
        batch = routing.Events(values, numbers, self._groups_of(values), boxes, x, y, first)
        pairs = routing.route(
            self._arrays.table,
            self._arrays.atoms,
            self._region_table(),
            self._space,
            batch,
            self._arrays["counters"],
        )
        rows = (pairs >> 32).astype(np.int32)
        slots = ((pairs & 0xFFFFFFFF) >> 1).astype(np.int32)
        late = np.flatnonzero(pairs & 1)
        if len(late):
            keep = np.ones(len(pairs), np.bool_)
            keep[late] = self._late_pass(part, rows[late], slots[late])
            self._arrays["counters"][routing.FOUND] -= int((~keep).sum())
            rows, slots = rows[keep], slots[keep]
        return rows + np.int32(begin), slots

    def _groups_of(self, values: npt.NDArray[np.int64]) -> Rows:
        groups = np.zeros(len(values), np.int32)
        field = self._type_field()
        if field >= 0 and self._groups:
            codes = np.fromiter(self._groups, np.int64, len(self._groups))
            numbers = np.fromiter(self._groups.values(), np.int32, len(self._groups))
            order = np.argsort(codes)
            codes, numbers = codes[order], numbers[order]
            places = np.minimum(np.searchsorted(codes, values[:, field]), len(codes) - 1)
            groups = np.where(codes[places] == values[:, field], numbers[places], 0)
        return np.asarray(groups, np.int32)

    def _late_pass(self, events: pa.Table, rows: Rows, slots: Rows) -> npt.NDArray[np.bool_]:
        """Where the late tests of pairs hold."""
        atoms = self._arrays.atoms
        none = np.empty(0, np.int64)
        count = routing_atoms.numbers_of_tests(atoms, slots, LATE, np.empty(0, np.int32), none)
        owners, numbers = np.empty(count, np.int32), np.empty(count, np.int64)
        routing_atoms.numbers_of_tests(atoms, slots, LATE, owners, numbers)
        passed = np.ones(len(rows), np.bool_)
        passed[owners[self._late.failed(events, rows[owners], numbers)]] = False
        return passed

    def _region_table(self) -> RegionTable:
        return _NO_REGIONS if self._regions is None else self._regions.table

    def hits(self) -> Hits:
        """What routing has done so far."""
        return Hits(*map(int, self._arrays["counters"]))

    @property
    def nbytes(self) -> int:
        """How much memory the index holds, without the regions."""
        return self._arrays.nbytes + self._texts.nbytes

    # ---- files

    def save(self, folder: Path) -> None:
        """Writes the index into an empty folder."""
        folder.mkdir(parents=True, exist_ok=True)
        self._arrays.save(folder)
        for name, part in zip(("offsets", "bytes", "uses"), self._texts.items(), strict=True):
            np.save(folder / f"texts_{name}.npy", part, allow_pickle=False)
        about = {
            "version": VERSION,
            "space": self._space,
            "fields": [(field.column, field.kind.value) for field in self._fields.all],
            "groups": list(self._groups.items()),
            "group_uses": self._group_uses,
            "late": self._late.items(),
        }
        (folder / "index.json").write_text(json.dumps(about))

    @classmethod
    def open(
        cls, folder: Path, shape: Shape, regions: "Regions | None", space: int
    ) -> "AtomIndex":
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
        for column, kind in about["fields"]:
            if column not in shape.arrow.names or index._fields.take(column).kind.value != kind:
                raise StateError(
                    f"{folder} was written for events with a column '{column}' of kind {kind}\n"
                    "  hint: build the index again from the subscriptions"
                )
        offsets, data, uses = (
            np.load(folder / f"texts_{name}.npy", allow_pickle=False)
            for name in ("offsets", "bytes", "uses")
        )
        index._texts = Texts.restore(offsets.tolist(), data.tobytes(), uses.tolist())
        index._late = LateTests.restore(about["late"])
        index._groups = dict(about["groups"])
        index._group_uses = about["group_uses"]
        index._group_codes = [-1] * len(index._group_uses)
        for code, group in index._groups.items():
            index._group_codes[group] = code
        held = set(index._groups.values())
        index._free_groups = [g for g in range(1, len(index._group_uses)) if g not in held]
        index._arrays = Arrays.open(folder)
        return index


def _bits(number: float) -> int:
    """The bits of a double as an integer, as tests keep it."""
    found: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return found
