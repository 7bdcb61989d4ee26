"""A history, then the stream, on Spark: the matches of one batch run, each once."""

import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

import ensue
from ensue.backends.spark import backfill_events as past_events
from ensue.errors import EventError, RunnerError, StateError
from support import shelved
from support.shelved import Shelved

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ensue.backends.spark.frames.WholeStreamWarning")]

cloudpickle.register_pickle_by_value(shelved)  # workers do not know the tests
COUNT, KNOWN, AGAIN = 120, 80, 10
EVENTS = {"time": "ts", "type": "type", "order": "row"}
FALL = "SEQ(A a, B+ b[], !C c) WHERE skip_till_next_match(a, b[]) { [k] and b[i].x > a.x } WITHIN 8"
HIERARCHY = """
    EVENT Pair AS SEQ(A a, B b)
    WHERE skip_till_next_match(a, b) { [k] and b.x > a.x } WITHIN 12
    RETURN a.side AS side, a.row AS first, b.row AS last;
    SEQ(Pair p, !C c, Pair q)
    WHERE skip_till_next_match(p, q) { [side] and c.x > 7 and q.first > p.last } WITHIN 40
    RETURN p.first AS first, q.last AS last"""
SEVERAL = {"falls": FALL, "sides": "SEQ(A a, C c) WHERE skip_till_next_match(a, c) { [side] and c.x < a.x } WITHIN 15"}


def events(*, stamps: bool = False, lasting: bool = False) -> pa.Table:
    """Events of five keys, with ties in time, but none where the history ends."""
    random = np.random.default_rng(3)
    steps = random.integers(0, 3, COUNT)
    steps[KNOWN] = 1
    times = np.cumsum(steps)
    columns = {
        "ts": times,
        "type": random.choice(list("AABBC"), COUNT),
        "k": random.integers(0, 5, COUNT),
        "x": random.integers(0, 10, COUNT),
        "side": random.choice(["left", "right"], COUNT),
        "row": np.arange(COUNT),
    }
    if lasting:
        columns["from"] = times - random.integers(0, 3, COUNT)
    if stamps:
        begin = np.datetime64("2026-01-05T14:30:00", "us")
        columns["ts"] = pa.array(begin + times * np.timedelta64(1_000_000, "us"), pa.timestamp("us", "UTC"))
    return pa.table(columns)


class Case:
    """A stream that begins with a history, and what it leaves in a folder."""

    def __init__(self, spark: Any, folder: Path, table: pa.Table, query: Any, **options: Any):
        self.spark, self.folder, self.table, self.query = spark, folder, table, query
        self.options = EVENTS | options
        (folder / "events").mkdir(parents=True)
        self.add(0, KNOWN - AGAIN, KNOWN + 15)

    @property
    def history(self) -> Any:
        return self.table.slice(0, KNOWN)

    def add(self, number: int, begin: int, end: int) -> None:
        path = self.folder / "events" / f"{number}.parquet"
        pq.write_table(self.table.slice(begin, end - begin), path)
        os.utime(path, (1_600_000_000 + number,) * 2)

    def matches(self, **options: Any) -> Any:
        schema = self.spark.createDataFrame(self.table.slice(0, 1)).schema
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        stream = reader.parquet(str(self.folder / "events"))
        watermark = "2 seconds" if pa.types.is_timestamp(self.table["ts"].type) else 2
        call_options = [ensue.StreamOptions(key_groups=2), *self.options.get("options", ())]
        given = self.options | {"watermark": watermark, "options": call_options} | options
        return ensue.match(stream, self.query, **given)

    def start(self, history: Any = None, output: Any = None, **options: Any) -> Any:
        given = {"once": True, "flush": True, "checkpoint": self.folder / "checkpoint"} | options
        history = self.history if history is None else history
        output = self.folder / "table" if output is None else output
        return ensue.start(self.matches(), output, history=history, **given)

    def check(self) -> None:
        wanted = ensue.match(self.table, self.query, **self.options)
        if not isinstance(wanted, dict):
            wanted = {"": wanted}
        for name, table in wanted.items():
            found = pq.read_table(self.folder / "table" / name)
            assert table.num_rows > 3
            assert ids(found) == ids(table), name


def ids(table: pa.Table) -> Counter:
    return Counter(table["match_id"].to_pylist())


def test_a_stream_goes_on_where_its_history_ends(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(past_events, "MIN_SLICE_EVENTS", 20)  # so that there are slices
    case = Case(spark, tmp_path, events(), FALL)
    case.add(1, KNOWN + 15, COUNT)
    query = case.start(spark.createDataFrame(case.history))
    case.check()
    assert sum(batch.before_cut for batch in query.progress()) == AGAIN
    assert sum(batch.late for batch in query.progress()) == 0


@pytest.mark.slow
@pytest.mark.parametrize("query", [HIERARCHY, SEVERAL], ids=["hierarchy", "several"])
def test_every_stage_and_query_begins_with_the_history(spark, tmp_path, query, monkeypatch):
    monkeypatch.setattr(past_events, "MIN_SLICE_EVENTS", 20)
    options = {"options": [ensue.OutputOptions(levels="all")]} if query is HIERARCHY else {}
    case = Case(spark, tmp_path, events(), query, **options)
    case.start(flush=False)
    case.add(1, KNOWN + 15, COUNT)
    case.start()
    names = ["Pair", "matches"] if query is HIERARCHY else list(SEVERAL)
    wanted = ensue.match(case.table, query, **case.options)
    for name, table in zip(names, wanted.values(), strict=True):
        assert ids(pq.read_table(tmp_path / "table" / name)) == ids(table)
        assert table.num_rows > 3


@pytest.mark.slow
def test_an_archive_is_read_slice_by_slice_up_to_where_it_is_complete(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(past_events, "MIN_SLICE_EVENTS", 20)
    case = Case(spark, tmp_path, events(stamps=True), FALL.replace("8", "8 seconds"))
    case.add(1, KNOWN + 15, COUNT)
    complete = case.table["ts"][KNOWN - 5].as_py() - timedelta(microseconds=1)
    # what lies behind that comes again with the stream
    archive = Shelved(case.table.slice(0, KNOWN + 3), "ts", "type", complete)
    query = case.start(archive)
    case.check()
    before = sum(batch.before_cut for batch in query.progress())
    assert 0 < before < AGAIN


@pytest.mark.slow
def test_events_that_last_and_an_archive_that_knows_nothing_of_its_times(spark, tmp_path):
    case = Case(spark, tmp_path, events(lasting=True), FALL, time=("from", "ts"))
    case.add(1, KNOWN + 15, COUNT)
    case.start(Shelved(case.history, ("from", "ts"), "type", told=False))
    case.check()


@pytest.mark.slow
def test_since_leaves_out_what_is_before(spark, tmp_path):
    case = Case(spark, tmp_path, events(stamps=True), FALL.replace("8", "8 seconds"))
    case.add(1, KNOWN + 15, COUNT)
    since = case.table["ts"][40].as_py()
    case.start(ensue.History(case.history, since))
    rows = [t >= since for t in case.table["ts"].to_pylist()]
    case.table = case.table.filter(pa.array(rows))
    case.check()


@pytest.mark.slow
def test_what_the_history_left_open_is_flushed_though_nothing_came(spark, tmp_path):
    case = Case(spark, tmp_path, events(), FALL)
    (case.folder / "events" / "0.parquet").unlink()
    case.start()
    case.table = case.history
    case.check()


# ------------------------------------------------------------------------------- failures


class Breaking:
    """An output that fails with one micro-batch, once, when it has all rows."""

    def __init__(self, at: int, behind: Any) -> None:
        self.at, self.behind, self.called = at, behind, []

    def __call__(self, matches: Any, batch: int) -> None:
        self.called.append(batch)
        self.behind(matches, batch)
        if batch == self.at:
            self.at = -2
            raise RuntimeError("the output is gone")


@pytest.mark.slow
@pytest.mark.parametrize("at", [-1, 0])
def test_an_output_that_fails_gets_nothing_twice_and_nothing_is_lost(spark, tmp_path, at):
    case = Case(spark, tmp_path, events(), FALL)
    case.add(1, KNOWN + 15, COUNT)
    output = Breaking(at, ensue.parquet_table(tmp_path / "table"))
    with pytest.raises((RunnerError, RuntimeError), match="the output is gone"):
        case.start(output=output)
    output.behind = ensue.parquet_table(tmp_path / "table")  # as a new process would have it
    case.start(output=output)
    case.check()
    assert output.called[:3] == ([-1, -1, 0] if at == -1 else [-1, 0, 0])


@pytest.mark.slow
def test_a_history_that_cannot_be_read_is_read_anew_and_never_again(spark, tmp_path):
    case = Case(spark, tmp_path, events(), FALL)
    case.add(1, KNOWN + 15, COUNT)
    broken = tmp_path / "broken"
    broken.touch()
    archive = Shelved(case.history, "ts", "type", broken=broken)
    with pytest.raises(RunnerError, match="the shelf is broken"):
        case.start(archive)
    broken.unlink()
    case.start(archive)
    case.check()
    broken.touch()
    case.start(archive)


@pytest.mark.slow
def test_a_gap_is_an_error_that_names_it_until_it_is_allowed(spark, tmp_path):
    case = Case(spark, tmp_path, events(stamps=True), FALL.replace("8", "8 seconds"))
    history = case.table.slice(0, 30)
    first = case.table["ts"][KNOWN - AGAIN].as_py()
    with pytest.raises(StateError, match="gap between history and stream") as error:
        case.start(history)
    end = case.table["ts"][29].as_py() + timedelta(microseconds=1)
    assert end.strftime("%H:%M:%S.%f") in str(error.value)
    assert first.strftime("%H:%M:%S.%f") in str(error.value)
    case.start(ensue.History(history, gap="allow"))
    case.table = pa.concat_tables([history, case.table.slice(KNOWN - AGAIN, AGAIN + 15)])
    case.check()


@pytest.mark.slow
def test_events_that_no_query_asks_for_also_show_that_there_is_no_gap(spark, tmp_path):
    case = Case(spark, tmp_path, events(), FALL)
    others = ["D"] * (KNOWN + 2) + case.table["type"].to_pylist()[KNOWN + 2 :]
    case.add(1, KNOWN + 15, COUNT)
    case.table = case.table.set_column(1, "type", pa.array(others))
    case.add(0, KNOWN - AGAIN, KNOWN + 15)
    case.table = events()
    query = case.start()
    assert not any(batch.before_cut for batch in query.progress())


# -------------------------------------------------------------------------------- misuse


def test_what_does_not_go_together_is_said_before_anything_is_done(spark, tmp_path):
    case = Case(spark, tmp_path, events(), FALL)
    place = {"checkpoint": tmp_path / "checkpoint"}
    for given, said in (
        ({"history": str(tmp_path / "nowhere")}, "nowhere"),
        ({"history": case.history.drop_columns(["k"])}, "has no column 'k'"),
        ({"history": case.history.slice(0, 0)}, "has no events"),
        ({"history": Shelved(case.history, "row", "type")}, "time column is .* in the history"),
        ({"history": {"A": case.history}}, "by event type"),
        ({"history": case.matches()}, "is a stream"),
    ):
        with pytest.raises(EventError, match=said):
            ensue.start(case.matches(), tmp_path / "table", **place, **given)
    with pytest.raises(EventError, match="'refuse' or 'allow'"):
        ensue.History(case.history, gap="yes")
    with pytest.raises(EventError, match="a history needs events"):
        ensue.History(None, since=3)
    case = Case(spark, tmp_path / "ahead", events(stamps=True), FALL.replace("8", "8 seconds"))
    late = datetime.now(UTC) + timedelta(days=3)
    ahead = [*case.table["ts"].to_pylist()[: KNOWN - 1], late]
    wrong = case.history.set_column(0, "ts", pa.array(ahead, case.table["ts"].type))
    with pytest.raises(EventError, match="further ahead of the clock"):
        ensue.start(case.matches(), tmp_path / "table", **place, history=wrong)
    case = Case(spark, tmp_path / "texts", events(), FALL)
    texts = case.history.set_column(2, "k", pa.array(["a"] * KNOWN))
    with pytest.raises(EventError, match="column 'k' is string in the history"):
        ensue.start(case.matches(), tmp_path / "table", **place, history=texts)
    changed = case.matches().filter("true")
    with pytest.raises(EventError, match="were changed since"):
        ensue.start(changed, tmp_path / "table", **place, history=case.history)
    assert not (tmp_path / "table").exists()


@pytest.mark.slow
def test_a_checkpoint_keeps_to_how_it_began(spark, tmp_path):
    case = Case(spark, tmp_path, events(), FALL)
    ensue.start(case.matches(), tmp_path / "one", checkpoint=tmp_path / "without", once=True)
    with pytest.raises(StateError, match="began without history="):
        case.start(checkpoint=tmp_path / "without")
    output = Breaking(0, ensue.parquet_table(tmp_path / "table"))
    with pytest.raises(RunnerError):
        case.start(output=output)
    with pytest.raises(StateError, match="begins with a history"):
        ensue.start(case.matches(), tmp_path / "table", checkpoint=tmp_path / "checkpoint")
    case.query = FALL.replace("WITHIN 8", "WITHIN 9")
    with pytest.raises(StateError, match="another query"):
        case.start()


@pytest.mark.slow
def test_a_history_by_event_type(spark, tmp_path):
    table = events()
    parts = {kind: table.filter(pa.array([t == kind for t in table["type"].to_pylist()]))
             for kind in "ABC"}  # fmt: skip
    end = table["ts"][KNOWN].as_py()
    frames = {}
    for kind, part in parts.items():
        part = part.drop_columns(["type"])
        parts[kind] = part
        folder = tmp_path / "events" / kind
        folder.mkdir(parents=True)
        live = [t >= end - 3 for t in part["ts"].to_pylist()]
        pq.write_table(part.filter(pa.array(live)), folder / "0.parquet")
        schema = spark.createDataFrame(part.slice(0, 1)).schema
        frames[kind] = spark.readStream.schema(schema).parquet(str(folder))
    history = {kind: part.filter(pa.array([t < end for t in part["ts"].to_pylist()])) for kind, part in parts.items()}
    given = {"time": "ts", "order": "row"}
    matches = ensue.match(frames, FALL, **given, watermark=3, options=ensue.StreamOptions(key_groups=2))
    ensue.start(
        matches, tmp_path / "table", checkpoint=tmp_path / "checkpoint", history=history,
        once=True, flush=True,
    )  # fmt: skip
    wanted = ensue.match(parts, FALL, **given)
    assert ids(pq.read_table(tmp_path / "table")) == ids(wanted)
