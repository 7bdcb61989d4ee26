"""`ensue run`, `ensue explain`, `ensue check`: a query, with or without events."""

import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import ensue
from ensue.cli import event_files, matches
from ensue.cli.planning import MEASURE, planning_of
from ensue.cli.query_text import query_text
from ensue.cli.terminal import Exit, UsageError, notice, output, progress

_ENOUGH_TO_KNOW_THE_COLUMNS = 1_000
_OF_STREAMS = (
    "watermark", "checkpoint", "schema", "late", "once", "flush", "every", "packages", "jars",
)  # fmt: skip


def run(options: Namespace) -> Exit:
    """Finds the matches and writes them."""
    require_no_stream(options)
    text = query_text(options.query)
    form = matches.chosen_format(options.format, options.output)
    ensue.parse(text)  # a mistake in the text shows before a large file is read
    files = event_files.event_files(options.events)
    began = time.perf_counter()
    if options.engine == "spark":
        found = _run_on_spark(text, files, options, form)
    else:
        found = _run_here(text, files, options)
    if found is not None:
        matches.write(found, options.output, form, options.limit)
        seconds = time.perf_counter() - began
        many = "1 match" if found.num_rows == 1 else f"{found.num_rows:,} matches"
        notice(f"{many} in {seconds:.2f} s")
    if options.output != "-":
        notice(f"written to {options.output}")
    return Exit.FINE


def _run_here(text: str, files: tuple[event_files.EventFile, ...], options: Namespace) -> Any:
    events = event_files.read_local(files)
    columns = event_columns(events, options)
    planned = planning_of(options, text, events, columns)
    with progress("matching") as report:
        return ensue.match(
            events,
            text,
            **columns,
            **planned,
            bad_events=options.bad_events,
            emit_timeouts=options.timeouts,
            progress=report,
        )


def require_no_stream(options: Namespace) -> None:
    """Refuses what says something of streams only."""
    given = [name for name in _OF_STREAMS if getattr(options, name)]
    if given:
        raise UsageError(f"--{given[0]} says something of a --stream; --events is none")


def _run_on_spark(
    text: str, files: tuple[event_files.EventFile, ...], options: Namespace, form: str
) -> Any:
    from ensue.runners import spark_session

    notice("starting Spark ...")
    events = event_files.read_spark(files)
    columns = event_columns(events, options)
    found = ensue.match(
        events,
        text,
        **columns,
        **planning_of(options, text, events, columns),
        bad_events=options.bad_events,
        emit_timeouts=options.timeouts,
    )
    if form == "parquet" and options.output != "-":
        if Path(options.output).exists():
            raise UsageError(f"{options.output} exists; Spark writes a new folder")
        spark_session.write_parquet(found, options.output)
        return None
    return spark_session.collect(found)


def explain(options: Namespace) -> Exit:
    """Prints the plan; with --picture also writes it as SVG, with --analyze runs it."""
    text = query_text(options.query)
    if options.analyze and not options.events:
        raise UsageError("--analyze runs the query: name events with --events")
    whole = options.analyze or options.statistics == MEASURE
    events, columns = _known(options, rows=None if whole else _ENOUGH_TO_KNOW_THE_COLUMNS)
    planned = planning_of(options, text, events, columns)
    told = ensue.explain(text, events, **columns, **planned, analyze=options.analyze)
    output().print(told, markup=False, soft_wrap=True)
    if options.picture:
        picture = ensue.picture(text, events, **columns, **planned)
        try:
            Path(options.picture).write_text(picture, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write to {options.picture}: {error.strerror}") from None
        notice(f"picture written to {options.picture}")
    return Exit.FINE


def check(options: Namespace) -> Exit:
    """Says whether the query can be run; with events, also whether it fits their columns."""
    text = query_text(options.query)
    ensue.parse(text)
    events, columns = _known(options)
    if events is not None:
        ensue.explain(text, events, **columns)
    fits = "the query fits the events" if events is not None else "the query can be read"
    output().print(f"ok: {fits}")
    return Exit.FINE


def _known(
    options: Namespace, rows: int | None = _ENOUGH_TO_KNOW_THE_COLUMNS
) -> tuple[Any, dict[str, Any]]:
    """The first events of each file, enough to know the columns, and which columns are which."""
    if not options.events:
        if options.time or options.type or options.order:
            raise UsageError("--time, --type and --order say something of --events; name some")
        return None, {}
    files = event_files.event_files(options.events)
    events = event_files.read_local(files, rows=rows)
    return events, event_columns(events, options)


def event_columns(events: Any, options: Namespace) -> dict[str, Any]:
    """The arguments of `ensue.match` that say which columns hold time, type and order."""
    if options.time is None:
        time_column: str | tuple[str, str] = event_files.guessed_time(events)
        notice(f"taking '{time_column}' as the time of an event (--time says otherwise)")
    else:
        start, comma, end = options.time.partition(",")
        time_column = (start.strip(), end.strip()) if comma else start
    order = tuple(name.strip() for names in options.order for name in names.split(","))
    return {"time": time_column, "type": options.type, "order": order}
