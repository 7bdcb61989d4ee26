"""AFTER MATCH SKIP on runs: the kernel drops what began among used events, and changes no match.

Few queries are compiled; with NUMBA_DISABLE_JIT=1 many random ones run.
"""

import re
from collections import Counter
from itertools import pairwise
from random import Random

import numba
import numpy as np
import pytest

from ensue.engine.match_output import list_members
from ensue.errors import QueryError
from ensue.kernels.match_selection import are_distinct, order_by_ends, order_by_members
from ensue.vector.match_rows import Matches
from support.edges import random_edges
from support.groups import random_groups
from support.judged import judged, prepared_for
from support.queries import random_query, random_repeats
from support.seeds import of_round, scaled
from support.streams import PLAIN, random_events, random_nature, random_slices

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

UNCOMPILED = bool(numba.config.DISABLE_JIT)
PLACES = ("PAST LAST EVENT", "TO NEXT EVENT")
QUERIES = {
    "v": "SEQ(A s, A+ d[], A+ u[], A e) WHERE partition_contiguity(s, d[], u[], e) "
    "{ [k] and d[1].x < s.x and d[i].x < d[i-1].x and u[i].x > u[i-1].x }",
    "surge": "SEQ(A+ a[], A b) WHERE partition_contiguity(a[], b) "
    "{ [k] and a[i].x >= avg(a[..i].x) and b.x < avg(a.x) } WITHIN 9",
    "until": "SEQ(A a, !C n, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) { [k] } WITHIN 9",
    "any": "SEQ(A+ a[], B b) WHERE [k] and a[i].x >= a[i-1].x",
    "alone": "A+ a[] WHERE partition_contiguity(a[]) { a[i].x >= a[i-1].x }",
}  # fmt: skip


def one_type(events, name):
    """All events of one type, where the query knows no other."""
    if name not in ("v", "surge"):
        return events
    place = events.column_names.index("type")
    return events.set_column(place, "type", [["A"] * events.num_rows])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(2))
def test_the_matches_are_those_of_the_semantics(name, place, round):
    random, outcomes = Random(f"{name} {round}"), Counter()
    for _ in of_round(round, 40):
        events = one_type(random_events(random, random.randint(6, 13)), name)
        pieces = random_slices(random, events)
        text = f"{QUERIES[name]} AFTER MATCH SKIP {place}"
        outcomes[judged(text, events, pieces, PLAIN, off=("stacks",))] += 1
    assert outcomes["matches"]
    assert not outcomes["reference"]


def skipping(random, nature):
    """A random query of any sort that skips."""
    write = random.choice((random_query, random_repeats, random_groups, random_edges))
    text = re.sub(r" AFTER MATCH SKIP [A-Z]+ (LAST EVENT|NEXT EVENT|\w+)", "", write(random, nature))
    skip = f" AFTER MATCH SKIP {random.choice(PLACES)}"
    head, having, tail = text.partition(" HAVING ")
    return f"{head}{skip}{having}{tail}"


@pytest.mark.skipif(not UNCOMPILED, reason="hundreds of queries would be compiled")
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(40))
def test_random_queries_that_skip(seed, monkeypatch):
    monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", (1, 2, 4, 1_024)[seed % 4])
    random, outcomes = Random(f"skipping {seed}"), Counter()
    for _ in range(scaled(60)):
        nature = random_nature(random)
        text, off = skipping(random, nature), random.choice((("stacks",), ("stacks", "window")))
        for _ in range(2):
            events = random_events(random, random.randint(3, 10), nature)
            pieces, saved = random_slices(random, events), random.random() < 0.5
            try:
                outcomes[judged(text, events, pieces, nature, off=off, saved=saved)] += 1
            except QueryError:
                outcomes["refused"] += 1
    assert outcomes["matches"] > 5, outcomes


# ------------------------------------------------------------------------------- what is kept


def fed(text, events):
    engine = prepared_for(text, events, PLAIN, ("stacks",)).engine()
    engine.process(events)
    return engine


def test_a_run_among_used_events_is_dropped_when_it_is_met():
    text = "SEQ(A a, B b) WHERE skip_till_any_match(a, b) { [k] } AFTER MATCH SKIP PAST LAST EVENT"
    events = random_events(Random(1), 400)
    assert fed(text, events).usage.partial_matches < fed(text.partition(" AFTER")[0], events).partial_matches / 4


# ------------------------------------------------------------------------------- orders


def test_the_order_by_last_and_first_event():
    random = Random(5)
    for round in range(60):
        count = random.randint(0, 120)
        last = np.array([random.randint(0, 3 if round % 2 else 40) for _ in range(count)], int)
        if round % 3:
            last.sort()
        first = np.array([random.randint(0, 9) for _ in range(count)], int)
        assert order_by_ends(last, first).tolist() == np.lexsort([first, last]).tolist()


def test_matches_that_begin_and_end_alike_are_never_overlooked():
    random, answers = Random(7), Counter()
    for _ in range(400):
        count = random.randint(0, 7)
        ends = sorted((random.randint(0, 2), random.randint(0, 5)) for _ in range(count))
        if random.random() < 0.7:
            ends.sort(key=lambda pair: (pair[0], random.choice((-pair[1], 0, random.random()))))
        last, first = (np.array([pair[side] for pair in ends], int) for side in (0, 1))
        apart = len(set(ends)) == len(ends)
        assert are_distinct(last, first) == apart
        answers[apart] += 1
    assert min(answers.values()) > 50
    assert not are_distinct(np.array([2, 1]), np.array([0, 0]))  # not by last event


def test_the_order_by_members():
    random = Random(6)
    for _ in range(scaled(60)):
        count = random.randint(0, 50)
        groups = np.array(sorted(random.randint(0, 4) for _ in range(count)), int)
        members = [sorted(random.sample(range(9), random.randint(0, 4))) for _ in range(count)]
        if random.random() < 0.4:  # as kernels give them: in order, or the newest first
            members.sort(reverse=random.random() < 0.5)
        offsets = np.cumsum([0, *map(len, members)])
        steps = np.array([step for some in members for step in some], int)
        expected = sorted(range(count), key=lambda k: (groups[k], [*members[k], 9]))  # a prefix is last
        assert order_by_members(groups, offsets, steps).tolist() == expected


def test_members_are_listed_in_order():
    random, names = Random(8), ["a", "b", "c", "d"]
    for _ in range(scaled(60)):
        # the rows of each match go to variables, at most one of them to d, or to none
        dealt = [[random.choice(["a", "b", "c", None]) for _ in range(random.randint(1, 9))] for _ in range(5)]
        for match in dealt[1:]:
            match[random.randrange(len(match))] = "d"
        lists = {}
        for name in "abc":
            bound = [[row for row, n in enumerate(match) if n == name] for match in dealt]
            rows = np.array([row for some in bound for row in some], int)
            lists[name] = np.cumsum([0, *map(len, bound)]), rows
        single = np.array([match.index("d") if "d" in match else -1 for match in dealt])
        offsets, steps = list_members(Matches({"d": single}, lists, len(dealt)), names)
        expected = [[row * 4 + names.index(n) for row, n in enumerate(match) if n] for match in dealt]
        assert [steps[a:b].tolist() for a, b in pairwise(offsets)] == expected
