"""Common inputs of generated kernels: event columns, roles, the window, return codes."""

from collections.abc import Iterable
from dataclasses import dataclass

from ensue.codegen.counters import COLUMNS, CounterWriter
from ensue.codegen.expressions import BOUNDS, ConditionWriter, Feature, FeatureSet, ValueText, split_functions
from ensue.codegen.names import KernelConstants, KernelNames
from ensue.codegen.state_layout import SourceWriter
from ensue.ir.expression import FieldRef
from ensue.ir.selection import ByEvents, Strategy, Window
from ensue.planner.features import KindResolver
from ensue.planner.negations import get_dropped
from ensue.planner.physical_plan import PhysicalPlan, Role
from ensue.printing.pattern_printer import format_window
from ensue.schema import Schema, ValueKind
from ensue.vector.arrow_types import Unit, window_to_ticks

# Return codes of a kernel: what it needs before it can continue.
DONE, NEEDS_RUNS, NEEDS_NODES, NEEDS_OUTPUT, NEEDS_INSTANCES, NEEDS_DRAIN, STOPPED = range(7)

MOST_WAITING = 1 << 17  # matches that may wait in the output before the next event is processed

# Positions in `meta`, where a kernel stores its position and counters between calls.
POSITION, RUN_TOP, FREE, FREE_COUNT, NODE_TOP, INSTANCE_TOP, OUT_TOP, LIVE = range(8)
# Inputs in `meta`: a stop request, and how far the kernel may grow its tables.
STOP, MOST_OUT, MOST_NODES = range(8, 11)
META_SIZE = 16
SEQUENCES = META_SIZE - 1  # constructed sequences, if a plan counts them

SPARE_OUTPUT = 1_024  # free rows in the output that an event needs

SHORT_OF_ENTRIES, SHORT_OF_OUTPUT = 1, 2  # why an event is rolled back
BEGINS, ENDS = 0, 1  # positions in the result of an operator's F


def _by_name(*names: str) -> dict[str, float]:
    return {name: globals()[name] for name in names}


# Names that every kernel shares.
NAMED: dict[str, dict[str, float]] = {
    "return codes: what it needs before it can continue": _by_name(
        "DONE", "NEEDS_RUNS", "NEEDS_NODES", "NEEDS_OUTPUT", "NEEDS_INSTANCES", "NEEDS_DRAIN",
        "STOPPED",
    ),
    "positions in meta, which holds numbers between calls": _by_name(
        "POSITION", "RUN_TOP", "FREE", "FREE_COUNT", "NODE_TOP", "INSTANCE_TOP", "OUT_TOP", "LIVE",
        "STOP", "MOST_OUT", "MOST_NODES", "SEQUENCES",
    ),
    "the number of matches that may wait, and of free rows required": _by_name(
        "MOST_WAITING", "SPARE_OUTPUT"
    ),
    "why an event is rolled back": _by_name("SHORT_OF_ENTRIES", "SHORT_OF_OUTPUT"),
    "positions in the result of an operator": _by_name("BEGINS", "ENDS"),
    "columns of T: evaluations, and how many passed": COLUMNS,
    "the bounds of 64 bits": BOUNDS,
}  # fmt: skip
ROLES = "roles: bits of an event's mask"


@dataclass(frozen=True, slots=True)
class KernelContext:
    """The context in which the sources of all kernels of a plan are written."""

    plan: PhysicalPlan
    schema: Schema
    unit: Unit
    nullable: bool
    features: FeatureSet
    writer: ConditionWriter
    bits: dict[str, int]  # variable -> bit of the mask
    first_bits: dict[str, int]  # Kleene variable -> bit for its first event
    tally: CounterWriter  # counters of the kernel
    names: KernelNames  # of its numbers
    constants: KernelConstants  # its arguments

    @classmethod
    def from_plan(
        cls,
        plan: PhysicalPlan,
        schema: Schema,
        unit: Unit,
        nullable: bool,
        features: FeatureSet | None = None,
        counted: bool = False,
        readable: bool = False,
    ) -> "KernelContext":
        """Existing `features` keep their numbers, and new ones follow.

        `readable`: the text has comments and the names of the query, and is not compiled.
        """
        features = features or FeatureSet(KindResolver(schema, plan.query.pattern))
        bits: dict[str, int] = {}
        first_bits: dict[str, int] = {}
        for role in plan.roles:
            bits[role.variable] = len(bits) + len(first_bits)
            if role.first:
                first_bits[role.variable] = len(bits) + len(first_bits)
        names = KernelNames([role.variable for role in plan.roles], NAMED, readable)
        constants = KernelConstants(readable)
        writer, tally = ConditionWriter(features, unit, constants), CounterWriter(counted, names)
        parts = (features, writer, bits, first_bits, tally, names, constants)
        return cls(plan, schema, unit, nullable, *parts)

    def source(self, depth: int = 0) -> SourceWriter:
        """A writer for the first or the next lines of the kernel."""
        return SourceWriter(depth=depth, readable=self.names.readable)

    def restart(self, depth: int) -> SourceWriter:
        """A writer that starts over, once all columns and features are known."""
        self.names.forget()
        self.constants.forget()
        return self.source(depth)

    def test(self, variable: str, *, first: bool = False) -> str:
        """The condition that the current event matches a role."""
        return f"roles & {self.role(variable, first=first)}"

    def role(self, variable: str, *, first: bool = False) -> str:
        """The name of a role's bit in the mask."""
        bit = self.bit(variable, first=first)
        which = "_FIRST" if first and variable in self.first_bits else ""
        name = f"ROLE_{self.names.variable(variable)}{which}"
        return self.names.number(name, 1 << bit, ROLES, self.names.describe(variable))

    def any_role(self, roles: Iterable[str]) -> str:
        """Several roles as one bit set."""
        bits = " | ".join(dict.fromkeys(roles))
        return f"({bits})" if "|" in bits else bits

    def bit(self, variable: str, *, first: bool = False) -> int:
        if first and variable in self.first_bits:
            return self.first_bits[variable]
        return self.bits[variable]

    @property
    def window(self) -> int | float | None:
        """The length of the window in units of the time arrays, or in events."""
        return self.length(self.plan.query.within)

    def length(self, window: Window | None) -> int | float | None:
        """The same for any window."""
        if isinstance(window, ByEvents):
            return window.count - 1
        return window_to_ticks(window, self.unit)

    @property
    def window_text(self) -> str:
        """The window's length in a kernel's source."""
        return self.get_window_text("window")

    def get_window_text(self, name: str) -> str:
        """The same under another name, as a separate argument."""
        within, length = self.plan.query.within, self.window
        if within is None or length is None:
            return ""
        return self.constants.slot(length, name, format_window(within))

    @property
    def by_events(self) -> bool:
        return isinstance(self.plan.query.within, ByEvents)

    @property
    def real_time(self) -> bool:
        return self.schema.time_kind in (ValueKind.FLOAT, ValueKind.DECIMAL)

    @property
    def ticks_per_second(self) -> float:
        """Units of the time arrays per second; 1 for numeric time."""
        if self.schema.time_kind not in (ValueKind.TIMESTAMP, ValueKind.DATE):
            return 1.0
        return 1e9 if self.unit == "ns" else 1e6

    @property
    def intervals(self) -> bool:
        return self.schema.intervals

    @property
    def counts(self) -> bool:
        """Whether the events of each partition are counted."""
        return self.by_events or Strategy.PARTITION in self.plan.query.strategies

    @property
    def negatives(self) -> tuple[Role, ...]:
        """Negated variables whose events are stored for later lookups."""
        return tuple(
            r
            for r in self.plan.roles
            if r.negative and r.inner is None and r.variable not in self.dropped and not r.lapse
        )

    @property
    def dropped(self) -> frozenset[str]:
        """Negated variables whose events are evaluated on arrival and not stored."""
        return get_dropped(self.plan.structure)

    @property
    def complexes(self) -> tuple[Role, ...]:
        """Negated nested patterns, which have their own plans."""
        return tuple(r for r in self.plan.roles if r.inner is not None)

    def read(self, feature: Feature) -> ValueText:
        """A feature of the current event, and whether it is not null."""
        ok = f"ok_{self.name_feature(feature)}[i]" if self.nullable else None
        return f"{self.array(feature)}[i]", ok

    def array(self, feature: Feature) -> str:
        """The array of a feature of all events."""
        return f"f_{self.name_feature(feature)}"

    def name_feature(self, feature: Feature) -> str:
        """A feature as a part of names: its field, or its number."""
        match feature.expr:
            case FieldRef(name=str(name)) if self.names.readable and name.isidentifier():
                alike = (f for f in self.features.all() if f.expr == feature.expr)
                return name if next(alike) == feature else str(feature.number)
            case _:
                return str(feature.number)

    def event_parameters(self) -> list[str]:
        names = ["mask", "key", "starts", "ends"]
        for feature in self.features.all():
            names.append(self.array(feature))
            if self.nullable:
                names.append(f"ok_{self.name_feature(feature)}")
        return names


# Grows the output during an event; row by row, as a slice costs seconds of compilation.
GROW = split_functions("""
@njit
def grown(table):
    bigger = np.empty((table.shape[0] * 2, table.shape[1]), table.dtype)
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            bigger[row, column] = table[row, column]
    return bigger
""")
