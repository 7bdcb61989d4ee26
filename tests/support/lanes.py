"""A stream in this process: what the Spark runner does with lanes, micro-batch by micro-batch."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from ensue.columns.keys import KeyCodes
from ensue.columns.rows import no_rows
from ensue.columns.stream import ends, with_time
from ensue.engine.state import to_bytes
from ensue.workload.clock import FURTHEST_MS
from ensue.workload.lane_shelf import Shelf, forget_live
from ensue.workload.lane_state import Head, rebuilt
from ensue.workload.micro_batch import Outcome, run_lane
from ensue.workload.stream_job import StreamJob


class DictStore:
    """The state of a lane in a dict."""

    def __init__(self) -> None:
        self.values: dict[object, object] = {}
        self.written = 0  # bytes

    def job(self) -> str:
        return str(self.values["job"])

    def put_job(self, job: str) -> None:
        self.values["job"] = job

    def head(self) -> Head | None:
        head = self.values.get("head")
        assert head is None or isinstance(head, Head)
        return head

    def put_head(self, head: Head) -> None:
        self.values["head"] = head

    def parts(self, count: int) -> Iterator[bytes]:
        return self._read("part", count)

    def put_parts(self, parts: Sequence[bytes]) -> None:
        self._clear("part")
        for number, part in enumerate(parts):
            self._put(("part", number), part)

    def entries(self, count: int) -> Iterator[bytes]:
        return self._read("entry", count)

    def put_entry(self, number: int, entry: bytes) -> None:
        self._put(("entry", number), entry)

    def clear_entries(self) -> None:
        self._clear("entry")

    def _read(self, kind: str, count: int) -> Iterator[bytes]:
        for number in range(count):
            value = self.values[kind, number]
            assert isinstance(value, bytes)
            yield value

    def _put(self, key: object, value: bytes) -> None:
        self.values[key] = value
        self.written += len(value)

    def _clear(self, kind: str) -> None:
        for key in [k for k in self.values if isinstance(k, tuple) and k[0] == kind]:
            del self.values[key]


class Stream:
    """A query over a stream whose micro-batches are given one by one.

    `early`: the watermark that a micro-batch brings about is known in it, as with `watermark=`.
    `forget` is asked before each call of a lane whether the process that ran it is gone, so that
    the lane is built anew from its store.
    """

    def __init__(
        self,
        job: StreamJob,
        delay_ms: int,
        *,
        bad_events: str = "raise",
        forget: Callable[[], bool] = lambda: False,
        shelf: Shelf | None = None,
        early: bool = True,
    ) -> None:
        self.job = job
        self.delay_ms = delay_ms
        self.bad_events = bad_events
        self.forget = forget
        self.shelf = shelf or Shelf()
        self.early = early
        self.watermark_ms = 0
        self.stores = [DictStore() for _ in range(job.lanes)]
        self.timers: list[int | None] = [None] * job.lanes
        self.delivered: list[pa.Table] = []
        self.late = 0
        self._codes = KeyCodes()

    def feed(self, events: pa.Table) -> None:
        """A micro-batch with these events. The watermark they bring counts from the next one."""
        job = self.job
        events, _ = with_time(events, job.shape, self.bad_events, job.types, finite=True)
        newest_ms = self.job.clock.newest_ms(ends(events, self.job.shape))
        next_ms = None if newest_ms is None else newest_ms - self.delay_ms
        for number, part in enumerate(self._by_lane(events)):
            blobs = [to_bytes(part)] if part.num_rows else []
            self._run(number, blobs, next_ms if self.early else None)
        self.watermark_ms = later_watermark(self.watermark_ms, next_ms)

    def pause(self) -> None:
        """A micro-batch without events: only lanes whose timer has expired are called."""
        for number, timer in enumerate(self.timers):
            if timer is not None and timer <= self.watermark_ms:
                self._run(number, [])

    def finish(self) -> pa.Table:
        """All matches, with those that only waited for the stream to end."""
        for store in self.stores:
            head = store.head()
            if head is not None:
                lane = rebuilt(store, head, self.job.watch)
                left = self.job.delivered(lane.finish(), no_rows(self.job.arrow))
                self.delivered.append(left)
        return pa.concat_tables([no_rows(self.job.result), *self.delivered])

    def _run(self, number: int, blobs: list[bytes], next_ms: int | None = None) -> Outcome:
        if self.forget():
            forget_live()
        outcome = run_lane(
            self.stores[number], self.job, self.watermark_ms, blobs, next_ms, self.shelf
        )
        self.timers[number] = outcome.timer
        self.delivered.append(outcome.delivered)
        self.late += outcome.counters.late
        return outcome

    def _by_lane(self, events: pa.Table) -> list[pa.Table]:
        plan = self.job.prepared.plan
        keys = [e.field_name for e in plan.query.equivalence]
        if plan.whole_stream or not keys or self.job.lanes == 1:
            empty = events.slice(0, 0)
            return [events, *([empty] * (self.job.lanes - 1))]
        codes = self._codes.encode([events.column(key) for key in keys])
        lanes = np.where(codes < 0, -1, codes % self.job.lanes)
        return [events.filter(pa.array(lanes == k)) for k in range(self.job.lanes)]


def later_watermark(watermark_ms: int, next_ms: int | None) -> int:
    """Spark's watermark behind a micro-batch: it begins at 0 and never goes back.

    >>> later_watermark(0, -5), later_watermark(7, 5), later_watermark(7, None)
    (0, 7, 7)
    """
    return watermark_ms if next_ms is None else max(watermark_ms, min(next_ms, FURTHEST_MS))
