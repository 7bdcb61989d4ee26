"""Whether the keys of a query can be taken out of memory and brought back.

A key is stored as its events of the last window, and brought back by matching these again. That
is possible where the window says how far back matches reach, and where nothing else is remembered.
"""

from ensue.algebra.form import (
    bars_next,
    guards_entry,
    is_absence,
    is_sequence,
    optional,
    parts,
    stands,
)
from ensue.algebra.lapses import lapses
from ensue.algebra.operator import Over
from ensue.algebra.pattern import Pattern
from ensue.algebra.policy import Choice
from ensue.algebra.query import Query
from ensue.algebra.walk import ends_greedily, negations, results
from ensue.algebra.window import ByEvents
from ensue.plan.physical import Plan

OF_TOWERS = "events made of events stay in memory"


def why_not_evicted(plan: Plan) -> str | None:
    """Why no key of a query can be stored, if none can."""
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
    if any(lapses(query.pattern)):
        return "an absence with an explicit interval may wait longer than the window"
    if query.choose is not None and query.choose.choice is Choice.ONCE:
        return "CHOOSE ONCE needs more about a key than its events of the last window"
    for applied in results(query.pattern):
        if applied.operator.over is Over.REPEAT:
            return f"the last event of {applied.operator.name} may be older than the window"
    return None


def may_wait(pattern: Pattern) -> bool:
    """Whether a match may only be decided by what comes behind it, or when its window is over.

    >>> from ensue.algebra.pattern import Atom, Not, Seq
    >>> inner = Seq((Atom("A", "a"), Not(Atom("B", "b")), Atom("C", "c")))
    >>> may_wait(inner), may_wait(Seq((inner, Not(Atom("D", "d")))))
    (False, True)
    """
    return _absent_at_the_end(pattern) or ends_greedily(pattern)


def _absent_at_the_end(pattern: Pattern) -> bool:
    if is_absence(pattern):
        return False
    if is_sequence(pattern):
        inner = parts(pattern)
        for k, part in reversed([*enumerate(inner)]):
            if bars_next(part) or (stands(part) and not guards_entry(inner[k + 1 :])):
                return True
            if not optional(part):
                break
    return any(_absent_at_the_end(part) for part in parts(pattern))


def in_turn(query: Query) -> bool:
    """Whether AFTER MATCH lets a match wait for others that come before it, found later."""
    after = query.after
    return after is not None and (after.by_start or may_wait(query.pattern))


def why_not_shed(plan: Plan) -> str | None:
    """Why no key of a query can be given up for a while, if none can.

    What is found of it afterwards must be right: a match that begins behind the gap may not
    depend on what was before.
    """
    why = why_not_evicted(plan)
    if why is None and _looks_before(plan.query.pattern):
        why = "what its negation has to rule out may be among the events that were dropped"
    return why


def _looks_before(pattern: Pattern) -> bool:
    """Whether a negation may speak of events before the first one of a match; rather too often.

    >>> from ensue.algebra.pattern import Atom, Not, Seq
    >>> a, b = Atom("A", "a"), Not(Atom("B", "b"))
    >>> _looks_before(Seq((a, b, Atom("C", "c")))), _looks_before(Seq((b, a)))
    (False, True)
    """
    known = 0
    if is_sequence(pattern) and not optional(parts(pattern)[0]):
        known = sum(is_absence(part) for part in parts(pattern)[1:])
    return sum(1 for _ in negations(pattern)) > known
