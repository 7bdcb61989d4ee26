"""Nodes of a join tree with the properties of their position, and the windows of modules."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from ensue.cached import cached_property
from ensue.codegen.kernel_inputs import KernelContext
from ensue.codegen.names import KernelNames
from ensue.ir.selection import ByEvents
from ensue.planner.hierarchy_modules import find_enclosing_modules
from ensue.planner.join_operators import PartOrder
from ensue.planner.physical_plan import ApplyNode, JoinNode, JoinTree, LeafNode, PhysicalPlan, TreeNode


@dataclass(slots=True, eq=False)
class PlacedNode:
    """A node, its neighbours, and whether its results are stored."""

    node: TreeNode
    number: int
    parts: tuple["PlacedNode", ...] = ()
    parent: Optional["PlacedNode"] = None
    least: int = 1  # events of a Kleene leaf; 1 for others
    kleene: bool = False
    called: str = ""  # the suffix of its names in the source

    @property
    def list(self) -> str:
        """The name of the list of its results."""
        return f"#{self.number}"

    @property
    def variable(self) -> str:
        assert isinstance(self.node, LeafNode)
        return self.node.variable

    @property
    def is_left(self) -> bool:
        return self.parent is not None and self.parent.parts[0] is self

    @property
    def sibling(self) -> Optional["PlacedNode"]:
        if self.parent is None or len(self.parent.parts) < 2:
            return None
        return self.parent.parts[1 if self.is_left else 0]

    @property
    def natural(self) -> bool:
        """Whether its results last from the first start to the last end."""
        return self.starts_naturally and self.ends_naturally

    @property
    def starts_naturally(self) -> bool:
        """Whether its results start with their first event."""
        if isinstance(self.node, LeafNode):
            return True
        parts = all(part.starts_naturally for part in self.parts)
        return parts and self.node.operator.starts_naturally

    @property
    def ends_naturally(self) -> bool:
        """Whether its results end with their last event."""
        if isinstance(self.node, LeafNode):
            return True
        parts = all(part.ends_naturally for part in self.parts)
        return parts and self.node.operator.ends_naturally

    @property
    def is_derived(self) -> bool:
        """Whether its results are derived events, not combinations of parts."""
        if isinstance(self.node, LeafNode):
            return False
        operator = self.node.operator
        return bool(self.node.variable or operator.fits or operator.builds)

    @property
    def is_sequence(self) -> bool:
        """Whether its left part is before its right part."""
        return isinstance(self.node, JoinNode) and self.node.operator.order is PartOrder.BEFORE

    @property
    def remembers(self) -> bool:
        """Whether it reads the previous event."""
        return isinstance(self.node, ApplyNode) and self.node.operator.remembers

    @property
    def in_order(self) -> bool:
        """Whether the left part's results are complete before the right part begins."""
        return self.is_sequence and self.parts[0].ends_naturally and self.parts[1].starts_naturally

    @property
    def flows(self) -> bool:
        """Whether the left part's results are complete before the right part's are."""
        return self.is_sequence and self.parts[0].ends_naturally

    @property
    def waits(self) -> bool:
        """Whether its results wait for results of the other side."""
        return self.sibling is not None and (self.is_left or not self._parent.flows)

    @property
    def kept(self) -> bool:
        """Whether its results are stored: they wait, or are chains that grow."""
        return self.waits or self.kleene

    @property
    def _parent(self) -> "PlacedNode":
        assert self.parent is not None
        return self.parent

    @property
    def optional(self) -> bool:
        """Whether a match may have no event of this node."""
        if isinstance(self.node, LeafNode):
            return self.kleene and self.least == 0
        return all(part.optional for part in self.parts)

    @property
    def first_leaf(self) -> Optional["PlacedNode"]:
        """The leaf with which every result begins, if it is always the same."""
        if isinstance(self.node, LeafNode):
            return self
        if self.in_order and not self.parts[0].optional:
            return self.parts[0].first_leaf
        return None

    @property
    def rip_of(self) -> Optional["PlacedNode"]:
        """For a leaf: the node whose results precede those that the leaf begins."""
        spot = self
        while spot.parent is not None:
            if spot.parent.in_order and not spot.is_left:
                return spot.sibling if spot.first_leaf is self else None
            spot = spot.parent
        return None

    def leaves(self) -> Iterator["PlacedNode"]:
        return (spot for spot in self.walk() if isinstance(spot.node, LeafNode))

    def walk(self) -> Iterator["PlacedNode"]:
        yield self
        for part in self.parts:
            yield from part.walk()


def place_nodes(root: TreeNode, plan: PhysicalPlan, names: KernelNames) -> PlacedNode:
    """Numbers the nodes of a plan's tree from the root."""
    number = 0

    def visit(node: TreeNode) -> PlacedNode:
        nonlocal number
        spot = PlacedNode(node, number, called=str(number))
        number += 1
        match node:
            case LeafNode(variable=variable):
                if names.readable:
                    spot.called = f"_{names.variable(variable)}"
                kleene = plan.role(variable).kleene
                if kleene is not None:
                    spot.kleene, spot.least = True, kleene.least
            case JoinNode(left=left, right=right):
                spot.parts = (visit(left), visit(right))
            case ApplyNode(part=part):
                spot.parts = (visit(part),)
        for child in spot.parts:
            child.parent = spot
        return spot

    return visit(root)


# Modules of a hierarchy: the rules of the EH-tree.


class TreeModules:
    """The windows of nodes, and the precursors of complex events."""

    def __init__(self, frame: KernelContext, tree: JoinTree, root: PlacedNode) -> None:
        self.frame = frame
        self.tree = tree
        self.root = root

    def limit(self, place: PlacedNode) -> int | float | None:
        """The maximum duration of a node's result: the least window of the enclosing levels.

        Conditions evaluate windows that count events.
        """
        windows = [] if self.frame.by_events else [self.frame.window]
        if self.frame.plan.prune:
            names = frozenset(leaf.variable for leaf in place.leaves())
            windows += [
                self.frame.length(module.within)
                for module in find_enclosing_modules(self.tree.modules, names)
                if not isinstance(module.within, ByEvents)
            ]
        return min((w for w in windows if w is not None), default=None)

    def limit_text(self, place: PlacedNode) -> str:
        """The same in a kernel's source; empty: unbounded."""
        limit = self.limit(place)
        if limit is None:
            return ""
        if not self.tree.modules:
            return self.frame.window_text
        return self.frame.constants.slot(limit, f"window_at{place.called}")

    def limits(self) -> dict[str, float]:
        """How long the entries of a list wait, where a module ends that before the query does.

        An entry waits to be joined at its parent node. Chains are stored for all entries that
        refer to them.
        """
        limits: dict[str, float] = {}
        for spot in self.root.walk():
            if spot.kept and not spot.kleene and spot.parent is not None:
                self._shorter(limits, spot.list, spot.parent)
            if not isinstance(spot.node, LeafNode):
                for absence in spot.node.absences:
                    if absence.after:
                        self._shorter(limits, absence.variable, spot)
        return limits

    def _shorter(self, limits: dict[str, float], name: str, place: PlacedNode) -> None:
        limit = self.limit(place)
        if limit is not None and (limit != self._query_limit or self.frame.by_events):
            limits[name] = limit

    @cached_property
    def _query_limit(self) -> int | float | None:
        return self.limit(self.root)

    def openings(self, leaf: PlacedNode) -> Iterator[PlacedNode]:
        """The joins, from the leaf upwards, with a complex event around the leaf on the right.

        The results of their left side are the precursors: without one inside the window, the event
        leads to no match. A join that the event reaches at once searches for them itself.
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
