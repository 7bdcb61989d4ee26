"""A tower cut into stages has the matches of the whole tower."""

import random

import pytest

import ensue
from ensue.testing.stages import EVENTS, TOWERS, job_of, readings, rows_of, staged


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", TOWERS)
def test_stages_find_what_the_tower_finds(name, seed):
    rng = random.Random(seed)
    lasting = seed % 3 == 2
    events = readings(rng, 60, lasting=lasting)
    time = ("begin", "t") if lasting else "t"
    wanted = ensue.match(events, TOWERS[name], **EVENTS | {"time": time}, levels="all")
    job = job_of(TOWERS[name], events, lanes=rng.randrange(1, 5), time=time, levels="all")
    found = staged(job, events)
    assert list(found) == list(wanted)
    for level, table in wanted.items():
        assert rows_of(found[level]) == rows_of(table), level
