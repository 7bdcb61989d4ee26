"""A pattern that is only an absence between moments: one match without events, or none."""

import numpy as np
import pyarrow as pa

from ensue.algebra.lapses import interval_ends
from ensue.algebra.predicate import Literal
from ensue.columns.arrow_kinds import Unit
from ensue.columns.matches import Matches
from ensue.engine.meaning import require_same, stamp
from ensue.engine.reference import ReferenceEngine, rows_of
from ensue.engine.state import packed, unpacked
from ensue.plan.limits import UNLIMITED, Limits
from ensue.plan.physical import Plan
from ensue.schema import Schema
from ensue.semantics import over_after, spoilt


class MomentEngine(ReferenceEngine):
    """Watches for an event that must not come until a moment is over. It holds no events."""

    def __init__(self, plan: Plan, schema: Schema, unit: Unit, limits: Limits = UNLIMITED) -> None:
        super().__init__(plan, schema, unit, limits)
        assert all(isinstance(end, Literal) for end in interval_ends(plan.query.pattern))
        until = over_after(plan.query.pattern, {})
        assert until is not None
        self._until = until
        self._over = False  # it is decided: an event came, or the match is delivered

    def why_not_streamed(self) -> str | None:
        """Nothing is in the way."""
        return None

    def feed(self, events: pa.Table) -> Matches:
        """The match, if these events show that the moment is over and none came in time."""
        if not events.num_rows:
            return rows_of(self.plan, [])
        if not self._over:
            rows = np.arange(self.rows, self.rows + events.num_rows)
            self._over = spoilt(self._query, self._events(self._used(events), rows))
        self._count(events)
        return self._delivered(decided=self._is_past())

    def advance(self, now: float) -> Matches:
        """The match, if the moment is over and nothing came."""
        self._tell(now)
        return self._delivered(decided=self._is_past())

    def finish(self) -> Matches:
        """The match, if nothing came: when the stream is over, time has passed everything."""
        return self._delivered(decided=True)

    def _delivered(self, *, decided: bool) -> Matches:
        if self._over or not decided:
            return rows_of(self.plan, [])
        self._over = True
        return rows_of(self.plan, [{}])

    def _is_past(self) -> bool:
        return self.now is not None and self.now * self._scale > self._until

    def deadline(self) -> float | None:
        """The moment that has to be over."""
        if self._over:
            return None
        return self._until if self._scale == 1 else self._until // self._scale

    def save(self) -> bytes:
        """Whether it is decided, and how far the stream is."""
        header = {
            **stamp(self.plan, self.schema, self.unit),
            "rows": self.rows,
            "now": self.now,
            "over": self._over,
        }
        return packed(header, {}, {})

    def restore(self, data: bytes) -> None:
        """Goes on where the matcher that saved this state stopped."""
        header, _, _ = unpacked(data)
        require_same(header, self.plan, self.schema, self.unit)
        self.rows, self.now = int(header["rows"]), header["now"]
        self._over = bool(header["over"])
