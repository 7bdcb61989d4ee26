"""The output mode of a query: all matches, the first n per trigger, or one row per trigger.

A trigger is an event that completes matches, their last event.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ensue.analyzer.interval_negation import iterate_interval_negations
from ensue.analyzer.pattern_rules import iterate_trailing_negations
from ensue.errors import QueryError, Span, did_you_mean
from ensue.ir.archive_join import ArchiveJoinQuery, get_output_sides
from ensue.ir.expression import MATCHES, Aggregate, EventPosition, Expr, FieldRef, Literal
from ensue.ir.pattern import Atom, Pattern
from ensue.ir.query import Query, ResultModifiers, ReturnItem, SortKey
from ensue.ir.selection import ByEvents, Strategy
from ensue.ir.traits import get_parts, is_event, is_interval_negation, is_sequence
from ensue.ir.traversal import (
    ends_greedily,
    get_kleene_variables,
    get_variables,
    iterate_bound_variables,
    iterate_operator_calls,
)
from ensue.printing.expression_printer import format_expr
from ensue.printing.pattern_printer import format_return_expr, get_default_name


def is_count_all(expr: Expr) -> bool:
    """Whether an expression is `COUNT(*)`."""
    return isinstance(expr, Aggregate) and expr.variable == MATCHES


def find_count_all(query: Query) -> ReturnItem | None:
    """Returns the column `COUNT(*)` of a query, if it has one."""
    return next((r for r in query.returns if is_count_all(r.expr)), None)


def is_summarized(query: Query) -> bool:
    """Whether a query returns one row per trigger instead of one per match."""
    return query.exists or find_count_all(query) is not None


def returns_matches(query: Query) -> bool:
    """Whether each row of a query is a match."""
    return not is_summarized(query) and not query.all_events


def get_last_atom(pattern: Pattern) -> Atom | None:
    """Returns the single event with which every match ends, if the pattern determines it.

    >>> from ensue.ir.pattern import Seq
    >>> get_last_atom(Seq((Atom("A", "a"), Atom("B", "b"))))
    Atom(type='B', variable='b')
    """
    if is_sequence(pattern):
        return get_last_atom(get_parts(pattern)[-1])
    return pattern if is_event(pattern) else None


def check_output_mode(query: Query) -> None:
    """Raises a QueryError if COUNT(*), EXISTS or LIMIT cannot be computed."""
    column, limit = find_count_all(query), query.limit
    if column is None and not query.exists and limit is None:
        return
    shown = "EXISTS" if query.exists else "LIMIT" if column is None else "COUNT(*)"
    span = limit.span if limit is not None else None if column is None else column.span
    if limit is not None and limit.count < 1:
        raise QueryError("LIMIT must be at least 1", hint="RETURN EXISTS returns a row without a match", span=span)
    if (late := _find_late_clause(query)) is not None:
        what, hint, late_span = late
        raise QueryError(
            f"{shown} cannot be combined with {what}: the matches of one event are decided at different times",
            hint=hint,
            span=late_span,
        )
    if not is_summarized(query):
        return
    if column is not None and query.exists:
        raise QueryError("EXISTS and COUNT(*) in one query", hint="use COUNT(*)", span=span)
    if limit is not None:
        raise QueryError(
            f"LIMIT cannot be combined with {shown}, which returns one row for each last event",
            hint="leave out LIMIT",
            span=span,
        )
    if query.having is not None:
        raise QueryError(
            f"HAVING cannot be combined with {shown}",
            hint="conditions on the events of a match belong in WHERE",
            span=query.having.span,
        )
    _check_columns(query, shown)


def _find_late_clause(query: Query) -> tuple[str, str, Span | None] | None:
    """Returns the clause due to which matches of one last event complete at different times."""
    hint = "end the pattern with an event that occurs"
    if (negation := next(iterate_trailing_negations(query.pattern), None)) is not None:
        return "a negation at the end", hint, negation.span
    if ends_greedily(query.pattern):
        return "a greedy loop at the end", hint, query.pattern.span
    if query.after is not None and query.after.by_start:
        what = "AFTER MATCH IN ORDER OF START"
        return what, "leave out IN ORDER OF START", query.after.span
    return None


def check_choose(query: Query) -> None:
    """Raises a QueryError if CHOOSE cannot be combined with the rest of a query."""
    if query.choose is None:
        return
    other, hint = _find_choose_conflict(query)
    if other:
        raise QueryError(
            f"CHOOSE {query.choose.choice.value} cannot be combined with {other}", hint=hint, span=query.choose.span
        )


def check_interval_negations(query: Query) -> None:
    """Raises a QueryError if an interval negation cannot be combined with the rest of a query."""
    negation = next((negation for negation, _ in iterate_interval_negations(query.pattern)), None)
    if negation is None:
        return
    if is_summarized(query) or query.limit is not None:
        other = "COUNT(*), EXISTS and LIMIT"
    elif query.after is not None:
        other = "AFTER MATCH"
    elif any(iterate_operator_calls(query.pattern)):
        other = "user-defined operators"
    elif isinstance(query.within, ByEvents):
        other = "WITHIN a number of events"
    elif is_interval_negation(query.pattern):
        _check_only_absence(query)
        return
    else:
        return
    raise QueryError(
        f"an absence with an explicit interval cannot be combined with {other}",
        hint="leave it out: such matches are decided when their intervals end",
        span=negation.span,
    )


def _check_only_absence(query: Query) -> None:
    """Rejects clauses that need events, which a pattern of only an absence does not have."""
    clauses = {
        "[attr]": query.equivalence,
        "WITHIN": query.within,
        "CHOOSE": query.choose,
        "HAVING": query.having,
        "a selection strategy": query.strategy is not Strategy.ANY,
    }
    for other, present in clauses.items():
        if present:
            raise QueryError(
                f"{other} cannot be combined with a pattern that is only an absence",
                hint="leave it out, or add an event that must occur next to the absence",
                span=query.pattern.span,
            )


def _find_choose_conflict(query: Query) -> tuple[str, str]:
    """Returns the clause that conflicts with CHOOSE and a hint; empty if there is none."""
    if is_summarized(query):
        return ("EXISTS" if query.exists else "COUNT(*)", "leave out CHOOSE: there is one row anyway")
    if query.limit is not None:
        return "LIMIT", "leave out LIMIT: at most one match of each last event is chosen"
    if query.after is not None:
        return "AFTER MATCH", "CHOOSE ONCE lets a match consume all events up to its last one"
    if query.having is not None:
        return "HAVING", "conditions on the events of a match belong in WHERE"
    if any(iterate_operator_calls(query.pattern)):
        return "user-defined operators", "leave out CHOOSE"
    if isinstance(query.within, ByEvents) and any(iterate_trailing_negations(query.pattern)):
        return ("a negation at the end WITHIN a number of events", "give the window as a length of time")
    return "", ""


def _check_columns(query: Query, shown: str) -> None:
    """Checks that other columns than COUNT(*) and EXISTS read only the last event."""
    last = get_last_atom(query.pattern)
    for column in query.returns:
        names = get_variables(column.expr) - {MATCHES}
        if not names or (last is not None and names == {last.variable}):
            continue
        every = "" if query.exists else f"; GROUP BY {column.name} counts all matches by it"
        hint = (
            f"next to {shown}, return fields of {last.variable}, the last event{every}"
            if last is not None
            else f"leave it out: here matches do not all end with the same variable, so {shown} "
            f"must be the only column{every}"
        )
        raise QueryError(
            f"'{column.name}' differs between the matches that {shown} combines", hint=hint, span=column.span
        )


STANDARD_COLUMNS = ("match_id", "start", "end", "location")
ALL_EVENTS_COLUMNS = ("variable", "position", "index")  # columns that ALL EVENTS adds
AnyQuery = TypeVar("AnyQuery", bound=Query | ArchiveJoinQuery)
Normal = Callable[[Expr], Expr]


def check_all_events(query: Query) -> None:
    """Raises a QueryError if ALL EVENTS cannot be combined with the rest of a query."""
    if not query.all_events:
        return
    if is_summarized(query):
        shown = "EXISTS" if query.exists else "COUNT(*)"
        raise QueryError(
            f"ALL EVENTS returns a row for each event of a match, and {shown} no matches",
            hint="leave one of them out",
            span=query.returns[0].span if query.returns else None,
        )
    if query.whole is not None:
        raise QueryError(
            "ALL EVENTS cannot be combined with GROUP BY, ORDER BY or FETCH FIRST",
            hint="leave one of them out; rows of ALL EVENTS are ordered by time",
            span=query.whole.span,
        )
    for column in query.returns:
        if column.name in ALL_EVENTS_COLUMNS:
            raise QueryError(
                f"a column cannot be called '{column.name}' here: ALL EVENTS has one of that name",
                hint="rename it with AS",
                span=column.span,
            )


def check_result_modifiers(query: AnyQuery, normal: Normal) -> AnyQuery:
    """Checks GROUP BY and ORDER BY, and replaces keys that are columns by the columns' names.

    `normal` normalizes expressions of ORDER BY that are no columns.
    """
    whole = query.whole
    if whole is None:
        return query
    if isinstance(query, Query) and query.exists:
        raise QueryError(
            "EXISTS cannot be combined with GROUP BY, ORDER BY or FETCH FIRST",
            hint="RETURN TOTAL COUNT(*) tells how many matches there are",
            span=whole.span,
        )
    if query.limit is not None:
        raise QueryError(
            "LIMIT keeps the first matches of each last event, and cannot be combined with ORDER BY and GROUP BY",
            hint="FETCH FIRST n ROWS ONLY keeps the first rows of the whole result",
            span=query.limit.span,
        )
    if whole.grouped:
        _check_groups(query.returns, whole)
    keys = None
    if whole.keys is not None:
        keys = tuple(_find_column(key, query.returns) or key for key in whole.keys)
    order = tuple(_resolve_sort_key(key, query.returns, whole, normal) for key in whole.order)
    return replace(query, whole=replace(whole, keys=keys, order=order))


def _check_groups(returns: Sequence[ReturnItem], whole: ResultModifiers) -> None:
    assert whole.keys is not None
    if not returns:
        raise QueryError(
            "GROUP BY needs RETURN: which columns should each group have?",
            hint="as in RETURN a.symbol AS symbol, COUNT(*) AS n GROUP BY symbol",
            span=whole.span,
        )
    names = set()
    for key in whole.keys:
        column = _find_column(key, returns)
        if column is None:
            raise QueryError(
                "GROUP BY takes columns of RETURN, and this is not one",
                hint=_suggest(key, returns) or f"add it: RETURN {format_expr(key)} AS name, ...",
                span=key.span,
            )
        names.add(column.variable)
    for returned in returns:
        if returned.every:
            raise QueryError(
                "a group has no single events",
                hint="name the columns: keys of GROUP BY, and aggregates over matches",
                span=returned.span,
            )
        if (returned.over is None) == (returned.name in names):
            continue
        if returned.over is not None:
            raise QueryError(
                f"'{returned.name}' is computed over the matches of a group, and cannot define groups",
                hint="leave it out of GROUP BY",
                span=whole.span,
            )
        raise QueryError(
            f"'{returned.name}' differs between the matches of a group",
            hint=f"add it to GROUP BY, or take an aggregate over matches, as in max({format_expr(returned.expr)})",
            span=returned.span,
        )


def _resolve_sort_key(key: SortKey, returns: Sequence[ReturnItem], whole: ResultModifiers, normal: Normal) -> SortKey:
    column = _find_column(key.expr, returns, () if whole.grouped else STANDARD_COLUMNS)
    if column is not None:
        return replace(key, expr=column)
    bare = isinstance(key.expr, FieldRef) and key.expr.name is None
    if not whole.grouped and not is_count_all(key.expr) and not bare:
        return replace(key, expr=normal(key.expr))
    raise QueryError(
        f"ORDER BY takes columns of the result, and '{format_expr(key.expr)}' is none",
        hint=_suggest(key.expr, returns) or "name the column with AS in RETURN",
        span=key.span,
    )


def _find_column(expr: Expr, returns: Sequence[ReturnItem], others: Sequence[str] = ()) -> FieldRef | None:
    """Finds the column that a key names, by its name or its expression."""
    known = (*(column.name for column in returns), *others)
    if isinstance(expr, FieldRef) and expr in [FieldRef(name, None) for name in known]:
        return FieldRef(expr.variable, None, span=expr.span)
    shown = "COUNT(*)" if is_count_all(expr) else format_expr(expr)
    for column in returns:
        if not column.every and shown == format_return_expr(column):
            return FieldRef(column.name, None, span=expr.span)
    return None


def _suggest(expr: Expr, returns: Sequence[ReturnItem]) -> str | None:
    return did_you_mean(format_expr(expr), [column.name for column in returns])


# --- the split into a query for the matches, and the aggregation of its result

_COUNT = Aggregate("count", MATCHES, None)


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of the result, derived from a column of the matches."""

    name: str
    source: str  # a column of the matches
    over: Aggregate | None = None  # the aggregate over the matches of a group


@dataclass(frozen=True, slots=True)
class ResultSortKey:
    """A key of ORDER BY: a column of the matches or of the groups."""

    source: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class ResultAggregation:
    """The aggregation and order of the table of all matches."""

    whole: ResultModifiers
    columns: tuple[ResultColumn, ...]
    order: tuple[ResultSortKey, ...]
    counts: str | None = None  # the column with the number of matches per row
    hidden: tuple[str, ...] = ()  # columns that only ORDER BY uses

    @property
    def keys(self) -> tuple[ResultColumn, ...]:
        """The keys of the groups."""
        return tuple(column for column in self.columns if column.over is None)


def split_result_modifiers(query: AnyQuery) -> tuple[AnyQuery, ResultAggregation | None]:
    """Splits a checked query into a query for the matches, and the aggregation of its result.

    >>> import ensue
    >>> matches, finishing = split_result_modifiers(ensue.parse("SEQ(A a, B b) RETURN TOTAL COUNT(*) AS n"))
    >>> matches.whole is None, finishing.counts
    (True, 'count(*)')
    """
    if query.whole is None:
        return query, None
    plain = replace(query, whole=None)
    return _split_groups(plain, query.whole) if query.whole.grouped else _split_rows(plain, query.whole)


def _split_groups(query: AnyQuery, whole: ResultModifiers) -> tuple[AnyQuery, ResultAggregation]:
    """Splits a query with GROUP BY; the matches have only the columns that groups need."""
    counted = _build_count(query) if isinstance(query, Query) else None
    taken = set(STANDARD_COLUMNS)
    returns, columns = [], []
    for column in query.returns:
        name = "count(*)"
        if counted is None or column.over is None:
            name = column.name if column.over is None else get_default_name(column.expr)
            name = _reserve(name, taken)
            returns.append(ReturnItem(column.expr, name, span=column.span))
        columns.append(ResultColumn(column.name, name, column.over))
    if counted is not None:
        returns.append(counted)
    order = tuple(_sort_by(k, k.expr.variable) for k in whole.order if isinstance(k.expr, FieldRef))
    return replace(query, returns=tuple(returns)), ResultAggregation(
        whole, tuple(columns), order, None if counted is None else counted.name
    )


def _build_count(query: Query) -> ReturnItem | None:
    """Returns COUNT(*) per last event if groups need nothing else; it enumerates no matches."""
    keys = {name for c in query.returns if c.over is None for name in get_variables(c.expr)}
    counts = [column for column in query.returns if column.over is not None]
    last = get_last_atom(query.pattern)
    if any(column.expr != Literal(True) for column in counts):
        return None
    if keys - ({last.variable} if last is not None else set()):
        return None
    if query.choose is not None or any(iterate_interval_negations(query.pattern)) or not counts:
        return None
    counted = ReturnItem(_COUNT, "count(*)")
    try:
        check_output_mode(replace(query, returns=(counted,)))
    except QueryError:
        return None
    return counted


def _split_rows(query: AnyQuery, whole: ResultModifiers) -> tuple[AnyQuery, ResultAggregation]:
    """Splits a query without GROUP BY; the matches have all columns and the keys of ORDER BY."""
    taken = set(STANDARD_COLUMNS)
    returns = list(query.returns)
    named = {column.name: _reserve(column.name, taken) for column in returns}
    hidden: list[ReturnItem] = []
    order = []
    for key in whole.order:
        if isinstance(key.expr, FieldRef) and key.expr.name is None:
            order.append(_sort_by(key, named.get(key.expr.variable, key.expr.variable)))
        else:
            name = _reserve(get_default_name(key.expr), taken)
            hidden.append(ReturnItem(key.expr, name, span=key.span))
            order.append(_sort_by(key, name))
    if hidden and not returns:
        returns = list(build_variable_columns(query))
        named = {column.name: _reserve(column.name, taken) for column in returns}
    inside = [replace(column, name=named[column.name]) for column in returns]
    columns = tuple(ResultColumn(name, source) for name, source in named.items())
    matches = replace(query, returns=(*inside, *hidden))
    return matches, ResultAggregation(whole, columns, tuple(order), hidden=tuple(h.name for h in hidden))


def build_variable_columns(query: Query | ArchiveJoinQuery) -> Iterator[ReturnItem]:
    """Yields a column for each variable, which a query without RETURN returns."""
    sides = get_output_sides(query) if isinstance(query, ArchiveJoinQuery) else (query,)
    for side in sides:
        lists = get_kleene_variables(side.pattern)
        for name in iterate_bound_variables(side.pattern):
            at = EventPosition.ALL if name in lists else EventPosition.ONLY
            yield ReturnItem(FieldRef(name, None, at), name)


def _reserve(name: str, taken: set[str]) -> str:
    """Allocates a unique name for a column of the matches."""
    while name in taken:
        name = f" {name}"
    taken.add(name)
    return name


def _sort_by(key: SortKey, source: str) -> ResultSortKey:
    return ResultSortKey(source, key.descending, key.nulls_first)
