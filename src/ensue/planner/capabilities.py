"""The capability matrix: which structures support which pattern nodes, and which queries can be spilled.

A new node enters plans here; the structures compile the nodes they support by their forms.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ensue.analyzer.interval_negation import iterate_interval_negations
from ensue.analyzer.output_mode import collects_matches
from ensue.ir import traits
from ensue.ir.pattern import And, Atom, Kleene, LoopExit, Maybe, Not, OperatorCall, Or, Pattern, Repeat, Seq, Then
from ensue.ir.query import Query
from ensue.ir.selection import ByEvents, MatchChoice, Strategy
from ensue.ir.traversal import (
    ends_greedily,
    get_kleene_variables,
    iterate_certain_variables,
    iterate_negations,
    iterate_operator_calls,
    iterate_positive_atoms,
)
from ensue.ir.user_operator import OperatorInputs
from ensue.printing.pattern_printer import format_head

if TYPE_CHECKING:
    from ensue.planner.physical_plan import PhysicalPlan

STACKS, RUNS, TREE, COMPACT = "stacks", "runs", "tree", "compact"
BY_START = "AFTER MATCH IN ORDER OF START needs runs: only they know which match began first"
_PLURAL = {STACKS: "instance stacks", TREE: "join trees", COMPACT: "compact structures"}


def list_structures(pattern: Pattern) -> frozenset[str]:
    """Structures that support this node, regardless of its parts; empty: only the reference."""
    match pattern:
        case Atom() | Seq() | Not():
            return frozenset({STACKS, RUNS, TREE, COMPACT})
        case Repeat() | Then() | Kleene(inner=Strategy()) | Kleene(until=Not()):
            return frozenset({RUNS})
        case Kleene(leave=LoopExit.GREEDY | LoopExit.RELUCTANT):
            return frozenset({RUNS})
        case Kleene() | And():
            return frozenset({RUNS, TREE, COMPACT})
        case Maybe() | Or():
            return frozenset({RUNS, COMPACT})
        case OperatorCall():
            return frozenset({TREE})


def find_unsupported(pattern: Pattern, structure: str) -> Pattern | None:
    """Finds the first positive node of a pattern that a structure does not support.

    >>> find_unsupported(Seq((Atom("A", "a"), Maybe(Atom("B", "b")))), TREE)
    Maybe(part=Atom(type='B', variable='b'))
    """
    return next((node for node in _nodes(pattern) if structure not in list_structures(node)), None)


def why_unsupported(pattern: Pattern, structure: str) -> str | None:
    """Why a structure cannot run a pattern, if it does not support one of its nodes."""
    node = find_unsupported(pattern, structure)
    return None if node is None else f"{format_head(node)}: not supported by {_PLURAL.get(structure, structure)}"


def _nodes(pattern: Pattern) -> Iterator[Pattern]:
    """The node and its positive descendants; a negated part has its own plan."""
    yield pattern
    for part in traits.get_positive_parts(pattern):
        yield from _nodes(part)


# Join trees


def is_leaf(pattern: Pattern) -> bool:
    """Whether a tree has nothing to join in it: one event, or several of one variable.

    The planner has refused patterns that a tree does not support before.
    """
    match traits.get_form(pattern):
        case traits.NodeForm.EVENT | traits.NodeForm.LIST:
            return True
        case traits.NodeForm.RESULT | traits.NodeForm.SEQUENCE | traits.NodeForm.TOGETHER:
            return False
        case traits.NodeForm.LOOP | traits.NodeForm.OPTION | traits.NodeForm.CHOICE | traits.NodeForm.ABSENCE:
            raise ValueError("only sequences and conjunctions of events can be joined")


def get_leaf_variable(pattern: Pattern) -> str:
    """The variable of a leaf."""
    return next(iterate_positive_atoms(pattern)).variable


def find_always_bound(pattern: Pattern, *, kleene: bool = True) -> set[str]:
    """Finds the variables that every match binds; with `kleene=False` only plain ones.

    >>> from ensue.ir.pattern import Atom, Maybe, Seq
    >>> sorted(find_always_bound(Seq((Atom("A", "a"), Maybe(Atom("B", "b"))))))
    ['a']
    """
    names = {*iterate_certain_variables(pattern)}
    return names if kleene else names - get_kleene_variables(pattern).keys()


# Whether the keys of a query can be spilled and restored: a key is spilled as its events of the last window,
# and restored by matching these again. This requires a window that bounds the lookback of matches, and no other state.

HIERARCHY_REASON = "complex events of a hierarchy stay in memory"


def why_not_evicted(plan: "PhysicalPlan") -> str | None:
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
    if collects_matches(query):
        return "the matches that COUNT(*), EXISTS or LIMIT waits for may be older than the window"
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
    if traits.is_negation(pattern):
        return False
    if traits.is_sequence(pattern):
        inner = traits.get_parts(pattern)
        for k, part in reversed([*enumerate(inner)]):
            if traits.forbids_next_event(part) or (
                traits.is_positional_negation(part) and not traits.precedes_then(inner[k + 1 :])
            ):
                return True
            if not traits.is_optional(part):
                break
    return any(_ends_in_absence(part) for part in traits.get_parts(pattern))


def skips_in_order(query: Query) -> bool:
    """Whether AFTER MATCH delays a match until earlier ones, which are found later, are known."""
    after = query.after
    late = can_wait(query.pattern) or any(iterate_interval_negations(query.pattern))
    return after is not None and (after.by_start or late)


def why_not_shed(plan: "PhysicalPlan") -> str | None:
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
    if traits.is_sequence(pattern) and not traits.is_optional(traits.get_parts(pattern)[0]):
        known = sum(traits.is_negation(part) for part in traits.get_parts(pattern)[1:])
    return sum(1 for _ in iterate_negations(pattern)) > known
