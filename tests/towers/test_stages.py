"""A tower cut into stages has the matches of the whole tower."""

import random
from itertools import pairwise

import pytest

import ensue
from ensue.testing.stages import (
    EVENTS,
    TOWERS,
    StagedStream,
    job_of,
    readings,
    rows_of,
    staged,
)

SEEDS = [*range(3), *(pytest.param(k, marks=pytest.mark.slow) for k in range(3, 12))]


def local(events, name, time, levels):
    found = ensue.match(events, TOWERS[name], **EVENTS | {"time": time}, levels=levels)
    return found if isinstance(found, dict) else {"": found}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", TOWERS)
def test_stages_find_what_the_tower_finds(name, seed):
    rng = random.Random(seed)
    lasting = seed % 3 == 2
    events = readings(rng, 90, lasting=lasting)
    time = ("begin", "t") if lasting else "t"
    levels = rng.choice([None, "all"])
    wanted = local(events, name, time, levels)
    job = job_of(TOWERS[name], events, lanes=rng.randrange(1, 5), time=time, levels=levels)
    found = staged(job, events)
    assert list(found) == list(wanted)
    for level, table in wanted.items():
        assert rows_of(found[level]) == rows_of(table), level


def shuffled(rng, events, delay):
    """Events in an order of arrival that a watermark of so much delay allows."""
    times = events["t"].to_pylist()
    late = [t + rng.random() * delay for t in times]
    return events.take(sorted(range(len(times)), key=lambda k: (late[k], k)))


def cut(rng, events):
    places = sorted(rng.randrange(events.num_rows) for _ in range(rng.randrange(1, 9)))
    bounds = [0, *places, events.num_rows]
    return [events.slice(a, b - a) for a, b in pairwise(bounds)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", TOWERS)
def test_a_stream_has_the_matches_of_the_whole(name, seed):
    rng = random.Random(seed)
    lasting = seed % 3 == 2
    delay = rng.choice([0, 3, 8])
    events = shuffled(rng, readings(rng, 70, lasting=lasting), delay)
    time = ("begin", "t") if lasting else "t"
    levels = rng.choice([None, "all"])
    wanted = local(events, name, time, levels)
    options = {"lanes": rng.randrange(1, 4), "time": time, "levels": levels, "streaming": True}
    job = job_of(TOWERS[name], events, **options)
    chance = rng.choice([0, 0.3, 1])
    stream = StagedStream(
        job, delay, forget=lambda: rng.random() < chance, early=rng.random() < 0.6
    )
    for piece in cut(rng, events):
        stream.feed(piece)
        if rng.random() < 0.5:
            stream.pause()
    found = stream.finish()
    assert (stream.late, stream.events) == (0, events.num_rows - unused(events, job))
    for level, table in wanted.items():
        assert rows_of(found[level]) == rows_of(table), level


def unused(events, job):
    used = set().union(*(stage.stage.raw for stage in job.stages))
    return sum(name not in used for name in events["type"].to_pylist())


def test_late_events_are_counted_once():
    events = readings(random.Random(1), 60)
    job = job_of(TOWERS["waiting"], events, levels="all", streaming=True)
    stream = StagedStream(job, 0)
    stream.feed(events.slice(30))
    stream.feed(events.slice(0, 30))
    last = events["t"][59].as_py()
    late = sum(t < last for t in events["t"].to_pylist()[:30])
    assert stream.late == late > 20
    assert stream.events == 60
