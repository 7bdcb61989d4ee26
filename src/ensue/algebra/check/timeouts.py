"""Whether the partial matches of a query can be told once they are timed out."""

from collections.abc import Iterator

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
from ensue.algebra.policy import CONTIGUOUS, Strategy
from ensue.algebra.predicate import At, Field
from ensue.algebra.query import Query
from ensue.algebra.text import show_head
from ensue.algebra.walk import (
    atoms,
    entries,
    kleenes,
    leaves,
    positives,
    references,
    untils,
    variables,
)
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


def is_rewritten(query: Query) -> bool:
    """Whether timed-out partial matches are matches of other queries: a plain SEQ of events.

    Others are found by the definition.
    """
    steps = steps_of(query.pattern)
    return all(_is_plain(part) for part in steps) and not (
        query.strategy is Strategy.NEXT
        and any(_may_be_missing(steps, k) for k in range(len(steps)))
    )


def _is_plain(part: Pattern) -> bool:
    if any(entries(part)) or any(untils(part)) or {*leaves(part)} - {Leave.FORK}:
        return False
    match form(part):
        case Form.EVENT | Form.LIST | Form.ABSENCE:
            return True
        case Form.OPTION:
            return all(is_event(p) or is_list(p) for p in parts(part))
        case Form.LOOP | Form.RESULT | Form.CHOICE | Form.SEQUENCE | Form.TOGETHER:
            return False


def _may_be_missing(steps: tuple[Pattern, ...], k: int) -> bool:
    """Whether a part may be missing between others."""
    part = steps[k]
    if is_absence(part) or not optional(part):
        return False
    begun = any(not is_absence(p) for p in steps[:k])
    return begun and bool(up_to_required(steps[k + 1 :]))


def check_timeouts(query: Query, column: str) -> None:
    """Raises a QueryError where emit_timeouts cannot be answered; `column` is what it adds."""
    _check_window(query)
    if summarised(query):
        raise QueryError(
            "emit_timeouts cannot be combined with COUNT(*) and EXISTS: "
            "a timed-out partial match has no last event to count for",
            hint="return the matches themselves, or leave out emit_timeouts",
            span=query.pattern.span,
        )
    if query.strategy in CONTIGUOUS and not any(entries(query.pattern)):
        raise QueryError(
            f"under {query.strategy.value} the next event either extends a partial match or ends "
            "it: there is none to time out",
            hint="emit_timeouts works with skip_till_next_match and skip_till_any_match",
            span=query.pattern.span,
        )
    _check_names(query, column)
    steps = steps_of(query.pattern)
    for part in steps:
        if not is_absence(part):
            _check_part(part)
    for condition in query.where:
        for ref in references(condition):
            if ref.at is At.THROUGH:
                raise QueryError(
                    "emit_timeouts cannot use a running aggregate that includes the current event",
                    hint=f"aggregate the events before it: {ref.variable}[..i-1]",
                    span=ref.span or condition.span,
                )
    for k, part in enumerate(steps):
        if is_absence(part):
            _check_negation(query, steps, k)


def _check_window(query: Query) -> None:
    for negation, _ in lapses(query.pattern):
        raise QueryError(
            "emit_timeouts cannot be combined with an absence with an explicit interval",
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
            "emit_timeouts needs a window of time: a window of events may never end",
            hint="as in WITHIN 5 minutes",
            span=query.within.span,
        )


def _check_names(query: Query, column: str) -> None:
    for name, span in columns(query):
        if name == column:
            raise QueryError(
                f"emit_timeouts adds a column '{column}', but the query already has one",
                hint="rename the query's column",
                span=span,
            )


def _check_part(part: Pattern) -> None:
    """AND and operators have no first variables."""
    for inner in (part, *_inside(part)):
        if form(inner) is Form.TOGETHER:
            name = show_head(inner)
        elif is_result(inner):
            name = f"results of an operator ({inner.operator.name})"
        else:
            continue
        raise QueryError(
            f"emit_timeouts does not support {name}",
            hint="it supports a SEQ of events, loops, groups and negations, also with THEN",
            span=inner.span,
        )


def _inside(part: Pattern) -> Iterator[Pattern]:
    """All parts of a part that must not be absent."""
    for inner in parts(part):
        if not is_absence(inner):
            yield inner
            yield from _inside(inner)


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
                    f"emit_timeouts does not support a condition that compares {min(inside)}, "
                    "which must "
                    f"not occur, to {ref.variable}, which comes later",
                    hint=f"compare {min(inside)} with events before it",
                    span=condition.span,
                )
