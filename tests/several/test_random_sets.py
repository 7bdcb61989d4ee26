"""Random sets of queries in one call give what each gives alone, on tables and on streams."""

from random import Random

import pyarrow as pa
import pytest

import ensue
from ensue.codegen import kernel_cache as cache
from ensue.errors import QueryError
from ensue.operators.match import shared_engine as watcher
from ensue.operators.match.shared_engine import SharedTableMatcher
from ensue.parser.pattern_parser import parse
from ensue.runtime.compiled_query import compile_with_timeouts
from ensue.runtime.pipeline import run_to_end
from ensue.runtime.stage import StageInput
from ensue.runtime.tasks import task_state as key_group_state
from ensue.vector.event_table import create_schema
from support.key_groups import Stream, workload_of
from support.matching import match_in_order
from support.negations import random_negations
from support.queries import random_query, random_repeats
from support.streams import Nature, random_events, random_nature, random_slices

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # uncompiled, scalars warn
    pytest.mark.filterwarnings("ignore:no event is of type"),
]


WRITERS = (random_query, random_query, random_repeats, random_negations)
ANSWERS = ("", "", "", " RETURN COUNT(*) AS n", " RETURN EXISTS", " LIMIT 1", " LIMIT 2")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(cache, "interpreted", True)


def random_set(random: Random, nature: Nature, shape, size: int, *, streaming: bool = False) -> list[str]:
    """Queries that can be run; some differ only in what they return, some are the same."""
    found: list[str] = []
    while len(found) < size:
        if found and random.random() < 0.2:
            found.append(random.choice(found))
            continue
        written = random.choice(WRITERS)(random, nature)
        text = written + random.choice(ANSWERS)
        try:
            compile_with_timeouts(parse(text), shape, streaming=streaming)
        except QueryError:
            continue
        found.append(text)
    return found


def check(seed: int, size: int, count: int) -> int:
    random = Random(seed)
    nature = random_nature(random)
    events = random_events(random, count, nature)
    shape = create_schema(events.schema, time=nature.columns, type="type", order=())
    texts = random_set(random, nature, shape, size)
    prepared = [compile_with_timeouts(parse(text), shape).main for text in texts]
    wanted = [match_in_order(p, events) for p in prepared]
    for block in (count, random.randint(1, count)):
        found = run_to_end(SharedTableMatcher(prepared, block=block), StageInput.from_events(events))
        for text, one, alone in zip(texts, found, wanted, strict=True):
            assert one.schema == alone.schema
            assert repr(one.to_pylist()) == repr(alone.to_pylist()), (seed, block, text)
    return sum(table.num_rows for table in wanted)


@pytest.mark.parametrize("dense", [0, 12])
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(30))
def test_random_sets_on_tables(seed, dense, monkeypatch):
    monkeypatch.setattr(watcher, "DENSE", dense)  # 0: rows that do not matter are taken out
    check(seed, size=6, count=14)


def test_most_random_sets_have_matches():
    assert sum(check(1_000 + seed, size=6, count=14) for seed in range(5)) > 50


def test_a_set_of_one_query():
    events = pa.table({"t": [1, 2], "type": ["A", "B"]})
    text = "EVENT Pair AS SEQ(A a, B b)"
    found = ensue.match(events, [text], time="t", type="type")
    assert found["Pair"].equals(ensue.match(events, text, time="t", type="type"))


def streamed(random: Random, texts: list[str], nature: Nature, events: pa.Table) -> list:
    """The results of a set of queries on key groups: cut, forgotten and built anew."""
    stream = Stream(workload_of(texts, events.schema, nature.columns, "type"), 0, forget=lambda: random.random() < 0.4)
    for piece in random_slices(random, events):
        stream.feed(piece)
        stream.pause()
    return list(stream.end().values())


@pytest.mark.parametrize("dense", [0, 12])
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(30))
def test_random_sets_on_streams(seed, dense, monkeypatch):
    check_stream(seed, dense, monkeypatch)


def check_stream(seed, dense, monkeypatch):
    monkeypatch.setattr(watcher, "DENSE", dense)
    monkeypatch.setattr(key_group_state, "SMALL", seed % 2 * 4_000)  # snapshots, or logs and snapshots
    random = Random(seed)
    nature = random_nature(random)
    events = random_events(random, 14, nature)
    shape = create_schema(events.schema, time=nature.columns, type="type", order=())
    texts = random_set(random, nature, shape, 5, streaming=True)
    found = streamed(random, texts, nature, events)
    for text, one in zip(texts, found, strict=True):
        alone = ensue.match(events, text, time=nature.columns, type="type")
        assert one.schema == alone.schema
        assert in_order(one) == in_order(alone), (seed, text)


def in_order(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))
