"""Matching on Spark: the database records the steps, and a Spark stream matches them.

The database has the order of batches and the version of the set for each. A Structured Streaming
query processes these steps as a live matcher would, partitioned into key groups; so it finds the
same matches, independent of the micro-batches.

    FILE-spark/steps/           steps sent to the stream
    FILE-spark/found/           matches not delivered yet
    FILE-spark/subscriptions/   the set, for the workers (`CatalogReplica`)
    FILE-spark/checkpoint/      Spark's checkpoint
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ensue.api import explain
from ensue.backends.live_backend import to_engine_time
from ensue.backends.spark.service_stream import StepFiles, create_folders
from ensue.engine.memory_budget import Usage
from ensue.errors import StateError
from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog, MemoryLog
from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from ensue.operators.subscriptions.member_registry import SubscriptionUsage
from ensue.operators.subscriptions.subscription_loader import FollowingMatcher
from ensue.operators.subscriptions.subscription_operator import RoutedSubscriptionStage
from ensue.optional_deps import require_extra
from ensue.options import Limits
from ensue.planner.planner_options import PlannerOptions
from ensue.projection.match_ids import ORDINAL
from ensue.projection.notification_rows import build_notification_schema
from ensue.runtime.event_buffer import StreamOrder
from ensue.runtime.pipeline import PipelinePlan
from ensue.runtime.query_spec import QuerySpec, RunOptions, SubscriptionsSpec
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.workload import Workload
from ensue.service.budgets import compute_matcher_limits
from ensue.service.event_columns import EventColumns
from ensue.service.matching.in_process import count_late_readers
from ensue.service.matching.match_backend import MatchBackend, MatchResult
from ensue.service.matching.spark_transport import (
    CatalogReplica,
    MicroBatchAnswer,
    SparkTransport,
    StepBuilder,
    StreamProgress,
    replica_ahead_error,
)
from ensue.service.settings import ServiceLimits
from ensue.service.store import event_batches, subscription_store

if TYPE_CHECKING:
    from ensue.backends.spark.service_stream import ServiceSession
    from ensue.service.service import Service

SETTING = "spark"  # name of the setting with the progress of the stream
CLOSE_SECONDS = 10.0  # seconds that closing waits for the stream


def on_spark(
    spark: Any = None, *, master: str = "local[2]", key_groups: int | None = None, **settings: str
) -> Callable[[EventColumns, ServiceLimits, "Service"], MatchBackend]:
    """Lets Spark find the matches of a service: `ensue.Service(..., matching=on_spark())`.

    `spark` is a session; by default the one of this process is used, or one is started with
    `master` and `settings`. Subscriptions are partitioned into `key_groups` key groups at first use, by
    default as many as Spark runs tasks concurrently.
    """
    with require_extra("a service that matches on Spark", "spark"):
        from ensue.backends.spark.service_stream import ServiceSession
    session = ServiceSession.get_or_create(spark, {"spark.master": master, **settings})
    return lambda columns, limits, service: SparkBackend(columns, limits, service, session, key_groups)


class SparkBackend(MatchBackend):
    """Orders events in the core thread, and lets a stream match them."""

    def __init__(
        self,
        columns: EventColumns,
        limits: ServiceLimits,
        service: "Service",
        session: "ServiceSession",
        key_groups: int | None = None,
    ) -> None:
        super().__init__(columns, limits)
        self.folder = Path(f"{service.path}-spark").absolute()
        self.progress = StreamProgress()
        self._service = service
        self._session = session
        self._key_groups = key_groups
        self._intake: StepBuilder | None = None  # after the newest batch; None: to be rebuilt
        self._pump: SparkTransport | None = None
        self._nothing = build_notification_schema(columns.shape).empty_table()
        self._late_counter: LateEventCounter | None = None

    def load(self, db: Connection) -> None:
        """Resumes from the state in the database and the folder of the stream."""
        status = SparkStreamStatus.read(db)
        self._intake = self._restore_stepping(db)
        create_folders(self.folder)
        sent = StepFiles(self.folder).last
        replica = CatalogReplica(self.folder / "subscriptions", self.columns)
        replica.require_not_ahead(db)
        if sent > event_batches.get_last_position(db):
            raise replica_ahead_error(self.folder)
        if status.delivered and not sent:
            raise StateError(
                f"the stream of the service is at step {status.delivered}, and its folder "
                f"{self.folder} is missing\n"
                "  hint: restore it together with the database, or use a new database"
            )
        self.progress.delivered, self.progress.now = status.delivered, status.now
        self.progress.sent = max(status.delivered, sent)
        try:
            key_groups = self._fix_key_groups(db, status)
            each = compute_matcher_limits(db, self.limits)
            chain = plan_stream(replica.log, self.columns.source, key_groups, each)
            self._pump = SparkTransport(
                self._service.database, self._restore_stepping(db, self.progress.sent), replica,
                self.folder, self._session.stream(chain, self.folder), self._deliver,
                self.progress, self.limits.snapshot_seconds,
            )  # fmt: skip
            self._pump.start()
        except BaseException:
            self._session.close()
            raise
        self._service.database.committed.append(self._pump.wake)

    def reset(self, db: Connection) -> None:  # noqa: ARG002
        raise StateError(
            "the watermark of a service on Spark cannot be reset: it is part of its state\n"
            "  hint: continue with a new database"
        )

    def _fix_key_groups(self, db: Connection, status: "SparkStreamStatus") -> int:
        """Determines the number of key groups, which never changes."""
        key_groups = status.key_groups or self._key_groups or self._session.tasks()
        if self._key_groups not in (None, key_groups):
            raise StateError(
                f"the stream of the service has {key_groups} key groups, not {self._key_groups}\n"
                "  hint: omit key_groups=; the number is fixed at the first start"
            )
        SparkStreamStatus(key_groups, status.delivered, status.now).keep(db)
        return key_groups

    def _restore_stepping(self, db: Connection, upto: int | None = None) -> StepBuilder:
        """Restores the stream order at a position, by default after all accepted batches."""
        stepping = StepBuilder(self.columns)
        _, _, saved = event_batches.read_snapshot(db)
        if saved is not None:
            stepping.restore(saved)
        for batch in event_batches.read_batches_after(db, stepping.position):
            if upto is not None and batch.position > upto:
                break
            stepping.take(batch)
        return stepping

    def discard_state(self) -> None:
        self._intake = self._late_counter = None

    def _ready(self, db: Connection) -> StepBuilder:
        if self._intake is None:
            self._intake = self._restore_stepping(db)
        return self._intake

    @property
    def order(self) -> StreamOrder | None:
        return None if self._intake is None else self._intake.order

    @property
    def decided(self) -> float | None:
        return self.columns.as_seconds(self.progress.now)

    @property
    def trouble(self) -> str | None:
        if self._pump is not None and not self._pump.alive:
            return "the thread that sends events to Spark has ended"
        return self.progress.trouble

    def change(self, version: int, changes: Sequence[SubscriptionChange]) -> None:
        if self._late_counter is not None and not self._late_counter.follow(version, changes):
            self._late_counter = None

    def feed(self, db: Connection, events: pa.Table) -> MatchResult:
        order = self._ready(db).order
        late = np.asarray(order.find_late(events), np.bool_)
        by_subscription: dict[int, int] = {}
        if late.any():
            if self._late_counter is None:
                self._late_counter = LateEventCounter(db, self.columns)
            by_subscription = self._late_counter.count(events.filter(pa.array(late)))
            events = events.filter(pa.array(~late))
        order.take(events)
        return MatchResult(None, late.tolist(), by_subscription)

    def advance(self, db: Connection, to: float) -> MatchResult:
        order = self._ready(db).order
        order.on_watermark(to_engine_time(self.columns.moment(to), self.columns.shape))
        return MatchResult(None)

    def _deliver(self, answer: MicroBatchAnswer) -> None:
        """Stores the matches of an answer exactly once; runs in the transport thread."""
        core, database = self._service.core, self._service.database

        def store(db: Connection) -> SparkStreamStatus:
            status = SparkStreamStatus.read(db)
            if answer.upto > status.delivered:  # otherwise Spark has repeated it
                core.store_matches(db, pa.concat_tables([self._nothing, *answer.matches]), answer.left_out)
                status = SparkStreamStatus(status.key_groups, answer.upto, answer.now)
                status.keep(db)
            return status

        status = database.submit(core.job(store)).result()
        progress = self.progress
        progress.delivered, progress.now = status.delivered, status.now
        progress.usage, progress.subscription_bytes = answer.usage, answer.subscription_bytes

    @property
    def save_due(self) -> bool:
        return self.progress.saved is not None

    def save(self, db: Connection) -> None:
        """Writes the stream order after the sent steps."""
        saved, self.progress.saved = self.progress.saved, None
        if saved is not None:
            position, version, data = saved
            event_batches.store_snapshot(db, position, version, data)
            subscription_store.compact_changes(db, version)

    @property
    def usage(self) -> Usage:
        return self.progress.usage

    def measure_subscriptions(self) -> SubscriptionUsage:
        return SubscriptionUsage(self.progress.subscription_bytes)

    def explain(self) -> str:
        replica = CatalogReplica(self.folder / "subscriptions", self.columns)
        return explain(replica.subscriptions, self.columns.arrow.empty_table())

    def counters(self) -> dict[str, int]:
        progress = self.progress
        return {
            "partial_matches": progress.usage.partial_matches,
            "events_waiting": 0 if self.order is None else self.order.waiting.num_rows,
            "state_bytes": progress.usage.state_bytes,
            "steps_delivered": progress.delivered,
            "stream_failures": progress.failures,
        }

    def close(self) -> None:
        pump, self._pump = self._pump, None
        try:
            if pump is not None:
                pump.close(CLOSE_SECONDS)
        finally:
            self._session.close()


def plan_stream(log: CatalogLog, source: SourceSchema, key_groups: int, each: Limits | None = None) -> PipelinePlan:
    """Plans the stream of a service: an ordinary one over its catalog, with limits for each subscription."""
    options = RunOptions(streaming=True, planning=PlannerOptions(limits=Limits(per_core=True)))
    (chain,) = Workload((QuerySpec(SubscriptionsSpec(log, 0)),), source, options, key_groups).chains
    (stage,) = chain.stages
    assert isinstance(stage, RoutedSubscriptionStage)
    return replace(chain, stages=(replace(stage, each=each, added=stage.added.append(pa.field(ORDINAL, pa.int64()))),))


@dataclass(frozen=True, slots=True)
class SparkStreamStatus:
    """The progress of the stream, as stored in the database."""

    key_groups: int | None = None
    delivered: int = 0  # position up to which matches are in the outbox
    now: Any = None  # its watermark, in the matcher's time

    @classmethod
    def read(cls, db: Connection) -> "SparkStreamStatus":
        row = db.execute("SELECT value FROM settings WHERE name = ?", (SETTING,)).fetchone()
        return cls() if row is None else cls(**json.loads(row[0]))

    def keep(self, db: Connection) -> None:
        status = json.dumps(asdict(self))
        db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (SETTING, status))


class LateEventCounter:
    """Counts late events by the subscriptions that would have processed them."""

    def __init__(self, db: Connection, columns: EventColumns) -> None:
        version = subscription_store.get_version(db)
        self._log = MemoryLog(version, subscription_store.read_set(db, version))
        self._set = FollowingMatcher(SubscriptionsSpec(self._log, version), columns.source, Limits(), streaming=True)

    def follow(self, version: int, changes: Sequence[SubscriptionChange]) -> bool:
        """Applies changes; returns whether they are the next version."""
        return self._log.append(changes) == version

    def count(self, events: pa.Table) -> dict[int, int]:
        return count_late_readers([self._set], events)
