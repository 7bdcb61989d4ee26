"""The compact structure counts, signs and lists exactly what the semantics says.

Compiled code sees few queries and many streams; with NUMBA_DISABLE_JIT=1 hundreds of random
queries run.
"""

import math
from collections import Counter
from random import Random

import numba
import numpy as np
import pyarrow as pa
import pytest

import ensue
from ensue import reference as semantics
from ensue.engine.engine import Engine
from ensue.engine.reference_events import read_events
from ensue.errors import QueryError
from ensue.ir.traversal import get_kleene_variables, iterate_atoms
from ensue.planner.physical_plan import CompactOutput, CompactPlan, PhysicalPlan, ReferencePlan
from ensue.planner.planner_options import PlannerOptions
from ensue.runtime.compiled_query import CompiledQuery, compile_query
from ensue.runtime.live_matcher import LiveMatcher
from ensue.vector.event_table import create_schema
from support.matching import match_in_order
from support.saving import restored
from support.seeds import of_round, scaled
from support.streams import PLAIN, REAL, STAMPS, Nature, random_events, random_slices

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore:no event is of type"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

UNCOMPILED = bool(numba.config.DISABLE_JIT)
ANSWERS = ("RETURN COUNT(*) AS n", "RETURN COUNT(*)", "RETURN EXISTS", "LIMIT 1", "LIMIT 2", "LIMIT 4", "")


# ------------------------------------------------------------------------------- random queries


def random_pattern(random: Random) -> str:
    """Single events, repeated ones and groups, judged one by one."""
    names = iter("pqrstuvwxyz")

    def part(depth: int) -> str:
        chance, type_ = random.random(), random.choice("ABC")
        if depth and chance < 0.1:
            return f"OR({part(0)}, SEQ({part(0)}, {part(0)}))"
        if depth and chance < 0.18:
            return f"AND({part(0)}, {part(0)})"
        if chance < 0.35:
            bounds = random.choice(("+", "*", "?", "{2}", "{1,2}", "{2,}", "{0,2}", "{2,3}"))
            return f"{type_}{bounds} {next(names)}"
        return f"{type_} {next(names)}"

    parts = [part(1) for _ in range(random.choice((1, 2, 2, 3, 3, 4)))]
    if random.random() < 0.2:
        parts = [f"{random.choice('ABC')} {next(names)}" for _ in range(random.randint(2, 4))]
        parts.insert(random.randint(1, len(parts) - 1), f"!{random.choice('ABCX')} n")
    return f"SEQ({', '.join(parts)})"


def random_text(random: Random, nature: Nature, answer: str) -> str:
    pattern = random_pattern(random)
    variables = [a.variable for a in iterate_atoms(ensue.parse(pattern).pattern)]
    conditions = ["[k]"] if random.random() < 0.4 else []
    for variable in variables:
        if random.random() < 0.3:
            several = variable in get_kleene_variables(ensue.parse(pattern).pattern)
            at = random.choice(("[i]", "[1]")) if several else ""
            conditions.append(f"{variable}{at}.x {random.choice(('>', '<', '!='))} 2")
    where = f" WHERE {' and '.join(conditions)}" if conditions else ""
    unit = " seconds" if nature.time == STAMPS else ""
    length = random.choice((f"2{unit}", f"4{unit}", f"7{unit}", "4 EVENTS", "6 EVENTS", ""))
    within = f" WITHIN {length}" if length else ""
    return f"{pattern}{where}{within} {answer}"


# ------------------------------------------------------------------------------- the comparison


def prepared_for(text: str, events: pa.Table, nature: Nature = PLAIN, off=()) -> CompiledQuery:
    """On the compact structure, if it can take the query."""
    shape = create_schema(events.schema, time=nature.columns, type="type", order=())
    try:
        return compile_query(ensue.parse(text), shape, PlannerOptions(structure="compact"), off=off)
    except QueryError as error:
        if not error.problem.startswith("structure="):
            raise
        return compile_query(ensue.parse(text), shape, off=off)


def judged(prepared: CompiledQuery, events: pa.Table) -> list[str]:
    """The result by the reference semantics."""
    physical, _ = prepared.shape.physical(prepared.query)
    plan = PhysicalPlan(physical, ReferencePlan("it is the judge"))
    return as_lines(match_in_order(CompiledQuery(prepared.query, plan, prepared.shape), events))


def as_lines(matches: pa.Table) -> list[str]:
    return sorted(map(str, matches.to_pylist()))


def in_pieces(random: Random, prepared: CompiledQuery, pieces: list[pa.Table]) -> list[str]:
    """The result of a stream in pieces, the matcher saved and restored now and then."""
    matcher, found = LiveMatcher(prepared), []
    for piece in pieces:
        found.append(matcher.process(piece))
        if piece.num_rows and random.random() < 0.3:
            found.append(matcher.on_watermark(matcher.engine.now))
        if random.random() < 0.3:
            matcher.engine.compact()
        if random.random() < 0.5:
            matcher = restored(prepared, matcher.snapshot())
    found.append(matcher.on_watermark(math.inf))
    return as_lines(pa.concat_tables(found))


def assert_random_case_is_exact(random: Random) -> str:
    nature = Nature(time=random.choice(("integer", "integer", REAL, STAMPS)), nulls_from=random.choice((None, None, 3)))
    answer = random.choice(ANSWERS)
    try:
        text = random_text(random, nature, answer)
    except QueryError:
        return "refused"
    some = False
    for _ in range(3):
        events = random_events(random, random.randint(1, 12), nature)
        try:
            prepared = prepared_for(text, events, nature)
        except QueryError:
            return "refused"
        expected = judged(prepared, events)
        given = in_pieces(random, prepared, random_slices(random, events))
        assert given == expected, f"{text}\n{events.to_pydict()}"
        if not isinstance(prepared.plan.structure, CompactPlan):
            return "another structure"
        engine = prepared.engine()
        assert isinstance(engine, Engine)
        whole = match_in_order(prepared, events)
        assert as_lines(whole) == expected, f"{text}\n{events.to_pydict()}"
        some = some or bool(expected)
    return "matches" if some else "nothing"


@pytest.mark.skipif(not UNCOMPILED, reason="hundreds of queries would be compiled")
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(16))
def test_random_queries_are_exact(round, monkeypatch):
    outcomes = Counter()
    for seed in of_round(round, 30):
        monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", (1, 2, 4, 1_024)[seed % 4])
        try:
            outcomes[assert_random_case_is_exact(Random(seed))] += 1
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert outcomes["matches"] > scaled(30) / 8, outcomes


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(4))
def test_some_random_queries_are_exact_compiled(seed, monkeypatch):
    monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", 4)
    assert_random_case_is_exact(Random(f"compiled {seed}"))


# ------------------------------------------------------------------------------- chosen queries

CHOSEN = {
    "single events": "SEQ(A a, B b, C c) WITHIN 6",
    "four of a key": "SEQ(A a, B b, A c, C d) WHERE [k] and b.x > 0 WITHIN 9",
    "one type": "SEQ(A a, A b, A c) WITHIN 4",
    "a window of events": "SEQ(A a, B b, C c) WHERE [k] WITHIN 5 EVENTS",
    "repeated": "SEQ(A a, B+ b[], C c) WHERE b[1].x > 1 WITHIN 6",
    "repeated at the end": "SEQ(A a, B{2,} b[]) WITHIN 5",
    "a set": "AND(A a, B b, C+ c[]) WITHIN 3",
    "one of two": "OR(A a, SEQ(B b, C c)) WITHIN 4",
    "no window": "SEQ(A a, B b, C c) WHERE [k]",
}
NEGATED = {
    "a negation": "SEQ(A a, !C n, B b) WHERE [k] WITHIN 7",
    "two negations": "SEQ(A a, !C n, B b, !A m, C c) WHERE n.x > 2 and m.x > 1 WITHIN 9",
    "events that are both": "SEQ(A a, !B n, B b, !C m, C c) WITHIN 8",
}


ANSWERS = ("RETURN COUNT(*)", "RETURN EXISTS", "LIMIT 3", "")
# what is compiled every day: each name and each answer; `make test-slow` has more of them
COMPILED = {
    "single events": ("RETURN COUNT(*)", "LIMIT 3"),
    "repeated": ("RETURN EXISTS", ""),
    "two negations": ("RETURN COUNT(*)",),
}


def _dear(name: str, answer: str) -> bool:
    return not UNCOMPILED and answer not in COMPILED.get(name, ())


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        pytest.param(name, answer, marks=pytest.mark.slow if _dear(name, answer) else ())
        for name in (*CHOSEN, *NEGATED)
        for answer in ANSWERS
    ],
)
def test_chosen_queries_are_exact(name, answer, monkeypatch):
    if name in NEGATED and not answer.startswith("RETURN"):
        pytest.skip("a negation is decided match by match")
    if not UNCOMPILED and name not in COMPILED:
        pytest.skip("these are run uncompiled")
    monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", 2)
    text, random = f"{(CHOSEN | NEGATED)[name]} {answer}", Random(name)
    for _ in range(3):
        events = random_events(random, 12)
        prepared = prepared_for(text, events)
        assert isinstance(prepared.plan.structure, CompactPlan)
        given = in_pieces(random, prepared, random_slices(random, events))
        assert given == judged(prepared, events), f"{text}\n{events.to_pydict()}"


def test_summaries_are_those_of_the_semantics():
    random = Random(7)
    for answer in ("RETURN COUNT(*) AS n", "RETURN EXISTS"):
        for pattern in (CHOSEN["single events"], CHOSEN["repeated"], NEGATED["a negation"]):
            events = random_events(random, 12)
            prepared = prepared_for(f"{pattern} {answer}", events)
            schema, unit = prepared.shape.schema, prepared.shape.unit
            expected = semantics.summarize_matches(prepared.query, read_events(events, schema, unit))
            found = match_in_order(prepared, events).to_pylist()
            given = [(row["start"], row["end"], row.get("n")) for row in found]
            counts = [s.count if "n" in answer else None for s in expected]
            assert given == [(s.start, s.trigger.end, n) for s, n in zip(expected, counts, strict=True)]


# ------------------------------------------------------------------------------- long streams


def dense(count: int, seed: int, keys: int = 1) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "t": np.arange(count),
            "type": np.array(list("ABC"))[random.integers(0, 3, count)],
            "k": random.integers(0, keys, count),
        }
    )


@pytest.mark.parametrize("keys", [1, 40])
def test_a_long_stream_is_counted_as_stacks_list_it(keys, monkeypatch):
    """Long enough that the queue turns often, in one piece and in many."""
    events = dense(600 if UNCOMPILED else 5_000, 3, keys)
    pattern = f"SEQ(A a, B b, C c) WHERE [k] WITHIN {25 * keys}"
    random = Random(1)
    for answer in ("RETURN COUNT(*) AS n, c.t", "RETURN EXISTS, c.t", "LIMIT 5"):
        text = f"{pattern} {answer}"
        other = prepared_for(text, events, off=["compact"])
        assert not isinstance(other.plan.structure, CompactPlan)
        expected = as_lines(match_in_order(other, events))
        assert len(expected) > 100
        prepared = prepared_for(text, events)
        assert isinstance(prepared.plan.structure, CompactPlan)
        assert as_lines(match_in_order(prepared, events)) == expected
        monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", 2)
        pieces = [events.slice(k, 97) for k in range(0, events.num_rows, 97)]
        assert in_pieces(random, prepared, pieces) == expected


def test_numbers_beyond_64_bits_are_the_largest_there_is():
    count = 400
    events = pa.table({"t": range(count), "type": ["A"] * (count - 1) + ["B"]})
    found = ensue.match(events, "SEQ(A+ a[], B b) WITHIN 1000 RETURN COUNT(*) AS n", time="t", type="type")
    assert found.column("n").to_pylist() == [2**63 - 1]
    few = ensue.match(
        events.slice(count - 51), "SEQ(A+ a[], B b) WITHIN 1000 RETURN COUNT(*) AS n", time="t", type="type"
    )
    assert few.column("n").to_pylist() == [2**50 - 1]


def test_what_is_kept_does_not_grow_with_the_stream():
    for answer, most in (("RETURN COUNT(*)", 400), ("RETURN EXISTS", 3), ("LIMIT 2", 400)):
        matcher = LiveMatcher(prepared_for(f"SEQ(A a, B b, C c) WITHIN 100 {answer}", dense(1, 1)))
        events, kept = dense(3_000, 5), []
        for start in range(0, 3_000, 250):
            matcher.process(events.slice(start, 250))
            kept.append(matcher.engine.usage.partial_matches)
            matcher.snapshot()  # which lets go what is not needed
            assert len(matcher.store) <= most
        assert max(kept) <= most


@pytest.mark.parametrize("answer", ["RETURN COUNT(*)", "RETURN EXISTS", "LIMIT 2"])
def test_keys_that_are_gone_are_forgotten(answer, monkeypatch):
    monkeypatch.setattr("ensue.engine.engine.FEW_CODES", 10)
    monkeypatch.setattr("ensue.runtime.live_matcher.FEW", 0)  # every slice is looked through
    count = 2_000
    events = pa.table({"t": range(count), "type": ["A", "B"] * (count // 2), "k": [i // 2 for i in range(count)]})
    prepared = prepared_for(f"SEQ(A a, B b) WHERE [k] WITHIN 20 {answer}", events)
    matcher, found = LiveMatcher(prepared), 0
    for start in range(0, count, 50):
        found += matcher.process(events.slice(start, 50)).num_rows
    assert found == count // 2
    assert len(matcher.engine.scan.keys) < 200


def test_the_answer_says_which_kernel():
    events = dense(3, 1)
    for answer, kind in {
        "RETURN COUNT(*)": CompactOutput.COUNT,
        "RETURN EXISTS": CompactOutput.EXISTS,
        "LIMIT 3": CompactOutput.MATCHES,
    }.items():
        structure = prepared_for(f"SEQ(A a, B b) WITHIN 5 {answer}", events).plan.structure
        assert isinstance(structure, CompactPlan)
        assert structure.answer is kind
