"""Whether the partial matches of a query can be told once they are timed out."""

from ensue.algebra.answers import summarised
from ensue.algebra.check.column_names import columns
from ensue.algebra.form import (
    Form,
    form,
    is_absence,
    is_event,
    is_list,
    is_result,
    is_sequence,
    optional,
    parts,
    plain,
)
from ensue.algebra.lapses import lapses
from ensue.algebra.pattern import Leave, Pattern
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import At, Field
from ensue.algebra.query import Query
from ensue.algebra.text import show_head
from ensue.algebra.walk import atoms, entries, kleenes, leaves, positives, references, variables
from ensue.algebra.window import ByEvents
from ensue.errors import QueryError


def steps_of(pattern: Pattern) -> tuple[Pattern, ...]:
    """The parts that a partial match takes one after the other."""
    return parts(pattern) if is_sequence(pattern) and plain(pattern) else (pattern,)


def up_to_required(steps: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
    """The steps up to the first that may not be left out; nothing if none is needed."""
    for k, part in enumerate(steps):
        if not optional(part):
            return steps[: k + 1]
    return ()


def check_timeouts(query: Query, column: str) -> None:
    """Raises a QueryError where emit_timeouts cannot be answered; `column` is what it adds."""
    _check_window(query)
    if summarised(query):
        raise QueryError(
            "emit_timeouts does not go with COUNT(*) and EXISTS: "
            "a timed-out partial match has no last event to count for",
            hint="return the matches themselves, or leave out emit_timeouts",
            span=query.pattern.span,
        )
    if query.strategy in (Strategy.STRICT, Strategy.PARTITION):
        raise QueryError(
            f"under {query.strategy.value} the next event takes a partial match further or ends "
            "it: there is none to time out",
            hint="emit_timeouts takes skip_till_next_match and skip_till_any_match",
            span=query.pattern.span,
        )
    _check_names(query, column)
    steps = steps_of(query.pattern)
    for k, part in enumerate(steps):
        _check_part(part)
        if query.strategy is Strategy.NEXT:
            _check_optional(steps, k)
    for condition in query.where:
        for ref in references(condition):
            if ref.at is At.THROUGH:
                raise QueryError(
                    "emit_timeouts takes no running aggregate that includes the current event",
                    hint=f"aggregate the events before it: {ref.variable}[..i-1]",
                    span=ref.span or condition.span,
                )
    for k, part in enumerate(steps):
        if is_absence(part):
            _check_negation(query, steps, k)


def _check_window(query: Query) -> None:
    for negation, _ in lapses(query.pattern):
        raise QueryError(
            "emit_timeouts does not go with an absence that has an interval of its own",
            hint="leave out emit_timeouts",
            span=negation.span,
        )
    if query.within is None:
        raise QueryError(
            "emit_timeouts needs a window: until when does a partial match wait?",
            hint="add WITHIN, as in WITHIN 5 minutes",
            span=query.pattern.span,
        )
    if isinstance(query.within, ByEvents):
        raise QueryError(
            "emit_timeouts needs a window of time: a window of events may never be over",
            hint="as in WITHIN 5 minutes",
            span=query.within.span,
        )


def _check_names(query: Query, column: str) -> None:
    for name, span in columns(query):
        if name == column:
            raise QueryError(
                f"emit_timeouts adds a column '{column}', and the query has one",
                hint="give the other one another name",
                span=span,
            )


def _check_part(part: Pattern) -> None:
    match form(part):
        case Form.EVENT | Form.LIST | Form.ABSENCE:
            if any(entries(part)):
                name = "a loop with THEN"
            elif any(leave is not Leave.FORK for leave in leaves(part)):
                name = "a greedy or reluctant loop"
            else:
                return
        case Form.OPTION:
            if all(is_event(p) or is_list(p) for p in parts(part)):
                for inner in parts(part):
                    _check_part(inner)
                return
            name = "an optional group"
        case Form.LOOP:
            name = "a repeated group"
        case Form.TOGETHER | Form.CHOICE:
            name = show_head(part)
        case Form.RESULT:
            assert is_result(part)
            name = f"results of an operator ({part.operator.name})"
        case Form.SEQUENCE:
            name = "a sequence inside a sequence" if plain(part) else show_head(part)
    raise QueryError(
        f"emit_timeouts does not take {name}",
        hint="it takes a SEQ of events, also with +, *, ? and !",
        span=part.span,
    )


def _check_optional(steps: tuple[Pattern, ...], k: int) -> None:
    part = steps[k]
    if is_absence(part) or not optional(part):
        return
    begun = any(not is_absence(p) for p in steps[:k])
    if begun and up_to_required(steps[k + 1 :]):
        raise QueryError(
            "emit_timeouts does not take a part in the middle that may be missing "
            "under skip_till_next_match",
            hint="use skip_till_any_match, or make the part required",
            span=part.span,
        )


def _check_negation(query: Query, steps: tuple[Pattern, ...], k: int) -> None:
    """What a negation forbids must be known before the event behind it comes."""
    known = {a.variable for p in steps[:k] for a in positives(p)}
    inside = {a.variable for a in atoms(steps[k])}
    first = next(p for p in steps if not is_absence(p))
    leading = not known
    if leading and not optional(first):
        known = {a.variable for a in positives(first)}
    lists = kleenes(query.pattern)
    for condition in query.where:
        if not variables(condition) & inside:
            continue
        for ref in references(condition):
            settled = ref.variable not in lists or (
                isinstance(ref, Field) and ref.at is At.NTH and ref.nth == 1
            )
            if ref.variable not in known | inside or (leading and not settled):
                raise QueryError(
                    f"emit_timeouts does not take a condition that ties {min(inside)}, which must "
                    f"not occur, to {ref.variable}, which comes later",
                    hint=f"compare {min(inside)} with events before it",
                    span=condition.span,
                )
