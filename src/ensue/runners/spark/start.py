"""Starting a stream: matches to a sink, late events to another, by one query."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from ensue.errors import EventError
from ensue.runners.spark.apart import Folder, require_apart
from ensue.runners.spark.backfill import Past
from ensue.runners.spark.checkpoint_files import has_begun, require_sound
from ensue.runners.spark.concerns import listen
from ensue.runners.spark.failure import failed, own_errors
from ensue.runners.spark.finish import next_batch, remaining
from ensue.runners.spark.folders import folders
from ensue.runners.spark.history import ALLOW, REFUSE, History, require_no_history
from ensue.runners.spark.matches import LATE, SeveralMatches, frames_of, only_frame
from ensue.runners.spark.own_archive import delivered_and_archived
from ensue.runners.spark.paths import place, require_readable
from ensue.runners.spark.pins import Pinned, Wanted, pinned
from ensue.runners.spark.places import seen_from_here
from ensue.runners.spark.progress import progress_of
from ensue.runners.spark.recipes import Around, around_of, known_recipe, recipe_of
from ensue.runners.spark.shed_keys import delivered_and_listed, require_shed
from ensue.runners.spark.sinks import THOROUGH, DeltaTable, ParquetBatches, ParquetTable, Sink
from ensue.runners.spark.stream import packed_flow
from ensue.runners.spark.totals import Totals
from ensue.runners.spark.types import spark_schema
from ensue.workload.lanes.packing import LATE_EVENTS
from ensue.workload.lanes.past import BEFORE
from ensue.workload.query_names import Name

Output = str | Path | Sink
Step = Callable[[DataFrame, int], None]  # something to do with a micro-batch and its number
Told = Callable[[str], None]  # is called with what a stream has done so far
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
    history: Any = None,
    since: Any = None,
    gap: str = REFUSE,
    archive: Any = None,
    archive_rows: int | None = None,
    archive_age: Any = None,
    shed_to: Output | None = None,
    told: Told | None = None,
) -> StreamingQuery:
    """Starts the query behind a streaming DataFrame of matches; with `once` waits for its end."""
    if flush and not once:
        raise EventError("flush=True needs once=True: only a stream that ends can be flushed")
    if flush:
        _require_stream(matches)
        require_readable(_session(matches), checkpoint)
        around = around_of(matches)
    first = History.given(history, since, gap)
    wanted = Wanted(archive, archive_rows, archive_age)
    begun = _begun(
        matches, output, checkpoint, late, every, name, first, wanted, shed_to, once=once
    )
    if once:
        try:
            wait(begun.query, told=told)
        except KeyboardInterrupt:
            begun.query.stop()
            raise
    if flush:
        flushed(begun, around)
    return begun.query


@dataclass(frozen=True)
class Begun:
    """A stream that was started."""

    query: StreamingQuery
    session: SparkSession
    checkpoint: str
    deliver: Step  # what is done with matches, wherever they are from
    past: Past | None  # the history that it began with


def flushed(begun: Begun, around: Around) -> None:
    """The stream is over: what only waited for more events or for time is delivered too."""
    session, where = begun.session, begun.checkpoint
    here = seen_from_here(session, where)
    if here is not None and not has_begun(here):
        if begun.past is None:
            return  # nothing ever came
        left, number = begun.past.remaining(), 0
    else:
        left, number = remaining(session, where), next_batch(session, where)
    packed = left.packed if isinstance(left, SeveralMatches) else around(left)
    with own_errors():
        begun.deliver(packed, number)


def begin(
    matches: DataFrame | SeveralMatches,
    output: Output | Mapping[Name, Output],
    *,
    checkpoint: str | Path,
    late: Output | None = None,
    every: str | None = None,
    once: bool = False,
    history: Any = None,
    since: Any = None,
    gap: str = REFUSE,
) -> Begun:
    """Starts it, and does not wait."""
    first = History.given(history, since, gap)
    return _begun(matches, output, checkpoint, late, every, None, first, Wanted(), once=once)


def _begun(
    matches: DataFrame | SeveralMatches,
    output: Output | Mapping[Name, Output],
    checkpoint: str | Path,
    late: Output | None,
    every: str | None,
    name: str | None,
    first: History | None,
    wanted: Wanted,
    shed_to: Output | None = None,
    *,
    once: bool,
) -> Begun:
    _require_stream(matches)
    if once and every is not None:
        raise EventError("once=True and every= cannot be combined")
    if late is not None and not _with_late_events(matches):
        raise EventError(
            "late= needs late events, and these matches have none\n"
            '  hint: ensue.match(..., late_events="deliver")'
        )
    aside = _sink(late, ParquetBatches) if late is not None else None
    if isinstance(matches, SeveralMatches):
        sinks = _sinks(matches, output)
        columns = {name: spark_schema(matches.schemas[name]) for name in sinks}
        deliver, stream = several_delivery(matches, sinks, aside), matches.packed
    elif isinstance(output, Mapping):
        raise EventError(
            "several outputs need several queries\n  hint: ensue.match(events, {name: query, ...})"
        )
    else:
        sink = _sink(output, ParquetTable)
        sinks = {"": sink}
        columns = {"": StructType([f for f in matches.schema if f.name != LATE])}
        deliver, stream = delivery(sink, aside), matches
    session, where = stream.sparkSession, place(checkpoint)
    here = seen_from_here(session, where)
    require_apart(_folders(where, here, sinks, aside, shed_to))
    if here is not None:
        require_sound(where)
    if first is None:
        require_no_history(here, where)
    for key, sink in sinks.items():
        if isinstance(sink, ParquetTable | DeltaTable):
            _require_match_id(columns[key])
            sink.fit(session, columns[key])
    past, pin = None, _pinned(matches, where, wanted)
    recipe = None if pin is None else pin.recipe
    losses = None if shed_to is None else _sink(shed_to, ParquetBatches)
    if losses is not None:
        recipe = recipe or recipe_of(matches, "shed_to=")
        require_shed(recipe.workload)
    if first is not None:
        recipe = recipe or recipe_of(matches, "history=")
        with own_errors("the history cannot be matched: "):
            past = first.matched(recipe, where, here)
            if not past.delivered:
                deliver(past.matches(), BEFORE)
                past.note_delivered()
    step = deliver  # with a micro-batch: Spark commits it when all of it is done
    if recipe is not None:
        gap = first is not None and first.gap == ALLOW
        packed = packed_flow(recipe, past, gap=gap, shed=losses is not None)
        stream = only_frame(frames_of(recipe.workload, packed))
        if pin is not None and pin.writer is not None:
            stream, outputs = packed, SeveralMatches.of(recipe.workload, packed)
            step = delivered_and_archived(outputs, sinks, aside, pin.archive, pin.writer)
        elif losses is not None:
            stream, outputs = packed, SeveralMatches.of(recipe.workload, packed)
            step = delivered_and_listed(recipe.workload, outputs, sinks, aside, losses)
    writer = stream.writeStream.outputMode("append").foreachBatch(step)
    writer = writer.option("checkpointLocation", where)
    if name is not None:
        writer = writer.queryName(name)
    if once:
        writer = writer.trigger(availableNow=True)
    elif every is not None:
        with own_errors(f"every={every!r} is not a length of time: "):
            writer = writer.trigger(processingTime=every)
    listen(stream.sparkSession)
    with own_errors("the stream does not start: "):
        return Begun(writer.start(), session, where, deliver, past)


def _pinned(matches: DataFrame | SeveralMatches, checkpoint: str, wanted: Wanted) -> Pinned | None:
    """The stream with the archives that it began with. None: it has none."""
    recipe = known_recipe(matches)
    if wanted.archive is not None:
        recipe = recipe_of(matches, "archive=")
    if recipe is None:
        return None
    with own_errors("the archives of the stream cannot be opened: "):
        found = pinned(recipe, checkpoint, wanted)
    return found if found.recipe.workload.pasts.archives else None


def _require_stream(matches: object) -> None:
    if not hasattr(matches, "isStreaming"):
        raise EventError(
            f"start() takes the result of ensue.match for a stream, not a {type(matches).__name__}"
        )
    if not matches.isStreaming:
        raise EventError(
            "these matches are not a stream\n"
            "  hint: write a batch DataFrame with matches.write; start() is for streams"
        )


def _require_match_id(columns: StructType) -> None:
    if "match_id" not in columns.names:
        raise EventError(
            "this stream has no column match_id, which identifies a match in a table\n"
            "  hint: start() takes the result of ensue.match; for other streams use writeStream"
        )


def _folders(
    checkpoint: str,
    here: Path | None,
    sinks: Mapping[Name, Sink],
    aside: Sink | None,
    shed_to: Output | None,
) -> list[Folder]:
    begun = here is not None and (here / "offsets").exists()
    found = [Folder("checkpoint", checkpoint, stays=begun)]
    for name, sink in sinks.items():
        role = f"output of '{name}'" if len(sinks) > 1 else "output"
        if isinstance(sink, ParquetTable | DeltaTable):
            found.append(Folder(role, sink.path, table=isinstance(sink, ParquetTable)))
    if isinstance(aside, ParquetBatches):
        found.append(Folder("folder for late events", aside.path, table=True))
    if isinstance(shed_to, str | Path):
        found.append(Folder("folder for what is shed", str(shed_to), table=True))
    return found


def wait(query: StreamingQuery, seconds: float | None = None, told: Told | None = None) -> bool:
    """Until a stream has ended, or so many seconds. Raises an error of ours if it has failed.

    `told` is called every second with what the stream has done so far, in a line.
    """
    with own_errors():
        if told is not None:
            return _watched(query, seconds, told)
        if seconds is None:
            query.awaitTermination()
            return True
        if seconds <= 0:
            error = failed(query)
            if error is not None:
                raise error
            return not query.isActive
        return bool(query.awaitTermination(max(1, math.ceil(seconds))))


def _watched(query: StreamingQuery, seconds: float | None, told: Told) -> bool:
    totals = Totals()
    until = math.inf if seconds is None else time.monotonic() + seconds
    while True:
        ended = bool(query.awaitTermination(1))
        totals.add(progress_of(query))
        told(totals.told)
        if ended or time.monotonic() >= until:
            return ended


def _session(matches: DataFrame | SeveralMatches) -> SparkSession:
    return (matches.packed if isinstance(matches, SeveralMatches) else matches).sparkSession


def _with_late_events(matches: DataFrame | SeveralMatches) -> bool:
    if isinstance(matches, SeveralMatches):
        return matches.late is not None
    return LATE in matches.columns


def _sink(output: object, folder: Callable[[str], Sink]) -> Sink:
    """Where rows go; `folder` makes a sink of a folder."""
    if isinstance(output, str | Path):
        return folder(str(output))
    if not callable(output):
        raise EventError(
            f"an output must be a folder, a table, a topic or a function, not {output!r}\n"
            "  hint: ensue.parquet_table, ensue.delta_table, ensue.kafka_topic, or "
            "def write(matches, batch): ..."
        )
    return output


def delivery(sink: Sink, aside: Sink | None) -> Step:
    """What is done with a micro-batch."""

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
    matches: SeveralMatches, sinks: Mapping[Name, Sink], aside: Sink | None
) -> Step:
    """What is done with a micro-batch of several queries: each query's matches to its own sink.

    A sink is called with the micro-batches that have matches for it.
    """

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


def _sinks(matches: SeveralMatches, output: Output | Mapping[Name, Output]) -> dict[Name, Sink]:
    if isinstance(output, str | Path):
        output = under(output, matches)
    if not isinstance(output, Mapping):
        raise EventError(
            "several queries need several outputs\n"
            "  hint: pass a dict with an output for each query, or a folder for all of them"
        )
    missing = [str(name) for name in matches if name not in output]
    unknown = [str(name) for name in output if name not in matches]
    if missing or unknown:
        raise EventError(
            f"no output for query '{missing[0]}'"
            if missing
            else f"there is no query '{unknown[0]}' for this output"
        )
    return {name: _sink(one, ParquetTable) for name, one in output.items()}
