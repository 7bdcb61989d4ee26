"""Join trees as the engine takes them."""

from ensue.structures.contract import Structure
from ensue.structures.tree.state import TreeState
from ensue.structures.tree.writer import tree_source

TREE = Structure(tree_source, TreeState)
