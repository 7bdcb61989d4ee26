"""Repeated groups on runs: the matches of the semantics, however a stream is cut.

Few queries are compiled; with NUMBA_DISABLE_JIT=1 many random ones run.
"""

from random import Random

import numba
import pytest

from support.groups import random_groups
from support.judged import judged_at_random, judged_often

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

UNCOMPILED = bool(numba.config.DISABLE_JIT)
LEFT_OUT = ((), (), ("window",), ("push_negation",), ("predicate_placement",), ("predicate_order",))
NEXT = "WHERE skip_till_next_match(a[], b[], c)"
QUERIES = {
    "any": "SEQ((A a, B b)+, C c) WHERE b[i].x >= a[i].x WITHIN 8",
    "next": f"SEQ((A a, B b)+, C c) {NEXT} {{ a[i].x >= b[i-1].x and b[i].y >= a[i].y }}",
    "back": "(A a, B b){2,} WHERE b[i].x >= a[i-1].x",
    "strict": "SEQ((A a, B? b){2,3}, C c) WHERE strict_contiguity(a[], b[], c) { 1 = 1 }",
    "choice": f"SEQ((A a | B b)*, C c) {NEXT} {{ [k] and a[i].x <= a[i-1].x }}",
    "reluctant": f"SEQ((A a | B b)+?, B c) {NEXT} {{ a[i].x > 0 }} WITHIN 7",
    "greedy": "SEQ(A+ a[], B++ b[], B c) WHERE skip_till_next_match(a[], b[], c) { b[i].x < 3 }",
    "nested": f"SEQ((A a, B+ b[])+, C c) {NEXT} {{ sum(b.x) > 2 }} WITHIN 9",
}


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(2))
def test_the_matches_are_those_of_the_semantics(name, round):
    judged_often(QUERIES[name], Random(f"{name} {round}"), 40, (3, 10))


@pytest.mark.skipif(not UNCOMPILED, reason="hundreds of queries would be compiled")
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(40))
def test_random_groups(seed, monkeypatch):
    monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", (1, 2, 4, 1_024)[seed % 4])
    judged_at_random(seed, random_groups, LEFT_OUT)
