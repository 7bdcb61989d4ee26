"""Starting a stream: matches to a sink, late events to another, by one query."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from ensue.errors import EventError
from ensue.runners.spark_finish import next_batch, remaining
from ensue.runners.spark_sinks import THOROUGH, ParquetBatches, ParquetTable, Sink
from ensue.runners.stream_job import LATE

Output = str | Path | Sink


def start(
    matches: DataFrame,
    output: Output,
    *,
    checkpoint: str | Path,
    late: Output | None = None,
    every: str | None = None,
    once: bool = False,
    flush: bool = False,
    name: str | None = None,
) -> StreamingQuery:
    """Starts the query behind a streaming DataFrame of matches."""
    if not matches.isStreaming:
        raise EventError(
            "these matches are not a stream\n"
            "  hint: a batch DataFrame is written with matches.write; start() is for streams"
        )
    if flush and not once:
        raise EventError("flush=True goes with once=True: only a stream that ends can be flushed")
    if once and every is not None:
        raise EventError("once=True and every= exclude each other")
    if late is not None and LATE not in matches.columns:
        raise EventError(
            "late= wants late events, and these matches have none\n"
            '  hint: ensue.match(..., late_events="deliver")'
        )
    deliver = delivery(output, late)
    writer = matches.writeStream.outputMode("append").foreachBatch(deliver)
    writer = writer.option("checkpointLocation", str(checkpoint))
    if name is not None:
        writer = writer.queryName(name)
    if once:
        writer = writer.trigger(availableNow=True)
    elif every is not None:
        writer = writer.trigger(processingTime=every)
    query = writer.start()
    if flush:
        query.awaitTermination()
        session, place = matches.sparkSession, str(checkpoint)
        deliver(remaining(session, place), next_batch(session, place))
    return query


def delivery(output: Output, late: Output | None) -> Callable[[DataFrame, int], None]:
    """What is done with a micro-batch."""
    sink = ParquetTable(str(output)) if isinstance(output, (str, Path)) else output
    aside = ParquetBatches(str(late)) if isinstance(late, (str, Path)) else late

    def deliver(batch: DataFrame, number: int) -> None:
        if LATE not in batch.columns and isinstance(sink, THOROUGH):
            sink(batch, number)
            return
        kept = batch.persist()
        try:
            kept.count()  # a function may ask for a part, but every lane has to move on
            if LATE in batch.columns:
                found, behind = split(kept)
                sink(found, number)
                if aside is not None:
                    aside(behind, number)
            else:
                sink(kept, number)
        finally:
            kept.unpersist()

    return deliver


def split(batch: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The matches of a micro-batch, and its late events with their own columns."""
    found = batch.filter(sql.col(LATE).isNull()).drop(LATE)
    behind = batch.filter(sql.col(LATE).isNotNull()).select(f"{LATE}.*")
    return found, behind
