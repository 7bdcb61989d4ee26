"""The lanes of a service on Spark: each does to its subscriptions what a live matcher does to all.

Every step is matched as in the process of the service: its events are fed in their order, then
time passes as far as the step says. So what is found does not depend on how steps are cut into
micro-batches.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ensue.columns.buffers import Bools, Ints
from ensue.columns.rows import no_rows
from ensue.columns.stream import Shape
from ensue.computed import cached_property
from ensue.engine.state import from_bytes, packed, to_bytes, unpacked
from ensue.errors import StateError
from ensue.plan.limits import Limits
from ensue.results.notified import notified_schema
from ensue.service.columns import Columns
from ensue.service.matching.patient import STREAM, PatientFleet, PatientStage
from ensue.service.matching.steps import Step, ordinals_of
from ensue.workload.held_events import EventStore
from ensue.workload.source import Source
from ensue.workload.stage import Fed, MicroBatch, Output, Version
from ensue.workload.subscriptions.catalogue.log import Log
from ensue.workload.subscriptions.fleet import Fleet
from ensue.workload.subscriptions.laned import VERSION, LaneMatcher
from ensue.workload.subscriptions.subscribed import Subscribed
from ensue.workload.twins import Twins

FORMAT = 1  # of the state of a lane
ALIKE = 0.5  # of the largest share, from which on others are left out with it


@dataclass(frozen=True)
class ServiceWork:
    """What tasks do for a service."""

    log: Log
    source: Source
    lanes: int
    each: Limits | None = None  # of one subscription

    @classmethod
    def over(
        cls, log: Log, columns: Columns, lanes: int, each: Limits | None = None
    ) -> "ServiceWork":
        """The work on the subscriptions of a log."""
        return cls(log, columns.source, lanes, each)

    @cached_property
    def stage(self) -> PatientStage:
        output = Output(0, 0, notified_schema(self.source.shape), 0, None)
        return PatientStage(
            Subscribed(self.log, 0), self.source, output, Limits(lanes=True), streaming=True
        )

    @property
    def text(self) -> str:
        """What a checkpoint knows it by."""
        said = {"subscriptions": self.log.identity, "lanes": self.lanes}
        return json.dumps(said | self.source.described(), sort_keys=True)

    def dealt(self, head: str, body: bytes) -> list[bytes]:
        """The events of a step for each lane that has a subscription for them."""
        step = Step.read(head)
        if not body:
            return [b""] * self.lanes
        events = from_bytes(body)
        bare = events.select(self.source.arrow.names)
        stage = self.stage.from_floor(step.floor)
        spread = stage.spread(bare, self.lanes, MicroBatch(STREAM, step.version))
        found = []
        for lane in range(self.lanes):
            rows = spread.rows[spread.lanes == lane]
            found.append(to_bytes(events.take(pa.array(rows))) if len(rows) else b"")
        return found

    def lane(self, place: int) -> "ServiceLane":
        """A lane to which nothing has happened yet."""
        return ServiceLane(self.stage, place, self.lanes, self.each)


class Given(Twins):
    """The numbers of events among equal ones, where those were counted before they came here.

    A lane that counted itself would not know of those that came before anybody looked at them.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape.schema.end, shape.unit)
        self.coming = np.zeros(0, np.int64)

    def ordinals(self, events: pa.Table, wanted: Bools) -> Ints:  # noqa: ARG002
        """The numbers of the next events."""
        found, self.coming = np.split(self.coming, [events.num_rows])
        return found


class NumberedStore(EventStore):
    """Keeps events that know their number."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.given = Given(shape)
        self._twins = self.given


class NumberedMatcher(LaneMatcher):
    """A lane of such events."""

    def __init__(
        self, stage: PatientStage, lane: int, lanes: int, each: Limits | None = None
    ) -> None:
        self._each = each
        super().__init__(stage, lane, lanes)

    def _begin(self, fleet: Fleet) -> None:
        super()._begin(fleet)
        self.store: NumberedStore = NumberedStore(fleet.shape)
        if self._each is not None:
            self.bound_each(self._each)

    def expect(self, numbers: Ints) -> None:
        """The numbers of the events that are fed next."""
        self.store.given.coming = numbers


class ServiceLane:
    """Some subscriptions of a service, and all that happened to them."""

    def __init__(
        self, stage: PatientStage, place: int, lanes: int, each: Limits | None = None
    ) -> None:
        self.position = 0
        self.now: float | None = None
        self._stage = stage
        self._each, self._lanes = each, lanes
        self._matcher = NumberedMatcher(stage, place, lanes, each)
        # Subscriptions that made the lane fail: the version then, and why. They are left out
        # until the service, which is told of them, has paused them.
        self._left_out: dict[str, tuple[int, str]] = {}
        self._failed = (0, "")  # the version of the step that failed last, and the kind of error

    def take(self, steps: Sequence[tuple[int, str, bytes]]) -> list[tuple[int, bytes]]:
        """What the next steps find. Those that it had before are left out."""
        found = []
        for position, head, body in steps:
            if position <= self.position:
                continue
            step = Step.read(head)
            if step.after > self.position:
                raise StateError(
                    f"the stream of the service has come to {self.position}, and should continue "
                    f"after {step.after}: the steps in between are missing\n"
                    "  hint: the folder of the stream belongs to its file; restore both"
                )
            try:
                table = self._matched(step, body)
            except Exception as error:
                self._failed = step.version, type(error).__name__
                raise
            self.position, self.now = position, step.now
            if table.num_rows:
                found.append((position, to_bytes(table)))
        return found

    def _matched(self, step: Step, body: bytes) -> pa.Table:
        matcher, told = self._matcher, Version(step.version, step.floor, STREAM)
        if matcher.told != told:
            matcher.stage = self._stage.from_floor(step.floor)
            matcher.renew(told)
            self._leave_out()
        tables = [no_rows(matcher.schema)]
        if body:
            events = from_bytes(body)
            matcher.expect(ordinals_of(events))
            versions = pa.array(np.full(events.num_rows, step.version, np.int64))
            tables += matcher.feed(Fed(events.append_column(VERSION, versions), {}, ()))
        due = matcher.deadline()
        if step.now is not None and (step.alone or (due is not None and due < step.now)):
            tables += matcher.advance(step.now)
        fleet = matcher.fleet
        table = pa.concat_tables(tables)
        return fleet.seen(table, step.version) if isinstance(fleet, PatientFleet) else table

    # ---------------------------------------------------------------------------- limits

    def blamed(self) -> dict[str, tuple[int, str]]:
        """The subscriptions because of which a step failed: its version, and the error."""
        shares = self._matcher.blamed()
        largest = max(shares.values(), default=0.0)
        return {name: self._failed for name, share in shares.items() if share >= ALIKE * largest}

    def leave_out(self, blamed: Mapping[str, tuple[int, str]]) -> None:
        """Goes on without some subscriptions that came with a version or before."""
        self._left_out |= blamed
        self._leave_out()

    def _leave_out(self) -> None:
        fleet = self._matcher.fleet
        if not self._left_out or not isinstance(fleet, PatientFleet):
            return
        for name, (version, _) in self._left_out.items():
            if fleet.came_with(name, version):
                fleet.end(name)
        fleet.settle()

    def _usage(self) -> dict[str, float]:
        """What subscriptions hold, if a user may hold too much."""
        each = None if self._each is None else self._each.memory
        if each is None or self.state_bytes * self._lanes <= each:
            return {}
        return dict(self._matcher.usage().bytes)

    # ---------------------------------------------------------------------------- state

    def counted(self) -> str:
        """What it holds, and how far time has come, as a text."""
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
        """About as many bytes as `save` gives."""
        return int(self._matcher.state_bytes)

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""
        told = self._matcher.told
        header = {
            "service_lane": FORMAT, "position": self.position, "now": self.now,
            "floor": 0 if told is None else told.batch, "left_out": self._left_out,
        }  # fmt: skip
        return packed(header, {}, {"matcher": self._matcher.save()})

    save_apart = save

    def restore(self, data: bytes) -> None:
        """Goes on where the saved one stopped."""
        header, _, blobs = unpacked(data)
        if header.get("service_lane") != FORMAT:
            raise StateError(
                f"a lane of the service was saved in format {header.get('service_lane')}, and "
                f"this release reads {FORMAT}\n  hint: use the release that wrote it"
            )
        self.position, self.now = header["position"], header["now"]
        self._matcher.stage = self._stage.from_floor(header["floor"])
        self._left_out = {name: (v, kind) for name, (v, kind) in header["left_out"].items()}
        self._matcher.restore(blobs["matcher"])
        self._leave_out()
