"""The tasks of a service on Spark: each matches a part of the subscriptions.

Every step is matched as in the process of the service: its events are processed in order, then
time advances. So the matches do not depend on how steps are grouped into micro-batches.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ensue.cached import cached_property
from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.errors import StateError
from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.subscription_operator import VERSION, SubscriptionTaskMatcher
from ensue.operators.subscriptions.subscription_set import SubscriptionSet
from ensue.options import Limits
from ensue.projection.notification_rows import build_notification_schema
from ensue.runtime.event_buffer import DuplicateEvents, EventBuffer
from ensue.runtime.query_spec import SubscriptionsSpec
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import MicroBatch, OutputTable, StageInput, SubscriptionVersion
from ensue.service.matching.change_log import StreamStep, get_ordinals
from ensue.service.matching.multi_version_set import STREAM, MultiVersionSet, MultiVersionStage
from ensue.vector.arrow_numpy import Bools, Ints
from ensue.vector.event_table import StreamSchema
from ensue.vector.take import create_empty_table

FORMAT = 1  # of the state of a task
BLAME_SHARE = 0.5  # share of the largest from which others are left out, too


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

    def task(self, place: int) -> "ServiceTask":
        return ServiceTask(self.stage, place, self.key_groups, self.each)


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

    def __init__(self, stage: MultiVersionStage, place: int, key_groups: int, each: Limits | None = None) -> None:
        self.position = 0
        self.now: float | None = None
        self._stage = stage
        self._each, self._key_groups = each, key_groups
        self._matcher = NumberedMatcher(stage, place, key_groups, each)
        # Subscriptions that made the task fail: the version then, and the error. They are left out
        # until the service has paused them.
        self._left_out: dict[str, tuple[int, str]] = {}
        self._failed = (0, "")  # version and error of the step that failed last

    def take(self, steps: Sequence[tuple[int, str, bytes]]) -> list[tuple[int, bytes]]:
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

    def leave_out(self, blamed: Mapping[str, tuple[int, str]]) -> None:
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

    def _usage(self) -> dict[str, float]:
        """The state size of subscriptions, if a user may exceed a limit."""
        each = None if self._each is None else self._each.memory_size
        if each is None or self.state_bytes * self._key_groups <= each:
            return {}
        return dict(self._matcher.usage().bytes)

    def format_counters(self) -> str:
        """Statistics of the task, as JSON."""
        return json.dumps(
            {
                "now": self.now,
                "partial_matches": self._matcher.partial_matches,
                "state_bytes": self.state_bytes,
                "left_out": self._left_out,
                "bytes": self._usage(),
            }
        )

    @property
    def state_bytes(self) -> int:
        """Approximate size of the serialized state."""
        return int(self._matcher.state_bytes)

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
