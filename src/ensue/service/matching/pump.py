"""Carries what a service has committed to its stream, and brings back what was found.

All of it is done by one thread, round by round, and every round may be the last: what is sent lies
in files that are whole, what is delivered is noted with the notes it made.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from sqlite3 import Connection
from typing import Protocol

from ensue.errors import EnsueError
from ensue.runners.spark.service_files import FoundFiles, StepFiles
from ensue.service.database import Database
from ensue.service.matching.mirror import Mirror
from ensue.service.matching.parcels import MOST_BYTES, MOST_STEPS, Answer, Parcel
from ensue.service.matching.steps import Stepping
from ensue.service.store import batches
from ensue.service.store.batches import Batch

_LOG = logging.getLogger(__name__)
_PAUSE = 0.02  # seconds between two looks for answers
_IDLE = 1.0  # between two looks at a stream that has nothing to do
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0  # until a stream that has failed is started again


class Stream(Protocol):
    """The query on Spark."""

    def start(self) -> None: ...
    def failure(self) -> EnsueError | None: ...
    def stop(self) -> None: ...


@dataclass
class Progress:
    """How far it is, for whoever looks."""

    sent: int = 0  # the position of the last step on its way
    delivered: int = 0  # of the last one whose matches are in the outbox
    now: float | None = None  # how far time had come there, in the matcher's time
    partial_matches: int = 0
    state_bytes: int = 0
    held_bytes: Mapping[str, float] = field(default_factory=dict)  # by subscription, if it is much
    failures: int = 0
    trouble: str | None = None  # why it stands still
    saved: tuple[int, int, bytes] | None = field(default=None, repr=False)  # position, version


class Pump:
    """Steps out, answers in."""

    def __init__(
        self,
        database: Database,
        stepping: Stepping,
        mirror: Mirror,
        folder: Path,
        stream: Stream,
        deliver: Callable[[Answer], None],
        progress: Progress,
        save_every: float,
    ) -> None:
        self._database = database
        self._stepping = stepping
        self._mirror = mirror
        self._sent, self._found = StepFiles(folder), FoundFiles(folder)
        self._stream = stream
        self._deliver = deliver
        self.progress = progress
        self._save_every = save_every
        self._ready: Parcel | None = None  # not sent yet
        self._answered = 0  # the position of the last answer: with those before, Spark is done
        self._saved_at = time.monotonic()
        self._again_at, self._wait = 0.0, _FIRST_WAIT
        self._wake = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="ensue-spark", daemon=True)

    def start(self) -> None:
        """Begins to carry."""
        self._stream.start()
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """Something was committed."""
        self._wake.set()

    def close(self, patience: float) -> None:
        """Stops, once all that was committed is answered or patience is over."""
        until = time.monotonic() + patience
        while time.monotonic() < until and self.alive and self.progress.trouble is None:
            if self.progress.delivered >= self._database.look(batches.last_position):
                break
            time.sleep(_PAUSE)
        self._over = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._stream.stop()

    # ---------------------------------------------------------------------------- rounds

    def _run(self) -> None:
        while not self._over:
            try:
                self._round()
            except Exception as error:  # noqa: BLE001 - counted and said; the next round tries again
                self._failed(error)
            self._wake.wait(_PAUSE if self._on_the_way or self._ready is not None else _IDLE)
            self._wake.clear()

    def _failed(self, error: Exception) -> None:
        self.progress.failures += 1
        self.progress.trouble = str(error)
        self._again_at = time.monotonic() + self._wait
        self._wait = min(2 * self._wait, _LONGEST_WAIT)
        _LOG.warning("matching on Spark has stopped, and is retried: %s", error)

    def _round(self) -> None:
        if self.progress.trouble is not None:
            if time.monotonic() < self._again_at:
                return
            self._stream.start()
            self.progress.trouble = None
        error = self._stream.failure()
        if error is not None:
            raise error
        while (found := self._found.oldest()) is not None:
            self._take(found[1])
        if self._on_the_way:  # one at a time: a later set must not be made ready for an earlier
            return
        if self._ready is None:
            self._ready = self._packed()
        if self._ready is not None:
            self._send(self._ready)

    @property
    def _on_the_way(self) -> bool:
        return self.progress.sent > self.progress.delivered

    def _take(self, path: Path) -> None:
        answer = Answer.read(path)
        self._deliver(answer)
        path.unlink()
        if answer.upto > self._answered:  # else it came again: Spark may do it once more
            self._sent.forget(self._answered)
            self._answered = answer.upto
        self._wait = _FIRST_WAIT

    # ---------------------------------------------------------------------------- out

    def _packed(self) -> Parcel | None:
        """The next steps that can be matched together."""
        some = self._database.look(self._next_batches)
        if not some:
            return None
        return Parcel(tuple(self._stepping.take(batch) for batch in some))

    def _next_batches(self, db: Connection) -> list[Batch]:
        db.execute("BEGIN")  # subscriptions and events of one moment
        try:
            self._mirror.follow(db)
            found: list[Batch] = []
            size, together = 0, None
            for batch in batches.batches_behind(db, self._stepping.position):
                if together is None:
                    together = self._mirror.together(batch.version)
                elif not together.takes(batch.version):
                    break
                found.append(batch)
                size += 0 if batch.data is None else len(batch.data)
                if size >= MOST_BYTES or len(found) >= MOST_STEPS:
                    break
            return found
        finally:
            db.execute("ROLLBACK")

    def _send(self, parcel: Parcel) -> None:
        self._sent.put(parcel.table())
        self._ready = None
        self.progress.sent = parcel.last
        waited = time.monotonic() - self._saved_at
        if waited >= self._save_every:
            self._saved_at = time.monotonic()
            stepping = self._stepping
            self.progress.saved = stepping.position, stepping.version, stepping.save()
