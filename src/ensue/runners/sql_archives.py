"""Clauses of SQL over archives: joined with a clause over live rows, or read as tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ensue.algebra.check.row_patterns import checked
from ensue.algebra.correlation import Correlation
from ensue.algebra.predicate import Field
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.row_patterns.values import ROW
from ensue.archives.contract import SINCE, UNTIL, Archive, Wanted
from ensue.columns.arrow_kinds import fields_of, plain_type, zones_of
from ensue.errors import EventError
from ensue.languages.sql.joins import MisfitError, correlation_of, over_archives
from ensue.languages.sql.query import Clause, ClauseText, SqlQuery
from ensue.languages.sql.tokens import Dialect
from ensue.runners.tables import without_index
from ensue.schema import Schema

# The rows of a live clause over a relation that is joined with archives.
Correlate = Callable[[Correlation, Any], Any]


@dataclass(frozen=True)
class Archived:
    """The archives that a query may name, and who joins clauses with them."""

    archives: Mapping[str, Archive]
    own: str | None  # the one that the live rows belong to
    correlate: Correlate

    @property
    def names(self) -> dict[str, str]:
        """Their names, by those in lower case."""
        return {name.lower(): name for name in self.archives}

    def refuse(self, tables: Mapping[str, Any]) -> None:
        """An EventError if an archive is called like a table."""
        for name in tables:
            if name.lower() in self.names:
                raise EventError(
                    f"{name} is in both tables= and archives=\n"
                    f"  hint: rename the archive, as in archived_{name}"
                )


def joined(
    query: SqlQuery,
    tables: Mapping[str, Any],
    session: Any,
    read: Callable[[ClauseText], Recognition],
    archived: Archived,
) -> tuple[Any, dict[str, Any]]:
    """What the query gives where clauses over archives are joined in the form that can be run
    everywhere; else None, and the archives that it names as tables."""
    relations = _Relations(query, tables, session, archived)
    used = {name: real for name, real in archived.names.items() if name in query.names}
    if over_archives(query, archived.names):
        try:
            dialect = Dialect.DUCKDB if session is None else Dialect.SPARK
            correlation = correlation_of(
                query, archived.names, lambda clause: relations.resolved(clause, read), dialect
            )
            live = query.plain_table(query.clauses[0])
            return archived.correlate(correlation, relations.of(str(live))), {}
        except MisfitError:
            if archived.own is not None or relations.streaming:
                raise
    return None, {real: relations.as_table(real) for real in used.values()}


@dataclass(frozen=True)
class _Relations:
    """What the names in a query stand for."""

    query: SqlQuery
    tables: Mapping[str, Any]
    session: Any  # None: tables in memory
    archived: Archived

    def of(self, name: str) -> Any:
        for known, table in self.tables.items():
            if known.lower() == name.lower():
                return without_index(table) if self.session is None else table
        if self.session is not None and self.session.catalog.tableExists(name):
            return self.session.table(name)
        return None

    @property
    def streaming(self) -> bool:
        """Whether a table that the query names keeps growing."""
        names = [n for c in self.query.clauses if (n := self.query.plain_table(c)) is not None]
        return any(getattr(self.of(name), "isStreaming", False) for name in names)

    def resolved(self, clause: Clause, read: Callable[[ClauseText], Recognition]) -> Recognition:
        """What a clause means, with the columns of its table."""
        found = read(self.query.body(clause))
        name = str(self.query.plain_table(clause))
        archive = self.archived.names.get(name.lower())
        if archive is not None:
            shape = self.archived.archives[archive].shape
            found = checked(found, fields_of(shape.arrow), zones_of(shape.arrow))
            _require_time(found, archive, shape.schema)
            return found
        relation = self.of(name)
        if relation is None:
            raise MisfitError(f"unknown table '{name}'", span=clause.input, text=self.query.text)
        if self.session is None:
            return checked(found, fields_of(relation.schema), zones_of(relation.schema))
        from ensue.runners.spark.session_zone import session_zone
        from ensue.runners.spark.types import arrow_schema

        arrow = arrow_schema(relation.schema)
        zone = session_zone(self.session)
        return checked(found, fields_of(arrow), zones_of(arrow, zone))

    def as_table(self, name: str) -> Any:
        """All rows of an archive."""
        archive = self.archived.archives[name].pinned()
        shape = archive.shape
        time = plain_type(shape.arrow.field(shape.schema.end).type)
        pieces = pa.table({SINCE: pa.nulls(1, time), UNTIL: pa.nulls(1, time)})
        rows = archive.read(Wanted(pieces)).events
        return rows if self.session is None else self.session.createDataFrame(rows)


def _require_time(clause: Recognition, archive: str, schema: Schema) -> None:
    """A misfit if rows of an archive are ordered by another column than its time."""
    first = clause.order[0] if clause.order else None
    if first is None or schema.intervals or first.expr != Field(ROW, schema.end):
        raise MisfitError(
            "the matches of an archive are ordered by its time, but ORDER BY does not begin "
            "with it: "
            f"{archive} has time={schema.end!r}",
            hint=f"ORDER BY {schema.end}",
            span=clause.pattern.span if first is None else first.span,
            text=clause.text,
        )
