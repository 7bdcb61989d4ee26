"""The matches of a workload as DataFrames that come from one pass over the events."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from ensue.engine.state import from_bytes
from ensue.results.whole_results import Finished
from ensue.runners.spark.python_workers import freeze_loaded_code
from ensue.runners.spark.types import spark_schema
from ensue.runners.spark.whole_results import finished_frame
from ensue.workload.lanes.packing import LATE_EVENTS
from ensue.workload.query_names import Name
from ensue.workload.workload import Workload

OUTPUT_ROWS = 65_536  # rows of a batch of matches
LATE = "late_event"  # the column of late events beside the only output
Frames = Mapping[Name, DataFrame]


class SeveralMatches(Mapping[Name, DataFrame]):
    """The matches of each output by name, in the order of the queries.

    All of them are computed by one DataFrame, `packed`: the number of an output and a table of its
    matches as bytes. An output's DataFrame picks its own from there, so asking two of them
    computes the matches of all queries twice, unless `cache` keeps them in between.
    """

    def __init__(
        self,
        schemas: Mapping[Name, pa.Schema],
        packed: DataFrame,
        late: pa.Schema | None = None,
        finished: Mapping[Name, Finished] | None = None,
    ) -> None:
        self.schemas = dict(schemas)
        self.finished = dict(finished or {})  # what is done with all matches of a query
        self.packed = packed
        self.late = late  # of the events, where late ones are delivered

    @classmethod
    def of(cls, workload: Workload, packed: DataFrame) -> "SeveralMatches":
        """The outputs of a workload among packed tables."""
        late = workload.source.came if workload.deliver_late else None
        schemas = {output.name: output.schema for output in workload.outputs}
        last = {o.name: done for o in workload.outputs if (done := o.finished) is not None}
        return cls(schemas, packed, late, last)

    def __getitem__(self, name: Name) -> DataFrame:
        return self.unpacked(self.packed, name)

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
        """Keeps what is computed, so that each query's DataFrame only reads its part."""
        self.packed = self.packed.cache()
        return self

    def unpersist(self) -> "SeveralMatches":
        """Lets go what `cache` kept."""
        self.packed = self.packed.unpersist()
        return self

    def unpacked(self, packed: DataFrame, name: Name) -> DataFrame:
        """The matches of one query out of packed ones."""
        if name not in self.schemas:
            raise KeyError(name)
        number = list(self.schemas).index(name)
        found = _unpacked(packed, number, self.schemas[name])
        last = self.finished.get(name)
        return found if last is None else finished_frame(found, last)

    def late_events(self, packed: DataFrame) -> DataFrame:
        """The late events among packed matches."""
        assert self.late is not None
        return _unpacked(packed, LATE_EVENTS, self.late)


def frames_of(workload: Workload, packed: DataFrame) -> Frames:
    """The outputs among packed tables; the only one of a query on its own has late events beside
    its matches."""
    if workload.alone and len(workload.outputs) == 1:
        unpack = UnpackOnly.of(workload)
        return {workload.outputs[0].name: packed.mapInArrow(unpack, spark_schema(unpack.result))}
    return SeveralMatches.of(workload, packed)


def only_frame(frames: Frames) -> DataFrame:
    """All that comes from one pass over the events: packed, or the rows of the only output."""
    return frames.packed if isinstance(frames, SeveralMatches) else next(iter(frames.values()))


def _unpacked(packed: DataFrame, number: int, schema: pa.Schema) -> DataFrame:
    mine = packed.filter(sql.col("query") == number)
    return mine.mapInArrow(Unpack(schema), spark_schema(schema))


@dataclass(frozen=True)
class Unpack:
    """Tables of one output as rows again."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch.column("matches"):
                table = from_bytes(blob.as_py()).cast(self.schema)
                yield from table.to_batches(max_chunksize=OUTPUT_ROWS)
        freeze_loaded_code()


@dataclass(frozen=True)
class UnpackOnly:
    """The matches of the only output as rows again, late events beside them if there are some."""

    matches: pa.Schema
    events: pa.Schema | None  # None: late ones are not delivered

    @classmethod
    def of(cls, workload: Workload) -> "UnpackOnly":
        events = workload.source.came if workload.deliver_late else None
        return cls(workload.outputs[0].schema, events)

    @property
    def result(self) -> pa.Schema:
        if self.events is None:
            return self.matches
        return self.matches.append(pa.field(LATE, pa.struct(list(self.events))))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                table = self._rows(from_bytes(row["matches"]), late=row["query"] == LATE_EVENTS)
                yield from table.to_batches(max_chunksize=OUTPUT_ROWS)
        freeze_loaded_code()

    def _rows(self, table: pa.Table, *, late: bool) -> pa.Table:
        if self.events is None:
            return table.cast(self.matches)
        event = pa.struct(list(self.events))
        if not late:
            return table.cast(self.matches).append_column(LATE, pa.nulls(len(table), event))
        absent = [pa.nulls(len(table), field.type) for field in self.matches]
        events = table.cast(self.events).to_batches()
        behind = pa.chunked_array([batch.to_struct_array() for batch in events], event)
        return pa.table([*absent, behind], schema=self.result)
