"""A stream gives the matches of the batch run, however it is cut, delayed or interrupted."""

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import ensue
from ensue import semantics
from ensue.compile.reference import events_of
from ensue.compile.stream import ends, shape_of
from ensue.errors import QueryError, StateError
from ensue.languages.patterns import parse
from ensue.runners import lane_state
from ensue.runners.stream_job import StreamJob
from ensue.testing.lanes import Stream
from ensue.testing.queries import random_query
from ensue.testing.streams import PLAIN, Nature, random_events, random_nature, random_slices

SEEDS = 400


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch):
    monkeypatch.setattr("ensue.compile.cache.interpreted", True)


def job_for(query: str, events: pa.Table, nature: Nature = PLAIN, **options) -> StreamJob:
    options = {"lanes": 3} | options
    return StreamJob(
        parse(query), events.schema, nature.columns, "type", ("row",), None, None, **options
    )


def delayed(random: Random, events: pa.Table, job: StreamJob) -> tuple[pa.Table, int]:
    """The events in an order of arrival, and how late the latest of them comes (in ms)."""
    times = ends(events, job.shape) / job.clock.per_ms
    most = random.choice((0, 0, 1, 3, 100))
    arrival = times + np.array([random.uniform(0, most) for _ in range(events.num_rows)])
    order = np.argsort(arrival, kind="stable")
    sorted_times = times[order]
    late = np.maximum.accumulate(sorted_times) - sorted_times if len(order) else np.zeros(1)
    return events.take(pa.array(order)), int(np.ceil(late.max())) + 1


def streamed(random: Random, events: pa.Table, job: StreamJob) -> pa.Table:
    arriving, delay = delayed(random, events, job)
    stream = Stream(job, delay, forget=lambda: random.random() < 0.3)
    for piece in random_slices(random, arriving):
        stream.feed(piece)
        if random.random() < 0.5:
            stream.pause()
    stream.pause()
    matches = stream.finish()
    assert stream.late == 0
    return matches


@pytest.mark.parametrize("start", range(0, SEEDS, 100))
def test_any_cut_any_delay_any_crash_gives_the_matches_of_the_batch_run(start, monkeypatch):
    streams = 0
    for seed in range(start, start + 100):
        random = Random(seed)
        monkeypatch.setattr(lane_state, "SMALL", random.choice((0, 2_000, 1 << 20)))
        nature = random_nature(random)
        text = random_query(random, nature)
        events = random_events(random, random.randint(1, 14), nature)
        try:
            job = job_for(text, events, nature, lanes=random.randint(1, 3))
            _ = job.watch
        except QueryError:
            continue  # not every random text is a query, and streams need WITHIN
        wanted = ensue.match(events, text, time=nature.columns, type="type", order="row")
        found = streamed(random, events, job)
        assert ids(found) == ids(wanted), f"seed {seed}: {text}"
        streams += 1
    assert streams > 50


def ids(matches: pa.Table) -> Counter:
    return Counter(matches["match_id"].to_pylist())
