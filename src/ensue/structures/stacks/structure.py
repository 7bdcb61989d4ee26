"""Instance stacks as the engine takes them."""

from ensue.structures.contract import Structure
from ensue.structures.stacks.state import StacksState
from ensue.structures.stacks.writer import stacks_source

STACKS = Structure(stacks_source, StacksState)
