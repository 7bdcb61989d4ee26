"""Estimates the cost of the structures of plans on a stream."""

from collections.abc import Iterable
from math import expm1, factorial, log1p, prod

from ensue.ir.query import Query
from ensue.ir.selection import Strategy
from ensue.ir.traversal import get_variables
from ensue.planner.compact import to_automaton
from ensue.planner.cost_model import (
    COMPARE,
    EMIT,
    NEW,
    PUSH,
    STEP,
    VISIT,
    PredicateCost,
    combine_costs,
    estimate_predicate,
)
from ensue.planner.join_order import MOST, Cardinalities, JoinCosts
from ensue.planner.join_tree import get_leaves, get_shape, walk_joins
from ensue.planner.physical_plan import (
    CompactOutput,
    CompactPlan,
    ConditionCheck,
    InstanceStacks,
    JoinNode,
    JoinTree,
    NegationCheck,
    Nfa,
    NfaEdge,
    NfaState,
    ReferencePlan,
    Structure,
    TreeNode,
)
from ensue.planner.statistics import PlanEstimate

STEPS = 16  # integration steps through a window
WORK = 40_000  # bound on the edges visited by the integration
NODE = 15.0  # a node of compact enumeration
ENUMERATE = 25.0  # a match enumerated from it


def estimate_structure(structure: Structure, query: Query, load: Cardinalities) -> PlanEstimate:
    """Estimates the cost, the stored partial matches and the matches of a structure."""
    match structure:
        case Nfa():
            return estimate_runs(structure, query.strategy, load)
        case InstanceStacks():
            return estimate_stacks(structure, load)
        case JoinTree(root=root):
            conditions = tuple(c.condition for node in walk_joins(root) for c in node.checks)
            joins = JoinCosts(query.pattern, conditions, load, ordered=False, early=_has_only_root_conditions(root))
            return joins.estimate(get_shape(root))
        case CompactPlan():
            return estimate_compact(structure, load)
        case ReferencePlan():
            return PlanEstimate(MOST, MOST, 0.0)


def _has_only_root_conditions(root: TreeNode) -> bool:
    """Whether the root of a tree evaluates only conditions that no lower node could evaluate."""
    if not isinstance(root, JoinNode):
        return True
    below = [set(get_leaves(get_shape(side))) for side in (root.left, root.right)]
    return not any(get_variables(c.condition) <= names for c in root.checks for names in below)


def estimate_runs(automaton: Nfa, strategy: Strategy, load: Cardinalities) -> PlanEstimate:
    """Each event visits the runs of its partition that wait for it."""
    tests = {edge: _tests(edge.checks, edge.absences, load) for edge in automaton.edges}
    ends = {s.number: _tests(s.checks, s.absences, load) for s in automaton.states}
    final = {s.number: not automaton.list_outgoing(s.number) for s in automaton.states}
    alive = _alive(automaton, strategy, load, tests)
    cost = matches = 0.0
    for edge in automaton.edges:
        target = automaton.states[edge.target]
        chance = load.chances[edge.variable]
        attempts = chance * (alive[edge.source] if edge.source else 1.0)
        test = tests[edge]
        cost += attempts * (test.cost + (VISIT if edge.source else 0.0))
        passed = attempts * test.chance
        stored = not final[edge.target] or target.checks or target.absences or target.pending
        cost += passed * (NEW if stored else 0.0)
        if target.accepting:
            cost += passed * (ends[edge.target].cost + ends[edge.target].chance * EMIT)
            matches += passed * ends[edge.target].chance
    partial = sum(n for number, n in enumerate(alive) if number and not final[number])
    return _cap_cost(cost, partial * load.partitions, matches)


def _tests(checks: Iterable[ConditionCheck], absences: Iterable[NegationCheck], load: Cardinalities) -> PredicateCost:
    tests = [_check(check, load) for check in checks]
    return combine_costs([*tests, *(_absence(a, load) for a in absences)])


def _check(check: ConditionCheck, load: Cardinalities) -> PredicateCost:
    test = estimate_predicate(check.condition, load.statistics)
    if check.each and check.moving is not None:
        events = max(1.0, load.inside(check.moving) / 2)
        return PredicateCost(test.cost + events * VISIT, test.chance)
    return test


def _absence(absence: NegationCheck, load: Cardinalities) -> PredicateCost:
    """The probability that no forbidden event is in a part of the window."""
    near = load.inside(absence.variable) / 3
    forbidden = near * load.passes(absence.conditions)
    return PredicateCost(COMPARE + VISIT * min(1 + near, MOST), 1 / (1 + forbidden))


def _alive(automaton: Nfa, strategy: Strategy, load: Cardinalities, tests: dict[NfaEdge, PredicateCost]) -> list[float]:
    """The number of runs of one partition that wait in each state."""
    states, edges = automaton.states, [e for e in automaton.edges if e.source]
    started = [0.0] * len(states)
    for edge in automaton.list_outgoing(0):
        started[edge.target] += load.chances[edge.variable] * tests[edge].chance
    if strategy in (Strategy.STRICT, Strategy.PARTITION):
        return _adjacent(started, edges, load, tests)
    started = [n * load.window for n in started]
    moved = {e: _moving(e, tests[e].chance, load) for e in edges}
    if strategy is Strategy.NEXT:
        return _compute_moved_runs(started, moved, states)
    return _integrate_runs(started, moved)


def _moving(edge: NfaEdge, chance: float, load: Cardinalities) -> float:
    """How often the events of a window move a run along an edge."""
    if edge.source != edge.target:
        return load.inside(edge.variable) * chance
    # each event of a repetition at most doubles its runs: in discrete steps, that is not e-fold
    return load.window * log1p(load.chances[edge.variable] * chance)


def _integrate_runs(runs: list[float], moved: dict[NfaEdge, float]) -> list[float]:
    """Integrates runs that may stay in their state, from their first event to the window's end."""

    def growth(runs: list[float]) -> list[float]:
        grown = [0.0] * len(runs)
        for edge, rate in moved.items():
            grown[edge.target] += runs[edge.source] * rate
        return grown

    steps = max(2, min(STEPS, WORK // (4 * len(moved) + 1)))
    size = 1 / steps
    total = [0.0] * len(runs)
    for _ in range(steps):  # Runge-Kutta
        k1 = growth(runs)
        half = _move_runs(runs, k1, size / 2)
        k2 = growth(half)
        other = _move_runs(runs, k2, size / 2)
        k3 = growth(other)
        after = _move_runs(runs, k3, size)
        k4 = growth(after)
        for n in range(len(runs)):
            mean = (runs[n] + 2 * half[n] + 2 * other[n] + after[n]) / 6
            total[n] = min(MOST, total[n] + size * mean)
        slope = [(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True)]
        runs = _move_runs(runs, slope, size)
    return total


def _move_runs(runs: list[float], slope: list[float], by: float) -> list[float]:
    return [min(MOST, n + by * g) for n, g in zip(runs, slope, strict=True)]


def _compute_moved_runs(started: list[float], moved: dict[NfaEdge, float], states: tuple[NfaState, ...]) -> list[float]:
    """Runs that the next matching event moves; states are numbered in topological order."""
    arriving, alive = list(started), [0.0] * len(started)
    for state in states[1:]:
        out = {e: rate for e, rate in moved.items() if e.source == state.number}
        away = sum(
            rate for e, rate in out.items() if e.target != state.number and (not state.open or e.variable in state.open)
        )
        alive[state.number] = arriving[state.number] * (-expm1(-away) / away if away else 1.0)
        for edge, rate in out.items():
            if edge.target != state.number:
                arriving[edge.target] += alive[state.number] * rate
    return alive


def _adjacent(
    started: list[float], edges: list[NfaEdge], load: Cardinalities, tests: dict[NfaEdge, PredicateCost]
) -> list[float]:
    """Runs that the next event must move or discard."""
    total, runs = list(started), started
    for _ in range(64):
        after = [0.0] * len(runs)
        for edge in edges:
            chance = load.chances[edge.variable] * tests[edge].chance
            after[edge.target] += runs[edge.source] * chance
        total = [min(MOST, t + n) for t, n in zip(total, after, strict=True)]
        runs = after
    return total


def estimate_stacks(stacks: InstanceStacks, load: Cardinalities) -> PlanEstimate:
    """Events are pushed; each of the last variable visits the combinations before it."""
    order = stacks.variables
    last = len(order) - 1
    cost = sum(load.chances[v] * PUSH for v in order[:-1])
    built, passed = 0.0, 1.0
    for position in reversed(range(last)):
        length = last - position
        combinations = prod(load.inside(v) for v in order[position:last]) / factorial(length)
        test = _tests(stacks.checks[position], stacks.absences[position], load)
        for absence in stacks.pushed[position] if stacks.pushed else ():
            passed *= _absence(absence, load).chance  # forbidden events are dropped
        built += combinations * passed * (STEP + test.cost)
        passed *= test.chance
    matches = load.chances[order[last]] * prod(load.inside(v) for v in order[:last])
    matches *= passed / factorial(last)
    cost += load.chances[order[last]] * built + matches * EMIT
    negated = {a.variable for group in stacks.absences for a in group}
    stored = sum(load.inside(v) for v in (*order[:-1], *sorted(negated))) * load.partitions
    return _cap_cost(cost, stored, matches)


def estimate_compact(compact: CompactPlan, load: Cardinalities) -> PlanEstimate:
    """A compact structure stores a few nodes per event, and lists all matches, some, or none."""
    matches = estimate_runs(to_automaton(compact), Strategy.ANY, load).matches
    if compact.limit is not None:
        triggers = {s.variable for s in compact.steps if s.target in compact.accepting}
        matches = min(matches, compact.limit * sum(load.chances[v] for v in triggers))
    variables = dict.fromkeys(s.variable for s in compact.steps if s.target in compact.kept)
    cost = sum(load.chances[v] * NODE for v in variables)
    if compact.answer is CompactOutput.MATCHES:
        cost += matches * ENUMERATE
    stored = sum(load.inside(v) for v in variables) * load.partitions
    return _cap_cost(cost, stored, matches)


def _cap_cost(cost: float, partial: float, matches: float) -> PlanEstimate:
    return PlanEstimate(min(cost, MOST), min(partial, MOST), min(matches, MOST))
