"""The courier: takes notes from the outbox to their targets, at least once, and remembers how far.

A target has a task while it has something to send, and none otherwise. What failed waits on one
heap of timers. All that is known is in the file: a courier that starts goes on where the last
one stopped, and sends again what was not written down.
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
from sqlite3 import Connection

from ensue.errors import EnsueError
from ensue.service.database import Database
from ensue.service.delivery import signing
from ensue.service.delivery.contract import Undelivered
from ensue.service.delivery.open_sinks import Make, OpenSinks
from ensue.service.delivery.rounds import Patience, Round, Separate, Tally, summed_up
from ensue.service.delivery.turns import Shares, Turns
from ensue.service.delivery.waits import BROKERS, REQUESTS, Chance, Waits
from ensue.service.settings import Limits
from ensue.service.store import targets
from ensue.service.store.targets import FAILING, OFF, After, Outcome, Target, Work

_log = logging.getLogger(__name__)

_LONGEST_NAP = 60.0  # seconds, so that a clock that was set is noticed
_UNSAVED = 3  # the wait, counted in failures, before the file is written again
_CUT = 5.0  # seconds for those that were cut off to write down what they know


@dataclass(frozen=True, slots=True)
class Pace:
    """How much a courier takes on at a time."""

    piece: int = 500  # notes of a target that are sent in order
    rows: int = 4  # times what a target has on its way at once, where notes go separately
    targets: int = 256  # served at a time
    requests: Waits = REQUESTS
    brokers: Waits = BROKERS
    closing: float = 10.0  # seconds to finish what is on its way
    idle: float = 300.0  # seconds that an unused sink stays open


@dataclass(frozen=True, slots=True)
class Busy:
    """What a courier is about."""

    working: int  # targets that are being served
    queued: int  # that could be, and wait for a turn
    timed: int  # that wait for a moment
    open_sinks: int
    troubles: int  # times that the file could not be read or written, or code broke


class Courier:
    """Delivers the notes of all targets."""

    def __init__(
        self,
        database: Database,
        sinks: Mapping[str, Make],
        limits: Limits | None = None,
        *,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Chance = random.random,
    ) -> None:
        self._database = database
        self._attempts = (limits or Limits()).webhook_attempts
        self._pace = pace or Pace()
        self._clock, self._sleep, self._chance = clock, sleep, chance
        self._sinks = OpenSinks(sinks, self._pace.idle)
        self._pieces = {"": self._pace.piece}  # by kind, as they become known
        self._turns: Turns[int] = Turns(Shares.of(self._pace.targets))
        self._queued: set[int] = set()
        self._working: dict[int, asyncio.Task[After]] = {}
        self._rounds: dict[int, Round] = {}
        self._again: set[int] = set()  # woken while they were being served
        self._unsaved: dict[int, Outcome] = {}  # what could not be written yet
        self._timers: list[tuple[float, int]] = []
        self._timed: dict[int, float] = {}
        self._woken: set[int] = set()  # subscriptions
        self._asked: set[int] = set()  # targets
        self._looking = False
        self._called, self._earlier = asyncio.Event(), asyncio.Event()
        self._resting = asyncio.Event()
        self._resting.set()
        self._loops: list[asyncio.Task[None]] = []
        self._sweeping: asyncio.Task[None] | None = None
        self._swept = clock()
        self._closing = False
        self._troubles = 0

    # ---------------------------------------------------------------------------- for the service

    async def start(self) -> None:
        """Goes on with what the file says is to be sent."""
        for target in await self._database.read(targets.with_work):
            self._schedule(target)
        self._loops = [
            asyncio.create_task(self._look_up(), name="courier: look up"),
            asyncio.create_task(self._keep_time(), name="courier: keep time"),
        ]
        self._fill()

    def wake(self, subscriptions: Iterable[int]) -> None:
        """Says that these subscriptions have notes, which are committed."""
        self._woken.update(subscriptions)
        self._call()

    async def close(self) -> None:
        """Finishes what is on its way, for a while; the rest is sent again by the next courier."""
        self._closing = True
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        if self._working:
            await asyncio.wait(self._working.values(), timeout=self._pace.closing)
        for one in self._rounds.values():
            one.cut()
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

    async def rested(self) -> None:
        """Returns once all is sent that can be sent now."""
        await self._resting.wait()

    @property
    def busy(self) -> Busy:
        return Busy(
            len(self._working),
            self._turns.waiting,
            len(self._timed),
            len(self._sinks),
            self._troubles,
        )

    # ---------------------------------------------------------------------------- for users

    async def redeliver(
        self, target: int, numbers: Iterable[int] | None = None
    ) -> tuple[int, ...]:
        """Sends notes again: those of these numbers, or all dead letters; gives which."""
        chosen = None if numbers is None else list(numbers)
        back = await self._database.write(
            lambda db: targets.redeliver(db, target, chosen, now=self._clock())
        )
        self._ask(target)
        return back

    async def switch_on(self, target: int) -> None:
        """Goes on with a target at once, whether it was switched off or failed."""
        await self._database.write(lambda db: targets.switch_on(db, target, now=self._clock()))
        self._ask(target)

    async def switch_off(self, target: int, reason: str) -> None:
        """Sends nothing to a target until it is switched on."""
        await self._database.write(
            lambda db: targets.switch_off(db, target, reason, now=self._clock())
        )

    async def rotate(self, target: int, keep_seconds: float) -> str:
        """Gives a webhook a new secret; the one before it stays in force for a while."""
        fresh = signing.new_secret()

        def rotate(db: Connection) -> None:
            now = self._clock()
            known = signing.from_stored(json.loads(targets.target_of(db, target).secrets))
            kept = signing.rotated(known, fresh, now, keep_seconds)
            targets.change_secrets(db, target, signing.stored(kept), now=now)

        await self._database.write(rotate)
        return fresh

    # ---------------------------------------------------------------------------- whose turn it is

    def _schedule(self, target: Target) -> None:
        """Puts a target in line, or on the heap of timers."""
        if target.id in self._working:
            self._again.add(target.id)
        elif target.state == FAILING and (target.next_at or 0.0) > self._clock():
            self._arm(target.id, target.next_at or 0.0)
        elif target.id not in self._queued and target.state != OFF:
            self._queue(target.user, _place(target), target.id)

    def _queue(self, user: int, place: str, id: int) -> None:
        self._timed.pop(id, None)
        self._queued.add(id)
        self._turns.add(user, place, id)
        self._resting.clear()

    def _fill(self) -> None:
        """Serves as many targets as may be served at a time."""
        while not self._closing and (taken := self._turns.take()) is not None:
            user, place, id = taken
            self._queued.discard(id)
            task = asyncio.create_task(self._serve(id), name=f"courier: target {id}")
            self._working[id] = task
            task.add_done_callback(partial(self._served, user, place, id))
        self._rest()

    def _served(self, user: int, place: str, id: int, task: asyncio.Task[After]) -> None:
        self._turns.done(user, place)
        del self._working[id]
        after = After(False, None) if task.cancelled() else task.result()
        woken = id in self._again
        self._again.discard(id)
        if (after.more or woken) and not self._closing:
            self._queue(user, place, id)
        elif after.next_at is not None:
            self._arm(id, after.next_at)
        self._fill()

    def _arm(self, id: int, at: float) -> None:
        if self._timed.get(id) == at:
            return
        if not self._timers or at < self._timers[0][0]:
            self._earlier.set()
        self._timed[id] = at
        heappush(self._timers, (at, id))

    def _ask(self, id: int) -> None:
        self._asked.add(id)
        self._call()

    def _call(self) -> None:
        self._resting.clear()
        self._called.set()

    def _rest(self) -> None:
        about = self._working or self._queued or self._woken or self._asked or self._looking
        if not about:
            self._resting.set()

    async def _look_up(self) -> None:
        """Finds the targets of subscriptions that were woken."""
        while True:
            await self._called.wait()
            self._called.clear()
            woken, asked = self._woken, self._asked
            self._woken, self._asked, self._looking = set(), set(), True
            try:
                found = await self._database.read(
                    partial(targets.woken, subscriptions=woken, ids=asked)
                )
            except Exception as error:  # noqa: BLE001 - the notes stay in the file, and must not be forgotten
                self._trouble("the targets of subscriptions could not be read", error)
                self._woken |= woken
                self._asked |= asked
                await self._sleep(self._pace.brokers.after(1, self._chance))
                self._called.set()
                continue
            finally:
                self._looking = False
            for target in found:
                self._schedule(target)
            self._fill()

    async def _keep_time(self) -> None:
        """Calls targets whose moment has come, and closes sinks that nobody uses."""
        while True:
            now = self._clock()
            while self._timers and self._timers[0][0] <= now:
                at, id = heappop(self._timers)
                if self._timed.get(id) == at:
                    del self._timed[id]
                    self._ask(id)
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
        """Closes idle sinks now and then, and waits for none of them."""
        over = self._sweeping is None or self._sweeping.done()
        if over and now - self._swept >= self._pace.idle / 4:
            self._swept = now
            self._sweeping = asyncio.create_task(self._sinks.close_idle(now))

    # ---------------------------------------------------------------------------- one target

    async def _serve(self, id: int) -> After:
        try:
            return await self._round(id)
        except Exception as error:  # noqa: BLE001 - other targets go on, and this one is tried again
            self._trouble(f"target {id} could not be served", error)
            return After(False, self._clock() + self._pace.brokers.after(1, self._chance))

    async def _round(self, id: int) -> After:
        """Sends what a target has to send now, and writes down what became of it."""
        unsaved = self._unsaved.get(id)
        work = await self._database.read(
            partial(
                targets.work_of, id=id, now=self._clock(), pieces=self._pieces, unsaved=unsaved
            )
        )
        if work is None:
            return After(False, None) if unsaved is None else await self._save(id, unsaved)
        if not (work.due or work.fresh or work.lost or unsaved):
            return After(False, work.next_at)
        outcome = await self._outcome(work)
        _tell(work.target, outcome)
        after = await self._save(id, outcome if unsaved is None else unsaved.then(outcome))
        # A full disk must not stop what is committed already: it goes on from memory.
        going = id in self._unsaved and outcome.counted["delivered"] > 0
        return After(True, None) if going else after

    async def _outcome(self, work: Work) -> Outcome:
        target = work.target
        patience = Patience(self._pace.brokers, None)
        try:
            async with self._sinks.held(target, self._clock) as sink:
                if isinstance(sink, Separate):
                    piece = self._pieces[target.kind] = self._pace.rows * sink.at_once
                    work = replace(work, fresh=work.fresh[:piece])
                    patience = Patience(self._pace.requests, self._attempts)
                one = self._rounds[target.id] = Round(work, sink, lambda: self._closing)
                try:
                    tally = await one.run()
                finally:
                    del self._rounds[target.id]
        except EnsueError as error:  # no sink can be made of the configuration
            tally = Tally(stopped=Undelivered(str(error)))
        return summed_up(work, tally, patience, self._clock(), self._chance)

    async def _save(self, id: int, outcome: Outcome) -> After:
        """Writes an outcome down. If that fails it is kept in memory, to be written later."""
        try:
            after = await self._database.write(
                lambda db: targets.record(db, outcome, self._clock())
            )
        except Exception as error:  # noqa: BLE001 - sending it again would not help
            self._trouble(f"what target {id} has delivered could not be written", error)
            self._unsaved[id] = outcome
            due = [one.next_at for one in outcome.failed.values() if not one.dead]
            again = self._clock() + self._pace.brokers.after(_UNSAVED, self._chance)
            return After(False, min([again, *due]))
        self._unsaved.pop(id, None)
        return after

    def _trouble(self, what: str, error: Exception) -> None:
        self._troubles += 1
        _log.error("%s: %s", what, error, exc_info=not isinstance(error, EnsueError))


def _place(target: Target) -> str:
    """What targets have in common that wait for the same receiver."""
    config = json.loads(target.config)
    where = next((config[name] for name in ("url", "servers", "server") if name in config), "")
    return f"{target.kind} {'/'.join(str(where).split('/', 3)[:3])}"


def _tell(target: Target, outcome: Outcome) -> None:
    """Says in the log when a target begins to fail, is well again, or is switched off."""
    if outcome.state != target.state:
        _log.warning(
            "target %d of subscription %d is %s now%s",
            target.id,
            target.subscription,
            outcome.state,
            f": {outcome.reason}" if outcome.reason else "",
        )
