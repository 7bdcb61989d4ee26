"""Sets of subscriptions on Spark, batch and streaming: the same matches as here."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.catalog.version_pins import list_streams, list_version_starts

pytestmark = pytest.mark.spark

DEPOT = "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"
LEFT = "=|(@(Depot)(A); 25)(DIST(Depot; >; 20)(A)), A = (ARITH:id = {id})"
QUIET = "!(A; 5)B, A = (ARITH:id = {id}, STRING:kind = 'stop'), B = (ARITH:id = {id})"
NOBODY = "!(12; 10)A, A = (ARITH:id = 99)"
SCHEMA = pa.schema({"t": pa.int64(), "id": pa.int64(), "kind": pa.string(), "x": pa.float64(), "y": pa.float64()})


def trucks(count=3, steps=9):
    """Trucks that leave the depot, one after the other, and stop now and then."""
    rows = [
        (10 * step + truck, truck, "stop" if step % 4 == 3 else "go", 12.0 * step - truck, 5.0)
        for step in range(steps)
        for truck in range(count)
    ]
    return pa.table(list(map(list, zip(*rows, strict=True))), schema=SCHEMA)


def texts(count=3):
    found = {f"left {k}": LEFT.format(id=k) for k in range(count)}
    found |= {f"quiet {k}": QUIET.format(id=k) for k in range(count)}
    return found | {"nobody": NOBODY}


def fleet_of(texts, folder=None):
    fleet = ensue.Subscriptions(time="t", location=("x", "y"), regions={"Depot": DEPOT}, folder=folder)
    fleet.add_all(texts)
    return fleet


def rows(table):
    return sorted(
        (r["subscription"], r["match_id"], r["start"], r["end"], r["location"], len(r["members"]))
        for r in table.to_pylist()
    )


def stream(spark, folder, tables):
    """A stream of tables, one a micro-batch."""
    (folder / "events").mkdir()
    for number, table in enumerate(tables):
        path = folder / "events" / f"{number:03}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + number,) * 2)  # Spark reads the oldest first
    reader = spark.readStream.schema("t long, id long, kind string, x double, y double")
    return reader.option("maxFilesPerTrigger", 1).parquet(str(folder / "events"))


def cut(table, size):
    return [table.slice(begin, size) for begin in range(0, table.num_rows, size)]


@pytest.mark.parametrize("kept", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_batch_gives_what_is_found_here(spark, tmp_path, kept):
    events = trucks()
    fleet = fleet_of(texts(), tmp_path / "set" if kept else None)
    here = rows(ensue.match(events, fleet))
    assert {row[0].split()[0] for row in here} == {"left", "quiet", "nobody"}
    frame = spark.createDataFrame(events.to_pandas()).repartition(3)
    assert rows(ensue.match(frame, fleet).toArrow()) == here


def test_no_events_at_all(spark):
    frame = spark.createDataFrame([], "t long, id long, kind string, x double, y double")
    found = ensue.match(frame, fleet_of({"nobody": NOBODY})).toArrow()
    assert [row[0] for row in rows(found)] == ["nobody"]


@pytest.mark.slow
def test_a_stream_gives_what_is_found_here(spark, tmp_path):
    events, fleet = trucks(), fleet_of(texts())
    matches = ensue.match(
        stream(spark, tmp_path, cut(events, 6)), fleet, watermark=0, options=ensue.StreamOptions(key_groups=3)
    )
    ensue.start(matches, tmp_path / "out", checkpoint=tmp_path / "checkpoint", once=True, flush=True)
    assert rows(pq.read_table(tmp_path / "out")) == rows(ensue.match(events, fleet))


def test_the_set_changes_between_micro_batches(spark, tmp_path):
    fleet = fleet_of({"left 0": LEFT.format(id=0), "left 1": LEFT.format(id=1)}, tmp_path / "set")
    other = ensue.Subscriptions(time="t", location=("x", "y"), regions={"Depot": DEPOT}, folder=tmp_path / "set")
    parts = cut(trucks(), 9)
    matches = ensue.match(stream(spark, tmp_path, parts), fleet, watermark=0, options=ensue.StreamOptions(key_groups=2))
    found = []

    def deliver(batch, number):
        found.extend(rows(batch.toArrow()))
        if number == 0:
            other.cancel("left 1")
            other.add("left 2", LEFT.format(id=2))

    query = ensue.start(matches, deliver, checkpoint=tmp_path / "checkpoint", once=True)
    log = CatalogLog(tmp_path / "set")
    assert list_streams(log) == [str(query.id)]
    assert [(m.version, m.batch) for m in list_version_starts(log, str(query.id))][:2] == [(1, 0), (3, 1)]
    later = pa.concat_tables(parts[1:])
    alone = [
        *rows(ensue.match(pa.concat_tables(parts), fleet_of({"left 0": LEFT.format(id=0)}))),
        *rows(ensue.match(later, fleet_of({"left 2": LEFT.format(id=2)}))),
    ]
    assert sorted(row for row in found if row[0] != "left 1") == alone
    assert all(row[3] < 30 for row in found if row[0] == "left 1")


def test_history_is_for_queries(spark, tmp_path):
    matches = ensue.match(stream(spark, tmp_path, [trucks()]), fleet_of(texts()), watermark=0)
    with pytest.raises(ensue.EventError, match="history= is for queries"):
        ensue.start(matches, tmp_path / "out", checkpoint=tmp_path / "checkpoint", history=trucks())


def test_what_does_not_fit_is_refused_before_it_starts(spark, tmp_path):
    fleet = fleet_of({"bad": "(ARITH:nosuch = 1)"}, tmp_path / "set")
    with pytest.raises(ensue.QueryError, match=r"'bad'(.|\n)*nosuch"):
        ensue.match(stream(spark, tmp_path, [trucks()]), fleet, watermark=0)
