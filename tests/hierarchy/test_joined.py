"""Several hierarchies as one: every query and level has the matches that it has on its own."""

import math
from random import Random

import numpy as np
import pytest

from ensue import reference as semantics
from ensue.analyzer.hierarchy_layers import build_layers
from ensue.analyzer.hierarchy_merge import merge_hierarchies
from ensue.codegen import kernel_cache as cache
from ensue.errors import QueryError
from ensue.ir.hierarchy import Hierarchy, get_layer_name
from ensue.operators.hierarchy.hierarchy_description import describe_hierarchy_plan
from ensue.operators.hierarchy.hierarchy_matcher import HierarchyMatcher
from ensue.operators.hierarchy.hierarchy_operator import plan_merged_hierarchies
from ensue.operators.hierarchy.hierarchy_planner import compile_hierarchy
from ensue.parser.definitions import parse_pattern_text
from ensue.planner.explain.plan_node import format_plan
from ensue.planner.planner_options import PlannerOptions
from ensue.runtime.stage import StageInput
from ensue.runtime.workload import Workload
from ensue.vector.event_table import create_schema
from support.hierarchies import Habits, given_events, random_crowd, random_hierarchies
from support.key_groups import Stream
from support.stages import EVENTS, job_of, readings, rows_of, staged
from support.streams import random_events, random_slices

PLANNINGS = {
    "free": PlannerOptions(),
    "bottom-up": PlannerOptions(off=frozenset({"top_down"})),
    "top-down": PlannerOptions(off=frozenset({"bottom_up"})),
}

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # uncompiled, scalars warn


@pytest.fixture
def interpreted(monkeypatch):
    """Every query has kernels of its own, which would all be compiled."""
    monkeypatch.setattr(cache, "interpreted", True)


def hierarchies(**texts: str) -> dict[str, Hierarchy]:
    found = {label: parse_pattern_text(text) for label, text in texts.items()}
    assert all(isinstance(hierarchy, Hierarchy) for hierarchy in found.values())
    return found


# ------------------------------------------------------------------------------------ which go


HOT = "EVENT Hot AS SEQ(T a, T b) WHERE b.x > a.x WITHIN 5 RETURN b.x AS x;"


def test_what_is_defined_alike_is_one_layer():
    own = hierarchies(
        one=f"{HOT} SEQ(Hot h, Stop s) WITHIN 20",
        two=f"{HOT} EVENT Long AS SEQ(Hot h, Hot i) WITHIN 9; SEQ(Long l, Stop s); EMIT Hot",
    )
    ((hierarchy, labels),) = merge_hierarchies(own)
    assert labels == ("one", "two")
    assert [d.name for d in hierarchy.definitions] == ["Hot", "Long"]
    assert {top.label: top.query for top in hierarchy.tops} == {n: t.query for n, t in own.items()}
    assert hierarchy.emit == ("Hot",)
    assert [layer.name for layer in build_layers(hierarchy)] == ["Hot", "Long", *map(get_layer_name, labels)]
    assert [hierarchy.alone(label) for label in labels] == list(own.values())


def test_a_hierarchy_by_itself_stays_as_it_is():
    own = hierarchies(one=f"{HOT} SEQ(Hot h, Stop s) WITHIN 20")
    assert merge_hierarchies(own) == [(own["one"], ("one",))]
    assert merge_hierarchies(own)[0][0] is own["one"]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param("EVENT Hot AS SEQ(T a, T b) WITHIN 5; SEQ(Hot h, Stop s)", id="other query"),
        pytest.param("EVENT Cold AS SEQ(Hot a, T b) WITHIN 5; SEQ(Cold h, Stop s)", id="raw"),
        pytest.param(
            "EVENT T AS SEQ(U a, U b) WITHIN 5 RETURN a.x AS x; "
            "EVENT Hot AS SEQ(T a, T b) WHERE b.x > a.x WITHIN 5 RETURN b.x AS x; SEQ(Hot h, T s)",
            id="made of others",
        ),
        pytest.param(f"{HOT} SEQ(Hot h, Stop s) RETURN h.members", id="with members"),
    ],
)
def test_what_means_different_things_stays_apart(other):
    own = hierarchies(one=f"{HOT} SEQ(Hot h, Stop s) WITHIN 20", two=other)
    own["three"] = own["one"]
    assert [labels for _, labels in merge_hierarchies(own)] == [("one", "three"), ("two",)]


def test_definitions_that_are_beside_each_other_keep_their_order():
    """Complex events behind one event stand in it."""
    other = "EVENT Low AS SEQ(T a, Stop b) WITHIN 5;"
    both = "SEQ(Hot h, Low l) WITHIN 9"
    own = hierarchies(one=f"{HOT} {other} {both}", two=f"{other} {HOT} {both}")
    assert len(merge_hierarchies(own)) == 2
    own = hierarchies(one=f"{HOT} {other} {both}", two=f"{other} {HOT} SEQ(Low l, T t) WITHIN 9")
    assert len(merge_hierarchies(own)) == 1


# ------------------------------------------------------------------------------------- matches


def live(prepared, events, random):
    """All layers that are delivered, the events in pieces, the state saved in between."""
    hierarchy = HierarchyMatcher(prepared)
    rounds = []
    for piece in random_slices(random, events):
        rounds.append(hierarchy.process(StageInput.from_events(piece)))
        if random.random() < 0.3:
            saved = hierarchy.snapshot()
            hierarchy = HierarchyMatcher(prepared)
            hierarchy.restore(saved)
    rounds.append(hierarchy.on_watermark(math.inf))
    return {name: [row for tables in rounds for row in rows_of(tables[k])] for k, name in enumerate(prepared.delivered)}


def in_stages(workload, events, random):
    if not workload.options.streaming:
        found = staged(workload, events)
    else:
        stream = Stream(workload, 0, forget=lambda: random.random() < 0.3)
        for piece in random_slices(random, events):
            stream.feed(piece)
            if random.random() < 0.3:
                stream.pause()
        found = stream.end()
    return {name: rows_of(table) for name, table in found.items()}


def some_hierarchies(random: Random, *, stages: bool):
    """Random hierarchies over events of one kind, and the kind."""
    nature = random_crowd(random)
    habits = random.choice((Habits(), Habits(flat=True)))
    shape = create_schema(random_events(random, 1, nature).schema, **stream_of(nature))
    own = {}
    for k, text in enumerate(random_hierarchies(random, random.choice((2, 2, 3)), nature, habits)):
        try:
            hierarchy = parse_pattern_text(text)
            compile_hierarchy(hierarchy, shape, streaming=stages)
            own[random.choice(("D1", f"{k}"))] = hierarchy
        except QueryError:
            continue
    return own, nature


def agree_in_stages(seed: int) -> int:
    """Random hierarchies in one workload and each alone; gives the number of matches."""
    random = Random(seed)
    own, nature = some_hierarchies(random, stages=True)
    events = random_events(random, random.randint(8, 16), nature)
    options = {"time": nature.columns, "type": "type", "trace": random.random() < 0.3}
    options |= {"key_groups": 2, "streaming": random.random() < 0.5}
    if not own:
        return 0
    workload = job_of(own, events, **options)
    found = 0
    with np.errstate(over="ignore"):
        together = in_stages(workload, events, random)
        schemas = {output.name: output.schema for output in workload.outputs}
        for label, hierarchy in own.items():
            alone = job_of(hierarchy, events, **options)
            wanted = in_stages(alone, events, random)
            for output in alone.outputs:
                here = f"{label}.{output.name}" if output.name else label
                assert schemas[here] == output.schema
                assert together[here] == wanted[output.name], f"{seed} {here}"
                found += len(wanted[output.name])
    if workload.options.streaming:
        assert Workload.read(workload.texts).texts == workload.texts
    return found


def agree(seed: int, planning: PlannerOptions) -> int:
    """Random hierarchies together and each alone; gives the number of matches of those together."""
    random = Random(seed)
    own, nature = some_hierarchies(random, stages=False)
    shape = create_schema(random_events(random, 1, nature).schema, **stream_of(nature))
    events = random_events(random, random.randint(8, 16), nature)
    trace = random.random() < 0.3

    def run(hierarchy):
        prepared = compile_hierarchy(hierarchy, shape, planning, trace=trace)
        format_plan(describe_hierarchy_plan(prepared))
        return prepared.delivered, live(prepared, events, random)

    found = 0
    with np.errstate(over="ignore"):
        for hierarchy, labels in plan_merged_hierarchies(own, shape, planning, trace=trace):
            if len(labels) == 1:
                continue
            schemas, together = run(hierarchy)
            assert set(together) == {*map(get_layer_name, labels), *hierarchy.emit}
            for label in labels:
                wanted_schemas, wanted = run(own[label])
                for name, rows in wanted.items():
                    here = get_layer_name(label) if name == "" else name
                    assert schemas[here] == wanted_schemas[name]
                    assert sorted(together[here]) == sorted(rows), f"{seed} {name}"
                    found += len(rows)
    return found


def rounds_of(round: int) -> range:
    """The seeds of a round; the first one is for every day. Some of them have matches."""
    return range(round * 24, round * 24 + (3 if round == 0 else 24))


def stream_of(nature):
    return {"time": nature.columns, "type": "type", "order": ()}


@pytest.mark.parametrize("planning", PLANNINGS)
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(8))
def test_random_hierarchies_together_have_the_matches_they_have_alone(round, planning, interpreted):
    seeds = rounds_of(round)
    counts = [agree(seed, PLANNINGS[planning]) for seed in seeds]
    assert sum(count > 0 for count in counts) > 0


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(8))
def test_random_hierarchies_together_in_stages(round, interpreted):
    counts = [agree_in_stages(seed) for seed in rounds_of(round)]
    assert sum(count > 0 for count in counts) > 0


def test_a_joined_hierarchy_means_what_its_hierarchies_mean():
    """The semantics takes a hierarchy with several queries on top as it is."""
    own = hierarchies(one=f"{HOT} SEQ(Hot h, Stop s) WITHIN 20", two=f"{HOT} SEQ(Hot h, Hot i) WITHIN 9")
    ((hierarchy, _),) = merge_hierarchies(own)
    random = Random(1)
    times = sorted(random.randrange(30) for _ in range(20))
    events = readings(random, 20).select(["t"]).set_column(0, "t", [times])
    events = events.append_column("type", [[random.choice(["T", "T", "Stop"]) for _ in times]])
    events = events.append_column("x", [[random.randrange(4) for _ in times]])
    shape = create_schema(events.schema, **EVENTS, order=())
    given = given_events(events, shape)
    together = semantics.match_hierarchy(build_layers(hierarchy), given, shape.schema)
    for label, alone in own.items():
        wanted = semantics.match_hierarchy(build_layers(alone), given, shape.schema)
        assert together[get_layer_name(label)] == wanted[""] != []


def test_types_that_others_would_widen_keep_hierarchies_apart():
    """Hot's events are counted by one hierarchy only, in a column that raw events have as integers."""
    hot = "EVENT Hot AS SEQ(T a, T b) WITHIN 5 RETURN a.x AS y, avg(b.x) AS x;"
    long = "EVENT Long AS SEQ(Hot h, T t) WITHIN 9 RETURN h.y AS y, t.x AS z;"
    own = hierarchies(
        one=f"{hot} {long} SEQ(Long l, T t) WITHIN 20", two=f"{hot} {long} SEQ(Long l, T t) WHERE l.h.x > 0 WITHIN 30"
    )
    assert len(merge_hierarchies(own)) == 1
    schema = readings(Random(1), 3).append_column("x", [[1, 2, 3]]).schema
    shape = create_schema(schema, **EVENTS, order=())
    assert [labels for _, labels in plan_merged_hierarchies(own, shape)] == [("one",), ("two",)]
    own["three"] = own["one"]
    found = plan_merged_hierarchies(own, shape)
    assert [labels for _, labels in found] == [("one", "three"), ("two",)]
    assert [top.label for top in found[0][0].tops] == ["one", "three"]
    assert found[1][0] is own["two"]


def test_explain_shows_every_query_and_each_layer_once():
    own = hierarchies(one=f"{HOT} SEQ(Hot h, Stop s) WITHIN 20", two=f"{HOT} SEQ(Hot h, Hot i) WITHIN 9")
    ((hierarchy, _),) = merge_hierarchies(own)
    events = readings(Random(1), 3).append_column("x", [[1, 2, 3]])
    compiled = compile_hierarchy(hierarchy, create_schema(events.schema, **EVENTS, order=()))
    text = format_plan(describe_hierarchy_plan(compiled))
    first = text.partition("\n\n")[0]
    assert first == (
        "hierarchy of 3 layers, 3 matchers\n"
        "  the query one: SEQ(Hot h, Stop s), within 20\n"
        "    box h: bottom-up, 3 use it\n"
        "      Hot: SEQ(T a, T b), within 5\n"
        "  the query two: SEQ(Hot h, Hot i), within 9\n"
        "    box h: bottom-up, 3 use it\n"
        "      Hot: as above\n"
        "    box i: bottom-up, 3 use it\n"
        "      Hot: as above"
    )
