"""A plan made executable: the compiled kernel and the shape of its state."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.columns.arrow_kinds import Unit
from ensue.computed import cached_property
from ensue.engine.arrangements import arrangements
from ensue.kernels.jit import array_type
from ensue.plan.physical import Plan
from ensue.plan.physical_rules.ordering import as_written
from ensue.schema import Schema
from ensue.source.compiling import kernel
from ensue.source.expressions import Feature
from ensue.source.kernel_inputs import Frame
from ensue.source.operator_functions import know
from ensue.structures.contract import State, Structure, Written
from ensue.structures.registry import structure_of

_readonly = partial(array_type, readonly=True)
CONSTANTS = (_readonly(np.int64), _readonly(np.float64))
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
    structure: Structure[Any] = field(init=False)
    source: Written = field(init=False)
    constants: Constants = field(init=False, compare=False)  # that kernels are given

    def __post_init__(self) -> None:
        structure = structure_of(self.plan.structure)
        object.__setattr__(self, "structure", structure)
        frame = kernel_frame(
            self.plan, self.schema, self.unit, self.nullable, counted=self.counted
        )
        object.__setattr__(self, "frame", frame)
        object.__setattr__(self, "source", kernel_source(frame))
        object.__setattr__(self, "constants", frame.constants.arrays())

    def again(self) -> "Program":
        """The same for another matcher: whether kernels run compiled is decided anew."""
        other = object.__new__(Program)
        other.__dict__.update((f.name, getattr(self, f.name)) for f in fields(self))
        return other

    @property
    def features(self) -> tuple[Feature, ...]:
        return self.frame.features.all()

    def fresh_state(self) -> State[Any]:
        """The state before the first event."""
        return self.structure.state(self.frame, self.source, self.kernel)

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The tables that the kernel takes, behind the events."""
        return (*self.source.taken, *self.frame.tally.tables, "O", "meta")

    @cached_property
    def step(self) -> Callable[..., Any]:
        """The kernel: feeds events, returns a code (and tables it may have made larger)."""
        events = [
            _readonly(np.int64),
            _readonly(np.int32),
            _readonly(self._time),
            _readonly(self._time),
        ]
        for feature in self.features:
            events.append(_readonly(np.int64 if feature.integral else np.float64))
            if self.nullable:
                events.append(_readonly(np.bool_))
        for inside in self.source.complexes.values():
            events += [_readonly(self._sorts[sort]) for _, sort in inside.parameters()]
        types = (*CONSTANTS, "int64", "int64", "int64", *events, *self._types(self.tables))
        returned = [self.tables.index(name) - len(self.tables) for name in self.source.returned]
        python = self.plan.interpreted
        many = self._arrangements if self.plan.arranges_at_the_end else None
        step = kernel(
            self.source.text, "step", types, python=python, returned=returned, arrangements=many
        )
        return partial(step, *self.constants)

    def _arrangements(
        self,
        mask: npt.NDArray[np.int64],
        key: npt.NDArray[np.int32],
        ends: npt.NDArray[Any],
    ) -> float:
        """At most so many arrangements of these events fit the pattern, conditions apart."""
        if self.plan.tallies:
            return 0.0  # they are not gone through one by one
        if any(role.kleene is not None for role in self.plan.roles):
            return math.inf
        window = None if self.frame.by_events else self.frame.window
        bits = [self.frame.bits[r.variable] for r in self.plan.roles if not r.negative]
        return arrangements(mask, key, ends, bits, window)

    def kernel(self, name: str) -> Callable[..., Any]:
        """Another function of the kernel's text."""
        if name not in self._kernels:
            signature = self.source.kernels[name]
            given = [self._sorts[sort] for sort in signature.given]
            types = (*CONSTANTS, *given, *self._types(signature.tables))
            self._kernels[name] = partial(kernel(self.source.text, name, types), *self.constants)
        return self._kernels[name]

    @cached_property
    def _kernels(self) -> dict[str, Callable[..., Any]]:
        return {}

    def _types(self, names: Sequence[str]) -> list[Any]:
        """The types of tables."""
        found = {
            shape.name: array_type(shape.dtype, 1 if shape.width is None else 2)
            for shape in self.source.shapes
        }
        found |= dict.fromkeys((*self.frame.tally.tables, "O"), array_type(np.int64, 2))
        found["meta"] = array_type(np.int64)
        return [found[name] for name in names]

    @property
    def _sorts(self) -> dict[str, str]:
        """The types of numbers, by what they are."""
        return {"whole": "int64", "real": "float64", "truth": "bool", "time": self._time}

    @property
    def _time(self) -> str:
        return "float64" if self.frame.real_time else "int64"


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


def kernel_source(frame: Frame) -> Written:
    """The text of a plan's kernel and what belongs to it."""
    written: Written = structure_of(frame.plan.structure).write(frame)
    return written
