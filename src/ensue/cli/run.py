"""`ensue run`, `ensue explain`, `ensue check`: a query, with or without events."""

import time
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ensue
from ensue.algebra.correlation import Correlation
from ensue.algebra.query import Query
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.tower import Tower
from ensue.cli import event_files, levels, matches, sql
from ensue.cli.limits import limits_of
from ensue.cli.parameters import parameters_of
from ensue.cli.past_options import past_of
from ensue.cli.planning import MEASURE, planning_of
from ensue.cli.query_text import read_query
from ensue.cli.sql_options import require_no_stream, require_pattern_options
from ensue.cli.stream_counters import many
from ensue.cli.terminal import Exit, UsageError, notice, output
from ensue.cli.text_options import spelling_of
from ensue.languages.sql.query import SqlQuery
from ensue.runners.event_files import EventFile

_ENOUGH_TO_KNOW_THE_COLUMNS = 1_000


def run(options: Namespace) -> Exit:
    """Finds the matches and writes them."""
    # a mistake in the query shows before a large file is read
    query = _asked_for(options, options.engine)
    if isinstance(query, SqlQuery | Recognition):
        return sql.run(query, options)
    require_no_stream(options)
    require_pattern_options(options)
    require_events(options)
    levels.checked(query)
    asked = levels.delivery(options, query)
    levels.require_folders(options, query)
    form = matches.chosen_format(options.format, options.output)
    if "levels" in asked or (isinstance(query, Tower) and query.emit):
        form = levels.form_of_several(options, "several levels")
    files = event_files.event_files(options.events)
    began = time.perf_counter()
    if options.engine == "spark":
        found = _run_on_spark(query, files, options, form, asked)
    else:
        found = _run_here(query, files, options, asked)
    seconds = time.perf_counter() - began
    aside = options.output == "-" and form != "table"
    match found:
        case None:
            pass
        case Mapping():
            levels.write_each(found, options)
            notice(f"{many(len(found), 'level', 'levels')} in {seconds:.2f} s")
            levels.show_traces(found, query, options, aside=aside)
        case _:
            shown = levels.without_members(found) if form in ("table", "csv") else found
            matches.write(shown, options.output, form, options.limit, full_ids=options.full_ids)
            rows = ("match", "matches") if "match_id" in found.column_names else ("row", "rows")
            notice(f"{many(found.num_rows, *rows)} in {seconds:.2f} s")
            levels.show_traces({"": found}, query, options, aside=aside)
    if options.output != "-":
        notice(f"written to {options.output}")
    return Exit.FINE


def _run_here(
    query: Query | Tower | Correlation,
    files: tuple[EventFile, ...],
    options: Namespace,
    asked: dict[str, Any],
) -> Any:
    events = event_files.read_local(files, spelling_of(options))
    columns = event_columns(events, options)
    planned = planning_of(options, query, events, columns)
    return ensue.match(
        events,
        query,
        **columns,
        **planned,
        **past_of(options, columns),
        **limits_of(options),
        **asked,
        bad_events=options.bad_events,
        emit_timeouts=options.timeouts,
        flat=options.flat,
        progress=True,
    )


def require_events(options: Namespace) -> None:
    """A pattern is looked for in something."""
    if not options.events:
        raise UsageError(
            "there are no events\n"
            "  hint: use --events FILE for a file, --stream SOURCE for a stream"
        )


def _run_on_spark(
    query: Query | Tower | Correlation,
    files: tuple[EventFile, ...],
    options: Namespace,
    form: str,
    asked: dict[str, Any],
) -> Any:
    from ensue.runners.spark import session as spark_session

    notice("starting Spark ...")
    events = event_files.read_spark(files, spelling_of(options))
    columns = event_columns(events, options)
    found = ensue.match(
        events,
        query,
        **columns,
        **planning_of(options, query, events, columns),
        **past_of(options, columns),
        **limits_of(options),
        **asked,
        bad_events=options.bad_events,
        emit_timeouts=options.timeouts,
        flat=options.flat,
    )
    if isinstance(found, Mapping):
        found = found.cache() if hasattr(found, "cache") else found
        return {name: spark_session.collect(found[name]) for name in found}
    if form == "parquet" and options.output != "-" and not asked:
        if Path(options.output).exists():
            raise UsageError(f"{options.output} exists; Spark writes a new folder")
        spark_session.write_parquet(found, options.output)
        return None
    return spark_session.collect(found)


def _asked_for(
    options: Namespace, engine: str | None = None
) -> Query | Tower | Correlation | Recognition | SqlQuery:
    """The query of a command line, with the values of its parameters."""
    parameters = parameters_of(options)
    query = read_query(options.query, parameters, engine)
    if isinstance(query, SqlQuery):
        sql.clauses(query)  # a mistake in one shows before a large file is read
    parameters.require_used()
    return query


def explain(options: Namespace) -> Exit:
    """Prints the plan, with --kernel its kernel; --picture writes it as SVG, --analyze runs it."""
    query: Any = _asked_for(options)
    if isinstance(query, SqlQuery | Recognition):
        return sql.explain(query, options)
    require_pattern_options(options)
    if options.analyze and not options.events:
        raise UsageError("--analyze runs the query: name events with --events")
    whole = options.analyze or options.statistics == MEASURE
    events, columns = _known(options, rows=None if whole else _ENOUGH_TO_KNOW_THE_COLUMNS)
    planned = planning_of(options, query, events, columns)
    planned |= past_of(options, columns)
    told = ensue.explain(
        query, events, **columns, **planned, analyze=options.analyze, kernel=options.kernel
    )
    output().print(told, markup=False, soft_wrap=True)
    if options.picture:
        picture = ensue.picture(query, events, **columns, **planned)
        try:
            Path(options.picture).write_text(picture, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write to {options.picture}: {error.strerror}") from None
        notice(f"picture written to {options.picture}")
    return Exit.FINE


def check(options: Namespace) -> Exit:
    """Says whether the query can be run; with events, also whether it fits their columns."""
    query = _asked_for(options)
    if isinstance(query, SqlQuery | Recognition):
        return sql.check(query, options)
    require_pattern_options(options)
    levels.checked(query)
    events, columns = _known(options)
    if events is not None:
        levels.fits(query, events, columns, past_of(options, columns))
    fits = "the query fits the events" if events is not None else "the query is valid"
    output().print(f"ok: {fits}")
    return Exit.FINE


def _known(
    options: Namespace, rows: int | None = _ENOUGH_TO_KNOW_THE_COLUMNS
) -> tuple[Any, dict[str, Any]]:
    """The first events of each file, enough to know the columns, and which columns are which."""
    if not options.events:
        if options.time or options.type or options.order:
            raise UsageError("--time, --type and --order need --events")
        return None, {}
    files = event_files.event_files(options.events)
    events = event_files.read_local(files, spelling_of(options), rows=rows)
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
