"""The modules of a hierarchy in the text of a join tree: its boxes, and what they wait for."""

from collections.abc import Iterator

from ensue.algebra.text import show_name, show_window
from ensue.plan.physical import Apply, Join, Leaf, Node, Tree
from ensue.plan.physical_rules.operators import Order
from ensue.plan.physical_rules.tree import leaf_names, tree_text
from ensue.plan.towers.modules import Module


def boxes(tree: Tree, node: Node) -> Iterator[str]:
    """The headers of the modules whose root a node is, the outer ones first."""
    names = set(leaf_names(node))
    everything = set(leaf_names(tree.root))
    for module in sorted(tree.modules, key=lambda m: m.level):
        if set(module.variables) & everything == names:
            yield ", ".join(_header(tree, node, module))


def _header(tree: Tree, node: Node, module: Module) -> Iterator[str]:
    yield f"box {show_name(module.box)}: {show_name(module.name)}"
    yield f"level {module.level}"
    if module.within is not None:
        yield f"within {show_window(module.within)}"
    waiting = _precursors(tree.root, node)
    if tree.parked and waiting is not None:
        yield f"begun only while {tree_text(waiting)} waits"


def _precursors(here: Node, node: Node) -> Node | None:
    """What stands before a node: the left side of the nearest sequence around it."""
    match here:
        case Join(left=left, right=right, operator=operator):
            if node is not right and (inner := _precursors(right, node)) is not None:
                return inner
            if operator.order is Order.BEFORE and _holds(right, node):
                return left
            return _precursors(left, node)
        case Apply(part=part):
            return _precursors(part, node)
        case Leaf():
            return None


def _holds(here: Node, node: Node) -> bool:
    match here:
        case Join(left=left, right=right):
            return here is node or _holds(left, node) or _holds(right, node)
        case Apply(part=part):
            return here is node or _holds(part, node)
        case Leaf():
            return here is node
