"""Sinks and rows of RETURN ALL EVENTS: several rows have the id of one match."""

import pyarrow as pa
import pytest

import ensue
from ensue.backends.spark.sinks import KafkaTopic, ParquetTable, get_identity_columns

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

EVENTS = pa.table({"at": [0, 1, 2], "type": list("AAB"), "id": [5, 6, 7]})
QUERY = "SEQ(A a, B b) WITHIN 5 RETURN ALL EVENTS"


@pytest.fixture
def found(spark):
    return ensue.match(spark.createDataFrame(EVENTS), QUERY, time="at", type="type")


def test_rows_are_told_apart_by_match_and_position(found):
    assert get_identity_columns(found) == ("match_id", "position")
    assert found.select(*get_identity_columns(found)).distinct().count() == found.count() == 4


def test_matches_are_told_apart_by_their_ids(spark):
    frame = spark.createDataFrame(EVENTS)
    matches = ensue.match(frame, "SEQ(A a, B b) RETURN a.id AS position", time="at", type="type")
    assert get_identity_columns(matches) == ("match_id",)


@pytest.mark.slow
def test_a_row_that_is_in_the_table_already_is_left_out(spark, found, tmp_path):
    sink, folder = ParquetTable(str(tmp_path / "rows")), str(tmp_path / "rows")
    some = found.filter("position = 1")  # what a killed writer may leave behind
    sink(some, 0)
    again = ParquetTable(folder)
    again(found, 0)
    again(found, 0)
    table = spark.read.parquet(folder)
    assert table.count() == 4
    assert table.select("match_id", "position").distinct().count() == 4


def test_a_message_has_a_key_of_its_own(found):
    key = KafkaTopic("nowhere", "topic").messages(found).select("key").toArrow()
    names = key.column("key").to_pylist()
    assert len(set(names)) == 4
    assert {name.partition("/")[2] for name in names} == {"1", "2"}
