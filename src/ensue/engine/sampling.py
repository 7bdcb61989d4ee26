"""Statistics of a table of events: rates, selectivities of conditions, sizes of partitions.

Types and partitions are counted on all events. Conditions are evaluated on a sample of whole
partitions, since only events of one partition are combined, and on random combinations that a
match could contain. The seed is fixed, so the same events give the same statistics.
"""

from dataclasses import dataclass, field
from itertools import combinations
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.cached import cached_property
from ensue.ir.expression import Aggregate, EventPosition, Expr, FieldRef
from ensue.ir.hierarchy import get_pattern_types
from ensue.ir.traversal import get_variables, iterate_references
from ensue.planner.join_tree import find_predecessors
from ensue.planner.physical_plan import PhysicalPlan, Role
from ensue.planner.statistics import Statistics
from ensue.printing.expression_printer import format_condition
from ensue.schema import ANY, ValueKind, get_type_names
from ensue.vector import evaluation
from ensue.vector.arrow_numpy import booleans, build_texts, to_single_array
from ensue.vector.arrow_types import window_to_ticks
from ensue.vector.column_values import Vector
from ensue.vector.event_table import StreamSchema, get_end_times
from ensue.vector.key_codes import KeyCodes
from ensue.vector.take import take_values

Rows = npt.NDArray[np.int64]

COMBINATIONS = 10_000  # on which a condition between events is evaluated
FEWEST = 30  # the least number that gives an estimate
SINGLE = ("min", "max", "avg", "first", "last", "percentile")  # aggregates close to a single value


class PlannedQuery(Protocol):
    """A planned query for streams of one shape."""

    @property
    def plan(self) -> PhysicalPlan: ...

    @property
    def shape(self) -> StreamSchema: ...


@dataclass(frozen=True)
class EventCounts:
    """Counts of all events, where only a sample is read."""

    events: int
    seconds: float
    types: dict[str, int] = field(default_factory=dict)
    partitions: int | None = None
    effective: float | None = None


def sample_statistics(
    prepared: PlannedQuery, events: pa.Table, *, sample: int = 10_000, seed: int = 0, counted: EventCounts | None = None
) -> Statistics:
    """Estimate the statistics of a table of events for a query.

    `counted`: counts of all events, if the table is already a sample.
    """
    population = _Whole(prepared, events)
    known = counted or population.counted
    dice = np.random.default_rng(seed)
    rows = population.sample(sample, dice)
    columns = [take_values(events.column(name), rows) for name in events.column_names]
    sample_table = pa.table(columns, schema=events.schema)
    sample_events = _Sample(population.prepared, sample_table, population.key[rows], dice)
    if len(rows) < events.num_rows or counted is not None:
        source = f"a sample of {len(rows):,} events"
    else:
        source = f"all {len(rows):,} events"
    partitioned = bool(prepared.plan.query.equivalence)
    return Statistics(
        source,
        known.events / known.seconds if known.seconds > 0 else None,
        tuple(sorted((t, n / max(1, known.events)) for t, n in known.types.items())),
        tuple(sorted(sample_events.passes().items())),
        float(known.partitions) if partitioned and known.partitions else None,
        known.effective if partitioned else None,
    )


class _Whole:
    """All events, which are only counted."""

    def __init__(self, prepared: PlannedQuery, events: pa.Table) -> None:
        self.prepared = prepared
        self.events = events
        columns = [events.column(e.field_name) for e in prepared.plan.query.equivalence]
        self.key = np.zeros(events.num_rows, np.int64)
        if columns:
            self.key = KeyCodes().encode(columns).astype(np.int64)

    @cached_property
    def counted(self) -> EventCounts:
        shape = self.prepared.shape
        times = get_end_times(self.events, shape)
        lasting = float(times.max() - times.min()) if len(times) else 0.0
        sizes = np.bincount(self.key[self.key >= 0]).astype(np.float64)
        sizes = sizes[sizes > 0]
        return EventCounts(
            self.events.num_rows,
            lasting / ticks_per_second(self.prepared),
            count_types(self.prepared, self.events),
            len(sizes) or None,
            float(sizes.sum() ** 2 / (sizes**2).sum()) if len(sizes) else None,
        )

    def sample(self, size: int, dice: np.random.Generator) -> Rows:
        """Sample rows in order: all rows of some partitions, large ones more likely."""
        usable = np.flatnonzero(self.key >= 0)
        if len(usable) <= size:
            return usable
        key = self.key[usable]
        drawn = key[dice.permutation(len(key))[:size]]
        _, first = np.unique(drawn, return_index=True)
        order = drawn[np.sort(first)]  # in the order of drawing
        sizes = np.bincount(key)
        enough = int(np.searchsorted(np.cumsum(sizes[order]), size)) + 1
        chosen = np.zeros(len(sizes), np.bool_)
        chosen[order[:enough]] = True
        rows = usable[chosen[key]]
        if len(rows) > size:
            rows = np.sort(dice.choice(rows, size, replace=False))
        return rows


class _Sample:
    """The sampled events, on which conditions are evaluated."""

    def __init__(self, prepared: PlannedQuery, events: pa.Table, key: Rows, dice: np.random.Generator) -> None:
        self.prepared = prepared
        self.events = events
        self.dice = dice
        self.time = get_end_times(events, prepared.shape)
        order = np.argsort(self.time, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        self.sorted_times = self.time[order]
        # sorts by partition, then by time
        self.key = key
        self.place = key * (len(order) + 1) + rank
        self.order = find_predecessors(prepared.plan.query.pattern)
        self.vectors: dict[str, Vector] = {}
        self.chances: dict[str, float] = {}

    def passes(self) -> dict[str, float]:
        """The selectivity of each condition for which events are found."""
        plan = self.prepared.plan
        playing: dict[str, Rows] = {}
        alone: set[Expr] = set()
        for role in plan.roles:
            rows = self._select_type(role)
            for condition in (*role.conditions, *role.first):
                alone.add(condition)
                if not get_variables(condition):
                    continue
                holds = self._holds(condition, {_slot(r): rows for r in iterate_references(condition)})
                if len(rows):
                    self.chances[format_condition(condition)] = float(holds.mean())
                if condition in role.conditions:
                    rows = rows[holds]
            playing[role.variable] = rows
        for condition in plan.query.where:
            if condition not in alone and get_variables(condition) <= set(playing):
                self._between(condition, playing)
        return self.chances

    def _select_type(self, role: Role) -> Rows:
        column = self.prepared.shape.schema.type_column
        if column is None or role.type == ANY:
            return np.arange(self.events.num_rows)
        types = self.events.column(column).cast(pa.string()).combine_chunks()
        names = build_texts(get_type_names(role.type))
        return np.flatnonzero(booleans(to_single_array(pc.is_in(types, value_set=names))))

    def _between(self, condition: Expr, playing: dict[str, Rows]) -> None:
        slots = sorted({_slot(r) for r in iterate_references(condition)}, key=self._by_pattern)
        if any(not _is_single(r) for r in iterate_references(condition)):
            return
        combination = self._combinations(slots, playing)
        if combination is not None:
            holds = self._holds(condition, combination)
            self.chances[format_condition(condition)] = float(holds.mean())

    def _by_pattern(self, slot: "Slot") -> tuple[int, int, int]:
        variable, at, nth = slot
        earlier = at in (EventPosition.PREVIOUS, EventPosition.BEFORE)
        first = at is EventPosition.NTH and nth == 1
        names = [role.variable for role in self.prepared.plan.roles]
        return names.index(variable), not (earlier or first), nth

    def _combinations(self, slots: list["Slot"], playing: dict[str, Rows]) -> "dict[Slot, Rows] | None":
        """Random events for each slot that could be in one match."""
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
        for slot, other in combinations(slots, 2):
            kept &= chosen[slot] != chosen[other]
        if kept.sum() < FEWEST:
            return None
        return {slot: rows[kept] for slot, rows in chosen.items()}

    def _reach(self, slot: "Slot", chosen: "dict[Slot, Rows]") -> tuple[Rows, Rows]:
        """The range of places that an event may have beside the chosen ones."""
        anchors = list(chosen.values())
        times = np.stack([self.time[rows] for rows in anchors])
        key = self.key[anchors[0]] * (len(self.time) + 1)
        earliest, latest = times.min(axis=0), times.max(axis=0)
        length = window_to_ticks(self.prepared.plan.query.within, self.prepared.shape.unit)
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

    def _holds(self, condition: Expr, rows: "dict[Slot, Rows]") -> npt.NDArray[np.bool_]:
        def lookup(ref: FieldRef | Aggregate) -> Vector:
            chosen = rows[_slot(ref)]

            def lookup_field(field: FieldRef | Aggregate) -> Vector:
                assert isinstance(field, FieldRef)
                assert field.name is not None
                return self._take(field.name, chosen)

            if isinstance(ref, FieldRef):
                return lookup_field(ref)
            assert ref.argument is not None
            return evaluation.evaluate(ref.argument, lookup_field, len(chosen), unit)

        unit = self.prepared.shape.unit
        count = len(next(iter(rows.values())))
        return evaluation.truth(evaluation.evaluate(condition, lookup, count, unit))

    def _take(self, name: str, rows: Rows) -> Vector:
        if name not in self.vectors:
            column = self.events.column(name)
            self.vectors[name] = evaluation.from_arrow(column, self.prepared.shape.unit, name)
        return self.vectors[name].at(rows)


Slot = tuple[str, EventPosition, int]  # a variable, which of its events, number


def _slot(ref: FieldRef | Aggregate) -> Slot:
    nth = ref.nth if isinstance(ref, FieldRef) and ref.at is EventPosition.NTH else 1
    return ref.variable, ref.at, nth


def _is_single(ref: FieldRef | Aggregate) -> bool:
    """Whether one event can stand for a reference."""
    return isinstance(ref, FieldRef) or (ref.function in SINGLE and ref.argument is not None)


def count_types(prepared: PlannedQuery, events: pa.Table) -> dict[str, int]:
    """Count the events of each type that the pattern names."""
    names = get_pattern_types(prepared.plan.query)
    column = prepared.shape.schema.type_column
    if column is None:
        return dict.fromkeys(names, events.num_rows)
    counts = events.column(column).cast(pa.string()).value_counts()
    by_type = {str(entry["values"]): entry["counts"] for entry in counts.to_pylist()}
    return {name: by_type.get(name, 0) for name in sorted(names)}


def ticks_per_second(prepared: PlannedQuery) -> float:
    """Units of event time in a second; 1 where time is a plain number."""
    if prepared.shape.schema.time_kind not in (ValueKind.TIMESTAMP, ValueKind.DATE):
        return 1.0
    return 1e9 if prepared.shape.unit == "ns" else 1e6
