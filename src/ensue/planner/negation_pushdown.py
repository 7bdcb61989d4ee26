"""Negation pushdown: a negation is evaluated by its event (PNCEP), during construction or last."""

from collections.abc import Callable, Collection
from dataclasses import replace

from ensue.ir.traits import is_event
from ensue.planner.negations import Negation
from ensue.planner.physical_plan import (
    CompactPlan,
    InstanceStacks,
    JoinTree,
    NegationCheck,
    Nfa,
    NfaEdge,
    NfaState,
    ReferencePlan,
    Structure,
)

PUSH = "push_negation"  # names for `off`
IN_CONSTRUCTION = "negation_in_construction"


def push_negation(
    stacks: InstanceStacks, *, intervals: bool, complex_: Collection[str] = (), off: Collection[str] = ()
) -> InstanceStacks:
    """Pushes negations into instance stacks where possible: a negated event empties a stack.

    It removes the older instances of the previous variable, so that no later event reaches them.
    Existing matches, and RIPs taken before, stay unchanged. `complex_` are the negated variables
    that stand for several events.
    """
    empty: tuple[tuple[NegationCheck, ...], ...] = ((),) * len(stacks.variables)
    looked_up, pushed = [list(group) for group in empty], [list(group) for group in empty]
    for place, group in enumerate(stacks.absences):
        for absence in group:
            several = absence.variable in complex_
            why = _why_not_pushed(absence, intervals=intervals, several=several)
            single = why is None
            if IN_CONSTRUCTION in off:
                way = f"a filter on complete sequences: {IN_CONSTRUCTION} is off"
                looked_up[0].append(replace(absence, newest=single, way=way))
            elif single and PUSH not in off:
                front = stacks.variables.index(absence.after[0])
                pushed[front].append(replace(absence, way="pushed"))
            else:
                way = f"looked up: {why or f'{PUSH} is off'}"
                looked_up[place].append(replace(absence, newest=single, way=way))
    return replace(
        stacks, absences=tuple(map(tuple, looked_up)), pushed=tuple(map(tuple, pushed)) if any(pushed) else ()
    )


def _why_not_pushed(absence: NegationCheck, *, intervals: bool, several: bool) -> str | None:
    if several:
        return "it has several events"
    if absence.conditions:
        return "its conditions relate it to other events"
    if not absence.after:
        return "at the start it looks back over the window"
    if intervals:
        return "events with a duration may overlap it"
    return None


def get_dropped(structure: Structure) -> frozenset[str]:
    """Negated variables whose events a structure evaluates on arrival and does not store."""
    match structure:
        case Nfa() | InstanceStacks():
            return structure.dropped
        case JoinTree() | CompactPlan() | ReferencePlan():
            return frozenset()


def restrict_pushdown(structure: Structure, pushed: Collection[str]) -> Structure:
    """Restricts pushdown to these variables, for a state that was saved with fewer."""
    match structure:
        case Nfa(states=states):
            barred = (tuple(v for v in state.barred if v in pushed) for state in states)
            changed = map(lambda s, b: replace(s, barred=b), states, barred)
            return replace(structure, states=tuple(changed))
        case InstanceStacks():
            absences = [list(group) for group in structure.absences]
            still_pushed = []
            for place, group in enumerate(structure.pushed):
                still_pushed.append(tuple(a for a in group if a.variable in pushed))
                absences[place] += [a for a in group if a.variable not in pushed]
            return replace(structure, absences=tuple(map(tuple, absences)), pushed=tuple(still_pushed))
        case JoinTree() | CompactPlan() | ReferencePlan():  # they push nothing
            return structure


# Pushdown into an automaton: a negated event discards the runs it bars, and is dropped.


def push_into_runs(
    automaton: Nfa, negations: Collection[Negation], *, intervals: bool, off: Collection[str] = ()
) -> Nfa:
    """Pushes negations into an automaton where possible.

    A negated event bars a run if every event that the run can take next is after the negation,
    while the events before the negation are bound. If a run is neither barred nor waits for an
    event before the negation, the negated events must be stored and looked up.
    """
    ways: dict[str, str] = {}
    barred: dict[int, list[str]] = {}
    for negation in negations:
        why = _why_not(automaton, negation, intervals=intervals)
        barred_states = _find_barred_states(automaton, negation)
        if why is None and PUSH in off:
            why = f"{PUSH} is off"
        if why is None and not (barred_states and _are_all_decided(automaton, negation, barred_states)):
            why = "events before it may still arrive, or no run is barred"
        ways[negation.variable] = "pushed" if why is None else f"looked up: {why}"
        for number in barred_states if why is None else ():
            barred.setdefault(number, []).append(negation.variable)

    def annotate(absences: tuple[NegationCheck, ...]) -> tuple[NegationCheck, ...]:
        return tuple(replace(a, way=ways[a.variable]) for a in absences)

    return replace(
        automaton,
        states=tuple(
            replace(s, absences=annotate(s.absences), barred=tuple(barred.get(s.number, ()))) for s in automaton.states
        ),
        edges=tuple(replace(e, absences=annotate(e.absences)) for e in automaton.edges),
    )


def _why_not(automaton: Nfa, negation: Negation, *, intervals: bool) -> str | None:
    if not is_event(negation.part):
        return "it has several events"
    if negation.whole:
        return "it is between the first and the last event of AND"
    if negation.conditions:
        return "its conditions relate it to other events"
    if intervals:
        return "events with a duration may overlap it"
    if negation.own:
        return "events of the match itself may have its type"
    on_edges = [a for e in automaton.edges for a in e.absences]
    at_ends = [a for s in automaton.states for a in (*s.absences, *s.pending)]
    if any(a.variable == negation.variable for a in at_ends) or any(
        a.variable == negation.variable and not a.after for a in on_edges
    ):
        return "a match may have no event before it, or none after it"
    return None


def _open(state: NfaState, negation: Negation) -> bool:
    """Whether a negated event could arrive between the bound and the expected events of a run."""
    return bool(state.bound & set(negation.front)) and not state.bound & set(negation.behind)


def _forbids(edge: NfaEdge, negation: Negation) -> bool:
    return any(a.variable == negation.variable for a in edge.absences)


def _find_barred_states(automaton: Nfa, negation: Negation) -> set[int]:
    """States whose runs cannot be completed once the negated event has arrived."""
    return _largest_closed_set(
        automaton,
        negation,
        lambda edge, good: _forbids(edge, negation) or (edge.variable not in negation.front and edge.target in good),
    )


def _are_all_decided(automaton: Nfa, negation: Negation, barred: set[int]) -> bool:
    """Whether the negated event bars or ignores a run in every state."""
    harmless = _largest_closed_set(
        automaton,
        negation,
        lambda edge, good: edge.variable in negation.front or (not _forbids(edge, negation) and edge.target in good),
    )
    return all(s.number in barred or s.number in harmless for s in automaton.states if _open(s, negation))


def _largest_closed_set(automaton: Nfa, negation: Negation, fits: Callable[[NfaEdge, set[int]], bool]) -> set[int]:
    """The largest set of open states all of whose edges satisfy the predicate."""
    good = {s.number for s in automaton.states if _open(s, negation)}
    while bad := {n for n in good if not all(fits(e, good) for e in automaton.list_outgoing(n))}:
        good -= bad
    return good
