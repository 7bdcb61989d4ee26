"""Sends committed batches to the Spark stream as steps, and delivers the matches that it finds.

A step is a batch of the database: its position, the version of the set that matches it, the events
that are in order by now, and the watermark. The database has events in order of acceptance; steps
have them in stream order, so Spark needs no watermark.

One thread works in rounds, and each round can be the last: sent steps are in complete files, and a
delivery is recorded together with its notifications.
"""

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ensue.api import Subscriptions
from ensue.backends.live_backend import parse_watermark_delay, to_engine_time
from ensue.backends.spark.service_stream import STEP_SCHEMA, ResultFiles, StepFiles
from ensue.engine.memory_budget import Usage, sum_usage
from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.errors import StateError
from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.catalog.change import ChangeKind
from ensue.projection.match_ids import ORDINAL
from ensue.runtime.event_buffer import DuplicateEvents, StreamOrder
from ensue.runtime.stage import SubscriptionVersion
from ensue.runtime.tasks.wire_format import Control, StepInput, StreamClock, read_steps
from ensue.service.event_columns import EventColumns
from ensue.service.store import event_batches, subscription_store
from ensue.service.store.database import Database
from ensue.service.store.event_batches import StoredBatch

if TYPE_CHECKING:
    from ensue.backends.spark.service_stream import ServiceStream

_LOG = logging.getLogger(__name__)
_PAUSE = 0.02  # seconds between polls for answers
_IDLE = 1.0  # seconds between polls of an idle stream
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0  # backoff before a failed stream is restarted
FORMAT = 1  # of the saved state
STREAM = "service"  # in place of a query id: a service has one stream

# ------------------------------------------------------------------------- the set for the workers


class CatalogReplica:
    """The log of a service's subscriptions, in a folder that Spark workers read."""

    def __init__(self, folder: Path, columns: EventColumns) -> None:
        self.columns = columns
        self.folder = folder
        _ = self.subscriptions
        self.log = CatalogLog(folder)

    @property
    def subscriptions(self) -> Subscriptions:
        return Subscriptions(**self.columns.subscriptions(folder=self.folder))

    def require_not_ahead(self, db: Connection) -> None:
        """Raises StateError if the log has versions that the database lacks."""
        if self.log.latest() > subscription_store.get_version(db):
            raise replica_ahead_error(self.folder)

    def follow(self, db: Connection) -> None:
        """Appends the versions that the log lacks."""
        latest = self.log.latest()
        newest = subscription_store.get_version(db)
        if newest <= latest:
            return
        changes = subscription_store.read_changes_after(db, latest, newest)
        for number, pairs in groupby(changes, lambda pair: pair[0]):
            if self.log.append(change for _, change in pairs) != number:
                raise StateError(
                    f"version {number} of the subscriptions is missing in {self.folder}\n"
                    "  hint: restore the folder together with its database"
                )


class VersionGroup:
    """Decides which versions of the set can be matched in one batch.

    A name that is cancelled and added again would have to exist twice.
    """

    def __init__(self, log: CatalogLog, floor: int) -> None:
        self._log = log
        self._version = floor
        self._cancelled: set[str] = set()

    def can_add(self, version: int) -> bool:
        """Whether changes up to a version can be added to the group."""
        for number, change in self._log.changes(self._version, version):
            if change.kind is ChangeKind.REPLACE or change.name in self._cancelled:
                return False
            if change.kind is ChangeKind.CANCEL:
                self._cancelled.add(change.name)
            self._version = number
        return True


def replica_ahead_error(folder: Path) -> StateError:
    """The error for a stream folder that is ahead of its database."""
    return StateError(
        f"{folder} is ahead of the database of the service: the database is an older copy, or "
        "lost its last commits in a power failure\n"
        "  hint: restore both from the same backup; synchronous=FULL survives a power failure"
    )


# ------------------------------------------------------------------------- steps and answers


class StepBuilder:
    """Converts batches to steps, in order."""

    def __init__(self, columns: EventColumns) -> None:
        self.columns = columns
        self.order = StreamOrder(columns.shape, parse_watermark_delay(columns.stream.watermark, columns.shape))
        self._twins = DuplicateEvents(columns.shape.schema.end, columns.shape.unit)
        self.position = 0
        self.version = 0

    def take(self, batch: StoredBatch) -> tuple[StreamClock, pa.Table]:
        """Converts a batch; returns its clock and the events that are in order by now."""
        if batch.advance is not None:
            to = to_engine_time(self.columns.moment(batch.advance), self.columns.shape)
            events = self.order.on_watermark(to)
        else:
            events = self.order.take(batch.events(self.columns.arrow)).events
        version = SubscriptionVersion(batch.version, 0, STREAM)
        self.position, self.version = batch.position, batch.version
        clock = StreamClock(position=batch.position, version=version, watermark=self.order.now)
        return clock, self._add_ordinals(events)

    def _add_ordinals(self, events: pa.Table) -> pa.Table:
        """Adds the ordinals of events among equal ones."""
        numbers = self._twins.ordinals(events, np.ones(events.num_rows, np.bool_))
        return events.append_column(ORDINAL, pa.array(numbers, pa.int64()))

    def snapshot(self) -> bytes:
        header = {"steps": FORMAT, "position": self.position, "version": self.version}
        return pack_state(header, self._twins.snapshot(), {"order": self.order.snapshot()})

    def restore(self, data: bytes) -> None:
        header, arrays, blobs = unpack_state(data)
        if header.get("steps") != FORMAT:
            raise StateError(
                "the database was matched in the process of its service, and this state cannot be "
                "transferred to Spark\n"
                "  hint: continue without Spark, or use a new database"
            )
        self.order.restore(blobs["order"])
        self._twins.restore(arrays)
        self.position, self.version = header["position"], header["version"]


MAX_BATCH_BYTES = 16 << 20  # of the encoded events of a batch
MAX_BATCH_STEPS = 5_000


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Steps that are matched together, with their events."""

    after: int  # position of the step before them
    steps: tuple[tuple[StreamClock, pa.Table], ...]

    @property
    def last(self) -> int:
        return self.steps[-1][0].position

    def table(self) -> pa.Table:
        """Encodes the steps as rows of a file. Subscriptions that are cancelled by the first one are left out."""
        versions = [clock.version for clock, _ in self.steps if clock.version is not None]
        rows = [
            {
                "clock": replace(clock, version=replace(version, floor=versions[0].number)).pack().decode(),
                "events": serialize_table(events),
            }
            for version, (clock, events) in zip(versions, self.steps, strict=True)
        ]
        return pa.Table.from_pylist(rows, schema=STEP_SCHEMA)


@dataclass(frozen=True, slots=True)
class MicroBatchAnswer:
    """The results of a micro-batch."""

    upto: int  # position of its last step
    now: float | None  # watermark after it
    matches: tuple[pa.Table, ...]  # in the order of the steps
    left_out: Mapping[str, tuple[int, str]]  # subscriptions: the newest version then, and the error
    subscription_bytes: Mapping[str, float]  # the state size of subscriptions, if tasks hold much
    usage: Usage

    @classmethod
    def read(cls, path: Path) -> "MicroBatchAnswer":
        """Reads the rows of all key groups."""
        try:
            with pa.ipc.open_file(path) as reader:
                rows = reader.read_all().sort_by([("sender", "ascending"), ("place", "ascending")]).to_pylist()
        except pa.ArrowInvalid as error:
            raise StateError(
                f"{path} is corrupt: {error}\n  hint: restore the folder of the stream together with its database"
            ) from None
        steps: list[StepInput] = []
        for _, of_task in groupby(rows, key=itemgetter("sender")):
            steps += read_steps((row["control"], row["blob"]) for row in of_task)
        steps.sort(key=lambda step: step.clock.position)
        said = [json.loads(row["blob"]) for row in rows if row["control"] == Control.SUBSCRIPTIONS]
        counted = [row for row in rows if row["control"] == Control.COUNTERS]
        return cls(
            steps[-1].clock.position if steps else 0,
            steps[-1].clock.watermark if steps else None,
            tuple(deserialize_table(blob) for step in steps for blob in step.blobs),
            dict(pair for task in said for pair in task.get("left_out", {}).items()),
            sum((Counter(task.get("bytes", {})) for task in said), Counter()),
            sum_usage(Usage(row["partial_matches"], row["state_bytes"]) for row in counted),
        )


# ------------------------------------------------------------------------- the thread


@dataclass
class StreamProgress:
    """Progress of the stream, for other threads."""

    sent: int = 0  # position of the last step sent
    delivered: int = 0  # position of the last step whose matches are in the outbox
    now: float | None = None  # its watermark, in the matcher's time
    usage: Usage = field(default_factory=Usage)
    subscription_bytes: Mapping[str, float] = field(default_factory=dict)  # if large
    failures: int = 0
    trouble: str | None = None  # why it is stopped
    saved: tuple[int, int, bytes] | None = field(default=None, repr=False)  # position, version


class SparkTransport:
    """Sends steps and receives answers."""

    def __init__(
        self,
        database: Database,
        stepping: StepBuilder,
        replica: CatalogReplica,
        folder: Path,
        stream: "ServiceStream",
        deliver: Callable[[MicroBatchAnswer], None],
        progress: StreamProgress,
        save_every: float,
    ) -> None:
        self._database = database
        self._stepping = stepping
        self._replica = replica
        self._sent, self._found = StepFiles(folder), ResultFiles(folder)
        self._stream = stream
        self._deliver = deliver
        self.progress = progress
        self._save_every = save_every
        self._ready: StepBatch | None = None  # not sent yet
        self._answered = 0  # position of the last answer; Spark is done with earlier ones
        self._saved_at = time.monotonic()
        self._restart_at, self._wait = 0.0, _FIRST_WAIT
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="ensue-spark", daemon=True)

    def start(self) -> None:
        self._stream.start()
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def wake(self) -> None:
        """Announces a commit."""
        self._wake.set()

    def close(self, seconds: float) -> None:
        """Waits until everything is answered or the time is over, and stops."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.alive and self.progress.trouble is None:
            if self.progress.delivered >= self._database.look(event_batches.get_last_position):
                break
            time.sleep(_PAUSE)
        self._closing = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._stream.stop()

    def _run(self) -> None:
        while not self._closing:
            try:
                self._round()
            except Exception as error:  # noqa: BLE001 - counted and reported, then retried
                self._record_failure(error)
            self._wake.wait(_PAUSE if self._in_flight or self._ready is not None else _IDLE)
            self._wake.clear()

    def _record_failure(self, error: Exception) -> None:
        self.progress.failures += 1
        self.progress.trouble = str(error)
        self._restart_at = time.monotonic() + self._wait
        self._wait = min(2 * self._wait, _LONGEST_WAIT)
        _LOG.warning("matching on Spark failed, and is retried: %s", error)

    def _round(self) -> None:
        if self.progress.trouble is not None:
            if time.monotonic() < self._restart_at:
                return
            self._stream.start()
            self.progress.trouble = None
        error = self._stream.failure()
        if error is not None:
            raise error
        while (file := self._found.oldest()) is not None:
            self._take(file[1])
        if self._in_flight:  # one batch at a time: workers load only one version of the set
            return
        if self._ready is None:
            self._ready = self._pack()
        if self._ready is not None:
            self._send(self._ready)

    @property
    def _in_flight(self) -> bool:
        return self.progress.sent > self.progress.delivered

    def _take(self, path: Path) -> None:
        answer = MicroBatchAnswer.read(path)
        self._deliver(answer)
        path.unlink()
        if answer.upto > self._answered:  # otherwise Spark has repeated it and may do so again
            self._sent.forget(self._answered)
            self._answered = answer.upto
        self._wait = _FIRST_WAIT

    def _pack(self) -> StepBatch | None:
        """Builds the next batch of steps that can be matched together."""
        next_batches = self._database.look(self._next_batches)
        if not next_batches:
            return None
        after = self._stepping.position
        return StepBatch(after, tuple(self._stepping.take(batch) for batch in next_batches))

    def _next_batches(self, db: Connection) -> list[StoredBatch]:
        db.execute("BEGIN")  # subscriptions and events of one snapshot
        try:
            self._replica.follow(db)
            selected: list[StoredBatch] = []
            size, group = 0, None
            for batch in event_batches.read_batches_after(db, self._stepping.position):
                if group is None:
                    group = VersionGroup(self._replica.log, batch.version)
                elif not group.can_add(batch.version):
                    break
                selected.append(batch)
                size += 0 if batch.data is None else len(batch.data)
                if size >= MAX_BATCH_BYTES or len(selected) >= MAX_BATCH_STEPS:
                    break
            return selected
        finally:
            db.execute("ROLLBACK")

    def _send(self, batch: StepBatch) -> None:
        self._sent.put(batch.after, batch.last, batch.table())
        self._ready = None
        self.progress.sent = batch.last
        if time.monotonic() - self._saved_at >= self._save_every:
            self._saved_at = time.monotonic()
            stepping = self._stepping
            self.progress.saved = stepping.position, stepping.version, stepping.snapshot()
