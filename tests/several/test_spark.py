"""Several queries on Spark: one pass over a DataFrame, one stream with a sink for each."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
from ensue.backends.spark.frames import WholeStreamWarning, warn_of_whole_streams
from ensue.errors import EventError, QueryError
from support.key_groups import workload_of

CLOSE = ensue.operator("near_rows", q=lambda a, b, by: b.row - a.row <= by)
EVENTS = {"time": "t", "type": "type", "order": "row", "definitions": CLOSE}
QUERIES = {
    "pairs": "SEQ(A a, B b) WHERE [k] WITHIN 6",
    "again": "SEQ(A a, B b) WHERE [k] WITHIN 6 RETURN a.row AS a, b.row AS b",
    "calm": "SEQ(A a, !B b) WHERE [k, u] WITHIN 3",
    "other": "SEQ(B b, C+ c[]) WHERE skip_till_next_match(b, c[]) { [u] } WITHIN 8",
    "own": "SEQ(near_rows(A a, B b, 9) r, C c) WHERE [u] WITHIN 9",
}
STREAMED = {name: QUERIES[name] for name in ("again", "calm", "own")}


def events(count: int = 60) -> pa.Table:
    return pa.table(
        {
            "t": pa.array([n // 2 for n in range(count)], pa.int64()),
            "type": ["ABCA"[n * 5 % 4] if n % 7 else "B" for n in range(count)],
            "k": [f"k{n * 3 % 4}" for n in range(count)],
            "u": pa.array([n % 3 if n % 11 else None for n in range(count)], pa.int64()),
            "row": pa.array(range(count), pa.int64()),
        }
    )


def rows(table: Any) -> list[str]:
    table = table if isinstance(table, pa.Table) else table.toArrow()
    return sorted(map(repr, table.to_pylist()))


def alone(name: str) -> list[str]:
    found = rows(ensue.match(events(), QUERIES[name], **EVENTS))
    assert found
    return found


def test_queries_go_with_those_whose_key_is_a_part_of_theirs():
    texts = [f"SEQ(A a, B b) WHERE {w}" for w in ("[k]", "[k, u]", "[u]", "[type, u]", "a.t < 3")]
    workload = workload_of(texts, events().schema, "t", "type", streaming=False)
    with pytest.warns(WholeStreamWarning, match="1 of the 5 queries"):
        warn_of_whole_streams(workload)
    stages = [chain.stages[0] for chain in workload.chains]
    assert [(s.reads.key, [o.number for o in s.outputs]) for s in stages] == [
        (("k",), [0, 1]),
        (("u",), [2, 3]),
        ((), [4]),
    ]


@pytest.mark.spark
def test_one_pass_over_a_dataframe(spark):
    frame = spark.createDataFrame(events())
    found = ensue.match(frame, QUERIES, **EVENTS).cache()
    assert list(found) == list(QUERIES)
    assert len(found) == 5
    for name in QUERIES:
        assert rows(found[name]) == alone(name), name
    found.unpersist()
    with pytest.raises(KeyError):
        found["nobody"]
    with pytest.raises(QueryError, match="query 'bad': unknown field"):
        ensue.match(frame, {"bad": "SEQ(A a, B b) WHERE a.zz > 1"}, **EVENTS)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.streams
def test_one_stream_with_a_sink_for_each_query(spark, tmp_path):
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    try:
        _one_stream(spark, tmp_path)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


def _one_stream(spark: Any, folder: Path) -> None:
    source = folder / "events"
    source.mkdir()
    for number in range(2):
        path = source / f"{number}.parquet"
        pq.write_table(events().slice(number * 30, 30), path)
        os.utime(path, (1_700_000_000 + number,) * 2)
    schema = spark.read.parquet(str(source)).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    found = ensue.match(reader.parquet(str(source)), STREAMED, **EVENTS, watermark=1)
    with pytest.raises(EventError, match="no output for query 'calm'"):
        ensue.start(found, {"again": folder / "x"}, checkpoint=folder / "no")
    seen: list[pa.Table] = []
    sinks = {
        "again": lambda frame, _: seen.append(frame.toArrow()),
        "calm": ensue.parquet_table(folder / "calm"),
        "own": folder / "own",
    }
    place = {"checkpoint": folder / "checkpoint", "once": True}
    ensue.start(found, sinks, **place).wait(240)
    left = ensue.remaining(spark, folder / "checkpoint")
    assert list(left) == list(STREAMED)
    # run again from the checkpoint, then to the end of the stream: nothing lost, nothing doubled
    ensue.start(found, sinks, **place, flush=True)
    assert rows(pa.concat_tables(seen)) == alone("again")
    for name in ("calm", "own"):
        assert rows(pq.read_table(folder / name)) == alone(name), name
