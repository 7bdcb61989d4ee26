"""Events from a topic of a real broker, matches to another."""

import socket
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.docs.pages import ROOT, examples

import ensue
from brokers import kafka
from ensue.errors import RunnerError
from samples.stocks import stocks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:no event is of type"),
]

INSTANTS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
SCHEMA = "ts timestamp, type string, symbol string, price double, seq long"
RISE = """
    SEQ(A a, B b) WHERE [symbol] and a.price < b.price WITHIN 1 second
    RETURN a.symbol, a.price AS low, b.price AS high"""


def write(frame: Any, options: dict[str, str], topic: str) -> None:
    """Rows as JSON, by their symbol into the partitions of a topic."""
    from pyspark.sql import functions as sql

    value = sql.to_json(sql.struct("*"), INSTANTS).alias("value")
    # one task: two would mix the halves, and what comes behind the last trade would be late
    records = frame.coalesce(1).select(sql.col("symbol").alias("key"), value)
    records.write.format("kafka").options(**options).option("topic", topic).save()


def read(session: Any, options: dict[str, str], topic: str, **more: str) -> Any:
    """The stream of a topic from its beginning."""
    from pyspark.sql import functions as sql

    records = (
        session.readStream.format("kafka")
        .options(**options, **more)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    value = sql.from_json(sql.col("value").cast("string"), SCHEMA, INSTANTS)
    return records.select(value.alias("event")).select("event.*")


def run(writer: Any, folder: Path) -> Any:
    """A query from start to end, over what there is."""
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120), "the query hangs"
    finally:
        query.stop()
    return query


@pytest.fixture(scope="module")
def trades() -> pa.Table:
    """Twenty seconds of trades, and one much later that lets the watermark pass them."""
    table = stocks(600, symbols=10, seed=5).select(["ts", "type", "symbol", "price"])
    later = table.slice(table.num_rows - 1).to_pylist()[0]
    later |= {"ts": later["ts"].replace(hour=20), "type": "CLOSE"}
    table = pa.concat_tables([table, pa.Table.from_pylist([later], schema=table.schema)])
    return table.append_column("seq", pa.array(range(table.num_rows), pa.int64()))


# ------------------------------------------------------------------------- the connector


def test_rows_come_back_from_a_topic_as_they_went(connected, options, trades, tmp_path):
    write(connected.createDataFrame(trades), options, "rows")
    folder = tmp_path / "rows"
    sink = read(connected, options, "rows").writeStream.format("parquet").option("path", folder)
    run(sink, tmp_path)
    back = connected.read.parquet(str(folder)).orderBy("seq").toArrow()
    assert back.to_pylist() == trades.to_pylist()


def test_state_and_watermark_live_on_a_topic_read_in_several_batches(connected, options, trades, tmp_path):
    from pyspark.sql import functions as sql

    write(connected.createDataFrame(trades), options, "batches")
    stream = read(connected, options, "batches", maxOffsetsPerTrigger="250")
    counted = stream.withWatermark("ts", "1 minute").groupBy(sql.window("ts", "1 minute")).count()
    sink = counted.writeStream.format("parquet").option("path", tmp_path / "counts")
    query = run(sink, tmp_path)
    assert sum(p.numInputRows for p in query.recentProgress) == trades.num_rows
    assert len([p for p in query.recentProgress if p.numInputRows]) > 1
    counts = connected.read.parquet(str(tmp_path / "counts")).toArrow()
    assert sum(counts.column("count").to_pylist()) == trades.num_rows - 1  # the last one waits


# -------------------------------------------------------------------- matches of a topic


def test_a_topic_of_events_gives_a_topic_of_the_matches_of_a_batch_run(connected, options, trades, tmp_path):
    from pyspark.sql import functions as sql

    arguments = {"time": "ts", "type": "type", "order": "seq"}
    batch = ensue.match(connected.createDataFrame(trades), RISE, **arguments).toArrow()
    expected = sorted(batch.column("match_id").to_pylist())
    assert expected

    write(connected.createDataFrame(trades), options, "events")
    stream = read(connected, options, "events", maxOffsetsPerTrigger="250")
    matches = ensue.match(stream, RISE, **arguments, watermark="10 seconds")
    value = sql.to_json(sql.struct("*"), INSTANTS).alias("value")
    records = matches.select(sql.col("match_id").alias("key"), value)
    run(records.writeStream.format("kafka").options(**options, topic="matches"), tmp_path)

    found = connected.read.format("kafka").options(**options).option("subscribe", "matches").load()
    keys = [row.key.decode() for row in found.select("key").collect()]
    assert sorted(keys) == expected


def test_the_page_on_kafka_does_what_it_says(connected, broker, options, tmp_path):
    readings = connected.createDataFrame(
        [("10:00", "SHELF", "p", 1), ("10:01", "SHELF", "q", 2), ("10:05", "COUNTER", "q", 3),
         ("10:09", "EXIT", "p", 4), ("10:10", "EXIT", "q", 5), ("23:59", "CLOSE", "r", 6)],
        "at string, type string, tag string, seq long",
    ).selectExpr("timestamp('2026-03-14 ' || at) AS ts", "type", "tag", "seq")  # fmt: skip
    write(readings.withColumn("symbol", readings.tag), options, "page-events")
    here = {"127.0.0.1:9092": broker.address, '"events"': '"page-events"', "checkpoints/": f"{tmp_path}/"}
    names: dict[str, Any] = {}
    *blocks, _broker = examples(ROOT / "docs" / "kafka.md", "py")
    for block in blocks:
        code = block.code
        for shown, used in here.items():
            code = code.replace(shown, used)
        exec(compile(code, block.name, "exec"), names)
    assert names["spark"] is connected  # the recipe of the page gets the session that is there
    (theft,) = names["found"].collect()
    assert '"tag":"p"' in theft.value


# ---------------------------------------------------------------------------- the broker


def test_a_broker_ends_with_its_block_and_leaves_nothing(broker):
    with kafka.Broker() as other:
        assert other.port != broker.port
        folder, process = other._folder, other._process
        assert folder.exists()
    assert process.poll() is not None
    assert not folder.exists()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", other.port), timeout=1)


def test_a_broker_that_cannot_start_says_why(broker):
    refused = pytest.raises(RunnerError, match=f"port {broker.port} is in use")
    with refused, kafka.Broker(port=broker.port):
        pass


def test_without_maven_and_jars_there_is_a_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name: None if name == "mvn" else f"/bin/{name}")
    kafka.missing.cache_clear()
    try:
        assert "mvn" in (kafka.missing() or "")
    finally:
        kafka.missing.cache_clear()
