"""The scan: what a kernel needs to know of a batch of events, computed for all of them at once."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.algebra.predicate import Aggregate, Expr, Field
from ensue.algebra.walk import rewrite_expr
from ensue.columns import evaluate as vectors
from ensue.columns.arrow_kinds import kind_of_arrow
from ensue.columns.buffers import codes, frozen, plain_text, single, text_parts, validity
from ensue.columns.evaluate import Vector
from ensue.columns.keys import KeyCodes
from ensue.engine.program import Program
from ensue.kernels.arena import clear_bit, set_bits
from ensue.kernels.names import find_names
from ensue.schema import ANY, Kind, names_of
from ensue.source.counting import ScanCounts
from ensue.source.expressions import Feature

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True, eq=False)
class Scanned:
    """A batch of events as a kernel reads it."""

    mask: npt.NDArray[np.int64]
    key: npt.NDArray[np.int32]
    starts: Array
    ends: Array
    features: tuple[Vector, ...]

    @property
    def has_nulls(self) -> bool:
        return any(f.valid is not None for f in self.features)

    def part(self, begin: int, end: int) -> "Scanned":
        """Some of the events, one behind the other."""
        where = slice(begin, end)
        features = tuple(
            Vector(f.kind, f.values[where], None if f.valid is None else f.valid[where])
            for f in self.features
        )
        return Scanned(
            self.mask[where], self.key[where], self.starts[where], self.ends[where], features
        )

    def arrays(self, nullable: bool) -> list[Array]:
        """The kernel's arguments about events, in its order."""
        found: list[Array] = [self.mask, self.key, self.starts, self.ends]
        for feature in self.features:
            values = feature.values
            assert isinstance(values, np.ndarray)
            found.append(values)
            if nullable:
                valid = feature.valid
                found.append(np.ones(len(values), np.bool_) if valid is None else valid)
        return found


def _of_no_variable(node: Expr) -> Expr:
    return replace(node, variable="") if isinstance(node, Field) else node


class Scan:
    """Turns tables into what kernels read; remembers the codes of keys and strings."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.keys = KeyCodes()
        self.strings = KeyCodes()
        self.roles = tuple(r for r in program.plan.roles if r.inner is None)
        self.types = list(dict.fromkeys(name for r in self.roles for name in names_of(r.type)))
        self.seen = 0  # bits of the roles whose types have occurred
        self.counts = ScanCounts()  # of a program that counts
        self._names = tuple(map(frozen, text_parts(pa.array(self.types, pa.string()))))
        self._plain = {
            condition: rewrite_expr(condition, _of_no_variable)
            for role in self.roles
            for condition in (*role.conditions, *role.first)
        }
        self._bits = self._bits_by_type()

    def roles_of(self, events: pa.Table) -> npt.NDArray[np.int64]:
        """The roles that each event can play, as bits: 0 where it is passed over."""
        return self._mask(events, self._lookup(events))

    def _lookup(self, events: pa.Table) -> vectors.Lookup:
        cache: dict[str, Vector] = {}

        def lookup(ref: Field | Aggregate) -> Vector:
            assert isinstance(ref, Field)
            assert ref.name is not None
            if ref.name not in cache:
                column = events.column(ref.name)
                cache[ref.name] = vectors.from_arrow(column, self.program.unit, ref.name)
            return cache[ref.name]

        return lookup

    def __call__(self, events: pa.Table) -> Scanned:
        program, schema = self.program, self.program.schema
        lookup = self._lookup(events)
        count = events.num_rows
        mask = self._mask(events, lookup)
        names = [e.field_name for e in program.plan.query.equivalence]
        if names:
            key = self.keys.encode([events.column(n) for n in names])
        else:
            key = np.zeros(count, np.int32)
        features = tuple(self._feature(f, lookup, count) for f in program.features)
        starts = self._time(lookup(Field("", schema.start)))
        ends = self._time(lookup(Field("", schema.end)))
        if program.counted:
            self.counts.batch(starts, ends, key)
        return Scanned(mask, key, starts, ends, features)

    def _mask(self, events: pa.Table, lookup: vectors.Lookup) -> npt.NDArray[np.int64]:
        program = self.program
        count, bits = events.num_rows, self._bits
        mask = np.empty(count, np.int64)
        if program.schema.typed:
            assert program.schema.type_column is not None
            set_bits(mask, self._type_codes(events.column(program.schema.type_column)), bits)
        else:
            mask[:] = np.bitwise_or.reduce(bits)
        self.seen |= int(np.bitwise_or.reduce(mask))
        known: dict[Expr, npt.NDArray[np.bool_]] = {}  # of events, whichever role they play

        def judged(condition: Expr) -> npt.NDArray[np.bool_]:
            plain = self._plain[condition]
            if plain not in known:
                known[plain] = vectors.truth(
                    vectors.evaluate(condition, lookup, count, program.unit)
                )
            return known[plain]

        for role in self.roles:
            every, first = (program.frame.bit(role.variable, first=f) for f in (False, True))
            of_type = left = self._playing(mask, every)
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

    def _bits_by_type(self) -> npt.NDArray[np.int64]:
        """The roles that an event of each type can play, and at the end one of any other type."""
        bits, frame = np.zeros(len(self.types) + 1, np.int64), self.program.frame
        for role in self.roles:
            every = role.type == ANY
            places = slice(None) if every else [self.types.index(n) for n in names_of(role.type)]
            bits[places] |= 1 << frame.bit(role.variable)
            if role.first:
                bits[places] |= 1 << frame.bit(role.variable, first=True)
        return bits

    def _playing(self, mask: npt.NDArray[np.int64], bit: int) -> int:
        """How many events have a bit, where that is to be counted."""
        return int(np.count_nonzero(mask & (1 << bit))) if self.program.counted else 0

    def _count(
        self, variable: str, condition: Expr, mask: npt.NDArray[np.int64], before: int, bit: int
    ) -> int:
        """Counts what a condition let through; gives how many events are left."""
        left = self._playing(mask, bit)
        if self.program.counted:
            self.counts.condition(variable, condition, before, left)
        return left

    @property
    def known(self) -> int:
        """How many codes of keys and strings there are."""
        return self.keys.known + self.strings.known

    def unseen_types(self) -> list[str]:
        """The pattern's types that no event has had so far."""
        return [
            t
            for t in self.types
            if not any(
                self.seen >> self.program.frame.bit(r.variable) & 1
                for r in self.roles
                if t in names_of(r.type)
            )
        ]

    def _type_codes(self, column: pa.ChunkedArray) -> npt.NDArray[np.int32]:
        """The place of each event's type among the pattern's types, -1 for others."""
        array = single(column)
        if kind_of_arrow(array.type) is not Kind.STRING:
            array = array.cast(pa.string())
        if pa.types.is_dictionary(array.type):
            known = self._name_codes(plain_text(array.dictionary))
            found = known[codes(array)] if len(known) else np.full(len(array), -1, np.int32)
        else:
            found = self._name_codes(plain_text(array))
        valid = validity(array)
        return found if valid is None else np.where(valid, found, np.int32(-1))

    def _name_codes(self, texts: pa.Array) -> npt.NDArray[np.int32]:
        found = np.empty(len(texts), np.int32)
        find_names(*map(frozen, text_parts(texts)), *self._names, found)
        return found

    def _time(self, vector: Vector) -> Array:
        values = vector.values
        assert isinstance(values, np.ndarray)
        wanted = np.float64 if self.program.frame.real_time else np.int64
        return np.ascontiguousarray(values, wanted)

    def feature(self, feature: Feature, events: pa.Table) -> Vector:
        """A feature of some other events than those at hand."""
        return self._feature(feature, self._lookup(events), events.num_rows)

    def _feature(self, feature: Feature, lookup: vectors.Lookup, count: int) -> Vector:
        vector = vectors.evaluate(feature.expr, lookup, count, self.program.unit)
        return numbers_of(vector, feature, count, self.strings)


def numbers_of(vector: Vector, feature: Feature, count: int, strings: KeyCodes) -> Vector:
    """A feature's values as the numbers that a kernel compares; strings become codes."""
    if feature.kind is Kind.STRING:
        assert isinstance(vector.values, pa.Array)
        coded = strings.encode([vector.values])
        known = coded >= 0
        return Vector(Kind.INTEGER, coded.astype(np.int64), None if bool(known.all()) else known)
    wanted = np.int64 if feature.integral else np.float64
    if vector.kind is Kind.NULL:
        return Vector(Kind.INTEGER, np.zeros(count, wanted), np.zeros(count, np.bool_))
    values = np.ascontiguousarray(vector.values, wanted)
    valid = None if vector.valid is None or bool(vector.valid.all()) else vector.valid
    return Vector(vector.kind, values, valid)
