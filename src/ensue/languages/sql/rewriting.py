"""The SQL around clauses, with a name of a relation in place of each of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ensue.languages.sql.parameters import Bound, Place
from ensue.languages.sql.query import Clause, SqlQuery, With
from ensue.span import Span

Named = Callable[[Clause], str]  # the relation that holds what a clause has found, as SQL


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A text made of pieces of another one."""

    text: str
    pieces: tuple[tuple[int, Span], ...] = ()  # where each begins, and which one it is
    values: dict[str, object] = field(default_factory=dict)  # of parameters, by name

    def origin(self, start: int, end: int) -> Span | None:
        """Where a part of the text comes from; None: it was put in."""
        for at, piece in self.pieces:
            if at <= start < at + (piece.end - piece.start):
                first = piece.start + start - at
                return Span(first, max(first + 1, min(piece.end, first + end - start)))
        return None


def around(query: SqlQuery, named: Named, mark: str | None = None) -> Rewritten:
    """The query without its clauses. Parameters stay as they are written, unless an engine has
    another `mark` for them.

    >>> from ensue.languages.sql.clauses import read_sql
    >>> query = read_sql("SELECT m.x FROM t MATCH_RECOGNIZE (PATTERN (A)) AS m WHERE m.x > 1")
    >>> around(query, lambda clause: f"found_{clause.number}").text
    'SELECT m.x FROM found_1 AS m WHERE m.x > 1'
    """
    return _joined(_pieces(query, query.span, named), query, mark)


def input_of(query: SqlQuery, clause: Clause, named: Named, mark: str | None = None) -> Rewritten:
    """The query that gives the input of a clause, with all named queries that are known there.

    >>> from ensue.languages.sql.clauses import read_sql
    >>> query = read_sql("WITH a AS (SELECT 1 AS x) SELECT * FROM a MATCH_RECOGNIZE (PATTERN (A))")
    >>> input_of(query, query.clauses[0], str).text
    'WITH a AS (SELECT 1 AS x) SELECT * FROM a'
    """
    return _joined(_input(query, clause, named), query, mark)


def _input(query: SqlQuery, clause: Clause, named: Named) -> Iterator[str | Span]:
    known = query.known_at(clause.input.start)
    for depth, one in enumerate(known):
        if depth:  # each WITH inside of the one before: names may hide others
            yield "SELECT * FROM ("
        yield from _with(query, one, named)
    yield "SELECT * FROM "
    yield from _pieces(query, clause.input, named)
    yield from (f"\n) AS __ensue_input_{depth}" for depth in range(1, len(known)))


def _with(query: SqlQuery, one: With, named: Named) -> Iterator[str | Span]:
    yield "WITH RECURSIVE " if one.recursive else "WITH "
    for number, named_query in enumerate(one.queries):
        if number:
            yield ", "
        yield from _pieces(query, named_query.span, named)
    yield " "


def _pieces(query: SqlQuery, part: Span, named: Named) -> Iterator[str | Span]:
    """A part of the query, with names for the clauses that are whole in it."""
    at = part.start
    inside = [c for c in query.clauses if part.start <= c.whole.start and c.whole.end <= part.end]
    for clause in sorted(inside, key=lambda c: (c.whole.start, -c.whole.end)):
        if clause.whole.start < at:  # the input of one that is replaced
            continue
        yield Span(at, clause.whole.start)
        yield named(clause)
        at = clause.whole.end
    yield Span(at, part.end)


def _joined(pieces: Iterator[str | Span], query: SqlQuery, mark: str | None) -> Rewritten:
    texts: list[str] = []
    origins: list[tuple[int, Span]] = []
    length = 0
    bound = Bound(query.parameters, mark or "")
    for piece in pieces:
        for part in _parts(piece, query.places if mark else ()):
            match part:
                case str():
                    written = part
                case Span():
                    origins.append((length, part))
                    written = part.over(query.text)
                case Place():
                    written = bound.written(part)
                    if len(written) == part.span.end - part.span.start:
                        origins.append((length, part.span))
            texts.append(written)
            length += len(written)
    return Rewritten("".join(texts), tuple(origins), bound.values)


def _parts(piece: str | Span, places: tuple[Place, ...]) -> Iterator[str | Span | Place]:
    """A piece, cut at the parameters in it."""
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
