"""Engines for negated complex events, and for patterns that consist of one absence.

An inner match is complete at its last event, so every batch yields its own. The kernel gets inner
matches as arrays, ordered by last event, and stores them like negated events.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.analyzer.interval_negation import get_interval_ends
from ensue.codegen.absence import NestedMatches
from ensue.engine.memory_budget import Usage
from ensue.engine.reference_engine import ReferenceEngine, bindings_to_matches
from ensue.engine.scan import Scan, to_arrays
from ensue.engine.state_format import (
    check_signature,
    deserialize_table,
    make_signature,
    pack_state,
    serialize_table,
    unpack_state,
)
from ensue.ir.expression import FieldRef, Literal
from ensue.ir.traversal import iterate_nodes
from ensue.options import UNLIMITED, Limits
from ensue.planner.physical_plan import PhysicalPlan
from ensue.reference import compute_certain_time, is_absence_violated
from ensue.schema import Schema
from ensue.vector import evaluation
from ensue.vector.arrow_numpy import sorted_unique, wrap_numbers
from ensue.vector.arrow_types import Unit
from ensue.vector.match_rows import Matches

if TYPE_CHECKING:
    from ensue.engine.engine import Engine

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class InnerMatches:
    """The inner matches of a batch: the kernel's arrays, and the events at which they end."""

    arrays: list[Array]
    ends: npt.NDArray[np.int64]  # positions in the batch


class InnerPatternMatcher:
    """Matches a negated complex event and stores the columns that its later matches need."""

    def __init__(self, engine: "Engine", inside: NestedMatches) -> None:
        self.engine = engine
        schema = engine.program.schema
        self._inside = inside
        fields = (n for _, f in inside.kept for n in iterate_nodes(f.expr) if isinstance(n, FieldRef))
        columns = {schema.start, *(f.name for f in fields if f.name is not None)}
        self._columns = sorted(columns)
        self._events: pa.Table | None = None  # events of partial matches
        self._rows = np.zeros(0, np.int64)

    def process(self, events: pa.Table, scan: Scan, *, nullable: bool) -> InnerMatches:
        """Return the matches that these events complete, encoded by the outer scan."""
        first = self.engine.rows
        matches = self.engine.process(events)
        fresh = events.select(self._columns)
        known = fresh if self._events is None else pa.concat_tables([self._events, fresh])
        rows = np.concatenate([self._rows, np.arange(first, first + events.num_rows)])
        inner = self._encode(matches, known, rows, scan, first, events.num_rows, nullable=nullable)
        self._hold(known, rows)
        self.engine.hand_over()
        return inner

    def _encode(
        self, matches: Matches, known: pa.Table, rows: Array, scan: Scan, first: int, count: int, *, nullable: bool
    ) -> InnerMatches:
        bound = {v: matches.rows[v] for v in matches.variables}
        members = np.stack([*bound.values()])
        last = members.max(axis=0) - first
        order = np.argsort(last, kind="stable")
        bound = {v: member[order] for v, member in bound.items()}
        members, last = members[:, order], last[order]
        missing = members < 0
        far = np.iinfo(np.int64).max
        earliest = np.where(missing, far, members).min(axis=0, initial=far)
        schema, real = scan.program.schema, scan.program.frame.real_time
        times = evaluation.from_arrow(known.column(schema.start), scan.program.unit).values
        starts = np.asarray(times, np.float64 if real else np.int64)
        ever = np.inf if real else far
        begun = np.where(missing, ever, starts[np.searchsorted(rows, np.where(missing, rows[0], members))])
        arrays = [
            np.searchsorted(last, np.arange(count + 1)),
            earliest,
            begun.min(axis=0, initial=ever).astype(starts.dtype),
        ]
        for variable, feature in self._inside.features():
            places = np.searchsorted(rows, bound[variable])
            vector = scan.feature(feature, known.take(wrap_numbers(places)))
            arrays += to_arrays(vector, nullable)
        return InnerMatches([np.ascontiguousarray(array) for array in arrays], sorted_unique(last))

    def _hold(self, known: pa.Table, rows: Array) -> None:
        held = self.engine.get_held_rows()
        if len(held) < len(rows):
            known = known.take(wrap_numbers(np.searchsorted(rows, held))).combine_chunks()
        self._events, self._rows = known, held

    def on_watermark(self, now: float) -> None:
        """Advance event time and drop old events."""
        self.engine.on_watermark(now)
        if self._events is not None:
            self._hold(self._events, self._rows)

    @property
    def usage(self) -> Usage:
        events = 0 if self._events is None else self._events.nbytes
        return self.engine.usage.add_bytes(events + self._rows.nbytes)

    def snapshot(self) -> bytes:
        blobs = {"engine": self.engine.snapshot()}
        if self._events is not None:
            blobs["events"] = serialize_table(self._events)
        return pack_state({}, {"rows": self._rows}, blobs)

    def restore(self, data: bytes) -> None:
        _, arrays, blobs = unpack_state(data)
        self.engine.restore(blobs["engine"])
        self._rows = arrays["rows"]
        self._events = deserialize_table(blobs["events"]) if "events" in blobs else None


class AbsenceEngine(ReferenceEngine):
    """Matches a pattern that is only an absence until a constant time. It stores no events."""

    def __init__(self, plan: PhysicalPlan, schema: Schema, unit: Unit, limits: Limits = UNLIMITED) -> None:
        super().__init__(plan, schema, unit, limits)
        assert all(isinstance(end, Literal) for end in get_interval_ends(plan.query.pattern))
        until = compute_certain_time(plan.query.pattern, {})
        assert until is not None
        self._until = until
        self._over = False  # decided: the event occurred, or the match was returned

    def process(self, events: pa.Table) -> Matches:
        """Return the match if these events end the interval and none violates it."""
        if not events.num_rows:
            return bindings_to_matches(self.plan, [])
        if not self._over:
            rows = np.arange(self.rows, self.rows + events.num_rows)
            self._over = is_absence_violated(self._query, self._events(self._select_used(events), rows))
        self._count(events)
        return self._deliver(decided=self._is_past())

    def on_watermark(self, now: float) -> Matches:
        """Return the match if the interval has passed without an event."""
        self._advance_clock(now)
        return self._deliver(decided=now == math.inf or self._is_past())

    def _deliver(self, *, decided: bool) -> Matches:
        if self._over or not decided:
            return bindings_to_matches(self.plan, [])
        self._over = True
        return bindings_to_matches(self.plan, [{}])

    def _is_past(self) -> bool:
        return self.now is not None and self.now * self._scale > self._until

    def next_timer(self) -> float | None:
        """The end of the interval, unless it is decided."""
        if self._over:
            return None
        return self._until if self._scale == 1 else self._until // self._scale

    def snapshot(self) -> bytes:
        """Serialize whether it is decided, and the position in the stream."""
        header = {
            **make_signature(self.plan, self.schema, self.unit),
            "rows": self.rows,
            "now": self.now,
            "over": self._over,
        }
        return pack_state(header, {}, {})

    def restore(self, data: bytes) -> None:
        """Restore a state that `save` returned."""
        header, _, _ = unpack_state(data)
        check_signature(header, self.plan, self.schema, self.unit)
        self.rows, self.now = int(header["rows"]), header["now"]
        self._over = bool(header["over"])
