"""Random queries on streaming DataFrames, cut and delayed at random: the matches of the batch run.

One in every test run; `pytest --everywhere` runs more. The same without Spark, by the
hundred, is in `test_key_groups.py`.
"""

import os
import warnings
from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
from ensue import reference as semantics
from ensue.backends.spark.frames import WholeStreamWarning
from ensue.engine.reference_events import read_events
from ensue.errors import QueryError
from ensue.runtime.compiled_query import compile_query
from ensue.vector.event_table import create_schema
from support.queries import random_query
from support.streams import Nature, random_events

pytestmark = pytest.mark.spark
FEW, MANY = 1, 25


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    seeds = MANY if metafunc.config.getoption("everywhere") else FEW
    metafunc.parametrize("seed", range(seeds))


def random_case(random: Random) -> tuple[str, pa.Table, Nature]:
    """A query that a stream takes, and events in which it matches."""
    nature = Nature(nulls_from=random.choice((None, 0)))
    while True:
        text, events = random_query(random, nature), random_events(random, 16, nature)
        try:
            compile_query(
                ensue.parse(text), create_schema(events.schema, time="t", type="type", order=("row",)), streaming=True
            )
        except QueryError:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if ensue.match(events, text, time="t", type="type", order="row").num_rows:
                return text, events, nature


@pytest.mark.slow
def test_any_cut_and_delay_gives_the_matches_of_the_batch_run(seed, spark, tmp_path):
    random = Random(seed)
    text, events, _ = random_case(random)
    times = np.asarray(events["t"])
    arrival = np.argsort(times + np.array([random.uniform(0, 4) for _ in times]), kind="stable")
    late = np.maximum.accumulate(times[arrival]) - times[arrival]
    (tmp_path / "events").mkdir()
    cuts = sorted(random.sample(range(1, len(times)), 2))
    for number, rows in enumerate(np.split(arrival, cuts)):
        path = tmp_path / "events" / f"{number}.parquet"
        pq.write_table(events.take(pa.array(rows)), path)
        os.utime(path, (number + 1, number + 1))
    schema = spark.createDataFrame(events.slice(0, 1)).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WholeStreamWarning)
        matches = ensue.match(
            reader.parquet(str(tmp_path / "events")),
            text,
            time="t",
            type="type",
            order="row",
            watermark=int(late.max()) + 1,
        )
    found = []
    ensue.start(
        matches,
        lambda frame, _: found.extend(row.match_id for row in frame.collect()),
        checkpoint=tmp_path / "checkpoint",
        once=True,
        flush=True,
    )
    wanted = ensue.match(events, text, time="t", type="type", order="row")
    assert Counter(found) == Counter(wanted["match_id"].to_pylist()), text
    shape = create_schema(events.schema, time="t", type="type", order=("row",))
    query = compile_query(ensue.parse(text), shape).query
    if query.having is None:
        assert len(semantics.find_matches(query, read_events(events, shape.schema, shape.unit))) == len(found)
