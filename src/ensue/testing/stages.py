"""A tower whose key changes, stage by stage in this process, as Spark does it."""

import random
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.algebra.tower import Tower
from ensue.compile.lanes import lanes_of
from ensue.compile.stream import shape_of
from ensue.languages.towers import parse_text
from ensue.runners.stage_batch import ARRIVAL, matched, taken
from ensue.runners.stage_rows import of_stage, packed_events
from ensue.runners.stage_rows import unpacked as table_of
from ensue.runners.tower_job import TowerJob

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
    "one key": ONE_KEY,
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


def job_of(text: str, events: pa.Table, *, lanes: int = 3, **options: Any) -> TowerJob:
    """The job of a tower over some events."""
    given = EVENTS | {k: options.pop(k) for k in ("time", "type") if k in options}
    shape = shape_of(events.schema, order=(), **given)
    tower = parse_text(text)
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
    found = {}
    for k, (name, schema) in enumerate(job.delivered.items()):
        done = [p for p in sent if p.stage == len(job.stages) and p.number == k]
        tables = [table_of(p.blob)[1] for p in done]
        found[name] = pa.concat_tables([schema.empty_table(), *tables])
    return found


def rows_of(table: pa.Table) -> list[str]:
    """The rows of a table in an order of their own."""
    return sorted(map(repr, table.to_pylist()))
