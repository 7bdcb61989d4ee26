"""Folders of any name: tables, checkpoints and sources are found where they were written."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
from ensue.errors import EventError, StateError

pytestmark = pytest.mark.spark

ALL = "[1]{b}\\*?%20#_ü☃ c"  # in one name
ODD = ("a b", "a[1]", "a{b}", "a\\b", "a*b", "a?b", "a%20b", "a#b", "a:b", "_ü☃", ".a", "[", "\\")
QUERY = "SEQ(A a, B b) WHERE [k] WITHIN 10"
CALM = "SEQ(A a, !B b) WHERE [k] WITHIN 10"
COLUMNS = {"time": "t", "type": "type"}
EVENTS = pa.table(
    {
        "t": pa.array([0, 1, 2, 3, 4, 5, 6], pa.int64()),
        "type": list("AABABBA"),
        "k": pa.array([1, 2, 1, 2, 2, 1, 3], pa.int64()),
    }
)


@pytest.fixture
def session(spark: Any) -> Any:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", before)


def ids(table: Any) -> Counter:
    found = table if isinstance(table, pa.Table) else pq.read_table(table)
    return Counter(found["match_id"].to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("names", [ODD, ("a?b", ALL)], ids=["each", "all"])
def test_a_table_of_any_name_gets_each_match_once(session, tmp_path, names):
    """Its path is not a pattern: neither is it missed, nor are others taken for it."""
    found = ensue.match(EVENTS, QUERY, **COLUMNS)
    batch = session.createDataFrame(found)
    other = tmp_path / "aXb"  # what `a*b` and `a?b` would find
    batch.write.parquet(str(other))
    for name in names:
        for number in (0, 0, 1):  # repeated by a crash, and by a new checkpoint
            ensue.parquet_table(tmp_path / name)(batch, number)
        assert ids(tmp_path / name) == ids(found), name
    assert ids(other) == ids(found)


def test_the_path_of_a_table_may_begin_with_what_looks_like_a_scheme(tmp_path, monkeypatch):
    from ensue.backends.spark.stream_folders import escape_path, normalize_path

    monkeypatch.chdir(tmp_path)
    assert normalize_path(Path("a:b")) == "./a:b"
    assert normalize_path("file:/x/a") == "file:/x/a"
    assert escape_path("s3a://bucket/a*") == "s3a://bucket/a\\*"
    assert escape_path("s3a://host:9000/a*") == "s3a://host:9000/a\\*"
    for nothing in ("", "  ", "a\0b"):
        with pytest.raises(EventError, match="not the path of a folder"):
            normalize_path(nothing)


def test_a_table_that_could_not_be_looked_up_is_refused_at_once(tmp_path):
    """Hadoop's patterns know no way to write a colon."""
    with pytest.raises(EventError, match=r"'\[' and ':' in it.*\n  hint: leave out one of them"):
        ensue.parquet_table(tmp_path / "10:30" / "a[1]")


@pytest.mark.parametrize("name", ["a\\b", "a%20b", "a\nb"])
def test_a_delta_table_of_a_name_that_is_read_as_another_is_refused_at_once(tmp_path, name):
    with pytest.raises(EventError, match="a Delta table cannot have"):
        ensue.delta_table(tmp_path / name)


def stream(session: Any, folder: Path, query: str, **options: Any) -> Any:
    from ensue.backends.spark import event_sources as spark_sources
    from ensue.backends.spark.stream_folders import escape_path

    frame = spark_sources.read_folder(session, escape_path(folder), "parquet")
    return ensue.match(frame, query, **COLUMNS, watermark=0, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", [ALL, "a:b", ".a", "\\"])
def test_a_stream_between_folders_of_odd_names(session, tmp_path, name):
    """Read, matched, stopped, gone on with, and flushed from its checkpoint."""
    events, table, checkpoint = (tmp_path / what / name for what in ("in", "out", "state"))
    events.mkdir(parents=True)
    pq.write_table(EVENTS, events / "1.parquet")
    ensue.start(stream(session, events, CALM), table, checkpoint=checkpoint, once=True, flush=True)
    wanted = ensue.match(EVENTS, CALM, **COLUMNS)
    assert wanted.num_rows
    assert ids(table) == ids(wanted)
    pq.write_table(EVENTS.slice(6).set_column(0, "t", pa.array([40])), events / "2.parquet")
    ensue.start(stream(session, events, CALM), table, checkpoint=checkpoint, once=True).wait(240)
    assert ids(table) == ids(wanted)  # what was flushed comes again, and is not doubled
    assert ensue.remaining(session, checkpoint).count() == 1


def test_state_that_spark_could_not_read_is_refused_before_the_stream_starts(session, tmp_path):
    (tmp_path / "in").mkdir()
    pq.write_table(EVENTS, tmp_path / "in" / "1.parquet")
    matches = stream(session, tmp_path / "in", CALM)
    far = "hdfs://nowhere/a b"
    with pytest.raises(StateError, match="cannot read the state in a checkpoint with ' '"):
        ensue.start(matches, tmp_path / "out", checkpoint=far, once=True, flush=True)
    with pytest.raises(StateError, match="you can rename an existing one"):
        ensue.remaining(session, far)
    assert not (tmp_path / "out").exists()


def test_two_things_do_not_go_to_one_folder(session, tmp_path):
    (tmp_path / "in").mkdir()
    pq.write_table(EVENTS, tmp_path / "in" / "1.parquet")
    place = tmp_path / "out"
    matches = stream(session, tmp_path / "in", CALM, options=ensue.StreamOptions(late_events="deliver"))
    with pytest.raises(EventError, match="the checkpoint and the output are the same folder"):
        ensue.start(matches, place, checkpoint=place)
    with pytest.raises(EventError, match="output and the folder for late events are the same"):
        ensue.start(matches, place, late=f"{place}/", checkpoint=tmp_path / "c")
    both = stream(session, tmp_path / "in", {"a": QUERY, "b": CALM})
    with pytest.raises(EventError, match="output of 'a' and the output of 'b' are the same"):
        ensue.start(both, {"a": place, "b": ensue.parquet_table(place)}, checkpoint=tmp_path / "c")
    for names, said in ((("..", "b"), "is outside the output folder"), (("a", "A"), "share the folder")):
        odd = stream(session, tmp_path / "in", dict(zip(names, (QUERY, CALM), strict=True)))
        with pytest.raises(EventError, match=said):
            ensue.start(odd, place, checkpoint=tmp_path / "c")
    assert not place.exists()
