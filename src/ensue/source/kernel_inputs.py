"""What every generated kernel shares: the events' columns, the window, the order of events."""

from collections.abc import Iterable
from dataclasses import dataclass

from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import Field
from ensue.algebra.text import show_window
from ensue.algebra.window import ByEvents, Window
from ensue.columns.arrow_kinds import Unit, length_of
from ensue.plan.physical import Plan, Role
from ensue.plan.physical_rules.features import Kinds
from ensue.plan.physical_rules.pushing import dropped_by
from ensue.schema import Kind, Schema
from ensue.source.constants import Constants
from ensue.source.counting import COLUMNS, Tally
from ensue.source.expressions import Feature, Features, Writer
from ensue.source.names import Names
from ensue.source.prelude import BOUNDS
from ensue.source.table_columns import Source

# Codes a kernel returns: what it needs before it can go on.
DONE, NEEDS_RUNS, NEEDS_NODES, NEEDS_OUTPUT, NEEDS_INSTANCES, NEEDS_DRAIN, STOPPED = range(7)

MOST_WAITING = 1 << 17  # matches that may wait in the output when the next event is looked at

# Places in `meta`, where a kernel leaves its position and counters between calls.
POSITION, RUN_TOP, FREE, FREE_COUNT, NODE_TOP, INSTANCE_TOP, OUT_TOP, LIVE = range(8)
# What it is told: to stop, and how far it may make its own tables larger.
STOP, MOST_OUT, MOST_NODES = range(8, 11)
META_SIZE = 16
SEQUENCES = META_SIZE - 1  # sequences constructed, where a plan asks to count them

SPARE_OUTPUT = 1_024  # free places in the output that an event needs before it is looked at

SHORT_OF_ENTRIES, SHORT_OF_OUTPUT = 1, 2  # why an event is taken back
BEGINS, ENDS = 0, 1  # places in what an operator's F says of a result


def _by_name(*names: str) -> dict[str, float]:
    return {name: globals()[name] for name in names}


# What every kernel calls by the same name.
NAMED: dict[str, dict[str, float]] = {
    "codes that it returns: what it needs before it can go on": _by_name(
        "DONE", "NEEDS_RUNS", "NEEDS_NODES", "NEEDS_OUTPUT", "NEEDS_INSTANCES", "NEEDS_DRAIN",
        "STOPPED",
    ),
    "places in meta, where it leaves numbers between calls and is told some": _by_name(
        "POSITION", "RUN_TOP", "FREE", "FREE_COUNT", "NODE_TOP", "INSTANCE_TOP", "OUT_TOP", "LIVE",
        "STOP", "MOST_OUT", "MOST_NODES", "SEQUENCES",
    ),
    "how many matches may wait, and how many there must be room for": _by_name(
        "MOST_WAITING", "SPARE_OUTPUT"
    ),
    "why an event is taken back": _by_name("SHORT_OF_ENTRIES", "SHORT_OF_OUTPUT"),
    "places in a result of an operator": _by_name("BEGINS", "ENDS"),
    "columns of T: how often something was tried, and passed": COLUMNS,
    "the bounds of 64 bits": BOUNDS,
}  # fmt: skip
ROLES = "roles: bits of an event's mask"


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
    names: Names  # of its numbers
    constants: Constants  # that it is given

    @classmethod
    def of(
        cls,
        plan: Plan,
        schema: Schema,
        unit: Unit,
        nullable: bool,
        features: Features | None = None,
        counted: bool = False,
        readable: bool = False,
    ) -> "Frame":
        """With `features` their numbers stay as they are, and new ones go behind them.

        `readable`: for a text with comments and the names of the query, which is not compiled.
        """
        features = features or Features(Kinds(schema, plan.query.pattern))
        bits: dict[str, int] = {}
        first_bits: dict[str, int] = {}
        for role in plan.roles:
            bits[role.variable] = len(bits) + len(first_bits)
            if role.first:
                first_bits[role.variable] = len(bits) + len(first_bits)
        names = Names([role.variable for role in plan.roles], NAMED, readable)
        constants = Constants(readable)
        writer, tally = Writer(features, unit, constants), Tally(counted, names)
        given = (plan, schema, unit, nullable, features, writer, bits, first_bits, tally)
        return cls(*given, names, constants)

    # -------------------------------------------------------------------------- the text

    def source(self, depth: int = 0) -> Source:
        """For the first or the next lines of the kernel."""
        return Source(depth=depth, readable=self.names.readable)

    def again(self, depth: int) -> Source:
        """For all that is done with an event: written anew, with what is known by now."""
        self.names.forget()
        self.constants.forget()
        return self.source(depth)

    # -------------------------------------------------------------------------- the mask

    def test(self, variable: str, *, first: bool = False) -> str:
        """When the event at hand can play a role."""
        return f"roles & {self.role(variable, first=first)}"

    def role(self, variable: str, *, first: bool = False) -> str:
        """The name of a role's bit in the mask."""
        bit = self.bit(variable, first=first)
        which = "_FIRST" if first and variable in self.first_bits else ""
        name = f"ROLE_{self.names.variable(variable)}{which}"
        return self.names.number(name, 1 << bit, ROLES, self.names.told(variable))

    def any_role(self, roles: Iterable[str]) -> str:
        """Several roles together, each by its name."""
        found = " | ".join(dict.fromkeys(roles))
        return f"({found})" if "|" in found else found

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
        return self.window_called("window")

    def window_called(self, name: str) -> str:
        """The same under another name: an argument of its own."""
        within, length = self.plan.query.within, self.window
        if within is None or length is None:
            return ""
        return self.constants.slot(length, name, show_window(within))

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
        return self.by_events or Strategy.PARTITION in self.plan.query.strategies

    @property
    def negatives(self) -> tuple[Role, ...]:
        """The negated variables whose events are kept, to be looked for later."""
        return tuple(
            r
            for r in self.plan.roles
            if r.negative and r.inner is None and r.variable not in self.dropped and not r.lapse
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
        return f"{self.array(feature)}[{i}]"

    def ok(self, feature: Feature, i: str = "i") -> str | None:
        return f"ok_{self.called(feature)}[{i}]" if self.nullable else None

    def array(self, feature: Feature) -> str:
        """The array that has a feature of all events."""
        return f"f_{self.called(feature)}"

    def called(self, feature: Feature) -> str:
        """A feature as a part of names: the field that it is, or its number."""
        match feature.expr:
            case Field(name=str(name)) if self.names.readable and name.isidentifier():
                alike = (f for f in self.features.all() if f.expr == feature.expr)
                return name if next(alike) == feature else str(feature.number)
            case _:
                return str(feature.number)

    def event_parameters(self) -> list[str]:
        names = ["mask", "key", "starts", "ends"]
        for feature in self.features.all():
            names.append(self.array(feature))
            if self.nullable:
                names.append(f"ok_{self.called(feature)}")
        return names
