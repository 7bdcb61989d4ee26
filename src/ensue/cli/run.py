"""`ensue run`, `ensue explain` and `ensue check`."""

import time
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ensue
from ensue.cli import inputs, output, sql_command
from ensue.cli.inputs import read_pattern, read_query
from ensue.cli.options import (
    MEASURE,
    get_archives,
    get_limits,
    get_planner_options,
    get_text_options,
    parse_parameters,
    take_query,
)
from ensue.cli.sql_command import require_no_stream, require_pattern_options
from ensue.cli.terminal import ExitCode, UsageError, format_count, get_output_console, print_notice
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.hierarchy import Hierarchy
from ensue.ir.query import Query
from ensue.ir.row_pattern import RowPatternQuery
from ensue.parser.parameters import Parameters
from ensue.parser.query_files import is_file
from ensue.parser.sql.sql_query import SqlQuery
from ensue.schema import parse_columns

_SCHEMA_ROWS = 1_000


def run(options: Namespace) -> ExitCode:
    """Find the matches of a query, of several or of a stream, and write them."""
    take_query(options)
    if options.stream is None and len(options.query) > 1:
        return _run_several(options)
    if len(options.query) > 1:
        raise UsageError(
            "a --stream on the command line takes one query\n"
            "  hint: ensue.match(stream, [query, ...]) and ensue.start run several as one"
        )
    options.query = options.query[0]
    if options.stream is not None:
        from ensue.cli.stream import run_stream

        return run_stream(options)
    return _run_one(options)


def _run_one(options: Namespace) -> ExitCode:
    # report a mistake in the query before a large file is read
    query = _read_query(options, options.engine)
    if isinstance(query, SqlQuery | RowPatternQuery):
        return sql_command.run(query, options)
    require_no_stream(options)
    require_pattern_options(options)
    output.check_levels(query)
    returned = output.get_output_options(options, query)
    output.require_folders(options, query)
    form = output.choose_format(options.format, options.output)
    if returned.levels is not None or (isinstance(query, Hierarchy) and query.emit):
        form = output.choose_format_of_several(options, "several levels")
    result, seconds = _find_matches(query, options, form, returned)
    if isinstance(result, Mapping):
        output.write_each(result, options)
        print_notice(f"{format_count(len(result), 'level', 'levels')} in {seconds:.2f} s")
    elif result is not None:
        shown = output.drop_members(result) if form in ("table", "csv") else result
        output.write_matches(shown, options.output, form, options.limit, full_ids=options.full_ids)
        rows = ("match", "matches") if "match_id" in result.column_names else ("row", "rows")
        print_notice(f"{format_count(result.num_rows, *rows)} in {seconds:.2f} s")
        result = {"": result}
    if result is not None:
        aside = options.output == "-" and form != "table"
        output.show_traces(result, query, options, aside=aside)
    if options.output != "-":
        print_notice(f"written to {options.output}")
    return ExitCode.FINE


def _find_matches(queries: Any, options: Namespace, form: str, returned: ensue.OutputOptions) -> tuple[Any, float]:
    """Match the events; return the result, None if Spark has written it, and the seconds."""
    if not options.events:
        raise UsageError("there are no events\n  hint: use --events FILE for a file, --stream SOURCE for a stream")
    files = inputs.resolve_event_files(options.events)
    began = time.perf_counter()
    if options.engine != "spark":
        events = inputs.read_local(files, get_text_options(options))
        columns = event_columns(events, options)
        result = match_events(events, queries, options, columns, returned, progress=True)
        return result, time.perf_counter() - began
    from ensue.backends.spark import session as spark_session

    print_notice("starting Spark ...")
    events = inputs.read_spark(files, get_text_options(options))
    columns = event_columns(events, options)
    result = match_events(events, queries, options, columns, returned)
    if isinstance(result, Mapping):
        result = result.cache() if hasattr(result, "cache") else result
        result = {name: spark_session.collect(result[name]) for name in result}
    else:
        form = "table" if returned.trace or returned.levels is not None else form
        result = sql_command.write_or_collect(result, options, form)
    return result, time.perf_counter() - began


def match_events(
    events: Any,
    queries: Any,
    options: Namespace,
    columns: dict[str, Any],
    returned: ensue.OutputOptions,
    *,
    stream: ensue.StreamOptions | None = None,
    **arguments: Any,
) -> Any:
    """Call `ensue.match` for one query, or for several by name."""
    stream = stream or ensue.StreamOptions(bad_events=options.bad_events)
    call_options: list[Any] = [get_limits(options), stream, returned]
    if not isinstance(queries, dict):
        sample = events if options.stream is None else None
        call_options.append(get_planner_options(options, queries, sample, columns))
    archives = get_archives(options, columns)
    return ensue.match(events, queries, **columns, archives=archives, options=call_options, **arguments)


def _read_query(
    options: Namespace, engine: str | None = None
) -> Query | Hierarchy | ArchiveJoinQuery | RowPatternQuery | SqlQuery:
    parameters = parse_parameters(options)
    query = read_query(options.query, parameters, engine)
    if isinstance(query, SqlQuery):
        sql_command.parse_clauses(query)  # report a mistake before a large file is read
    parameters.require_used()
    return query


def explain(options: Namespace) -> ExitCode:
    """Print the plan of a query; --picture draws it, --analyze runs it."""
    take_query(options)
    query: Any = _read_query(options)
    if isinstance(query, SqlQuery | RowPatternQuery):
        return sql_command.explain(query, options)
    require_pattern_options(options)
    if options.analyze and not options.events:
        raise UsageError("--analyze runs the query: name events with --events")
    read_all = options.analyze or options.statistics == MEASURE
    events, columns = _read_sample(options, rows=None if read_all else _SCHEMA_ROWS)
    planned: dict[str, Any] = {
        "options": get_planner_options(options, query, events, columns),
        "archives": get_archives(options, columns),
    }
    text = ensue.explain(query, events, **columns, **planned, analyze=options.analyze, kernel=options.kernel)
    get_output_console().print(text, markup=False, soft_wrap=True)
    if options.picture:
        output.write_text(options.picture, ensue.picture(query, events, **columns, **planned))
        print_notice(f"picture written to {options.picture}")
    return ExitCode.FINE


def check(options: Namespace) -> ExitCode:
    """Check whether the query can run and, with events, whether it fits their columns."""
    take_query(options)
    query = _read_query(options)
    if isinstance(query, SqlQuery | RowPatternQuery):
        return sql_command.check(query, options)
    require_pattern_options(options)
    output.check_levels(query)
    events, columns = _read_sample(options)
    if events is not None:
        output.check_columns(query, events, columns, get_archives(options, columns))
    fits = "the query fits the events" if events is not None else "the query is valid"
    get_output_console().print(f"ok: {fits}")
    return ExitCode.FINE


def _read_sample(options: Namespace, rows: int | None = _SCHEMA_ROWS) -> tuple[Any, dict[str, Any]]:
    """Read the first events of each file, and the columns of time, type and order."""
    if not options.events:
        if options.time or options.type or options.order:
            raise UsageError("--time, --type and --order need --events")
        return None, {}
    files = inputs.resolve_event_files(options.events)
    events = inputs.read_local(files, get_text_options(options), rows=rows)
    return events, event_columns(events, options)


def event_columns(events: Any, options: Namespace) -> dict[str, Any]:
    """Return the arguments time=, type= and order= of `ensue.match`."""
    if options.time is None:
        time_column: str | tuple[str, str] = inputs.guess_time_column(events)
        print_notice(f"using '{time_column}' as the time of an event (change it with --time)")
    else:
        time_column = parse_columns(options.time)
    order = tuple(name.strip() for names in options.order for name in names.split(","))
    return {"time": time_column, "type": options.type, "order": order}


def _run_several(options: Namespace) -> ExitCode:
    """Find the matches of several queries in one scan, and write those of each query."""
    require_no_stream(options)
    for name in ("trace", "picture"):
        if getattr(options, name):
            raise UsageError(f"--{name} is for a single query")
    parameters = parse_parameters(options)
    queries = _name_queries(options.query, parameters)
    parameters.require_used()
    require_pattern_options(options)
    if options.output != "-":
        output.name_outputs(queries)  # report invalid file names before events are read
    output.choose_format_of_several(options, "several queries")
    named = options.levels
    levels = None if named is None else output.split_levels(named)
    returned = ensue.OutputOptions(levels=levels, flat=options.flat, emit_timeouts=options.timeouts)
    results, seconds = _find_matches(queries, options, "table", returned)
    output.write_each(results, options)
    print_notice(f"{len(queries)} queries in {seconds:.2f} s")
    if options.output != "-":
        print_notice(f"written to {options.output}")
    return ExitCode.FINE


def _name_queries(arguments: list[str], parameters: Parameters) -> dict[str, Query | Hierarchy | ArchiveJoinQuery]:
    """Name the queries by their own names, or their files, or by number."""
    parsed = [read_pattern(argument, parameters) for argument in arguments]
    for query in parsed:
        output.check_levels(query)
    own = [query.name for query in parsed]
    files = [Path(a).stem if is_file(a) else None for a in arguments]
    for names in (own, files):
        if None not in names and len(set(names)) == len(names):
            return {str(name): query for name, query in zip(names, parsed, strict=True)}
    return {f"query{number}": query for number, query in enumerate(parsed, 1)}
