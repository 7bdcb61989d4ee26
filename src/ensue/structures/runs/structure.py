"""Runs along an automaton as the engine takes them."""

from ensue.plan.physical import Automaton
from ensue.plan.physical_rules.code_size import shares_code
from ensue.source.kernel_inputs import Frame
from ensue.structures.contract import Structure
from ensue.structures.runs.shared import SharedWriter
from ensue.structures.runs.source import RunsSource
from ensue.structures.runs.state import RunsState
from ensue.structures.runs.writer import RunsWriter


def runs_source(frame: Frame) -> RunsSource:
    """The kernel of an automaton."""
    structure = frame.plan.structure
    assert isinstance(structure, Automaton)
    shared = shares_code(structure, frame.plan.query.strategy)
    return (SharedWriter if shared else RunsWriter)(frame).written()


RUNS = Structure(runs_source, RunsState)
