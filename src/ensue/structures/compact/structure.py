"""Compact structures as the engine takes them."""

from ensue.structures.compact.state import CompactState
from ensue.structures.compact.writer import compact_source
from ensue.structures.contract import Structure

COMPACT = Structure(compact_source, CompactState)
