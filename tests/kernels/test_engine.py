"""The engine gives exactly the matches of the reference semantics, however a stream is cut.

Compiling a query's kernels takes a second or two, so compiled code sees few queries and many
streams; with NUMBA_DISABLE_JIT=1 thousands of random queries run.
"""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ensue import reference as semantics
from ensue.codegen.kernel_inputs import INSTANCE_TOP, LIVE
from ensue.engine.engine import Engine
from ensue.engine.match_output import concat_matches
from ensue.engine.reference_events import read_events
from ensue.errors import QueryError
from ensue.parser.pattern_parser import parse
from ensue.planner.physical_plan import Nfa, ReferencePlan
from ensue.planner.rewrites import RULES
from ensue.runtime.compiled_query import CompiledQuery, build_result, compile_query
from ensue.vector.event_table import create_schema, sort_events
from ensue.vector.match_rows import Matches
from samples.stocks import stocks
from support import judged, streams
from support.queries import random_query
from support.seeds import of_round, scaled
from support.streams import PLAIN, Nature, random_events, random_nature, random_slices

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

UNCOMPILED = bool(numba.config.DISABLE_JIT)
RULE_NAMES = [rule.__name__ for rule in RULES]
LEFT_OUT = [
    (),
    (),
    (),
    ("stacks",),
    ("window",),
    ("stacks", "window"),
    ("push_negation",),
    ("negation_in_construction",),
    *((n,) for n in RULE_NAMES),
]


# ------------------------------------------------------------------------------- the comparison


def cases(queries: dict[str, Any], dear: Sequence[str]) -> list:
    """Queries by name; kernels that are dear to compile are compiled in `make test-slow`."""
    slow = () if UNCOMPILED else (pytest.mark.slow,)
    return [pytest.param(text, id=name, marks=slow if name in dear else ()) for name, text in queries.items()]


def prepared_for(text: str, events: pa.Table, nature: Nature = PLAIN, off=()) -> CompiledQuery:
    return judged.prepared_for(text, events, nature, tuple(off))


def wanted(prepared: CompiledQuery, events: pa.Table) -> list[tuple]:
    """The matches by the reference semantics, as rows of the events."""
    schema, unit = prepared.shape.schema, prepared.shape.unit
    found = semantics.find_matches(prepared.query, read_events(events, schema, unit))
    return sorted(_written({v: [e.position for e in es] for v, es in b.items()}) for b in found)


def given_by(engine: Engine, pieces: list[pa.Table]) -> Matches:
    found = [engine.process(piece) for piece in pieces]
    found.append(engine.on_watermark(math.inf))
    return concat_matches(found, engine.program.source.output)


def rows_of(prepared: CompiledQuery, matches: Matches, events: pa.Table) -> list[tuple]:
    """The matches as rows of the events, without those that only fail at the very end."""
    if prepared.plan.residual or prepared.query.having is not None:
        names = matches.variables
        table = build_result(prepared, matches, events).select(list(names))
        return sorted(_written({v: _rows(match[v]) for v in names}) for match in table.to_pylist())
    segments = {v: matches.segments(v) for v in matches.variables}
    return sorted(
        _written({v: rows[at[k] : at[k + 1]].tolist() for v, (at, rows) in segments.items()})
        for k in range(matches.count)
    )


def _rows(bound: object) -> list[int]:
    if bound is None:
        return []
    return [event["row"] for event in (bound if isinstance(bound, list) else [bound])]


def _written(binding: dict[str, list[int]]) -> tuple:
    return tuple(sorted((v, tuple(rows)) for v, rows in binding.items() if rows))


def assert_exact(text, events, pieces, nature=PLAIN, *, off=(), nullable=False) -> str:
    """Compares an engine with the semantics; says which kind of plan it was."""
    prepared = prepared_for(text, events, nature, off)
    engine = prepared.engine(nullable=nullable)
    if not isinstance(engine, Engine):
        assert isinstance(prepared.plan.structure, ReferencePlan)
        return "reference"  # it would be compared with itself
    found = rows_of(prepared, given_by(engine, pieces), events)
    expected = wanted(prepared, events)
    assert found == expected, f"{text}\n{events.to_pydict()}\n{[p.num_rows for p in pieces]}"
    return "matches" if expected else "nothing"


def assert_random_case_is_exact(random: Random) -> str:
    nature = random_nature(random)
    text = random_query(random, nature)
    off = random.choice(LEFT_OUT)
    try:
        for _ in range(2):
            events = random_events(random, random.randint(1, 9), nature)
            pieces = random_slices(random, events)
            nullable = random.random() < 0.2
            outcome = assert_exact(text, events, pieces, nature, off=off, nullable=nullable)
    except QueryError:
        return "refused"
    return outcome


@pytest.fixture(params=[1, pytest.param(4, marks=pytest.mark.slow), 1_024], ids=lambda room: f"room {room}")
def room(request, monkeypatch):
    """How much room the engine begins with: with next to none, every table grows many times."""
    monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", request.param)
    return request.param


# ------------------------------------------------------------------------------- random queries

SEEDS_AT_ONCE = 40


@pytest.mark.skipif(not UNCOMPILED, reason="thousands of queries would be compiled")
@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("round", range(100))
def test_random_queries_are_exact(round, monkeypatch):
    outcomes = Counter()
    for seed in of_round(round, SEEDS_AT_ONCE):
        monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", (1, 2, 4, 1_024)[seed % 4])
        try:
            outcomes[assert_random_case_is_exact(Random(seed))] += 1
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    # a generator that has lost its bite would make this test pass
    assert outcomes["matches"] > scaled(SEEDS_AT_ONCE) / 16, outcomes


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(6))
def test_some_random_queries_are_exact_compiled(seed, monkeypatch):
    monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", 4)
    assert_random_case_is_exact(Random(seed))


@pytest.mark.skipif(not UNCOMPILED, reason="shrinking would compile hundreds of queries")
@settings(
    max_examples=scaled(40), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.randoms(use_true_random=False))
def test_the_smallest_query_that_is_not_exact(random):
    """The same property, for the smallest example that breaks it."""
    assert_random_case_is_exact(random)


# ------------------------------------------------------------------------------- chosen queries

CHOSEN = {
    # instance stacks
    "two events": "SEQ(A a, B b) WITHIN 5",
    "three of a key": "SEQ(A a, B b, C c) WHERE [k] WITHIN 6",
    "a correlated negation": "SEQ(A a, !C c, B b) WHERE c.x = a.x and c.y < b.y WITHIN 6",
    "a negation at the start": "SEQ(!C c, A a, B b) WITHIN 4",
    "equal texts": "SEQ(A a, B b) WHERE a.s = b.s and a.x <= b.x WITHIN 5",
    "a window of events": "SEQ(A a, B b) WHERE [k] WITHIN 3 EVENTS",
    # runs
    "a negation at the end": "SEQ(A a, B b, !C c) WHERE [k] WITHIN 4",
    "all Kleene choices": "SEQ(A+ a[], B b) WITHIN 5",
    "a rising Kleene": (
        "SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { a[i].x >= a[i-1].x and b.x > a[1].x } WITHIN 6"
    ),
    "a running average": (
        "SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) "
        "{ [k] and a[i].y >= avg(a[..i-1].y) and b.x <= a[a.LEN].x } WITHIN 6"
    ),
    "the next of a key": "SEQ(A a, B b) WHERE skip_till_next_match(a, b) { a.x < b.x } WITHIN 5",
    "strictly adjacent": "SEQ(A a, B b) WHERE strict_contiguity(a, b) { a.x <= b.x }",
    "adjacent in the key": "SEQ(A a, B+ b[], C c) WHERE partition_contiguity(a, b[], c) { [k] }",
    "both in any order": "AND(A a, B b, C c) WHERE a.x <= b.x WITHIN 3",
    "one of two": "OR(A a, SEQ(B b, C c)) WITHIN 4",
    "perhaps one": "SEQ(A a, B? b, C c) WHERE a.x < b.x WITHIN 5",
    "two or three": "SEQ(A{2,3} a[], B b) WHERE b.x > a[i].x WITHIN 5",
    "a set after one": ("SEQ(A a, AND(B b, C c)) WHERE skip_till_next_match(a, b, c) { b.x <= c.x } WITHIN 5"),
    "skipping past": ("SEQ(A a, B+ b[]) WHERE sum(b.x) > 2 WITHIN 5 AFTER MATCH SKIP PAST LAST EVENT"),
    "in order of start": (
        "SEQ(A a, B+ b[]) WHERE [k] and sum(b.x) > 2 WITHIN 5 AFTER MATCH SKIP PAST LAST EVENT IN ORDER OF START"
    ),
    "waiting, in order of start": (
        "OR(SEQ(A a, B b, !C c), SEQ(C d, A e)) WITHIN 5 AFTER MATCH SKIP TO NEXT EVENT IN ORDER OF START"
    ),
    "skipping past what waits": ("OR(SEQ(A a, B b, !C c), SEQ(B d, A e)) WITHIN 5 AFTER MATCH SKIP PAST LAST EVENT"),
}


# Compiled, each of these goes the ways of one of the others.
LIKE_OTHERS = (
    "two events", "a negation at the start", "a window of events", "a rising Kleene",
    "the next of a key", "strictly adjacent", "two or three", "a set after one",
)  # fmt: skip


@pytest.mark.parametrize("text", cases(CHOSEN, LIKE_OTHERS))
def test_chosen_queries_are_exact(text, room):
    random = Random(text)
    # values are missing in the second half of a stream: the engine changes its kernel on the way
    for nature in (PLAIN, Nature(nulls_from=5)):
        for _ in range(8):
            events = random_events(random, random.randint(5, 10), nature)
            assert_exact(text, events, random_slices(random, events), nature)


@pytest.mark.parametrize(
    ("name", "time"),
    [
        ("three of a key", streams.REAL),
        ("a running average", streams.REAL),
        ("three of a key", streams.STAMPS),
        ("a running average", streams.FINE),
    ],
)
def test_every_kind_of_time_is_exact(name, time):
    unit = "" if time == streams.REAL else " seconds"
    nature, random = Nature(time=time), Random(time)
    for _ in range(8):
        events = random_events(random, 10, nature)
        assert_exact(CHOSEN[name] + unit, events, random_slices(random, events), nature)


@pytest.mark.parametrize("name", ["three of a key", "all Kleene choices", "both in any order"])
def test_events_that_last_are_exact(name):
    nature, random = Nature(intervals=True), Random(name)
    for _ in range(12):
        events = random_events(random, 10, nature)
        assert_exact(CHOSEN[name], events, random_slices(random, events), nature)


@pytest.mark.parametrize("off", LEFT_OUT[3 : None if UNCOMPILED else 5], ids=" and ".join)
def test_no_rule_changes_the_matches(off):
    text = (
        "SEQ(A a, SEQ(B b, !OR(C c, X x)), A d) "
        "WHERE a.k = b.k and b.k = d.k and c.k = a.k and x.k = a.k and avg(b.x) > 0 WITHIN 7"
    )
    random = Random(off[0])
    for _ in range(12):
        events = random_events(random, 10, PLAIN)
        assert_exact(text, events, random_slices(random, events), off=off)


# What only the compiler would refuse: every operator and every kind that a kernel computes with.
OPERATORS = {
    "numbers": (
        "a.x + b.x = 5 or a.x - b.y > 2 or a.x * b.x = 6 or a.y / b.x = 0.5 or a.x % b.x = 1 "
        "or a.y % b.y > 1 or a.y % b.x > 2 or -a.x + -b.x = -7 or abs(a.y - b.y) > 3 "
        "or least(a.x, b.x, 3) = 3 or greatest(a.y, b.y) < 0 or coalesce(a.x + b.x, 1) = 1"
    ),
    "conditions": (
        "a.x between b.x and 2 or a.x not between b.x - 2 and b.x + 2 or a.x in (b.x + 3, 9) "
        "or (a.x = b.x) is null or not (a.x >= b.x or a.y < b.y) or (a.x > b.x) = (a.y < b.y) "
        "or (a.x > 1 and a.y > b.y) is not null and a.x > b.x + 100"
    ),
    "kinds": (
        "a.f and b.f and a.x > 3 or a.f != b.f and b.d - a.d > 2 seconds or a.u = b.u "
        "or b.z > a.z + 1 or b.d < TIMESTAMP '1970-01-01 00:00:02' and b.n < a.n "
        "or b.day > a.day or a.s = b.s and a.s || 'x' = 'px'"
    ),
    "aggregates": (
        "stddev(k.x) > b.y or count(k.x) > b.x or max(k.y) - min(k.y) > b.x + 2 "
        "or first(k.x) % (last(k.x) + b.x) = 1 or avg(k.y) = b.y or sum(k.x) = 2 * b.x "
        "or k[2].x / k[1].x > b.x or k[k.LEN].y = b.y or count(k) > b.x + 1"
    ),
}


# a kernel that looks out for missing values holds all that one without them does
@pytest.mark.parametrize("nulls_from", cases({"none": None, "missing": 0}, ["none"]))
@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_compiles_and_is_exact(name, nulls_from):
    first = "C{1,3} k[]" if name == "aggregates" else "A a"
    text = f"SEQ({first}, B b) WHERE {OPERATORS[name]} WITHIN 6"
    random = Random(name)
    for _ in range(10):
        events = _with_more_columns(random_events(random, 10, Nature(nulls_from=nulls_from)))
        assert_exact(text, events, random_slices(random, events))


def test_numbers_beyond_64_bits_are_bounds():
    random = Random(1)
    events = random_events(random, 10)
    for text in ("a.x + b.x < 99999999999999999999", "a.x - b.x > -99999999999999999999"):
        assert assert_exact(f"SEQ(A a, B b) WHERE {text}", events, [events]) == "matches"


@pytest.mark.parametrize(
    "beyond",
    [
        f"a.x * b.x * {2**62}",
        f"a.x + b.x + {2**63 - 4}",
        f"a.x - b.x - {2**63 - 1} - a.x * b.x",
        f"-(a.x - b.x - {2**63 - 1} - a.x + 1)",
        f"abs(b.x - a.x - {2**63 - 1} - 1 + (a.x - b.x))",
        f"a.x * b.x * {-(2**61)} * b.x",
    ],
)
def test_what_is_beyond_64_bits_is_null(beyond):
    events = pa.table({"t": [0, 1], "type": ["A", "B"], "x": [2, 2], "row": [0, 1]})
    assert assert_exact(f"SEQ(A a, B b) WHERE ({beyond}) IS NULL", events, [events]) == "matches"
    nothing = f"SEQ(A a, B b) WHERE {beyond} > 0 or {beyond} <= 0"
    assert assert_exact(nothing, events, [events]) == "nothing"


def _with_more_columns(events: pa.Table) -> pa.Table:
    """The same events with values of all the other kinds that can be computed with."""
    x = events.column("x")
    for name, column in {
        "f": pc.greater(x, 1),
        "d": x.cast(pa.timestamp("s")).cast(pa.timestamp("ms", "UTC")),
        "day": x.cast(pa.int32()).cast(pa.date32()),
        "u": x.cast(pa.uint8()),
        "n": pc.negate(x).cast(pa.int16()),
        "z": x.cast(pa.decimal128(25, 2)),
    }.items():
        events = events.append_column(name, column)
    return events


# ------------------------------------------------------------------------------- long streams

LONG = {
    "stacks": "SEQ(A a, B b, !C c, D d) WHERE [symbol] and a.price < d.price WITHIN 1 second",
    "runs": (
        "SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [symbol] "
        "and a[i].price > avg(a[..i-1].price) and b.volume < 80% * a[a.LEN].volume } "
        "WITHIN 2 seconds"
    ),
    "absence": "SEQ(A a, B b, !C c) WHERE [symbol] and c.volume > a.volume WITHIN 1 second",
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_the_cut_of_a_long_stream_does_not_matter(text, monkeypatch):
    events = stocks(1_500 if UNCOMPILED else 6_000, symbols=5, seed=11)
    shape = create_schema(events.schema, time="ts", type="type", order=())
    prepared = compile_query(parse(text), shape)
    count = events.num_rows
    whole = given_by(prepared.engine(), [events])
    assert whole.count > 50
    expected = rows_of(prepared, whole, events)
    monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", 2)
    random = Random(3)
    cuts = sorted(random.sample(range(count), 40))
    pieces = [events.slice(a, b - a) for a, b in pairwise([0, *cuts, count])]
    assert rows_of(prepared, given_by(prepared.engine(), pieces), events) == expected
    assert rows_of(prepared, given_by(prepared.engine(nullable=True), [events]), events) == expected


def test_a_long_stream_is_exact():
    """Long enough that runs end, arenas are swept and keys come and go."""
    text = "SEQ(A a, B b, !C c, D d) WHERE [symbol] WITHIN 300 milliseconds"
    events = stocks(800, symbols=3, seed=5)
    shape = create_schema(events.schema, time="ts", type="type", order=())
    prepared = compile_query(parse(text), shape)
    expected = wanted(prepared, events)
    assert len(expected) > 10
    assert rows_of(prepared, given_by(prepared.engine(), [events]), events) == expected


def test_many_runs_of_one_key_find_room():
    """Each event asks for room for several times the live runs: it must come in the end."""
    text = "SEQ(A a, A b, A c) WHERE skip_till_next_match(a, b, c) { c.x > a.x + b.x } WITHIN 1000"
    count = 120 if UNCOMPILED else 600
    events = pa.table({"t": range(count), "type": ["A"] * count, "x": [7] * count})
    shape = create_schema(events.schema, time="t", type="type", order=())
    assert given_by(compile_query(parse(text), shape).engine(), [events]).count == 0


# ------------------------------------------------------------------------------- what time does

WAITING = "SEQ(A a, !B b) WHERE [k] WITHIN 3"


def test_time_that_passes_delivers_what_waited_for_it():
    events = pa.table({"t": [0, 1, 2], "type": ["A", "A", "B"], "k": [1, 2, 1], "row": [0, 1, 2]})
    prepared = prepared_for(WAITING, events)
    engine = prepared.engine()
    assert engine.process(events).count == 0
    assert engine.on_watermark(4).count == 0  # an event at 4 may still come
    assert rows_of(prepared, engine.on_watermark(5), events) == [(("a", (1,)),)]
    assert engine.on_watermark(math.inf).count == 0


@pytest.mark.parametrize("name", ["a negation at the end", "all Kleene choices", "three of a key"])
def test_telling_the_time_changes_no_match(name):
    random = Random(name)
    for _ in range(12):
        events = random_events(random, 10, PLAIN)
        prepared = prepared_for(CHOSEN[name], events)
        engine = prepared.engine()
        found = []
        for piece in random_slices(random, events):
            found.append(engine.process(piece))
            if piece.num_rows:
                found.append(engine.on_watermark(piece.column("t")[-1].as_py()))
        found.append(engine.on_watermark(math.inf))
        matches = concat_matches(found, engine.program.source.output)
        assert rows_of(prepared, matches, events) == wanted(prepared, events)


@pytest.mark.parametrize("name", cases(dict(zip(CHOSEN, CHOSEN, strict=True)), LIKE_OTHERS))
def test_rows_of_later_matches_are_held(name):
    """What the engine no longer holds may be forgotten: no later match contains it."""
    text, random = CHOSEN[name], Random(name)
    for _ in range(6):
        events = random_events(random, 10, PLAIN)
        engine = prepared_for(text, events).engine()
        kept: set[int] = set()
        for piece in [*random_slices(random, events), None]:
            new = set(range(engine.rows, engine.rows + (piece.num_rows if piece else 0)))
            found = engine.on_watermark(math.inf) if piece is None else engine.process(piece)
            used = {int(row) for v in found.variables for row in found.elements(v)}
            assert used <= kept | new
            kept = set(engine.get_held_rows().tolist())


# ------------------------------------------------------------------------------- interruptions


def ticks(events: pa.Table) -> list:
    """When the events end, as the engine counts time."""
    column = events.column("t")
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()


def interrupted(random: Random, prepared: CompiledQuery, events: pa.Table, pieces) -> Matches:
    """Fed in pieces; between them time passes, codes are forgotten, and others take over."""
    engine = prepared.engine()
    assert isinstance(engine, Engine)
    ends, found = ticks(events), []
    for piece in pieces:
        found.append(engine.process(piece))
        if random.random() < 0.7:
            engine.compact()
        if random.random() < 0.5 and engine.rows:
            last = ends[engine.rows - 1]
            # up to the end of the next event: an event at exactly that time may still come
            coming = ends[engine.rows] if engine.rows < len(ends) else last + 2
            now = random.choice((last, coming, coming, (last + coming) / 2))
            found.append(_advanced(engine, now, ends))
        if random.random() < 0.7:
            engine.compact()
            assert engine.scan.keys.known <= _most_keys(engine)
        if random.random() < 0.5:
            data = engine.snapshot()
            engine = prepared.engine()
            engine.restore(data)
    found.append(engine.on_watermark(math.inf))
    assert engine.next_timer() is None
    return concat_matches(found, engine.program.source.output)


def _advanced(engine: Engine, now: float, ends: list) -> Matches:
    """Time that passes: the deadline says whether it delivers; what is too old is let go."""
    frame, deadline = engine.program.frame, engine.next_timer()
    found = engine.on_watermark(now)
    assert engine.now is not None
    now = max(engine.now, now)
    if not frame.by_events:
        # what another match uses up, or has to wait for, is not delivered with it; what a greedy
        # loop at the end has may be no match after all
        due = deadline is not None and now > deadline
        assert due or not found.count
        assert found.count or not due or engine.turns is not None or _ends_greedily(engine)
        if frame.window is not None:
            # the last event of one that waits is in the window of another
            windows = 1 if engine.turns is None else 2
            assert all(now - ends[row] <= windows * frame.window for row in engine.get_held_rows())
    assert engine.on_watermark(now).count == 0
    return found


def _ends_greedily(engine: Engine) -> bool:
    structure = engine.program.plan.structure
    return isinstance(structure, Nfa) and any(s.lasting for s in structure.states)


def _most_keys(engine: Engine) -> int:
    """A key of n columns has n values and n - 1 pairs; each has a run, an instance or a match."""
    meta = engine.state.meta
    columns = len(engine.program.plan.query.equivalence)
    held = 0 if engine.turns is None else engine.turns.held
    return max(0, 2 * columns - 1) * int(meta[LIVE] + meta[INSTANCE_TOP] + held)


def assert_interrupted_case_is_exact(random: Random) -> str:
    nature = random_nature(random)
    text = random_query(random, nature)
    try:
        events = random_events(random, random.randint(4, 10), nature)
        prepared = prepared_for(text, events, nature, random.choice(LEFT_OUT))
        if isinstance(prepared.plan.structure, ReferencePlan):
            return "reference"
        pieces = [p for s in random_slices(random, events) for p in random_slices(random, s)]
        found = rows_of(prepared, interrupted(random, prepared, events, pieces), events)
    except QueryError:
        return "refused"
    expected = wanted(prepared, events)
    assert found == expected, f"{text}\n{events.to_pydict()}\n{[p.num_rows for p in pieces]}"
    return "matches" if expected else "nothing"


@pytest.mark.skipif(not UNCOMPILED, reason="thousands of queries would be compiled")
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(50))
def test_interruptions_change_no_match_of_random_queries(round, monkeypatch):
    outcomes = Counter()
    for seed in of_round(round, SEEDS_AT_ONCE):
        monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", (1, 2, 4, 1_024)[seed % 4])
        monkeypatch.setattr("ensue.engine.engine.FEW_CODES", (0, 4_096)[seed % 2])
        try:
            outcomes[assert_interrupted_case_is_exact(Random(f"interrupted {seed}"))] += 1
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert outcomes["matches"] > scaled(SEEDS_AT_ONCE) / 16, outcomes


@pytest.mark.parametrize("text", cases(CHOSEN, LIKE_OTHERS))
def test_interruptions_change_no_match(text, monkeypatch):
    monkeypatch.setattr("ensue.engine.engine.FEW_CODES", 0)
    monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", 2)
    random = Random(text)
    for nature in (PLAIN, Nature(nulls_from=5)):
        for _ in range(scaled(5)):
            events = random_events(random, random.randint(5, 10), nature)
            prepared = prepared_for(text, events, nature)
            pieces = [events.slice(row, 1) for row in range(events.num_rows)]
            found = interrupted(random, prepared, events, pieces)
            assert rows_of(prepared, found, events) == wanted(prepared, events)


# ------------------------------------------------------------------------------- endless streams

ENDLESS = {
    "stacks": "SEQ(A a, !C c, B b) WHERE [k] WITHIN 20",
    "stacks of texts": "SEQ(A a, B b) WHERE a.s = b.s WITHIN 20",
    "two keys": "SEQ(A a, B b) WHERE [k, s] WITHIN 20",
    "runs": "SEQ(A a, B+ b[]) WHERE skip_till_next_match(a, b[]) { [k] } WITHIN 20",
    "runs of texts": (
        "SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { b.s = a[1].s and a[i].s = a[i-1].s } WITHIN 20"
    ),
    "waiting": "SEQ(A a, B b, !C c) WHERE [k] and c.s != a.s WITHIN 20",
    "skipping": "SEQ(A a, B b) WHERE [k] WITHIN 20 AFTER MATCH SKIP PAST LAST EVENT",
    "in order of start": ("SEQ(A a, B b) WHERE [k] WITHIN 20 AFTER MATCH SKIP PAST LAST EVENT IN ORDER OF START"),
    "adjacent, in order of start": (
        "SEQ(A a, B b) WHERE partition_contiguity(a, b) { [k] } AFTER MATCH SKIP PAST LAST EVENT IN ORDER OF START"
    ),
    "skipping and waiting": ("SEQ(A a, B b, !C c) WHERE [k] and c.s != a.s WITHIN 20 AFTER MATCH SKIP PAST LAST EVENT"),
    "strict": "SEQ(A a, B b) WHERE strict_contiguity(a, b) { [k] }",
    "adjacent": "SEQ(A a, B b) WHERE partition_contiguity(a, b) { [k] }",
    "adjacent in a window": "SEQ(A a, B b) WHERE partition_contiguity(a, b) { [k] } WITHIN 20",
    "negation without a window": ("SEQ(A a, !C c, B b) WHERE skip_till_next_match(a, b) { c.k = b.k }"),
}


# of keys, codes, estimated and saved bytes, held rows, partial matches, bytes in memory
SLACK = np.array([50, 50, 1_500, 1_500, 20, 20, 1_500])


def ever_new(count: int) -> pa.Table:
    """Each key has a few events, soon one after the other, the last an X, and never comes back."""
    random = Random(count)
    kinds = [(row // 5, "ABCBX"[row % 5]) for row in range(count)]
    times = [row + (9 if kind == "X" else random.randint(0, 9)) for row, (_, kind) in enumerate(kinds)]
    events = sorted((t, key, kind) for t, (key, kind) in zip(times, kinds, strict=True))
    return pa.table(
        {
            "t": [t for t, _, _ in events],
            "type": [kind for _, _, kind in events],
            "k": [k for _, k, _ in events],
            "s": [f"text {k // 2}" for _, k, _ in events],
            "row": range(count),
        }
    )


@pytest.mark.parametrize(
    "tells_time", [pytest.param(True, id="time is told"), pytest.param(False, id="events", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "name",
    cases(
        dict(zip(ENDLESS, ENDLESS, strict=True)),
        ["stacks of texts", "runs of texts", "adjacent", "negation without a window"],
    ),
)
def test_the_state_of_an_endless_stream_is_bounded(name, tells_time, monkeypatch):
    events = ever_new(2_000)
    prepared = prepared_for(ENDLESS[name], events)
    expected = rows_of(prepared, given_by(prepared.engine(), [events]), events)
    assert len(expected) > 100
    monkeypatch.setattr("ensue.engine.engine.FEW_CODES", 64)
    monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", 16)
    engine, found, sizes = prepared.engine(), [], []
    for start in range(0, events.num_rows, 50):
        piece = events.slice(start, 50)
        found.append(engine.process(piece))
        if tells_time:
            found.append(engine.on_watermark(piece.column("t")[-1].as_py()))
        sizes.append(
            (
                len(engine.scan.keys),
                engine.scan.known,
                engine.usage.state_bytes,
                len(engine.snapshot()),
                len(engine.get_held_rows()),
                engine.usage.partial_matches,
                sum(table.nbytes for table in engine.state.tables.values()),
            )
        )
    found.append(engine.on_watermark(math.inf))
    assert rows_of(prepared, concat_matches(found, engine.program.source.output), events) == expected
    early, late = (np.array(part).max(axis=0) for part in (sizes[:20], sizes[20:]))
    assert (late <= 2 * early + SLACK).all(), (early, late)


def test_a_burst_leaves_no_room_behind(monkeypatch):
    monkeypatch.setattr("ensue.physical.structure.SPARSE", 64)
    count = 500
    text = "SEQ(A a, B+ b[]) WHERE skip_till_next_match(a, b[]) { [k] } WITHIN 20"
    burst = pa.table({"t": [0] * count, "type": ["A"] * count, "k": range(count)})
    prepared = prepared_for(text, burst)
    engine = prepared.engine()
    assert isinstance(engine, Engine)
    small = len(engine.snapshot())
    engine.process(burst)
    large = len(engine.snapshot())
    assert large > small + count * 20
    assert abs(engine.usage.state_bytes - large) < 0.2 * large
    engine.process(pa.table({"t": [15], "type": ["A"], "k": [-1]}))
    engine.on_watermark(20)
    assert engine.usage.partial_matches == count + 1
    engine.on_watermark(21)
    assert engine.usage.partial_matches == 1
    assert engine.get_held_rows().tolist() == [count]
    assert len(engine.snapshot()) < small + 200
    assert len(engine.scan.keys) == 1


@pytest.mark.parametrize("strategy", ["strict_contiguity", "partition_contiguity"])
def test_runs_that_missed_an_event_are_let_go(strategy):
    events = pa.table({"t": [0, 1, 2], "type": ["A", "X", "A"], "k": [1, 1, 2]})
    engine = prepared_for(f"SEQ(A a, B b) WHERE {strategy}(a, b) {{ [k] }}", events).engine()
    assert isinstance(engine, Engine)
    engine.process(events)
    engine.on_watermark(2)
    assert engine.get_held_rows().tolist() == [2]
    assert engine.usage.partial_matches == 1
    assert engine.process(pa.table({"t": [2], "type": ["B"], "k": [2]})).count == 1


def test_the_deadline_is_the_end_of_the_first_window():
    events = pa.table({"t": [0, 1, 2], "type": ["A", "A", "B"], "k": [1, 2, 1], "row": [0, 1, 2]})
    engine = prepared_for(WAITING, events).engine()
    assert isinstance(engine, Engine)
    assert engine.next_timer() is None
    engine.process(events.slice(0, 2))
    assert engine.next_timer() == 3
    engine.process(events.slice(2))  # forbids the first
    assert engine.next_timer() == 4
    assert engine.on_watermark(4).count == 0
    assert engine.process(pa.table({"t": [4], "type": ["B"], "k": [2], "row": [3]})).count == 0
    assert engine.next_timer() is None


def test_a_time_between_two_ticks_is_the_later_one():
    events = pa.table({"t": [-5], "type": ["A"], "k": [1], "row": [0]})
    engine = prepared_for(WAITING, events).engine()
    engine.process(events)
    assert engine.on_watermark(-2.0).count == 0
    assert engine.on_watermark(-1.5).count == 1  # no event at -2 comes any more


def test_a_long_sequence_is_exact():
    """More events than loops can be nested in Python."""
    count = 24
    parts = ", ".join(f"A a{n}" for n in range(count))
    text = f"SEQ({parts}) WHERE {' and '.join(f'a{n}.x = {n}' for n in range(count))}"
    events = pa.table({"t": range(count), "type": ["A"] * count, "x": range(count)})
    assert given_by(prepared_for(text, events).engine(), [events]).count == 1


def test_a_piece_without_events_gives_nothing():
    events = random_events(Random(1), 4)
    engine = prepared_for(CHOSEN["two events"], events).engine()
    assert engine.process(events.slice(0, 0)).count == 0
    assert engine.on_watermark(math.inf).count == 0


def test_a_table_in_disorder_is_ordered_before():
    events = random_events(Random(4), 10)
    shape = create_schema(events.schema, time="t", type="type", order=())
    shuffled = events.take(list(reversed(range(10))))
    assert sort_events(shuffled, shape).column("t").to_pylist() == events.column("t").to_pylist()
