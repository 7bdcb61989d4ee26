"""A SQL query with clauses in it, as it is read."""

from dataclasses import dataclass, field
from typing import NamedTuple

from ensue.languages.parameters import NO_PARAMETERS, Parameters
from ensue.languages.sql.parameters import Place
from ensue.span import Span


@dataclass(frozen=True, slots=True)
class Clause:
    """`<input> MATCH_RECOGNIZE (<body>) [AS alias]`."""

    number: int  # from 1, in the order of the keywords: inputs hold only clauses of lower numbers
    input: Span  # a table with its alias
    keyword: Span
    body: Span  # what stands between the parentheses
    whole: Span  # from the input to the closing parenthesis
    table: str | None = None  # the name that the input is, if it is nothing else
    input_alias: str | None = None
    alias: str | None = None  # the name behind the clause


class ClauseText(NamedTuple):
    """Where the body of a clause stands in a text, and the name of the table that it is over."""

    text: str
    start: int
    end: int
    table: str | None
    asks_ids: bool = False  # the query names a column match_id
    number: int = 1  # of the clause in its query
    parameters: Parameters = NO_PARAMETERS


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """`name AS (...)` in a WITH."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class With:
    """`WITH a AS (...), b AS (...)`, and how far its names are known."""

    scope: Span
    queries: tuple[NamedQuery, ...]
    recursive: bool = False


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """One query. What it names is in lower case: names differ in more than case."""

    text: str
    span: Span  # without semicolons behind it
    clauses: tuple[Clause, ...] = ()
    withs: tuple[With, ...] = ()  # outer ones before those in them
    names: frozenset[str] = field(default=frozenset(), repr=False)  # all words and names in it
    mixed_case: bool = False  # some of them are spelled in two ways
    only: Clause | None = None  # the query is SELECT * of this clause and nothing else
    places: tuple[Place, ...] = ()  # where its parameters stand
    parameters: Parameters = field(default=NO_PARAMETERS, compare=False, repr=False)

    def known_at(self, place: int) -> tuple[With, ...]:
        """The named queries that are known at a place of the text, the innermost last."""
        return tuple(
            With(one.scope, known, one.recursive)
            for one in self.withs
            if one.scope.start <= place < one.scope.end
            and (known := tuple(q for q in one.queries if q.span.end <= place))
        )

    def body(self, clause: Clause) -> ClauseText:
        """The body of a clause; columns may be called by the name of the table before it."""
        table = clause.input_alias or clause.table
        ids = "match_id" in self.names
        body = clause.body
        return ClauseText(
            self.text, body.start, body.end, table, ids, clause.number, self.parameters
        )

    def plain_table(self, clause: Clause) -> str | None:
        """The table that is the whole input of a clause, unless it is a named query's."""
        if clause.table is None:
            return None
        named = {q.name.lower() for one in self.known_at(clause.input.start) for q in one.queries}
        return None if clause.table.lower() in named else clause.table
