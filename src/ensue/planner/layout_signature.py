"""The part of a plan that a saved state depends on."""

from dataclasses import replace

from ensue.ir.expression import Expr
from ensue.planner.join_operators import JoinOperator
from ensue.planner.join_tree import rewrite_joins
from ensue.planner.physical_plan import (
    ApplyNode,
    CompactPlan,
    InstanceStacks,
    JoinNode,
    JoinTree,
    Nfa,
    ReferencePlan,
    Structure,
)
from ensue.planner.predicate_order import restore_written_order


def get_state_layout(structure: Structure, where: tuple[Expr, ...]) -> object:
    """What two plans of a query must share for a state to fit both.

    Most structures need only the name. The entries of a join tree depend on the whole tree, but
    not on its costs.
    """
    match structure:
        case Nfa() | InstanceStacks() | ReferencePlan():
            return type(structure).__name__
        case CompactPlan(answer=answer, limit=limit):
            return answer, limit
        case JoinTree(modules=modules):
            ordered = restore_written_order(structure, where)
            assert isinstance(ordered, JoinTree)
            return rewrite_joins(ordered.root, _drop_decisions), modules


def _drop_decisions(node: JoinNode | ApplyNode) -> JoinNode | ApplyNode:
    """A node without planner decisions: costs, functions, the evaluation of negations."""
    operator = node.operator
    return replace(
        node,
        operator=JoinOperator(operator.name, operator.order, attributes=operator.attributes),
        absences=tuple(replace(absence, way="") for absence in node.absences),
    )
