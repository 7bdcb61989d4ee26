"""A plan that changes while the stream runs loses no match and repeats none."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from random import Random

import numba
import pyarrow as pa
import pytest

from ensue import reference as semantics
from ensue.analyzer.output_mode import is_summarized
from ensue.engine.adaptive import AdaptiveEngine, Advice, why_not_adaptive
from ensue.engine.engine import Engine
from ensue.engine.match_output import concat_matches
from ensue.engine.reference_events import read_events
from ensue.errors import QueryError
from ensue.parser.pattern_parser import parse
from ensue.planner.physical_plan import PhysicalPlan
from ensue.planner.planner_options import PlannerOptions
from ensue.runtime.compiled_query import CompiledQuery, build_result, compile_query
from ensue.vector.event_table import create_schema
from support.negations import random_negations
from support.queries import random_query, random_repeats
from support.seeds import of_round, scaled
from support.streams import PLAIN, Nature, random_events, random_nature, random_slices

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

UNCOMPILED = bool(numba.config.DISABLE_JIT)
CHOICES = ("stacks", "window", "push_negation")
STRUCTURES = ("runs", "tree", "compact")


class Given:
    """An adviser that changes between plans when it is told to: at rows of the stream."""

    def __init__(self, plans: Sequence[PhysicalPlan], rows: Sequence[int]) -> None:
        self.plans = list(plans)
        self.rows = sorted(rows)

    def advise(self, engine: Engine, _recent: pa.Table) -> Advice | None:
        passed = sum(row <= engine.rows for row in self.rows)
        number = passed % len(self.plans)
        plan = self.plans[number]
        if plan == engine.program.plan:
            return None
        return Advice(plan, str(number), f"{passed} of the given rows have passed")

    def recall(self, memo: str) -> PhysicalPlan:
        return self.plans[int(memo)]


def plans_of(text: str, events: pa.Table, nature: Nature) -> tuple[CompiledQuery, list[PhysicalPlan]]:
    """A query, and plans of it that may follow each other."""
    shape = create_schema(events.schema, time=nature.columns, type="type", order=())
    prepared = compile_query(parse(text), shape)
    planned = [
        PlannerOptions(off=frozenset(off))
        for number in range(len(CHOICES) + 1)
        for off in combinations(CHOICES, number)
    ]
    planned += [PlannerOptions(structure=structure) for structure in STRUCTURES]
    plans = [prepared.plan]
    for planning in planned:
        try:
            plan = compile_query(parse(text), shape, planning).plan
        except QueryError:  # no such structure for this query
            continue
        if plan not in plans and plan.residual == prepared.plan.residual:
            plans.append(plan)
    return prepared, plans


def found_while_changing(
    random: Random, prepared: CompiledQuery, plans: list[PhysicalPlan], events: pa.Table
) -> tuple[list[str], int]:
    """The ids of the matches, and how often the plan changed."""
    _, schema = prepared.shape.physical(prepared.query)
    rows = [random.randint(0, events.num_rows) for _ in range(random.randint(0, 6))]
    plans = [plans[0], *random.sample(plans[1:], len(plans) - 1)]

    def engine() -> AdaptiveEngine:
        return AdaptiveEngine(plans[0], schema, prepared.shape.unit, Given(plans, rows))

    at_work, found = engine(), []
    for piece in random_slices(random, events):
        found.append(at_work.process(piece))
        if random.random() < 0.3:
            data, at_work = at_work.snapshot(), engine()
            at_work.restore(data)
        if random.random() < 0.3 and piece.num_rows and at_work.engine.now is not None:
            found.append(at_work.on_watermark(at_work.engine.now))
    found.append(at_work.on_watermark(math.inf))
    matches = concat_matches(found, at_work.program.source.output)
    table = build_result(prepared, matches, events)
    return sorted(table.column("match_id").to_pylist()), len(at_work.changes)


def number_wanted(prepared: CompiledQuery, events: pa.Table) -> int:
    schema, unit = prepared.shape.schema, prepared.shape.unit
    given = read_events(events, schema, unit)
    if is_summarized(prepared.query):
        return len(semantics.summarize_matches(prepared.query, given))
    return len(semantics.find_matches(prepared.query, given))


def assert_changes_do_not_matter(random: Random) -> str:
    nature = random_nature(random)
    writers = (random_query, random_query, random_repeats, random_negations)
    text = random.choice(writers)(random, nature)
    events = random_events(random, random.randint(4, 12), nature)
    try:
        prepared, plans = plans_of(text, events, nature)
    except QueryError:
        return "refused"
    if why_not_adaptive(prepared.plan) is not None:
        return "not adaptive"
    ids, changes = found_while_changing(random, prepared, plans, events)
    assert len(ids) == number_wanted(prepared, events), text
    assert len(set(ids)) == len(ids), text
    if not changes:
        return "unchanged"
    return "changed with matches" if ids else "changed"


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("block", range(27 if UNCOMPILED else 1))
def test_changes_at_random_points_change_no_match(block, monkeypatch):
    monkeypatch.setattr("ensue.engine.adaptive.PIECE", 2)
    monkeypatch.setattr("ensue.engine.adaptive.FEW", 0)
    seeds = of_round(block, 30 if UNCOMPILED else 4)
    outcomes = Counter(assert_changes_do_not_matter(Random(seed)) for seed in seeds)
    if UNCOMPILED:
        assert outcomes["changed with matches"] > 1, outcomes


CHOSEN = {
    "any": "SEQ(A a, B b, C c) WHERE [k] and a.x < b.x WITHIN 6",
    "next": "SEQ(A a, B b) WHERE skip_till_next_match(a, b) { [k] and a.x < b.x } WITHIN 6",
    "absence": "SEQ(A a, !B b) WHERE [k] WITHIN 3",
    "absence between": "SEQ(A a, !B b, C c) WHERE [k] and b.x > a.x WITHIN 6",
    "absence pushed": "SEQ(A a, !B b, C c, A d) WHERE [k] WITHIN 6",
    "absence in AND": "AND(A a, !B b, C c) WITHIN 5",
    "absence of several events": "SEQ(A a, !SEQ(B b, C c), A d) WHERE b.x > a.x WITHIN 8",
    "kleene": "SEQ(A+ a[], B b) WHERE [k] and a[i].x >= a[i-1].x WITHIN 5",
    "complex absence": "SEQ(A a, !SEQ(B b, B c), C d) WHERE [k] and b.x > a.x WITHIN 8",
    "in any order": "AND(A a, B b, C c) WHERE [k] and a.x < b.x WITHIN 6",
    "limit": "SEQ(A a, B b, C c) WHERE [k] WITHIN 6 LIMIT 2",
    "after": "SEQ(A a, B b) WHERE [k] WITHIN 6 AFTER MATCH SKIP PAST LAST EVENT",
    "events": "SEQ(A a, B b, C c) WHERE [k] and a.x <= b.x WITHIN 6 EVENTS",
    "events, no key": "SEQ(A a, B b, C c) WHERE a.x <= b.x WITHIN 8 EVENTS",
    "events, next": "SEQ(A a, B b) WHERE skip_till_next_match(a, b) { [k] } WITHIN 6 EVENTS",
    "events, kleene": "SEQ(A+ a[], B b) WHERE [k] WITHIN 4 EVENTS",
    "events, absence": "SEQ(A a, !B b) WHERE [k] WITHIN 3 EVENTS",
    "events, absence before": "SEQ(!A a, B b, C c) WHERE [k] WITHIN 5 EVENTS",
    "events, absence between": "SEQ(A a, !B b, C c) WHERE [k] and b.x > a.x WITHIN 6 EVENTS",
    "events, after": "SEQ(A a, B b) WHERE [k] WITHIN 6 EVENTS AFTER MATCH SKIP PAST LAST EVENT",
    "count": "SEQ(A a, B b, C c) WHERE [k] and a.x <= b.x WITHIN 6 RETURN COUNT(*)",
    "events, exists": "SEQ(A a, B b, C c) WHERE [k] and a.x <= b.x WITHIN 6 EVENTS RETURN EXISTS",
}


@pytest.mark.parametrize(
    "text",
    [
        # each has a dozen kernels to compile
        pytest.param(text, id=name, marks=pytest.mark.skipif("," in name and not UNCOMPILED, reason="slow"))
        for name, text in CHOSEN.items()
    ],
)
def test_changes_of_chosen_queries(text, monkeypatch):
    monkeypatch.setattr("ensue.engine.adaptive.PIECE", 3)
    monkeypatch.setattr("ensue.engine.adaptive.FEW", 0)
    random, changed = Random(text), 0
    for _ in range(scaled(6)):
        events = random_events(random, 20 if "kleene" not in text else 12, PLAIN)
        prepared, plans = plans_of(text, events, PLAIN)
        ids, changes = found_while_changing(random, prepared, plans, events)
        assert len(ids) == number_wanted(prepared, events)
        assert len(set(ids)) == len(ids)
        changed += changes
    assert changed


APART = "SEQ(A a, B b, C c) WHERE [k] and a.x <= b.x WITHIN 4 EVENTS"


def of_two_keys() -> pa.Table:
    """Two events of one key, many of another, and then one that completes a match of the first."""
    keys = [1, 1, *[2] * 30, 1, 2]
    types = ["A", "B", *["A", "X", "B"] * 10, "C", "C"]
    rows = range(len(keys))
    return pa.table({"t": rows, "row": rows, "type": types, "x": [1] * len(keys), "k": keys})


def test_a_partition_may_be_silent_for_longer_than_others_are_remembered(monkeypatch):
    monkeypatch.setattr("ensue.engine.adaptive.PIECE", 5)
    monkeypatch.setattr("ensue.engine.adaptive.FEW", 0)
    events = of_two_keys()
    prepared, plans = plans_of(APART, events, PLAIN)
    _, schema = prepared.shape.physical(prepared.query)
    engine = AdaptiveEngine(plans[0], schema, prepared.shape.unit, Given(plans, [10, 20]))
    found = [engine.process(events.slice(0, 32))]
    assert len(engine.changes) == 2
    assert {0, 1} <= set(engine.get_held_rows().tolist())
    data, engine = (engine.snapshot(), AdaptiveEngine(plans[0], schema, prepared.shape.unit, Given(plans, [10, 20])))
    engine.restore(data)
    found.append(engine.process(events.slice(32)))
    matches = concat_matches(found, engine.program.source.output)
    rows = sorted(zip(*(matches.rows[v].tolist() for v in "abc"), strict=True))
    assert rows[0] == (0, 1, 32)
    assert len(rows) == number_wanted(prepared, events)


def test_a_new_plan_asks_for_no_event_that_the_one_before_it_let_go(monkeypatch):
    """Stacks keep a B that no A stands before; runs do not, and its event is gone."""
    monkeypatch.setattr("ensue.engine.adaptive.PIECE", 2)
    events = pa.table({"t": range(5), "row": range(5), "type": list("BBABC"), "x": [1] * 5})
    shape = create_schema(events.schema, time="t", type="type", order=())
    text = parse("SEQ(A a, B b, C c) WITHIN 9")
    prepared = compile_query(text, shape, PlannerOptions(structure="runs"))
    plans = [prepared.plan, compile_query(text, shape, PlannerOptions(structure="stacks")).plan]
    _, schema = shape.physical(prepared.query)
    engine = AdaptiveEngine(plans[0], schema, shape.unit, Given(plans, [4]))
    engine.process(events.slice(0, 2))
    assert engine.get_held_rows().tolist() == []
    engine.process(events.slice(2, 2))
    assert len(engine.changes) == 1
    data, engine = engine.snapshot(), AdaptiveEngine(plans[0], schema, shape.unit, Given(plans, [4]))
    engine.restore(data)
    assert engine.get_held_rows().tolist() == [2, 3]
    assert engine.process(events.slice(4)).count == 1


def test_with_too_many_partitions_the_plan_stays(monkeypatch):
    monkeypatch.setattr("ensue.engine.adaptive.PIECE", 5)
    monkeypatch.setattr("ensue.engine.adaptive.FEW", 0)
    monkeypatch.setattr("ensue.engine.adaptive.MOST", 5)
    events = of_two_keys()
    prepared, plans = plans_of(APART, events, PLAIN)
    _, schema = prepared.shape.physical(prepared.query)

    def new() -> AdaptiveEngine:
        return AdaptiveEngine(plans[0], schema, prepared.shape.unit, Given(plans, [5, 25]))

    engine, count = new(), 0
    for begin in range(0, events.num_rows, 10):
        count += engine.process(events.slice(begin, 10)).count
        data, engine = engine.snapshot(), new()
        engine.restore(data)
    assert count + engine.on_watermark(math.inf).count == number_wanted(prepared, events)
    assert [change.row for change in engine.changes] == [5]


def test_a_change_is_remembered_with_its_reason(caplog):
    caplog.set_level("INFO", "ensue.plan")
    events = random_events(Random(1), 6, PLAIN)
    prepared, plans = plans_of(CHOSEN["any"], events, PLAIN)
    _, schema = prepared.shape.physical(prepared.query)
    engine = AdaptiveEngine(plans[0], schema, prepared.shape.unit, Given(plans, [3]))
    engine.process(events)
    (change,) = engine.changes
    assert (change.row, change.reason) == (6, "1 of the given rows have passed")
    assert "plan changed at event 6" in caplog.text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SEQ(A a, B b)", "WITHIN"),
        ("SEQ(A a, B b) WITHIN 5 RETURN COUNT(*)", "only one plan can count"),
        ("SEQ(A a, B b) WITHIN 5 RETURN EXISTS", "only one plan can count"),
    ],
)
def test_a_plan_without_an_end_in_time_stays(text, reason):
    events = random_events(Random(1), 6, PLAIN)
    prepared, _ = plans_of(text, events, PLAIN)
    assert reason in str(why_not_adaptive(prepared.plan))


# ------------------------------------------------------------------------------- drift

DRIFTING = "SEQ(A a, B b) WHERE a.x * a.x + a.x > b.x * b.x + b.x + 90 and a.y * a.y > b.y * b.y + 90 WITHIN "


def drifting(count: int) -> pa.Table:
    """In the first half of the stream x is what passes rarely, in the second half y is."""
    random = Random(2)
    half = count // 2
    rows = [
        {
            "t": k,
            "row": k,
            "type": random.choice("AB"),
            "x": random.choice((0, 0, 0, 0, 0, 0, 0, 10) if k < half else (10, 10, 10, 0)),
            "y": random.choice((10, 10, 10, 0) if k < half else (0, 0, 0, 0, 0, 0, 0, 10)),
        }
        for k in range(count)
    ]
    for row in rows:  # a passes against most of b, or against few
        if row["type"] == "B":
            row["x"], row["y"] = 0, 0
    return pa.Table.from_pylist(rows)


@pytest.mark.parametrize("window", ["60", "60 EVENTS"])
@pytest.mark.parametrize("saved", [False, True])
def test_a_plan_follows_the_stream(saved, window, monkeypatch):
    monkeypatch.setattr("ensue.engine.adaptive.PIECE", 100)
    monkeypatch.setattr("ensue.engine.adaptive.LEAST", 200)
    monkeypatch.setattr("ensue.engine.adaptive.GAIN", 0.05)
    events = drifting(1_200)
    shape = create_schema(events.schema, time="t", type="type", order=())
    text = DRIFTING + window
    prepared = compile_query(parse(text), shape, PlannerOptions(adaptive=True))
    engine = prepared.engine()
    assert isinstance(engine, AdaptiveEngine)
    found = []
    for begin in range(0, 1_200, 150):
        found.append(engine.process(events.slice(begin, 150)))
        if saved:
            data, engine = engine.snapshot(), prepared.engine()
            engine.restore(data)
    found.append(engine.on_watermark(math.inf))
    still = compile_query(parse(text), shape).engine()
    assert concat_matches(found, engine.program.source.output).count == still.process(events).count > 0
    late = [c for c in engine.changes if c.row > 600]
    assert late, "the plan should have changed after the stream did"
    assert "estimated cost of an event" in late[0].reason
