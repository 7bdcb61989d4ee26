"""Hierarchies at work give exactly the matches that they mean, however they are found and cut."""

import math
from collections import Counter
from collections.abc import Iterator
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import ensue
from ensue import reference as semantics
from ensue.analyzer.hierarchy_layers import build_layers
from ensue.codegen import kernel_cache as cache
from ensue.errors import QueryError
from ensue.ir.hierarchy import Hierarchy
from ensue.operators.hierarchy.hierarchy_matcher import HierarchyMatcher
from ensue.operators.hierarchy.hierarchy_planner import add_levels, compile_hierarchy
from ensue.parser.definitions import parse_pattern_text
from ensue.planner.planner_options import PlannerOptions
from ensue.runtime.stage import StageInput
from ensue.vector.event_table import create_schema
from support.edges import random_edges
from support.hierarchies import Habits, by_rows, few_enough, given_events, random_crowd, random_hierarchy
from support.lifted import random_lifted
from support.seeds import of_round, scaled
from support.streams import Nature, random_events, random_slices

UP, DOWN = (PlannerOptions(off=frozenset({"top_down"})), PlannerOptions(off=frozenset({"bottom_up"})))


pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # uncompiled, scalars warn


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Every query has kernels of its own, which would all be compiled."""
    monkeypatch.setattr(cache, "interpreted", True)


def known(value: object) -> object:
    """A value that equals itself, as NaN does not."""
    return "NaN" if value != value else value


def run(prepared, events: pa.Table, random: Random) -> dict[str, pa.Table]:
    """The levels of a hierarchy whose events come in pieces, with its state saved in between."""
    live = HierarchyMatcher(prepared)
    rounds = []
    for piece in random_slices(random, events):
        rounds.append(live.process(StageInput.from_events(piece)))
        if random.random() < 0.3:
            saved = live.snapshot()
            live = HierarchyMatcher(prepared)
            live.restore(saved)
        if random.random() < 0.3 and piece.num_rows:
            ends = piece["t"].cast(pa.int64()) if pa.types.is_timestamp(piece["t"].type) else piece["t"]
            rounds.append(live.on_watermark(ends.to_numpy().max()))
    rounds.append(live.on_watermark(math.inf))
    return {name: pa.concat_tables([tables[k] for tables in rounds]) for k, name in enumerate(prepared.delivered)}


def agree(seed: int | str, habits: Habits, planning: PlannerOptions, levels: str | None = None) -> int:
    """Compares a random hierarchy with its meaning; gives the number of matches on top."""
    random = Random(seed)
    nature = random_crowd(random)
    text = random_hierarchy(random, nature, habits)
    return agree_on(text, nature, random, planning, levels)


def agree_on(text: str, nature: Nature, random: Random, planning: PlannerOptions, levels: str | None = None) -> int:
    """Compares a hierarchy with its meaning on random events; gives the number of matches on top."""
    shape = create_schema(random_events(random, 1, nature).schema, **stream_of(nature))
    try:
        hierarchy = parse_pattern_text(text, operators=OPERATORS)
        assert isinstance(hierarchy, Hierarchy)
        meant = build_layers(add_levels(hierarchy, "all" if levels == "all" else None))
        prepared = compile_hierarchy(hierarchy, shape, planning, levels=levels, trace=True)
    except QueryError:
        return -1
    found = 0
    for _ in range(2):
        events = random_events(random, random.randint(6, 14), nature)
        given = few_enough(meant, given_events(events, shape), shape.schema, most=20)
        events = events.slice(0, len(given))
        wanted = semantics.build_complex_events(meant, given, shape.schema)
        with np.errstate(over="ignore"):
            levels_found = run(prepared, events, random)
        for name, table in levels_found.items():
            fields = [f for f in "xysk" if f in table.column_names]
            rows = table.to_pylist()
            mine = Counter((by_rows(m["members"]), *(known(m[f]) for f in fields)) for m in rows)
            theirs = Counter(
                (semantics.nest_positions(e.match), *(known(e.values[f]) for f in fields)) for e in wanted[name]
            )
            assert mine == theirs, f"{name} of {text}"
            assert len(set(table["match_id"].to_pylist())) == table.num_rows, text
        found += len(wanted[meant[-1].name])
    return found


def stream_of(nature: Nature) -> dict:
    return {"time": nature.columns, "type": "type", "order": ()}


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(15))
def test_layers_from_the_bottom_up(round):
    counts = [agree(seed, Habits(), UP, "all") for seed in of_round(round, 20)]
    assert any(c > 0 for c in counts)


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(15))
def test_boxes_from_the_top_down(round):
    habits = Habits(flat=True)
    counts = [agree(seed, habits, DOWN) for seed in of_round(round, 30)]
    assert any(c > 0 for c in counts)


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(15))
def test_boxes_top_down_where_that_is_possible(round):
    counts = [agree(seed, Habits(), DOWN) for seed in of_round(round, 20)]
    assert any(c > 0 for c in counts)


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("planning", [UP, DOWN], ids=["bottom-up", "top-down"])
@pytest.mark.parametrize("round", range(10))
def test_absences_with_intervals(round, planning):
    habits = Habits(intervals=True)
    counts = [agree(f"{round} {k}", habits, planning, "all") for k in of_round(round, 30)]
    assert any(c > 0 for c in counts)


@pytest.mark.parametrize("planning", [UP, DOWN], ids=["bottom-up", "top-down"])
@pytest.mark.parametrize("writers", [(), ((random_edges,),)], ids=["sequences", "edges"])
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(13))
def test_any_query_over_complex_events(round, planning, writers):
    """Fields of complex events may be missing, as those of events that come in need not be."""
    counts = []
    for seed in of_round(round, 40):
        random = Random(f"lifted {seed}")
        nature = random_crowd(random)
        text = random_lifted(random, nature, *writers)
        levels = random.choice((None, "all"))
        try:
            counts.append(agree_on(text, nature, random, planning, levels))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert sum(c > 0 for c in counts) > len(counts) / 13


def test_boxes_are_open_in_random_hierarchies():
    """The tests above would show nothing if no box ever was."""
    opened = 0
    for seed in range(scaled(60)):
        random = Random(seed)
        nature = random_crowd(random)
        shape = create_schema(random_events(random, 1, nature).schema, **stream_of(nature))
        try:
            hierarchy = parse_pattern_text(random_hierarchy(random, nature, Habits(flat=True)))
            assert isinstance(hierarchy, Hierarchy)
            prepared = compile_hierarchy(hierarchy, shape, DOWN)
        except QueryError:
            continue
        opened += sum(box.top_down for box in prepared.boxes)
    assert opened > scaled(30)


def test_a_negation_in_a_box_beside_a_negated_box():
    assert agree(5049, Habits(), DOWN) >= 0


def test_waiting_events_keep_their_order_when_they_are_restored():
    assert agree(116, Habits(), UP, "all") >= 0


def test_an_open_box_beside_events_that_are_known_at_the_end_only():
    text = (
        "EVENT Late AS SEQ(A a, !B b) WITHIN 2 EVENTS; EVENT Pair AS SEQ(A a, B b) WITHIN 9; "
        "EVENT Both AS SEQ(Late l, Pair p) WITHIN 20; SEQ(Both x, C c) WITHIN 30"
    )
    events = pa.table({"t": range(8), "row": range(8), "type": list("AAXABXCC")})
    shape = create_schema(events.schema, time="t", type="type", order=())
    hierarchy = parse_pattern_text(text, operators=OPERATORS)
    prepared = compile_hierarchy(hierarchy, shape, DOWN, trace=True)
    assert any(box.top_down for box in prepared.boxes)
    assert all(p.waits == p.waits and p.settles == p.settles for p in prepared.layers)  # no NaN
    wanted = semantics.match_hierarchy(build_layers(hierarchy), given_events(events, shape), shape.schema)
    found = run(prepared, events, Random(0))
    mine = Counter(by_rows(m) for m in found[""]["members"].to_pylist())
    assert mine
    assert mine == Counter(semantics.nest_positions(binding) for binding in wanted[""])


# ------------------------------------------------------------------------- operators of users


OPERATORS = [
    ensue.operator("near", q=lambda a, b, most: b.start - a.end <= most),
    ensue.operator(
        "rise", q=lambda a, b, by: b.x >= a.x + by, f=lambda a, b: (b.end, b.end, b.x - a.x),
        z={"by": "integer"},
    ),
    ensue.operator("begun", f=lambda a, b: (a.start, a.start)),
    ensue.operator("close", q=lambda a, b, by: abs(a.x - b.x) <= by, order="any"),
    ensue.operator("large", q=lambda e, least: e.x >= least, over="each"),
    ensue.operator("dedup", q=lambda last, e, p: e.start - last.start >= p, over="repeat"),
    ensue.operator("same", q=lambda a, b: a.k == b.k, over="pair"),
]  # fmt: skip
KNOWN = {"time": "t", "type": "type", "definitions": OPERATORS}


PAIR = "EVENT P AS SEQ(A a, B b) WITHIN 4 RETURN b.x AS x, a.k AS k; "


def random_text(random: Random) -> str:
    """A hierarchy of one or two definitions whose layers have operators over any of their events."""
    numbers = iter(range(100))
    texts, types = [], ["A", "B", "C"]
    for name in random.choice(("P", "PQ")):
        pattern, events = random_pattern(random, types, numbers)
        source = random.choice(events)
        where = random.choice(("", " WHERE [k]"))
        returned = f"RETURN {source}.x AS x, {source}.k AS k"
        texts.append(f"EVENT {name} AS {pattern}{where} WITHIN 6 {returned}")
        types = [name, name, *types]
    pattern, _ = random_pattern(random, types, numbers)
    return "; ".join([*texts, f"{pattern}{random.choice(('', ' WHERE [k]'))} WITHIN 12"])


def random_pattern(random: Random, types: list[str], numbers: Iterator[int]) -> tuple[str, list[str]]:
    events: list[str] = []

    def event() -> str:
        events.append(f"e{next(numbers)}")
        return f"{random.choice(types)} {events[-1]}"

    def part(depth: int) -> str:
        chance, amount = random.random(), random.choice((0, 1, 2))
        if depth == 0 or chance < 0.25:
            return event()
        if chance < 0.4:
            return f"dedup({event()}, {amount}) r{next(numbers)}"
        if chance < 0.5:
            return f"large({part(depth - 1)}, {amount}) r{next(numbers)}"
        name = random.choice(("near", "close", "rise", "begun"))
        # results of pairs have no field x
        inner = [event() if name in ("rise", "close") else part(depth - 1) for _ in "ab"]
        constant = "" if name == "begun" else f", {amount}"
        return f"{name}({', '.join(inner)}{constant}) r{next(numbers)}"

    if random.random() < 0.5:
        return part(2), events
    return f"{random.choice(('SEQ', 'SEQ', 'AND'))}({part(1)}, {part(1)})", events


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("planning", [UP, DOWN], ids=["bottom-up", "top-down"])
@pytest.mark.parametrize("round", range(13))
def test_operators_over_complex_events(round, planning):
    counts = []
    for seed in of_round(round, 40):
        random = Random(f"{round} {seed}")
        text = random_text(random)
        nature = Nature(intervals=random.random() < 0.2, steps=random.choice(((0, 1), (0, 0, 1))))
        try:
            counts.append(agree_on(text, nature, random, planning, random.choice((None, "all"))))
        except Exception as error:
            error.add_note(text)
            raise
    assert sum(count > 0 for count in counts) > len(counts) / 8


@pytest.mark.parametrize("form", ["{}", "EVENT Top AS {}", "EVENT Top AS {}; SEQ(Top t) WITHIN 99"])
def test_a_query_with_operators_means_the_same_with_a_name(form):
    text = PAIR + form.format("rise(P p, P q, 1) r WITHIN 20")
    events = pa.table({"t": range(8), "type": list("ABCABCAB"), "x": range(8), "k": [0] * 8})
    found = ensue.match(events, text, **KNOWN)
    assert found.num_rows == 5
    live = ensue.live(text, schema=events.schema, **KNOWN)
    pieces = [live.feed(events.slice(k, 1)) for k in range(8)]
    assert pa.concat_tables([*pieces, live.finish()]).num_rows == 5


def test_operators_read_what_a_definition_returns_and_its_key():
    text = PAIR.replace(", a.k AS k", "").replace("WITHIN 4", "WHERE [k] WITHIN 4")
    events = pa.table({"t": range(5), "type": list("ABABC"), "x": [1, 2, 3, 4, 5], "k": [7] * 5})
    for columns in ("", " RETURN r.start AS since"):
        query = f"{text}same(P p, P q) r WITHIN 20{columns}"
        assert ensue.match(events, query, **KNOWN).num_rows == 1
    each = f"{text}large(P p, 4) d WHERE d.x < 9 WITHIN 20 RETURN d.x AS x, d.k AS k"
    found = ensue.match(events, each, **KNOWN)
    assert found.select(["x", "k"]).to_pylist() == [{"x": 4, "k": 7}, {"x": 4, "k": 7}]


def test_results_are_no_members():
    text = "EVENT N AS near(A a, B b, 3) r WITHIN 9; SEQ(N n, C c) RETURN count(n.members) AS n"
    events = pa.table({"t": range(3), "type": list("ABC")})
    assert ensue.match(events, text, **KNOWN)["n"].to_pylist() == [2]


@pytest.mark.parametrize("interval", ["FROM a.end + 2 TO a.start", "FROM a.start - 5 TO a.start - 3"])
def test_an_absence_that_ends_before_its_match_is_decided_before_events_of_its_time(interval):
    text = f"""
        EVENT Lone AS SEQ(A a, !X x {interval}) RETURN a.x AS x;
        SEQ(Lone l, B b) WITHIN 5"""
    events = pa.table({"t": [7, 8, 8], "type": ["A", "A", "B"], "x": [1, 2, 3]})
    found = ensue.match(events, text, time="t", type="type")
    assert sorted(lone["x"] for lone in found["l"].to_pylist()) == [1, 2]


def test_equalities_are_partition_keys_of_contiguous_events_in_definitions_too():
    text = "EVENT Pair AS SEQ(A a, B b) WHERE partition_contiguity(a, b) { a.s = b.s } RETURN b.t AS at; SEQ(Pair p)"
    events = pa.table({"t": [1, 2, 3], "type": ["A", "B", "B"], "s": ["p", "q", "p"]})
    shape = create_schema(events.schema, time="t", type="type", order=())
    meant = build_layers(parse_pattern_text(text))
    wanted = semantics.build_complex_events(meant, given_events(events, shape), shape.schema)
    assert [e.values["at"] for e in wanted["Pair"]] == [3]
    assert ensue.match(events, text, time="t", type="type").num_rows == 1


def test_a_negation_at_the_start_of_a_group_means_the_same_over_complex_events():
    query = "(P a)+ THEN ANY SEQ(!P n, P p, P q) WHERE p.x = 3 and q.x = 4 WITHIN 9"
    plain = pa.table({"t": [1, 2, 3, 4], "type": ["P"] * 4, "x": [1, 2, 3, 4]})
    raw = plain.set_column(1, "type", pa.array(["B"] * 4))
    lifted = ensue.match(raw, f"EVENT P AS SEQ(B b) RETURN b.x AS x; {query}", time="t", type="type")
    assert lifted.num_rows == ensue.match(plain, query, time="t", type="type").num_rows


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SEQ(B{2,3} b[] UNTIL P n)", 3),
        ("SEQ(X x, B{2} b[] UNTIL P n THEN ANY C? c)", 2),
        ("SEQ(P{2} p[] UNTIL P n)", 0),
        ("SEQ((B b THEN NEXT){2} UNTIL P n)", 2),
    ],
)
def test_a_loop_ends_at_a_complex_event_only_if_that_is_behind_all_it_has_taken(query, found):
    events = pa.table({"t": [1, 2, 3, 4], "type": [*"XBBB"]})
    text = f"EVENT P AS SEQ(B m); {query} WITHIN 9"
    shape = create_schema(events.schema, time="t", type="type", order=())
    meant = build_layers(parse_pattern_text(text))
    wanted = semantics.build_complex_events(meant, given_events(events, shape), shape.schema)
    assert len(wanted[meant[-1].name]) == ensue.match(events, text, time="t", type="type").num_rows == found
