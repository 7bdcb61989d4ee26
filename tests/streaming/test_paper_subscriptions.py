"""Every table and run of the paper on Spark: all of them as one set over one stream."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.paper_subscriptions import BORDERS, VARIABLES

import ensue

pytestmark = pytest.mark.spark

CASES = [*BORDERS, *VARIABLES]
SCHEMA = pa.schema(
    {"ts": pa.int64(), "kind": pa.string(), "number": pa.int64(), "x": pa.float64(),
     "y": pa.float64(), "story": pa.int64()}
)  # fmt: skip


def fleet() -> "ensue.Subscriptions":
    """A subscription for each case, which sees the events of its own story only."""
    found = ensue.Subscriptions(time="ts", location=("x", "y"))
    for number, case in enumerate(CASES):
        text = case.opsl
        for kind in "abcde":
            text = text.replace(f"(STRING:kind = '{kind}')", f"(STRING:kind = '{kind}', ARITH:story = {number})")
        found.add(str(number), text if "within" in text else f"{text}, within = 100")
    return found


def events() -> pa.Table:
    rows = [row | {"story": n} for n, case in enumerate(CASES) for row in case.events]
    return pa.Table.from_pylist(sorted(rows, key=lambda row: row["ts"]), SCHEMA)


def named(found: pa.Table) -> list[tuple[str, str]]:
    return sorted(
        (row["subscription"], " ".join(sorted(f"{m['kind']}{m['number']}" for m in row["members"])))
        for row in found.to_pylist()
    )


def wanted() -> list[tuple[str, str]]:
    return sorted((str(n), " ".join(sorted(m.split()))) for n, c in enumerate(CASES) for m in c.matches)


def test_here() -> None:
    assert named(ensue.match(events(), fleet())) == wanted()


@pytest.mark.slow
def test_batch(spark) -> None:
    frame = spark.createDataFrame(events().to_pandas()).repartition(3)
    assert named(ensue.match(frame, fleet()).toArrow()) == wanted()


@pytest.mark.slow
def test_stream(spark, tmp_path) -> None:
    (tmp_path / "events").mkdir()
    for number, begin in enumerate(range(0, events().num_rows, 15)):
        path = tmp_path / "events" / f"{number:03}.parquet"
        pq.write_table(events().slice(begin, 15), path)
        os.utime(path, (1_700_000_000 + number,) * 2)
    columns = "ts long, kind string, number long, x double, y double, story long"
    reader = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
    frame = reader.parquet(str(tmp_path / "events"))
    matches = ensue.match(frame, fleet(), watermark=0, options=ensue.StreamOptions(key_groups=3))
    ensue.start(matches, tmp_path / "out", checkpoint=tmp_path / "checkpoint", once=True, flush=True)
    assert named(pq.read_table(tmp_path / "out")) == wanted()
