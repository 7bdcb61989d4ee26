"""GROUP BY, ORDER BY, TOTAL and FETCH FIRST: what is said of a whole result."""

import math

import pyarrow as pa
import pytest

import ensue
from ensue.errors import QueryError

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")

EVENTS = pa.table(
    {
        "at": [1, 2, 3, 4, 5, 6],
        "type": list("AABBAB"),
        "s": ["x", "y", "x", "y", "x", None],
        "p": [1.0, 2.0, 3.0, math.nan, -0.0, None],
    }
)
ENDLESS = ("live", "key_groups", "stream")


@pytest.fixture
def rows(runner):
    """`rows(query)`: the result without ids and times, in its order; streams have none."""

    def run(query, events=EVENTS):
        if runner.name in ENDLESS:
            with pytest.raises(QueryError, match="never ends"):
                runner.match(events, query, time="at", type="type")
            pytest.skip("a stream has no whole result, and says so")
        found = runner.match(events, query, time="at", type="type")
        shown = [n for n in found.column_names if n not in ("match_id", "start", "end")]
        return [tuple(map(_plain, row.values())) for row in found.select(shown).to_pylist()]

    return run


def _plain(value):
    return "nan" if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.streams(slow=True)
def test_the_number_of_all_matches(rows):
    assert rows("SEQ(A a, B b) WITHIN 9 RETURN TOTAL COUNT(*) AS n") == [(7,)]


@pytest.mark.everywhere(slow=True)
def test_matches_with_their_events_in_an_order(rows):
    query = "SEQ(A a, B b) WITHIN 2 RETURN a.at AS a ALL EVENTS ORDER BY a.at DESC"
    assert [(v, p, a, at) for v, p, _, a, at, *_ in rows(query)] == [
        ("a", 1, 5, 5), ("b", 2, 5, 6), ("a", 1, 2, 2), ("b", 2, 2, 3), ("a", 1, 2, 2), ("b", 2, 2, 4),
        ("a", 1, 1, 1), ("b", 2, 1, 3),
    ]  # fmt: skip
    first = rows(f"{query} FETCH FIRST 3 ROWS ONLY")  # rows, not matches
    assert [(v, at) for v, _, _, _, at, *_ in first] == [("a", 5), ("b", 6), ("a", 2)]
    by_place = rows("SEQ(A a, B b) WITHIN 2 RETURN ALL EVENTS ORDER BY position DESC, a.at, end")
    assert [(v, at) for v, _, _, at, *_ in by_place][:4] == [("b", 3), ("b", 3), ("b", 4), ("b", 6)]


def test_an_event_keeps_the_name_of_a_field_that_order_by_reads(rows):
    (found,) = rows("SEQ(A a, B b) WITHIN 1 RETURN ALL EVENTS ORDER BY b.p DESC FETCH FIRST 1 ROW ONLY")
    assert found == ("a", 1, 1, 2, "A", "y", 2.0)


def test_last_events_in_an_order(rows):
    query = "SEQ(A a, B b) WITHIN 2 RETURN EXISTS, b.at ORDER BY end DESC"
    assert rows(query) == [(6,), (4,), (3,)]
    assert rows(f"{query} FETCH FIRST 1 ROW ONLY") == [(6,)]
    assert rows("SEQ(A a, B b) WITHIN 2 RETURN EXISTS ORDER BY b.p NULLS FIRST FETCH FIRST 1 ROW ONLY") == [()]


@pytest.mark.everywhere(slow=True)
def test_no_matches_are_none(rows):
    assert rows("SEQ(A a, D d) WITHIN 9 RETURN TOTAL COUNT(*) AS n, avg(a.p) AS p") == [(0, None)]
    assert rows("SEQ(A a, D d) WITHIN 9 RETURN TOTAL COUNT(*)") == [(0,)]


def test_no_matches_make_no_groups(rows):
    assert rows("SEQ(A a, D d) RETURN a.s AS s, COUNT(*) AS n GROUP BY s") == []


@pytest.mark.everywhere(slow=True)
def test_matches_in_groups(rows):
    query = (
        "SEQ(A a, B b) RETURN a.s AS s, COUNT(*) AS n, avg(b.at - a.at) AS took, max(b.s) AS last GROUP BY s ORDER BY s"
    )
    assert rows(query) == [("x", 4, 2.75, "y"), ("y", 3, 2 + 1 / 3, "y")]


def test_groups_come_in_the_order_of_their_first_matches(rows):
    found = rows("SEQ(A a, B b) RETURN b.s AS s, COUNT(*) AS n GROUP BY s FETCH FIRST 9 ROWS")
    assert found == [("x", 2), ("y", 2), (None, 3)]


def test_inside_an_aggregate_over_matches_stands_one_over_events(rows):
    query = "SEQ(A+ a[], B b) WITHIN 2 RETURN b.s AS s, COUNT(*) AS n, sum(count(a)) AS events "
    assert rows(query + "GROUP BY s ORDER BY s") == [("x", 3, 4), ("y", 1, 1), (None, 1, 1)]


def test_all_columns_that_are_no_aggregates_make_groups(rows):
    query = "SEQ(A a, B b) RETURN a.s AS s, b.s AS t, COUNT(*) AS n GROUP BY ALL ORDER BY n DESC"
    assert rows(query)[:2] == [("x", None, 2), ("x", "x", 1)]


def test_nan_is_one_group_and_both_zeros_too(rows):
    events = pa.table({"at": range(6), "type": ["A"] * 6, "p": [0.0, math.nan, -0.0, math.nan,
                                                                 None, None]})  # fmt: skip
    found = rows("A a RETURN a.p AS p, COUNT(*) AS n GROUP BY p ORDER BY p", events)
    assert found == [(0.0, 2), ("nan", 2), (None, 2)]


@pytest.mark.everywhere(slow=True)
def test_the_first_rows_in_an_order(rows):
    query = "SEQ(A a, B b) RETURN a.s AS s, b.p - a.p AS gain ORDER BY gain DESC, s LIMIT 4"
    assert rows(query) == [("x", "nan"), ("y", "nan"), ("x", 2.0), ("y", 1.0)]


@pytest.mark.everywhere(slow=True)
def test_nulls_are_last_unless_they_are_to_be_first(rows):
    query = "SEQ(A a, B b) RETURN b.p AS p ORDER BY p"
    assert rows(query) == [(3.0,), (3.0,), ("nan",), ("nan",), (None,), (None,), (None,)]
    assert rows(query + " DESC")[:3] == [("nan",), ("nan",), (3.0,)]
    assert rows(query + " NULLS FIRST")[:4] == [(None,), (None,), (None,), (3.0,)]


def test_what_is_equal_is_in_the_order_of_time(rows):
    query = "SEQ(A a, B b) RETURN a.at AS a, b.at AS b ORDER BY b.s IS NULL"
    assert rows(query) == [(1, 3), (2, 3), (1, 4), (2, 4), (1, 6), (2, 6), (5, 6)]


def test_ordered_by_what_is_not_returned(rows):
    assert rows("SEQ(A a, B b) RETURN a.at AS a ORDER BY b.at - a.at DESC LIMIT 2") == [(1,), (2,)]


def test_ordered_by_time(rows):
    assert rows("SEQ(A a, B b) RETURN b.at AS b ORDER BY end DESC LIMIT 1") == [(6,)]


def test_a_column_in_the_place_of_the_time(runner):
    if runner.name in ENDLESS:
        pytest.skip("a stream has no whole result")
    query = "SEQ(A a, B b) RETURN a.p AS end ORDER BY end DESC, start LIMIT 2"
    found = runner.match(EVENTS, query, time="at", type="type")
    assert found.column_names == ["match_id", "start", "end"]
    assert found.column("end").to_pylist() == [2.0, 2.0]


def test_the_first_rows_without_an_order_are_the_earliest(rows):
    assert rows("SEQ(A a, B b) RETURN a.at, b.at AS b FETCH FIRST 2 ROWS ONLY") == [(1, 3), (2, 3)]


def test_counts_of_last_events_in_an_order(rows):
    assert rows("SEQ(A a, B b) RETURN b.at, COUNT(*) AS n ORDER BY n DESC LIMIT 1") == [(6, 3)]


def test_groups_of_what_after_match_leaves(rows):
    query = "SEQ(A a, B b) AFTER MATCH SKIP PAST LAST EVENT RETURN a.s AS s, COUNT(*) AS n"
    assert rows(query + " GROUP BY s") == [("x", 2)]


def test_a_condition_on_matches_comes_before_groups(rows):
    query = "SEQ(A a, B b) RETURN a.s AS s, COUNT(*) AS n HAVING b.at > 3 GROUP BY s"
    assert rows(query) == [("x", 3), ("y", 2)]


def test_groups_of_negations_at_the_end(rows):
    query = "SEQ(A a, !B b) WITHIN 1 RETURN TOTAL COUNT(*) AS n"
    assert rows(query) == [(1,)]


def test_groups_of_events_made_of_events():
    query = "EVENT P AS SEQ(A a, B b) RETURN a.s AS s; SEQ(P x) RETURN x.s AS s, COUNT(*) AS n "
    found = ensue.match(EVENTS, query + "GROUP BY s ORDER BY n", time="at", type="type")
    assert found.to_pylist() == [{"s": "y", "n": 3}, {"s": "x", "n": 4}]


def test_groups_of_matches_with_a_past():
    past = pa.table({"at": [-3, -2, -1], "type": ["B"] * 3, "s": ["x", "x", "y"]})
    archives = {"old": ensue.archive(past, time="at", type="type", key=["s"])}
    query = "A a JOIN ARCHIVE old B q RANGE 99 BEFORE START ON [s] RETURN a.s AS s, COUNT(*) AS n "
    found = ensue.match(EVENTS, query + "GROUP BY s ORDER BY n DESC", time="at", type="type", archives=archives)
    assert found.to_pylist() == [{"s": "x", "n": 4}, {"s": "y", "n": 1}]


def test_one_of_several_queries():
    texts = ["SEQ(A a, B b) RETURN TOTAL COUNT(*) AS n", "SEQ(A a, B b) ORDER BY end DESC LIMIT 2"]
    found = ensue.match(EVENTS, texts, time="at", type="type")
    assert found[0].to_pylist() == [{"n": 7}]
    assert found[1].column("end").to_pylist() == [6, 6]


def test_ordered_events_as_plain_columns():
    found = ensue.match(
        EVENTS,
        "SEQ(A a, B b) ORDER BY b.at DESC LIMIT 1",
        time="at",
        type="type",
        options=ensue.OutputOptions(flat=True),
    )
    assert found.column_names[3:5] == ["a.at", "a.type"]


def test_matches_are_counted_without_listing_them():
    many = pa.table({"at": range(64), "type": ["A"] * 63 + ["B"]})
    query = "SEQ(A+ a[], B b) RETURN TOTAL COUNT(*) AS n"
    found = ensue.match(many, query, time="at", type="type")
    assert found.to_pylist() == [{"n": 2**63 - 1}]
    assert "counted, not listed" in ensue.explain(query)


# ------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SEQ(A a, B b) GROUP BY s", "GROUP BY needs RETURN"),
        ("SEQ(A a, B b) RETURN a.s, COUNT(*) GROUP BY t", "takes columns of RETURN"),
        ("SEQ(A a, B b) RETURN a.s, a.p, COUNT(*) GROUP BY s", "'p' differs between the matches"),
        ("SEQ(A a, B b) RETURN a.s, COUNT(*) AS n GROUP BY s, n", "cannot define groups"),
        ("SEQ(A a, B b) RETURN a.*, COUNT(*) AS n GROUP BY ALL", "a group has no single events"),
        ("SEQ(A a, B b) RETURN a, COUNT(*) AS n GROUP BY a", "a whole event has no order"),
        ("SEQ(A a, B+ b[]) RETURN a.s, avg(b.p) GROUP BY s", "avg\\(max\\(b.p\\)\\)"),
        ("SEQ(A a, B+ b[]) RETURN a.s, count(b) GROUP BY s", "sum\\(count\\(b\\)\\)"),
        ("SEQ(A a, B b) RETURN a.s, COUNT(*)", "GROUP BY s counts all matches by it"),
        ("SEQ(A a, B b) RETURN TOTAL COUNT(*) GROUP BY s", "leave one of them out"),
        ("SEQ(A a, B b) RETURN EXISTS, b.s AS s GROUP BY s", "EXISTS cannot be combined with"),
        ("SEQ(A a, B b) ORDER BY gain", "'gain' is none"),
        ("SEQ(A a, B b) ORDER BY a", "'a' is none"),
        ("SEQ(A a, B+ b[]) RETURN b[].p AS p ORDER BY p", "a list has no order"),
        ("SEQ(A a, B b) ORDER BY end LIMIT 0", "at least 1 row"),
        ("SEQ(A a, B b) ORDER BY end LIMIT 1 OFFSET 2", "there is no OFFSET"),
        ("SEQ(A a, B b) FETCH FIRST ROW ONLY", "FETCH FIRST 10 ROWS ONLY"),
        ("SEQ(A a, B b) RETURN a.s, COUNT(*) AS n GROUP BY s HAVING n > 1", "before GROUP BY"),
        ("EVENT P AS SEQ(A a, B b) ORDER BY end; SEQ(P p)", "not to a definition"),
    ],
)
def test_what_is_refused(query, words):
    with pytest.raises(QueryError, match=words):
        ensue.match(EVENTS, query, time="at", type="type")


def test_a_limit_of_each_last_event_is_no_limit_of_the_whole():
    query = ensue.pattern("a", "A").followed_by("b", "B").within(9).limit(3).order_by("end")
    with pytest.raises(QueryError, match="FETCH FIRST n ROWS ONLY keeps the first rows"):
        ensue.match(EVENTS, query, time="at", type="type")


def test_partial_matches_are_no_matches_of_a_group():
    with pytest.raises(QueryError, match=r"emit_timeouts=True\) cannot be combined with GROUP BY"):
        ensue.match(
            EVENTS, "SEQ(A a, B b) WITHIN 2 RETURN TOTAL COUNT(*)",
            time="at", type="type", options=ensue.OutputOptions(emit_timeouts=True),
        )  # fmt: skip


def test_a_set_of_subscriptions_tells_of_each_match():
    subscriptions = ensue.Subscriptions(time="at", type="type")
    with pytest.raises(QueryError, match="without ALL EVENTS, GROUP BY"):
        subscriptions.add("s", "SEQ(A a, B b) WITHIN 5 ORDER BY end")
