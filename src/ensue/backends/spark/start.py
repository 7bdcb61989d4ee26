"""Starts a streaming query that writes matches, late events and shed keys to sinks."""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from ensue.backends.spark.archive_pins import get_own_archive, pin_archives
from ensue.backends.spark.backfill import Backfill, build_backfill, require_no_history
from ensue.backends.spark.flush import get_next_batch, has_state, remaining
from ensue.backends.spark.frames import spark_schema
from ensue.backends.spark.match_frames import (
    LATE_COLUMN,
    SeveralMatches,
    build_frames,
    get_outer_query,
    get_single_frame,
)
from ensue.backends.spark.sinks import (
    FULL_SCAN_SINKS,
    BatchStep,
    DeltaTable,
    ParquetBatches,
    ParquetTable,
    Sink,
    make_archive_commit,
    make_delivery_by_query,
)
from ensue.backends.spark.spark_errors import get_stream_failure, translate_errors
from ensue.backends.spark.stream import STREAM_PLANS, get_stream_plan
from ensue.backends.spark.stream_folders import (
    StreamFolder,
    check_checkpoint,
    get_local_folder,
    name_folders,
    normalize_path,
    require_readable,
    require_separate,
)
from ensue.backends.spark.stream_progress import (
    BatchProgress,
    StreamTotals,
    add_late_event_listener,
    get_progress,
    make_shed_delivery,
    require_load_shedding,
)
from ensue.brief_tracebacks import shorten_class_tracebacks
from ensue.errors import EnsueError, EventError
from ensue.options import ALLOW, ArchiveWriter, History
from ensue.progress_bars import ProgressDisplay, find_display
from ensue.runtime.query_spec import Name
from ensue.runtime.tasks.backfill import BEFORE_CUT
from ensue.runtime.tasks.wire_format import Control

Output = str | Path | Sink
UNNAMED_FOLDER = "matches"  # the folder of an unnamed query


@shorten_class_tracebacks
@dataclass(frozen=True, eq=False, repr=False)
class RunningStream:
    """A stream that `ensue.start` has started; a `with` statement stops it at its end."""

    query: StreamingQuery  # Spark's own
    matches: DataFrame | SeveralMatches
    checkpoint: str
    deliver: BatchStep  # writes matches of the stream or of its history
    past: Backfill | None  # the backfill that it started with

    def wait(self, seconds: float | None = None, *, progress: bool = False) -> bool:
        """Wait until the stream has ended, at most `seconds`; return whether it has ended.

        A failed stream raises its error with a short reason, so `wait(0)` is a health check: False
        while the stream runs. With `progress=True` a terminal or a notebook shows the number of
        micro-batches, events and matches in one line.
        """
        with translate_errors(), find_display() if progress else nullcontext() as display:
            if display is not None:
                return self._wait_with_progress(seconds, display)
            if seconds is None:
                self.query.awaitTermination()
                return True
            if seconds <= 0:
                if (error := self.exception) is not None:
                    raise error
                return not self.is_active
            return bool(self.query.awaitTermination(max(1, math.ceil(seconds))))

    def _wait_with_progress(self, seconds: float | None, display: ProgressDisplay) -> bool:
        totals = StreamTotals()
        until = math.inf if seconds is None else time.monotonic() + seconds
        while True:
            ended = bool(self.query.awaitTermination(1))
            totals.add(self.progress())
            display.show(totals.line)
            if ended or time.monotonic() >= until:
                return ended

    def progress(self) -> list[BatchProgress]:
        """Return the figures of the last micro-batches (Spark keeps 100), the newest last."""
        return get_progress(self.query)

    def stop(self) -> None:
        """Stop now, as Spark's StreamingQuery.stop does: a micro-batch that is under way is given up.

        The next start from the checkpoint processes it again.
        """
        self.query.stop()

    def finish(self, *, flush: bool = False) -> None:
        """Process all events that are available, with Spark's processAllAvailable, then stop.

        Matches that these events decide are delivered. Those that still wait for events or time,
        such as a negation at the end, are not: they stay in the checkpoint for the next start, and
        `ensue.remaining` shows them. With `flush=True` the stream is treated as ended, as by
        `ensue.start(..., flush=True)`, and they are delivered too.

        This waits for the next micro-batch of `every=`, and for as long as new events keep coming. A
        failed stream raises its error.
        """
        if flush:
            require_readable(self.matches.sparkSession, self.checkpoint)
            get_outer_query(self.matches)
        with translate_errors():
            self.query.processAllAvailable()
        self.stop()
        if flush:
            flush_stream(self)

    @property
    def is_active(self) -> bool:
        """Whether it runs: it has not ended, failed or been stopped."""
        return self.query.isActive

    @property
    def exception(self) -> EnsueError | None:
        """The error of a failed stream, which `wait` raises."""
        return get_stream_failure(self.query)

    @property
    def name(self) -> str | None:
        """The `name=` of `ensue.start`."""
        return self.query.name

    @property
    def id(self) -> str:
        """Spark's id of the stream, which stays the same with its checkpoint."""
        return self.query.id

    def __enter__(self) -> "RunningStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "running" if self.is_active else "ended" if self.exception is None else "failed"
        return f"<ensue.RunningStream {self.name or self.id}: {state}>"


def wait_to_end(running: RunningStream, *, flush: bool = False, progress: bool = False) -> None:
    """Wait for the end of a stream of existing events, and stop it if the wait is interrupted."""
    try:
        running.wait(progress=progress)
    except KeyboardInterrupt:
        running.stop()
        raise
    if flush:
        flush_stream(running)


def flush_stream(begun: RunningStream) -> DataFrame | SeveralMatches | None:
    """End the stream: deliver the matches that waited for more events or for time, and return them."""
    session, checkpoint = begun.matches.sparkSession, begun.checkpoint
    if has_state(session, checkpoint):
        rest, number = remaining(session, checkpoint), get_next_batch(session, checkpoint)
    elif begun.past is None:
        return None  # there were no events
    else:
        rest, number = begun.past.remaining(), 0
    packed = rest.packed if isinstance(rest, SeveralMatches) else get_outer_query(begun.matches)(rest)
    with translate_errors():
        begun.deliver(packed, number)
    return rest


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
    archive: Any = None,
    shed_to: Output | None = None,
) -> RunningStream:
    """Start the query of a streaming DataFrame of matches, without waiting for it."""
    if flush and not once:
        raise EventError("flush=True needs once=True: only a stream that ends can be flushed")
    _require_stream(matches)
    if flush:
        require_readable(matches.sparkSession, checkpoint)
        get_outer_query(matches)
    first = history if history is None or isinstance(history, History) else History(history)
    writing = archive if archive is None or isinstance(archive, ArchiveWriter) else ArchiveWriter(archive)
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
    begun = STREAM_PLANS.get(matches, None)
    plan, writer_name = begun, None
    shed_sink = None if shed_to is None else _sink(shed_to, ParquetBatches)
    if writing is not None:
        plan = get_stream_plan(matches, "archive=")
    if plan is not None:
        with translate_errors("the archives of the stream cannot be opened: "):
            workload, writer_name = pin_archives(session, plan.workload, checkpoint_path, writing)
        if workload.archive_set.archives:
            plan = replace(plan, workload=workload)
    if shed_sink is not None:
        require_load_shedding(get_stream_plan(matches, "shed_to=").workload)
    past = None
    if first is not None:
        plan = plan or get_stream_plan(matches, "history=")
        with translate_errors("the history cannot be matched: "):
            past = build_backfill(first, plan, checkpoint_path)
            if not past.delivered:
                deliver(past.matches(), BEFORE_CUT)
                past.mark_delivered()
        plan = replace(plan, past=past, gap=first.gap == ALLOW)
    step = deliver  # Spark commits a micro-batch when the step has returned
    if plan is not None and plan is not begun:
        stream = get_single_frame(build_frames(plan.workload, plan.packed))
    further: dict[Control, BatchStep] = {}
    if plan is not None and writer_name is not None:
        further[Control.ARCHIVED] = make_archive_commit(get_own_archive(plan.workload), writer_name)
    if plan is not None and shed_sink is not None:
        further[Control.SHED] = make_shed_delivery(plan.workload, shed_sink)
    if plan is not None and further:
        stream, outputs = plan.packed, SeveralMatches.from_packed(plan.workload, plan.packed)
        step = make_delivery_by_query(outputs, sinks, late_sink, further)
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
        return RunningStream(writer.start(), matches, checkpoint_path, deliver, past)


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


def _sink(output: object, folder: Callable[[str], Sink]) -> Sink:
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
