"""Atoms as the rows of numbers that kernels keep: tests on fields, on regions, and late ones."""

import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.algebra.event_test import EventTest
from ensue.algebra.subscription import Where
from ensue.columns.regions import Regions
from ensue.columns.stream import Shape
from ensue.errors import QueryError
from ensue.kernels.routing_arrays import AMONG, AMONG_LAST, LATE, OPS, REGION, UNLIKE, WITHIN
from ensue.schema import Kind
from ensue.workload.subscriptions.routing.asked import Asked, OfField, Readers
from ensue.workload.subscriptions.routing.fields import Fields
from ensue.workload.subscriptions.routing.groups import NO_TYPE, Groups
from ensue.workload.subscriptions.routing.late import LateTests
from ensue.workload.subscriptions.routing.ordered import EVERYTHING
from ensue.workload.subscriptions.routing.texts import Texts

NEVER = -1  # the group of what nothing can satisfy
WORDS = 4  # of a test: op and field, then three of its own

_WHERE = {Where.INSIDE: 0, Where.OVERLAP: 1, Where.SAME: 2, Where.DISTANCE: 3}
_COMPARISON = {None: 0, "<": 0, "=": 1, ">": 2}
_AS_DOUBLE, _AS_INTEGER = struct.Struct("<d").pack, struct.Struct("<q").unpack


class Written(NamedTuple):
    """Some atoms: atom k has the tests from `begins[k]` up to `begins[k + 1]`."""

    begins: npt.NDArray[np.int64]
    tests: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int32]

    @property
    def longest(self) -> int:
        """The most tests of an atom."""
        return int(np.diff(self.begins).max(initial=0))


class Writer:
    """Writes atoms, and keeps count of what they use: texts, groups, regions, late tests."""

    def __init__(self, shape: Shape, regions: Regions | None) -> None:
        self.fields = Fields(shape)
        self.texts = Texts()
        self.late = LateTests()
        self.groups = Groups()
        self._regions = regions
        self._readers = Readers(self.fields, shape.unit)

    def write(self, atoms: Sequence[EventTest]) -> Written:
        """The rows of atoms; QueryError if one does not fit, and then none uses anything."""
        asked = [self._readers.read(atom) for atom in atoms]
        placed = self._placed(atoms, asked)
        rows, begins, groups = array("q"), array("q", [0]), array("i")
        for part, regions in zip(asked, placed, strict=True):
            if part.never:
                groups.append(NEVER)
            else:
                groups.append(self._on_fields(part, rows))
                rows.extend(regions)
                for field, operator, text in part.late:
                    rows.extend((LATE, self.late.take((field.column, operator, text)), 0, 0))
            begins.append(len(rows) // WORDS)
        tests = np.array(rows, np.int64).reshape(-1, WORDS)
        return Written(np.array(begins, np.int64), tests, np.array(groups, np.int32))

    def check(self, atom: EventTest) -> None:
        """QueryError if an atom does not fit the events. It uses nothing."""
        self._readers.read(atom)

    def give_back(self, tests: Iterable[Sequence[int]], group: int) -> None:
        """What the tests of an atom use is used once less."""
        for what, low, high, _ in tests:
            op, number = what & 15, what >> OPS
            if op == LATE:
                self.late.give_back(low)
            elif op == REGION:
                assert self._regions is not None
                self._regions.release(low)
            elif self.fields.all[number].kind is Kind.STRING and (low, high) != EVERYTHING:
                self.texts.give_back(low)
                if high != low:
                    self.texts.give_back(high)
        self.groups.give_back(max(group, NO_TYPE))

    # ---- fields

    def _on_fields(self, asked: Asked, rows: "array[int]") -> int:
        """Appends the tests of an atom on fields; returns its group."""
        group = NO_TYPE
        for number, part in asked.fields.items():
            what = number << OPS
            allowed = part.allowed()
            if allowed is None:
                self._append_range(part, rows)
                continue
            values = sorted(self.texts.take(v) if isinstance(v, str) else v for v in allowed)
            if len(values) == 1:
                rows.extend((WITHIN + what, values[0], values[0], 0))
                if part.field.column == self.fields.type_column:
                    group = self.groups.take(values[0])
                continue
            last = len(values) - 1
            for k in range(0, last + 1, 2):
                op = AMONG if k + 2 <= last else AMONG_LAST
                rows.extend((op + what, values[k], values[min(k + 1, last)], 0))
        return group

    def _append_range(self, part: OfField, rows: "array[int]") -> None:
        what = part.field.number << OPS
        low, high = part.low, part.high
        if part.unlike is None:
            if part.field.kind is not Kind.STRING:  # of texts, late tests are left
                rows.extend((WITHIN + what, low, high, 0))
            return
        before = len(rows)
        if (low, high) != EVERYTHING:
            rows.extend((WITHIN + what, low, high, 0))
        for value in part.unlike:
            code = self.texts.take(value) if isinstance(value, str) else value
            if low <= code <= high:
                rows.extend((UNLIKE + what, code, code, 0))
        if len(rows) == before:  # whatever it is, it is not NULL
            rows.extend((WITHIN + what, *EVERYTHING, 0))

    # ---- regions

    def _placed(self, atoms: Sequence[EventTest], asked: Sequence[Asked]) -> list[Sequence[int]]:
        """The tests of each atom on regions. If one is none, no region is used by any."""
        placed: list[Sequence[int]] = []
        taken: list[int] = []
        try:
            for atom, part in zip(atoms, asked, strict=True):
                placed.append(
                    self._region_rows(atom, taken) if atom.places and not part.never else ()
                )
        except QueryError:
            for row in taken:
                assert self._regions is not None
                self._regions.release(row)
            raise
        return placed

    def _region_rows(self, atom: EventTest, taken: list[int]) -> "array[int]":
        if self._regions is None:
            raise QueryError(
                "events have no place, so nothing can be asked of it",
                hint='name the columns of their places: location=("lon", "lat")',
                span=atom.places[0].region.span,
            )
        rows = array("q")
        for test in atom.places:
            how = _WHERE[test.where] + (_COMPARISON[test.comparison] << 2)
            row = self._regions.add(test.region)
            taken.append(row)
            rows.extend((REGION + (how << OPS), row, _bits(test.number), _bits(test.tolerance)))
        return rows


def _bits(number: float) -> int:
    """The bits of a double as an integer."""
    found: int = _AS_INTEGER(_AS_DOUBLE(number))[0]
    return found
