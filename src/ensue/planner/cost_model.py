"""Cost of plans on a stream: of a combination of events, C = C_Q + P_Q * C_F + C_Z, of trees and of structures.

The names are those of the operator model (Q decides, F builds, Z is the result type, which the
planner resolves, so it costs nothing). A comparison costs 1; the other constants are ratios to it,
as measured in compiled kernels.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import expm1, factorial, log1p, prod
from typing import TypeVar

from ensue.cached import cached_property
from ensue.ir import expression
from ensue.ir.expression import Expr
from ensue.ir.pattern import OperatorCall, Pattern
from ensue.ir.query import Query
from ensue.ir.selection import ByEvents, ByTime, ByUnits, Strategy
from ensue.ir.traits import get_parts, get_positive_parts, is_negation, is_operator_call, is_sequence
from ensue.ir.traversal import (
    get_kleene_variables,
    get_operands,
    get_variables,
    iterate_operator_calls,
    iterate_positive_atoms,
)
from ensue.ir.user_operator import OperatorInputs
from ensue.planner.capabilities import get_leaf_variable, is_leaf
from ensue.planner.compact import to_automaton
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
    Role,
    Structure,
    TreeNode,
)
from ensue.planner.planner_options import Shape
from ensue.planner.statistics import IN_STREAM, IN_WINDOW, PARTITIONS, PlanEstimate, Statistics
from ensue.schema import ANY, Types, get_type_names

COMPARE = 1.0  # n: one comparison
FETCH = 0.5  # u: one field of an event
NEW = 10.0  # j: a partial match derived from another
PUSH = 5.0  # an event pushed on a stack
VISIT = 3.0  # the step from one run to the next
STEP = 8.0  # the step from one instance on a stack to the next: they lie further apart
EMIT = 20.0  # an emitted match
CALL = 5.0  # a function

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class PredicateCost:
    """Cost of evaluating a conjunct, and the probability that it holds."""

    cost: float
    chance: float

    @property
    def rank(self) -> float:
        """Predicates are evaluated in ascending order of rank: cheap selective ones first."""
        return (self.chance - 1) / self.cost if self.cost > 0 else float("-inf")


def compute_condition_cost(expr: Expr) -> float:
    """Cost of evaluating a condition once, in comparisons."""
    inside = sum(map(compute_condition_cost, get_operands(expr)))
    match expr:
        case expression.Literal():
            return 0.0
        case expression.FieldRef():
            return FETCH
        case expression.Aggregate():
            return FETCH  # a register that the kernel updates
        case expression.FunctionCall() | expression.Like():
            return CALL + inside
        case expression.In(options=options):
            return COMPARE * len(options) + inside
        case expression.Between():
            return 2 * COMPARE + inside
        case expression.IsNull() | expression.Unary() | expression.Binary():
            return COMPARE + inside


def estimate_predicate(condition: Expr, statistics: Statistics) -> PredicateCost:
    """Cost and selectivity of a condition."""
    return PredicateCost(max(compute_condition_cost(condition), COMPARE), statistics.get_selectivity(condition))


def combine_costs(tests: Iterable[PredicateCost]) -> PredicateCost:
    """Combines predicates in their order: the first that fails ends the evaluation (6, 7)."""
    cost, chance = 0.0, 1.0
    for predicate in tests:
        cost += chance * predicate.cost
        chance *= predicate.chance
    return PredicateCost(cost, chance)


def order_by_rank(items: Sequence[Item], test: Callable[[Item], PredicateCost]) -> tuple[Item, ...]:
    """The cheapest order (rule 1): by ascending (P - 1) / C; ties keep the order as written."""
    return tuple(sorted(items, key=lambda item: test(item).rank))


def compute_node_cost(time: PredicateCost, attributes: PredicateCost, build: float = NEW) -> float:
    """Cost of one combination at an operator (5, 9): the time, the conditions, the result."""
    combined = combine_costs((time, attributes))
    return combined.cost + combined.chance * build


# Cardinalities of a query on a stream.

MOST = 1e15  # upper bound of all estimates


@dataclass(frozen=True, slots=True)
class Cardinalities:
    """Expected cardinalities of a query on a stream."""

    statistics: Statistics
    window: float  # events inside a window, in the partition of a typical event
    partitions: float
    chances: dict[str, float]  # probability that an event of the stream matches a variable

    @classmethod
    def estimate(cls, query: Query, roles: Iterable[Role], statistics: Statistics) -> "Cardinalities":
        roles = tuple(roles)
        shares = _shares(statistics, {role.type for role in roles})
        partitions = 1.0
        if query.equivalence:
            partitions = statistics.effective or statistics.partitions or PARTITIONS
        chances = {
            role.variable: shares[role.type]
            * prod(statistics.get_selectivity(c) for c in (*role.conditions, *role.first))
            for role in roles
        }
        return cls(statistics, _window(query, statistics, partitions), partitions, chances)

    def inside(self, variable: str) -> float:
        """The number of events of a variable inside a window, in one partition."""
        return self.window * self.chances[variable]

    def passes(self, conditions: Iterable[Expr]) -> float:
        return prod(self.statistics.get_selectivity(c) for c in conditions)


def _shares(statistics: Statistics, types: set[Types]) -> dict[Types, float]:
    """The share of events of each type, or of several types."""
    by_name = _shares_of_names(statistics, {name for type_ in types for name in get_type_names(type_)})
    return {
        type_: 1.0 if type_ == ANY else min(1.0, sum(by_name[name] for name in get_type_names(type_)))
        for type_ in types
    }


def _shares_of_names(statistics: Statistics, types: set[str]) -> dict[str, float]:
    """The share of each type; an unseen one gets no more than the remainder."""
    known = {t: s for t in types if (s := statistics.share(t)) is not None}
    if not statistics.shares:
        return dict.fromkeys(types, 1 / max(1, len(types)))
    remainder = max(0.0, 1 - sum(share for _, share in statistics.shares))
    rare = min([s for _, s in statistics.shares if s > 0] or [1.0])
    other = min(remainder / max(1, len(types) - len(known)), rare) or rare / 10
    return {t: known.get(t, other) for t in types}


def _window(query: Query, statistics: Statistics, partitions: float) -> float:
    match query.within:
        case ByEvents(count=count):
            return float(count)
        case _ if statistics.rate is None:
            return IN_STREAM if query.within is None else IN_WINDOW
        case ByTime(nanoseconds=length):
            events = statistics.rate * length / 1e9
        case ByUnits(amount=amount):
            events = statistics.rate * amount
        case None:
            return IN_STREAM
    return min(MOST, max(1.0, events / partitions))


# The cost of join trees. A sequence stores the results of its left side, and a new one of the right side meets those
# that ended before it began; a conjunction stores both, and a new result of either side meets those of the other.

PASSED_ON = 2.0  # a result that is joined at once and not stored

Names = frozenset[str]


@dataclass(frozen=True)
class JoinCosts:
    """Cost of joining a pattern's variables on a stream."""

    pattern: Pattern
    conditions: tuple[Expr, ...]  # between events of a match
    load: Cardinalities
    ordered: bool = True  # the conditions of a node are evaluated in the cheapest order
    early: bool = True  # conditions are evaluated at the lowest node that has their variables
    _stored: dict[Names, float] = field(default_factory=dict)

    @cached_property
    def _positions(self) -> dict[str, tuple[tuple[Pattern, int], ...]]:
        """For each variable, the enclosing operators and its position in them."""
        positions: dict[str, tuple[tuple[Pattern, int], ...]] = {}

        def visit(pattern: Pattern, enclosing: tuple[tuple[Pattern, int], ...]) -> None:
            if is_leaf(pattern):
                positions[get_leaf_variable(pattern)] = enclosing
                return
            for position, part in enumerate(get_parts(pattern)):
                if not is_negation(part):
                    visit(part, (*enclosing, (pattern, position)))

        visit(self.pattern, ())
        return positions

    def in_sequence(self, left: Names, right: Names) -> bool:
        """Whether the pattern orders all of one side before all of the other."""
        return all(self._before(a, b) for a in left for b in right)

    def _before(self, first: str, second: str) -> bool:
        paths = zip(self._positions[first], self._positions[second], strict=False)
        for (pattern, left), (_, right) in paths:
            if left != right:
                return _in_order(pattern) and left < right
        return False

    def estimate_results(self, names: Names) -> float:
        """The number of results over these variables inside a window, in one partition."""
        if names not in self._stored:
            pairs = prod(self._events(v) for v in names) * self._ordered_share(self.pattern, names)
            known = self._with_results(names)
            within = [c for c in self.conditions if self._find_required(c) <= known]
            users = prod(a.operator.passes for a in self._list_operators(names))
            self._stored[names] = min(MOST, pairs * users * self.load.passes(within))
        return self._stored[names]

    def _find_required(self, condition: Expr) -> Names:
        """The variables that must be bound when a condition is evaluated."""
        return get_variables(condition) if self.early else self._with_results(_names(self.pattern))

    def _list_operators(self, names: Names) -> list[OperatorCall]:
        """User-defined operators over these variables."""
        return [a for a in iterate_operator_calls(self.pattern) if _names(a) <= names]

    def _with_results(self, names: Names) -> Names:
        """The variables with the results of the operators over them."""
        return names.union(a.variable for a in self._list_operators(names))

    def _events(self, variable: str) -> float:
        inside = self.load.inside(variable)
        if variable in self._repeated:
            return expm1(min(inside, 20.0))  # every subset of them is a result
        return inside

    @cached_property
    def _repeated(self) -> Names:
        return frozenset(get_kleene_variables(self.pattern))

    def _ordered_share(self, pattern: Pattern, names: Names) -> float:
        """The probability that events at random times are in the order of the pattern."""
        if is_leaf(pattern):
            return 1.0
        inner = get_positive_parts(pattern)
        chance = prod(self._ordered_share(p, names) for p in inner)
        if _in_order(pattern):
            sizes = [len(_names(p) & names) for p in inner]
            chance *= prod(map(factorial, sizes)) / factorial(sum(sizes))
        return chance

    def between(self, left: Names, right: Names) -> tuple[Expr, ...]:
        """The conditions evaluated where two sides meet, in their order (rule 2)."""
        both, left, right = (self._with_results(side) for side in (left | right, left, right))
        conditions = []
        for condition in self.conditions:
            required = self._find_required(condition)
            if required <= both and not required <= left and not required <= right:
                conditions.append(condition)
        if not self.ordered:
            return tuple(conditions)
        return order_by_rank(conditions, lambda c: estimate_predicate(c, self.load.statistics))

    def node(self, left: Names, right: Names, *, kept: bool) -> float:
        """Cost of joining two sides, per event; `kept`: the results are stored for later joins."""
        pairs = self.estimate_results(left) * self.estimate_results(right)
        size = len(left) + len(right)
        if self.in_sequence(left, right):
            # only pairs in the order of the pattern are visited
            pairs *= factorial(len(left)) * factorial(len(right)) / factorial(size)
        tests = [
            PredicateCost(a.operator.cost * COMPARE, a.operator.passes)
            for a in self._list_operators(left | right)
            if not _names(a) <= left and not _names(a) <= right
        ]
        tests += [estimate_predicate(c, self.load.statistics) for c in self.between(left, right)]
        build = NEW if kept else PASSED_ON
        if left | right == _names(self.pattern):
            build = EMIT
        each = compute_node_cost(PredicateCost(STEP, 1.0), combine_costs(tests), build)
        return min(MOST, pairs * size / self.load.window * each)

    def cost(self, shape: Shape, *, kept: bool = False) -> float:
        """Cost of a tree, per event: the sum over its nodes (10)."""
        if isinstance(shape, str):
            return self.load.chances[shape] * (PUSH if kept else 0.0)
        left, right = (frozenset(get_leaves(side)) for side in shape)
        below = self.cost(shape[0], kept=True)
        below += self.cost(shape[1], kept=not self.in_sequence(left, right))
        return min(MOST, below + self.node(left, right, kept=kept))

    def estimate(self, shape: Shape) -> PlanEstimate:
        """Cost, stored results and matches of a tree."""
        names = frozenset(get_leaves(shape))
        matches = self.estimate_results(names) * len(names) / self.load.window
        stored = sum(map(self.estimate_results, self._stored_sides(shape))) * self.load.partitions
        return PlanEstimate(self.cost(shape), min(stored, MOST), min(matches, MOST))

    def _stored_sides(self, shape: Shape) -> Iterator[Names]:
        """The parts of a shape whose results are stored."""
        if isinstance(shape, str):
            return
        left, right = (frozenset(get_leaves(side)) for side in shape)
        yield left
        if not self.in_sequence(left, right):
            yield right
        for side in shape:
            yield from self._stored_sides(side)


def _in_order(pattern: Pattern) -> bool:
    """Whether its parts follow each other in time."""
    if is_operator_call(pattern):
        return pattern.operator.over is OperatorInputs.PAIR and pattern.operator.in_order
    return is_sequence(pattern)


def _names(pattern: Pattern) -> Names:
    return frozenset(a.variable for a in iterate_positive_atoms(pattern))


# The cost of structures.

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
