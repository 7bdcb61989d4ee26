"""Variables of any type, or of one of several: the matches of the semantics, on every structure.

Few queries are compiled; with NUMBA_DISABLE_JIT=1 many random ones run.
"""

from collections import Counter
from random import Random

import numba
import pytest

from ensue.errors import QueryError
from support.any_types import random_any_types
from support.judged import judged
from support.streams import PLAIN, random_events, random_nature, random_slices

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

UNCOMPILED = bool(numba.config.DISABLE_JIT)
LEFT_OUT = ((), (), (), ("stacks",), ("window",), ("push_negation",), ("predicate_placement",))
QUERIES = {
    "stacks": "SEQ(ANY a, (A|B) b, C c) WHERE a.x < b.x WITHIN 8",
    "negated": "SEQ(A a, !(B|C) n, ANY b) WHERE [k] and n.x > a.x WITHIN 8",
    "loop": "SEQ(A a, (B|C)+ b[], ANY c) USING next WHERE b[i].x >= b[i-1].x",
    "until": "A a THEN NEXT ANY+ b[] UNTIL (B|C) u THEN NEXT C c WHERE u.x > a.x",
    "strict": "SEQ(ANY a, (A|B)? b, C c) USING strict",
}


@pytest.mark.parametrize("name", QUERIES)
def test_the_matches_are_those_of_the_semantics(name):
    random, outcomes = Random(name), Counter()
    for _ in range(60):
        events = random_events(random, random.randint(4, 11))
        pieces = random_slices(random, events)
        outcomes[judged(QUERIES[name], events, pieces, PLAIN)] += 1
    assert outcomes["matches"] > 5
    assert not outcomes["reference"]


@pytest.mark.skipif(not UNCOMPILED, reason="hundreds of queries would be compiled")
@pytest.mark.first_rounds(3)
@pytest.mark.parametrize("seed", range(40))
def test_random_queries(seed, monkeypatch):
    monkeypatch.setattr("ensue.structures.tables.FIRST_ROOM", (1, 2, 4, 1_024)[seed % 4])
    random, outcomes = Random(seed), Counter()
    for _ in range(60):
        nature = random_nature(random)
        text, off = random_any_types(random, nature), random.choice(LEFT_OUT)
        for _ in range(2):
            events = random_events(random, random.randint(3, 9), nature)
            try:
                outcomes[judged(text, events, random_slices(random, events), nature, off)] += 1
            except QueryError:
                outcomes["refused"] += 1
    assert outcomes["matches"] > 5, outcomes
