"""A compiled plan: the kernel, its arguments and the layout of its state."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.cached import cached_property
from ensue.codegen.expressions import Feature
from ensue.codegen.kernel_cache import LONG_COMPILE, MAX_COMPILE, estimate_compile_seconds, get_kernel
from ensue.codegen.kernel_inputs import KernelContext
from ensue.codegen.user_functions import register_functions
from ensue.kernels.jit import SETTING, array_type
from ensue.physical.structure import KernelSource, Structure, StructureState, load_structure
from ensue.planner.physical_plan import PhysicalPlan, ReferencePlan
from ensue.planner.predicate_order import restore_written_order
from ensue.printing.pattern_printer import format_query
from ensue.schema import Schema
from ensue.vector.arrow_types import Unit


def count_arrangements(
    mask: npt.NDArray[np.int64],
    key: npt.NDArray[np.int32],
    ends: npt.NDArray[Any],
    bits: Sequence[int],
    window: float | None,
) -> float:
    """An upper bound of the combinations with one event for each bit in one partition and window.

    Events are counted by partition and time bucket of the window's length; a window overlaps at
    most two buckets.
    """
    known = (key >= 0) & (mask != 0)
    if not known.any():
        return 0.0
    bucket = np.zeros(int(known.sum()), np.int64)
    if window is not None and window > 0:
        times = ends[known]
        bucket = ((times - times.min()) // window).astype(np.int64) + 1
    place = key[known].astype(np.int64) * (int(bucket.max()) + 2) + bucket
    places, group = np.unique(place, return_inverse=True)
    before = np.searchsorted(places, places - 1)
    adjacent = places[before] == places - 1
    products = np.ones(len(places))
    for bit in bits:
        count = np.bincount(group, (mask[known] >> bit) & 1, len(places))
        products *= count + np.where(adjacent, count[before], 0.0)
    return float(products.sum())


_readonly = partial(array_type, readonly=True)
CONSTANTS = (_readonly(np.int64), _readonly(np.float64))
Constants = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Program:
    """A compiled plan; programs of one plan differ only in NULL handling and counting."""

    plan: PhysicalPlan
    schema: Schema
    unit: Unit
    nullable: bool
    counted: bool = False  # the kernel counts evaluations of conditions
    frame: KernelContext = field(init=False)
    structure: Structure[Any] = field(init=False)
    source: KernelSource = field(init=False)
    constants: Constants = field(init=False, compare=False)  # arguments of the kernels

    def __post_init__(self) -> None:
        structure = load_structure(self.plan.structure)
        object.__setattr__(self, "structure", structure)
        frame = create_frame(self.plan, self.schema, self.unit, self.nullable, counted=self.counted)
        object.__setattr__(self, "frame", frame)
        object.__setattr__(self, "source", write_kernel(frame))
        object.__setattr__(self, "constants", frame.constants.arrays())

    def copy(self) -> "Program":
        """A copy for another matcher, which decides again whether to compile kernels."""
        other = object.__new__(Program)
        other.__dict__.update((f.name, getattr(self, f.name)) for f in fields(self))
        return other

    @property
    def features(self) -> tuple[Feature, ...]:
        return self.frame.features.all()

    def fresh_state(self) -> StructureState[Any]:
        """The state before the first event."""
        return self.structure.state(self.frame, self.source, self.kernel)

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The tables that the kernel takes after the event arrays."""
        return (*self.source.taken, *self.frame.tally.tables, "O", "meta")

    @cached_property
    def step(self) -> Callable[..., Any]:
        """The kernel: processes events and returns a code (and tables that it has grown)."""
        events = [_readonly(t) for t in (np.int64, np.int32, self._time, self._time)]
        for feature in self.features:
            events.append(_readonly(np.int64 if feature.integral else np.float64))
            if self.nullable:
                events.append(_readonly(np.bool_))
        for inside in self.source.complexes.values():
            events += [_readonly(self._sorts[sort]) for _, sort in inside.parameters()]
        types = (*CONSTANTS, "int64", "int64", "int64", *events, *self._types(self.tables))
        returned = [self.tables.index(name) - len(self.tables) for name in self.source.returned]
        python = self.plan.interpreted
        many = self._arrangements if self.plan.joins_at_last_event else None
        step = get_kernel(self.source.text, "step", types, python=python, returned=returned, arrangements=many)
        return partial(step, *self.constants)

    def _arrangements(self, mask: npt.NDArray[np.int64], key: npt.NDArray[np.int32], ends: npt.NDArray[Any]) -> float:
        """An upper bound of the bindings among these events, ignoring conditions."""
        if self.plan.is_count_only:
            return 0.0  # they are not enumerated
        if any(role.kleene is not None for role in self.plan.roles):
            return math.inf
        window = None if self.frame.by_events else self.frame.window
        bits = [self.frame.bits[r.variable] for r in self.plan.roles if not r.negative]
        return count_arrangements(mask, key, ends, bits, window)

    def kernel(self, name: str) -> Callable[..., Any]:
        """Another function of the kernel's module."""
        if name not in self._kernels:
            signature = self.source.kernels[name]
            scalars = [self._sorts[sort] for sort in signature.scalars]
            types = (*CONSTANTS, *scalars, *self._types(signature.tables))
            self._kernels[name] = partial(get_kernel(self.source.text, name, types), *self.constants)
        return self._kernels[name]

    @cached_property
    def _kernels(self) -> dict[str, Callable[..., Any]]:
        return {}

    def _types(self, names: Sequence[str]) -> list[Any]:
        """The Numba types of tables."""
        types = {shape.name: array_type(shape.dtype, 1 if shape.width is None else 2) for shape in self.source.shapes}
        types |= dict.fromkeys((*self.frame.tally.tables, "O"), array_type(np.int64, 2))
        types["meta"] = array_type(np.int64)
        return [types[name] for name in names]

    @property
    def _sorts(self) -> dict[str, str]:
        """Numba types by sort of number."""
        return {"whole": "int64", "real": "float64", "truth": "bool", "time": self._time}

    @property
    def _time(self) -> str:
        return "float64" if self.frame.real_time else "int64"


def create_frame(
    plan: PhysicalPlan, schema: Schema, unit: Unit, nullable: bool, *, counted: bool = False, readable: bool = False
) -> KernelContext:
    """Create the frame from which a plan's kernel is generated; `readable`: for display only."""
    register_functions(plan.query)
    frame = KernelContext.from_plan(plan, schema, unit, nullable, None, counted, readable)
    written = restore_written_order(plan.structure, plan.query.where)
    if written == plan.structure:
        return frame
    # saved state identifies features by number, whatever the order of conditions
    plain = replace(frame, plan=replace(plan, structure=written))
    write_kernel(plain)
    return KernelContext.from_plan(plan, schema, unit, nullable, plain.features, counted, readable)


def write_kernel(frame: KernelContext) -> KernelSource:
    """Generate the kernel of a plan."""
    written: KernelSource = load_structure(frame.plan.structure).write(frame)
    return written


NULLS = "# For events without NULL values; a second kernel handles NULL."


def format_kernel(plan: PhysicalPlan, schema: Schema, unit: Unit = "us") -> str:
    """Show the kernel of a plan with comments and the names of the query, or say why it has none.

    The compiled text has no names and constants of the query, so that other queries can share it.
    """
    query = [f"#   {line}" for line in format_query(plan.query).splitlines()]
    if isinstance(plan.structure, ReferencePlan):
        return "\n".join(["# No kernel: the reference semantics runs", *query])
    frame = create_frame(plan, schema, unit, nullable=False, readable=True)
    text = "\n".join(["# The kernel of", *query, NULLS, write_kernel(frame).text.rstrip()])
    inner = [format_kernel(role.inner, schema, unit) for role in plan.roles if role.inner]
    return "\n\n\n".join([text, *inner])


def warn_about_compile_time(plan: PhysicalPlan, schema: Schema, unit: Unit) -> Iterator[str]:
    """Warn about a kernel that takes long to compile."""
    if isinstance(plan.structure, ReferencePlan):
        return
    text = write_kernel(create_frame(plan, schema, unit, nullable=False)).text
    seconds = estimate_compile_seconds(text, "step")
    if seconds > MAX_COMPILE:
        yield (
            f"kernel: not compiled, as that would take about {seconds:.0f} s; it runs as Python, "
            f"about fifty times slower ({SETTING}=always compiles it nevertheless)"
        )
    elif seconds > LONG_COMPILE:
        yield (f"kernel: takes about {seconds:.0f} s to compile; until that pays off, it runs as Python")
