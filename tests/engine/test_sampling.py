"""Statistics of events with planted rates, chances and keys."""

import pickle
from math import isclose

import numpy as np
import pyarrow as pa
import pytest

import ensue
from ensue.errors import EnsueError, EventError

QUERY = """SEQ(A a, B b)
WHERE [k] and a.x < 0.25 and a.u - b.u = 0 and a.y < b.y and b.s = 'hot'
WITHIN 100"""


def planted(count=60_000, keys=40, seed=1) -> pa.Table:
    """A three times as often as B; `u` one of 20, `y` at random, one in eight of 's' is hot."""
    dice = np.random.default_rng(seed)
    return pa.table(
        {
            "t": np.arange(count) * 0.5,
            "type": pa.array(np.where(dice.random(count) < 0.75, "A", "B")),
            "k": dice.integers(0, keys, count),
            "u": dice.integers(0, 20, count),
            "x": dice.random(count),
            "y": dice.random(count),
            "s": pa.array(np.where(dice.random(count) < 1 / 8, "hot", "cold")),
        }
    )


def measured(events, query=QUERY, **options):
    return ensue.statistics(events, query, time="t", type="type", **options)


def test_planted_figures_are_found():
    known = measured(planted())
    assert known.source == "a sample of 10,000 events"
    assert isclose(known.rate, 2, rel_tol=0.001)
    assert isclose(known.share("A"), 0.75, abs_tol=0.01)
    chances = dict(known.passes)
    assert isclose(chances["a.x < 0.25"], 0.25, abs_tol=0.02)
    assert isclose(chances["b.s = 'hot'"], 1 / 8, abs_tol=0.02)
    assert isclose(chances["a.u - b.u = 0"], 1 / 20, abs_tol=0.015)
    assert isclose(chances["a.y < b.y"], 1 / 2, abs_tol=0.05)
    assert known.partitions == 40
    assert isclose(known.effective, 40, rel_tol=0.01)


def test_the_same_events_give_the_same_statistics():
    events = planted(20_000)
    assert measured(events, sample=500) == measured(events, sample=500)
    assert measured(events, sample=500).passes != measured(events, sample=500, seed=2).passes
    one = measured(events, sample=500)
    assert pickle.loads(pickle.dumps(one)) == one
    assert ensue.Statistics.read(one.text()) == one
    assert hash(one) == hash(ensue.Statistics.read(one.text()))


def test_a_small_table_is_taken_whole():
    assert measured(planted(900)).source == "all 900 events"


def test_skew_makes_fewer_effective_partitions():
    events = planted(20_000)
    keys = np.where(np.random.default_rng(0).random(20_000) < 0.9, 0, events["k"])
    skewed = events.set_column(2, "k", pa.array(keys))
    known = measured(skewed)
    assert known.partitions == 40
    assert 1 < known.effective < 1.4


def test_order_and_window_count_for_conditions_between_events():
    """`y` rises with time: a later event is always higher, but only a little inside a window."""
    count = 20_000
    events = pa.table(
        {
            "t": np.arange(count),
            "type": pa.array(np.where(np.arange(count) % 2, "A", "B")),
            "y": np.arange(count, dtype=float),
        }
    )
    query = "SEQ(A a, B b) WHERE a.y < b.y and b.y - a.y > 50 WITHIN 100"
    chances = dict(measured(events, query).passes)
    assert chances["a.y < b.y"] == 1.0
    assert isclose(chances["b.y - a.y > 50"], 0.5, abs_tol=0.1)


def test_kleene_variables_are_judged_by_single_events():
    query = "SEQ(A+ a[], B b) WHERE a[i].y > a[i-1].y and avg(a.y) < b.y and b.u = a[1].u WITHIN 9"
    chances = dict(measured(planted(5_000), query).passes)
    assert isclose(chances["a[i].y > a[i-1].y"], 0.5, abs_tol=0.06)
    assert isclose(chances["avg(a.y) < b.y"], 0.5, abs_tol=0.06)
    assert isclose(chances["b.u = a[1].u"], 1 / 20, abs_tol=0.03)


def test_what_cannot_be_measured_is_left_out():
    events = planted(2_000)
    none = measured(events, "SEQ(A a, Z z) WHERE a.y < z.y and z.x > 1 WITHIN 9")
    assert dict(none.passes) == {}
    assert none.share("Z") == 0.0
    assert measured(events.slice(0, 0)).rate is None


@pytest.mark.parametrize("query", ["SEQ(A a, !SEQ(B b, C c), A d) WHERE a.x < d.x", "A a"])
def test_every_query_can_be_measured(query):
    assert measured(planted(500), query).share("A") > 0.5


def test_events_of_any_library_and_of_several_tables():
    events = planted(3_000)
    frame = events.to_pandas()
    assert measured(frame) == measured(events)
    two = {name: frame[frame.type == name].drop(columns="type") for name in "AB"}
    known = ensue.statistics(two, QUERY, time="t")
    assert known.shares == measured(events).shares


def test_plans_follow_measured_statistics():
    events = planted(5_000)
    known = measured(events)
    told = ensue.explain(QUERY, events, time="t", type="type", options=ensue.PlannerOptions(statistics=known))
    assert "decisions, by statistics: all 5,000 events" in told
    plain = ensue.match(events, QUERY, time="t", type="type")
    chosen = ensue.match(events, QUERY, time="t", type="type", options=ensue.PlannerOptions(statistics=known))
    assert chosen.sort_by("match_id").equals(plain.sort_by("match_id"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ensue.Statistics.given(rates={"A": -1}), "a rate is a positive number"),
        (lambda: ensue.Statistics.given(passes={"a.x < 1": 2}), "is not 0 to 1"),
        (lambda: ensue.Statistics.given(partitions=0), "partitions=0 is not a positive number"),
        (lambda: ensue.Statistics.read("{"), "not JSON"),
        (lambda: ensue.Statistics.read('{"rates": 1}'), "have no 'rates'"),
        (lambda: ensue.explain("A a", options=ensue.PlannerOptions(off="flaten")), "did you mean 'flatten'"),
        (lambda: ensue.explain("A a", options=ensue.PlannerOptions(off=["x"])), "Rules: flatten"),
        (lambda: ensue.explain("A a", options=ensue.PlannerOptions(structure="heap")), "Structures: stacks, runs, "),
        (
            lambda: ensue.explain("A a", options=ensue.PlannerOptions(structure="stacks")),
            "the pattern has only one event",
        ),
        (lambda: ensue.explain("A a", options=ensue.PlannerOptions(statistics={"A": 1})), "ensue.Statistics.given"),
    ],
)
def test_mistakes_are_told(make, message):
    with pytest.raises(EnsueError, match=message):
        make()


def test_a_sample_has_events():
    with pytest.raises(EventError, match="at least one event"):
        measured(planted(10), sample=0)


@pytest.mark.spark
def test_spark_measures_the_same(spark):
    events = planted(6_000)
    frame = spark.createDataFrame(events.to_pandas())
    here, there = measured(events), measured(frame)
    assert there.shares == here.shares
    assert there.partitions == here.partitions
    assert isclose(there.effective, here.effective)
    assert isclose(there.rate, here.rate)
    small = measured(frame, sample=500)
    assert small.source == "a sample of 500 events"
    assert isclose(dict(small.passes)["a.x < 0.25"], 0.25, abs_tol=0.1)
