"""The result table of MATCH_RECOGNIZE, and the ids of its rows."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from ensue.analyzer.row_pattern_checks import get_expression_zone, infer_row_kind, infer_value_kind
from ensue.analyzer.types import get_time_zone
from ensue.cached import cached_property
from ensue.engine.row_match.row_partitions import Partitions, to_sort_keys
from ensue.engine.row_match.search import RowMatches
from ensue.ir.expression import Expr, FieldRef
from ensue.ir.row_pattern import MATCH_COLUMNS, Measure, Navigation, RowAggregate, RowExpression, RowsPerMatch
from ensue.kernels import hashing
from ensue.kernels.row_search import EXCLUDED
from ensue.planner.row_pattern_plan import RowPatternPlan
from ensue.projection.match_ids import (
    ORDINAL,
    Pair,
    add_ordinals,
    compute_salts,
    find_equal_times,
    format_hashes,
    hash_rows,
    hash_words,
)
from ensue.projection.row_pattern_measures import MeasureEvaluator
from ensue.vector.arrow_numpy import Bools, Ints, as_read_only, integers, to_single_array
from ensue.vector.arrow_types import get_time_zones, time_unit
from ensue.vector.column_values import arrow_type
from ensue.vector.take import combine_column, create_empty_table, take_values

_SAME_VALUE = ("min", "max", "max_by", "min_by", "any_value")


@dataclass(frozen=True)
class RowPatternProjection:
    """Builds the result of MATCH_RECOGNIZE over a table with these columns."""

    plan: RowPatternPlan
    arrow: pa.Schema  # of the input table

    @cached_property
    def before(self) -> tuple[tuple[str, str], ...]:
        """The columns before the measures, and their input columns."""
        row_pattern = self.plan.row_pattern
        columns = {key.name: key.column or key.name for key in row_pattern.partition}
        if row_pattern.rows is not RowsPerMatch.ONE:
            for by in row_pattern.order:
                if isinstance(by.expr, FieldRef) and by.expr.name not in columns.values():
                    assert by.expr.name is not None
                    columns[by.expr.name] = by.expr.name
        return tuple(columns.items())

    @cached_property
    def behind(self) -> tuple[str, ...]:
        """The input columns after the measures."""
        if self.plan.row_pattern.rows is RowsPerMatch.ONE:
            return ()
        named = {column for _, column in self.before}
        return tuple(name for name in self.plan.columns if name not in named)

    @cached_property
    def schema(self) -> pa.Schema:
        fields = [pa.field(name, self.arrow.field(column).type) for name, column in self.before]
        fields += [pa.field(m.name, self.get_type(m)) for m in self.plan.row_pattern.measures]
        fields += [pa.field(name, self.arrow.field(name).type) for name in self.behind]
        return pa.schema(fields)

    def get_type(self, measure: Measure) -> pa.DataType:
        """The type of a measure: that of its column, or of the computed value."""
        only = measure.value.only
        unit = time_unit(self.arrow)
        match only:
            case Navigation(expr=FieldRef(name=str(name))) if name not in MATCH_COLUMNS:
                return self.arrow.field(name).type
            case RowAggregate(function="array_agg", arguments=(argument,)):
                return pa.list_(self._get_type(argument))
            case RowAggregate(function=function, arguments=(argument, *_)) if function in _SAME_VALUE:
                return self._get_type(argument)
            case _:
                kind = infer_value_kind(measure.value, self.plan.columns)
                return arrow_type(kind, unit, self.zone(measure.value))

    def _get_type(self, expr: Expr) -> pa.DataType:
        if isinstance(expr, FieldRef) and expr.name not in MATCH_COLUMNS:
            return self.arrow.field(expr.name).type
        return arrow_type(
            infer_row_kind(expr, self.plan.columns),
            time_unit(self.arrow),
            get_time_zone(expr, lambda field: get_time_zones(self.arrow).get(field.name or "")),
        )

    def zone(self, value: RowExpression) -> str | None:
        """The zone of a computed time."""
        return get_expression_zone(value, get_time_zones(self.arrow))

    def iterate_tables(self, partitions: Partitions, found: Iterable[RowMatches]) -> Iterator[pa.Table]:
        """The non-empty tables of several sets of matches."""
        for matches in found:
            table = self._build_rows(partitions, matches)
            if table.num_rows:
                yield table

    def build_table(self, partitions: Partitions, found: Iterable[RowMatches]) -> pa.Table:
        tables = list(self.iterate_tables(partitions, found))
        return pa.concat_tables(tables) if tables else create_empty_table(self.schema)

    def _build_rows(self, partitions: Partitions, found: RowMatches) -> pa.Table:
        rows, match, place = list_result_rows(self.plan, found)
        evaluator = MeasureEvaluator(self.plan, partitions, found, match, place)
        source = partitions.places(rows)
        keys = {key.column for key in self.plan.row_pattern.partition}
        columns = []
        for _, name in self.before:
            column = combine_column(partitions.table, name)
            if name in keys and _is_text(column.type) and len(found) and bool((match >= 0).all()):
                columns.append(_repeat_keys(column, partitions, found, match))
            else:
                columns.append(take_values(column, source))
        for measure in self.plan.row_pattern.measures:
            type = self.schema.field(len(columns)).type
            columns.append(evaluator.arrow(measure.value, type, self.zone(measure.value)))
        columns += [take_values(combine_column(partitions.table, name), source) for name in self.behind]
        return pa.table(columns, schema=self.schema)


def _repeat_keys(
    column: pa.Array | pa.ChunkedArray, partitions: Partitions, found: RowMatches, match: Ints
) -> pa.Array:
    """The key of each row: read once per partition, since texts far apart are slow to fetch."""
    first = np.ones(len(found), np.bool_)
    first[1:] = found.partitions[1:] != found.partitions[:-1]
    texts = take_values(column, partitions.places(found.starts[first]))
    return take_values(texts, (np.cumsum(first) - 1)[match])


def _is_text(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


def list_result_rows(plan: RowPatternPlan, found: RowMatches) -> tuple[Ints, Ints, Ints | None]:
    """For each row of the result the input row, the match (-1: none), and the index of its label
    (-1: none). With one row per match there are no label indices."""
    mode = plan.row_pattern.rows
    if mode is RowsPerMatch.ONE:
        return found.starts, np.arange(len(found)), None
    sizes = np.diff(found.offsets)
    place = np.arange(len(found.labels))
    match = np.repeat(np.arange(len(found)), sizes)
    rows = found.starts[match] + place - found.offsets[match] if len(found) else place
    kept = found.labels & EXCLUDED == 0
    if not kept.all():
        rows, match, place = rows[kept], match[kept], place[kept]
    parts = [(rows, match, place)]
    empty = np.flatnonzero(sizes == 0)
    if len(empty) and mode is not RowsPerMatch.ALL_BUT_EMPTY:
        parts.append((found.starts[empty], empty, np.full(len(empty), -1, np.int64)))
    if len(found.unmatched):
        none = np.full(len(found.unmatched), -1, np.int64)
        parts.append((found.unmatched, none, none))
    if len(parts) == 1:
        return parts[0]
    rows, match, place = (np.concatenate(several) for several in zip(*parts, strict=True))
    # by the first row of the match; an unmatched row is its own first row
    begins = np.where(match < 0, rows, found.starts[np.maximum(match, 0)]) if len(found) else rows
    order = np.lexsort((rows, match, begins))
    return rows[order], match[order], place[order]


MATCH_ID = "match_id"
_ROWS, _PLACE, _EMPTY, _UNMATCHED = (np.uint64(salt) for salt in range(1, 5))


class RowMatchIds:
    """The ids of result rows: hashes that do not depend on how the input is split into batches.

    Rows of the same content are numbered. A table that may have lost duplicates has these numbers
    in a column.
    """

    def __init__(self, plan: RowPatternPlan, meaning: str, partitions: Partitions) -> None:
        self._plan = plan
        self._fingerprint = blake2b(meaning.encode(), digest_size=16).digest()
        self._partitions = partitions
        self._columns = [(name, name) for name in plan.columns]

    def compute_ids(self, found: RowMatches) -> pa.Array:
        """An id for each result row of these matches."""
        rows, match, place = list_result_rows(self._plan, found)
        sizes = np.diff(found.offsets)
        members = np.repeat(found.starts - found.offsets[:-1], sizes) + np.arange(sizes.sum())
        empty = np.flatnonzero(sizes == 0)
        hashed = self._hashes(members, found.starts[empty], found.unmatched)
        high, low = self._init_hashes(len(found))
        hashing.fold_lists(as_read_only(found.offsets), as_read_only(members), *hashed, _ROWS, high, low)
        if len(empty):
            without = np.full(len(found), -1, np.int64)
            without[empty] = found.starts[empty]
            others = high.copy(), low.copy()
            hashing.fold_rows(as_read_only(without), *hashed, _EMPTY, *others)
            high[empty], low[empty] = others[0][empty], others[1][empty]
        if place is None:
            return format_hashes(high, low)
        ids = self._init_hashes(len(rows))
        matched = match >= 0
        ids[0][matched], ids[1][matched] = high[match[matched]], low[match[matched]]
        within = np.where(matched & (place >= 0), place - found.offsets[np.maximum(match, 0)], -1)
        hashing.fold_rows(np.arange(len(rows)), *hash_words(within), _PLACE, *ids)
        if not matched.all():
            unmatched = as_read_only(np.where(matched, -1, rows))
            others = ids[0].copy(), ids[1].copy()
            hashing.fold_rows(unmatched, *hashed, _UNMATCHED, *others)
            ids[0][~matched], ids[1][~matched] = others[0][~matched], others[1][~matched]
        return format_hashes(*ids)

    def _init_hashes(self, count: int) -> Pair:
        first, second = compute_salts(self._fingerprint)
        return np.full(count, first), np.full(count, second)

    def _hashes(self, *wanted_rows: Ints) -> Pair:
        """The hashes of some rows, by row."""
        partitions = self._partitions
        selected = np.zeros(partitions.rows, np.bool_)
        for rows in wanted_rows:
            selected[rows] = True
        known = ORDINAL in partitions.table.column_names
        twins = np.zeros(0, np.bool_) if known else find_equal_times(self._ties, selected)
        chosen = np.flatnonzero(selected if known else selected | twins)
        places = partitions.places(chosen)
        every = len(places) == partitions.table.num_rows  # hashed in the order of the table
        some = hash_rows(partitions.table, self._columns, None if every else places)
        if every:
            some = some[0][places], some[1][places]
        if known:
            alike = integers(to_single_array(partitions.table.column(ORDINAL)))[places]
        else:
            alike = np.zeros(len(chosen), np.int64)
            within = twins[chosen]
            if within.any():
                alike[within] = hashing.number_duplicates(some[0][within], some[1][within])
        add_ordinals(some, alike)
        high, low = (np.zeros(partitions.rows, np.uint64) for _ in range(2))
        high[chosen], low[chosen] = some
        return high, low

    @cached_property
    def _ties(self) -> Ints:
        """A number for each row, equal for ties in the order of a partition."""
        partitions = self._partitions
        changes: Bools = np.zeros(partitions.rows, np.bool_)
        begins = partitions.bounds[:-1]
        changes[begins[begins < partitions.rows]] = True
        for by in self._plan.row_pattern.order:
            for key in to_sort_keys(partitions.vector(by.expr), by):
                changes[1:] |= key[1:] != key[:-1]
        return np.cumsum(changes)
