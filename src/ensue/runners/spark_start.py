"""Starting a stream: matches to a sink, late events to another, by one query."""

from collections.abc import Callable, Iterable, Mapping
from os.path import normpath
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from ensue.errors import EventError
from ensue.runners.folders import folders
from ensue.runners.named import Name
from ensue.runners.spark_finish import next_batch, remaining
from ensue.runners.spark_matches import LATE_EVENTS, SeveralMatches
from ensue.runners.spark_paths import place, require_readable
from ensue.runners.spark_sinks import (
    THOROUGH,
    DeltaTable,
    ParquetBatches,
    ParquetTable,
    Sink,
)
from ensue.runners.stream_job import LATE

Output = str | Path | Sink
TOP = "matches"  # the folder of a query on top that has no name


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
    session, where = stream.sparkSession, place(checkpoint)
    _require_apart(output, late, where)
    if flush:
        require_readable(session, where)
    writer = stream.writeStream.outputMode("append").foreachBatch(deliver)
    writer = writer.option("checkpointLocation", where)
    if name is not None:
        writer = writer.queryName(name)
    if once:
        writer = writer.trigger(availableNow=True)
    elif every is not None:
        writer = writer.trigger(processingTime=every)
    query = writer.start()
    if flush:
        query.awaitTermination()
        left = remaining(session, where)
        left = left.packed if isinstance(left, SeveralMatches) else left
        deliver(left, next_batch(session, where))
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


def under(output: str | Path, names: Iterable[Name], top: str = TOP) -> dict[Name, str]:
    """The folder of each query or level in that of all of them."""
    whole = str(output).rstrip("/")
    return {name: f"{whole}/{folder}" for name, folder in folders(names, top).items()}


def _require_apart(
    output: Output | Mapping[Name, Output], late: Output | None, checkpoint: str
) -> None:
    """Raises EventError where two things would be written to one folder."""
    ends: dict[str, Output] = (
        {f"query '{name}'": one for name, one in output.items()}
        if isinstance(output, Mapping)
        else {"matches": output}
    )
    taken = {"checkpoint": normpath(checkpoint)}
    for what, end in (*ends.items(), ("late events", late)):
        match end:
            case str() | Path():
                path = str(end)
            case ParquetTable(path) | ParquetBatches(path) | DeltaTable(path):
                pass
            case _:
                continue
        for other, known in taken.items():
            if known == normpath(path):
                raise EventError(
                    f"{other} and {what} have the same folder: {path}\n"
                    "  hint: give each a folder of its own"
                )
        taken[what] = normpath(path)


def _sinks(matches: SeveralMatches, output: Output | Mapping[Name, Output]) -> dict[Name, Sink]:
    if isinstance(output, str | Path):
        output = under(output, matches)
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
