"""A history, then the stream: together the matches of one batch run, wherever the cut is.

What Spark does around key groups is done here in process, see `support.lanes`; Spark itself is in
`test_spark_history.py`.
"""

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
from ensue.errors import QueryError, StateError
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.tasks import backfill as past
from ensue.runtime.tasks import task_state as key_group_state
from ensue.runtime.tasks.backfill import BackfillCut
from ensue.runtime.workload import Workload
from ensue.vector.event_table import get_end_times
from support.key_groups import Stream, workload_of
from support.negations import random_negations
from support.queries import random_query, random_repeats
from support.seeds import in_blocks, scaled
from support.stages import HIERARCHIES, job_of, readings
from support.streams import random_events, random_nature, random_slices

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")
SEEDS = 400


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch):
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)


def ids(table: pa.Table) -> Counter:
    return Counter(table["match_id"].to_pylist())


def random_cut(random: Random, events: pa.Table, job: Workload) -> BackfillCut:
    """Anywhere: before the first event, at one, behind the last."""
    times = sorted(set(get_end_times(events, job.source.shape).tolist()))
    at = random.choice([*times, times[-1] + 1])
    bounds = sorted(random.sample(times, min(len(times), random.choice((0, 1, 3)))))
    return BackfillCut(at, tuple(b for b in bounds if b <= at))


def delayed(random: Random, events: pa.Table, job: Workload) -> tuple[pa.Table, int]:
    """The events in an order of arrival, and how late the latest of them comes (in ms)."""
    times = get_end_times(events, job.source.shape) / job.source.clock.per_ms
    most = random.choice((0, 0, 1, 3, 100))
    arrival = times + np.array([random.uniform(0, most) for _ in range(events.num_rows)])
    order = np.argsort(arrival, kind="stable")
    late = np.maximum.accumulate(times[order]) - times[order] if len(order) else np.zeros(1)
    return events.take(pa.array(order)), int(np.ceil(late.max())) + 1


def seamed(random: Random, events: pa.Table, job: Workload) -> Stream:
    """A stream that has begun with the history, and got the rest with some of it again."""
    cut = random_cut(random, events, job)
    times = get_end_times(events, job.source.shape)
    known = events.filter(pa.array(times < cut.at))
    shuffled = random.sample(range(len(known)), len(known))  # row says which came first
    history = known.take(pa.array(shuffled, pa.int64()))
    overlap = random.choice((0, 2, len(known)))
    again = known.slice(len(known) - min(overlap, len(known)))
    live = pa.concat_tables([again, events.filter(pa.array(times >= cut.at))])
    arriving, delay = delayed(random, live, job)
    early = random.random() < 0.5
    stream = Stream(job, delay, forget=lambda: random.random() < 0.3, early=early)
    stream.begin_with(history, cut, tasks=random.randint(1, 3))
    stream.checks_gap = False
    for piece in random_slices(random, arriving):
        stream.feed(piece)
        if random.random() < 0.5:
            stream.pause()
    stream.pause()
    assert stream.late == 0
    assert stream.before_cut <= again.num_rows  # all of those that matter
    return stream


@pytest.mark.parametrize("seeds", in_blocks(24, 100, SEEDS))
def test_history_and_stream_give_the_matches_of_one_batch_run(seeds, monkeypatch):
    streams = 0
    for seed in seeds:
        random = Random(seed)
        monkeypatch.setattr(key_group_state, "SMALL", random.choice((0, 2_000, 1 << 20)))
        monkeypatch.setattr(past, "PART", random.choice((100, 4 << 20)))
        nature = random_nature(random)
        writer = random.choice((random_query, random_query, random_repeats, random_negations))
        text = writer(random, nature)
        events = random_events(random, random.randint(1, 14), nature)
        timeouts = random.random() < 0.2
        try:
            job = workload_of(
                text, events.schema, nature.columns, "type", ("row",),
                key_groups=random.randint(1, 3), emit_timeouts=timeouts,
            )  # fmt: skip
            _ = job.chains
        except QueryError:
            continue  # not every random text is a query, and streams need WITHIN
        wanted = ensue.match(
            events,
            text,
            time=nature.columns,
            type="type",
            order="row",
            options=ensue.OutputOptions(emit_timeouts=timeouts),
        )
        found = seamed(random, events, job).finish()
        assert ids(found) == ids(wanted), f"seed {seed}: {text}"
        streams += 1
    assert streams > len(seeds) / 2


@pytest.mark.parametrize("name", HIERARCHIES)
def test_stages_one_behind_the_other_go_over_the_seam(name):
    for seed in range(scaled(3)):
        random = Random(seed)
        events = readings(random, 60)
        events = events.append_column("row", pa.array(range(60)))
        job = job_of(HIERARCHIES[name], events, streaming=True, order=("row",))
        wanted = ensue.match(events, HIERARCHIES[name], time="t", type="type", order="row")
        found = seamed(random, events, job).finish()
        assert ids(found) == ids(wanted), f"{name} {seed}"


def test_several_queries_go_over_the_seam():
    queries = {
        "pairs": "SEQ(Reading a, Reading b) WHERE [sensor] and b.value > a.value WITHIN 6",
        "silence": "SEQ(Reading a, !Stop s) WHERE [machine] WITHIN 5",
        "all": "SEQ(Stop a, Repair b) WITHIN 9",
    }
    random = Random(7)
    events = readings(random, 80).append_column("row", pa.array(range(80)))
    job = job_of(queries, events, streaming=True, order=("row",))
    found = seamed(random, events, job).end()
    wanted = ensue.match(events, queries, time="t", type="type", order="row")
    for name in queries:
        assert ids(found[name]) == ids(wanted[name]), name
        assert wanted[name].num_rows


# ------------------------------------------------------------------------------ the seam


def stream_of(text: str, delay: int = 1, **options) -> Stream:
    arrow = pa.schema({"t": pa.int64(), "type": pa.string(), "k": pa.int64()})
    return Stream(workload_of(text, arrow, "t", "type", key_groups=2, **options), delay)


def rows(*given: tuple[int, str]) -> pa.Table:
    return pa.table(
        {"t": [t for t, _ in given], "type": [type for _, type in given], "k": pa.array([1] * len(given), pa.int64())}
    )


PAIR = "SEQ(A a, B b) WHERE [k] WITHIN 10"


def test_what_the_history_had_is_counted_and_is_not_late():
    stream = stream_of(PAIR, deliver_late=True)
    stream.begin_with(rows((1, "A"), (4, "B")), BackfillCut(5))
    stream.feed(rows((1, "A"), (4, "B"), (5, "B"), (30, "A")))
    stream.feed(rows((20, "A"), (3, "B"), (31, "B")))
    assert (stream.before_cut, stream.late, stream.events) == (3, 1, 7)
    assert stream.late_events()["t"].to_pylist() == [20]
    assert sorted(stream.finish()["end"].to_pylist()) == [4, 5, 31]


def test_a_match_that_the_history_has_found_is_not_found_again():
    stream = stream_of(PAIR)
    stream.begin_with(rows((1, "A"), (4, "B")), BackfillCut(5))
    delivered = len(stream.delivered)
    assert delivered == 1
    stream.feed(rows((1, "A"), (4, "B"), (5, "X")))
    assert len(stream.delivered) == delivered


def test_a_pending_negation_of_the_history_fires_in_time():
    stream = stream_of("SEQ(A a, !B b) WHERE [k] WITHIN 10")
    stream.begin_with(rows((1, "A"), (3, "A")), BackfillCut(5))
    assert not stream.delivered
    stream.feed(rows((3, "A"), (12, "B")))  # of the first A's window nothing is left
    stream.pause()
    stream.feed(rows((30, "X")))
    assert stream.finish()["start"].to_pylist() == [1]


def test_time_that_passes_without_events_for_a_key_group_also_ends_its_windows():
    stream = stream_of("SEQ(A a, !B b) WHERE [k] WITHIN 10")
    stream.begin_with(rows((1, "A")), BackfillCut(5))
    stream.feed(pa.table({"t": [4, 40], "type": ["X", "X"], "k": [2, 2]}))
    stream.pause()
    assert len(stream.delivered) == 1


# -------------------------------------------------------------------------------- gaps


def test_a_gap_between_history_and_stream_is_named():
    stream = stream_of(PAIR)
    stream.begin_with(rows((1, "A")), BackfillCut(5))
    with pytest.raises(StateError, match=r"ends at 5, .*first event of the stream is of 8") as gap:
        stream.feed(rows((8, "B"), (9, "B")))
    assert "hint: " in str(gap.value)


def test_an_event_at_the_cut_or_before_it_shows_that_there_is_no_gap():
    for time in (3, 5):
        stream = stream_of(PAIR)
        stream.begin_with(rows((1, "A")), BackfillCut(5))
        stream.feed(rows((time, "B"), (80, "B")))
        stream.feed(rows((90, "B")))


def test_events_out_of_order_are_no_gap():
    """As long as time has not passed the cut, an event before it may come."""
    stream = stream_of(PAIR, delay=10)
    stream.begin_with(rows((1, "A")), BackfillCut(5))
    stream.feed(rows((8, "B")))
    stream.feed(rows((4, "B"), (13, "B")))
    stream.feed(rows((40, "B")))
    assert stream.before_cut == 1


def test_a_gap_is_still_seen_when_the_key_group_was_built_anew():
    stream = stream_of(PAIR, delay=10)
    stream.forget = lambda: True
    stream.begin_with(rows((1, "A")), BackfillCut(5))
    stream.feed(rows((8, "B")))
    with pytest.raises(StateError, match="is of 8"):
        stream.feed(rows((40, "B")))


def test_the_range_of_an_archive_without_statistics_is_read(tmp_path):
    from ensue.backends.spark.backfill_events import _extent

    table = pa.table({"ts": [1, 5, 9], "x": [1, 2, 3]})
    pq.write_table(table, tmp_path / "a.parquet", write_statistics=False)
    extent = _extent(ensue.archive(tmp_path, time="ts"), SourceSchema(table.schema, "ts"), None)
    assert (extent.oldest, extent.newest, extent.rows) == (1, 9, 3)
