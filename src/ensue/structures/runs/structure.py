"""Runs along an automaton as the engine takes them."""

from ensue.structures.contract import Structure
from ensue.structures.runs.state import RunsState
from ensue.structures.runs.writer import runs_source

RUNS = Structure(runs_source, RunsState)
