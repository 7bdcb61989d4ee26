"""Whether the keys of a query can be spilled and restored.

A key is spilled as its events of the last window, and restored by matching these again. This
requires a window that bounds the lookback of matches, and no other state.
"""

from ensue.analyzer.interval_negation import iterate_interval_negations
from ensue.ir.pattern import Pattern
from ensue.ir.query import Query
from ensue.ir.selection import ByEvents, MatchChoice
from ensue.ir.traits import (
    forbids_next_event,
    get_parts,
    is_negation,
    is_optional,
    is_positional_negation,
    is_sequence,
    precedes_then,
)
from ensue.ir.traversal import ends_greedily, iterate_negations, iterate_operator_calls
from ensue.ir.user_operator import OperatorInputs
from ensue.planner.physical_plan import PhysicalPlan

HIERARCHY_REASON = "complex events of a hierarchy stay in memory"


def why_not_evicted(plan: PhysicalPlan) -> str | None:
    """Why no key of a query can be spilled, if none can."""
    query = plan.query
    if query.within is None:
        return "without WITHIN every event of a key would have to be stored"
    if isinstance(query.within, ByEvents):
        return "a window that counts events reaches back any length of time"
    if plan.whole_stream:
        return "strict contiguity looks at the events of every key"
    if not query.equivalence:
        return "it has no [attr] to split its events into keys"
    if query.after is not None:
        return "AFTER MATCH needs more about a key than its events of the last window"
    if any(iterate_interval_negations(query.pattern)):
        return "an absence with an explicit interval may wait longer than the window"
    if query.choose is not None and query.choose.choice is MatchChoice.ONCE:
        return "CHOOSE ONCE needs more about a key than its events of the last window"
    for applied in iterate_operator_calls(query.pattern):
        if applied.operator.over is OperatorInputs.REPEAT:
            return f"the last event of {applied.operator.name} may be older than the window"
    return None


def can_wait(pattern: Pattern) -> bool:
    """Whether a later event or the end of the window may decide a match.

    >>> from ensue.ir.pattern import Atom, Not, Seq
    >>> inner = Seq((Atom("A", "a"), Not(Atom("B", "b")), Atom("C", "c")))
    >>> can_wait(inner), can_wait(Seq((inner, Not(Atom("D", "d")))))
    (False, True)
    """
    return _ends_in_absence(pattern) or ends_greedily(pattern)


def _ends_in_absence(pattern: Pattern) -> bool:
    if is_negation(pattern):
        return False
    if is_sequence(pattern):
        inner = get_parts(pattern)
        for k, part in reversed([*enumerate(inner)]):
            if forbids_next_event(part) or (is_positional_negation(part) and not precedes_then(inner[k + 1 :])):
                return True
            if not is_optional(part):
                break
    return any(_ends_in_absence(part) for part in get_parts(pattern))


def skips_in_order(query: Query) -> bool:
    """Whether AFTER MATCH delays a match until earlier ones, which are found later, are known."""
    after = query.after
    return after is not None and (after.by_start or can_wait(query.pattern))


def why_not_shed(plan: PhysicalPlan) -> str | None:
    """Why no key of a query can be shed, if none can.

    Later results of the key must be right: a match that begins after the gap may not depend on
    dropped events.
    """
    why = why_not_evicted(plan)
    if why is None and _looks_before(plan.query.pattern):
        why = "an event that its negation has to rule out may be among the dropped ones"
    return why


def _looks_before(pattern: Pattern) -> bool:
    """Whether a negation may read events before the first one of a match (conservative)."""
    known = 0
    if is_sequence(pattern) and not is_optional(get_parts(pattern)[0]):
        known = sum(is_negation(part) for part in get_parts(pattern)[1:])
    return sum(1 for _ in iterate_negations(pattern)) > known
