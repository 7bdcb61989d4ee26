"""`ensue run --stream`: a query over events that keep coming, until it is stopped."""

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
from datetime import datetime
from pathlib import Path
from typing import Any

import ensue
from ensue.algebra.durations import parse_duration
from ensue.cli import levels
from ensue.cli.limits import limits_of
from ensue.cli.parameters import parameters_of
from ensue.cli.past_options import past_of
from ensue.cli.planning import planning_of
from ensue.cli.query_text import read_pattern
from ensue.cli.run import event_columns
from ensue.cli.sql_options import require_pattern_options
from ensue.cli.stream_counters import Scale, Screen, many
from ensue.cli.stream_ends import Folder as EventFolder
from ensue.cli.stream_ends import Rate, Source, opened, require_output, sink, sources
from ensue.cli.terminal import Exit, UsageError, notice
from ensue.cli.text_options import spelling_of
from ensue.runners.spark.apart import Folder, require_apart

_GLANCE = 0.5  # seconds between two looks at the query


def run_stream(options: Namespace) -> Exit:
    """Finds matches as events come, and shows how it goes."""
    parameters = parameters_of(options)
    query = read_pattern(options.query, parameters)
    parameters.require_used()
    require_pattern_options(options)
    levels.checked(query)
    asked = levels.delivery(options, query)
    levels.require_folders(options, query)
    watermark = _checked(options)
    found = sources(options.stream, declared=options.schema is not None)
    require_apart(_folders(found, options))
    if all(isinstance(s, Rate) for several in found.values() for s in several):
        options.time, options.type = options.time or "ts", options.type or "type"
    from ensue.runners.spark import failure as spark_failure
    from ensue.runners.spark import session as spark_session

    notice("starting Spark ...")
    session = spark_session.embedded(_settings(options))
    events = opened(session, found, options.schema, spelling_of(options))
    columns = event_columns(events, options)
    with _warnings_as_notices():
        matches = ensue.match(
            events,
            query,
            **columns,
            **planning_of(options, query, None, columns),
            **limits_of(options),
            **past_of(options, columns),
            **asked,
            bad_events=options.bad_events,
            emit_timeouts=options.timeouts,
            flat=options.flat,
            watermark=watermark,
            max_ahead=_max_ahead(options.max_ahead),
            late_events="count" if options.late is None else "deliver",
        )
    title = f"{', '.join(options.stream)} -> {_named(options.output)}"
    screen = Screen(
        title, form=options.format, limit=options.limit, scale=_scale(events, columns["time"])
    )
    target = _target(matches, screen, options.output)
    with _checkpoint(options.checkpoint) as checkpoint, _asked_to_stop() as stopped:
        flushed = 0
        with screen, _log_on_screen():
            begun = _started(matches, target, checkpoint, options)
            running = begun.query
            try:
                while running.isActive and not stopped and not screen.broken:
                    screen.report(ensue.progress_of(running))
                    time.sleep(_GLANCE)
            finally:
                running.stop()
            screen.report(ensue.progress_of(running))
            error = None if stopped or screen.broken else spark_failure.failed(running)
            if options.flush and not stopped and error is None:
                flushed = _flush(begun, target, screen)
        if screen.broken:
            raise BrokenPipeError
        if error is not None:
            raise error
        _farewell(screen, flushed, options)
    return Exit.INTERRUPTED if signal.SIGINT in stopped else Exit.FINE


# ------------------------------------------------------------------------------- arguments


def _checked(options: Namespace) -> str | float:
    """The watermark; raises UsageError for what does not go together."""
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
            "  hint: ensue.trace(row) expands any row of ensue.match(..., trace=True)"
        )
    if options.flush and not options.once:
        raise UsageError("--flush needs --once: only a stream that ends can be flushed")
    if options.once and options.every is not None:
        raise UsageError("--once and --every cannot be combined")
    if options.history is None and (options.since is not None or options.allow_gap):
        raise UsageError("--since and --allow-gap need --history")
    if options.since is not None:
        _moment(options.since)
    if options.every is not None:
        _length("--every", options.every)
    _max_ahead(options.max_ahead)
    require_output(options.output)
    if options.output != "-" and options.format is not None:
        raise UsageError("--format says how matches are printed; a stream's --output has its own")
    if options.format not in (None, "table", "json"):
        raise UsageError(f"a stream is printed as table or json, not as {options.format}")
    if options.late is not None and Path(options.late).is_file():
        raise UsageError(f"--late {options.late} is a file; name a folder")
    try:
        return float(options.watermark)
    except ValueError:
        _length("--watermark", options.watermark)
        return str(options.watermark)


def _max_ahead(text: str | None) -> str | None:
    """How far ahead of the clock events may be, as `ensue.match` takes it."""
    if text is None:
        return "usual"
    if text.lower() == "none":
        return None
    _length("--max-ahead", text)
    return text


def _length(option: str, text: str) -> int:
    """A length of time in milliseconds."""
    try:
        return parse_duration(text) // 1_000_000
    except ensue.EventError as error:
        raise UsageError(f"{option}: {error}") from None


def _settings(options: Namespace) -> dict[str, str]:
    named = {"spark.jars.packages": options.packages, "spark.jars": options.jars}
    return {key: value for key, value in named.items() if value is not None}


def _named(target: str) -> str:
    return "this terminal" if target == "-" else target


def _scale(events: Any, time_column: str | tuple[str, str]) -> Scale:
    name = time_column if isinstance(time_column, str) else time_column[1]
    frame = next(iter(events.values())) if isinstance(events, Mapping) else events
    kinds = {field.name: field.dataType.typeName() for field in frame.schema.fields}
    return Scale(numbers=not kinds.get(name, "").startswith(("timestamp", "date")))


# --------------------------------------------------------------------------------- running


def _folders(found: Mapping[Any, list[Source]], options: Namespace) -> list[Folder]:
    """The folders that are named on the command line: those that are read must not be written."""
    read = [s.path for several in found.values() for s in several if isinstance(s, EventFolder)]
    named = [
        Folder("--stream", path.partition("*")[0] or ".", table=True)
        for path in dict.fromkeys(read)
    ]
    if options.history is not None:
        named.append(Folder("--history", options.history, table=True))
    written = {"--output": options.output, "--late": options.late}
    written["--checkpoint"] = options.checkpoint
    for role, place in written.items():
        if place is not None and place != "-" and not place.startswith("kafka://"):
            named.append(Folder(role, place.removeprefix("delta:")))
    return named


def _target(matches: Any, screen: Screen, output: str) -> Any:
    """Where matches go: those of several levels each to a place of its own."""
    if not isinstance(matches, Mapping):
        return screen.show if output == "-" else sink(output)
    if output == "-":
        for name in matches:
            if "level" in matches[name].columns:
                raise UsageError(
                    f"{name or levels.TOP} returns a column 'level', which the printed "
                    "output uses to tell levels apart\n"
                    "  hint: rename it with AS, or give each level a folder: --output DIR"
                )
        return {name: screen.show_of(name or levels.TOP) for name in matches}
    places = levels.places_of(matches)
    return {name: sink(f"{output.rstrip('/')}/{place}") for name, place in places.items()}


def _started(matches: Any, target: Any, checkpoint: str, options: Namespace) -> Any:
    from ensue.runners.spark.start import begin

    every = None
    if options.every is not None:
        every = f"{_length('--every', options.every)} milliseconds"
    return begin(
        matches,
        target,
        checkpoint=checkpoint,
        late=options.late,
        every=every,
        once=options.once,
        history=options.history,
        since=None if options.since is None else _moment(options.since),
        gap="allow" if options.allow_gap else "refuse",
    )


def _moment(text: str) -> int | float | datetime:
    """A time as the command line has it: a number, or one of the calendar."""
    readers: tuple[Callable[[str], int | float | datetime], ...]
    readers = (int, float, datetime.fromisoformat)
    for read in readers:
        with suppress(ValueError):
            return read(text)
    raise UsageError(
        f"--since {text}: neither a number nor a time\n  hint: 2026-03-01, 2026-03-01T10:00:00Z"
    )


def _flush(begun: Any, target: Any, screen: Screen) -> int:
    """The stream is over: what only waited for more events or for time is delivered too.

    Returns how many matches that are.
    """
    from ensue.runners.spark.failure import failure, spark_errors

    last = screen.totals.last
    try:
        if last is None and begun.past is not None:  # nothing came behind the history
            rest: Any = begun.past.remaining()
        else:
            rest = ensue.remaining(begun.session, begun.checkpoint)
        batch = 0 if last is None else last.batch + 1
        if not isinstance(rest, Mapping):
            rest, target = {"": rest.persist()}, {"": target}
        for name, matches in rest.items():
            target[name](matches, batch)
        return sum(int(matches.count()) for matches in rest.values())
    except ensue.StateError:
        if last is not None:
            raise
        return 0  # nothing ever came
    except spark_errors() as error:
        raise failure(error) from None


@contextmanager
def _checkpoint(named: str | None) -> Iterator[str]:
    if named is not None:
        yield named
        return
    folder = tempfile.mkdtemp(prefix="ensue-checkpoint-")
    notice("no --checkpoint: nothing survives a stop, the next run begins anew")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """The signals that asked the stream to stop. A second one does not wait for it."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, _: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    # Spark's own handler would cancel the running jobs, and the query would fail.
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _log_on_screen() -> Iterator[None]:
    """What the stream's log would say is on the screen."""
    log = logging.getLogger("ensue.stream")

    def none(_: logging.LogRecord) -> bool:
        return False

    log.addFilter(none)
    try:
        yield
    finally:
        log.removeFilter(none)


@contextmanager
def _warnings_as_notices() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        notice(f"note: {warning.message}")


def _farewell(screen: Screen, flushed: int, options: Namespace) -> None:
    totals = screen.totals
    if totals.last is None and not flushed:
        notice("no new events" if options.once else "stopped before the first micro-batch")
    else:
        late = f", {totals.late:,} late" if totals.late else ""
        late += f", {totals.ahead:,} ahead of the clock" if totals.ahead else ""
        late += (
            f", {totals.before_cut:,} that the history or the archive had"
            if totals.before_cut
            else ""
        )
        matches = many(totals.matches + flushed, "match", "matches")
        waited = f" ({flushed:,} of them waited for the end of the stream)" if flushed else ""
        notice(f"{many(totals.input_rows, 'event', 'events')}{late}, {matches}{waited}")
    if options.output != "-":
        notice(f"matches are in {options.output}")
    if options.checkpoint is not None:
        notice(f"the same command goes on from here, by the checkpoint {options.checkpoint}")
