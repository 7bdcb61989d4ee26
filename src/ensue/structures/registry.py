"""Which structure holds the partial matches of a plan. A new one is a folder and a line here."""

from typing import Any

from ensue.plan import physical
from ensue.plan.physical import Automaton, Compact, Reference, Stacks, Tree
from ensue.structures.compact.structure import COMPACT
from ensue.structures.contract import Structure
from ensue.structures.runs.structure import RUNS
from ensue.structures.stacks.structure import STACKS
from ensue.structures.tree.structure import TREE


def structure_of(node: physical.Structure) -> Structure[Any]:
    """The structure of a plan's node, or an error that names the node."""
    match node:
        case Automaton():
            return RUNS
        case Stacks():
            return STACKS
        case Tree():
            return TREE
        case Compact():
            return COMPACT
        case Reference():
            raise TypeError(f"a plan for the reference path has no kernel: {node.reason}")
    raise TypeError(f"no structure is registered for {type(node).__name__}: see {__name__}")
