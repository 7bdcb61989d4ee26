"""The matches of a workload as DataFrames, computed in one pass over the events."""

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import DoubleType, FloatType

from ensue.analyzer.output_mode import ResultSortKey
from ensue.backends.spark.frames import get_column, spark_schema
from ensue.backends.spark.session import freeze_loaded_code
from ensue.engine.state_format import deserialize_table
from ensue.errors import EventError
from ensue.projection.grouping import ResultFinisher
from ensue.runtime.query_spec import Name
from ensue.runtime.tasks.wire_format import Control
from ensue.runtime.workload import Workload
from ensue.vector.take import create_empty_table


def build_result_frame(matches: DataFrame, finished: ResultFinisher) -> DataFrame:
    """Apply GROUP BY, ORDER BY and FIRST to the matches, lazily."""
    finishing = finished.finishing
    if finishing.whole.grouped:
        # numbered, since Spark reads a dot in a name as a field access
        numbered = matches.toDF(*(f"c{number}" for number in range(len(matches.columns))))
        places = [finished.matches.get_field_index(key.source) for key in finishing.keys]
        keys = [_equal(numbered, f"c{place}") for place in places]
        shuffled = numbered.repartition(*keys) if keys else numbered.repartition(1)
        rows = shuffled.mapInArrow(GroupMatches(finished), spark_schema(finished.rows))
    else:
        rows = matches
    if finishing.order or finishing.whole.first is not None:
        order = [_build_sort_column(key) for key in finishing.order]
        rows = rows.orderBy(*order, *(get_column(name) for name in finished.times))
    if finishing.whole.first is not None:
        rows = rows.limit(finishing.whole.first)
    shown = finished.shown
    return rows.select(*(get_column(shown[name]).alias(name) for name in shown))


def _equal(matches: DataFrame, name: str) -> Column:
    """Return a key column in which -0.0 equals 0.0, as in groups."""
    column = sql.col(name)
    kind = matches.schema[name].dataType
    return column + sql.lit(0.0) if isinstance(kind, DoubleType | FloatType) else column


def _build_sort_column(key: ResultSortKey) -> Column:
    column = get_column(key.source)
    if key.descending:
        return column.desc_nulls_first() if key.nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if key.nulls_first else column.asc_nulls_last()


@dataclass(frozen=True)
class GroupMatches:
    """Groups the matches of a task, which has all matches of its keys."""

    finished: ResultFinisher

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self.finished.matches
        tables = [
            pa.Table.from_batches([batch]).rename_columns(schema.names).cast(schema)
            for batch in batches
            if batch.num_rows
        ]
        groups = self.finished.group(pa.concat_tables([create_empty_table(schema), *tables]))
        yield from groups.cast(self.finished.rows).to_batches()


OUTPUT_ROWS = 65_536  # rows of a batch of matches
LATE_COLUMN = "late_event"  # the column of late events beside the only output
Frames = Mapping[Name, DataFrame]


class SeveralMatches(Mapping[Name, DataFrame]):
    """A DataFrame of matches for each output, by name, in the order of the queries.

    One DataFrame, `packed`, computes all of them: rows of an output number and a table of matches
    as bytes, and of a stream also control messages. The DataFrame of an output filters it, so
    collecting two of them computes all queries twice, unless they are cached with `cache`.
    """

    def __init__(
        self,
        schemas: Mapping[Name, pa.Schema],
        packed: DataFrame,
        late: pa.Schema | None = None,
        finished: Mapping[Name, ResultFinisher] | None = None,
    ) -> None:
        self.schemas = dict(schemas)
        self.finished = dict(finished or {})  # aggregation and order of all matches
        self.packed = packed
        self.late = late  # schema of late events, if they are delivered

    @classmethod
    def from_packed(cls, workload: Workload, packed: DataFrame) -> "SeveralMatches":
        """Return the outputs of a workload in packed tables."""
        late = workload.source.came if workload.deliver_late else None
        schemas = {output.name: output.schema for output in workload.outputs}
        finished = {o.name: done for o in workload.outputs if (done := o.finished) is not None}
        return cls(schemas, packed, late, finished)

    def __getitem__(self, name: Name) -> DataFrame:
        return self.unpack(self.packed, name)

    def __iter__(self) -> Iterator[Name]:
        return iter(self.schemas)

    def __len__(self) -> int:
        return len(self.schemas)

    def __repr__(self) -> str:
        return f"SeveralMatches({', '.join(map(str, self))})"

    @property
    def isStreaming(self) -> bool:  # noqa: N802  as DataFrames have it
        return self.packed.isStreaming

    @property
    def sparkSession(self) -> SparkSession:  # noqa: N802
        return self.packed.sparkSession

    def cache(self) -> "SeveralMatches":
        """Cache the matches of all queries."""
        self.packed = self.packed.cache()
        return self

    def unpersist(self) -> "SeveralMatches":
        """Release the cache."""
        self.packed = self.packed.unpersist()
        return self

    def unpack(self, packed: DataFrame, name: Name) -> DataFrame:
        if name not in self.schemas:
            raise KeyError(name)
        number = list(self.schemas).index(name)
        matches = _unpack(packed.filter(sql.col("query") == number), self.schemas[name])
        finished = self.finished.get(name)
        return matches if finished is None else build_result_frame(matches, finished)

    def late_events(self, packed: DataFrame) -> DataFrame:
        assert self.late is not None
        return _unpack(packed.filter(sql.col("control") == str(Control.LATE)), self.late)


def build_frames(workload: Workload, packed: DataFrame) -> Frames:
    """Return the outputs in packed tables; a single output has late events beside its matches."""
    if workload.is_single and len(workload.outputs) == 1:
        (output,) = workload.outputs
        unpack = UnpackMatches(output.schema, workload.source.came if workload.deliver_late else None)
        delivered = packed.filter(sql.col("query").isNotNull() | (sql.col("control") == str(Control.LATE)))
        return {output.name: delivered.mapInArrow(unpack, spark_schema(unpack.result))}
    return SeveralMatches.from_packed(workload, packed)


def get_single_frame(frames: Frames) -> DataFrame:
    """Return the DataFrame of a whole pass: packed, or the rows of the single output."""
    return frames.packed if isinstance(frames, SeveralMatches) else next(iter(frames.values()))


def _unpack(packed: DataFrame, schema: pa.Schema) -> DataFrame:
    return packed.mapInArrow(UnpackMatches(schema), spark_schema(schema))


@dataclass(frozen=True)
class UnpackMatches:
    """Unpacks the tables of one output to rows, with a column for late events if delivered."""

    matches: pa.Schema
    events: pa.Schema | None = None

    @property
    def result(self) -> pa.Schema:
        if self.events is None:
            return self.matches
        return self.matches.append(pa.field(LATE_COLUMN, pa.struct(list(self.events))))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                table = self._rows(deserialize_table(row["matches"]), late=row["control"] == Control.LATE)
                yield from table.to_batches(max_chunksize=OUTPUT_ROWS)
        freeze_loaded_code()

    def _rows(self, table: pa.Table, *, late: bool) -> pa.Table:
        if self.events is None:
            return table.cast(self.matches)
        event = pa.struct(list(self.events))
        if not late:
            return table.cast(self.matches).append_column(LATE_COLUMN, pa.nulls(len(table), event))
        absent = [pa.nulls(len(table), field.type) for field in self.matches]
        events = table.cast(self.events).to_batches()
        late_events = pa.chunked_array([batch.to_struct_array() for batch in events], event)
        return pa.table([*absent, late_events], schema=self.result)


# ------------------------------------------------------------------------- what is known of the results

OuterQuery = Callable[[DataFrame], DataFrame]
T = TypeVar("T")


class FrameRegistry(Generic[T]):
    """Attaches values to DataFrames and mappings of them for their lifetime.

    Keys are compared by identity: mappings have no hash, and == of DataFrames compares columns.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], T]] = {}

    def put(self, frames: object, value: T) -> None:
        number = id(frames)
        self._known[number] = weakref.ref(frames, lambda _: self._known.pop(number, None)), value

    def get(self, frames: object, default: T) -> T:
        reference, value = self._known.get(id(frames), (None, default))
        return default if reference is None or reference() is not frames else value


OUTER_QUERIES = FrameRegistry[OuterQuery | None]()  # None: several streaming clauses


def get_outer_query(frame: object) -> OuterQuery:
    """Return the outer SQL query over the matches; by default the identity."""
    around = OUTER_QUERIES.get(frame, lambda matches: matches)
    if around is None:
        raise EventError(
            "flush=True needs a query with one MATCH_RECOGNIZE over one stream: the remaining "
            "matches of several clauses cannot be joined\n"
            "  hint: leave flush=True out, or start a stream for each clause"
        )
    return around
