"""A stream on Spark that reads events of long ago is behind the clock, and says what it lost."""

import logging
import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
from ensue.errors import EventError

pytestmark = pytest.mark.spark
QUERY = "SEQ(A a, B b) WHERE [k] WITHIN 1 hour"


def pairs(keys: range, begin: datetime) -> pa.Table:
    """An A of each key, and half a minute later a B."""
    rows = [
        {"t": begin + timedelta(seconds=second, milliseconds=k), "type": type, "k": k}
        for type, second in (("A", 0), ("B", 30))
        for k in keys
    ]
    schema = {"t": pa.timestamp("us", "UTC"), "type": pa.string(), "k": pa.int64()}
    return pa.Table.from_pylist(rows, pa.schema(schema))


@pytest.mark.slow
def test_a_stream_of_long_ago_sheds_all_and_one_of_now_nothing(spark, tmp_path, caplog):
    now = datetime.now(UTC).replace(microsecond=0)
    folder, losses = tmp_path / "events", tmp_path / "losses"
    folder.mkdir()
    # the older ones are more than four times as far behind as is allowed: all keys go
    pieces = [pairs(range(20), now - timedelta(hours=9)), pairs(range(10, 30), now - timedelta(seconds=40))]
    for number, piece in enumerate(pieces):
        path = folder / f"{number}.parquet"
        pq.write_table(piece, path)
        os.utime(path, (number + 1, number + 1))
    events = spark.readStream.schema(spark.createDataFrame(pieces[0].slice(0, 1)).schema)
    events = events.option("maxFilesPerTrigger", 1).parquet(str(folder))
    given: dict[str, Any] = {"time": "t", "type": "type", "watermark": "1 second"}
    key_groups = ensue.StreamOptions(key_groups=2)
    with pytest.raises(EventError, match="does not shed load"):
        ensue.start(
            ensue.match(events, QUERY, **given, options=key_groups),
            tmp_path / "matches",
            checkpoint=tmp_path / "checkpoint",
            shed_to=losses,
            once=True,
        )
    found: list[Any] = []
    with caplog.at_level(logging.WARNING, "ensue.stream"):
        query = ensue.start(
            ensue.match(events, QUERY, options=[ensue.Limits(shed="2 hours"), key_groups], **given),
            lambda frame, _: found.extend(frame.collect()),
            checkpoint=tmp_path / "checkpoint",
            shed_to=losses,
            once=True,
            flush=True,
        )
    counted = query.progress()
    assert sum(done.shed_keys for done in counted) == 20
    assert sum(done.shed_events for done in counted) == 40
    # of those given up before, those that come again begin anew
    assert sorted(row.a.k for row in found) == list(range(10, 30))
    listed = spark.read.parquet(str(losses)).collect()
    assert sorted(row.k for row in listed) == list(range(20))
    assert {row.shed_events for row in listed} == {2}
    assert {row.shed_from for row in listed} == {None}
    first = min(listed, key=lambda row: row.k)
    assert first.shed_until.astimezone(UTC) == now - timedelta(hours=9) + timedelta(seconds=30)
    assert len([r for r in caplog.records if "keys dropped" in r.getMessage()]) == 1
