"""A tower whose key changes, stage by stage in this process, as Spark does it."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from ensue.workload.stage_batch import ARRIVAL, matched, taken
from ensue.workload.stage_lane import BATCH, ROW, StageJob
from ensue.workload.stage_rows import Packed, of_stage, packed_events, packed_outputs
from ensue.workload.stage_rows import unpacked as table_of
from ensue.workload.tower_job import TowerJob

from ensue.algebra.tower import Tower
from ensue.columns.lane_hash import lanes_of
from ensue.columns.rows import no_rows
from ensue.columns.stream import ends, shape_of
from ensue.languages.towers import parse_text
from ensue.workload.lane_shelf import forget_live
from ensue.workload.lane_state import rebuilt
from ensue.workload.micro_batch import run_lane
from support.lanes import DictStore, later_watermark

EVENTS = {"time": "t", "type": "type"}

FACTORY = """
    EVENT Incident AS SEQ(Reading a, Reading b)
        WHERE [sensor] and b.value > a.value WITHIN 6
        RETURN a.machine AS machine, b.value AS value;
    EVENT Outage AS SEQ(Incident x, Incident y, Stop s)
        WHERE [machine] WITHIN 20
        RETURN s.site AS site, y.value - x.value AS rise;
    SEQ(Outage o, !Repair r, Outage p) WHERE [site] WITHIN 40
    RETURN o.rise AS first, p.rise AS second, o.x.value AS low
"""
ONE_CUT = """
    EVENT Incident AS SEQ(Reading a, Reading b)
        WHERE [sensor] and b.value > a.value WITHIN 6
        RETURN a.machine AS machine, b.value AS value;
    SEQ(Incident x, Incident y, Stop s) WHERE [machine] WITHIN 20
    RETURN s.site AS site, y.value - x.value AS rise
"""
WAITING = """
    EVENT Silence AS SEQ(Reading a, Reading b, !Stop c)
        WHERE [sensor] and b.value > a.value WITHIN 5
        RETURN a.machine AS machine, b.value AS value;
    EVENT Quiet AS SEQ(Silence x, Stop s, !Repair r)
        WHERE [machine] WITHIN 12
        RETURN s.site AS site, x.value AS value;
    SEQ(Quiet o, Repair r, Quiet p) WHERE [site] and p.value >= o.value WITHIN 30
"""
TWO_KEYS = """
    EVENT One AS SEQ(Reading a, Stop b) WHERE [sensor] WITHIN 4 RETURN a.site AS site;
    EVENT Two AS SEQ(Stop a, Reading b) WHERE [machine] WITHIN 4 RETURN b.site AS site;
    AND(One x, Two y) WHERE [site] and x.start <= y.end WITHIN 9
"""
NO_KEY = """
    EVENT One AS SEQ(Reading a, Stop b) WHERE [sensor] WITHIN 5 RETURN a.value AS value;
    SEQ(One x, One+ k[], Repair r) WHERE skip_till_next_match(x, k[], r) { k[i].value > x.value }
    WITHIN 12
"""
ONE_KEY = """
    EVENT Low AS SEQ(Reading a, Reading b) WHERE [sensor] WITHIN 5 RETURN a.value AS value;
    SEQ(Low x, Low y, !Stop s) WHERE [sensor] and y.value > x.value WITHIN 15
"""
TOWERS = {
    "factory": FACTORY, "waiting": WAITING, "two keys": TWO_KEYS, "no key": NO_KEY,
    "one key": ONE_KEY, "one cut": ONE_CUT,
}  # fmt: skip


def readings(rng: random.Random, count: int, *, lasting: bool = False) -> pa.Table:
    """Events of sensors in machines in sites, many at the same time."""
    times, now = [], 0
    for _ in range(count):
        now += rng.choice([0, 0, 1, 1, 2])
        times.append(now)
    sensors = [rng.randrange(6) for _ in times]
    types = rng.choices(["Reading", "Stop", "Repair"], [6, 2, 1], k=count)
    columns = {
        "t": times,
        "type": types,
        "sensor": [f"s{s}" for s in sensors],
        "machine": [s // 2 for s in sensors],
        "site": [s // 4 for s in sensors],
        "value": [float(rng.randrange(5)) for _ in times],
    }
    if lasting:
        columns["begin"] = [t - rng.choice([0, 0, 1, 2]) for t in times]
    return pa.table(columns)


def shuffled(rng: random.Random, events: pa.Table, delay: float) -> pa.Table:
    """Events in an order of arrival that a watermark of so much delay allows."""
    times = events["t"].to_pylist()
    late = [t + rng.random() * delay for t in times]
    return events.take(sorted(range(len(times)), key=lambda k: (late[k], k)))


def job_of(text: str | Tower, events: pa.Table, *, lanes: int = 3, **options: Any) -> TowerJob:
    """The job of a tower over some events."""
    given = EVENTS | {k: options.pop(k) for k in ("time", "type") if k in options}
    shape = shape_of(events.schema, order=(), **given)
    tower = parse_text(text) if isinstance(text, str) else text
    assert isinstance(tower, Tower)
    return TowerJob(
        tower, events.schema, given["time"], given["type"], (), None, shape.by_type,
        lanes, **options,
    )  # fmt: skip


def staged(job: TowerJob, events: pa.Table) -> dict[str, pa.Table]:
    """The matches of each level, over lanes that know nothing of each other."""
    numbered = events.append_column(ARRIVAL, pa.array(np.arange(events.num_rows)))
    sent = list(packed_events(job, numbered, 1))
    first = of_stage(job, numbered, job.stages[0].stage)
    lanes = lanes_of(first, job.stages[0].stage.key, job.lanes, "us")
    for lane in range(job.lanes):
        mine = first.filter(pa.array(lanes == lane))
        sent += matched(job, 0, mine, {})
    for number in range(1, len(job.stages)):
        for lane in range(job.lanes_of(number)):
            mine = [p for p in sent if (p.stage, p.lane) == (number, lane)]
            sent += taken(job, number, [p.blob for p in mine])
    return levels_of(job, [p for p in sent if p.stage == len(job.stages)])


def rows_of(table: pa.Table) -> list[str]:
    """The rows of a table in an order of their own."""
    return sorted(map(repr, table.to_pylist()))


class StagedStream:
    """A tower over a stream whose micro-batches are given one by one.

    `forget` is asked before each call of a lane whether the process that ran it is gone.
    """

    def __init__(
        self,
        job: TowerJob,
        delay_ms: int,
        *,
        forget: Callable[[], bool] = lambda: False,
        early: bool = True,
    ) -> None:
        self.job = job
        self.delay_ms = delay_ms
        self.forget = forget
        self.early = early  # the watermark a micro-batch brings about is known in it
        self.watermark_ms = 0
        self.batches = 0
        lanes = [(n, k) for n in range(len(job.stages)) for k in range(job.lanes_of(n))]
        self.stores = {lane: DictStore() for lane in lanes}
        self.timers: dict[tuple[int, int], int | None] = dict.fromkeys(lanes)
        self.delivered: list[Packed] = []
        self.events = self.late = 0

    def feed(self, events: pa.Table) -> None:
        """A micro-batch with these events."""
        rows = np.arange(events.num_rows)
        events = events.append_column(BATCH, pa.array(np.full(len(rows), self.batches)))
        events = events.append_column(ROW, pa.array(rows))
        self.batches += 1
        newest_ms = self.job.clock.newest_ms(ends(events, self.job.shape))
        next_ms = None if newest_ms is None else newest_ms - self.delay_ms
        sent = list(packed_events(self.job, events, 0))
        for lane in self.stores:
            sent += self._run(lane, sent, next_ms if self.early else None)
        self._deliver(sent)
        self.watermark_ms = later_watermark(self.watermark_ms, next_ms)

    def pause(self) -> None:
        """A micro-batch without events: lanes are called whose timers have expired, and those
        that get something of these."""
        sent: list[Packed] = []
        for lane, timer in self.timers.items():
            due = timer is not None and timer <= self.watermark_ms
            if due or any((p.stage, p.lane) == lane for p in sent):
                sent += self._run(lane, sent, None)
        self._deliver(sent)

    def finish(self) -> dict[str, pa.Table]:
        """All matches by level, with those that only waited for the stream to end."""
        sent: list[Packed] = []
        for (number, k), store in self.stores.items():
            job, head = StageJob(self.job, number), store.head()
            lane = job.watch.lane() if head is None else rebuilt(store, head, job.watch)
            lane.accept([p.blob for p in sent if (p.stage, p.lane) == (number, k)])
            sent += packed_outputs(self.job, number, lane.finish())
        self._deliver(sent)
        return levels_of(self.job, self.delivered)

    def _run(self, lane: tuple[int, int], sent: list[Packed], next_ms: int | None) -> list[Packed]:
        if self.forget():
            forget_live()
        blobs = [p.blob for p in sent if (p.stage, p.lane) == lane]
        outcome = run_lane(
            self.stores[lane], StageJob(self.job, lane[0]), self.watermark_ms, blobs, next_ms
        )
        self.timers[lane] = outcome.timer
        self.late += outcome.counters.late
        self.events += outcome.counters.events
        found: list[Packed] = outcome.delivered
        return found

    def _deliver(self, sent: list[Packed]) -> None:
        self.delivered += [p for p in sent if p.stage == len(self.job.stages)]


def levels_of(job: TowerJob, packed: list[Packed]) -> dict[str, pa.Table]:
    """The matches of each level among packed ones."""
    found = {}
    for k, (name, schema) in enumerate(job.delivered.items()):
        tables = [table_of(p.blob)[1] for p in packed if p.number == k]
        found[name] = pa.concat_tables([no_rows(schema), *tables])
    return found
