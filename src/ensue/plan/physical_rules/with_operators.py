"""Plans of queries with operators of users: join trees in which these are nodes like others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ensue.algebra.form import is_event, is_result
from ensue.algebra.operator import TIMES
from ensue.algebra.predicate import Aggregate, At, Expr, Field, IsNull
from ensue.algebra.query import Query
from ensue.algebra.walk import origins, results, rewrite_expr
from ensue.plan.estimates.candidates import cheapest, require_possible
from ensue.plan.estimates.estimates import estimate
from ensue.plan.estimates.load import Load
from ensue.plan.estimates.shapes import Joins, best_shape
from ensue.plan.physical import Plan, Reference, Role, Structure
from ensue.plan.physical_rules.features import KERNEL_KINDS, Kinds, fits_a_kernel
from ensue.plan.physical_rules.ordering import order_decisions, predicate_order
from ensue.plan.physical_rules.tree import tree_of, why_no_tree
from ensue.plan.planning import Planning


@dataclass(frozen=True, slots=True)
class Asked:
    """What the caller of the planner wants, beside the query."""

    planning: Planning
    python: Mapping[str, str]  # operators that run as Python, by name, with the reason


def plan_with_operators(
    query: Query,
    roles: Sequence[Role],
    between: Sequence[Expr],
    kinds: Kinds,
    notes: Sequence[str],
    asked: Asked,
) -> Plan:
    """A join tree, or the reference semantics with the reason why there is none."""
    tied: list[Expr] = []
    residual: list[Expr] = []
    for condition in between:
        lowered = for_kernels(condition, query)
        fits = fits_a_kernel(lowered, kinds)
        (tied if fits else residual).append(lowered if fits else condition)
    tied += _inherited(query)
    planning, statistics = asked.planning, asked.planning.statistics
    roles = tuple(_with_values(role, query) for role in roles)
    why = _why_not(query, residual) or why_no_tree(query, tuple(tied), ())
    name = next(results(query.pattern)).operator.name
    if why is None and planning.structure == "reference":
        why = "structure='reference'"
    if why is not None:
        require_possible(planning, {}, why)
        structure = Reference(f"the operator {name}: {why}")
        return Plan(query, structure, notes=tuple(notes), statistics=statistics)
    ordered = "predicate_order" not in planning.off
    shape, load = planning.shape, Load.of(query, roles, statistics)
    if shape is None:
        shape = best_shape(Joins(query.pattern, tuple(tied), load, ordered))
    push = "predicate_placement" not in planning.off
    python = tuple(asked.python)
    tree: Structure | None = tree_of(query, tuple(tied), (), shape, push=push, python=python)
    assert tree is not None
    require_possible(planning, {"tree": tree}, f"the operator {name} is joined in a tree")
    if ordered:
        tree = predicate_order(tree, statistics)
    tree, decision = cheapest({"tree": (tree, estimate(tree, query, load))}, planning)
    orders = order_decisions(tree, statistics) if ordered else ()
    slow = [f"operator {name} runs as Python: {reason}" for name, reason in asked.python.items()]
    return Plan(
        query,
        tree,
        roles=roles,
        residual=tuple(residual),
        prune="window" not in planning.off,
        notes=(*notes, *slow),
        interpreted=bool(asked.python),
        statistics=statistics,
        decisions=(decision, *orders),
    )


def for_kernels(condition: Expr, query: Query) -> Expr:
    """A condition in which the attributes of results are told from fields of events.

    The value of an attribute is `first(r.height)`, which looks at no event; a field that a result
    has from its only event is that of the event.
    """
    own = {a.variable: (*TIMES, *dict(a.operator.z)) for a in results(query.pattern)}
    sources = origins(query.pattern)

    def lowered(node: Expr) -> Expr:
        if not isinstance(node, Field) or node.variable not in own:
            return node
        if node.name in own[node.variable]:
            return Aggregate("first", node.variable, node, At.ALL)
        return replace(node, variable=sources[node.variable])

    return rewrite_expr(condition, lowered)


def _why_not(query: Query, residual: Sequence[Expr]) -> str | None:
    if residual and query.after is not None:
        return "a condition that compiled code cannot evaluate"
    for applied in results(query.pattern):
        kinds = [r.kind for reads in applied.reads for r in reads]
        kinds += [kind for _, kind in applied.operator.z]
        if any(kind not in KERNEL_KINDS for kind in kinds):
            return "it reads or returns strings"
        if any(isinstance(p.value, str) for p in applied.parameters):
            return "it has a string argument"
    return None


def _with_values(role: Role, query: Query) -> Role:
    """A role with the test that the fields which an operator names have values."""
    there = tuple(
        IsNull(Field(role.variable, reading.column), negated=True)
        for applied in results(query.pattern)
        for part, reads in zip(applied.inputs, applied.reads, strict=True)
        if is_event(part) and part.variable == role.variable
        for reading in reads
    )
    return replace(role, conditions=(*role.conditions, *there))


def _inherited(query: Query) -> list[Expr]:
    """The same test for fields that an operator reads of another one's result."""
    sources = origins(query.pattern)
    found: list[Expr] = []
    for applied in results(query.pattern):
        for part, reads in zip(applied.inputs, applied.reads, strict=True):
            if is_result(part):
                own = dict(part.operator.z)
                found += [
                    IsNull(Field(sources[part.variable], reading.column), negated=True)
                    for reading in reads
                    if reading.field not in own
                ]
    return found
