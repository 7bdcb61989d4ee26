"""Encodes atoms as rows of integers for kernels: tests on fields, on regions, and residual tests.

The predicates of an atom on one field become a constraint: an interval, allowed and excluded values.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.errors import QueryError
from ensue.ir.expression import Constant
from ensue.ir.subscription import EventTest, Predicate, PredicateType, SpatialRelation, VariableField
from ensue.ir.values import to_instant, to_microseconds
from ensue.kernels.predicate_index_arrays import AMONG, AMONG_LAST, LATE, OPS, REGION, UNLIKE, WITHIN
from ensue.operators.subscriptions.field_values import (
    EVERYTHING,
    GREATEST,
    LEAST,
    REAL,
    AtomTextCodes,
    IndexField,
    IndexFields,
    Interval,
    ResidualTests,
    float_interval,
    integer_interval,
)
from ensue.schema import ValueKind
from ensue.vector.arrow_types import Unit
from ensue.vector.event_table import StreamSchema
from ensue.vector.geo_regions import Regions

Value = int | str  # an order-preserving integer, or a text without a code yet

_NUMBERS = (ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DECIMAL)
_TIMES = (ValueKind.TIMESTAMP, ValueKind.DATE)
_KINDS = {
    PredicateType.ARITH: _NUMBERS,
    PredicateType.STRING: (ValueKind.STRING,),
    PredicateType.BOOL: (ValueKind.BOOLEAN,),
    PredicateType.TIME: (*_TIMES, *_NUMBERS),
}
_CONSTANTS: dict[PredicateType, tuple[type, ...]] = {
    PredicateType.ARITH: (int, float),
    PredicateType.STRING: (str,),
    PredicateType.BOOL: (bool,),
    PredicateType.TIME: (int, float),  # of a column of numbers
}
_LISTS = "IN takes a list of values, and no other operator does"
_EPOCH = to_instant(datetime(1970, 1, 1))


class FieldConstraint:
    """The conjunction of the predicates on one field."""

    __slots__ = ("among", "field", "high", "low", "unlike")

    def __init__(self, field: IndexField) -> None:
        self.field = field
        self.low, self.high = LEAST, GREATEST
        self.among: set[Value] | None = None
        self.unlike: set[Value] | None = None

    def get_allowed_values(self) -> set[Value] | None:
        """Returns the allowed values if they are a set, None if they are an interval."""
        if self.among is None or (self.unlike is None and (self.low, self.high) == EVERYTHING):
            return self.among
        remaining = {v for v in self.among if isinstance(v, str) or self.low <= v <= self.high}
        return remaining if self.unlike is None else remaining - self.unlike


class AtomConstraints:
    """The constraints of an atom by field; `never`: its predicates contradict each other."""

    __slots__ = ("fields", "late", "never")

    def __init__(self) -> None:
        self.fields: dict[int, FieldConstraint] = {}
        self.late: list[tuple[IndexField, str, str]] = []  # operator and text
        self.never = False


class PredicateReader:
    """Reads predicates of one type, field and operator."""

    def __init__(self, predicate: Predicate, field: IndexField, unit: Unit) -> None:
        self.type = predicate.type
        self.field = field
        self._operator = predicate.operator
        self._interval: Callable[[str, float], Interval | None] = (
            float_interval if field.kind in REAL else integer_interval
        )
        self._scale = 1_000 if unit == "ns" else 1
        of_time = predicate.type is PredicateType.TIME and field.kind in _TIMES
        self._accepted = (datetime, date) if of_time else _CONSTANTS[predicate.type]
        if field.kind not in (*_KINDS[predicate.type], ValueKind.NULL):
            raise self._mismatch(predicate, f"column '{field.column}' is {field.kind.value}")
        if self._operator == "LIKE" and predicate.type is not PredicateType.STRING:
            raise self._mismatch(predicate, "LIKE compares texts")

    def take(self, predicate: Predicate, part: FieldConstraint, constraints: AtomConstraints) -> bool:
        """Adds a predicate to the constraint of its field; returns whether it is satisfiable."""
        operator, value = self._operator, predicate.value
        if self.field.kind is ValueKind.NULL:  # the column has only NULL
            for option in value if isinstance(value, tuple) else (value,):
                self._check_constant(predicate, option)
            return False
        if operator == "IN":
            if not isinstance(value, tuple):
                raise self._mismatch(predicate, _LISTS)
            values = {v for option in value for v in self._equal_values(predicate, option)}
            part.among = values if part.among is None else part.among & values
            return bool(part.among)
        if operator == "!=":
            if value is not None:
                part.unlike = (part.unlike or set()) | set(self._equal_values(predicate, value))
            return value is not None
        constant = self._check_constant(predicate, value)
        if constant is None:
            return False
        if not isinstance(constant, str):
            interval = self._get_interval(operator, constant)
            if interval is None:
                return False
            part.low, part.high = max(part.low, interval[0]), min(part.high, interval[1])
            return part.low <= part.high
        if operator == "=":
            part.among = {constant} if part.among is None else part.among & {constant}
            return bool(part.among)
        constraints.late.append((self.field, operator, constant))
        return True

    def _equal_values(self, predicate: Predicate, option: object) -> tuple[Value, ...]:
        """Returns the one value that equals a constant, or none."""
        constant = self._check_constant(predicate, option)
        if constant is None:
            return ()
        if isinstance(constant, str):
            return (constant,)
        interval = self._get_interval("=", constant)
        return () if interval is None else (interval[0],)

    def _get_interval(self, operator: str, constant: Constant) -> Interval | None:
        if isinstance(constant, date):
            ticks = to_microseconds(to_instant(constant) - _EPOCH) * self._scale
            return integer_interval(operator, ticks)
        assert isinstance(constant, int | float)
        return self._interval(operator, constant)

    def _check_constant(self, predicate: Predicate, constant: object) -> Constant:
        """Returns a constant if its type fits the column."""
        if constant is None or type(constant) in self._accepted:
            return constant  # type: ignore[return-value]
        if isinstance(constant, tuple):
            raise self._mismatch(predicate, _LISTS)
        if isinstance(constant, VariableField):
            raise self._mismatch(predicate, "a field of another event is not a constant")
        if isinstance(constant, self._accepted) and not isinstance(constant, bool):
            return constant  # type: ignore[return-value]
        raise self._mismatch(predicate, f"{constant!r} is of another kind")

    def _mismatch(self, predicate: Predicate, why: str) -> QueryError:
        kind = self.field.kind
        fitting = [t.value for t, kinds in _KINDS.items() if kind in kinds]
        return QueryError(
            f"{predicate.type.value}:{predicate.name} {predicate.operator} ...: {why}",
            hint=f"write {' or '.join(fitting)} with a value of that kind" if fitting else None,
            span=predicate.span,
        )


class PredicateReaders:
    """Caches the readers of predicates."""

    def __init__(self, fields: IndexFields, unit: Unit) -> None:
        self._fields, self._unit = fields, unit
        self._known: dict[tuple[str, str], list[PredicateReader]] = {}

    def _get_reader(self, predicate: Predicate) -> PredicateReader:
        readers = self._known.setdefault((predicate.name, predicate.operator), [])
        for reader in readers:
            if reader.type is predicate.type:
                return reader
        readers.append(PredicateReader(predicate, self._fields.get_field(predicate), self._unit))
        return readers[-1]

    def read(self, atom: EventTest) -> AtomConstraints:
        """Returns the constraints of an atom; a QueryError if a predicate does not fit."""
        constraints = AtomConstraints()
        parts = constraints.fields
        for predicate in atom.predicates:
            reader = self._get_reader(predicate)
            part = parts.get(reader.field.number)
            if part is None:
                part = parts[reader.field.number] = FieldConstraint(reader.field)
            if not reader.take(predicate, part, constraints):
                constraints.never = True
        for part in parts.values():
            bounded = part.low != LEAST or part.high != GREATEST or part.unlike is not None
            if bounded and part.among is not None and not part.get_allowed_values():
                constraints.never = True
        return constraints


# ---------------------------------------------------------------------------- encoding

NO_TYPE = 0  # the group of atoms that require no type, or one of several
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
    """Encodes atoms and counts the uses of texts, regions and residual tests."""

    def __init__(self, shape: StreamSchema, regions: Regions | None) -> None:
        self.fields = IndexFields(shape)
        self.texts = AtomTextCodes()
        self.late = ResidualTests()
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

    def give_back(self, tests: Iterable[Sequence[int]]) -> None:
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

    def _encode_fields(self, constraints: AtomConstraints, rows: "array[int]") -> int:
        """Appends the tests of an atom on fields, and returns its group: the code of its type plus one."""
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
                    group = values[0] + 1
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
