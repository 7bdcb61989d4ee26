"""A stream on Spark whose key groups store keys: its store gets the segments, a restart goes on."""

import os
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue

pytestmark = pytest.mark.spark
QUERY = "SEQ(A a, B b, C c) WHERE [k] WITHIN 30000"


def objects(count: int) -> pa.Table:
    random = np.random.default_rng(5)
    gaps = random.integers(1, 12_000, (2, count))
    begin = np.arange(count)
    times = np.concatenate([begin, begin + gaps[0], begin + gaps.sum(0)])
    order = np.argsort(times, kind="stable")
    keys, types = np.tile(begin, 3)[order], np.repeat(np.array(list("ABC")), count)[order]
    return pa.table({"t": times[order], "k": keys, "type": types, "x": random.random(3 * count)})


@pytest.mark.slow
def test_keys_go_to_disk_and_to_the_store(spark, tmp_path):
    events = objects(20_000)
    folder = tmp_path / "events"
    folder.mkdir()
    size = events.num_rows // 4 + 1
    schema = spark.createDataFrame(events.slice(0, 1)).schema
    found: list[Any] = []

    def run(number: int, memory: str | None) -> Any:
        path = folder / f"{number}.parquet"
        pq.write_table(events.slice(number * size, size), path)
        os.utime(path, (number + 1, number + 1))
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        matches = ensue.match(
            stream.parquet(str(folder)),
            QUERY,
            time="t",
            type="type",
            watermark=1,
            options=[ensue.Limits(memory=memory), ensue.StreamOptions(key_groups=1)],
        )
        return ensue.start(
            matches,
            lambda frame, _: found.extend(row.match_id for row in frame.collect()),
            checkpoint=tmp_path / "checkpoint",
            once=True,
            flush=number == 3,
        )

    # each run is a stream of its own, with other workers' folders, and the last has no limit
    queries = [run(number, memory) for number, memory in enumerate(["300 KB"] * 3 + [None])]
    progress = [done for query in queries[:3] for done in query.progress() if done.events]
    assert all(done.stored_keys > 1_000 for done in progress)
    assert progress[-1].misses > 100
    assert progress[-1].stored_bytes > 10_000
    wanted = ensue.match(events, QUERY, time="t", type="type")
    assert Counter(found) == Counter(wanted["match_id"].to_pylist())
