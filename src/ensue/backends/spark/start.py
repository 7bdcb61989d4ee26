"""Starts a streaming query that writes matches, late events and shed keys to sinks."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from ensue.backends.spark.arrow_types import spark_schema
from ensue.backends.spark.backfill import ALLOW, REFUSE, Backfill, HistoryOptions, require_no_history
from ensue.backends.spark.checkpoint_files import check_checkpoint, has_commits
from ensue.backends.spark.flush import get_next_batch, remaining
from ensue.backends.spark.match_frames import LATE_COLUMN, SeveralMatches, build_frames, get_single_frame
from ensue.backends.spark.paths import (
    StreamFolder,
    get_local_folder,
    name_folders,
    normalize_path,
    require_readable,
    require_separate,
)
from ensue.backends.spark.sinks import (
    FULL_SCAN_SINKS,
    BatchStep,
    DeltaTable,
    ParquetBatches,
    ParquetTable,
    Sink,
    make_archiving_step,
    make_delivery_by_query,
)
from ensue.backends.spark.spark_errors import get_stream_failure, translate_errors
from ensue.backends.spark.stream import build_packed_stream
from ensue.backends.spark.stream_progress import (
    StreamTotals,
    add_late_event_listener,
    get_progress,
    make_shedding_step,
    require_load_shedding,
)
from ensue.backends.spark.stream_spec import (
    STREAM_SPECS,
    ArchiveSinkOptions,
    OuterQuery,
    PinnedStream,
    get_outer_query,
    get_stream_spec,
    pin_archives,
)
from ensue.errors import EventError
from ensue.runtime.query_spec import Name
from ensue.runtime.tasks.backfill import BEFORE_CUT

Output = str | Path | Sink
ProgressCallback = Callable[[str], None]  # receives the progress of a stream as a line of text
UNNAMED_FOLDER = "matches"  # the folder of an unnamed query


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
    history: Any = None,
    since: Any = None,
    gap: str = REFUSE,
    archive: Any = None,
    archive_rows: int | None = None,
    archive_age: Any = None,
    shed_to: Output | None = None,
    on_progress: ProgressCallback | None = None,
) -> StreamingQuery:
    """Start the query of a streaming DataFrame of matches; with `once`, wait for its end."""
    if flush and not once:
        raise EventError("flush=True needs once=True: only a stream that ends can be flushed")
    if flush:
        _require_stream(matches)
        require_readable(matches.sparkSession, checkpoint)
        around = get_outer_query(matches)
    begun = start_without_waiting(
        matches,
        output,
        checkpoint=checkpoint,
        late=late,
        every=every,
        name=name,
        first=HistoryOptions.from_arguments(history, since, gap),
        archive_options=ArchiveSinkOptions(archive, archive_rows, archive_age),
        shed_to=shed_to,
        once=once,
    )
    if once:
        try:
            wait(begun.query, on_progress=on_progress)
        except KeyboardInterrupt:
            begun.query.stop()
            raise
    if flush:
        flush_stream(begun, around)
    return begun.query


@dataclass(frozen=True)
class StartedStream:
    """A started stream."""

    query: StreamingQuery
    session: SparkSession
    checkpoint: str
    deliver: BatchStep  # writes matches of the stream or of its history
    past: Backfill | None  # the backfill that it started with


def flush_stream(begun: StartedStream, around: OuterQuery) -> None:
    """End the stream: deliver the matches that waited for more events or for time."""
    session, checkpoint = begun.session, begun.checkpoint
    folder = get_local_folder(session, checkpoint)
    if folder is not None and not has_commits(folder):
        if begun.past is None:
            return  # there were no events
        rest, number = begun.past.remaining(), 0
    else:
        rest, number = remaining(session, checkpoint), get_next_batch(session, checkpoint)
    packed = rest.packed if isinstance(rest, SeveralMatches) else around(rest)
    with translate_errors():
        begun.deliver(packed, number)


def start_without_waiting(
    matches: DataFrame | SeveralMatches,
    output: Output | Mapping[Name, Output],
    *,
    checkpoint: str | Path,
    late: Output | None = None,
    every: str | None = None,
    name: str | None = None,
    first: HistoryOptions | None = None,
    archive_options: ArchiveSinkOptions | None = None,
    shed_to: Output | None = None,
    once: bool = False,
) -> StartedStream:
    """Start a stream without waiting for it; `first` is the history that it starts with."""
    _require_stream(matches)
    if once and every is not None:
        raise EventError("once=True and every= cannot be combined")
    has_late_events = (
        matches.late is not None if isinstance(matches, SeveralMatches) else LATE_COLUMN in matches.columns
    )
    if late is not None and not has_late_events:
        raise EventError(
            "late= needs late events, and these matches have none\n"
            '  hint: ensue.match(..., options=ensue.StreamOptions(late_events="deliver"))'
        )
    late_sink = _sink(late, ParquetBatches) if late is not None else None
    if isinstance(matches, SeveralMatches):
        sinks = _sinks(matches, output)
        columns = {name: spark_schema(matches.schemas[name]) for name in sinks}
        deliver, stream = make_delivery_by_query(matches, sinks, late_sink), matches.packed
    elif isinstance(output, Mapping):
        raise EventError("several outputs need several queries\n  hint: ensue.match(events, {name: query, ...})")
    else:
        sink = _sink(output, ParquetTable)
        sinks = {"": sink}
        columns = {"": StructType([f for f in matches.schema if f.name != LATE_COLUMN])}
        deliver, stream = make_delivery(sink, late_sink), matches
    session, checkpoint_path = stream.sparkSession, normalize_path(checkpoint)
    local_checkpoint = get_local_folder(session, checkpoint_path)
    require_separate(_folders(checkpoint_path, local_checkpoint, sinks, late_sink, shed_to))
    if local_checkpoint is not None:
        check_checkpoint(checkpoint_path)
    if first is None:
        require_no_history(local_checkpoint, checkpoint_path)
    for key, sink in sinks.items():
        if isinstance(sink, ParquetTable | DeltaTable):
            if "match_id" not in columns[key].names:
                raise EventError(
                    "this stream has no column match_id, which identifies a match in a table\n"
                    "  hint: start() takes the result of ensue.match; for other streams use "
                    "writeStream"
                )
            sink.fit(session, columns[key])
    archive_options = archive_options or ArchiveSinkOptions()
    past, pin = None, _pin_archives(matches, checkpoint_path, archive_options)
    spec = None if pin is None else pin.spec
    shed_sink = None if shed_to is None else _sink(shed_to, ParquetBatches)
    if shed_sink is not None:
        spec = spec or get_stream_spec(matches, "shed_to=")
        require_load_shedding(spec.workload)
    if first is not None:
        spec = spec or get_stream_spec(matches, "history=")
        with translate_errors("the history cannot be matched: "):
            past = first.build_backfill(spec, checkpoint_path, local_checkpoint)
            if not past.delivered:
                deliver(past.matches(), BEFORE_CUT)
                past.mark_delivered()
    step = deliver  # Spark commits a micro-batch when the step has returned
    if spec is not None:
        gap = first is not None and first.gap == ALLOW
        packed = build_packed_stream(spec, past, gap=gap, shed=shed_sink is not None)
        stream = get_single_frame(build_frames(spec.workload, packed))
        if pin is not None and pin.writer is not None:
            stream, outputs = packed, SeveralMatches.from_packed(spec.workload, packed)
            step = make_archiving_step(outputs, sinks, late_sink, pin.archive, pin.writer)
        elif shed_sink is not None:
            stream, outputs = packed, SeveralMatches.from_packed(spec.workload, packed)
            step = make_shedding_step(spec.workload, outputs, sinks, late_sink, shed_sink)
    writer = stream.writeStream.outputMode("append").foreachBatch(step)
    writer = writer.option("checkpointLocation", checkpoint_path)
    if name is not None:
        writer = writer.queryName(name)
    if once:
        writer = writer.trigger(availableNow=True)
    elif every is not None:
        with translate_errors(f"every={every!r} is not a length of time: "):
            writer = writer.trigger(processingTime=every)
    add_late_event_listener(stream.sparkSession)
    with translate_errors("the stream could not be started: "):
        return StartedStream(writer.start(), session, checkpoint_path, deliver, past)


def _pin_archives(
    matches: DataFrame | SeveralMatches, checkpoint: str, archive_options: ArchiveSinkOptions
) -> PinnedStream | None:
    """Fix the archives of a stream to the versions it started with; None without archives."""
    spec = STREAM_SPECS.get(matches, None)
    if archive_options.archive is not None:
        spec = get_stream_spec(matches, "archive=")
    if spec is None:
        return None
    with translate_errors("the archives of the stream cannot be opened: "):
        pinned_stream = pin_archives(spec, checkpoint, archive_options)
    return pinned_stream if pinned_stream.spec.workload.archive_set.archives else None


def _require_stream(matches: object) -> None:
    if not hasattr(matches, "isStreaming"):
        raise EventError(f"start() takes the result of ensue.match for a stream, not a {type(matches).__name__}")
    if not matches.isStreaming:
        raise EventError(
            "these matches are not a stream\n  hint: write a batch DataFrame with matches.write; start() is for streams"
        )


def _folders(
    checkpoint: str,
    local_checkpoint: Path | None,
    sinks: Mapping[Name, Sink],
    late_sink: Sink | None,
    shed_to: Output | None,
) -> list[StreamFolder]:
    begun = local_checkpoint is not None and (local_checkpoint / "offsets").exists()
    folders = [StreamFolder("checkpoint", checkpoint, stays=begun)]
    for name, sink in sinks.items():
        role = f"output of '{name}'" if len(sinks) > 1 else "output"
        if isinstance(sink, ParquetTable | DeltaTable):
            folders.append(StreamFolder(role, sink.path, table=isinstance(sink, ParquetTable)))
    if isinstance(late_sink, ParquetBatches):
        folders.append(StreamFolder("folder for late events", late_sink.path, table=True))
    if isinstance(shed_to, str | Path):
        folders.append(StreamFolder("folder for what is shed", str(shed_to), table=True))
    return folders


def wait(query: StreamingQuery, seconds: float | None = None, on_progress: ProgressCallback | None = None) -> bool:
    """Wait until a stream ends, or for some seconds; a failed stream raises its error.

    `on_progress` is called every second with the progress as a line of text.
    """
    with translate_errors():
        if on_progress is not None:
            return _wait_with_progress(query, seconds, on_progress)
        if seconds is None:
            query.awaitTermination()
            return True
        if seconds <= 0:
            error = get_stream_failure(query)
            if error is not None:
                raise error
            return not query.isActive
        return bool(query.awaitTermination(max(1, math.ceil(seconds))))


def _wait_with_progress(query: StreamingQuery, seconds: float | None, on_progress: ProgressCallback) -> bool:
    totals = StreamTotals()
    until = math.inf if seconds is None else time.monotonic() + seconds
    while True:
        ended = bool(query.awaitTermination(1))
        totals.add(get_progress(query))
        on_progress(totals.line)
        if ended or time.monotonic() >= until:
            return ended


def _sink(output: object, folder: Callable[[str], Sink]) -> Sink:
    """Return a sink; `folder` makes one of a path."""
    if isinstance(output, str | Path):
        return folder(str(output))
    if not callable(output):
        raise EventError(
            f"an output must be a folder, a table, a topic or a function, not {output!r}\n"
            "  hint: ensue.parquet_table, ensue.delta_table, ensue.kafka_topic, or "
            "def write(matches, batch): ..."
        )
    return output


def make_delivery(sink: Sink, aside: Sink | None) -> BatchStep:
    """Make the function that writes a micro-batch to its sink, and late events to `aside`."""

    def deliver(batch: DataFrame, number: int) -> None:
        if LATE_COLUMN not in batch.columns and isinstance(sink, FULL_SCAN_SINKS):
            sink(batch, number)
            return
        cached = batch.persist()
        try:
            cached.count()  # a user's sink may read only a part, but every task has to advance
            if LATE_COLUMN in batch.columns:
                is_match = sql.col(LATE_COLUMN).isNull()
                sink(cached.filter(is_match).drop(LATE_COLUMN), number)
                if aside is not None:
                    aside(cached.filter(~is_match).select(f"{LATE_COLUMN}.*"), number)
            else:
                sink(cached, number)
        finally:
            cached.unpersist()

    return deliver


def _sinks(matches: SeveralMatches, output: Output | Mapping[Name, Output]) -> dict[Name, Sink]:
    if isinstance(output, str | Path):
        root, folders = str(output).rstrip("/"), name_folders(matches, UNNAMED_FOLDER)
        output = {name: f"{root}/{folder}" for name, folder in folders.items()}
    if not isinstance(output, Mapping):
        raise EventError(
            "several queries need several outputs\n"
            "  hint: pass a dict with an output for each query, or a folder for all of them"
        )
    missing = [str(name) for name in matches if name not in output]
    unknown = [str(name) for name in output if name not in matches]
    if missing or unknown:
        raise EventError(
            f"no output for query '{missing[0]}'" if missing else f"there is no query '{unknown[0]}' for this output"
        )
    return {name: _sink(target, ParquetTable) for name, target in output.items()}
