"""The output mode of a query: all matches, the first n per trigger, or one row per trigger.

A trigger is an event that completes matches, their last event.
"""

from ensue.analyzer.interval_negation import iterate_interval_negations
from ensue.analyzer.pattern_rules import iterate_trailing_negations
from ensue.errors import QueryError, Span
from ensue.ir.expression import MATCHES, Aggregate, Expr
from ensue.ir.pattern import Atom, Pattern
from ensue.ir.query import Query, ReturnItem
from ensue.ir.selection import ByEvents, Strategy
from ensue.ir.traits import get_parts, is_event, is_interval_negation, is_sequence
from ensue.ir.traversal import ends_greedily, get_variables, iterate_operator_calls


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
