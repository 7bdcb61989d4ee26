"""A task of a stream: it buffers events until the watermark, sorts and matches them.

Complex events of earlier stages wait, too, until these stages have decided everything before
them. So the watermark of a stage is behind that of the stream by the maximum delay of the earlier
stages.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.memory_budget import Usage
from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.errors import StateError
from ensue.options import Limits
from ensue.runtime.pipeline import Pipeline, PipelinePlan
from ensue.runtime.spill.resident_keys import SpillCounters, SpillingState, get_spill_counters
from ensue.runtime.spill.spilled_keys import embed_segments
from ensue.runtime.stage import (
    ARRIVAL,
    COPY,
    PipelineStage,
    RoutingStage,
    StageInput,
    StageMatcher,
    SubscriptionVersion,
    VersionedMatcher,
    filter_unseen,
    get_complex_end_times,
)
from ensue.runtime.tasks.load_shedding import (
    SheddingMatcher,
    ShedKeys,
    SuspendedKeys,
    build_shed_table,
    find_keys,
    find_newest,
)
from ensue.runtime.tasks.wire_format import unpack_table
from ensue.vector.event_table import get_end_times, sort_events
from ensue.vector.take import create_empty_table


@dataclass(frozen=True, slots=True)
class AcceptedEvents:
    """The counts of a micro-batch's input events; an event counts in its first stage only."""

    events: int
    late: pa.Table
    before_cut: int  # part of the history
    shed: ShedKeys = ShedKeys()  # noqa: RUF009  it is frozen


class Task:
    """Matches the events of some keys up to the watermark.

    The matches do not depend on the order of arrival within the allowed lateness, nor on the
    batches.
    """

    def __init__(self, chain: PipelinePlan, number: int = 0, place: int = 0) -> None:
        self.chain = chain
        self.number = number  # of the stage
        self.place = place  # among the tasks of the stage
        self.pipeline = Pipeline([self.stage], place, chain.count_key_groups(number))
        self._sortable = chain.source.sortable(self.stage.arrival)
        self.waiting = create_empty_table(get_input_schema(chain, number, self.stage.arrival))
        self.complex_events: dict[str, pa.Table] = {}  # buffered complex events
        self.arrived = 0  # number of events, where the task itself counts them
        self.watermark: float | None = None  # of the stream
        self.cut: float | None = None  # end of the history that was backfilled
        self.oldest: float | None = None  # event of the stream
        self.version: SubscriptionVersion | None = None
        self.given_up = SuspendedKeys(chain.source.shape)
        self.kept: dict[str, list[int]] = {}  # by segment: its parts in the store

    @property
    def stage(self) -> PipelineStage:
        return self.chain.stages[self.number]

    @property
    def matcher(self) -> StageMatcher:
        return self.pipeline.matchers[0]

    @property
    def limits(self) -> Limits:
        return self.stage.limits

    def accept(
        self, blobs: Sequence[bytes], watermark: float | None = None, shed: float | pa.Table = 0.0
    ) -> AcceptedEvents:
        """Buffers events.

        An event is late if it ends before the watermark, or before that of the task if it is
        later. Events before the cut are part of the history, not late.

        `shed` is the share of keys to shed, or a table of keys that were shed before.
        """
        if not blobs:
            return AcceptedEvents(0, create_empty_table(self.chain.source.came), 0)
        events = self._unpack(blobs)
        counted = int(self._is_first(events).sum())
        late = before = events.slice(0, 0)
        if self.cut is not None:
            before, events = self._split_at(events, self.cut)
        watermarks = [w for w in (watermark, self.watermark) if w is not None]
        if watermarks:
            late, events = self._split_at(events, max(watermarks))
        events, lost = self._drop_shed(events, shed)
        if events.num_rows:
            self.waiting = pa.concat_tables([self.waiting, self._number(events)])
        if late.num_rows:  # one of several tasks delivers it
            late = late.filter(pa.array(self._is_first(late)))
        before_cut = int(self._is_first(before).sum())
        return AcceptedEvents(counted, late.select(self.chain.source.came.names), before_cut, lost)

    def _split_at(self, events: pa.Table, time: float) -> tuple[pa.Table, pa.Table]:
        """The events that end before `time`, and the others."""
        before = get_end_times(events, self.chain.source.shape) < time
        if not before.any():
            return events.slice(0, 0), events
        return events.filter(pa.array(before)), events.filter(pa.array(~before))

    def _drop_shed(self, events: pa.Table, shed: float | pa.Table) -> tuple[pa.Table, ShedKeys]:
        """The events without those of shed keys, and the counts of these."""
        suspended = self.given_up.find_suspended(events)
        count = int(suspended.sum())
        if count:
            events = events.filter(pa.array(~suspended))
        matcher, shape = self.matcher, self.chain.source.shape
        if not isinstance(matcher, SheddingMatcher) or (isinstance(shed, float) and not shed):
            return events, ShedKeys(count)
        if isinstance(shed, float):
            if not events.num_rows or not matcher.shed_by:
                return events, ShedKeys(count)
            shed = matcher.least_promising(events.select(shape.arrow.names), shed)
        partial = matcher.give_up(shed)
        until, dropped = find_newest(shed, (events, self.waiting), shape)
        since = None if self.watermark is None else self.watermark - matcher.undecided
        self.given_up.add(shed, until)
        events = events.filter(pa.array(find_keys(shed, events) < 0))
        kept = find_keys(shed, self.waiting) < 0
        self.waiting = self.waiting.filter(pa.array(kept)).combine_chunks()
        lost = build_shed_table(shed, since, until, dropped, shape)
        return events, ShedKeys(count + int(dropped.sum()), partial, lost)

    def _is_first(self, events: pa.Table) -> npt.NDArray[np.bool_]:
        """A mask of the events that no earlier stage reads, or of their first copies."""
        if COPY in events.column_names:
            return np.asarray(events.column(COPY).to_numpy() == 0)
        return filter_unseen(events, self.chain.source, self.chain.read_before(self.number))

    def _unpack(self, blobs: Iterable[bytes]) -> pa.Table:
        """The input events in a batch; buffers its complex events."""
        schema = self.waiting.schema
        if self._counts:
            schema = self.chain.source.arrow
        raw, complex_events = [create_empty_table(schema)], {n: [t] for n, t in self.complex_events.items()}
        for blob in blobs:
            name, table = unpack_table(blob)
            if name is None:
                raw.append(table.select(schema.names).cast(schema))
            else:
                complex_events.setdefault(name, []).append(table.cast(self.stage.takes[name]))
        self.complex_events = {name: pa.concat_tables(tables) for name, tables in complex_events.items()}
        return pa.concat_tables(raw)

    def renew(self, version: SubscriptionVersion) -> None:
        """Switches to a version of the subscriptions."""
        if (then := self.version) is None or version.number > then.number or version.floor != then.floor:
            assert isinstance(self.matcher, VersionedMatcher)
            self.matcher.renew(version)
            self.version = version

    @property
    def _counts(self) -> bool:
        """Whether the task itself numbers its events."""
        return self.stage.arrival == (ARRIVAL,)

    def _number(self, events: pa.Table) -> pa.Table:
        if not self._counts:
            return events
        numbers = np.arange(self.arrived, self.arrived + events.num_rows)
        self.arrived += events.num_rows
        return events.append_column(ARRIVAL, pa.array(numbers, pa.int64()))

    def release(self, watermark: float, *, in_order: bool = False) -> list[pa.Table]:
        """The matches before a watermark of the stream, or at it, if a sender has ordered events; infinity ends it."""
        watermark = watermark if self.watermark is None else max(watermark, self.watermark)
        self.watermark = watermark
        self.given_up.forget_before(watermark)
        now = watermark if watermark == math.inf else watermark - self.stage.hold
        upto = self.chain.clock.following(now) if in_order else now
        released, self.waiting = _split(self.waiting, get_end_times(self.waiting, self._sortable) < upto)
        complex_events: dict[str, pa.Table] = {}
        left: dict[str, pa.Table] = {}
        for name, table in self.complex_events.items():
            done, later = _split(table, get_complex_end_times(table, self._sortable) < now)
            complex_events |= {name: done} if done.num_rows else {}
            left |= {name: later} if later.num_rows else {}
        self.complex_events = left
        batch = StageInput(sort_events(released, self._sortable), complex_events, self.stage.arrival)
        (found,) = self.pipeline.process(batch, now, always=not in_order)
        return found

    def due(self) -> float | None:
        """The watermark after which `release` has an effect without further events."""
        times = [] if (due := self.pipeline.next_timer()) is None else [due]
        if self.waiting.num_rows:
            times.append(get_end_times(self.waiting, self._sortable).min().item())
        times += [
            get_complex_end_times(t, self._sortable).min().item() for t in self.complex_events.values() if t.num_rows
        ]
        return min(times) + self.stage.hold if times else None

    @property
    def spilled(self) -> SpillCounters:
        return get_spill_counters(self.matcher)

    @property
    def waiting_events(self) -> int:
        """The number of buffered events."""
        return sum(int(t.num_rows) for t in (self.waiting, *self.complex_events.values()))

    def tell_oldest(self, oldest: float) -> None:
        """Notes the oldest event of the stream on any task."""
        if self.cut is not None and not self._joined:
            self.oldest = oldest if self.oldest is None else min(oldest, self.oldest)

    @property
    def _joined(self) -> bool:
        return self.oldest is not None and self.cut is not None and self.oldest <= self.cut

    def require_no_gap(self, now: float | None) -> None:
        """Raises a StateError if the watermark has passed the cut, and the stream began after it.

        Until then, an event that closes the gap may arrive out of order.
        """
        if now is None or self.cut is None or self.oldest is None or self._joined:
            return
        if now > self.cut:
            shown = self.chain.clock.format_time
            raise StateError(
                f"there is a gap between history and stream: the history ends at "
                f"{shown(self.cut)}, and the first event of the stream is of {shown(self.oldest)}"
                "\n  hint: let the stream begin earlier, or bring the history up to date and name "
                'a new checkpoint; ensue.History(..., gap="allow") says that nothing happened in between'
            )

    @property
    def usage(self) -> Usage:
        buffers = (self.waiting, *self.complex_events.values())
        return self.pipeline.usage.add_bytes(sum(int(buffer.nbytes) for buffer in buffers))

    @property
    def segments(self) -> Mapping[str, Path]:
        """Immutable files that are part of its state, by name."""
        return self.matcher.segments if isinstance(self.matcher, SpillingState) else {}

    def snapshot(self) -> bytes:
        """Serialized state."""
        return self._pack({}, self.matcher.snapshot())

    def save_apart(self) -> bytes:
        """Serialized state without its segments, but with their local paths and parts."""
        if not isinstance(self.matcher, SpillingState):
            return self.snapshot()
        paths = {name: str(path) for name, path in self.segments.items()}
        return self._pack({"paths": paths, "kept": self.kept}, self.matcher.save_apart())

    def _pack(self, more: dict[str, Any], matcher: bytes) -> bytes:
        header = {"arrived": self.arrived, "watermark": self.watermark} | more
        if self.cut is not None:
            header |= {"cut": self.cut, "oldest": self.oldest}
        if self.version is not None:
            header |= {"version": asdict(self.version)}
        blobs = {"waiting": serialize_table(self.waiting), "matcher": matcher}
        blobs |= {f"made {name}": serialize_table(table) for name, table in self.complex_events.items()}
        if len(self.given_up):
            blobs["given up"] = self.given_up.snapshot()
        return pack_state(header, {}, blobs)

    @classmethod
    def restore(
        cls, chain: PipelinePlan, number: int, data: bytes, part: Callable[[int], bytes] | None = None, place: int = 0
    ) -> "Task":
        """Restores a serialized task; `part` reads parts of its state store."""
        header, _, blobs = unpack_state(data)
        task = cls(chain, number, place)
        task.arrived = int(header["arrived"])
        task.watermark = header["watermark"]
        task.cut, task.oldest = header.get("cut"), header.get("oldest")
        task.waiting = deserialize_table(blobs.pop("waiting")).cast(task.waiting.schema)
        for name, schema in task.stage.takes.items():
            if f"made {name}" in blobs:
                task.complex_events[name] = deserialize_table(blobs.pop(f"made {name}")).cast(schema)
        if "given up" in blobs:
            task.given_up.restore(blobs.pop("given up"))
        if "version" in header:
            task.version = SubscriptionVersion(**header["version"])
        task.kept = header.get("kept", {})
        saved = blobs["matcher"]
        if "paths" not in header:
            task.matcher.restore(saved)
            return task
        paths = header["paths"]

        def find(name: str) -> Path | bytes:
            path = Path(paths[name])
            if path.exists():
                return path
            if part is None or name not in task.kept:
                raise FileNotFoundError(paths[name])
            return b"".join(map(part, task.kept[name]))

        if isinstance(task.matcher, SpillingState):
            task.matcher.restore(saved, find)
        else:  # it is not limited any more
            task.matcher.restore(embed_segments(saved, chain.source.arrow, find))
        return task


def get_input_schema(chain: PipelinePlan, number: int, arrival: Sequence[str]) -> pa.Schema:
    """The input columns of a task, including the columns `arrival` of the arrival order."""
    stage = chain.stages[number]
    schema = chain.source.get_arrival_schema(arrival)
    if isinstance(stage, RoutingStage):
        schema = pa.schema([*schema, *stage.added, pa.field(COPY, pa.int64())])
    return schema


def _split(table: pa.Table, done: npt.NDArray[np.bool_]) -> tuple[pa.Table, pa.Table]:
    """The rows in the mask, and the others."""
    if done.all():
        return table, table.slice(0, 0)
    if not done.any():
        return table.slice(0, 0), table
    return table.filter(pa.array(done)), table.filter(pa.array(~done)).combine_chunks()
