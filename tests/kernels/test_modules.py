"""The EH-Tree: a join tree with the modules of a hierarchy gives the matches of the flat query."""

from collections import Counter
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.kernels.test_engine import UNCOMPILED, given_by, interrupted, rows_of, wanted

from ensue.engine.engine import Engine
from ensue.errors import QueryError, StateError
from ensue.ir.selection import ByUnits
from ensue.ir.traversal import iterate_positive_atoms
from ensue.parser.pattern_parser import parse
from ensue.planner.explain.plan_description import describe_plan
from ensue.planner.explain.plan_node import format_plan
from ensue.planner.hierarchy_modules import PRECURSORS, HierarchyModule
from ensue.planner.join_tree import get_shape as tree_shape
from ensue.planner.physical_plan import JoinTree
from ensue.planner.planner_options import PlannerOptions
from ensue.runtime.compiled_query import CompiledQuery, compile_query
from ensue.runtime.live_matcher import LiveMatcher
from ensue.vector.event_table import create_schema
from support.modules import random_hierarchy
from support.saving import restored
from support.seeds import of_round, scaled
from support.streams import PLAIN, WHOLE, Nature, random_events, random_nature, random_slices

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

LEFT_OUT = [(), (), (), (PRECURSORS,), ("window",), ("predicate_placement",)]
SEEDS_AT_ONCE = 16


def prepared_for(
    text: str,
    events: pa.Table,
    modules: tuple[HierarchyModule, ...] = (),
    nature: Nature = PLAIN,
    off=(),
    structure: str = "tree",
) -> CompiledQuery:
    shape = create_schema(events.schema, time=nature.columns, type="type", order=())
    return compile_query(parse(text), shape, PlannerOptions(structure=structure, modules=modules), off=off)


def crowded(random: Random, events: pa.Table, nature: Nature) -> pa.Table:
    """Often several events at each time."""
    if nature.time != WHOLE or nature.intervals or random.random() < 0.4:
        return events
    times = pc.divide(events.column("t"), random.choice((2, 3)))
    return events.set_column(events.column_names.index("t"), "t", times)


def planted(random: Random, text: str, nature: Nature) -> pa.Table:
    """A random stream, in most cases with events of the pattern's types in its order."""
    types = [atom.type for atom in iterate_positive_atoms(parse(text).pattern)]
    count = random.randint(max(8, len(types)), 14)
    events = crowded(random, random_events(random, count, nature), nature)
    if random.random() < 0.2:
        return events
    kinds = events.column("type").to_pylist()
    for row, type in zip(sorted(random.sample(range(count), len(types))), types, strict=True):
        kinds[row] = type
    return events.set_column(events.column_names.index("type"), "type", pa.array(kinds))


# ------------------------------------------------------------------------------- random hierarchies


def assert_random_hierarchy_is_exact(random: Random, *, cut: bool) -> str:
    nature = random_nature(random)
    text, modules = random_hierarchy(random, nature)
    off = random.choice(LEFT_OUT)
    outcome = "nothing"
    for _ in range(3):
        try:
            events = planted(random, text, nature)
            prepared = prepared_for(text, events, modules, nature, off)
        except QueryError:
            return "refused"
        assert isinstance(prepared.plan.structure, JoinTree)
        pieces = random_slices(random, events)
        if cut:
            found = interrupted(random, prepared, events, pieces)
        else:
            found = given_by(prepared.engine(nullable=random.random() < 0.2), pieces)
        expected = wanted(prepared, events)
        shown = f"{text}\n{modules}\n{off} {nature}\n{events.to_pydict()}"
        rows = rows_of(prepared, found, events)
        assert rows == expected, shown
        if UNCOMPILED and random.random() < 0.3:
            flat = prepared_for(text, events, (), nature, structure="runs")
            assert rows_of(flat, given_by(flat.engine(), pieces), events) == rows, shown
        outcome = "matches" if expected else outcome
    return outcome


@pytest.mark.skipif(not UNCOMPILED, reason="hundreds of kernels would be compiled")
@pytest.mark.parametrize("cut", [False, True], ids=["fed", "interrupted"])
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(50))
def test_random_hierarchies_are_exact(round, cut, monkeypatch):
    outcomes = Counter()
    for seed in of_round(round, SEEDS_AT_ONCE):
        monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", (1, 2, 4, 1_024)[seed % 4])
        try:
            outcomes[assert_random_hierarchy_is_exact(Random(f"hierarchy {cut} {seed}"), cut=cut)] += 1
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    # a generator that has lost its bite would make this test pass
    assert outcomes["matches"] > scaled(SEEDS_AT_ONCE) / 16, outcomes


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(3))
def test_some_random_hierarchies_are_exact_compiled(seed, monkeypatch):
    monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", 4)
    assert_random_hierarchy_is_exact(Random(f"compiled {seed}"), cut=bool(seed % 2))


# ------------------------------------------------------------------------------- chosen hierarchies

NESTED = "SEQ(A a, SEQ(B b, SEQ(C c, D d), B e), A f) WHERE e.t - b.t <= 6 and d.t - c.t <= 3 and d.x > c.x WITHIN 9"
INNER = HierarchyModule("Inner", "y", ("c", "d"), ByUnits(3), 3, "x")
OUTER = HierarchyModule("Outer", "x", ("b", "c", "d", "e"), ByUnits(6), 2)


def letters(text: str, times: list[int] | None = None) -> pa.Table:
    count = len(text)
    return pa.table(
        {"t": times or list(range(count)), "type": list(text), "x": list(range(count)), "row": list(range(count))}
    )


def engine_of(text: str, events: pa.Table, modules=(OUTER, INNER), off=()) -> Engine:
    engine = prepared_for(text, events, modules, off=off).engine()
    assert isinstance(engine, Engine)
    return engine


def test_the_tree_has_the_shape_of_the_hierarchy():
    prepared = prepared_for(NESTED, letters("ABCD"), (INNER, OUTER))
    assert isinstance(prepared.plan.structure, JoinTree)
    assert tree_shape(prepared.plan.structure.root) == (("a", (("b", ("c", "d")), "e")), "f")


def test_explain_shows_boxes_with_what_they_wait_for():
    text = format_plan(describe_plan(prepared_for(NESTED, letters("ABCD"), (INNER, OUTER)).plan))
    assert "box x: Outer, level 2, within 6, begun only while a waits" in text
    assert "box y: Inner, level 3, within 3, begun only while b waits" in text
    inside = text[text.index("box y") :]
    assert "d.x > c.x" in inside[: inside.index("D d")]  # tried inside the box
    without = prepared_for(NESTED, letters("ABCD"), (INNER, OUTER), off=(PRECURSORS,))
    assert "begun only" not in format_plan(describe_plan(without.plan))


def test_nothing_is_begun_before_something_waits_for_it():
    events = letters("BCBCBC")
    assert engine_of(NESTED, events, off=(PRECURSORS,)).usage.partial_matches == 0
    for off, held in (((), 0), ((PRECURSORS,), 6)):
        engine = engine_of(NESTED, events, off=off)
        engine.process(events)
        assert engine.usage.partial_matches == held


def test_nothing_is_begun_when_what_waited_is_dead():
    events = letters("ABCC", [0, 1, 9, 10])  # at 9 the B is out of its module's time
    engine = engine_of(NESTED, events)
    engine.process(events)
    assert engine.usage.partial_matches == 2
    engine.on_watermark(10)
    assert engine.usage.partial_matches == 0


def test_what_is_inside_a_module_dies_with_its_window():
    events = letters("ABC")
    for modules, alive in (((OUTER, INNER), [3, 2, 2, 2, 1]), ((), [3, 3, 3, 3, 3])):
        engine = engine_of(NESTED, events, modules)
        engine.process(events)
        left = []
        for now in (5, 6, 7, 7, 8):
            engine.on_watermark(now)
            left.append(engine.usage.partial_matches)
        assert left == alive


def test_what_stands_before_a_box_may_be_missing():
    text, box = ("SEQ(A* a[], SEQ(B b, C c)) WITHIN 9", HierarchyModule("M", "x", ("b", "c"), ByUnits(9)))
    events = letters("BACABC")
    prepared = prepared_for(text, events, (box,))
    assert rows_of(prepared, given_by(prepared.engine(), [events]), events) == wanted(prepared, events)


def test_the_chains_of_a_finished_box_outlive_its_window():
    text = "SEQ(SEQ(A a, B+ b[], C c), D d) WHERE c.t - a.t <= 2"
    events = letters("ABCDD", [0, 1, 2, 50, 60])
    box = HierarchyModule("M", "x", ("a", "b", "c"), ByUnits(2))
    prepared = prepared_for(text, events, (box,))
    pieces = [events.slice(row, 1) for row in range(5)]
    found = interrupted(Random(1), prepared, events, pieces)
    assert rows_of(prepared, found, events) == wanted(prepared, events)
    assert found.count == 2


def test_modules_that_do_not_fit_are_refused():
    with pytest.raises(QueryError, match="the module M \\(x\\) does not fit"):
        prepared_for(NESTED, letters("A"), (HierarchyModule("M", "x", ("a", "c")),))
    with pytest.raises(QueryError, match="does not fit"):
        prepared_for(NESTED, letters("A"), (HierarchyModule("M", "x", ("nobody",)),))


def test_a_saved_state_goes_on_with_the_same_modules_only():
    events = letters("ABC")
    one = prepared_for(NESTED, events, (OUTER, INNER))
    other = prepared_for(NESTED, events, (OUTER, HierarchyModule("Inner", "y", ("c", "d"), ByUnits(2), 3)))
    matcher = LiveMatcher(one)
    matcher.process(events)
    restored(one, matcher.snapshot())
    with pytest.raises(StateError):
        restored(other, matcher.snapshot())
