"""The live matcher as users call it."""

import asyncio
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import ensue
from ensue.codegen import kernel_cache as cache
from ensue.errors import EventError, LimitError, QueryError, StateError

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # uncompiled, scalars warn
SCHEMA = {"t": pa.int64(), "type": pa.string(), "k": pa.int64()}
PAIR = "SEQ(A a, B b) WHERE [k] WITHIN 10 RETURN a.t AS first, b.t AS last"
ABSENCE = "SEQ(A a, !B b) WHERE [k] WITHIN 10 RETURN a.t AS first"


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(cache, "interpreted", True)


def live_of(query=PAIR, **options):
    return ensue.live(query, **{"schema": SCHEMA, "time": "t", "type": "type"} | options)


def event(t, type, k=1):
    return {"t": t, "type": type, "k": k}


def pairs(found):
    return [(row["first"], row["last"]) for row in found.to_pylist()]


# ------------------------------------------------------------------------------- feeding


def test_a_match_comes_with_the_event_that_completes_it():
    live = live_of()
    assert pairs(live.feed(event(1, "A"))) == []
    assert pairs(live.feed(event(2, "B"))) == [(1, 2)]
    assert pairs(live.finish()) == []


def test_an_event_of_the_same_time_is_not_waited_for():
    live = live_of("SEQ(A a, B b) WHERE a.k = b.k RETURN a.t AS first, b.t AS last")
    live.feed(event(1, "A"))
    assert pairs(live.feed(event(1, "B"))) == pairs(
        ensue.match(
            pa.Table.from_pylist([event(1, "A"), event(1, "B")]),
            "SEQ(A a, B b) WHERE a.k = b.k RETURN a.t AS first, b.t AS last",
            time="t",
            type="type",
        )
    )


@pytest.mark.parametrize(
    "shape",
    [
        lambda rows: rows,
        lambda rows: pa.Table.from_pylist(rows, pa.schema(SCHEMA)),
        lambda rows: pa.RecordBatch.from_pylist(rows, pa.schema(SCHEMA)),
        lambda rows: pd.DataFrame(rows),
        lambda rows: pa.table(
            {"k": pa.array([r["k"] for r in rows], pa.int8()), "type": [r["type"] for r in rows],
             "t": [float(r["t"]) for r in rows]}
        ),
    ],
    ids=["rows", "table", "batch", "pandas", "other types"],
)  # fmt: skip
def test_whatever_holds_events_is_taken(shape):
    assert pairs(live_of().feed(shape([event(1, "A"), event(2, "B")]))) == [(1, 2)]


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema(SCHEMA),
        {"t": "int64", "type": "string", "k": "int64"},
        pa.schema(SCHEMA).empty_table(),
        pd.DataFrame([event(1, "A")]),
    ],
    ids=["schema", "names", "table", "pandas"],
)
def test_whatever_describes_events_is_a_schema(schema):
    live = live_of(schema=schema)
    assert pairs(live.feed([event(1, "A"), event(2, "B")])) == [(1, 2)]


def test_nothing_is_fed():
    live = live_of()
    assert live.feed([]).num_rows == 0
    assert live.feed(pa.schema(SCHEMA).empty_table()).num_rows == 0
    assert live.progress.events == 0


def test_schemas_by_event_type():
    schemas = {
        "A": pa.schema({"t": pa.int64(), "x": pa.int64()}),
        "B": {"t": pa.int64(), "x": pa.string(), "y": pa.float64()},
    }
    query = "SEQ(A a, B b) WITHIN 10 RETURN a, b"
    live = ensue.live(query, schema=schemas, time="t")
    found = [live.feed({"A": {"t": 1, "x": 5}})]
    found.append(live.feed({"B": [{"t": 3, "x": "s"}], "A": [{"t": 2, "x": 6}]}))
    tables = {
        "A": pa.table({"t": [1, 2], "x": [5, 6]}),
        "B": pa.table({"t": [3], "x": ["s"], "y": pa.array([None], pa.float64())}),
    }
    wanted = ensue.match(tables, query, time="t")
    assert sorted(pa.concat_tables(found).to_pylist(), key=str) == sorted(wanted.to_pylist(), key=str)
    with pytest.raises(EventError, match=r"'C' have no schema|type 'C'"):
        live.feed({"C": {"t": 4}})
    with pytest.raises(EventError, match="by type"):
        live.feed([{"t": 4, "x": 1}])


def test_several_queries_and_levels_give_a_dict():
    live = live_of({"pairs": PAIR, "gone": ABSENCE})
    found = live.feed([event(1, "A"), event(2, "B")])
    assert {name: table.num_rows for name, table in found.items()} == {"pairs": 1, "gone": 0}
    hierarchy = "EVENT Two AS SEQ(A a, B b) WHERE [k] WITHIN 10; SEQ(Two x, A c) WITHIN 10"
    live = live_of(hierarchy, options=ensue.OutputOptions(levels="all"))
    live.feed([event(1, "A"), event(2, "B")])
    assert {n: t.num_rows for n, t in live.feed(event(3, "A")).items()} == {"Two": 0, "": 1}


# ------------------------------------------------------------------------------- time


def test_absence_is_decided_by_the_next_event_or_by_the_clock():
    live = live_of(ABSENCE)
    assert live.feed([event(1, "A", 1), event(2, "A", 2)]).num_rows == 0
    assert live.advance(11).num_rows == 0
    assert live.advance(11.5)["first"].to_pylist() == [1]
    assert live.feed(event(20, "X", 9))["first"].to_pylist() == [2]


def test_time_that_has_passed_makes_events_late():
    live = live_of()
    live.advance(5)
    live.feed([event(4, "A"), event(5, "A"), event(6, "B")])
    assert (live.late, live.progress.matches) == (1, 1)


def test_the_clock_may_be_a_calendar():
    start = datetime(2026, 1, 1, tzinfo=UTC)
    live = ensue.live(
        "SEQ(A a, !B b) WITHIN 10 seconds RETURN a.ts AS ts",
        schema={"ts": pa.timestamp("ms", "UTC"), "type": pa.string()}, time="ts", type="type",
    )  # fmt: skip
    live.feed({"ts": start, "type": "A"})
    assert live.advance(start + timedelta(seconds=10)).num_rows == 0
    assert live.advance(np.datetime64("2026-01-01T00:00:10.001")).num_rows == 1
    with pytest.raises(EventError, match="datetime"):
        live.advance(5)


@pytest.mark.parametrize("wrong", ["soon", None, float("nan"), datetime(2026, 1, 1), True])
def test_what_is_no_time(wrong):
    with pytest.raises(EventError, match="the time column holds numbers"):
        live_of().advance(wrong)


# ------------------------------------------------------------------------------- late events


def test_without_a_watermark_an_earlier_event_is_late():
    live = live_of(options=ensue.StreamOptions(late_events="deliver"))
    found = live.feed([event(2, "A"), event(1, "A"), event(3, "B")])
    assert pairs(found) == [(2, 3)]
    assert (live.late, live.progress.events) == (1, 3)
    assert live.late_events().to_pylist() == [event(1, "A")]
    assert live.late_events().num_rows == 0


def test_late_events_are_only_given_back_on_request():
    live = live_of()
    with pytest.raises(EventError, match='late_events="deliver"'):
        live.late_events()
    with pytest.raises(EventError, match="late_events must be 'count' or 'deliver'"):
        live_of(options=ensue.StreamOptions(late_events="keep"))


def test_with_a_watermark_events_wait():
    live = live_of(watermark=3)
    assert live.feed([event(5, "B"), event(4, "A")]).num_rows == 0
    assert (live.progress.waiting, live.late) == (2, 0)
    assert pairs(live.feed(event(9, "X"))) == [(4, 5)]
    live.feed(event(5, "A"))
    assert live.late == 1


@pytest.mark.parametrize("cut", [1, 2, 5])
@pytest.mark.parametrize("watermark", [None, 0, 2])
def test_what_is_late_does_not_depend_on_the_cut(cut, watermark):
    rows = [event(t, "A") for t in (3, 1, 5, 4, 3, 5, 2, 8, 5, 6)]
    live = live_of(watermark=watermark, options=ensue.StreamOptions(late_events="deliver"))
    for k in range(0, len(rows), cut):
        live.feed(rows[k : k + cut])
    late = [r["t"] for r in live.late_events().to_pylist()]
    assert late == {None: [1, 4, 3, 2, 5, 6], 0: [1, 4, 3, 2, 5, 6], 2: [2, 5]}[watermark]


def test_what_orders_events_of_the_same_time_can_make_them_late():
    live = live_of(order="k", options=ensue.StreamOptions(late_events="deliver"))
    live.feed([event(1, "A", 2), event(1, "A", 1), event(1, "A", 2)])
    live.feed(event(1, "A", 1))
    assert live.late == 2


@pytest.mark.parametrize(
    ("watermark", "says"), [("10 seconds", "must be a number"), (-1, "not a length"), (True, "not a length")]
)
def test_a_wrong_watermark(watermark, says):
    with pytest.raises(EventError, match=says):
        live_of(watermark=watermark)


# ------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"t": 3, "type": "A", "kk": 1}, "no column 'kk'"),
        ({"t": "three", "type": "A"}, "t='three' is not of the schema's type int64"),
        ({"t": 3, "type": 7}, "type=7 is not of the schema's type string"),
        ({"t": None, "type": "A"}, "no usable time"),
        ({"type": "A"}, "no usable time"),
        ([event(3, "A"), event("x", "B")], "event 1 of the list: t='x'"),
        (pa.table({"t": [3], "type": ["A"]}), "no column 'k'"),
        (pa.table({"t": [3], "type": ["A"], "k": ["x"]}), "'k' has type string"),
        (pa.table({"t": [3.5], "type": ["A"], "k": [1]}), "some values do not fit"),
        (pa.table({"t": [3], "type": ["A"], "k": [1], "z": [1]}), "no column 'z'"),
        (7, "not supported"),
    ],
)
def test_bad_input_is_an_error_and_changes_nothing(bad, says):
    live = live_of()
    live.feed(event(1, "A"))
    with pytest.raises(EventError, match=says):
        live.feed(bad)
    assert live.progress.events == 1
    assert pairs(live.feed(event(4, "B"))) == [(1, 4)]


def test_bad_events_may_be_dropped_and_counted():
    live = live_of(options=ensue.StreamOptions(bad_events="drop"))
    rows = [event(1, "A"), {"t": 2, "oops": 1}, event("x", "B"), event(None, "B"), event(3, "B")]
    assert pairs(live.feed(rows)) == [(1, 3)]
    assert (live.dropped, live.progress.events) == (3, 2)


def test_a_time_that_is_not_a_number_is_no_time():
    live = live_of(schema=SCHEMA | {"t": pa.float64()})
    for bad in (float("nan"), float("inf")):
        with pytest.raises(EventError, match="no usable time"):
            live.feed(event(bad, "A"))


def test_errors_of_the_query_come_with_the_call():
    with pytest.raises(QueryError, match="unknown field"):
        live_of("SEQ(A a, B b) WHERE a.kk = b.k")
    with pytest.raises(QueryError, match="levels="):
        live_of(options=ensue.OutputOptions(levels="all"))
    with pytest.raises(EventError, match="no column 'ts'"):
        live_of(time="ts")
    with pytest.raises(EventError, match="Arrow does not know"):
        live_of(schema={"t": "integer!", "type": "string"})


# ------------------------------------------------------------------------------- ends


def test_after_the_end_nothing_can_be_fed():
    live = live_of()
    live.finish()
    for call in (lambda: live.feed(event(1, "A")), lambda: live.advance(3), live.finish, live.save):
        with pytest.raises(EventError, match=r"no more events can be given .* it is finished"):
            call()


def test_a_limit_stops_it_for_good():
    live = live_of("SEQ(A a, B b)", options=ensue.Limits(max_matches=5))
    live.feed([event(1, "A") for _ in range(10)])
    state = live.save()
    with pytest.raises(LimitError):
        live.feed(event(2, "B"))
    with pytest.raises(EventError, match="stopped in the middle"):
        live.feed(event(3, "B"))
    again = live_of("SEQ(A a, B b)").restore(state)
    assert again.feed(event(2, "B")).num_rows == 10


@pytest.mark.parametrize("query", ["SEQ(A a, B b) WITHIN 2", ["SEQ(A a, B b) WITHIN 2"] * 2])
def test_matches_that_were_given_are_not_counted_against_a_limit(query):
    live = live_of(query, options=ensue.Limits(max_matches=5))
    for t in range(40):
        live.feed([event(t, "A"), event(t, "B")])
    assert live.progress.matches > 50


# ------------------------------------------------------------------------------- state


def test_it_goes_on_from_a_saved_state():
    live = live_of(options=ensue.StreamOptions(late_events="deliver"))
    live.feed([event(5, "A"), event(4, "A")])
    again = live_of(options=ensue.StreamOptions(late_events="deliver")).restore(live.save())
    assert pairs(again.feed(event(6, "B"))) == [(5, 6)]
    assert again.progress.events == 3
    assert again.late_events().num_rows == 1


def test_twins_are_told_apart_across_pieces_and_states():
    events = pa.Table.from_pylist([event(1, "A")] * 3 + [event(2, "B")] * 2, pa.schema(SCHEMA))
    live, found = live_of(), []
    for k in range(events.num_rows):
        found.append(live.feed(events.slice(k, 1)))
        live = live_of().restore(live.save())
    ids = pa.concat_tables(found)["match_id"].to_pylist()
    assert len(set(ids)) == 6
    wanted = ensue.match(events, PAIR, time="t", type="type")["match_id"].to_pylist()
    assert sorted(ids) == sorted(wanted)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"query": "SEQ(A a, B b) WITHIN 9"}, "another query"),
        ({"query": [PAIR]}, "several queries"),
        ({"schema": SCHEMA | {"z": pa.int64()}}, "set of columns"),
        ({"watermark": 3}, "another watermark"),
        ({"options": ensue.OutputOptions(emit_timeouts=True)}, "emit_timeouts"),
    ],
)
def test_a_state_of_something_else_is_refused(options, says):
    state = live_of().save()
    other = live_of(**options)
    with pytest.raises(StateError, match=says):
        other.restore(state)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (b"nonsense", "not a saved state"),
        (b"", "not a saved state"),
        (b"ENSUE", "not a saved state"),
        (None, r"bytes, not None\n  hint: pass what save\(\) has returned"),
        ("text", "bytes, not a value of type str"),
        (3, "bytes, not a value of type int"),
    ],
)
def test_what_is_no_state_is_refused(state, says):
    live = live_of()
    live.feed(event(1, "A"))
    with pytest.raises(StateError, match=says):
        live.restore(state)
    assert pairs(live.feed(event(2, "B"))) == [(1, 2)]


def test_a_state_may_be_any_kind_of_bytes():
    live = live_of()
    live.feed(event(1, "A"))
    for kind in (bytearray, memoryview):
        again = live_of().restore(kind(live.save()))
        assert pairs(again.feed(event(2, "B"))) == [(1, 2)]


# ------------------------------------------------------------------------------- sources


async def arriving(rows):
    for row in rows:
        await asyncio.sleep(0)
        yield row


@pytest.mark.parametrize("source", [list, arriving], ids=["iterable", "async"])
def test_over_a_source(source):
    rows = [event(1, "A"), event(2, "X"), [event(3, "B"), event(4, "A")]]

    async def run():
        live = live_of({"pairs": PAIR, "gone": ABSENCE})
        return [{name: table.num_rows for name, table in found.items()} async for found in live.over(source(rows))]

    assert asyncio.run(run()) == [{"pairs": 1, "gone": 0}, {"pairs": 0, "gone": 1}]


def test_counters():
    live = live_of()
    live.feed([event(1, "A"), event(2, "A"), event(3, "B")])
    counts = live.progress
    assert (counts.events, counts.matches, counts.partial_matches) == (3, 2, 2)
    assert counts.state_bytes > 0
    assert "3 events, 2 matches" in repr(live)


@pytest.mark.slow
def test_what_is_held_stays_bounded(monkeypatch):
    monkeypatch.setattr("ensue.runtime.event_buffer.MIN_COMPACT_ROWS", 200)
    live = live_of()
    sizes = []
    for t in range(3_000):
        live.feed(event(t, "AB"[t % 2], t % 5))
        if t % 500 == 499:
            sizes.append(live.progress.state_bytes)
    assert max(sizes[2:]) < 20_000
    assert len(live.save()) < 20_000


BY_REFERENCE = {
    "(A? a, B? b){2} -> C c USING next WITHIN 9": ("ABCXXX", [0, 0, 3, 0, 0, 0]),
    "A a THEN !N n WITHIN 3": ("AXANAX", [0, 1, 0, 0, 0, 1]),
    "A a THEN (B b THEN)++ THEN !N n WITHIN 9": ("ABBXAB", [0, 0, 0, 1, 0, 0]),
    "AND(A a, !SEQ(B c, A d), B b) WITHIN 4": ("AXBXXX", [0, 0, 1, 0, 0, 0]),
}


@pytest.mark.parametrize("query", BY_REFERENCE)
def test_what_runs_by_the_reference_comes_as_soon_as_it_is_decided(query):
    types, counts = BY_REFERENCE[query]
    live = live_of(query)
    events = [event(t, type) for t, type in enumerate(types)]
    explained = ensue.explain(query, pa.Table.from_pylist(events), time="t", type="type")
    assert "reference" in str(explained)
    assert [live.feed(each).num_rows for each in events] == counts


def test_what_timed_out_comes_with_the_event_that_shows_it():
    live = live_of("A a THEN NEXT B b WITHIN 3", options=ensue.OutputOptions(emit_timeouts=True))
    counts = [live.feed(event(t, type)).num_rows for t, type in enumerate("AXXXXAB")]
    assert counts == [0, 0, 0, 0, 1, 0, 1]


@pytest.mark.parametrize("query", [*BY_REFERENCE, "A a THEN NEXT B b WITHIN 3"])
def test_what_runs_by_the_reference_holds_the_events_of_its_window(query):
    live = live_of(query, options=ensue.OutputOptions(emit_timeouts="NEXT" in query))
    for t in range(60):
        live.feed(event(t, "ABXC"[t % 4]))
        assert live.progress.partial_matches < 15


@pytest.mark.parametrize("query", ["A a THEN (B b THEN)++", "SEQ(A a, (C? c THEN B b)++) USING strict"])
def test_a_greedy_loop_of_neighbours_is_a_match_as_soon_as_another_event_comes(query):
    events = pa.table({"t": [1, 2, 3, 4], "type": list("ABXX")})
    live = ensue.live(query, schema=events.schema, time="t", type="type")
    assert [live.feed(events.slice(k, 1)).num_rows for k in range(4)] == [0, 0, 1, 0]
    assert live.finish().num_rows == 0


def test_several_queries_save_the_partial_matches_of_a_negated_pattern():
    events = pa.table({"t": [1, 2, 3], "type": ["A", "B", "C"]})
    queries = ["SEQ(!AND(A n, B m), C c) WITHIN 8", "SEQ(A a, C c) WITHIN 8"]
    options = {"schema": events.schema, "time": "t", "type": "type"}
    live = ensue.live(queries, **options)
    found = [live.feed(events.slice(0, 1))]
    live = ensue.live(queries, **options).restore(live.save())
    found += [live.feed(events.slice(1)), live.finish()]
    counts = [sum(table.num_rows for table in of_query) for of_query in zip(*map(dict.values, found), strict=True)]
    assert counts == [0, 1]
