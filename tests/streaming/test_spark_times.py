"""Times that are hard for Spark's watermark, on streaming DataFrames; see `test_times.py`."""

import logging
import os
import time as clock
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row

import ensue
from ensue.backends.spark.frames import WholeStreamWarning
from ensue.backends.spark.stream_progress import BatchProgress, StreamWarnings
from ensue.errors import EventError, RunnerError

pytestmark = pytest.mark.spark

PAIRS = "SEQ(A a, B b) WHERE [k] WITHIN 10"
SECONDS = PAIRS + " seconds"
EVENTS = {"time": "at", "type": "type", "order": "row"}
INSTANTS, WHOLE, REAL = pa.timestamp("us", "UTC"), pa.int64(), pa.float64()
FAR = datetime(9999, 12, 31, tzinfo=UTC)
MOST = (1 << 63) - 1
Rows = list[tuple[Any, str, Any]]


def at(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


class Streams:
    """Streams over micro-batches of (time, type, key)."""

    def __init__(self, session: Any, folder: Path) -> None:
        self.session, self.folder, self.rows = session, folder, 0

    def frame(self, type: pa.DataType, *batches: Rows, name: str = "events") -> Any:
        """A stream of files, one a micro-batch; more of them may be added later."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        for batch in batches:
            numbers = range(self.rows, self.rows + len(batch))
            self.rows += len(batch)
            columns = {
                "at": pa.array([row[0] for row in batch], type),
                "type": pa.array([row[1] for row in batch], pa.string()),
                "k": pa.array([row[2] for row in batch], pa.string()),
                "row": pa.array(numbers, pa.int64()),
            }
            path = folder / f"{numbers.start:04}.parquet"
            pq.write_table(pa.table(columns), path)
            os.utime(path, (self.rows, self.rows))
        schema = self.session.read.parquet(str(folder)).schema
        reader = self.session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(folder))

    def begin_anew(self) -> None:
        """The next stream has a checkpoint of its own."""
        self.folder = self.folder / "next"
        self.folder.mkdir()

    def run(self, events: Any, query: Any = PAIRS, *, flush: bool = False, **options: Any) -> Any:
        """What a stream delivers, as rows of events, and its progress."""
        found: list[tuple[int, ...]] = []

        def take(matches: Any, _: int) -> None:
            for row in matches.collect():
                members = (v for v in row.asDict().values() if isinstance(v, Row))
                found.append(tuple(member.row for member in members if "row" in member))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WholeStreamWarning)
            matches = ensue.match(events, query, **(EVENTS | options))
        output = dict.fromkeys(matches, take) if isinstance(matches, Mapping) else take
        started = ensue.start(matches, output, checkpoint=self.folder / "checkpoint", once=True, flush=flush)
        assert started.wait(240), "the stream hangs"
        return sorted(found), started.progress()


@pytest.fixture
def streams(spark: Any, tmp_path: Path) -> Any:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield Streams(spark, tmp_path)
    spark.conf.set("spark.sql.shuffle.partitions", before)


# ------------------------------------------------------------------------------- time passes


@pytest.mark.slow
def test_an_event_of_no_type_that_matters_lets_numbers_pass(streams):
    frame = streams.frame(WHOLE, [(50, "A", "p"), (55, "B", "p")], [(2_000, "X", None)])
    found, progress = streams.run(frame, watermark=5)
    assert found == [(0, 1)]
    assert progress[-1].watermark == 1_995


@pytest.mark.slow
@pytest.mark.parametrize(
    ("type", "times", "watermark"),
    [
        (WHOLE, (-50, -45, -20), 5),
        (WHOLE, (-MOST, -MOST + 5, -MOST + 50), 5),
        (WHOLE, (MOST - 50, MOST - 45, MOST), 5),
        (WHOLE, (1_700_000_000 * 10**9, 1_700_000_000 * 10**9 + 5, 1_700_000_001 * 10**9), 7),
        (REAL, (-50.5, -45.25, -20.0), 5),
        (INSTANTS, (at(-50), at(-45), at(-20)), "5 seconds"),
        (pa.timestamp("us"), (at(-5e9), at(-5e9 + 5), at(-5e9 + 50)), "5 seconds"),
        (pa.date32(), (date(1960, 1, 1), date(1960, 1, 3), date(1960, 3, 1)), "1 day"),
        (pa.date32(), (date(2060, 1, 1), date(2060, 1, 3), date(2060, 3, 1)), "1 day"),
    ],
    ids=[
        "below 0", "least", "greatest", "nanoseconds", "floats below 0",
        "before 1970", "without a zone", "days before 1970", "days after 2038",
    ],
)  # fmt: skip
def test_time_passes_wherever_it_is(streams, type, times, watermark):
    unit = " days" if pa.types.is_date(type) else " seconds" if pa.types.is_timestamp(type) else ""
    if type == pa.timestamp("us"):
        times = [t.replace(tzinfo=None) for t in times]
    first, second, far = times
    frame = streams.frame(type, [(first, "A", "p")], [(second, "B", "p")], [(far, "X", "q")])
    options = {"watermark": watermark, "options": ensue.StreamOptions(max_ahead=None)}
    found, _ = streams.run(frame, PAIRS + unit, **options)
    assert found == [(0, 1)]
    streams.frame(type, [(first, "A", "p"), (second, "B", "q")])  # both are late
    found, progress = streams.run(frame, PAIRS + unit, **options)
    assert (found, sum(p.late for p in progress)) == ([], 2)


@pytest.mark.slow
def test_infinity_is_no_time_for_a_stream(streams):
    inf = float("inf")
    frame = streams.frame(REAL, [(1.0, "A", "p"), (-inf, "A", "p"), (inf, "X", "p")],
                          [(inf, "B", "p"), (float("nan"), "B", "p"), (5.0, "B", "p")],
                          [(90.0, "A", "q")])  # fmt: skip
    found, progress = streams.run(frame, watermark=5, options=ensue.StreamOptions(bad_events="drop"))
    assert found == [(0, 5)]
    assert sum(p.dropped for p in progress) == 3
    streams.begin_anew()
    with pytest.raises(EventError, match="it is missing, not a number, infinite, or ends"):
        streams.run(frame, watermark=5)


@pytest.mark.slow
def test_an_event_without_time_of_no_type_that_matters_does_not_stop_a_stream(streams):
    frame = streams.frame(WHOLE, [(1, "A", "p"), (None, "X", "p")], [(5, "B", "p")], [(90, "X", "")])
    found, progress = streams.run(frame, watermark=5)
    assert (found, sum(p.dropped for p in progress)) == ([(0, 2)], 0)
    queries = {"one": PAIRS, "two": "SEQ(A a, !C c, B b) WHERE [k] WITHIN 9"}
    streams.begin_anew()
    assert streams.run(frame, queries, watermark=5)[0] == [(0, 2), (0, 2)]
    streams.begin_anew()
    hierarchy = "EVENT Both AS SEQ(A a, B b) WHERE [k] WITHIN 9 RETURN a.row AS row; "
    hierarchy += "SEQ(Both x) WHERE [row] WITHIN 9"
    assert len(streams.run(frame, hierarchy, watermark=5)[0]) == 1


# ------------------------------------------------------------------------ ahead of the clock


def wait_for(said: Callable[[], bool]) -> None:
    """Spark tells its listeners a little later."""
    until = clock.monotonic() + 20
    while not said() and clock.monotonic() < until:
        clock.sleep(0.05)


def test_an_event_far_ahead_of_the_clock_makes_no_other_late(streams, caplog):
    poison = [(FAR, "X", None), (at(104), "B", "p"), (FAR, "B", "p")]
    frame = streams.frame(INSTANTS, [(at(100), "A", "p")], poison, [(at(200), "X", "p")])
    with caplog.at_level(logging.WARNING, "ensue.stream"):
        found, progress = streams.run(frame, SECONDS, watermark="10 seconds")
        wait_for(lambda: bool(caplog.records))
    assert found == [(0, 2)]
    assert [p.ahead for p in progress if p.events] == [0, 2]
    assert sum(p.late + p.dropped for p in progress) == 0
    (said,) = [record.message for record in caplog.records if record.name == "ensue.stream"]
    assert "2 events of micro-batch 1 dropped" in said
    assert "max_ahead=" in said


@pytest.mark.slow
def test_without_the_bound_most_events_are_late_and_this_is_said(streams, caplog):
    batches = [[(at(100), "A", "p"), (FAR, "X", None)], [(at(104), "B", "p")], [(at(105), "B", "p")]]
    frame = streams.frame(INSTANTS, *batches)
    with caplog.at_level(logging.WARNING, "ensue.stream"):
        options = {"watermark": "10 seconds", "options": ensue.StreamOptions(max_ahead=None)}
        found, progress = streams.run(frame, SECONDS, **options)
        wait_for(lambda: bool(caplog.records))
    assert (found, sum(p.late for p in progress)) == ([], 2)
    (said,) = [record.message for record in caplog.records if record.name == "ensue.stream"]
    assert "most of micro-batch 1 is late: 1 of 1 event end" in said
    assert "9999-12-30" in said


@pytest.mark.slow
def test_the_bound_is_as_it_is_asked_for(streams):
    now = datetime.now(UTC)
    near = [(now + timedelta(minutes=m), "A", "p") for m in (5, 50, 70)]
    frame = streams.frame(INSTANTS, near)
    for bound, ahead in (("1 hour", 1), (timedelta(minutes=10), 2), ("usual", 0)):
        streams.begin_anew()
        options = {"watermark": "3 hours", "options": ensue.StreamOptions(max_ahead=bound, late_events="deliver")}
        _, progress = streams.run(frame, SECONDS, **options)
        assert (sum(p.ahead for p in progress), progress[0].events) == (ahead, 3 - ahead)


@pytest.mark.slow
def test_a_micro_batch_that_is_repeated_leaves_out_the_same_events(streams):
    """Spark notes when a micro-batch began; the clock goes on, the decision stays."""
    begun = datetime.now(UTC)
    far = begun + timedelta(seconds=100)
    frame = streams.frame(INSTANTS, [(begun, "A", "p"), (far, "B", "p")])
    bound = timedelta(seconds=60)
    options = EVENTS | {"watermark": "1 second", "options": ensue.StreamOptions(max_ahead=bound)}
    matches = ensue.match(frame, PAIRS + "00 seconds", **options)
    place = {"checkpoint": streams.folder / "checkpoint", "once": True}

    def fail(_: Any, __: int) -> None:
        raise RuntimeError("the machine is gone")

    with pytest.raises(RunnerError, match="the machine is gone"):
        ensue.start(matches, fail, **place).wait(240)
    while datetime.now(UTC) + bound <= far:  # now the clock would let it pass
        clock.sleep(0.2)
    found, progress = streams.run(frame, PAIRS + "00 seconds", flush=True, **options)
    assert (found, progress[0].batch, progress[0].ahead) == ([], 0, 1)


@pytest.mark.slow
def test_the_bound_holds_for_several_queries_hierarchies_and_streams_by_type(streams):
    rows = [(at(100), "A", "p"), (FAR, "A", None), (at(104), "B", "p"), (FAR, "B", "p")]
    frame = streams.frame(INSTANTS, rows, [(at(200), "X", "p")])
    options = {"watermark": "10 seconds"}
    queries = {"one": SECONDS, "two": "SEQ(A a, B b) WITHIN 9 seconds"}
    found, progress = streams.run(frame, queries, **options)
    assert found == [(0, 2), (0, 2)]
    assert sum(p.ahead for p in progress) == 2  # though each query has key groups of its own
    streams.begin_anew()
    hierarchy = "EVENT Both AS SEQ(A a, B b) WHERE [k] WITHIN 9 seconds RETURN a.row AS row; "
    hierarchy += "SEQ(Both x) WHERE [row] WITHIN 9 seconds"
    found, progress = streams.run(frame, hierarchy, **options)
    assert (len(found), sum(p.ahead for p in progress)) == (1, 2)
    streams.begin_anew()
    frames = {
        "A": streams.frame(INSTANTS, [(at(100), "", "p"), (FAR, "", "p")], name="a"),
        "B": streams.frame(INSTANTS, [(at(104), "", "p")], [(at(200), "", "q")], name="b"),
    }
    found, progress = streams.run(frames, SECONDS, **options, type=None)
    assert (len(found), sum(p.ahead for p in progress)) == (1, 1)


def test_where_the_bound_cannot_be_kept(streams):
    table = pa.table({"at": [1], "type": ["A"], "k": ["p"], "row": [0]})
    with pytest.raises(EventError, match="max_ahead='1 hour' is only for streams"):
        ensue.match(table, PAIRS, **EVENTS, options=ensue.StreamOptions(max_ahead="1 hour"))
    with pytest.raises(EventError, match="max_ahead=None is only for streams"):
        ensue.match(
            streams.session.createDataFrame(table), PAIRS, **EVENTS, options=ensue.StreamOptions(max_ahead=None)
        )
    numbers = streams.frame(WHOLE, [(1, "A", "p")], name="numbers")
    with pytest.raises(EventError, match="the time column holds numbers"):
        ensue.match(numbers, PAIRS, **EVENTS, watermark=1, options=ensue.StreamOptions(max_ahead="1 hour"))
    instants = streams.frame(INSTANTS, [(at(1), "A", "p")], name="instants")
    own = instants.withWatermark("at", "1 second")
    with pytest.raises(EventError, match="own withWatermark"):
        ensue.match(own, SECONDS, **EVENTS, options=ensue.StreamOptions(max_ahead="1 hour"))
    for bad in (3, "soon", timedelta(days=-1)):
        with pytest.raises(EventError, match="not a length of time"):
            ensue.match(instants, SECONDS, **EVENTS, watermark="1 second", options=ensue.StreamOptions(max_ahead=bad))


def test_a_concern_is_said_once():
    quiet = dict.fromkeys(BatchProgress.__slots__, 0)
    concerns = StreamWarnings()
    assert concerns.take_new(BatchProgress(**quiet | {"events": 4, "late": 2})) == []
    assert len(concerns.take_new(BatchProgress(**quiet | {"events": 4, "late": 3, "ahead": 1}))) == 2
    assert concerns.take_new(BatchProgress(**quiet | {"events": 4, "late": 4, "ahead": 1})) == []
    assert len(concerns.take_new(BatchProgress(**quiet | {"dropped": 1}))) == 1


# ------------------------------------------------------------------------------ idle sources


@pytest.mark.slow
@pytest.mark.parametrize(
    ("own", "policy", "expected"),
    [(False, "min", [(0, 1)]), (True, "min", []), (True, "max", [(0, 1)])],
    ids=["one watermark", "the slowest of several", "the fastest of several"],
)
def test_a_source_without_events(streams, own, policy, expected):
    frames = {
        "A": streams.frame(INSTANTS, [(at(100), "", "p")], name="a"),
        "B": streams.frame(INSTANTS, [(at(104), "", "p")], [(at(900), "", "q")], name="b"),
        "C": streams.frame(INSTANTS, [], name="c"),
    }
    options: dict[str, Any] = {"type": None}
    if own:
        frames = {name: frame.withWatermark("at", "10 seconds") for name, frame in frames.items()}
    else:
        options["watermark"] = "10 seconds"
    name = "spark.sql.streaming.multipleWatermarkPolicy"
    streams.session.conf.set(name, policy)
    try:
        found, _ = streams.run(frames, "SEQ(A a, !C c, B b) WHERE [k] WITHIN 9 seconds", **options)
    finally:
        streams.session.conf.unset(name)
    assert found == expected
