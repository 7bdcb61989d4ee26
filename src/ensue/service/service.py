"""The subscription service in a program, without a server: `async with ensue.Service(...)`."""

import asyncio
import contextlib
import hashlib
import json
import logging
import time as clock
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from sqlite3 import Connection
from typing import Any, TypeVar

import pyarrow as pa

from ensue.brief_errors import brief_calls
from ensue.columns.region_shapes import region_text
from ensue.errors import EnsueError, EventError, ServiceError, StateError
from ensue.runners.live_rows import schemas_of
from ensue.service import looking
from ensue.service.access import limits_of, local_user
from ensue.service.arrow_streams import too_many_events
from ensue.service.catalogue import only_set
from ensue.service.columns import Columns
from ensue.service.core import Core, Offered
from ensue.service.database import Database
from ensue.service.delivery.courier import Courier
from ensue.service.delivery.signing import from_stored
from ensue.service.delivery.sinks import Sinks
from ensue.service.file_lock import FileLock
from ensue.service.intake import Intake, shown_text
from ensue.service.listening import Kept, Listeners
from ensue.service.looking import Trial
from ensue.service.matching.contract import Matching
from ensue.service.matching.in_process import InProcess
from ensue.service.notes import Note
from ensue.service.refusals import IntakeStoppedError, NotFoundError
from ensue.service.secrets import Seal, seal_of
from ensue.service.settings import Limits, Stream
from ensue.service.sources.contract import Source
from ensue.service.store import outbox, positions, regions
from ensue.service.store import subscriptions as store
from ensue.service.store.targets import target_of
from ensue.service.subscribed import Published, Subscribed
from ensue.service.wanted import UNSET, TargetWanted, Unset, Wanted

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
Target = Mapping[str, Any] | TargetWanted
_HOUSE = 1.0  # seconds between two rounds of housekeeping
_SMALL = 1 << 16  # bytes of events that are read on the event loop


@brief_calls
class Service:
    """Takes events and subscriptions, and tells subscribers of matches. Nothing is lost.

    One SQLite file has all of it. What the events look like (`schema`, `time`, `type`, `order`,
    `location`, `space`, `key`, `watermark`, `idle`) is said once; later the file knows it.
    `schema` and the rest are as in `ensue.live`; `key` is the column that says whose event it
    is; `idle`: after so many seconds without events, time goes by the clock.

    `synchronous="NORMAL"` is quicker, and loses the last moments in a power cut, though not in a
    crash of the process. `limits` are those of `ensue.service.settings.Limits`, by name.
    `reset_watermark=True` continues a file whose watermark is far ahead of the clock.

    Secrets of webhooks and passwords of targets are encrypted in the file. The key is in the
    environment variable `ENSUE_SECRET_KEY`, or in `secret_key_file`, by default the name of the
    file with `.key` behind it, which is made with a new file.

    >>> import asyncio
    >>> import tempfile
    >>> import ensue
    >>> async def hot(folder: str) -> list[str]:
    ...     events = [{"t": 1, "type": "oven", "heat": 95.0}]
    ...     async with ensue.Service(f"{folder}/s.db", schema=events, time="t", type="type") as s:
    ...         await s.subscribe("A, A = (STRING:type = 'oven', ARITH:heat > 90)")
    ...         await s.publish(events)
    ...         return [note.kind for note in await s.notes()]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(hot(folder))
    ['started', 'match']
    """

    def __init__(
        self,
        path: str | Path,
        *,
        schema: Any = None,
        time: str | tuple[str, str] | None = None,
        type: str | None = None,
        order: Sequence[str] | str = (),
        location: str | tuple[str, str] | None = None,
        space: str = "plane",
        key: str | None = None,
        watermark: str | float | None = None,
        idle: float | None = None,
        regions: Mapping[str, Any] | None = None,
        limits: Mapping[str, Any] | Limits | None = None,
        synchronous: str = "FULL",
        matching: Callable[[Columns, Limits, "Service"], Matching] | None = None,
        sources: Iterable[Source] = (),
        reset_watermark: bool = False,
        secret_key_file: str | Path | None = None,
    ) -> None:
        self.path = str(path)
        self.limits = Limits.given(limits)
        self._given: Stream | None = None
        if schema is not None or time is not None:
            if schema is None or time is None:
                raise EventError("a service needs both schema= and time=")
            self._given = Stream(
                _columns(schema), time, type, (order,) if isinstance(order, str) else tuple(order),
                location if isinstance(location, str | None) else (location[0], location[1]),
                space, key, watermark, idle,
            )  # fmt: skip
        self._regions = {name: region_text(value) for name, value in (regions or {}).items()}
        self._synchronous = synchronous
        self._matching = matching
        self._sources = list(sources)
        self._reset_watermark = reset_watermark
        self._key_file = secret_key_file
        self.sources: list[Source] = []  # that are being read
        self.stopped_sources: dict[str, str] = {}  # that broke, and why
        self._tasks: list[asyncio.Task[None]] = []
        self._core: Core | None = None
        self._database: Database | None = None
        self.began = 0.0  # when it was started, on the clock

    # ---------------------------------------------------------------------------- life

    async def start(self) -> "Service":
        """Opens the file and goes on where it stopped."""
        if self._core is not None:
            raise ServiceError("the service has started already")
        self._loop = asyncio.get_running_loop()
        if self._given is not None:
            Columns(self._given)  # what does not fit together must not get into a file
        elif not Path(self.path).exists():
            raise self._new()
        lock = FileLock(self.path)
        try:
            await self._open(Database(self.path, synchronous=self._synchronous))
        except BaseException:
            lock.release()
            raise
        self._lock = lock
        self.began = clock.time()
        self._tasks = [self._loop.create_task(self._keep_house(), name="ensue house")]
        for source in self._sources:
            self.add_source(source)
        return self

    async def _open(self, database: Database) -> None:
        try:
            stream, shared = await database.write(self._settled)
            database.seal = await database.write(self._sealed)
            await database.write(database.seal.settle)
            self.columns = Columns(stream)
            make = self._matching or _in_process
            matching = make(self.columns, self.limits, self)
            core = Core(self.path, self.columns, matching, self.limits, shared)
            self.intake = Intake(self.columns, self.limits)
            self.listeners = Listeners(self.limits)
            self._room = asyncio.Semaphore(max(1, self.limits.waiting))
            database.committed.append(self._committed)
            database.rolled_back.append(core.rolled_back)
            self._database, self._core = database, core
            self.local = await database.write(local_user)
            if self._reset_watermark:
                await database.write(core.reset_watermark)
            await database.write(core.load)
            self.sinks = Sinks(self.limits)
            self.courier = Courier(database, self.sinks.makes, self.limits)
            await self.courier.start()
        except BaseException:
            if self._core is not None:
                await asyncio.to_thread(self._core.matching.close)
            self._core = self._database = None
            await asyncio.to_thread(database.close)
            raise

    @property
    def runs(self) -> bool:
        """Whether it has started and is not closed."""
        return self.began > 0 and self._core is not None

    async def close(self) -> None:
        """Takes no more, finishes what has begun, and closes the file."""
        if self._database is None or self._core is None:
            return
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.listeners.close()
        await self.courier.close()
        await self.sinks.close()
        core, database = self._core, self._database
        if core.matching.save_due_at_end:
            try:
                await database.write(core.matching.save)
            except IntakeStoppedError as error:  # it starts from an older one
                _LOG.warning("no snapshot was written: %s", error)
        await asyncio.to_thread(core.matching.close)
        self._core = self._database = None
        await asyncio.to_thread(database.close)
        self._lock.release()
        for one in (*core.in_hand, *core.offered):
            if not one.answer.done():
                one.answer.set_exception(ServiceError("the service was closed"))

    async def __aenter__(self) -> "Service":
        return await self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def add_source(self, source: Source) -> None:
        """Reads events from somewhere, too, until the service is closed."""

        async def read() -> None:
            try:
                await source.run(self)
            except Exception as error:  # noqa: BLE001 - it must not take the service with it
                _LOG.exception("source %s has stopped", source.name)
                self.stopped_sources[source.name] = f"it has stopped: {error}"

        self.sources.append(source)
        self._tasks.append(self._loop.create_task(read(), name=f"ensue source {source.name}"))

    @property
    def core(self) -> Core:
        if self._core is None:
            raise IntakeStoppedError(
                "the service is not running\n  hint: async with ensue.Service(...) as service:"
            )
        return self._core

    @property
    def database(self) -> Database:
        self.core  # noqa: B018 - says that it is not running
        assert self._database is not None
        return self._database

    @property
    def stream(self) -> Stream:
        """What the events look like."""
        return self.columns.stream

    def _new(self) -> ServiceError:
        return ServiceError(
            f"{self.path} is new, so describe its events\n"
            '  hint: ensue.Service(path, schema={"ts": "timestamp[us]", ...}, time="ts")'
        )

    def _settled(self, db: Connection) -> tuple[Stream, dict[str, str]]:
        """What was said of the stream when the file was made, or is said now."""
        known = dict(map(tuple, db.execute("SELECT name, value FROM settings")))
        if "stream" not in known:
            if self._given is None:
                raise self._new()
            db.execute("INSERT INTO settings VALUES ('stream', ?)", (self._given.text,))
            known["stream"] = self._given.text
        stream = Stream.read(known["stream"])
        if self._given is not None and self._given != stream:
            given, found = json.loads(self._given.text), json.loads(stream.text)
            name = next(name for name in found if found[name] != given[name])
            raise StateError(
                f"{self.path} was made with {name}={found[name]!r}, not {given[name]!r}\n"
                "  hint: leave it out, or name another file"
            )
        shared = json.loads(known.get("regions", "{}")) | self._regions
        if json.dumps(shared) != known.get("regions"):  # a full disk takes nothing
            db.execute(
                "INSERT OR REPLACE INTO settings VALUES ('regions', ?)", (json.dumps(shared),)
            )
        return stream, shared

    def _sealed(self, db: Connection) -> Seal:
        return seal_of(self.path, db, self._key_file)

    # ---------------------------------------------------------------------------- work

    async def do(self, work: Callable[[Connection], T]) -> T:
        """A piece of work in the core thread; its answer once it is on disk."""
        return await self.database.write(self.core.job(work))

    async def look(self, work: Callable[[Connection], T]) -> T:
        """Reads what is committed."""
        return await self.database.read(work)

    def _committed(self) -> None:
        """In the core thread: what a transaction has told goes to those who wait for it."""
        if self._core is None:
            return
        notes = self._core.committed()
        if notes:
            with contextlib.suppress(RuntimeError):  # the loop is closed: they are in the outbox
                self._loop.call_soon_threadsafe(self._dispatch, notes)

    def _dispatch(self, notes: Sequence[Note]) -> None:
        self.listeners.dispatch(notes)
        self.courier.wake({note.subscription for note in notes})

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(_HOUSE)
            try:
                await self.do(self.core.keep_house)
                await self._follow_the_clock()
            except EnsueError as error:  # said in health, tried again
                _LOG.warning("housekeeping failed: %s", error)

    async def _follow_the_clock(self) -> None:
        """An idle stream goes on with the clock, from its newest event."""
        idle, last = self.stream.idle, self.core.last_event_at
        newest = self.core.matching.newest
        if idle is None or last is None or newest is None:
            return
        silent = clock.time() - last - idle
        if silent > 0:
            to = self.core.newest_event + silent if self.core.newest_event is not None else newest
            if to > newest:
                await self.do(lambda db: self.core.advance(db, to))

    # ---------------------------------------------------------------------------- events

    async def publish(
        self,
        events: Any,
        *,
        media: str | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        sequences: Sequence[int] | None = None,
        user: int | None = None,
        limits: Limits | None = None,
    ) -> Published:
        """Takes events; returns once they, and what they completed, are on disk.

        `events` are a table, an event as a dict, a list of such, or bytes of a media type. With a
        `producer` and the `sequence` number of the first event (or `sequences`, one for each),
        events that had come before are dropped: numbers of a producer grow. `limits` are those of
        the user; None: those of the service.
        """
        limits = limits or self.limits
        size = len(events) if isinstance(events, bytes | bytearray) else 0
        if size > _SMALL:
            taken = await asyncio.to_thread(self.intake.read, events, media, limits=limits)
        else:
            taken = self.intake.read(events, media, limits=limits)
        if taken.count > limits.events_per_request:
            raise too_many_events(taken.count, limits.events_per_request)
        if producer is not None and sequence is None and sequences is None:
            raise EventError("a producer must number its events\n  hint: sequence= of the first")
        if sequence is not None:
            sequences = range(sequence, sequence + taken.count)
        if sequences is not None and producer is None:
            raise EventError("sequence numbers need a producer\n  hint: producer=")
        who = self.local if user is None else user
        offered = Offered(taken, who, producer, sequences)
        async with self._room:
            core, database = self.core, self.database
            if core.offer(offered):
                database.submit(core.take_offered).add_done_callback(self._answer)
            return await asyncio.wrap_future(offered.answer)

    async def put_aside(
        self,
        payload: bytes,
        reason: str,
        *,
        producer: str | None = None,
        user: int | None = None,
    ) -> None:
        """Sets aside what could not be read as events at all, for the operators."""
        who = self.local if user is None else user
        event, why = shown_text(payload), reason.partition("\n")[0]
        try:
            await self.do(lambda db: self.core.put_aside(db, event, why, producer, who))
        except IntakeStoppedError as error:  # the disk is full: who sent it knows the reason
            _LOG.warning("could not be set aside (%s): %s", error, why)

    def _answer(self, done: "Future[Any]") -> None:
        """In the core thread, behind the commit: tells publishers what came of their events."""
        error = done.exception()
        core, database = self._core, self._database
        if error is not None:
            for one in core.in_hand if core is not None else ():
                if not one.answer.done():
                    one.answer.set_exception(error)
        else:
            for one, came in done.result():
                if isinstance(came, Exception):
                    one.answer.set_exception(came)
                else:
                    one.answer.set_result(came)
        if core is not None and database is not None and core.offered:
            database.submit(core.take_offered).add_done_callback(self._answer)

    async def advance(self, time: Any) -> int:
        """Time has come so far, though no event came; how many notes that made."""
        to = self.columns.read_moment(time, "time")
        if to is None:
            raise EventError("time=None is not a moment")
        if self.core.matching.newest is not None and to <= self.core.matching.newest:
            return 0
        return await self.do(lambda db: self.core.advance(db, to))

    async def position(self, producer: str, *, user: int | None = None) -> int | None:
        """The number of the event that is expected next from a producer; None: it is new."""
        who = self.local if user is None else user
        return await self.look(lambda db: positions.next_of(db, producer, who))

    # ---------------------------------------------------------------------------- subscriptions

    def _wanted(self, user: int | None, targets: Iterable[Target] = (), **asked: Any) -> Wanted:
        expires = asked.pop("expires", None)
        if isinstance(expires, datetime):
            expires = expires.timestamp()
        elif expires is not None:
            expires = clock.time() + float(expires)
        where = tuple(
            t if isinstance(t, TargetWanted) else TargetWanted(t["kind"], _rest(t))
            for t in targets
        )
        given = {name: value for name, value in asked.items() if value is not None}
        return Wanted(
            self.local if user is None else user, targets=where, expires=expires, **given
        )

    async def subscribe(
        self,
        text: str | None = None,
        *,
        template: str | None = None,
        values: Mapping[str, Any] | None = None,
        name: str | None = None,
        regions: Mapping[str, Any] | None = None,
        language: str | None = None,
        expires: datetime | float | None = None,
        quiet: float | None = None,
        targets: Iterable[Target] = (),
        user: int | None = None,
        idempotency_key: str | None = None,
        digest: bytes | None = None,
        trusted: bool = True,
    ) -> Subscribed:
        """Adds a subscription: a text, or a template with values. It sees the next events.

        `expires` is a moment, or seconds from now; `quiet` says for how long of the stream's time
        it is silent about an object that it has told of. The same `idempotency_key` again gives
        the subscription that was made the first time.
        """
        wanted = self._wanted(
            user, targets, text=text, template=template, values=values, name=name,
            regions=regions, language=language, expires=expires, quiet=quiet,
        )  # fmt: skip
        for target in wanted.targets:
            await self.sinks.check(target.kind, target.config, trusted=trusted)
        request = (text, template, values, name, regions, language, quiet, wanted.targets)
        asked = digest or hashlib.sha256(repr(request).encode()).digest()
        return await self.do(
            lambda db: self.core.catalogue.subscribe(db, wanted, idempotency_key, asked)
        )

    async def subscribe_all(
        self, several: Iterable[Mapping[str, Any]], *, user: int | None = None
    ) -> list[Subscribed]:
        """Adds many at once, all of them or none: each as the arguments of `subscribe`."""
        wanted = [self._wanted(user, **one) for one in several]
        for target in (target for one in wanted for target in one.targets):
            await self.sinks.check(target.kind, target.config, trusted=True)
        return await self.do(lambda db: self.core.catalogue.subscribe_all(db, wanted))

    async def subscribe_each(
        self,
        several: Iterable[Mapping[str, Any]],
        *,
        user: int | None = None,
        idempotency_key: str | None = None,
        digest: bytes | None = None,
        trusted: bool = True,
    ) -> list[Subscribed | EnsueError]:
        """Adds many at once, those that can be: a subscription, or why there is none, for each."""
        asked = list(several)
        who = self.local if user is None else user
        wanted: list[Wanted | EnsueError] = []
        for one in asked:
            try:
                found = self._wanted(who, **one)
                for target in found.targets:
                    await self.sinks.check(target.kind, target.config, trusted=trusted)
            except EnsueError as error:
                wanted.append(error)
            else:
                wanted.append(found)
        request = digest or hashlib.sha256(repr(asked).encode()).digest()
        return await self.do(
            lambda db: self.core.catalogue.subscribe_each(
                db, who, wanted, idempotency_key, request
            )
        )

    async def change(
        self,
        id: int,
        *,
        name: str | Unset = UNSET,
        text: str | Unset = UNSET,
        template: str | Unset = UNSET,
        values: Mapping[str, Any] | Unset = UNSET,
        regions: Mapping[str, Any] | Unset = UNSET,
        language: str | Unset | None = UNSET,
        expires: datetime | float | Unset | None = UNSET,
        quiet: float | Unset | None = UNSET,
        user: int | None = None,
    ) -> Subscribed:
        """Changes some of a subscription. With another text or regions it begins anew."""
        if isinstance(expires, datetime):
            expires = expires.timestamp()
        elif isinstance(expires, int | float):
            expires = clock.time() + expires
        given = only_set(
            name=name, text=text, template=template, values=values, regions=regions,
            language=language, expires=expires, quiet=quiet,
        )  # fmt: skip
        who = self.local if user is None else user
        return await self.do(lambda db: self.core.catalogue.change(db, id, who, given))

    async def pause(self, id: int, *, user: int | None = None) -> Subscribed:
        """Takes a subscription out of the set. What it has seen so far is forgotten."""
        who = self.local if user is None else user
        return await self.do(lambda db: self.core.catalogue.pause(db, id, who))

    async def resume(self, id: int, *, user: int | None = None) -> Subscribed:
        """Puts one that was paused back: it sees the next events."""
        who = self.local if user is None else user
        return await self.do(lambda db: self.core.catalogue.resume(db, id, who))

    async def cancel(
        self, id: int, *, reason: str = "cancelled", user: int | None = None
    ) -> Subscribed:
        """Ends a subscription."""
        who = self.local if user is None else user
        return await self.do(lambda db: self.core.catalogue.cancel(db, id, who, reason))

    async def subscription(self, id: int, *, user: int | None = None) -> Subscribed:
        """A subscription of a user."""
        who = self.local if user is None else user
        row = await self.look(lambda db: store.subscription_of(db, id))
        if row is None or row["user"] != who:
            raise NotFoundError(f"there is no subscription {id}")
        return Subscribed.of(row)

    async def subscriptions(
        self,
        *,
        state: str | None = None,
        after: int = 0,
        limit: int = 1_000,
        user: int | None = None,
    ) -> list[Subscribed]:
        """Subscriptions of a user, those that have ended only if asked for."""
        who = self.local if user is None else user
        rows = await self.look(lambda db: store.subscriptions_of(db, who, state, after, limit))
        return [Subscribed.of(row) for row in rows]

    async def add_target(
        self,
        id: int,
        kind: str,
        config: Mapping[str, Any],
        *,
        user: int | None = None,
        trusted: bool = True,
    ) -> int:
        """Sends notes of a subscription somewhere from now on; gives the target's number.

        Who is not `trusted` may name only brokers that the limits list.
        """
        await self.sinks.check(kind, config, trusted=trusted)
        who = self.local if user is None else user
        found = await self.do(lambda db: self.core.catalogue.add_target(db, id, who, kind, config))
        self.courier.wake({id})
        return int(found)

    async def secret(self, target: int, *, user: int | None = None) -> str:
        """What a webhook is signed with now."""
        who = self.local if user is None else user

        def find(db: Connection) -> str:
            found = target_of(db, target)
            if found.user != who:
                raise NotFoundError(f"there is no target {target}")
            known = from_stored(json.loads(found.secrets))
            if not known:
                raise ServiceError(
                    f"target {target} is of kind {found.kind}: it does not sign anything"
                )
            return known[0].text

        return await self.look(find)

    # ---------------------------------------------------------------------------- notes

    def notifications(
        self,
        after: int | None = None,
        *,
        subscription: int | None = None,
        user: int | None = None,
    ) -> AsyncIterator[Note]:
        """Notes behind a number, then those that come; None: from now on.

        If notes behind the number are gone already, one of the kind "resync" comes first.
        """
        who = self.local if user is None else user
        return self.listeners.follow(
            self.reading(who, subscription), after, user=who, subscription=subscription
        )

    def reading(self, user: int | None, subscription: int | None = None) -> Any:
        """How listeners read the outbox."""

        async def read(after: int, most: int) -> Kept:
            def kept(db: Connection) -> Kept:
                db.execute("BEGIN")  # one view of all three
                try:
                    notes = outbox.notes_behind(
                        db, after, most=most, user=user, subscription=subscription
                    )
                    return Kept(notes, outbox.forgotten_up_to(db, user), outbox.newest(db))
                finally:
                    db.execute("ROLLBACK")

            return await self.look(kept)

        return read

    async def notes(
        self,
        after: int = 0,
        limit: int = 1_000,
        *,
        subscription: int | None = None,
        user: int | None = None,
    ) -> list[Note]:
        """Notes behind a number, as they are kept."""
        who = self.local if user is None else user
        kept: Kept = await self.reading(who, subscription)(after, limit)
        return list(kept.notes)

    # ---------------------------------------------------------------------------- regions

    async def put_region(
        self, name: str, region: Any, *, apply: bool = False, user: int | None = None
    ) -> list[int]:
        """Keeps a region; `apply`: subscriptions that name it begin anew with the new shape."""
        who = self.local if user is None else user
        text = looking.checked_region(name, region, self.stream.space)
        return await self.do(
            lambda db: self.core.catalogue.put_region(db, who, name, text, apply=apply)
        )

    async def regions(self, *, user: int | None = None) -> dict[str, str]:
        """The regions of a user, and those of the service, by name."""
        who = self.local if user is None else user
        own = await self.look(lambda db: regions.regions_of(db, who))
        return {**self.core.catalogue.shared_regions, **own}

    async def remove_region(self, name: str, *, user: int | None = None) -> None:
        """Forgets a region. Subscriptions that were made with it go on."""
        who = self.local if user is None else user
        await self.do(lambda db: self.core.catalogue.remove_region(db, who, name))

    # ---------------------------------------------------------------------------- looking

    async def check(
        self,
        text: str | None = None,
        *,
        template: str | None = None,
        values: Mapping[str, Any] | None = None,
        regions: Mapping[str, Any] | None = None,
        language: str | None = None,
        user: int | None = None,
    ) -> list[str]:
        """QueryError if a subscription would not be taken; else what is to be said of it."""
        wanted = self._wanted(
            user, text=text, template=template, values=values, regions=regions, language=language
        )
        _, _, said = await self.do(lambda db: self.core.catalogue.check(db, wanted))
        return list(said)

    async def trial(
        self,
        text: str | None = None,
        *,
        template: str | None = None,
        values: Mapping[str, Any] | None = None,
        regions: Mapping[str, Any] | None = None,
        language: str | None = None,
        since: Any = None,
        user: int | None = None,
    ) -> Trial:
        """How often a subscription would have fired, over the events that are kept."""
        wanted = self._wanted(
            user, text=text, template=template, values=values, regions=regions, language=language
        )
        wanted, change, _ = await self.do(lambda db: self.core.catalogue.check(db, wanted))
        begin = self.columns.read_moment(since, "since")

        def run(db: Connection) -> Trial:
            limits = limits_of(db, wanted.user, self.limits)
            return looking.trial(db, self.columns, limits, wanted, change, begin)

        return await self.look(run)

    async def why_not(self, id: int, *, user: int | None = None) -> dict[str, Any]:
        """How far recent events got in a subscription, and what stopped them."""
        found = await self.subscription(id, user=user)

        def run(db: Connection) -> dict[str, Any]:
            limits = limits_of(db, found.user, self.limits)
            now = self.core.matching.now
            return looking.why_not(db, self.columns, limits, found, now)

        return await self.look(run)

    async def explain(self, id: int | None = None, *, user: int | None = None) -> str:
        """How a subscription is run, or all of them, in words."""
        if id is None:
            return await asyncio.to_thread(self.core.matching.explain)
        found = await self.subscription(id, user=user)
        return await asyncio.to_thread(looking.explained, self.columns, found)

    async def replay(self, number: int, *, user: int | None = None) -> dict[str, Any]:
        """A note with the tracks of its objects around it."""
        who = self.local if user is None else user
        return await self.look(lambda db: looking.replay(db, self.columns, number, who))

    async def track(
        self, object: Any, *, since: Any = None, until: Any = None, limit: int = 10_000
    ) -> list[list[Any]]:
        """Where an object was: [time, x, y] in order of time."""
        begin = self.columns.read_moment(since, "since")
        end = self.columns.read_moment(until, "until")
        return await self.look(
            lambda db: looking.track(db, self.columns, object, begin, end, limit)
        )

    def objects(self, since: int = 0, limit: int = 200_000) -> tuple[list[dict[str, Any]], int]:
        """Objects that moved since, newest first, and the number to ask with next."""
        return self.core.objects.since(since, limit)

    async def health(self) -> dict[str, Any]:
        """How the service is."""
        return await self.look(lambda db: looking.health(db, self))


def _in_process(columns: Columns, limits: Limits, service: Service) -> Matching:
    return InProcess(columns, limits, Path(f"{service.path}-set"))


def _columns(schema: Any) -> tuple[tuple[str, str], ...]:
    """Names and types of columns, as texts."""
    empty = schemas_of(schema)
    if not isinstance(empty, pa.Table):
        raise EventError(
            "the events of a service have one schema\n"
            "  hint: one table with all columns, with type= naming the column with the event type"
        )
    return tuple((field.name, str(field.type)) for field in empty.schema)


def _rest(target: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a target: beside its kind, or in a mapping of its own."""
    if "config" in target:
        return dict(target["config"])
    return {name: value for name, value in target.items() if name != "kind"}
