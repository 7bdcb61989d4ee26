"""Plans the compact structure, for patterns without conditions between events.

There, all partial matches that wait in a state can be completed by the same events, so they need
not be distinguished.
"""

from collections.abc import Collection

from ensue.analyzer.output_mode import find_count_all, is_summarized
from ensue.ir.pattern import Kleene
from ensue.ir.query import Query
from ensue.ir.selection import Strategy
from ensue.ir.traits import get_parts, is_event, is_negation, is_sequence
from ensue.ir.traversal import get_kleene_variables, iterate_negations
from ensue.planner.capabilities import COMPACT, why_unsupported
from ensue.planner.nfa import TooManyStates, build_automaton
from ensue.planner.physical_plan import CompactOutput, CompactPlan, CompactStep, Nfa, NfaEdge, NfaState
from ensue.schema import Schema

MOST_STATES = 16  # counting stores numbers for pairs of states


def needs_partial_output(query: Query) -> bool:
    """Whether a query needs only some or none of its matches."""
    return query.limit is not None or is_summarized(query)


def plan_compact(query: Query, schema: Schema, off: Collection[str] = ()) -> CompactPlan | str:
    """Builds the compact structure of a query without joins of events, or says why it cannot."""
    why = why_not_compact(query, schema)
    if {"compact", "window"} & set(off):
        why = "it is disabled"
    if why is not None:
        return why
    answer = CompactOutput.MATCHES
    if find_count_all(query) is not None:
        answer = CompactOutput.COUNT
    elif query.exists:
        answer = CompactOutput.EXISTS
    elif any(iterate_negations(query.pattern)):
        return "a negation is checked on each match"
    return _build(query, answer) or "the pattern has too many states"


def why_not_compact(query: Query, schema: Schema) -> str | None:
    """Why partial matches cannot be shared, apart from conditions between events."""
    if query.strategy is not Strategy.ANY:
        return f"{query.strategy.value} decides at each event whether a match takes it"
    if schema.intervals:
        return "events with a duration have no total order"
    if query.after is not None:
        return "AFTER MATCH reads each match"
    if query.choose is not None:
        return "CHOOSE reads each match"
    if query.having is not None:
        return "HAVING reads each match"
    if query.limit is not None and is_summarized(query):
        return "LIMIT orders the matches before they are counted"
    if any(iterate_negations(query.pattern)) and not _plain_negations(query):
        return "a negation is checked on each match"
    return why_unsupported(query.pattern, COMPACT)


def _plain_negations(query: Query) -> bool:
    """Whether negations are between single events in sequence, so that they reset a state."""
    inner = get_parts(query.pattern)
    return (
        is_sequence(query.pattern)
        and all(is_event(p.part if is_negation(p) else p) for p in inner)
        and not is_negation(inner[0])
        and not is_negation(inner[-1])
    )


Key = tuple[int, tuple[tuple[str, int], ...]]  # a state, and the current repetition counts


def _build(query: Query, answer: CompactOutput) -> CompactPlan | None:
    """Expands the automaton by repetition counts in its states, where they matter."""
    try:
        plain = build_automaton(query.pattern, (), ())
    except TooManyStates:
        return None
    counted = {v: k for v, k in get_kleene_variables(query.pattern).items() if k.least > 1 or k.most is not None}
    start: Key = (0, ())
    known, todo = {start}, [start]
    transitions: list[tuple[Key, NfaEdge, Key]] = []
    while todo:
        key = todo.pop()
        for edge in plain.list_outgoing(key[0]):
            target = _after(key, edge, plain.states[edge.target], counted)
            if target is None:
                continue
            transitions.append((key, edge, target))
            if target not in known:
                if len(known) > MOST_STATES:
                    return None
                known.add(target)
                todo.append(target)
    numbers = {key: number for number, key in enumerate(sorted(known))}
    accepting = frozenset(
        number
        for (state, counts), number in numbers.items()
        if plain.states[state].accepting and all(n >= counted[v].least for v, n in counts)
    )
    steps = sorted(
        (
            CompactStep(numbers[source], numbers[target], edge.variable, edge.first)
            for source, edge, target in transitions
        ),
        key=lambda s: (s.source, s.target, s.variable),
    )
    limit = None if query.limit is None else query.limit.count
    return CompactPlan(len(numbers), tuple(steps), accepting, answer, _resets(query), limit)


def _after(key: Key, edge: NfaEdge, state: NfaState, counted: dict[str, Kleene]) -> Key | None:
    """The target of an edge, if the repetition counts allow it."""
    counts = dict(key[1])
    if any(counts[v] < counted[v].least for v in edge.leaves):
        return None
    bound = counted.get(edge.variable)
    if bound is not None:
        reached = 1 if edge.first else counts[edge.variable] + 1
        if bound.most is not None and reached > bound.most:
            return None
        counts[edge.variable] = min(reached, bound.least) if bound.most is None else reached
    return state.number, tuple(sorted((v, n) for v, n in counts.items() if v in state.open))


def _resets(query: Query) -> tuple[tuple[str, int], ...]:
    """The negated variables, each with the state of the events before it."""
    if not is_sequence(query.pattern):
        return ()
    resets, state = [], 0
    for part in get_parts(query.pattern):
        if is_negation(part):
            assert is_event(part.part)
            resets.append((part.part.variable, state))
        else:
            state += 1
    return tuple(resets)


def to_automaton(compact: CompactPlan) -> Nfa:
    """Converts the states and steps to an automaton, for estimates and pictures."""
    before: dict[int, frozenset[str]] = {0: frozenset()}
    for step in compact.steps:
        reached = before.get(step.source, frozenset()) | {step.variable}
        before[step.target] = before.get(step.target, frozenset()) | reached
    states = tuple(
        NfaState(n, before.get(n, frozenset()), frozenset(), n in compact.accepting) for n in range(compact.states)
    )
    return Nfa(states, tuple(NfaEdge(s.source, s.target, s.variable, s.first) for s in compact.steps))
