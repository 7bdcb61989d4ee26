"""Statistics of events that are there: rates, how conditions do, how partitions are crowded.

Counts of types and partitions are taken from all events. Conditions are tried on a sample: whole
partitions where the query has keys, since only events of one partition meet, and in it on
combinations at random that a match could contain. Everything is seeded: the same events give the
same statistics.
"""

from dataclasses import dataclass, field
from itertools import combinations
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.algebra.predicate import Aggregate, At, Expr, Field
from ensue.algebra.text import show_condition
from ensue.algebra.tower import types_of
from ensue.algebra.walk import references, variables
from ensue.algebra.window import ByEvents, ByTime, ByUnits
from ensue.columns import evaluate as vectors
from ensue.columns.evaluate import Vector
from ensue.columns.keys import KeyCodes
from ensue.columns.rows import taken
from ensue.columns.stream import Shape, ends
from ensue.computed import cached_property
from ensue.plan.estimates.statistics import Statistics
from ensue.plan.physical import Plan, Role
from ensue.plan.physical_rules.sequence import predecessors
from ensue.schema import ANY, Kind, names_of

Rows = npt.NDArray[np.int64]

COMBINATIONS = 10_000  # on which a condition between events is tried
FEWEST = 30  # combinations that say something of a condition
SINGLE = ("min", "max", "avg", "first", "last", "percentile")  # aggregates near a single value


class Planned(Protocol):
    """A query with its plan, for streams of a shape."""

    @property
    def plan(self) -> Plan: ...

    @property
    def shape(self) -> Shape: ...


@dataclass(frozen=True)
class Counted:
    """What is known of all events, where only some of them are looked at."""

    events: int
    seconds: float
    types: dict[str, int] = field(default_factory=dict)
    partitions: int | None = None
    effective: float | None = None


def sampled(
    prepared: Planned,
    events: pa.Table,
    *,
    sample: int = 10_000,
    seed: int = 0,
    counted: Counted | None = None,
) -> Statistics:
    """The statistics of a table of events, for a query.

    `counted`: what is known of all events, if the table is a sample of them already.
    """
    whole = _Whole(prepared, events)
    known = counted or whole.counted
    dice = np.random.default_rng(seed)
    rows = whole.sample(sample, dice)
    columns = [taken(events.column(name), rows) for name in events.column_names]
    some = pa.table(columns, schema=events.schema)
    few = _Sample(whole.prepared, some, whole.key[rows], dice)
    if len(rows) < events.num_rows or counted is not None:
        source = f"a sample of {len(rows):,} events"
    else:
        source = f"all {len(rows):,} events"
    partitioned = bool(prepared.plan.query.equivalence)
    return Statistics(
        source,
        known.events / known.seconds if known.seconds > 0 else None,
        tuple(sorted((t, n / max(1, known.events)) for t, n in known.types.items())),
        tuple(sorted(few.passes().items())),
        float(known.partitions) if partitioned and known.partitions else None,
        known.effective if partitioned else None,
    )


class _Whole:
    """All events, as far as counting goes."""

    def __init__(self, prepared: Planned, events: pa.Table) -> None:
        self.prepared = prepared
        self.events = events
        names = [e.field_name for e in prepared.plan.query.equivalence]
        columns = [events.column(name) for name in names]
        self.key = (
            KeyCodes().encode(columns).astype(np.int64)
            if names
            else np.zeros(events.num_rows, np.int64)
        )

    @cached_property
    def counted(self) -> Counted:
        shape = self.prepared.shape
        times = ends(self.events, shape)
        lasting = float(times.max() - times.min()) if len(times) else 0.0
        sizes = np.bincount(self.key[self.key >= 0]).astype(np.float64)
        sizes = sizes[sizes > 0]
        return Counted(
            self.events.num_rows,
            lasting / ticks_per_second(self.prepared),
            type_counts(self.prepared, self.events),
            len(sizes) or None,
            float(sizes.sum() ** 2 / (sizes**2).sum()) if len(sizes) else None,
        )

    def sample(self, size: int, dice: np.random.Generator) -> Rows:
        """Rows in their order: all of some partitions, crowded ones more likely."""
        usable = np.flatnonzero(self.key >= 0)
        if len(usable) <= size:
            return usable
        key = self.key[usable]
        drawn = key[dice.permutation(len(key))[:size]]
        _, first = np.unique(drawn, return_index=True)
        order = drawn[np.sort(first)]  # the partitions as they were drawn
        sizes = np.bincount(key)
        enough = int(np.searchsorted(np.cumsum(sizes[order]), size)) + 1
        chosen = np.zeros(len(sizes), np.bool_)
        chosen[order[:enough]] = True
        rows = usable[chosen[key]]
        if len(rows) > size:
            rows = np.sort(dice.choice(rows, size, replace=False))
        return rows


class _Sample:
    """Some events, on which conditions are tried."""

    def __init__(
        self, prepared: Planned, events: pa.Table, key: Rows, dice: np.random.Generator
    ) -> None:
        self.prepared = prepared
        self.events = events
        self.dice = dice
        self.time = ends(events, prepared.shape)
        order = np.argsort(self.time, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        self.sorted_times = self.time[order]
        # an event's place: its partition, then its time
        self.key = key
        self.place = key * (len(order) + 1) + rank
        self.order = predecessors(prepared.plan.query.pattern)
        self.vectors: dict[str, Vector] = {}
        self.chances: dict[str, float] = {}

    def passes(self) -> dict[str, float]:
        """The chance of each condition that events can be found for."""
        plan = self.prepared.plan
        playing: dict[str, Rows] = {}
        alone: set[Expr] = set()
        for role in plan.roles:
            rows = self._of_type(role)
            for condition in (*role.conditions, *role.first):
                alone.add(condition)
                if not variables(condition):
                    continue
                holds = self._holds(condition, {_slot(r): rows for r in references(condition)})
                if len(rows):
                    self.chances[show_condition(condition)] = float(holds.mean())
                if condition in role.conditions:
                    rows = rows[holds]
            playing[role.variable] = rows
        for condition in plan.query.where:
            if condition not in alone and variables(condition) <= set(playing):
                self._between(condition, playing)
        return self.chances

    def _of_type(self, role: Role) -> Rows:
        column = self.prepared.shape.schema.type_column
        if column is None or role.type == ANY:
            return np.arange(self.events.num_rows)
        types = self.events.column(column).cast(pa.string()).combine_chunks()
        wanted = pa.array(names_of(role.type), pa.string())
        return np.flatnonzero(pc.is_in(types, value_set=wanted).to_numpy(zero_copy_only=False))

    # ------------------------------------------------------------------------ between events

    def _between(self, condition: Expr, playing: dict[str, Rows]) -> None:
        slots = sorted({_slot(r) for r in references(condition)}, key=self._by_pattern)
        if any(not _single(r) for r in references(condition)):
            return
        combination = self._combinations(slots, playing)
        if combination is None:
            return
        holds = self._holds(condition, combination)
        self.chances[show_condition(condition)] = float(holds.mean())

    def _by_pattern(self, slot: "Slot") -> tuple[int, int, int]:
        variable, at, nth = slot
        later = 0 if at in (At.PREVIOUS, At.BEFORE) or (at is At.NTH and nth == 1) else 1
        names = [role.variable for role in self.prepared.plan.roles]
        return names.index(variable), later, nth

    def _combinations(
        self, slots: list["Slot"], playing: dict[str, Rows]
    ) -> "dict[Slot, Rows] | None":
        """Random events for each slot that a match could contain together."""
        first = playing[slots[0][0]]
        if not len(first):
            return None
        chosen = {slots[0]: first[self.dice.integers(0, len(first), COMBINATIONS)]}
        kept = np.ones(COMBINATIONS, np.bool_)
        for slot in slots[1:]:
            rows = playing[slot[0]]
            if not len(rows):
                return None
            rows = rows[np.argsort(self.place[rows], kind="stable")]
            low, high = self._reach(slot, chosen)
            begin = np.searchsorted(self.place[rows], low, side="left")
            end = np.searchsorted(self.place[rows], high, side="right")
            kept &= end > begin
            drawn = begin + (self.dice.random(COMBINATIONS) * (end - begin)).astype(np.int64)
            chosen[slot] = rows[np.minimum(drawn, len(rows) - 1)]
        for one, other in combinations(slots, 2):
            kept &= chosen[one] != chosen[other]
        if kept.sum() < FEWEST:
            return None
        return {slot: rows[kept] for slot, rows in chosen.items()}

    def _reach(self, slot: "Slot", chosen: "dict[Slot, Rows]") -> tuple[Rows, Rows]:
        """From where to where an event may stand beside those that are chosen."""
        anchors = list(chosen.values())
        times = np.stack([self.time[rows] for rows in anchors])
        key = self.key[anchors[0]] * (len(self.time) + 1)
        earliest, latest = times.min(axis=0), times.max(axis=0)
        length = window_length(self.prepared)
        first = np.zeros(len(key), np.int64)
        last = np.full(len(key), len(self.time), np.int64)
        if length is not None:
            first = np.searchsorted(self.sorted_times, latest - length, side="left")
            last = np.searchsorted(self.sorted_times, earliest + length, side="right") - 1
        begin, end = key + first, key + last
        for other, rows in chosen.items():
            if self._after(slot, other):
                begin = np.maximum(begin, self.place[rows] + 1)
        return begin, end

    def _after(self, slot: "Slot", other: "Slot") -> bool:
        if slot[0] == other[0]:
            return True  # the slots of a variable are sorted: first, then later ones
        return other[0] in self.order.get(slot[0], ())

    # ------------------------------------------------------------------------ conditions

    def _holds(self, condition: Expr, rows: "dict[Slot, Rows]") -> npt.NDArray[np.bool_]:
        def lookup(ref: Field | Aggregate) -> Vector:
            chosen = rows[_slot(ref)]

            def of_one(field: Field | Aggregate) -> Vector:
                assert isinstance(field, Field)
                assert field.name is not None
                return self._taken(field.name, chosen)

            if isinstance(ref, Field):
                return of_one(ref)
            assert ref.argument is not None
            return vectors.evaluate(ref.argument, of_one, len(chosen), unit)

        unit = self.prepared.shape.unit
        count = len(next(iter(rows.values())))
        return vectors.truth(vectors.evaluate(condition, lookup, count, unit))

    def _taken(self, name: str, rows: Rows) -> Vector:
        if name not in self.vectors:
            column = self.events.column(name)
            self.vectors[name] = vectors.from_arrow(column, self.prepared.shape.unit, name)
        found = self.vectors[name]
        if isinstance(found, vectors.Refused):
            return found.at(rows)
        values = (
            found.values[rows]
            if isinstance(found.values, np.ndarray)
            else found.values.take(pa.array(rows))
        )
        return Vector(found.kind, values, None if found.valid is None else found.valid[rows])


Slot = tuple[str, At, int]  # a variable, which of its events, number


def _slot(ref: Field | Aggregate) -> Slot:
    return ref.variable, ref.at, ref.nth if isinstance(ref, Field) and ref.at is At.NTH else 1


def _single(ref: Field | Aggregate) -> bool:
    """Whether one event can stand for what a reference means."""
    return isinstance(ref, Field) or (ref.function in SINGLE and ref.argument is not None)


def type_counts(prepared: Planned, events: pa.Table) -> dict[str, int]:
    """How many events there are of each type that the pattern names."""
    names = types_of(prepared.plan.query)
    column = prepared.shape.schema.type_column
    if column is None:
        return dict.fromkeys(names, events.num_rows)
    counts = events.column(column).cast(pa.string()).value_counts()
    found = {str(entry["values"]): entry["counts"] for entry in counts.to_pylist()}
    return {name: found.get(name, 0) for name in sorted(names)}


def ticks_per_second(prepared: Planned) -> float:
    """How many units of a matcher's time a second has; 1 where time is only a number."""
    if prepared.shape.schema.time_kind not in (Kind.TIMESTAMP, Kind.DATE):
        return 1.0
    return 1e9 if prepared.shape.unit == "ns" else 1e6


def window_length(prepared: Planned) -> float | None:
    """The window in the units of a matcher's time; None if it is not by time."""
    match prepared.plan.query.within:
        case ByTime(nanoseconds=length):
            return length / (1e9 / ticks_per_second(prepared))
        case ByUnits(amount=amount):
            return float(amount)
        case ByEvents() | None:
            return None
