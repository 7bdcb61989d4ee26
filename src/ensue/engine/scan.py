"""The scan computes role masks, key codes and features of a batch of events for the kernel."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.cached import cached_property
from ensue.codegen.counters import ScanCounts
from ensue.codegen.expressions import Feature
from ensue.engine.program import Program
from ensue.ir.expression import Aggregate, Expr, FieldRef
from ensue.ir.traversal import iterate_nodes, rewrite_expr
from ensue.kernels.arena import clear_bit
from ensue.planner.features import to_feature
from ensue.planner.physical_plan import Role
from ensue.schema import ANY, Types, ValueKind, get_type_names
from ensue.vector import evaluation
from ensue.vector.arrow_numpy import Ints
from ensue.vector.column_values import Vector
from ensue.vector.event_table import EventSelection
from ensue.vector.key_codes import KeyCodes, TypeNames
from ensue.vector.take import take_rows

Array = npt.NDArray[np.generic]


class RoleKey(NamedTuple):
    """Identifies the events that can play a role: a type and the conditions on one event."""

    type: Types
    conditions: tuple[str, ...]  # texts, equal only for equal conditions


@dataclass(frozen=True, slots=True)
class RoleTest:
    """The test of a single event for a role; equal for equal roles of different queries."""

    key: RoleKey
    conditions: tuple[Expr, ...]
    bit: int

    @classmethod
    def from_conditions(cls, role: Role, conditions: Iterable[Expr], bit: int) -> "RoleTest":
        plain = {repr(c): c for c in map(to_feature, conditions)}
        names = sorted(plain)
        return cls(RoleKey(role.type, tuple(names)), tuple(plain[n] for n in names), bit)


def build_tests(program: Program) -> Iterator[RoleTest]:
    """Builds the tests of all roles of a query."""
    for role in program.plan.roles:
        yield RoleTest.from_conditions(role, role.conditions, 1 << program.frame.bit(role.variable))
        if role.first:
            first = 1 << program.frame.bit(role.variable, first=True)
            yield RoleTest.from_conditions(role, (*role.conditions, *role.first), first)


@dataclass(frozen=True, slots=True, eq=False)
class ScannedBatch:
    """A batch of events as a kernel reads it."""

    mask: npt.NDArray[np.int64]
    key: npt.NDArray[np.int32]
    starts: Array
    ends: Array
    features: tuple[Vector, ...]

    @property
    def has_nulls(self) -> bool:
        return any(f.valid is not None for f in self.features)

    def part(self, begin: int, end: int) -> "ScannedBatch":
        """A slice of the batch."""
        where = slice(begin, end)
        features = tuple(
            Vector(f.kind, f.values[where], None if f.valid is None else f.valid[where]) for f in self.features
        )
        return ScannedBatch(self.mask[where], self.key[where], self.starts[where], self.ends[where], features)

    def take(self, rows: npt.NDArray[np.int64]) -> "ScannedBatch":
        """Some events of the batch."""
        features = tuple(
            Vector(f.kind, np.take(f.values, rows), None if f.valid is None else f.valid[rows]) for f in self.features
        )
        starts = np.take(self.starts, rows)
        ends = starts if self.ends is self.starts else np.take(self.ends, rows)
        return ScannedBatch(np.take(self.mask, rows), np.take(self.key, rows), starts, ends, features)

    def arrays(self, nullable: bool) -> list[Array]:
        """The event arrays in the order of the kernel's parameters."""
        arrays: list[Array] = [self.mask, self.key, self.starts, self.ends]
        return arrays + [a for feature in self.features for a in to_arrays(feature, nullable)]


def to_arrays(feature: Vector, nullable: bool) -> list[Array]:
    """The values of a feature and, for a kernel that handles NULL, where they are valid."""
    values, valid = feature.values, feature.valid
    assert isinstance(values, np.ndarray)
    if not nullable:
        return [values]
    return [values, np.ones(len(values), np.bool_) if valid is None else valid]


def _without_variable(node: Expr) -> Expr:
    return replace(node, variable="") if isinstance(node, FieldRef) else node


class Scan:
    """Computes the kernel's inputs for tables of events; holds the codes of keys and strings."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.keys = KeyCodes()
        self.strings = KeyCodes()
        self.roles = tuple(r for r in program.plan.roles if r.inner is None)
        self.types = list(dict.fromkeys(name for r in self.roles for name in get_type_names(r.type)))
        self.seen = 0  # bits of the roles whose types have occurred
        self.counts = ScanCounts()  # of a counting program

    # not computed where several queries share a scan

    @cached_property
    def _names(self) -> TypeNames:
        return TypeNames(self.types)

    @cached_property
    def _plain(self) -> dict[Expr, Expr]:
        return {
            condition: rewrite_expr(condition, _without_variable)
            for role in self.roles
            for condition in (*role.conditions, *role.first)
        }

    def get_roles(self, events: pa.Table) -> npt.NDArray[np.int64]:
        """The roles that each event can play, as bits; 0 if it is irrelevant."""
        return self._mask(events, self._lookup(events))

    def _lookup(self, events: pa.Table) -> evaluation.Lookup:
        cache: dict[str, Vector] = {}

        def lookup(ref: FieldRef | Aggregate) -> Vector:
            assert isinstance(ref, FieldRef)
            assert ref.name is not None
            if ref.name not in cache:
                cache[ref.name] = evaluation.from_arrow(events.column(ref.name), self.program.unit, ref.name)
            return cache[ref.name]

        return lookup

    def __call__(self, events: pa.Table) -> ScannedBatch:
        lookup = self._lookup(events)
        mask = self._mask(events, lookup)
        return self._scan(mask, self.encode_keys(events), lookup)

    def scan_known(
        self, events: pa.Table, mask: npt.NDArray[np.int64], key: npt.NDArray[np.int32] | None
    ) -> ScannedBatch:
        """Scan events whose roles, and perhaps the codes of their keys, are known."""
        return self._scan(mask, self.encode_keys(events) if key is None else key, self._lookup(events))

    def scan_selection(self, events: pa.Table, selection: EventSelection, part: slice) -> ScannedBatch:
        """Scan selected events of a table, whose roles, keys and times are known."""
        rows, program = selection.rows[part], self.program
        refs = (node for feature in program.features for node in iterate_nodes(feature.expr))
        read = {node.name for node in refs if isinstance(node, FieldRef)}
        lookup = self._lookup(take_rows(events.select([n for n in events.column_names if n in read]), rows))
        features = tuple(self._feature(f, lookup, len(rows)) for f in program.features)
        starts, ends = (self._as_time(times[part]) for times in (selection.starts, selection.ends))
        return ScannedBatch(selection.mask[part], selection.key[part], starts, ends, features)

    @property
    def columns(self) -> set[str]:
        """The columns that `scan_known` reads, without those of the key."""
        refs = (node for feature in self.program.features for node in iterate_nodes(feature.expr))
        read = {node.name for node in refs if isinstance(node, FieldRef) and node.name is not None}
        return read | {self.program.schema.start, self.program.schema.end}

    def encode_keys(self, events: pa.Table, rows: Ints | None = None) -> npt.NDArray[np.int32]:
        """The codes of the partitions of all events, or of some rows."""
        names = [e.field_name for e in self.program.plan.query.equivalence]
        if not names:
            return np.zeros(events.num_rows if rows is None else len(rows), np.int32)
        return self.keys.encode([events.column(n) for n in names], rows)

    def _scan(self, mask: npt.NDArray[np.int64], key: npt.NDArray[np.int32], lookup: evaluation.Lookup) -> ScannedBatch:
        program, schema, count = self.program, self.program.schema, len(mask)
        features = tuple(self._feature(f, lookup, count) for f in program.features)
        starts = self._time(lookup(FieldRef("", schema.start)))
        ends = starts if schema.start == schema.end else self._time(lookup(FieldRef("", schema.end)))
        if program.counted:
            self.counts.batch(starts, ends, key)
        return ScannedBatch(mask, key, starts, ends, features)

    def _mask(self, events: pa.Table, lookup: evaluation.Lookup) -> npt.NDArray[np.int64]:
        program = self.program
        count, bits = events.num_rows, self._bits
        if program.schema.typed:
            assert program.schema.type_column is not None
            mask = self._names.map(events.column(program.schema.type_column), bits)
        else:
            mask = np.full(count, np.bitwise_or.reduce(bits))
        self.seen |= int(np.bitwise_or.reduce(mask))
        known: dict[Expr, npt.NDArray[np.bool_]] = {}  # shared by roles

        def judged(condition: Expr) -> npt.NDArray[np.bool_]:
            plain = self._plain[condition]
            if plain not in known:
                known[plain] = evaluation.truth(evaluation.evaluate(condition, lookup, count, program.unit))
            return known[plain]

        for role in self.roles:
            every, first = (program.frame.bit(role.variable, first=f) for f in (False, True))
            of_type = left = self._count_role(mask, every)
            for condition in role.conditions:
                holds = judged(condition)
                clear_bit(mask, holds, every)
                if role.first:
                    clear_bit(mask, holds, first)
                left = self._count(role.variable, condition, mask, left, every)
            playing = left
            for condition in role.first:
                holds = judged(condition)
                clear_bit(mask, holds, first)
                left = self._count(role.variable, condition, mask, left, first)
            if program.counted:
                self.counts.role(role.variable, of_type, playing)
        return mask

    @cached_property
    def _bits(self) -> npt.NDArray[np.int64]:
        """The roles of each event type, and last those of any other type."""
        bits, frame = np.zeros(len(self.types) + 1, np.int64), self.program.frame
        for role in self.roles:
            every = role.type == ANY
            places = slice(None) if every else [self.types.index(n) for n in get_type_names(role.type)]
            bits[places] |= 1 << frame.bit(role.variable)
            if role.first:
                bits[places] |= 1 << frame.bit(role.variable, first=True)
        return bits

    def _count_role(self, mask: npt.NDArray[np.int64], bit: int) -> int:
        """The number of events with a bit, if the program counts."""
        return int(np.count_nonzero(mask & (1 << bit))) if self.program.counted else 0

    def _count(self, variable: str, condition: Expr, mask: npt.NDArray[np.int64], before: int, bit: int) -> int:
        """Count the events that pass a condition and return how many remain."""
        remaining = self._count_role(mask, bit)
        if self.program.counted:
            self.counts.condition(variable, condition, before, remaining)
        return remaining

    @property
    def known(self) -> int:
        """The number of codes of keys and strings."""
        return self.keys.known + self.strings.known

    def unseen_types(self) -> list[str]:
        """The event types of the pattern that have not occurred so far."""
        return [
            t
            for t in self.types
            if not any(
                self.seen >> self.program.frame.bit(r.variable) & 1 for r in self.roles if t in get_type_names(r.type)
            )
        ]

    def _time(self, vector: Vector) -> Array:
        values = vector.values
        assert isinstance(values, np.ndarray)
        return self._as_time(values)

    def _as_time(self, values: Array) -> Array:
        dtype = np.float64 if self.program.frame.real_time else np.int64
        return np.ascontiguousarray(values, dtype)

    def feature(self, feature: Feature, events: pa.Table) -> Vector:
        """Compute a feature of events outside the current batch."""
        return self._feature(feature, self._lookup(events), events.num_rows)

    def _feature(self, feature: Feature, lookup: evaluation.Lookup, count: int) -> Vector:
        vector = evaluation.evaluate(feature.expr, lookup, count, self.program.unit)
        return encode_feature(vector, feature, count, self.strings)


def encode_feature(vector: Vector, feature: Feature, count: int, strings: KeyCodes) -> Vector:
    """Convert a feature's values to the numbers that a kernel compares; strings become codes."""
    if feature.kind is ValueKind.STRING:
        assert isinstance(vector.values, pa.Array)
        coded = strings.encode([vector.values])
        known = coded >= 0
        return Vector(ValueKind.INTEGER, coded.astype(np.int64), None if bool(known.all()) else known)
    dtype = np.int64 if feature.integral else np.float64
    if vector.kind is ValueKind.NULL:
        return Vector(ValueKind.INTEGER, np.zeros(count, dtype), np.zeros(count, np.bool_))
    values = np.ascontiguousarray(vector.values, dtype)
    valid = None if vector.valid is None or bool(vector.valid.all()) else vector.valid
    return Vector(vector.kind, values, valid)
