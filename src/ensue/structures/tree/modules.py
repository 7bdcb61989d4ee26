"""What the modules of a hierarchy mean for the nodes of a join tree: the EH-Tree's rules.

A partial result inside a module is of no use once the least window of all modules around it is
over (H4), and none is begun while nothing waits for the module's box (H3).
"""

from collections.abc import Iterator

from ensue.algebra.window import ByEvents
from ensue.computed import cached_property
from ensue.plan.physical import Leaf, Tree
from ensue.plan.towers.modules import around
from ensue.source.kernel_inputs import Frame
from ensue.structures.tree.nodes import Spot


class TreeModules:
    """The windows of nodes, and the boxes that an event opens."""

    def __init__(self, frame: Frame, tree: Tree, root: Spot) -> None:
        self.frame = frame
        self.tree = tree
        self.root = root

    # -------------------------------------------------------------------------- windows

    def limit(self, place: Spot) -> int | float | None:
        """How long a result of a node may last: the least window of the levels it is inside.

        Windows that count events are left to the conditions.
        """
        windows = [] if self.frame.by_events else [self.frame.window]
        if self.frame.plan.prune:
            names = frozenset(leaf.variable for leaf in place.leaves())
            windows += [
                self.frame.length(module.within)
                for module in around(self.tree.modules, names)
                if not isinstance(module.within, ByEvents)
            ]
        return min((w for w in windows if w is not None), default=None)

    def limit_text(self, place: Spot) -> str:
        """The same in a kernel's source; empty: as long as it likes."""
        limit = self.limit(place)
        if limit is None:
            return ""
        if not self.tree.modules:
            return self.frame.window_text
        return self.frame.constants.slot(limit, f"window_at{place.called}")

    def limits(self) -> dict[str, float]:
        """How long the entries of a list wait, where a module ends that before the query does.

        An entry waits to be joined at the node above it. Chains are kept for all that leads to
        them.
        """
        found: dict[str, float] = {}
        for spot in self.root.walk():
            if spot.kept and not spot.kleene and spot.parent is not None:
                self._shorter(found, spot.list, spot.parent)
            if not isinstance(spot.node, Leaf):
                for absence in spot.node.absences:
                    if absence.after:
                        self._shorter(found, absence.variable, spot)
        return found

    def _shorter(self, found: dict[str, float], name: str, place: Spot) -> None:
        limit = self.limit(place)
        if limit is not None and (limit != self._whole or self.frame.by_events):
            found[name] = limit

    @cached_property
    def _whole(self) -> int | float | None:
        return self.limit(self.root)

    # -------------------------------------------------------------------------- precursors

    def openings(self, leaf: Spot) -> Iterator[Spot]:
        """The joins, from the leaf upwards, that have a box around the leaf on their right side.

        Their left side's results are the precursors: without one that is still in time, nothing
        comes of the event. A join that the event meets at once looks for them itself.
        """
        if not self.tree.parked:
            return
        spot = leaf
        while spot.parent is not None:
            place, right = spot.parent, not spot.is_left
            if place.in_order and right and (spot is not leaf or leaf.kleene):
                waiting = place.parts[0]
                if not waiting.optional:
                    yield place
            spot = place
