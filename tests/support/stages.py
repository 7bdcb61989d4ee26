"""A hierarchy whose key changes, stage by stage in this process, as Spark does it."""

import random
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.backends.spark.batch import match_packed
from ensue.runtime.stage import ARRIVAL
from ensue.runtime.tasks.wire_format import PackedTable, pack_events
from ensue.runtime.workload import Workload
from support.key_groups import tables_of, workload_of

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
TIMES = """
    EVENT Rise AS SEQ(Reading a, Reading b, !Stop q FROM b.end TO b.end + 2)
        WHERE [sensor] and b.value > a.value WITHIN 5
        RETURN a.machine AS machine, b.value AS value, b.end AS seen;
    SEQ(Rise x, Stop s WITHIN 9 OF x, !Rise y FROM s.start TO s.start + 3)
        WHERE [machine] and s.start - x.seen > 1 WITHIN 20
    RETURN s.start AS begun, s.end AS ended, x.end AS risen
"""
HIERARCHIES = {
    "factory": FACTORY, "waiting": WAITING, "two keys": TWO_KEYS, "no key": NO_KEY,
    "one key": ONE_KEY, "one cut": ONE_CUT, "times": TIMES,
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


def job_of(text: Any, events: pa.Table, *, key_groups: int = 3, **options: Any) -> Workload:
    """The workload of a hierarchy over some events."""
    given = EVENTS | {k: options.pop(k) for k in ("time", "type") if k in options}
    streaming = options.pop("streaming", False)
    return workload_of(
        text, events.schema, given["time"], given["type"], key_groups=key_groups, streaming=streaming,
        **options,
    )  # fmt: skip


def staged(workload: Workload, events: pa.Table) -> dict[Any, pa.Table]:
    """The matches of each output, over key groups that know nothing of each other."""
    numbered = events.append_column(ARRIVAL, pa.array(np.arange(events.num_rows)))
    delivered: list[PackedTable] = []
    for chain in workload.chains:
        sent = list(pack_events(chain, numbered))
        for number in range(len(chain.stages)):
            for key_group in range(chain.count_key_groups(number)):
                mine = [p.blob for p in sent if (p.stage, p.key_group) == (number, key_group)]
                sent += match_packed(chain, number, mine) if mine else ()
        delivered += [p for p in sent if p.stage == len(chain.stages)]
    return {o.name: tables_of(delivered, o.number, o.schema) for o in workload.outputs}


def rows_of(table: pa.Table) -> list[str]:
    """The rows of a table in an order of their own."""
    return sorted(map(repr, table.to_pylist()))
