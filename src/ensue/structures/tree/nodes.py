"""The nodes of a join tree with what their place in it means."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from ensue.plan.physical import Apply, Join, Leaf, Node, Plan
from ensue.plan.physical_rules.operators import Order
from ensue.source.names import Names


@dataclass(slots=True, eq=False)
class Spot:
    """A node, its neighbours, and which of its results are kept."""

    node: Node
    number: int
    parts: tuple["Spot", ...] = ()
    parent: Optional["Spot"] = None
    least: int = 1  # events of a Kleene leaf; 1 for others
    kleene: bool = False
    called: str = ""  # by which names in the source tell it from others

    @property
    def list(self) -> str:
        """The name of the list of its results."""
        return f"#{self.number}"

    @property
    def variable(self) -> str:
        assert isinstance(self.node, Leaf)
        return self.node.variable

    @property
    def is_left(self) -> bool:
        return self.parent is not None and self.parent.parts[0] is self

    @property
    def sibling(self) -> Optional["Spot"]:
        if self.parent is None or len(self.parent.parts) < 2:
            return None
        return self.parent.parts[1 if self.is_left else 0]

    @property
    def natural(self) -> bool:
        """Whether its results last from their first start to their last end."""
        return self.starts_naturally and self.ends_naturally

    @property
    def starts_naturally(self) -> bool:
        """Whether its results start with their first event."""
        if isinstance(self.node, Leaf):
            return True
        parts = all(part.starts_naturally for part in self.parts)
        return parts and self.node.operator.starts_naturally

    @property
    def ends_naturally(self) -> bool:
        """Whether its results end with their last event."""
        if isinstance(self.node, Leaf):
            return True
        parts = all(part.ends_naturally for part in self.parts)
        return parts and self.node.operator.ends_naturally

    @property
    def is_made(self) -> bool:
        """Whether its results are events of their own, not parts that stand together."""
        if isinstance(self.node, Leaf):
            return False
        operator = self.node.operator
        return bool(self.node.variable or operator.fits or operator.builds)

    @property
    def is_sequence(self) -> bool:
        """Whether its left part is before its right part."""
        return isinstance(self.node, Join) and self.node.operator.order is Order.BEFORE

    @property
    def remembers(self) -> bool:
        """Whether it asks for the event before."""
        return isinstance(self.node, Apply) and self.node.operator.remembers

    @property
    def in_order(self) -> bool:
        """Whether the left part's results are there before the right part begins."""
        return self.is_sequence and self.parts[0].ends_naturally and self.parts[1].starts_naturally

    @property
    def flows(self) -> bool:
        """Whether the left part's results are there before the right part's are complete."""
        return self.is_sequence and self.parts[0].ends_naturally

    @property
    def waits(self) -> bool:
        """Whether its results wait for results of the other side."""
        return self.sibling is not None and (self.is_left or not self._parent.flows)

    @property
    def kept(self) -> bool:
        """Whether its results are kept: they wait, or are chains that grow."""
        return self.waits or self.kleene

    @property
    def _parent(self) -> "Spot":
        assert self.parent is not None
        return self.parent

    @property
    def optional(self) -> bool:
        """Whether a match may have no event of this node."""
        if isinstance(self.node, Leaf):
            return self.kleene and self.least == 0
        return all(part.optional for part in self.parts)

    @property
    def first_leaf(self) -> Optional["Spot"]:
        """The leaf that every result begins with, if it is always the same."""
        if isinstance(self.node, Leaf):
            return self
        if self.in_order and not self.parts[0].optional:
            return self.parts[0].first_leaf
        return None

    @property
    def rip_of(self) -> Optional["Spot"]:
        """Of a leaf: the node whose results stand before those that the leaf begins."""
        spot = self
        while spot.parent is not None:
            if spot.parent.in_order and not spot.is_left:
                return spot.sibling if spot.first_leaf is self else None
            spot = spot.parent
        return None

    def leaves(self) -> Iterator["Spot"]:
        return (spot for spot in self.walk() if isinstance(spot.node, Leaf))

    def walk(self) -> Iterator["Spot"]:
        yield self
        for part in self.parts:
            yield from part.walk()


def spots_of(root: Node, plan: Plan, names: Names) -> Spot:
    """The tree of a plan, its nodes numbered from the root."""
    number = 0

    def visit(node: Node) -> Spot:
        nonlocal number
        spot = Spot(node, number, called=str(number))
        number += 1
        match node:
            case Leaf(variable=variable):
                if names.readable:
                    spot.called = f"_{names.variable(variable)}"
                kleene = plan.role(variable).kleene
                if kleene is not None:
                    spot.kleene, spot.least = True, kleene.least
            case Join(left=left, right=right):
                spot.parts = (visit(left), visit(right))
            case Apply(part=part):
                spot.parts = (visit(part),)
        for child in spot.parts:
            child.parent = spot
        return spot

    return visit(root)
