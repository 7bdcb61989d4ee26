"""emit_timeouts with hierarchies: each level that is delivered gives its timed-out partial matches."""

import math
from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import ensue
from ensue import reference as semantics
from ensue.analyzer.hierarchy_layers import build_layers
from ensue.analyzer.query import check_query
from ensue.codegen import kernel_cache as cache
from ensue.errors import QueryError, StateError
from ensue.ir.hierarchy import Hierarchy
from ensue.operators.hierarchy.hierarchy_matcher import HierarchyMatcher
from ensue.operators.hierarchy.hierarchy_planner import add_levels, compile_hierarchy, compile_layers
from ensue.operators.hierarchy.layer_stream import add_plan_keys
from ensue.parser.definitions import parse_pattern_text
from ensue.planner.planner_options import PlannerOptions
from ensue.runtime.stage import StageInput
from ensue.runtime.workload import Workload
from ensue.vector.event_table import create_schema
from support.hierarchies import Habits, by_rows, few_enough, given_events, random_crowd, random_hierarchy
from support.key_groups import Stream
from support.seeds import of_round
from support.stages import job_of, staged
from support.streams import random_events, random_nature, random_slices

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # uncompiled, scalars warn

HOT = "EVENT Hot AS SEQ(T a, T b) WHERE b.x > a.x WITHIN 5 RETURN a.x AS x;"
SHAPE = {"time": "t", "type": "type", "order": ()}


def events_of(types: str, x: list[int]) -> pa.Table:
    names = {"T": "T", "S": "Stop", "X": "Other"}
    return pa.table({"t": range(len(types)), "type": [names[t] for t in types], "x": x})


def found(text: str, events: pa.Table, **options):
    """The levels of a hierarchy, its events all at once."""
    hierarchy = parse_pattern_text(text)
    prepared = compile_hierarchy(hierarchy, create_schema(events.schema, **SHAPE), emit_timeouts=True, **options)
    live = HierarchyMatcher(prepared)
    rounds = [live.process(StageInput.from_events(events)), live.on_watermark(math.inf)]
    return {name: pa.concat_tables([tables[k] for tables in rounds]) for k, name in enumerate(prepared.delivered)}


# ------------------------------------------------------------------------------------ results


def test_a_complex_event_that_nothing_followed():
    events = events_of("TTXXXXSTTXXXXXXXXXXX", [1, 2, *[0] * 5, 1, 2, *[0] * 11])
    table = found(f"{HOT} SEQ(Hot h, Stop s) WITHIN 9", events)[""]
    assert table.column_names == ["match_id", "start", "end", "timed_out", "h", "s"]
    rows = [(r["start"], r["end"], r["timed_out"], r["s"]) for r in table.to_pylist()]
    stop = {"t": 6, "type": "Stop", "x": 0}
    assert sorted(rows, key=lambda row: row[0]) == [(0, 6, False, stop), (7, 8, True, None)]


def test_what_times_out_below_is_no_event():
    events = events_of("TXXXXXXXSX", [1, *[0] * 9])
    levels = found(f"{HOT} SEQ(Hot h, Stop s) WITHIN 30", events, levels="all")
    assert [(r["timed_out"], r["x"]) for r in levels["Hot"].to_pylist()] == [(True, 1)]
    assert levels[""].num_rows == 0


def test_only_what_is_delivered_times_out():
    events = events_of("TXXXXXXXSX", [1, *[0] * 9])
    assert list(found(f"{HOT} SEQ(Hot h, Stop s) WITHIN 30", events)) == [""]


def test_a_stream_tells_as_soon_as_the_window_is_over():
    text = f"{HOT} SEQ(Hot h, Stop s) WITHIN 9"
    events = events_of("TT", [1, 2])
    prepared = compile_hierarchy(
        parse_pattern_text(text), create_schema(events.schema, **SHAPE), streaming=True, emit_timeouts=True
    )
    live = HierarchyMatcher(prepared)
    assert live.process(StageInput.from_events(events))[0].num_rows == 0
    assert live.next_timer() == 9
    assert live.on_watermark(9)[0].num_rows == 0
    assert live.on_watermark(10)[0]["timed_out"].to_pylist() == [True]


def test_members_of_what_timed_out():
    events = events_of("TTXXXXXXXXXXX", [1, 2, *[0] * 11])
    table = found(f"{HOT} SEQ(Hot h, Stop s) WITHIN 9", events, trace=True)[""]
    (row,) = table.to_pylist()
    assert row["members"]["s"] is None
    assert row["members"]["h"]["members"]["b"]["t"] == 1


def test_matches_keep_their_ids():
    events = events_of("TTXXXXSTTXXXXXXXXXXX", [1, 2, *[0] * 5, 1, 2, *[0] * 11])
    text = f"{HOT} SEQ(Hot h, Stop s) WITHIN 9"
    live = HierarchyMatcher(compile_hierarchy(parse_pattern_text(text), create_schema(events.schema, **SHAPE)))
    alone = [
        m
        for t in (live.process(StageInput.from_events(events)), live.on_watermark(math.inf))
        for m in t[0]["match_id"].to_pylist()
    ]
    rows = found(text, events)[""].to_pylist()
    assert [r["match_id"] for r in rows if not r["timed_out"]] == alone
    assert len({r["match_id"] for r in rows}) == 2


def test_a_level_that_cannot_time_out_is_refused_by_name():
    events = events_of("T", [1])
    text = "EVENT Both AS AND(T a, Stop b) WITHIN 5; SEQ(Both x, Stop s) WITHIN 9"
    assert list(found(text, events)) == [""]
    with pytest.raises(QueryError, match="in the definition of Both: emit_timeouts does not support"):
        found(text, events, levels="all")


def test_a_state_without_timeouts_is_not_taken_for_one_with_them():
    events = events_of("TT", [1, 2])
    shape, hierarchy = (create_schema(events.schema, **SHAPE), parse_pattern_text(f"{HOT} SEQ(Hot h, T s) WITHIN 9"))
    planning = PlannerOptions(off=frozenset({"top_down"}))
    without = HierarchyMatcher(compile_hierarchy(hierarchy, shape, planning))
    without.process(StageInput.from_events(events))
    with pytest.raises(StateError, match="emit_timeouts"):
        HierarchyMatcher(compile_hierarchy(hierarchy, shape, emit_timeouts=True)).restore(without.snapshot())


@pytest.mark.parametrize("returned", ["", "p.x AS v ", "p.x AS x "])
def test_rows_of_all_events_show_what_timed_out_as_those_of_a_pattern_do(returned):
    events = pa.table({"t": [1, 2, 20], "type": list("ABA"), "x": [1, 2, 5]})
    options = {"time": "t", "type": "type", "options": ensue.OutputOptions(emit_timeouts=True)}
    query = f"SEQ(A a, {{}} p) WITHIN 5 RETURN {returned}ALL EVENTS"
    plain = ensue.match(events, query.format("B"), **options)
    text = "EVENT P AS SEQ(B b) RETURN b.x AS x; " + query.format("P")
    over = ensue.match(events, text, **options)
    own = "event_x" if "AS x" in returned else "x"
    for found in (plain, over):
        assert found["timed_out"].to_pylist() == [False, False, True]
        assert found[own].to_pylist() == [1, 2, 5]
        assert not returned or found[returned.split()[2]].to_pylist() == [2, 2, None]
    live = ensue.live(text, schema=events.schema, **options)
    pieces = [live.feed(events.slice(k, 1)) for k in range(3)]
    assert pa.concat_tables([*pieces, live.finish()]).equals(over)


def test_counts_do_not_time_out():
    options = {"time": "t", "type": "type", "options": ensue.OutputOptions(emit_timeouts=True)}
    for returned in ("COUNT(*) AS n", "EXISTS"):
        with pytest.raises(QueryError, match=r"emit_timeouts cannot be combined with COUNT\(\*\) and EXISTS"):
            ensue.match(events_of("T", [1]), f"{HOT} SEQ(Hot h, Stop s) WITHIN 9 RETURN {returned}", **options)


# ----------------------------------------------------------------------------------- property


def wanted(hierarchy: Hierarchy, shape, given, all_levels: bool) -> dict[str, tuple[Counter, Counter]]:
    """The matches and the timed-out partial matches of each level, by its meaning."""
    meant = build_layers(add_levels(hierarchy, "all" if all_levels else None))
    prepared = compile_layers(add_levels(hierarchy, "all" if all_levels else None), shape)
    below = semantics.build_complex_events(meant, given, shape.schema)
    result = {}
    for layer in meant:
        if not layer.delivered:
            continue
        one = prepared[layer.name]
        query = add_plan_keys(check_query(layer.query, one.stream.shape.schema), one.prepared)
        split = replace(layer, query=replace(layer.query, equivalence=query.equivalence))
        late = semantics.find_layer_timeouts(split, given, below, shape.schema)
        result[layer.name] = (
            Counter(semantics.nest_positions(e.match) for e in below[layer.name]),
            Counter(map(semantics.nest_positions, late)),
        )
    return result


def compare(tables, expected, note) -> int:
    count = 0
    assert tables.keys() == expected.keys()
    for name, table in tables.items():
        rows = table.to_pylist()
        mine = [Counter(), Counter()]
        for row in rows:
            mine[row["timed_out"]][by_rows(row["members"])] += 1
        assert tuple(mine) == expected[name], f"{note}: {name}"
        assert len({r["match_id"] for r in rows}) == len(rows)
        count += mine[1].total()
    return count


def agree(seed: int, planning: PlannerOptions) -> int:
    """Compares a random hierarchy with its meaning; gives the number of timed-out partial matches."""
    random = Random(seed)
    nature = random_crowd(random)
    text = random_hierarchy(random, nature, Habits(unions=False, depth=2))
    all_levels = random.random() < 0.3
    options = {"levels": "all" if all_levels else None, "trace": True, "emit_timeouts": True}
    shape = create_schema(random_events(random, 1, nature).schema, time=nature.columns, **TYPED)
    try:
        hierarchy = parse_pattern_text(text)
        prepared = compile_hierarchy(hierarchy, shape, planning, **options)
    except QueryError:
        return -1
    meant = build_layers(add_levels(hierarchy, "all" if all_levels else None))
    events = random_events(random, random.randint(6, 12), nature)
    given = few_enough(meant, given_events(events, shape), shape.schema)
    events = events.slice(0, len(given))
    live, rounds = HierarchyMatcher(prepared), []
    with np.errstate(over="ignore"):
        for piece in random_slices(random, events):
            rounds.append(live.process(StageInput.from_events(piece)))
            if random.random() < 0.3:
                saved = live.snapshot()
                live = HierarchyMatcher(prepared)
                live.restore(saved)
            if random.random() < 0.3 and piece.num_rows:
                ends = piece["t"]
                ends = ends.cast(pa.int64()) if pa.types.is_timestamp(ends.type) else ends
                rounds.append(live.on_watermark(ends.to_numpy().max()))
        rounds.append(live.on_watermark(math.inf))
    tables = {n: pa.concat_tables([t[k] for t in rounds]) for k, n in enumerate(prepared.delivered)}
    assert {n: t.schema for n, t in tables.items()} == prepared.delivered
    return compare(tables, wanted(hierarchy, shape, given, all_levels), f"{seed}: {text}")


TYPED = {"type": "type", "order": ()}


@pytest.mark.parametrize("off", ["top_down", "bottom_up"])
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(8))
def test_random_hierarchies_time_out_as_they_mean(round, off, monkeypatch):
    monkeypatch.setattr(cache, "interpreted", True)
    planning = PlannerOptions(off=frozenset({off}))
    counts = [agree(seed, planning) for seed in of_round(round, 30)]
    assert sum(count > 0 for count in counts) > 0


def in_stages(seed: int) -> int:
    rng = Random(seed)
    nature = random_nature(rng)
    text = random_hierarchy(rng, nature, Habits(unions=False, depth=2))
    events = random_events(rng, rng.randint(6, 12), nature)
    all_levels, streaming = rng.random() < 0.3, rng.random() < 0.7
    options = {"levels": "all" if all_levels else None, "trace": True, "emit_timeouts": True}
    try:
        job = job_of(
            text, events, key_groups=rng.randint(1, 3), streaming=streaming,
            time=nature.columns, type="type", **options,
        )  # fmt: skip
        stages = job.chains[0].stages
    except QueryError:
        return -1
    assert stages
    assert Workload.read(job.texts).options.output.emit_timeouts
    hierarchy = job.specs[0].query
    meant = build_layers(add_levels(hierarchy, "all" if all_levels else None))
    given = few_enough(meant, given_events(events, job.source.shape), job.source.shape.schema)
    events = events.slice(0, len(given))
    with np.errstate(over="ignore"):
        if not streaming:
            tables = staged(job, events)
        else:
            stream = Stream(job, 0, forget=lambda: rng.random() < 0.3)
            for piece in random_slices(rng, events):
                stream.feed(piece)
                if rng.random() < 0.3:
                    stream.pause()
            tables = stream.end()
    expected = wanted(hierarchy, job.source.shape, given, all_levels)
    return compare(tables, expected, f"{seed}: {text}")


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(8))
def test_random_hierarchies_in_stages_time_out_as_they_mean(round, monkeypatch):
    monkeypatch.setattr(cache, "interpreted", True)
    counts = [in_stages(seed) for seed in of_round(round, 30)]
    assert sum(count > 0 for count in counts) > 0


def test_a_complex_event_that_begins_with_an_event_is_not_behind_it():
    """The Pair of both As begins with the first one: it neither completes nor forbids its partial match."""
    text = "EVENT Pair AS SEQ(A a, A b) RETURN b.t AS at; SEQ(A a, !Pair n, Pair p) WITHIN 9"
    events = pa.table({"t": [4, 7], "type": ["A", "A"]})
    shape = create_schema(events.schema, time="t", type="type", order=())
    ((_, late),) = wanted(parse_pattern_text(text), shape, given_events(events, shape), False).values()
    assert late.total() == 2
    late_rows = ensue.match(events, text, time="t", type="type", options=ensue.OutputOptions(emit_timeouts=True))
    assert late_rows["timed_out"].to_pylist() == [True, True]
