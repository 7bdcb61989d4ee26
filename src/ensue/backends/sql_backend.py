"""SQL with MATCH_RECOGNIZE, over tables in memory or on Spark."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ensue.analyzer.row_pattern_checks import check_row_pattern
from ensue.archives.archive import SINCE, UNTIL, Archive, ArchiveRead
from ensue.backends.dataframe_libs import DataFrameLibrary, convert_result, detect_library, to_arrow_table
from ensue.backends.sql_tables import MatchClauseFunction, run
from ensue.errors import EventError, QueryError
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.expression import FieldRef
from ensue.ir.row_pattern import ROW, RowPatternQuery
from ensue.optional_deps import require_extra
from ensue.parser.parameters import NO_PARAMETERS, Parameters
from ensue.parser.sql.sql_query import Dialect, MatchClause, SqlQuery, UnsupportedJoinError
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
    with require_extra("SQL around MATCH_RECOGNIZE", "sql"):
        from ensue.parser.sql.sql_parser import parse_sql

    query = parse_sql(text, Dialect.SPARK if on_spark else Dialect.DUCKDB, parameters)
    for clause in query.clauses:
        _ = clause.row_pattern
    parameters.require_used()
    session = None
    if on_spark:
        session = spark if spark is not None else next(iter(frames.values())).sparkSession
    archive_tables: dict[str, Any] = {}
    if archived is not None:
        archived.refuse(inputs)
        result, archive_tables = join_archives(query, inputs, session, archived)
        if result is not None:
            return convert_result(inputs, result)
    if session is None:
        known = inputs | archive_tables
        used = {n: _read_table(n, t) for n, t in known.items() if n.lower() in query.names}
        return convert_result(inputs, run(query, used, recognize, known=known))
    from ensue.backends.spark import spark_sql

    return spark_sql.run(query, session, frames | archive_tables, recognize)


def _read_table(name: str, table: Any) -> pa.Table:
    try:
        return to_arrow_table(table)
    except EventError as error:
        raise EventError(f"table {name}: {error}") from None
    except (TypeError, ValueError) as error:  # an Arrow export that fails
        raise EventError(f"table {name} cannot be read: {error}") from None


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
