"""Zones: functions that read clocks read those of the column's zone; AT TIME ZONE."""

import json
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from ensue.errors import QueryError
from ensue.functions import FUNCTIONS
from ensue.functions.datetime import find_zone
from ensue.functions.record import ArgumentType
from ensue.runtime.job_fingerprint import FORMAT
from ensue.runtime.source_schema import SourceOptions
from ensue.runtime.tasks.task_state import require_same_job
from ensue.vector.functions import instants, on_clocks

pytestmark = pytest.mark.stateless

ZONES = ("Europe/Zurich", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata",
         "Africa/Casablanca", "America/Havana", "Asia/Beirut", "Pacific/Apia",
         "+05:30")  # fmt: skip
TURNS = [  # local clocks turned forward at 01:00 UTC, and back at 01:00 UTC
    datetime(2026, 3, 29, 0, 30, tzinfo=UTC) + timedelta(minutes=30) * k for k in range(4)
] + [datetime(2026, 10, 24, 23, 30, tzinfo=UTC) + timedelta(minutes=30) * k for k in range(7)]


def events(zone="Europe/Zurich", times=TURNS, unit="us"):
    clocks = [time.replace(tzinfo=None) for time in times]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp(unit, zone)),
            "clock": pa.array(clocks, pa.timestamp(unit)),
            "n": list(range(len(times))),
        }
    )


# ------------------------------------------------------------------------------- columns


@given(
    st.lists(st.datetimes(datetime(1890, 1, 1), datetime(2100, 1, 1)), min_size=1, max_size=20),
    st.sampled_from(ZONES),
    st.sampled_from(["us", "ns"]),
)
def test_over_columns_as_zoneinfo_has_it(times, zone, unit):
    clock = np.array(times, "M8[us]").astype(f"M8[{unit}]")
    to_clock, to_instant = FUNCTIONS["from_utc_timestamp"], FUNCTIONS["to_utc_timestamp"]
    there = find_zone(zone)
    for found, record, meant in (
        (
            on_clocks(zone, clock),
            to_clock,
            [t.replace(tzinfo=UTC).astimezone(there).replace(tzinfo=None) for t in times],
        ),
        (
            instants(zone, clock),
            to_instant,
            [t.replace(tzinfo=there).astimezone(UTC).replace(tzinfo=None) for t in times],
        ),
    ):
        assert found.astype("M8[us]").tolist() == meant
        assert [record([t, zone]).replace(tzinfo=None) for t in times] == meant


@pytest.mark.parametrize(
    "years", [("2024-01-01", "2026-01-01"), pytest.param(("2010-01-01", "2027-01-01"), marks=pytest.mark.slow)]
)
def test_around_every_turn_of_the_clocks(years):
    for zone in ZONES:
        hours = np.arange(*years, 1_800, "M8[s]").astype("M8[us]")
        there = find_zone(zone)
        times = hours.tolist()
        meant = [t.replace(tzinfo=UTC).astimezone(there).replace(tzinfo=None) for t in times]
        assert on_clocks(zone, hours).tolist() == meant
        meant = [t.replace(tzinfo=there).astimezone(UTC).replace(tzinfo=None) for t in times]
        assert instants(zone, hours).tolist() == meant


def test_times_that_python_does_not_have():
    far = np.array([-(2**62), 2**62], "M8[us]")
    assert (on_clocks("Asia/Tokyo", far) - far).tolist() == [timedelta(seconds=33539),
                                                            timedelta(hours=9)]  # fmt: skip


# ------------------------------------------------------------------------------- matching

PARTS = {
    "hour": lambda t: t.hour,
    "day": lambda t: t.day,
    "dayofweek": lambda t: t.isoweekday() % 7,
    "dayofyear": lambda t: t.timetuple().tm_yday,
    "week": lambda t: t.isocalendar().week,
    "minute": lambda t: t.minute,
    "month": lambda t: t.month,
    "year": lambda t: t.year,
    "to_date": lambda t: t.date(),
    "dayname": lambda t: t.strftime("%A"),
}


@pytest.mark.in_process("a session of Spark has one zone")
@pytest.mark.parametrize("unit", ["us", "ns"])
@pytest.mark.parametrize("zone", ["Europe/Zurich", "Asia/Kolkata", "UTC", None])
def test_parts_are_those_of_the_zone_of_the_column(runner, zone, unit):
    returned = ", ".join(f"{name}(a.ts) AS {name}" for name in PARTS)
    table = events(zone, unit=unit)
    found = runner.match(table, f"E a RETURN a.n AS n, {returned}", time="ts").to_pylist()
    there = ZoneInfo(zone or "UTC")
    for row in found:
        local = TURNS[row["n"]].astimezone(there)
        assert {name: row[name] for name in PARTS} == {n: f(local) for n, f in PARTS.items()}
    query = "E a WHERE hour(a.ts) = 2 RETURN a.n AS n"
    wanted = [n for n, t in enumerate(TURNS) if t.astimezone(there).hour == 2]
    rows = runner.match(table, query, time="ts").to_pylist()
    assert sorted(row["n"] for row in rows) == wanted


@pytest.mark.in_process("a session of Spark has one zone")
def test_truncated_times_are_of_the_same_zone(runner):
    query = """E a RETURN a.n AS n, date_trunc('day', a.ts) AS day,
        date_trunc('hour', a.ts) AS hour, date_trunc('month', a.ts) AS month,
        add_months(a.ts, 1) AS later, a.ts + 1 hour AS next"""
    found = runner.match(events(), query, time="ts")
    zone = ZoneInfo("Europe/Zurich")
    for name in ("day", "hour", "month", "later", "next"):
        assert found.schema.field(name).type.tz == "Europe/Zurich"
    for row in found.to_pylist():
        local = TURNS[row["n"]].astimezone(zone)
        midnight = datetime.combine(local.date(), datetime.min.time(), zone)
        assert row["day"] == midnight
        assert row["month"] == midnight.replace(day=1)
        # an hour that clocks show twice is not the same hour
        assert row["hour"].astimezone(UTC) == TURNS[row["n"]].replace(minute=0)


@pytest.mark.in_process("a session of Spark has one zone")
def test_hours_that_pass_while_clocks_are_turned_are_hours(runner):
    query = """SEQ(E a, E b) WHERE a.n = 0 and b.n = 10
        RETURN date_diff('hour', a.ts, b.ts) AS hours, date_diff('day', a.ts, b.ts) AS days"""
    times = [TURNS[4] + timedelta(hours=3) * k for k in range(11)]
    (row,) = runner.match(events(times=times), query, time="ts").to_pylist()
    assert row["hours"] == 30
    assert row["days"] == 1


@pytest.mark.everywhere
def test_at_time_zone(runner):
    query = """E a WHERE hour(a.ts AT TIME ZONE 'Asia/Tokyo') < 12 RETURN a.n AS n,
        a.ts AT TIME ZONE 'Asia/Tokyo' AS tokyo,
        a.ts AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Zurich' AS at,
        date_trunc('day', a.ts AT TIME ZONE 'Asia/Tokyo') AS day"""
    found = runner.match(events("UTC"), query, time="ts").to_pylist()
    zurich, tokyo = ZoneInfo("Europe/Zurich"), ZoneInfo("Asia/Tokyo")
    assert sorted(r["n"] for r in found) == [n for n, t in enumerate(TURNS) if t.astimezone(tokyo).hour < 12]
    for row in found:
        time = TURNS[row["n"]]
        local = time.astimezone(tokyo).replace(tzinfo=None)
        assert row["tokyo"] == local
        assert row["day"] == datetime.combine(local.date(), datetime.min.time())
        assert row["at"].astimezone(UTC) == time.replace(tzinfo=zurich).astimezone(UTC)


def test_the_zone_of_what_is_given():
    query = """E a RETURN a.ts AT TIME ZONE 'Asia/Tokyo' AS clock,
        a.clock AT TIME ZONE 'Asia/Tokyo' AS instant,
        (a.ts AT TIME ZONE 'Asia/Tokyo') AT TIME ZONE 'Asia/Tokyo' AS again"""
    found = ensue.match(events(), query, time="ts")
    zones = {name: found.schema.field(name).type.tz for name in ("clock", "instant", "again")}
    assert zones == {"clock": None, "instant": "Asia/Tokyo", "again": "Asia/Tokyo"}
    assert found.column("again").cast(pa.int64()) == events().column("ts").cast(pa.int64())


def test_levels_keep_the_zone():
    hierarchy = """EVENT Night AS E a WHERE hour(a.ts) < 4
            RETURN a.ts AS at, date_trunc('day', a.ts) AS day;
        SEQ(Night n) WHERE hour(n.at) = 1 and hour(n.day) = 0 and hour(n.start) = 1
        RETURN n.at AS at, hour(n.at) AS hour"""
    found = ensue.match(events(), hierarchy, time="ts").to_pylist()
    zone = ZoneInfo("Europe/Zurich")
    assert [row["at"] for row in found] == [t for t in TURNS if t.astimezone(zone).hour == 1]


def test_clauses_of_sql_read_the_clocks_of_the_zone():
    text = """SELECT * FROM events MATCH_RECOGNIZE (ORDER BY ts
        MEASURES hour(A.ts) AS hour, date_trunc('day', LAST(ts)) AS day, max(hour(ts)) AS latest,
            LAST(ts) AT TIME ZONE 'Asia/Tokyo' AS tokyo, clock AT TIME ZONE 'Asia/Tokyo' AS at
        PATTERN (A) DEFINE A AS hour(ts) = 1)"""
    found = ensue.sql(text, tables={"events": events()})
    there = [t.astimezone(ZoneInfo("Europe/Zurich")) for t in TURNS]
    rows = found.to_pylist()
    assert [r["day"].date() for r in rows] == [t.date() for t in there if t.hour == 1]
    assert {(r["hour"], r["latest"]) for r in rows} == {(1, 1)}
    zones = [found.schema.field(name).type.tz for name in ("day", "tokyo", "at")]
    assert zones == ["Europe/Zurich", None, "Asia/Tokyo"]


def test_live_and_a_saved_state_read_the_same_clocks():
    query = """SEQ(E a, E b) WHERE hour(a.ts) = 2 and hour(b.ts) = 2 WITHIN 1 day
        RETURN a.n AS a, b.n AS b"""
    schema = events().schema
    first = ensue.live(query, schema=schema, time="ts")
    found = first.feed(events().slice(0, 6)).to_pylist()
    again = ensue.live(query, schema=schema, time="ts").restore(first.save())
    found += again.feed(events().slice(6)).to_pylist() + again.finish().to_pylist()
    whole = ensue.match(events(), query, time="ts").to_pylist()
    assert sorted((r["a"], r["b"]) for r in found) == sorted((r["a"], r["b"]) for r in whole)
    assert whole
    other = ensue.live(query, schema=events("Asia/Tokyo").schema, time="ts")
    with pytest.raises(ensue.StateError, match="another set of columns"):
        other.restore(first.save())


@pytest.mark.parametrize(
    ("zone", "said"),
    [
        ("Europe/Zürich", "did you mean 'Europe/Zurich'"),
        ("zurich", "did you mean 'Europe/Zurich'"),
        ("europe/zurich", "did you mean 'Europe/Zurich'"),
        ("../../etc/passwd", "zones are named like"),
        ("", "zones are named like"),
        ("Nowhere", "zones are named like"),
    ],
)
def test_a_zone_that_is_none(zone, said):
    with pytest.raises(QueryError, match="is not a time zone") as error:
        ensue.match(events(), f"E a WHERE hour(a.ts AT TIME ZONE '{zone}') = 1", time="ts")
    assert said in str(error.value)


def test_a_zone_is_written_out_and_is_of_a_time():
    with pytest.raises(QueryError, match="takes the name of a time zone as a constant"):
        ensue.match(events(), "E a WHERE hour(at_time_zone(a.ts, to_string(a.n))) = 1", time="ts")
    with pytest.raises(QueryError, match="AT TIME ZONE takes a time, and this is an integer"):
        ensue.match(events(), "E a WHERE hour(a.n AT TIME ZONE 'UTC') = 1", time="ts")


def test_it_is_shown_as_it_is_written():
    query = ensue.parse("E a WHERE hour((a.ts + 1 hour) at time zone 'UTC' AT TIME ZONE 'Asia/Tokyo') = 1")
    shown = ensue.show(query)
    assert "hour((a.ts + 1 hour) AT TIME ZONE 'UTC' AT TIME ZONE 'Asia/Tokyo')" in shown
    assert ensue.parse(shown) == query


def test_every_function_of_clocks_says_so():
    reads = {name for name, record in FUNCTIONS.items() if record.clock}
    takes = {n for n, r in FUNCTIONS.items() if {ArgumentType.TIME, ArgumentType.MOMENT} & set(r.takes)}
    counting = {"epoch", "epoch_ms", "epoch_us", "unix_timestamp", "to_timestamp"}
    zones = {"at_time_zone", "from_utc_timestamp", "to_utc_timestamp"}
    assert takes - reads == counting | zones


@pytest.mark.spark
def test_on_spark_the_zone_is_that_of_the_session(spark):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Zurich")
    try:
        frame = spark.createDataFrame([(n, t) for n, t in enumerate(TURNS)], "n int, ts timestamp").selectExpr(
            "n", "ts", "cast(ts as timestamp_ntz) AS clock"
        )
        query = """E a WHERE hour(a.ts) = 2 RETURN a.n AS n, hour(a.clock) AS same,
            date_trunc('day', a.ts) AS day"""
        found = {row.n: row for row in ensue.match(frame, query, time="ts").collect()}
        meant = frame.selectExpr("n", "hour(ts) AS h", "date_trunc('day', ts) AS day").collect()
        assert set(found) == {row.n for row in meant if row.h == 2}
        assert all(row.same == 2 for row in found.values())
        assert all(found[row.n].day == row.day for row in meant if row.n in found)
        clause = """SELECT n FROM events MATCH_RECOGNIZE (ORDER BY ts MEASURES A.n AS n
            PATTERN (A) DEFINE A AS hour(ts) = 2)"""
        rows = ensue.sql(clause, tables={"events": frame}).collect()
        assert {row.n for row in rows} == set(found)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_days_have_no_zone():
    table = pa.table({"day": [date(2026, 3, 29)]})
    (row,) = ensue.match(table, "E a RETURN hour(a.day) AS h", time="day").to_pylist()
    assert row["h"] == 0


def test_a_checkpoint_of_another_zone_is_refused():
    def described(**zone):
        return json.dumps({"format": FORMAT, "queries": [{"name": None, "query": "E a"}], **zone})

    zurich = described(zone="Europe/Zurich")
    for then in (described(zone="UTC"), described(zone="Asia/Tokyo")):
        for pair in ((zurich, then), (then, zurich)):
            with pytest.raises(ensue.StateError, match="another zone of the session") as error:
                require_same_job(*pair)
            assert "spark.sql.session.timeZone" in str(error.value)


@pytest.mark.spark
@pytest.mark.parametrize("name", ["UTC", "Etc/UTC", "GMT", "Asia/Tokyo"])
def test_what_a_checkpoint_stores_names_the_zone_of_the_session(spark, name):
    from ensue.backends.spark.stream import read

    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", name)
    try:
        frame = spark.createDataFrame([], "ts timestamp, n long")
        _, source = read(frame, SourceOptions(time="ts"))
        assert source.to_dict()["zone"] == ("Asia/Tokyo" if name == "Asia/Tokyo" else "UTC")
        _, source = read(frame.select("n"), SourceOptions(time="n"))
        assert "zone" not in source.to_dict()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("first", "then"), [("Europe/Zurich", "UTC"), ("UTC", "Europe/Zurich")], ids=str)
def test_a_stream_keeps_the_zone_of_its_session(spark, tmp_path, first, then):
    import pyarrow.parquet as pq

    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", first)
    source, found = tmp_path / "events", tmp_path / "found"
    source.mkdir()

    def run():
        stream = spark.readStream.schema("ts timestamp, n long").parquet(str(source))
        matches = ensue.match(
            stream, "SEQ(E a) WHERE hour(a.ts) = 2 WITHIN 1 hour RETURN a.n AS n", time="ts",
            watermark="1 minute",
        )  # fmt: skip
        started = ensue.start(matches, str(found), checkpoint=str(tmp_path / "state"), once=True)
        started.wait()

    try:
        pq.write_table(events("UTC").select(["ts", "n"]), source / "1.parquet")
        run()
        later = [TURNS[-1] + timedelta(days=1, minutes=30) * k for k in range(1, 4)]
        pq.write_table(events("UTC", later).select(["ts", "n"]), source / "2.parquet")
        spark.conf.set("spark.sql.session.timeZone", then)
        with pytest.raises(ensue.EnsueError, match="another zone of the session"):
            run()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    zone = ZoneInfo(first)
    rows = pq.read_table(found).column("n").to_pylist()
    assert set(rows) <= {n for n, t in enumerate(TURNS) if t.astimezone(zone).hour == 2}
    assert rows
