"""Represents a SQL query with MATCH_RECOGNIZE clauses, and rewrites the SQL around them."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

from ensue.errors import QueryError, Span
from ensue.ir.row_pattern import RowPatternQuery
from ensue.parser.parameters import NO_PARAMETERS, Parameters

if TYPE_CHECKING:
    from sqlglot import exp

    from ensue.parser.sql.clause_parser import ClauseTokens

KEYWORD = "MATCH_RECOGNIZE"
MAX_SUBQUERY_VALUES = 10_000  # of one after IN, inside a clause
INPUT_SCOPE_HINT = "the input of MATCH_RECOGNIZE runs separately: it cannot refer to tables outside of it"
_CLAUSE_FUNCTIONS = {"MATCH_NUMBER": "", "CLASSIFIER": "", "PREV": "A.x", "NEXT": "A.x"}
_QUERIES = {"SELECT", "WITH", "FROM", "VALUES", "TABLE"}
# Comments, strings, quoted names and words.
_PART = re.compile(
    r"""--[^\n]* | /\*[\s\S]*?\*/ | '(?:[^']++|'')*+' | "(?:[^"]++|"")*+" | `[^`]*+` | (?P<word>\w+)""", re.VERBOSE
)


class Dialect(Enum):
    """The SQL around the clauses; inside them, standard SQL applies."""

    DUCKDB = "DuckDB"
    SPARK = "Spark SQL"


class UnsupportedJoinError(QueryError):
    """Reports an unsupported join of a clause over an archive."""


def claims_sql(text: str) -> bool:
    """Whether a text is a SQL query with a MATCH_RECOGNIZE clause inside.

    >>> claims_sql("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS true)")
    True
    >>> claims_sql("SEQ(A a, B b) WHERE a.name = 'MATCH_RECOGNIZE'"), claims_sql("SELECT 1")
    (False, False)
    """
    words = (part["word"].upper() for part in _PART.finditer(text) if part["word"])
    return next(words, "") in _QUERIES and KEYWORD in words


def explain_clause_function(name: str) -> tuple[str, str] | None:
    """Explains why a function of clauses fails outside of them, with a hint; None for others.

    >>> print(*explain_clause_function("prev"), sep="; ")
    PREV() only works inside MATCH_RECOGNIZE; make it a measure: MEASURES PREV(A.x) AS n
    """
    name = name.upper()
    if name not in _CLAUSE_FUNCTIONS:
        return None
    return (
        f"{name}() only works inside MATCH_RECOGNIZE",
        f"make it a measure: MEASURES {name}({_CLAUSE_FUNCTIONS[name]}) AS n",
    )


@dataclass(frozen=True, slots=True)
class ParameterPosition:
    """A parameter `:name` in a text, and whether it is, or is in, the list of an IN."""

    name: str
    span: Span
    follows_in: bool = False  # x IN :names
    listed: bool = False  # x IN (1, :names)


@dataclass(slots=True)
class BoundParameters:
    """Collects the values of parameters under the names that the engine's SQL uses."""

    parameters: Parameters
    mark: str  # before a name: $ for DuckDB, : for Spark
    values: dict[str, object] = field(default_factory=dict)

    def write(self, place: ParameterPosition) -> str:
        """Writes a parameter; a list after IN becomes one name for each value."""
        value = self.parameters.plain(place.name, place.span)
        if not isinstance(value, list) or not (place.follows_in or place.listed):
            self.values[place.name] = value
            return f"{self.mark}{place.name}"
        names = [f"{place.name}_{number}_of_{len(value)}" for number in range(1, len(value) + 1)]
        self.values |= dict(zip(names, value, strict=True))
        joined = ", ".join(f"{self.mark}{name}" for name in names)
        return f"({joined})" if place.follows_in else joined


@dataclass(frozen=True)
class MatchClause:
    """`<input> MATCH_RECOGNIZE (<body>) [AS alias]`."""

    number: int  # from 1, in the order of the keywords: inputs hold only clauses of lower numbers
    input: Span  # a table with its alias
    keyword: Span
    body: Span  # between the parentheses
    whole: Span  # from the input to the closing parenthesis
    table: str | None = None  # the input, if it is only a name
    input_alias: str | None = None
    alias: str | None = None  # the name after the clause
    asks_ids: bool = False  # the query names a column match_id
    tokens: "ClauseTokens" = field(repr=False, compare=False, kw_only=True)

    @cached_property
    def row_pattern(self) -> RowPatternQuery:
        """The clause itself; its columns may be qualified by the table before it."""
        from ensue.parser.sql.clause_parser import parse_clause_tokens

        return parse_clause_tokens(self.tokens, self.input_alias or self.table)


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """`name AS (...)` in a WITH."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class WithClause:
    """`WITH a AS (...), b AS (...)`, and the scope of its names."""

    scope: Span
    queries: tuple[NamedQuery, ...]
    recursive: bool = False


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """One query; its names are in lower case."""

    text: str
    span: Span  # without trailing semicolons
    clauses: tuple[MatchClause, ...] = ()
    withs: tuple[WithClause, ...] = ()  # outer ones first
    names: frozenset[str] = field(default=frozenset(), repr=False)  # all words, names and texts in it
    mixed_case: bool = False  # some of them are spelled in two ways
    only: MatchClause | None = None  # the query is SELECT * of this clause and nothing else
    places: tuple[ParameterPosition, ...] = ()  # of its parameters
    has_subqueries: bool = False  # inside of clauses
    parameters: Parameters = field(default=NO_PARAMETERS, compare=False, repr=False)
    tree: "exp.Expr | None" = field(default=None, compare=False, repr=False)  # with a table for each clause

    def list_visible_queries(self, position: int) -> tuple[WithClause, ...]:
        """Returns the named queries visible at a position, the innermost last."""
        return tuple(
            WithClause(with_.scope, known, with_.recursive)
            for with_ in self.withs
            if with_.scope.start <= position < with_.scope.end
            and (known := tuple(q for q in with_.queries if q.span.end <= position))
        )

    def plain_table(self, clause: MatchClause) -> str | None:
        """Returns the table that is the whole input of a clause, unless it is a named query."""
        if clause.table is None:
            return None
        named = {q.name.lower() for with_ in self.list_visible_queries(clause.input.start) for q in with_.queries}
        return None if clause.table.lower() in named else clause.table

    def describe_clause(self, clause: MatchClause) -> str:
        """Returns a line that tells clauses apart."""
        line = self.text.count("\n", 0, clause.keyword.start) + 1
        over = " ".join(clause.input.over(self.text).split())
        return f"clause {clause.number}, line {line}, over {over[:57] + '...' if len(over) > 60 else over}"


NameRelation = Callable[[MatchClause], str]  # the relation with the matches of a clause, as SQL


@dataclass(frozen=True, slots=True)
class RewrittenSql:
    """A text composed of pieces of another one."""

    text: str
    pieces: tuple[tuple[int, Span], ...] = ()  # the start and the origin of each
    values: dict[str, object] = field(default_factory=dict)  # of parameters, by name

    def origin(self, start: int, end: int) -> Span | None:
        """Returns the original position of a part of the text; None if it was inserted."""
        for at, piece in self.pieces:
            if at <= start < at + (piece.end - piece.start):
                first = piece.start + start - at
                return Span(first, max(first + 1, min(piece.end, first + end - start)))
        return None


def replace_clauses(query: SqlQuery, named: NameRelation, mark: str | None = None) -> RewrittenSql:
    """Replaces the clauses of a query by names; parameters get the `mark` of the engine.

    >>> from ensue.parser.sql.sql_parser import parse_sql
    >>> query = parse_sql("SELECT m.x FROM t MATCH_RECOGNIZE (PATTERN (A)) AS m WHERE m.x > 1")
    >>> replace_clauses(query, lambda clause: f"found_{clause.number}").text
    'SELECT m.x FROM found_1 AS m WHERE m.x > 1'
    """
    return _assemble(_pieces(query, query.span, named), query, mark)


def build_clause_input(
    query: SqlQuery, clause: MatchClause, named: NameRelation, mark: str | None = None
) -> RewrittenSql:
    """Builds the query for the input of a clause, with all named queries visible there.

    >>> from ensue.parser.sql.sql_parser import parse_sql
    >>> text = "WITH a AS (SELECT 1 AS x) SELECT * FROM a MATCH_RECOGNIZE (PATTERN (A))"
    >>> query = parse_sql(text)
    >>> build_clause_input(query, query.clauses[0], str).text
    'WITH a AS (SELECT 1 AS x) SELECT * FROM a'
    """
    return _assemble(_input(query, clause, named), query, mark)


def _input(query: SqlQuery, clause: MatchClause, named: NameRelation) -> Iterator[str | Span]:
    withs = query.list_visible_queries(clause.input.start)
    for depth, with_ in enumerate(withs):
        if depth:  # each WITH inside the previous one, since names may shadow others
            yield "SELECT * FROM ("
        yield from _with(query, with_, named)
    yield "SELECT * FROM "
    yield from _pieces(query, clause.input, named)
    yield from (f"\n) AS __ensue_input_{depth}" for depth in range(1, len(withs)))


def _with(query: SqlQuery, with_: WithClause, named: NameRelation) -> Iterator[str | Span]:
    yield "WITH RECURSIVE " if with_.recursive else "WITH "
    for number, named_query in enumerate(with_.queries):
        if number:
            yield ", "
        yield from _pieces(query, named_query.span, named)
    yield " "


def _pieces(query: SqlQuery, part: Span, named: NameRelation) -> Iterator[str | Span]:
    """Yields a part of the query, with names for the clauses completely inside it."""
    at = part.start
    inside = [c for c in query.clauses if part.start <= c.whole.start and c.whole.end <= part.end]
    for clause in sorted(inside, key=lambda c: (c.whole.start, -c.whole.end)):
        if clause.whole.start < at:  # part of the input of a replaced clause
            continue
        yield Span(at, clause.whole.start)
        yield named(clause)
        at = clause.whole.end
    yield Span(at, part.end)


def _assemble(pieces: Iterator[str | Span], query: SqlQuery, mark: str | None) -> RewrittenSql:
    texts: list[str] = []
    origins: list[tuple[int, Span]] = []
    length = 0
    bound = BoundParameters(query.parameters, mark or "")
    for piece in pieces:
        for part in _parts(piece, query.places if mark else ()):
            match part:
                case str():
                    text = part
                case Span():
                    origins.append((length, part))
                    text = part.over(query.text)
                case ParameterPosition():
                    text = bound.write(part)
                    if len(text) == part.span.end - part.span.start:
                        origins.append((length, part.span))
            texts.append(text)
            length += len(text)
    return RewrittenSql("".join(texts), tuple(origins), bound.values)


def _parts(piece: str | Span, places: tuple[ParameterPosition, ...]) -> Iterator[str | Span | ParameterPosition]:
    """Splits a piece at its parameters."""
    if isinstance(piece, str):
        yield piece
        return
    at = piece.start
    for place in places:
        if piece.start <= place.span.start and place.span.end <= piece.end:
            yield Span(at, place.span.start)
            yield place
            at = place.span.end
    yield Span(at, piece.end)
