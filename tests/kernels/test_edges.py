"""THEN between parts, on runs: the matches of the semantics, however a stream is cut.

Few queries are compiled; with NUMBA_DISABLE_JIT=1 many random ones run.
"""

import math
from collections import Counter
from random import Random

import numba
import pyarrow as pa
import pytest
from tests.kernels.test_engine import interrupted, prepared_for, rows_of, wanted

from ensue.engine.engine import Engine
from ensue.errors import QueryError
from ensue.planner.physical_plan import ReferencePlan
from support.edges import random_edges
from support.judged import judged_at_random, judged_often
from support.seeds import of_round, scaled
from support.streams import PLAIN, Nature, random_events, random_nature, random_slices

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

UNCOMPILED = bool(numba.config.DISABLE_JIT)
LEFT_OUT = ((), (), ("window",), ("push_negation",), ("predicate_placement",))
QUERIES = {
    "each": "A a THEN NEXT B b THEN ANY C c THEN NEXT A d",
    "optional": "A a THEN NEXT (B b)? THEN ANY C c WHERE b.x >= a.x WITHIN 8",
    "key": "A a THEN B b THEN NEXT C c WHERE [k]",
    "strict": "A a THEN STRICT B+ b[] THEN ANY C c USING strict WHERE [k]",
    "consecutive": "A a THEN NEXT B+ b[] THEN NEXT C c USING partition WHERE b[i].x >= b[i-1].x",
    "free": "A a -> B+ b[] THEN ANY C c USING next WHERE c.x >= b[b.LEN].x WITHIN 7",
    "group": "SEQ((A a THEN B b)+ THEN NEXT C c) USING next",
    "again": "A a THEN NEXT (B b THEN)+ THEN NEXT C c WHERE b[i].x >= b[i-1].x",
    "times": "SEQ((A a, B b THEN STRICT)+ THEN ANY C c) USING next",
    "greedy": "A a THEN NEXT B++ b[] THEN ANY B c WHERE b[i].x < 3",
    "until": "A a THEN NEXT (B b THEN NEXT)+ UNTIL C u THEN ANY A c WHERE u.x > a.x",
    "longest": "A a THEN NEXT (B b THEN NEXT WITHIN 2)++ WHERE [k] WITHIN 9",
    "ended by a neighbour": "SEQ((A? a THEN B b)++) USING strict",
    "counted": "A a THEN NEXT (B b)? THEN (A d, !C x, B e)+ THEN ANY C c WHERE x.x > count(b) + 1",
    "negated": "A a -> !C x THEN NEXT B b WHERE [k] and x.x > a.x",
}


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(2))
def test_the_matches_are_those_of_the_semantics(name, round):
    judged_often(QUERIES[name], Random(f"{name} {round}"), len(of_round(round, 40)), (4, 11))


@pytest.mark.skipif(not UNCOMPILED, reason="hundreds of queries would be compiled")
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(40))
def test_random_words_between_parts(seed, monkeypatch):
    monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", (1, 2, 4, 1_024)[seed % 4])
    judged_at_random(seed, random_edges, LEFT_OUT)


# -------------------------------------------------------------------------------- interrupted


def _survives(text: str, random: Random, nature: Nature) -> str:
    """Compares an engine that is saved, restored and told of time with the semantics."""
    events = random_events(random, random.randint(3, 11), nature)
    prepared = prepared_for(text, events, nature)
    if isinstance(prepared.plan.structure, ReferencePlan):
        return "reference"
    expected = wanted(prepared, events)
    pieces = [p for s in random_slices(random, events) for p in random_slices(random, s)]
    found = interrupted(random, prepared, events, pieces)
    shown = f"{text}\n{events.to_pydict()}\n{[p.num_rows for p in pieces]}"
    assert rows_of(prepared, found, events) == expected, shown
    return "matches" if expected else "nothing"


@pytest.mark.parametrize("name", QUERIES)
def test_a_saved_engine_goes_on_as_if_nothing_had_happened(name):
    random = Random(name)
    outcomes = Counter(_survives(QUERIES[name], random, PLAIN) for _ in range(scaled(20)))
    assert outcomes["matches"]
    assert not outcomes["reference"]


@pytest.mark.skipif(not UNCOMPILED, reason="hundreds of queries would be compiled")
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(40))
def test_random_words_in_engines_that_are_saved(seed, monkeypatch):
    monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", (1, 2, 4, 1_024)[seed % 4])
    random, outcomes = Random(f"saved {seed}"), Counter()
    for _ in range(scaled(60)):
        nature = random_nature(random)
        text = random_edges(random, nature)
        try:
            outcomes[_survives(text, random, nature)] += 1
        except QueryError:
            outcomes["refused"] += 1
    assert outcomes["matches"] > 1, outcomes


# -------------------------------------------------------------------------------- what it costs


def _held(text: str, count: int) -> tuple[int, int, int]:
    """A, so many B, C: partial matches and all that is kept before C, and the matches."""
    types = ["A", *"B" * count, "C"]
    events = pa.table({"t": range(len(types)), "type": types})
    engine = prepared_for(text, events).engine()
    assert isinstance(engine, Engine)
    engine.process(events.slice(0, count + 1))
    partial, kept = engine.usage.partial_matches, engine.state.population
    return partial, kept, engine.process(events.slice(count + 1)).count + engine.on_watermark(math.inf).count


@pytest.mark.parametrize("count", [10, 100, 1_000])
def test_a_loop_of_n_events_holds_as_much_as_the_n_matches_that_come_out(count):
    partial, kept, found = _held("A a THEN NEXT (B b THEN NEXT)+ THEN NEXT C c", count)
    assert found == count
    assert partial <= count + 1  # one for each number of B, and the one that waits for the first
    assert kept <= 2 * count + 3  # these share their B


@pytest.mark.parametrize("loop", ["(B b THEN NEXT)++", "(B b THEN)++", "B++ b[]"])
@pytest.mark.parametrize("count", [10, 1_000])
def test_a_greedy_loop_of_n_events_is_one_partial_match(loop, count):
    partial, kept, found = _held(f"A a THEN NEXT {loop} THEN NEXT C c USING next", count)
    assert found == 1
    assert partial <= 2
    assert kept <= count + 3
