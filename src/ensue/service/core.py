"""What happens in the core thread of a service: events, changes of the set, housekeeping.

All of it runs inside transactions of the file, one piece of work after the other. So events,
matches and changes of the set have one order, which a crash does not change.
"""

import logging
import shutil
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import pyarrow as pa

from ensue.errors import EventError, ServiceError
from ensue.service.budgets import Budgets
from ensue.service.catalogue import Catalogue
from ensue.service.columns import Columns
from ensue.service.intake import Bad, Taken
from ensue.service.matching.contract import Found, Matching
from ensue.service.notes import Note
from ensue.service.noting import Noting
from ensue.service.objects import Objects
from ensue.service.pace import Pace
from ensue.service.refusals import IntakeStoppedError, NoRoomError
from ensue.service.settings import Limits
from ensue.service.store import audit, bad_events, batches, keys, outbox, positions
from ensue.service.store import subscriptions as store
from ensue.service.store.counters import WHOLE, count, count_all
from ensue.service.subscribed import Published
from ensue.service.turn import Turn

_LOG = logging.getLogger(__name__)
MOST_ROWS = 50_000  # events that are matched together
LEAST_FREE = 1 << 16  # bytes on the disk, without which nothing can be written
RECENT = 100_000  # events by which objects are known at the start


@dataclass(slots=True)
class Offered:
    """Events that somebody publishes."""

    taken: Taken
    user: int
    producer: str | None = None
    sequences: Sequence[int] | None = None
    answer: "Future[Published]" = field(default_factory=Future)

    def __post_init__(self) -> None:
        # Whoever waits may go away; the events are taken all the same.
        self.answer.set_running_or_notify_cancel()


class Core:
    """The work of a service. Everything but `offer` is called in the core thread."""

    def __init__(
        self,
        path: str,
        columns: Columns,
        matching: Matching,
        limits: Limits,
        shared_regions: Mapping[str, str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self.columns = columns
        self.matching = matching
        self.limits = limits
        self.clock = clock
        self.noting = Noting(columns, limits, clock)
        self.objects = Objects(columns)
        self.pace = Pace()
        self.stopped: str | None = None  # why no events are taken
        self.offered: deque[Offered] = deque()
        self.in_hand: list[Offered] = []  # taken from there, not yet answered
        self.newest_event: float | None = None  # its time
        self.last_event_at: float | None = None  # on this machine's clock
        self.turn = Turn()
        self.catalogue = Catalogue(
            columns, matching, limits, self.noting, shared_regions, self.turn, clock
        )
        self.budgets = Budgets(matching, self.catalogue, limits, clock)
        self._checked_disk = 0.0

    # ---------------------------------------------------------------------------- transactions

    def committed(self) -> list[Note]:
        """What the transaction has told, for listeners."""
        notes, accepted = self.turn.over()
        for events in accepted:
            self.objects.take(events)
            newest = float(self.columns.seconds(events).max())
            known = self.newest_event
            self.newest_event = newest if known is None else max(known, newest)
        return notes

    def rolled_back(self, error: BaseException) -> None:
        """Nothing of the transaction is in the file."""
        self.turn.over()
        self.noting.forget()
        self.matching.failed()
        if isinstance(error, sqlite3.Error):
            self.stopped = f"the file cannot be written: {error}"

    def job(self, work: Callable[[Connection], Any]) -> Callable[[Connection], Any]:
        """A piece of work whose notes are forgotten if it fails."""

        def done(db: Connection) -> Any:
            mark = self.turn.mark()
            try:
                return work(db)
            except BaseException:
                self.turn.back_to(mark)
                self.noting.forget()
                if self.turn.ahead:
                    self.matching.failed()
                raise

        return done

    def load(self, db: Connection) -> None:
        """Goes on where the file says that it stopped."""
        self._look_at_disk()
        self.matching.load(db)
        recent = batches.recent_events(db, self.columns.arrow, RECENT)
        self.objects.take(recent)
        if recent.num_rows:
            self.newest_event = float(self.columns.seconds(recent).max())
            self.last_event_at = self.clock()

    def reset_watermark(self, db: Connection) -> None:
        """Drops events that are too far ahead of the clock, and begins the stream's time anew.

        Partial matches are lost: their windows ended when time jumped ahead.
        """
        latest = self.clock() + self.limits.max_ahead
        dropped = 0
        if self.columns.calendar:
            dropped = batches.drop_events_after(
                db, self.columns.arrow, latest, self.columns.seconds
            )
        self.matching.reset(db)
        count(db, WHOLE, "events_bad", dropped)
        said = f"{dropped} events were ahead of the clock"
        audit.record(db, audit.NOBODY, "reset watermark", self.path, said)

    # ---------------------------------------------------------------------------- events

    def offer(self, offered: Offered) -> bool:
        """Leaves events for the core thread, from any thread; whether it has to be called."""
        self.offered.append(offered)
        return len(self.offered) == 1

    def take_offered(self, db: Connection) -> list[tuple[Offered, Published | Exception]]:
        """Takes what was offered, as one batch; what came of each."""
        some: list[Offered] = []
        rows = 0
        while self.offered and (not some or rows < MOST_ROWS):
            some.append(self.offered.popleft())
            rows += some[-1].taken.events.num_rows
        self.in_hand = some
        if not some:
            return []
        try:
            self._require_room()
        except IntakeStoppedError as error:
            return [(one, error) for one in some]
        try:
            return list(zip(some, self._apart(db, some), strict=True))
        except Exception as error:  # noqa: BLE001 - whoever offered it is told
            if len(some) == 1 or not db.in_transaction:
                return [(one, _for_publishers(error)) for one in some]
        return [(one, self._alone(db, one)) for one in some]  # one of them is the cause

    def _alone(self, db: Connection, one: Offered) -> Published | Exception:
        try:
            return self._apart(db, [one])[0]
        except Exception as error:  # noqa: BLE001 - whoever offered it is told
            return _for_publishers(error)

    def _apart(self, db: Connection, some: list[Offered]) -> list[Published]:
        """Takes offers in a savepoint of their own."""
        db.execute("SAVEPOINT offers")
        try:
            found = self.job(lambda db: self._taken(db, some))(db)
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK TO offers")
                db.execute("RELEASE offers")
            raise
        db.execute("RELEASE offers")
        made: list[Published] = found
        return made

    def _taken(self, db: Connection, some: list[Offered]) -> list[Published]:
        now = self.clock()
        tables, counts = [], []
        for one in some:
            table, repeated, bad = self._new_of(db, one, now)
            tables.append(table)
            counts.append((table.num_rows, repeated, bad))
        events = pa.concat_tables([self.columns.arrow.empty_table(), *tables])
        late: list[int] = [0] * len(some)
        position, notes = 0, 0
        if events.num_rows:
            found = self._matched(db, lambda: self.matching.feed(db, events))
            if any(found.late):
                late, first = [], 0
                for table in tables:
                    late.append(sum(found.late[first : first + table.num_rows]))
                    first += table.num_rows
                events = events.filter(pa.array([not one for one in found.late]))
                count_all(db, ((s, "late", n) for s, n in found.late_by_subscription.items()))
            position = self._keep(db, events, now)
            notes = self._note(db, found.matches)
            self.last_event_at = now
            self.pace.count(events.num_rows)
        totals = {
            "events": events.num_rows,
            "events_late": sum(late),
            "events_repeated": sum(c[1] for c in counts),
            "events_bad": sum(c[2] for c in counts),
        }
        count_all(db, ((WHOLE, name, n) for name, n in totals.items() if n))
        return [
            Published(rows - behind, repeated, bad, behind, position if rows else 0, notes)
            for (rows, repeated, bad), behind in zip(counts, late, strict=True)
        ]

    def _keep(self, db: Connection, events: pa.Table, now: float) -> int:
        if not events.num_rows:
            return 0
        times = self.columns.seconds(events)
        span = float(times.min()), float(times.max())
        self.turn.events.append(events)
        return batches.keep_batch(db, store.version_of(db), now, events, span)

    def _new_of(self, db: Connection, one: Offered, now: float) -> tuple[pa.Table, int, int]:
        """The events of an offer that were not taken before."""
        taken = one.taken
        if one.sequences is None or one.producer is None:
            self._put_aside(db, one, taken.bad, now)
            return taken.events, 0, len(taken.bad)
        if len(one.sequences) != taken.count:
            raise EventError(
                f"{taken.count} events came with {len(one.sequences)} sequence numbers\n"
                "  hint: pass one for each event, or the number of the first"
            )
        expected = positions.next_of(db, one.producer, one.user)
        new = set(positions.new_ones(one.sequences, expected))
        rows = [row for row, place in enumerate(taken.places) if place in new]
        table = taken.events
        if len(rows) < table.num_rows:
            table = table.take(pa.array(rows, pa.int64()))
        bad = [b for b in taken.bad if b.place in new]
        self._put_aside(db, one, bad, now)
        if new:
            last = max(one.sequences[place] for place in new)
            positions.move_on(db, one.producer, one.user, last + 1, now)
        return table, taken.count - len(new), len(bad)

    def _put_aside(self, db: Connection, one: Offered, bad: Sequence[Bad], now: float) -> None:
        some = ((b.reason, b.event) for b in bad)
        bad_events.add_bad_events(db, now, one.user, one.producer, some)

    def put_aside(
        self, db: Connection, event: str, reason: str, producer: str | None, user: int
    ) -> None:
        """Sets aside what could not be read as events at all."""
        bad_events.add_bad_events(db, self.clock(), user, producer, [(reason, event)])
        count(db, WHOLE, "events_bad")

    def advance(self, db: Connection, to: float) -> int:
        """Time has passed without events; how many notes that made."""
        found = self._matched(db, lambda: self.matching.advance(db, to))
        batches.keep_advance(db, store.version_of(db), self.clock(), to)
        return self._note(db, found.matches)

    def found_elsewhere(
        self, db: Connection, matches: pa.Table, left_out: Mapping[str, tuple[int, str]]
    ) -> int:
        """Matches that were found on Spark, without some subscriptions; how many notes."""
        told = self._note(db, matches)
        self.budgets.pause_left_out(db, left_out)
        return told

    def _matched(self, db: Connection, match: Callable[[], Found]) -> Found:
        """Matches without the subscriptions because of which that fails: they are paused."""
        found = None
        while found is None:
            try:
                found = match()
            except Exception as error:
                if not self.budgets.pause_failed(db, self.matching.blamed(), error):
                    raise
        self.turn.ahead = True
        return found

    def _note(self, db: Connection, matches: pa.Table | None) -> int:
        """Makes notes of matches; how many. Those who found too many are paused."""
        if matches is None:
            return 0
        told = self.turn.tell(self.noting.matched(db, matches))
        self.budgets.check_matches(db, self.noting.found)
        return told

    # ---------------------------------------------------------------------------- housekeeping

    def keep_house(self, db: Connection) -> None:
        """What has to be done now and then."""
        now = self.clock()
        for id in store.expired(db, now):
            self.catalogue.cancel(db, id, None, "expired")
            count(db, id, "expired")
        self.budgets.check_usage(db)
        if self.matching.save_due:
            self.matching.save(db)
        before = now - self.limits.retention
        gone = outbox.forget_notes(db, before)
        if gone:
            count(db, WHOLE, "notes_forgotten", gone)
        batches.forget_batches(db, before, self.limits.retained_bytes)
        keys.forget(db, at=now)
        audit.forget(db, now - self.limits.audit_age)
        db.execute("DELETE FROM sessions WHERE expires < ?", (now,))
        bad_events.forget(db, self.limits.bad_events)
        if self.matching.decided is not None:
            db.execute("DELETE FROM quiet WHERE until < ?", (self.matching.decided,))
        self._look_at_disk()

    def _look_at_disk(self) -> None:
        """Stops intake before the disk is full, so that delivery and cursors have room."""
        self._checked_disk = time.monotonic()
        free = shutil.disk_usage(Path(self.path).absolute().parent).free
        least = max(self.limits.free_bytes, LEAST_FREE)
        if free < least:
            needed = f"{max(1, least >> 20)} to continue"
            self.stopped = f"the disk has {free >> 20} MB left, and it needs {needed}"
        else:
            self.stopped = None

    def _require_room(self) -> None:
        if time.monotonic() - self._checked_disk > 1.0 or self.stopped:
            self._look_at_disk()
        if self.stopped:
            raise NoRoomError(
                f"no events are accepted: {self.stopped}\n"
                "  hint: free some space, or shorten retention; existing notes are still delivered"
            )


def _for_publishers(error: Exception) -> Exception:
    """An error without the queries of others, for those who publish."""
    if isinstance(error, EventError | ServiceError | sqlite3.Error):
        return error
    _LOG.error("events cannot be matched", exc_info=error)
    return IntakeStoppedError(
        "the events cannot be matched at the moment\n  hint: the log of the service says why"
    )
