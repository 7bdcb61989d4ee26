"""A query apart from what it says of its whole result: matches first, then groups and order."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from ensue.algebra.answers import check_answer, last_atom
from ensue.algebra.check.whole_results import STANDARD
from ensue.algebra.correlation import Correlation, shown_sides
from ensue.algebra.lapses import lapses
from ensue.algebra.predicate import MATCHES, Aggregate, At, Expr, Field, Literal
from ensue.algebra.query import Query, Returned, SortKey, WholeResult
from ensue.algebra.text import default_name
from ensue.algebra.walk import bound_variables, kleenes, variables
from ensue.errors import QueryError

Asked = TypeVar("Asked", bound=Query | Correlation)
_COUNT = Aggregate("count", MATCHES, None)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the result, made of one of the matches."""

    name: str
    source: str  # a column of the matches
    over: Aggregate | None = None  # the matches of a group are taken together by this


@dataclass(frozen=True, slots=True)
class Sorting:
    """What rows are ordered by: a column of the matches, or of groups."""

    source: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Finishing:
    """What is done with the table of all matches."""

    whole: WholeResult
    columns: tuple[Column, ...]
    order: tuple[Sorting, ...]
    counts: str | None = None  # a column of the matches that says how many a row stands for
    hidden: tuple[str, ...] = ()  # columns of the matches that are only there to be ordered by

    @property
    def keys(self) -> tuple[Column, ...]:
        """The columns that groups are made by."""
        return tuple(column for column in self.columns if column.over is None)


def apart(query: Asked) -> tuple[Asked, Finishing | None]:
    """A checked query for the matches alone, and what is done with all of them.

    >>> import ensue
    >>> matches, finishing = apart(ensue.parse("SEQ(A a, B b) RETURN TOTAL COUNT(*) AS n"))
    >>> matches.whole is None, finishing.counts
    (True, 'count(*)')
    """
    if query.whole is None:
        return query, None
    plain = replace(query, whole=None)
    return _groups(plain, query.whole) if query.whole.grouped else _rows(plain, query.whole)


def _groups(query: Asked, whole: WholeResult) -> tuple[Asked, Finishing]:
    """Of the matches only what groups are made by and of."""
    counted = _counted(query) if isinstance(query, Query) else None
    names = _Names()
    returns, columns = [], []
    for column in query.returns:
        if counted is not None and column.over is not None:
            columns.append(replace(_column(column), source="count(*)"))
            continue
        name = names.free(column.name if column.over is None else default_name(column.expr))
        returns.append(Returned(column.expr, name, span=column.span))
        columns.append(replace(_column(column), source=name))
    if counted is not None:
        returns.append(counted)
    order = tuple(_by(key, _name(key.expr)) for key in whole.order)
    found = replace(query, returns=tuple(returns))
    return found, Finishing(
        whole, tuple(columns), order, None if counted is None else counted.name
    )


def _counted(query: Query) -> Returned | None:
    """COUNT(*) of each last event, where groups need nothing else: it lists no matches."""
    keys = {name for c in query.returns if c.over is None for name in variables(c.expr)}
    counts = [column for column in query.returns if column.over is not None]
    last = last_atom(query.pattern)
    if any(column.expr != Literal(True) for column in counts):
        return None
    if keys - ({last.variable} if last is not None else set()):
        return None
    if query.choose is not None or any(lapses(query.pattern)) or not counts:
        return None
    counted = Returned(_COUNT, "count(*)")
    try:
        check_answer(replace(query, returns=(counted,)))
    except QueryError:
        return None
    return counted


def _rows(query: Asked, whole: WholeResult) -> tuple[Asked, Finishing]:
    """All columns of the matches, and what they are ordered by."""
    names = _Names()
    returns = list(query.returns)
    named = {column.name: names.free(column.name) for column in returns}
    hidden: list[Returned] = []
    order = []
    for key in whole.order:
        if isinstance(key.expr, Field) and key.expr.name is None:
            order.append(_by(key, named.get(key.expr.variable, key.expr.variable)))
        else:
            hidden.append(Returned(key.expr, names.free(default_name(key.expr)), span=key.span))
            order.append(_by(key, hidden[-1].name))
    if hidden and not returns:
        returns = list(_variables(query))
        named = {column.name: names.free(column.name) for column in returns}
    inside = [replace(column, name=named[column.name]) for column in returns]
    kept = tuple(Column(name, source) for name, source in named.items())
    found = replace(query, returns=(*inside, *hidden))
    return found, Finishing(whole, kept, tuple(order), hidden=tuple(h.name for h in hidden))


def _variables(query: Query | Correlation) -> Iterable[Returned]:
    sides = shown_sides(query) if isinstance(query, Correlation) else (query,)
    for side in sides:
        lists = kleenes(side.pattern)
        for name in bound_variables(side.pattern):
            yield Returned(Field(name, None, At.ALL if name in lists else At.ONLY), name)


class _Names:
    """Names of the columns of matches, beside the standard ones."""

    def __init__(self) -> None:
        self.taken = set(STANDARD)

    def free(self, name: str) -> str:
        while name in self.taken:
            name = f" {name}"
        self.taken.add(name)
        return name


def _column(returned: Returned) -> Column:
    return Column(returned.name, "", returned.over)


def _by(key: SortKey, source: str) -> Sorting:
    return Sorting(source, key.descending, key.nulls_first)


def _name(expr: Expr) -> str:
    assert isinstance(expr, Field)
    return expr.variable
