"""AFTER MATCH where matches wait for their turn: those of the semantics, however a stream is cut.

In the order of first events, beside negations and greedy loops at the end. Few queries are
compiled; with NUMBA_DISABLE_JIT=1 many random ones run.
"""

import math
import re
from collections import Counter
from random import Random

import numba
import pyarrow as pa
import pytest

from ensue import reference as semantics
from ensue.engine.engine import Engine
from ensue.engine.reference_events import read_events
from ensue.errors import LimitError, QueryError
from ensue.options import Limits
from ensue.parser.pattern_parser import parse
from ensue.planner.capabilities import skips_in_order
from ensue.planner.planner_options import PlannerOptions
from ensue.runtime.compiled_query import CompiledQuery, compile_query
from ensue.runtime.live_matcher import LiveMatcher
from ensue.vector.event_table import create_schema
from support import judged as one_query
from support.edges import random_edges
from support.groups import random_groups
from support.queries import random_query
from support.saving import restored
from support.seeds import scaled
from support.streams import PLAIN, Nature, random_events, random_nature, random_slices

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

UNCOMPILED = bool(numba.config.DISABLE_JIT)
START = "AFTER MATCH SKIP PAST LAST EVENT IN ORDER OF START"
QUERIES = {
    "start": f"SEQ(A a, B b, C c) WITHIN 7 {START}",
    "start of a key": f"SEQ(A a, B+ b[]) WHERE [k] and sum(b.x) > 2 WITHIN 6 {START}",
    "start without a window": f"SEQ(A a, B b) WHERE a.x < b.x {START}",
    "start, adjacent": f"SEQ(A a, B+ b[]) WHERE partition_contiguity(a, b[]) {{ [k] }} {START}",
    "start, counted": f"SEQ(A a, B b) WHERE a.x < b.x WITHIN 5 EVENTS {START}",
    "start, next": (
        "SEQ(A a, B b, C c) WHERE skip_till_next_match(a, b, c) { [k] } WITHIN 8 "
        "AFTER MATCH SKIP TO NEXT EVENT IN ORDER OF START"
    ),
    "start, to last": "SEQ(A+ a[], B b) WITHIN 5 AFTER MATCH SKIP TO LAST a IN ORDER OF START",
    "absent": "SEQ(A a, B b, !C c) WITHIN 5 AFTER MATCH SKIP PAST LAST EVENT",
    "absent, start": f"SEQ(A a, B b, !C c) WHERE [k] and c.x > a.x WITHIN 5 {START}",
    "one branch waits": ("OR(SEQ(A a, !B b), SEQ(C c, A d)) WITHIN 4 AFTER MATCH SKIP PAST LAST EVENT"),
    "greedy": "A a -> (B b THEN)++ WITHIN 5 AFTER MATCH SKIP PAST LAST EVENT",
    "greedy, start": f"SEQ(A a, B++ b[]) WHERE [k] {START}",
}


def prepared_for(text: str, events: pa.Table, nature: Nature = PLAIN, **options) -> CompiledQuery:
    shape = create_schema(events.schema, time=nature.columns, type="type", order=())
    return compile_query(parse(text), shape, **options)


def judged(text: str, events: pa.Table, nature: Nature, random: Random) -> str:
    """Fed in pieces, between which time passes and others take over; says how it went."""
    prepared = one_query.prepared_for(text, events, nature)
    matcher = LiveMatcher(prepared)
    if not isinstance(matcher.engine, Engine):
        return "reference"
    found = []
    for piece in random_slices(random, events):
        found.append(matcher.process(piece))
        if random.random() < 0.5 and matcher.engine.now is not None:
            found.append(matcher.on_watermark(matcher.engine.now))
        if random.random() < 0.4:
            matcher.engine.compact()
        if random.random() < 0.4:
            matcher = restored(prepared, matcher.snapshot())
    found.append(matcher.on_watermark(math.inf))
    assert matcher.usage.partial_matches == matcher.engine.state.partial_matches  # none is held
    table = pa.concat_tables(found)
    bound = [v for v in table.column_names if v not in ("match_id", "start", "end")]
    given = [_written({v: _rows(row[v]) for v in bound}) for row in table.to_pylist()]
    shape = prepared.shape
    wanted = semantics.find_matches(prepared.query, read_events(events, shape.schema, shape.unit))
    expected = [_written({v: [e.position for e in es] for v, es in b.items()}) for b in wanted]
    assert sorted(given) == sorted(expected), f"{text}\n{nature}\n{events.to_pydict()}"
    return "matches" if expected else "nothing"


def _rows(bound: object) -> list[int]:
    events = bound if isinstance(bound, list) else [] if bound is None else [bound]
    return [event["row"] for event in events]


def _written(binding: dict[str, list[int]]) -> tuple:
    return tuple(sorted((v, tuple(rows)) for v, rows in binding.items() if rows))


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(4))
def test_the_matches_are_those_of_the_semantics(name, round):
    random, outcomes = Random(f"{name} {round}"), Counter()
    for number in range(12):
        nature = Nature(intervals=number % 5 == 4, nulls_from=5 if number % 4 == 3 else None)
        events = random_events(random, random.randint(4, 14), nature)
        outcomes[judged(QUERIES[name], events, nature, random)] += 1
    assert outcomes["matches"], outcomes
    assert not outcomes["reference"]


@pytest.mark.skipif(not UNCOMPILED, reason="hundreds of queries would be compiled")
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(40))
def test_random_queries_in_turn(seed, monkeypatch):
    monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", (1, 2, 4, 1_024)[seed % 4])
    random, outcomes = Random(seed), Counter()
    for _ in range(scaled(60)):
        nature = random_nature(random)
        text = random_turns(random, nature)
        try:
            if not skips_in_order(parse(text)):
                continue
            for _ in range(2):
                events = random_events(random, random.randint(3, 12), nature)
                outcomes[judged(text, events, nature, random)] += 1
        except QueryError:
            outcomes["refused"] += 1
    assert outcomes["matches"] > 5, outcomes


def random_turns(random: Random, nature: Nature) -> str:
    """A random query with AFTER MATCH."""
    text = random.choice((random_query, random_groups, random_edges))(random, nature)
    text = re.sub(r" AFTER MATCH .*?(?= HAVING|$)", "", text)
    to = random.choice(("PAST LAST EVENT", "PAST LAST EVENT", "TO NEXT EVENT"))
    order = random.choice((" IN ORDER OF START", " IN ORDER OF START", ""))
    after = f" AFTER MATCH SKIP {to}{order}"
    return re.sub(r"(?= HAVING)|$", after, text, count=1)


# ------------------------------------------------------------------------------- what is held


def stream(types: str, **columns: object) -> pa.Table:
    return pa.table({"t": range(len(types)), "type": list(types), **columns})


def ends(found: pa.Table) -> list[tuple[int, int]]:
    return sorted((row["start"], row["end"]) for row in found.to_pylist())


def test_a_match_waits_for_what_began_earlier():
    events = stream("AXABC", x=[2, 0, 1, 1, 1])
    query = f"SEQ(A a, B+ b[], C c) WHERE c.x < a.x or a.x = 1 WITHIN 9 {START}"
    matcher = LiveMatcher(prepared_for(query, events))
    # a=0 would be a match with a C of x < 2: this one is
    assert ends(matcher.process(events)) == [(0, 4)]
    matcher = LiveMatcher(prepared_for(query, events))
    late = stream("AXABC", x=[0, 0, 1, 1, 1])
    assert matcher.process(late).num_rows == 0  # (2, 4) is found, and a=0 still alive
    assert matcher.next_timer() == 9
    assert matcher.usage.partial_matches > matcher.engine.state.partial_matches
    assert set(matcher.engine.get_held_rows().tolist()) >= {2, 3, 4}
    matcher = restored(matcher.prepared, matcher.snapshot())
    assert matcher.next_timer() == 9
    assert matcher.on_watermark(9).num_rows == 0  # a C at 9 could still be its last event
    assert ends(matcher.on_watermark(10)) == [(2, 4)]
    assert matcher.on_watermark(math.inf).num_rows == 0


def test_what_an_earlier_match_uses_up_is_dropped_at_once():
    events = stream("AXABC", x=[2, 0, 1, 1, 2])
    query = f"SEQ(A a, B+ b[], C c) WHERE c.x < a.x or a.x = 1 WITHIN 9 {START}"
    matcher = LiveMatcher(prepared_for(query, events))
    assert matcher.process(events).num_rows == 0
    more = pa.table({"t": [5], "type": ["C"], "x": [1]})
    assert ends(matcher.process(more)) == [(0, 5)]
    assert matcher.usage.partial_matches == matcher.engine.state.partial_matches  # (2, 4) is gone


def test_a_match_that_ends_later_waits_for_one_that_is_undecided():
    events = stream("ABXXD")
    query = "OR(SEQ(A a, B b, !C c), SEQ(B d, D e)) WITHIN 6 AFTER MATCH SKIP PAST LAST EVENT"
    matcher = LiveMatcher(prepared_for(query, events))
    assert matcher.process(events).num_rows == 0
    assert ends(matcher.on_watermark(7)) == [(0, 1)]  # it uses up the B of the other
    matcher = LiveMatcher(prepared_for(query, events))
    matcher.process(events)
    forbidden = pa.table({"t": [5], "type": ["C"]})
    assert ends(matcher.process(forbidden)) == [(1, 4)]


def test_matches_that_wait_are_counted_against_the_limits():
    events = pa.table({"t": [0] * 1_001, "type": ["C"] + ["A"] * 1_000})
    query = f"OR(SEQ(C c, B b), A a) WITHIN 5 {START}"
    planning = PlannerOptions(limits=Limits(max_partial_matches=500))
    with pytest.raises(LimitError, match="partial matches"):
        prepared_for(query, events, planning=planning).engine().process(events)
