"""What a query answers with: its matches, the first few of each trigger, or one row a trigger.

A trigger is an event that completes matches: their last event.
"""

from ensue.algebra.check.arrangement import open_ended
from ensue.algebra.form import is_event, is_lapse, is_sequence, parts
from ensue.algebra.lapses import lapses
from ensue.algebra.pattern import Atom, Pattern
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import MATCHES, Aggregate, Expr
from ensue.algebra.query import Query, Returned
from ensue.algebra.walk import ends_greedily, results, variables
from ensue.algebra.window import ByEvents
from ensue.errors import QueryError
from ensue.span import Span


def is_tally(expr: Expr) -> bool:
    """Whether an expression is `COUNT(*)`.

    >>> is_tally(Aggregate("count", MATCHES, None))
    True
    """
    return isinstance(expr, Aggregate) and expr.variable == MATCHES


def tally(query: Query) -> Returned | None:
    """The column `COUNT(*)` of a query, if it has one."""
    return next((r for r in query.returns if is_tally(r.expr)), None)


def summarised(query: Query) -> bool:
    """Whether a query gives one row a trigger, not one a match."""
    return query.exists or tally(query) is not None


def makes_events(query: Query) -> bool:
    """Whether each row of a query is a match, of which other events can be made."""
    return not summarised(query) and not query.all_events


def last_atom(pattern: Pattern) -> Atom | None:
    """The single event that every match ends with, if the pattern says which.

    >>> from ensue.algebra.pattern import Seq
    >>> last_atom(Seq((Atom("A", "a"), Atom("B", "b"))))
    Atom(type='B', variable='b')
    """
    if is_sequence(pattern):
        return last_atom(parts(pattern)[-1])
    return pattern if is_event(pattern) else None


def check_answer(query: Query) -> None:
    """Raises a QueryError where COUNT(*), EXISTS or LIMIT cannot be answered."""
    column, limit = tally(query), query.limit
    if column is None and not query.exists and limit is None:
        return
    shown = "EXISTS" if query.exists else "LIMIT" if column is None else "COUNT(*)"
    span = limit.span if limit is not None else None if column is None else column.span
    if limit is not None and limit.count < 1:
        raise QueryError(
            "LIMIT must be at least 1", hint="RETURN EXISTS gives a row without a match", span=span
        )
    if (late := _decided_late(query)) is not None:
        what, hint, there = late
        raise QueryError(
            f"{shown} cannot be combined with {what}: "
            "the matches of one event are decided at different times",
            hint=hint,
            span=there,
        )
    if not summarised(query):
        return
    if column is not None and query.exists:
        raise QueryError("EXISTS and COUNT(*) in one query", hint="COUNT(*) tells more", span=span)
    if limit is not None:
        raise QueryError(
            f"LIMIT cannot be combined with {shown}, which gives one row for each last event",
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


def _decided_late(query: Query) -> tuple[str, str, Span | None] | None:
    """What lets the matches of one last event be decided at different times, if anything does."""
    hint = "end the pattern with an event that occurs"
    if (negation := next(open_ended(query.pattern), None)) is not None:
        return "a negation at the end", hint, negation.span
    if ends_greedily(query.pattern):
        return "a greedy loop at the end", hint, query.pattern.span
    if query.after is not None and query.after.by_start:
        what = "AFTER MATCH IN ORDER OF START"
        return what, "leave out IN ORDER OF START", query.after.span
    return None


def check_choice(query: Query) -> None:
    """Raises a QueryError where CHOOSE cannot be combined with the rest of a query."""
    if query.choose is None:
        return
    other, hint = _beside_choose(query)
    if other:
        raise QueryError(
            f"CHOOSE {query.choose.choice.value} cannot be combined with {other}",
            hint=hint,
            span=query.choose.span,
        )


def check_lapses(query: Query) -> None:
    """Raises a QueryError if an absence with an interval cannot be combined with the rest."""
    negation = next((negation for negation, _ in lapses(query.pattern)), None)
    if negation is None:
        return
    if summarised(query) or query.limit is not None:
        other = "COUNT(*), EXISTS and LIMIT"
    elif query.after is not None:
        other = "AFTER MATCH"
    elif any(results(query.pattern)):
        other = "user-defined operators"
    elif isinstance(query.within, ByEvents):
        other = "WITHIN a number of events"
    elif is_lapse(query.pattern):
        _check_moments(query)
        return
    else:
        return
    raise QueryError(
        f"an absence with an explicit interval cannot be combined with {other}",
        hint="leave it out: such matches are decided when their intervals end",
        span=negation.span,
    )


def _check_moments(query: Query) -> None:
    """A pattern that is only an absence has one match without events, or none."""
    given = {
        "[attr]": query.equivalence,
        "WITHIN": query.within,
        "CHOOSE": query.choose,
        "HAVING": query.having,
        "a selection strategy": query.strategy is not Strategy.ANY,
    }
    for other, there in given.items():
        if there:
            raise QueryError(
                f"{other} cannot be combined with a pattern that is only an absence",
                hint="leave it out, or add an event that must occur next to the absence",
                span=query.pattern.span,
            )


def _beside_choose(query: Query) -> tuple[str, str]:
    """What is in the way of CHOOSE, and the way out."""
    if summarised(query):
        return (
            "EXISTS" if query.exists else "COUNT(*)",
            "leave out CHOOSE: it gives one row anyway",
        )
    if query.limit is not None:
        return "LIMIT", "leave out LIMIT: at most one match of each last event is chosen"
    if query.after is not None:
        return "AFTER MATCH", "CHOOSE ONCE lets a match use up all events up to its last one"
    if query.having is not None:
        return "HAVING", "conditions on the events of a match belong in WHERE"
    if any(results(query.pattern)):
        return "user-defined operators", "leave out CHOOSE"
    if isinstance(query.within, ByEvents) and any(open_ended(query.pattern)):
        return (
            "a negation at the end WITHIN a number of events",
            "give the window as a length of time",
        )
    return "", ""


def _check_columns(query: Query, shown: str) -> None:
    """Beside COUNT(*) and EXISTS stands only what all matches of a trigger have in common."""
    last = last_atom(query.pattern)
    for column in query.returns:
        names = variables(column.expr) - {MATCHES}
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
            f"'{column.name}' differs between the matches that {shown} combines",
            hint=hint,
            span=column.span,
        )
