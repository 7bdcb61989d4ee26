"""The scan of a block of events that several queries share.

The rows of each event type, the codes of each key, the truth of each condition on one event and
the features that conditions between events compare are computed once, and cached until the last
query that uses them has read them.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.cached import cached_property
from ensue.codegen.expressions import Feature
from ensue.engine.scan import Array, RoleKey, RoleTest, encode_feature
from ensue.ir.expression import Aggregate, Expr, FieldRef
from ensue.schema import ANY, Schema, Types, TypeUnion, ValueKind
from ensue.vector import evaluation
from ensue.vector.arrow_numpy import Bools, Ints, wrap_numbers
from ensue.vector.arrow_types import Unit
from ensue.vector.column_values import Refused, Vector
from ensue.vector.key_codes import KeyCodes, TypeNames

Codes = npt.NDArray[np.int32]
KnownKeys = dict[tuple[str, ...], KeyCodes]  # the codes of keys in earlier blocks, by columns
MANY_KEYS = 1 << 14  # keys of earlier blocks from which on a block begins anew


_find_names = lru_cache(maxsize=256)(TypeNames)


@dataclass(slots=True)
class ScanUses:
    """Counts how often each value will be read, so that it is cached no longer than needed."""

    types: dict[str, None] = field(default_factory=dict)
    roles: Counter[RoleKey] = field(default_factory=Counter)
    conditions: Counter[tuple[Types, str]] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)

    def add_role(self, test: RoleTest) -> None:
        """Counts a test of a role, and its conditions."""
        if not self.roles[test.key]:
            self.conditions.update((test.key.type, c) for c in test.key.conditions)
        self.roles[test.key] += 1

    def copy(self) -> "ScanUses":
        counters = self.roles.copy(), self.conditions.copy(), self.features.copy()
        return ScanUses(self.types, *counters)


class EventBlock:
    """Events in stream order, with the values that queries share."""

    def __init__(self, events: pa.Table, schema: Schema, unit: Unit, uses: ScanUses, known_keys: KnownKeys) -> None:
        self.known_keys = known_keys
        self.events = events
        self.count = events.num_rows
        self.schema = schema
        self.unit = unit
        self.uses = uses
        self.strings = KeyCodes()
        self._columns: dict[str, Vector] = {}
        self._of_type: dict[tuple[Types, str], Vector] = {}
        self._holds: dict[tuple[Types, str], Bools] = {}
        self._rows_of: dict[TypeUnion, Ints] = {}
        self._roles: dict[RoleKey, Ints] = {}
        self._keys: dict[tuple[str, ...], tuple[Codes, int]] = {}
        self._features: dict[str, Vector] = {}

    def column(self, name: str) -> Vector:
        if name not in self._columns:
            self._columns[name] = evaluation.from_arrow(self.events.column(name), self.unit, name)
        return self._columns[name]

    @cached_property
    def starts(self) -> Array:
        return self._time(self.schema.start)

    @cached_property
    def ends(self) -> Array:
        if not self.schema.intervals:
            return self.starts
        return self._time(self.schema.end)

    def _time(self, name: str) -> Array:
        real = self.schema.time_kind in (ValueKind.FLOAT, ValueKind.DECIMAL)
        return np.ascontiguousarray(self.column(name).values, np.float64 if real else np.int64)

    @cached_property
    def _rows_by_type(self) -> dict[str, Ints]:
        assert self.schema.type_column is not None
        names = tuple(self.uses.types)
        shifted = _find_names(names).find(self.events.column(self.schema.type_column)) + 1
        if len(names) < 1 << 16:
            shifted = shifted.astype(np.uint16)  # sorted by radix
        order = np.argsort(shifted, kind="stable")
        bounds = np.cumsum(np.bincount(shifted, minlength=len(names) + 1))
        return {name: order[bounds[k] : bounds[k + 1]] for k, name in enumerate(names)}

    def rows_of_type(self, types: Types) -> Ints | None:
        """Returns the ascending rows of a type, or of one of several; None means all rows."""
        if not self.schema.typed:
            return None
        if isinstance(types, str):
            return self._rows_by_type[types]
        if types == ANY:
            return None
        if types not in self._rows_of:
            found = [self._rows_by_type[name] for name in types.names]
            self._rows_of[types] = np.sort(np.concatenate(found))
        return self._rows_of[types]

    def has_type(self, types: Types) -> bool:
        rows = self.rows_of_type(types)
        return rows is None or len(rows) > 0

    @cached_property
    def mask(self) -> Ints:
        """An integer per row, in an array that all queries reuse in turn."""
        return np.empty(self.count, np.int64)

    def role_rows(self, test: RoleTest) -> Ints:
        """Returns the ascending rows that can play a role; each use calls this once."""
        key = test.key
        self.uses.roles[key] -= 1
        rows = self._roles.pop(key) if key in self._roles else self._test_rows(test)
        if self.uses.roles[key] > 0:
            self._roles[key] = rows
        return rows

    def _test_rows(self, test: RoleTest) -> Ints:
        rows = self.rows_of_type(test.key.type)
        if rows is not None and not len(rows):
            return rows
        passing: Bools | None = None
        for name, condition in zip(test.key.conditions, test.conditions, strict=True):
            holds = self._truth(test.key.type, name, condition)
            passing = holds if passing is None else passing & holds
        if passing is None:
            return np.arange(self.count) if rows is None else rows
        places = np.flatnonzero(passing)
        return places if rows is None else rows[places]

    def _truth(self, type: Types, name: str, condition: Expr) -> Bools:
        """Returns where a condition holds among the rows of a type."""
        key = (type, name)
        self.uses.conditions[key] -= 1
        if key in self._holds:
            truth = self._holds.pop(key)
        else:
            rows = self.rows_of_type(type)
            count = self.count if rows is None else len(rows)

            def lookup(ref: FieldRef | Aggregate) -> Vector:
                assert isinstance(ref, FieldRef)
                assert ref.name is not None
                return self._column_of_type(type, ref.name)

            truth = evaluation.truth(evaluation.evaluate(condition, lookup, count, self.unit))
        if self.uses.conditions[key] > 0:
            self._holds[key] = truth
        return truth

    def _column_of_type(self, type: Types, name: str) -> Vector:
        rows = self.rows_of_type(type)
        if rows is None:
            return self.column(name)
        key = (type, name)
        if key not in self._of_type:
            self._of_type[key] = take_values(self.column(name), rows, self.unit)
        return self._of_type[key]

    def keys(self, names: tuple[str, ...]) -> tuple[Codes, int]:
        """Returns the codes of a key in this block and earlier ones (-1 for NULL), and the number of codes."""
        if names not in self._keys:
            if names:
                known = self.known_keys.get(names)
                if known is None or known.known > MANY_KEYS:
                    known = self.known_keys[names] = KeyCodes()
                codes = known.encode([self.events.column(n) for n in names])
                self._keys[names] = codes, len(known)
            else:
                self._keys[names] = np.zeros(self.count, np.int32), 1
        return self._keys[names]

    def feature(self, feature: Feature, rows: Ints | None) -> Vector:
        """Returns a feature of some rows or all, strings as codes of the block."""
        name = feature_name(feature)
        self.uses.features[name] -= 1
        alone = self.uses.features[name] <= 0 and name not in self._features
        if alone and rows is not None and not isinstance(feature.expr, FieldRef):
            return self._evaluate_feature(feature, rows)
        vector = self._features.pop(name, None)
        if vector is None:
            vector = self._evaluate_feature(feature, None)
        if self.uses.features[name] > 0:
            self._features[name] = vector
        return vector if rows is None else take_values(vector, rows, self.unit)

    def _evaluate_feature(self, feature: Feature, rows: Ints | None) -> Vector:
        count = self.count if rows is None else len(rows)
        return encode_feature(self.values(feature.expr, rows), feature, count, self.strings)

    def values(self, expr: Expr, rows: Ints | None) -> Vector:
        """Evaluates an expression on single events, at some rows or at all."""
        count = self.count if rows is None else len(rows)

        def lookup(ref: FieldRef | Aggregate) -> Vector:
            assert isinstance(ref, FieldRef)
            assert ref.name is not None
            column = self.column(ref.name)
            return column if rows is None else take_values(column, rows, self.unit)

        return evaluation.evaluate(expr, lookup, count, self.unit)


def feature_name(feature: Feature) -> str:
    """Returns a text that is equal for equal features of different queries."""
    return f"{feature.expr!r} {feature.kind.value}"


def take_values(vector: Vector, rows: Ints, unit: Unit) -> Vector:
    if isinstance(vector, Refused):
        return vector.at(rows)
    if not isinstance(vector.values, np.ndarray):
        return evaluation.from_arrow(vector.values.take(wrap_numbers(rows)), unit)
    valid = None if vector.valid is None else vector.valid.take(rows)
    if valid is not None and bool(valid.all()):
        valid = None
    return Vector(vector.kind, vector.values.take(rows), valid)


def find_first_rows(codes: npt.NDArray[np.integer]) -> Ints:
    """Returns the first row of each code, -1 for codes that do not occur.

    >>> find_first_rows(np.array([0, 1, -1, 0, 3]))
    array([ 0,  1, -1,  4])
    """
    largest = int(codes.max(initial=-1))
    firsts = np.full(largest + 2, -1, np.int64)  # the last place is that of code -1
    firsts[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return firsts[:-1]
