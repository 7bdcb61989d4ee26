"""What every generated kernel shares: the events' columns, the window, the order of events."""

from dataclasses import dataclass

from ensue.algebra.policy import Strategy
from ensue.algebra.window import ByEvents, Window
from ensue.columns.arrow_kinds import Unit, length_of
from ensue.plan.physical import Plan, Role
from ensue.plan.physical_rules.features import Kinds
from ensue.plan.physical_rules.pushing import dropped_by
from ensue.schema import Kind, Schema
from ensue.source.constants import marked
from ensue.source.counting import Tally
from ensue.source.expressions import Feature, Features, Writer

# Codes a kernel returns: what it needs before it can go on.
DONE, NEEDS_RUNS, NEEDS_NODES, NEEDS_OUTPUT, NEEDS_INSTANCES, NEEDS_DRAIN, STOPPED = range(7)

MOST_WAITING = 1 << 17  # matches that may wait in the output when the next event is looked at

# Places in `meta`, where a kernel leaves its position and counters between calls.
POSITION, RUN_TOP, FREE, FREE_COUNT, NODE_TOP, INSTANCE_TOP, OUT_TOP, LIVE = range(8)
# What it is told: to stop, and how far it may make its own tables larger.
STOP, MOST_OUT, MOST_NODES = range(8, 11)
META_SIZE = 16
SEQUENCES = META_SIZE - 1  # sequences constructed, where a plan asks to count them

PRELUDE = '''"""Generated: a compiled matcher. {title}"""

import math

import numpy as np
from numba import njit


@njit(inline="always")
def remainder(a, b):
    r = a % b
    if r != 0 and (a < 0) != (b < 0):
        r -= b
    return r


MOST = 9223372036854775807
LEAST = -MOST - 1
SPAN = 18446744073709551616.0


@njit
def sum_fits(a, b):
    return a <= MOST - b if b >= 0 else a >= LEAST - b


@njit
def difference_fits(a, b):
    return a >= LEAST + b if b >= 0 else a <= MOST + b


@njit
def product_fits(a, b):
    about = abs(float(a) * float(b))
    if about < 9.2e18:
        return True
    if about > 9.3e18:
        return False
    x, y = int(a), int(b)
    if x == LEAST or y == LEAST:
        return x == 1 or y == 1
    most = MOST // abs(y)
    if abs(x) <= most:
        return True
    return (x < 0) != (y < 0) and abs(x) == most + 1 and abs(y) & (abs(y) - 1) == 0


@njit
def carry_of(total, value):
    if value >= 0:
        return 1 if total > MOST - value else 0
    return -1 if total < LEAST - value else 0


@njit
def wrapping_sum(total, value):
    if value >= 0:
        return total + value if total <= MOST - value else (total + LEAST) + (value + LEAST)
    return total + value if total >= LEAST - value else (total - LEAST) + (value - LEAST)


@njit
def in_64_bits(x):
    return -9223372036854775808.0 <= x and x < 9223372036854775808.0


@njit
def rounded(x):
    return int(np.rint(x))


@njit
def gap_of(i, x):
    return -1 if x >= 9223372036854775808.0 else i - int(x)


@njit
def equal_exactly(i, x):
    return float(i) == x and gap_of(i, x) == 0


@njit
def less_exactly(i, x):
    f = float(i)
    return f < x or (f == x and gap_of(i, x) < 0)


@njit
def more_exactly(i, x):
    f = float(i)
    return f > x or (f == x and gap_of(i, x) > 0)

'''


@dataclass(frozen=True, slots=True)
class Frame:
    """The parts of a plan that the sources of all kernels are written from."""

    plan: Plan
    schema: Schema
    unit: Unit
    nullable: bool
    features: Features
    writer: Writer
    bits: dict[str, int]  # variable -> bit of the mask
    first_bits: dict[str, int]  # Kleene variable -> bit for its first event
    tally: Tally  # what the kernel counts

    @classmethod
    def of(
        cls,
        plan: Plan,
        schema: Schema,
        unit: Unit,
        nullable: bool,
        features: Features | None = None,
        counted: bool = False,
    ) -> "Frame":
        """With `features` their numbers stay as they are, and new ones go behind them."""
        features = features or Features(Kinds(schema, plan.query.pattern))
        bits: dict[str, int] = {}
        first_bits: dict[str, int] = {}
        for role in plan.roles:
            bits[role.variable] = len(bits) + len(first_bits)
            if role.first:
                first_bits[role.variable] = len(bits) + len(first_bits)
        writer = Writer(features, unit)
        tally = Tally(counted)
        return cls(plan, schema, unit, nullable, features, writer, bits, first_bits, tally)

    # -------------------------------------------------------------------------- the mask

    def test(self, variable: str, *, first: bool = False) -> str:
        """When the event at hand can play a role."""
        return f"m & {1 << self.bit(variable, first=first)}"

    def bit(self, variable: str, *, first: bool = False) -> int:
        if first and variable in self.first_bits:
            return self.first_bits[variable]
        return self.bits[variable]

    # -------------------------------------------------------------------------- the window

    @property
    def window(self) -> int | float | None:
        """The window's length in the units of the time arrays, or in events."""
        return self.length(self.plan.query.within)

    def length(self, window: Window | None) -> int | float | None:
        """The same for any window."""
        return window.count - 1 if isinstance(window, ByEvents) else length_of(window, self.unit)

    @property
    def window_text(self) -> str:
        """The window's length in a kernel's source."""
        return "" if self.window is None else marked(self.window)

    @property
    def by_events(self) -> bool:
        return isinstance(self.plan.query.within, ByEvents)

    @property
    def real_time(self) -> bool:
        return self.schema.time_kind in (Kind.FLOAT, Kind.DECIMAL)

    @property
    def ticks_per_second(self) -> float:
        """How many units of the time arrays a second has; 1 where time is only a number."""
        if self.schema.time_kind not in (Kind.TIMESTAMP, Kind.DATE):
            return 1.0
        return 1e9 if self.unit == "ns" else 1e6

    @property
    def intervals(self) -> bool:
        return self.schema.intervals

    @property
    def counts(self) -> bool:
        """Whether the events of each partition are counted."""
        return self.by_events or self.plan.query.strategy is Strategy.PARTITION

    @property
    def negatives(self) -> tuple[Role, ...]:
        """The negated variables whose events are kept, to be looked for later."""
        return tuple(
            r
            for r in self.plan.roles
            if r.negative and r.inner is None and r.variable not in self.dropped
        )

    @property
    def dropped(self) -> frozenset[str]:
        """The negated variables whose events are judged when they come, and not kept."""
        return dropped_by(self.plan.structure)

    @property
    def complexes(self) -> tuple[Role, ...]:
        """The negated complex events: matches of plans of their own."""
        return tuple(r for r in self.plan.roles if r.inner is not None)

    # -------------------------------------------------------------------------- the event at hand

    def value(self, feature: Feature, i: str = "i") -> str:
        return f"f{feature.number}[{i}]"

    def ok(self, feature: Feature, i: str = "i") -> str | None:
        return f"ok{feature.number}[{i}]" if self.nullable else None

    def event_parameters(self) -> list[str]:
        names = ["mask", "key", "starts", "ends"]
        for feature in self.features.all():
            names.append(f"f{feature.number}")
            if self.nullable:
                names.append(f"ok{feature.number}")
        return names
