"""A stream in this process: what the Spark runner does with key groups, micro-batch by micro-batch."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.hierarchy import Hierarchy
from ensue.ir.query import Query
from ensue.ir.row_pattern import RowPatternQuery
from ensue.options import OutputOptions
from ensue.parser.registry import parse
from ensue.planner.planner_options import DEFAULT_OPTIONS, PlannerOptions
from ensue.runtime.pipeline import PipelinePlan
from ensue.runtime.query_spec import NO_ARCHIVES, ArchiveSet, Name, QuerySpec, RunOptions
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import BATCH, ROW, MicroBatch, SubscriptionVersion
from ensue.runtime.tasks.backfill import BackfillCut, BackfillTask, PackedSlice, pack_history
from ensue.runtime.tasks.micro_batch import TaskCounters, run_task
from ensue.runtime.tasks.task import Task
from ensue.runtime.tasks.task_state import StateHeader, TaskCache, import_part, rebuild_task
from ensue.runtime.tasks.watermark import MAX_WATERMARK_MS
from ensue.runtime.tasks.wire_format import (
    Control,
    ControlMessage,
    Message,
    StreamClock,
    pack_events,
    pack_outputs,
    pack_routed_events,
    unpack_table,
)
from ensue.runtime.workload import Workload
from ensue.vector.event_table import drop_bad_times, get_end_times
from ensue.vector.take import create_empty_table
from support.task_caches import forget_live

Texts = str | Query | Hierarchy | ArchiveJoinQuery | RowPatternQuery | Mapping[Name, Any] | Sequence[Any]


def workload_of(
    queries: Texts,
    arrow: pa.Schema,
    time: str | tuple[str, str],
    type: str | None,
    order: tuple[str, ...] = (),
    *,
    location: str | tuple[str, str] | None = None,
    space: str = "plane",
    by_type: Any = None,
    key_groups: int = 1,
    emit_timeouts: bool = False,
    levels: Any = None,
    trace: bool = False,
    flat: bool = False,
    ids: bool = True,
    deliver_late: bool = False,
    planning: PlannerOptions = DEFAULT_OPTIONS,
    streaming: bool = True,
    archive_set: ArchiveSet = NO_ARCHIVES,
) -> Workload:
    """The workload of some queries over a stream."""

    def parsed(query: Any) -> Query | Hierarchy | ArchiveJoinQuery | RowPatternQuery:
        return parse(query) if isinstance(query, str) else query  # type: ignore[return-value]

    if isinstance(queries, str | Query | Hierarchy | ArchiveJoinQuery | RowPatternQuery):
        asked = (QuerySpec(parsed(queries)),)
    else:
        named = queries if isinstance(queries, Mapping) else dict(enumerate(queries))
        asked = tuple(QuerySpec(parsed(q), name, k) for k, (name, q) in enumerate(named.items()))
    wishes = RunOptions(
        streaming=streaming, planning=planning,
        output=OutputOptions(emit_timeouts=emit_timeouts, levels=levels, trace=trace, flat=flat, ids=ids),
    )  # fmt: skip
    source = SourceSchema(arrow, time, type, order, location, by_type, space)
    return Workload(asked, source, wishes, key_groups, deliver_late, archive_set)


def delayed(random: Random, events: pa.Table, source: SourceSchema) -> tuple[pa.Table, int]:
    """The events in an order of arrival, and how late the latest of them comes (in ms)."""
    times = get_end_times(events, source.shape) / source.clock.per_ms
    most = random.choice((0, 0, 1, 3, 100))
    arrival = times + np.array([random.uniform(0, most) for _ in range(events.num_rows)])
    order = np.argsort(arrival, kind="stable")
    sorted_times = times[order]
    late = np.maximum.accumulate(sorted_times) - sorted_times if len(order) else np.zeros(1)
    return events.take(pa.array(order)), int(np.ceil(late.max())) + 1


class DictStore:
    """The state of a key group in a dict."""

    def __init__(self) -> None:
        self.values: dict[object, object] = {}
        self.written = 0  # bytes

    def job(self) -> str:
        return str(self.values["job"])

    def put_job(self, job: str) -> None:
        self.values["job"] = job

    def head(self) -> StateHeader | None:
        head = self.values.get("head")
        assert head is None or isinstance(head, StateHeader)
        return head

    def put_head(self, head: StateHeader) -> None:
        self.values["head"] = head

    def parts(self, count: int) -> Iterator[bytes]:
        return self._read("part", count)

    def part(self, number: int) -> bytes:
        value = self.values["part", number]
        assert isinstance(value, bytes)
        return value

    def put_parts(self, parts: Sequence[bytes], kept: Collection[int] = ()) -> None:
        for key in [k for k in self.values if isinstance(k, tuple) and k[0] == "part"]:
            if key[1] not in kept:
                del self.values[key]
        for number, part in enumerate(parts):
            self.put_part(number, part)

    def put_part(self, number: int, part: bytes) -> None:
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


Place = tuple[int, int, int]  # a chain, a stage of it, a key group of that


class Stream:
    """A workload over a stream whose micro-batches are given one by one.

    `early`: the watermark that a micro-batch brings about is known in it, as with `watermark=`.
    `forget` is asked before each call of a key group whether the process that ran it is gone, so that
    the key group is built anew from its store.
    """

    def __init__(
        self,
        workload: Workload,
        delay_ms: int,
        *,
        bad_events: str = "raise",
        forget: Callable[[], bool] = lambda: False,
        cache: TaskCache | None = None,
        early: bool = True,
        lag_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self.workload = workload
        self.delay_ms = delay_ms
        self.bad_events = bad_events
        self.forget = forget
        self.cache = cache or TaskCache()
        self.early = early
        self.lag_ms = lag_ms  # how far the newest event of a micro-batch is behind the clock
        self.watermark_ms = 0
        self.batches = 0
        self.stores = {
            (number, stage, key_group): DictStore()
            for number, chain in enumerate(workload.chains)
            for stage in range(len(chain.stages))
            for key_group in range(chain.count_key_groups(stage))
        }
        self.timers: dict[Place, int | None] = dict.fromkeys(self.stores)
        self.delivered: list[Message] = []
        self.events = self.late = self.before_cut = 0
        self.checks_gap = False
        self.oldest: float | None = None  # event of the last micro-batch
        self.newest_ms: int | None = None
        self.version: SubscriptionVersion | None = None  # of what is asked, where that changes
        self.wall_ms = 0
        self.shed: list[TaskCounters] = []  # of key groups that have given up something

    def begin_with(self, history: pa.Table, cut: BackfillCut, *, tasks: int = 1) -> None:
        """A history before the first micro-batch, read by some tasks."""
        source, types = self.workload.source, self.workload.types
        history, _ = drop_bad_times(history, source.shape, self.bad_events, types, finite=True)
        self.checks_gap = True
        for number, chain in enumerate(self.workload.chains):
            rows = history.num_rows
            cuts = [rows * k // tasks for k in range(tasks + 1)]
            sent = [
                sliced
                for begin_, end in pairwise(cuts)
                for sliced in pack_history(chain, history.slice(begin_, end - begin_), cut, begin_)
            ]
            for place in self._places(number):
                sent += self._past(place, sent, cut)
            self._deliver(chain, [sliced.packed for sliced in sent])

    def _past(self, place: Place, sent: list[PackedSlice], cut: BackfillCut) -> list[PackedSlice]:
        chain, number = self.workload.chains[place[0]], place[1]
        key_group = BackfillTask(chain, number, cut)
        found: list[PackedSlice] = []
        for slice in sorted({sliced.slice for sliced in sent}):
            blobs = _for(place, [sliced.packed for sliced in sent if sliced.slice == slice])
            if blobs:
                found += key_group.take(slice, blobs)
        found += key_group.end()
        saved = key_group.save_state()
        for k, part in enumerate(saved.parts):
            of = (k, len(saved.parts))
            import_part(self.stores[place], chain, number, of, part, saved.timer)
        self.timers[place] = saved.timer
        return found

    def feed(self, events: pa.Table) -> None:
        """A micro-batch with these events. The watermark they bring counts from the next one."""
        source, types = self.workload.source, self.workload.types
        events, _ = drop_bad_times(events, source.shape, self.bad_events, types, finite=True)
        times = get_end_times(events, source.shape)
        self.oldest = times.min().item() if len(times) else None
        newest_ms = self.newest_ms = source.clock.newest_ms(times)
        self.wall_ms = (newest_ms or 0) + self.lag_ms()
        next_ms = None if newest_ms is None else newest_ms - self.delay_ms
        for number, chain in enumerate(self.workload.chains):
            sent = self._sent(chain, events)
            for place in self._places(number):
                sent += self._run(place, sent, next_ms if self.early else None)
            self._deliver(chain, sent)
        self.batches += 1
        self.watermark_ms = later_watermark(self.watermark_ms, next_ms)

    def pause(self) -> None:
        """A micro-batch without events: key groups are called whose timers have expired, and those
        that get something of these."""
        self.newest_ms = self.version = None
        for number, chain in enumerate(self.workload.chains):
            sent: list[Message] = []
            for place in self._places(number):
                timer = self.timers[place]
                due = timer is not None and timer <= self.watermark_ms
                if due or _for(place, sent):
                    sent += self._run(place, sent, None)
            self._deliver(chain, sent)

    def end(self) -> dict[Name, pa.Table]:
        """All matches by output, with those that only waited for the stream to end."""
        for number, chain in enumerate(self.workload.chains):
            sent: list[Message] = []
            for place in self._places(number):
                store = self.stores[place]
                head, stage = store.head(), place[1]
                given = (chain, *place[1:])
                key_group = Task(*given) if head is None else rebuild_task(store, head, *given)
                key_group.accept(_for(place, sent))
                sent += pack_outputs(chain, stage, key_group.release(math.inf))
            self._deliver(chain, sent)
        return {
            output.name: tables_of(self.delivered, output.number, output.schema) for output in self.workload.outputs
        }

    def finish(self) -> pa.Table:
        """The same for a workload of one output."""
        (found,) = self.end().values()
        return found

    def late_events(self) -> pa.Table:
        """The late events that were delivered."""
        return tables_of(self.delivered, Control.LATE, self.workload.source.came)

    def shed_keys(self) -> list[dict[str, Any]]:
        """The keys that were given up, with their intervals."""
        found = [unpack_table(p.blob)[1] for p in self.delivered if kind_of(p) == Control.SHED]
        return [row for table in found for row in table.to_pylist()]

    def _places(self, number: int) -> list[Place]:
        return [place for place in self.stores if place[0] == number]

    def _sent(self, chain: PipelinePlan, events: pa.Table) -> list[Message]:
        arriving = self._arriving(chain, events)
        if chain.spreads is None:
            return list(pack_events(chain, arriving))
        batch = MicroBatch("stream", self.batches)
        spread = chain.spreads.spread(events, chain.count_key_groups(0), batch)
        self.version = spread.version
        return list(pack_routed_events(chain, arriving, spread))

    def _arriving(self, chain: PipelinePlan, events: pa.Table) -> pa.Table:
        if chain.split_by_spark:
            return events
        rows = np.arange(events.num_rows)
        events = events.append_column(BATCH, pa.array(np.full(len(rows), self.batches)))
        return events.append_column(ROW, pa.array(rows))

    def _run(self, place: Place, sent: list[Message], next_ms: int | None) -> list[Message]:
        if self.forget():
            forget_live()
        chain = self.workload.chains[place[0]]
        given = (self.stores[place], chain, place[1], self.watermark_ms)
        checked = self.checks_gap and place[1:] == (0, 0)
        outcome = run_task(
            *given, _for(place, sent), next_ms, self.cache,
            StreamClock(self.newest_ms, self.oldest if checked else None, self.version),
            require_no_gap=checked, wall_ms=self.wall_ms, place=place[2],
        )  # fmt: skip
        self.timers[place] = outcome.timer
        self.late += outcome.counters.late
        if outcome.counters.shed_events:
            self.shed.append(outcome.counters)
        self.events += outcome.counters.events
        self.before_cut += outcome.counters.before_cut
        return outcome.sent

    def _deliver(self, chain: PipelinePlan, sent: list[Message]) -> None:
        self.delivered += [p for p in sent if p.stage == len(chain.stages)]


def _for(place: Place, sent: list[Message]) -> list[bytes]:
    return [packed.blob for packed in sent if (packed.stage, packed.key_group) == place[1:]]


def kind_of(message: Message) -> int | Control | None:
    """The number of the output, or the kind of control."""
    return message.control if isinstance(message, ControlMessage) else message.output


def tables_of(packed: Sequence[Message], number: int | Control, schema: pa.Schema) -> pa.Table:
    """The rows of one output among packed tables."""
    tables = [unpack_table(p.blob)[1].cast(schema) for p in packed if kind_of(p) == number]
    return pa.concat_tables([create_empty_table(schema), *tables])


def later_watermark(watermark_ms: int, next_ms: int | None) -> int:
    """Spark's watermark behind a micro-batch: it begins at 0 and never goes back.

    >>> later_watermark(0, -5), later_watermark(7, 5), later_watermark(7, None)
    (0, 7, 7)
    """
    return watermark_ms if next_ms is None else max(watermark_ms, min(next_ms, MAX_WATERMARK_MS))
