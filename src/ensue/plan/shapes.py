"""Join trees: what a shape costs, and the shape that costs least.

A shape is a variable or a pair of shapes: `(("a", "b"), "c")` joins a and b first. Every node
keeps its results of a window; a new result of one side meets those of the other side.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import expm1, factorial, prod

from ensue.algebra.operator import Over
from ensue.algebra.pattern import And, Apply, Atom, Kleene, Not, Pattern, Seq
from ensue.algebra.predicate import Expr
from ensue.algebra.query import Query
from ensue.algebra.walk import kleenes, positives, results, variables
from ensue.plan.cost import (
    COMPARE,
    EMIT,
    FETCH,
    NEW,
    PUSH,
    VISIT,
    Trial,
    cheapest_first,
    node_cost,
    trial_of,
    trying,
)
from ensue.plan.decisions import Estimate
from ensue.plan.load import MOST, Load
from ensue.plan.planning import Shape

MOST_IN_SEQUENCE = 16  # parts of a sequence whose trees are all weighed
MOST_IN_ANY_ORDER = 8  # parts of a conjunction, likewise

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
    _kept: dict[Names, float] = field(default_factory=dict)

    @cached_property
    def _places(self) -> dict[str, tuple[tuple[Pattern, int], ...]]:
        """For each variable, the operators around it and its place in them."""
        found: dict[str, tuple[tuple[Pattern, int], ...]] = {}

        def visit(pattern: Pattern, around: tuple[tuple[Pattern, int], ...]) -> None:
            match pattern:
                case Atom(variable=variable) | Kleene(atom=Atom(variable=variable)):
                    found[variable] = around
                case Seq(parts=parts) | And(parts=parts):
                    for place, part in enumerate(parts):
                        if not isinstance(part, Not):
                            visit(part, (*around, (pattern, place)))
                case Apply(inputs=inputs):
                    for place, part in enumerate(inputs):
                        visit(part, (*around, (pattern, place)))
                case _:
                    raise ValueError("only sequences and conjunctions of events are joined")

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
                return _is_sequence(pattern) and here < there
        return False

    def kept(self, names: Names) -> float:
        """How many results over these variables a window holds, in one partition."""
        if names not in self._kept:
            meeting = prod(self._events(v) for v in names) * self._arranged(self.pattern, names)
            known = self._known(names)
            within = [c for c in self.conditions if variables(c) <= known]
            users = prod(a.operator.passes for a in self._applied(names))
            self._kept[names] = min(MOST, meeting * users * self.load.passes(within))
        return self._kept[names]

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
        match pattern:
            case Seq(parts=parts) | And(parts=parts) | Apply(inputs=parts):
                inner = [p for p in parts if not isinstance(p, Not)]
                sizes = [len(_names(p) & names) for p in inner]
                chance = prod(self._arranged(p, names) for p in inner)
                if _is_sequence(pattern):
                    chance *= prod(map(factorial, sizes)) / factorial(sum(sizes))
                return chance
            case _:
                return 1.0

    # ------------------------------------------------------------------------ nodes

    def between(self, left: Names, right: Names) -> tuple[Expr, ...]:
        """The conditions tried where two sides meet, in their order (rule 2)."""
        both, left, right = (self._known(side) for side in (left | right, left, right))
        found = [
            c
            for c in self.conditions
            if variables(c) <= both and not variables(c) <= left and not variables(c) <= right
        ]
        if not self.ordered:
            return tuple(found)
        return cheapest_first(found, lambda c: trial_of(c, self.load.statistics))

    def node(self, left: Names, right: Names) -> float:
        """What joining two sides costs, an event."""
        pairs = self.kept(left) * self.kept(right)
        size = len(left) + len(right)
        time = Trial(0.0, 1.0)
        if self.in_sequence(left, right):
            pairs *= len(right) / size  # it is a new right side that looks for left sides
            chance = factorial(len(left)) * factorial(len(right)) / factorial(size)
            time = Trial(COMPARE + 2 * FETCH, min(1.0, chance * size / len(right)))
        tests = [Trial(a.operator.cost * COMPARE, a.operator.passes)
                 for a in self._applied(left | right)
                 if not _names(a) <= left and not _names(a) <= right]  # fmt: skip
        tests += [trial_of(c, self.load.statistics) for c in self.between(left, right)]
        last = left | right == _names(self.pattern)
        each = VISIT + node_cost(time, trying(tests), EMIT if last else NEW)
        return min(MOST, pairs * size / self.load.window * each)

    def cost(self, shape: Shape) -> float:
        """What a whole tree costs, an event: the sum over its nodes (10)."""
        if isinstance(shape, str):
            return self.load.chances[shape] * PUSH
        left, right = shape
        here = self.node(frozenset(leaves(left)), frozenset(leaves(right)))
        return min(MOST, self.cost(left) + self.cost(right) + here)

    def estimate(self, shape: Shape) -> Estimate:
        """The figures of a tree: what it costs, keeps and finds."""
        inner = [frozenset(leaves(s)) for s in _parts(shape) if s != shape]
        whole = frozenset(leaves(shape))
        matches = self.kept(whole) * len(whole) / self.load.window
        kept = sum(map(self.kept, inner)) * self.load.partitions
        return Estimate(self.cost(shape), min(kept, MOST), min(matches, MOST))


def _is_sequence(pattern: Pattern) -> bool:
    """Whether its parts come one after the other."""
    match pattern:
        case Apply(operator=operator):
            return operator.over is Over.PAIR and operator.in_order
        case _:
            return isinstance(pattern, Seq)


def _names(pattern: Pattern) -> Names:
    return frozenset(a.variable for a in positives(pattern))


def _parts(shape: Shape) -> Iterator[Shape]:
    yield shape
    if not isinstance(shape, str):
        for part in shape:
            yield from _parts(part)


# ---------------------------------------------------------------------------------- the best


def can_be_joined(query: Query) -> bool:
    """Whether a pattern is made of sequences and conjunctions of events only."""

    def fits(pattern: Pattern) -> bool:
        match pattern:
            case Atom() | Kleene():
                return True
            case Seq(parts=parts) | And(parts=parts):
                return all(fits(p) for p in parts if not isinstance(p, Not))
            case _:
                return False

    return fits(query.pattern)


def best_shape(joins: Joins) -> Shape:
    """The shape that costs least: exact for few parts, else always the cheapest next join."""
    return _best(joins, joins.pattern)


def _best(joins: Joins, pattern: Pattern) -> Shape:
    match pattern:
        case Atom(variable=variable) | Kleene(atom=Atom(variable=variable)):
            return variable
        case Seq(parts=parts):
            found = [_best(joins, p) for p in parts if not isinstance(p, Not)]
            return (_by_intervals if len(found) <= MOST_IN_SEQUENCE else _greedy_in_sequence)(
                joins, found
            )
        case And(parts=parts):
            found = [_best(joins, p) for p in parts if not isinstance(p, Not)]
            return (_by_subsets if len(found) <= MOST_IN_ANY_ORDER else _greedy_in_any_order)(
                joins, found
            )
        case Apply(inputs=(left, right)):
            return (_best(joins, left), _best(joins, right))
        case Apply(inputs=(part,)):
            return _best(joins, part)
        case _:
            raise ValueError("only sequences and conjunctions of events are joined")


def _by_intervals(joins: Joins, parts: Sequence[Shape]) -> Shape:
    """Neighbours are joined: the best tree of an interval is made of best trees."""
    best: dict[tuple[int, int], tuple[float, Shape]] = {
        (k, k + 1): (joins.cost(part), part) for k, part in enumerate(parts)
    }
    for length in range(2, len(parts) + 1):
        for start in range(len(parts) - length + 1):
            end = start + length
            best[start, end] = min(
                (
                    _joined(joins, best[start, middle], best[middle, end])
                    for middle in range(end - 1, start, -1)  # ties: joined from the left
                ),
                key=lambda found: found[0],
            )
    return best[0, len(parts)][1]


def _by_subsets(joins: Joins, parts: Sequence[Shape]) -> Shape:
    """Any two sides may be joined."""
    best: dict[frozenset[int], tuple[float, Shape]] = {
        frozenset([k]): (joins.cost(part), part) for k, part in enumerate(parts)
    }
    for size in range(2, len(parts) + 1):
        for chosen in combinations(range(len(parts)), size):
            whole = frozenset(chosen)
            best[whole] = min(
                (_joined(joins, best[whole - right], best[right]) for right in _halves(chosen)),
                key=lambda found: found[0],
            )
    return best[frozenset(range(len(parts)))][1]


def _halves(chosen: tuple[int, ...]) -> Iterator[frozenset[int]]:
    """Each way to split a set in two, by the side without its first member; small ones first."""
    for size in range(1, len(chosen)):
        for right in reversed(list(combinations(chosen[1:], size))):
            yield frozenset(right)


def _joined(
    joins: Joins, left: tuple[float, Shape], right: tuple[float, Shape]
) -> tuple[float, Shape]:
    names = [frozenset(leaves(side[1])) for side in (left, right)]
    return left[0] + right[0] + joins.node(names[0], names[1]), (left[1], right[1])


def _greedy_in_sequence(joins: Joins, parts: Sequence[Shape]) -> Shape:
    return _greedy(joins, parts, lambda count: [(k, k + 1) for k in range(count - 1)])


def _greedy_in_any_order(joins: Joins, parts: Sequence[Shape]) -> Shape:
    return _greedy(joins, parts, lambda count: list(combinations(range(count), 2)))


def _greedy(
    joins: Joins, parts: Sequence[Shape], pairs: Callable[[int], list[tuple[int, int]]]
) -> Shape:
    left = list(parts)
    while len(left) > 1:
        names = [frozenset(leaves(s)) for s in left]

        def price(pair: tuple[int, int], names: list[Names] = names) -> tuple[float, float]:
            one, other = names[pair[0]], names[pair[1]]
            return joins.kept(one | other), joins.node(one, other)

        one, other = min(pairs(len(left)), key=price)
        left[one] = (left[one], left[other])
        del left[other]
    return left[0]
