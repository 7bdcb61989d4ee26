"""An engine that switches to a better plan while the stream runs, without losing a match.

An engine is deterministic, and with a window every partial match began inside the window. So a new
plan reaches the state of the old one by replaying the events of the last window; the matches of
the replay are dropped because the old plan has delivered them. The new engine numbers the replayed
events consecutively; `RowNumbering` maps these numbers back to rows of the stream.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.analyzer.interval_negation import iterate_interval_negations
from ensue.analyzer.output_mode import collects_matches
from ensue.codegen.user_functions import find_uncompilable
from ensue.engine.engine import Engine
from ensue.engine.match_output import concat_matches
from ensue.engine.memory_budget import Usage
from ensue.engine.program import Program
from ensue.engine.reference_engine import find_used_columns
from ensue.engine.sampling import PlannedQuery, sample_statistics
from ensue.engine.scan import Scan
from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.ir.query import Query
from ensue.ir.selection import ByEvents, Strategy
from ensue.ir.traversal import iterate_operator_calls
from ensue.ir.user_operator import OperatorInputs
from ensue.options import UNLIMITED, Limits
from ensue.planner.capabilities import skips_in_order
from ensue.planner.cost_model import Cardinalities, estimate_structure
from ensue.planner.physical_plan import PhysicalPlan, ReferencePlan
from ensue.planner.planner import choose_plan, get_structure_name
from ensue.planner.planner_options import PlannerOptions
from ensue.planner.statistics import Statistics, compute_statistics, format_number
from ensue.schema import Schema
from ensue.vector import evaluation
from ensue.vector.arrow_types import Unit, window_to_ticks
from ensue.vector.event_table import split_table
from ensue.vector.key_codes import KeyCodes
from ensue.vector.match_rows import Matches

MOST = 1 << 20  # with more retained events than this the plan stays
FEW = 1_000  # fewer new events than this do not trigger a cleanup

Rows = npt.NDArray[np.int64]


class RecentEvents:
    """The events of the last window, with their row numbers."""

    def __init__(self, plan: PhysicalPlan, schema: Schema, unit: Unit) -> None:
        self.schema, self.unit = schema, unit
        self.events: pa.Table | None = None
        self.end = 0  # the row number after the last event
        self.too_many = False
        self._sparse_rows: Rows = np.zeros(0, np.int64)  # only if the window counts events
        self._columns = find_used_columns(plan.query, schema)
        within = plan.query.within
        self._count = within.count if isinstance(within, ByEvents) else None
        self._length = None if self._count is not None else window_to_ticks(within, unit)
        strict = Strategy.STRICT in plan.query.strategies  # needs events of all partitions
        self._keys = [] if strict else [e.field_name for e in plan.query.equivalence]
        self._kept = 0  # events left by the last cleanup

    def add(self, events: pa.Table, first: int) -> None:
        """Append events whose first row number is `first`."""
        events = events.select([n for n in events.column_names if n in self._columns])
        self.events = events if self.events is None else pa.concat_tables([self.events, events])
        self.end = first + events.num_rows
        if self.counts:
            self._sparse_rows = np.concatenate([self._sparse_rows, np.arange(first, self.end)])

    def forget(self, now: float | None) -> None:
        """Drop events outside the window, once they are the majority."""
        events = self.events
        if events is None or not events.num_rows:
            return
        if self._length is not None:
            if now is None:
                return
            ends = _ends(events, self.schema, self.unit)
            outside = int(np.searchsorted(ends, now - self._length))
            if 2 * outside >= events.num_rows:
                self._keep(slice(outside, None))
        elif self._count is not None and events.num_rows >= 2 * self._kept + FEW:
            self._keep(self._in_window())
            self._kept = len(self._sparse_rows)
            if self._kept > MOST:
                self.too_many, self.events, self._sparse_rows = True, None, self._sparse_rows[:0]

    def _in_window(self) -> Rows | slice:
        """The last `count` events of each partition."""
        assert self._count is not None
        assert self.events is not None
        if not self._keys:
            return slice(max(0, self.events.num_rows - self._count), None)
        codes = KeyCodes().encode([self.events.column(name) for name in self._keys])
        order = np.argsort(codes, kind="stable")
        group_ends = np.searchsorted(codes[order], codes[order], side="right")
        last = group_ends - np.arange(len(order)) <= self._count
        selected = order[last & (codes[order] >= 0)]  # NULL equals nothing
        return np.sort(selected).astype(np.int64)

    def _keep(self, places: Rows | slice) -> None:
        assert self.events is not None
        if isinstance(places, slice):
            self.events = self.events.slice(places.start).combine_chunks()
        else:
            self.events = self.events.take(pa.array(places)).combine_chunks()
        self._sparse_rows = self._sparse_rows[places] if self.counts else self._sparse_rows

    @property
    def rows(self) -> Rows:
        """The row numbers of the events in the stream."""
        if self.counts:
            return self._sparse_rows
        count = 0 if self.events is None else self.events.num_rows
        return np.arange(self.end - count, self.end)

    def restore(self, events: pa.Table, rows: Rows, end: int) -> None:
        """Restore saved events and their rows; `end` is the next row of the stream."""
        self.events, self.end, self._sparse_rows = events, end, rows

    @property
    def counts(self) -> bool:
        """Whether the window counts events, so that rows may be non-consecutive."""
        return self._count is not None

    @property
    def nbytes(self) -> int:
        return 0 if self.events is None else int(self.events.nbytes + self._sparse_rows.nbytes)


def _ends(events: pa.Table, schema: Schema, unit: Unit) -> npt.NDArray[Any]:
    return np.asarray(evaluation.from_arrow(events.column(schema.end), unit).values)


PIECE = 1 << 15  # events between two reviews of the plan
NONE = np.zeros(0, np.int64)

log = logging.getLogger("ensue.plan")


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A switch from one plan to another."""

    row: int  # the first row of the stream that the new plan processes
    time: float | None
    before: str
    after: str
    reason: str


@dataclass(frozen=True, slots=True)
class Advice:
    """A better plan, a memo from which it can be planned again, and the reason."""

    plan: PhysicalPlan
    memo: str
    reason: str


def why_not_adaptive(plan: PhysicalPlan) -> str | None:
    """Return why the plan of a query cannot change at runtime, or None if it can."""
    if isinstance(plan.structure, ReferencePlan):
        return "it runs on the reference path"
    if plan.query.within is None:
        return "without WITHIN every event would have to be retained for the next plan"
    if plan.is_count_only:
        return "only one plan can count matches without listing them"
    if any(iterate_interval_negations(plan.query.pattern)):
        return "an absence with an explicit interval may wait longer than the window"
    if skips_in_order(plan.query):
        return "matches that wait for their turn may be older than the window"
    if collects_matches(plan.query):
        return "the matches of one last event may be older than the window"
    for applied in iterate_operator_calls(plan.query.pattern):
        if applied.operator.over is OperatorInputs.REPEAT:
            return f"the last event of {applied.operator.name} may be older than the window"
    return None


class AdaptiveEngine:
    """An engine, with the interface of `Engine`, that asks an adviser for better plans."""

    def __init__(
        self,
        plan: PhysicalPlan,
        schema: Schema,
        unit: Unit,
        adviser: "CostBasedAdviser",
        *,
        memo: str = "",
        nullable: bool = False,
        limits: Limits = UNLIMITED,
    ) -> None:
        assert why_not_adaptive(plan) is None
        self.engine = Engine(plan, schema, unit, nullable=nullable, counted=True, limits=limits)
        self.adviser = adviser
        self.memo = memo
        self.changes: list[PlanChange] = []
        self._schema, self._unit = schema, unit
        self._recent = RecentEvents(plan, schema, unit)
        self._numbers = RowNumbering()
        self._retained = RetainedRows()

    @property
    def program(self) -> Program:
        return self.engine.program

    @property
    def output(self) -> Sequence[str]:
        return self.engine.output

    def unseen_types(self) -> Sequence[str]:
        return self.engine.unseen_types()

    @property
    def scan(self) -> Scan:
        return self.engine.scan

    @property
    def rows(self) -> int:
        return self.engine.rows

    def process(self, events: pa.Table) -> Matches:
        results = []
        for piece in split_table(events, PIECE):
            first = self.engine.rows
            results.append(self._numbers.matches(self.engine.process(piece)))
            if self._recent.too_many:
                continue
            self._recent.add(piece, first)
            self._recent.forget(self.engine.now)
            recent = self._recent.events
            if recent is None:
                log.info("from event %d on the plan stays: too many partitions", self.engine.rows)
            elif (advice := self.adviser.advise(self.engine, recent)) is not None:
                results.append(self.change(advice))
        return concat_matches(results, self.program.source.output)

    def on_watermark(self, now: float) -> Matches:
        matches = self._numbers.matches(self.engine.on_watermark(now))
        self._recent.forget(self.engine.now)
        return matches

    def hand_over(self) -> None:
        self.engine.hand_over()

    def set_foreign_memory(self, size: float) -> None:
        self.engine.set_foreign_memory(size)

    def change(self, advice: Advice) -> Matches:
        """Switch to another plan and return the matches that the old one had not delivered."""
        old = self.engine
        assert advice.plan.query == old.program.plan.query, "the plan of another query"
        assert advice.plan.residual == old.program.plan.residual
        if old.now is None:
            remaining = concat_matches([], old.program.source.output)
        else:
            # the replay drops these matches
            remaining = self._numbers.matches(old.on_watermark(old.now))
        self._recent.forget(old.now)
        self._retained = RetainedRows(self.get_held_rows(), old.rows)
        self.engine = self._replay_into(advice.plan)
        self.memo = advice.memo
        change = PlanChange(
            old.rows,
            old.now,
            get_structure_name(old.program.plan.structure),
            get_structure_name(advice.plan.structure),
            advice.reason,
        )
        self.changes.append(change)
        switch = (change.row, change.before, change.after, change.reason)
        log.info("plan changed at event %d, from %s to %s: %s", *switch)
        return remaining

    def _replay_into(self, plan: PhysicalPlan) -> Engine:
        """Create an engine for another plan and replay the retained events."""
        old = self.engine
        new = self._create_engine(plan, nullable=old.program.nullable)
        new.scan.keys, new.scan.strings = old.scan.keys, old.scan.strings
        before, self._numbers = self._numbers, RowNumbering(self._recent.rows, old.rows)
        if old.skipping is not None:
            # matches of the replayed events have been selected already
            earliest = before.in_stream(old.skipped_up_to)
            new.skip_up_to(self._numbers.renumber(earliest))
        recent = self._recent.events
        new.replay([] if recent is None else split_table(recent, PIECE), old.rows, old.now)
        new.reset_counters()
        new.scan.seen |= old.scan.seen if _same_roles(plan, old.program.plan) else 0
        new.room.take_over(old.room)
        return new

    def _create_engine(self, plan: PhysicalPlan, *, nullable: bool = False) -> Engine:
        limits = self.engine.room.allowance.limits
        return Engine(plan, self._schema, self._unit, nullable=nullable, counted=True, limits=limits)

    def snapshot(self) -> bytes:
        """Serialize the state together with the plan it belongs to."""
        recent = self._recent
        header = {
            "memo": self.memo,
            "changes": [asdict(change) for change in self.changes],
            "fed up to": self._numbers.end,
            "held up to": self._retained.end,
            "too many": recent.too_many,
        }
        arrays = {"fed": self._numbers.rows, "held": self._retained.rows}
        blobs = {"engine": self.engine.snapshot()}
        if recent.events is not None:
            blobs["recent"] = serialize_table(recent.events)
            if recent.counts:
                arrays["rows"] = recent.rows
        return pack_state(header, arrays, blobs)

    def restore(self, data: bytes) -> None:
        """Restore a state that `save` returned."""
        header, arrays, blobs = unpack_state(data)
        self.memo = str(header["memo"])
        self.changes = [PlanChange(**change) for change in header["changes"]]
        if self.memo:
            plan = self.adviser.recall(self.memo)
            self.engine = self._create_engine(plan)
        self.engine.restore(blobs["engine"])
        self._numbers = RowNumbering(arrays["fed"], header["fed up to"])
        self._retained = RetainedRows(arrays["held"], header["held up to"])
        self._recent = recent = RecentEvents(self.program.plan, self._schema, self._unit)
        recent.too_many = header["too many"]
        if "recent" in blobs:
            rows = arrays.get("rows", NONE)
            recent.restore(deserialize_table(blobs["recent"]), rows, self.engine.rows)

    @property
    def usage(self) -> Usage:
        return self.engine.usage.add_bytes(self._recent.nbytes + self._numbers.rows.nbytes)

    def get_held_rows(self) -> npt.NDArray[np.int64]:
        """The rows of the stream that a later match may still contain, ascending.

        A new plan may hold events that its predecessor had already ruled out.
        """
        return self._retained.filter_held(self._numbers.in_stream(self.engine.get_held_rows()))

    def next_timer(self) -> float | None:
        return self.engine.next_timer()


@dataclass(frozen=True, slots=True)
class RetainedRows:
    """The rows before `end` that the previous plan still held."""

    rows: Rows = field(default_factory=lambda: NONE)
    end: int = 0

    def filter_held(self, rows: Rows) -> Rows:
        """Filter the rows that a plan holds by those the previous plan held."""
        if not self.end:
            return rows
        return rows[(rows >= self.end) | np.isin(rows, self.rows)]


class RowNumbering:
    """Maps the row numbers of an engine to rows of the stream.

    Replayed events have consecutive numbers before `end`; later numbers equal the stream's rows.
    """

    def __init__(self, rows: Rows = NONE, end: int = 0) -> None:
        begin = end - len(rows)
        plain = not len(rows) or int(rows[0]) == begin
        self.rows = NONE if plain else rows
        self.end = end

    @property
    def _begin(self) -> int:
        return self.end - len(self.rows)

    def in_stream(self, numbers: Rows) -> Rows:
        """Map numbers to rows of the stream; numbers before the replayed events stay."""
        if not len(self.rows):
            return numbers
        known = (numbers >= self._begin) & (numbers < self.end)
        places = np.where(known, numbers - self._begin, 0)
        return np.where(known, self.rows[places], numbers)

    def renumber(self, rows: Rows) -> Rows:
        """The number of the first event at or after each row of the stream."""
        if not len(self.rows):
            return rows
        return np.where(rows < self.end, self._begin + np.searchsorted(self.rows, rows), rows)

    def matches(self, found: Matches) -> Matches:
        return found.map_rows(self.in_stream) if len(self.rows) and found.count else found


def _same_roles(plan: PhysicalPlan, other: PhysicalPlan) -> bool:
    return [r.variable for r in plan.roles] == [r.variable for r in other.roles]


LEAST = 20_000  # events between two reviews of a plan
SAMPLE = 10_000  # latest events on which conditions are evaluated
GAIN = 0.25  # share of the estimated cost that a change must save


class CostBasedAdviser:
    """Plans again with the counters of an engine and advises a change when the cost drops enough.

    A review covers the events since the last one, so that old data does not hide a recent change.
    A kernel evaluates a condition only where the conditions before it hold; so selectivities are
    taken from a sample of the latest events, if it is large enough.
    """

    def __init__(self, prepared: PlannedQuery, query: Query, schema: Schema, planning: PlannerOptions) -> None:
        self.prepared = prepared
        self.query = query
        self.schema = schema
        self.planning = planning
        self._statistics = planning.statistics

    def advise(self, engine: Engine, recent: pa.Table) -> Advice | None:
        """Return a better plan or None; `recent` are the events of the last window."""
        if engine.scan.counts.events < LEAST:
            return None
        before, self._statistics = self._statistics, self._measure(engine, recent)
        engine.reset_counters()
        plan = self._plan(self._statistics)
        if plan.structure == engine.program.plan.structure:
            return None
        now, then = (_cost(p, self._statistics) for p in (engine.program.plan, plan))
        if then > (1 - GAIN) * now:
            return None
        change = _difference(before, self._statistics)
        reason = f"estimated cost of an event {format_number(now)} -> {format_number(then)}"
        return Advice(plan, self._statistics.text(), f"{reason}; {change}")

    def _measure(self, engine: Engine, recent: pa.Table) -> Statistics:
        counted = compute_statistics(engine.counters(), self._statistics)
        latest = recent.slice(max(0, recent.num_rows - SAMPLE))
        tried = sample_statistics(self.prepared, latest, sample=SAMPLE).passes
        passes = dict(counted.passes) | dict(tried)
        return replace(counted, passes=tuple(sorted(passes.items())))

    def recall(self, memo: str) -> PhysicalPlan:
        """Plan again from the memo of an earlier advice."""
        self._statistics = Statistics.read(memo)
        return self._plan(self._statistics)

    def _plan(self, statistics: Statistics) -> PhysicalPlan:
        planning = replace(self.planning, statistics=statistics)
        return choose_plan(self.query, self.schema, planning, python=find_uncompilable(self.query))


def _cost(plan: PhysicalPlan, statistics: Statistics) -> float:
    load = Cardinalities.estimate(plan.query, plan.roles, statistics)
    return estimate_structure(plan.structure, plan.query, load).cost


def _difference(before: Statistics, now: Statistics) -> str:
    """Describe the statistic that has changed most."""
    old = {f"share of {name}": share for name, share in before.shares}
    old |= {f"{name} passes": share for name, share in before.passes}
    new = {f"share of {name}": share for name, share in now.shares}
    new |= {f"{name} passes": share for name, share in now.passes}
    changes = []
    for label in old.keys() & new.keys():
        low, high = sorted((old[label], new[label]))
        factor = (high + 0.001) / (low + 0.001)
        changes.append((factor, f"{label} {old[label]:.1%} -> {new[label]:.1%}"))
    return max(changes)[1] if changes else "nothing was known about the stream before"
