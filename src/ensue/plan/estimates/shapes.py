"""Join trees: what a shape costs, and the shape that costs least.

A shape is a variable or a pair of shapes: `(("a", "b"), "c")` joins a and b first. Of a sequence
the results of the left side are kept, and a new one of the right side meets those that ended
before it began; of a conjunction both are kept, and a new one of either side meets the others.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import expm1, factorial, prod

from ensue.algebra.form import Form, form, is_absence, is_result, is_sequence, parts, present
from ensue.algebra.operator import Over
from ensue.algebra.pattern import Apply, Pattern
from ensue.algebra.predicate import Expr
from ensue.algebra.query import Query
from ensue.algebra.walk import kleenes, positives, results, variables
from ensue.computed import cached_property
from ensue.plan.estimates.cost import (
    COMPARE,
    EMIT,
    NEW,
    PUSH,
    STEP,
    Trial,
    cheapest_first,
    node_cost,
    trial_of,
    trying,
)
from ensue.plan.estimates.decisions import Estimate
from ensue.plan.estimates.load import MOST, Load
from ensue.plan.physical_rules.fitting import is_leaf, leaf_of
from ensue.plan.planning import Shape

MOST_IN_SEQUENCE = 16  # parts of a sequence whose trees are all weighed
MOST_IN_ANY_ORDER = 8  # parts of a conjunction, likewise
PASSED_ON = 2.0  # a result that meets the other side at once and is not kept

Names = frozenset[str]


def leaves(shape: Shape) -> tuple[str, ...]:
    """The variables of a shape, from left to right.

    >>> leaves((("a", "b"), "c"))
    ('a', 'b', 'c')
    """
    return (shape,) if isinstance(shape, str) else leaves(shape[0]) + leaves(shape[1])


def show_shape(shape: Shape) -> str:
    """A shape as text.

    >>> show_shape((("a", "b"), "c"))
    '((a b) c)'
    """
    return shape if isinstance(shape, str) else f"({' '.join(map(show_shape, shape))})"


@dataclass(frozen=True)
class Joins:
    """What the joins of a pattern's variables cost on a stream."""

    pattern: Pattern
    conditions: tuple[Expr, ...]  # between events of a match
    load: Load
    ordered: bool = True  # the conditions of a node are tried in the order that costs least
    early: bool = True  # conditions are tried at the lowest node that sees their variables
    _kept: dict[Names, float] = field(default_factory=dict)

    @cached_property
    def _places(self) -> dict[str, tuple[tuple[Pattern, int], ...]]:
        """For each variable, the operators around it and its place in them."""
        found: dict[str, tuple[tuple[Pattern, int], ...]] = {}

        def visit(pattern: Pattern, around: tuple[tuple[Pattern, int], ...]) -> None:
            if is_leaf(pattern):
                found[leaf_of(pattern)] = around
                return
            for place, part in enumerate(parts(pattern)):
                if not is_absence(part):
                    visit(part, (*around, (pattern, place)))

        visit(self.pattern, ())
        return found

    def in_sequence(self, left: Names, right: Names) -> bool:
        """Whether the pattern puts all of one side before all of the other."""
        return all(self._before(a, b) for a in left for b in right)

    def _before(self, one: str, other: str) -> bool:
        for (pattern, here), (_, there) in zip(
            self._places[one], self._places[other], strict=False
        ):
            if here != there:
                return _in_order(pattern) and here < there
        return False

    def kept(self, names: Names) -> float:
        """How many results over these variables a window holds, in one partition."""
        if names not in self._kept:
            meeting = prod(self._events(v) for v in names) * self._arranged(self.pattern, names)
            known = self._known(names)
            within = [c for c in self.conditions if self._seen(c) <= known]
            users = prod(a.operator.passes for a in self._applied(names))
            self._kept[names] = min(MOST, meeting * users * self.load.passes(within))
        return self._kept[names]

    def _seen(self, condition: Expr) -> Names:
        """The variables that must be there when a condition is tried."""
        return variables(condition) if self.early else self._known(_names(self.pattern))

    def _applied(self, names: Names) -> list[Apply]:
        """The operators of users over these variables."""
        return [a for a in results(self.pattern) if _names(a) <= names]

    def _known(self, names: Names) -> Names:
        """The variables with the results that are made of them."""
        return names.union(a.variable for a in self._applied(names))

    def _events(self, variable: str) -> float:
        inside = self.load.inside(variable)
        if variable in self._repeated:
            return expm1(min(inside, 20.0))  # every choice of them is a result of its own
        return inside

    @cached_property
    def _repeated(self) -> Names:
        return frozenset(kleenes(self.pattern))

    def _arranged(self, pattern: Pattern, names: Names) -> float:
        """The chance that events at random times stand as the pattern wants them."""
        if is_leaf(pattern):
            return 1.0
        inner = present(pattern)
        chance = prod(self._arranged(p, names) for p in inner)
        if _in_order(pattern):
            sizes = [len(_names(p) & names) for p in inner]
            chance *= prod(map(factorial, sizes)) / factorial(sum(sizes))
        return chance

    # ------------------------------------------------------------------------ nodes

    def between(self, left: Names, right: Names) -> tuple[Expr, ...]:
        """The conditions tried where two sides meet, in their order (rule 2)."""
        both, left, right = (self._known(side) for side in (left | right, left, right))
        found = []
        for condition in self.conditions:
            seen = self._seen(condition)
            if seen <= both and not seen <= left and not seen <= right:
                found.append(condition)
        if not self.ordered:
            return tuple(found)
        return cheapest_first(found, lambda c: trial_of(c, self.load.statistics))

    def node(self, left: Names, right: Names, *, kept: bool) -> float:
        """What joining two sides costs, an event; `kept`: the results wait for others."""
        pairs = self.kept(left) * self.kept(right)
        size = len(left) + len(right)
        if self.in_sequence(left, right):
            # of the pairs only those that stand in their order are looked at
            pairs *= factorial(len(left)) * factorial(len(right)) / factorial(size)
        tests = [
            Trial(a.operator.cost * COMPARE, a.operator.passes)
            for a in self._applied(left | right)
            if not _names(a) <= left and not _names(a) <= right
        ]
        tests += [trial_of(c, self.load.statistics) for c in self.between(left, right)]
        build = NEW if kept else PASSED_ON
        if left | right == _names(self.pattern):
            build = EMIT
        each = node_cost(Trial(STEP, 1.0), trying(tests), build)
        return min(MOST, pairs * size / self.load.window * each)

    def cost(self, shape: Shape, *, kept: bool = False) -> float:
        """What a whole tree costs, an event: the sum over its nodes (10)."""
        if isinstance(shape, str):
            return self.load.chances[shape] * (PUSH if kept else 0.0)
        left, right = (frozenset(leaves(side)) for side in shape)
        below = self.cost(shape[0], kept=True)
        below += self.cost(shape[1], kept=not self.in_sequence(left, right))
        return min(MOST, below + self.node(left, right, kept=kept))

    def estimate(self, shape: Shape) -> Estimate:
        """The figures of a tree: what it costs, keeps and finds."""
        whole = frozenset(leaves(shape))
        matches = self.kept(whole) * len(whole) / self.load.window
        waiting = sum(map(self.kept, self._waiting(shape))) * self.load.partitions
        return Estimate(self.cost(shape), min(waiting, MOST), min(matches, MOST))

    def _waiting(self, shape: Shape) -> Iterator[Names]:
        """The parts of a shape whose results are kept."""
        if isinstance(shape, str):
            return
        left, right = (frozenset(leaves(side)) for side in shape)
        yield left
        if not self.in_sequence(left, right):
            yield right
        for side in shape:
            yield from self._waiting(side)


def _in_order(pattern: Pattern) -> bool:
    """Whether its parts come one after the other."""
    if is_result(pattern):
        return pattern.operator.over is Over.PAIR and pattern.operator.in_order
    return is_sequence(pattern)


def _names(pattern: Pattern) -> Names:
    return frozenset(a.variable for a in positives(pattern))


# ---------------------------------------------------------------------------------- the best


def can_be_joined(query: Query) -> bool:
    """Whether a pattern is made of sequences and conjunctions of events only."""

    def fits(pattern: Pattern) -> bool:
        match form(pattern):
            case Form.EVENT | Form.LIST:
                return True
            case Form.SEQUENCE | Form.TOGETHER:
                return all(map(fits, present(pattern)))
            case Form.LOOP | Form.RESULT | Form.OPTION | Form.CHOICE | Form.ABSENCE:
                return False

    return fits(query.pattern)


def best_shape(joins: Joins) -> Shape:
    """The shape that costs least: exact for few parts, else always the cheapest next join."""
    return _best(joins, joins.pattern, kept=False)


def _best(joins: Joins, pattern: Pattern, *, kept: bool) -> Shape:
    if is_leaf(pattern):
        return leaf_of(pattern)
    inside = present(pattern)
    if len(inside) == 1:
        return _best(joins, inside[0], kept=kept)
    if is_result(pattern):
        left, right = inside
        return (_best(joins, left, kept=True), _best(joins, right, kept=False))
    if is_sequence(pattern):
        most, exact, pairs = MOST_IN_SEQUENCE, _by_intervals, _neighbours
    else:
        most, exact, pairs = MOST_IN_ANY_ORDER, _by_subsets, _any_two
    if len(inside) > most:
        return _greedy(joins, [_best(joins, p, kept=True) for p in inside], pairs)
    return exact(joins, [_leaf(joins, p) for p in inside])[kept][1]


# The best of some parts: what it costs and its shape, where its results are passed on or kept.
Best = tuple[tuple[float, Shape], tuple[float, Shape]]


def _leaf(joins: Joins, part: Pattern) -> Best:
    passed, kept = (_best(joins, part, kept=kept) for kept in (False, True))
    return (joins.cost(passed), passed), (joins.cost(kept, kept=True), kept)


def _by_intervals(joins: Joins, parts: Sequence[Best]) -> Best:
    """Neighbours are joined: the best tree of an interval is made of best trees."""
    best = {(k, k + 1): part for k, part in enumerate(parts)}
    for length in range(2, len(parts) + 1):
        for start in range(len(parts) - length + 1):
            end = start + length
            splits = [  # ties: joined from the left
                (best[start, middle], best[middle, end]) for middle in range(end - 1, start, -1)
            ]
            best[start, end] = _cheapest(joins, splits)
    return best[0, len(parts)]


def _by_subsets(joins: Joins, parts: Sequence[Best]) -> Best:
    """Any two sides may be joined."""
    best = {frozenset([k]): part for k, part in enumerate(parts)}
    for size in range(2, len(parts) + 1):
        for chosen in combinations(range(len(parts)), size):
            whole = frozenset(chosen)
            splits = [(best[whole - right], best[right]) for right in _halves(chosen)]
            best[whole] = _cheapest(joins, splits)
    return best[frozenset(range(len(parts)))]


def _halves(chosen: tuple[int, ...]) -> Iterator[frozenset[int]]:
    """Each way to split a set in two, by the side without its first member; small ones first."""
    for size in range(1, len(chosen)):
        for right in reversed(list(combinations(chosen[1:], size))):
            yield frozenset(right)


def _cheapest(joins: Joins, splits: Sequence[tuple[Best, Best]]) -> Best:
    def joined(left: Best, right: Best, *, kept: bool) -> tuple[float, Shape]:
        names = [frozenset(leaves(side[0][1])) for side in (left, right)]
        one, other = left[True], right[not joins.in_sequence(names[0], names[1])]
        here = joins.node(names[0], names[1], kept=kept)
        return one[0] + other[0] + here, (one[1], other[1])

    def cheapest(*, kept: bool) -> tuple[float, Shape]:
        return min((joined(*split, kept=kept) for split in splits), key=lambda found: found[0])

    return cheapest(kept=False), cheapest(kept=True)


def _neighbours(count: int) -> list[tuple[int, int]]:
    return [(k, k + 1) for k in range(count - 1)]


def _any_two(count: int) -> list[tuple[int, int]]:
    return list(combinations(range(count), 2))


def _greedy(
    joins: Joins, parts: Sequence[Shape], pairs: Callable[[int], list[tuple[int, int]]]
) -> Shape:
    """Always joins the two sides that leave the fewest results."""
    left = list(parts)
    while len(left) > 1:
        names = [frozenset(leaves(s)) for s in left]

        def price(pair: tuple[int, int], names: list[Names] = names) -> tuple[float, float]:
            one, other = names[pair[0]], names[pair[1]]
            return joins.kept(one | other), joins.node(one, other, kept=True)

        one, other = min(pairs(len(left)), key=price)
        left[one] = (left[one], left[other])
        del left[other]
    return left[0]
