"""Join trees as the engine takes them."""

from ensue.plan.physical import Plan, Tree
from ensue.plan.physical_rules.ordering import as_written
from ensue.structures.contract import Structure
from ensue.structures.tree.state import TreeState
from ensue.structures.tree.writer import tree_source


def tree_identity(plan: Plan) -> str:
    """What an entry holds depends on the whole tree."""
    tree = plan.structure
    assert isinstance(tree, Tree)
    modules = "".join(repr(module) for module in tree.modules)
    return repr(as_written(tree, plan.query.where)) + modules


TREE = Structure(tree_source, TreeState, tree_identity)
