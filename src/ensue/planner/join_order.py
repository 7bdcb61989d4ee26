"""The choice of a join order and of a structure.

A shape is a variable or a pair of shapes: `(("a", "b"), "c")` joins a and b first.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import combinations, pairwise

from ensue.errors import QueryError
from ensue.ir.pattern import Pattern
from ensue.ir.traits import get_positive_parts, is_operator_call, is_sequence
from ensue.planner.capabilities import get_leaf_variable, is_leaf
from ensue.planner.cost_model import JoinCosts, Names
from ensue.planner.join_tree import get_leaves, get_shape, join_from_left
from ensue.planner.physical_plan import JoinTree, Structure
from ensue.planner.planner_options import PlannerOptions, Shape
from ensue.planner.statistics import PlanCandidate, PlanDecision, PlanEstimate

MOST_IN_SEQUENCE = 16  # parts of a sequence whose trees are all enumerated
MOST_IN_ANY_ORDER = 8  # parts of a conjunction, likewise


def format_shape(shape: Shape) -> str:
    """Formats a shape."""
    return shape if isinstance(shape, str) else f"({' '.join(map(format_shape, shape))})"


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
    in_order = is_sequence(pattern)
    if len(inside) > (MOST_IN_SEQUENCE if in_order else MOST_IN_ANY_ORDER):
        return _greedy(joins, [_best(joins, p, kept=True) for p in inside], in_order=in_order)
    return _exact(joins, [_leaf(joins, p) for p in inside], in_order=in_order)[kept][1]


# The cheapest shape of some parts with its cost, where results are passed on or stored.
Best = tuple[tuple[float, Shape], tuple[float, Shape]]
Members = tuple[int, ...]  # the numbers of some parts


def _leaf(joins: JoinCosts, part: Pattern) -> Best:
    passed, stored = (_best(joins, part, kept=kept) for kept in (False, True))
    return (joins.cost(passed), passed), (joins.cost(stored, kept=True), stored)


def _exact(joins: JoinCosts, parts: Sequence[Best], *, in_order: bool) -> Best:
    """The best tree of a group of parts consists of best trees; in order, groups are of neighbours."""
    every = tuple(range(len(parts)))
    best: dict[Members, Best] = {(k,): part for k, part in enumerate(parts)}
    for size in range(2, len(parts) + 1):
        neighbours = (every[k : k + size] for k in range(len(parts) - size + 1))
        for group in neighbours if in_order else combinations(every, size):
            best[group] = _cheapest(joins, [(best[left], best[right]) for left, right in _splits(group, in_order)])
    return best[every]


def _splits(members: Members, in_order: bool) -> Iterator[tuple[Members, Members]]:
    """Each split of a group in two; of equal ones, the first is joined from the left."""
    if in_order:
        for middle in range(len(members) - 1, 0, -1):
            yield members[:middle], members[middle:]
        return
    for size in range(1, len(members)):
        for right in reversed(list(combinations(members[1:], size))):
            yield tuple(k for k in members if k not in right), right


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
