"""A lane of a stream: events wait for the watermark, are put in order and go to the matchers."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from ensue.columns.rows import no_rows
from ensue.columns.stream import Shape, ends, in_order
from ensue.engine.state import from_bytes, packed, to_bytes, unpacked
from ensue.plan.limits import Limits
from ensue.workload.live_matcher import LiveMatchers
from ensue.workload.prepared import Prepared
from ensue.workload.several_live import SeveralLive

ARRIVAL = "__arrival"


@dataclass(frozen=True, slots=True)
class Watch:
    """What a lane watches for: queries over one stream."""

    queries: tuple[Prepared, ...]  # of the same shape
    shared: bool = False  # they share one scan of the events
    sortable: Shape = field(init=False)  # with the order of arrival as the last tie-breaker

    def __post_init__(self) -> None:
        shape = self.shape
        schema = replace(shape.schema, order=(*shape.schema.order, ARRIVAL))
        arrow = shape.arrow.append(pa.field(ARRIVAL, pa.int64()))
        object.__setattr__(self, "sortable", replace(shape, schema=schema, arrow=arrow))

    @property
    def shape(self) -> Shape:
        return self.queries[0].shape

    @property
    def limits(self) -> Limits:
        return self.queries[0].planning.limits

    def lane(self) -> "Lane":
        """A new lane."""
        return Lane(self)

    def restored(self, data: bytes) -> "Lane":
        """A lane that goes on where a saved one stopped."""
        return Lane.restore(self, data)

    def matchers(self) -> LiveMatchers | SeveralLive:
        """New matchers of the queries."""
        return SeveralLive(self.queries) if self.shared else LiveMatchers(self.queries)


class Lane:
    """The events of some partitions, matched as far as the watermark has come.

    An event waits until the watermark has passed it: then no earlier one can come, and all that
    wait before the watermark are matched in the order of the stream. So the order of arrival
    within the allowed lateness does not change the matches, nor does the cut into batches.
    """

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.matchers = watch.matchers()
        self.waiting = no_rows(watch.sortable.arrow)
        self.arrived = 0
        self.watermark: float | None = None  # up to which it has matched

    @property
    def limits(self) -> Limits:
        return self.watch.limits

    def accept(
        self, blobs: Sequence[bytes], watermark: float | None = None
    ) -> tuple[int, pa.Table]:
        """Takes events as they are sent; gives their number, and those that are late."""
        events = together(blobs, self.watch.shape.arrow)
        return events.num_rows, self.take(events, watermark)

    def take(self, events: pa.Table, watermark: float | None = None) -> pa.Table:
        """Lets events wait; gives back those that are late: they end before the watermark.

        Also before the one that the lane has come to already, if it is further.
        """
        shape = self.watch.shape
        events = events.select(shape.arrow.names).cast(shape.arrow)
        late = events.slice(0, 0)
        known = [w for w in (watermark, self.watermark) if w is not None]
        if known:
            behind = ends(events, shape) < max(known)
            if behind.any():
                late = events.filter(pa.array(behind))
                events = events.filter(pa.array(~behind))
        numbers = np.arange(self.arrived, self.arrived + events.num_rows)
        self.arrived += events.num_rows
        numbered = events.append_column(ARRIVAL, pa.array(numbers, pa.int64()))
        self.waiting = pa.concat_tables([self.waiting, numbered])
        return late

    def release(self, watermark: float) -> list[pa.Table]:
        """The matches of each query that are certain once the watermark has come so far."""
        if self.watermark is not None and watermark < self.watermark:
            watermark = self.watermark
        self.watermark = watermark
        ready = ends(self.waiting, self.watch.shape) < watermark
        if ready.all():
            released, self.waiting = self.waiting, self.waiting.slice(0, 0)
        else:
            released = self.waiting.filter(pa.array(ready))
            self.waiting = self.waiting.filter(pa.array(~ready)).combine_chunks()
        found = self._fed(released)
        passed = self.matchers.advance(watermark)
        return [pa.concat_tables(pair) for pair in zip(found, passed, strict=True)]

    def finish(self) -> list[pa.Table]:
        """The matches that are left when the stream is over."""
        released, self.waiting = self.waiting, self.waiting.slice(0, 0)
        found = self._fed(released)
        left = self.matchers.finish()
        return [pa.concat_tables(pair) for pair in zip(found, left, strict=True)]

    def _fed(self, released: pa.Table) -> list[pa.Table]:
        ordered = in_order(released, self.watch.sortable).drop_columns([ARRIVAL])
        return self.matchers.feed(ordered)

    def due(self) -> float | None:
        """The time behind which the watermark lets something happen, without further events."""
        due = self.matchers.deadline()
        times = [] if due is None else [due]
        if self.waiting.num_rows:
            times.append(ends(self.waiting, self.watch.shape).min().item())
        return min(times, default=None)

    @property
    def partial_matches(self) -> int:
        return self.matchers.partial_matches

    @property
    def waiting_events(self) -> int:
        """How many events the watermark has not passed."""
        return int(self.waiting.num_rows)

    # ---------------------------------------------------------------------------- state

    @property
    def state_bytes(self) -> int:
        """About as many bytes as `save` gives."""
        return int(self.waiting.nbytes) + self.matchers.state_bytes

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""
        header = {"arrived": self.arrived, "watermark": self.watermark}
        return packed(header, {}, {"waiting": to_bytes(self.waiting), **self.matchers.save()})

    @classmethod
    def restore(cls, watch: Watch, data: bytes) -> "Lane":
        """A lane that goes on where the saved one stopped."""
        header, _, blobs = unpacked(data)
        lane = cls(watch)
        lane.arrived = int(header["arrived"])
        lane.watermark = header["watermark"]
        lane.waiting = from_bytes(blobs["waiting"]).cast(watch.sortable.arrow)
        lane.matchers.restore({name: blob for name, blob in blobs.items() if name != "waiting"})
        return lane


def together(blobs: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    """Tables in Arrow's stream format as one."""
    return pa.concat_tables([no_rows(schema), *(from_bytes(b).cast(schema) for b in blobs)])
