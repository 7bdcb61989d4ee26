"""The columns that a query gives its matches, and names that it must leave to others."""

from collections.abc import Iterator

from ensue.algebra.correlation import Correlation, shown_sides
from ensue.algebra.query import Query
from ensue.algebra.walk import positives, results
from ensue.errors import QueryError
from ensue.span import Span

_HINT = "give the column another name with AS, or rename its variable"


def columns(query: Query | Correlation) -> Iterator[tuple[str, Span | None]]:
    """The names of RETURN, or else of the variables, and where they are written."""
    if query.returns:
        yield from ((r.name, r.span) for r in query.returns)
        return
    for side in shown_sides(query) if isinstance(query, Correlation) else (query,):
        yield from ((a.variable, a.span) for a in positives(side.pattern))
        yield from ((r.variable, r.span) for r in results(side.pattern))


def refuse_column(query: Query | Correlation, name: str, why: str) -> None:
    """Raises a QueryError that points at the column of this name, if the query has it."""
    for column, span in columns(query):
        if column == name:
            raise QueryError(
                f"a column cannot be called '{name}' here: {why}",
                hint=_HINT,
                span=span,
                text=query.text,
            )


def refuse_other_cases(query: Query | Correlation, standard: tuple[str, ...]) -> None:
    """Raises a QueryError if two columns, `standard` ones among them, differ in nothing but
    capital letters."""
    seen = {name.lower(): name for name in standard}
    for column, span in columns(query):
        other = seen.setdefault(column.lower(), column)
        if other != column:
            raise QueryError(
                f"the columns '{other}' and '{column}' differ only in case, "
                "and Spark treats them as one",
                hint=_HINT + "; or set spark.sql.caseSensitive to true",
                span=span,
                text=query.text,
            )
