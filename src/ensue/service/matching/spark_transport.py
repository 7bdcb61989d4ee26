"""Sends committed batches to the Spark stream, and delivers the matches that it finds.

One thread works in rounds, and each round can be the last: sent steps are in complete files, and a
delivery is recorded together with its notifications.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING

from ensue.backends.spark.service_tasks import ResultFiles, StepFiles
from ensue.service.matching.catalog_replica import CatalogReplica, VersionGroup
from ensue.service.matching.change_log import MAX_BATCH_BYTES, MAX_BATCH_STEPS, MicroBatchAnswer, StepBatch, StepBuilder
from ensue.service.store import event_batches
from ensue.service.store.database import Database
from ensue.service.store.event_batches import StoredBatch

if TYPE_CHECKING:
    from ensue.backends.spark.service_stream import ServiceStream

_LOG = logging.getLogger(__name__)
_PAUSE = 0.02  # seconds between polls for answers
_IDLE = 1.0  # seconds between polls of an idle stream
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0  # backoff before a failed stream is restarted


@dataclass
class StreamProgress:
    """Progress of the stream, for other threads."""

    sent: int = 0  # position of the last step sent
    delivered: int = 0  # position of the last step whose matches are in the outbox
    now: float | None = None  # its watermark, in the matcher's time
    partial_matches: int = 0
    state_bytes: int = 0
    held_bytes: Mapping[str, float] = field(default_factory=dict)  # by subscription, if large
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
        return StepBatch(tuple(self._stepping.take(batch) for batch in next_batches))

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
        self._sent.put(batch.table())
        self._ready = None
        self.progress.sent = batch.last
        if time.monotonic() - self._saved_at >= self._save_every:
            self._saved_at = time.monotonic()
            stepping = self._stepping
            self.progress.saved = stepping.position, stepping.version, stepping.snapshot()
