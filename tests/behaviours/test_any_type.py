"""Events of any type, or of one of several types, under one variable: `ANY x`, `(A|B) x`."""

import pyarrow as pa
import pytest

import ensue
from ensue.errors import QueryError

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")


@pytest.mark.everywhere
def test_any_is_an_event_of_any_type(matched):
    assert matched("SEQ(ANY x, B b) WITHIN 2", "ACBB") == [(0, 2), (1, 2), (1, 3), (2, 3)]


@pytest.mark.everywhere
def test_a_variable_behind_a_bracket_takes_its_types(matched):
    assert matched("SEQ((A|C) x, B b) WITHIN 3", "ACBDB") == [(0, 2), (1, 2), (1, 4)]


@pytest.mark.streams(slow=True)
def test_loops_of_several_types(matched):
    query = "SEQ(A a, (B|C)+ x[], D d) USING next WITHIN 9"
    assert matched(query, "ABCXD") == [(0, (1, 2), 4)]
    assert matched("SEQ(A a, ANY+ x[], D d) USING next WITHIN 9", "ABXD") == [(0, (1, 2), 3)]


@pytest.mark.streams(slow=True)
def test_negations_of_several_types(matched):
    assert matched("SEQ(A a, !(C|D) n, B b) WITHIN 9", "ACBAXBADB") == [(3, 5)]
    assert matched("SEQ(A a, !ANY n, B b) WITHIN 9", "AXBAB") == [(3, 4)]
    assert matched("SEQ(A a, !ANY n WITHIN 1 OF a, B b) WITHIN 9", "AXXB") == []


def test_absences_of_several_types_in_an_interval(matched):
    query = "SEQ(A a, !(C|D) n FROM a.end TO a.end + 2)"
    assert matched(query, "ADXXAXXC") == [(4,)]


def test_a_part_of_several_types_may_be_missing(matched):
    assert matched("SEQ(A a, (B|C)? x, D d) USING strict", "ACDAD") == [(0, 1, 2), (3, None, 4)]


def test_then_and_any(matched):
    """Behind THEN, ANY is how a part follows; in brackets it is the event."""
    assert matched("A a THEN (ANY x)", "AXAB") == [(0, 1), (2, 3)]
    assert matched("A a THEN NEXT ANY x", "AXAB") == [(0, 1), (2, 3)]
    assert matched("A a THEN ANY (B|X) x", "AXB") == [(0, 1), (0, 2)]


def test_what_ends_a_loop_is_of_any_type(matched):
    query = "A a THEN NEXT B+ b[] UNTIL {} THEN NEXT C c WITHIN 20"
    assert matched(query.format("(X|Y) u"), "ABYBC") == [(0, (1,), 4)]
    assert matched(query.format("ANY u"), "ABBC") == []  # no event of the loop may end it


def test_a_variable_that_nothing_binds_ends_a_loop_at_any_event(matched):
    query = "A a THEN NEXT B+ b[] UNTIL z.x > 3 THEN NEXT C c WITHIN 20"
    assert matched(query, "ABXBC", x=[0, 0, 9, 0, 0]) == [(0, (1,), 4)]
    assert matched(query, "ABXBC", x=[0, 0, 1, 0, 0]) == [(0, (1,), 4), (0, (1, 3), 4)]


def test_conditions_keys_and_fields(matched):
    query = "SEQ(ANY a, (B|C) b) WHERE [k] and b.x > a.x WITHIN 9"
    assert matched(query, "ABCB", k="pqpq", x=[1, 5, 2, 6]) == [(0, 2), (1, 3)]


def test_an_event_without_a_type_is_any_event():
    events = pa.table({"t": [1, 2, 3], "type": ["A", None, "B"]})
    found = ensue.match(events, "SEQ(ANY x, B b) RETURN x.t", time="t", type="type")
    assert sorted(found.column("t").to_pylist()) == [1, 2]


def test_events_that_have_no_types():
    events = pa.table({"t": [1, 2, 3], "x": [1, 2, 3]})
    found = ensue.match(events, "SEQ(ANY a, ANY b) USING strict RETURN a.x, b.x AS y", time="t")
    assert [(row["x"], row["y"]) for row in found.to_pylist()] == [(1, 2), (2, 3)]
    with pytest.raises(QueryError, match="several event types"):
        ensue.match(events, "SEQ((A|B) a, B b)", time="t")


# ------------------------------------------------------------------------- one table a type


TABLES = {
    "Buy": pa.table({"t": [1, 4], "price": [10, 20], "who": ["p", "q"], "note": ["x", "y"]}),
    "Sell": pa.table({"t": [2, 5], "price": [11.5, 19.0], "note": [7, 8]}),
    "Halt": pa.table({"t": [3]}),
}


def test_fields_of_several_tables():
    query = "SEQ((Buy|Sell) x, Halt h) RETURN x.price, x.who"
    found = ensue.match(TABLES, query, time="t").to_pylist()
    assert sorted((row["price"], row["who"]) for row in found) == [(10.0, "p"), (11.5, None)]
    whole = ensue.match(TABLES, "SEQ(Halt h, ANY x)", time="t").to_pylist()
    assert [(row["x"]["price"], row["x"]["who"]) for row in whole] == [(20.0, "q"), (19.0, None)]


def test_unknown_types_and_fields():
    with pytest.raises(QueryError, match="unknown event type 'Sel'") as caught:
        ensue.match(TABLES, "SEQ((Buy|Sel) x, Halt h)", time="t")
    assert "Sell" in str(caught.value)
    with pytest.raises(QueryError, match="unknown field 'pric'"):
        ensue.match(TABLES, "SEQ((Buy|Sell) x, Halt h) WHERE x.pric > 3", time="t")
    with pytest.raises(QueryError, match="not have the same kind"):
        ensue.match(TABLES, "SEQ((Buy|Sell) x, Halt h) WHERE x.note = 7", time="t")


@pytest.mark.filterwarnings("default:no event is of type")
def test_a_type_that_does_not_occur_is_told():
    events = pa.table({"t": [1, 2, 3], "type": ["A", "B", "C"]})
    with pytest.warns(UserWarning, match="no event is of type 'Bee'"):
        ensue.match(events, "SEQ(A a, (Bee|Cee) x)", time="t", type="type")


# --------------------------------------------------------------------------------- the rest


def test_several_queries_share_a_scan():
    events = pa.table({"t": range(6), "type": list("ABCABX"), "x": [1, 2, 3, 4, 5, 6]})
    queries = {
        "any": "SEQ(ANY a, B b) WHERE a.x > 1 RETURN a.t, b.t AS u",
        "several": "SEQ((A|C) a, B b) WHERE a.x > 1 RETURN a.t, b.t AS u",
        "one": "SEQ(C a, B b) WHERE a.x > 1 RETURN a.t, b.t AS u",
        "negated": "SEQ(A a, !(B|C) n, ANY b) RETURN a.t, b.t AS u",
    }
    together = ensue.match(events, queries, time="t", type="type")
    for name, text in queries.items():
        alone = ensue.match(events, text, time="t", type="type")
        assert together[name].to_pylist() == alone.to_pylist()
    assert {name: table.num_rows for name, table in together.items()} == {
        "any": 3, "several": 2, "one": 1, "negated": 2,
    }  # fmt: skip


def test_in_layers():
    events = pa.table({"t": range(5), "type": list("ABCAD")})
    text = "EVENT Pair AS SEQ((A|C) x, ANY y) USING strict RETURN y.t AS last; "
    found = ensue.match(events, text + "SEQ(Pair p, D d) RETURN p.last", time="t", type="type")
    assert sorted(found.column("last").to_pylist()) == [1, 3]
    with pytest.raises(QueryError, match="ANY means raw events"):
        ensue.parse(text + "SEQ(Pair p, ANY d)")
    with pytest.raises(QueryError, match="'Pair' is a defined event"):
        ensue.parse(text + "SEQ((Pair|A) p, D d)")


def test_statistics_and_plans():
    events = pa.table({"t": range(40), "type": list("ABCD") * 10, "x": range(40)})
    query = "SEQ(ANY a, (B|C) b) WHERE a.x < b.x WITHIN 3"
    known = ensue.statistics(events, query, time="t", type="type")
    assert dict(known.shares) == {"B": 0.25, "C": 0.25}
    told = ensue.explain(query, options=ensue.PlannerOptions(statistics=known))
    assert "ANY a" in str(told)
    assert "(B|C) b" in str(told)
    assert "<svg" in ensue.picture(query)
