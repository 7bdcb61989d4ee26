"""What tests of delivery need: a clock that is moved by hand, and notes in an outbox."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from heapq import heappop, heappush
from pathlib import Path
from sqlite3 import Connection
from typing import Any, TypeVar, cast

from ensue.errors import ServiceError
from ensue.service.delivery.addresses import AddressGuard
from ensue.service.delivery.dispatcher import Dispatcher, DispatcherOptions
from ensue.service.delivery.retry_queue import Backoff
from ensue.service.delivery.webhooks import WebhookLimits, Webhooks
from ensue.service.secrets import SecretCipher, SigningSecret, encode_secrets, new_secret
from ensue.service.settings import ServiceLimits
from ensue.service.store import target_store as targets
from ensue.service.store.database import Database
from ensue.service.store.journal import read_counters

T = TypeVar("T")
LOOPBACK = ("127.0.0.0/8",)
_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # real ones are read from disk, which takes long
SEAL_KEY = "c2VhbCBvZiB0ZXN0cyB3aXRoIDMyIGJ5dGVzIGluIGE="
SEAL = SecretCipher([SEAL_KEY], "a test")
STEPS = Backoff((5.0, 60.0, 600.0), jitter=0.0)


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []
        self._count = 0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        over = asyncio.Event()
        self._count += 1
        heappush(self._sleepers, (self.now + seconds, self._count, over))
        await over.wait()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        while self._sleepers and self._sleepers[0][0] <= self.now:
            heappop(self._sleepers)[2].set()


class Wire:
    """The file as a courier sees it: its disk may be full, and whoever asked may be gone."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.full = False
        self.written: Callable[[], Awaitable[None]] | None = None  # before the courier hears of it

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await self._kept(self._database.read(work))

    async def write(self, work: Callable[[Connection], T]) -> T:
        if self.full:
            raise ServiceError("service.db cannot be written: database or disk is full")
        answer = await self._kept(self._database.write(work))
        if self.written is not None:
            await self.written()
        return answer

    async def _kept(self, doing: Coroutine[Any, Any, T]) -> T:
        """What is begun is done, though a courier that crashed does not hear of it."""
        task = asyncio.create_task(doing)
        await asyncio.wait({task})
        return task.result()


async def _settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Scene:
    """A file of a service with webhooks of a courier, and a clock."""

    def __init__(
        self,
        folder: Path,
        *,
        limits: ServiceLimits | None = None,
        webhooks: WebhookLimits | None = None,
        pace: DispatcherOptions | None = None,
        sinks: dict[str, Callable[[Any], Any]] | None = None,
        guard: AddressGuard | None = None,
    ) -> None:
        self.clock = Clock()
        self.database = Database(folder / "service.db", synchronous="NORMAL")
        self.database.seal = SEAL
        self.limits = limits or ServiceLimits(webhook_attempts=4)
        self.pace = pace or DispatcherOptions(requests=STEPS, brokers=STEPS, closing=5.0)
        self._webhook_limits = webhooks or WebhookLimits(seconds=5.0)
        self._guard, self._sinks = guard, sinks
        self.dispatcher: Dispatcher

    async def __aenter__(self) -> "Scene":
        await self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()
        self.database.close()

    async def begin(self) -> None:
        """A courier starts on the file as it is."""
        self.webhooks = Webhooks(
            self._guard or AddressGuard(LOOPBACK), self._webhook_limits, tls=_TLS, clock=self.clock
        )
        self.wire = Wire(self.database)
        self.dispatcher = Dispatcher(
            cast(Database, self.wire),
            self._sinks or {"webhook": self.webhooks.make},
            self.limits,
            pace=self.pace,
            clock=self.clock,
            sleep=self.clock.sleep,
            chance=lambda: 0.5,
        )
        await self.dispatcher.start()

    async def end(self) -> None:
        await self.dispatcher.close()
        await self.webhooks.close()

    async def crash(self) -> None:
        """The courier ends as if its process were killed: what it knew is lost."""
        courier = self.dispatcher
        courier._closing = True
        for one in courier._attempts.values():
            one.cut()
        tasks = [*courier._loops, *courier._working.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.webhooks.close()

    async def rested(self) -> None:
        """Returns once all that can be sent now is sent."""
        async with asyncio.timeout(30):
            await self.dispatcher.wait_until_idle()

    async def later(self, seconds: float) -> None:
        """Lets time pass, and what becomes due happen."""
        await _settled()  # it has gone to sleep
        self.clock.advance(seconds)
        await _settled()  # it has woken
        await self.rested()

    async def change(self, target: int, work: Callable[..., T], *values: Any, subscription: int = 7) -> T:
        """Changes a target as a user does, and wakes the dispatcher."""
        result = await self.database.write(lambda db: work(db, target, *values, now=self.clock()))
        self.dispatcher.wake([subscription])
        return result

    async def target(
        self,
        url: str | None = None,
        *,
        subscription: int = 7,
        user: int = 1,
        kind: str = "webhook",
        secret: str | None = None,
        **config: Any,
    ) -> int:
        secrets = encode_secrets([SigningSecret(secret or new_secret())]) if kind == "webhook" else []
        given = config if url is None else {"url": url, **config}
        return await self.database.write(
            lambda db: targets.add_target(db, subscription, user, kind, given, now=self.clock(), secrets=secrets)
        )

    async def notes(self, ids: Iterable[str], *, subscription: int = 7, user: int = 1) -> None:
        """Commits matches of a subscription, and wakes the courier."""
        await self.commit(ids, subscription=subscription, user=user)
        self.dispatcher.wake([subscription])

    async def commit(self, ids: Iterable[str], *, subscription: int = 7, user: int = 1) -> None:
        rows = [(subscription, user, "match", id, self.clock(), json.dumps({"match_id": id}).encode()) for id in ids]
        await self.database.write(
            lambda db: db.executemany(
                "INSERT INTO outbox (subscription, user, kind, match_id, at, body) VALUES (?, ?, ?, ?, ?, ?)", rows
            )
        )

    async def state(self, id: int) -> targets.TargetState:
        found = await self.database.read(targets.list_target_states)
        return next(one for one in found if one.id == id)

    async def counted(self, subscription: int = 7) -> dict[str, int]:
        return await self.database.read(lambda db: read_counters(db, subscription))
