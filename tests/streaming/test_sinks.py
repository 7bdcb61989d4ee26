"""Where the matches of a stream go, and what a checkpoint lets go on."""

import os
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
from ensue.backends.spark.sinks import ParquetBatches
from ensue.errors import EventError, StateError

pytestmark = pytest.mark.spark

PAIRS = "SEQ(A a, B b) WHERE [k] WITHIN 10 seconds"
CALM = "SEQ(A a, !B b) WHERE [k] WITHIN 10 seconds"  # decided when the window is over
EVENTS = {"time": "at", "type": "type", "order": "row"}
BEGIN = datetime(2026, 3, 14, 10, tzinfo=UTC)


def events(text: str, *, first: int = 0) -> pa.Table:
    """`A0p B3q`: an A with k = p at second 0, then a B with k = q three seconds later."""
    words = text.split()
    return pa.table(
        {
            "at": pa.array([BEGIN + timedelta(seconds=int(w[1:-1])) for w in words], pa.timestamp("us", "UTC")),
            "type": [w[0] for w in words],
            "k": [w[-1] for w in words],
            "row": pa.array(range(first, first + len(words)), pa.int64()),
        }
    )


@pytest.fixture
def session(spark: Any) -> Any:
    """Two key groups are enough here."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", before)


class Source:
    """A folder of events, a file a micro-batch."""

    def __init__(self, session: Any, folder: Path) -> None:
        self.session, self.folder, self.tables = session, folder, []
        folder.mkdir()

    def add(self, *texts: str) -> "Source":
        for text in texts:
            self.put(events(text, first=sum(t.num_rows for t in self.tables)))
        return self

    def put(self, table: pa.Table) -> "Source":
        self.tables.append(table)
        path = self.folder / f"{len(self.tables):03}.parquet"
        pq.write_table(table, path)
        stamp = 1_700_000_000 + len(self.tables)
        os.utime(path, (stamp, stamp))
        return self

    def stream(self) -> Any:
        schema = self.session.read.parquet(str(self.folder)).schema
        reader = self.session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder))

    def match(self, query: str = PAIRS, **options: Any) -> Any:
        options = {"watermark": "2 seconds", **EVENTS, **options}
        return ensue.match(self.stream(), query, **options)

    def batch(self, query: str = PAIRS, **options: Any) -> pa.Table:
        return ensue.match(pa.concat_tables(self.tables), query, **(EVENTS | options))


@pytest.fixture
def source(session: Any, tmp_path: Path) -> Source:
    return Source(session, tmp_path / "events")


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Any]:
    """Runs a stream over what there is, from its checkpoint on."""

    def run(matches: Any, output: Any = None, **options: Any) -> Any:
        place = {"checkpoint": tmp_path / "checkpoint"} | options
        query = ensue.start(matches, output or tmp_path / "table", **place, once=True)
        assert query.wait(240), "the stream hangs"
        return query

    return run


def ids(matches: Any) -> Counter:
    """How often each match is there."""
    if isinstance(matches, Path):
        matches = pq.read_table(matches)
    elif not isinstance(matches, pa.Table):
        matches = matches.toArrow()
    return Counter(matches["match_id"].to_pylist())


def members(matches: Any) -> list[tuple[Any, ...]]:
    """The rows of the events of each match."""
    if isinstance(matches, Path):
        matches = pq.read_table(matches)
    rows = matches.to_pylist() if isinstance(matches, pa.Table) else matches.toArrow().to_pylist()
    found = [tuple(v["row"] for v in r.values() if isinstance(v, dict)) for r in rows]
    return sorted(found)


# -------------------------------------------------------------------------- a Parquet table

TEXT = "A0p A1q B2p A3q B4q B5p A6p B7q B8p"


@pytest.fixture(scope="module")
def found() -> pa.Table:
    matches = ensue.match(events(TEXT), PAIRS, **EVENTS)
    assert matches.num_rows > 5
    return matches


def sink_of(kind: str, path: Path) -> Any:
    return ensue.parquet_table(path) if kind == "parquet" else ensue.delta_table(path)


def table_of(kind: str, path: Path) -> pa.Table:
    if kind == "parquet":
        return pq.read_table(path)
    deltalake = pytest.importorskip("deltalake")
    return deltalake.DeltaTable(str(path)).to_pyarrow_table()


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_batch_again_adds_nothing(session, found, tmp_path, kind):
    path = tmp_path / "table"
    half = found.num_rows // 2
    first = session.createDataFrame(found.slice(0, half))
    second = session.createDataFrame(found.slice(half))
    table = sink_of(kind, path)
    table(first, 0)
    table(first, 0)
    assert ids(table_of(kind, path)) == ids(found.slice(0, half))
    table(second, 1)
    again = sink_of(kind, path)  # after a restart, with another cut
    again(session.createDataFrame(found), 1)
    again(second, 2)
    assert ids(table_of(kind, path)) == ids(found)
    written = table_of(kind, path).cast(found.schema)  # Spark's files count in nanoseconds
    assert written.sort_by("match_id").equals(found.sort_by("match_id"))


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_batch_without_matches_is_fine(session, found, tmp_path, kind):
    table = sink_of(kind, tmp_path / "table")
    for number, part in enumerate((found.slice(0, 0), found.slice(0, 2), found.slice(0, 0))):
        table(session.createDataFrame(part), number)
    assert ids(table_of(kind, tmp_path / "table")) == ids(found.slice(0, 2))


def test_of_a_batch_that_was_written_in_part_the_rest_is_added(session, found, tmp_path):
    path = tmp_path / "table"
    session.createDataFrame(found.slice(0, 3)).write.parquet(str(path))
    session.createDataFrame(found.slice(5, 1)).write.mode("append").parquet(str(path))
    # of a writer that was killed when its tasks were done, and of one killed in a task
    done = path / "_temporary" / "0" / "task_202603141000001234567890123456789_0007_m_000000"
    begun = path / "_temporary" / "0" / "_temporary" / "attempt_202603141000_0007_m_000001_1"
    for folder in (done, begun):
        folder.mkdir(parents=True)
    pq.write_table(found, done / "part-00000-1f2e3d4c-c000.snappy.parquet")
    (begun / "part-00001-1f2e3d4c-c000.snappy.parquet").write_bytes(b"PAR1, but not all of it")
    ensue.parquet_table(path)(session.createDataFrame(found), 4)
    assert ids(path) == ids(found)


def test_a_match_whose_end_is_unknown_is_not_doubled(session, tmp_path):
    table = events(TEXT).append_column("x", pa.array([None, 1, None, 3, None, 5, 6, 7, None]))
    query = PAIRS + " RETURN b.x AS end"
    matches = session.createDataFrame(ensue.match(table, query, **EVENTS))
    assert matches.filter("end IS NULL").count() > 1
    for _ in range(2):
        ensue.parquet_table(tmp_path / "table")(matches, 0)
    assert ids(tmp_path / "table") == ids(matches)


@pytest.mark.parametrize("zone", ["UTC", None], ids=["instants", "without a zone"])
def test_in_the_hour_that_comes_twice_nothing_is_doubled(session, tmp_path, monkeypatch, zone):
    before = session.conf.get("spark.sql.session.timeZone")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        night = datetime(2026, 10, 25, 0, 50)
        stamps = pa.array([night, night + timedelta(minutes=40)], pa.timestamp("us", zone))
        matches = session.createDataFrame(pa.table({"match_id": ["one", "two"], "end": stamps}))
        for _ in range(2):
            ensue.parquet_table(tmp_path / "table")(matches, 0)
        assert ids(tmp_path / "table") == {"one": 1, "two": 1}
    finally:
        session.conf.set("spark.sql.session.timeZone", before)
        monkeypatch.undo()
        time.tzset()


def test_a_delta_table_holds_instants_whatever_the_zone_of_the_session(session, found, tmp_path):
    before = session.conf.get("spark.sql.session.timeZone")
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for _ in range(2):
            ensue.delta_table(tmp_path / "table")(session.createDataFrame(found), 0)
    finally:
        session.conf.set("spark.sql.session.timeZone", before)
    written = table_of("delta", tmp_path / "table").sort_by("match_id")
    assert written["end"].to_pylist() == found.sort_by("match_id")["end"].to_pylist()


def test_a_folder_of_batches_holds_the_last_writing_of_each(session, found, tmp_path):
    batches = ParquetBatches(str(tmp_path / "late"))
    batches(session.createDataFrame(found.slice(0, 4)), 0)
    batches(session.createDataFrame(found.slice(4)), 1)
    batches(session.createDataFrame(found.slice(0, 3)), 0)
    back = session.read.parquet(str(tmp_path / "late")).toArrow()
    assert Counter(back["batch"].to_pylist()) == {0: 3, 1: found.num_rows - 4}


# --------------------------------------------------------------------------- whole streams


def test_a_stream_goes_on_from_its_checkpoint(source, run, tmp_path):
    source.add("A0p A1q", "B2p A3q")
    run(source.match())
    source.add("B4q B5p A6p")
    run(source.match(), flush=True)
    assert ids(tmp_path / "table") == ids(source.batch())


def test_a_stream_without_events_is_flushed(source, run, tmp_path):
    source.add("A0p")
    matches = source.match()
    (source.folder / "001.parquet").unlink()
    run(matches, flush=True)
    assert not (tmp_path / "table").exists()


@pytest.mark.slow
def test_a_stream_that_runs_again_from_the_start_doubles_nothing(source, run, tmp_path):
    source.add("A0p A1q", "B2p A3q", "B4q B5p A6p")
    for checkpoint in ("one", "another"):
        run(source.match(), flush=True, checkpoint=tmp_path / checkpoint)
        assert ids(tmp_path / "table") == ids(source.batch())


@pytest.mark.slow
def test_a_flush_is_made_good_when_the_stream_was_killed_before_it(source, run, tmp_path):
    source.add("A0p A1q", "B2p A3q")
    run(source.match(CALM))
    run(source.match(CALM), flush=True)  # nothing new to process
    run(source.match(CALM), flush=True)
    assert ids(tmp_path / "table") == ids(source.batch(CALM))
    assert members(tmp_path / "table") == [(1,), (3,)]


@pytest.mark.slow
def test_what_remains_changes_nothing(source, session, run, tmp_path):
    source.add("A0p A1q", "B2p A3q")
    run(source.match(CALM))
    checkpoint = tmp_path / "checkpoint"
    for _ in range(2):
        assert members(ensue.remaining(session, checkpoint)) == [(1,), (3,)]
    source.add("B4q B5q A6p A60r")
    run(source.match(CALM))
    assert members(tmp_path / "table") == [(6,)]
    assert members(ensue.remaining(session, checkpoint)) == [(7,)]


@pytest.mark.slow
def test_a_key_without_further_events_is_decided_by_the_time_of_others(source, run, tmp_path):
    source.add("A0p A1q B2q", "A30q", "A31q")
    run(source.match(CALM))
    assert members(tmp_path / "table") == [(0,)]


@pytest.mark.slow
def test_a_function_gets_the_matches_of_each_batch(source, run):
    source.add("A0p A1q B2p", "A20r B21r")
    batches: dict[int, list] = {}

    def collect(matches: Any, batch: int) -> None:
        batches[batch] = matches.select("match_id").collect()

    query = run(source.match(), collect)
    rows = [row.match_id for found in batches.values() for row in found]
    assert len(rows) == 1  # the other waits for the watermark
    assert sorted(batches) == list(range(len(batches)))
    progress = query.progress()
    assert sum(p.events for p in progress) == 5
    assert sum(p.matches for p in progress) == 1
    assert progress[-1].waiting == 2


@pytest.mark.slow
def test_a_function_may_look_at_a_part_of_the_matches_or_at_none(source, run):
    source.add("A0p A1q B2p B2q", "A20r B21r", "A40r", "A60r")
    seen = []

    def careless(matches: Any, batch: int) -> None:
        if batch % 2:
            seen.append(matches.head())

    query = run(source.match(), careless)
    assert seen
    assert sum(p.matches for p in query.progress()) == source.batch().num_rows == 3


@pytest.mark.slow
def test_a_stream_runs_every_so_often_until_it_is_stopped(source, tmp_path):
    source.add("A0p B1p", "A20r")
    query = ensue.start(
        source.match(),
        tmp_path / "table",
        checkpoint=tmp_path / "checkpoint",
        every="200 milliseconds",
        name="every_so_often",
    )
    try:
        limit = time.monotonic() + 120
        while not list((tmp_path / "table").glob("*.parquet")):
            assert query.is_active
            assert time.monotonic() < limit
            time.sleep(0.1)
        assert query.name == "every_so_often"
        assert query.is_active
    finally:
        query.stop()
    assert members(tmp_path / "table") == [(0, 1)]


def test_a_running_stream_is_finished_or_stopped(source, tmp_path):
    source.add("A0p B1p", "A20r")
    place = {"checkpoint": tmp_path / "checkpoint", "name": "finished"}
    with ensue.start(source.match(), tmp_path / "table", **place) as running:
        assert running.is_active
        assert not running.wait(0)
        assert repr(running) == "<ensue.RunningStream finished: running>"
        running.finish()
        assert not running.is_active
        assert running.wait(0)
        assert running.exception is None
    assert (running.name, running.id) == (running.query.name, running.query.id)
    assert running.progress()[-1].watermark is not None
    assert members(tmp_path / "table") == [(0, 1)]
    source.add("B21r")
    with ensue.start(source.match(), tmp_path / "table", **place) as running:
        running.finish()
    assert members(tmp_path / "table") == [(0, 1)], "it waits for time"
    running.finish(flush=True)
    assert members(tmp_path / "table") == [(0, 1), (2, 3)]
    with ensue.start(source.match(), tmp_path / "table", **place) as running:
        assert running.is_active
    assert not running.is_active


@pytest.mark.slow
def test_timed_out_partial_matches_come_when_their_time_is_over(source, run, tmp_path):
    source.add("A0p A1q B2q", "A30q", "A31q")
    run(source.match(options=ensue.OutputOptions(emit_timeouts=True)))
    rows = pq.read_table(tmp_path / "table").to_pylist()
    assert sorted((r["timed_out"], r["a"]["row"]) for r in rows) == [(False, 1), (True, 0)]
    run(source.match(options=ensue.OutputOptions(emit_timeouts=True)), flush=True)
    assert ids(tmp_path / "table") == ids(source.batch(options=ensue.OutputOptions(emit_timeouts=True)))


# ----------------------------------------------------------------------------- late events


@pytest.mark.slow
def test_late_events_are_counted_and_delivered(source, run, session, tmp_path):
    source.add("A0p A20q", "B1p B21q", "A2p B40p")
    matches = source.match(options=ensue.StreamOptions(late_events="deliver"))
    query = run(matches, late=tmp_path / "late", flush=True)
    late = session.read.parquet(str(tmp_path / "late")).toArrow()
    assert sorted(late["row"].to_pylist()) == [2, 4]
    assert set(late.column_names) == {"at", "type", "k", "row", "batch"}
    assert sum(p.late for p in query.progress()) == 2
    written = pq.read_table(tmp_path / "table")
    assert "late_event" not in written.column_names
    assert members(written) == [(1, 3)]


# ----------------------------------------------------------------------- a checkpoint's owner


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no event is of type")
def test_a_checkpoint_is_refused_to_another_stream(source, run, tmp_path):
    source.add("A0p A1q B2p")
    run(source.match())
    source.add("A3p B4p")

    with pytest.raises(StateError) as raised:
        run(source.match("SEQ(A a, B b) WHERE [k] WITHIN 11 seconds"))
    said = str(raised.value)
    assert "the checkpoint was written with another query" in said
    assert "WITHIN 10 seconds" in said
    assert "WITHIN 11 seconds" in said
    run(source.match(), flush=True)  # no harm was done
    assert ids(tmp_path / "table") == ids(source.batch())


def test_a_folder_that_is_no_checkpoint(session, tmp_path):
    with pytest.raises(StateError, match="has no state of an Ensue query"):
        ensue.remaining(session, tmp_path)


# ---------------------------------------------------------------------- time and watermarks


@pytest.mark.slow
def test_the_watermark_of_the_dataframe_itself(source, run, tmp_path):
    source.add("A0p A1q B2p", "A20q", "A21q")
    own = source.stream().withWatermark("at", "2 seconds")
    run(ensue.match(own, PAIRS, **EVENTS))
    assert members(tmp_path / "table") == [(0, 2)]
    with pytest.raises(EventError, match="has a watermark"):
        ensue.match(own, PAIRS, **EVENTS, watermark="2 seconds")
    elsewhere = source.stream().selectExpr("*", "at AS other").withWatermark("other", "1 second")
    with pytest.raises(EventError, match="is on column 'other'"):
        ensue.match(elsewhere, PAIRS, **EVENTS)
    with pytest.raises(EventError, match="a stream needs a watermark"):
        ensue.match(source.stream(), PAIRS, **EVENTS)


@pytest.mark.slow
def test_numbers_as_time(source, run, tmp_path):
    for rows in ([0, 1, 2], [30, 31]):
        source.put(
            pa.table({"at": rows, "type": list("AAB")[: len(rows)], "k": ["p"] * len(rows),
                      "row": rows})
        )  # fmt: skip
    query = "SEQ(A a, B b) WHERE [k] WITHIN 10"
    with pytest.raises(EventError, match="the watermark must be a number"):
        source.match(query)
    run(source.match(query, watermark=5), flush=True)
    assert ids(tmp_path / "table") == ids(source.batch(query))
    assert members(tmp_path / "table") == [(0, 2), (1, 2)]


@pytest.mark.slow
def test_a_stream_for_each_type(session, run, tmp_path):
    parts = {"A": "A0p A1q A30p", "B": "B2p B3q B31q"}
    tables = {name: events(text, first=10 * ord(name)) for name, text in parts.items()}
    frames = {n: Source(session, tmp_path / n).put(t).stream() for n, t in tables.items()}
    arguments = {"time": "at", "order": "row"}
    run(ensue.match(frames, PAIRS, **arguments, watermark="2 seconds"), flush=True)
    assert ids(tmp_path / "table") == ids(ensue.match(tables, PAIRS, **arguments))


# --------------------------------------------------------------------------------- mistakes


def test_mistakes_of_start(session, source, tmp_path):
    source.add("A0p")
    place = {"checkpoint": tmp_path / "checkpoint"}
    batch = ensue.match(session.createDataFrame(events("A0p B1p")), PAIRS, **EVENTS)
    with pytest.raises(EventError, match="not a stream"):
        ensue.start(batch, tmp_path / "table", **place)
    matches = source.match()
    with pytest.raises(EventError, match="flush=True needs once=True"):
        ensue.start(matches, tmp_path / "table", flush=True, **place)
    with pytest.raises(EventError, match="cannot be combined"):
        ensue.start(matches, tmp_path / "table", once=True, every="1 second", **place)
    with pytest.raises(EventError, match="late_events="):
        ensue.start(matches, tmp_path / "table", late=tmp_path / "late", **place)
    with pytest.raises(EventError, match="late_events must be 'count' or 'deliver'"):
        source.match(options=ensue.StreamOptions(late_events="keep"))
    with pytest.raises(EventError, match="key_groups"):
        source.match(options=ensue.StreamOptions(key_groups=0))
