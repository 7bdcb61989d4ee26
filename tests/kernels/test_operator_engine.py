"""Queries with operators of users: however a stream is cut, the matches of the semantics."""

import math
from collections import Counter
from random import Random

import numba
import numpy as np
import pyarrow as pa
import pytest

import ensue
from ensue import reference as semantics
from ensue.engine.adaptive import why_not_adaptive
from ensue.engine.reference_events import read_events
from ensue.errors import QueryError
from ensue.planner.physical_plan import ReferencePlan
from ensue.planner.planner_options import DEFAULT_OPTIONS, PlannerOptions
from ensue.projection.operator_results import compute_results
from ensue.runtime.compiled_query import CompiledQuery, compile_query
from ensue.vector.event_table import create_schema, get_end_times
from ensue.vector.match_rows import Matches
from support.restless import Restless, restless
from support.seeds import of_round, scaled
from support.streams import FINE, PLAIN, STAMPS, Nature, random_events, random_nature, random_slices

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

UNCOMPILED = bool(numba.config.DISABLE_JIT)

OPERATORS = [
    ensue.operator("follows"),
    ensue.operator("rising", q=lambda a, b: a.x < b.x),
    ensue.operator("near", q=lambda a, b, by: b.start - a.end <= by),
    ensue.operator(
        "instant",
        q=lambda a, b: a.y <= b.y,
        f=lambda a, b: (b.end, b.end, (a.y + b.y) / 2, a.x),
        z={"mid": "float", "low": "integer"},
    ),
    ensue.operator("rise", f=lambda a, b: (a.start, b.end, b.x - a.x), z={"by": "integer"}),
    ensue.operator("early", f=lambda a, b: (a.start, a.start, a.x < b.x), z={"up": "boolean"}),
    ensue.operator("halfway", f=lambda a, b: ((a.start + b.end) // 2, b.end + 5), order="any"),
    ensue.operator(
        "big",
        over="each",
        q=lambda e, least: e.x >= least,
        f=lambda e: (e.start, e.end, e.x * 2),
        z={"twice": "integer"},
    ),
    ensue.operator("dedup", over="repeat", q=lambda r, e, t: e.start - r.start >= t),
    ensue.operator(
        "record",
        over="repeat",
        q=lambda last, e: e.x > last.top,
        f=lambda e: (e.start, e.end, e.x),
        z={"top": "integer"},
    ),
]
ATTRIBUTES = {
    "instant": ["mid", "low"],
    "rise": ["by", "by"],
    "big": ["twice", "x"],
    "record": ["top", "x"],
    "dedup": ["x", "y"],
}


class Writer:
    """Writes one query, and keeps the numbers that its conditions may compare."""

    def __init__(self, random: Random, nature: Nature) -> None:
        self.random = random
        self.nature = nature
        self.numbers: list[str] = []
        self.count = 0

    def query(self) -> str:
        part = self.result(0)
        others = [self.part() for _ in range(self.random.choice([0, 1, 1, 2]))]
        parts = [part, *others]
        self.random.shuffle(parts)
        if self.random.random() < 0.2 and len(parts) > 1:
            parts.insert(self.random.randint(0, len(parts)), f"!C {self.name()}")
        group = self.random.choice(["SEQ", "SEQ", "SEQ", "AND"])
        text = f"{group}({', '.join(parts)})" if len(parts) > 1 else parts[0]
        conditions = ["[k]"] if self.random.random() < 0.3 else []
        conditions += [self.condition() for _ in range(self.random.choice([0, 0, 0, 1, 2]))]
        text += f" WHERE {' and '.join(conditions)}" if conditions else ""
        length = self.random.choice([3, 6, 9])
        text += f" WITHIN {length}" + (" seconds" if self.calendar else "")
        if self.random.random() < 0.1:
            text += " AFTER MATCH SKIP PAST LAST EVENT"
        return text

    @property
    def calendar(self) -> bool:
        return self.nature.time in (STAMPS, FINE)

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def part(self) -> str:
        return self.event() if self.random.random() < 0.7 else self.result(0)

    def event(self) -> str:
        name = self.name()
        self.numbers += [f"{name}.x", f"{name}.y"]
        return f"{self.random.choice('ABC')} {name}"

    def result(self, depth: int, *, fields: bool = False) -> str:
        """A result; with `fields` one that has those of an event."""
        choices = [o for o in OPERATORS if not fields or o.over.inputs == 1]
        operator = self.random.choice(choices)
        needs = bool({"x", "y"} & operator.reads)
        nested = depth < 1 and operator.over.value != "repeat" and self.random.random() < 0.25
        inside = [
            self.result(depth + 1, fields=needs) if nested and self.random.random() < 0.6 else self.event()
            for _ in range(operator.over.inputs)
        ]
        if operator.parameters:
            unit = " seconds" if self.calendar and operator.name != "big" else ""
            inside.append(f"{self.random.randint(0, 4)}{unit}")
        name = self.name()
        attributes = ATTRIBUTES.get(operator.name, [])
        self.numbers += [f"{name}.{attribute}" for attribute in attributes]
        return f"{operator.name}({', '.join(inside)}) {name}"

    def condition(self) -> str:
        left = self.random.choice(self.numbers or ["1"])
        right = self.random.choice([*self.numbers, str(self.random.randint(0, 3))])
        return f"{left} {self.random.choice(['<', '<=', '>', '='])} {right}"


# ------------------------------------------------------------------------------- the comparison


def prepared_for(
    text: str, events: pa.Table, nature: Nature = PLAIN, planning: PlannerOptions = DEFAULT_OPTIONS
) -> CompiledQuery:
    shape = create_schema(events.schema, time=nature.columns, type="type", order=())
    return compile_query(ensue.parse(text, definitions=OPERATORS), shape, planning)


def wanted(prepared: CompiledQuery, events: pa.Table) -> list[tuple]:
    """The matches by the reference semantics, in its order."""
    query, schema = prepared.shape.physical(prepared.query)
    found = semantics.find_matches(query, read_events(events, schema, prepared.shape.unit))
    return [_written({v: [e.position for e in es if not e.made_of] for v, es in b.items()}) for b in found]


def results_wanted(prepared: CompiledQuery, events: pa.Table) -> dict[tuple, dict]:
    """By match, what the semantics says of its results, as the engine's numbers."""
    query, schema = prepared.shape.physical(prepared.query)
    scale = 1 if schema.time_kind.numeric or prepared.shape.unit == "ns" else 1_000
    found = {}
    for binding in semantics.find_matches(query, read_events(events, schema, prepared.shape.unit)):
        rows = {v: [e.position for e in es if not e.made_of] for v, es in binding.items()}
        found[_written(rows)] = {
            v: [e.start // scale if scale > 1 else e.start, e.end // scale if scale > 1 else e.end]
            + [float(value) for value in e.numbers.values()]
            for v, (e, *_) in binding.items()
            if e.made_of
        }
    return found


def results_given(prepared: CompiledQuery, found: list[Matches], events: pa.Table) -> dict[tuple, dict]:
    """By match, what the loop over matches makes of them."""
    query, schema = prepared.shape.physical(prepared.query)
    given = {}
    for matches in found:
        numbers, there = compute_results(query.pattern, schema, prepared.shape.unit, matches, events, python=False)
        for k, match in enumerate(written([matches])):
            given[match] = {v: [] for v in there if there[v][k]}
            for (v, _), values in numbers.items():
                if v in given[match]:
                    given[match][v].append(float(values[k]))
    return given


def given(prepared: CompiledQuery, pieces: list[pa.Table], random: Random) -> list[Matches]:
    """What an engine finds that is told the time, and saved and restored, on the way."""
    engine = prepared.engine()
    found = []
    for piece in pieces:
        found.append(engine.process(piece))
        if piece.num_rows and random.random() < 0.5:
            found.append(engine.on_watermark(get_end_times(piece, prepared.shape)[-1].item()))
        if random.random() < 0.3:
            state = engine.snapshot()
            engine = prepared.engine()
            engine.restore(state)
    return [*found, engine.on_watermark(math.inf)]


def written(found: list[Matches]) -> list[tuple]:
    rows = []
    for matches in found:
        segments = {v: matches.segments(v) for v in matches.variables}
        rows += [
            _written({v: at[o[k] : o[k + 1]].tolist() for v, (o, at) in segments.items()}) for k in range(matches.count)
        ]
    return rows


def _written(binding: dict[str, list[int]]) -> tuple:
    return tuple(sorted((v, tuple(rows)) for v, rows in binding.items() if rows))


def assert_random_case_is_exact(random: Random, planning: PlannerOptions = DEFAULT_OPTIONS) -> str:
    nature = random_nature(random)
    text = Writer(random, nature).query()
    there = False
    for _ in range(3):
        events = random_events(random, random.randint(4, 12), nature)
        try:
            prepared = prepared_for(text, events, nature, planning)
        except QueryError:
            return "refused"
        if prepared.plan.residual:
            return "residual"
        pieces = random_slices(random, events)
        expected = wanted(prepared, events)
        there = there or bool(expected)
        matches = given(prepared, pieces, random)
        found = written(matches)
        assert sorted(found) == sorted(expected), f"{text}\n{events.to_pydict()}"
        made = results_given(prepared, matches, events)
        assert repr(made) == repr_of(results_wanted(prepared, events), made), text
    if isinstance(prepared.plan.structure, ReferencePlan):
        return "reference" if there else "nothing by reference"
    return "matches" if there else "nothing"


def repr_of(wanted: dict[tuple, dict], order: dict[tuple, dict]) -> str:
    """In the order of another one, with all numbers as floats: NaN equals NaN in a text."""
    return repr({m: {v: [float(x) for x in wanted[m][v]] for v in made} for m, made in order.items()})


SEEDS_AT_ONCE = 20


@pytest.mark.skipif(not UNCOMPILED, reason="hundreds of queries would be compiled")
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(40))
def test_random_operators_are_exact(round, monkeypatch):
    outcomes = Counter()
    for seed in of_round(round, SEEDS_AT_ONCE):
        monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", (1, 2, 4, 1_024)[seed % 4])
        try:
            outcomes[assert_random_case_is_exact(Random(seed))] += 1
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert outcomes["matches"] + outcomes["reference"] > scaled(SEEDS_AT_ONCE) / 16, outcomes
    assert outcomes["refused"] < SEEDS_AT_ONCE / 8, outcomes


@pytest.mark.skipif(not UNCOMPILED, reason="hundreds of queries would be compiled")
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(40))
def test_random_operators_are_exact_while_their_plans_change(round, monkeypatch):
    planning = restless(monkeypatch, 1 + round % 4)
    for seed in of_round(round, SEEDS_AT_ONCE):
        try:
            assert_random_case_is_exact(Random(seed), planning)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert Restless.changes > 20


def test_the_plan_of_a_repeat_stays():
    events = random_events(Random(1), 6, PLAIN)
    plan = prepared_for("SEQ(dedup(A a, 3) d, B b) WITHIN 5", events).plan
    assert "may be older than the window" in str(why_not_adaptive(plan))


def test_a_sequence_of_ones_own_is_the_built_in_one():
    """With the same order at equal times, also where it is nested."""
    random = Random(3)
    for _ in range(scaled(100)):
        events = random_events(random, random.randint(1, 9), random_nature(random))
        table = events.set_column(events.column_names.index("t"), "t", pa.array(np.arange(events.num_rows) // 3))
        for own, built_in in (
            ("SEQ(A a, follows(B b, C c) r)", "SEQ(A a, SEQ(B b, C c))"),
            ("SEQ(follows(A a, B b) r, C c)", "SEQ(SEQ(A a, B b), C c)"),
            ("follows(follows(A a, B b) r, C c) s", "SEQ(A a, B b, C c)"),
        ):
            expected = wanted(prepared_for(built_in + " WITHIN 5", table), table)
            assert wanted(prepared_for(own + " WITHIN 5", table), table) == expected
