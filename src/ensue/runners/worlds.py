"""The libraries that tables come from, and results as tables of the same library.

pandas gives pandas, Polars gives Polars, a relation of DuckDB a relation on the same connection.
Everything else that speaks Arrow gives an Arrow table, and so do tables of several libraries.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Any
from uuid import uuid4

from ensue.errors import RunnerError


class World(Enum):
    """Whose table it is."""

    ARROW = auto()  # also whatever else speaks Arrow
    PANDAS = auto()
    POLARS = auto()
    POLARS_LAZY = auto()
    DUCKDB = auto()
    SPARK = auto()


_CLASSES = {
    ("pandas", "DataFrame"): World.PANDAS,
    ("polars", "DataFrame"): World.POLARS,
    ("polars", "LazyFrame"): World.POLARS_LAZY,
    ("duckdb", "DuckDBPyRelation"): World.DUCKDB,
    ("_duckdb", "DuckDBPyRelation"): World.DUCKDB,  # what the same is called in some releases
}


def library_of(value: object) -> str:
    """The package that the class of a value is from.

    >>> from fractions import Fraction
    >>> library_of(Fraction(1))
    'fractions'
    """
    return type(value).__module__.partition(".")[0]


def world_of(table: object) -> World:
    """Whose table it is, seen without loading the library; a subclass is of its parent's world.

    >>> world_of([{"t": 1}])
    <World.ARROW: 1>
    """
    for known in type(table).__mro__:
        if known.__module__.startswith("pyspark.sql"):
            return World.SPARK
        found = _CLASSES.get((known.__module__.partition(".")[0], known.__name__))
        if found is not None:
            return found
    return World.ARROW


def in_world_of(events: Any, found: Any) -> Any:
    """Arrow tables as tables of the library that the events are of.

    `events` are one table, or several by name; `found` is one result, or several by name. On
    Spark results are DataFrames already, and stay what they are.
    """
    tables = list(events.values()) if isinstance(events, Mapping) else [events]
    if any(world_of(table) is World.SPARK for table in tables):
        return found  # several results, too: they know how to be computed together
    if isinstance(found, Mapping):
        return {name: _converted(table, tables) for name, table in found.items()}
    return _converted(found, tables)


def _converted(found: Any, tables: Iterable[Any]) -> Any:
    worlds = {world_of(table): table for table in tables}
    if len(worlds) != 1:
        return found
    ((world, example),) = worlds.items()
    match world:
        case World.PANDAS:
            from ensue.runners.pandas_tables import as_pandas

            return as_pandas(found)
        case World.POLARS | World.POLARS_LAZY:
            import polars

            made: Any = polars.from_arrow(found)
            return made if world is World.POLARS else made.lazy()
        case World.DUCKDB:
            return _relation(example, found)
        case World.ARROW | World.SPARK:
            return found


def _relation(events: Any, found: Any) -> Any:  # noqa: ARG001  DuckDB reads `found` by its name
    """An Arrow table as a relation on the connection of another one.

    A relation does not show its connection; a query on it runs there, and DuckDB finds the table
    among the variables here. Some releases keep the view that such a query names.
    """
    import duckdb

    view = f"ensue_{uuid4().hex}"
    try:
        made = events.query(view, "SELECT * FROM found")
    except duckdb.CatalogException:
        raise RunnerError(
            "this connection to DuckDB does not look at variables of Python "
            "(python_enable_replacements), so the result cannot become a relation\n"
            "  hint: pass relation.to_arrow_table(); the result is an Arrow table then"
        ) from None
    events.query(view, f'DROP VIEW IF EXISTS "{view}"')
    return made.set_alias("matches")
