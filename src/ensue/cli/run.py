"""`ensue run`, `ensue explain` and `ensue check`: patterns over event files, and SQL over tables."""

import time
from argparse import Namespace
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

import ensue
from ensue.backends.event_files import EventFile, expand_pattern
from ensue.backends.sql_backend import list_file_tables
from ensue.cli import inputs, output
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
from ensue.cli.terminal import ExitCode, UsageError, format_count, get_output_console, print_notice
from ensue.errors import QueryError, did_you_mean
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
    several = len(options.query) > 1
    if several and options.stream is not None:
        raise UsageError(
            "a --stream on the command line takes one query\n"
            "  hint: ensue.match(stream, [query, ...]) and ensue.start run several as one"
        )
    if not several:
        options.query = options.query[0]
    if options.stream is not None:
        from ensue.cli.stream import run_stream

        return run_stream(options)
    (_run_several if several else _run_one)(options)
    if options.output != "-":
        print_notice(f"written to {options.output}")
    return ExitCode.FINE


def _run_one(options: Namespace) -> None:
    # report a mistake in the query before a large file is read
    query = _read_query(options, options.engine)
    if isinstance(query, SqlQuery | RowPatternQuery):
        _run_sql(query, options)
        return
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
        result = write_or_collect(result, options, form)
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
        _ = [clause.row_pattern for clause in query.clauses]  # report a mistake before a large file is read
    parameters.require_used()
    return query


def explain(options: Namespace) -> ExitCode:
    """Print the plan of a query; --picture draws it, --analyze runs it."""
    take_query(options)
    query: Any = _read_query(options)
    if isinstance(query, SqlQuery | RowPatternQuery):
        return _explain_sql(query, options)
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
        return _check_sql(query, options)
    require_pattern_options(options)
    output.check_levels(query)
    events, columns = _read_sample(options)
    if events is not None:
        ensue.explain(query, events, **columns, archives=get_archives(options, columns))  # it names what does not fit
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


def _run_several(options: Namespace) -> None:
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


# ---------------------------------------------------------------------- SQL

_PATTERN_OPTIONS = (
    "timeouts", "flat", "levels", "trace", "picture", "statistics", "off", "structure", "archive",
    "archive_key", "access", "latency", "max_partial_matches",
)  # fmt: skip
_STREAM_OPTIONS = (
    "watermark", "max_ahead", "checkpoint", "schema", "late", "once", "flush", "every", "evict",
    "shed", "packages", "jars", "history", "since", "allow_gap",
)  # fmt: skip


def require_pattern_options(options: Namespace) -> None:
    """Raise UsageError for SQL options with a pattern query."""
    if options.table:
        raise UsageError("--table is for SQL, and this query is a pattern\n  hint: pass its events with --events")


def require_no_stream(options: Namespace) -> None:
    """Raise UsageError for stream options without --stream."""
    option = _find_option(options, _STREAM_OPTIONS)
    if option is not None:
        raise UsageError(f"--{option} is only for --stream, not for --events")


def require_sql_options(options: Namespace) -> None:
    """Raise UsageError for pattern and stream options with SQL."""
    for name in ("time", "type", "order"):
        if getattr(options, name):
            raise UsageError(
                f"--{name} is not needed for SQL: ORDER BY and PARTITION BY define it\n  hint: leave it out"
            )
    option = _find_option(options, _PATTERN_OPTIONS)
    if option is None and getattr(options, "bad_events", "raise") != "raise":
        option = "bad-events"
    if option is not None:
        raise UsageError(f"--{option} is for patterns, and this query is SQL")
    option = _find_option(options, _STREAM_OPTIONS)
    if option is not None:
        raise UsageError(f"--{option} is for streams, and SQL on the command line reads files")


def _find_option(options: Namespace, names: tuple[str, ...]) -> str | None:
    """Return the first of these options that the command line has."""
    return next((name.replace("_", "-") for name in names if getattr(options, name, None)), None)


Sql = SqlQuery | RowPatternQuery


def _run_sql(query: Sql, options: Namespace) -> None:
    require_sql_options(options)
    form = output.choose_format(options.format, options.output)
    files = _files(query, options, needed=True)
    began = time.perf_counter()
    if options.engine == "spark":
        rows = _on_spark(query, files, options, form)
    else:
        rows = _run_query(query, _read(files, options), options)
    seconds = time.perf_counter() - began
    if rows is not None:
        unique = _with_unique_names(rows)
        output.write_matches(unique, options.output, form, options.limit, full_ids=options.full_ids)
        print_notice(f"{format_count(rows.num_rows, 'row', 'rows')} in {seconds:.2f} s")


def _check_sql(query: Sql, options: Namespace) -> ExitCode:
    """Check whether the query can run and, with tables, whether it fits their columns."""
    require_sql_options(options)
    files = _files(query, options, needed=False)
    if files:
        _run_query(query, _without_rows(_read(files, options)))
    fits = "the query fits the tables" if files else "the query is valid"
    get_output_console().print(f"ok: {fits}")
    return ExitCode.FINE


def _explain_sql(query: Sql, options: Namespace) -> ExitCode:
    require_sql_options(options)
    if options.analyze and not (options.events or options.table):
        raise UsageError("--analyze runs the query: name its tables with --table")
    files = _files(query, options, needed=False)
    tables = _read(files, options) if files else None
    if tables is not None and not options.analyze:
        tables = _without_rows(tables)
    text = query if isinstance(query, RowPatternQuery) else query.text
    params: Any = None if isinstance(query, RowPatternQuery) else query.parameters
    try:
        plan = ensue.explain(text, tables, params=params, analyze=options.analyze, kernel=options.kernel)
    except QueryError as error:
        raise _with_option(error, tables or ()) from None
    get_output_console().print(plan, markup=False, soft_wrap=True)
    return ExitCode.FINE


# ---------------------------------------------------------------------- files and tables


def _files(query: Sql, options: Namespace, *, needed: bool) -> tuple[EventFile, ...]:
    """Return the files of the tables that the query names."""
    files = inputs.resolve_table_files([*options.table, *(options.events or ())])
    names = list(dict.fromkeys(str(file.type) for file in files))
    if isinstance(query, RowPatternQuery):
        if needed and not files:
            raise UsageError("the clause needs a table: name its file with --table")
        return _files_of_clause(files, options)
    given = {str(file.type).lower() for file in files}
    paths = [n for n in list_file_tables(query.text) if n.lower() not in given]
    files += tuple(EventFile(file, path) for path in paths for file in expand_pattern(path))
    names += paths
    if files or needed:
        _require_tables(query, names)
    for name in names:
        if name.lower() not in query.names:
            print_notice(f"note: the query does not name the table {name}")
    return tuple(file for file in files if str(file.type).lower() in query.names)


def _files_of_clause(files: tuple[EventFile, ...], options: Namespace) -> tuple[EventFile, ...]:
    """Return the files of the only table of a single clause."""
    named = inputs.resolve_table_files(options.table) if options.table else ()
    if len({str(file.type).lower() for file in named}) + bool(options.events) > 1:
        raise UsageError(
            "a single MATCH_RECOGNIZE clause reads one table, but several are given\n"
            "  hint: SELECT * FROM name MATCH_RECOGNIZE (...) names the table"
        )
    return tuple(EventFile(file.path) for file in files)


def _require_tables(query: SqlQuery, names: Iterable[str]) -> None:
    """Raise QueryError for a table without a file, before files are read."""
    known = {name.lower() for name in names}
    for clause in query.clauses:
        plain = query.plain_table(clause)
        if plain is not None and plain.lower() not in known:
            problem = f"unknown table '{plain}'"
            hint = _hint_table(plain, names)
            raise QueryError(problem, hint=hint, span=clause.input, text=query.text)


def _hint_table(name: str, names: Iterable[str]) -> str:
    near = did_you_mean(name, names) or ""
    if near.startswith("did you mean"):
        return near
    return f"name its file: --table {name}=FILE"


def _read(files: tuple[EventFile, ...], options: Namespace) -> Any:
    """Read a table, or the tables of a query by name."""
    return inputs.read_local(files, get_text_options(options)) if files else {}


def _without_rows(tables: Any) -> Any:
    if isinstance(tables, dict):
        return {name: table.slice(0, 0) for name, table in tables.items()}
    return tables.slice(0, 0)


# ---------------------------------------------------------------------- running


def _run_query(query: Sql, tables: Any, options: Namespace | None = None, **spark: Any) -> Any:
    limits = ensue.Limits()
    if options is not None:
        limits = ensue.Limits(memory=options.memory, max_matches=options.max_matches)
    if isinstance(query, RowPatternQuery):
        return ensue.match(tables, query, options=limits)
    values = query.parameters.values
    try:
        return ensue.sql(query.text, params=values, tables=tables, **spark, options=limits)
    except QueryError as error:
        raise _with_option(error, tables) from None


def _with_unique_names(rows: pa.Table) -> pa.Table:
    """Number duplicate column names, which SQL allows and files do not.

    >>> _with_unique_names(pa.table([[1], [2], [3]], names=["a", "b", "a"])).column_names
    ['a', 'b', 'a_2']
    """
    taken = set(rows.column_names)
    names: list[str] = []
    for name in rows.column_names:
        if name in names:
            name = next(n for k in count(2) if (n := f"{name}_{k}") not in taken)
            taken.add(name)
        names.append(name)
    return rows.rename_columns(names)


def _with_option(error: QueryError, tables: Iterable[str]) -> QueryError:
    """Add the command-line hint to an error about an unknown table."""
    before, name, after = error.problem.partition("unknown table '")
    if name and not before and not str(error.hint).startswith("did you mean"):
        error.hint = _hint_table(after.rstrip("'"), tables)
    return error


def _on_spark(query: Sql, files: tuple[EventFile, ...], options: Namespace, form: str) -> Any:
    from ensue.backends.spark import session as spark_session

    print_notice("starting Spark ...")
    tables = inputs.read_spark(files, get_text_options(options)) if files else {}
    frame = _run_query(query, tables, options, spark=spark_session.get_or_create_session())
    return write_or_collect(frame, options, form)


def write_or_collect(frame: Any, options: Namespace, form: str) -> Any:
    """Return the rows of a DataFrame; None if Spark has written them as Parquet."""
    from ensue.backends.spark import session as spark_session

    if form != "parquet" or options.output == "-":
        return spark_session.collect(frame)
    if Path(options.output).exists():
        raise UsageError(f"{options.output} exists; Spark writes a new folder")
    spark_session.write_parquet(frame, options.output)
    return None
