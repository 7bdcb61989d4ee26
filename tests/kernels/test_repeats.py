"""Conditions between Kleene variables: the engine and the reference semantics agree on each.

What such a condition says may be known with an element, with the first event of a later variable,
with the event that ends one, or at the end of the match; every place is tried, with values that
are missing and without.
"""

from collections import Counter
from itertools import product
from random import Random

import pyarrow as pa
import pytest
from tests.kernels.test_engine import (
    LEFT_OUT,
    SEEDS_AT_ONCE,
    UNCOMPILED,
    assert_exact,
    given_by,
    interrupted,
    prepared_for,
    rows_of,
    wanted,
)

from ensue.engine.engine import Engine
from ensue.errors import QueryError
from ensue.parser.pattern_parser import parse
from ensue.planner.physical_plan import ReferencePlan
from ensue.planner.planner_options import STRUCTURES, PlannerOptions
from ensue.runtime.compiled_query import compile_query
from ensue.vector.event_table import create_schema
from support.queries import random_repeats
from support.seeds import of_round, scaled
from support.streams import PLAIN, Nature, random_events, random_nature, random_slices

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

OFF = [*LEFT_OUT, ("predicate_placement",), ("predicate_order",)]


# ------------------------------------------------------------------------------- random queries


def assert_random_case_is_exact(random: Random, *, cut: bool) -> str:
    nature = random_nature(random)
    text = random_repeats(random, nature)
    events = random_events(random, random.randint(4, 11), nature)
    try:
        prepared = prepared_for(text, events, nature, random.choice(OFF))
    except QueryError:
        return "refused"
    if isinstance(prepared.plan.structure, ReferencePlan):
        return "reference"  # it would be compared with itself
    pieces = random_slices(random, events)
    if cut:
        pieces = [p for piece in pieces for p in random_slices(random, piece)]
        matches = interrupted(random, prepared, events, pieces)
    else:
        engine = prepared.engine(nullable=random.random() < 0.3)
        assert isinstance(engine, Engine)
        matches = given_by(engine, pieces)
    expected = wanted(prepared, events)
    shown = f"{text}\n{events.to_pydict()}\n{[p.num_rows for p in pieces]}"
    assert rows_of(prepared, matches, events) == expected, shown
    return "matches" if expected else "nothing"


@pytest.mark.skipif(not UNCOMPILED, reason="thousands of queries would be compiled")
@pytest.mark.parametrize("cut", [False, True], ids=["fed", "interrupted"])
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(75))
def test_random_queries_are_exact(round, cut, monkeypatch):
    outcomes = Counter()
    for seed in of_round(round, SEEDS_AT_ONCE):
        monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", (1, 2, 4, 1_024)[seed % 4])
        monkeypatch.setattr("ensue.engine.engine.FEW_CODES", (0, 4_096)[seed % 2])
        try:
            outcomes[assert_random_case_is_exact(Random(f"{cut} {seed}"), cut=cut)] += 1
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    # a generator that has lost its bite would make this test pass
    assert outcomes["matches"] > scaled(SEEDS_AT_ONCE) / 16, outcomes


# ------------------------------------------------------------------------------- every pair

OF_B = (
    "b[1].x", "b[2].x", "b[b.LEN].x", "sum(b.x)", "count(b)", "count(b.x)", "avg(b.y)",
    "min(b.x)", "max(b.y)", "first(b.x)", "last(b.y)", "stddev(b.x)",
)  # fmt: skip
OF_EACH = ("a[i].x", "a[i-1].x", "a[i].y - a[i-1].y", "sum(a[..i-1].x)", "max(a[..i].x)")
PATTERNS = {
    "before": "SEQ(A+ a[], B+ b[])",
    "behind": "SEQ(B+ b[], A+ a[])",
    "before the last": "SEQ(A+ a[], B{1,2} b[], C c)",
    "any order": "AND(A+ a[], B+ b[])",
    "perhaps none": "SEQ(A* a[], B* b[], C c)",
    "one or the other": "SEQ(A+ a[], OR(B+ b[], C c))",
    "around an absence": "SEQ(A+ a[], !X n, B+ b[])",
}
STRATEGIES = ("skip_till_any_match", "skip_till_next_match", "strict_contiguity", "partition_contiguity")


@pytest.mark.skipif(not UNCOMPILED, reason="hundreds of queries would be compiled")
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS.keys())
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(20))
def test_each_element_against_all_that_can_be_said_of_another_variable(round, pattern, strategy):
    names = "a[], b[], c" if "C c" in pattern else "a[], b[]"
    random = Random(pattern + strategy)
    pairs = random.sample(list(product(OF_EACH, OF_B)), len(OF_EACH) * len(OF_B))
    for pair in pairs[round::20]:
        left, right = random.sample(pair, 2)
        condition = f"{left} {random.choice(('<', '<=', '!=', '>'))} {right}"
        text = f"{pattern} WHERE {strategy}({names}) {{ {condition} }} WITHIN 9"
        nature = random.choice((PLAIN, Nature(nulls_from=0), Nature(nulls_from=4)))
        events = _dense(random, nature)
        nullable = random.random() < 0.3
        assert_exact(text, events, random_slices(random, events), nature, nullable=nullable)


def _dense(random: Random, nature: Nature) -> pa.Table:
    """Few enough events for the semantics, most of them of two types."""
    events = random_events(random, 9, nature)
    types = pa.array(random.choices("ABCX", (6, 6, 2, 1), k=9))
    return events.set_column(events.schema.get_field_index("type"), "type", types)


# ------------------------------------------------------------------------------- chosen queries

CHOSEN = {
    "the first of a later one": ("SEQ(A+ a[], B+ b[]) WHERE b[1].x > a[i].x and b[i].y != 0 WITHIN 6"),
    "the next of them": (
        "SEQ(A+ a[], B+ b[], C c) WHERE skip_till_next_match(a[], b[], c) "
        "{ b[1].x >= a[i].x and sum(b.x) > a[i-1].x } WITHIN 8"
    ),
    "in any order": "AND(A{1,2} a[], B+ b[]) WHERE b[1].y <= a[i].x or a[i].x = 0 WITHIN 4",
}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(t, marks=() if UNCOMPILED or n != "in any order" else pytest.mark.slow, id=n)
        for n, t in CHOSEN.items()
    ],
)
def test_chosen_queries_are_exact(text, monkeypatch):
    monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", 2)
    random, found = Random(text), 0
    # values are missing in the second half of a stream: the engine changes its kernel on the way
    for nature in (PLAIN, Nature(nulls_from=5)):
        for _ in range(10):
            events = _dense(random, nature)
            prepared = prepared_for(text, events, nature)
            pieces = random_slices(random, events)
            matches = interrupted(random, prepared, events, pieces)
            expected = wanted(prepared, events)
            assert rows_of(prepared, matches, events) == expected
            found += len(expected)
    assert found > 10


@pytest.mark.parametrize("text", CHOSEN.values(), ids=CHOSEN.keys())
def test_a_structure_takes_such_a_query_or_says_why_not(text):
    events = random_events(Random(1), 9)
    shape = create_schema(events.schema, time="t", type="type", order=())
    taken = []
    for structure in STRUCTURES:
        try:
            compile_query(parse(text), shape, PlannerOptions(structure=structure))
        except QueryError:
            continue
        taken.append(structure)
    assert taken == ["runs", "reference"]
