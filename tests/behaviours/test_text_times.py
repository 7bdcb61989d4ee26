"""A time column of text: read as times as ISO times, and said so."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

import ensue
from ensue.errors import EventError

pytestmark = [pytest.mark.stateless, pytest.mark.filterwarnings("ignore:the time of events")]

ZONELESS = ["2026-03-14 09:00:00", "2026-03-14T09:05", "2026-03-15"]
ZONED = ["2026-03-14T09:00:00Z", "2026-03-14T10:05:00+01:00", "2026-03-15 00:00"]
TIMES = [datetime(2026, 3, 14, 9), datetime(2026, 3, 14, 9, 5), datetime(2026, 3, 15)]
QUERY = "SEQ(E a, E b) WHERE a.n + 1 = b.n WITHIN 2 days RETURN a.n AS a, b.n AS b, b.at AS at"


def events(texts):
    return pa.table({"at": texts, "n": list(range(len(texts)))})


@pytest.mark.everywhere(slow=True)
@pytest.mark.parametrize("texts", [ZONELESS, ZONED], ids=["no zone", "zones"])
def test_texts_are_times(runner, texts):
    found = runner.match(events(texts), QUERY, time="at").to_pylist()
    rows = sorted((r["a"], r["b"], r["at"].replace(tzinfo=None)) for r in found)
    assert rows == [(0, 1, TIMES[1]), (1, 2, TIMES[2])]


def test_it_is_said():
    with pytest.warns(UserWarning, match="the time of events, 'at', is text"):
        found = ensue.match(events(ZONELESS), QUERY, time="at")
    assert found.schema.field("start").type == pa.timestamp("us")
    with pytest.warns(UserWarning, match="as ISO times"):
        found = ensue.match(events(ZONED), QUERY, time="at")
    assert found.schema.field("start").type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(),
                                  pa.dictionary(pa.int8(), pa.string())], ids=str)  # fmt: skip
def test_text_of_every_kind(kind):
    table = pa.table({"at": pa.array(ZONELESS).cast(kind), "n": [0, 1, 2]})
    assert ensue.match(table, QUERY, time="at").num_rows == 2


@pytest.mark.parametrize("bad", ["soon", "2026-02-30", "2026-03-14T25:00", "14.03.2026"])
def test_a_text_that_is_no_time(bad):
    table = events([*ZONELESS, bad])
    with pytest.raises(EventError, match=f"'{bad}' in row 3 of 'at' is not an ISO time"):
        ensue.match(table, QUERY, time="at")
    with pytest.warns(UserWarning, match="1 events without usable time are left out"):
        assert ensue.match(table, QUERY, time="at", options=ensue.StreamOptions(bad_events="drop")).num_rows == 2


def test_events_that_last():
    table = pa.table({"from": ZONELESS[:2], "to": ["2026-03-14 09:01", "2026-03-14 09:06"]})
    found = ensue.match(table, "E a", time=("from", "to")).to_pylist()
    assert [row["end"] for row in found] == [datetime(2026, 3, 14, 9, 1), datetime(2026, 3, 14, 9, 6)]


def test_tables_some_of_which_have_texts():
    zoned = pa.array([datetime(2026, 3, 14, 9, 1, tzinfo=UTC)], pa.timestamp("us", "Asia/Tokyo"))
    tables = {"A": pa.table({"at": ZONELESS[:1]}), "B": pa.table({"at": zoned})}
    found = ensue.match(tables, "SEQ(A a, B b) RETURN a.at AS a", time="at")
    assert found.column("a").to_pylist() == [datetime(2026, 3, 14, 9, tzinfo=UTC)]


def test_live_events():
    feeding = ensue.live(QUERY, schema={"at": "string", "n": "int64"}, time="at")
    found = feeding.feed({"at": ZONED[0], "n": 0}).num_rows
    found += feeding.feed([{"at": ZONED[1], "n": 1}, {"at": ZONELESS[2], "n": 2}]).num_rows
    found += feeding.finish().num_rows
    assert found == 2
    feeding = ensue.live(QUERY, schema={"at": "string", "n": "int64"}, time="at")
    with pytest.raises(EventError, match="'soon' in row 0 of 'at' is not an ISO time"):
        feeding.feed({"at": "soon", "n": 3})
    dropping = ensue.live(
        QUERY, schema={"at": "string", "n": "int64"}, time="at", options=ensue.StreamOptions(bad_events="drop")
    )
    dropping.feed([{"at": "soon", "n": 3}, {"at": ZONED[0], "n": 0}])
    assert dropping.dropped == 1


@pytest.mark.spark
def test_on_spark(spark):
    frame = spark.createDataFrame(list(zip(ZONED, range(3), strict=True)), "at string, n int")
    with pytest.warns(UserWarning, match="the time of events, 'at', is text"):
        found = ensue.match(frame, QUERY, time="at").collect()
    assert sorted((row.a, row.b) for row in found) == [(0, 1), (1, 2)]
    worse = frame.union(spark.createDataFrame([("soon", 3)], "at string, n int"))
    with pytest.raises(Exception, match="'soon' in column 'at' is not an ISO time"):
        ensue.match(worse, QUERY, time="at").collect()
    kept = ensue.match(worse, QUERY, time="at", options=ensue.StreamOptions(bad_events="drop")).collect()
    assert sorted((row.a, row.b) for row in kept) == [(0, 1), (1, 2)]


def test_live_says_that_it_reads_texts_as_microseconds():
    with pytest.warns(UserWarning, match="is text"):
        live = ensue.live("A a", schema={"t": "string", "type": "string"}, time="t", type="type")
    assert live.feed({"t": "2026-03-14T09:30:00.123456000Z", "type": "A"}).num_rows == 1
    with pytest.raises(ensue.EventError, match="finer than microseconds"):
        live.feed({"t": "2026-03-14T09:30:00.123456789Z", "type": "A"})
