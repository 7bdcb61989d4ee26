"""The tasks of a service on Spark: each matches a part of the subscriptions.

Every step is matched as in the process of the service: its events are processed in order, then
time advances. So the matches do not depend on how steps are grouped into micro-batches.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.backends.spark.service_stream import STEP_SCHEMA
from ensue.cached import cached_property
from ensue.engine.memory_budget import Usage
from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.errors import StateError
from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.subscription_operator import VERSION, RoutedSubscriptionStage
from ensue.options import Limits
from ensue.projection.notification_rows import build_notification_schema
from ensue.runtime.query_spec import SubscriptionsSpec
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import FailedSubscriptions, OutputTable, StageInput, SubscriptionVersion
from ensue.runtime.tasks.task_state import StoredState, TaskCache, TaskStateStore
from ensue.vector.take import create_empty_table

FORMAT = 1  # of the state of a task
BLAME_SHARE = 0.5  # share of the largest from which others are left out, too

# ------------------------------------------------------------------------- steps


@dataclass(frozen=True, slots=True)
class StreamStep:
    """A step without its events."""

    position: int
    after: int  # position of the previous step
    version: int  # of the set; later subscriptions ignore its events
    now: Any  # the watermark, in the matcher's time; None: unknown
    alone: bool  # an advance of time without events
    floor: int = 0  # subscriptions cancelled up to this version are removed

    @property
    def set_version(self) -> SubscriptionVersion:
        return SubscriptionVersion(self.version, 0, STREAM, self.floor)

    @property
    def head(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, head: str) -> "StreamStep":
        return cls(**json.loads(head))


ServiceStep = tuple[int, str, bytes]  # position, head and body


def pack_steps(steps: Sequence[ServiceStep]) -> bytes:
    """Serializes steps.

    >>> unpack_steps([pack_steps([(2, "b", b"")]), pack_steps([(1, "a", b"x"), (2, "b", b"")])])
    [(1, 'a', b'x'), (2, 'b', b'')]
    """
    return serialize_table(pa.table(list(map(list, zip(*steps, strict=True))), schema=STEP_SCHEMA))


def unpack_steps(pieces: Iterable[bytes]) -> list[ServiceStep]:
    """Deserializes steps, sorted and without duplicates."""
    rows = [row for piece in pieces for row in deserialize_table(piece).to_pylist()]
    by_position = {row["position"]: (row["position"], row["head"], row["body"]) for row in rows}
    return [by_position[position] for position in sorted(by_position)]


STREAM = "service"  # in place of a query id: a service has one stream

# ------------------------------------------------------------------------- tasks


@dataclass(frozen=True)
class ServiceJob:
    """The work that Spark tasks do for a service."""

    log: CatalogLog
    source: SourceSchema
    key_groups: int
    each: Limits | None = None  # per subscription

    @cached_property
    def stage(self) -> RoutedSubscriptionStage:
        output = OutputTable(0, 0, build_notification_schema(self.source.shape), 0, None)
        return RoutedSubscriptionStage(
            SubscriptionsSpec(self.log, 0), self.source, output, Limits(per_core=True), streaming=True,
            each=self.each, numbered=True,
        )  # fmt: skip

    @property
    def text(self) -> str:
        """The identity that a checkpoint is bound to."""
        identity = {"subscriptions": self.log.identity, "key_groups": self.key_groups}
        return json.dumps(identity | self.source.to_dict(), sort_keys=True)

    def route_step(self, head: str, body: bytes) -> list[bytes]:
        """Splits the events of a step by the key groups that have a subscription for them."""
        step = StreamStep.read(head)
        if not body:
            return [b""] * self.key_groups
        events = deserialize_table(body)
        bare = events.select(self.source.arrow.names)
        spread = self.stage.spread(bare, self.key_groups, step.set_version)
        parts = []
        for key_group in range(self.key_groups):
            rows = spread.rows[spread.key_groups == key_group]
            parts.append(serialize_table(events.take(pa.array(rows))) if len(rows) else b"")
        return parts

    def route(self, steps: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, bytes]]:
        """Yields the number of the first step, and the packed steps, for each key group."""
        inputs: list[list[ServiceStep]] = [[] for _ in range(self.key_groups)]
        for step in steps:
            for routed, body in zip(inputs, self.route_step(step["head"], step["body"]), strict=True):
                routed.append((step["position"], step["head"], body))
        return ((routed[0][0], pack_steps(routed)) for routed in inputs if routed)

    def task(self, place: int) -> "ServiceTask":
        return ServiceTask(self.stage, place, self.key_groups)

    def run_task(
        self, store: TaskStateStore, place: int, pieces: Sequence[bytes], cache: TaskCache
    ) -> Iterator[dict[str, Any]]:
        """Processes packed steps in a task, and stores its state; yields rows of results."""
        stored = StoredServiceTask(store, self, place, cache)
        results = stored.take(unpack_steps(pieces))
        stored.keep(pieces)
        task = stored.task
        for position, table in results:
            yield {"key_group": place, "position": position, "found": table, "counted": None}
        counters = task.format_counters()
        yield {"key_group": place, "position": task.position, "found": None, "counted": counters}


class ServiceTask:
    """The state of a part of a service's subscriptions."""

    segments: Mapping[str, Path] = MappingProxyType({})  # its state is in no files

    def __init__(self, stage: RoutedSubscriptionStage, place: int, key_groups: int) -> None:
        self.position = 0
        self.now: float | None = None
        self.kept: dict[str, list[int]] = {}
        self.matcher = stage.matcher(place, key_groups)

    def take(self, steps: Sequence[ServiceStep]) -> list[tuple[int, bytes]]:
        """Matches the next steps; repeated steps are skipped."""
        results = []
        for position, head, body in steps:
            if position <= self.position:
                continue
            step = StreamStep.read(head)
            if step.after > self.position:
                raise StateError(
                    f"the stream of the service is at step {self.position}, to continue after "
                    f"{step.after}: the steps in between are missing\n"
                    "  hint: the folder of the stream belongs to its database; restore both"
                )
            table = self._match(step, body)
            self.position, self.now = position, step.now
            if table.num_rows:
                results.append((position, serialize_table(table)))
        return results

    def _match(self, step: StreamStep, body: bytes) -> pa.Table:
        matcher, version = self.matcher, step.set_version
        if matcher.announced != version:
            matcher.renew(version)
        tables = [create_empty_table(matcher.schema)]
        if body:
            events = deserialize_table(body)
            versions = pa.array(np.full(events.num_rows, step.version, np.int64))
            tables += matcher.process(StageInput(events.append_column(VERSION, versions), {}, ()))
        due = matcher.next_timer()
        if step.now is not None and (step.alone or (due is not None and due < step.now)):
            tables += matcher.on_watermark(step.now)
        return pa.concat_tables(tables)

    def format_counters(self) -> str:
        """Statistics of the task, as JSON."""
        return json.dumps(
            {"now": self.now, "usage": asdict(self.usage), "left_out": {}, "bytes": {}, **self.matcher.report()}
        )

    @property
    def usage(self) -> Usage:
        return self.matcher.usage

    def snapshot(self) -> bytes:
        header = {"service_key_group": FORMAT, "position": self.position, "now": self.now}
        return pack_state(header, {}, {"matcher": self.matcher.snapshot()})

    save_apart = snapshot

    def restore(self, data: bytes) -> None:
        header, _, blobs = unpack_state(data)
        if header.get("service_key_group") != FORMAT:
            raise StateError(
                f"a task of the service was saved in format {header.get('service_key_group')}, and "
                f"this release reads {FORMAT}\n  hint: use the release that wrote it"
            )
        self.position, self.now = header["position"], header["now"]
        self.matcher.restore(blobs["matcher"])


class StoredServiceTask(StoredState[ServiceTask]):
    """A task of a service in its state store. Subscriptions that make it fail are left out."""

    def __init__(self, store: TaskStateStore, job: ServiceJob, place: int, cache: TaskCache) -> None:
        self._job, self._place = job, place
        super().__init__(store, job.text, cache)

    def _create(self) -> ServiceTask:
        return self._job.task(self._place)

    def _restore(self, saved: bytes) -> ServiceTask:
        task = self._create()
        task.restore(saved)
        return task

    def _rebuild(self, excluded: FailedSubscriptions | None = None) -> ServiceTask:
        head = self.head
        task = self._restore(b"".join(self.store.parts(head.parts))) if head.parts else self._create()
        if excluded:
            task.matcher.leave_out(excluded)
        for entry in self.store.entries(head.entries):
            _, _, blobs = unpack_state(entry)
            try:
                task.take(unpack_steps(blobs.values()))  # its results were delivered before
            except Exception as error:
                if not (blamed := task.matcher.find_failed(error)):
                    raise
                return self._rebuild({**(excluded or {}), **blamed})
        return task

    def _require_same_job(self, then: str, now: str) -> None:
        raise StateError(
            "the checkpoint of the service was written for another stream of events\n"
            f"  then: {then}\n  now:  {now}\n"
            "  hint: continue with the stream that it was written for, or name another file"
        )

    def take(self, steps: Sequence[ServiceStep]) -> list[tuple[int, bytes]]:
        """Processes the next steps, without subscriptions that make them fail."""
        excluded: FailedSubscriptions = {}
        while True:
            try:
                return self.task.take(steps)
            except Exception as error:
                blamed = self.task.matcher.find_failed(error)
                if not blamed.keys() - excluded.keys():
                    raise
                excluded = {**excluded, **blamed}
                self.task = self._rebuild(excluded)

    def keep(self, pieces: Sequence[bytes]) -> None:
        """Writes the input, or a snapshot."""
        self.write(pack_state({}, {}, {str(k): piece for k, piece in enumerate(pieces)}))
