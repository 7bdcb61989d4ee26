"""Where a negation is judged: by its own event at once (PNCEP), on the way, or at the very end."""

from collections.abc import Collection
from dataclasses import replace

from ensue.plan.physical import (
    Absence,
    Automaton,
    Compact,
    Reference,
    Stacks,
    State,
    Structure,
    Tree,
)

PUSH = "push_negation"  # names for `off`
ON_THE_WAY = "negation_in_construction"


def push_negation(
    stacks: Stacks,
    *,
    intervals: bool,
    complex_: Collection[str] = (),
    off: Collection[str] = (),
) -> Stacks:
    """Instance stacks with every negation pushed that can be: each such event empties a stack.

    It removes the instances of the variable in front that are older than itself: no event that
    comes later may reach them. What has been built, and the RIPs taken before, stay as they are.
    `complex_` are the negated variables that stand for several events.
    """
    empty: tuple[tuple[Absence, ...], ...] = ((),) * len(stacks.variables)
    kept, pushed = [list(group) for group in empty], [list(group) for group in empty]
    for place, group in enumerate(stacks.absences):
        for absence in group:
            several = absence.variable in complex_
            why = _why_not_pushed(absence, intervals=intervals, several=several)
            single = why is None
            if ON_THE_WAY in off:
                way = f"a filter on whole sequences: {ON_THE_WAY} is off"
                kept[0].append(replace(absence, newest=single, way=way))
            elif single and PUSH not in off:
                front = stacks.variables.index(absence.after[0])
                pushed[front].append(replace(absence, way="pushed"))
            else:
                way = f"looked up: {why or f'{PUSH} is off'}"
                kept[place].append(replace(absence, newest=single, way=way))
    return replace(
        stacks,
        absences=tuple(map(tuple, kept)),
        pushed=tuple(map(tuple, pushed)) if any(pushed) else (),
    )


def _why_not_pushed(absence: Absence, *, intervals: bool, several: bool) -> str | None:
    if several:
        return "it has several events"
    if absence.conditions:
        return "its conditions relate it to other events"
    if not absence.after:
        return "at the start it looks back over the window"
    if intervals:
        return "events that last may overlap it"
    return None


def dropped_by(structure: Structure) -> frozenset[str]:
    """The negated variables whose events a structure judges when they come, and does not keep."""
    match structure:
        case Automaton() | Stacks():
            return structure.dropped
        case Tree() | Compact() | Reference():
            return frozenset()


def not_pushed(structure: Structure, pushed: Collection[str]) -> Structure:
    """The same structure with only these variables pushed, for a state that was saved so."""
    match structure:
        case Automaton(states=states):
            return replace(structure, states=tuple(_barred_by(state, pushed) for state in states))
        case Stacks():
            absences = [list(group) for group in structure.absences]
            left = []
            for place, group in enumerate(structure.pushed):
                left.append(tuple(a for a in group if a.variable in pushed))
                absences[place] += [a for a in group if a.variable not in pushed]
            return replace(structure, absences=tuple(map(tuple, absences)), pushed=tuple(left))
        case Tree() | Compact() | Reference():  # they push nothing
            return structure


def _barred_by(state: State, pushed: Collection[str]) -> State:
    return replace(state, barred=tuple(v for v in state.barred if v in pushed))
