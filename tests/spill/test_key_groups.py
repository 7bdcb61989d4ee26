"""Key groups that store keys, built anew from their stores, with events that come out of order."""

import warnings
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import ensue
from ensue.options import Limits
from ensue.planner.planner_options import PlannerOptions
from ensue.runtime.tasks.task_state import SEGMENTS, TaskCache
from support.evicted import random_evictable, random_stream
from support.key_groups import Stream, workload_of
from support.live import by_output, rows
from support.task_caches import forget_live

pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # uncompiled, scalars warn
    pytest.mark.filterwarnings("ignore:no event is of type"),
]


@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("seed", range(400))
def test_any_cut_delay_and_crash(seed, few_keys, tmp_path, monkeypatch):
    random = Random(seed)
    monkeypatch.setattr("ensue.runtime.tasks.task_state.SMALL", random.choice((0, 2_000, 1 << 20)))
    monkeypatch.setattr("ensue.runtime.tasks.task_state.MIN_CACHED_BYTES", 0)
    while True:
        events, nature = random_stream(random, 24)
        if nature.time == "integer":
            break
    timeouts = random.random() < 0.3
    query, structure = random_evictable(random, events, nature, emit_timeouts=timeouts)
    options = [ensue.PlannerOptions(structure=structure), ensue.OutputOptions(emit_timeouts=timeouts)]
    given = {"time": nature.columns, "type": "type", "order": "row", "options": options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = by_output(ensue.match(events, query, **given))
    few_keys(random.choice((1, 2)))

    def planning() -> PlannerOptions:
        # a stream that is started again may have another limit, or none
        memory = random.choice(("1 GB", "1 GB", "2 GB", None))
        return PlannerOptions(structure=structure, limits=Limits(memory=memory, per_core=True))

    def workload():
        return workload_of(
            query,
            events.schema,
            nature.columns,
            "type",
            ("row",),
            key_groups=random.choice((1, 2)) if stream is None else stream.workload.key_groups,
            emit_timeouts=timeouts,
            planning=planning(),
        )

    stream = None
    forget_live()
    times = np.asarray(events["t"])
    arrival = np.argsort(times + [random.uniform(0, 4) for _ in times], kind="stable")
    late = int((np.maximum.accumulate(times[arrival]) - times[arrival]).max()) + 1
    stream = Stream(
        workload(), late, forget=lambda: random.random() < 0.3,
        cache=TaskCache(tmp_path) if random.random() < 0.5 else None, early=random.random() < 0.7,
    )  # fmt: skip
    cuts = sorted(random.sample(range(1, len(times)), random.randint(1, 6)))
    for part in np.split(arrival, cuts):
        stream.feed(events.take(pa.array(part)))
        if random.random() < 0.3:
            stream.pause()
        if random.random() < 0.3:
            stream.workload = workload()
    found = stream.end()
    assert stream.late == 0
    assert rows(found) == rows(wanted), (query, given)


def test_a_store_gets_each_segment_once(few_keys, monkeypatch):
    """Snapshots come often; what they need of segments is there, and what they do not is gone."""
    monkeypatch.setattr("ensue.runtime.tasks.task_state.SMALL", 0)
    forget_live()
    few_keys(2)
    count = 60
    events = pa.table({"t": range(count), "type": ["A"] * count, "k": [k % 20 for k in range(count)]})
    query = "SEQ(A a, B b) WHERE [k] WITHIN 30"
    limits = Limits(memory="1 GB", per_core=True)
    workload = workload_of(query, events.schema, "t", "type", planning=PlannerOptions(limits=limits))
    stream, put = Stream(workload, 0), []
    (store,) = stream.stores.values()
    plainly = store.put_part
    store.put_part = lambda number, part: (put.append((number, part)), plainly(number, part))
    for begin in range(0, count, 4):
        stream.feed(events.slice(begin, 4))
        forget_live()  # and with the key group its files
    segments = [part for number, part in put if number >= SEGMENTS]
    assert len(segments) > 5
    assert len(set(segments)) == len(segments)
    kept = {key[1] for key in store.values if key[0] == "part" and key[1] >= SEGMENTS}
    assert kept
    stream.feed(pa.table({"t": [count] * 20, "type": ["B"] * 20, "k": range(20)}))
    assert stream.finish().num_rows == 30
