"""A matcher whose plan changes while the stream runs, without losing or repeating a match.

A matcher is deterministic, and with a window every partial match began inside the window. So the
events of the last window are all there is to its state: a new plan takes over by being fed those
events again, its matches of them thrown away, since the old plan has delivered them.
"""

import logging
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.algebra.answers import summarised
from ensue.algebra.walk import results
from ensue.algebra.window import ByEvents
from ensue.columns import evaluate as vectors
from ensue.columns.arrow_kinds import Unit
from ensue.columns.matches import Matches
from ensue.columns.stream import slices
from ensue.engine.engine import Engine
from ensue.engine.output import joined
from ensue.engine.program import Program
from ensue.engine.reference import columns_used
from ensue.engine.scan import Scan
from ensue.engine.state import from_bytes, packed, to_bytes, unpacked
from ensue.plan.choose import structure_name
from ensue.plan.limits import UNLIMITED, Limits
from ensue.plan.physical import Plan, Reference
from ensue.schema import Schema

PIECE = 1 << 15  # events between two looks at the plan

log = logging.getLogger("ensue.plan")


@dataclass(frozen=True, slots=True)
class Change:
    """One plan took over from another."""

    row: int  # of the stream: the first one that the new plan sees
    time: float | None
    before: str
    after: str
    reason: str


@dataclass(frozen=True, slots=True)
class Advice:
    """A better plan, the text that leads to it again, and why it is better."""

    plan: Plan
    memo: str
    reason: str


class Adviser(Protocol):
    """Says when another plan would be better, from what a matcher has seen."""

    def advise(self, engine: Engine, recent: pa.Table) -> Advice | None:
        """Another plan, if it is time for one; `recent` are the events of the last window."""
        ...

    def recall(self, memo: str) -> Plan:
        """The plan that a memo of an earlier advice leads to."""
        ...


def why_not_adaptive(plan: Plan) -> str | None:
    """Why the plan of a query must stay as it is, if it must."""
    if isinstance(plan.structure, Reference):
        return "it runs on the reference path"
    if plan.query.within is None:
        return "without WITHIN every event would have to be kept for the next plan"
    if isinstance(plan.query.within, ByEvents):
        return "its window counts the events of a partition"
    if summarised(plan.query):
        return "COUNT(*) and EXISTS have a structure of their own"
    if any(results(plan.query.pattern)):
        return "an operator of a user may remember more than the window"
    return None


class AdaptiveEngine:
    """An engine that asks an adviser, now and then, whether another plan would be better."""

    def __init__(
        self,
        plan: Plan,
        schema: Schema,
        unit: Unit,
        adviser: Adviser,
        *,
        memo: str = "",
        nullable: bool = False,
        limits: Limits = UNLIMITED,
    ) -> None:
        assert why_not_adaptive(plan) is None
        self.engine = Engine(plan, schema, unit, nullable=nullable, counted=True, limits=limits)
        self.adviser = adviser
        self.memo = memo
        self.changes: list[Change] = []
        self._schema, self._unit = schema, unit
        self._columns = columns_used(plan.query, schema)
        self._recent: pa.Table | None = None  # the events of the last window

    @property
    def program(self) -> Program:
        return self.engine.program

    @property
    def scan(self) -> Scan:
        return self.engine.scan

    @property
    def rows(self) -> int:
        return self.engine.rows

    # ---------------------------------------------------------------------------- feeding

    def feed(self, events: pa.Table) -> Matches:
        """The matches that these events complete, or that they show to be complete."""
        found = []
        for piece in slices(events, PIECE):
            found.append(self.engine.feed(piece))
            self._remember(piece)
            assert self._recent is not None
            advice = self.adviser.advise(self.engine, self._recent)
            if advice is not None:
                found.append(self.change(advice))
        return joined(found, self.program.source.output)

    def advance(self, now: float) -> Matches:
        """Lets time pass until `now`: what only waited for it is delivered."""
        found = self.engine.advance(now)
        self._forget()
        return found

    def finish(self) -> Matches:
        """The stream is over: no more events come that could forbid anything."""
        return self.engine.finish()

    def hand_over(self) -> None:
        """What was found so far is with others now, and no longer held."""
        self.engine.hand_over()

    def others_hold(self, size: float) -> None:
        """Other matchers of the same call hold so many bytes of matches."""
        self.engine.others_hold(size)

    # ---------------------------------------------------------------------------- changing

    def change(self, advice: Advice) -> Matches:
        """Goes on with another plan; gives what the old one had not delivered yet."""
        old = self.engine
        assert advice.plan.query == old.program.plan.query, "the plan of another query"
        assert advice.plan.residual == old.program.plan.residual
        if old.now is None:
            left = joined([], old.program.source.output)
        else:
            left = old.advance(old.now)  # what the new plan would take for delivered
        self._forget()
        self.engine = self._taken_over(advice.plan)
        self.memo = advice.memo
        change = Change(
            old.rows,
            old.now,
            structure_name(old.program.plan.structure),
            structure_name(advice.plan.structure),
            advice.reason,
        )
        self.changes.append(change)
        log.info(
            "plan changed at event %d, from %s to %s: %s",
            change.row,
            change.before,
            change.after,
            change.reason,
        )
        return left

    def _taken_over(self, plan: Plan) -> Engine:
        """An engine of another plan in the state that the events so far leave behind."""
        old = self.engine
        new = self._engine(plan, nullable=old.program.nullable)
        new.scan.keys, new.scan.strings = old.scan.keys, old.scan.strings
        new.replay(self._pieces(), old.rows, old.now)
        new.count_anew()
        new.scan.seen |= old.scan.seen if _same_roles(plan, old.program.plan) else 0
        new.skipping = old.skipping
        new.room.take_over(old.room)
        return new

    def _engine(self, plan: Plan, *, nullable: bool = False) -> Engine:
        limits = self.engine.room.allowance.limits
        return Engine(
            plan, self._schema, self._unit, nullable=nullable, counted=True, limits=limits
        )

    def _pieces(self) -> list[pa.Table]:
        recent = self._recent
        return [] if recent is None else slices(recent, PIECE)

    def _remember(self, events: pa.Table) -> None:
        events = events.select([n for n in events.column_names if n in self._columns])
        known = self._recent
        self._recent = events if known is None else pa.concat_tables([known, events])
        self._forget()

    def _forget(self) -> None:
        """Drops what no match to come can contain, once most of what is kept is of that kind."""
        recent, now, window = self._recent, self.engine.now, self.program.frame.window
        if recent is None or now is None or window is None or not recent.num_rows:
            return
        ends = _ends(recent, self._schema, self._unit)
        outside = int(np.searchsorted(ends, now - window))
        if 2 * outside >= recent.num_rows:
            self._recent = recent.slice(outside).combine_chunks()

    # ---------------------------------------------------------------------------- state

    def save(self) -> bytes:
        """The state as bytes, with the plan it belongs to."""
        header = {"memo": self.memo, "changes": [asdict(change) for change in self.changes]}
        blobs = {"engine": self.engine.save()}
        if self._recent is not None:
            blobs["recent"] = to_bytes(self._recent)
        return packed(header, {}, blobs)

    def restore(self, data: bytes) -> None:
        """Goes on where the matcher that saved this state stopped."""
        header, _, blobs = unpacked(data)
        self.memo = str(header["memo"])
        self.changes = [Change(**change) for change in header["changes"]]
        if self.memo:
            plan = self.adviser.recall(self.memo)
            self.engine = self._engine(plan)
        self.engine.restore(blobs["engine"])
        self._recent = from_bytes(blobs["recent"]) if "recent" in blobs else None

    @property
    def state_bytes(self) -> int:
        """About how many bytes `save` gives, without doing it."""
        return self.engine.state_bytes + (0 if self._recent is None else self._recent.nbytes)

    def held_rows(self) -> npt.NDArray[np.int64]:
        """The rows of the stream that a later match may still contain, ascending."""
        return self.engine.held_rows()

    @property
    def partial_matches(self) -> int:
        return self.engine.partial_matches

    def deadline(self) -> float | None:
        """The time after which something that waits for it can be delivered."""
        return self.engine.deadline()


def _same_roles(plan: Plan, other: Plan) -> bool:
    return [r.variable for r in plan.roles] == [r.variable for r in other.roles]


def _ends(events: pa.Table, schema: Schema, unit: Unit) -> npt.NDArray[Any]:
    return np.asarray(vectors.from_arrow(events.column(schema.end), unit).values)
