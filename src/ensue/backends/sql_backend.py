"""SQL with MATCH_RECOGNIZE, over tables in memory or on Spark."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ensue.analyzer.row_pattern_checks import check_row_pattern
from ensue.archives.archive import SINCE, UNTIL, Archive, ArchiveRead
from ensue.backends.dataframe_libs import DataFrameLibrary, convert_result, detect_library, is_table, to_arrow_table
from ensue.backends.sql_tables import MatchClauseFunction, run
from ensue.errors import EventError, QueryError, Span
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.expression import Constant, FieldRef
from ensue.ir.row_pattern import ROW, RowPatternQuery
from ensue.optional_deps import require_extra
from ensue.parser.parameters import NO_PARAMETERS, Parameters, to_constant
from ensue.parser.sql.sql_query import MAX_SUBQUERY_VALUES, Dialect, MatchClause, SqlQuery, UnsupportedJoinError
from ensue.schema import Schema
from ensue.vector.arrow_types import get_field_kinds, get_time_zones, plain_type

# Runs the archive join of a clause over a live relation.
RunArchiveJoin = Callable[[ArchiveJoinQuery, Any], Any]


@dataclass(frozen=True)
class SqlArchives:
    """The archives that a SQL query may name, and the function that joins clauses with them."""

    archives: Mapping[str, Archive]
    own: str | None  # the archive of the live rows
    correlate: RunArchiveJoin

    @property
    def names(self) -> dict[str, str]:
        """Archive names by their lower-case form."""
        return {name.lower(): name for name in self.archives}

    def refuse(self, tables: Mapping[str, Any]) -> None:
        """Raise EventError if an archive and a table have the same name."""
        for name in tables:
            if name.lower() in self.names:
                raise EventError(
                    f"{name} is in both tables= and archives=\n  hint: rename the archive, as in archived_{name}"
                )


def join_archives(
    query: SqlQuery, tables: Mapping[str, Any], session: Any, archived: SqlArchives
) -> tuple[Any, dict[str, Any]]:
    """Run a query whose clauses form an archive join.

    For any other query the result is None, with the archives that it names read as tables.
    """
    from ensue.parser.sql.clause_join import find_archive_clauses, read_archive_join

    relations = _Relations(query, tables, session, archived)
    used = {name: real for name, real in archived.names.items() if name in query.names}
    if find_archive_clauses(query, archived.names):
        try:
            archive_join = read_archive_join(query, archived.names, relations.resolve_clause)
            live = query.plain_table(query.clauses[0])
            return archived.correlate(archive_join, relations.get_relation(str(live))), {}
        except UnsupportedJoinError:
            if archived.own is not None or relations.streaming:
                raise
    return None, {real: relations.as_table(real) for real in used.values()}


@dataclass(frozen=True)
class _Relations:
    """Resolves the table names of a query."""

    query: SqlQuery
    tables: Mapping[str, Any]
    session: Any  # None: tables in memory
    archived: SqlArchives

    def get_relation(self, name: str) -> Any:
        for known, table in self.tables.items():
            if known.lower() == name.lower():
                return to_arrow_table(table) if self.session is None else table
        if self.session is not None and self.session.catalog.tableExists(name):
            return self.session.table(name)
        return None

    @property
    def streaming(self) -> bool:
        names = [n for c in self.query.clauses if (n := self.query.plain_table(c)) is not None]
        return any(getattr(self.get_relation(name), "isStreaming", False) for name in names)

    def resolve_clause(self, clause: MatchClause) -> RowPatternQuery:
        row_pattern = clause.row_pattern
        name, zone = str(self.query.plain_table(clause)), None
        archive = self.archived.names.get(name.lower())
        relation = None if archive is not None else self.get_relation(name)
        if archive is not None:
            arrow = self.archived.archives[archive].shape.arrow
        elif relation is None:
            raise UnsupportedJoinError(f"unknown table '{name}'", span=clause.input, text=self.query.text)
        elif self.session is None:
            arrow = relation.schema
        else:
            from ensue.backends.spark.frames import arrow_schema, get_session_zone

            arrow, zone = arrow_schema(relation.schema), get_session_zone(self.session)
        kinds, zones = get_field_kinds(arrow), get_time_zones(arrow, zone)
        row_pattern = check_row_pattern(row_pattern, kinds, zones)
        if archive is not None:
            _require_time(row_pattern, archive, self.archived.archives[archive].shape.schema)
        return row_pattern

    def as_table(self, name: str) -> Any:
        archive = self.archived.archives[name].pinned()
        shape = archive.shape
        time = plain_type(shape.arrow.field(shape.schema.end).type)
        unbounded = pa.table({SINCE: pa.nulls(1, time), UNTIL: pa.nulls(1, time)})
        rows = archive.read(ArchiveRead(unbounded)).events
        return rows if self.session is None else self.session.createDataFrame(rows)


def _require_time(clause: RowPatternQuery, archive: str, schema: Schema) -> None:
    """Raise UnsupportedJoinError if ORDER BY does not begin with the time column of the archive."""
    first = clause.order[0] if clause.order else None
    if first is None or schema.intervals or first.expr != FieldRef(ROW, schema.end):
        raise UnsupportedJoinError(
            f"ORDER BY over an archive must begin with its time column: {archive} has time={schema.end!r}",
            hint=f"ORDER BY {schema.end}",
            span=clause.pattern.span if first is None else first.span,
            text=clause.text,
        )


def run_sql(
    text: str,
    *,
    tables: Mapping[str, Any] | None = None,
    spark: Any = None,
    recognize: MatchClauseFunction,
    archived: SqlArchives | None = None,
    parameters: Parameters = NO_PARAMETERS,
) -> Any:
    """Run a query and return its result in the dataframe library of its tables.

    `recognize` matches one clause over a relation: an Arrow table, or a DataFrame if the query
    runs on Spark. All clauses are parsed before the first one runs. `archived` holds the
    archives that the query may name, `parameters` the values of its `:names`.
    """
    if not isinstance(text, str):
        raise QueryError(f"a query is a text, not a {type(text).__name__}")
    inputs = _check_names(tables)
    frames = {n: table for n, table in inputs.items() if detect_library(table) is DataFrameLibrary.SPARK}
    on_spark = spark is not None or bool(frames)
    if spark is not None and detect_library(spark) is not DataFrameLibrary.SPARK:
        raise EventError(f"spark= is a {type(spark).__name__}, not a Spark session")
    if on_spark:
        for name, table in inputs.items():
            if name not in frames:
                raise EventError(
                    f"table {name} is a {type(table).__name__}, and the query runs on Spark\n"
                    "  hint: spark.createDataFrame(...) turns it into a DataFrame"
                )
    session = None
    if on_spark:
        session = spark if spark is not None else next(iter(frames.values())).sparkSession
    if archived is not None:
        archived.refuse(inputs)
    result = _run_statement(text, inputs, session, recognize, archived, parameters)
    return result if on_spark else convert_result(inputs, result)


def _run_statement(
    text: str,
    inputs: Mapping[str, Any],
    session: Any,
    recognize: MatchClauseFunction,
    archived: SqlArchives | None,
    parameters: Parameters,
) -> Any:
    """Run a query, and return an Arrow table or a DataFrame of Spark."""
    with require_extra("SQL around MATCH_RECOGNIZE", "sql"):
        from ensue.parser.sql.sql_parser import parse_sql

    def run_subquery(inside: str, span: Span) -> list[Constant]:
        """Run a subquery of a clause, with the named queries that are visible there."""
        for with_ in reversed(query.list_visible_queries(span.start)):
            named = ", ".join(q.span.over(text) for q in with_.queries)
            inside = f"WITH {'RECURSIVE ' if with_.recursive else ''}{named} SELECT * FROM ({inside})"
        try:
            return _read_values(
                _run_statement(inside, inputs, session, recognize, archived, replace(parameters, each=False))
            )
        except QueryError as error:
            raise _explain_subquery(error, span) from None

    query = parse_sql(text, Dialect.DUCKDB if session is None else Dialect.SPARK, parameters, run_subquery)
    for clause in query.clauses:
        _ = clause.row_pattern
    parameters.require_used()
    archive_tables: dict[str, Any] = {}
    if archived is not None:
        result, archive_tables = join_archives(query, inputs, session, archived)
        if result is not None:
            return result
    if session is None:
        known = {**inputs, **archive_tables}
        used = {n: _read_table(n, t) for n, t in known.items() if n.lower() in query.names}
        return run(query, used, recognize, known=known)
    from ensue.backends.spark import spark_sql

    return spark_sql.run(query, session, {**inputs, **archive_tables}, recognize)


def _read_values(found: Any) -> list[Constant]:
    """Return the values of a subquery's only column."""
    if getattr(found, "isStreaming", False):
        raise QueryError(
            "a subquery cannot read a stream", hint="join the stream with the input of the clause, in FROM"
        )
    limited = found.limit(MAX_SUBQUERY_VALUES + 1) if detect_library(found) is DataFrameLibrary.SPARK else found
    rows = to_arrow_table(limited)
    if rows.num_columns != 1:
        raise QueryError(f"a subquery returns one column, and this one {rows.num_columns}", hint="SELECT one of them")
    if rows.num_rows > MAX_SUBQUERY_VALUES:
        problem = f"this subquery returns more than {MAX_SUBQUERY_VALUES:,} values"
        raise QueryError(problem, hint="join its table with the input of the clause, in FROM")
    try:
        return [to_constant(value) for value in rows.column(0).to_pylist()]
    except ValueError as error:
        raise QueryError(f"a value of this subquery {error}", hint="cast it: SELECT CAST(x AS VARCHAR)") from None


def _explain_subquery(error: QueryError, span: Span) -> QueryError:
    """Add to the error of a subquery why it cannot read the rows of its clause."""
    hint = error.hint
    if error.problem.startswith("unknown column") or str(hint).startswith("Candidate tables"):
        hint = "a subquery runs once, before the clause, and cannot read its rows; join the table in FROM"
    return QueryError(error.problem, hint=hint, span=span)


def _read_table(name: str, table: Any) -> pa.Table:
    try:
        return to_arrow_table(table)
    except EventError as error:
        raise EventError(f"table {name}: {error}") from None
    except (TypeError, ValueError) as error:  # an Arrow export that fails
        raise EventError(f"table {name} cannot be read: {error}") from None


def find_tables(text: str, variables: Mapping[str, Any], dialect: Dialect | None = None) -> dict[str, Any]:
    """Find the tables that a query names among the variables of a program; case may differ.

    Without a dialect a text that DuckDB cannot parse is read as Spark SQL, and a name that no table
    has may be the path of a file.
    """
    spelled = {name.lower(): name for name in variables}
    files = list_file_tables(text) if dialect is None else ()
    tables: dict[str, Any] = {}
    for name in _find_names(text, dialect):
        value = variables.get(name, variables.get(spelled.get(name.lower(), "")))
        if is_table(value):
            tables.setdefault(name.lower(), value)
        elif name in files:
            tables[name] = Path(name)
    return tables


def list_file_tables(text: str) -> list[str]:
    """List the files that a query reads as tables: FROM 'prices.parquet'."""
    from ensue.backends.event_files import detect_format

    return [name for name in _find_names(text) if detect_format(Path(name)) is not None]


def _find_names(text: str, dialect: Dialect | None = None) -> tuple[str, ...]:
    """List the tables that a query names; none if it cannot be parsed, which its run reports."""
    with require_extra("SQL around MATCH_RECOGNIZE", "sql"):
        from ensue.parser.sql.sql_parser import find_table_names

    for known in (Dialect.DUCKDB, Dialect.SPARK) if dialect is None else (dialect,):
        with suppress(QueryError):
            return find_table_names(text, known)
    return ()


def _check_names(tables: object) -> dict[str, Any]:
    if tables is None:
        return {}
    if not isinstance(tables, Mapping):
        raise EventError(
            f'tables= is a {type(tables).__name__}\n  hint: tables={{"events": events}}, by the names in the query'
        )
    known: dict[str, str] = {}
    for name in tables:
        if not isinstance(name, str) or not name:
            raise EventError(f"tables= has the key {name!r}, which is not a table name")
        if name.lower() in known:
            raise EventError(f"tables= has {known[name.lower()]} and {name}: table names must differ in more than case")
        known[name.lower()] = name
    return dict(tables)
