"""Repeated groups on runs: the matches of the semantics, however a stream is cut.

Few queries are compiled; with NUMBA_DISABLE_JIT=1 many random ones run.
"""

from collections import Counter
from random import Random

import numba
import pyarrow as pa
import pytest

from ensue import semantics
from ensue.columns.stream import shape_of
from ensue.engine.engine import Engine
from ensue.engine.output import joined
from ensue.engine.reference_events import events_of
from ensue.errors import QueryError
from ensue.languages.patterns import parse
from ensue.workload.prepared import build_result, prepare
from support.groups import random_groups
from support.streams import PLAIN, Nature, random_events, random_nature, random_slices

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

UNCOMPILED = bool(numba.config.DISABLE_JIT)
LEFT_OUT = (
    (),
    (),
    ("window",),
    ("push_negation",),
    ("predicate_placement",),
    ("predicate_order",),
)
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


def judged(
    text: str, events: pa.Table, pieces: list[pa.Table], nature: Nature, off: tuple[str, ...] = ()
) -> str:
    """Compares an engine with the semantics; says how it went."""
    shape = shape_of(events.schema, time=nature.columns, type="type", order=())
    prepared = prepare(parse(text), shape, off=off)
    engine = prepared.engine()
    if not isinstance(engine, Engine):
        return "reference"
    found = [engine.feed(piece) for piece in pieces]
    found.append(engine.finish())
    matches = joined(found, engine.program.source.output)
    table = build_result(prepared, matches, events).select(list(matches.variables))
    given = [_written({v: _rows(row[v]) for v in row}) for row in table.to_pylist()]
    expected = [
        _written({v: [e.position for e in es] for v, es in binding.items()})
        for binding in semantics.matches(
            prepared.query, events_of(events, shape.schema, shape.unit)
        )
    ]
    assert sorted(given) == sorted(expected), f"{text}\n{events.to_pydict()}"
    return "matches" if expected else "nothing"


def _rows(bound: object) -> list[int]:
    events = bound if isinstance(bound, list) else [] if bound is None else [bound]
    return [event["row"] for event in events]


def _written(binding: dict[str, list[int]]) -> tuple:
    return tuple(sorted((v, tuple(rows)) for v, rows in binding.items() if rows))


@pytest.mark.parametrize("name", QUERIES)
def test_the_matches_are_those_of_the_semantics(name):
    random, outcomes = Random(name), Counter()
    for _ in range(60):
        events = random_events(random, random.randint(3, 10))
        pieces = random_slices(random, events)
        outcomes[judged(QUERIES[name], events, pieces, PLAIN)] += 1
    assert outcomes["matches"] > 5
    assert not outcomes["reference"]


@pytest.mark.skipif(not UNCOMPILED, reason="hundreds of queries would be compiled")
@pytest.mark.first_rounds(6)
@pytest.mark.parametrize("seed", range(40))
def test_random_groups(seed, monkeypatch):
    monkeypatch.setattr("ensue.structures.tables.FIRST_ROOM", (1, 2, 4, 1_024)[seed % 4])
    random, outcomes = Random(seed), Counter()
    for _ in range(60):
        nature = random_nature(random)
        text, off = random_groups(random, nature), random.choice(LEFT_OUT)
        for _ in range(2):
            events = random_events(random, random.randint(3, 9), nature)
            try:
                outcomes[judged(text, events, random_slices(random, events), nature, off)] += 1
            except QueryError:
                outcomes["refused"] += 1
    assert outcomes["matches"] > 5, outcomes
