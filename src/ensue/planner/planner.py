"""Chooses the physical plan of an analyzed query; equal inputs give equal plans."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ensue.analyzer.interval_negation import iterate_interval_negations
from ensue.ir import traits, traversal
from ensue.ir.expression import Aggregate, EventPosition, Expr, FieldRef, IsNull
from ensue.ir.pattern import Pattern
from ensue.ir.query import Query
from ensue.ir.selection import Strategy
from ensue.ir.user_operator import TIME_ATTRIBUTES
from ensue.planner import negations, physical_plan
from ensue.planner.capabilities import (
    BY_START,
    RUNS,
    STACKS,
    can_wait,
    find_always_bound,
    find_unsupported,
    why_unsupported,
)
from ensue.planner.compact import needs_partial_output, plan_compact
from ensue.planner.cost_model import Cardinalities, JoinCosts, estimate_structure
from ensue.planner.cyclic_nfa import NoLoops, is_aligned
from ensue.planner.features import KERNEL_KINDS, KindResolver, is_compilable
from ensue.planner.hierarchy_modules import PRECURSORS, build_hierarchy_shape
from ensue.planner.join_order import choose_structure, describe_shape_decision, find_best_shape, require_possible
from ensue.planner.join_tree import build_tree, why_no_tree
from ensue.planner.nfa import TooManyStates, build_automaton
from ensue.planner.planner_options import CHOICES, DEFAULT_OPTIONS, PlannerOptions
from ensue.planner.predicate_order import describe_orders, order_predicates
from ensue.planner.predicate_pushdown import MOVING, can_defer, get_moving_variable, get_unary_variable
from ensue.planner.rewrites import BY_SCHEMA, RULES
from ensue.planner.statistics import PlanDecision
from ensue.schema import Schema

MOST_ROLES = 60  # bits of the mask
MOST_STACKS = 18  # each is a loop inside the others: Python nests no more than 20


def choose_plan(
    query: Query,
    schema: Schema,
    planning: PlannerOptions = DEFAULT_OPTIONS,
    *,
    off: Collection[str] = (),
    python: Mapping[str, str] | None = None,
) -> physical_plan.PhysicalPlan:
    """Plans an analyzed query. `off` names rules to leave out, to measure their effect.

    `python` maps user-defined operators that cannot be compiled to the reason.
    """
    planning = planning.disable(off)
    off = planning.off
    late = "predicate_placement" in off and query.strategies == {Strategy.ANY}
    query, notes = _apply_rules(query, schema, off)
    # the argument of a repeat depends on the conditions on its event
    late = late and not any(traversal.iterate_operator_calls(query.pattern))
    conditions = _sort_conditions(query, schema, planning, late=late)
    kinds = KindResolver(schema, query.pattern)
    notes += [f"{choice}: off" for choice in CHOICES if choice in off]
    if any(traversal.iterate_operator_calls(query.pattern)):
        return plan_with_operators(query, conditions.roles, conditions.between, kinds, notes, planning, python or {})
    core, reason = query, None
    if any(iterate_interval_negations(query.pattern)):  # checked on the matches, where possible
        reason = negations.why_not_on_matches(query, schema, conditions.absent)
        core = negations.remove_lapses(query) if reason is None else query
    reason = reason or _no_kernel(core, schema, conditions, kinds)
    if planning.structure == "reference":
        reason = reason or "structure='reference'"
    tied: list[Expr] = []
    residual: list[Expr] = []
    for condition in conditions.between:
        fits = is_compilable(condition, kinds)
        if not fits and reason is None and not _can_wait(condition, query):
            reason = "a condition between events that compiled code cannot evaluate"
        (tied if fits else residual).append(condition)
    if reason is None:
        between = _Between(tuple(tied), conditions.absent, late=late, intervals=schema.intervals)
        alone = not conditions.between and not conditions.absent
        shared = plan_compact(core, schema, off) if alone else "conditions compare events"
        structure, decisions = _choose_structure(core, between, conditions.roles, planning, shared)
    else:
        require_possible(planning, {}, reason)
        structure, decisions = physical_plan.ReferencePlan(reason), ()
    exact = isinstance(structure, physical_plan.ReferencePlan)
    return physical_plan.PhysicalPlan(
        query,
        structure,
        roles=() if exact else conditions.roles,
        residual=() if exact else tuple(residual),
        prune=exact or "window" not in off,
        whole_stream=Strategy.STRICT in query.strategies,
        notes=tuple(notes),
        statistics=planning.statistics,
        decisions=decisions,
    )


def _apply_rules(query: Query, schema: Schema, off: Collection[str]) -> tuple[Query, list[str]]:
    """Rewrites a query, and notes which rules applied."""
    notes = []
    rules: dict[str, Callable[[Query], Query]] = {rule.__name__: rule for rule in RULES}
    rules |= {rule.__name__: partial(rule, schema=schema) for rule in BY_SCHEMA}
    for name, rule in rules.items():
        if name in off:
            notes.append(f"{name}: off")
            continue
        rewritten = rule(query)
        if rewritten != query:
            notes.append(f"{name}: applied")
        query = rewritten
    return query, notes


@dataclass(frozen=True, slots=True)
class _Conditions:
    """Conditions of a query by the events they read."""

    roles: tuple[physical_plan.Role, ...]  # a single event
    between: tuple[Expr, ...]  # several events of the match
    absent: tuple[Expr, ...]  # a negated event together with others

    def role(self, variable: str) -> physical_plan.Role:
        return next(r for r in self.roles if r.variable == variable)


@dataclass(frozen=True, slots=True)
class _Between:
    """Conditions that kernels evaluate."""

    tied: tuple[Expr, ...]  # several events of the match
    absent: tuple[Expr, ...]  # a negated event together with others
    late: bool = False  # evaluated on the complete match
    intervals: bool = False  # events have a duration


def _choose_structure(
    query: Query,
    between: _Between,
    roles: tuple[physical_plan.Role, ...],
    planning: PlannerOptions,
    shared: physical_plan.CompactPlan | str,
) -> tuple[physical_plan.Structure, tuple[PlanDecision, ...]]:
    """Chooses the cheapest structure that can hold the partial matches, by estimated cost."""
    possible: dict[str, physical_plan.Structure] = {}
    if "stacks" not in planning.off and (stacks := _build_stacks(query, between)) is not None:
        several = frozenset(r.variable for r in roles if r.inner is not None)
        possible["stacks"] = negations.push_negation(
            stacks, intervals=between.intervals, complex_=several, off=planning.off
        )
    runs = _build_automaton(query, between)
    if isinstance(runs, physical_plan.Nfa):
        negated = negations.find_negations(query.pattern, between.absent)
        possible["runs"] = negations.push_into_runs(runs, negated, intervals=between.intervals, off=planning.off)
    if isinstance(shared, physical_plan.CompactPlan):
        possible["compact"] = shared
    if isinstance(runs, physical_plan.ReferencePlan) and not possible and planning.structure != "tree":
        require_possible(planning, {}, runs.reason)
        return runs, ()
    statistics, ordering = planning.statistics, "predicate_order" not in planning.off
    load = Cardinalities.estimate(query, roles, statistics)
    joins = JoinCosts(query.pattern, between.tied, load, ordering, early=not between.late)
    if (tree := _build_tree(query, between, joins, planning)) is not None:
        possible["tree"] = tree
    no_tree = why_no_tree(query, between.tied, between.absent)
    why = {"tree": no_tree, "compact": str(shared)}.get(planning.structure or "", why_no_stacks(query))
    require_possible(planning, possible, why or "it is disabled")
    if ordering:
        possible = {n: order_predicates(s, statistics) for n, s in possible.items()}
    structure, decision = choose_structure(
        {n: (s, estimate_structure(s, query, load)) for n, s in possible.items()},
        planning,
        preferred=needs_partial_output(query),
    )
    orders = tuple(describe_orders(structure, statistics)) if ordering else ()
    if isinstance(structure, physical_plan.JoinTree):
        orders = (describe_shape_decision(structure, joins, planning), *orders)
    return structure, (decision, *orders)


def _build_tree(
    query: Query, between: _Between, joins: JoinCosts, planning: PlannerOptions
) -> physical_plan.JoinTree | None:
    """Builds a join tree of the requested or the cheapest shape, if the query can have one.

    Without statistics of the stream, a tree is built only on request.
    """
    requested = planning.structure == "tree"
    if not requested and (planning.statistics.assumed or "tree" in planning.off):
        return None
    if why_no_tree(query, between.tied, between.absent) is not None:
        return None
    shape = planning.shape
    if shape is None and planning.modules:
        shape = build_hierarchy_shape(query.pattern, planning.modules)
    elif shape is None and "join_order" not in planning.off:
        shape = find_best_shape(joins)
    tree = build_tree(query, between.tied, between.absent, shape, push=not between.late)
    if tree is None or not planning.modules:
        return tree
    return replace(tree, modules=planning.modules, parked=PRECURSORS not in planning.off)


def _sort_conditions(query: Query, schema: Schema, planning: PlannerOptions, *, late: bool) -> _Conditions:
    kleene = traversal.get_kleene_variables(query.pattern)
    bound = set(traversal.iterate_bound_variables(query.pattern))
    every: dict[str, list[Expr]] = {a.variable: [] for a in traversal.iterate_atoms(query.pattern)}
    first: dict[str, list[Expr]] = {v: [] for v in every}
    between: list[Expr] = []
    absent: list[Expr] = []
    for condition in query.where:
        names = traversal.get_variables(condition)
        single = get_unary_variable(condition, frozenset(kleene))
        if not names:
            for conditions in every.values():
                conditions.append(condition)
        elif single is not None and single[0] in every and not (late and single[0] in bound):
            (first if single[1] else every)[single[0]].append(condition)
        elif names <= bound:
            between.append(condition)
        else:
            absent.append(condition)
    lapsing = negations.find_interval_variables(query.pattern)
    complex_ = [n.part for n in traversal.iterate_negations(query.pattern) if not traits.is_event(n.part)]
    inside = {a.variable for part in complex_ for a in traversal.iterate_atoms(part)}
    roles = [
        physical_plan.Role(
            atom.variable,
            atom.type,
            tuple(every[atom.variable]),
            tuple(first[atom.variable]),
            kleene.get(atom.variable),
            negative=atom.variable not in bound,
            lapse=atom.variable in lapsing,
        )
        for atom in traversal.iterate_atoms(query.pattern)
        if atom.variable not in inside
    ]
    for part in complex_:
        # stacks and runs emit matches one by one, in the order in which the kernel reads them
        inner = choose_plan(negations.build_inner_query(query, part), schema, off={*planning.off, "tree", "compact"})
        roles.append(physical_plan.Role(negations.get_negation_name(part), "", negative=True, inner=inner))
    return _Conditions(tuple(roles), tuple(between), tuple(absent))


def _no_kernel(query: Query, schema: Schema, conditions: _Conditions, kinds: KindResolver) -> str | None:
    """Why compiled code cannot run this query, if it cannot."""
    if len(conditions.roles) > MOST_ROLES:
        return f"more than {MOST_ROLES} variables"
    if query.unfinished:
        return "timed-out partial matches of more than a plain SEQ"
    if query.choose is not None and can_wait(query.pattern):
        return "CHOOSE among matches that wait for time to pass"
    negated = any(role.negative and not role.lapse for role in conditions.roles)
    if schema.intervals and negated and _has_and(query.pattern):
        return "negation next to AND over events with a duration"
    for negation in negations.find_negations(query.pattern, conditions.absent):
        if not traits.is_event(negation.part):
            reason = negations.why_not_inner(negation, query, conditions.role(negation.variable))
            if reason is not None:
                return reason
        for condition in negation.conditions:
            if not is_compilable(condition, kinds) or get_moving_variable(condition) is not None:
                return "a condition on a negated event that compiled code cannot evaluate"
    return None


def _has_and(pattern: Pattern) -> bool:
    inner = traits.get_positive_parts(pattern)
    return traits.get_form(pattern) is traits.NodeForm.TOGETHER or any(map(_has_and, inner))


def _can_wait(condition: Expr, query: Query) -> bool:
    """Whether a condition can be checked on complete matches, as it selects no event."""
    if Strategy.NEXT in query.strategies or query.selects_matches:
        return False
    always = find_always_bound(query.pattern)
    return all(
        r.at not in MOVING
        and not (isinstance(r, FieldRef) and r.at is EventPosition.NTH and r.nth > 1)
        and (r.variable in always or not isinstance(r, FieldRef))
        for r in traversal.iterate_references(condition)
    )


def _build_automaton(query: Query, between: _Between) -> physical_plan.Structure:
    if (why := why_unsupported(query.pattern, RUNS)) is not None:
        return physical_plan.ReferencePlan(why)
    late = tuple(c for c in between.tied if between.late and can_defer(c) and not is_aligned(c))
    early = tuple(c for c in between.tied if c not in late)
    try:
        built = build_automaton(
            query.pattern,
            early,
            between.absent,
            late=late,
            early=Strategy.NEXT not in query.strategies,
            strategy=query.strategy,
        )
    except TooManyStates:
        return physical_plan.ReferencePlan("a pattern with too many orders of events")
    except NoLoops as why:
        return physical_plan.ReferencePlan(str(why))
    checks = [check for edge in built.edges for check in edge.checks]
    checks += [check for state in built.states for check in state.checks]
    if any(check.each and not can_defer(check.condition) for check in checks):
        return physical_plan.ReferencePlan("a running aggregate compared with a value that is known only later")
    return built


def _build_stacks(query: Query, between: _Between) -> physical_plan.InstanceStacks | None:
    """Builds instance stacks for sequences of single events under skip-till-any-match."""
    if why_no_stacks(query) is not None:
        return None
    inner = traits.get_parts(query.pattern)
    order = [p.variable for p in inner if traits.is_event(p)]
    checks: list[list[physical_plan.ConditionCheck]] = [[] for _ in order]
    for condition in between.tied:
        position = 0 if between.late else min(order.index(v) for v in traversal.get_variables(condition))
        checks[position].append(physical_plan.ConditionCheck(condition))
    absences: list[list[physical_plan.NegationCheck]] = [[] for _ in order]
    negated = negations.find_negations(query.pattern, between.absent)
    position = 0  # of the next positive event
    for part in inner:
        if traits.is_negation(part):
            negation = next(n for n in negated if n.part == part.part)
            bound = {order.index(v) for c in negation.conditions for v in traversal.get_variables(c) & {*order}}
            previous = order[position - 1 : position] if position else []
            absences[min({max(position - 1, 0), *bound})].append(
                physical_plan.NegationCheck(negation.variable, tuple(previous), (order[position],), negation.conditions)
            )
        else:
            position += 1
    return physical_plan.InstanceStacks(tuple(order), tuple(map(tuple, checks)), tuple(map(tuple, absences)))


def why_no_stacks(query: Query) -> str | None:
    """Why a query cannot run on instance stacks, if it cannot."""
    if query.strategy is not Strategy.ANY:
        return f"{query.strategy.value} decides at each event whether a match takes it"
    if query.after is not None and query.after.by_start:
        return BY_START
    if traits.is_event(query.pattern):
        return "the pattern has only one event"
    events = traits.get_positive_parts(query.pattern)
    if (
        not traits.is_sequence(query.pattern)
        or not all(map(traits.is_event, events))
        or find_unsupported(query.pattern, STACKS) is not None
    ):
        return "the pattern is more than single events in sequence"
    if len(events) < 2:
        return "the pattern has only one event"
    if traits.is_negation(traits.get_parts(query.pattern)[-1]):
        return "a negation at the end waits for time to pass"
    if len(events) > MOST_STACKS:
        return f"the sequence has more than {MOST_STACKS} events"
    return None


_STRUCTURE_NAMES = {
    physical_plan.Nfa: "runs", physical_plan.InstanceStacks: "instance stacks", physical_plan.JoinTree: "join tree",
    physical_plan.CompactPlan: "compact", physical_plan.ReferencePlan: "reference",
}  # fmt: skip


def get_structure_name(structure: physical_plan.Structure) -> str:
    """The name of a structure in explain."""
    return _STRUCTURE_NAMES[type(structure)]


# Queries with user-defined operators, which only a join tree runs.


def plan_with_operators(
    query: Query,
    roles: Sequence[physical_plan.Role],
    between: Sequence[Expr],
    kinds: KindResolver,
    notes: Sequence[str],
    planning: PlannerOptions,
    python: Mapping[str, str],
) -> physical_plan.PhysicalPlan:
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
    name = next(traversal.iterate_operator_calls(query.pattern)).operator.name
    if why is None and planning.structure == "reference":
        why = "structure='reference'"
    if why is not None:
        require_possible(planning, {}, why)
        structure = physical_plan.ReferencePlan(f"the operator {name}: {why}")
        return physical_plan.PhysicalPlan(query, structure, notes=tuple(notes), statistics=statistics)
    ordered = "predicate_order" not in planning.off
    shape, load = planning.shape, Cardinalities.estimate(query, roles, statistics)
    if shape is None:
        shape = find_best_shape(JoinCosts(query.pattern, tuple(tied), load, ordered))
    push = "predicate_placement" not in planning.off
    tree: physical_plan.Structure | None = build_tree(query, tuple(tied), (), shape, push=push, python=tuple(python))
    assert tree is not None
    require_possible(planning, {"tree": tree}, f"the operator {name} is joined in a tree")
    if ordered:
        tree = order_predicates(tree, statistics)
    tree, decision = choose_structure({"tree": (tree, estimate_structure(tree, query, load))}, planning)
    orders = describe_orders(tree, statistics) if ordered else ()
    slow = [f"operator {name} runs as Python: {reason}" for name, reason in python.items()]
    return physical_plan.PhysicalPlan(
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
    attributes = {
        a.variable: (*TIME_ATTRIBUTES, *dict(a.operator.z)) for a in traversal.iterate_operator_calls(query.pattern)
    }
    sources = traversal.map_results_to_events(query.pattern)

    def lower(node: Expr) -> Expr:
        if not isinstance(node, FieldRef) or node.variable not in attributes:
            return node
        if node.name in attributes[node.variable]:
            return Aggregate("first", node.variable, node, EventPosition.ALL)
        return replace(node, variable=sources[node.variable])

    return traversal.rewrite_expr(condition, lower)


def _why_not(query: Query, residual: Sequence[Expr]) -> str | None:
    if residual and query.after is not None:
        return "a condition that compiled code cannot evaluate"
    for applied in traversal.iterate_operator_calls(query.pattern):
        kinds = [r.kind for reads in applied.reads for r in reads]
        kinds += [kind for _, kind in applied.operator.z]
        if any(kind not in KERNEL_KINDS for kind in kinds):
            return "it reads or returns strings"
        if any(isinstance(p.value, str) for p in applied.parameters):
            return "it has a string argument"
    return None


def _require_values(role: physical_plan.Role, query: Query) -> physical_plan.Role:
    """Adds the condition that the fields which an operator reads are not null."""
    not_null = tuple(
        IsNull(FieldRef(role.variable, reading.column), negated=True)
        for applied in traversal.iterate_operator_calls(query.pattern)
        for part, reads in zip(applied.inputs, applied.reads, strict=True)
        if traits.is_event(part) and part.variable == role.variable
        for reading in reads
    )
    return replace(role, conditions=(*role.conditions, *not_null))


def _require_inherited_values(query: Query) -> list[Expr]:
    """The same condition for fields that an operator reads from another one's result."""
    sources = traversal.map_results_to_events(query.pattern)
    conditions: list[Expr] = []
    for applied in traversal.iterate_operator_calls(query.pattern):
        for part, reads in zip(applied.inputs, applied.reads, strict=True):
            if traits.is_operator_call(part):
                attributes = dict(part.operator.z)
                conditions += [
                    IsNull(FieldRef(sources[part.variable], reading.column), negated=True)
                    for reading in reads
                    if reading.field not in attributes
                ]
    return conditions
