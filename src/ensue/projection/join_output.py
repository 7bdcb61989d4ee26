"""Joins of the matches of several queries: interval join, conditions, and result table.

A side is the result table of a query without RETURN: `match_id`, `start`, `end`, then a struct for
each variable, or a list of structs. A joined row has the row number of each side, or -1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.analyzer.types import infer_kind
from ensue.ir.archive_join import LookbackRange, RangeAnchor
from ensue.ir.expression import Expr, FieldRef
from ensue.ir.pattern import Atom, Kleene, Pattern, Seq
from ensue.ir.query import Query, ReturnItem
from ensue.ir.selection import ByTime, ByUnits
from ensue.kernels import hashing
from ensue.projection.match_ids import compute_salts, format_hashes, hash_rows
from ensue.projection.match_table import ResultShape
from ensue.projection.values import MatchValues
from ensue.schema import Schema, ValueKind
from ensue.vector.arrow_numpy import Bools, Ints, as_read_only, to_single_array
from ensue.vector.arrow_types import Unit, kind_of_arrow, plain_type, time_unit
from ensue.vector.column_values import Vector, from_arrow, truth
from ensue.vector.key_codes import ColumnCodes
from ensue.vector.match_rows import Matches
from ensue.vector.take import create_empty_table, take_values

MATCH_COLUMNS = ("match_id", "start", "end")
LOCATION = "location"  # where events have one
_NO_SCHEMA = Schema(MappingProxyType({}), "", "", ValueKind.INTEGER)  # each side has its own


@dataclass(frozen=True)
class ProjectedSide:
    """The columns of one side, and the variables among them."""

    schema: pa.Schema
    variables: tuple[str, ...]

    def kleene(self, variable: str) -> bool:
        return bool(pa.types.is_list(self.schema.field(variable).type))

    def fields(self, variable: str) -> list[pa.Field]:
        """The fields of a variable's events."""
        type_ = self.schema.field(variable).type
        return list(type_.value_type if self.kleene(variable) else type_)


class JoinSchema:
    """The columns of several sides, and of their join."""

    def __init__(
        self,
        sides: Sequence[ProjectedSide],
        returns: Sequence[ReturnItem] = (),
        having: Expr | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.sides = tuple(sides)
        self.having = having
        self.columns = columns  # of a result, in their order
        parts: list[Pattern] = []
        columns_of: dict[str, list[tuple[str, str]]] = {}
        fields: list[pa.Field] = []
        for side in sides:
            for variable in side.variables:
                atom = Atom(variable, variable)
                parts.append(Kleene(atom, 0, None) if side.kleene(variable) else atom)
                own = side.fields(variable)
                columns_of[variable] = [(f.name, get_column_name(variable, f.name)) for f in own]
                fields += [pa.field(get_column_name(variable, f.name), f.type) for f in own]
        self.arrow = pa.schema(fields)
        self.unit = time_unit(self.arrow)
        query = Query(Seq(tuple(parts)), returns=tuple(returns))
        self.shape = ResultShape(query, _NO_SCHEMA, self.arrow, columns_of)
        self.columns_of = columns_of

    def kind(self, expr: Expr) -> ValueKind:
        """The kind of an expression over the sides."""

        def of(field: FieldRef) -> ValueKind:
            type_ = self.arrow.field(get_column_name(field.variable, field.name or "")).type
            return kind_of_arrow(type_)

        return infer_kind(expr, of)

    @property
    def result(self) -> pa.Schema:
        """The columns of joined rows: `start`, `end` and location are those of the first side."""
        first = self.sides[0].schema
        returned = self.shape.list_returned()
        names = {r.name for r in returned}
        standard = [n for n in (*MATCH_COLUMNS, LOCATION) if n in first.names and n not in names]
        fields = [pa.field(name, plain_type(first.field(name).type)) for name in standard]
        whole = pa.schema([*fields, *((r.name, self.shape.get_type(r.expr)) for r in returned)])
        return whole if self.columns is None else pa.schema(map(whole.field, self.columns))


class JoinedRows:
    """Joined rows of several sides."""

    def __init__(self, shape: JoinSchema, tables: Sequence[pa.Table], rows: Sequence[Ints]):
        self.shape, self.tables, self.rows = shape, tuple(tables), tuple(rows)
        self.gathered = MatchValues(
            _build_matches(shape.sides, tables, rows), create_empty_table(shape.arrow),
            shape.columns_of, shape.shape.results, shape.unit,
        )  # fmt: skip
        for side, table in zip(shape.sides, tables, strict=True):
            for variable in side.variables:
                array = to_single_array(table.column(variable))
                if side.kleene(variable):
                    array = array.flatten()
                for k, field in enumerate(array.type):
                    name = get_column_name(variable, field.name)
                    self.gathered.add_column(name, array.field(k))

    def values(self, expr: Expr) -> Vector:
        return self.gathered.evaluate(expr)

    def holds(self, conjuncts: Sequence[Expr]) -> Bools:
        """Where all conditions are true, not NULL."""
        kept = np.ones(self.gathered.matches.count, np.bool_)
        for conjunct in conjuncts:
            kept &= truth(self.values(conjunct))
        return kept

    def column(self, name: str, side: int = 0) -> pa.Array:
        """A column of a side, by joined row."""
        return take_values(to_single_array(self.tables[side].column(name)), self.rows[side])

    def table(self, identity: bytes) -> pa.Table:
        """The result table of the joined rows, after HAVING."""
        standard = {name: partial(self.column, name) for name in (*MATCH_COLUMNS, LOCATION)}
        standard["match_id"] = partial(self._compute_ids, identity)
        return self.shape.shape.build_table(self.shape.result, self.gathered, standard)

    def _compute_ids(self, identity: bytes) -> pa.Array:
        """Hashes of the query and the ids of all sides."""
        count = self.gathered.matches.count
        first, second = compute_salts(identity)
        high, low = np.full(count, first), np.full(count, second)
        for number, (table, rows) in enumerate(zip(self.tables, self.rows, strict=True)):
            every = np.arange(table.num_rows)
            hashed = hash_rows(table.select(["match_id"]), [("match_id", "match_id")], every)
            salt, _ = compute_salts(f"side {number}".encode())
            hashing.fold_rows(as_read_only(rows), *hashed, salt, high, low)
        return format_hashes(high, low)


def get_column_name(variable: str, field: str) -> str:
    """The column of a variable's field among those of all sides."""
    return f"{variable}.{field}"


def _build_matches(sides: Sequence[ProjectedSide], tables: Sequence[pa.Table], rows: Sequence[Ints]) -> Matches:
    singles: dict[str, Ints] = {}
    lists: dict[str, tuple[Ints, Ints]] = {}
    for side, table, chosen in zip(sides, tables, rows, strict=True):
        for variable in side.variables:
            column = to_single_array(table.column(variable))
            if side.kleene(variable):
                lists[variable] = _select_lists(column, chosen)
                continue
            bound = np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), np.bool_)
            own = np.append(np.where(bound, np.arange(len(bound)), -1), -1)  # [-1]: no match
            singles[variable] = own[chosen]
    return Matches(singles, lists, len(rows[0]))


def _select_lists(column: pa.ListArray, chosen: Ints) -> tuple[Ints, Ints]:
    """The offsets and positions of the events of each chosen match; -1 has no events."""
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    counts = np.append(np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64), 0)
    begins = np.append(np.cumsum(counts[:-1]) - counts[:-1], 0)
    sizes = counts[chosen]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    shift = np.repeat(begins[chosen] - offsets[:-1], sizes)
    return offsets, shift + np.arange(offsets[-1])


def evaluate_having(joined: JoinedRows) -> Bools | None:
    """The rows that satisfy HAVING; None: all."""
    having = joined.shape.having
    return None if having is None else truth(joined.values(having))


def filter_rows(rows: Sequence[Ints], kept: Bools) -> tuple[Ints, ...]:
    return tuple(of_side[kept] for of_side in rows)


MAX_PAIRS = 1 << 20  # in one batch of an interval join
Times = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A lookback range in ticks.

    >>> from ensue.ir.selection import ByTime
    >>> TimeRange.from_range(LookbackRange(ByTime(5_000), RangeAnchor.START, ByTime(1_001)), "us")
    TimeRange(far=5, near=2, anchor=<RangeAnchor.START: 'START'>)
    """

    far: int | float
    near: int | float | None  # None: anything before the anchor
    anchor: RangeAnchor

    @classmethod
    def from_range(cls, range_: LookbackRange, unit: Unit) -> "TimeRange":
        near = None if range_.near is None else _length(range_.near, unit, up=True)
        return cls(_length(range_.far, unit, up=False), near, range_.anchor)

    def compute_start(self, anchors: Times) -> Times:
        """The earliest start of an archived match."""
        return subtract_length(anchors, self.far)

    def compute_end(self, anchors: Times) -> Times:
        """The latest end of an archived match, inclusive."""
        if self.near is not None:
            return subtract_length(anchors, self.near)
        if anchors.dtype.kind == "f":
            return np.nextafter(anchors, -np.inf)
        return subtract_length(anchors, 1)


def subtract_length(times: Times, by: int | float) -> Times:
    """Subtracts a length from times, saturating at 64 bits."""
    if times.dtype.kind == "f" or isinstance(by, float):
        return times - by
    return np.maximum(times, np.iinfo(np.int64).min + by) - by


def _length(length: ByTime | ByUnits, unit: Unit, *, up: bool) -> int | float:
    match length:
        case ByTime(nanoseconds=nanoseconds):
            per = 1_000 if unit == "us" else 1
            return -(-nanoseconds // per) if up else nanoseconds // per
        case ByUnits(amount=amount):
            return amount


def get_match_times(matches: pa.Table, name: str, unit: Unit) -> Times:
    """The starts or ends of matches as numbers."""
    vector = from_arrow(matches.column(name), unit, name)
    values = np.asarray(vector.values)
    return values.astype(np.float64) if vector.kind is ValueKind.DECIMAL else values


def encode_keys(live: Sequence[pa.Array], archived: Sequence[pa.Array], count: int, others: int) -> tuple[Ints, Ints]:
    """One number for each combination of key values; -1 where a value is NULL.

    >>> encode_keys([pa.array(["x", None, "y"])], [pa.array(["y", "x"])], 3, 2)
    (array([ 0, -1,  1]), array([1, 0]))
    """
    left, right = np.zeros(count, np.int64), np.zeros(others, np.int64)
    for ours, theirs in zip(live, archived, strict=True):
        codes = ColumnCodes()
        a, b = codes.encode(ours).astype(np.int64), codes.encode(theirs).astype(np.int64)
        size = len(codes) + 1
        left = np.where((left < 0) | (a < 0), -1, left * size + a)
        right = np.where((right < 0) | (b < 0), -1, right * size + b)
        dense, at = np.unique(np.concatenate([left, right]), return_inverse=True)
        if len(dense) and dense[0] < 0:
            at = at - 1  # -1 stays -1
        left, right = at[:count], at[count:]
    return left, right


def join_intervals(
    codes: tuple[Ints, Ints], since: Times, until: Times, starts: Times, ends: Times
) -> Iterator[tuple[Ints, Ints]]:
    """Batches of pairs with equal keys whose second row is in the time range of the first row,
    ordered by first row, then by start; a batch has all pairs of its first rows."""
    ours, theirs = codes
    order = np.lexsort((starts, theirs))
    order = order[np.searchsorted(theirs[order], 0) :]
    codes_in_order, starts_in_order = theirs[order], starts[order]
    low = _search(codes_in_order, starts_in_order, ours, since, "left")
    high = _search(codes_in_order, starts_in_order, ours, until, "right")
    counts = np.where(ours < 0, 0, np.maximum(high - low, 0))
    sums = np.cumsum(counts)
    begin = 0
    while begin < len(counts):
        done = 0 if begin == 0 else int(sums[begin - 1])
        end = max(begin + 1, int(np.searchsorted(sums, done + MAX_PAIRS, side="right")))
        sizes = counts[begin:end]
        left = np.repeat(np.arange(begin, end), sizes)
        places = np.arange(len(left)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        right = order[np.repeat(low[begin:end], sizes) + places]
        inside = ends[right] <= until[left]
        yield left[inside], right[inside]
        begin = end


def _search(codes: Ints, times: Times, keys: Ints, at: Times, side: str) -> Ints:
    """A vectorized `searchsorted` of (code, time) in arrays that are sorted by both."""
    low = np.searchsorted(codes, keys, side="left").astype(np.int64)
    high = np.searchsorted(codes, keys, side="right").astype(np.int64)
    while True:
        open_ = low < high
        if not open_.any():
            return low
        middle = (low + high) // 2
        seen = times[np.minimum(middle, max(len(times) - 1, 0))] if len(times) else at
        before = (seen < at) if side == "left" else (seen <= at)
        low = np.where(open_ & before, middle + 1, low)
        high = np.where(open_ & ~before, middle, high)


def select_latest(
    ours: Ints, theirs: Ints, starts: Times, ends: Times, ranks: Ints, count: int
) -> npt.NDArray[np.bool_]:
    """Which pairs are among the `count` latest of their first row: by end, start, then rank.

    >>> zeros, rows = np.zeros(3, np.int64), np.array([0, 1, 2])
    >>> select_latest(zeros, rows, np.array([1, 5, 3]), np.array([2, 6, 6]), rows, 2)
    array([False,  True,  True])
    """
    order = np.lexsort((ranks[theirs], starts[theirs], ends[theirs], ours))
    groups = ours[order]
    last = np.searchsorted(groups, groups, side="right")
    kept = np.zeros(len(ours), np.bool_)
    kept[order[np.arange(len(order)) >= last - count]] = True
    return kept
