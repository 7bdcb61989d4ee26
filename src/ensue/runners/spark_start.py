"""Starting a stream: matches to a sink, late events to another, by one query."""

from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from ensue.errors import EventError
from ensue.runners.named import Name
from ensue.runners.spark_concerns import listen
from ensue.runners.spark_finish import next_batch, remaining
from ensue.runners.spark_matches import LATE_EVENTS, SeveralMatches
from ensue.runners.spark_sinks import THOROUGH, ParquetBatches, ParquetTable, Sink
from ensue.runners.stream_job import LATE

Output = str | Path | Sink


def start(
    matches: DataFrame | SeveralMatches,
    output: Output | Mapping[Name, Output],
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
    if late is not None and not _with_late_events(matches):
        raise EventError(
            "late= wants late events, and these matches have none\n"
            '  hint: ensue.match(..., late_events="deliver")'
        )
    if isinstance(matches, SeveralMatches):
        deliver, stream = several_delivery(matches, output, late), matches.packed
    elif isinstance(output, Mapping):
        raise EventError(
            "several outputs go with several queries\n"
            "  hint: ensue.match(events, {name: query, ...})"
        )
    else:
        deliver, stream = delivery(output, late), matches
    writer = stream.writeStream.outputMode("append").foreachBatch(deliver)
    writer = writer.option("checkpointLocation", str(checkpoint))
    if name is not None:
        writer = writer.queryName(name)
    if once:
        writer = writer.trigger(availableNow=True)
    elif every is not None:
        writer = writer.trigger(processingTime=every)
    listen(stream.sparkSession)
    query = writer.start()
    if flush:
        query.awaitTermination()
        session, place = stream.sparkSession, str(checkpoint)
        left = remaining(session, place)
        left = left.packed if isinstance(left, SeveralMatches) else left
        deliver(left, next_batch(session, place))
    return query


def _with_late_events(matches: DataFrame | SeveralMatches) -> bool:
    if isinstance(matches, SeveralMatches):
        return matches.late is not None
    return LATE in matches.columns


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


def several_delivery(
    matches: SeveralMatches, output: Output | Mapping[Name, Output], late: Output | None
) -> Callable[[DataFrame, int], None]:
    """What is done with a micro-batch of several queries: each query's matches to its own sink.

    A sink is called with the micro-batches that have matches for it.
    """
    sinks = _sinks(matches, output)
    aside = ParquetBatches(str(late)) if isinstance(late, (str, Path)) else late

    def deliver(batch: DataFrame, number: int) -> None:
        kept = batch.persist()
        try:
            # all rows are asked for, so that every lane moves on
            present = sorted(row[0] for row in kept.select("query").distinct().collect())
            for query in present:
                if query == LATE_EVENTS:
                    if aside is not None:
                        aside(matches.late_events(kept), number)
                else:
                    name = list(matches)[query]
                    sinks[name](matches.unpacked(kept, name), number)
        finally:
            kept.unpersist()

    return deliver


def _sinks(matches: SeveralMatches, output: Output | Mapping[Name, Output]) -> dict[Name, Sink]:
    if isinstance(output, str | Path):
        bad = [name for name in matches if isinstance(name, str) and {"/", "\\"} & set(name)]
        if bad:
            raise EventError(f"query '{bad[0]}': its name cannot be that of a folder")
        output = {name: Path(output) / (str(name) or "matches") for name in matches}
    if not isinstance(output, Mapping):
        raise EventError(
            "several queries have several outputs\n"
            "  hint: pass a dict of one output by query, or a folder for all of them"
        )
    missing = [str(name) for name in matches if name not in output]
    unknown = [str(name) for name in output if name not in matches]
    if missing or unknown:
        raise EventError(
            f"no output for query '{missing[0]}'"
            if missing
            else f"no query '{unknown[0]}' has matches for this output"
        )
    return {
        name: ParquetTable(str(one)) if isinstance(one, str | Path) else one
        for name, one in output.items()
    }
