"""The subscription service as an embeddable object: `async with ensue.Service(...)`."""

import asyncio
import contextlib
import json
import logging
import time as clock
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from sqlite3 import Connection
from typing import Any, TypeVar, Unpack

from ensue.brief_tracebacks import shorten_class_tracebacks
from ensue.errors import EnsueError, EventError, ServiceError
from ensue.service import queries
from ensue.service.core import PublishRequest, PublishResult, ServiceCore
from ensue.service.delivery.dispatcher import Dispatcher
from ensue.service.delivery.open_sinks import SinkRegistry
from ensue.service.errors import IntakeStoppedError
from ensue.service.event_columns import EventColumns
from ensue.service.intake import Intake, event_limit_error, preview_payload
from ensue.service.matching.in_process import InProcessBackend
from ensue.service.matching.match_backend import MatchBackend
from ensue.service.queries import TrialResult
from ensue.service.secrets import decode_secrets, load_cipher
from ensue.service.settings import ServiceLimits, StreamDescription, load_settings, missing_schema_error
from ensue.service.sources.source import EventSource
from ensue.service.sse_hub import OutboxReader, SseHub
from ensue.service.store import journal, outbox, subscription_store
from ensue.service.store.database import Database, FileLock
from ensue.service.store.outbox import Notification
from ensue.service.store.target_store import get_target
from ensue.service.store.user_store import get_local_user
from ensue.service.subscription_catalog import (
    QueryArguments,
    SubscriptionArguments,
    SubscriptionChanges,
    SubscriptionRequest,
    TargetArgument,
    TargetRequest,
    UserSubscription,
    compute_expiry,
)
from ensue.vector.geo_regions import normalize_region

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
_HOUSEKEEPING_SECONDS = 1.0
_SMALL = 1 << 16  # bytes of events that are decoded on the event loop


@shorten_class_tracebacks
class Service:
    """Matches published events against subscriptions and notifies the subscribers, durably.

    One SQLite file holds the whole state. The description of the events (`schema`, `time`,
    `type`, `order`, `location`, `space`, `key`, `watermark`, `idle`) is needed once and is then
    stored in the file. The arguments are those of `ensue.live`; `key` is the column that
    identifies the object of an event; after `idle` seconds without events the watermark follows
    the clock.

    `synchronous="NORMAL"` is faster, and may lose the last commits in a power failure, but not in
    a crash of the process. `limits` are the fields of `ensue.service.settings.ServiceLimits`.
    `reset_watermark=True` continues a file whose watermark is far ahead of the clock.

    Webhook secrets and passwords of targets are encrypted in the file. The key is read from the
    environment variable `ENSUE_SECRET_KEY` or from `secret_key_file`, by default the path of
    the database with the suffix `.key`, which is created together with a new database.

    >>> import asyncio
    >>> import tempfile
    >>> import ensue
    >>> async def hot(folder: str) -> list[str]:
    ...     events = [{"t": 1, "type": "oven", "heat": 95.0}]
    ...     async with ensue.Service(f"{folder}/s.db", schema=events, time="t", type="type") as s:
    ...         await s.subscribe("A, A = (STRING:type = 'oven', ARITH:heat > 90)")
    ...         await s.publish(events)
    ...         return [each.kind for each in await s.list_notifications()]
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
        limits: Mapping[str, Any] | ServiceLimits | None = None,
        synchronous: str = "FULL",
        matching: Callable[[EventColumns, ServiceLimits, "Service"], MatchBackend] | None = None,
        sources: Iterable[EventSource] = (),
        reset_watermark: bool = False,
        secret_key_file: str | Path | None = None,
    ) -> None:
        self.path = str(path)
        self.limits = ServiceLimits.parse(limits)
        self._described = StreamDescription.describe(
            schema, time, order, location, type=type, space=space, key=key, watermark=watermark, idle=idle
        )
        self._regions = {name: normalize_region(value) for name, value in (regions or {}).items()}
        self._synchronous = synchronous
        self._matching = matching
        self._sources = list(sources)
        self._reset_watermark = reset_watermark
        self._key_file = secret_key_file
        self.sources: list[EventSource] = []  # running
        self.stopped_sources: dict[str, str] = {}  # failed, with the reason
        self._tasks: list[asyncio.Task[None]] = []
        self._core: ServiceCore | None = None
        self._database: Database | None = None
        self.began = 0.0  # wall-clock time of the start

    # ---------------------------------------------------------------------------- lifecycle

    async def start(self) -> "Service":
        """Opens the file and resumes from its state."""
        if self._core is not None:
            raise ServiceError("the service has already started")
        self._loop = asyncio.get_running_loop()
        if self._described is not None:
            EventColumns(self._described)  # inconsistent settings must not be written to a file
        elif not Path(self.path).exists():
            raise missing_schema_error(self.path)
        lock = FileLock(self.path)
        try:
            await self._open(Database(self.path, synchronous=self._synchronous))
        except BaseException:
            lock.release()
            raise
        self._lock = lock
        self.began = clock.time()
        self._tasks = [self._loop.create_task(self._run_housekeeping(), name="ensue housekeeping")]
        for source in self._sources:
            self.add_source(source)
        return self

    async def _open(self, database: Database) -> None:
        try:
            stream, shared = await database.write(
                lambda db: load_settings(db, self.path, self._described, self._regions)
            )
            database.seal = await database.write(lambda db: load_cipher(self.path, db, self._key_file))
            await database.write(database.seal.settle)
            self.columns = EventColumns(stream)
            if self._matching is None:
                folder = Path(f"{self.path}-set")
                matching: MatchBackend = InProcessBackend(self.columns, self.limits, folder)
            else:
                matching = self._matching(self.columns, self.limits, self)
            core = ServiceCore(database, self.columns, matching, self.limits, shared)
            self.intake = Intake(self.columns, self.limits)
            self.listeners = SseHub(self.limits)
            database.committed.append(self._pass_on_notifications)
            database.rolled_back.append(core.roll_back)
            self._database, self._core = database, core
            self.local = await database.write(get_local_user)
            if self._reset_watermark:
                await database.write(core.reset_watermark)
            await database.write(core.load)
            self.sinks = SinkRegistry(self.limits)
            self.dispatcher = Dispatcher(database, self.sinks.makes, self.limits)
            await self.dispatcher.start()
        except BaseException:
            if self._core is not None:
                await asyncio.to_thread(self._core.matching.close)
            self._core = self._database = None
            await asyncio.to_thread(database.close)
            raise

    @property
    def runs(self) -> bool:
        """Whether the service has started and is not closed."""
        return self.began > 0 and self._core is not None

    async def close(self) -> None:
        """Stops the intake, finishes pending work and closes the file."""
        if self._database is None or self._core is None:
            return
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.listeners.close()
        await self.dispatcher.close()
        await self.sinks.close()
        core, database = self._core, self._database
        if core.matching.save_due_at_end:
            try:
                await database.write(core.matching.save)
            except IntakeStoppedError as error:  # the next start replays from an older snapshot
                _LOG.warning("no snapshot was written: %s", error)
        await asyncio.to_thread(core.matching.close)
        self._core = self._database = None
        await asyncio.to_thread(database.close)
        self._lock.release()
        core.close()

    async def __aenter__(self) -> "Service":
        return await self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def add_source(self, source: EventSource) -> None:
        """Reads events from a source until the service is closed."""

        async def read() -> None:
            try:
                await source.run(self)
            except Exception as error:  # noqa: BLE001 - a failing source must not stop the service
                _LOG.exception("source %s has stopped", source.name)
                self.stopped_sources[source.name] = f"it has stopped: {error}"

        self.sources.append(source)
        self._tasks.append(self._loop.create_task(read(), name=f"ensue source {source.name}"))

    @property
    def core(self) -> ServiceCore:
        if self._core is None:
            raise IntakeStoppedError("the service is not running\n  hint: async with ensue.Service(...) as service:")
        return self._core

    @property
    def database(self) -> Database:
        self.core  # noqa: B018 - says that it is not running
        assert self._database is not None
        return self._database

    @property
    def stream(self) -> StreamDescription:
        """The description of the events."""
        return self.columns.stream

    # ---------------------------------------------------------------------------- transactions

    async def do(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in the core thread and returns its result once it is committed."""
        return await self.database.write(self.core.job(work))

    async def look(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` on the committed state."""
        return await self.database.read(work)

    def _pass_on_notifications(self) -> None:
        """Passes committed notifications on; runs in the core thread."""
        if self._core is None:
            return
        notifications = self._core.take_notifications()
        if notifications:
            with contextlib.suppress(RuntimeError):  # closed loop: they stay in the outbox
                self._loop.call_soon_threadsafe(self._dispatch, notifications)

    def _dispatch(self, notifications: Sequence[Notification]) -> None:
        self.listeners.dispatch(notifications)
        self.dispatcher.wake({notification.subscription for notification in notifications})

    async def _run_housekeeping(self) -> None:
        while True:
            await asyncio.sleep(_HOUSEKEEPING_SECONDS)
            try:
                await self.do(self.core.run_housekeeping)
                await self._follow_clock()
            except EnsueError as error:  # reported by health, retried
                _LOG.warning("housekeeping failed: %s", error)

    async def _follow_clock(self) -> None:
        """Advances the event time of an idle stream by the clock, from its newest event."""
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
        limits: ServiceLimits | None = None,
    ) -> PublishResult:
        """Accepts events; returns once the events and the matches they complete are committed.

        `events` are a table, an event as a dict, a list of dicts, or bytes of a media type. With a
        `producer` and the `sequence` number of the first event (or `sequences`, one per event),
        repeated events are dropped: the numbers of a producer are increasing. `limits` are those
        of the user, by default those of the service.
        """
        limits = limits or self.limits
        size = len(events) if isinstance(events, bytes | bytearray) else 0
        if size > _SMALL:
            taken = await asyncio.to_thread(self.intake.read, events, media, limits=limits)
        else:
            taken = self.intake.read(events, media, limits=limits)
        if taken.count > limits.events_per_request:
            raise event_limit_error(taken.count, limits.events_per_request)
        if producer is not None and sequence is None and sequences is None:
            raise EventError("a producer must number its events\n  hint: sequence= of the first")
        if sequence is not None:
            sequences = range(sequence, sequence + taken.count)
        if sequences is not None and producer is None:
            raise EventError("sequence numbers need a producer\n  hint: producer=")
        return await self.core.publish(PublishRequest(taken, self._user(user), producer, sequences))

    async def put_aside(
        self, payload: bytes, reason: str, *, producer: str | None = None, user: int | None = None
    ) -> None:
        """Stores an unreadable payload as a bad event, for the operators."""
        event, why = preview_payload(payload), reason.partition("\n")[0]
        try:
            await self.do(lambda db: self.core.put_aside(db, event, why, producer, self._user(user)))
        except IntakeStoppedError as error:  # the disk is full; the sender gets the reason
            _LOG.warning("a bad event could not be stored (%s): %s", error, why)

    async def advance(self, time: Any) -> int:
        """Advances the event time without events and returns the number of new notifications."""
        to = self.columns.parse_time(time, "time")
        if to is None:
            raise EventError("time=None is not a time")
        if self.core.matching.newest is not None and to <= self.core.matching.newest:
            return 0
        return await self.do(lambda db: self.core.advance(db, to))

    async def position(self, producer: str, *, user: int | None = None) -> int | None:
        """The next sequence number expected from a producer, or None for a new producer."""
        return await self.look(lambda db: journal.get_next_sequence(db, producer, self._user(user)))

    # ---------------------------------------------------------------------------- subscriptions

    def _user(self, user: int | None) -> int:
        return self.local if user is None else user

    async def build_request(
        self,
        text: str | None = None,
        *,
        user: int | None = None,
        trusted: bool = True,
        expires: datetime | float | None = None,
        targets: Iterable[TargetArgument] = (),
        **options: Any,
    ) -> SubscriptionRequest:
        """Builds the request for a subscription, with the arguments of `subscribe`; checks its targets."""
        requested = tuple(map(TargetRequest.build, targets))
        for target in requested:
            await self.sinks.check(target.kind, target.config, trusted=trusted)
        given = {name: value for name, value in options.items() if value is not None}
        owner, expiry = self._user(user), compute_expiry(expires)
        return SubscriptionRequest(owner, text=text, expires=expiry, targets=requested, **given)

    async def subscribe(
        self,
        text: str | None = None,
        *,
        user: int | None = None,
        idempotency_key: str | None = None,
        **arguments: Unpack[SubscriptionArguments],
    ) -> UserSubscription:
        """Adds a subscription, a text or a template with values, that sees all later events.

        `expires` is a time, or a number of seconds from now; `quiet` is the time span (in the
        stream's time) during which further matches of an object are not reported. A repeated
        `idempotency_key` returns the subscription of the first request.
        """
        request = await self.build_request(text, user=user, **arguments)
        digest = journal.compute_digest(repr(replace(request, expires=None)).encode())  # it may be relative
        catalog = self.core.catalog

        def run(db: Connection) -> UserSubscription:
            created: list[UserSubscription] = []

            def create() -> str:
                created.append(catalog.subscribe(db, request))
                return str(created[0].id)

            id = journal.answer_once(db, request.user, idempotency_key, digest, create)
            return created[0] if created else replace(catalog.get_own(db, int(id), request.user), repeated=True)

        return await self.do(run)

    async def subscribe_all(
        self, several: Iterable[Mapping[str, Any]], *, user: int | None = None
    ) -> list[UserSubscription]:
        """Adds all subscriptions or none; each item has the arguments of `subscribe`."""
        requests = [await self.build_request(user=user, **arguments) for arguments in several]
        return await self.do(lambda db: self.core.catalog.subscribe_all(db, requests))

    async def subscribe_each(
        self, several: Iterable[Mapping[str, Any]], *, user: int | None = None
    ) -> list[UserSubscription | Exception]:
        """Adds every valid subscription; returns a subscription or an error per item."""
        requests: list[SubscriptionRequest | Exception] = []
        for arguments in several:
            try:
                requests.append(await self.build_request(user=user, **arguments))
            except EnsueError as error:
                requests.append(error)
        return await self.do(lambda db: self.core.catalog.subscribe_each(db, self._user(user), requests))

    async def change(
        self, id: int, *, user: int | None = None, **changes: Unpack[SubscriptionChanges]
    ) -> UserSubscription:
        """Changes a subscription; a new text or new regions discard its partial matches."""
        if unknown := changes.keys() - SubscriptionChanges.__annotations__.keys():
            raise TypeError(f"change() got an unexpected argument: {', '.join(unknown)}")
        if "expires" in changes:
            changes["expires"] = compute_expiry(changes["expires"])
        owner = self._user(user)
        return await self.do(lambda db: self.core.catalog.change(db, id, owner, changes))

    async def pause(self, id: int, *, user: int | None = None) -> UserSubscription:
        """Stops matching a subscription and discards its partial matches."""
        return await self.do(lambda db: self.core.catalog.pause(db, id, self._user(user)))

    async def resume(self, id: int, *, user: int | None = None) -> UserSubscription:
        """Resumes a paused subscription, starting with the next events."""
        return await self.do(lambda db: self.core.catalog.resume(db, id, self._user(user)))

    async def cancel(self, id: int, *, reason: str = "cancelled", user: int | None = None) -> UserSubscription:
        """Ends a subscription."""
        owner = self._user(user)
        return await self.do(lambda db: self.core.catalog.cancel(db, id, owner, reason))

    async def subscription(self, id: int, *, user: int | None = None) -> UserSubscription:
        return await self.look(lambda db: self.core.catalog.get_own(db, id, self._user(user)))

    async def subscriptions(
        self, *, state: str | None = None, after: int = 0, limit: int = 1_000, user: int | None = None
    ) -> list[UserSubscription]:
        """Lists the subscriptions of a user; cancelled ones only with `state`."""
        owner = self._user(user)
        rows = await self.look(lambda db: subscription_store.list_subscriptions(db, owner, state, after, limit))
        return [UserSubscription.from_row(row) for row in rows]

    async def add_target(
        self, id: int, kind: str, config: Mapping[str, Any], *, user: int | None = None, trusted: bool = True
    ) -> int:
        """Delivers the notifications of a subscription to a target and returns the target's id.

        Only `trusted` callers may name brokers that the limits do not list.
        """
        await self.sinks.check(kind, config, trusted=trusted)
        owner = self._user(user)
        new = await self.do(lambda db: self.core.catalog.add_target(db, id, owner, kind, config))
        self.dispatcher.wake({id})
        return int(new)

    async def secret(self, target: int, *, user: int | None = None) -> str:
        """Returns the secret that signs the requests of a webhook target."""
        owner = self._user(user)

        def find(db: Connection) -> str:
            row = get_target(db, target, owner)
            known = decode_secrets(json.loads(row.secrets))
            if not known:
                raise ServiceError(f"target {target} is of kind {row.kind}: its deliveries are not signed")
            return known[0].text

        return await self.look(find)

    # ---------------------------------------------------------------------------- notifications

    def notifications(
        self, after: int | None = None, *, subscription: int | None = None, user: int | None = None
    ) -> AsyncIterator[Notification]:
        """Yields the notifications after a number, then new ones; None: only new ones.

        If notifications after the number have expired, one of the kind "resync" precedes them.
        """
        owner = self._user(user)
        return self.listeners.follow(
            self.get_outbox_reader(owner, subscription), after, user=owner, subscription=subscription
        )

    def get_outbox_reader(self, user: int | None, subscription: int | None = None) -> OutboxReader:
        """Returns the function by which listeners read the outbox."""

        return lambda after, most: self.look(
            lambda db: outbox.read_page(db, after, most, user=user, subscription=subscription)
        )

    async def list_notifications(
        self, after: int = 0, limit: int = 1_000, *, subscription: int | None = None, user: int | None = None
    ) -> list[Notification]:
        """Returns the stored notifications after a number."""
        page = await self.get_outbox_reader(self._user(user), subscription)(after, limit)
        return list(page.notifications)

    # ---------------------------------------------------------------------------- regions

    async def put_region(self, name: str, region: Any, *, apply: bool = False, user: int | None = None) -> list[int]:
        """Stores a region; `apply` restarts the subscriptions that name it with the new shape."""
        owner = self._user(user)
        text = queries.validate_region(name, region, self.stream.space)
        return await self.do(lambda db: self.core.catalog.put_region(db, owner, name, text, apply=apply))

    async def regions(self, *, user: int | None = None) -> dict[str, str]:
        """The regions of a user, and those of the service, by name."""
        own = await self.look(lambda db: journal.list_regions(db, self._user(user)))
        return {**self.core.catalog.shared_regions, **own}

    async def remove_region(self, name: str, *, user: int | None = None) -> None:
        """Deletes a region; subscriptions that use it keep its shape."""
        await self.do(lambda db: self.core.catalog.remove_region(db, self._user(user), name))

    # ---------------------------------------------------------------------------- queries

    async def check(
        self, text: str | None = None, *, user: int | None = None, **query: Unpack[QueryArguments]
    ) -> list[str]:
        """Raises QueryError for an invalid subscription, and returns warnings for a valid one."""
        request = await self.build_request(text, user=user, **query)
        _, _, warnings = await self.do(lambda db: self.core.catalog.check(db, request))
        return list(warnings)

    async def trial(
        self, text: str | None = None, *, since: Any = None, user: int | None = None, **query: Unpack[QueryArguments]
    ) -> TrialResult:
        """Reports how often a subscription would have matched the stored events."""
        wanted = await self.build_request(text, user=user, **query)
        request, change, _ = await self.do(lambda db: self.core.catalog.check(db, wanted))
        begin = self.columns.parse_time(since, "since")
        return await self.look(lambda db: queries.run_trial(db, self, request, change, begin))

    async def why_not(self, id: int, *, user: int | None = None) -> dict[str, Any]:
        """Reports how far recent events got in a subscription, and which part rejected them."""
        row = await self.subscription(id, user=user)
        return await self.look(lambda db: queries.report_why_not(db, self, row))

    async def explain(self, id: int | None = None, *, user: int | None = None) -> str:
        """Explains how a subscription, or the whole set, is executed."""
        if id is None:
            return await asyncio.to_thread(self.core.matching.explain)
        row = await self.subscription(id, user=user)
        return await asyncio.to_thread(queries.explain_subscription, self.columns, row)

    async def replay(self, number: int, *, user: int | None = None) -> dict[str, Any]:
        """Returns a notification together with the tracks of its objects."""
        owner = self._user(user)
        return await self.look(lambda db: queries.read_replay(db, self.columns, number, owner))

    async def track(self, object: Any, *, since: Any = None, until: Any = None, limit: int = 10_000) -> list[list[Any]]:
        """Returns the positions of an object as [time, x, y], ordered by time."""
        begin = self.columns.parse_time(since, "since")
        end = self.columns.parse_time(until, "until")
        return await self.look(lambda db: queries.read_track(db, self.columns, object, begin, end, limit))

    def objects(self, since: int = 0, limit: int = 200_000) -> tuple[list[dict[str, Any]], int]:
        """Returns the objects that moved since a number, newest first, and the next number."""
        return self.core.objects.list_moved(since, limit)

    async def health(self) -> dict[str, Any]:
        """Returns the health report."""
        return await self.look(lambda db: queries.report_health(db, self))
