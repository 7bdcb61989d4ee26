"""emit_timeouts: the partial matches whose window was over before they were complete."""

import math
from collections import Counter
from random import Random

import pyarrow as pa
import pytest

import ensue
from ensue import reference as semantics
from ensue.analyzer.timeouts import build_timeout_queries
from ensue.engine.reference_events import read_events
from ensue.errors import QueryError
from ensue.parser.pattern_parser import parse
from ensue.runtime.compiled_query import add_plan_keys, compile_query, compile_with_timeouts
from ensue.vector.event_table import create_schema, get_end_times
from support.edges import random_edges
from support.groups import random_groups
from support.matching import match_in_order
from support.queries import random_query, random_repeats
from support.seeds import of_round, scaled
from support.streams import random_events, random_nature, random_slices

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")

ABC = "SEQ(A a, B b, C c) WITHIN 4"
LISTS = "SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) { %s } WITHIN 9"


@pytest.fixture
def timed_out(runner):
    """`timed_out("SEQ(A a, B b) WITHIN 2", "AXXX")` is `[(0, None)]`: positions, as `matched`."""

    def run(query, events, **columns):
        time = ("start", "end") if "start" in columns else "at"
        table = {"at": range(len(events))} if time == "at" else {}
        table |= {"type": list(events), "position": range(len(events))}
        table |= {n: list(c) if isinstance(c, str) else c for n, c in columns.items()}
        found = runner.match(
            pa.table(table), query, time=time, type="type", options=ensue.OutputOptions(emit_timeouts=True)
        )
        standard = ("match_id", "start", "end", "timed_out")
        rows = [r for r in found.to_pylist() if r["timed_out"]]
        shown = [tuple(_shown(r[v]) for v in r if v not in standard) for r in rows]
        return sorted(shown, key=lambda row: [(-1,) if v is None else _key(v) for v in row])

    return run


def _shown(bound):
    match bound:
        case None:
            return None
        case list():
            return tuple(e["position"] for e in bound)
        case _:
            return bound["position"]


def _key(value):
    return value if isinstance(value, tuple) else (value,)


# ------------------------------------------------------------------------------- sequences


@pytest.mark.streams(slow=True)
def test_what_was_begun_and_not_finished(timed_out):
    assert timed_out(ABC, "ABXXXXXX") == [(0, 1, None)]
    assert timed_out(ABC, "AXXXXXXX") == [(0, None, None)]


def test_a_match_is_none(timed_out):
    assert timed_out(ABC, "ABCXXXXX") == []


def test_the_window_begins_at_the_first_event(timed_out):
    assert timed_out(ABC, "AXXXBC") == [(0, 4, None)]
    assert timed_out(ABC, "AXXXXBC") == [(0, None, None)]


def test_the_end_of_the_events_is_the_end_of_all_windows(timed_out):
    assert timed_out(ABC, "AB") == [(0, 1, None)]


def test_any_match_gives_every_combination_that_went_no_further(timed_out):
    assert timed_out(ABC, "ABBCB") == [(0, 4, None)]
    assert timed_out(ABC, "ABB") == [(0, 1, None), (0, 2, None)]


def test_next_match_gives_the_one_run_of_each_first_event(timed_out):
    query = "SEQ(A a, B b, C c) WHERE skip_till_next_match(a, b, c) {} WITHIN 9"
    assert timed_out(query, "ABAB") == [(0, 1, None), (2, 3, None)]
    assert timed_out(query, "ABBC") == []


def test_an_event_that_breaks_a_condition_takes_nothing_further(timed_out):
    query = "SEQ(A a, B b) WHERE b.x > a.x WITHIN 9"
    assert timed_out(query, "AB", x=[2, 1]) == [(0, None)]
    assert timed_out(query, "AB", x=[1, 2]) == []


def test_partitions_do_not_see_each_other(timed_out):
    query = "SEQ(A a, B b) WHERE [k] WITHIN 9"
    assert timed_out(query, "AAB", k="pqp") == [(1, None)]


@pytest.mark.everywhere
def test_equalities_between_all_variables_make_partitions(timed_out):
    query = "SEQ(A a, B b, C c) WHERE a.k = c.k and b.k = c.k WITHIN 9"
    columns = {"k": pa.array([1, 2, None, 1])}
    assert timed_out(query, "ABAB", **columns) == [(0, 3, None)]


def test_conditions_on_what_did_not_come_do_not_matter(timed_out):
    query = "SEQ(A a, B b, C c) WHERE c.x > a.x + b.x WITHIN 9"
    assert timed_out(query, "AB", x=[1, 2]) == [(0, 1, None)]


def test_a_single_event_has_no_partial_match(timed_out):
    assert timed_out("A a WITHIN 3", "AXA") == []


def test_events_that_last(timed_out):
    query = "SEQ(A a, B b) WITHIN 5"
    assert timed_out(query, "AB", start=[1, 2], end=[3, 4]) == [(0, None)]
    assert timed_out(query, "AB", start=[1, 3], end=[3, 4]) == []


@pytest.mark.parametrize("name", ["start", "end", "match_id"])
@pytest.mark.parametrize("query", ["SEQ(A {}, B b) WITHIN 2", "A a THEN NEXT B {} WITHIN 2"])
def test_a_variable_may_have_the_name_of_a_standard_column(runner, query, name):
    events = pa.table({"at": [0, 1, 5, 9], "type": list("ABAA"), "place": [7, 8, 9, 10]})
    found = runner.match(
        events, query.format(name), time="at", type="type", options=ensue.OutputOptions(emit_timeouts=True)
    ).to_pylist()
    first, last = (name, "b") if "a" not in found[0] else ("a", name)
    places = sorted((r["timed_out"], r[first]["place"], r[last] and r[last]["place"]) for r in found)
    assert places == [(False, 7, 8), (True, 9, None), (True, 10, None)]


@pytest.mark.parametrize("name", ["start", "end"])
def test_a_column_with_the_name_of_a_standard_column_is_null_without_its_event(runner, name):
    events = pa.table({"at": [0, 1, 5, 9], "type": list("ABAA"), "place": [7, 8, 9, 10]})
    query = f"SEQ(A a, B b) WITHIN 2 RETURN a.place AS place, b.place AS {name}"
    found = runner.match(events, query, time="at", type="type", options=ensue.OutputOptions(emit_timeouts=True))
    rows = sorted((r["place"], r["timed_out"], r[name]) for r in found.to_pylist())
    assert rows == [(7, False, 8), (9, True, None), (10, True, None)]


# ------------------------------------------------------------------------------- Kleene


@pytest.mark.everywhere(slow=True)
def test_a_list_that_nothing_closed(timed_out):
    assert timed_out(LISTS % "", "ABBXX") == [(0, (1, 2), None)]
    assert timed_out(LISTS % "", "AXX") == [(0, None, None)]


def test_a_list_goes_on_behind_what_closed_it(timed_out):
    assert timed_out(LISTS % "", "ABCB") == [(0, (1, 3), None)]


def test_a_further_event_must_meet_the_running_conditions(timed_out):
    query = LISTS % "b[i].x > b[i-1].x and b[i].x >= a.x"
    assert timed_out(query, "ABBB", x=[2, 1, 3, 3]) == [(0, (2,), None)]
    query = LISTS % "b[i].x > avg(b[..i-1].x)"
    assert timed_out(query, "ABBBB", x=[0, 2, 4, 3, 4]) == [(0, (1, 2, 4), None)]


def test_a_condition_on_the_whole_list_is_for_the_event_that_closes_it(timed_out):
    assert timed_out(LISTS % "count(b) > 1", "ABC") == [(0, (1,), None)]
    assert timed_out(LISTS % "count(b) > 1", "ABBC") == []
    assert timed_out(LISTS % "c.x > b[b.LEN].x", "ABBC", x=[0, 1, 5, 3]) == [(0, (1, 2), None)]


def test_a_list_at_the_end_is_a_match_at_once(timed_out):
    query = "SEQ(A a, B+ b[]) WHERE skip_till_next_match(a, b[]) {} WITHIN 9"
    assert timed_out(query, "ABB") == []
    assert timed_out(query, "AX") == [(0, None)]


def test_a_list_that_is_too_short(timed_out):
    query = "SEQ(A a, B{2,3} b[], C c) WHERE skip_till_next_match(a, b[], c) {} WITHIN 9"
    assert timed_out(query, "ABC") == [(0, (1,), None)]
    assert timed_out(query, "ABB") == [(0, (1, 2), None)]
    assert timed_out(query, "ABBBB") == [(0, (1, 2, 3), None)]
    assert timed_out("SEQ(A a, B{2} b[]) WITHIN 9", "AB") == [(0, (1,))]


# ------------------------------------------------------------------------------- negation


@pytest.mark.everywhere(slow=True)
def test_what_a_negation_ended_is_not_timed_out(timed_out):
    query = "SEQ(A a, !N n, B b) WITHIN 4"
    assert timed_out(query, "ANXXXX") == []
    assert timed_out(query, "AXXXX") == [(0, None)]
    assert timed_out(query, "AXXXXN") == [(0, None)]


def test_conditions_say_what_a_negation_forbids(timed_out):
    query = "SEQ(A a, !N n, B b) WHERE n.x > a.x WITHIN 4"
    assert timed_out(query, "AN", x=[2, 1]) == [(0, None)]


def test_a_negation_in_the_part_that_came(timed_out):
    query = "SEQ(A a, !N n, B b, C c) WITHIN 9"
    assert timed_out(query, "ANB") == []
    assert timed_out(query, "ABN") == [(0, 1, None)]


def test_a_negation_at_the_end_ends_a_match_not_a_partial_one(timed_out):
    query = "SEQ(A a, B b, !N n) WITHIN 9"
    assert timed_out(query, "ABN") == []
    assert timed_out(query, "AN") == [(0, None)]


def test_a_negation_at_the_start_looks_back_from_the_last_event_so_far(timed_out):
    query = "SEQ(!N n, A a, B b) WITHIN 3"
    assert timed_out(query, "NXAXX") == []
    assert timed_out(query, "NXXXAXX") == [(4, None)]


# ------------------------------------------------------------------------------- optional


def test_a_part_that_may_be_missing(timed_out):
    query = "SEQ(A a, B? b, C c) WITHIN 4"
    assert timed_out(query, "AXX") == [(0, None, None)]
    assert timed_out(query, "ABX") == [(0, 1, None)]
    assert timed_out(query, "ABC") == []
    assert timed_out("SEQ(A a, B b, C? c) WITHIN 4", "AB") == []


def test_a_part_that_may_be_missing_under_next(timed_out):
    query = "SEQ(A a, B? b, C c) USING next WITHIN 4"
    assert timed_out(query, "AXX") == [(0, None, None)]
    assert timed_out(query, "ABX") == [(0, 1, None)]
    assert timed_out(query, "ABC") == []


def test_alternatives_and_optional_groups(timed_out):
    query = "SEQ(A a, OR(B b, SEQ(C c, D d))) WITHIN 9"
    assert timed_out(query, "AXAC") == [(0, None, 3, None), (2, None, 3, None)]
    assert timed_out(query, "ACB") == [(0, None, 1, None)]
    query = "SEQ(A a, (SEQ(B b, C c))?, D d) WITHIN 9"
    assert timed_out(query, "AB") == [(0, 1, None, None)]


# ---------------------------------------------------------------------- THEN, groups, UNTIL


@pytest.mark.everywhere(slow=True)
def test_what_then_waits_for(timed_out):
    query = "A a THEN NEXT B b THEN NEXT C c WITHIN 4"
    assert timed_out(query, "ABXXXXXX") == [(0, 1, None)]
    assert timed_out(query, "ABCXXXXX") == []


@pytest.mark.streams(slow=True)
def test_each_run_that_could_still_go_on(timed_out):
    """As in Flink: a loop may be left at any time, and each way to leave it waits by itself."""
    query = "A a THEN NEXT (B b THEN NEXT)+ THEN NEXT C c WITHIN 9"
    assert timed_out(query, "ABB") == [(0, (1,), None), (0, (1, 2), None)]
    query = "A a THEN NEXT (B b)? THEN NEXT C c WITHIN 9"
    assert timed_out(query, "AB") == [(0, None, None), (0, 1, None)]


def test_then_any_waits_until_the_end(timed_out):
    assert timed_out("A a THEN ANY C c WITHIN 9", "AAC") == [(0, None), (1, None)]
    assert timed_out("A a THEN NEXT C c WITHIN 9", "AAC") == []


def test_then_waits_for_the_very_next_event(timed_out):
    query = "A a THEN B b WHERE [k] WITHIN 3"
    assert timed_out(query, "AXX", k="ppp") == []
    assert timed_out(query, "AXX", k="pqq") == [(0, None)]
    assert timed_out(query, "AXXXX", k="pqqqp") == [(0, None)]
    assert timed_out("A a THEN STRICT B b WITHIN 3", "A") == []


def test_a_pause_that_was_too_long(timed_out):
    query = "A a THEN NEXT WITHIN 2 B b WITHIN 9"
    assert timed_out(query, "AXXB") == [(0, None)]
    assert timed_out(query, "AXB") == []


def test_what_ends_a_loop_does_not_end_the_wait_behind_it(timed_out):
    query = "A a THEN NEXT (B b THEN NEXT)+ UNTIL X x THEN NEXT C c WITHIN 9"
    assert timed_out(query, "ABXB") == [(0, (1,), None)]


def test_negations_between_words(timed_out):
    query = "SEQ(A a, !X n THEN NEXT C c) WITHIN 9"
    assert timed_out(query, "AX") == []
    assert timed_out(query, "AY") == [(0, None)]
    assert timed_out("A a THEN !X n THEN NEXT C c WITHIN 9", "AYX") == [(0, None)]
    assert timed_out("A a THEN !X n THEN NEXT C c WITHIN 9", "AXY") == []


def test_greedy_and_reluctant_loops(timed_out):
    query = "A a THEN NEXT (B b THEN NEXT)+{} THEN NEXT C c WITHIN 9"
    assert timed_out(query.format("+"), "ABB") == [(0, (1, 2), None)]
    assert timed_out(query.format("?"), "ABB") == [(0, (1,), None), (0, (1, 2), None)]


def test_a_group_that_was_not_finished(timed_out):
    query = "SEQ((A a, B b)+, C c) USING next WITHIN 9"
    assert timed_out(query, "ABA") == [((0, 2), (1,), None), ((2,), None, None)]
    assert timed_out(query, "ABC") == []


def test_returned_columns_of_runs(runner):
    query = "Order o THEN NEXT Pay p THEN NEXT Ship s WHERE [id] WITHIN 10 "
    query += "RETURN o.id, s.t AS shipped, count(p) AS payments"
    found = runner.match(ORDERS, query, time="t", type="type", options=ensue.OutputOptions(emit_timeouts=True))
    assert found.column_names == [
        "match_id", "start", "end", "timed_out", "id", "shipped", "payments",
    ]  # fmt: skip
    rows = sorted(found.to_pylist(), key=lambda row: row["start"])
    values = [tuple(r[c] for c in ("id", "shipped", "payments", "timed_out")) for r in rows]
    assert values == [(1, 4, 1, False), (2, None, None, True)]


# ------------------------------------------------------------------------------- the result

ORDERS = pa.table(
    {"t": [1, 2, 3, 4], "type": ["Order", "Pay", "Order", "Ship"], "id": [1, 1, 2, 1], "sum": [9.5, 9.0, 3.0, None]}
)
SHIPPED = "SEQ(Order o, Pay p, Ship s) WHERE [id] WITHIN 10"


def test_one_table_holds_matches_and_partial_matches(runner):
    found = runner.match(ORDERS, SHIPPED, time="t", type="type", options=ensue.OutputOptions(emit_timeouts=True))
    assert found.column_names == ["match_id", "start", "end", "timed_out", "o", "p", "s"]
    rows = sorted(found.to_pylist(), key=lambda row: row["start"])
    assert [(r["start"], r["end"], r["timed_out"]) for r in rows] == [(1, 4, False), (3, 3, True)]
    assert rows[1]["p"] is rows[1]["s"] is None


@pytest.mark.everywhere
def test_what_cannot_be_computed_is_null(runner):
    query = f"{SHIPPED} RETURN o.id, o.sum - p.sum AS gap, s.t AS shipped, 7 AS seven"
    found = runner.match(ORDERS, query, time="t", type="type", options=ensue.OutputOptions(emit_timeouts=True))
    rows = sorted(found.to_pylist(), key=lambda row: row["start"])
    values = [tuple(r[c] for c in ("id", "gap", "shipped", "seven", "timed_out")) for r in rows]
    assert values == [(1, 0.5, 4, 7, False), (2, None, None, 7, True)]
    assert found.schema.field("gap").type == pa.float64()


def test_nothing_at_all_may_be_computable(runner):
    query = f"{SHIPPED} RETURN s.t AS shipped, count(p) AS payments"
    found = runner.match(ORDERS, query, time="t", type="type", options=ensue.OutputOptions(emit_timeouts=True))
    assert found.column_names == ["match_id", "start", "end", "timed_out", "shipped", "payments"]
    timed_out = [r for r in found.to_pylist() if r["timed_out"]]
    assert [(r["shipped"], r["payments"]) for r in timed_out] == [(None, None)]


def test_a_returned_column_may_replace_a_standard_one(runner):
    query = f"{SHIPPED} RETURN p.t AS start"
    found = runner.match(ORDERS, query, time="t", type="type", options=ensue.OutputOptions(emit_timeouts=True))
    assert found.column_names == ["match_id", "end", "timed_out", "start"]


def test_tables_of_their_own_columns(runner):
    tables = {
        "Order": pa.table({"t": [1, 3], "id": [1, 2], "note": ["x", "y"]}),
        "Pay": pa.table({"t": [2], "id": [1], "note": [5]}),
    }
    query = "SEQ(Order o, Pay p) WHERE [id] and p.note > 3 WITHIN 10"
    found = runner.match(tables, query, time="t", options=ensue.OutputOptions(emit_timeouts=True))
    timed_out = [r for r in found.to_pylist() if r["timed_out"]]
    assert [(r["o"]["note"], r["p"]) for r in timed_out] == [("y", None)]


def test_matches_keep_their_ids(runner):
    alone = runner.match(ORDERS, SHIPPED, time="t", type="type").column("match_id").to_pylist()
    found = runner.match(
        ORDERS, SHIPPED, time="t", type="type", options=ensue.OutputOptions(emit_timeouts=True)
    ).to_pylist()
    assert [r["match_id"] for r in found if not r["timed_out"]] == alone
    assert len({r["match_id"] for r in found}) == 2


def test_the_id_of_a_partial_match_is_not_that_of_another_query():
    waiting = "SEQ(Order o, !Pay p) WHERE [id] WITHIN 10"
    ids = ensue.match(ORDERS, waiting, time="t", type="type").column("match_id").to_pylist()
    found = ensue.match(ORDERS, SHIPPED, time="t", type="type", options=ensue.OutputOptions(emit_timeouts=True))
    assert not set(ids) & set(found.column("match_id").to_pylist())


def test_after_match_and_having_speak_of_matches_only(timed_out):
    assert timed_out("SEQ(A a, B b) WITHIN 9 HAVING a.x > 5", "A", x=[1]) == [(0, None)]
    query = "SEQ(A a, B b, C c) WITHIN 9 AFTER MATCH SKIP PAST LAST EVENT"
    assert timed_out(query, "AABCB") == [(0, 4, None), (1, 4, None)]


# ------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SEQ(A a, B b)", "emit_timeouts needs a window"),
        ("SEQ(A a, B b) WITHIN 5 EVENTS", "emit_timeouts needs a window of time"),
        ("AND(A a, B b) WITHIN 5", "does not support AND"),
        ("SEQ(A a, (AND(B b, C c))?, A d) WITHIN 5", "does not support AND"),
        ("SEQ(A a, B b) WHERE strict_contiguity(a, b) {} WITHIN 5", "under strict_contiguity the next event"),
        ("SEQ(A a, B b) WHERE partition_contiguity(a, b) {} WITHIN 5", "under partition_contiguity the next event"),
        ("SEQ(A a, !N n, B b) WHERE n.x > b.x WITHIN 5", "compares n, which must not occur, to b"),
        ("SEQ(A a, B+ b[], C c) WHERE b[i].x < sum(b[..i].x) WITHIN 5", "use a running aggregate"),
        ("SEQ(A a, B timed_out) WITHIN 5", "emit_timeouts adds a column"),
        ("SEQ(A a, B b) WITHIN 5 RETURN a.x AS timed_out", "emit_timeouts adds a column"),
    ],
)
def test_what_cannot_be_judged_exactly_is_refused(query, problem):
    events = pa.table({"at": [1], "type": ["A"], "x": [1]})
    ensue.match(events, query, time="at", type="type")
    with pytest.raises(QueryError, match=problem) as error:
        ensue.match(events, query, time="at", type="type", options=ensue.OutputOptions(emit_timeouts=True))
    assert error.value.hint
    assert error.value.span is not None


# ------------------------------------------------------------------------------- property


def _bindings(found):
    return sorted(tuple(sorted((v, tuple(e.position for e in es)) for v, es in b.items())) for b in found)


def _rows(bound):
    return tuple(event["row"] for event in (bound if isinstance(bound, list) else [bound]))


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(4))
def test_the_rewritten_queries_find_what_the_definition_says(round):
    outcomes = Counter()
    for seed in of_round(round, 400):
        random = Random(seed)
        nature = random_nature(random)
        text = random.choice((random_query, random_query, random_repeats))(random, nature)
        events = random_events(random, random.randint(1, 8), nature)
        shape = create_schema(events.schema, time=nature.columns, type="type", order=())
        try:
            query = compile_query(parse(text), shape).query
            queries = build_timeout_queries(query, shape.schema.end)
        except QueryError:
            continue
        if any(other.unfinished for other in queries):
            continue  # by the definition itself
        stream = read_events(events, shape.schema, shape.unit)
        expected = _bindings(semantics.find_timeouts(query, stream))
        found = sorted(b for q in queries for b in _bindings(semantics.find_matches(q, stream)))
        assert found == expected, f"{seed}: {text}"
        outcomes[bool(expected)] += 1
    assert outcomes[True] > scaled(20)


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(2))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_engines_find_what_the_definition_says(round, monkeypatch):
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)
    for seed in of_round(round, 300):
        random = Random(f"engines {seed}")
        nature = random_nature(random)
        text = random.choice((random_query, random_query, random_repeats))(random, nature)
        events = random_events(random, random.randint(1, 8), nature)
        shape = create_schema(events.schema, time=nature.columns, type="type", order=())
        try:
            queries = compile_with_timeouts(parse(text), shape, emit_timeouts=True)
        except QueryError:
            continue
        stream = read_events(events, shape.schema, shape.unit)
        expected = _bindings(semantics.find_timeouts(add_plan_keys(queries.main), stream))
        result = match_in_order(queries, events)
        assert result.schema == queries.result
        standard = ("match_id", "start", "end", "timed_out")
        found = sorted(
            tuple(sorted((v, _rows(e)) for v, e in row.items() if v not in standard and e))
            for row in result.to_pylist()
            if row["timed_out"]
        )
        assert found == expected, f"{seed}: {text}"


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(6))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_runs_that_time_out_however_a_stream_is_cut(round, monkeypatch):
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)
    outcomes = Counter()
    for seed in of_round(round, 150):
        random = Random(f"runs {seed}")
        nature = random_nature(random)
        text = random.choice((random_edges, random_groups))(random, nature)
        events = random_events(random, random.randint(1, 8), nature)
        shape = create_schema(events.schema, time=nature.columns, type="type", order=())
        try:
            queries = compile_with_timeouts(parse(text), shape, emit_timeouts=True)
        except QueryError:
            continue
        stream = read_events(events, shape.schema, shape.unit)
        expected = _bindings(semantics.find_timeouts(add_plan_keys(queries.main), stream))
        found = []
        for prepared in queries.queries[1:]:
            engine = prepared.engine()
            for piece in random_slices(random, events):
                found += _given(engine.process(piece))
                if piece.num_rows:
                    found += _given(engine.on_watermark(get_end_times(piece, shape)[-1].item()))
            found += _given(engine.on_watermark(math.inf))
        assert sorted(found) == expected, f"{seed}: {text}"
        outcomes[bool(expected)] += 1
    assert outcomes[True] > 5


def _given(matches):
    segments = {v: matches.segments(v) for v in matches.variables}
    return [
        tuple(
            sorted(
                (v, tuple(rows[at[k] : at[k + 1]].tolist())) for v, (at, rows) in segments.items() if at[k] < at[k + 1]
            )
        )
        for k in range(matches.count)
    ]
