"""Negation pushed into an automaton: a negated event ends the runs it bars, and is dropped."""

from collections.abc import Callable, Collection
from dataclasses import replace

from ensue.algebra.form import is_event
from ensue.plan.physical import Absence, Automaton, Edge, State
from ensue.plan.physical_rules.negations import Negation
from ensue.plan.physical_rules.pushing import PUSH


def push_into_runs(
    automaton: Automaton,
    negations: Collection[Negation],
    *,
    intervals: bool,
    off: Collection[str] = (),
) -> Automaton:
    """The automaton with every negation pushed that can be.

    A negated event bars a run when whatever it takes next would stand behind that event while
    all that the negation stands behind has come. Where a run is neither barred nor still waits
    for an event in front of the negation, the negated events must be kept and looked up.
    """
    ways: dict[str, str] = {}
    barred: dict[int, list[str]] = {}
    for negation in negations:
        why = _why_not(automaton, negation, intervals=intervals)
        states = _barred(automaton, negation)
        if why is None and PUSH in off:
            why = f"{PUSH} is off"
        if why is None and not (states and _all_decided(automaton, negation, states)):
            why = "events before it may still come, or none that it rules out"
        ways[negation.variable] = "pushed" if why is None else f"looked up: {why}"
        for number in states if why is None else ():
            barred.setdefault(number, []).append(negation.variable)

    def told(absences: tuple[Absence, ...]) -> tuple[Absence, ...]:
        return tuple(replace(a, way=ways[a.variable]) for a in absences)

    return replace(
        automaton,
        states=tuple(
            replace(s, absences=told(s.absences), barred=tuple(barred.get(s.number, ())))
            for s in automaton.states
        ),
        edges=tuple(replace(e, absences=told(e.absences)) for e in automaton.edges),
    )


def _why_not(automaton: Automaton, negation: Negation, *, intervals: bool) -> str | None:
    if not is_event(negation.part):
        return "it has several events"
    if negation.whole:
        return "it lies between the first and the last event of AND"
    if negation.conditions:
        return "its conditions relate it to other events"
    if intervals:
        return "events that last may overlap it"
    if negation.own:
        return "events of the match itself may have its type"
    on_edges = [a for e in automaton.edges for a in e.absences]
    at_ends = [a for s in automaton.states for a in (*s.absences, *s.pending)]
    if any(a.variable == negation.variable for a in at_ends) or any(
        a.variable == negation.variable and not a.after for a in on_edges
    ):
        return "a match may have nothing before it, or nothing after it"
    return None


def _open(state: State, negation: Negation) -> bool:
    """Whether a negated event could come between what a run has and what it waits for."""
    return bool(state.bound & set(negation.front)) and not state.bound & set(negation.behind)


def _forbids(edge: Edge, negation: Negation) -> bool:
    return any(a.variable == negation.variable for a in edge.absences)


def _barred(automaton: Automaton, negation: Negation) -> set[int]:
    """The states whose runs cannot go on to a match once the negated event has come."""
    return _settled(
        automaton,
        negation,
        lambda edge, good: (
            _forbids(edge, negation)
            or (edge.variable not in negation.front and edge.target in good)
        ),
    )


def _all_decided(automaton: Automaton, negation: Negation, barred: set[int]) -> bool:
    """Whether a negated event bars a run, or says nothing to it, wherever it comes."""
    harmless = _settled(
        automaton,
        negation,
        lambda edge, good: (
            edge.variable in negation.front
            or (not _forbids(edge, negation) and edge.target in good)
        ),
    )
    return all(
        s.number in barred or s.number in harmless for s in automaton.states if _open(s, negation)
    )


def _settled(
    automaton: Automaton, negation: Negation, fits: Callable[[Edge, set[int]], bool]
) -> set[int]:
    """The largest set of open states all of whose edges fit it."""
    good = {s.number for s in automaton.states if _open(s, negation)}
    while bad := {n for n in good if not all(fits(e, good) for e in automaton.out_of(n))}:
        good -= bad
    return good
