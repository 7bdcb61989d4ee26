"""Encodes atoms as rows of integers for kernels: tests on fields, on regions, and residual
tests."""

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.errors import QueryError
from ensue.ir.subscription import EventTest, SpatialRelation
from ensue.kernels.predicate_index_arrays import AMONG, AMONG_LAST, LATE, OPS, REGION, UNLIKE, WITHIN
from ensue.operators.subscriptions.atom_constraints import (
    NO_TYPE,
    AtomConstraints,
    FieldConstraint,
    PredicateReaders,
    TypeGroups,
)
from ensue.operators.subscriptions.field_values import IndexFields, ResidualTests
from ensue.operators.subscriptions.sortable_encoding import EVERYTHING, AtomTextCodes
from ensue.schema import ValueKind
from ensue.vector.event_table import StreamSchema
from ensue.vector.geo_regions import Regions

NEVER = -1  # the group of unsatisfiable atoms
WORDS = 4  # of a test: operation and field, then three operands

WHERE = {SpatialRelation.INSIDE: 0, SpatialRelation.OVERLAP: 1, SpatialRelation.SAME: 2, SpatialRelation.DISTANCE: 3}
COMPARISON = {None: 0, "<": 0, "=": 1, ">": 2}


class EncodedAtoms(NamedTuple):
    """Encoded atoms: atom k has the tests from `begins[k]` up to `begins[k + 1]`."""

    begins: npt.NDArray[np.int64]
    tests: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int32]

    @property
    def longest(self) -> int:
        """The largest number of tests of an atom."""
        return int(np.diff(self.begins).max(initial=0))


class AtomEncoder:
    """Encodes atoms and counts the uses of texts, groups, regions and residual tests."""

    def __init__(self, shape: StreamSchema, regions: Regions | None) -> None:
        self.fields = IndexFields(shape)
        self.texts = AtomTextCodes()
        self.late = ResidualTests()
        self.groups = TypeGroups()
        self._regions = regions
        self.readers = PredicateReaders(self.fields, shape.unit)

    def write(self, atoms: Sequence[EventTest]) -> EncodedAtoms:
        """Encodes atoms; a QueryError if one does not fit, and then nothing is counted."""
        constraints = [self.readers.read(atom) for atom in atoms]
        region_tests = self._encode_regions(atoms, constraints)
        rows, begins, groups = array("q"), array("q", [0]), array("i")
        for part, regions in zip(constraints, region_tests, strict=True):
            if part.never:
                groups.append(NEVER)
            else:
                groups.append(self._encode_fields(part, rows))
                rows.extend(regions)
                for field, operator, text in part.late:
                    rows.extend((LATE, self.late.take((field.column, operator, text)), 0, 0))
            begins.append(len(rows) // WORDS)
        tests = np.array(rows, np.int64).reshape(-1, WORDS)
        return EncodedAtoms(np.array(begins, np.int64), tests, np.array(groups, np.int32))

    def give_back(self, tests: Iterable[Sequence[int]], group: int) -> None:
        """Releases what the tests of an atom use."""
        for word, low, high, _ in tests:
            op, number = word & 15, word >> OPS
            if op == LATE:
                self.late.give_back(low)
            elif op == REGION:
                assert self._regions is not None
                self._regions.release(low)
            elif self.fields.all[number].kind is ValueKind.STRING and (low, high) != EVERYTHING:
                self.texts.give_back(low)
                if high != low:
                    self.texts.give_back(high)
        self.groups.give_back(max(group, NO_TYPE))

    def _encode_fields(self, constraints: AtomConstraints, rows: "array[int]") -> int:
        """Appends the tests of an atom on fields and returns its group."""
        group = NO_TYPE
        for number, part in constraints.fields.items():
            word = number << OPS
            allowed = part.get_allowed_values()
            if allowed is None:
                self._append_range(part, rows)
                continue
            values = sorted(self.texts.take(v) if isinstance(v, str) else v for v in allowed)
            if len(values) == 1:
                rows.extend((WITHIN + word, values[0], values[0], 0))
                if part.field.column == self.fields.type_column:
                    group = self.groups.take(values[0])
                continue
            last = len(values) - 1
            for k in range(0, last + 1, 2):
                op = AMONG if k + 2 <= last else AMONG_LAST
                rows.extend((op + word, values[k], values[min(k + 1, last)], 0))
        return group

    def _append_range(self, part: FieldConstraint, rows: "array[int]") -> None:
        word = part.field.number << OPS
        low, high = part.low, part.high
        if part.unlike is None:
            if part.field.kind is not ValueKind.STRING:  # texts have residual tests instead
                rows.extend((WITHIN + word, low, high, 0))
            return
        before = len(rows)
        if (low, high) != EVERYTHING:
            rows.extend((WITHIN + word, low, high, 0))
        for value in part.unlike:
            code = self.texts.take(value) if isinstance(value, str) else value
            if low <= code <= high:
                rows.extend((UNLIKE + word, code, code, 0))
        if len(rows) == before:  # the value must not be NULL
            rows.extend((WITHIN + word, *EVERYTHING, 0))

    def _encode_regions(
        self, atoms: Sequence[EventTest], constraints: Sequence[AtomConstraints]
    ) -> list[Sequence[int]]:
        """Encodes the region tests of atoms; if one is invalid, no region is used."""
        tests: list[Sequence[int]] = []
        taken: list[int] = []
        try:
            for atom, part in zip(atoms, constraints, strict=True):
                tests.append(self._encode_region(atom, taken) if atom.places and not part.never else ())
        except QueryError:
            for row in taken:
                assert self._regions is not None
                self._regions.release(row)
            raise
        return tests

    def _encode_region(self, atom: EventTest, taken: list[int]) -> "array[int]":
        if self._regions is None:
            raise QueryError(
                "events have no location, so it cannot be tested",
                hint='name the columns of their locations: location=("lon", "lat")',
                span=atom.places[0].region.span,
            )
        rows = array("q")
        for test in atom.places:
            operation = WHERE[test.where] + (COMPARISON[test.comparison] << 2)
            row = self._regions.add(test.region)
            taken.append(row)
            rows.extend((REGION + (operation << OPS), row, _bits(test.number), _bits(test.tolerance)))
        return rows


def _bits(number: float) -> int:
    """Returns the bits of a double as an integer."""
    return int(np.float64(number).view(np.int64))
