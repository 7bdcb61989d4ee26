"""The public functions of Ensue; all other modules may change."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, get_args

from ensue.analyzer.output_mode import is_summarized
from ensue.brief_tracebacks import shorten_tracebacks
from ensue.cached import pause_collection
from ensue.errors import (
    ArchiveWarning,
    EnsueError,
    EventError,
    LimitError,
    LimitWarning,
    OperatorError,
    QueryError,
    RunnerError,
    ServiceError,
    SkipError,
    StateError,
    SubscriptionWarning,
)
from ensue.ir.archive_join import ArchiveJoinQuery, RowPatternSide
from ensue.ir.hierarchy import Definition, Hierarchy
from ensue.ir.query import Query
from ensue.ir.row_pattern import RowPatternQuery
from ensue.ir.subscription import Subscription
from ensue.ir.user_operator import UserOperator
from ensue.ir.user_operator import operator as _operator
from ensue.notebook_repr import Picture, PlanText, register_text
from ensue.optional_deps import require_extra
from ensue.options import (
    DEFAULT,
    Archives,
    ArchiveWriter,
    History,
    Limits,
    Location,
    OutputOptions,
    StreamOptions,
    list_names,
)
from ensue.parser.builder import PatternBuilder, all_of, one_of, pattern
from ensue.parser.parameters import Parameters, build_parameters
from ensue.planner.planner_options import PlannerOptions
from ensue.planner.statistics import Statistics
from ensue.progress_bars import progress_bar
from ensue.subscriptions import Subscriptions
from ensue.traceback_filter import find_stacklevel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ensue.archives.archive import Archive
    from ensue.backends.live_backend import LiveSession
    from ensue.backends.local import Backend
    from ensue.backends.spark.event_time import Watermark
    from ensue.backends.spark.match_frames import SeveralMatches
    from ensue.backends.spark.sinks import Sink
    from ensue.backends.spark.start import Output, RunningStream
    from ensue.backends.sql_backend import SqlArchives
    from ensue.lineage.trace import Trace
    from ensue.parser.sql.sql_query import MatchClause, SqlQuery
    from ensue.runtime.query_spec import QuerySpec, RunOptions
    from ensue.runtime.source_schema import SourceOptions
    from ensue.runtime.stage import Progress
    from ensue.runtime.workload import Workload

ParsedQuery = Query | Hierarchy | ArchiveJoinQuery | RowPatternQuery
OneQuery = str | Path | PatternBuilder | ParsedQuery
ManyQueries = Sequence[OneQuery] | Mapping[str, OneQuery]
Options = Limits | StreamOptions | OutputOptions | PlannerOptions
Definitions = Definition | UserOperator | Iterable[Any]  # from `define` and `operator`, also nested
Place = str | tuple[str, str] | Location

__all__ = [
    "ArchiveJoinQuery",
    "ArchiveWarning",
    "ArchiveWriter",
    "Archives",
    "Definition",
    "EnsueError",
    "EventError",
    "Hierarchy",
    "History",
    "LimitError",
    "LimitWarning",
    "Limits",
    "Location",
    "OperatorError",
    "OutputOptions",
    "PatternBuilder",
    "PlannerOptions",
    "Query",
    "QueryError",
    "RunnerError",
    "ServiceError",
    "SkipError",
    "StateError",
    "Statistics",
    "StreamOptions",
    "Subscription",
    "SubscriptionWarning",
    "Subscriptions",
    "UserOperator",
    "all_of",
    "archive",
    "create_archive",
    "define",
    "delta_table",
    "explain",
    "kafka_topic",
    "live",
    "match",
    "one_of",
    "operator",
    "parquet_table",
    "parse",
    "pattern",
    "picture",
    "plot",
    "remaining",
    "show",
    "sql",
    "start",
    "statistics",
    "trace",
]


@shorten_tracebacks
def operator(
    name: str,
    *,
    q: Callable[..., Any] | None = None,
    f: Callable[..., Any] | None = None,
    z: Mapping[str, str] | None = None,
    over: str = "pair",
    order: str = "sequence",
    cost: float = 1.0,
    passes: float = 0.5,
    reads: Iterable[str] = (),
) -> UserOperator:
    """Creates an operator S = (Q, F, Z), which a query uses as `name(A a, B b) r`.

    A call knows the operators that you pass it: `match(..., definitions=op)`.

    `q` returns whether events combine, `f` the (start, end, attributes...) of the result, and `z`
    maps attributes to kinds: "float", "integer", "boolean", "timestamp", "duration" or "string".
    Events have `.start`, `.end` and their fields; times and durations are nanoseconds if the time
    column holds timestamps.

    `over="pair"`: q(a, b) and f(a, b) take two events, `a` before `b` unless `order="any"`.
    `over="each"`: q(a) and f(a) take one event.
    `over="repeat"`: q(last, a) and f(a); it fires at the first event of a partition, then
    whenever `q` is true for the event before and the next one.

    Constants of the query, as in `near(A a, B b, 10 minutes) r`, are further arguments of `q`
    and, if it takes them, of `f`. Without `q` everything combines; without `f` a result lasts
    from the first event's start to the last one's end.

    The planner uses `cost` (of calling `q`, compared with `a.x < b.x`) and `passes` (the share of
    combinations for which it is true). `reads` names fields that `q` or `f` read in a way that
    does not show in their code.

    >>> near = operator("near", q=lambda a, b, most: b.start - a.end <= most)
    >>> import pyarrow as pa
    >>> events = pa.table({"t": [1, 3, 9], "kind": ["A", "B", "B"]})
    >>> found = match(events, "near(A a, B b, 3) r", time="t", type="kind", definitions=near)
    >>> found.num_rows
    1
    """
    return _operator(name, q=q, f=f, z=z, over=over, order=order, cost=cost, passes=passes, reads=reads)


@shorten_tracebacks
def define(
    text: str | PatternBuilder,
    *,
    params: Mapping[str, Any] | None = None,
    definitions: "Definitions" = (),
    folder: "str | Path | None" = None,
) -> tuple[Definition, ...]:
    """Defines complex events: `EVENT Name AS pattern ...;`, one or more.

    Queries to which you pass them can use them as event types: `match(..., definitions=...)`. The
    text may use operators, and other definitions, of `definitions`; these are returned too. IMPORT
    looks for files in `folder`. `params` are the values of parameters in the text, as for `match`.

    >>> hot = define("EVENT Hot AS SEQ(T a, T b) WITHIN 5")
    >>> print(show(parse("SEQ(Hot x, Hot y)", definitions=hot)))
    EVENT Hot AS PATTERN SEQ(T a, T b)
    WITHIN 5;
    PATTERN SEQ(Hot x, Hot y)
    """
    from ensue.parser.definitions import parse_definitions

    if isinstance(text, PatternBuilder):
        text = text.text
    known = _list_definitions(definitions)
    operators = [one for one in known if isinstance(one, UserOperator)]
    with _parameters(params) as parameters:
        defined = parse_definitions(text, None if folder is None else Path(folder), operators, parameters)
    return (*(one for one in known if isinstance(one, Definition)), *defined)


@shorten_tracebacks
def parse(
    text: str | Path | PatternBuilder,
    *,
    params: Mapping[str, Any] | None = None,
    definitions: "Definitions" = (),
    folder: "str | Path | None" = None,
    language: str | None = None,
    regions: Mapping[str, str] | None = None,
) -> ParsedQuery | Subscription:
    """Parses a text into a query; a QueryError points at a mistake.

    A text that has or uses definitions gives a `Hierarchy`, one with JOIN ARCHIVE an
    `ArchiveJoinQuery`, one in OPSL a `Subscription`. A `Path` names a file with the text; its imports are relative to
    it, others to `folder`. `language` is recognised by default. `regions` are the texts of regions
    that an OPSL text names. `params` and `definitions` are as for `match`.

    >>> parse("SEQ(Shelf x, !Counter y, Exit z) WHERE [tag] WITHIN 12 hours").strategy.value
    'skip_till_any_match'
    >>> print(show(parse("SEQ(A a, B b) WHERE a.kind IN :kinds", params={"kinds": ["x", "y"]})))
    PATTERN SEQ(A a, B b)
    WHERE a.kind in ('x', 'y')
    """
    with _parameters(params) as parameters:
        return _parse(text, parameters, _list_definitions(definitions), folder, language, regions)


@contextmanager
def _parameters(params: Mapping[str, Any] | None) -> Iterator[Parameters]:
    """Provides the parameters of a call; a value that no query uses raises an error."""
    parameters = build_parameters(params)
    yield parameters
    parameters.require_used()


def _parse(
    text: str | Path | PatternBuilder,
    parameters: Parameters,
    definitions: Iterable[Definition | UserOperator] = (),
    folder: "str | Path | None" = None,
    language: str | None = None,
    regions: Mapping[str, str] | None = None,
) -> ParsedQuery | Subscription:
    from ensue.parser import registry
    from ensue.parser.query_files import is_file_name, suggest_file

    if isinstance(text, Path):
        folder = folder or text.parent
        text = _read_file(text)
    if isinstance(text, PatternBuilder):
        text, language = text.text, "patterns"
    if not isinstance(text, str):
        raise QueryError(f"a query is a text, not {_a_type(text)}")
    if is_file_name(text):
        file = Path(text.strip())
        if not file.is_file():
            raise QueryError(f"there is no query file {file}", hint=suggest_file(file))
        raise QueryError(
            f"'{file}' is the name of a file, but a query is expected here",
            hint=f"pass pathlib.Path({str(file)!r}), to read the file",
        )
    if language is None and _is_sql(text):
        raise QueryError(
            "this is a SQL query, but a pattern or a MATCH_RECOGNIZE clause is expected here",
            hint="ensue.sql(text, tables={...}) runs it",
        )
    return registry.parse(
        text,
        None if folder is None else Path(folder),
        definitions=definitions,
        language=language,
        regions=regions or {},
        parameters=parameters,
    )


def _is_sql(text: str) -> bool:
    """Whether a text is a SQL query that contains a MATCH_RECOGNIZE clause."""
    if "MATCH_RECOGNIZE" not in text.upper():  # avoids loading the SQL parser
        return False
    from ensue.parser.sql.sql_query import claims_sql

    return claims_sql(text)


def _read_file(file: Path) -> str:
    from ensue.parser.query_files import suggest_file

    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise QueryError(f"there is no query file {file}", hint=suggest_file(file)) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise QueryError(f"the query file {file} cannot be read: {reason}") from None


@shorten_tracebacks
def show(query: str | PatternBuilder | ParsedQuery | Subscription, language: str = "patterns") -> str:
    """Returns the canonical text of a query, or of a text; parsing it gives the same query.

    >>> print(show(parse("pattern A a -> B b within 5 min")))
    PATTERN SEQ(A a, B b)
    WITHIN 5 minutes
    """
    from ensue.parser import registry

    if isinstance(query, str):
        query = parse(query)
    return registry.show(query.query if isinstance(query, PatternBuilder) else query, language)


@shorten_tracebacks
def match(
    events: Any,
    query: "OneQuery | ManyQueries | Subscriptions",
    *,
    params: Mapping[str, Any] | None = None,
    definitions: "Definitions" = (),
    time: str | tuple[str, str] | None = None,
    type: str | None = None,
    order: Sequence[str] | str = (),
    location: Place | None = None,
    watermark: "Watermark | None" = None,
    archives: "Mapping[str, Archive] | Archives | None" = None,
    options: Options | Sequence[Options] = (),
    progress: "Progress | bool | None" = None,
) -> Any:
    """Finds every match of a query in a stream of events.

    >>> import pyarrow as pa
    >>> events = pa.table({"t": [1, 2, 3], "kind": ["A", "B", "B"], "x": [5, 3, 9]})
    >>> found = match(events, "SEQ(A a, B b) WHERE b.x > a.x", time="t", type="kind")
    >>> found.select(["start", "end"]).to_pylist()
    [{'start': 1, 'end': 3}]

    Several queries in one call share one scan of the events:

    >>> found = match(events, {"up": "SEQ(A a, B b)", "x": "A a"}, time="t", type="kind")
    >>> {name: table.num_rows for name, table in found.items()}
    {'up': 2, 'x': 1}

    Args: Events and query
        events: An Arrow, pandas or Polars table (also a LazyFrame), a DuckDB relation or anything
            else with the Arrow interface, a Spark DataFrame, batch or streaming, an Arrow dataset,
            scanner or reader of record batches, or the path of a CSV, JSON lines, Parquet or Arrow
            file, of a folder of them, or a pattern such as "day/*.csv"; of these last four kinds,
            text files aside, there may be more events than fit into memory. Also a dict of one of
            these per event type.
        query: A text, the Path of a file with one, or a query built by `pattern`; a list or a
            dict of queries, which share one scan; or a set of `Subscriptions`. Queries in a list
            are named by `EVENT Name AS ...` if all have different names, otherwise by position.
        params: Values for the parameters in the text: `{"gap": timedelta(minutes=5)}` for
            `WITHIN :gap`. A value is a number, a string, a boolean, a date, a datetime, a
            timedelta, None, or a list of them for IN; it is never parsed as part of the query.
        definitions: What the query may use: complex events from `define` and operators from
            `operator`, one or several.

    Args: What the columns mean
        time: The column with the event time, or a pair (start, end) for events with a duration.
            It may be the index of a pandas table: its name, or "index" if it has none.
        type: The column with the event type; without it, all events have the same type.
        order: Columns that order events with the same time; after that, arrival decides.
        location: A column of geometries, two numeric columns (x, y), or an `ensue.Location`, also
            for degrees of longitude and latitude.

    Args: How it runs
        watermark: How far an event of a stream may lag the newest one: a duration such as
            "10 seconds", or a number if the time column holds numbers. A streaming DataFrame
            needs it, or its own withWatermark(...).
        archives: The archives that JOIN ARCHIVE names, each from `ensue.archive`, or an
            `ensue.Archives` that also says how they are read.
        options: `ensue.Limits` on memory and matches, `ensue.StreamOptions` for how events are
            read, `ensue.OutputOptions` for what is returned, `ensue.PlannerOptions` for the plan,
            which never changes the matches: one of them, or several in a list.
        progress: True shows a bar on a terminal or in a notebook, and nothing elsewhere; a
            function is called with the number of processed and of all events. Spark evaluates
            lazily, so there it is not possible; a stream from `start` has `wait(progress=True)`.

    Returns:
        A result of the same kind as the events: pandas, Polars (a LazyFrame for a LazyFrame,
        which is collected immediately), a DuckDB relation on the same connection, a lazy Spark
        DataFrame, streaming for a streaming one, and otherwise an Arrow table, as for files and
        tables of different kinds in a dict. For several queries, a dict of their matches.
    """
    from ensue.backends.dataframe_libs import convert_result
    from ensue.runtime.query_spec import RunOptions

    limits, stream, output, planning = _read_options("match", options, *_OPTIONS)
    runner = _runner(events)
    if progress and _is_spark(events):
        raise EventError(
            "progress= is for tables in this process: Spark evaluates lazily\n"
            "  hint: running.wait(progress=True) shows the progress of a stream; Spark's "
            "spark.ui.showConsoleProgress=true that of a batch"
        )
    if not runner.STREAMING:
        whole = "ensue.Limits(evict=...) is for streams: a table is matched as a whole"
        _require(limits.evict is None, whole, "leave it out; ensue.Limits(memory=...) limits the query")
        late = "ensue.Limits(shed=...) is for Spark streams: a table cannot fall behind the clock"
        _require(limits.shed is None, late, "leave it out")
    specs = _read_queries(query, definitions, params)
    arguments = _describe_source(
        query, specs, runner.STREAMING, time=time, type=type, order=order, location=location,
        watermark=watermark, stream=stream,
    )  # fmt: skip
    _require_possible(output, specs)
    planning = replace(planning, limits=replace(limits, per_core=_is_spark(events)))
    workload, frame = _plan_over(
        runner, events, specs, arguments, RunOptions(planning=planning, output=output), archives
    )
    with progress_bar(progress, "matching") as report:
        results = runner.run(workload, frame, replace(arguments, progress=report))
    results = convert_result(events, results)
    return next(iter(results.values())) if workload.is_single and len(results) == 1 else results


@shorten_tracebacks
def sql(
    text: str | Path,
    *,
    params: Mapping[str, Any] | None = None,
    tables: Mapping[str, Any] | None = None,
    spark: "SparkSession | None" = None,
    archives: "Mapping[str, Archive] | Archives | None" = None,
    watermark: "Watermark | None" = None,
    options: Options | Sequence[Options] = (),
) -> Any:
    """Runs a SQL query that may use MATCH_RECOGNIZE after any table.

    >>> import pyarrow as pa
    >>> prices = pa.table({"day": [1, 2, 3, 4], "price": [9, 7, 8, 10]})
    >>> query = (
    ...     "SELECT * FROM prices MATCH_RECOGNIZE ("
    ...     " ORDER BY day MEASURES FIRST(day) AS from_day, LAST(day) AS to_day"
    ...     " PATTERN (START_ROW DOWN+ UP+)"
    ...     " DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price))"
    ... )
    >>> sql(query, tables={"prices": prices}).to_pylist()
    [{'from_day': 1, 'to_day': 4}]

    Args:
        text: The query, or the Path of a file with it.
        params: The values of parameters, as for `match`: `:low` in clauses and in the SQL around
            them.
        tables: The tables that the query names: Arrow, pandas or Polars tables, DuckDB relations
            or anything else with the Arrow interface; the other SQL then runs on DuckDB. With
            Spark DataFrames it runs on Spark SQL. A query with `tables=` reads these tables and nothing
            else; pass it if a stranger wrote the text. Without it, names are variables of the caller or
            paths of files: `FROM prices`, `FROM 'prices.parquet'`.
        spark: A session whose tables and views the query can use as well.
        archives: Tables of past events, as for `match`. A clause over one that is joined with a
            clause over a table or stream, by a time range before its matches, runs like JOIN
            ARCHIVE. Batch queries can also read an archive as a table.
        watermark: A clause over a streaming DataFrame needs one, as `match` does, and event time
            as the first column of its ORDER BY.
        options: `ensue.Limits` for each clause, and `ensue.StreamOptions(key_groups=...)` for the
            partitions of a stream.

    Returns:
        A table of the same kind as the tables, as for `match`; for different kinds an Arrow
        table; on Spark a DataFrame, streaming if one of the tables is. `start` takes a stream
        with the column match_id: a query that names it gets it from each clause, before the
        others.
    """

    with require_extra("SQL", "sql"):
        from ensue.backends.sql_backend import find_tables, run_sql
    from ensue.runtime.source_schema import SourceOptions

    limits, stream, _, _ = _read_options("sql", options, Limits, StreamOptions)
    only = StreamOptions(key_groups=stream.key_groups)
    _require(stream == only, "of ensue.StreamOptions, SQL takes key_groups=", "leave the others out")
    if isinstance(text, Path):
        text = _read_file(text)
    arguments = SourceOptions(time="", watermark=watermark, stream=stream)
    past = Archives.wrap(archives)
    if tables is None and spark is None and isinstance(text, str):
        caller = sys._getframe(find_stacklevel() - 1)
        archived = {name.lower() for name in past.archives}
        found = find_tables(text, {**caller.f_globals, **caller.f_locals})
        tables = {name: table for name, table in found.items() if name.lower() not in archived}
    return run_sql(
        text,
        tables=tables,
        spark=spark,
        recognize=lambda clause, relation: match_clause(clause, relation, arguments, limits),
        archived=_collect_archives(past, arguments, limits) if past.archives else None,
        parameters=build_parameters(params),
    )


def _collect_archives(archives: Archives, arguments: "SourceOptions", limits: Limits) -> "SqlArchives":
    """Returns the archives of a SQL query, and the function that joins a clause with them."""
    from ensue.backends.sql_backend import SqlArchives
    from ensue.operators.row_match.compiled_clause import get_tie_columns, get_time_column

    def join(query: ArchiveJoinQuery, relation: Any) -> Any:
        assert isinstance(query.live, RowPatternSide)
        clause = query.live.row_pattern
        return match(
            relation, query, time=get_time_column(clause), order=get_tie_columns(clause) or (),
            archives=archives, watermark=arguments.watermark if _runner(relation).STREAMING else None,
            options=[limits, arguments.stream],
        )  # fmt: skip

    return SqlArchives(dict(archives.archives), archives.own, join)


def match_clause(clause: "MatchClause", relation: Any, arguments: "SourceOptions", limits: Limits) -> Any:
    """Matches a clause over a table or a DataFrame; the result has exactly the standard's columns.

    If the query selects match_id, it is the first column.
    """
    from ensue.operators.row_match.compiled_clause import plan_arrangement
    from ensue.runtime.query_spec import QuerySpec, RunOptions

    runner, query = _runner(relation), clause.row_pattern
    columns = relation.columns if _is_spark(relation) else relation.column_names
    ids = clause.asks_ids and "match_id" not in map(str.lower, columns)
    planning = PlannerOptions(limits=replace(limits, per_core=_is_spark(relation)))
    order = plan_arrangement([(None, query)], None, (), streaming=runner.STREAMING)
    arguments = replace(arguments, arranging=order, number=clause.number)
    if not runner.STREAMING:  # a query may join a stream with tables
        arguments = replace(arguments, watermark=None)
    specs, options = (QuerySpec(query),), RunOptions(planning=planning, ids=ids)
    workload, frame = _plan_over(runner, relation, specs, arguments, options, None)
    return next(iter(runner.run(workload, frame, arguments).values()))


@shorten_tracebacks
@pause_collection()
def live(
    query: "OneQuery | ManyQueries | Subscriptions",
    *,
    schema: Any,
    params: Mapping[str, Any] | None = None,
    definitions: "Definitions" = (),
    time: str | tuple[str, str] | None = None,
    type: str | None = None,
    order: Sequence[str] | str = (),
    location: Place | None = None,
    watermark: "Watermark | None" = None,
    archives: "Mapping[str, Archive] | Archives | None" = None,
    options: Options | Sequence[Options] = (),
) -> "LiveSession":
    """Creates a matcher in this process that you feed with events as they arrive.

    `live.feed(events)` returns the matches that are certain by then, as an Arrow table;
    `live.advance(time)` those that only waited for time to pass, `live.finish()` those that waited
    for the end. Together they are those of `match` on all events, with the same ids. `live.save()`
    returns bytes from which `live.restore(...)` continues elsewhere, and
    `async for matches in live.over(source)` feeds the events of a source.

    >>> columns = {"t": "int64", "kind": "string"}
    >>> matcher = live("SEQ(A a, B b) WITHIN 5", schema=columns, time="t", type="kind")
    >>> matcher.feed({"t": 1, "kind": "A"}).num_rows
    0
    >>> matcher.feed({"t": 3, "kind": "B"}).num_rows
    1

    Args:
        query: As for `match`, like all arguments that are not listed here.
        schema: The columns of events: an Arrow schema, a dict of Arrow types by name, a table, or
            a dict of one of these by event type, as `match` takes a dict of tables.
        watermark: How far events may be out of order. They wait until an event arrives that is
            newer by that much. Without it, events that are not in order of time, then of `order`,
            are late.
    """
    from ensue.backends.live_backend import LiveEventReader, LiveSession, build_source
    from ensue.runtime.grouping import require_finite_result
    from ensue.runtime.query_spec import RunOptions, open_archives
    from ensue.runtime.workload import Workload

    limits, stream, output, planning = _read_options("live", options, *_OPTIONS)
    _require(limits.shed is None, "ensue.Limits(shed=...) is for Spark streams", "leave it out")
    _require(
        stream.key_groups is None and stream.max_ahead == DEFAULT,
        "ensue.StreamOptions(key_groups=..., max_ahead=...) is for Spark streams",
        "leave them out: a live matcher runs in this process, and follows the times of its events",
    )
    past = open_archives(archives)
    specs = _read_queries(query, definitions, params)
    arguments = _describe_source(
        query, specs, True, time=time, type=type, order=order, location=location, watermark=watermark, stream=stream,
    )  # fmt: skip
    _require_possible(output, specs)
    require_finite_result(specs)
    reader = LiveEventReader(schema, arguments.time, arguments.type, arguments.order, arguments.arranging)
    workload = Workload(
        specs, build_source(reader, arguments),
        RunOptions(planning=replace(planning, limits=limits), output=output),
        deliver_late=stream.delivers_late_events, archive_set=past,
    )  # fmt: skip
    return LiveSession(reader, workload, arguments)


_OPTIONS: tuple[Any, ...] = (Limits, StreamOptions, OutputOptions, PlannerOptions)


def _read_options(
    call: str, options: object, *kinds: "type[Options]"
) -> tuple[Limits, StreamOptions, OutputOptions, PlannerOptions]:
    """Returns the options of a call, the default ones where it has none; it takes those of `kinds`."""
    names = [f"ensue.{kind.__name__}" for kind in kinds]
    found: dict[Any, Any] = {}
    for one in options if isinstance(options, list | tuple) else (options,):
        if one.__class__ not in kinds:
            what = f"ensue.{one.__class__.__name__}" if isinstance(one, _OPTIONS) else _a_type(one)
            several = f", or several: options=[{names[0]}(...), {names[1]}(...)]" if len(names) > 1 else ""
            raise EventError(
                f"options= of ensue.{call} takes {' or '.join(names)}, not {what}\n"
                f"  hint: options={names[0]}(...){several}"
            )
        if one.__class__ in found:
            raise EventError(f"options= has ensue.{one.__class__.__name__} twice\n  hint: write their fields into one")
        found[one.__class__] = one
    limits, stream, output, planning = (found.get(kind, kind()) for kind in _OPTIONS)
    return limits, stream, output, planning


def _require_possible(output: OutputOptions, specs: "Sequence[QuerySpec]") -> None:
    """Raises a QueryError for what the queries of a call cannot return."""
    queries = [spec.query for spec in specs]
    patterns = [query for query in queries if isinstance(query, Query)]
    _require(
        output.levels is None or any(isinstance(query, Hierarchy) for query in queries),
        "ensue.OutputOptions(levels=...) names definitions of the query, and this query has none",
        "EVENT Name AS ...; before a query defines an event",
    )
    _require(
        not output.trace or any(isinstance(query, Query | Hierarchy) for query in queries),
        "ensue.OutputOptions(trace=True) is for patterns and queries with definitions: others have no members",
        "leave it out",
    )
    _require(
        not (output.trace and any(is_summarized(q) or (q.whole and q.whole.grouped) for q in patterns)),
        "ensue.OutputOptions(trace=True) shows the events of a match, and COUNT(*), EXISTS, TOTAL and "
        "GROUP BY give no matches",
        "leave it out, or return the matches",
    )
    _require(
        not (output.flat and output.trace),
        "flat=True cannot be combined with trace=True: a match is traced through its nested members",
        "leave one of them out",
    )


def _require(valid: bool, problem: str, hint: str) -> None:
    if not valid:
        raise QueryError(problem, hint=hint)


def _runner(events: Any) -> "Backend":
    """Returns the backend for events of this kind."""
    backend: Backend = resolve_name(next(module for takes, module in BACKENDS if takes(events)))
    return backend


@pause_collection()
def _read_queries(query: Any, definitions: "Definitions", params: Mapping[str, Any] | None) -> "tuple[QuerySpec, ...]":
    from ensue.runtime.query_spec import QuerySpec, name_queries

    known = _list_definitions(definitions)
    if isinstance(query, Subscriptions):
        return (QuerySpec(query.subscribed()),)
    if not isinstance(query, OneQuery | Subscription | Mapping | Sequence):
        raise QueryError(f"a query is a text, not {_a_type(query)}")
    with _parameters(params) as parameters:

        def read(one: Any) -> ParsedQuery:
            return _read(one, parameters, known)

        if isinstance(query, OneQuery | Subscription):
            return (QuerySpec(read(query)),)
        queries = name_queries(query, read)
        return tuple(QuerySpec(q, name, n) for n, (name, q) in enumerate(queries.items()))


def _read(
    query: OneQuery | Subscription, parameters: Parameters, definitions: Sequence[Definition | UserOperator] = ()
) -> ParsedQuery:
    from ensue.parser.definitions import add_definitions

    match query:
        case Hierarchy() | ArchiveJoinQuery() | RowPatternQuery():
            return query
        case Query():
            return add_definitions(query, [one for one in definitions if isinstance(one, Definition)])
        case PatternBuilder():
            return _read(query.query, parameters, definitions)
        case Subscription():
            parsed: ParsedQuery | Subscription = query
        case _:
            parsed = _parse(query, parameters, definitions)
    if isinstance(parsed, Subscription):
        raise QueryError(
            "this is a subscription, but a query is expected here",
            hint="put it into ensue.Subscriptions and match that",
            text=parsed.text,
        )
    return parsed


def _read_pattern(one: OneQuery, params: Mapping[str, Any] | None) -> Query | Hierarchy:
    with _parameters(params) as parameters:
        query = _read(one, parameters)
    if isinstance(query, RowPatternQuery):
        raise QueryError(
            "MATCH_RECOGNIZE is not supported here yet",
            hint="ensue.match, ensue.live and ensue.explain take it",
            text=query.text,
        )
    if isinstance(query, ArchiveJoinQuery):
        raise QueryError(
            "JOIN ARCHIVE is not supported here yet",
            hint="leave it out: here a query reads one stream",
            span=query.joins[0].span,
            text=query.text,
        )
    return query


@shorten_tracebacks
def start(
    matches: "DataFrame | SeveralMatches",
    output: "Output | Mapping[str | int, Output]",
    *,
    checkpoint: "str | Path",
    late: "Output | None" = None,
    every: str | None = None,
    once: bool = False,
    flush: bool = False,
    name: str | None = None,
    history: Any = None,
    archive: "str | Archive | ArchiveWriter | None" = None,
    shed_to: "Output | None" = None,
    progress: bool = False,
) -> "RunningStream":
    """Starts a stream of matches.

    ```python
    matches = ensue.match(stream, query, time="ts", type="kind", watermark="1 minute")
    running = ensue.start(matches, "matches/", checkpoint="checkpoint/")
    running.wait()
    ```

    The result waits (`running.wait(seconds)`), shows its last micro-batches
    (`running.progress()`), stops now (`running.stop()`, or at the end of a `with` statement) or
    when all available events are processed (`running.finish()`), and has Spark's own
    `running.query`.

    A damaged checkpoint, overlapping folders, and a table with other columns raise an error
    before the start. If the stream fails with `once=True`, this raises an Ensue error; for one
    that keeps running, `running.wait()` does.

    Args: Output
        matches: The result of `match` or `sql` for a streaming DataFrame.
        output: A folder for Parquet files, one of `parquet_table`, `delta_table`, `kafka_topic`,
            or a function of a DataFrame of matches and the number of the micro-batch. For several
            queries a dict with an output per query, or a folder in which each has a subfolder.
        checkpoint: The folder from which the stream continues after a stop or a crash, without
            losing or repeating a match in a table.
        late: Like `output`, for late events of matches with `late_events="deliver"`.
        shed_to: The output for the losses of `Limits(shed=...)`: the columns of a key, the
            interval `shed_from` to `shed_until` in which matches of it may be missing, and its
            number of dropped events, `shed_events`.

    Args: Schedule
        every: The time between micro-batches, such as "10 seconds". By default one starts when
            the previous one is done.
        once: Process the available events, then return.
        flush: With `once`: treat the stream as ended, and also deliver matches that only waited
            for events or time: together the same matches as in a batch run.
        name: Spark's name for the query.
        progress: With `once`: show the progress on a terminal or in a notebook. For a stream that
            keeps running, `running.wait(progress=True)` does so.

    Args: History and archive
        history: A table of past events that the stream starts with: the result of `archive`, a
            batch DataFrame, or a table; or `History(table, since=..., gap=...)`. One batch job
            matches its events up to where it is complete: `archive(..., complete=)`, or just after
            its newest event. Its matches are delivered as micro-batch -1; then the stream
            continues from there, and drops and counts events that the history already had
            (`before_cut` in `progress()`). It is read once: a restarted stream continues from its
            checkpoint.
        archive: The archive that the stream writes: the result of `archive` for one that Ensue
            has created, or its name among those of `match`; or `ArchiveWriter(archive, rows=...,
            age=...)`, which says when. Archives that a stream only reads are read at their version
            of its first start.
    """
    with require_extra("a stream", "spark"):
        from ensue.backends.spark import start as spark_start

    if progress and not once:
        raise EventError(
            "progress=True needs once=True: otherwise the stream runs in the background\n"
            "  hint: running.wait(progress=True) waits for it and shows its progress"
        )
    running = spark_start.start(
        matches,
        output,
        checkpoint=checkpoint,
        late=late,
        every=every,
        once=once,
        flush=flush,
        name=name,
        history=history,
        archive=archive,
        shed_to=shed_to,
    )
    if once:
        spark_start.wait_to_end(running, flush=flush, progress=progress)
    return running


@shorten_tracebacks
def remaining(
    spark: "SparkSession", checkpoint: "str | Path", *, definitions: "Definitions" = ()
) -> "DataFrame | SeveralMatches":
    """Returns what a stopped stream would still deliver if it ended here, as a batch DataFrame.

    The checkpoint stays unchanged, so the stream can continue. `definitions` are the operators of
    its query, unless this process has started it.

    `ensue.remaining(spark, "checkpoint/").show()`
    """
    with require_extra("a stream", "spark"):
        from ensue.backends.spark import flush

    operators = [one for one in _list_definitions(definitions) if isinstance(one, UserOperator)]
    return flush.remaining(spark, str(checkpoint), operators)


@shorten_tracebacks
def parquet_table(path: "str | Path") -> "Sink":
    """A folder of Parquet files for `start`: a match that is already there is not added again.

    `start` with the folder itself does the same.

    >>> parquet_table("matches/")
    ParquetTable(path='matches/')
    """
    with require_extra("the output of a stream", "spark"):
        from ensue.backends.spark import sinks as spark_sinks

    return spark_sinks.ParquetTable(str(path))


@shorten_tracebacks
def delta_table(path: "str | Path", storage_options: dict[str, str] | None = None) -> "Sink":
    """A Delta table for `start`: a match that is already there is not added again.

    `start(matches, delta_table("s3://bucket/matches", {"AWS_REGION": "eu-west-1"}), ...)`: the
    options are those of the package `deltalake`.

    >>> delta_table("matches/")
    DeltaTable(path='matches/', storage_options=None)
    """
    with require_extra("the output of a stream", "spark"):
        from ensue.backends.spark import sinks as spark_sinks

    return spark_sinks.DeltaTable(str(path), storage_options)


@shorten_tracebacks
def kafka_topic(servers: str, topic: str, **options: str) -> "Sink":
    """A Kafka topic for `start`: the key is `match_id`, the value the match as JSON.

    Kafka may get a match again after a crash; readers can drop duplicates by the key.

    `start(matches, kafka_topic("localhost:9092", "matches"), checkpoint="checkpoint/")`

    >>> kafka_topic("localhost:9092", "matches")
    KafkaTopic(servers='localhost:9092', topic='matches', options={})
    """
    with require_extra("the output of a stream", "spark"):
        from ensue.backends.spark import sinks as spark_sinks

    return spark_sinks.KafkaTopic(servers, topic, options)


@shorten_tracebacks
def archive(
    place: Any,
    *,
    time: str | tuple[str, str] | None = None,
    type: str | None = None,
    key: Sequence[str] | str = (),
    order: Sequence[str] | str = (),
    version: int | str | None = None,
    complete: object | None = None,
) -> "Archive":
    """Opens a table of past events, for JOIN ARCHIVE and for the backfill of streams.

    One that `create_archive` has made can be written, unless `version` fixes it:
    `archive.append(events)` and `archive.compact()`.

    >>> import pyarrow as pa
    >>> past = archive(pa.table({"t": [1, 2], "tag": ["x", "y"]}), time="t", key="tag")
    >>> now = pa.table({"t": [5], "tag": ["x"]})
    >>> query = "Pass p JOIN ARCHIVE old Pass q RANGE 9 BEFORE START ON [tag] RETURN q.t AS before"
    >>> match(now, query, time="t", archives={"old": past})["before"].to_pylist()
    [1]

    Args:
        place: The path of a Delta table, of a folder of Parquet files or of one file, an Iceberg
            table (pyiceberg's, or the path of its metadata), an Arrow, pandas or Polars table, or
            in batch a Spark DataFrame.
        time: As for `match`, like `type` and `order`; an archive that Ensue has created knows
            them, and `key`.
        key: The columns that identify the object of an event.
        version: Fixes the version of a Delta or Iceberg table.
        complete: The time up to which the table is complete, if another job writes it from the
            same stream.
    """
    from ensue.archives.archive import ArchiveOptions
    from ensue.archives.factory import open_archive

    columns = None if time is None else _time(time), type, list_names("key", key), list_names("order", order)
    return open_archive(place, ArchiveOptions(*columns, version, complete))


@shorten_tracebacks
def create_archive(
    place: "str | Path",
    events: Any,
    *,
    time: str | tuple[str, str],
    key: Sequence[str] | str,
    type: str | None = None,
    order: Sequence[str] | str = (),
    buckets: int = 16,
    day: float | None = None,
) -> "Archive":
    """Creates an archive with these events: a Delta table with a layout for lookups.

    It is partitioned by day and by `buckets` of hashed keys, and sorted by key and time.
    `events` are an Arrow, pandas or Polars table, or an Arrow schema if there are none yet. If
    times are numbers, `day` is the length of a partition.

    `archive.append(events)` adds events, which count as having arrived after all existing ones,
    and returns how many; a stream must not write the archive at the same time.
    `archive.compact(fewest=4, vacuum=None)` merges the files of days and buckets that have at
    least `fewest`, also while streams read and write; `vacuum=168` deletes files that no version
    of the last 168 hours needs. `archive(place)` opens it again.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> passes = pa.table({"t": [1, 2], "tag": ["x", "y"]})
    >>> folder = tempfile.mkdtemp() + "/passes"
    >>> past = create_archive(folder, passes, time="t", key="tag", day=100.0)
    >>> [past.append(pa.table({"t": [t], "tag": ["x"]})) for t in (3, 5, 8)]
    [1, 1, 1]
    >>> done = past.compact()
    >>> done.before, done.after, done.rows
    (4, 1, 4)
    """
    from ensue.archives.delta_writer import create
    from ensue.archives.factory import convert_to_table

    table = convert_to_table(events)
    created = create(
        place,
        table.schema,
        time=_time(time),
        type=type,
        key=list_names("key", key),
        order=list_names("order", order),
        buckets=buckets,
        day=day,
    )
    if table.num_rows:
        created.append(table)
    return created


@shorten_tracebacks
def statistics(
    events: Any,
    query: str | Path | PatternBuilder | Query | Hierarchy,
    *,
    params: Mapping[str, Any] | None = None,
    time: str | tuple[str, str],
    type: str | None = None,
    order: Sequence[str] | str = (),
    location: Place | None = None,
    sample: int = 10_000,
    seed: int = 0,
) -> Statistics:
    """Measures statistics of events for a query, to choose its plan.

    `events` are as for `match`, for instance those of the stream's archive. Types and partitions
    are counted in all of them; conditions are tested on a sample of `sample` events. The same
    events, sample and seed give the same statistics; `Statistics.text` and `Statistics.read`
    store them. Of a query with definitions, the lowest layers are measured.

    >>> import pyarrow as pa
    >>> events = pa.table({"t": [1, 2, 3, 4], "kind": ["A", "B", "B", "B"]})
    >>> measured = statistics(events, "SEQ(A a, B b)", time="t", type="kind")
    >>> found = match(events, "SEQ(A a, B b)", time="t", type="kind", options=PlannerOptions(statistics=measured))
    >>> found.num_rows
    3
    """
    checked = _read_pattern(query, params)
    if isinstance(checked, Hierarchy):
        from ensue.analyzer.hierarchy_layers import build_layers

        arguments: dict[str, Any] = {"time": time, "type": type, "order": order, "location": location}
        arguments |= {"sample": sample, "seed": seed}
        lowest = [layer.meaning for layer in build_layers(checked) if not layer.uses]
        return Statistics.together([statistics(events, query, **arguments) for query in lowest])
    if sample < 1:
        raise EventError(f"sample={sample}: a sample needs at least one event")
    columns = _describe_source(checked, (), False, time=time, type=type, order=order, location=location)
    return _runner(events).measure(events, checked, columns, sample=sample, seed=seed)


@shorten_tracebacks
def explain(
    query: OneQuery | ManyQueries | Subscriptions,
    events: Any = None,
    *,
    params: Mapping[str, Any] | None = None,
    definitions: "Definitions" = (),
    time: str | tuple[str, str] | None = None,
    type: str | None = None,
    order: Sequence[str] | str = (),
    location: Place | None = None,
    archives: "Mapping[str, Archive] | Archives | None" = None,
    options: Options | Sequence[Options] = (),
    analyze: bool = False,
    kernel: bool = False,
) -> PlanText:
    """Explains how queries run: the plan, with the effect of each rule, as stable text.

    Several queries, in a list or a dict as for `match`, are explained with what they share.
    With `events` the query is also checked against their columns. With `analyze=True` it runs on
    them, in this process, and each estimate is shown next to the actual figure. `kernel=True`
    adds the Python source of the compiled kernel. `options` are `PlannerOptions` and `Limits`: with
    `memory` or `evict` the plan includes what a stream does with keys beyond the limit.

    For a set of subscriptions it shows which run on the shared network, which as one plan for a
    template, which on separate engines and why, and how much they share.

    Of a SQL query each MATCH_RECOGNIZE clause is explained; `events` is then a dict of its tables.

    For a query with JOIN ARCHIVE, pass `events` and `archives` as for `match`: it shows the
    estimated cost of all four access methods, and why one is impossible; with `analyze=True` also
    the reads of the archives.

    >>> print(explain("SEQ(A a, B b) WHERE [id] WITHIN 5").split("\\n\\n")[0])
    pattern    SEQ(A a, B b)
    strategy   skip_till_any_match: any event may be skipped
    window     5, pushed into the scan
    partition  [id]
    """
    from ensue.planner.explain.plan_node import format_plan

    limits, _, _, planning = _read_options("explain", options, PlannerOptions, Limits)
    if analyze and (events is None or _is_spark(events)):
        raise EventError("analyze=True runs the query in this process: pass a table of events and time=")
    if isinstance(query, str) and _is_sql(query):
        return _explain_sql(query, events, params, options=options, analyze=analyze, kernel=kernel)
    workload, frame = _plan(
        query, events, params, definitions, archives, replace(planning, limits=limits),
        time=time, type=type, order=order, location=location,
    )  # fmt: skip
    plan = workload.describe(frame if analyze else None)
    kernels = "\n\n\n".join(plan.list_kernels()) if kernel else ""
    return PlanText("\n\n".join(filter(None, (format_plan(plan), kernels))))


def _explain_sql(text: str, tables: Any, params: Mapping[str, Any] | None, **shown: Any) -> PlanText:
    """Explains the clauses of a SQL query; over tables it runs them, since one may read the result of another."""
    from ensue.backends.dataframe_libs import to_arrow_table
    from ensue.backends.sql_backend import run_sql
    from ensue.runtime.source_schema import SourceOptions

    texts: list[str] = []

    def recognize(clause: "MatchClause", relation: Any) -> Any:
        texts.append(explain(clause.row_pattern, relation, **shown))
        return match_clause(clause, relation, SourceOptions(time=""), Limits())

    query = _parse_sql(text, params)
    if tables is None:
        texts = [explain(clause.row_pattern, **shown) for clause in query.clauses]
    else:
        if not _is_spark(tables):
            rows = None if shown["analyze"] else 0
            tables = {name: to_arrow_table(table).slice(0, rows) for name, table in tables.items()}
        run_sql(text, tables=tables, recognize=recognize, parameters=query.parameters)
    if len(texts) == 1:
        return PlanText(texts[0])
    return PlanText("\n\n".join(f"{query.describe_clause(c)}\n{t}" for c, t in zip(query.clauses, texts, strict=True)))


def _parse_sql(text: str, params: Mapping[str, Any] | None) -> "SqlQuery":
    """Parses a SQL query to describe it; a subquery in a clause, which needs its tables, counts as NULL."""
    with require_extra("SQL", "sql"):
        from ensue.parser.sql.sql_parser import parse_sql

    return parse_sql(text, parameters=build_parameters(params), run_subquery=lambda *_: [None])


@shorten_tracebacks
def picture(
    query: OneQuery | ManyQueries,
    events: Any = None,
    *,
    params: Mapping[str, Any] | None = None,
    definitions: "Definitions" = (),
    time: str | tuple[str, str] | None = None,
    type: str | None = None,
    order: Sequence[str] | str = (),
    location: Place | None = None,
    archives: "Mapping[str, Archive] | Archives | None" = None,
    options: Options | Sequence[Options] = (),
) -> Picture:
    """Draws the plan of a query, or of several, as a picture (SVG).

    It shows the automaton or the stacks with their predicates, the layers of a query with
    definitions, or the sides of a JOIN ARCHIVE. The result is the text of an SVG, to write to a
    file; a notebook shows the picture.

    >>> picture("SEQ(A a, B b) WITHIN 5")[:4]
    '<svg'
    """
    from ensue.planner.explain.plan_picture import draw_plan

    *_, planning = _read_options("picture", options, PlannerOptions)
    if isinstance(query, str) and _is_sql(query):
        _require(events is None, "the picture of a SQL query needs no tables", "leave out events=")
        clauses = _parse_sql(query, params).clauses
        query, params = {f"clause {clause.number}": clause.row_pattern for clause in clauses}, None
    workload, _ = _plan(
        query, events, params, definitions, archives, planning, time=time, type=type, order=order, location=location
    )
    return Picture(draw_plan(workload.describe()))


@shorten_tracebacks
def trace(
    match: Any,
    query: str | Path | PatternBuilder | Query | Hierarchy | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    level: str | None = None,
    time: str | tuple[str, str] | None = None,
) -> "Trace":
    """Expands a match down to its raw events.

    `str` gives a tree, `.timeline` a timeline for a terminal, `.svg` a picture for notebooks.

    `match` is a row of a result of `match`: a dict, a table of one row, a Spark Row or a pandas
    Series. A query with RETURN or with definitions needs `OutputOptions(trace=True)`.
    With the `query` the tree also names the types of events; `level` is the definition of the
    match and `time` the time columns of the events, if the match does not show them.

    >>> import pyarrow as pa
    >>> events = pa.table({"t": [1, 2], "kind": ["A", "B"]})
    >>> query = "EVENT Pair AS SEQ(A a, B b) WITHIN 5; SEQ(Pair p)"
    >>> found = match(events, query, time="t", type="kind", options=OutputOptions(trace=True))
    >>> print(trace(found, query))
    match       1 to 2
    └─ p  Pair  1 to 2
       ├─ a  A  1
       └─ b  B  2
    """
    from ensue.lineage.trace import trace_match

    if isinstance(query, str | Path | PatternBuilder):
        query = _read_pattern(query, params)
    return trace_match(match, query, level, None if time is None else _time(time))


@shorten_tracebacks
def plot(
    matches: Any,
    events: Any,
    query: str | Path | PatternBuilder | Query | Hierarchy | None = None,
    *,
    time: str | tuple[str, str],
    type: str | None = None,
    by: str | None = None,
    most_matches: int = 50,
    most_events: int = 1_000,
    params: Mapping[str, Any] | None = None,
) -> Picture:
    """Draws matches over their stream as a picture (SVG).

    Events are dots in rows, each match is a line through its events and a bar from its start to
    its end. Only the first `most_matches` are drawn, with the events of their time: of more than
    `most_events`, an even sample. The picture says how many there are in total.

    >>> import pyarrow as pa
    >>> events = pa.table({"t": [1, 2, 3, 4], "kind": ["A", "B", "A", "B"]})
    >>> found = match(events, "SEQ(A a, B b) WITHIN 1", time="t", type="kind")
    >>> picture = plot(found, events, time="t", type="kind")
    >>> "2 matches, 4 events" in picture
    True

    Args:
        matches: The result of `match` for these events. A query with RETURN needs
            `OutputOptions(trace=True)` to show its events; otherwise only the bars are drawn.
        events: As for `match`: tables, not Spark DataFrames.
        query: Gives the types of members, if events are a dict of tables; `time`, `type` and
            `params` are as for `match`.
        by: The column whose values are the rows; by default the type column.
        most_matches: How many matches are drawn.
        most_events: How many other events are drawn.
    """
    from ensue.backends.plot_data import read_plot_data
    from ensue.lineage.pictures import draw_plot

    if isinstance(query, str | Path | PatternBuilder):
        query = _read_pattern(query, params)
    data = read_plot_data(
        matches, events, query, time=_time(time), type=type, by=by,
        most_matches=most_matches, most_events=most_events,
    )  # fmt: skip
    return Picture(draw_plot(data))


def _plan(
    query: Any,
    events: Any,
    params: Mapping[str, Any] | None,
    definitions: "Definitions",
    archives: "Mapping[str, Archive] | Archives | None",
    planning: PlannerOptions,
    **columns: Any,
) -> "tuple[Workload, Any]":
    """Plans queries to be described, and returns their events; without events, the columns follow from the queries."""
    from ensue.operators.hierarchy.hierarchy_description import infer_source
    from ensue.runtime.query_spec import RunOptions, open_archives
    from ensue.runtime.workload import Workload

    specs = _read_queries(query, definitions, params)
    run_options = RunOptions(planning=planning, ids=False, explain=True)
    if events is None:
        return Workload(specs, infer_source(specs), run_options, archive_set=open_archives(archives)), None
    runner = _runner(events)
    arguments = _describe_source(query, specs, runner.STREAMING, whole=True, **columns)
    return _plan_over(runner, events, specs, arguments, run_options, archives)


@pause_collection()
def _plan_over(
    runner: "Backend",
    events: Any,
    specs: "tuple[QuerySpec, ...]",
    arguments: "SourceOptions",
    options: "RunOptions",
    archives: "Mapping[str, Archive] | Archives | None",
) -> "tuple[Workload, Any]":
    """Plans queries over events, and returns these as the backend reads them."""
    from ensue.runtime.query_spec import describe_input, open_archives
    from ensue.runtime.workload import Workload

    frame, source = runner.read(events, replace(arguments, whole=True) if archives else arguments)
    streaming = runner.STREAMING
    options = replace(options, streaming=streaming, coming=describe_input(frame, streaming=streaming))
    late, past = streaming and arguments.stream.delivers_late_events, open_archives(archives, streaming=streaming)
    return Workload(specs, source, options, runner.key_groups(frame, arguments), late, past), frame


def _describe_source(
    query: object,
    specs: "Sequence[QuerySpec]",
    streaming: bool,
    *,
    time: str | tuple[str, str] | None = None,
    type: str | None = None,
    order: Sequence[str] | str = (),
    location: object = None,
    **others: Any,
) -> "SourceOptions":
    """Returns the columns of time, type, order and location, and how events are read.

    Subscriptions define them, and clauses of SQL order and partition rows themselves.
    """
    from ensue.runtime.source_schema import SourceOptions

    columns: Any = location
    if isinstance(location, Location):
        columns, others["space"] = location.columns, location.space
    if isinstance(query, Subscriptions):
        for name, value in {"time": time, "order": order or None, "type": type, "location": columns}.items():
            if value is not None:
                raise EventError(
                    f"{name}={value!r}: a set of subscriptions sets {name} itself\n"
                    f"  hint: ensue.Subscriptions({name}={value!r}, ...)"
                )
        own = {name: getattr(query, name) for name in ("type", "location", "space")}
        return SourceOptions(time=_time(query.time), order=query.order, **own, **others)
    time_columns, names = None if time is None else _time(time), list_names("order", order)
    if any(isinstance(spec.query, RowPatternQuery) for spec in specs):
        from ensue.operators.row_match.compiled_clause import plan_arrangement

        queries = [(spec.name, spec.query) for spec in specs]
        others["arranging"] = plan_arrangement(queries, time_columns, names, streaming=streaming)
    if time_columns is None and others.get("arranging") is None:
        raise EventError("the time column of the events is missing: pass time=")
    return SourceOptions(time=time_columns or "", type=type, order=names, location=columns, **others)


def _list_definitions(values: object) -> tuple[Definition | UserOperator, ...]:
    """Returns definitions and operators, one or several, also nested, as a tuple."""
    if isinstance(values, Definition | UserOperator):
        return (values,)
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise EventError(
            f"definitions= takes definitions and operators, not {_a_type(values)}\n"
            "  hint: definitions=[ensue.define(...), ensue.operator(...)]"
        )
    return tuple(one for value in values for one in _list_definitions(value))


def _time(time: object) -> str | tuple[str, str]:
    match time:
        case str():
            return time
        case (str(start), str(end)):
            return (start, end)
        case _:
            raise EventError(f"time={time!r} must be a column name or a pair of names (start, end)")


def _is_spark(events: object) -> bool:
    if isinstance(events, Mapping):
        frames = {str(name): table for name, table in events.items() if _is_spark(table)}
        streams = [name for name, frame in frames.items() if frame.isStreaming]
        if streams and len(frames) < len(events):
            raise EventError(
                f"streaming DataFrames and tables cannot be combined: {', '.join(streams)} of "
                "these is a stream\n  hint: read all of them with spark.readStream"
            )
        return bool(events) and len(frames) == len(events)
    from ensue.backends.dataframe_libs import DataFrameLibrary, detect_library

    return detect_library(events) is DataFrameLibrary.SPARK


_SPARK = "ensue.backends.spark"
# the kinds of events, and the modules that run queries over them
BACKENDS: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (lambda e: _is_spark(e) and resolve_name(f"{_SPARK}.frames:is_streaming")(e), f"{_SPARK}.stream"),
    (_is_spark, f"{_SPARK}.batch"),
    (lambda _: True, "ensue.backends.local"),
)


def _a_type(value: object) -> str:
    name = value.__class__.__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _query_text(query: Any) -> str:
    """Returns the text of a query for notebooks."""
    from ensue.printing.pattern_printer import format_query

    match query:
        case Query() | Hierarchy() | Definition() | ArchiveJoinQuery():
            return format_query(query)
        case PatternBuilder():
            return query.text
        case _:
            return query.text or repr(query)


register_text(_query_text, *get_args(ParsedQuery), Definition, Subscription, PatternBuilder)
