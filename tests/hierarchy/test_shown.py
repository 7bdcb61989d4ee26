"""A hierarchy's plan with what happened when it was run, and as a picture."""

import re
from contextlib import suppress
from random import Random
from xml.etree import ElementTree

import pytest

import ensue
from ensue.analyzer.hierarchy_merge import merge_hierarchies
from ensue.codegen import kernel_cache as cache
from ensue.operators.hierarchy.hierarchy_description import analyze_hierarchy, describe_hierarchy_plan
from ensue.operators.hierarchy.hierarchy_planner import compile_hierarchy
from ensue.parser.definitions import parse_pattern_text
from ensue.planner.explain.plan_node import format_plan
from ensue.planner.explain.plan_picture import draw_plan
from ensue.planner.planner_options import PlannerOptions
from ensue.runtime.live_matcher import PIECE
from ensue.vector.event_table import create_schema, sort_events
from support.hierarchies import Habits, random_hierarchy
from support.seeds import scaled
from support.stages import EVENTS, HIERARCHIES, readings

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # uncompiled, scalars warn


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(cache, "interpreted", True)


def prepared_over(events, text, planning=None, **options):
    hierarchy = parse_pattern_text(text) if isinstance(text, str) else text
    shape = create_schema(events.schema, order=(), **EVENTS)
    return compile_hierarchy(hierarchy, shape, planning or PlannerOptions(), **options)


# ------------------------------------------------------------------------------------ analysis


@pytest.mark.parametrize("name", HIERARCHIES)
@pytest.mark.parametrize("off", ["top_down", "bottom_up"])
def test_the_analysis_counts_what_is_found(name, off, monkeypatch):
    monkeypatch.setattr("ensue.runtime.live_matcher.PIECE", 20)
    events = readings(Random(name), 70)
    planning = PlannerOptions(off=frozenset({off}))
    prepared = prepared_over(events, HIERARCHIES[name], planning, levels="all")
    text = format_plan(analyze_hierarchy(prepared, events))
    found = ensue.match(
        events, HIERARCHIES[name], **EVENTS, options=[ensue.OutputOptions(levels="all"), ensue.PlannerOptions(off=off)]
    )
    counts = re.findall(r"matches in the result: ([\d,]+)", text)
    assert [int(n.replace(",", "")) for n in counts] == [
        found[p.layer.name].num_rows for p in reversed(prepared.layers)
    ]
    assert sum(t.num_rows for t in found.values()) > 0
    assert text.count("analysis of ") == text.count("time: this layer") == len(prepared.layers)
    assert text.splitlines()[-1].startswith("the hierarchy in 70 events: compiling ")


def test_the_plan_is_told_as_without_running_it():
    events = readings(Random(1), 60)
    prepared = prepared_over(events, HIERARCHIES["factory"])
    told = [line for line in format_plan(describe_hierarchy_plan(prepared)).splitlines() if line]
    run = format_plan(analyze_hierarchy(prepared, events)).splitlines()
    places = [run.index(line) for line in told[:12]]
    assert places == sorted(places)
    assert set(told) <= set(run)


def test_no_events_are_analysed_too():
    events = readings(Random(1), 5).slice(0, 0)
    text = format_plan(analyze_hierarchy(prepared_over(events, HIERARCHIES["no key"]), events))
    assert "analysis of 0 events" in text


def test_events_of_the_same_time_stay_together(monkeypatch):
    monkeypatch.setattr("ensue.runtime.live_matcher.PIECE", 1)
    assert PIECE > 1
    events = readings(Random(3), 80)
    prepared = prepared_over(events, HIERARCHIES["one key"])
    shape = create_schema(events.schema, order=(), **EVENTS)
    text = format_plan(analyze_hierarchy(prepared, sort_events(events, shape)))
    wanted = ensue.match(events, HIERARCHIES["one key"], **EVENTS).num_rows
    assert f"matches in the result: {wanted}" in text


# ------------------------------------------------------------------------------------- picture


def texts_of(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [e.text or "" for e in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("name", HIERARCHIES)
@pytest.mark.parametrize("off", ["top_down", "bottom_up"])
def test_the_picture_has_every_matcher(name, off):
    events = readings(Random(1), 5)
    prepared = prepared_over(events, HIERARCHIES[name], PlannerOptions(off=frozenset({off})), levels="all")
    texts = texts_of(draw_plan(describe_hierarchy_plan(prepared)))
    titles = {f"{p.layer.name}, delivered" for p in prepared.layers if p.layer.name}
    assert titles | {"the query", "raw events"} <= set(texts)


def test_arrows_say_what_goes_up():
    events = readings(Random(1), 5)
    texts = texts_of(draw_plan(describe_hierarchy_plan(prepared_over(events, HIERARCHIES["factory"]))))
    assert {"Incident x, y", "Stop s", "Outage o, p", "Repair r", "Reading a, b"} <= set(texts)


def test_what_is_found_from_the_top_down_is_in_one_frame():
    events = readings(Random(1), 5)
    one = (
        "EVENT Low AS SEQ(Reading a, Reading b) WHERE [sensor] WITHIN 5; "
        "SEQ(Low x, Low y, Stop s) WHERE [sensor] WITHIN 15"
    )
    prepared = prepared_over(events, one, PlannerOptions(off=frozenset({"bottom_up"})))
    texts = texts_of(draw_plan(describe_hierarchy_plan(prepared)))
    assert "finds with it, from the top down: Low x, Low y" in texts
    assert "Low" not in texts


def test_several_queries_are_in_one_picture():
    own = {"alarm": parse_pattern_text(HIERARCHIES["factory"]), "report": parse_pattern_text(HIERARCHIES["one cut"])}
    ((hierarchy, _),) = merge_hierarchies(own)
    texts = texts_of(draw_plan(describe_hierarchy_plan(prepared_over(readings(Random(1), 5), hierarchy))))
    assert {"the query alarm", "the query report"} <= set(texts)
    assert texts.count("Incident") == 1


def test_the_picture_is_the_same_each_time():
    events = readings(Random(1), 5)
    first = draw_plan(describe_hierarchy_plan(prepared_over(events, HIERARCHIES["waiting"])))
    assert first == draw_plan(describe_hierarchy_plan(prepared_over(events, HIERARCHIES["waiting"])))


def test_the_text_of_a_hierarchy_gives_it_back():
    read = 0
    for seed in range(scaled(30)):
        text = random_hierarchy(Random(seed), habits=Habits(intervals=True))
        with suppress(ensue.QueryError):
            hierarchy = ensue.parse(text)
            read += 1
            assert ensue.parse(ensue.show(hierarchy)) == hierarchy, text
    assert read > scaled(20)


def test_a_hierarchy_is_shown_by_its_text():
    text = "EVENT Pair AS SEQ(A a, B b) WITHIN 9; EMIT Pair; SEQ(Pair p, C c) WITHIN 20"
    shown = "EVENT Pair AS\nPATTERN SEQ(A a, B b)\nWITHIN 9;\n\nEMIT Pair;\n\nPATTERN SEQ(Pair p, C c)\nWITHIN 20"
    assert ensue.show(text) == ensue.show(ensue.parse(text)) == shown
    assert ensue.parse(shown) == ensue.parse(text)
    with pytest.raises(ensue.QueryError, match="cannot be converted to OPSL"):
        ensue.show(text, "opsl")
