"""What a stream asks of a clause: an order that time gives, and an end of what it waits for."""

from ensue.algebra.predicate import Field
from ensue.algebra.row_patterns.pattern import Anchor, terms
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.errors import QueryError
from ensue.plan.row_patterns.plan import RowPlan


def time_of(recognition: Recognition) -> str:
    """The column of event time: the first of ORDER BY. The clause is checked against its table."""
    if not recognition.order:
        raise _no_time(recognition, "there is no ORDER BY")
    first = recognition.order[0]
    if not isinstance(first.expr, Field) or first.expr.name is None:
        raise _no_time(recognition, "ORDER BY begins with something that is computed")
    if first.descending:
        raise _no_time(recognition, "ORDER BY begins with a column in descending order")
    return first.expr.name


def _no_time(recognition: Recognition, why: str) -> QueryError:
    span = recognition.order[0].span if recognition.order else recognition.pattern.span
    return QueryError(
        f"rows of a stream come in the order of time, and {why}",
        hint="start ORDER BY with the column of event time, ascending",
        span=span,
        text=recognition.text,
    )


def plain_ties(recognition: Recognition) -> tuple[str, ...] | None:
    """Further columns of ORDER BY, if events can come ordered by them: ascending, NULL last."""
    found = []
    for by in recognition.order[1:]:
        if by.descending or by.nulls_first or not isinstance(by.expr, Field):
            return None
        assert by.expr.name is not None
        found.append(by.expr.name)
    return tuple(found)


def require_open_end(recognition: Recognition) -> None:
    """A QueryError if a pattern asks for the last row of a partition."""
    for term in terms(recognition.pattern):
        if isinstance(term, Anchor) and term.at == "end":
            raise QueryError(
                "$ is the end of a partition, and a stream has no last row",
                hint="leave it out, or run the clause on a table",
                span=term.span,
                text=recognition.text,
            )


def require_bounded(plan: RowPlan) -> None:
    """A QueryError if a match may wait for rows for ever."""
    recognition = plan.recognition
    if recognition.within is None and plan.automaton.longest is None:
        raise QueryError(
            "a match of this pattern may be of any length, and a stream would keep its rows for "
            "ever",
            hint="add WITHIN INTERVAL '1' HOUR behind PATTERN (...), or bound the quantifiers: "
            "{1,100} instead of +",
            span=recognition.pattern.span,
            text=recognition.text,
        )
