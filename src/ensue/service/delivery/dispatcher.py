"""The dispatcher delivers notifications from the outbox to their targets, at least once.

A target has a task only while it has something to send. Failed targets wait on a heap of timers.
The whole state is in the database, so a new dispatcher resumes where the last one stopped, and
repeats deliveries that were not recorded.
"""

import asyncio
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush

from ensue.errors import EnsueError
from ensue.service.delivery.delivery_attempt import ConcurrentSink, DeliveryAttempt
from ensue.service.delivery.open_sinks import OpenSinks, SinkFactory
from ensue.service.delivery.retry_queue import (
    BROKER_BACKOFF,
    WEBHOOK_BACKOFF,
    Backoff,
    ConcurrencyShares,
    FairQueue,
    RandomSource,
)
from ensue.service.delivery.sink import DeliveryError
from ensue.service.settings import ServiceLimits
from ensue.service.store import target_store
from ensue.service.store.database import Database

_log = logging.getLogger(__name__)

_LONGEST_NAP = 60.0  # seconds, so that changes of the system clock take effect
_UNSAVED = 3  # failures whose backoff is used before a failed write is repeated
_NOW = 0.0  # there is more to send
_CUT = 5.0  # seconds for cancelled attempts to record their outcome


@dataclass(frozen=True, slots=True)
class DispatcherOptions:
    """How much a dispatcher does concurrently."""

    piece: int = 500  # notifications per batch of a target that is sent in order
    rows: int = 4  # batch size as a multiple of a target's concurrent requests
    targets: int = 256  # served concurrently
    requests: Backoff = WEBHOOK_BACKOFF
    brokers: Backoff = BROKER_BACKOFF
    closing: float = 10.0  # seconds to finish pending deliveries
    idle: float = 300.0  # seconds that an unused sink stays open


class Dispatcher:
    """Delivers the notifications of all targets."""

    def __init__(
        self,
        database: Database,
        sinks: Mapping[str, SinkFactory],
        limits: ServiceLimits | None = None,
        *,
        pace: DispatcherOptions | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: RandomSource = random.random,
    ) -> None:
        self._database = database
        self._max_attempts = (limits or ServiceLimits()).webhook_attempts
        self._pace = pace or DispatcherOptions()
        self._clock, self._sleep, self._chance = clock, sleep, chance
        self._sinks = OpenSinks(sinks, self._pace.idle)
        self._pieces = {"": self._pace.piece}  # batch sizes by kind
        self._waiting: FairQueue[int] = FairQueue(ConcurrencyShares.from_total(self._pace.targets))
        self._queued: set[int] = set()
        self._working: dict[int, asyncio.Task[float | None]] = {}
        self._attempts: dict[int, DeliveryAttempt] = {}
        self._again: set[int] = set()  # woken while being served
        self._unsaved: dict[int, target_store.DeliveryOutcome] = {}  # not yet written
        self._timers: list[tuple[float, int]] = []
        self._timed: dict[int, float] = {}
        self._woken: set[int] = set()  # subscriptions
        self._due: set[int] = set()  # targets
        self._looking = False
        self._called, self._earlier = asyncio.Event(), asyncio.Event()
        self._resting = asyncio.Event()
        self._resting.set()
        self._loops: list[asyncio.Task[None]] = []
        self._sweeping: asyncio.Task[None] | None = None
        self._swept = clock()
        self._closing = False
        self._errors = 0  # failed reads and writes, and unexpected errors

    async def start(self) -> None:
        """Resumes pending deliveries."""
        for target in await self._database.read(target_store.list_pending_targets):
            self._schedule(target)
        self._loops = [
            asyncio.create_task(self._find_targets(), name="dispatcher: find targets"),
            asyncio.create_task(self._run_timers(), name="dispatcher: timers"),
        ]
        self._fill()

    def wake(self, subscriptions: Iterable[int]) -> None:
        """Announces committed notifications of these subscriptions."""
        self._woken.update(subscriptions)
        self._request_lookup()

    async def close(self) -> None:
        """Finishes pending deliveries within a time limit; a later start repeats the others."""
        self._closing = True
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        if self._working:
            await asyncio.wait(self._working.values(), timeout=self._pace.closing)
        for attempt in self._attempts.values():
            attempt.cut()
        if self._working:
            await asyncio.wait(self._working.values(), timeout=_CUT)
        left = list(self._working.values())
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for id in list(self._unsaved):
            await self._save(id, self._unsaved[id])
        if self._sweeping is not None:
            await self._sweeping
        await self._sinks.close()

    async def wait_until_idle(self) -> None:
        """Waits until there is nothing that can be sent now."""
        await self._resting.wait()

    def _schedule(self, target: target_store.Target) -> None:
        """Queues a target, or sets its retry timer."""
        if target.id in self._working:
            self._again.add(target.id)
        elif target.state == target_store.FAILING and (target.next_at or 0.0) > self._clock():
            self._arm(target.id, target.next_at or 0.0)
        elif target.id not in self._queued and target.state != target_store.OFF:
            self._queue(target.user, _identify_receiver(target), target.id)

    def _queue(self, user: int, receiver: str, id: int) -> None:
        self._timed.pop(id, None)
        self._queued.add(id)
        self._waiting.add(user, receiver, id)
        self._resting.clear()

    def _fill(self) -> None:
        """Starts queued targets up to the concurrency limit."""
        while not self._closing and (taken := self._waiting.take()) is not None:
            user, receiver, id = taken
            self._queued.discard(id)
            task = asyncio.create_task(self._serve(id), name=f"dispatcher: target {id}")
            self._working[id] = task
            task.add_done_callback(partial(self._finish_attempt, user, receiver, id))
        self._wait_for_work()

    def _finish_attempt(self, user: int, receiver: str, id: int, task: asyncio.Task[float | None]) -> None:
        self._waiting.done(user, receiver)
        del self._working[id]
        next_at = None if task.cancelled() else task.result()
        if id in self._again:
            next_at = _NOW
        self._again.discard(id)
        if next_at is not None and next_at <= self._clock() and not self._closing:
            self._queue(user, receiver, id)
        elif next_at is not None:
            self._arm(id, next_at)
        self._fill()

    def _arm(self, id: int, at: float) -> None:
        if self._timed.get(id) == at:
            return
        if not self._timers or at < self._timers[0][0]:
            self._earlier.set()
        self._timed[id] = at
        heappush(self._timers, (at, id))

    def _request_lookup(self) -> None:
        self._resting.clear()
        self._called.set()

    def _wait_for_work(self) -> None:
        if not (self._working or self._queued or self._woken or self._due or self._looking):
            self._resting.set()

    async def _find_targets(self) -> None:
        """Schedules the targets of woken subscriptions."""
        while True:
            await self._called.wait()
            self._called.clear()
            woken, due = self._woken, self._due
            self._woken, self._due, self._looking = set(), set(), True
            try:
                ready = await self._database.read(partial(target_store.find_targets, subscriptions=woken, ids=due))
            except Exception as error:  # noqa: BLE001 - woken targets must not be forgotten
                self._count_error("the targets of subscriptions could not be read", error)
                self._woken |= woken
                self._due |= due
                await self._sleep(self._pace.brokers.after(1, self._chance))
                self._called.set()
                continue
            finally:
                self._looking = False
            for target in ready:
                self._schedule(target)
            self._fill()

    async def _run_timers(self) -> None:
        """Wakes targets whose retry is due, and closes idle sinks."""
        while True:
            now = self._clock()
            while self._timers and self._timers[0][0] <= now:
                at, id = heappop(self._timers)
                if self._timed.get(id) == at:
                    del self._timed[id]
                    self._due.add(id)
                    self._request_lookup()
            self._sweep(now)
            first = self._timers[0][0] - now if self._timers else _LONGEST_NAP
            self._earlier.clear()
            nap = asyncio.ensure_future(self._sleep(min(first, _LONGEST_NAP)))
            called = asyncio.ensure_future(self._earlier.wait())
            try:
                await asyncio.wait({nap, called}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                nap.cancel()
                called.cancel()

    def _sweep(self, now: float) -> None:
        """Closes idle sinks periodically, without waiting."""
        swept = self._sweeping is None or self._sweeping.done()
        if swept and now - self._swept >= self._pace.idle / 4:
            self._swept = now
            self._sweeping = asyncio.create_task(self._sinks.close_idle(now))

    async def _serve(self, id: int) -> float | None:
        try:
            return await self._attempt(id)
        except Exception as error:  # noqa: BLE001 - other targets must continue
            self._count_error(f"target {id} could not be served", error)
            return self._clock() + self._pace.brokers.after(1, self._chance)

    async def _attempt(self, id: int) -> float | None:
        """Makes a delivery attempt and records its outcome; returns the time of the next one."""
        unsaved = self._unsaved.get(id)
        work = await self._database.read(
            lambda db: target_store.read_pending_deliveries(
                db, id, now=self._clock(), pieces=self._pieces, unsaved=unsaved
            )
        )
        if work is None:
            return None if unsaved is None else await self._save(id, unsaved)
        if not (work.due or work.fresh or work.lost or unsaved):
            return work.next_at
        outcome = await self._outcome(work)
        _log_transition(work.target, outcome)
        after = await self._save(id, outcome if unsaved is None else unsaved.combine(outcome))
        # On a full disk, deliveries of committed notifications continue with the state in memory.
        unsaved_progress = id in self._unsaved and outcome.counted["delivered"] > 0
        return _NOW if unsaved_progress else after

    async def _outcome(self, work: target_store.PendingDeliveries) -> target_store.DeliveryOutcome:
        target = work.target
        attempt = DeliveryAttempt(work, self._pace.brokers, None, lambda: self._closing)
        try:
            async with self._sinks.hold(target, self._clock) as sink:
                if isinstance(sink, ConcurrentSink):
                    piece = self._pieces[target.kind] = self._pace.rows * sink.at_once
                    work = replace(work, fresh=work.fresh[:piece])
                    attempt = DeliveryAttempt(work, self._pace.requests, self._max_attempts, lambda: self._closing)
                self._attempts[target.id] = attempt
                try:
                    await attempt.run(sink)
                finally:
                    del self._attempts[target.id]
        except EnsueError as error:  # the configuration is invalid
            attempt.stopped = DeliveryError(str(error))
        return attempt.compute_outcome(self._clock(), self._chance)

    async def _save(self, id: int, outcome: target_store.DeliveryOutcome) -> float | None:
        """Writes an outcome; if that fails, it stays in memory and is written later."""
        try:
            after = await self._database.write(lambda db: target_store.record_outcome(db, outcome, self._clock()))
        except Exception as error:  # noqa: BLE001 - the outcome is written later
            self._count_error(f"the outcome of target {id} could not be written", error)
            self._unsaved[id] = outcome
            due = [failure.next_at for failure in outcome.failed.values() if not failure.dead]
            again = self._clock() + self._pace.brokers.after(_UNSAVED, self._chance)
            return min([again, *due])
        self._unsaved.pop(id, None)
        return after

    def _count_error(self, what: str, error: Exception) -> None:
        self._errors += 1
        _log.error("%s: %s", what, error, exc_info=not isinstance(error, EnsueError))


def _identify_receiver(target: target_store.Target) -> str:
    """Identifies the receiver, so that targets of one receiver share a queue."""
    config = json.loads(target.config)
    where = next((config[name] for name in ("url", "servers", "server") if name in config), "")
    return f"{target.kind} {'/'.join(str(where).split('/', 3)[:3])}"


def _log_transition(target: target_store.Target, outcome: target_store.DeliveryOutcome) -> None:
    """Logs that a target starts failing, recovers, or is switched off."""
    if outcome.state != target.state:
        what = f"target {target.id} of subscription {target.subscription}"
        reason = f": {outcome.reason}" if outcome.reason else ""
        _log.warning("%s is now %s%s", what, outcome.state, reason)
