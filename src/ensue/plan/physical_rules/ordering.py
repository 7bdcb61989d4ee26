"""In which order conditions are tried where several are (rule 1), and what that decides."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from ensue.algebra.predicate import Expr
from ensue.algebra.text import show_condition, show_name
from ensue.plan.estimates.cost import trial_of
from ensue.plan.estimates.decisions import Decision, figure
from ensue.plan.estimates.statistics import Statistics
from ensue.plan.physical import (
    Absence,
    Apply,
    Automaton,
    Check,
    Compact,
    Join,
    Leaf,
    Node,
    Reference,
    Stacks,
    Structure,
    Tree,
)
from ensue.plan.physical_rules.tree import joins_of, tree_text

RULE = "predicate_order"


Key = Callable[[Expr], float]


def ordered_checks(checks: tuple[Check, ...], key: Key) -> tuple[Check, ...]:
    """Checks in ascending order of a key of their conditions; ties stay as they are."""
    return tuple(sorted(checks, key=lambda check: key(check.condition)))


def ordered_by(structure: Structure, key: Key) -> Structure:
    """The same structure, with the conditions of each place in ascending order of a key."""

    def checks(found: tuple[Check, ...]) -> tuple[Check, ...]:
        return ordered_checks(found, key)

    def absences(found: tuple[Absence, ...]) -> tuple[Absence, ...]:
        return tuple(replace(a, conditions=tuple(sorted(a.conditions, key=key))) for a in found)

    match structure:
        case Automaton(states=states, edges=edges):
            return replace(
                structure,
                states=tuple(
                    replace(
                        s,
                        checks=checks(s.checks),
                        absences=absences(s.absences),
                        pending=absences(s.pending),
                    )
                    for s in states
                ),
                edges=tuple(
                    replace(e, checks=checks(e.checks), absences=absences(e.absences))
                    for e in edges
                ),
            )
        case Stacks():
            return replace(
                structure,
                checks=tuple(map(checks, structure.checks)),
                absences=tuple(map(absences, structure.absences)),
            )
        case Tree(root=root):

            def changed(node: Node) -> Node:
                match node:
                    case Leaf():
                        return node
                    case Join(left=left, right=right):
                        node = replace(node, left=changed(left), right=changed(right))
                    case Apply(part=part):
                        node = replace(node, part=changed(part))
                return replace(node, checks=checks(node.checks), absences=absences(node.absences))

            return replace(structure, root=changed(root))
        case Compact() | Reference():
            return structure


def predicate_order(structure: Structure, statistics: Statistics) -> Structure:
    """What refuses most for the least cost is tried first (rule 1); ties stay as written."""
    return ordered_by(structure, lambda condition: trial_of(condition, statistics).rank)


def as_written(structure: Structure, where: tuple[Expr, ...]) -> Structure:
    """The conditions of each place in the order of the query's text."""
    places = {condition: place for place, condition in reversed(list(enumerate(where)))}
    return ordered_by(structure, lambda condition: places.get(condition, 0))


def places(structure: Structure) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """Where conditions between events are tried, and which, in their order."""
    match structure:
        case Automaton(states=states, edges=edges):
            for edge in edges:
                yield edge_place(edge.source, edge.target, edge.variable), _exprs(edge.checks)
            for state in states:
                yield end_place(state.number), _exprs(state.checks)
        case Stacks(variables=variables):
            for variable, checks in zip(variables, structure.checks, strict=True):
                yield stack_place(variable), _exprs(checks)
        case Tree(root=root):
            for node in joins_of(root):
                yield tree_text(node), _exprs(node.checks)
        case Compact() | Reference():
            return


def _exprs(checks: tuple[Check, ...]) -> tuple[Expr, ...]:
    return tuple(check.condition for check in checks)


def edge_place(source: int, target: int, variable: str) -> str:
    """How an edge is called where conditions and counters are listed."""
    return f"{show_name(variable)} from state {source} to {target}"


def state_place(number: int) -> str:
    return f"state {number}"


def end_place(state: int) -> str:
    return f"end in state {state}"


def stack_place(variable: str) -> str:
    return show_name(variable)


def order_decisions(structure: Structure, statistics: Statistics) -> Iterator[Decision]:
    """What the rule decided, place by place; the same conditions in one order are told once."""
    told = set()
    for place, conditions in places(structure):
        if len(conditions) < 2 or conditions in told:
            continue
        told.add(conditions)
        shown = ", ".join(
            f"{show_condition(c)} ({figure(statistics.pass_of(c))})" for c in conditions
        )
        yield Decision(RULE, f"at {place}: {shown}")
