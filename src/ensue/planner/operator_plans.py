"""Plans queries with user-defined operators as join trees."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ensue.ir.expression import Aggregate, EventPosition, Expr, FieldRef, IsNull
from ensue.ir.query import Query
from ensue.ir.traits import is_event, is_operator_call
from ensue.ir.traversal import iterate_operator_calls, map_results_to_events, rewrite_expr
from ensue.ir.user_operator import TIME_ATTRIBUTES
from ensue.planner.features import KERNEL_KINDS, KindResolver, is_compilable
from ensue.planner.join_order import Cardinalities, JoinCosts, choose_structure, find_best_shape, require_possible
from ensue.planner.join_tree import build_tree, why_no_tree
from ensue.planner.physical_plan import PhysicalPlan, ReferencePlan, Role, Structure
from ensue.planner.plan_cost import estimate_structure
from ensue.planner.planner_options import PlannerOptions
from ensue.planner.predicate_order import describe_orders, order_predicates


def plan_with_operators(
    query: Query,
    roles: Sequence[Role],
    between: Sequence[Expr],
    kinds: KindResolver,
    notes: Sequence[str],
    planning: PlannerOptions,
    python: Mapping[str, str],
) -> PhysicalPlan:
    """Plans a join tree, or the reference semantics with the reason.

    `python` maps operators that run as Python to the reason.
    """
    tied: list[Expr] = []
    residual: list[Expr] = []
    for condition in between:
        lowered = lower_results(condition, query)
        fits = is_compilable(lowered, kinds)
        (tied if fits else residual).append(lowered if fits else condition)
    tied += _require_inherited_values(query)
    statistics = planning.statistics
    roles = tuple(_require_values(role, query) for role in roles)
    why = _why_not(query, residual) or why_no_tree(query, tuple(tied), ())
    name = next(iterate_operator_calls(query.pattern)).operator.name
    if why is None and planning.structure == "reference":
        why = "structure='reference'"
    if why is not None:
        require_possible(planning, {}, why)
        structure = ReferencePlan(f"the operator {name}: {why}")
        return PhysicalPlan(query, structure, notes=tuple(notes), statistics=statistics)
    ordered = "predicate_order" not in planning.off
    shape, load = planning.shape, Cardinalities.estimate(query, roles, statistics)
    if shape is None:
        shape = find_best_shape(JoinCosts(query.pattern, tuple(tied), load, ordered))
    push = "predicate_placement" not in planning.off
    tree: Structure | None = build_tree(query, tuple(tied), (), shape, push=push, python=tuple(python))
    assert tree is not None
    require_possible(planning, {"tree": tree}, f"the operator {name} is joined in a tree")
    if ordered:
        tree = order_predicates(tree, statistics)
    tree, decision = choose_structure({"tree": (tree, estimate_structure(tree, query, load))}, planning)
    orders = describe_orders(tree, statistics) if ordered else ()
    slow = [f"operator {name} runs as Python: {reason}" for name, reason in python.items()]
    return PhysicalPlan(
        query,
        tree,
        roles=roles,
        residual=tuple(residual),
        prune="window" not in planning.off,
        notes=(*notes, *slow),
        interpreted=bool(python),
        statistics=statistics,
        decisions=(decision, *orders),
    )


def lower_results(condition: Expr, query: Query) -> Expr:
    """Rewrites references to operator results so that kernels can evaluate the condition.

    The value of an attribute is `first(r.height)`, which reads no event; a field that a result
    inherits from its only event becomes the field of that event.
    """
    attributes = {a.variable: (*TIME_ATTRIBUTES, *dict(a.operator.z)) for a in iterate_operator_calls(query.pattern)}
    sources = map_results_to_events(query.pattern)

    def lower(node: Expr) -> Expr:
        if not isinstance(node, FieldRef) or node.variable not in attributes:
            return node
        if node.name in attributes[node.variable]:
            return Aggregate("first", node.variable, node, EventPosition.ALL)
        return replace(node, variable=sources[node.variable])

    return rewrite_expr(condition, lower)


def _why_not(query: Query, residual: Sequence[Expr]) -> str | None:
    if residual and query.after is not None:
        return "a condition that compiled code cannot evaluate"
    for applied in iterate_operator_calls(query.pattern):
        kinds = [r.kind for reads in applied.reads for r in reads]
        kinds += [kind for _, kind in applied.operator.z]
        if any(kind not in KERNEL_KINDS for kind in kinds):
            return "it reads or returns strings"
        if any(isinstance(p.value, str) for p in applied.parameters):
            return "it has a string argument"
    return None


def _require_values(role: Role, query: Query) -> Role:
    """Adds the condition that the fields which an operator reads are not null."""
    not_null = tuple(
        IsNull(FieldRef(role.variable, reading.column), negated=True)
        for applied in iterate_operator_calls(query.pattern)
        for part, reads in zip(applied.inputs, applied.reads, strict=True)
        if is_event(part) and part.variable == role.variable
        for reading in reads
    )
    return replace(role, conditions=(*role.conditions, *not_null))


def _require_inherited_values(query: Query) -> list[Expr]:
    """The same condition for fields that an operator reads from another one's result."""
    sources = map_results_to_events(query.pattern)
    conditions: list[Expr] = []
    for applied in iterate_operator_calls(query.pattern):
        for part, reads in zip(applied.inputs, applied.reads, strict=True):
            if is_operator_call(part):
                attributes = dict(part.operator.z)
                conditions += [
                    IsNull(FieldRef(sources[part.variable], reading.column), negated=True)
                    for reading in reads
                    if reading.field not in attributes
                ]
    return conditions
