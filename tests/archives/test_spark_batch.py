"""JOIN ARCHIVE over batch DataFrames: archives are read in tasks, or are DataFrames themselves."""

import re
import warnings
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
from support.archive_joins import random_story
from support.streams import STAMPS, WHOLE, Nature

pytestmark = pytest.mark.spark

KEYED = "SEQ(B b) LEFT JOIN ARCHIVE old SEQ(A p, B q) WITHIN 6 RANGE 60 BEFORE START LAST 2 ON [k] "
NAMED = {"time": "t", "type": "type"}


def events(rows: int, first: int = 0, seed: int = 3) -> pa.Table:
    random = Random(seed)
    return pa.table(
        {
            "t": pa.array([first + n // 2 for n in range(rows)], pa.int64()),
            "type": [random.choice("ABX") for _ in range(rows)],
            "k": pa.array([random.choice([1, 2, 3, None]) for _ in range(rows)], pa.int64()),
            "row": pa.array(range(first * 10, first * 10 + rows), pa.int64()),
        }
    )


def same(found, expected: pa.Table) -> None:
    table = found.toArrow() if hasattr(found, "toArrow") else found
    assert sorted(map(shown, table.to_pylist())) == sorted(map(shown, expected.to_pylist()))


def shown(row: dict) -> str:
    return re.sub(r", tzinfo=[^)]*\)\)", ")", repr(row))  # Spark's timestamps have a zone


EVERY_OTHER = [pytest.param(name, marks=pytest.mark.slow) for name in ("eager", "lazy", "archive_first")]


@pytest.fixture
def quiet():
    from ensue.backends.spark.frames import WholeStreamWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WholeStreamWarning)
        yield


@pytest.mark.parametrize("access", ["grouped", *EVERY_OTHER])
def test_all_accesses_find_what_is_found_in_one_process(spark, tmp_path, access):
    live, past = events(60, 40, 1), events(80, 0, 2)
    query = KEYED if access != "archive_first" else KEYED.replace("LEFT ", "")
    pq.write_table(past, tmp_path / "past.parquet")
    given = {"time": "t", "type": "type", "key": "k"}
    expected = ensue.match(live, query, archives={"old": ensue.archive(past, **given)}, **NAMED)
    assert expected.num_rows > 5
    frame = spark.createDataFrame(live)
    for place in (past, str(tmp_path), spark.createDataFrame(past)):
        archives = {"old": ensue.archive(place, **given)}
        same(ensue.match(frame, query, archives=ensue.Archives(archives, access=access), **NAMED), expected)


@pytest.mark.parametrize("kind", ["table", "frame"])
def test_events_belong_to_the_archive_too(spark, kind):
    live, past = events(60, 35, 1), events(80, 0, 2)  # the first events are in both
    given = {"time": "t", "type": "type", "key": "k"}
    expected = ensue.match(
        live, KEYED, archives=ensue.Archives({"old": ensue.archive(past, **given)}, own="old"), **NAMED
    )
    place = past if kind == "table" else spark.createDataFrame(past)
    archives = {"old": ensue.archive(place, **given)}
    frame = spark.createDataFrame(live)
    same(ensue.match(frame, KEYED, archives=ensue.Archives(archives, own="old"), **NAMED), expected)


@pytest.mark.slow
def test_several_queries_and_several_dataframes(spark):
    live, old, older = events(60, 40, 1), events(80, 0, 2), events(6, 34, 4)
    queries = {
        "one": KEYED,
        "both": "SEQ(B b) JOIN ARCHIVE old SEQ(A p) RANGE 30 BEFORE START LAST 1 ON [k] "
        "ANTI JOIN ARCHIVE older SEQ(A q) RANGE 20 BEFORE START ON [k]",
        "plain": "SEQ(A a, B b) WHERE [k] WITHIN 3",
    }
    given = {"time": "t", "type": "type", "key": "k"}
    tables = {"old": ensue.archive(old, **given), "older": ensue.archive(older, **given)}
    expected = ensue.match(live, queries, archives=tables, **NAMED)
    frames = {
        "old": ensue.archive(spark.createDataFrame(old), **given),
        "older": ensue.archive(spark.createDataFrame(older), **given),
    }
    found = ensue.match(spark.createDataFrame(live), queries, archives=frames, **NAMED)
    for name, table in expected.items():
        assert table.num_rows
        same(found[name], table)


@pytest.mark.slow
def test_a_dataframe_that_is_joined_by_another_key_goes_to_one_task(spark):
    from ensue.backends.spark.frames import WholeStreamWarning

    live, past = events(40, 40, 1), events(40, 0, 2)
    query = "SEQ(A a, B b) WHERE [k] WITHIN 3 JOIN ARCHIVE old SEQ(A p) RANGE 90 BEFORE START LAST 1"
    expected = ensue.match(live, query, archives={"old": ensue.archive(past, **NAMED)}, **NAMED)
    assert expected.num_rows
    archives = {"old": ensue.archive(spark.createDataFrame(past), **NAMED)}
    with pytest.warns(WholeStreamWarning, match="'old' is a DataFrame that ON does not join"):
        found = ensue.match(spark.createDataFrame(live), query, archives=archives, **NAMED)
    same(found, expected)


@pytest.mark.usefixtures("quiet")
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(6))
def test_random_queries_find_what_is_found_in_one_process(spark, seed):
    random = Random(seed)
    story = random_story(random, Nature(time=(WHOLE, STAMPS)[seed % 2], nulls_from=(None, 2)[seed // 3]))
    named = {"time": story.nature.columns, "type": "type"}
    tables = {n: ensue.archive(t, key="k", **named) for n, t in story.archives.items()}
    expected = ensue.match(story.live, story.text, archives=ensue.Archives(tables, own=story.own), **named)
    frame = spark.createDataFrame(story.live)
    same(ensue.match(frame, story.text, archives=ensue.Archives(tables, own=story.own), **named), expected)
    frames = {n: ensue.archive(spark.createDataFrame(t), key="k", **named) for n, t in story.archives.items()}
    same(ensue.match(frame, story.text, archives=ensue.Archives(frames, own=story.own), **named), expected)


def test_a_large_table_is_a_warning_and_a_huge_one_an_error(spark, monkeypatch):
    from ensue.backends.spark import dataframe_archives as spark_archives

    live, past = events(10, 40, 1), events(40, 0, 2)
    archives = {"old": ensue.archive(past, **NAMED)}
    monkeypatch.setattr(spark_archives, "WARNING_BYTES", 100)
    with pytest.warns(spark_archives.LargeArchiveWarning, match="is sent to every Spark task"):
        ensue.match(spark.createDataFrame(live), KEYED, archives=archives, **NAMED)
    monkeypatch.setattr(spark_archives, "MAX_BYTES", 200)
    with pytest.raises(ensue.EventError, match="too large to send"):
        ensue.match(spark.createDataFrame(live), KEYED, archives=archives, **NAMED)


def test_a_dataframe_goes_with_dataframes_of_events(spark):
    live, past = events(10, 40, 1), events(40, 0, 2)
    archives = {"old": ensue.archive(spark.createDataFrame(past), **NAMED)}
    with pytest.raises(ensue.EventError, match="for batch DataFrames of events"):
        ensue.match(live, KEYED, archives=archives, **NAMED)


def test_a_stream_is_no_archive(spark):
    stream = spark.readStream.format("rate").load()
    with pytest.raises(ensue.EventError, match="a stream cannot be an archive"):
        ensue.archive(stream, time="timestamp")
