"""A workload that runs in this process: events are fed, and matches returned, incrementally."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from ensue.engine.interrupts import allow_interrupts
from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.errors import EventError, StateError
from ensue.runtime.event_buffer import StreamOrder
from ensue.runtime.pipeline import Pipeline
from ensue.runtime.query_spec import Name
from ensue.runtime.spill.resident_keys import get_spill_counters
from ensue.runtime.stage import StageInput
from ensue.runtime.workload import Workload
from ensue.vector.event_table import drop_bad_times, sort_events
from ensue.vector.take import create_empty_table

FORMAT = 1
LONG = 1_000  # events from which on kernels run interruptibly, which has a fixed cost


@dataclass(frozen=True, slots=True)
class LiveCounters:
    """The counters of a live matcher, and its current size."""

    events: int  # with a usable time
    late: int  # of these
    dropped: int  # without a usable time, or that do not fit the schema
    matches: int
    partial_matches: int
    waiting: int  # events after the watermark
    state_bytes: int  # approximate size of `save()`
    misses: int = 0  # spilled keys that an event arrived for
    stored_keys: int = 0  # spilled keys
    stored_bytes: int = 0  # of their events


class LiveWorkload:
    """Returns the matches of a batch run, however the events are split into batches."""

    def __init__(self, workload: Workload, delay: int | float | None, bad_events: str = "raise") -> None:
        self.workload = workload
        self.bad_events = bad_events
        self.order = StreamOrder(workload.source.shape, delay)
        self.events = self.late = self.dropped = self.matches = 0
        self.late_events: list[pa.Table] = []  # not delivered yet
        self._types = workload.types
        self.pipeline = Pipeline([work.as_single_stage() for work in workload.works])
        self._empty = {o.name: create_empty_table(o.schema) for o in workload.outputs}
        self._closed: str | None = None  # why no more events are accepted

    def process(self, events: pa.Table, *, ordered: bool = True) -> Mapping[Name, pa.Table]:
        """The matches that the next events complete; `ordered`: they are in arrival order."""
        self._require_open()
        shape = self.workload.source.shape
        usable, dropped = drop_bad_times(events, shape, self.bad_events, self._types, finite=True)
        if not ordered:
            usable = sort_events(usable, shape)
        with self._all_or_nothing(usable.num_rows):
            released = self.order.take(usable)
            result = self._match(released.events)
            self.events += usable.num_rows
            self.dropped += dropped
            self.late += released.late.num_rows
            if released.late.num_rows and self.workload.deliver_late:
                self.late_events.append(released.late)
        return result

    def on_watermark(self, time: float) -> Mapping[Name, pa.Table]:
        """The matches that the watermark `time` completes; a watermark at infinity ends the stream."""
        self._require_open()
        with self._all_or_nothing(LONG):
            result = self._match(self.order.on_watermark(time), always=True)
        if time == math.inf:
            self._closed = "it is finished"
        return result

    def _match(self, events: pa.Table, *, always: bool = False) -> Mapping[Name, pa.Table]:
        results = self.pipeline.process(StageInput.from_events(events), self.order.now, always=always)
        found = {output.name: table for output, table in self.pipeline.iterate_outputs(results)}
        self.matches += sum(table.num_rows for table in found.values())
        return self._empty | found

    def _require_open(self) -> None:
        if self._closed is not None:
            raise EventError(
                f"no more events can be given to this live matcher: {self._closed}\n"
                "  hint: make a new one with ensue.live, and restore a state that was saved before"
            )

    @contextlib.contextmanager
    def _all_or_nothing(self, rows: int) -> Iterator[None]:
        """Closes the matcher if an error leaves a batch matched in part."""
        try:
            if rows < LONG:
                yield
            else:
                with allow_interrupts():
                    yield
        except BaseException as error:
            why = str(error).partition("\n")[0] or type(error).__name__
            self._closed = f"it was stopped in the middle of a piece ({why})"
            raise

    @property
    def counts(self) -> LiveCounters:
        usage = self.pipeline.usage
        spilled = [get_spill_counters(matcher) for matcher in self.pipeline.matchers]
        return LiveCounters(
            self.events,
            self.late,
            self.dropped,
            self.matches,
            usage.partial_matches,
            self.order.waiting.num_rows,
            self.order.nbytes + usage.state_bytes,
            sum(counters.misses for counters in spilled),
            sum(counters.keys for counters in spilled),
            sum(counters.bytes for counters in spilled),
        )

    def take_late_events(self) -> pa.Table:
        """The late events since the last call."""
        late, self.late_events = self._concat_late(), []
        return late.select(self.workload.source.came.names)

    def _concat_late(self) -> pa.Table:
        return pa.concat_tables([create_empty_table(self.workload.source.arrow), *self.late_events])

    def snapshot(self) -> bytes:
        """Serialized state."""
        self._require_open()
        header = {
            "live": FORMAT,
            "workload": self.workload.text,
            "delay": self.order.delay,
            "counted": [self.events, self.late, self.dropped, self.matches],
        }
        blobs = {"order": self.order.snapshot(), "late": serialize_table(self._concat_late())}
        return pack_state(header, {}, blobs | self.pipeline.snapshot())

    def restore(self, data: bytes) -> None:
        """Restores a serialized state. Raises a StateError, and changes nothing, if it cannot."""
        header, _, blobs = unpack_state(data)
        if "live" not in header:
            raise StateError("these bytes are no saved state of a live matcher")
        if header["live"] != FORMAT:
            raise StateError(
                f"the state was saved in format {header['live']}, this release reads {FORMAT}\n"
                "  hint: use the release that saved it"
            )
        from ensue.runtime.tasks.task_state import require_same_job

        require_same_job(header["workload"], self.workload.text, "saved state")
        if header["delay"] != self.order.delay:
            raise StateError(
                "the saved state was written with another watermark=\n  hint: pass the one that it was written with"
            )
        order = StreamOrder(self.order.shape, self.order.delay)
        order.restore(blobs["order"])
        late = deserialize_table(blobs["late"])
        self.pipeline.restore(blobs)
        self.order, self._closed = order, None
        self.events, self.late, self.dropped, self.matches = header["counted"]
        self.late_events = [late] if late.num_rows else []
