"""Chooses the plan of a checked query: the same input, the same plan."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

from ensue.algebra.form import Form, form, is_absence, is_event, is_sequence, parts, present
from ensue.algebra.lapses import lapses
from ensue.algebra.pattern import Pattern
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import At, Expr, Field
from ensue.algebra.query import Query
from ensue.algebra.walk import (
    atoms,
    bound_variables,
    kleenes,
    negations,
    references,
    results,
    variables,
)
from ensue.plan.estimates.candidates import cheapest, require_possible, shape_decision
from ensue.plan.estimates.decisions import Decision
from ensue.plan.estimates.estimates import estimate
from ensue.plan.estimates.load import Load
from ensue.plan.estimates.shapes import Joins, best_shape
from ensue.plan.evictable import may_wait
from ensue.plan.physical import (
    Absence,
    Automaton,
    Check,
    Compact,
    Plan,
    Reference,
    Role,
    Stacks,
    Structure,
    Tree,
)
from ensue.plan.physical_rules.automaton import TooManyStates, automaton
from ensue.plan.physical_rules.bound import always_bound
from ensue.plan.physical_rules.compact import asks_for_less, compact
from ensue.plan.physical_rules.features import Kinds, fits_a_kernel
from ensue.plan.physical_rules.fitting import BY_START, RUNS, STACKS, unknown, why_unknown
from ensue.plan.physical_rules.lapse_rules import why_not_on_matches, without_lapses
from ensue.plan.physical_rules.looping import NoLoops, runs_in_step
from ensue.plan.physical_rules.negations import inner_query, name_of, negations_of, why_not_inner
from ensue.plan.physical_rules.ordering import order_decisions, predicate_order
from ensue.plan.physical_rules.placement import MOVING, can_be_late, moving_variable, unary
from ensue.plan.physical_rules.pushing import push_negation
from ensue.plan.physical_rules.pushing_runs import push_into_runs
from ensue.plan.physical_rules.tree import tree_of, why_no_tree
from ensue.plan.physical_rules.with_operators import Asked, plan_with_operators
from ensue.plan.planning import CHOICES, DEFAULT, Planning
from ensue.plan.query_rules import BY_SCHEMA, RULES
from ensue.plan.towers.modules import PRECURSORS, tower_shape
from ensue.schema import Schema

MOST_ROLES = 60  # bits of the mask
MOST_STACKS = 18  # each is a loop inside the others: Python nests no more than 20


def choose(
    query: Query,
    schema: Schema,
    planning: Planning = DEFAULT,
    *,
    off: Collection[str] = (),
    python: Mapping[str, str] | None = None,
) -> Plan:
    """The plan for a checked query. `off` names rules to leave out, to measure their effect.

    `python` names the operators of users that cannot be compiled, with the reason.
    """
    planning = planning.without(off)
    off, statistics = planning.off, planning.statistics
    late = "predicate_placement" in off and query.strategies == {Strategy.ANY}
    query, notes = _rewritten(query, schema, off)
    # what a repeat is asked about depends on the conditions on its event
    late = late and not any(results(query.pattern))
    sorted_out = _sort_conditions(query, schema, planning, late=late)
    kinds = Kinds(schema, query.pattern)
    if any(results(query.pattern)):
        notes += [f"{choice}: off" for choice in CHOICES if choice in off]
        return plan_with_operators(
            query,
            sorted_out.roles,
            sorted_out.between,
            kinds,
            notes,
            Asked(planning, python or {}),
        )
    core, reason = _without_intervals(query, schema, sorted_out)
    reason = reason or _no_kernel(core, schema, sorted_out, kinds)
    if planning.structure == "reference":
        reason = reason or "structure='reference'"
    tied: list[Expr] = []
    residual: list[Expr] = []
    for condition in sorted_out.between:
        fits = fits_a_kernel(condition, kinds)
        if not fits and reason is None and not _can_wait(condition, query):
            reason = "a condition between events that compiled code cannot evaluate"
        (tied if fits else residual).append(condition)
    notes += [f"{choice}: off" for choice in CHOICES if choice in off]
    structure: Structure
    decisions: tuple[Decision, ...]
    if reason is None:
        between = _Between(tuple(tied), sorted_out.absent, late=late, intervals=schema.intervals)
        alone = not sorted_out.between and not sorted_out.absent
        together = compact(core, schema, off) if alone else "conditions compare events"
        structure, decisions = _structure(core, between, sorted_out.roles, planning, together)
    else:
        require_possible(planning, {}, reason)
        structure, decisions = Reference(reason), ()
    if isinstance(structure, Reference):
        return Plan(
            query,
            structure,
            whole_stream=Strategy.STRICT in query.strategies,
            notes=tuple(notes),
            statistics=statistics,
        )
    return Plan(
        query,
        structure,
        roles=sorted_out.roles,
        residual=tuple(residual),
        prune="window" not in off,
        whole_stream=Strategy.STRICT in query.strategies,
        notes=tuple(notes),
        statistics=statistics,
        decisions=decisions,
    )


def _rewritten(query: Query, schema: Schema, off: Collection[str]) -> tuple[Query, list[str]]:
    """The query that the rules make of it, and what they did."""
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
class _Sorted:
    """The conditions of a query by who can judge them."""

    roles: tuple[Role, ...]  # one event alone
    between: tuple[Expr, ...]  # several events of the match
    absent: tuple[Expr, ...]  # a negated event together with others

    def role(self, variable: str) -> Role:
        return next(r for r in self.roles if r.variable == variable)


@dataclass(frozen=True, slots=True)
class _Between:
    """The conditions that kernels judge."""

    tied: tuple[Expr, ...]  # several events of the match
    absent: tuple[Expr, ...]  # a negated event together with others
    late: bool = False  # they wait for the whole match
    intervals: bool = False  # events have a duration


def _structure(
    query: Query,
    between: _Between,
    roles: tuple[Role, ...],
    planning: Planning,
    together: Compact | str,
) -> tuple[Structure, tuple[Decision, ...]]:
    """What holds the partial matches: the cheapest of those that can, by their estimates."""
    possible: dict[str, Structure] = {}
    if "stacks" not in planning.off and (stacks := _stacks(query, between)) is not None:
        several = frozenset(r.variable for r in roles if r.inner is not None)
        possible["stacks"] = push_negation(
            stacks, intervals=between.intervals, complex_=several, off=planning.off
        )
    runs = _automaton(query, between)
    if isinstance(runs, Automaton):
        found = negations_of(query.pattern, between.absent)
        possible["runs"] = push_into_runs(
            runs, found, intervals=between.intervals, off=planning.off
        )
    if isinstance(together, Compact):
        possible["compact"] = together
    if isinstance(runs, Reference) and not possible and planning.structure != "tree":
        require_possible(planning, {}, runs.reason)
        return runs, ()
    statistics, ordering = planning.statistics, "predicate_order" not in planning.off
    load = Load.of(query, roles, statistics)
    joins = Joins(query.pattern, between.tied, load, ordering, early=not between.late)
    if (tree := _tree(query, between, joins, planning)) is not None:
        possible["tree"] = tree
    no_tree = why_no_tree(query, between.tied, between.absent)
    why = {"tree": no_tree, "compact": str(together)}.get(
        planning.structure or "", why_no_stacks(query)
    )
    require_possible(planning, possible, why or "it is disabled")
    if ordering:
        possible = {n: predicate_order(s, statistics) for n, s in possible.items()}
    structure, decision = cheapest(
        {n: (s, estimate(s, query, load)) for n, s in possible.items()},
        planning,
        preferred=asks_for_less(query),
    )
    orders = tuple(order_decisions(structure, statistics)) if ordering else ()
    if isinstance(structure, Tree):
        orders = (shape_decision(structure, joins, planning), *orders)
    return structure, (decision, *orders)


def _tree(query: Query, between: _Between, joins: Joins, planning: Planning) -> Tree | None:
    """A join tree of the shape asked for or of the cheapest one, if the query can have one.

    Where nothing is known about the stream, only if it is asked for.
    """
    asked = planning.structure == "tree"
    if not asked and (planning.statistics.assumed or "tree" in planning.off):
        return None
    if why_no_tree(query, between.tied, between.absent) is not None:
        return None
    shape = planning.shape
    if shape is None and planning.modules:
        shape = tower_shape(query.pattern, planning.modules)
    elif shape is None and "join_order" not in planning.off:
        shape = best_shape(joins)
    tree = tree_of(query, between.tied, between.absent, shape, push=not between.late)
    if tree is None or not planning.modules:
        return tree
    return replace(tree, modules=planning.modules, parked=PRECURSORS not in planning.off)


def _sort_conditions(query: Query, schema: Schema, planning: Planning, *, late: bool) -> _Sorted:
    kleene = kleenes(query.pattern)
    bound = set(bound_variables(query.pattern))
    every: dict[str, list[Expr]] = {a.variable: [] for a in atoms(query.pattern)}
    first: dict[str, list[Expr]] = {v: [] for v in every}
    between: list[Expr] = []
    absent: list[Expr] = []
    for condition in query.where:
        names = variables(condition)
        alone = unary(condition, frozenset(kleene))
        if not names:
            for conditions in every.values():
                conditions.append(condition)
        elif alone is not None and alone[0] in every and not (late and alone[0] in bound):
            (first if alone[1] else every)[alone[0]].append(condition)
        elif names <= bound:
            between.append(condition)
        else:
            absent.append(condition)
    lapsing = {a.variable for negation, _ in lapses(query.pattern) for a in atoms(negation)}
    complex_ = [n.part for n in negations(query.pattern) if not is_event(n.part)]
    inside = {a.variable for part in complex_ for a in atoms(part)}
    roles = [
        Role(
            atom.variable,
            atom.type,
            tuple(every[atom.variable]),
            tuple(first[atom.variable]),
            kleene.get(atom.variable),
            negative=atom.variable not in bound,
            lapse=atom.variable in lapsing,
        )
        for atom in atoms(query.pattern)
        if atom.variable not in inside
    ]
    for part in complex_:
        # its matches are taken out one by one, as stacks and runs find them
        inner = choose(inner_query(query, part), schema, off={*planning.off, "tree", "compact"})
        roles.append(Role(name_of(part), "", negative=True, inner=inner))
    return _Sorted(tuple(roles), tuple(between), tuple(absent))


def _without_intervals(
    query: Query, schema: Schema, conditions: _Sorted
) -> tuple[Query, str | None]:
    """The query that a kernel takes, or why it cannot: intervals are tried on its matches."""
    if not any(lapses(query.pattern)):
        return query, None
    why = why_not_on_matches(query, schema, conditions.absent)
    return (without_lapses(query), None) if why is None else (query, why)


def _no_kernel(query: Query, schema: Schema, conditions: _Sorted, kinds: Kinds) -> str | None:
    """Why compiled code cannot take this query, if it cannot."""
    if len(conditions.roles) > MOST_ROLES:
        return f"more than {MOST_ROLES} variables"
    if query.unfinished:
        return "timed-out partial matches of more than a plain SEQ"
    if query.choose is not None and may_wait(query.pattern):
        return "CHOOSE among matches that wait for time to pass"
    negated = any(role.negative and not role.lapse for role in conditions.roles)
    if schema.intervals and negated and _has_and(query.pattern):
        return "negation next to AND over events with a duration"
    for negation in negations_of(query.pattern, conditions.absent):
        if not is_event(negation.part):
            reason = why_not_inner(negation, query, conditions.role(negation.variable))
            if reason is not None:
                return reason
        for condition in negation.conditions:
            if not fits_a_kernel(condition, kinds) or moving_variable(condition) is not None:
                return "a condition on a negated event that compiled code cannot evaluate"
    return None


def _has_and(pattern: Pattern) -> bool:
    return form(pattern) is Form.TOGETHER or any(map(_has_and, present(pattern)))


def _can_wait(condition: Expr, query: Query) -> bool:
    """Whether a condition may be tried on finished matches: it must choose no event on the way."""
    if Strategy.NEXT in query.strategies or query.weighs_matches:
        return False
    always = always_bound(query.pattern)
    return all(
        r.at not in MOVING
        and not (isinstance(r, Field) and r.at is At.NTH and r.nth > 1)
        and (r.variable in always or not isinstance(r, Field))
        for r in references(condition)
    )


def _automaton(query: Query, between: _Between) -> Structure:
    if (why := why_unknown(query.pattern, RUNS)) is not None:
        return Reference(why)
    late = tuple(
        c for c in between.tied if between.late and can_be_late(c) and not runs_in_step(c)
    )
    early = tuple(c for c in between.tied if c not in late)
    try:
        built = automaton(
            query.pattern,
            early,
            between.absent,
            late=late,
            early=Strategy.NEXT not in query.strategies,
            strategy=query.strategy,
        )
    except TooManyStates:
        return Reference("a pattern with too many orders of events")
    except NoLoops as why:
        return Reference(str(why))
    checks = [check for edge in built.edges for check in edge.checks]
    checks += [check for state in built.states for check in state.checks]
    if any(
        check.each and any(r.at in (At.BEFORE, At.THROUGH) for r in references(check.condition))
        for check in checks
    ):
        return Reference("a running aggregate compared with a value that is known only later")
    return built


def _stacks(query: Query, between: _Between) -> Stacks | None:
    """Instance stacks, for sequences of single events under skip-till-any-match."""
    if why_no_stacks(query) is not None:
        return None
    inner = parts(query.pattern)
    order = [p.variable for p in inner if is_event(p)]
    checks: list[list[Check]] = [[] for _ in order]
    for condition in between.tied:
        place = 0 if between.late else min(order.index(v) for v in variables(condition))
        checks[place].append(Check(condition))
    absences: list[list[Absence]] = [[] for _ in order]
    found = negations_of(query.pattern, between.absent)
    position = 0  # of the next positive
    for part in inner:
        if is_absence(part):
            negation = next(n for n in found if n.part == part.part)
            tied = {order.index(v) for c in negation.conditions for v in variables(c) & {*order}}
            front = order[position - 1 : position] if position else []
            absences[min({max(position - 1, 0), *tied})].append(
                Absence(negation.variable, tuple(front), (order[position],), negation.conditions)
            )
        else:
            position += 1
    return Stacks(tuple(order), tuple(map(tuple, checks)), tuple(map(tuple, absences)))


def why_no_stacks(query: Query) -> str | None:
    """Why a query cannot be run on instance stacks, if it cannot."""
    if query.strategy is not Strategy.ANY:
        return f"{query.strategy.value} decides event by event what a match takes"
    if query.after is not None and query.after.by_start:
        return BY_START
    if is_event(query.pattern):
        return "there is only one event to wait for"
    events = present(query.pattern)
    if (
        not is_sequence(query.pattern)
        or not all(map(is_event, events))
        or unknown(query.pattern, STACKS) is not None
    ):
        return "the pattern is more than single events in sequence"
    if len(events) < 2:
        return "there is only one event to wait for"
    if is_absence(parts(query.pattern)[-1]):
        return "a negation at the end waits for time to pass"
    if len(events) > MOST_STACKS:
        return f"there are more than {MOST_STACKS} events in sequence"
    return None


def structure_name(structure: Structure) -> str:
    """How explain calls a structure."""
    match structure:
        case Automaton():
            return "runs"
        case Stacks():
            return "instance stacks"
        case Tree():
            return "join tree"
        case Compact():
            return "compact"
        case Reference():
            return "reference"
