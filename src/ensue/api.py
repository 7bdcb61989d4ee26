"""The public interface: everything else may change."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ensue.algebra.answers import summarised
from ensue.algebra.correlation import ClauseSide, Correlation
from ensue.algebra.operator import Operator, register
from ensue.algebra.operator import operator as _operator
from ensue.algebra.query import Query
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.subscription import Subscription
from ensue.algebra.tower import Definition, Tower
from ensue.brief_errors import brief
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
from ensue.extras import needed
from ensue.languages.builder import PatternBuilder, all_of, one_of, pattern
from ensue.plan.estimates.statistics import Statistics
from ensue.progress_bars import progress_bar, shown
from ensue.rendering import Picture, PlanText, shown_by
from ensue.subscriptions import Subscriptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ensue.archives.compaction import Compacted
    from ensue.archives.contract import Archive
    from ensue.languages.parameters import Parameters
    from ensue.languages.sql.query import ClauseText
    from ensue.plan.limits import Limits
    from ensue.plan.planning import Planning
    from ensue.runners.contract import Runner
    from ensue.runners.live import Live
    from ensue.runners.spark.matches import SeveralMatches
    from ensue.runners.spark.progress import BatchProgress
    from ensue.runners.spark.sinks import Sink
    from ensue.runners.spark.start import Output
    from ensue.runners.spark.time import Ahead, Watermark
    from ensue.runners.sql_archives import Archived
    from ensue.tracing.trace import Trace
    from ensue.workload.arguments import Arguments
    from ensue.workload.asked import Asked
    from ensue.workload.correlations.explained import ExplainedCorrelation
    from ensue.workload.explained import Explained
    from ensue.workload.row_patterns.explained import ExplainedClause
    from ensue.workload.source import Source
    from ensue.workload.work import Progress

OneQuery = str | Path | PatternBuilder | Query | Tower | Correlation | Recognition
ManyQueries = Sequence[OneQuery] | Mapping[str, OneQuery]

__all__ = [
    "ArchiveWarning",
    "Correlation",
    "Definition",
    "EnsueError",
    "EventError",
    "LimitError",
    "LimitWarning",
    "Operator",
    "OperatorError",
    "PatternBuilder",
    "Query",
    "QueryError",
    "RunnerError",
    "ServiceError",
    "SkipError",
    "StateError",
    "Statistics",
    "Subscription",
    "SubscriptionWarning",
    "Subscriptions",
    "Tower",
    "all_of",
    "append_archive",
    "archive",
    "compact_archive",
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
    "progress_of",
    "remaining",
    "show",
    "sql",
    "start",
    "statistics",
    "trace",
    "wait",
]


@brief
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
    known: bool = True,
) -> Operator:
    """Adds an operator S = (Q, F, Z) to the pattern language: `name(A a, B b) r`.

    `q` says whether events combine, `f` gives (start, end, attributes...) of the result, and `z`
    the names and kinds of these attributes: "float", "integer", "boolean", "timestamp",
    "duration" or "string". Events have `.start`, `.end` and their fields; times and durations
    are numbers of nanoseconds if the time column holds timestamps.

    `over="pair"`: q(a, b) and f(a, b) take two events, `a` before `b` unless `order="any"`.
    `over="each"`: q(a) and f(a) take one event.
    `over="repeat"`: q(last, a) and f(a); it fires at the first event of a partition, then
    whenever `q` is true for the event before and the next one.

    Constants of the query, as in `near(A a, B b, 10 minutes) r`, are further arguments of `q`
    and, if it takes them, of `f`. Without `q` everything combines; without `f` a result lasts
    from the first event's start to the last one's end.

    The planner uses `cost` (of calling `q`, compared with `a.x < b.x`) and `passes` (the share of
    combinations for which it is true). `reads` names fields that `q` or `f` read in a way that
    does not show in their code. With `known=False` the operator is only available to calls that
    you pass it to: `match(..., operators=[op])`.

    >>> near = operator("near", q=lambda a, b, most: b.start - a.end <= most, known=False)
    >>> import pyarrow as pa
    >>> events = pa.table({"t": [1, 3, 9], "kind": ["A", "B", "B"]})
    >>> found = match(events, "near(A a, B b, 3) r", time="t", type="kind", operators=[near])
    >>> found.num_rows
    1
    """
    made = _operator(
        name, q=q, f=f, z=z, over=over, order=order, cost=cost, passes=passes, reads=reads
    )
    return register(made) if known else made


@brief
def define(
    text: str | PatternBuilder,
    *,
    folder: "str | Path | None" = None,
    operators: Iterable[Operator] = (),
    params: Mapping[str, Any] | None = None,
    known: bool = True,
) -> tuple[Definition, ...]:
    """Defines events made of events: `EVENT Name AS pattern ...;`, one or more.

    Queries can use them as event types from now on. With `known=False` they are only available to
    calls that you pass them to: `match(..., definitions=found)`. IMPORT looks for files in
    `folder`. `params` are the values of parameters in the text, as for `match`.

    >>> define("EVENT Hot AS SEQ(T a, T b) WITHIN 5", known=False)[0].name
    'Hot'
    """
    from ensue.languages import towers
    from ensue.languages.parameters import parameters_of

    if isinstance(text, PatternBuilder):
        text = text.text
    parameters = parameters_of(params)
    found = towers.define(text, None if folder is None else Path(folder), operators, parameters)
    parameters.require_used()
    if known:
        towers.make_known(found)
    return found


@brief
def parse(
    text: str | Path | PatternBuilder,
    *,
    params: Mapping[str, Any] | None = None,
    folder: "str | Path | None" = None,
    definitions: Iterable[Definition] = (),
    operators: Iterable[Operator] = (),
    language: str | None = None,
    regions: Mapping[str, str] | None = None,
) -> Query | Tower | Correlation | Subscription | Recognition:
    """Parses a text into a query; a QueryError points at a mistake.

    A text with definitions, or one that uses defined events, gives a `Tower`, one with JOIN
    ARCHIVE a `Correlation`. The text can use `operators` in addition to those that `operator` has
    added. IMPORT looks for files in `folder`. A `Path` names a file with the text; its imports
    are relative to it. `language` is the name of the language; by default it is recognised.
    A text in OPSL gives a `Subscription`; `regions` are the texts of regions that it names.
    `params` are the values of parameters in the text, as for `match`.

    >>> parse("SEQ(Shelf x, !Counter y, Exit z) WHERE [tag] WITHIN 12 hours").strategy.value
    'skip_till_any_match'
    >>> print(show(parse("SEQ(A a, B b) WHERE a.kind IN :kinds", params={"kinds": ["x", "y"]})))
    PATTERN SEQ(A a, B b)
    WHERE a.kind in ('x', 'y')
    """
    from ensue.languages.parameters import parameters_of

    parameters = parameters_of(params)
    found = _parsed(text, parameters, folder, definitions, operators, language, regions)
    parameters.require_used()
    return found


def _parsed(
    text: str | Path | PatternBuilder,
    parameters: "Parameters",
    folder: "str | Path | None" = None,
    definitions: Iterable[Definition] = (),
    operators: Iterable[Operator] = (),
    language: str | None = None,
    regions: Mapping[str, str] | None = None,
) -> Query | Tower | Correlation | Subscription | Recognition:
    from ensue.languages import table
    from ensue.languages.query_files import names_a_file
    from ensue.languages.sql.clauses import claims_sql

    if isinstance(text, Path):
        folder = folder or text.parent
        text = _text_of(text)
    if isinstance(text, PatternBuilder):
        text, language = text.text, "patterns"
    if not isinstance(text, str):
        raise QueryError(f"a query is a text, not {_a_type(text)}")
    if names_a_file(text):
        raise _file_as_text(text)
    if language is None and claims_sql(text):
        raise QueryError(
            "this is a SQL query, but a pattern or a MATCH_RECOGNIZE clause is expected here",
            hint="ensue.sql(text, tables={...}) runs it",
        )
    where = None if folder is None else Path(folder)
    return table.parse(
        text,
        where,
        definitions=definitions,
        operators=operators,
        language=language,
        regions=regions or {},
        parameters=parameters,
    )


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, FileNotFoundError):
            raise _no_such_file(file) from None
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise QueryError(f"the query file {file} cannot be read: {reason}") from None


def _no_such_file(file: Path) -> QueryError:
    from ensue.languages.query_files import meant

    return QueryError(f"there is no query file {file}", hint=meant(file))


def _file_as_text(text: str) -> QueryError:
    file = Path(text.strip())
    if not file.is_file():
        return _no_such_file(file)
    return QueryError(
        f"'{file}' is the name of a file, but a query is expected here",
        hint=f"pass pathlib.Path({str(file)!r}), to read the file",
    )


@brief
def show(
    query: str | PatternBuilder | Query | Tower | Correlation | Subscription | Recognition,
    language: str = "patterns",
) -> str:
    """Returns the canonical text of a query; parsing it gives the same query.

    `query` is what `parse` gives, or a text that it can read.

    >>> print(show(parse("pattern A a -> B b within 5 min")))
    PATTERN SEQ(A a, B b)
    WITHIN 5 minutes
    """
    from ensue.languages import table

    if isinstance(query, str):
        query = parse(query)
    return table.show(query.query if isinstance(query, PatternBuilder) else query, language)


@brief
def match(
    events: Any,
    query: "OneQuery | ManyQueries | Subscriptions",
    *,
    params: Mapping[str, Any] | None = None,
    time: str | tuple[str, str] | None = None,
    type: str | None = None,
    order: Sequence[str] | str = (),
    location: "str | tuple[str, str] | None" = None,
    space: str | None = None,
    levels: Sequence[str] | str | None = None,
    trace: bool = False,
    flat: bool = False,
    bad_events: str = "raise",
    emit_timeouts: bool = False,
    progress: "Progress | bool | None" = None,
    watermark: "Watermark | None" = None,
    late_events: str = "count",
    lanes: int | None = None,
    max_ahead: "Ahead" = "usual",
    statistics: Statistics | None = None,
    off: Sequence[str] | str = (),
    structure: str | None = None,
    adaptive: bool = False,
    max_matches: int | None = None,
    max_partial_matches: int | None = None,
    memory: int | str | None = None,
    evict: str | None = None,
    shed: str | None = None,
    archives: "Mapping[str, Archive] | None" = None,
    archive: str | None = None,
    access: str | None = None,
    latency: str | int | float | None = None,
    operators: Iterable[Operator] = (),
    definitions: Iterable[Definition] = (),
    folder: "str | Path | None" = None,
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
            else with the Arrow interface, a Spark DataFrame, batch or streaming, or the path of a
            CSV, JSON lines, Parquet or Arrow file, of a folder of them, or a pattern such as
            "day/*.csv". Also a dict of one of these per event type.
        query: A text, the Path of a file with one, or a query built by `pattern`. Several, as a
            list or as a dict by name, share one scan. Queries in a list are named by their own
            names (`EVENT Name AS ...`) if all have one and all differ, otherwise by their
            positions from 0. Also a set of `Subscriptions`.
        params: Values for the parameters in the text: `{"gap": timedelta(minutes=5)}` for
            `WITHIN :gap`. A value is a number, a string, a boolean, a date, a datetime, a
            timedelta, None, or a list of them for IN; it is never parsed as part of the query.

    Args: What the columns mean
        time: The column with the event time, or a pair (start, end) for events that last. It may
            be the index of a pandas table: its name, or "index" if it has none.
        type: The column with the event type; without it, all events have the same type.
        order: Columns that order events with the same time; after that, arrival decides.
        location: A column of places (WKT texts or WKB bytes), or two columns of numbers (x, y). A
            match then has a `location` too, the convex hull of its events' places.
        space: With "earth", x and y are degrees of longitude and latitude, and lengths are metres.
        bad_events: "drop" leaves out events without a usable time instead of raising an
            EventError. Events of types that the query does not name are always left out, unless
            the position of every event matters.

    Args: What is returned
        emit_timeouts: Also return partial matches whose window ended before they were complete.
            A column `timed_out` distinguishes them from matches; missing parts are NULL.
        levels: For a query with definitions: those whose events are returned too, or "all". The
            result is then a dict by level; the query at the top has its own name as the key,
            or "".
        trace: Add a column `members` with the events of a match, for `ensue.trace`. A query
            without RETURN has them anyway, if it has no definitions.
        flat: Plain columns instead of structs: an event `a` is the columns `a.price`,
            `a.volume`, ..., a list of events is a list for each field. In a query,
            `RETURN a.*` does it for one event.
        progress: True shows a bar on a terminal or in a notebook, and nothing elsewhere; a
            function is called with the number of events done and of all events. On Spark neither
            is possible, since matches are found when they are asked for: see `wait` for streams.

    Args: Streams
        watermark: How far an event may be behind the newest one: a length of time such
            as "10 seconds", or a number if the time column holds numbers. A streaming DataFrame
            needs it, or its own withWatermark(...).
        late_events: "count" counts later events (see `progress_of`), "deliver" also returns them
            in a column `late_event`.
        lanes: The number of lanes that partitions are hashed into, each with its own state; by
            default spark.sql.shuffle.partitions. It is fixed for the life of a checkpoint.
        max_ahead: How far ahead of the clock an event may be, such as "1 hour". One that is
            further ahead is left out and counted before it moves the watermark, which would make
            everything else late. The default is a day, if the time column holds timestamps and
            you pass the watermark here; None lets every event pass.
        shed: Give up keys when the newest event of a micro-batch is further behind the clock than
            this, such as "30 seconds": the keys least likely to complete a match, a quarter of
            them at first, all of them at four times the lag. What is found stays right; what is
            lost is counted (see `progress_of`), and listed by key and interval with
            `start(..., shed_to=)`.

    Args: Limits
        memory: How much one matcher may use: "4 GB", "50%" of the machine's memory, a number of
            bytes, or "unlimited". The default is a quarter of the machine's memory, on Spark
            divided among its cores. A query that uses more stops with a LimitError with advice;
            in a stream keys beyond it go to disk, as their events of the last window, and come
            back before they are needed: nothing is lost.
        max_matches: Limits the matches that are found and not yet delivered: in a table all of
            them, on Spark those of a lane, in a stream those of a lane and micro-batch.
        max_partial_matches: Limits the partial matches held at the same time.
        evict: Which keys of a stream go to disk first: "need" (the default: those least
            likely to be needed soon), "tpm" (the oldest) or "stpm".

    Args: The past
        archives: The archives that JOIN ARCHIVE names, each from `ensue.archive`.
        archive: The name of the archive that the events themselves belong to: the past of a
            match is then the archive plus the events before it.
        access: How an archive is read: "eager" (all of it, in advance), "lazy"
            (for each live match), "grouped" (for many at a time) or "archive_first" (only objects
            with a past are examined); by default the cheapest. All give the same matches.
        latency: How long a live match of a stream may wait for others, so that they are looked up
            together.

    Args: How it runs (this never changes the matches)
        statistics: What the stream looks like (see `statistics`), to find the cheapest plan.
        off: Rules of the planner to switch off.
        structure: What holds partial matches: "stacks", "runs", "tree", "compact" or "reference".
        adaptive: Let the plan adapt to the stream: Ensue measures it, and when another plan
            would be clearly cheaper, that one takes over. Each change is logged with its
            reason (logger `ensue.plan`).

    Args: What the query may use
        operators: Operators for this query, in addition to those that `operator` has added.
        definitions: Definitions for this query, in addition to those from `define`.
        folder: Where IMPORT looks for files.

    Returns:
        A result of the same kind as the events: pandas gives pandas, Polars gives Polars (a
        LazyFrame for a LazyFrame, which is collected immediately), a DuckDB relation gives a
        relation on the same connection, and anything else with the Arrow interface gives an
        Arrow table, as do files and tables of different kinds in a dict. A Spark DataFrame gives
        a lazy DataFrame, a streaming one a streaming one. For several queries, a dict of their
        matches.
    """
    from ensue.plan.limits import Limits
    from ensue.runners.worlds import in_world_of
    from ensue.workload.arguments import Arguments
    from ensue.workload.correlations.expected import coming_of
    from ensue.workload.correlations.prepare import Wanted
    from ensue.workload.correlations.prepared import pasts_of
    from ensue.workload.planned import Wishes
    from ensue.workload.workload import Workload

    runner = _runner(events)
    if progress and _is_spark(events):
        raise EventError(
            "progress= is for tables in this process: on Spark matches are found when they are "
            "asked for\n  hint: of a stream ensue.wait(running, progress=True) tells it; of a "
            "batch Spark's own bar, spark.ui.showConsoleProgress=true"
        )
    if evict is not None and not runner.STREAMING:
        raise QueryError(
            "evict= is for streams: a table is matched as a whole",
            hint="leave it out; memory= bounds what the query may take",
        )
    if shed is not None and not runner.STREAMING:
        raise QueryError(
            "shed= is for Spark streams: a table cannot fall behind the clock", hint="leave it out"
        )
    limits = Limits.given(
        max_matches, max_partial_matches, memory, lanes=_is_spark(events), evict=evict, shed=shed
    )
    known: dict[str, Any] = {
        "operators": _each(operators, Operator, "operators"),
        "definitions": _each(definitions, Definition, "definitions"),
        "folder": folder,
    }
    asked = _asked(query, known, params)
    given = Arguments(
        **_columns_of(
            query,
            asked,
            runner.STREAMING,
            time=time,
            type=type,
            order=order,
            location=location,
            space=space,
        ),
        bad_events=bad_events,
        watermark=watermark,
        late_events=late_events,
        lanes=lanes,
        max_ahead=max_ahead,
    )
    wishes = Wishes(
        emit_timeouts=emit_timeouts,
        levels=levels if levels is None or isinstance(levels, str) else tuple(levels),
        trace=trace,
        flat=flat,
        streaming=runner.STREAMING,
        planning=_planning(statistics, off, structure, adaptive=adaptive, limits=limits),
        access=Wanted(access, latency),
    )
    _refuse_levels(asked, levels, trace=trace)
    _refuse_flat(flat, trace=trace)
    late = runner.STREAMING and given.deliver_late
    frame, source = runner.read(events, given)
    pasts = pasts_of(archives, archive, streaming=runner.STREAMING)
    wishes = replace(wishes, coming=coming_of(frame, streaming=runner.STREAMING))
    workload = Workload(asked, source, wishes, runner.lanes(frame, given), late, pasts)
    with progress_bar(progress, "matching") as report:
        found = runner.run(workload, frame, replace(given, progress=report))
    found = in_world_of(events, found)
    return next(iter(found.values())) if workload.alone and len(found) == 1 else found


@brief
def sql(
    text: str | Path,
    *,
    params: Mapping[str, Any] | None = None,
    tables: Mapping[str, Any] | None = None,
    spark: "SparkSession | None" = None,
    archives: "Mapping[str, Archive] | None" = None,
    archive: str | None = None,
    access: str | None = None,
    latency: str | int | float | None = None,
    watermark: "Watermark | None" = None,
    lanes: int | None = None,
    max_matches: int | None = None,
    memory: int | str | None = None,
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
            Spark DataFrames it runs on Spark SQL.
        spark: A session whose tables and views the query can use as well.
        watermark: A clause over a streaming DataFrame needs one, as `match` does, and event time
            as the first column of its ORDER BY.
        lanes: The number of lanes that the partitions of a stream are hashed into.
        max_matches: A limit for each clause, as for `match`.
        memory: A limit for each clause, as for `match`.
        archives: Tables of past events, each from `ensue.archive`. A clause over one that is
            joined with a clause over a table or stream, by a range of time before its matches,
            is looked up like JOIN ARCHIVE. Other queries read an archive as a table, if
            nothing streams.
        archive: As for `match`.
        access: As for `match`.
        latency: As for `match`.

    Returns:
        A table of the same kind as the tables, as for `match`; for different kinds an Arrow
        table; on Spark a DataFrame, streaming if one of the tables is. `start` takes a stream
        with the column match_id: a query that names it gets it from each clause, before the
        others.
    """
    from ensue.languages.parameters import parameters_of
    from ensue.plan.limits import Limits

    with needed("SQL", "sql"):
        from ensue.runners.sql import sql as run
    from ensue.workload.arguments import Arguments

    if isinstance(text, Path):
        text = _text_of(text)
    given = Arguments(time="", watermark=watermark, lanes=lanes)
    limits: dict[str, Any] = {"max_matches": max_matches, "memory": memory}
    Limits.given(**limits)  # a mistake in them shows before anything runs
    return run(
        text,
        tables=tables,
        spark=spark,
        recognize=lambda clause, relation: _recognize(clause, relation, given, limits),
        read=_clause_of,
        archived=_archived(archives, archive, access, latency, given, limits),
        parameters=parameters_of(params),
    )


def _archived(
    archives: "Mapping[str, Archive] | None",
    own: str | None,
    access: str | None,
    latency: str | int | float | None,
    given: "Arguments",
    limits: Any,
) -> "Archived | None":
    """The archives of a SQL query, and how a clause is joined with them."""
    from ensue.runners.sql_archives import Archived
    from ensue.workload.correlations.prepare import Wanted
    from ensue.workload.correlations.prepared import pasts_of
    from ensue.workload.row_patterns.streamable import plain_ties, time_of

    pasts_of(archives, own, streaming=True)  # a mistake in them shows before anything runs
    Wanted(access, latency)
    if not archives:
        return None

    def correlate(correlation: Correlation, relation: Any) -> Any:
        assert isinstance(correlation.live, ClauseSide)
        clause = correlation.live.recognition
        return match(
            relation, correlation, time=time_of(clause), order=plain_ties(clause) or (),
            archives=archives, archive=own, access=access, latency=latency,
            watermark=given.watermark if _runner(relation).STREAMING else None,
            lanes=given.lanes, **limits,
        )  # fmt: skip

    return Archived(dict(archives), own, correlate)


def _clause_of(clause: "ClauseText") -> Recognition:
    from ensue.languages.row_patterns.clause import read_clause

    return read_clause(clause.text, clause.start, clause.end, clause.table, clause.parameters)


def _recognize(clause: "ClauseText", relation: Any, given: "Arguments", limits: Any) -> Any:
    """The rows that a clause gives over a table or a DataFrame: exactly the standard's columns.

    Where the query asks for it, a column match_id stands before them.
    """
    from ensue.plan.limits import Limits
    from ensue.workload.asked import Asked
    from ensue.workload.planned import Wishes
    from ensue.workload.row_patterns.arranging import arranging
    from ensue.workload.workload import Workload

    runner, asked = _runner(relation), (Asked(_clause_of(clause)),)
    columns = relation.columns if _is_spark(relation) else relation.column_names
    ids = clause.asks_ids and "match_id" not in map(str.lower, columns)
    planning = _planning(None, (), None, limits=Limits.given(**limits, lanes=_is_spark(relation)))
    wishes = Wishes(streaming=runner.STREAMING, planning=planning, ids=ids)
    arranged = arranging([(None, asked[0].query)], None, (), streaming=runner.STREAMING)
    given = replace(given, arranging=arranged, number=clause.number)
    if not runner.STREAMING:  # a query may join a stream with tables
        given = replace(given, watermark=None)
    frame, source = runner.read(relation, given)
    workload = Workload(asked, source, wishes, runner.lanes(frame, given))
    return next(iter(runner.run(workload, frame, given).values()))


@brief
def live(
    query: "OneQuery | ManyQueries | Subscriptions",
    *,
    schema: Any,
    params: Mapping[str, Any] | None = None,
    time: str | tuple[str, str] | None = None,
    type: str | None = None,
    order: Sequence[str] | str = (),
    location: "str | tuple[str, str] | None" = None,
    space: str | None = None,
    watermark: "Watermark | None" = None,
    late_events: str = "count",
    bad_events: str = "raise",
    levels: Sequence[str] | str | None = None,
    trace: bool = False,
    flat: bool = False,
    emit_timeouts: bool = False,
    statistics: Statistics | None = None,
    off: Sequence[str] | str = (),
    structure: str | None = None,
    adaptive: bool = False,
    max_matches: int | None = None,
    max_partial_matches: int | None = None,
    memory: int | str | None = None,
    evict: str | None = None,
    archives: "Mapping[str, Archive] | None" = None,
    archive: str | None = None,
    access: str | None = None,
    latency: str | int | float | None = None,
    operators: Iterable[Operator] = (),
    definitions: Iterable[Definition] = (),
    folder: "str | Path | None" = None,
) -> "Live":
    """Creates a matcher in this process that you feed with events as they arrive.

    `live.feed(events)` returns the matches that are certain by then, as an Arrow table;
    `live.advance(time)` those that only waited for time to pass, `live.finish()` those that waited
    for the end. Together they are those of `match` on all events, with the same ids, however you
    cut the stream. `live.save()` returns bytes from which `live.restore(...)` continues
    elsewhere, and `async for matches in live.over(source)` feeds the events of a source.

    >>> columns = {"t": "int64", "kind": "string"}
    >>> feeding = live("SEQ(A a, B b) WITHIN 5", schema=columns, time="t", type="kind")
    >>> feeding.feed({"t": 1, "kind": "A"}).num_rows
    0
    >>> feeding.feed({"t": 3, "kind": "B"}).num_rows
    1

    Args:
        query: As for `match`, like all arguments that are not listed here.
        schema: The columns of events: an Arrow schema, a dict of Arrow types by name, a table, or
            a dict of one of these by event type, as `match` takes a dict of tables.
        watermark: How far events may be out of order. They wait until an event arrives that is
            newer by that much. Without it, events must come in order of time (at the same time
            by `order`, if given), or they are late.
        late_events: Late events are counted in `live.late`; with "deliver" `live.late_events()`
            also returns them.
        bad_events: "drop" leaves out events without a usable time and rows that do not fit the
            schema, and counts them in `live.dropped`.
        max_matches: Limits the matches of one call of `feed`.
    """
    from ensue.plan.limits import Limits
    from ensue.runners.live import Live, made
    from ensue.runners.live_rows import Reader
    from ensue.workload.arguments import Arguments
    from ensue.workload.correlations.prepare import Wanted
    from ensue.workload.correlations.prepared import pasts_of
    from ensue.workload.planned import Wishes
    from ensue.workload.whole_results import refuse_endless
    from ensue.workload.workload import Workload

    known: dict[str, Any] = {
        "operators": _each(operators, Operator, "operators"),
        "definitions": _each(definitions, Definition, "definitions"),
        "folder": folder,
    }
    asked = _asked(query, known, params)
    given = Arguments(
        **_columns_of(
            query,
            asked,
            True,
            time=time,
            type=type,
            order=order,
            location=location,
            space=space,
        ),
        bad_events=bad_events,
        watermark=watermark,
        late_events=late_events,
    )
    limits = Limits.given(max_matches, max_partial_matches, memory, evict=evict)
    wishes = Wishes(
        emit_timeouts=emit_timeouts,
        levels=levels if levels is None or isinstance(levels, str) else tuple(levels),
        trace=trace,
        flat=flat,
        planning=_planning(statistics, off, structure, adaptive=adaptive, limits=limits),
        access=Wanted(access, latency),
    )
    _refuse_levels(asked, levels, trace=trace)
    _refuse_flat(flat, trace=trace)
    refuse_endless(asked)
    reader = Reader(schema, given.time, given.type, given.order, given.arranging)
    workload = Workload(
        asked, made(reader, given), wishes,
        deliver_late=given.deliver_late, pasts=pasts_of(archives, archive),
    )  # fmt: skip
    return Live(reader, workload, given)


def _refuse_levels(asked: "Sequence[Asked]", levels: object, *, trace: bool) -> None:
    if levels is not None and not any(isinstance(a.query, Tower) for a in asked):
        raise QueryError(
            "levels= names definitions of the query, and this query has none",
            hint="EVENT Name AS ...; in front of a query defines an event",
        )
    if trace and not any(isinstance(a.query, Query | Tower) for a in asked):
        raise QueryError(
            "trace=True is for patterns and queries with definitions: others have no members",
            hint="leave it out",
        )
    if trace and any(isinstance(a.query, Query) and _without_matches(a.query) for a in asked):
        raise QueryError(
            "trace=True shows the events of a match, and COUNT(*), EXISTS, TOTAL and GROUP BY "
            "give no matches",
            hint="leave it out, or return the matches",
        )


def _without_matches(query: Query) -> bool:
    """Whether its rows are not matches, but about several of them."""
    return summarised(query) or (query.whole is not None and query.whole.grouped)


def _refuse_flat(flat: bool, *, trace: bool) -> None:
    if flat and trace:
        raise QueryError(
            "flat=True cannot be combined with trace=True: a match is traced through its nested "
            "members",
            hint="leave one of them out",
        )


def _runner(events: Any) -> "Runner":
    """Who runs a workload over events of their kind."""
    if not _is_spark(events):
        from ensue.runners import local

        return local
    from ensue.runners.spark import batch, frames, stream

    return stream if frames.is_streaming(events) else batch


def _asked(
    query: Any, known: dict[str, Any], params: Mapping[str, Any] | None
) -> "tuple[Asked, ...]":
    from ensue.languages.parameters import parameters_of
    from ensue.workload.asked import Asked
    from ensue.workload.query_names import named

    parameters = parameters_of(params)
    if isinstance(query, Subscriptions):
        asked: tuple[Asked, ...] = (Asked(query.subscribed()),)
    elif isinstance(query, OneQuery | Subscription):
        asked = (Asked(_read(query, parameters, **known)),)
    elif not isinstance(query, Mapping | Sequence):
        raise QueryError(f"a query is a text, not {_a_type(query)}")
    else:
        read = named(query, lambda one: _read(one, parameters, **known))
        asked = tuple(Asked(one, name, number) for number, (name, one) in enumerate(read.items()))
    parameters.require_used()
    return asked


def _read_with(
    query: OneQuery, params: Mapping[str, Any] | None
) -> Query | Tower | Correlation | Recognition:
    """A query with the values of its parameters."""
    from ensue.languages.parameters import parameters_of

    parameters = parameters_of(params)
    found = _read(query, parameters)
    parameters.require_used()
    return found


def _read(
    query: OneQuery | Subscription,
    parameters: "Parameters",
    definitions: Iterable[Definition] = (),
    operators: Iterable[Operator] = (),
    folder: "str | Path | None" = None,
) -> Query | Tower | Correlation | Recognition:
    from ensue.languages.towers import built_on

    match query:
        case Tower() | Correlation() | Recognition():
            return query
        case Query():
            return built_on(query, definitions)
        case PatternBuilder():
            return built_on(query.query, definitions)
        case Subscription():
            return _no_subscription(query)
        case _:
            return _no_subscription(_parsed(query, parameters, folder, definitions, operators))


def _no_subscription(
    query: Query | Tower | Correlation | Subscription | Recognition,
) -> Query | Tower | Correlation | Recognition:
    if isinstance(query, Subscription):
        raise QueryError(
            "this is a subscription, but a query is expected here",
            hint="put it into ensue.Subscriptions and match that",
            text=query.text,
        )
    return query


def _query_or_tower(query: OneQuery, params: Mapping[str, Any] | None) -> Query | Tower:
    return _without_archives(_read_with(query, params))


def _without_archives(query: Query | Tower | Correlation | Recognition) -> Query | Tower:
    if isinstance(query, Recognition):
        raise QueryError(
            "MATCH_RECOGNIZE is not supported here yet",
            hint="ensue.match, ensue.live and ensue.explain take it",
            text=query.text,
        )
    if isinstance(query, Correlation):
        raise QueryError(
            "JOIN ARCHIVE is not supported here yet",
            hint="leave it out: here a query covers one stream",
            span=query.joins[0].span,
            text=query.text,
        )
    return query


@brief
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
    since: Any = None,
    gap: str = "refuse",
    archive: "str | Archive | None" = None,
    archive_rows: int | None = None,
    archive_age: str | int | float | None = None,
    shed_to: "Output | None" = None,
    progress: bool = False,
) -> "StreamingQuery":
    """Starts a stream of matches, and returns Spark's StreamingQuery.

    ```python
    matches = ensue.match(stream, query, time="ts", type="kind", watermark="1 minute")
    running = ensue.start(matches, "matches/", checkpoint="checkpoint/")
    ensue.wait(running)
    ```

    A damaged checkpoint, folders that overlap, and a table with other columns are refused
    before anything starts. If the stream fails with `once=True`, this raises an Ensue error; for
    one that keeps running, `wait` does.

    Args: Where it goes
        matches: The result of `match` or `sql` for a streaming DataFrame.
        output: A folder for Parquet files, one of `parquet_table`, `delta_table`, `kafka_topic`,
            or a function of a DataFrame of matches and the number of the micro-batch. For several
            queries a dict with an output per query, or a folder in which each has a subfolder.
        checkpoint: The folder from which the stream continues after a stop or a crash, without
            losing or repeating a match in a table.
        late: Like `output`, for late events of matches with `late_events="deliver"`.
        shed_to: The output for what a stream with `match(..., shed=)` gives up: the columns of a
            key, from `shed_from` to `shed_until` matches of it may be missing, and `shed_events`
            of it were dropped.

    Args: When it runs
        every: The time between micro-batches, such as "10 seconds". By default one starts when
            the one before is done.
        once: Process the available events, then return.
        flush: With `once`: treat the stream as ended, and also deliver what only waited for more
            events or for time: together the same matches as in a batch run.
        name: Spark's name for the query.
        progress: With `once`: show on a terminal or in a notebook what has been done so far. For
            a stream that goes on, `wait` does so.

    Args: With the history
        history: A table of past events that the stream begins with: the result of `archive`, a
            batch DataFrame, or a table. One batch job matches its events, from `since` on
            up to where it is complete: `archive(..., complete=)`, or just after its newest
            event. Its matches are delivered as micro-batch -1; then the stream continues from
            there, and events that the history already had are left out and counted
            (`before_cut` in `progress_of`). It is read once: a restarted stream continues from
            its checkpoint.
        since: Leaves out older events of the history.
        gap: If the stream begins later than the history ends, it stops with a StateError that
            names the gap; "allow" says that nothing happened in between.

    Args: Its own archive
        archive: The archive that the stream writes: the result of `archive` for one that Ensue
            has created, or its name among those of `match`. Archives that a stream only reads
            are read as they were when it was first started.
        archive_rows: Events that its queries look at stay in their lanes until a lane has this
            many (50,000); then they become files of the archive, in one transaction per
            micro-batch. Late events do not.
        archive_age: The same, when one of them is older than this.
    """
    with needed("a stream", "spark"):
        from ensue.runners.spark import start as spark_start

    if progress and not once:
        raise EventError(
            "progress=True goes with once=True: a stream that goes on runs in the background\n"
            "  hint: ensue.wait(running, progress=True) waits for it and shows it"
        )
    with _told(progress) as told:
        return spark_start.start(
            matches,
            output,
            checkpoint=checkpoint,
            late=late,
            every=every,
            once=once,
            flush=flush,
            name=name,
            history=history,
            since=since,
            gap=gap,
            archive=archive,
            archive_rows=archive_rows,
            archive_age=archive_age,
            shed_to=shed_to,
            told=told,
        )


@brief
def wait(query: "StreamingQuery", seconds: float | None = None, *, progress: bool = False) -> bool:
    """Waits until a stream has ended, at most `seconds`; returns whether it has ended.

    Like `query.awaitTermination`, but if the stream has failed, it raises an Ensue error that
    says why in a line or two. With `seconds=0` it only checks.

    `ensue.wait(running, 0)` in a health check: False while the stream runs, an error if it failed.

    With `progress=True` a terminal or a notebook shows meanwhile, in one line, how many
    micro-batches, events and matches there were. Elsewhere nothing is shown.
    """
    with needed("a stream", "spark"):
        from ensue.runners.spark import start as spark_start

    with _told(progress) as told:
        return spark_start.wait(query, seconds, told)


@contextmanager
def _told(progress: bool) -> "Iterator[Callable[[str], None] | None]":
    """What a stream says while it is waited for, if somebody looks."""
    if not progress:
        yield None
        return
    with shown() as board:
        yield None if board is None else board.show


@brief
def remaining(
    spark: "SparkSession", checkpoint: "str | Path", *, operators: Iterable[Operator] = ()
) -> "DataFrame | SeveralMatches":
    """Returns what a stopped stream would still deliver if it ended here, as a batch DataFrame.

    This changes nothing: the stream can continue from the checkpoint. Operators that its query
    uses must have been added, or passed here.

    `ensue.remaining(spark, "checkpoint/").show()`
    """
    with needed("a stream", "spark"):
        from ensue.runners.spark import finish as spark_finish

    return spark_finish.remaining(spark, str(checkpoint), operators)


@brief
def progress_of(query: "StreamingQuery") -> "list[BatchProgress]":
    """Returns what a stream did in its last micro-batches (Spark remembers 100).

    `ensue.progress_of(running)[-1].late` is how many events of the last one were late.
    """
    with needed("a stream", "spark"):
        from ensue.runners.spark import progress as spark_progress

    return spark_progress.progress_of(query)


@brief
def parquet_table(path: "str | Path") -> "Sink":
    """A folder of Parquet files for `start`: a match that is already there is not added again.

    `start(matches, parquet_table("matches/"), checkpoint="checkpoint/")` is the same as with the
    folder itself.

    >>> parquet_table("matches/")
    ParquetTable(path='matches/')
    """
    with needed("the output of a stream", "spark"):
        from ensue.runners.spark import sinks as spark_sinks

    return spark_sinks.ParquetTable(str(path))


@brief
def delta_table(path: "str | Path", storage_options: dict[str, str] | None = None) -> "Sink":
    """A Delta table for `start`: a match that is already there is not added again.

    `start(matches, delta_table("s3://bucket/matches", {"AWS_REGION": "eu-west-1"}), ...)`: the
    options are those of the package `deltalake`.

    >>> delta_table("matches/")
    DeltaTable(path='matches/', storage_options=None)
    """
    with needed("the output of a stream", "spark"):
        from ensue.runners.spark import sinks as spark_sinks

    return spark_sinks.DeltaTable(str(path), storage_options)


@brief
def kafka_topic(servers: str, topic: str, **options: str) -> "Sink":
    """A Kafka topic for `start`: the key is `match_id`, the value the match as JSON.

    Kafka may get a match again after a crash; readers can drop duplicates by the key.

    `start(matches, kafka_topic("localhost:9092", "matches"), checkpoint="checkpoint/")`

    >>> kafka_topic("localhost:9092", "matches")
    KafkaTopic(servers='localhost:9092', topic='matches', options={})
    """
    with needed("the output of a stream", "spark"):
        from ensue.runners.spark import sinks as spark_sinks

    return spark_sinks.KafkaTopic(servers, topic, options)


@brief
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
    """Opens a table of past events, for queries that look back.

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
        time: As for `match`; an archive that Ensue has created knows it, and the next three.
        type: As for `match`.
        order: As for `match`.
        key: The columns that identify the object of an event.
        version: Fixes the version of a Delta or Iceberg table.
        complete: The time up to which the table is complete, if others write it from the same
            stream.
    """
    from ensue.archives.opening import opened

    return opened(
        place,
        time=None if time is None else _time(time),
        type=type,
        key=_names("key", key),
        order=_names("order", order),
        version=version,
        complete=complete,
    )


@brief
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
    """Creates an archive with a layout for lookups, with these events: a Delta table.

    It is partitioned by day and by `buckets` of hashed keys, and sorted by key and time.
    `events` are an Arrow, pandas or Polars table, or an Arrow schema if there are none yet. If
    times are numbers, `day` is the length of a partition.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> passes = pa.table({"t": [1, 2], "tag": ["x", "y"]})
    >>> folder = tempfile.mkdtemp() + "/passes"
    >>> made = create_archive(folder, passes, time="t", key="tag", day=100.0)
    >>> append_archive(folder, pa.table({"t": [3], "tag": ["x"]}))
    1
    """
    from ensue.archives.opening import table_of
    from ensue.archives.writing import append, create

    table = table_of(events)
    made = create(
        place,
        table.schema,
        time=_time(time),
        type=type,
        key=_names("key", key),
        order=_names("order", order),
        buckets=buckets,
        day=day,
    )
    if table.num_rows:
        append(place, table)
    return made


@brief
def append_archive(place: "str | Path", events: Any) -> int:
    """Appends events to an archive from `create_archive`; returns how many.

    They count as having arrived after all existing ones. An archive that a stream writes is
    refused.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> folder, passes = tempfile.mkdtemp() + "/passes", pa.table({"t": [1], "tag": ["x"]})
    >>> made = create_archive(folder, passes.schema, time="t", key="tag", day=100.0)
    >>> append_archive(folder, passes)
    1
    """
    from ensue.archives.opening import table_of
    from ensue.archives.writing import append

    return append(place, table_of(events))


@brief
def compact_archive(
    place: "str | Path", *, fewest: int = 4, vacuum: int | None = None
) -> "Compacted":
    """Merges small files of an archive; streams can keep writing and reading it.

    Days and buckets with fewer than `fewest` files are skipped. `vacuum` deletes files that no
    version of that many hours needs.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> folder, passes = tempfile.mkdtemp() + "/passes", pa.table({"t": [1], "tag": ["x"]})
    >>> made = create_archive(folder, passes, time="t", key="tag", day=100.0)
    >>> for _ in range(4):
    ...     added = append_archive(folder, passes)
    >>> done = compact_archive(folder)
    >>> done.before, done.after, done.rows
    (5, 1, 5)
    """
    from ensue.archives import compaction

    done = compaction.compact(place, fewest=fewest)
    if vacuum is not None:
        compaction.vacuum(place, hours=vacuum)
    return done


@brief
def statistics(
    events: Any,
    query: str | Path | PatternBuilder | Query | Tower,
    *,
    params: Mapping[str, Any] | None = None,
    time: str | tuple[str, str],
    type: str | None = None,
    order: Sequence[str] | str = (),
    location: "str | tuple[str, str] | None" = None,
    space: str | None = None,
    sample: int = 10_000,
    seed: int = 0,
) -> Statistics:
    """Measures what events look like to a query, to choose its plan.

    `events` are as for `match`, also those of an archive of the stream. Types and partitions are
    counted in all of them; conditions are tested on a sample of `sample` events. The same events,
    sample and seed give the same statistics; `Statistics.text` and `Statistics.read` keep them.

    For a query with definitions, this measures the layers made of raw events.

    >>> import pyarrow as pa
    >>> events = pa.table({"t": [1, 2, 3, 4], "kind": ["A", "B", "B", "B"]})
    >>> measured = statistics(events, "SEQ(A a, B b)", time="t", type="kind")
    >>> found = match(events, "SEQ(A a, B b)", time="t", type="kind", statistics=measured)
    >>> found.num_rows
    3
    """
    checked = _query_or_tower(query, params)
    if isinstance(checked, Tower):
        from ensue.algebra.towers.layers import layers

        given: dict[str, Any] = {"time": time, "type": type, "order": order}
        given |= {"location": location, "space": space, "sample": sample, "seed": seed}
        lowest = [layer.meaning for layer in layers(checked) if not layer.uses]
        return Statistics.together([statistics(events, one, **given) for one in lowest])
    if sample < 1:
        raise EventError(f"sample={sample}: a sample needs at least one event")
    columns = _columns(time, type, order, location, space)
    assert columns is not None
    return _runner(events).measured(events, checked, columns, sample=sample, seed=seed)


@brief
def explain(
    query: OneQuery | Subscriptions,
    events: Any = None,
    *,
    params: Mapping[str, Any] | None = None,
    time: str | tuple[str, str] | None = None,
    type: str | None = None,
    order: Sequence[str] | str = (),
    location: "str | tuple[str, str] | None" = None,
    space: str | None = None,
    statistics: Statistics | None = None,
    off: Sequence[str] | str = (),
    structure: str | None = None,
    memory: int | str | None = None,
    evict: str | None = None,
    archives: "Mapping[str, Archive] | None" = None,
    archive: str | None = None,
    access: str | None = None,
    latency: str | int | float | None = None,
    analyze: bool = False,
    kernel: bool = False,
) -> PlanText:
    """Shows how a query runs: the plan, with what each rule did, as stable text.

    With `events` the query is also checked against their columns. With `analyze=True` it runs on
    them, in this process, and each estimate is shown next to the actual figure. With
    `kernel=True` the Python source of the compiled kernel follows, with comments. With `memory`
    or `evict` the plan says what a stream does with keys beyond the limit.

    For a set of subscriptions it says which run on nodes, which as one plan for all of a shape,
    which on their own engines and why, and how much they share.

    For a query with JOIN ARCHIVE, pass `events` and `archives`, and `archive`, `access` and
    `latency` as for `match`: it shows what all four accesses are expected to cost, and why one
    is impossible; with `analyze=True` also what was read from the archives.

    >>> print(explain("SEQ(A a, B b) WHERE [id] WITHIN 5").split("\\n\\n")[0])
    pattern    SEQ(A a, B b)
    strategy   skip_till_any_match: any event may be skipped
    window     5, pushed into the scan
    partition  [id]
    """
    from ensue.plan.limits import Limits

    limits = Limits.given(memory=memory, evict=evict)
    if isinstance(query, Subscriptions):
        return PlanText(_explained_set(query, events, limits))
    planning = _planning(statistics, off, structure, limits=limits)
    past = archives, archive, access, latency
    query = _read_with(query, params)
    columns = _columns(time, type, order, location, space, query)
    asked = _explained(query, events, columns, planning, past)
    if not analyze:
        told = asked.told()
    elif events is None or columns is None or _is_spark(events):
        raise EventError(
            "analyze=True runs the query in this process: pass a table of events and time="
        )
    else:
        from ensue.runners.local import ordered

        told = asked.analysed(ordered(events, columns, asked.types))
    return PlanText(f"{told}\n\n{asked.kernels()}" if kernel else told)


@brief
def picture(
    query: OneQuery,
    events: Any = None,
    *,
    params: Mapping[str, Any] | None = None,
    time: str | tuple[str, str] | None = None,
    type: str | None = None,
    order: Sequence[str] | str = (),
    location: "str | tuple[str, str] | None" = None,
    space: str | None = None,
    statistics: Statistics | None = None,
    off: Sequence[str] | str = (),
    structure: str | None = None,
    archives: "Mapping[str, Archive] | None" = None,
    archive: str | None = None,
    access: str | None = None,
) -> Picture:
    """Draws the plan as a picture (SVG).

    It shows the automaton or the stacks, with their predicates; for a query with definitions its
    layers, one above the other; for one with JOIN ARCHIVE its sides next to each other. The result
    is the text of an SVG, to write to a file; a notebook shows the picture.

    >>> picture("SEQ(A a, B b) WITHIN 5")[:4]
    '<svg'
    """
    planning = _planning(statistics, off, structure)
    past = archives, archive, access, None
    query = _read_with(query, params)
    columns = _columns(time, type, order, location, space, query)
    return Picture(_explained(query, events, columns, planning, past).picture())


@brief
def trace(
    match: Any,
    query: str | Path | PatternBuilder | Query | Tower | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    level: str | None = None,
    time: str | tuple[str, str] | None = None,
) -> "Trace":
    """Expands a match down to its raw events.

    `str` gives a tree, `.timeline` a timeline for a terminal, `.svg` a picture, which a notebook
    shows.

    `match` is a row of a result of `match`: a dict, a table of one row, a Spark Row or a pandas
    Series. A query with RETURN or with definitions needs `match(..., trace=True)`.
    With the `query` the tree also names the types of events; `level` is the definition of the
    match, if its members do not show it. `time` names the time columns of the events, if the
    times of the match do not show them.

    >>> import pyarrow as pa
    >>> events = pa.table({"t": [1, 2], "kind": ["A", "B"]})
    >>> query = "EVENT Pair AS SEQ(A a, B b) WITHIN 5; SEQ(Pair p)"
    >>> found = match(events, query, time="t", type="kind", trace=True)
    >>> print(trace(found, query))
    match       1 to 2
    └─ p  Pair  1 to 2
       ├─ a  A  1
       └─ b  B  2
    """
    from ensue.tracing.trace import trace_of

    if isinstance(query, str | Path | PatternBuilder):
        query = _query_or_tower(query, params)
    return trace_of(match, query, level, None if time is None else _time(time))


@brief
def plot(
    matches: Any,
    events: Any,
    query: str | Path | PatternBuilder | Query | Tower | None = None,
    *,
    time: str | tuple[str, str],
    type: str | None = None,
    by: str | None = None,
    most_matches: int = 50,
    most_events: int = 1_000,
    params: Mapping[str, Any] | None = None,
) -> Picture:
    """Draws matches over their stream as a picture (SVG).

    Events are dots in lanes, each match is a line through its events and a bar from its start to
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
            `match(..., trace=True)` to show its events; otherwise only the bars are drawn.
        events: As for `match`: tables, not Spark DataFrames.
        query: Gives the types of members, if events are a dict of tables.
        params: The values of its parameters, as for `match`.
        time: As for `match`.
        type: As for `match`.
        by: The column whose values are the lanes; by default the type column.
        most_matches: How many matches are drawn.
        most_events: How many other events are drawn.
    """
    from ensue.runners.plotted import plotted
    from ensue.tracing.plot import plot as drawn

    if isinstance(query, str | Path | PatternBuilder):
        query = _query_or_tower(query, params)
    shown = plotted(
        matches, events, query, time=_time(time), type=type, by=by,
        most_matches=most_matches, most_events=most_events,
    )  # fmt: skip
    return Picture(drawn(shown))


def _explained_set(fleet: Subscriptions, events: Any, limits: "Limits") -> str:
    from ensue.workload.arguments import Arguments
    from ensue.workload.subscriptions.explained import ExplainedSubscriptions

    source = None
    if events is not None:
        nothing: dict[str, Any] = dict.fromkeys(("time", "type", "location", "space"))
        columns = Arguments(**_columns_of(fleet, (), False, order=(), **nothing))
        _, source = _runner(events).read(events, columns)
    return ExplainedSubscriptions(fleet.subscribed(), source, limits).told()


def _explained(
    asked: Query | Tower | Correlation | Recognition,
    events: Any,
    columns: "Arguments | None",
    planning: "Planning",
    past: tuple[Any, Any, Any, Any],
) -> "Explained | ExplainedCorrelation | ExplainedClause":
    from ensue.workload.explained import Explained
    from ensue.workload.row_patterns.explained import ExplainedClause

    source, frame = None, None
    if events is not None:
        if columns is None:
            raise EventError("the time column of the events is missing: pass time=")
        frame, source = _runner(events).read(events, columns)
    if isinstance(asked, Correlation):
        return _correlation(asked, events, frame, source, planning, *past)
    if isinstance(asked, Recognition):
        return ExplainedClause(asked, source)
    return Explained(asked, None if source is None else source.shape, planning)


def _correlation(
    asked: Correlation,
    events: Any,
    frame: Any,
    source: "Source | None",
    planning: "Planning",
    archives: object,
    own: object,
    access: str | None,
    latency: str | int | float | None,
) -> "ExplainedCorrelation":
    from ensue.workload.correlations.expected import coming_of
    from ensue.workload.correlations.explained import ExplainedCorrelation
    from ensue.workload.correlations.prepare import Wanted
    from ensue.workload.correlations.prepared import pasts_of

    if source is None or archives is None:
        name = asked.joins[0].archive
        raise QueryError(
            "the plan for JOIN ARCHIVE depends on the archive: pass events, time= and archives=",
            hint=f'archives={{"{name}": ensue.archive(place, time=..., key=...)}}',
            span=asked.joins[0].span,
            text=asked.text,
        )
    streaming = _runner(events).STREAMING
    return ExplainedCorrelation(
        asked, source, planning, pasts_of(archives, own, streaming=streaming),
        Wanted(access, latency), coming_of(frame, streaming=streaming), streaming,
    )  # fmt: skip


def _columns_of(
    query: object,
    asked: "Sequence[Asked]",
    streaming: bool,
    *,
    time: str | tuple[str, str] | None,
    order: Sequence[str] | str,
    **others: Any,
) -> dict[str, Any]:
    """Where time, type, order and place of events are: a set of subscriptions knows it itself, and
    clauses of SQL say what orders and splits rows."""
    from ensue.workload.row_patterns.arranging import arranging

    if isinstance(query, Subscriptions):
        for name, value in {"time": time, "order": order or None, **others}.items():
            if value is not None:
                raise EventError(
                    f"{name}={value!r}: a set of subscriptions sets {name} itself\n"
                    f"  hint: ensue.Subscriptions({name}={value!r}, ...)"
                )
        columns = {name: getattr(query, name) for name in ("type", "location", "space")}
        return {"time": _time(query.time), "order": query.order, **columns}
    if others["space"] is None:
        others["space"] = "plane"
    told, names = None if time is None else _time(time), _names("order", order)
    queries = [(one.name, one.query) for one in asked]
    others["arranging"] = arranging(queries, told, names, streaming=streaming)
    if told is None and others["arranging"] is None:
        raise EventError("the time column of the events is missing: pass time=")
    return {"time": told or "", "order": names, **others}


def _columns(
    time: str | tuple[str, str] | None,
    type: str | None,
    order: Sequence[str] | str,
    location: str | tuple[str, str] | None = None,
    space: str | None = None,
    query: object = None,
) -> "Arguments | None":
    """What is said of the columns of events; None where nothing says when they happened."""
    from ensue.workload.arguments import Arguments

    order = _names("order", order)
    if isinstance(query, Recognition):
        from ensue.workload.row_patterns.arranging import arranging

        rows = arranging([(None, query)], None, order, streaming=False)
        return Arguments(time="", type=type, arranging=rows)
    if time is None:
        return None
    return Arguments(
        time=_time(time), type=type, order=order, location=location, space=space or "plane"
    )


def _planning(
    statistics: Statistics | None,
    off: Sequence[str] | str,
    structure: str | None,
    *,
    adaptive: bool = False,
    limits: "Limits | None" = None,
) -> "Planning":
    from ensue.plan.limits import Limits
    from ensue.plan.planning import Planning

    if not isinstance(statistics, Statistics | None):
        raise EventError(
            f"statistics= is {_a_type(statistics)}\n"
            "  hint: ensue.statistics(events, query, ...) measures them, "
            "ensue.Statistics.given(...) takes what you know"
        )
    left_out = frozenset(_names("off", off))
    return Planning(
        statistics or Statistics(),
        left_out,
        structure,
        adaptive=bool(adaptive),
        limits=limits or Limits(),
    )


def _each(given: object, kind: Any, argument: str) -> tuple[Any, ...]:
    """One thing or several; kept, since each of several queries looks through them."""
    things = tuple(given) if isinstance(given, Iterable) else (given,)
    for thing in things:
        if not isinstance(thing, kind):
            raise EventError(f"{argument}= takes {kind.__name__}s, not {_a_type(thing)}")
    return things


def _names(argument: str, given: object) -> tuple[str, ...]:
    """One name or several: a text is one, not its letters."""
    if isinstance(given, str):
        return (given,)
    names = tuple(given) if isinstance(given, Iterable) else (given,)
    if all(isinstance(name, str) for name in names):
        return names
    raise EventError(f"{argument}={given!r} must be a name or several names")


def _time(time: object) -> str | tuple[str, str]:
    match time:
        case str():
            return time
        case (str(start), str(end)):
            return (start, end)
        case _:
            raise EventError(
                f"time={time!r} must be a column name or a pair of names (start, end)"
            )


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
    from ensue.runners.worlds import World, world_of

    return world_of(events) is World.SPARK


def _a_type(value: object) -> str:
    return f"a {value.__class__.__name__}"


def _query_text(query: Any) -> str:
    """How a notebook shows a query."""
    from ensue.languages.printing import show as spelled

    match query:
        case Query() | Tower() | Definition() | Correlation():
            return spelled(query)
        case PatternBuilder():
            return query.text
        case _:
            return query.text or repr(query)


shown_by(
    _query_text, Query, Tower, Definition, Correlation, Recognition, Subscription, PatternBuilder
)
