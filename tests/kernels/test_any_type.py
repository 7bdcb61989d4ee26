"""Variables of any type, or of one of several: the matches of the semantics, on every structure.

Few queries are compiled; with NUMBA_DISABLE_JIT=1 many random ones run.
"""

from random import Random

import numba
import pytest

from support.any_types import random_any_types
from support.judged import judged_at_random, judged_often

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
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(4))
def test_the_matches_are_those_of_the_semantics(name, round):
    judged_often(QUERIES[name], Random(f"{name} {round}"), 20, (4, 11))


@pytest.mark.skipif(not UNCOMPILED, reason="hundreds of queries would be compiled")
@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("seed", range(40))
def test_random_queries(seed, monkeypatch):
    monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", (1, 2, 4, 1_024)[seed % 4])
    judged_at_random(seed, random_any_types, LEFT_OUT)
