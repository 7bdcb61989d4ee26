"""How long values have to wait for each other, from the conditions on their times.

Each condition bounds a difference of two points in time. What follows from all of them together
is found by shortest paths; the end of a group is no later than the latest of its parts' ends.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ensue.algebra.alternatives import Alternative, Gone, Group, Later, Point
from ensue.algebra.subscription import Length, Moment

Number = int | float
NOW = ("moment", frozenset[int](), True)
_Node = tuple[str, Group, bool]  # ("group", parts, end)


@dataclass
class Waiting:
    """The differences of times that an alternative allows."""

    lengths: Callable[[Length | None], Number]
    moments: Callable[[Moment], Number]
    instants: Group  # parts that start and end at the same time
    _edges: dict[tuple[_Node, _Node], Number] = field(default_factory=dict)  # (v, u): v - u <= c
    _groups: set[Group] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        way: Alternative,
        units: Iterable[Group],
        lengths: Callable[[Length | None], Number],
        moments: Callable[[Moment], Number],
        *,
        points: bool,
        span: float = math.inf,
    ) -> "Waiting":
        """`span`: greatest end - least start of all parts, as far as it is known otherwise."""
        events = (n for n, part in enumerate(way.parts) if not isinstance(part, Gone))
        found = cls(lengths, moments, frozenset(events) if points else frozenset())
        for group in (*units, *(frozenset((n,)) for n in range(len(way.parts)))):
            found._add(group)
        for condition in way.conditions:
            if isinstance(condition, Later):
                found._later(condition)
        for number, part in enumerate(way.parts):
            if isinstance(part, Gone):
                found._gone(number, part)
        if span < math.inf and way.root:
            found._add(way.root)
            found._edge(_end(way.root), _start(way.root), span)
        found._relate()
        return found

    def longest(self, waiting: Group, others: Group) -> float:
        """How long after the end of a group all of the others have ended, at the most."""
        return self._longest(_end(waiting), others)

    def longest_behind(self, point: Point, others: Group) -> float:
        """The same, after a point."""
        return self._longest(self._node(point), others)

    def _longest(self, source: _Node, others: Group) -> float:
        distance: dict[_Node, float] = {source: 0.0}
        nodes = 2 * len(self._groups) + 2
        for _ in range(nodes):
            changed = False
            for (v, u), c in self._edges.items():
                far = distance.get(u, math.inf) + c
                if far < distance.get(v, math.inf):
                    distance[v] = far
                    changed = True
            for group in self._groups:
                if len(group) > 1:
                    far = max(distance.get(_end(frozenset((p,))), math.inf) for p in group)
                    if far < distance.get(_end(group), math.inf):
                        distance[_end(group)] = far
                        changed = True
            if not changed:
                break
        return max((distance.get(_end(frozenset((p,))), math.inf) for p in others), default=0.0)

    # ---------------------------------------------------------------------------- edges

    def _add(self, group: Group) -> None:
        if group:
            self._groups.add(group)

    def _edge(self, v: _Node, u: _Node, c: Number) -> None:
        """v is at most c behind u."""
        if c < self._edges.get((v, u), math.inf):
            self._edges[v, u] = c

    def _node(self, point: Point) -> _Node:
        if isinstance(point.of, Moment):
            return NOW
        self._add(point.of)
        return _end(point.of) if point.end else _start(point.of)

    def _shift(self, point: Point) -> Number:
        """Where a point is against its node: moments are counted from 0."""
        return self.moments(point.of) if isinstance(point.of, Moment) else 0

    def _later(self, condition: Later) -> None:
        later, earlier = self._node(condition.later), self._node(condition.earlier)
        shift = self._shift(condition.earlier) - self._shift(condition.later)
        by = self.lengths(condition.by) + shift
        if condition.most:
            self._edge(later, earlier, by)
        else:
            self._edge(earlier, later, -by)

    def _gone(self, number: int, gone: Gone) -> None:
        mine = frozenset((number,))
        since, until = self._node(gone.since), self._node(gone.until)
        _both(self, _start(mine), since, self._shift(gone.since))
        _both(self, _end(mine), until, self._shift(gone.until) + self.lengths(gone.length))

    def _relate(self) -> None:
        for group in self._groups:
            self._edge(_start(group), _end(group), 0)
            if len(group) == 1 and group <= self.instants:
                self._edge(_end(group), _start(group), 0)
            for other in self._groups:
                if group < other:
                    self._edge(_start(other), _start(group), 0)
                    self._edge(_end(group), _end(other), 0)


def _both(waiting: Waiting, v: _Node, u: _Node, c: Number) -> None:
    waiting._edge(v, u, c)
    waiting._edge(u, v, -c)


def _start(group: Group) -> _Node:
    return "group", group, False


def _end(group: Group) -> _Node:
    return "group", group, True
