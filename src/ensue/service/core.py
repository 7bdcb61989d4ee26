"""The core thread of a service: intake, changes of the subscription set, housekeeping.

Everything runs inside transactions of the database, one job at a time, so events, matches and
changes of the set have one order that survives a crash.
"""

import asyncio
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
from typing import Annotated, Any

import pyarrow as pa
from pydantic import Field

from ensue.errors import EventError, ServiceError
from ensue.service.budgets import ResourceQuotas
from ensue.service.errors import IntakeStoppedError, NoRoomError
from ensue.service.event_columns import EventColumns, ObjectPositions, RateMeter
from ensue.service.intake import BadEvent, DecodedEvents
from ensue.service.matching.match_backend import MatchBackend, MatchResult
from ensue.service.notification_rules import NotificationBuilder, TransactionOutput
from ensue.service.settings import ServiceLimits
from ensue.service.store import event_batches, journal, outbox, subscription_store, user_store
from ensue.service.store.database import Database, savepoint
from ensue.service.store.journal import SERVICE_COUNTERS, increment, increment_all
from ensue.service.store.outbox import Notification
from ensue.service.subscription_catalog import SubscriptionCatalog

_LOG = logging.getLogger(__name__)
MAX_BATCH_ROWS = 50_000  # events that are matched together
MIN_FREE_BYTES = 1 << 16  # bytes of free disk space below which nothing can be written
RECENT_EVENTS = 100_000  # events from which object positions are restored at the start


@dataclass(frozen=True, slots=True)
class PublishResult:
    """The outcome of a publish request; its events are committed."""

    accepted: int
    repeated: Annotated[int, Field(description="duplicates, by producer and sequence")]
    bad: Annotated[int, Field(description="rejected events, see /events/bad")]
    late: Annotated[int, Field(description="events behind the watermark: counted, not matched")]
    position: int  # of the batch that contains them; 0: no new events
    notifications: Annotated[int, Field(exclude=True)] = 0  # of all events of the batch


@dataclass(slots=True)
class PublishRequest:
    """A publish request that waits for the core thread."""

    taken: DecodedEvents
    user: int
    producer: str | None = None
    sequences: Sequence[int] | None = None
    answer: "Future[PublishResult]" = field(default_factory=Future)

    def __post_init__(self) -> None:
        # The publisher may disconnect; its events are processed nevertheless.
        self.answer.set_running_or_notify_cancel()


class ServiceCore:
    """Executes the jobs of a service; all methods but `publish` and `close` run in the core thread."""

    def __init__(
        self,
        database: Database,
        columns: EventColumns,
        matching: MatchBackend,
        limits: ServiceLimits,
        shared_regions: Mapping[str, str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = database.path
        self._database = database
        self._publish_slots = asyncio.Semaphore(max(1, limits.waiting))
        self.columns = columns
        self.matching = matching
        self.limits = limits
        self.clock = clock
        self.notification_builder = NotificationBuilder(columns, limits, clock)
        self.objects = ObjectPositions(columns)
        self.pace = RateMeter()
        self.stopped: str | None = None  # why the intake is stopped
        self.offered: deque[PublishRequest] = deque()
        self.unanswered: list[PublishRequest] = []  # taken from the queue, not yet answered
        self.newest_event: float | None = None  # event time
        self.last_event_at: float | None = None  # wall-clock time
        self.transaction = TransactionOutput()
        self.catalog = SubscriptionCatalog(
            columns, matching, limits, self.notification_builder, shared_regions,
            self.transaction, clock,
        )  # fmt: skip
        self.budgets = ResourceQuotas(matching, self.catalog, limits, clock)
        self._checked_disk = 0.0

    def take_notifications(self) -> list[Notification]:
        """Returns the notifications of the committed transaction."""
        notifications, accepted = self.transaction.take()
        for events in accepted:
            self.objects.take(events)
            newest = float(self.columns.seconds(events).max())
            known = self.newest_event
            self.newest_event = newest if known is None else max(known, newest)
        return notifications

    def roll_back(self, error: BaseException) -> None:
        """Resets the state in memory after a failed transaction."""
        self.transaction.take()
        self.notification_builder.invalidate()
        self.matching.discard_state()
        if isinstance(error, sqlite3.Error):
            self.stopped = f"the file cannot be written: {error}"

    def job(self, work: Callable[[Connection], Any]) -> Callable[[Connection], Any]:
        """Wraps `work` so that its notifications are discarded if it fails."""

        def done(db: Connection) -> Any:
            mark = self.transaction.mark()
            try:
                return work(db)
            except BaseException:
                self.transaction.discard_after(mark)
                self.notification_builder.invalidate()
                if self.transaction.ahead:
                    self.matching.discard_state()
                raise

        return done

    def load(self, db: Connection) -> None:
        self._look_at_disk()
        self.matching.load(db)
        recent = event_batches.read_recent_events(db, self.columns.arrow, RECENT_EVENTS)
        self.objects.take(recent)
        if recent.num_rows:
            self.newest_event = float(self.columns.seconds(recent).max())
            self.last_event_at = self.clock()

    def reset_watermark(self, db: Connection) -> None:
        """Drops events that are too far ahead of the clock, and resets the watermark.

        Partial matches are lost: their windows ended when the event time jumped ahead.
        """
        dropped = 0
        latest = self.clock() + self.limits.max_ahead
        if self.columns.calendar:
            dropped = event_batches.drop_events_after(db, self.columns.arrow, latest, self.columns.seconds)
        self.matching.reset(db)
        increment(db, SERVICE_COUNTERS, "events_bad", dropped)
        detail = f"{dropped} events were ahead of the clock"
        journal.record_action(db, journal.ANONYMOUS, "reset watermark", self.path, detail)

    async def publish(self, request: PublishRequest) -> PublishResult:
        """Processes a request together with others that wait; returns once it is committed."""
        async with self._publish_slots:
            self.offered.append(request)
            if len(self.offered) == 1:
                self._submit_offered()
            return await asyncio.wrap_future(request.answer)

    def _submit_offered(self) -> None:
        self._database.submit(self.take_offered).add_done_callback(self._answer)

    def _answer(self, done: "Future[list[tuple[PublishRequest, PublishResult | Exception]]]") -> None:
        """Answers publishers after the commit; runs in the core thread."""
        error = done.exception()
        for request, outcome in done.result() if error is None else [(each, error) for each in self.unanswered]:
            if isinstance(outcome, BaseException):
                if not request.answer.done():
                    request.answer.set_exception(outcome)
            else:
                request.answer.set_result(outcome)
        if self.offered and not self._database.closed:
            self._submit_offered()

    def close(self) -> None:
        """Rejects the requests that nobody will answer: the database is closed."""
        for request in (*self.unanswered, *self.offered):
            if not request.answer.done():
                request.answer.set_exception(ServiceError("the service was closed"))

    def take_offered(self, db: Connection) -> list[tuple[PublishRequest, PublishResult | Exception]]:
        """Processes queued requests as one batch and returns the outcome of each."""
        requests: list[PublishRequest] = []
        rows = 0
        while self.offered and (not requests or rows < MAX_BATCH_ROWS):
            requests.append(self.offered.popleft())
            rows += requests[-1].taken.events.num_rows
        self.unanswered = requests
        if not requests:
            return []
        try:
            self._require_room()
        except IntakeStoppedError as error:
            return [(request, error) for request in requests]
        try:
            return list(zip(requests, self._process(db, requests), strict=True))
        except Exception as error:  # noqa: BLE001 - the publishers get it
            if len(requests) == 1 or not db.in_transaction:
                return [(request, _for_publishers(error)) for request in requests]
        outcomes: list[tuple[PublishRequest, PublishResult | Exception]] = []
        for request in requests:  # one of them is the cause
            try:
                outcomes.append((request, self._process(db, [request])[0]))
            except Exception as error:  # noqa: BLE001 - the publisher gets it
                outcomes.append((request, _for_publishers(error)))
        return outcomes

    def _process(self, db: Connection, requests: list[PublishRequest]) -> list[PublishResult]:
        with savepoint(db, "offers"):
            results: list[PublishResult] = self.job(lambda db: self._match_and_store(db, requests))(db)
        return results

    def _match_and_store(self, db: Connection, requests: list[PublishRequest]) -> list[PublishResult]:
        now = self.clock()
        tables, counts = [], []
        for request in requests:
            table, repeated, bad = self._drop_repeated(db, request, now)
            tables.append(table)
            counts.append((table.num_rows, repeated, bad))
        events = pa.concat_tables([self.columns.arrow.empty_table(), *tables])
        late: list[int] = [0] * len(requests)
        position, notifications = 0, 0
        if events.num_rows:
            result = self._match(db, lambda: self.matching.feed(db, events))
            if any(result.late):
                late, first = [], 0
                for table in tables:
                    late.append(sum(result.late[first : first + table.num_rows]))
                    first += table.num_rows
                events = events.filter(pa.array([not is_late for is_late in result.late]))
                increment_all(db, ((s, "late", n) for s, n in result.late_by_subscription.items()))
            if events.num_rows:
                times = self.columns.seconds(events)
                span = float(times.min()), float(times.max())
                self.transaction.events.append(events)
                position = event_batches.store_batch(db, subscription_store.get_version(db), now, events, span)
            notifications = self._notify(db, result.matches)
            self.last_event_at = now
            self.pace.count(events.num_rows)
        totals = {
            "events": events.num_rows,
            "events_late": sum(late),
            "events_repeated": sum(c[1] for c in counts),
            "events_bad": sum(c[2] for c in counts),
        }
        increment_all(db, ((SERVICE_COUNTERS, name, n) for name, n in totals.items() if n))
        return [
            PublishResult(rows - late_rows, repeated, bad, late_rows, position if rows else 0, notifications)
            for (rows, repeated, bad), late_rows in zip(counts, late, strict=True)
        ]

    def _drop_repeated(self, db: Connection, request: PublishRequest, now: float) -> tuple[pa.Table, int, int]:
        """Returns the new events of a request, and how many are repeated or bad."""
        taken = request.taken
        if request.sequences is None or request.producer is None:
            self._store_bad(db, request, taken.bad, now)
            return taken.events, 0, len(taken.bad)
        if len(request.sequences) != taken.count:
            raise EventError(
                f"{taken.count} events came with {len(request.sequences)} sequence numbers\n"
                "  hint: pass one for each event, or the number of the first"
            )
        expected = journal.get_next_sequence(db, request.producer, request.user)
        new = set(journal.select_new_events(request.sequences, expected))
        rows = [row for row, place in enumerate(taken.places) if place in new]
        table = taken.events
        if len(rows) < table.num_rows:
            table = table.take(pa.array(rows, pa.int64()))
        bad = [b for b in taken.bad if b.place in new]
        self._store_bad(db, request, bad, now)
        if new:
            last = max(request.sequences[place] for place in new)
            journal.set_next_sequence(db, request.producer, request.user, last + 1, now)
        return table, taken.count - len(new), len(bad)

    def _store_bad(self, db: Connection, request: PublishRequest, bad: Sequence[BadEvent], now: float) -> None:
        journal.add_bad_events(db, now, request.user, request.producer, ((each.reason, each.event) for each in bad))

    def put_aside(self, db: Connection, event: str, reason: str, producer: str | None, user: int) -> None:
        """Stores an unreadable payload as a bad event."""
        journal.add_bad_events(db, self.clock(), user, producer, [(reason, event)])
        increment(db, SERVICE_COUNTERS, "events_bad")

    def advance(self, db: Connection, to: float) -> int:
        """Advances the event time without events; returns the number of notifications."""
        result = self._match(db, lambda: self.matching.advance(db, to))
        event_batches.store_advance(db, subscription_store.get_version(db), self.clock(), to)
        return self._notify(db, result.matches)

    def store_matches(self, db: Connection, matches: pa.Table, left_out: Mapping[str, tuple[int, str]]) -> int:
        """Stores matches found on Spark and pauses `left_out`; returns the notification count."""
        count = self._notify(db, matches)
        self.budgets.pause_left_out(db, left_out)
        return count

    def _match(self, db: Connection, match: Callable[[], MatchResult]) -> MatchResult:
        """Runs `match`, pausing the subscriptions that make it fail."""
        result = None
        while result is None:
            try:
                result = match()
            except Exception as error:
                if not self.budgets.pause_failed(db, self.matching.get_failure_causes(), error):
                    raise
        self.transaction.ahead = True
        return result

    def _notify(self, db: Connection, matches: pa.Table | None) -> int:
        """Creates notifications for matches; subscriptions with too many are paused."""
        if matches is None:
            return 0
        count = self.transaction.add(self.notification_builder.notify_matches(db, matches))
        self.budgets.check_matches(db, self.notification_builder.match_counts)
        return count

    def run_housekeeping(self, db: Connection) -> None:
        """Runs the periodic tasks: expiry, quotas, snapshots, retention, disk space."""
        now = self.clock()
        for id in subscription_store.list_expired(db, now):
            self.catalog.cancel(db, id, None, "expired")
            increment(db, id, "expired")
        self.budgets.check_usage(db)
        if self.matching.save_due:
            self.matching.save(db)
        before = now - self.limits.retention
        gone = outbox.prune_notifications(db, before)
        if gone:
            increment(db, SERVICE_COUNTERS, "notes_forgotten", gone)
        event_batches.prune_batches(db, before, self.limits.retained_bytes)
        journal.prune(db, now, audit_age=self.limits.audit_age, bad_events=self.limits.bad_events)
        user_store.prune_sessions(db, now)
        if self.matching.decided is not None:
            subscription_store.prune_quiet(db, self.matching.decided)
        self._look_at_disk()

    def _look_at_disk(self) -> None:
        """Stops intake before the disk is full, so that delivery and cursors have room."""
        self._checked_disk = time.monotonic()
        free = shutil.disk_usage(Path(self.path).absolute().parent).free
        least = max(self.limits.free_bytes, MIN_FREE_BYTES)
        self.stopped = None
        if free < least:
            needed = f"{max(1, least >> 20)} to continue"
            self.stopped = f"the disk has {free >> 20} MB left, and it needs {needed}"

    def _require_room(self) -> None:
        if time.monotonic() - self._checked_disk > 1.0 or self.stopped:
            self._look_at_disk()
        if self.stopped:
            raise NoRoomError(
                f"no events are accepted: {self.stopped}\n"
                "  hint: free some space, or shorten retention; the outbox is still delivered"
            )


def _for_publishers(error: Exception) -> Exception:
    """Hides the queries of other users from an error that goes to publishers."""
    if isinstance(error, EventError | ServiceError | sqlite3.Error):
        return error
    _LOG.error("events cannot be matched", exc_info=error)
    return IntakeStoppedError("the events cannot be matched at the moment\n  hint: see the log of the service")
