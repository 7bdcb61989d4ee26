"""What hierarchies mean, and that a hierarchy means the same as its flattened query (H7)."""

from collections import Counter
from random import Random

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ensue
from ensue import reference as semantics
from ensue.analyzer.hierarchy_inlining import find_inlinable, inline_layer
from ensue.analyzer.hierarchy_layers import build_layers
from ensue.analyzer.query import check_query
from ensue.errors import QueryError
from ensue.ir.hierarchy import Hierarchy, get_pattern_types
from ensue.operators.hierarchy.hierarchy_planner import compile_hierarchy
from ensue.parser.definitions import parse_pattern_text
from ensue.printing.expression_printer import format_expr
from ensue.printing.pattern_printer import format_pattern
from ensue.vector.event_table import create_schema
from support.hierarchies import Habits, few_enough, flat_matches, given_events, random_crowd, random_hierarchy
from support.seeds import of_round, scaled
from support.streams import random_events


def layered(text: str):
    found = parse_pattern_text(text)
    assert isinstance(found, Hierarchy)
    return build_layers(found)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Kernels are generated, but not compiled."""
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)


def found_in(text: str, events: str, **columns) -> dict[str, list]:
    """The matches of each layer by position; each character is an event of that type.

    What they mean is also what comes out of a run.
    """
    time = ("start", "end") if "start" in columns else "at"
    columns = {"row": range(len(events)), "type": events, "at": range(len(events))} | columns
    table = pa.table({n: list(c) if isinstance(c, str) else c for n, c in columns.items()})
    shape = create_schema(table.schema, time=time, type="type", order=())
    found = semantics.match_hierarchy(layered(text), given_events(table, shape), shape.schema)
    run = ensue.match(table, text, time=time, type="type", options=ensue.OutputOptions(levels="all", trace=True))
    for name, made in found.items():
        rows = run[name]["members"].to_pylist()
        assert sorted(map(by_rows, rows)) == sorted(map(semantics.nest_positions, made)), name
    return {name: [short(binding) for binding in made] for name, made in found.items()}


def by_rows(members: dict) -> tuple:
    """The members of a match as `semantics.nested` writes them."""
    found = {}
    for variable, value in members.items():
        several = value if isinstance(value, list) else [value]
        found[variable] = tuple(by_rows(e["members"]) if "members" in e else e["row"] for e in several if e)
    return tuple(sorted((variable, events) for variable, events in found.items() if events))


def short(binding) -> tuple:
    """`((0, 2), 3)`: positions in the order of the variables' names, boxes as tuples."""
    return tuple(
        tuple(_short(e) for e in events) if len(events) > 1 else _short(events[0])
        for _, events in sorted(binding.items())
    )


def _short(event):
    return short(event.match) if event.match else event.position


# ------------------------------------------------------------------------------------- the rules

PAIR = "EVENT P AS SEQ(A a, B b) WITHIN 10; "


def test_matches_of_a_definition_are_events():
    found = found_in(PAIR + "SEQ(P x, C y)", "ABCAC")
    assert found == {"P": [(0, 1)], "": [((0, 1), 2), ((0, 1), 4)]}


def test_a_complex_event_does_not_follow_its_own_members():
    text = PAIR + "SEQ(B b, P p)"
    assert found_in(text, "ABB", at=[0, 0, 0])[""] == []
    assert found_in(text, "BAB", at=[0, 0, 0])[""] == [(0, (1, 2))]


def test_nothing_inside_a_complex_event_comes_after_or_before_it():
    for text in (PAIR + "SEQ(P a, C b)", PAIR + "SEQ(C a, P b)"):
        assert found_in(text, "ACB")[""] == []
        assert found_in(text, "ACB", at=[0, 0, 0])[""] == []


def test_at_equal_times_the_order_of_members_decides():
    text = PAIR + "SEQ(P x, P y)"
    assert found_in(text, "ABAB", at=[0] * 4)[""] == [((0, 1), (2, 3))]
    assert found_in(text, "AABB", at=[0] * 4)[""] == []


def test_events_that_last_may_not_overlap():
    text = PAIR + "SEQ(P a, C b)"
    times = {"start": [0, 2, 3], "end": [1, 4, 5]}
    assert found_in(text, "ABC", **times)[""] == []
    assert found_in(text, "ABC", start=[0, 2, 4], end=[1, 4, 5])[""] == [((0, 1), 2)]


def test_a_negated_complex_event_stands_wholly_between():
    text = PAIR + "SEQ(C a, !P p, C b)"
    assert found_in(text, "CABC")[""] == []
    assert found_in(text, "ACBC")[""] == [(1, 3)]
    assert found_in(text, "CACB")[""] == [(0, 2)]


def test_a_negation_that_a_definition_ends_with_is_decided_in_its_place():
    text = "EVENT Q AS SEQ(A a, !B b) WITHIN 2; SEQ(Q x, C y)"
    assert found_in(text, "AC")[""] == [((0,), 1)]
    assert found_in(text, "ACB")[""] == []


def test_what_is_known_late_is_put_in_order():
    """(0, 2) is known before (1,), as it began earlier, and stands behind it."""
    text = "EVENT Q AS SEQ(A* a[], B b, !C c) WITHIN 4; SEQ(Q x, Q y) WITHIN 8"
    assert found_in(text, "ABB")[""] == [((0, 1), (2,)), ((1,), (2,))]


def test_alternatives_that_are_known_at_different_times():
    text = "EVENT Q AS OR(B b, SEQ(B c, B d, !A n)) WITHIN 5; AND(Q x, Q y) WHERE strict_contiguity(x, y) { 1 = 1 }"
    assert len(found_in(text, "BB")[""]) == 4  # (0,), (0, 1), (1,) in this order


def test_kleene_of_complex_events():
    text = PAIR + "SEQ(P{2,} x[], C y)"
    assert found_in(text, "ABABC")[""] == [(((0, 1), (2, 3)), 4)]
    assert found_in(text, "AABBC")[""] == []


def test_aggregates_over_complex_events():
    text = (
        "EVENT P AS SEQ(A a, B b) WITHIN 10 RETURN b.v - a.v AS up; "
        "SEQ(P+ x[], C y) WHERE skip_till_next_match(x[], y) { sum(x.up) > 4 }"
    )
    assert found_in(text, "ABABC", v=[0, 2, 0, 3, 0])[""] == [(((0, 1), (2, 3)), 4)]


def test_each_complex_event_against_the_first_of_a_later_variable():
    text = "EVENT P AS SEQ(A m) RETURN m.x AS p, m.k AS k; SEQ(P+ a[], B+ b[]) WHERE b[1].k < a[i].p"
    assert found_in(text, "AB", x=[5, 5], k=[0, 0])[""] == [((0,), 1)]
    assert found_in(text, "AB", x=[-1, 5], k=[0, -2])[""] == [((0,), 1)]
    assert found_in(text.replace("SEQ(P+", "AND(P+"), "AB", x=[5, 5], k=[0, 0])[""] == [((0,), 1)]
    assert found_in(text, "AB", x=[5, 5], k=[0, 6])[""] == []


def test_and_lets_complex_events_share_members():
    text = PAIR + "EVENT Q AS SEQ(A a, C c) WITHIN 10; AND(P x, Q y)"
    assert found_in(text, "ABC")[""] == [((0, 1), (0, 2))]


def test_two_layers_share_one_below():
    text = PAIR + "EVENT Q AS SEQ(P a, C c); EVENT R AS SEQ(P a, D d); AND(Q q, R r)"
    assert found_in(text, "ABCD")[""] == [(((0, 1), 2), ((0, 1), 3))]


def test_a_layer_may_have_another_key():
    text = "EVENT P AS SEQ(A a, B b) WHERE [k] RETURN a.m AS m; SEQ(P x, P y) WHERE [m] WITHIN 20"
    found = found_in(text, "ABABAB", k="112233", m="uuvvuu")
    assert found[""] == [((0, 1), (4, 5))]


def test_the_key_is_a_field_even_where_return_leaves_it_out():
    text = "EVENT P AS SEQ(A a, B b) WHERE [k] RETURN a.m AS m; SEQ(P x, C y) WHERE x.k = y.k"
    assert found_in(text, "ABC", k="111", m="uuu")[""] == [((0, 1), 2)]
    assert found_in(text, "ABC", k="112", m="uuu")[""] == []


def test_a_strict_layer_of_complex_events_passes_over_raw_ones():
    text = PAIR + "SEQ(P x, P y) WHERE strict_contiguity(x, y) { 1 = 1 }"
    assert found_in(text, "ABCCAB") == {
        "P": [(0, 1), (0, 5), (4, 5)],
        "": [],  # (0, 5) stands between
    }
    assert found_in(text.replace("10", "1"), "ABCCAB")[""] == [((0, 1), (4, 5))]


def test_a_strict_layer_of_both_sees_every_raw_event():
    text = "EVENT P AS SEQ(A a, B b) WITHIN 1; SEQ(P x, C y) WHERE strict_contiguity(x, y) {1 = 1}"
    assert found_in(text, "ABC")[""] == [((0, 1), 2)]
    assert found_in(text, "ABXC")[""] == []


def test_a_complex_event_stands_behind_its_last_member():
    text = "EVENT P AS SEQ(A a, B b) WITHIN 9; AND(B x, P y) WHERE strict_contiguity(x, y) { 1 = 1 }"
    assert found_in(text, "AB")[""] == [(1, (0, 1))]
    assert found_in(text, "ABC")[""] == [(1, (0, 1))]


def test_complex_events_behind_one_event_are_in_the_order_of_definitions_then_of_matches():
    text = "EVENT P AS SEQ(A a, C c); EVENT Q AS SEQ(B b, C c); AND(P x, Q y) WHERE strict_contiguity(x, y) { 1 = 1 }"
    # behind C: P(0, 3), P(1, 3), Q(2, 3)
    assert found_in(text, "AABC")[""] == [((1, 3), (2, 3))]
    named_the_other_way_round = text.replace("P x, Q y", "Q y, P x")
    assert found_in(named_the_other_way_round, "AABC")[""] == [((1, 3), (2, 3))]


def test_windows_reach_from_the_first_member_to_the_last():
    text = PAIR + "SEQ(P x, P y) WITHIN 3"
    assert found_in(text, "ABAB")[""] == [((0, 1), (2, 3))]
    assert found_in(text, "ABXAB")[""] == []


def test_a_window_of_events_counts_those_of_the_layer():
    text = "EVENT P AS SEQ(A a, B b) WITHIN 1; SEQ(P x, P y) WITHIN 2 EVENTS"
    assert found_in(text, "ABXXXAB")[""] == [((0, 1), (5, 6))]


def test_start_end_and_fields_of_members():
    text = PAIR + "SEQ(P x, P y) WHERE y.start - x.end <= 1 and x.b.v < y.a.v RETURN x.start AS from_"
    found = found_in(text, "ABABXAB", v=[0, 1, 2, 3, 0, 1, 9])
    assert found[""] == [((0, 1), (2, 3)), ((0, 1), (2, 6))]


@pytest.mark.parametrize(
    ("rest", "times", "found"),
    [
        ("SEQ(P p, C c WITHIN 4 OF p)", {"at": [1, 3, 5, 9]}, [2]),
        ("SEQ(P p, C c) WHERE c.end - p.end < 6", {"at": [1, 3, 5, 9]}, [2]),
        ("SEQ(P p, C c) WHERE c.start > 7", {"start": [0, 1, 4, 8], "end": [1, 3, 5, 9]}, [3]),
        ("SEQ(P p, C+ c[]) WHERE c[i].end - p.start > 5", {"at": [1, 3, 5, 9]}, [3]),
        ("SEQ(P p, C c, !C d FROM c.end TO c.end + 4)", {"at": [1, 3, 5, 9]}, [3]),
        ("SEQ(P p, C c, !C d FROM c.end TO c.end + 3)", {"at": [1, 3, 5, 9]}, [2, 3]),
        ("SEQ(P p, C c, !C d FROM p.end TO c.end)", {"at": [1, 3, 5, 9]}, [2]),
    ],
)
def test_times_of_raw_events_beside_complex_ones(rest, times, found):
    matches = found_in(PAIR + rest, "ABCC", **times)[""]
    assert [c for c, _ in matches] == found


def test_an_interval_without_a_raw_event():
    text = PAIR + "AND(P p, !C c FROM p.end TO p.end + 2)"
    assert found_in(text, "ABCAB", at=[1, 2, 4, 5, 6])[""] == [((0, 4),), ((3, 4),)]


def test_no_complex_event_in_an_interval():
    text = PAIR + "SEQ(C c, !P p FROM c.end TO c.end + 5)"
    assert found_in(text, "CABC", at=[1, 2, 6, 7])[""] == [(3,)]
    assert found_in(text, "CABC", at=[1, 2, 7, 8])[""] == [(0,), (3,)]
    assert found_in(text, "CABC", at=[1, 1, 6, 8])[""] == [(0,), (3,)]  # it starts with c


def test_a_definition_with_an_interval_is_known_later():
    text = "EVENT Q AS AND(A a, !B b FROM a.end TO a.end + 3) WITHIN 9; SEQ(Q q, C c) WITHIN 20"
    assert found_in(text, "ACABC", at=[1, 2, 6, 8, 9])[""] == [(1, (0,)), (4, (0,))]


def test_times_of_raw_events_are_returned():
    text = PAIR + "SEQ(P p, C c) RETURN c.start AS begun, c.end AS ended, p.end - c.start AS gap"
    events = pa.table({"type": list("ABC"), "b": [0, 1, 4], "e": [1, 3, 5]})
    found = ensue.match(events, text, time=("b", "e"), type="type")
    assert found.select(["begun", "ended", "gap"]).to_pylist() == [{"begun": 4, "ended": 5, "gap": -1}]


def test_a_misspelt_field_shows_no_internal_names():
    events = pa.table({"type": list("ABC"), "at": [0, 1, 2]})
    with pytest.raises(QueryError, match="unknown field 'zzz'") as caught:
        ensue.match(events, PAIR + "SEQ(P p, C c) WHERE c.zzz > 1", time="at", type="type")
    assert "__" not in str(caught.value)


def test_what_the_events_of_a_layer_carry():
    table = pa.table({"at": [3, 4, 5], "type": list("ABC"), "v": [1, 2, 3]})
    shape = create_schema(table.schema, time="at", type="type", order=())
    text = "EVENT P AS SEQ(A a, B b) RETURN a.v + b.v AS sum, 7 AS end; SEQ(P x, C y) WHERE x.sum=3"
    found = semantics.build_complex_events(
        layered(text + " and x.end = 7 and x.start = 3"), given_events(table, shape), shape.schema
    )
    (event,) = found["P"]
    assert (event.position, event.first, event.start, event.end) == (1, 0, 3, 4)
    assert event.values | {"match_id": ""} == {"start": 3, "end": 7, "sum": 3, "match_id": ""}
    assert len(found[""]) == 1


# --------------------------------------------------------------------------------- replaced boxes


def flat_text(text: str) -> tuple[str, set[str]]:
    hierarchy = layered(text)
    whys = find_inlinable(hierarchy)
    assert set(whys.values()) == {None}, whys
    flat = inline_layer(hierarchy, whys)
    return format_pattern(flat.query.pattern), {format_expr(c) for c in flat.query.where}


def test_a_box_becomes_its_pattern():
    text = (
        "EVENT P AS SEQ(A a, !N n, B b) WHERE [k] and a.v < b.v and n.v > a.v WITHIN 5 "
        "RETURN a.v + b.v AS sum; "
        "SEQ(P x, C c) WHERE [k] and x.sum < c.v and c.start - x.end < 2 WITHIN 9"
    )
    pattern, where = flat_text(text)
    assert pattern == "SEQ(SEQ(A x_a, !N x_n, B x_b), C c)"
    assert where == {
        "x_a.v < x_b.v",
        "x_n.v > x_a.v",
        "x_a.v + x_b.v < c.v",
        "c.start - x_b.end < 2",
        "x_b.end - x_a.start <= 5",
    }


def test_boxes_in_boxes():
    text = (
        "EVENT P AS SEQ(A a, B+ b[]) WITHIN 5; EVENT Q AS AND(P p, C c) WITHIN 9; "
        "SEQ(Q x, D x_p_a) WHERE x.p.a.v < x_p_a.v"
    )
    pattern, where = flat_text(text)
    assert pattern == "SEQ(AND(SEQ(A x_p_a2, B+ x_p_b[]), C x_c), D x_p_a)"
    assert where == {
        "x_p_a2.v < x_p_a.v",
        "x_p_b[x_p_b.LEN].end - x_p_a2.start <= 5",
        "greatest(x_p_b[x_p_b.LEN].end, x_c.end) - least(x_p_a2.start, x_c.start) <= 9",
    }
    hierarchy = layered(text)
    flat = inline_layer(hierarchy, find_inlinable(hierarchy))
    assert [(b.path, b.name, b.box, b.variables, b.level, b.precursor) for b in flat.boxes] == [
        (("x",), "Q", "x", ("x_p_a2", "x_p_b", "x_c"), 2, None),
        (("x", "p"), "P", "x_p", ("x_p_a2", "x_p_b"), 3, "x"),
    ]
    assert flat.leaves == {(): {"x_p_a": "x_p_a"}, ("x",): {"c": "x_c"}, ("x", "p"): {"a": "x_p_a2", "b": "x_p_b"}}
    assert flat.whole == {"x": ("x",)}


REASONS = {
    "skipped": PAIR + "SEQ(P x, C c) WHERE skip_till_next_match(x, c) { 1 = 1 }",
    "AFTER MATCH and CHOOSE need": PAIR + "SEQ(P x, C c) AFTER MATCH SKIP PAST LAST EVENT",
    "LIMIT, COUNT": PAIR + "SEQ(P x, C c) LIMIT 1",
    "counts complex": PAIR + "SEQ(P x, C c) WITHIN 3 EVENTS",
    "several complex": PAIR + "SEQ(P+ x[], C c)",
    "negated": PAIR + "SEQ(C c, !P x, C d)",
    "is optional": PAIR + "SEQ(P? x, C c)",
    "alternatives": PAIR + "OR(P x, C c)",
    "may share events": PAIR + "AND(P x, B c)",
    "a negation in the AND": PAIR + "AND(P x, C c, !D d)",
    "is itself delivered": PAIR + "SEQ(P x, C c); EMIT P",
    "is matched with": "EVENT P AS SEQ(A a, B b) WHERE strict_contiguity(a, b) {1 = 1}; SEQ(P x, C c)",
    "has AFTER MATCH": "EVENT P AS SEQ(A a, B b) AFTER MATCH SKIP PAST LAST EVENT; SEQ(P x, C c)",
    "has HAVING": "EVENT P AS SEQ(A a, B b) HAVING a.v > 1; SEQ(P x, C c)",
    "a number of events": "EVENT P AS SEQ(A a, B b) WITHIN 5 EVENTS; SEQ(P x, C c)",
    "has alternatives": "EVENT P AS SEQ(A a, B? b); SEQ(P x, C c)",
    "a start or an end": "EVENT P AS SEQ(A* a[], !C c, B b); SEQ(P x, C c)",
    "another key": "EVENT P AS SEQ(A a, B b) WHERE [k]; SEQ(P x, C c)",
    "is not a field of its": ("EVENT P AS SEQ(A a, B b) WHERE [k] RETURN a.v AS k; SEQ(P x, C c) WHERE [k]"),
    "returns its own": ("EVENT P AS SEQ(A a, B b) RETURN a.v AS start; EVENT Q AS SEQ(P p, C c); SEQ(Q q, D d)"),
    "only for complex events": PAIR + "SEQ(P x, C c) WHERE x.match_id != 'a'",
    "an aggregate over": PAIR + "SEQ(P x, C c) WHERE avg(x.a.v) > 1",
    "is optional ": ("EVENT P AS SEQ(A a, B+ b[]) RETURN b[2].v AS v; SEQ(P x, C c) WHERE x.v > 1"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_why_a_box_stays(reason):
    whys = [why for why in find_inlinable(layered(REASONS[reason])).values() if why is not None]
    assert whys
    assert reason.strip() in whys[-1]


def test_who_says_so_may_inline_what_is_delivered():
    hierarchy = layered(PAIR + "SEQ(P x, C c); EMIT P")
    assert find_inlinable(hierarchy, delivered_too=True) == {("", "x"): None}


def test_a_missing_event_of_a_box_is_null():
    text = "EVENT P AS SEQ(A a, B* b[]) RETURN b[1].v AS v; SEQ(P x, C c) WHERE {}"
    for condition, known in (("x.v > 1", 0), ("x.v is null", 1)):
        hierarchy = layered(text.format(condition))
        table = pa.table({"at": [1, 2], "type": list("AC"), "v": [1, 1]})
        shape = create_schema(table.schema, time="at", type="type", order=())
        events = given_events(table, shape)
        assert len(semantics.match_hierarchy(hierarchy, events, shape.schema)[""]) == known
        assert len(flat_matches(hierarchy, find_inlinable(hierarchy), events, shape.schema)) == known


# ------------------------------------------------------------------------------- random hierarchies


def assert_flat_is_equal(random: Random, habits: Habits) -> str:
    """A random hierarchy in which some or all boxes that may go are gone."""
    nature = random_crowd(random)
    text = random_hierarchy(random, nature, habits)
    try:
        hierarchy = layered(text)
    except QueryError:
        return "refused"
    free = [choice for choice, why in find_inlinable(hierarchy, delivered_too=True).items() if why is None]
    outcome = "nothing"
    for _ in range(3):
        events = random_events(random, random.randint(6, 12), nature)
        shape = create_schema(events.schema, time=nature.columns, type="type", order=())
        raw = few_enough(hierarchy, given_events(events, shape), shape.schema)
        found = semantics.match_hierarchy(hierarchy, raw, shape.schema)[hierarchy[-1].name]
        expected = sorted(semantics.nest_positions(binding) for binding in found)
        gone = free if random.random() < 0.7 else [c for c in free if random.random() < 0.5]
        flat = inline_layer(hierarchy, gone, times=(shape.schema.start, shape.schema.end))
        if not {layer.name for layer in hierarchy} & set(get_pattern_types(flat.query)):
            check_query(flat.query, shape.schema)
        given = sorted(flat_matches(hierarchy, gone, raw, shape.schema))
        assert given == expected, f"{text}\n{gone}\n{events.to_pydict()}"
        if found:
            outcome = "flat" if flat.boxes else "matches"
    return outcome


@pytest.mark.parametrize("round", range(20))
@pytest.mark.first_rounds(1)
def test_a_hierarchy_means_its_flat_query(round):
    outcomes = Counter()
    for seed in of_round(round, 100):
        try:
            outcomes[assert_flat_is_equal(Random(seed), Habits(flat=seed % 4 > 0))] += 1
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert outcomes["flat"] > scaled(5), outcomes


@settings(max_examples=scaled(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_the_smallest_hierarchy_that_is_not_its_flat_query(random):
    assert_flat_is_equal(random, Habits(depth=2, flat=True))


def test_layers_do_not_wait_for_a_fixed_moment_on_a_stream():
    schema = pa.schema({"at": pa.int64(), "type": pa.string()})
    text = "EVENT Q AS AND(A a, !B b FROM a.end TO {}) WITHIN 5; SEQ(Q q, C c) WITHIN 9"
    shape = create_schema(schema, time="at", type="type", order=())
    with pytest.raises(QueryError, match="in the definition of Q: an absence until a fixed"):
        compile_hierarchy(parse_pattern_text(text.format("9")), shape, streaming=True)
    waits = [p.waits for p in compile_hierarchy(parse_pattern_text(text.format("a.end + 3")), shape).layers]
    assert waits == [0, 3]
