"""The result of a clause as an Arrow table: its columns, in the order of the standard."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from ensue.analyzer.row_pattern_checks import get_expression_zone
from ensue.analyzer.time_zones import get_time_zone
from ensue.cached import cached_property
from ensue.engine.row_match.row_partitions import Partitions, to_sort_keys
from ensue.engine.row_match.search import RowMatches
from ensue.ir.expression import Expr, FieldRef
from ensue.ir.row_pattern import (
    MATCH_COLUMNS,
    Measure,
    Navigation,
    RowAggregate,
    RowExpression,
    RowsPerMatch,
)
from ensue.kernels import hashing
from ensue.kernels.row_search import EXCLUDED
from ensue.planner.row_pattern_plan import RowPatternPlan, infer_row_kind, infer_value_kind
from ensue.projection.match_ids import (
    ORDINAL,
    Pair,
    compute_salts,
    find_equal_times,
    format_hashes,
    hash_rows,
    hash_words,
)
from ensue.projection.row_pattern_measures import MeasureEvaluator
from ensue.vector.arrow_numpy import Bools, Ints, as_read_only, to_single_array
from ensue.vector.arrow_types import get_time_zones, time_unit
from ensue.vector.column_values import arrow_type
from ensue.vector.take import combine_column, create_empty_table, take_values

_SAME_VALUE = ("min", "max", "max_by", "min_by", "any_value")


@dataclass(frozen=True)
class RowPatternProjection:
    """What comes out of a clause over a table with these columns."""

    plan: RowPatternPlan
    arrow: pa.Schema  # of the table that comes in

    @cached_property
    def before(self) -> tuple[tuple[str, str], ...]:
        """The columns before the measures, and those of the table that they are."""
        row_pattern = self.plan.row_pattern
        found = {key.name: key.column or key.name for key in row_pattern.partition}
        if row_pattern.rows is not RowsPerMatch.ONE:
            for by in row_pattern.order:
                if isinstance(by.expr, FieldRef) and by.expr.name not in found.values():
                    assert by.expr.name is not None
                    found[by.expr.name] = by.expr.name
        return tuple(found.items())

    @cached_property
    def behind(self) -> tuple[str, ...]:
        """The columns of the table behind the measures."""
        if self.plan.row_pattern.rows is RowsPerMatch.ONE:
            return ()
        named = {column for _, column in self.before}
        return tuple(name for name in self.plan.columns if name not in named)

    @cached_property
    def schema(self) -> pa.Schema:
        fields = [pa.field(name, self.arrow.field(column).type) for name, column in self.before]
        fields += [pa.field(m.name, self.type_of(m)) for m in self.plan.row_pattern.measures]
        fields += [pa.field(name, self.arrow.field(name).type) for name in self.behind]
        return pa.schema(fields)

    def type_of(self, measure: Measure) -> pa.DataType:
        """The type of a measure: that of the column it is, or of what is computed."""
        only = measure.value.only
        unit = time_unit(self.arrow)
        match only:
            case Navigation(expr=FieldRef(name=str(name))) if name not in MATCH_COLUMNS:
                return self.arrow.field(name).type
            case RowAggregate(function="array_agg", arguments=(argument,)):
                return pa.list_(self._of(argument))
            case RowAggregate(function=function, arguments=(argument, *_)) if (
                function in _SAME_VALUE
            ):
                return self._of(argument)
            case _:
                kind = infer_value_kind(measure.value, self.plan.columns)
                return arrow_type(kind, unit, self.zone(measure.value))

    def _of(self, expr: Expr) -> pa.DataType:
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

    def of(self, partitions: Partitions, found: Iterable[RowMatches]) -> Iterator[pa.Table]:
        """The rows that matches give."""
        for some in found:
            table = self._of_some(partitions, some)
            if table.num_rows:
                yield table

    def whole(self, partitions: Partitions, found: Iterable[RowMatches]) -> pa.Table:
        tables = list(self.of(partitions, found))
        return pa.concat_tables(tables) if tables else create_empty_table(self.schema)

    def _of_some(self, partitions: Partitions, found: RowMatches) -> pa.Table:
        rows, match, place = list_result_rows(self.plan, found)
        reached = MeasureEvaluator(self.plan, partitions, found, match, place)
        source = partitions.places(rows)
        keys = {key.column for key in self.plan.row_pattern.partition}
        columns = []
        for _, name in self.before:
            column = combine_column(partitions.table, name)
            if name in keys and _is_text(column.type) and len(found) and bool((match >= 0).all()):
                columns.append(_keys(column, partitions, found, match))
            else:
                columns.append(take_values(column, source))
        for measure in self.plan.row_pattern.measures:
            type = self.schema.field(len(columns)).type
            columns.append(reached.arrow(measure.value, type, self.zone(measure.value)))
        columns += [
            take_values(combine_column(partitions.table, name), source) for name in self.behind
        ]
        return pa.table(columns, schema=self.schema)


def _keys(
    column: pa.Array | pa.ChunkedArray, partitions: Partitions, found: RowMatches, match: Ints
) -> pa.Array:
    """The key of each row of a result: of each partition's first match, and repeated from there.

    Texts far apart in memory take long to fetch.
    """
    first = np.ones(len(found), np.bool_)
    first[1:] = found.partitions[1:] != found.partitions[:-1]
    texts = take_values(column, partitions.places(found.starts[first]))
    return take_values(texts, (np.cumsum(first) - 1)[match])


def _is_text(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


def list_result_rows(plan: RowPatternPlan, found: RowMatches) -> tuple[Ints, Ints, Ints | None]:
    """The rows of a result: which row of the partitions each is, of which match (-1: none), and
    the place of its label (-1: none). With one row per match there are no places."""
    wanted = plan.row_pattern.rows
    if wanted is RowsPerMatch.ONE:
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
    if len(empty) and wanted is not RowsPerMatch.ALL_BUT_EMPTY:
        parts.append((found.starts[empty], empty, np.full(len(empty), -1, np.int64)))
    if len(found.unmatched):
        none = np.full(len(found.unmatched), -1, np.int64)
        parts.append((found.unmatched, none, none))
    if len(parts) == 1:
        return parts[0]
    rows, match, place = (np.concatenate(several) for several in zip(*parts, strict=True))
    # by the row that a match begins with; what has no match begins with itself
    begins = np.where(match < 0, rows, found.starts[np.maximum(match, 0)]) if len(found) else rows
    order = np.lexsort((rows, match, begins))
    return rows[order], match[order], place[order]


# ----------------------------------------------------------------------
# Stable names of the rows that a clause gives: a hash of its meaning and of their content.

MATCH_ID = "match_id"
_ROWS, _PLACE, _EMPTY, _UNMATCHED = (np.uint64(salt) for salt in range(1, 5))


class RowMatchIds:
    """The ids of what is found in some partitions: equal however rows were cut into pieces.

    Rows of the same content are told apart by their number among them. A table whose rows may
    have lost some of their equals has these numbers in a column.
    """

    def __init__(self, plan: RowPatternPlan, meaning: str, partitions: Partitions) -> None:
        self._plan = plan
        self._fingerprint = blake2b(meaning.encode(), digest_size=16).digest()
        self._partitions = partitions
        self._columns = [(name, name) for name in plan.columns]

    def of(self, found: RowMatches) -> pa.Array:
        """An id for each row of the result of these matches."""
        rows, match, place = list_result_rows(self._plan, found)
        sizes = np.diff(found.offsets)
        members = np.repeat(found.starts - found.offsets[:-1], sizes) + np.arange(sizes.sum())
        empty = np.flatnonzero(sizes == 0)
        hashed = self._hashes(members, found.starts[empty], found.unmatched)
        high, low = self._begun(len(found))
        hashing.fold_lists(
            as_read_only(found.offsets), as_read_only(members), *hashed, _ROWS, high, low
        )
        if len(empty):
            without = np.full(len(found), -1, np.int64)
            without[empty] = found.starts[empty]
            others = high.copy(), low.copy()
            hashing.fold_rows(as_read_only(without), *hashed, _EMPTY, *others)
            high[empty], low[empty] = others[0][empty], others[1][empty]
        if place is None:
            return format_hashes(high, low)
        mine = self._begun(len(rows))
        matched = match >= 0
        mine[0][matched], mine[1][matched] = high[match[matched]], low[match[matched]]
        within = np.where(matched & (place >= 0), place - found.offsets[np.maximum(match, 0)], -1)
        every = np.arange(len(rows))
        hashing.fold_rows(every, *hash_words(within), _PLACE, *mine)
        if not matched.all():
            alone = as_read_only(np.where(matched, -1, rows))
            others = mine[0].copy(), mine[1].copy()
            hashing.fold_rows(alone, *hashed, _UNMATCHED, *others)
            mine[0][~matched], mine[1][~matched] = others[0][~matched], others[1][~matched]
        return format_hashes(*mine)

    def _begun(self, count: int) -> Pair:
        first, second = compute_salts(self._fingerprint)
        return np.full(count, first), np.full(count, second)

    def _hashes(self, *wanted_rows: Ints) -> Pair:
        """The hashes of some rows, at their places."""
        partitions = self._partitions
        wanted = np.zeros(partitions.rows, np.bool_)
        for rows in wanted_rows:
            wanted[rows] = True
        known = ORDINAL in partitions.table.column_names
        twins = np.zeros(0, np.bool_) if known else find_equal_times(self._ties, wanted)
        chosen = np.flatnonzero(wanted if known else wanted | twins)
        places = partitions.places(chosen)
        some = self._content(places)
        if known:
            alike = np.asarray(to_single_array(partitions.table.column(ORDINAL)))[places]
        else:
            alike = np.zeros(len(chosen), np.int64)
            within = twins[chosen]
            if within.any():
                alike[within] = hashing.number_duplicates(some[0][within], some[1][within])
        _number(some, alike)
        high, low = (np.zeros(partitions.rows, np.uint64) for _ in range(2))
        high[chosen], low[chosen] = some
        return high, low

    def _content(self, places: Ints) -> Pair:
        table = self._partitions.table
        if len(places) < table.num_rows:
            return hash_rows(table, self._columns, places)
        high, low = hash_rows(table, self._columns, np.arange(table.num_rows))
        return high[places], low[places]

    @cached_property
    def _ties(self) -> Ints:
        """A number for each row, the same for those that nothing orders in a partition."""
        partitions = self._partitions
        changes: Bools = np.zeros(partitions.rows, np.bool_)
        begins = partitions.bounds[:-1]
        changes[begins[begins < partitions.rows]] = True
        for by in self._plan.row_pattern.order:
            for key in to_sort_keys(partitions.vector(by.expr), by):
                changes[1:] |= key[1:] != key[:-1]
        return np.cumsum(changes)


def _number(some: Pair, alike: Ints) -> None:
    """Tells rows of the same content apart; the first is what it is."""
    later = alike > 0
    if later.any():
        number = hash_words(alike[later])
        some[0][later] += number[0]
        some[1][later] += number[1]
