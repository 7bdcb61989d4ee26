"""Streams that are behind the clock: what is given up is listed, and the rest is as it was."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ensue
from ensue.errors import EventError, QueryError
from ensue.options import Limits
from ensue.planner.planner_options import PlannerOptions
from ensue.runtime.tasks.task_state import TaskCache
from support.key_groups import Stream, workload_of
from support.task_caches import forget_live

pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # uncompiled, scalars warn
]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema({"t": pa.timestamp("us", "UTC"), "type": pa.string(), "k": pa.int64(), "x": pa.int64()})
QUERIES = {  # and the structures that can run them
    "SEQ(A a, B b, C c) WHERE [k] WITHIN 20 seconds": (None, "runs", "stacks", "tree"),
    "SEQ(A a, B b) WHERE [k] AND a.x < b.x WITHIN 12 seconds": (None, "reference"),
    "SEQ(A a, NOT B b, C c) WHERE [k] WITHIN 20 seconds": (None,),
    "SEQ(A a, C c, NOT B b) WHERE [k] WITHIN 10 seconds": (None,),
    "SEQ(A+ a[], C c) WHERE skip_till_next_match(a[], c) { [k] } WITHIN 15 seconds": (None,),
    "SEQ(A a, B b) WHERE partition_contiguity(a, b) { [k] } WITHIN 15 seconds": (None,),
}


def random_events(random: Random, count: int) -> pa.Table:
    rows = [
        {
            "t": BEGIN + timedelta(seconds=second),
            "type": random.choice("ABC"),
            "k": random.choice((*range(8), None)),
            "x": random.randrange(10),
        }
        for second in sorted(random.sample(range(count), count * 3 // 4))
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def stream_of(query: Any, given: dict[str, Any], structure: Any = None, key_groups: int = 1, **more):
    limits = Limits(per_core=True, **given)
    planning = PlannerOptions(structure=structure, limits=limits)
    return Stream(workload_of(query, SCHEMA, "t", "type", key_groups=key_groups, planning=planning), **more)


def in_pieces(random: Random, stream: Stream, events: pa.Table) -> pa.Table:
    """Feeds events that come out of order, and gives all matches."""
    seconds = np.arange(events.num_rows) + [random.uniform(0, 3) for _ in range(events.num_rows)]
    arrival = np.argsort(seconds, kind="stable")
    cuts = sorted(random.sample(range(1, events.num_rows), random.randint(2, 8)))
    for part in np.split(arrival, cuts):
        stream.feed(events.take(pa.array(part)))
        if random.random() < 0.3:
            stream.pause()
    return stream.finish()


def by_id(matches: pa.Table) -> dict[str, dict[str, Any]]:
    rows = matches.to_pylist()
    found = {row["match_id"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def lost_in(match: dict[str, Any], shed: list[dict[str, Any]]) -> bool:
    key = next(v["k"] if isinstance(v, dict) else v[0]["k"] for v in match.values() if is_event(v))
    return any(
        row["k"] == key
        and match["start"] <= row["shed_until"]
        and (row["shed_from"] is None or match["end"] >= row["shed_from"])
        for row in shed
    )


def is_event(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value))


@pytest.mark.first_rounds(5)
@pytest.mark.parametrize("seed", range(400))
def test_what_is_lost_is_listed_and_the_rest_is_found(seed, few_keys, tmp_path, monkeypatch):
    random = Random(seed)
    monkeypatch.setattr("ensue.runtime.tasks.task_state.SMALL", random.choice((0, 2_000, 1 << 20)))
    monkeypatch.setattr("ensue.runtime.tasks.task_state.MIN_CACHED_BYTES", 0)
    forget_live()
    query = random.choice(list(QUERIES))
    structure = random.choice(QUERIES[query])
    events = random_events(random, 80)
    wanted = by_id(ensue.match(events, query, time="t", type="type"))
    if random.random() < 0.5:
        few_keys(random.choice((1, 2, 4)))  # evict and shed together
    stream = stream_of(
        query, {"shed": "10 seconds"}, structure, random.choice((1, 2)),
        delay_ms=random.choice((8_000, 20_000)), early=random.random() < 0.7,
        forget=lambda: random.random() < 0.3,
        cache=TaskCache(tmp_path) if random.random() < 0.5 else None,
        lag_ms=lambda: random.choice((0, 5_000, 10_000, 10_001, 25_000, 60_000)),
    )  # fmt: skip
    found = by_id(in_pieces(random, stream, events))
    shed = stream.shed_keys()
    assert found.items() <= wanted.items(), query
    lost = wanted.keys() - found.keys()
    explained = {name for name, row in wanted.items() if lost_in(row, shed)}
    if "C c, NOT B b" in query:  # some that waited for their window may have been decided
        assert lost <= explained
    else:
        assert lost == explained
    assert sum(counted.shed_keys for counted in stream.shed) == len(shed)
    listed = sum(row["shed_events"] for row in shed)
    assert listed <= sum(counted.shed_events for counted in stream.shed) <= events.num_rows
    assert stream.late == 0


@pytest.mark.parametrize("seed", range(12))
def test_a_stream_that_keeps_up_loses_nothing(seed):
    random = Random(seed)
    forget_live()
    query = random.choice(list(QUERIES))
    events = random_events(random, 60)
    stream = stream_of(query, {"shed": "10 seconds"}, delay_ms=8_000, lag_ms=lambda: 10_000)
    found = by_id(in_pieces(random, stream, events))
    assert found == by_id(ensue.match(events, query, time="t", type="type"))
    assert not stream.shed
    assert not stream.shed_keys()


def moments(*seconds: int, type: str, keys: list[int]) -> pa.Table:
    rows = [
        {"t": BEGIN + timedelta(seconds=second), "type": type, "k": key, "x": 0}
        for second, key in zip(seconds, keys, strict=True)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


PAIRS = "SEQ(A a, B b) WHERE [k] WITHIN 60 seconds"


def test_a_quarter_goes_first_and_its_partial_matches_are_counted():
    forget_live()
    lags = iter((0, 10_001))
    stream = stream_of(PAIRS, {"shed": "10 seconds"}, delay_ms=0, lag_ms=lambda: next(lags))
    stream.feed(moments(*range(8), type="A", keys=list(range(8))))
    stream.feed(moments(*range(10, 18), type="B", keys=list(range(8))))
    (counted,) = stream.shed
    # a quarter, and a bit, as the lag is a bit more; the last A has just come and waits
    assert counted.shed_keys == 3
    assert counted.shed_events == 3
    assert 2 <= counted.shed_partial_matches <= 3
    assert len(stream.finish()) == 5


def test_those_with_the_least_chance_go_first():
    """An A is always followed, a B never: keys that have come to B are given up."""
    forget_live()
    lag = 0
    stream = stream_of(PAIRS, {"shed": "10 seconds"}, delay_ms=0, lag_ms=lambda: lag)
    for k in range(20):
        stream.feed(moments(2 * k, type="A", keys=[k]))
        stream.feed(moments(2 * k + 1, type="B", keys=[k]))
    lag = 20_000  # half of them
    second = 42
    events = pa.concat_tables(
        [
            moments(*range(second, second + 4), type="B", keys=[100, 101, 102, 103]),
            moments(*range(second + 4, second + 8), type="A", keys=[200, 201, 202, 203]),
        ]
    )
    stream.feed(events)
    assert {row["k"] for row in stream.shed_keys()} == {100, 101, 102, 103}


def test_a_key_that_was_given_up_begins_anew_behind_its_newest_event():
    """Else what rules a match out might be among what was dropped."""
    forget_live()
    lags = iter((40_000, 0, 0))
    query = "SEQ(A a, NOT B b, C c) WHERE [k] WITHIN 60 seconds"
    stream = stream_of(query, {"shed": "10 seconds"}, delay_ms=30_000, lag_ms=lambda: next(lags))
    stream.feed(moments(20, type="B", keys=[1]))
    stream.feed(moments(10, type="A", keys=[1]))  # it comes later than what is behind it
    assert stream.shed[-1].shed_events == 1
    assert stream.shed[-1].shed_keys == 0
    stream.feed(pa.concat_tables([moments(25, type="C", keys=[1]), moments(30, type="A", keys=[1])]))
    assert stream.finish().num_rows == 0
    (row,) = stream.shed_keys()
    assert row == {
        "k": 1, "shed_from": None, "shed_until": BEGIN + timedelta(seconds=20), "shed_events": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SEQ(A a, B b) WITHIN 1 hour", "it has no [attr]"),
        ("SEQ(A a, B b) WHERE [k] WITHIN 9 EVENTS", "counts events"),
        ("SEQ(NOT A a, B b) WHERE [k] WITHIN 1 hour", "its negation"),
        (
            """
            EVENT P AS SEQ(A a, B b) WHERE [k] WITHIN 1 hour RETURN a.k AS k;
            SEQ(P p, C c) WHERE [k] WITHIN 2 hours
            """,
            "complex events would lack",
        ),
    ],
)
def test_what_cannot_be_shed_is_said(query, why):
    with pytest.raises(QueryError, match="cannot shed load") as error:
        stream_of(query, {"shed": "10 seconds"}, delay_ms=0)
    assert why in str(error.value)


def test_only_timestamps_can_be_behind_the_clock():
    schema = pa.schema({"t": pa.int64(), "type": pa.string(), "k": pa.int64()})
    planning = PlannerOptions(limits=Limits(shed="10 seconds"))
    query = PAIRS.replace("60 seconds", "60")
    with pytest.raises(QueryError, match="holds integers"):
        Stream(workload_of(query, schema, "t", "type", planning=planning), 0)


@pytest.mark.parametrize("shed", [30, "soon", "0 seconds", "5 monkeys"])
def test_a_lag_is_a_length_of_time(shed):
    with pytest.raises(EventError, match=r"time|short"):
        Limits(shed=shed)


def test_a_table_is_not_behind():
    events = moments(1, 2, type="A", keys=[1, 1])
    with pytest.raises(QueryError, match="is for Spark streams"):
        ensue.match(events, PAIRS, time="t", type="type", options=ensue.Limits(shed="10 seconds"))
