"""Aggregates over the events of a variable, in conditions and in what is returned."""

import math
from datetime import datetime, timedelta

import pyarrow as pa
import pytest

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")

EVENTS = pa.table(
    {
        "at": range(6),
        "type": list("AAAAAB"),
        "x": [3, 1, None, 4, 2, 9],
        "y": [0.5, 1.5, 2.5, None, 4.5, 0.0],
        "s": ["c", "a", None, "d", "b", "z"],
    }
)
RUN = "SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { a[1].x = 3 } RETURN %s AS v"


def value(runner, expression, events=EVENTS):
    (row,) = runner.match(events, RUN % expression, time="at", type="type").to_pylist()
    return row["v"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("count(a)", 5),
        ("a.LEN", 5),
        ("count(a.x)", 4),
        ("sum(a.x)", 10),
        ("avg(a.x)", 2.5),
        ("min(a.x)", 1),
        ("max(a.x)", 4),
        ("first(a.x)", 3),
        ("last(a.x)", 2),
        ("sum(a.y)", 9.0),
        ("avg(a[].y)", 2.25),
        ("min(a.s)", "a"),
        ("max(a.s)", "d"),
        ("first(a.s)", "c"),
        ("last(a.s)", "b"),
        ("percentile(a.x, 50)", 2.5),
        ("percentile(a.x, 90)", 3.7),
        ("sum(a.x * 2 + 1)", 24),
        ("max(a.x) - min(a.x)", 3),
        ("avg(b.x)", 9.0),
        ("count(b)", 1),
        ("stddev(b.x)", None),
        ("count(DISTINCT a.s)", 4),
        ("count(DISTINCT a.x % 2)", 2),
        ("count_distinct(b.x)", 1),
        ("median(a.x)", 2.5),
        ("quantile(a.x, 0.9)", 3.7),
        ("mean(a.x)", 2.5),
        ("stddev_pop(a.x)", math.sqrt(5 / 4)),
        ("variance(a.x)", 5 / 3),
        ("var_pop(b.x)", 0.0),
        ("variance(b.x)", None),
        ("mode(a.x % 2)", 1),
        ("mode(a.s)", "c"),
        ("any_value(a.s)", "c"),
        ("product(a.x)", 24.0),
        ("string_agg(a.s, '; ')", "c; a; d; b"),
        ("listagg(a.s)", "c,a,d,b"),
        ("bool_and(a.x > 0)", True),
        ("bool_or(a.x > 3)", True),
        ("every(a.x > 1)", False),
        ("range(a.x)", 3),
        ("count_if(a.x > 1)", 3),
    ],
)
def test_values(runner, expression, expected):
    found = value(runner, expression)
    assert found == pytest.approx(expected) if isinstance(expected, float) else found == expected


def test_the_deviation_is_that_of_a_sample(runner):
    assert value(runner, "stddev(a.x)") == pytest.approx(math.sqrt(5 / 3))


@pytest.mark.everywhere
def test_several_at_once(runner):
    query = RUN % "avg(a.x)" + ", count(a) AS n, max(a.s) AS s, percentile(a.y, 90) AS p"
    (row,) = runner.match(EVENTS, query, time="at", type="type").to_pylist()
    assert (row["v"], row["n"], row["s"]) == (2.5, 5, "d")
    assert row["p"] == pytest.approx(3.9)


def test_over_nothing_count_is_zero_and_the_others_null(runner):
    query = "SEQ(A a, C* c[], B b) WHERE a.x = 3 RETURN count(c) AS n, sum(c.x) AS s, avg(c.x) AS m"
    (row,) = runner.match(EVENTS, query, time="at", type="type").to_pylist()
    assert (row["n"], row["s"], row["m"]) == (0, None, None)


@pytest.mark.everywhere(slow=True)
def test_in_conditions(matched):
    query = "SEQ(A+ a[], B b) WHERE sum(a.x) = 5 and b.x > avg(a.x)"
    assert matched(query, "AAAB", x=[1, 4, 5, 3]) == [((0, 1), 3)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("min(a.x) > 1", [(1,), (1, 2), (2,)]),
        ("max(a.x) < 3", [(0,), (0, 1), (1,)]),
        ("count(a) = 3", [(0, 1, 2)]),
        ("first(a.x) = 2", [(1,), (1, 2)]),
        ("last(a.x) = 2", [(0, 1), (1,)]),
        ("stddev(a.x) = 1", [(0, 1, 2)]),
        ("percentile(a.x, 50) = 2", [(0, 1, 2), (0, 2), (1,)]),
        ("avg(a.x) = 1.5", [(0, 1)]),
    ],
)
def test_each_of_them_in_a_condition(matched, condition, expected):
    found = matched(f"SEQ(A+ a[], B b) WHERE {condition}", "AAAB", x=[1, 2, 3, 0])
    assert [a for a, _ in found] == expected


def test_running_sums(matched):
    query = "SEQ(A+ a[], B b) WHERE a[i].x >= sum(a[..i-1].x)"
    found = matched(query, "AAAB", x=[1, 2, 3, 0])
    assert ((0, 1, 2), 3) in found
    assert len(found) == 7
    assert matched(query, "AAB", x=[3, 1, 0]) == [((0,), 2), ((1,), 2)]


def test_running_counts(matched):
    query = "SEQ(A+ a[], B b) WHERE a[i].x = count(a[..i-1])"
    # holds from the second element on
    assert matched(query, "AAAB", x=[7, 1, 2, 0]) == [((0,), 3), ((0, 1), 3), ((0, 1, 2), 3), ((1,), 3), ((2,), 3)]


def test_nulls_are_passed_over(matched):
    query = "SEQ(A{2} a[], B b) WHERE avg(a.x) = 2"
    assert matched(query, "AAB", x=[2, None, 0]) == [((0, 1), 2)]


def test_nan_spreads_through_sums(matched):
    query = "SEQ(A{2} a[], B b) WHERE sum(a.x) > 0"
    assert matched(query, "AAB", x=[2.0, float("nan"), 0.0]) == []


@pytest.mark.parametrize("condition", ["min(a[].x) < b.x", "max(a[].x) < b.x"])
def test_a_number_replaces_nan_in_min_and_max(matched, condition):
    query = f"SEQ(A{{2}} a[], B b) WHERE {condition}"
    assert matched(query, "AAB", x=[float("nan"), 1.0, 2.0]) == [((0, 1), 2)]


LATE = "SEQ(A+ a[], B b) WHERE %s RETURN count(a) AS n, a[1].at AS first"


@pytest.mark.parametrize(
    ("condition", "runs"),
    [
        ("count(DISTINCT a.s) = count(a) and count(a) > 3", [(4, 0)]),
        ("variance(a.x) > 4 and count(a) = 2", [(2, 1)]),
        ("string_agg(a.s, '') = 'ca'", [(2, 0), (3, 0)]),
        ("bool_and(a.x > 1) and count(a) = 3", [(3, 0), (3, 0), (3, 0), (3, 2)]),
        ("mode(a.x) = 4 and count(a) > 1", [(2, 2), (2, 3), (3, 2)]),
    ],
)
def test_finished_matches_are_judged_by_what_kernels_do_not_keep(runner, condition, runs):
    found = runner.match(EVENTS, LATE % condition, time="at", type="type").to_pylist()
    assert sorted((row["n"], row["first"]) for row in found) == runs


def test_running_aggregates_that_kernels_do_not_keep(runner):
    query = (
        "SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) "
        "{ a[1].x = 3 and count(DISTINCT a[..i].s) <= 2 } RETURN count(a) AS n"
    )
    found = runner.match(EVENTS, query, time="at", type="type").to_pylist()
    assert [row["n"] for row in found] == [3]


def test_distinct_values_and_modes_know_nan_and_nothing(runner):
    nan = math.nan
    events = pa.table({"at": range(5), "type": list("AAAAB"), "x": [nan, 0.0, -0.0, nan, 1.0]})
    query = "SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { a[1].at = 0 } RETURN %s AS v"

    def value(expression):
        (row,) = runner.match(events, query % expression, time="at", type="type").to_pylist()
        return row["v"]

    assert value("count(DISTINCT a.x)") == 2
    assert math.isnan(value("mode(a.x)"))
    assert value("count(DISTINCT nullif(b.x, 1))") == 0
    assert value("product(nullif(b.x, 1))") is None


def test_percentiles_of_durations(runner):
    lengths = pa.array([4_000_001, 1_000_000, None, 2_000_000, 9_000_000], pa.duration("us"))
    events = pa.table({"at": range(5), "type": list("AAAAB"), "d": lengths})
    conditions = "{ a[1].at = 0 and median(a.d) > b.d - b.d }"
    columns = "median(a.d) AS middle, percentile(a.d, 75) AS most, median(b.d) AS one"
    query = f"SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) {conditions} RETURN {columns}"
    (row,) = runner.match(events, query, time="at", type="type").to_pylist()
    micros = {"middle": 2_000_000, "most": 3_000_000, "one": 9_000_000}  # halves to even
    assert {name: row[name] for name in micros} == {
        name: timedelta(microseconds=count) for name, count in micros.items()
    }


def test_the_median_of_durations_over_matches(runner):
    times = [datetime(2026, 1, 1, 0, 0, second) for second in (0, 1, 9, 10)]
    events = pa.table({"at": times, "type": list("AAAB")})
    query = "SEQ(A a, B b) WITHIN 1 minute RETURN TOTAL median(b.end - a.start) AS middle"
    if runner.name in ("live", "key_groups"):
        pytest.skip("the result of all matches is for tables")
    found = runner.match(events, query, time="at", type="type")
    assert found["middle"].to_pylist() == [timedelta(seconds=9)]
