"""SQL with MATCH_RECOGNIZE, over tables in memory or on Spark."""

from collections.abc import Callable, Mapping
from typing import Any

from ensue.algebra.row_patterns.recognition import Recognition
from ensue.errors import EventError, QueryError
from ensue.languages.parameters import NO_PARAMETERS, Parameters
from ensue.languages.sql.clauses import read_sql
from ensue.languages.sql.query import ClauseText, SqlQuery
from ensue.languages.sql.tokens import Dialect
from ensue.runners.sql_archives import Archived, joined
from ensue.runners.sql_tables import Recognize
from ensue.runners.worlds import World, in_world_of, world_of


def sql(
    text: str,
    *,
    tables: Mapping[str, Any] | None = None,
    spark: Any = None,
    recognize: Recognize,
    read: Callable[[ClauseText], Recognition] | None = None,
    archived: Archived | None = None,
    parameters: Parameters = NO_PARAMETERS,
) -> Any:
    """What a query gives, in the world that its tables are of.

    `recognize` finds the rows of one clause in a relation: an Arrow table, or a DataFrame where
    the query runs on Spark. `read` is shown each clause before anything runs, so that an error in
    the last one does not come after the work for the first. `archived` are the archives that the
    query may name, and how a clause is joined with them. `parameters` have the values of its
    `:names`.
    """
    if not isinstance(text, str):
        raise QueryError(f"a query is a text, not a {type(text).__name__}")
    given = _named(tables)
    frames = {n: table for n, table in given.items() if world_of(table) is World.SPARK}
    on_spark = spark is not None or bool(frames)
    if spark is not None and world_of(spark) is not World.SPARK:
        raise EventError(f"spark= is a {type(spark).__name__}, not a Spark session")
    if on_spark:
        _all_frames(given, frames)
    query = read_sql(text, Dialect.SPARK if on_spark else Dialect.DUCKDB, parameters)
    for clause in query.clauses if read is not None else ():
        assert read is not None
        read(query.body(clause))
    parameters.require_used()
    session = None
    if on_spark:
        session = spark if spark is not None else next(iter(frames.values())).sparkSession
    if archived is not None and read is not None:
        archived.refuse(given)
        found, more = joined(query, given, session, read, archived)
        if found is not None:
            return in_world_of(given, found)
        frames = {**frames, **more} if on_spark else {}
    else:
        more = {}
    if session is None:
        return in_world_of(given, _over_tables(query, {**given, **more}, recognize))
    from ensue.runners.spark.sql import run

    return run(query, session, frames, recognize)


def _over_tables(query: SqlQuery, given: Mapping[str, Any], recognize: Recognize) -> Any:
    from ensue.runners.sql_tables import run
    from ensue.runners.tables import without_index

    used = {
        name: _table(name, table, without_index)
        for name, table in given.items()
        if name.lower() in query.names
    }
    return run(query, used, recognize, known=given)


def _table(name: str, table: Any, read: Callable[[Any], Any]) -> Any:
    try:
        return read(table)
    except EventError as error:
        raise EventError(f"table {name}: {error}") from None
    except (TypeError, ValueError) as error:  # it speaks Arrow, and says something else
        raise EventError(f"table {name} cannot be read: {error}") from None


def _named(tables: object) -> dict[str, Any]:
    if tables is None:
        return {}
    if not isinstance(tables, Mapping):
        raise EventError(
            f"tables= is a {type(tables).__name__}\n"
            '  hint: tables={"events": events}, by the names in the query'
        )
    known: dict[str, str] = {}
    for name in tables:
        if not isinstance(name, str) or not name:
            raise EventError(f"tables= has the key {name!r}, which is not a table name")
        if name.lower() in known:
            raise EventError(
                f"tables= has {known[name.lower()]} and {name}: names of tables differ in more "
                "than case"
            )
        known[name.lower()] = name
    return dict(tables)


def _all_frames(given: Mapping[str, Any], frames: Mapping[str, Any]) -> None:
    for name, table in given.items():
        if name not in frames:
            raise EventError(
                f"table {name} is a {type(table).__name__}, and the query runs on Spark\n"
                "  hint: spark.createDataFrame(...) turns it into a DataFrame"
            )
