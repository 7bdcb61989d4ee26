"""Hierarchies on Spark: layers of one key in one key group, a shuffle where the key changes."""

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
from ensue.backends.spark.frames import WholeStreamWarning
from ensue.errors import StateError
from support.stages import EVENTS, HIERARCHIES, readings, rows_of, shuffled

DELAY = 4
TWO_TABLES = """
    EVENT Hot AS SEQ(Reading a, Reading b) WHERE [sensor] and b.value > a.value WITHIN 9
        RETURN a.machine AS machine, b.value AS value;
    SEQ(Hot x, Order o, Hot y) WHERE [machine] and y.value > x.value WITHIN 30
    RETURN o.customer AS customer, x.a.value AS low, y.value AS high
"""


def events(seed: int = 4, count: int = 120) -> pa.Table:
    rng = random.Random(seed)
    return shuffled(rng, readings(rng, count), DELAY)


def local(hierarchy: str, given: pa.Table) -> dict[str, pa.Table]:
    return ensue.match(given, HIERARCHIES[hierarchy], **EVENTS, options=ensue.OutputOptions(levels="all"))


@pytest.mark.spark
@pytest.mark.parametrize(
    "hierarchy", ["factory", *(pytest.param(t, marks=pytest.mark.slow) for t in list(HIERARCHIES)[1:])]
)
@pytest.mark.filterwarnings("ignore::ensue.backends.spark.frames.WholeStreamWarning")
def test_a_dataframe_has_the_matches_of_a_table(spark, hierarchy):
    given = events()
    frame = spark.createDataFrame(given)
    wanted = local(hierarchy, given)
    found = ensue.match(frame, HIERARCHIES[hierarchy], **EVENTS, options=ensue.OutputOptions(levels="all")).cache()
    assert list(found) == list(wanted)
    for level, table in wanted.items():
        assert rows_of(found[level].toArrow()) == rows_of(table), level
        assert found[level].columns == table.column_names
    found.unpersist()


@pytest.mark.spark
def test_tables_of_different_schemas(spark):
    rng = random.Random(5)
    whole = readings(rng, 90)
    hot = whole.filter(pa.compute.equal(whole["type"], "Reading")).select(["t", "sensor", "machine", "value"])
    orders = whole.filter(pa.compute.equal(whole["type"], "Stop")).select(["t", "machine"])
    orders = orders.append_column("customer", pa.array([f"c{k}" for k in range(len(orders))]))
    tables = {"Reading": hot, "Order": orders}
    wanted = ensue.match(tables, TWO_TABLES, time="t", options=ensue.OutputOptions(trace=True))
    assert wanted.num_rows > 3
    frames = {name: spark.createDataFrame(table) for name, table in tables.items()}
    found = ensue.match(frames, TWO_TABLES, time="t", options=ensue.OutputOptions(trace=True))
    assert rows_of(found.toArrow()) == rows_of(wanted)


class Files:
    """A stream of files that come one by one."""

    def __init__(self, spark: Any, folder: Path, given: pa.Table, count: int) -> None:
        self.spark = spark
        self.folder = folder
        size = -(-given.num_rows // count)
        self.pieces = [given.slice(k * size, size) for k in range(count)]
        (folder / "events").mkdir()

    def put(self, *numbers: int) -> None:
        for number in numbers:
            path = self.folder / "events" / f"{number}.parquet"
            pq.write_table(self.pieces[number], path)
            os.utime(path, (number + 1, number + 1))

    def match(self, text: str, output: Any = ensue.OutputOptions(), late_events: str = "count") -> Any:  # noqa: B008
        schema = self.spark.createDataFrame(self.pieces[0]).schema
        source = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        stream = source.parquet(str(self.folder / "events"))
        options = [ensue.StreamOptions(key_groups=2, late_events=late_events), output]
        return ensue.match(stream, text, **EVENTS, watermark=DELAY, options=options)


@pytest.mark.slow
@pytest.mark.spark
def test_a_stream_with_a_cut_has_the_matches_of_a_table(spark, tmp_path):
    given = events(seed=4)
    wanted = local("one cut", given)
    assert all(table.num_rows for table in wanted.values())
    files = Files(spark, tmp_path, given, 2)
    files.put(0, 1)
    ensue.start(
        files.match(HIERARCHIES["one cut"], ensue.OutputOptions(levels="all")),
        tmp_path / "out",
        checkpoint=tmp_path / "checkpoint",
        once=True,
        flush=True,
    )
    for level, table in wanted.items():
        found = spark.read.parquet(str(tmp_path / "out" / (level or "matches"))).toArrow()
        assert rows_of(found.select(table.column_names)) == rows_of(table), level


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("hierarchy", ["factory", "waiting"])
def test_a_stream_with_cuts_goes_on_where_it_stopped(spark, tmp_path, hierarchy):
    given = events(seed=4)
    wanted = local(hierarchy, given)
    assert all(table.num_rows for table in wanted.values())
    files = Files(spark, tmp_path, given, 3)
    found: dict[str, list[pa.Table]] = {level: [] for level in wanted}
    broken = [True]

    def sink(level: str):
        def take(frame, number):
            table = frame.toArrow()
            if number == 1 and broken:
                broken.pop()
                raise RuntimeError("the disk is full")
            found[level].append(table)

        return take

    def run(**options: Any) -> Any:
        matches = files.match(HIERARCHIES[hierarchy], ensue.OutputOptions(levels="all"))
        sinks = {level: sink(level) for level in wanted}
        return ensue.start(matches, sinks, checkpoint=tmp_path / "checkpoint", once=True, **options)

    files.put(0, 1)
    with pytest.raises(Exception, match="the disk is full"):
        run().wait()
    run().wait()  # the micro-batch again, from the state before it
    files.put(2)
    query = run(flush=True)
    progress = query.progress()
    assert sum(p.late for p in progress) == 0
    for level, table in wanted.items():
        together = pa.concat_tables(found[level]).select(table.column_names)
        unique = {row["match_id"]: row for row in together.to_pylist()}
        assert sorted(map(repr, unique.values())) == rows_of(table), level
    files.pieces.append(given.slice(0, 1))
    files.put(3)
    changed = HIERARCHIES[hierarchy].replace("40", "41").replace("30", "31")
    with pytest.raises(StateError, match="another query"):
        ensue.start(
            files.match(changed, ensue.OutputOptions(levels="all")), tmp_path / "out",
            checkpoint=tmp_path / "checkpoint", once=True,
        )  # fmt: skip


@pytest.mark.spark
def test_a_hierarchy_of_one_key_streams_its_top(spark, tmp_path):
    given = events(seed=2)
    late = given.slice(0, 10)
    files = Files(spark, tmp_path, given, 2)
    files.pieces.append(late)
    files.put(0, 1, 2)
    wanted = ensue.match(given, HIERARCHIES["one key"], **EVENTS)
    matches = files.match(HIERARCHIES["one key"], late_events="deliver")
    query = ensue.start(
        matches, tmp_path / "table", late=tmp_path / "late",
        checkpoint=tmp_path / "checkpoint", once=True, flush=True,
    )  # fmt: skip
    table = spark.read.parquet(str(tmp_path / "table")).toArrow()
    assert rows_of(table.select(wanted.column_names)) == rows_of(wanted)
    assert wanted.num_rows
    behind = spark.read.parquet(str(tmp_path / "late")).toArrow()
    used = [row for row in late.to_pylist() if row["type"] in ("Reading", "Stop")]
    assert rows_of(behind.select(late.column_names)) == sorted(map(repr, used))
    assert sum(p.late for p in query.progress()) == len(used)
    left = ensue.remaining(spark, tmp_path / "checkpoint")
    assert left.columns == wanted.column_names


@pytest.mark.spark
def test_a_layer_without_a_key_is_said_to_be_alone(spark):
    with pytest.warns(WholeStreamWarning, match="the query on top"):
        ensue.match(spark.createDataFrame(events()), HIERARCHIES["no key"], **EVENTS)
