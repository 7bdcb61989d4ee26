"""The output mode of a query: all matches, the first n per trigger, or one row per trigger.

A trigger is an event that completes matches, their last event.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ensue.analyzer.interval_negation import iterate_interval_negations
from ensue.analyzer.pattern_rules import iterate_trailing_negations
from ensue.errors import QueryError, did_you_mean
from ensue.ir.archive_join import ArchiveJoinQuery, get_output_sides
from ensue.ir.expression import MATCHES, Aggregate, EventPosition, Expr, FieldRef, Literal
from ensue.ir.pattern import Atom, Pattern
from ensue.ir.query import Query, ResultModifiers, ReturnItem, SortKey
from ensue.ir.selection import ByEvents, MatchChoice, Strategy
from ensue.ir.traits import get_positive_parts, is_event, is_interval_negation, is_sequence
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
        return get_last_atom(get_positive_parts(pattern)[-1])
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
    if not is_summarized(query):
        return
    if column is not None and query.exists:
        raise QueryError("EXISTS and COUNT(*) in one query", hint="use COUNT(*)", span=span)
    _check_columns(query, shown)


def collects_matches(query: Query) -> bool:
    """Whether the matches of one last event are reduced together, and decided at different times."""
    return (query.limit is not None or is_summarized(query)) and _is_decided_late(query)


def _is_decided_late(query: Query) -> bool:
    pattern = query.pattern
    return (
        any(iterate_trailing_negations(pattern))
        or ends_greedily(pattern)
        or any(iterate_interval_negations(pattern))
        or (query.after is not None and query.after.by_start)
    )


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
    if any(iterate_operator_calls(query.pattern)):
        other = "user-defined operators"
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
        "AFTER MATCH": query.after,
        "LIMIT": query.limit,
        "a row for each last event": is_summarized(query),
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
    assert query.choose is not None
    if query.after is not None and query.choose.choice is MatchChoice.ONCE:
        return "AFTER MATCH: both say where the next match may begin", "write CHOOSE LATEST with AFTER MATCH"
    if query.after is not None and query.after.by_start:
        what = "AFTER MATCH IN ORDER OF START: one prefers the newest match, the other the one that began first"
        return what, "leave out IN ORDER OF START"
    if any(iterate_operator_calls(query.pattern)):
        return "user-defined operators", "leave out CHOOSE"
    if isinstance(query.within, ByEvents):
        hint = "give the window as a length of time: CHOOSE compares matches that become certain at the same time"
        if any(iterate_trailing_negations(query.pattern)):
            return "a negation at the end WITHIN a number of events", hint
        if ends_greedily(query.pattern):
            return "a greedy loop at the end WITHIN a number of events", hint
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
    if query.whole is not None and query.whole.grouped:
        raise QueryError(
            "ALL EVENTS cannot be combined with GROUP BY: a group has no single events",
            hint="leave one of them out",
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
    if isinstance(query, Query) and query.exists and whole.grouped:
        raise QueryError(
            "EXISTS cannot be combined with GROUP BY",
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
    others: tuple[str, ...] = () if whole.grouped else STANDARD_COLUMNS
    others += ALL_EVENTS_COLUMNS if isinstance(query, Query) and query.all_events else ()
    order = tuple(_resolve_sort_key(key, query.returns, others, whole, normal) for key in whole.order)
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


def _resolve_sort_key(
    key: SortKey, returns: Sequence[ReturnItem], others: Sequence[str], whole: ResultModifiers, normal: Normal
) -> SortKey:
    column = _find_column(key.expr, returns, others)
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
    ties: tuple[str, ...] = ()  # what orders the rows of one match
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
    if query.choose is not None or query.having is not None or _is_decided_late(query) or not counts:
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
    all_events, exists = (query.all_events, query.exists) if isinstance(query, Query) else (False, False)
    named = {column.name: _reserve(column.name, taken) for column in returns}
    hidden: list[ReturnItem] = []
    order = []
    for key in whole.order:
        if isinstance(key.expr, FieldRef) and key.expr.name is None:
            order.append(_sort_by(key, named.get(key.expr.variable, key.expr.variable)))
        else:
            name = get_default_name(key.expr)  # with ALL EVENTS maybe that of an event's field
            name = _reserve(f" {name}" if all_events else name, taken)
            hidden.append(ReturnItem(key.expr, name, span=key.span))
            order.append(_sort_by(key, name))
    if hidden and not (returns or all_events or exists):
        returns = list(build_variable_columns(query))
        named = {column.name: _reserve(column.name, taken) for column in returns}
    inside = [replace(column, name=named[column.name]) for column in returns]
    columns = tuple(ResultColumn(name, source) for name, source in named.items())
    matches = replace(query, returns=(*inside, *hidden))
    left_out, ties = tuple(h.name for h in hidden), ("position",) if all_events else ()
    return matches, ResultAggregation(whole, columns, tuple(order), ties=ties, hidden=left_out)


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
