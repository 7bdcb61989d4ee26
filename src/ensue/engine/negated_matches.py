"""Negated complex events: their matches, found by an engine of their own, for the kernel outside.

An inner match is complete at its last event, so every slice of events brings its own. The kernel
gets them as arrays, in the order of their last events, and keeps them like negated events.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.algebra.predicate import Field
from ensue.algebra.walk import nodes
from ensue.columns import evaluate as vectors
from ensue.columns.distinct import distinct
from ensue.columns.matches import Matches
from ensue.engine.scan import Scan
from ensue.engine.state import from_bytes, packed, to_bytes, unpacked
from ensue.source.absence import Inside

if TYPE_CHECKING:
    from ensue.engine.engine import Engine

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """The complex events of a slice: the kernel's arrays, and the events they end at."""

    arrays: list[Array]
    ends: npt.NDArray[np.int64]  # places in the slice


class Inner:
    """Finds a complex event and keeps what later matches of it need of its events."""

    def __init__(self, engine: "Engine", inside: Inside) -> None:
        self.engine = engine
        schema = engine.program.schema
        self._inside = inside
        fields = (n for _, f in inside.kept for n in nodes(f.expr) if isinstance(n, Field))
        used = {schema.start, *(f.name for f in fields if f.name is not None)}
        self._columns = sorted(used)
        self._events: pa.Table | None = None  # those that later matches may contain
        self._rows = np.zeros(0, np.int64)

    def feed(self, events: pa.Table, scan: Scan, *, nullable: bool) -> Given:
        """The matches that these events complete. Strings get the codes of the outer scan."""
        first = self.engine.rows
        matches = self.engine.feed(events)
        fresh = events.select(self._columns)
        known = fresh if self._events is None else pa.concat_tables([self._events, fresh])
        rows = np.concatenate([self._rows, np.arange(first, first + events.num_rows)])
        given = self._given(matches, known, rows, scan, first, events.num_rows, nullable=nullable)
        self._hold(known, rows)
        self.engine.hand_over()
        return given

    def _given(
        self,
        matches: Matches,
        known: pa.Table,
        rows: Array,
        scan: Scan,
        first: int,
        count: int,
        *,
        nullable: bool,
    ) -> Given:
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
        times = vectors.from_arrow(known.column(schema.start), scan.program.unit).values
        starts = np.asarray(times, np.float64 if real else np.int64)
        ever = np.inf if real else far
        begun = np.where(
            missing, ever, starts[np.searchsorted(rows, np.where(missing, rows[0], members))]
        )
        arrays = [
            np.searchsorted(last, np.arange(count + 1)),
            earliest,
            begun.min(axis=0, initial=ever).astype(starts.dtype),
        ]
        for variable, feature in self._inside.features():
            places = np.searchsorted(rows, bound[variable])
            vector = scan.feature(feature, known.take(pa.array(places)))
            values = vector.values
            assert isinstance(values, np.ndarray)
            arrays.append(values)
            if nullable:
                valid = vector.valid
                arrays.append(np.ones(len(values), np.bool_) if valid is None else valid)
        return Given([np.ascontiguousarray(array) for array in arrays], distinct(last))

    def _hold(self, known: pa.Table, rows: Array) -> None:
        kept = self.engine.held_rows()
        if len(kept) < len(rows):
            known = known.take(pa.array(np.searchsorted(rows, kept))).combine_chunks()
        self._events, self._rows = known, kept

    def advance(self, now: float) -> None:
        """Lets time pass: what is too old is forgotten."""
        self.engine.advance(now)
        if self._events is not None:
            self._hold(self._events, self._rows)

    @property
    def state_bytes(self) -> int:
        events = 0 if self._events is None else self._events.nbytes
        return int(self.engine.state_bytes + events + self._rows.nbytes)

    def save(self) -> bytes:
        blobs = {"engine": self.engine.save()}
        if self._events is not None:
            blobs["events"] = to_bytes(self._events)
        return packed({}, {"rows": self._rows}, blobs)

    def restore(self, data: bytes) -> None:
        _, arrays, blobs = unpacked(data)
        self.engine.restore(blobs["engine"])
        self._rows = arrays["rows"]
        self._events = from_bytes(blobs["events"]) if "events" in blobs else None
