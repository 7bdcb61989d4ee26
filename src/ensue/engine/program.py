"""A plan made executable: the compiled kernel and the shape of its state."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import types as nb

from ensue.columns.arrow_kinds import Unit
from ensue.computed import cached_property
from ensue.plan.physical import Automaton, Compact, Plan, Stacks, Tree
from ensue.plan.physical_rules.ordering import as_written
from ensue.schema import Schema
from ensue.source.cache import compiled
from ensue.source.counting import TABLE
from ensue.source.expressions import Feature
from ensue.source.kernel_inputs import Frame
from ensue.source.operator_functions import know
from ensue.structures.compact.nodes import TIME_STATE
from ensue.structures.compact.writer import CompactSource, compact_source
from ensue.structures.runs.writer import STATE as RUN_STATE
from ensue.structures.runs.writer import RunsSource, runs_source
from ensue.structures.stacks.writer import STATE as STACK_STATE
from ensue.structures.stacks.writer import StacksSource, stacks_source
from ensue.structures.tree.writer import STATE as TREE_STATE
from ensue.structures.tree.writer import TreeSource, tree_source


def _readonly(kind: numba.types.Type) -> numba.types.Type:
    return nb.Array(kind, 1, "C", readonly=True)


WHOLE, REAL, INT32, INT64 = (
    nb.Array(nb.int64, 2, "C"),
    nb.Array(nb.float64, 2, "C"),
    nb.Array(nb.int32, 1, "C"),
    nb.Array(nb.int64, 1, "C"),
)
STATE_TYPES = {
    "head": nb.Array(nb.int32, 2, "C"),
    "live": INT32,
    "nxt": INT32,
    "I": WHOLE,
    "F": REAL,
    "N": WHOLE,
    "NF": REAL,
    "A": WHOLE,
    "AF": REAL,
    "tops": nb.Array(nb.int32, 2, "C"),
    "counts": INT64,
    TABLE: WHOLE,
    "K": WHOLE,
    "KF": REAL,
    "L": WHOLE,
    "LF": REAL,
    "O": WHOLE,
    "meta": INT64,
}
CONSTANTS = (_readonly(nb.int64), _readonly(nb.float64))
Constants = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Program:
    """A compiled plan.

    Two programs of one plan differ only in whether events may lack values, and in counting.
    """

    plan: Plan
    schema: Schema
    unit: Unit
    nullable: bool
    counted: bool = False  # the kernel counts what it tries
    frame: Frame = field(init=False)
    source: RunsSource | StacksSource | TreeSource | CompactSource = field(init=False)
    constants: Constants = field(init=False, compare=False)  # that kernels are given

    def __post_init__(self) -> None:
        frame = kernel_frame(
            self.plan, self.schema, self.unit, self.nullable, counted=self.counted
        )
        object.__setattr__(self, "frame", frame)
        object.__setattr__(self, "source", kernel_source(frame))
        object.__setattr__(self, "constants", frame.constants.arrays())

    @property
    def features(self) -> tuple[Feature, ...]:
        return self.frame.features.all()

    @property
    def lists(self) -> int:
        """How many lists of runs a partition has."""
        structure = self.plan.structure
        return 2 * len(structure.states) if isinstance(structure, Automaton) else 0

    @property
    def state_names(self) -> list[str]:
        return [*self._own_state, *self.frame.tally.tables]

    @property
    def _own_state(self) -> list[str]:
        match self.source:
            case RunsSource():
                return RUN_STATE
            case StacksSource():
                return STACK_STATE
            case TreeSource():
                return [*TREE_STATE, *(("L", "LF") if self.source.memory.width else ())]
            case CompactSource():
                return list(self.source.state)

    @property
    def returned(self) -> tuple[str, ...]:
        """The tables that the kernel gives back beside its code: it may have made them larger."""
        match self.source:
            case RunsSource():
                return ()
            case StacksSource():
                return ("O",)
            case TreeSource():
                return self.source.returned
            case CompactSource():
                return tuple(self.source.growing)

    @cached_property
    def step(self) -> Callable[..., Any]:
        """The kernel: feeds events, returns a code (and the tables in `returned`)."""
        events: list[numba.types.Type] = [
            _readonly(nb.int64),
            _readonly(nb.int32),
            _readonly(self._time),
            _readonly(self._time),
        ]
        for feature in self.features:
            events.append(_readonly(nb.int64 if feature.integral else nb.float64))
            if self.nullable:
                events.append(_readonly(nb.boolean))
        kinds = {"whole": nb.int64, "real": nb.float64, "truth": nb.boolean, "time": self._time}
        if isinstance(self.source, RunsSource | StacksSource):
            events += [_readonly(kinds[kind]) for _, kind in self.source.instances.parameters()]
        state = [STATE_TYPES[name] for name in [*self.state_names, "O", "meta"]]
        types = (*CONSTANTS, nb.int64, nb.int64, nb.int64, *events, *state)
        step = compiled(self.source.text, "step", types, python=self.plan.interpreted)
        return partial(step, *self.constants)

    @cached_property
    def sweep(self) -> Callable[..., Any]:
        """Lets time pass for runs."""
        names = ["head", "live", "nxt", "I", "F", "counts", "O", "meta"]
        state = [STATE_TYPES[name] for name in names]
        sweep = compiled(self.source.text, "sweep", (*CONSTANTS, self._time, nb.boolean, *state))
        return partial(sweep, *self.constants)

    @cached_property
    def settle_all(self) -> Callable[..., Any]:
        """Lets time pass for a compact structure."""
        state = [STATE_TYPES[name] for name in TIME_STATE]
        settle = compiled(self.source.text, "settle_all", (*CONSTANTS, self._time, *state))
        return partial(settle, *self.constants)

    @property
    def _time(self) -> numba.types.Type:
        return nb.float64 if self.frame.real_time else nb.int64


def kernel_frame(
    plan: Plan,
    schema: Schema,
    unit: Unit,
    nullable: bool,
    *,
    counted: bool = False,
    readable: bool = False,
) -> Frame:
    """What a plan's kernel is written from; `readable`: for a text that is only looked at."""
    know(plan.query)
    frame = Frame.of(plan, schema, unit, nullable, None, counted, readable)
    written = as_written(plan.structure, plan.query.where)
    if written == plan.structure:
        return frame
    # saved state knows features by number: it must fit whatever order conditions are in
    plain = replace(frame, plan=replace(plan, structure=written))
    kernel_source(plain)
    return Frame.of(plan, schema, unit, nullable, plain.features, counted, readable)


def kernel_source(frame: Frame) -> RunsSource | StacksSource | TreeSource | CompactSource:
    """The text of a plan's kernel and what belongs to it."""
    match frame.plan.structure:
        case Stacks():
            return stacks_source(frame)
        case Tree():
            return tree_source(frame)
        case Compact():
            return compact_source(frame)
        case _:
            return runs_source(frame)
