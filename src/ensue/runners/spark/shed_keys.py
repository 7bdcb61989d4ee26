"""What a stream that is behind has given up, listed by key and interval."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from ensue.engine.state import from_bytes
from ensue.errors import EventError
from ensue.runners.spark.matches import SeveralMatches
from ensue.runners.spark.own_archive import delivered
from ensue.runners.spark.sinks import Sink
from ensue.runners.spark.types import spark_schema
from ensue.workload.lanes.packing import SHED
from ensue.workload.lanes.shedding import listed_schema
from ensue.workload.query_names import Name
from ensue.workload.workload import Workload


def delivered_and_listed(
    workload: Workload,
    outputs: SeveralMatches,
    sinks: Mapping[Name, Sink],
    aside: Sink | None,
    losses: Sink,
) -> Callable[[DataFrame, int], None]:
    """Matches are delivered, then the keys that were given up are."""
    unpack = UnpackShed.of(workload)

    def step(batch: DataFrame, number: int) -> None:
        kept = batch.persist()
        try:
            if SHED in delivered(outputs, sinks, aside, kept, number):
                mine = kept.filter(sql.col("query") == SHED)
                losses(mine.mapInArrow(unpack, spark_schema(unpack.schema)), number)
        finally:
            kept.unpersist()

    return step


def require_shed(workload: Workload) -> None:
    """An error if a stream gives up nothing that could be listed."""
    if workload.wishes.planning.limits.shed_ms is None:
        raise EventError(
            "shed_to= lists what is shed, but this stream sheds nothing\n"
            "  hint: ensue.match(..., shed='30 seconds'), or leave out shed_to="
        )


@dataclass(frozen=True)
class UnpackShed:
    """Keys that were given up as rows again; queries may have other columns in their keys."""

    schema: pa.Schema

    @classmethod
    def of(cls, workload: Workload) -> "UnpackShed":
        stages = [stage for chain in workload.chains for stage in chain.stages]
        keys = dict.fromkeys(name for stage in stages for name in stage.reads.key)
        return cls(listed_schema(list(keys), workload.source.shape))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch.column("matches"):
                table = from_bytes(blob.as_py())
                for field in self.schema:
                    if field.name not in table.column_names:
                        table = table.append_column(field, pa.nulls(len(table), field.type))
                yield from table.select(self.schema.names).cast(self.schema).to_batches()
