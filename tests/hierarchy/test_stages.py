"""A hierarchy cut into stages has the matches of the whole hierarchy."""

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

import ensue
from ensue import reference as semantics
from ensue.analyzer.hierarchy_layers import build_layers
from ensue.codegen import kernel_cache as cache
from ensue.errors import QueryError
from ensue.runtime.workload import Workload
from support.hierarchies import by_rows, given_events, random_hierarchy
from support.key_groups import Stream
from support.seeds import of_round
from support.stages import EVENTS, HIERARCHIES, job_of, readings, rows_of, shuffled, staged
from support.streams import random_events, random_nature, random_slices

SEEDS = [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 12))]


def local(events, name, time, levels):
    found = ensue.match(
        events, HIERARCHIES[name], **EVENTS | {"time": time}, options=ensue.OutputOptions(levels=levels)
    )
    return found if isinstance(found, dict) else {"": found}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", HIERARCHIES)
def test_stages_find_what_the_hierarchy_finds(name, seed):
    rng = random.Random(seed)
    lasting = seed % 3 == 2
    events = readings(rng, 90, lasting=lasting)
    time = ("begin", "t") if lasting else "t"
    levels = rng.choice([None, "all"])
    wanted = local(events, name, time, levels)
    job = job_of(HIERARCHIES[name], events, key_groups=rng.randrange(1, 5), time=time, levels=levels)
    found = staged(job, events)
    assert list(found) == list(wanted)
    for level, table in wanted.items():
        assert rows_of(found[level]) == rows_of(table), level


def cut(rng, events):
    places = sorted(rng.randrange(events.num_rows) for _ in range(rng.randrange(1, 9)))
    bounds = [0, *places, events.num_rows]
    return [events.slice(a, b - a) for a, b in pairwise(bounds)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", HIERARCHIES)
def test_a_stream_has_the_matches_of_the_whole(name, seed):
    rng = random.Random(seed)
    lasting = seed % 3 == 2
    delay = rng.choice([0, 3, 8])
    events = shuffled(rng, readings(rng, 70, lasting=lasting), delay)
    time = ("begin", "t") if lasting else "t"
    levels = rng.choice([None, "all"])
    wanted = local(events, name, time, levels)
    options = {"key_groups": rng.randrange(1, 4), "time": time, "levels": levels, "streaming": True}
    job = job_of(HIERARCHIES[name], events, **options)
    chance = rng.choice([0, 0.3, 1])
    stream = Stream(job, delay, forget=lambda: rng.random() < chance, early=rng.random() < 0.6)
    for piece in cut(rng, events):
        stream.feed(piece)
        if rng.random() < 0.5:
            stream.pause()
    found = stream.end()
    assert (stream.late, stream.events) == (0, events.num_rows - unused(events, job))
    for level, table in wanted.items():
        assert rows_of(found[level]) == rows_of(table), level


def unused(events, job):
    used = set().union(*(stage.reads.types for stage in job.chains[0].stages))
    return sum(name not in used for name in events["type"].to_pylist())


def test_late_events_are_counted_once():
    events = readings(random.Random(1), 60)
    job = job_of(HIERARCHIES["waiting"], events, levels="all", streaming=True)
    stream = Stream(job, 0)
    stream.feed(events.slice(30))
    stream.feed(events.slice(0, 30))
    last = events["t"][59].as_py()
    late = sum(t < last for t in events["t"].to_pylist()[:30])
    assert stream.late == late > 20
    assert stream.events == 60


def random_stages(seed):
    """A random hierarchy with its meaning and, over key groups of its keys, its matches."""
    rng = random.Random(seed)
    nature = random_nature(rng)
    text = random_hierarchy(rng, nature)
    events = random_events(rng, rng.randint(6, 16), nature)
    levels = rng.choice([None, "all"])
    streaming = rng.random() < 0.7
    options = {"time": nature.columns, "type": "type", "levels": levels, "trace": True}
    try:
        job = job_of(text, events, key_groups=rng.randint(1, 3), streaming=streaming, **options)
        count = len(job.chains[0].stages)
    except QueryError:
        return None
    wanted = semantics.match_hierarchy(
        build_layers(job.specs[0].query), given_events(events, job.source.shape), job.source.shape.schema
    )
    with np.errstate(over="ignore"):
        if not streaming:
            found = staged(job, events)
        else:
            stream = Stream(job, 0, forget=lambda: rng.random() < 0.3)
            for piece in random_slices(rng, events):
                stream.feed(piece)
                if rng.random() < 0.3:
                    stream.pause()
            found = stream.end()
    for name, table in found.items():
        mine = Counter(by_rows(m) for m in table["members"].to_pylist())
        theirs = Counter(semantics.nest_positions(binding) for binding in wanted[name])
        assert mine == theirs, f"{seed}: {name} of {text}"
    if streaming:
        again = Workload.read(job.texts)
        assert (again.texts, again.specs) == (job.texts, job.specs)
    return count, sum(table.num_rows for table in found.values())


@pytest.mark.parametrize("round", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 10))])
def test_random_hierarchies_in_stages_give_the_matches_they_mean(round, monkeypatch):
    monkeypatch.setattr(cache, "interpreted", True)
    found = [random_stages(seed) for seed in of_round(round, 40)]
    assert sum(1 for one in found if one is not None and one[0] > 1 and one[1]) > 0


def test_explain_shows_where_the_key_changes():
    events = readings(random.Random(1), 5)
    text = ensue.explain(HIERARCHIES["factory"], events, **EVENTS)
    assert text.partition("\n\n")[0].endswith(
        """3 stages on Spark, a shuffle between them:
  1. [sensor]: Incident
  2. [machine]: Outage, takes Incident
  3. [site]: the query, takes Outage"""
    )
    assert "stages" not in ensue.explain(HIERARCHIES["one key"], events, **EVENTS)
