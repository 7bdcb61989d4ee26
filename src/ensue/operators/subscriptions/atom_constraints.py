"""Normalizes the predicates of an atom to constraints on fields: an interval, allowed and excluded
values."""

from collections.abc import Callable, Iterable
from datetime import date, datetime
from typing import Self

import numpy as np
import numpy.typing as npt

from ensue.errors import QueryError
from ensue.ir.expression import Constant
from ensue.ir.subscription import EventTest, Predicate, PredicateType, VariableField
from ensue.ir.values import to_instant, to_microseconds
from ensue.operators.subscriptions.field_values import REAL, IndexField, IndexFields
from ensue.operators.subscriptions.sortable_encoding import (
    GREATEST,
    LEAST,
    CountedIds,
    Interval,
    float_interval,
    integer_interval,
)
from ensue.schema import ValueKind
from ensue.vector.arrow_types import Unit

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
        if self.among is None or (len(self.among) == 1 and self.unlike is None):
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


# ---------------------------------------------------------------------------- type groups

NO_TYPE = 0  # the group of atoms that require no type, or one of several


class TypeGroups(CountedIds[int]):
    """Assigns a group to each type that atoms require, by the code of its text.

    >>> groups = TypeGroups()
    >>> groups.take(17), groups.take(4), groups.take(17), groups.get_groups(np.array([4, 5, 17])).tolist()
    (1, 2, 1, [2, 0, 1])
    """

    def __init__(self) -> None:
        super().__init__()
        self._values, self._uses = [None], [0]  # NO_TYPE
        self._sorted: tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]] | None = None

    def __len__(self) -> int:
        """Returns the largest number so far plus one."""
        return len(self._values)

    def take(self, value: int) -> int:
        if value not in self._shard(value):
            self._sorted = None
        return super().take(value)

    def give_back(self, number: int) -> bool:
        if number == NO_TYPE or not super().give_back(number):
            return False
        self._sorted = None
        return True

    def get_groups(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Returns the groups of types."""
        if self._sorted is None:
            pairs = sorted(self._shards[0].items())
            self._sorted = (
                np.array([code for code, _ in pairs], np.int64),
                np.array([group for _, group in pairs], np.int32),
            )
        known, groups = self._sorted
        if not len(known):
            return np.zeros(len(codes), np.int32)
        places = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        return np.where(known[places] == codes, groups[places], np.int32(NO_TYPE))

    @classmethod
    def restore(cls, items: Iterable[tuple[int | None, int]]) -> Self:
        groups = super().restore(items)
        groups._free = [group for group in groups._free if group != NO_TYPE]
        return groups
