"""No choice of the planner changes a match: random queries, statistics and rules switched off."""

import math
from collections import Counter
from dataclasses import replace
from random import Random

import numba
import pytest

from ensue.errors import QueryError
from ensue.ir.traversal import iterate_atoms
from ensue.parser.pattern_parser import parse
from ensue.planner.planner import get_structure_name
from ensue.planner.planner_options import STRUCTURES, PlannerOptions, list_switches
from ensue.planner.statistics import Statistics
from ensue.printing.expression_printer import format_condition
from ensue.runtime.compiled_query import build_result, compile_query
from ensue.vector.event_table import create_schema
from support.queries import random_query, random_repeats
from support.seeds import of_round
from support.streams import PLAIN, random_events, random_nature, random_slices

pytestmark = [pytest.mark.kernels, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
UNCOMPILED = bool(numba.config.DISABLE_JIT)
SEEDS_AT_ONCE = 40


def random_planning(random: Random, query) -> PlannerOptions:
    """Statistics that have nothing to do with the stream, and some rules left out."""
    chances = {format_condition(c): random.random() for c in query.where}
    rates = {a.type: random.choice((0.01, 1, 100)) for a in iterate_atoms(query.pattern)}
    known = Statistics.given(rates=rates, passes=chances, partitions=random.choice((1, 50)))
    off = {name for name in list_switches() if random.random() < 0.15}
    structure = random.choice((*[None] * 6, *STRUCTURES))
    return PlannerOptions(statistics=random.choice((known, known, Statistics())), off=off, structure=structure)


def outcome_of(random: Random) -> str:
    nature = random_nature(random)
    text = random.choice((random_query, random_query, random_repeats))(random, nature)
    events = random_events(random, random.randint(1, 9), nature)
    shape = create_schema(events.schema, time=nature.columns, type="type", order=())
    try:
        query = parse(text)
        prepared = compile_query(query, shape, random_planning(random, query))
    except QueryError as error:
        return "no structure" if "structure=" in str(error) else "refused"
    pieces = random_slices(random, events)
    found = matches_of(prepared, pieces, events, counted=random.random() < 0.5)
    expected = matches_of(compile_query(query, shape), [events], events)
    assert found == expected, f"{text}\n{prepared.plan}\n{events.to_pydict()}"
    return get_structure_name(prepared.plan.structure) if expected else "nothing"


def matches_of(prepared, pieces, events, *, counted=False) -> list[str]:
    engine = prepared.engine(counted=counted)
    found = [engine.process(piece) for piece in pieces]
    tables = [build_result(prepared, f, events) for f in (*found, engine.on_watermark(math.inf))]
    return sorted(match for table in tables for match in table["match_id"].to_pylist())


@pytest.mark.skipif(not UNCOMPILED, reason="thousands of queries would be compiled")
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(24))
def test_no_choice_of_the_planner_changes_a_match(round):
    outcomes = Counter()
    for seed in of_round(round, SEEDS_AT_ONCE):
        try:
            outcomes[outcome_of(Random(seed))] += 1
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert sum(outcomes[n] for n in ("runs", "instance stacks", "join tree")), outcomes


@pytest.mark.skipif(not UNCOMPILED, reason="hundreds of queries would be compiled")
@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("seed", range(80))
def test_sequences_in_every_structure(seed):
    """Sequences of single events, which most structures can run."""
    random = Random(seed)
    names = "abcd"[: random.randint(2, 4)]
    pairs = [(x, y) for x in names for y in names if x < y]
    conditions = [
        f"{x}.{random.choice('xy')} {random.choice(('<', '>=', '=', '!='))} {y}.x"
        for x, y in random.sample(pairs, random.randint(0, len(pairs)))
    ]
    conditions += [f"{x}.x > 1" for x in names if random.random() < 0.3]
    conditions += ["[k]"] if random.random() < 0.5 else []
    where = f" WHERE {' and '.join(conditions)}" if conditions else ""
    atoms_ = ", ".join(f"{random.choice('ABC')} {name}" for name in names)
    query = parse(f"SEQ({atoms_}){where} WITHIN {random.choice(('5', '8', '6 EVENTS'))}")
    events = random_events(random, 14, PLAIN)
    shape = create_schema(events.schema, time="t", type="type", order=())
    expected = matches_of(compile_query(query, shape, PlannerOptions(structure="reference")), [events], events)
    for _ in range(4):
        planning = random_planning(random, query)
        try:
            prepared = compile_query(query, shape, planning)
        except QueryError:  # not every structure can run it
            prepared = compile_query(query, shape, replace(planning, structure=None))
        assert matches_of(prepared, random_slices(random, events), events) == expected, planning


@pytest.mark.skipif(not UNCOMPILED, reason="dozens of queries would be compiled")
@pytest.mark.parametrize("structure", ["stacks", "runs"])
@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("seed", range(30))
def test_saved_state_fits_a_plan_with_another_order_of_conditions(seed, structure):
    random = Random(seed)
    text = (
        "SEQ(A a, B b, C c) WHERE a.x <= c.x and a.y != c.y and b.x >= a.x and b.s = c.s "
        "and b.y <= c.y and a.k != b.k WITHIN 9"
    )
    query = parse(text)
    events = random_events(random, 30, PLAIN)
    shape = create_schema(events.schema, time="t", type="type", order=())
    plans = [replace(random_planning(random, query), off=frozenset(), structure=structure) for _ in range(2)]
    one, other = (compile_query(query, shape, planning) for planning in plans)
    half = events.num_rows // 2
    engine = one.engine()
    found = [engine.process(events.slice(0, half))]
    state = engine.snapshot()
    engine = other.engine()
    engine.restore(state)
    found += [engine.process(events.slice(half)), engine.on_watermark(math.inf)]
    ids = [m for f in found for m in build_result(other, f, events)["match_id"].to_pylist()]
    assert sorted(ids) == matches_of(one, [events], events)
