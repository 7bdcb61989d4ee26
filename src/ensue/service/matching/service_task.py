"""The tasks of a service on Spark: each matches a part of the subscriptions.

Every step is matched as in the process of the service: its events are processed in order, then
time advances. So the matches do not depend on how steps are grouped into micro-batches.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.backends.spark.service_stream import STEP_SCHEMA
from ensue.cached import cached_property
from ensue.engine.memory_budget import Usage
from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.errors import StateError
from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.catalog.change import ChangeFile, ChangeKind
from ensue.operators.subscriptions.subscription_loader import SubscriptionSetLoader, write_due_snapshot
from ensue.operators.subscriptions.subscription_operator import (
    VERSION,
    RoutedSubscriptionStage,
    SubscriptionTaskMatcher,
)
from ensue.operators.subscriptions.subscription_set import SubscriptionSet
from ensue.options import Limits
from ensue.projection.match_ids import ORDINAL
from ensue.projection.notification_rows import build_notification_schema
from ensue.runtime.event_buffer import DuplicateEvents, EventBuffer
from ensue.runtime.query_spec import SubscriptionsSpec
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import MicroBatch, OutputTable, StageInput, SubscriptionVersion
from ensue.runtime.tasks.task_state import StoredState, TaskCache, TaskStateStore
from ensue.vector.arrow_numpy import Bools, Ints
from ensue.vector.event_table import StreamSchema
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
    def head(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, head: str) -> "StreamStep":
        return cls(**json.loads(head))


def get_ordinals(events: pa.Table) -> Ints:
    """The ordinals of events among equal ones."""
    if ORDINAL not in events.column_names:
        return np.zeros(events.num_rows, np.int64)
    return np.asarray(events.column(ORDINAL).to_numpy(), np.int64)


ServiceStep = tuple[int, str, bytes]  # position, head and body
FailureCauses = Mapping[str, tuple[int, str]]  # by name: since which version, and why


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


# ------------------------------------------------------------------------- versions of the set
#
# Steps of different versions are matched in one micro-batch. Added subscriptions are present from
# the start: an event carries its version, and later subscriptions ignore it. Cancelled ones stay
# until all earlier steps are matched, and their later matches are dropped. So changes of the set do
# not need separate micro-batches.

STREAM = "service"  # in place of a query id: a service has one stream
_ENDING = "ending"


class MultiVersionSet(SubscriptionSet):
    """A subscription set in which cancelled subscriptions stay for earlier events."""

    def __init__(self, shape: StreamSchema, *, streaming: bool = False, key_groups: int = 1) -> None:
        super().__init__(shape, streaming=streaming, key_groups=key_groups)
        self.version = 0
        self.ending: dict[str, int] = {}  # cancelled ones, with the version of the cancellation

    def drop_ended(self, floor: int) -> None:
        """Removes the subscriptions that were cancelled up to version `floor`."""
        over = [name for name, version in self.ending.items() if version <= floor]
        for name in over:
            self.end(name)
        if over:
            self.settle()

    def end(self, name: str) -> None:
        """Removes a subscription, also for earlier events."""
        self.ending.pop(name, None)
        self.cancel(name)

    def was_added_by(self, name: str, version: int) -> bool:
        """Whether a subscription was added at a version or before it."""
        pattern = self.patterns.members.get(name)
        if pattern is not None:
            return pattern.since <= version
        member = self.members.get(name)
        return member is not None and self.nodes.arrays().since[member.number] <= version

    def filter_cancelled(self, matches: pa.Table, version: int) -> pa.Table:
        """Drops matches of subscriptions that were cancelled at a version or before."""
        if not matches.num_rows or not self.ending:
            return matches
        over = [name for name, ended in self.ending.items() if ended <= version]
        names = matches.column("subscription")
        return matches.filter(pc.invert(pc.is_in(names, value_set=pa.array(over, pa.string()))))

    def save(self, folder: Path) -> None:
        """Writes the set into an empty folder."""
        super().save(folder)
        state = {"version": self.version, "ending": self.ending}
        (folder / _ENDING).write_text(json.dumps(state))

    @classmethod
    def open(
        cls, folder: Path, shape: StreamSchema, *, streaming: bool = False, key_groups: int = 1
    ) -> "MultiVersionSet":
        """Opens a saved set for events of this shape."""
        opened = super().open(folder, shape, streaming=streaming, key_groups=key_groups)
        assert isinstance(opened, MultiVersionSet)
        state = json.loads((folder / _ENDING).read_text())
        opened.version, opened.ending = state["version"], state["ending"]
        return opened


@dataclass(frozen=True)
class MultiVersionLoader(SubscriptionSetLoader):
    """Loads multi-version sets."""

    kind: ClassVar[type[SubscriptionSet]] = MultiVersionSet
    floor: int = field(default=0, compare=False)

    def take(self, ready: SubscriptionSet, version: int, changes: ChangeFile) -> None:
        """Applies the changes of the next version."""
        assert isinstance(ready, MultiVersionSet)
        for change in changes:
            if change.kind is ChangeKind.CANCEL and version > self.floor:
                ready.ending[change.name] = version
            elif change.kind is ChangeKind.CANCEL:
                ready.cancel(change.name)
            else:
                if change.name in ready.ending:  # steps are split before a name is added again
                    ready.end(change.name)
                ready.follow(change, version)
        ready.version = version

    def at(self, log: CatalogLog, version: int, *, later: bool = False) -> MultiVersionSet:
        """Loads the set at a version, or at a later one that is already loaded."""
        loaded = super().at(log, version, later=later)
        assert isinstance(loaded, MultiVersionSet)
        loaded.drop_ended(self.floor)
        return loaded


@dataclass(frozen=True)
class MultiVersionStage(RoutedSubscriptionStage):
    """All subscriptions of a service, partitioned into key groups."""

    floor: int = 0

    def from_floor(self, floor: int) -> "MultiVersionStage":
        """The same stage without subscriptions that were cancelled up to version `floor`."""
        return self if floor == self.floor else replace(self, floor=floor)

    def set_loader(self, stream: str, key_groups: int) -> MultiVersionLoader:
        loader = MultiVersionLoader.build(self.source, streaming=self.streaming, key_groups=key_groups, stream=stream)
        assert isinstance(loader, MultiVersionLoader)
        return replace(loader, floor=self.floor)

    def _version(self, batch: MicroBatch | None) -> SubscriptionVersion | None:
        """The version of a step, with its floor in place of the first micro-batch."""
        if batch is None:
            return None
        return SubscriptionVersion(batch.number, self.floor, batch.stream)

    def _load_set(self, version: SubscriptionVersion | None, key_groups: int) -> SubscriptionSet:
        """Loads the set, or a later one, whose new subscriptions ignore earlier events."""
        log = self.subscribed.log
        if version is None or not isinstance(log, CatalogLog):
            return super()._load_set(version, key_groups)
        loader = self.set_loader(version.stream, key_groups)
        loaded = loader.at(log, version.number, later=True)
        write_due_snapshot(log, loader, loaded.version, loaded)
        return loaded

    def __reduce__(self) -> Any:
        return MultiVersionStage, (
            self.subscribed, self.source, self.output, self.limits, self.streaming,
        )  # fmt: skip


# ------------------------------------------------------------------------- tasks


@dataclass(frozen=True)
class ServiceJob:
    """The work that Spark tasks do for a service."""

    log: CatalogLog
    source: SourceSchema
    key_groups: int
    each: Limits | None = None  # per subscription

    @cached_property
    def stage(self) -> MultiVersionStage:
        output = OutputTable(0, 0, build_notification_schema(self.source.shape), 0, None)
        return MultiVersionStage(
            SubscriptionsSpec(self.log, 0), self.source, output, Limits(per_core=True), streaming=True
        )

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
        stage = self.stage.from_floor(step.floor)
        spread = stage.spread(bare, self.key_groups, MicroBatch(STREAM, step.version))
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
        return ServiceTask(self.stage, place, self.key_groups, self.each)

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


class SentOrdinals(DuplicateEvents):
    """Ordinals of events among equal ones, counted by the sender.

    A task cannot count them itself: it does not see events that no subscription of it processes.
    """

    def __init__(self, shape: StreamSchema) -> None:
        super().__init__(shape.schema.end, shape.unit)
        self.next_numbers = np.zeros(0, np.int64)

    def ordinals(self, events: pa.Table, selected: Bools) -> Ints:  # noqa: ARG002
        """Returns the ordinals of the next events."""
        numbers, self.next_numbers = np.split(self.next_numbers, [events.num_rows])
        return numbers


class NumberedEventStore(EventBuffer):
    """An event store with the ordinals of the sender."""

    def __init__(self, shape: StreamSchema) -> None:
        super().__init__(shape)
        self.sent = self._twins = SentOrdinals(shape)


class NumberedMatcher(SubscriptionTaskMatcher):
    """A matcher of events with the ordinals of the sender."""

    def __init__(self, stage: MultiVersionStage, key_group: int, key_groups: int, each: Limits | None = None) -> None:
        self._each = each
        super().__init__(stage, key_group, key_groups)

    def _begin(self, subscriptions: SubscriptionSet) -> None:
        super()._begin(subscriptions)
        self.store: NumberedEventStore = NumberedEventStore(subscriptions.shape)
        if self._each is not None:
            self.limit_each(self._each)

    def expect(self, numbers: Ints) -> None:
        """Sets the ordinals of the events that are fed next."""
        self.store.sent.next_numbers = numbers


class ServiceTask:
    """The state of a part of a service's subscriptions."""

    segments: Mapping[str, Path] = MappingProxyType({})  # its state is in no files

    def __init__(self, stage: MultiVersionStage, place: int, key_groups: int, each: Limits | None = None) -> None:
        self.position = 0
        self.now: float | None = None
        self.kept: dict[str, list[int]] = {}
        self._stage = stage
        self._each, self._key_groups = each, key_groups
        self._matcher = NumberedMatcher(stage, place, key_groups, each)
        # Subscriptions that made the task fail: the version then, and the error. They are left out
        # until the service has paused them.
        self._left_out: dict[str, tuple[int, str]] = {}
        self._failed = (0, "")  # version and error of the step that failed last

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
            try:
                table = self._match(step, body)
            except Exception as error:
                self._failed = step.version, type(error).__name__
                raise
            self.position, self.now = position, step.now
            if table.num_rows:
                results.append((position, serialize_table(table)))
        return results

    def _match(self, step: StreamStep, body: bytes) -> pa.Table:
        matcher, version = self._matcher, SubscriptionVersion(step.version, step.floor, STREAM)
        if matcher.announced != version:
            matcher.stage = self._stage.from_floor(step.floor)
            matcher.renew(version)
            self._leave_out()
        tables = [create_empty_table(matcher.schema)]
        if body:
            events = deserialize_table(body)
            matcher.expect(get_ordinals(events))
            versions = pa.array(np.full(events.num_rows, step.version, np.int64))
            tables += matcher.process(StageInput(events.append_column(VERSION, versions), {}, ()))
        due = matcher.next_timer()
        if step.now is not None and (step.alone or (due is not None and due < step.now)):
            tables += matcher.on_watermark(step.now)
        matched_set = matcher.subscription_set
        table = pa.concat_tables(tables)
        if isinstance(matched_set, MultiVersionSet):
            table = matched_set.filter_cancelled(table, step.version)
        return table

    def get_failure_causes(self) -> dict[str, tuple[int, str]]:
        """The subscriptions that made a step fail: its version, and the error."""
        shares = self._matcher.get_failure_causes()
        largest = max(shares.values(), default=0.0)
        return {name: self._failed for name, share in shares.items() if share >= BLAME_SHARE * largest}

    def leave_out(self, blamed: FailureCauses) -> None:
        """Removes subscriptions that were added at a version or before."""
        self._left_out |= blamed
        self._leave_out()

    def _leave_out(self) -> None:
        subscriptions = self._matcher.subscription_set
        if not self._left_out or not isinstance(subscriptions, MultiVersionSet):
            return
        for name, (version, _) in self._left_out.items():
            if subscriptions.was_added_by(name, version):
                subscriptions.end(name)
        subscriptions.settle()

    def _measure_subscriptions(self) -> dict[str, float]:
        """The state size of subscriptions, if a user may exceed a limit."""
        each = None if self._each is None else self._each.memory_size
        if each is None or self.usage.state_bytes * self._key_groups <= each:
            return {}
        return dict(self._matcher.measure_subscriptions().bytes)

    def format_counters(self) -> str:
        """Statistics of the task, as JSON."""
        return json.dumps(
            {
                "now": self.now,
                "usage": asdict(self.usage),
                "left_out": self._left_out,
                "bytes": self._measure_subscriptions(),
            }
        )

    @property
    def usage(self) -> Usage:
        return self._matcher.usage

    def snapshot(self) -> bytes:
        announced = self._matcher.announced
        header = {
            "service_key_group": FORMAT, "position": self.position, "now": self.now,
            "floor": 0 if announced is None else announced.batch, "left_out": self._left_out,
        }  # fmt: skip
        return pack_state(header, {}, {"matcher": self._matcher.snapshot()})

    save_apart = snapshot

    def restore(self, data: bytes) -> None:
        header, _, blobs = unpack_state(data)
        if header.get("service_key_group") != FORMAT:
            raise StateError(
                f"a task of the service was saved in format {header.get('service_key_group')}, and "
                f"this release reads {FORMAT}\n  hint: use the release that wrote it"
            )
        self.position, self.now = header["position"], header["now"]
        self._matcher.stage = self._stage.from_floor(header["floor"])
        self._left_out = {name: (v, kind) for name, (v, kind) in header["left_out"].items()}
        self._matcher.restore(blobs["matcher"])
        self._leave_out()


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

    def _rebuild(self, excluded: FailureCauses | None = None) -> ServiceTask:
        head = self.head
        task = self._restore(b"".join(self.store.parts(head.parts))) if head.parts else self._create()
        if excluded:
            task.leave_out(excluded)
        for entry in self.store.entries(head.entries):
            _, _, blobs = unpack_state(entry)
            try:
                task.take(unpack_steps(blobs.values()))  # its results were delivered before
            except Exception:
                if not (blamed := task.get_failure_causes()):
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
        excluded: dict[str, tuple[int, str]] = {}
        while True:
            try:
                return self.task.take(steps)
            except Exception:
                blamed = self.task.get_failure_causes()
                if not blamed.keys() - excluded.keys():
                    raise
                excluded |= blamed
                self.task = self._rebuild(excluded)

    def keep(self, pieces: Sequence[bytes]) -> None:
        """Writes the input, or a snapshot."""
        self.write(pack_state({}, {}, {str(k): piece for k, piece in enumerate(pieces)}))
