"""Matches found on Spark: the service keeps what happened, a stream of steps is matched there.

The file of the service says what happened, in which order, and by which version of the set. A
stream of Structured Streaming does to these steps what a live matcher does in the process, dealt
out to lanes; so the same matches are found, and which micro-batch finds them does not matter.

    FILE-spark/steps/           what is on its way to the stream
    FILE-spark/found/           what it found and is not delivered yet
    FILE-spark/subscriptions/   the set, for the workers (`mirror.py`)
    FILE-spark/checkpoint/      Spark's own
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from ensue.api import explain
from ensue.errors import StateError
from ensue.extras import needed
from ensue.plan.limits import Limits as MatcherLimits
from ensue.results.notified import notified_schema
from ensue.runners.live import moment
from ensue.runners.spark.service_files import StepFiles, make_folders
from ensue.service.budgets import limits_of_each
from ensue.service.columns import Columns
from ensue.service.matching.contract import Found, Matching
from ensue.service.matching.lanes import ServiceWork
from ensue.service.matching.mirror import Mirror, ahead
from ensue.service.matching.parcels import Answer
from ensue.service.matching.pump import Progress, Pump, Stream
from ensue.service.matching.steps import Stepping
from ensue.service.settings import Limits
from ensue.service.store import batches, subscriptions
from ensue.workload.subscriptions.catalogue.change import Change
from ensue.workload.subscriptions.catalogue.memory import MemoryLog
from ensue.workload.subscriptions.fleet import Fleet
from ensue.workload.subscriptions.following import Following
from ensue.workload.subscriptions.subscribed import Subscribed
from ensue.workload.subscriptions.usage import Usage

if TYPE_CHECKING:
    from ensue.service.service import Service

SETTING = "spark"  # among the settings in the file: how far the stream is
PATIENCE = 10.0  # seconds that a service which stops waits for its stream


def on_spark(
    spark: Any = None,
    *,
    master: str = "local[2]",
    lanes: int | None = None,
    **settings: str,
) -> Callable[[Columns, Limits, "Service"], Matching]:
    """Lets Spark find the matches of a service: `ensue.Service(..., matching=on_spark())`.

    `spark` is a session; without one, that of this process is taken, or one is started with
    `master` and `settings` of Spark. Subscriptions are dealt out to `lanes`, at first use: by
    default as many as Spark runs tasks at a time.
    """
    with needed("a service that matches on Spark", "spark"):
        from ensue.runners.spark.service_stream import OwnSession
    session = OwnSession.of(spark, {"spark.master": master, **settings})
    return lambda columns, limits, service: SparkMatching(columns, limits, service, session, lanes)


class Session(Protocol):
    """Where streams run."""

    def tasks(self) -> int:
        """How many tasks run at a time."""

    def stream(self, work: ServiceWork, folder: Path, /) -> Stream:
        """The stream that meets the service in a folder."""

    def close(self) -> None: ...


class SparkMatching:
    """Takes events in the core thread, and leaves the rest to a stream."""

    def __init__(
        self,
        columns: Columns,
        limits: Limits,
        service: "Service",
        session: Session,
        lanes: int | None = None,
    ) -> None:
        self.columns = columns
        self.limits = limits
        self.folder = Path(f"{service.path}-spark").absolute()
        self.progress = Progress()
        self._service = service
        self._session = session
        self._lanes = lanes
        self._intake: Stepping | None = None  # up to the newest batch; None: to be built again
        self._pump: Pump | None = None
        self._checking = Fleet(columns.shape, streaming=True)
        self._nothing = notified_schema(columns.shape).empty_table()
        self._looking: Looking | None = None

    # ---------------------------------------------------------------------------- going on

    def load(self, db: Connection) -> None:
        """Goes on where the file and the folder of the stream say that they stopped."""
        settled = Settled.read(db)
        self._intake = self._stepping(db)
        make_folders(self.folder)
        sent = StepFiles(self.folder).last
        mirror = Mirror(self.folder / "subscriptions", self.columns)
        mirror.require_not_ahead(db)
        if sent > batches.last_position(db):
            raise ahead(self.folder)
        if settled.delivered and not sent:
            raise StateError(
                f"the stream of the service has come to step {settled.delivered}, and its folder "
                f"{self.folder} is gone\n"
                "  hint: restore it together with the file, or name a new file"
            )
        self.progress.delivered, self.progress.now = settled.delivered, settled.now
        self.progress.sent = max(settled.delivered, sent)
        try:
            lanes, each = self._settle_lanes(db, settled), limits_of_each(db, self.limits)
            work = ServiceWork.over(mirror.log, self.columns, lanes, each)
            self._pump = Pump(
                self._service.database, self._stepping(db, self.progress.sent), mirror,
                self.folder, self._session.stream(work, self.folder), self._deliver,
                self.progress, self.limits.snapshot_seconds,
            )  # fmt: skip
            self._pump.start()
        except BaseException:
            self._session.close()
            raise
        self._service.database.committed.append(self._pump.wake)

    def reset(self, db: Connection) -> None:  # noqa: ARG002
        raise StateError(
            "the watermark of a service on Spark cannot be reset: its stream has it in its state\n"
            "  hint: continue with a new file"
        )

    def _settle_lanes(self, db: Connection, settled: "Settled") -> int:
        """How many lanes there are, for ever."""
        lanes = settled.lanes or self._lanes or self._session.tasks()
        if self._lanes not in (None, lanes):
            raise StateError(
                f"the stream of the service has {lanes} lanes, not {self._lanes}\n"
                "  hint: leave out lanes=; the state of a stream stays in the lanes it began with"
            )
        Settled(lanes, settled.delivered, settled.now).keep(db)
        return lanes

    def _stepping(self, db: Connection, upto: int | None = None) -> Stepping:
        """The order of the stream at a position, or behind all that was accepted."""
        found = Stepping(self.columns)
        _, _, saved = batches.snapshot(db)
        if saved is not None:
            found.restore(saved)
        for batch in batches.batches_behind(db, found.position):
            if upto is not None and batch.position > upto:
                break
            found.take(batch)
        return found

    def failed(self) -> None:
        """What was taken is not in the file: the order is built again before it goes on."""
        self._intake = self._looking = None

    def _ready(self, db: Connection) -> Stepping:
        if self._intake is None:
            self._intake = self._stepping(db)
        return self._intake

    # ---------------------------------------------------------------------------- times

    @property
    def now(self) -> float | None:
        """How far the time of the stream has come; events before it are late."""
        return None if self._intake is None else self.columns.as_seconds(self._intake.order.now)

    @property
    def newest(self) -> float | None:
        """The time of the newest event, or what the clock has made of it."""
        return None if self._intake is None else self.columns.as_seconds(self._intake.order.newest)

    @property
    def decided(self) -> float | None:
        """Up to which time of the stream all matches are delivered."""
        return self.columns.as_seconds(self.progress.now)

    @property
    def trouble(self) -> str | None:
        """Why nothing is matched at present; None: it is."""
        if self._pump is not None and not self._pump.alive:
            return "the thread that carries events to Spark has ended"
        return self.progress.trouble

    # ---------------------------------------------------------------------------- the set

    def check(self, change: Change) -> None:
        self._checking.check(change, None if self._intake is None else self._intake.order.now)

    def change(self, version: int, changes: Sequence[Change]) -> None:
        if self._looking is not None and not self._looking.follow(version, changes):
            self._looking = None

    # ---------------------------------------------------------------------------- events

    def feed(self, db: Connection, events: pa.Table) -> Found:
        order = self._ready(db).order
        late = np.asarray(order.late(events), np.bool_)
        by_subscription: dict[int, int] = {}
        if late.any():
            by_subscription = self._looking_at(db, events.filter(pa.array(late)))
            events = events.filter(pa.array(~late))
        order.take(events)
        return Found(None, late.tolist(), by_subscription)

    def advance(self, db: Connection, to: float) -> Found:
        order = self._ready(db).order
        order.advance(moment(self.columns.moment(to), self.columns.shape))
        return Found(None)

    def _looking_at(self, db: Connection, events: pa.Table) -> dict[int, int]:
        """How many of some events each subscription would have looked at."""
        if self._looking is None:
            self._looking = Looking(db, self.columns)
        return self._looking.count(events)

    def _deliver(self, answer: Answer) -> None:
        """In the thread of the pump: what was found goes to the outbox, once."""
        core, database = self._service.core, self._service.database

        def noted(db: Connection) -> Settled:
            settled = Settled.read(db)
            matches = answer.behind(settled.delivered, self._nothing)
            core.found_elsewhere(db, matches, answer.left_out)
            if answer.upto > settled.delivered:
                settled = Settled(settled.lanes, answer.upto, answer.counted[0]["now"])
                settled.keep(db)
            return settled

        settled = database.submit(core.job(noted)).result()
        progress = self.progress
        progress.delivered, progress.now = settled.delivered, settled.now
        progress.partial_matches = answer.total("partial_matches")
        progress.state_bytes = answer.total("state_bytes")
        progress.held_bytes = answer.held_bytes

    # ---------------------------------------------------------------------------- state

    @property
    def save_due(self) -> bool:
        return self.progress.saved is not None

    @property
    def save_due_at_end(self) -> bool:
        return self.save_due

    def save(self, db: Connection) -> None:
        """Writes down the order of the stream as it is behind what was sent."""
        saved, self.progress.saved = self.progress.saved, None
        if saved is not None:
            position, version, data = saved
            db.execute("DELETE FROM snapshots")
            db.execute(
                "INSERT INTO snapshots VALUES (?, ?, ?, ?)", (position, version, time.time(), data)
            )
            subscriptions.forget_changes(db, version)

    def blamed(self) -> Mapping[str, float]:
        return {}  # lanes go on without those that they fail because of

    @property
    def state_bytes(self) -> int:
        return self.progress.state_bytes

    @property
    def seconds(self) -> float:
        return 0.0  # others do not wait for what workers do

    def forget_seconds(self) -> None:
        pass

    def usage(self) -> Usage:
        return Usage(self.progress.held_bytes)

    def explain(self) -> str:
        mirror = Mirror(self.folder / "subscriptions", self.columns)
        return explain(mirror.subscriptions, self.columns.arrow.empty_table())

    def counters(self) -> dict[str, int]:
        intake, progress = self._intake, self.progress
        return {
            "partial_matches": progress.partial_matches,
            "events_waiting": 0 if intake is None else intake.order.waiting.num_rows,
            "state_bytes": progress.state_bytes,
            "steps_delivered": progress.delivered,
            "stream_failures": progress.failures,
        }

    def close(self) -> None:
        pump, self._pump = self._pump, None
        try:
            if pump is not None:
                pump.close(PATIENCE)
        finally:
            self._session.close()


@dataclass(frozen=True, slots=True)
class Settled:
    """What the file knows of the stream."""

    lanes: int | None = None
    delivered: int = 0  # the position up to which matches are in the outbox
    now: Any = None  # how far time had come there, in the matcher's time

    @classmethod
    def read(cls, db: Connection) -> "Settled":
        row = db.execute("SELECT value FROM settings WHERE name = ?", (SETTING,)).fetchone()
        return cls() if row is None else cls(**json.loads(row[0]))

    def keep(self, db: Connection) -> None:
        said = {"lanes": self.lanes, "delivered": self.delivered, "now": self.now}
        db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (SETTING, json.dumps(said)))


class Looking:
    """The set in this process, to say whom late events would have mattered to.

    Nothing is matched here. It is made when the first late event comes.
    """

    def __init__(self, db: Connection, columns: Columns) -> None:
        version = subscriptions.version_of(db)
        self._log = MemoryLog(version, subscriptions.alive(db, version))
        self._set = Following(
            Subscribed(self._log, version), columns.source, MatcherLimits(), streaming=True
        )

    def follow(self, version: int, changes: Sequence[Change]) -> bool:
        """The set has another version; whether it is the next one."""
        return self._log.append(changes) == version

    def count(self, events: pa.Table) -> dict[int, int]:
        """How many of some events each subscription looks at."""
        found: Counter[int] = Counter()
        for row in range(events.num_rows):
            found.update(map(int, self._set.names_looking_at(events.slice(row, 1))))
        return dict(found)
