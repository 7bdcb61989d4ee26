"""A block of events that several queries look at: what they have in common is worked out once.

The rows of each event type, the codes of each key, the truth of each condition on one event and
each number that conditions between events compare: all are kept while a query to come uses them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.algebra.predicate import Aggregate, Expr, Field
from ensue.columns import evaluate as vectors
from ensue.columns.arrow_kinds import Unit, kind_of_arrow
from ensue.columns.buffers import Bools, Ints, codes, plain_text, single, validity
from ensue.columns.evaluate import Refused, Vector
from ensue.columns.keys import KeyCodes
from ensue.computed import cached_property
from ensue.engine.scan import Array, numbers_of
from ensue.plan.physical import Role
from ensue.plan.physical_rules.features import feature_of
from ensue.schema import ANY, Kind, OneOf, Schema, Types
from ensue.source.expressions import Feature

Codes = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class RoleKey:
    """Which events can play a role: those of a type for which conditions hold."""

    type: Types
    conditions: tuple[str, ...]  # as texts that are equal only for equal conditions


@dataclass(slots=True)
class Uses:
    """How often each thing will be asked for, so that it is kept no longer than it is of use."""

    types: dict[str, None] = field(default_factory=dict)
    roles: Counter[RoleKey] = field(default_factory=Counter)
    conditions: Counter[tuple[Types, str]] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)

    def copy(self) -> "Uses":
        counters = self.roles.copy(), self.conditions.copy(), self.features.copy()
        return Uses(self.types, *counters)


@dataclass(frozen=True, slots=True)
class RoleTest:
    """A role's event alone, in terms of any event: equal for equal roles of different queries."""

    key: RoleKey
    conditions: tuple[Expr, ...]
    bit: int

    @classmethod
    def of(cls, role: Role, conditions: Iterable[Expr], bit: int) -> "RoleTest":
        plain = {repr(c): c for c in map(feature_of, conditions)}
        names = sorted(plain)
        return cls(RoleKey(role.type, tuple(names)), tuple(plain[n] for n in names), bit)

    def count(self, uses: Uses) -> None:
        if not uses.roles[self.key]:
            uses.conditions.update((self.key.type, c) for c in self.key.conditions)
        uses.roles[self.key] += 1


class Block:
    """Events in the order of the stream, and what the queries that look at them share."""

    def __init__(self, events: pa.Table, schema: Schema, unit: Unit, uses: Uses) -> None:
        self.events = events
        self.count = events.num_rows
        self.schema = schema
        self.unit = unit
        self.uses = uses
        self.strings = KeyCodes()
        self._columns: dict[str, Vector] = {}
        self._of_type: dict[tuple[Types, str], Vector] = {}
        self._holds: dict[tuple[Types, str], Bools] = {}
        self._rows_of: dict[OneOf, Ints] = {}
        self._roles: dict[RoleKey, Ints] = {}
        self._keys: dict[tuple[str, ...], tuple[Codes, int]] = {}
        self._mask: Ints | None = None
        self._features: dict[str, Vector] = {}

    # ---------------------------------------------------------------------------- columns

    def column(self, name: str) -> Vector:
        if name not in self._columns:
            self._columns[name] = vectors.from_arrow(self.events.column(name), self.unit, name)
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
        real = self.schema.time_kind in (Kind.FLOAT, Kind.DECIMAL)
        return np.ascontiguousarray(self.column(name).values, np.float64 if real else np.int64)

    # ---------------------------------------------------------------------------- types

    @cached_property
    def _rows_by_type(self) -> dict[str, Ints]:
        assert self.schema.type_column is not None
        array = single(self.events.column(self.schema.type_column))
        if kind_of_arrow(array.type) is not Kind.STRING:
            array = array.cast(pa.string())
        wanted = list(self.uses.types)
        if pa.types.is_dictionary(array.type):
            places = codes(array)
            known = _index_in(plain_text(array.dictionary), wanted)
            found = known[places] if len(known) else np.full(len(array), -1, np.int32)
        else:
            found = _index_in(plain_text(array), wanted)
        valid = validity(array)
        if valid is not None:
            found = np.where(valid, found, np.int32(-1))
        shifted = found + 1
        if len(wanted) < 1 << 16:
            shifted = shifted.astype(np.uint16)  # sorted by radix
        order = np.argsort(shifted, kind="stable")
        bounds = np.cumsum(np.bincount(shifted, minlength=len(wanted) + 1))
        return {name: order[bounds[k] : bounds[k + 1]] for k, name in enumerate(wanted)}

    def rows_of_type(self, types: Types) -> Ints | None:
        """The rows of a type, or of one of several, ascending; None: all rows."""
        if not self.schema.typed or types == ANY:
            return None
        if isinstance(types, str):
            return self._rows_by_type[types]
        if types not in self._rows_of:
            found = [self._rows_by_type[name] for name in types.names]
            self._rows_of[types] = np.sort(np.concatenate(found))
        return self._rows_of[types]

    def has_type(self, types: Types) -> bool:
        rows = self.rows_of_type(types)
        return rows is None or len(rows) > 0

    def blank_mask(self) -> Ints:
        """Zeros, one a row; there is one such array, for one query after the other."""
        if self._mask is None:
            self._mask = np.zeros(self.count, np.int64)
        else:
            self._mask.fill(0)
        return self._mask

    # ---------------------------------------------------------------------------- conditions

    def role_rows(self, test: RoleTest) -> Ints:
        """The rows whose events can play a role, ascending. Asked for once by each use."""
        key = test.key
        self.uses.roles[key] -= 1
        found = self._roles.pop(key) if key in self._roles else self._tested(test)
        if self.uses.roles[key] > 0:
            self._roles[key] = found
        return found

    def _tested(self, test: RoleTest) -> Ints:
        rows = self.rows_of_type(test.key.type)
        kept: Bools | None = None
        for name, condition in zip(test.key.conditions, test.conditions, strict=True):
            holds = self._truth(test.key.type, name, condition)
            kept = holds if kept is None else kept & holds
        if kept is None:
            return np.arange(self.count) if rows is None else rows
        places = np.flatnonzero(kept)
        return places if rows is None else rows[places]

    def _truth(self, type: Types, name: str, condition: Expr) -> Bools:
        """Where a condition holds, among the rows of a type."""
        key = (type, name)
        self.uses.conditions[key] -= 1
        if key in self._holds:
            found = self._holds.pop(key)
        else:
            rows = self.rows_of_type(type)
            count = self.count if rows is None else len(rows)

            def lookup(ref: Field | Aggregate) -> Vector:
                assert isinstance(ref, Field)
                assert ref.name is not None
                return self._column_of_type(type, ref.name)

            found = vectors.truth(vectors.evaluate(condition, lookup, count, self.unit))
        if self.uses.conditions[key] > 0:
            self._holds[key] = found
        return found

    def _column_of_type(self, type: Types, name: str) -> Vector:
        rows = self.rows_of_type(type)
        if rows is None:
            return self.column(name)
        key = (type, name)
        if key not in self._of_type:
            self._of_type[key] = at_rows(self.column(name), rows, self.unit)
        return self._of_type[key]

    # ---------------------------------------------------------------------------- keys

    def keys(self, names: tuple[str, ...]) -> tuple[Codes, int]:
        """The codes of a key in this block, -1 where it has no value, and how many there are."""
        if names not in self._keys:
            if names:
                known = KeyCodes()
                codes = known.encode([self.events.column(n) for n in names])
                self._keys[names] = codes, len(known)
            else:
                self._keys[names] = np.zeros(self.count, np.int32), 1
        return self._keys[names]

    # ---------------------------------------------------------------------------- features

    def feature(self, feature: Feature, rows: Ints | None) -> Vector:
        """A feature of some rows, or of all: numbers, and codes of the block for strings."""
        name = feature_name(feature)
        self.uses.features[name] -= 1
        alone = self.uses.features[name] <= 0 and name not in self._features
        if alone and rows is not None and not isinstance(feature.expr, Field):
            return self._evaluated(feature, rows)
        found = self._features.pop(name) if name in self._features else None
        if found is None:
            found = self._evaluated(feature, None)
        if self.uses.features[name] > 0:
            self._features[name] = found
        return found if rows is None else at_rows(found, rows, self.unit)

    def _evaluated(self, feature: Feature, rows: Ints | None) -> Vector:
        count = self.count if rows is None else len(rows)
        return numbers_of(self.values(feature.expr, rows), feature, count, self.strings)

    def values(self, expr: Expr, rows: Ints | None) -> Vector:
        """An expression about any event, at some rows or at all."""
        count = self.count if rows is None else len(rows)

        def lookup(ref: Field | Aggregate) -> Vector:
            assert isinstance(ref, Field)
            assert ref.name is not None
            column = self.column(ref.name)
            return column if rows is None else at_rows(column, rows, self.unit)

        return vectors.evaluate(expr, lookup, count, self.unit)


def feature_name(feature: Feature) -> str:
    """Equal for what is the same number of an event, whichever query asks."""
    return f"{feature.expr!r} {feature.kind.value}"


def at_rows(vector: Vector, rows: Ints, unit: Unit) -> Vector:
    """A vector's values at some rows."""
    if isinstance(vector, Refused):
        return vector.at(rows)
    if not isinstance(vector.values, np.ndarray):
        return vectors.from_arrow(vector.values.take(pa.array(rows)), unit)
    valid = None if vector.valid is None else vector.valid.take(rows)
    if valid is not None and bool(valid.all()):
        valid = None
    return Vector(vector.kind, vector.values.take(rows), valid)


def first_rows(found: npt.NDArray[np.integer]) -> Ints:
    """Of each code the first row that has it; -1 where none does.

    >>> first_rows(np.array([0, 1, -1, 0, 3]))
    array([ 0,  1, -1,  4])
    """
    most = int(found.max(initial=-1))
    firsts = np.full(most + 2, -1, np.int64)  # the last place is that of code -1
    firsts[found[::-1]] = np.arange(len(found) - 1, -1, -1)
    return firsts[:-1]


def _index_in(texts: pa.Array, names: Sequence[str]) -> Codes:
    """The place of each text among some names, -1 for others."""
    found = pc.index_in(texts, value_set=pa.array(names, texts.type))
    return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), np.int32)
