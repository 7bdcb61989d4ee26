"""The matches of several queries as DataFrames that come from one pass over the events."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from ensue.engine.state import from_bytes
from ensue.runners.spark.types import spark_schema
from ensue.workload.query_names import Name
from ensue.workload.several_job import LATE_EVENTS, PACKED, SeveralJob

__all__ = ["LATE_EVENTS", "PACKED_COLUMNS", "SeveralMatches", "schemas_of"]

OUTPUT_ROWS = 65_536  # rows of a batch of matches
PACKED_COLUMNS = spark_schema(PACKED)


class SeveralMatches(Mapping[Name, DataFrame]):
    """The matches of each query by name, in the order of the queries.

    All of them are computed by one DataFrame, `packed`: the number of a query and a table of its
    matches as bytes. A query's DataFrame picks its own from there, so asking two of them computes
    the matches of all queries twice, unless `cache` keeps them in between.
    """

    def __init__(
        self,
        schemas: Mapping[Name, pa.Schema],
        packed: DataFrame,
        late: pa.Schema | None = None,
    ) -> None:
        self.schemas = dict(schemas)
        self.packed = packed
        self.late = late  # of the events, where late ones are delivered

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
        return _unpacked(packed, number, self.schemas[name])

    def late_events(self, packed: DataFrame) -> DataFrame:
        """The late events among packed matches."""
        assert self.late is not None
        return _unpacked(packed, LATE_EVENTS, self.late)


def _unpacked(packed: DataFrame, number: int, schema: pa.Schema) -> DataFrame:
    mine = packed.filter(sql.col("query") == number)
    return mine.mapInArrow(Unpack(schema), spark_schema(schema))


@dataclass(frozen=True)
class Unpack:
    """Tables as rows again."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch.column("matches"):
                table = from_bytes(blob.as_py()).cast(self.schema)
                yield from table.to_batches(max_chunksize=OUTPUT_ROWS)


def schemas_of(jobs: Sequence[SeveralJob]) -> dict[Name, pa.Schema]:
    """What each query of some jobs returns, in the order of the call."""
    found = {
        number: (name, bundle.result)
        for job in jobs
        for number, name, bundle in zip(job.numbers, job.names, job.bundles, strict=True)
    }
    return dict(found[number] for number in sorted(found))
