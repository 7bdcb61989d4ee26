"""Cardinality and cost of join trees, and the choice of a join order and of a structure.

A shape is a variable or a pair of shapes: `(("a", "b"), "c")` joins a and b first. A sequence
stores the results of its left side, and a new one of the right side meets those that ended before
it began; a conjunction stores both, and a new result of either side meets those of the other.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations, pairwise
from math import expm1, factorial, prod

from ensue.cached import cached_property
from ensue.errors import QueryError
from ensue.ir.expression import Expr
from ensue.ir.pattern import OperatorCall, Pattern
from ensue.ir.query import Query
from ensue.ir.selection import ByEvents, ByTime, ByUnits
from ensue.ir.traits import get_parts, get_positive_parts, is_negation, is_operator_call, is_sequence
from ensue.ir.traversal import get_kleene_variables, get_variables, iterate_operator_calls, iterate_positive_atoms
from ensue.ir.user_operator import OperatorInputs
from ensue.planner.capabilities import get_leaf_variable, is_leaf
from ensue.planner.cost_model import (
    COMPARE,
    EMIT,
    NEW,
    PUSH,
    STEP,
    PredicateCost,
    combine_costs,
    compute_node_cost,
    estimate_predicate,
    order_by_rank,
)
from ensue.planner.join_tree import get_leaves, get_shape, join_from_left
from ensue.planner.physical_plan import JoinTree, Role, Structure
from ensue.planner.planner_options import PlannerOptions, Shape
from ensue.planner.statistics import (
    IN_STREAM,
    IN_WINDOW,
    PARTITIONS,
    PlanCandidate,
    PlanDecision,
    PlanEstimate,
    Statistics,
)
from ensue.schema import ANY, Types, get_type_names

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


MOST_IN_SEQUENCE = 16  # parts of a sequence whose trees are all enumerated
MOST_IN_ANY_ORDER = 8  # parts of a conjunction, likewise
PASSED_ON = 2.0  # a result that is joined at once and not stored

Names = frozenset[str]


def format_shape(shape: Shape) -> str:
    """Formats a shape."""
    return shape if isinstance(shape, str) else f"({' '.join(map(format_shape, shape))})"


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


def find_best_shape(joins: JoinCosts) -> Shape:
    """The cheapest shape: exact for few parts, otherwise greedy."""
    return _best(joins, joins.pattern, kept=False)


def _best(joins: JoinCosts, pattern: Pattern, *, kept: bool) -> Shape:
    if is_leaf(pattern):
        return get_leaf_variable(pattern)
    inside = get_positive_parts(pattern)
    if len(inside) == 1:
        return _best(joins, inside[0], kept=kept)
    if is_operator_call(pattern):
        left, right = inside
        return (_best(joins, left, kept=True), _best(joins, right, kept=False))
    if is_sequence(pattern):
        most, exact = MOST_IN_SEQUENCE, _by_intervals
    else:
        most, exact = MOST_IN_ANY_ORDER, _by_subsets
    if len(inside) > most:
        shapes = [_best(joins, p, kept=True) for p in inside]
        return _greedy(joins, shapes, in_order=is_sequence(pattern))
    return exact(joins, [_leaf(joins, p) for p in inside])[kept][1]


# The cheapest shape of some parts with its cost, where results are passed on or stored.
Best = tuple[tuple[float, Shape], tuple[float, Shape]]


def _leaf(joins: JoinCosts, part: Pattern) -> Best:
    passed, stored = (_best(joins, part, kept=kept) for kept in (False, True))
    return (joins.cost(passed), passed), (joins.cost(stored, kept=True), stored)


def _by_intervals(joins: JoinCosts, parts: Sequence[Best]) -> Best:
    """Joins neighbours: the best tree of an interval consists of best trees."""
    best = {(k, k + 1): part for k, part in enumerate(parts)}
    for length in range(2, len(parts) + 1):
        for start in range(len(parts) - length + 1):
            end = start + length
            splits = [  # ties: joined from the left
                (best[start, middle], best[middle, end]) for middle in range(end - 1, start, -1)
            ]
            best[start, end] = _cheapest(joins, splits)
    return best[0, len(parts)]


def _by_subsets(joins: JoinCosts, parts: Sequence[Best]) -> Best:
    """Joins any two sides."""
    best = {frozenset([k]): part for k, part in enumerate(parts)}
    for size in range(2, len(parts) + 1):
        for subset in combinations(range(len(parts)), size):
            members = frozenset(subset)
            splits = [(best[members - right], best[right]) for right in _halves(subset)]
            best[members] = _cheapest(joins, splits)
    return best[frozenset(range(len(parts)))]


def _halves(members: tuple[int, ...]) -> Iterator[frozenset[int]]:
    """Each split of a set in two, by the side without its first member; small ones first."""
    for size in range(1, len(members)):
        for right in reversed(list(combinations(members[1:], size))):
            yield frozenset(right)


def _cheapest(joins: JoinCosts, splits: Sequence[tuple[Best, Best]]) -> Best:
    def join(left: Best, right: Best, *, kept: bool) -> tuple[float, Shape]:
        names = [frozenset(get_leaves(side[0][1])) for side in (left, right)]
        first, second = left[True], right[not joins.in_sequence(names[0], names[1])]
        cost = joins.node(names[0], names[1], kept=kept)
        return first[0] + second[0] + cost, (first[1], second[1])

    def cheapest(*, kept: bool) -> tuple[float, Shape]:
        return min((join(*split, kept=kept) for split in splits), key=lambda best: best[0])

    return cheapest(kept=False), cheapest(kept=True)


def _greedy(joins: JoinCosts, shapes: list[Shape], *, in_order: bool) -> Shape:
    """Always joins the two sides with the fewest results."""
    while len(shapes) > 1:
        names = [frozenset(get_leaves(s)) for s in shapes]

        def price(pair: tuple[int, int], names: list[Names] = names) -> tuple[float, float]:
            left, right = names[pair[0]], names[pair[1]]
            return joins.estimate_results(left | right), joins.node(left, right, kept=True)

        numbers = range(len(shapes))
        left, right = min(pairwise(numbers) if in_order else combinations(numbers, 2), key=price)
        shapes[left] = (shapes[left], shapes[right])
        del shapes[right]
    return shapes[0]


NAMES = {
    "stacks": "instance stacks",
    "runs": "runs",
    "tree": "join tree",
    "compact": "compact",
    "reference": "reference",
}

Possible = Mapping[str, tuple[Structure, PlanEstimate]]  # the first is the default


def choose_structure(
    possible: Possible, planning: PlannerOptions, *, preferred: bool = False
) -> tuple[Structure, PlanDecision]:
    """Chooses the requested structure, else the one with the lowest estimate.

    `preferred`: not all matches are needed, so the compact structure is chosen where possible.
    Without statistics the first one is chosen: assumptions are too weak to replace the structure
    that performs well on most streams.
    """
    order = sorted(possible, key=lambda name: possible[name][1].cost)
    why = ""
    if planning.structure is not None:
        chosen, why = planning.structure, "requested"
    elif preferred and "compact" in possible:
        chosen, why = "compact", "not all matches are needed"
    elif planning.statistics.assumed:
        chosen = next(iter(possible))
        why = "" if chosen == order[0] else "nothing is known about the stream"
    else:
        chosen = order[0]
    if len(possible) == 1 and not why:
        why = "the only one for this query"
    candidates = tuple(PlanCandidate(NAMES[name], possible[name][1]) for name in possible)
    return possible[chosen][0], PlanDecision("structure", NAMES[chosen], candidates, why)


def require_possible(planning: PlannerOptions, possible: Mapping[str, object], why: str) -> None:
    """Raises an error if the requested structure cannot run the query."""
    requested = planning.structure
    if requested is not None and requested not in (*possible, "reference"):
        raise QueryError(
            f"structure='{requested}' cannot run this query: {why}",
            hint=f"possible here: {', '.join((*possible, 'reference'))}",
        )


def describe_shape_decision(tree: JoinTree, joins: JoinCosts, planning: PlannerOptions) -> PlanDecision:
    """The join order of a tree, next to the two linear ones."""
    chosen = get_shape(tree.root)
    names = get_leaves(chosen)
    shapes: list[Shape] = [chosen]
    if all(map(is_leaf, get_positive_parts(joins.pattern))):
        ordered: list[Shape] = [*names]
        from_right = reduce(lambda right, left: (left, right), reversed(ordered))
        linear = (join_from_left(ordered), from_right)
        shapes += [s for s in dict.fromkeys(linear) if s != chosen]
    why = "requested" if planning.shape is not None else ""
    if not why and planning.modules:
        why = "the structure of the hierarchy"
    if not why and "join_order" in planning.off:
        why = "from the left"
    candidates = tuple(PlanCandidate(format_shape(s), joins.estimate(s)) for s in shapes)
    return PlanDecision("join_order", format_shape(chosen), candidates, why)
