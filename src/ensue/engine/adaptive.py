"""A matcher whose plan changes while the stream runs, without losing or repeating a match.

A matcher is deterministic, and with a window every partial match began inside the window. So the
events of the last window are all there is to its state: a new plan takes over by being fed those
events again, its matches of them thrown away, since the old plan has delivered them.

Where these are not the last events of the stream, one behind the other, the new engine numbers
them so all the same, and the rows of the stream are put back into its matches.
"""

import logging
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.algebra.lapses import lapses
from ensue.algebra.operator import Over
from ensue.algebra.walk import results
from ensue.columns.arrow_kinds import Unit
from ensue.columns.matches import Matches
from ensue.columns.stream import slices
from ensue.engine.engine import Engine
from ensue.engine.output import joined
from ensue.engine.program import Program
from ensue.engine.recent_events import RecentEvents, Rows
from ensue.engine.scan import Scan
from ensue.engine.state import from_bytes, packed, to_bytes, unpacked
from ensue.plan.choose import structure_name
from ensue.plan.evictable import in_turn
from ensue.plan.limits import UNLIMITED, Limits
from ensue.plan.physical import Plan, Reference
from ensue.schema import Schema

PIECE = 1 << 15  # events between two looks at the plan
NONE = np.zeros(0, np.int64)

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
    if plan.tallies:
        return "there is only one way to count matches without listing them"
    if any(lapses(plan.query.pattern)):
        return "an absence with an explicit interval may wait longer than the window"
    if in_turn(plan.query):
        return "matches that wait for their turn may be older than the window"
    for applied in results(plan.query.pattern):
        if applied.operator.over is Over.REPEAT:
            return f"the last event of {applied.operator.name} may be older than the window"
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
        self._recent = RecentEvents(plan, schema, unit)
        self._numbers = AsFed()
        self._before = Before()

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
            first = self.engine.rows
            found.append(self._numbers.matches(self.engine.feed(piece)))
            if self._recent.too_many:
                continue
            self._recent.add(piece, first)
            self._recent.forget(self.engine.now)
            recent = self._recent.events
            if recent is None:
                log.info("from event %d on the plan stays: too many partitions", self.engine.rows)
            elif (advice := self.adviser.advise(self.engine, recent)) is not None:
                found.append(self.change(advice))
        return joined(found, self.program.source.output)

    def advance(self, now: float) -> Matches:
        """Lets time pass until `now`: what only waited for it is delivered."""
        found = self._numbers.matches(self.engine.advance(now))
        self._recent.forget(self.engine.now)
        return found

    def finish(self) -> Matches:
        """The stream is over: no more events come that could forbid anything."""
        return self._numbers.matches(self.engine.finish())

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
            # what the new plan would take for delivered
            left = self._numbers.matches(old.advance(old.now))
        self._recent.forget(old.now)
        self._before = Before(self.held_rows(), old.rows)
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
        before, self._numbers = self._numbers, AsFed(self._recent.rows, old.rows)
        if old.skipping is not None:
            # matches of the events that are fed again have been weighed
            earliest = before.in_stream(old.skipped_up_to)
            new.skip_up_to(self._numbers.own(earliest))
        recent = self._recent.events
        new.replay([] if recent is None else slices(recent, PIECE), old.rows, old.now)
        new.count_anew()
        new.scan.seen |= old.scan.seen if _same_roles(plan, old.program.plan) else 0
        new.room.take_over(old.room)
        return new

    def _engine(self, plan: Plan, *, nullable: bool = False) -> Engine:
        limits = self.engine.room.allowance.limits
        return Engine(
            plan, self._schema, self._unit, nullable=nullable, counted=True, limits=limits
        )

    # ---------------------------------------------------------------------------- state

    def save(self) -> bytes:
        """The state as bytes, with the plan it belongs to."""
        header: dict[str, Any] = {
            "memo": self.memo,
            "changes": [asdict(change) for change in self.changes],
        }
        blobs = {"engine": self.engine.save()}
        recent, arrays = self._recent, {}
        if recent.events is not None:
            blobs["recent"] = to_bytes(recent.events)
            if recent.counts:
                arrays["rows"] = recent.rows
        if len(self._numbers.rows):
            header["fed up to"] = self._numbers.end
            arrays["fed"] = self._numbers.rows
        if self._before.end:
            header["held up to"], arrays["held"] = self._before.end, self._before.rows
        if recent.too_many:
            header["too many"] = True
        return packed(header, arrays, blobs)

    def restore(self, data: bytes) -> None:
        """Goes on where the matcher that saved this state stopped."""
        header, arrays, blobs = unpacked(data)
        self.memo = str(header["memo"])
        self.changes = [Change(**change) for change in header["changes"]]
        if self.memo:
            plan = self.adviser.recall(self.memo)
            self.engine = self._engine(plan)
        self.engine.restore(blobs["engine"])
        self._numbers = AsFed(arrays.get("fed", NONE), header.get("fed up to", 0))
        self._before = Before(arrays.get("held", NONE), header.get("held up to", 0))
        self._recent = recent = RecentEvents(self.program.plan, self._schema, self._unit)
        recent.too_many = bool(header.get("too many", False))
        if "recent" in blobs:
            recent.restore(from_bytes(blobs["recent"]), arrays.get("rows"), self.engine.rows)

    @property
    def state_bytes(self) -> int:
        """About how many bytes `save` gives, without doing it."""
        return self.engine.state_bytes + self._recent.nbytes + self._numbers.rows.nbytes

    @property
    def held_bytes(self) -> int:
        """How much memory it takes."""
        return self.engine.held_bytes + self._recent.nbytes + self._numbers.rows.nbytes

    def held_rows(self) -> npt.NDArray[np.int64]:
        """The rows of the stream that a later match may still contain, ascending.

        A new plan may hold events of which the one before it knew that no match needs them.
        """
        return self._before.still_held(self._numbers.in_stream(self.engine.held_rows()))

    @property
    def partial_matches(self) -> int:
        return self.engine.partial_matches

    def deadline(self) -> float | None:
        """The time after which something that waits for it can be delivered."""
        return self.engine.deadline()


@dataclass(frozen=True, slots=True)
class Before:
    """The rows before `end` that the plan up to there still held."""

    rows: Rows = field(default_factory=lambda: NONE)
    end: int = 0

    def still_held(self, rows: Rows) -> Rows:
        """Of rows that a plan holds, those that may be needed."""
        if not self.end:
            return rows
        return rows[(rows >= self.end) | np.isin(rows, self.rows)]


class AsFed:
    """The rows of the stream behind the numbers that an engine gave them.

    The events it was fed again have the numbers before `end`, one behind the other; those from
    then on have their own.
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
        """Rows of the stream; what is older than all events that were fed again is as it was."""
        if not len(self.rows):
            return numbers
        known = (numbers >= self._begin) & (numbers < self.end)
        places = np.where(known, numbers - self._begin, 0)
        return np.where(known, self.rows[places], numbers)

    def own(self, rows: Rows) -> Rows:
        """The number of the first event that is at a row of the stream or behind it."""
        if not len(self.rows):
            return rows
        return np.where(rows < self.end, self._begin + np.searchsorted(self.rows, rows), rows)

    def matches(self, found: Matches) -> Matches:
        return found.moved(self.in_stream) if len(self.rows) and found.count else found


def _same_roles(plan: Plan, other: Plan) -> bool:
    return [r.variable for r in plan.roles] == [r.variable for r in other.roles]
