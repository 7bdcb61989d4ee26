"""Orders the conditions of each place of a plan (rule 1), and what of a plan does not depend on such decisions."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from ensue.ir.expression import Expr
from ensue.planner import physical_plan
from ensue.planner.cost_model import estimate_predicate
from ensue.planner.join_operators import JoinOperator
from ensue.planner.join_tree import format_tree, rewrite_joins, walk_joins
from ensue.planner.statistics import PlanDecision, Statistics, format_number
from ensue.printing.expression_printer import format_condition, format_name

RULE = "predicate_order"
Key = Callable[[Expr], float]


def order_conditions(structure: physical_plan.Structure, key: Key) -> physical_plan.Structure:
    """Sorts the conditions of each place of a structure by a key; ties keep their order."""

    def checks(items: tuple[physical_plan.ConditionCheck, ...]) -> tuple[physical_plan.ConditionCheck, ...]:
        return tuple(sorted(items, key=lambda check: key(check.condition)))

    def absences(items: tuple[physical_plan.NegationCheck, ...]) -> tuple[physical_plan.NegationCheck, ...]:
        return tuple(replace(a, conditions=tuple(sorted(a.conditions, key=key))) for a in items)

    match structure:
        case physical_plan.Nfa(states=states, edges=edges):
            sorted_states = (
                replace(
                    s, checks=checks(s.checks), absences=absences(s.absences),
                    pending=absences(s.pending),
                )
                for s in states
            )  # fmt: skip
            sorted_edges = (replace(e, checks=checks(e.checks), absences=absences(e.absences)) for e in edges)
            return replace(structure, states=tuple(sorted_states), edges=tuple(sorted_edges))
        case physical_plan.InstanceStacks():
            return replace(
                structure,
                checks=tuple(map(checks, structure.checks)),
                absences=tuple(map(absences, structure.absences)),
            )
        case physical_plan.JoinTree(root=root):
            return replace(
                structure,
                root=rewrite_joins(root, lambda n: replace(n, checks=checks(n.checks), absences=absences(n.absences))),
            )
        case physical_plan.CompactPlan() | physical_plan.ReferencePlan():
            return structure


def order_predicates(structure: physical_plan.Structure, statistics: Statistics) -> physical_plan.Structure:
    """Orders cheap and selective conditions first (rule 1); ties keep the order as written."""
    return order_conditions(structure, lambda condition: estimate_predicate(condition, statistics).rank)


def restore_written_order(structure: physical_plan.Structure, where: tuple[Expr, ...]) -> physical_plan.Structure:
    """Orders the conditions of each place as in the query's text."""
    positions = {condition: k for k, condition in reversed(list(enumerate(where)))}
    return order_conditions(structure, lambda condition: positions.get(condition, 0))


def list_places(structure: physical_plan.Structure) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """The places that evaluate conditions between events, with the conditions in their order."""
    match structure:
        case physical_plan.Nfa(states=states, edges=edges):
            for edge in edges:
                place = format_edge_place(edge.source, edge.target, edge.variable)
                yield place, _exprs(edge.checks)
            for state in states:
                yield format_end_place(state.number), _exprs(state.checks)
        case physical_plan.InstanceStacks(variables=variables):
            for variable, checks in zip(variables, structure.checks, strict=True):
                yield format_stack_place(variable), _exprs(checks)
        case physical_plan.JoinTree(root=root):
            for node in walk_joins(root):
                yield format_tree(node), _exprs(node.checks)
        case physical_plan.CompactPlan() | physical_plan.ReferencePlan():
            return


def _exprs(checks: tuple[physical_plan.ConditionCheck, ...]) -> tuple[Expr, ...]:
    return tuple(check.condition for check in checks)


def format_edge_place(source: int, target: int, variable: str) -> str:
    """The name of an edge in lists of conditions and counters."""
    return f"{format_name(variable)} from state {source} to {target}"


def format_state_place(number: int) -> str:
    return f"state {number}"


def format_end_place(state: int) -> str:
    return f"end in state {state}"


def format_stack_place(variable: str) -> str:
    return format_name(variable)


def describe_orders(structure: physical_plan.Structure, statistics: Statistics) -> Iterator[PlanDecision]:
    """The order of conditions by place; equal lists are reported once."""
    reported = set()
    for place, conditions in list_places(structure):
        if len(conditions) < 2 or conditions in reported:
            continue
        reported.add(conditions)
        text = ", ".join(f"{format_condition(c)} ({format_number(statistics.get_selectivity(c))})" for c in conditions)
        yield PlanDecision(RULE, f"at {place}: {text}")


# The part of a plan that a saved state depends on.


def get_state_layout(structure: physical_plan.Structure, where: tuple[Expr, ...]) -> object:
    """What two plans of a query must share for a state to fit both.

    Most structures need only the name. The entries of a join tree depend on the whole tree, but
    not on its costs.
    """
    match structure:
        case physical_plan.Nfa() | physical_plan.InstanceStacks() | physical_plan.ReferencePlan():
            return type(structure).__name__
        case physical_plan.CompactPlan(answer=answer, limit=limit):
            return answer, limit
        case physical_plan.JoinTree(modules=modules):
            ordered = restore_written_order(structure, where)
            assert isinstance(ordered, physical_plan.JoinTree)
            return rewrite_joins(ordered.root, _drop_decisions), modules


def _drop_decisions(
    node: physical_plan.JoinNode | physical_plan.ApplyNode,
) -> physical_plan.JoinNode | physical_plan.ApplyNode:
    """A node without planner decisions: costs, functions, the evaluation of negations."""
    operator = node.operator
    return replace(
        node,
        operator=JoinOperator(operator.name, operator.order, attributes=operator.attributes),
        absences=tuple(replace(absence, way="") for absence in node.absences),
    )
