"""`ensue run --stream`: runs a query over a stream until it is stopped."""

import logging
import shutil
import signal
import tempfile
import threading
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, assert_never

import ensue
from ensue.backends.event_files import FORMATS, EventFile, list_visible_files
from ensue.backends.spark.stream_folders import StreamFolder, escape_path, require_separate
from ensue.backends.text_columns import DEFAULT_TEXT_OPTIONS, TextFileOptions
from ensue.cli import output
from ensue.cli.inputs import read_pattern, resolve_event_files
from ensue.cli.options import get_text_options, parse_length, parse_parameters
from ensue.cli.run import event_columns, match_events, require_pattern_options
from ensue.cli.stream_progress import StreamScreen, TimeFormatter
from ensue.cli.terminal import ExitCode, UsageError, format_count, print_notice
from ensue.errors import EventError
from ensue.ir.values import parse_duration


@dataclass(frozen=True, slots=True)
class WatchedFolder:
    """A folder of existing and future files."""

    path: str  # a glob for Spark
    form: str


@dataclass(frozen=True, slots=True)
class TopicSource:
    """A Kafka topic."""

    servers: str
    name: str


@dataclass(frozen=True, slots=True)
class RateSource:
    """A generated test stream."""

    rows: int


Source = WatchedFolder | TopicSource | RateSource


# ---------------------------------------------------------------------------------- sources


def parse_sources(arguments: list[str], *, declared: bool) -> dict[str | None, list[Source]]:
    """Parse the `--stream` options by event type; `declared` means that --schema is given."""
    by_type: dict[str | None, list[Source]] = {}
    for file in resolve_event_files(arguments, option="--stream", patterns=False):
        by_type.setdefault(file.type, []).append(parse_source(file.path, declared=declared))
    return by_type


def parse_source(text: str, *, declared: bool = False) -> Source:
    """Parse a source.

    >>> parse_source("kafka://one:9092,two:9092/trades")
    TopicSource(servers='one:9092,two:9092', name='trades')
    >>> parse_source("rate://1000")
    RateSource(rows=1000)
    """
    scheme, _, rest = text.partition("://")
    match scheme:
        case "kafka":
            return parse_topic(text)
        case "rate":
            rows = rest.replace("_", "").replace(",", "")
            if not rows.isdecimal() or int(rows) < 1:
                raise UsageError(f"{text} has no number of events a second; write it like rate://1000")
            return RateSource(int(rows))
        case _:
            return _folder(text, declared=declared)


def parse_topic(text: str) -> TopicSource:
    """Parse a Kafka topic: `kafka://host:port/topic`."""
    servers, slash, name = text.removeprefix("kafka://").partition("/")
    if not (servers and slash and name) or "/" in name:
        raise UsageError(f"{text} does not name a topic; write it like kafka://host:9092/topic")
    return TopicSource(servers, name)


def _folder(text: str, *, declared: bool) -> WatchedFolder:
    form = FORMATS.get(Path(text).suffix.lower())
    _require_streamed(form, text)
    if "://" in text:  # only Spark can access it
        return WatchedFolder(text, form or "parquet")
    path = Path(text)
    if path.is_file():
        raise UsageError(
            f"{text} is a file, and a stream needs a folder that files are added to\n"
            "  hint: name the folder, or use --events for a file"
        )
    if path.is_dir():
        return _require_folder(text, declared=declared)
    if form is None or "*" not in path.name or not path.parent.is_dir():
        raise EventError(f"there is no folder {text}")
    if not declared and not any(path.parent.glob(path.name)):
        raise EventError(_no_files_message(text, text))
    return WatchedFolder(f"{escape_path(path.parent)}/{path.name}", form)


def _require_folder(text: str, *, declared: bool) -> WatchedFolder:
    if not list_visible_files(Path(text)):
        example = str(Path(text) / "*.parquet")
        if declared:
            raise EventError(
                f"the folder {text} is empty, so the file format is unknown\n"
                f"  hint: give a pattern for their names: --stream '{example}'"
            )
        raise EventError(_no_files_message(text, example))
    form = EventFile(text).form
    _require_streamed(form, text)
    return WatchedFolder(escape_path(text), form)


def _require_streamed(form: str | None, text: str) -> None:
    if form == "arrow":
        raise EventError(
            f"Spark cannot stream Arrow files, as in {text}\n  hint: put Parquet files there, or use --events"
        )


def _no_files_message(folder: str, example: str) -> str:
    return (
        f"there are no files in {folder} yet, so their columns are not known\n"
        f"  hint: put a first file there, or give the columns: --stream '{example}' "
        '--schema "ts timestamp, type string, ..."'
    )


def open_streams(
    session: Any,
    sources_by_type: dict[str | None, list[Source]],
    schema: str | None,
    spelling: TextFileOptions = DEFAULT_TEXT_OPTIONS,
) -> Any:
    """Open the stream as a DataFrame, or as one for each event type."""
    from ensue.backends.spark import event_sources

    columns = None if schema is None else event_sources.parse_columns(schema)

    def open_source(source: Source) -> Any:
        match source:
            case WatchedFolder(path, form):
                return event_sources.read_folder(session, path, form, columns, spelling)
            case TopicSource(servers, name):
                return event_sources.read_kafka(session, servers, name, columns, spelling)
            case RateSource(rows):
                return event_sources.read_rate(session, rows)
            case _:
                assert_never(source)

    frames: dict[str | None, Any] = {}
    for kind, group in sources_by_type.items():
        for frame in map(open_source, group):
            frames[kind] = frames[kind].unionByName(frame) if kind in frames else frame
    return frames.get(None, frames)


# ---------------------------------------------------------------------------------- outputs


def require_stream_output(text: str) -> None:
    """Raise UsageError unless a stream can write to the output; `-` is standard output."""
    if text == "-" or text.startswith("delta:"):
        return
    if text.startswith("kafka://"):
        parse_topic(text)
        return
    form = FORMATS.get(Path(text).suffix.lower(), "parquet")
    if Path(text).is_file() or form != "parquet":
        raise UsageError(
            f"the matches of a stream cannot be written to the file {text}\n"
            "  hint: name a folder (for Parquet files), delta:FOLDER, or kafka://host:9092/topic; "
            "without --output they are printed"
        )


def build_sink(text: str) -> Any:
    if text.startswith("kafka://"):
        target = parse_topic(text)
        return ensue.kafka_topic(target.servers, target.name)
    if text.startswith("delta:"):
        return ensue.delta_table(text.removeprefix("delta:"))
    return ensue.parquet_table(text)


_POLL_SECONDS = 0.5  # between two progress reports


def run_stream(options: Namespace) -> ExitCode:
    parameters = parse_parameters(options)
    query = read_pattern(options.query, parameters)
    parameters.require_used()
    require_pattern_options(options)
    output.check_levels(query)
    returned = output.get_output_options(options, query)
    output.require_folders(options, query)
    watermark = _check_options(options)
    sources_by_type = parse_sources(options.stream, declared=options.schema is not None)
    require_separate(_folders(sources_by_type, options))
    if all(isinstance(s, RateSource) for group in sources_by_type.values() for s in group):
        options.time, options.type = options.time or "ts", options.type or "type"
    from ensue.backends.spark import session as spark_session

    print_notice("starting Spark ...")
    named = {"spark.jars.packages": options.packages, "spark.jars": options.jars}
    settings = {key: value for key, value in named.items() if value is not None}
    session = spark_session.get_or_create_session(settings)
    events = open_streams(session, sources_by_type, options.schema, get_text_options(options))
    columns = event_columns(events, options)
    with _warnings_as_notices():
        matches = match_events(
            events,
            query,
            options,
            columns,
            returned,
            watermark=watermark,
            stream=ensue.StreamOptions(
                bad_events=options.bad_events,
                max_ahead=_max_ahead(options.max_ahead),
                late_events="count" if options.late is None else "deliver",
            ),
        )
    target_name = "this terminal" if options.output == "-" else options.output
    title = f"{', '.join(options.stream)} -> {target_name}"
    screen = StreamScreen(title, form=options.format, limit=options.limit, scale=_scale(events, columns["time"]))
    target = _target(matches, screen, options.output)
    with _checkpoint(options.checkpoint) as checkpoint, _stop_signals() as stopped:
        flushed = 0
        with screen, _log_on_screen():
            running = _start(matches, target, checkpoint, options)
            try:
                while running.is_active and not stopped and not screen.broken:
                    screen.report(running.progress())
                    time.sleep(_POLL_SECONDS)
            finally:
                running.stop()
            screen.report(running.progress())
            error = None if stopped or screen.broken else running.exception
            if options.flush and not stopped and error is None:
                flushed = _flush(running)
        if screen.broken:
            raise BrokenPipeError
        if error is not None:
            raise error
        _print_summary(screen, flushed, options)
    return ExitCode.INTERRUPTED if signal.SIGINT in stopped else ExitCode.FINE


# ------------------------------------------------------------------------------- arguments


def _check_options(options: Namespace) -> str | float:
    """Check the options and return the watermark."""
    if options.engine == "local":
        raise UsageError("a stream runs on Spark: leave out --engine local")
    if options.watermark is None:
        raise UsageError(
            "a stream needs --watermark: how late events may be\n"
            '  hint: --watermark "10 seconds", or a number if the time column holds numbers'
        )
    if options.trace or options.picture:
        raise UsageError(
            "--trace and --picture work on files, not on a --stream\n"
            "  hint: ensue.trace(row) expands any row of a match with ensue.OutputOptions(trace=True)"
        )
    if options.flush and not options.once:
        raise UsageError("--flush needs --once: only a stream that ends can be flushed")
    if options.once and options.every is not None:
        raise UsageError("--once and --every cannot be combined")
    if options.history is None and (options.since is not None or options.allow_gap):
        raise UsageError("--since and --allow-gap need --history")
    if options.since is not None:
        _parse_time(options.since)
    if options.every is not None:
        _parse_length("--every", options.every)
    _max_ahead(options.max_ahead)
    require_stream_output(options.output)
    if options.output != "-" and options.format is not None:
        raise UsageError("--format is for printed matches; the --output of a stream has its own format")
    if options.format not in (None, "table", "json"):
        raise UsageError(f"a stream is printed as table or json, not as {options.format}")
    if options.late is not None and Path(options.late).is_file():
        raise UsageError(f"--late {options.late} is a file; name a folder")
    watermark = parse_length(options.watermark)
    assert watermark is not None
    if isinstance(watermark, str):
        _parse_length("--watermark", watermark)
    return watermark


def _max_ahead(text: str | None) -> str | None:
    """Convert --max-ahead to the value of `ensue.StreamOptions`."""
    if text is None:
        return "usual"
    if text.lower() == "none":
        return None
    _parse_length("--max-ahead", text)
    return text


def _parse_length(option: str, text: str) -> int:
    """Parse a length of time to milliseconds."""
    try:
        return parse_duration(text) // 1_000_000
    except ensue.EventError as error:
        raise UsageError(f"{option}: {error}") from None


def _scale(events: Any, time_column: str | tuple[str, str]) -> TimeFormatter:
    name = time_column if isinstance(time_column, str) else time_column[1]
    frame = next(iter(events.values())) if isinstance(events, Mapping) else events
    kinds = {field.name: field.dataType.typeName() for field in frame.schema.fields}
    return TimeFormatter(numbers=not kinds.get(name, "").startswith(("timestamp", "date")))


# --------------------------------------------------------------------------------- running


def _folders(sources_by_type: Mapping[Any, list[Source]], options: Namespace) -> list[StreamFolder]:
    """Return the folders of the command line, which must be separate."""
    read = [s.path for group in sources_by_type.values() for s in group if isinstance(s, WatchedFolder)]
    folders = [StreamFolder("--stream", path.partition("*")[0] or ".", table=True) for path in dict.fromkeys(read)]
    if options.history is not None:
        folders.append(StreamFolder("--history", options.history, table=True))
    written = {"--output": options.output, "--late": options.late}
    written["--checkpoint"] = options.checkpoint
    for role, path in written.items():
        if path is not None and path != "-" and not path.startswith("kafka://"):
            folders.append(StreamFolder(role, path.removeprefix("delta:")))
    return folders


def _target(matches: Any, screen: StreamScreen, destination: str) -> Any:
    """Return the sink of the matches, or one for each level."""
    if not isinstance(matches, Mapping):
        return screen.show if destination == "-" else build_sink(destination)
    if destination == "-":
        for name in matches:
            if "level" in matches[name].columns:
                raise UsageError(
                    f"{name or output.UNNAMED_QUERY} returns a column 'level', which the printed "
                    "output uses to tell levels apart\n"
                    "  hint: rename it with AS, or give each level a folder: --output DIR"
                )
        return {name: partial(screen.show, level=name or output.UNNAMED_QUERY) for name in matches}
    places = output.name_outputs(matches)
    return {name: build_sink(f"{destination.rstrip('/')}/{place}") for name, place in places.items()}


def _start(matches: Any, target: Any, checkpoint: str, options: Namespace) -> Any:
    from ensue.backends.spark.start import start

    since = None if options.since is None else _parse_time(options.since)
    gap = "allow" if options.allow_gap else "refuse"
    history = None if options.history is None else ensue.History(options.history, since, gap)
    every = None
    if options.every is not None:
        every = f"{_parse_length('--every', options.every)} milliseconds"
    return start(
        matches, target, checkpoint=checkpoint, late=options.late, every=every, once=options.once, history=history
    )


def _parse_time(text: str) -> int | float | datetime:
    """Parse --since, a number or an ISO time."""
    readers: tuple[Callable[[str], int | float | datetime], ...]
    readers = (int, float, datetime.fromisoformat)
    for read in readers:
        with suppress(ValueError):
            return read(text)
    raise UsageError(f"--since {text}: neither a number nor a time\n  hint: 2026-03-01, 2026-03-01T10:00:00Z")


def _flush(running: Any) -> int:
    """End the stream, deliver the matches that waited for its end, and return their number."""
    from ensue.backends.spark.start import flush_stream

    rest = flush_stream(running)
    frames = rest.values() if isinstance(rest, Mapping) else () if rest is None else (rest,)
    return sum(int(frame.count()) for frame in frames)


@contextmanager
def _checkpoint(named: str | None) -> Iterator[str]:
    if named is not None:
        yield named
        return
    folder = tempfile.mkdtemp(prefix="ensue-checkpoint-")
    print_notice("no --checkpoint: the state is lost when the stream stops")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """Collect stop signals; a second one interrupts immediately."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def receive(number: int, _: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    # Spark's own handler would cancel the running jobs, and the query would fail.
    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _log_on_screen() -> Iterator[None]:
    """Mute the log of the stream, whose messages are shown on screen."""
    log = logging.getLogger("ensue.stream")
    mute = lambda _: False
    log.addFilter(mute)
    try:
        yield
    finally:
        log.removeFilter(mute)


@contextmanager
def _warnings_as_notices() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        print_notice(f"note: {warning.message}")


def _print_summary(screen: StreamScreen, flushed: int, options: Namespace) -> None:
    counts = screen.totals.counts
    if screen.totals.last is None and not flushed:
        print_notice("no new events" if options.once else "stopped before the first micro-batch")
    else:
        skipped = {
            "late": counts["late"],
            "ahead of the clock": counts["ahead"],
            "already in the history or the archive": counts["before_cut"],
        }
        late = "".join(f", {number:,} {what}" for what, number in skipped.items() if number)
        matches = format_count(counts["matches"] + flushed, "match", "matches")
        waited = f" ({flushed:,} of them at the end of the stream)" if flushed else ""
        print_notice(f"{format_count(counts['input_rows'], 'event', 'events')}{late}, {matches}{waited}")
    if options.output != "-":
        print_notice(f"matches are in {options.output}")
    if options.checkpoint is not None:
        print_notice(f"run the same command to continue from the checkpoint {options.checkpoint}")
