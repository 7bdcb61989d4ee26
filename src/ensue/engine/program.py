"""A plan made executable: the compiled kernel and the shape of its state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import types as nb

from ensue.columns.arrow_kinds import Unit
from ensue.computed import cached_property
from ensue.plan.physical import Plan
from ensue.plan.physical_rules.ordering import as_written
from ensue.schema import Schema
from ensue.source.cache import compiled
from ensue.source.constants import lifted
from ensue.source.expressions import Feature
from ensue.source.kernel_inputs import Frame
from ensue.source.operator_functions import know
from ensue.structures.contract import State, Structure, Written
from ensue.structures.registry import structure_of


def _readonly(kind: numba.types.Type) -> numba.types.Type:
    return nb.Array(kind, 1, "C", readonly=True)


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
    structure: Structure[Any] = field(init=False)
    source: Written = field(init=False)
    constants: Constants = field(init=False, compare=False)  # that kernels are given

    def __post_init__(self) -> None:
        know(self.plan.query)
        structure = structure_of(self.plan.structure)
        object.__setattr__(self, "structure", structure)
        given = (self.plan, self.schema, self.unit, self.nullable)
        frame = Frame.of(*given, counted=self.counted)
        written = as_written(self.plan.structure, self.plan.query.where)
        if written != self.plan.structure:
            # saved state knows features by number: it must fit whatever order conditions are in
            plain = replace(frame, plan=replace(self.plan, structure=written))
            structure.write(plain)
            frame = Frame.of(*given, plain.features, self.counted)
        object.__setattr__(self, "frame", frame)
        source = structure.write(frame)
        without = lifted(source.text)
        object.__setattr__(self, "source", replace(source, text=without.text))
        object.__setattr__(self, "constants", (without.wholes, without.reals))

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
        for inside in self.source.complexes.values():
            events += [_readonly(self._sorts[sort]) for _, sort in inside.parameters()]
        types = (*CONSTANTS, nb.int64, nb.int64, nb.int64, *events, *self._types(self.tables))
        step = compiled(self.source.text, "step", types, python=self.plan.interpreted)
        return partial(step, *self.constants)

    def kernel(self, name: str) -> Callable[..., Any]:
        """Another function of the kernel's text."""
        if name not in self._kernels:
            signature = self.source.kernels[name]
            given = [self._sorts[sort] for sort in signature.given]
            types = (*CONSTANTS, *given, *self._types(signature.tables))
            self._kernels[name] = partial(compiled(self.source.text, name, types), *self.constants)
        return self._kernels[name]

    @cached_property
    def _kernels(self) -> dict[str, Callable[..., Any]]:
        return {}

    def _types(self, names: Sequence[str]) -> list[numba.types.Type]:
        """The types of tables."""
        found = {
            shape.name: nb.Array(
                numba.from_dtype(np.dtype(shape.dtype)), 1 if shape.width is None else 2, "C"
            )
            for shape in self.source.shapes
        }
        found |= dict.fromkeys((*self.frame.tally.tables, "O"), nb.Array(nb.int64, 2, "C"))
        found["meta"] = nb.Array(nb.int64, 1, "C")
        return [found[name] for name in names]

    @property
    def _sorts(self) -> dict[str, numba.types.Type]:
        """The types of numbers, by what they are."""
        return {"whole": nb.int64, "real": nb.float64, "truth": nb.boolean, "time": self._time}

    @property
    def _time(self) -> numba.types.Type:
        return nb.float64 if self.frame.real_time else nb.int64
