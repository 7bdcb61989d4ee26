"""The compact structure: for patterns whose events are judged one by one, in any combination.

Then all partial matches that wait in a state have the same future, and need not be told apart.
"""

from collections.abc import Collection

from ensue.algebra.answers import summarised, tally
from ensue.algebra.form import is_absence, is_event, is_sequence, parts
from ensue.algebra.pattern import Kleene
from ensue.algebra.policy import Strategy
from ensue.algebra.query import Query
from ensue.algebra.walk import kleenes, negations
from ensue.plan.physical import Answer, Automaton, Compact, Edge, State, Step
from ensue.plan.physical_rules.automaton import TooManyStates, automaton
from ensue.plan.physical_rules.fitting import COMPACT, why_unknown
from ensue.schema import Schema

MOST_STATES = 16  # counting keeps numbers for pairs of states


def asks_for_less(query: Query) -> bool:
    """Whether a query can be answered without all of its matches."""
    return query.limit is not None or summarised(query)


def compact(query: Query, schema: Schema, off: Collection[str] = ()) -> Compact | str:
    """The compact structure of a query without conditions between events, or why there is none."""
    why = why_not_compact(query, schema)
    if {"compact", "window"} & set(off):
        why = "it is disabled"
    if why is not None:
        return why
    answer = Answer.MATCHES
    if tally(query) is not None:
        answer = Answer.COUNT
    elif query.exists:
        answer = Answer.EXISTS
    elif any(negations(query.pattern)):
        return "a negation is decided match by match"
    return _steps(query, answer) or "the pattern has too many states"


def why_not_compact(query: Query, schema: Schema) -> str | None:
    """Why partial matches cannot be held together, conditions between events apart."""
    if query.strategy is not Strategy.ANY:
        return f"{query.strategy.value} decides event by event what a match takes"
    if schema.intervals:
        return "events that last are in no single order"
    if query.after is not None:
        return "AFTER MATCH looks at each match"
    if query.choose is not None:
        return "CHOOSE looks at each match"
    if query.having is not None:
        return "HAVING looks at each match"
    if any(negations(query.pattern)) and not _plain_negations(query):
        return "a negation is decided match by match"
    return why_unknown(query.pattern, COMPACT)


def _plain_negations(query: Query) -> bool:
    """Whether negations stand between single events in sequence, so that they end a state."""
    inner = parts(query.pattern)
    return (
        is_sequence(query.pattern)
        and all(is_event(p.part if is_absence(p) else p) for p in inner)
        and not is_absence(inner[0])
        and not is_absence(inner[-1])
    )


Key = tuple[int, tuple[tuple[str, int], ...]]  # a state, and the numbers of repetitions so far


def _steps(query: Query, answer: Answer) -> Compact | None:
    """The automaton with numbers of repetitions in its states, where they matter."""
    try:
        plain = automaton(query.pattern, (), ())
    except TooManyStates:
        return None
    counted = {
        v: k for v, k in kleenes(query.pattern).items() if k.least > 1 or k.most is not None
    }
    start: Key = (0, ())
    known, todo = {start}, [start]
    found: list[tuple[Key, Edge, Key]] = []
    while todo:
        key = todo.pop()
        for edge in plain.out_of(key[0]):
            target = _after(key, edge, plain.states[edge.target], counted)
            if target is None:
                continue
            found.append((key, edge, target))
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
            Step(numbers[source], numbers[target], edge.variable, edge.first)
            for source, edge, target in found
        ),
        key=lambda s: (s.source, s.target, s.variable),
    )
    limit = None if query.limit is None else query.limit.count
    return Compact(len(numbers), tuple(steps), accepting, answer, _resets(query), limit)


def _after(key: Key, edge: Edge, state: State, counted: dict[str, Kleene]) -> Key | None:
    """Where an edge leads, if the numbers of repetitions allow it."""
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
    """The negated variables, each with the state of what has come before it."""
    if not is_sequence(query.pattern):
        return ()
    found, state = [], 0
    for part in parts(query.pattern):
        if is_absence(part):
            assert is_event(part.part)
            found.append((part.part.variable, state))
        else:
            state += 1
    return tuple(found)


def as_automaton(compact: Compact) -> Automaton:
    """The same states and steps as an automaton, to be drawn."""
    before: dict[int, frozenset[str]] = {0: frozenset()}
    for step in compact.steps:
        reached = before.get(step.source, frozenset()) | {step.variable}
        before[step.target] = before.get(step.target, frozenset()) | reached
    states = tuple(
        State(n, before.get(n, frozenset()), frozenset(), n in compact.accepting)
        for n in range(compact.states)
    )
    return Automaton(
        states, tuple(Edge(s.source, s.target, s.variable, s.first) for s in compact.steps)
    )
