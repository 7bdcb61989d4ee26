"""Times that are hard for a stream: before 1970, below 0, at the ends of their range.

Spark's watermark counts milliseconds from 1970 on, begins at 0 and ends where 64 bits do. Here
streams run in this process; `test_spark_times.py` has the same on streaming DataFrames.
"""

from collections import Counter
from decimal import Decimal
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import ensue
from ensue.runtime.tasks.watermark import WatermarkClock
from ensue.schema import ValueKind
from ensue.vector.event_table import get_end_times
from support.key_groups import Stream, tables_of, workload_of
from support.streams import random_slices

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")

LEAST, MOST = -(1 << 63), (1 << 63) - 1
QUERIES = (
    "SEQ(A a, B b) WHERE [k]",
    "SEQ(A a, !C c, B b) WHERE [k]",
    "SEQ(A a, !B b) WHERE [k]",
    "SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) { [k] }",
    "SEQ(!C c, A a, B b)",
)
# nothing can be behind the last of the times, or time is not counted there
STANDING = ("the greatest integers", "floats above all integers", "floats below all integers")
DAY = 86_400_000_000  # microseconds
WORLDS = {
    "integers below 0": (pa.int64(), -200, 1),
    "integers around 0": (pa.int64(), -20, 1),
    "the least integers": (pa.int64(), LEAST, 1),
    "the greatest integers": (pa.int64(), MOST - 60, 1),
    "nanoseconds in integers": (pa.int64(), 1_700_000_000_000_000_000, 1_000),
    "floats around 0": (pa.float64(), -20, 0.5),
    "floats below all integers": (pa.float64(), -1e20, 1e5),
    "floats above all integers": (pa.float64(), 1e20, 1e5),
    "decimals around 0": (pa.decimal128(12, 2), -20, 1),
    "before 1970": (pa.timestamp("us"), -7_000 * DAY, 1_000_000),
    "around 1970": (pa.timestamp("us", "UTC"), -20_000_000, 1_000_000),
    "around 1970, finer than a millisecond": (pa.timestamp("us"), -9, 1),
    "the first years": (pa.timestamp("us"), -62_135_596_800_000_000, 1_000_000),
    "nanoseconds around 1970": (pa.timestamp("ns"), -9, 1),
    "days around 1970": (pa.date32(), -20, 1),
}


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch):
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)


def random_times(random: Random, world: str, count: int) -> list[float]:
    _, begin, step = WORLDS[world]
    now, times = begin, []
    for _ in range(count):
        now += random.choice((0, 1, 1, 2)) * step
        times.append(now)
    return times


def a_table(times: list, types: str, keys: list[int], type: pa.DataType) -> pa.Table:
    if pa.types.is_decimal(type):
        times = [Decimal(t) for t in times]
    elif not pa.types.is_floating(type):
        whole = pa.int32() if pa.types.is_date(type) else pa.int64()
        return a_table_of(pa.array(times, whole).cast(type), types, keys)
    return a_table_of(pa.array(times, type), types, keys)


def a_table_of(times: pa.Array, types: str, keys: list[int]) -> pa.Table:
    rows = pa.array(range(len(types)), pa.int64())
    return pa.table({"t": times, "type": list(types), "k": keys, "row": rows})


def window_of(type: pa.DataType, step: float, steps: int) -> str:
    if pa.types.is_date(type):
        return f"{steps} days"
    if pa.types.is_timestamp(type):
        return f"{int(step * steps)} {'nanoseconds' if type.unit == 'ns' else 'microseconds'}"
    return str(step * steps)


def ids(matches: pa.Table) -> Counter:
    return Counter(matches["match_id"].to_pylist())


@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 40), marks=pytest.mark.slow)])
@pytest.mark.parametrize("world", WORLDS)
def test_matches_are_those_of_a_table_and_come_before_the_end(world, seeds):
    for seed in seeds:
        compare(world, Random(seed))


def compare(world: str, random: Random) -> None:
    type, _, step = WORLDS[world]
    count = random.randint(1, 14)
    times = random_times(random, world, count)
    types = "".join(random.choice("AABBCX") for _ in range(count))
    events = a_table(times, types, [random.randint(0, 1) for _ in range(count)], type)
    text = f"{random.choice(QUERIES)} WITHIN {window_of(type, step, random.randint(1, 6))}"
    job = workload_of(text, events.schema, "t", "type", ("row",), key_groups=2)
    late = np.array([random.choice((0, 0, 1, 3)) * step for _ in times])
    order = np.argsort(np.asarray(times, float) - times[0] + late, kind="stable")
    arriving = events.take(pa.array(order))
    passed = get_end_times(arriving, job.source.shape).astype(object) // job.source.clock.per_ms
    behind = [int(max(passed[: k + 1]) - t) for k, t in enumerate(passed)]
    delay = max(behind) + 1
    stream = Stream(job, delay, forget=lambda: random.random() < 0.3)
    for piece in random_slices(random, arriving):
        stream.feed(piece)
        stream.pause()
    assert stream.late == 0
    wanted = ensue.match(events, text, time="t", type="type", order="row")
    if world not in STANDING:
        # an event of no type that matters lets time pass: all is decided then
        far = times[-1] + 20 * step + 10 * delay * job.source.clock.per_ms
        if pa.types.is_date(type):
            far = times[-1] + 40
        stream.feed(a_table([far], "X", [0], type).cast(events.schema))
        stream.pause()
        assert ids(tables_of(stream.delivered, 0, job.outputs[0].schema)) == ids(wanted), text
    assert ids(stream.finish()) == ids(wanted), text


@pytest.mark.parametrize("world", ["integers below 0", "before 1970", "nanoseconds in integers"])
def test_what_is_late_is_late_also_where_spark_has_no_watermark(world):
    type, begin, step = WORLDS[world]
    schema = a_table([begin], "A", [0], type).schema
    text = f"SEQ(A a, B b) WHERE [k] WITHIN {window_of(type, step, 50)}"
    job = workload_of(text, schema, "t", "type", ("row",), key_groups=2, deliver_late=True)
    delay = 10 * int(step) // job.source.clock.per_ms
    for crash in (False, True):
        stream = Stream(job, delay, forget=lambda crash=crash: crash)
        stream.feed(a_table([begin + 50 * step], "X", [0], type))  # for one of the key groups alone
        stream.feed(a_table([begin + 40 * step, begin + 40 * step - delay], "AA", [0, 0], type))
        stream.feed(a_table([begin + 39 * step - 1] * 2, "AA", [0, 1], type))
        stream.feed(a_table([begin + 55 * step], "B", [0], type))
        assert stream.late == 3
        rows = stream.finish().to_pylist()
        assert len([row for row in rows if row["match_id"]]) == 1


def test_a_watermark_is_rounded_down_to_what_the_time_column_can_hold():
    clock = WatermarkClock(ValueKind.FLOAT, 1)
    newest = float(2**60)
    assert clock.time(int(newest) - 1) < newest
    assert clock.newest_ms(np.array([1e300])) == MOST
    assert clock.newest_ms(np.array([-1e300])) is None
    assert WatermarkClock(ValueKind.INTEGER, 1).time(LEAST - 5) == LEAST
    assert clock.timer(1e300) == MOST
