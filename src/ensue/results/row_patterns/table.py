"""The result of a clause as an Arrow table: its columns, in the order of the standard."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ensue.algebra.check.row_patterns import zone_of_value
from ensue.algebra.check.zones import zone_of
from ensue.algebra.predicate import Expr, Field
from ensue.algebra.row_patterns.recognition import Measure, Rows
from ensue.algebra.row_patterns.values import (
    OF_THE_MATCH,
    Navigation,
    RowAggregate,
    RowValue,
)
from ensue.columns.arrow_kinds import time_unit, zones_of
from ensue.columns.buffers import Ints
from ensue.columns.rows import no_rows, taken, whole_column
from ensue.columns.values import arrow_type
from ensue.computed import cached_property
from ensue.engine.row_patterns.found import Found
from ensue.engine.row_patterns.partitions import Partitions
from ensue.kernels.row_patterns import EXCLUDED
from ensue.plan.row_patterns.kinds import row_kind, value_kind
from ensue.plan.row_patterns.plan import RowPlan
from ensue.results.row_patterns.reached import Reached

_SAME_VALUE = ("min", "max", "max_by", "min_by", "any_value")


@dataclass(frozen=True)
class ResultTable:
    """What comes out of a clause over a table with these columns."""

    plan: RowPlan
    arrow: pa.Schema  # of the table that comes in

    @cached_property
    def before(self) -> tuple[tuple[str, str], ...]:
        """The columns before the measures, and those of the table that they are."""
        recognition = self.plan.recognition
        found = {key.name: key.column or key.name for key in recognition.partition}
        if recognition.rows is not Rows.ONE:
            for by in recognition.order:
                if isinstance(by.expr, Field) and by.expr.name not in found.values():
                    assert by.expr.name is not None
                    found[by.expr.name] = by.expr.name
        return tuple(found.items())

    @cached_property
    def behind(self) -> tuple[str, ...]:
        """The columns of the table behind the measures."""
        if self.plan.recognition.rows is Rows.ONE:
            return ()
        named = {column for _, column in self.before}
        return tuple(name for name in self.plan.columns if name not in named)

    @cached_property
    def schema(self) -> pa.Schema:
        fields = [pa.field(name, self.arrow.field(column).type) for name, column in self.before]
        fields += [pa.field(m.name, self.type_of(m)) for m in self.plan.recognition.measures]
        fields += [pa.field(name, self.arrow.field(name).type) for name in self.behind]
        return pa.schema(fields)

    def type_of(self, measure: Measure) -> pa.DataType:
        """The type of a measure: that of the column it is, or of what is computed."""
        only = measure.value.only
        unit = time_unit(self.arrow)
        match only:
            case Navigation(expr=Field(name=str(name))) if name not in OF_THE_MATCH:
                return self.arrow.field(name).type
            case RowAggregate(function="array_agg", arguments=(argument,)):
                return pa.list_(self._of(argument))
            case RowAggregate(function=function, arguments=(argument, *_)) if (
                function in _SAME_VALUE
            ):
                return self._of(argument)
            case _:
                kind = value_kind(measure.value, self.plan.columns)
                return arrow_type(kind, unit, self.zone(measure.value))

    def _of(self, expr: Expr) -> pa.DataType:
        if isinstance(expr, Field) and expr.name not in OF_THE_MATCH:
            return self.arrow.field(expr.name).type
        return arrow_type(
            row_kind(expr, self.plan.columns),
            time_unit(self.arrow),
            zone_of(expr, lambda field: zones_of(self.arrow).get(field.name or "")),
        )

    def zone(self, value: RowValue) -> str | None:
        """The zone of a computed time."""
        return zone_of_value(value, zones_of(self.arrow))

    def of(self, partitions: Partitions, found: Iterable[Found]) -> Iterator[pa.Table]:
        """The rows that matches give."""
        for some in found:
            table = self._of_some(partitions, some)
            if table.num_rows:
                yield table

    def whole(self, partitions: Partitions, found: Iterable[Found]) -> pa.Table:
        tables = list(self.of(partitions, found))
        return pa.concat_tables(tables) if tables else no_rows(self.schema)

    def _of_some(self, partitions: Partitions, found: Found) -> pa.Table:
        rows, match, place = rows_of(self.plan, found)
        reached = Reached(self.plan, partitions, found, match, place)
        source = partitions.places(rows)
        keys = {key.column for key in self.plan.recognition.partition}
        columns = []
        for _, name in self.before:
            column = whole_column(partitions.table, name)
            if name in keys and _is_text(column.type) and len(found) and bool((match >= 0).all()):
                columns.append(_keys(column, partitions, found, match))
            else:
                columns.append(taken(column, source))
        for measure in self.plan.recognition.measures:
            type = self.schema.field(len(columns)).type
            columns.append(reached.arrow(measure.value, type, self.zone(measure.value)))
        columns += [taken(whole_column(partitions.table, name), source) for name in self.behind]
        return pa.table(columns, schema=self.schema)


def _keys(
    column: pa.Array | pa.ChunkedArray, partitions: Partitions, found: Found, match: Ints
) -> pa.Array:
    """The key of each row of a result: of each partition's first match, and repeated from there.

    Texts far apart in memory take long to fetch.
    """
    first = np.ones(len(found), np.bool_)
    first[1:] = found.partitions[1:] != found.partitions[:-1]
    texts = taken(column, partitions.places(found.starts[first]))
    return taken(texts, (np.cumsum(first) - 1)[match])


def _is_text(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


def rows_of(plan: RowPlan, found: Found) -> tuple[Ints, Ints, Ints | None]:
    """The rows of a result: which row of the partitions each is, of which match (-1: none), and
    the place of its label (-1: none). With one row per match there are no places."""
    wanted = plan.recognition.rows
    if wanted is Rows.ONE:
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
    if len(empty) and wanted is not Rows.ALL_BUT_EMPTY:
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
