"""A stream gives the matches of the batch run, however it is cut, delayed or interrupted.

What Spark does around key groups is done here in process: see `support.lanes`.
"""

import json
import pickle
from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import ensue
from ensue import reference as semantics
from ensue.engine.reference_events import read_events
from ensue.engine.state_format import serialize_table
from ensue.errors import QueryError, StateError
from ensue.planner.planner_options import PlannerOptions
from ensue.planner.statistics import Statistics
from ensue.runtime.tasks import task_state as key_group_state
from ensue.runtime.tasks.micro_batch import TaskResult, run_task
from ensue.runtime.tasks.task_state import TaskCache
from ensue.runtime.workload import Workload
from ensue.vector.event_table import get_end_times
from samples.stocks import stocks
from support.edges import random_edges
from support.groups import random_groups
from support.key_groups import DictStore, Stream, delayed, tables_of, workload_of
from support.queries import random_query, random_repeats
from support.seeds import in_blocks
from support.streams import PLAIN, Nature, random_events, random_nature, random_slices
from support.task_caches import forget_live

SEEDS = 400
WRITERS = ((random_query, random_query, random_repeats), (random_groups,), (random_edges,))

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch):
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)


def job_for(query: str, events: pa.Table, nature: Nature = PLAIN, **options) -> Workload:
    options = {"key_groups": 3} | options
    return workload_of(query, events.schema, nature.columns, "type", ("row",), **options)


def streamed(random: Random, events: pa.Table, job: Workload, cache: TaskCache | None = None) -> pa.Table:
    arriving, delay = delayed(random, events, job.source)
    early = random.random() < 0.5
    stream = Stream(job, delay, forget=lambda: random.random() < 0.3, cache=cache, early=early)
    for piece in random_slices(random, arriving):
        stream.feed(piece)
        if random.random() < 0.5:
            stream.pause()
    stream.pause()
    matches = stream.finish()
    assert stream.late == 0
    return matches


@pytest.mark.parametrize("seeds", in_blocks(24, 100, SEEDS))
@pytest.mark.parametrize("writers", WRITERS, ids=("sequences", "groups", "edges"))
def test_any_cut_any_delay_any_crash_gives_the_matches_of_the_batch_run(seeds, writers, tmp_path, monkeypatch):
    monkeypatch.setattr("ensue.runtime.tasks.task_state.MIN_CACHED_BYTES", 0)
    streams = 0
    for seed in seeds:
        random = Random(seed)
        monkeypatch.setattr(key_group_state, "SMALL", random.choice((0, 2_000, 1 << 20)))
        nature = random_nature(random)
        text = random.choice(writers)(random, nature)
        events = random_events(random, random.randint(1, 14), nature)
        try:
            job = job_for(text, events, nature, key_groups=random.randint(1, 3))
            _ = job.chains
        except QueryError:
            continue  # not every random text is a query, and streams need WITHIN
        wanted = ensue.match(events, text, time=nature.columns, type="type", order="row")
        found = streamed(random, events, job, random.choice((None, TaskCache(tmp_path))))
        assert ids(found) == ids(wanted), f"seed {seed}: {text}"
        if (query := job.works[0].expected[0].query).having is None:
            judged = semantics.find_matches(query, read_events(events, job.source.shape.schema, job.source.shape.unit))
            assert len(judged) == wanted.num_rows, f"seed {seed}: {text}"
        streams += 1
    assert streams > len(seeds) / 2


@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("seed", range(40))
def test_a_plan_that_changes_in_a_key_group_changes_no_match(seed, tmp_path, monkeypatch):
    """Every key group plans anew after a few events, and takes what is not dearer."""
    monkeypatch.setattr("ensue.engine.adaptive.PIECE", 4)
    monkeypatch.setattr("ensue.engine.adaptive.LEAST", 4)
    monkeypatch.setattr("ensue.engine.adaptive.GAIN", 0.0)
    monkeypatch.setattr(key_group_state, "SMALL", 0)
    random = Random(seed)
    text = random.choice(
        (
            "SEQ(A a, B b, C c) WHERE [k] and a.x < b.x and b.x < c.x WITHIN 6",
            "SEQ(A a, B b, C c) WHERE a.x < c.x and a.y <= b.y WITHIN 5",
            "SEQ(A a, !C n, B b) WHERE [k] and n.x > a.x WITHIN 6",
            "SEQ(A a, B b, !C c) WHERE [k] and a.x <= b.x and a.y <= b.y WITHIN 4",
        )
    )
    events = random_events(random, 40)
    job = job_for(text, events, key_groups=2, planning=PlannerOptions(adaptive=True))
    wanted = ensue.match(events, text, time="t", type="type", order="row")
    found = streamed(random, events, job, random.choice((None, TaskCache(tmp_path))))
    assert ids(found) == ids(wanted)


@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("seed", range(40))
def test_timed_out_partial_matches_come_with_the_watermark(seed):
    random = Random(seed)
    text = random.choice(
        (
            "SEQ(A a, B b, C c) WHERE [k] WITHIN 3",
            "SEQ(A a, B b) WHERE skip_till_next_match(a, b) { [k] and b.x >= a.x } WITHIN 4",
            "SEQ(A a, !C n, B+ b[], C c) WHERE [k] and c.x > 1 WITHIN 5",
        )
    )
    events = random_events(random, 30)
    job = job_for(text, events, emit_timeouts=True)
    wanted = ensue.match(
        events, text, time="t", type="type", order="row", options=ensue.OutputOptions(emit_timeouts=True)
    )
    found = streamed(random, events, job)
    assert ids(found) == ids(wanted)
    assert sum(found["timed_out"].to_pylist()) == sum(wanted["timed_out"].to_pylist())


def ids(matches: pa.Table) -> Counter:
    return Counter(matches["match_id"].to_pylist())


# ------------------------------------------------------------------------------- time


def table(rows: str, **columns) -> pa.Table:
    """`table("A1 B2")`: an event of type A at time 1, one of type B at time 2."""
    words = rows.split()
    return pa.table(
        {
            "t": pa.array([int(w[1:]) for w in words], pa.int64()),
            "type": [w[0] for w in words],
            "row": pa.array(range(len(words)), pa.int64()),
            "k": pa.array(columns.get("k", [1] * len(words)), pa.int64()),
        }
    )


def found_by(stream: Stream) -> int:
    return tables_of(stream.delivered, 0, stream.workload.outputs[0].schema).num_rows


def test_an_event_waits_until_the_watermark_has_passed_it():
    stream = Stream(job_for("SEQ(A a, B b) WITHIN 10", table("A1"), key_groups=1), delay_ms=5)
    stream.feed(table("B3 A1"))
    assert found_by(stream) == 0
    stream.feed(table("X8"))  # the watermark is 3: B3 may have company
    stream.pause()
    assert found_by(stream) == 0
    stream.feed(table("X9"))
    assert found_by(stream) == 1


def test_where_several_watermarks_may_count_the_next_micro_batch_decides():
    job = job_for("SEQ(A a, B b) WITHIN 10", table("A1"), key_groups=1)
    stream = Stream(job, delay_ms=5, early=False)
    stream.feed(table("B3 A1 X9"))
    assert found_by(stream) == 0
    stream.pause()
    assert found_by(stream) == 1


def test_an_absence_is_noticed_by_time_alone():
    job = job_for("SEQ(A a, !B b) WHERE [k] WITHIN 5", table("A1"), key_groups=1)
    stream = Stream(job, delay_ms=0, early=False)
    stream.feed(table("A1"))
    stream.feed(table("X6", k=[2]))
    stream.pause()
    assert found_by(stream) == 0  # a B at 6 would still be in the window
    stream.feed(table("X7", k=[2]))
    assert found_by(stream) == 0
    stream.pause()  # no event, only the watermark
    assert found_by(stream) == 1


def test_an_event_exactly_as_late_as_allowed_is_in_time_and_a_later_one_is_counted():
    job = job_for("SEQ(A a, B b) WITHIN 100", table("A1"), key_groups=1, deliver_late=True)
    stream = Stream(job, delay_ms=10)
    stream.feed(table("B50"))
    stream.feed(table("A40 A39"))
    assert stream.late == 1
    result = stream.finish()
    assert stream.late_events()["t"].to_pylist() == [39]
    assert [row["a"]["t"] for row in result.to_pylist()] == [40]


def test_events_of_one_time_and_content_are_told_apart_in_ids_across_micro_batches():
    text = "SEQ(A a, B b) WITHIN 50"
    events = table("A1 A1 A1 B2 B2 B30").drop_columns(["row"])
    job = workload_of(text, events.schema, "t", "type")
    stream = Stream(job, delay_ms=0, forget=lambda: True)
    for k in range(events.num_rows):
        stream.feed(events.slice(k, 1))
        stream.pause()
    assert ids(stream.finish()) == ids(ensue.match(events, text, time="t", type="type"))


# ------------------------------------------------------------------------------- state


SEQUENCE = "SEQ(A a, B b, C c) WHERE skip_till_next_match(a, b, c) { [symbol] } WITHIN 20 seconds"


def stock_job(**options) -> Workload:
    options = {"query": SEQUENCE, "key_groups": 1} | options
    return workload_of(options.pop("query"), stocks(1).schema, "ts", "type", **options)


def run(store: DictStore, job: Workload, *given, **options) -> TaskResult:
    """A call of the only key group."""
    return run_task(store, job.chains[0], 0, *given, **options)


def matches_of(outcome: TaskResult, job: Workload) -> pa.Table:
    return tables_of(outcome.sent, 0, job.outputs[0].schema)


def test_a_large_key_group_writes_what_came_in_and_a_small_one_itself(monkeypatch):
    monkeypatch.setattr(key_group_state, "SMALL", 10_000)

    def written(query: str) -> tuple[int, int]:
        job = stock_job(query=query)
        stream = Stream(job, delay_ms=1_000)
        events = stocks(6_000, symbols=50)
        for k in range(0, 6_000, 300):
            stream.feed(events.slice(k, 300))
        return stream.stores[0, 0, 0].written, len(serialize_table(events))

    whole_day = SEQUENCE.replace("20 seconds", "1 day")
    for query in (SEQUENCE, whole_day):
        state, input = written(query)
        assert state < 2.5 * input


def test_what_a_key_group_keeps_does_not_grow_with_the_stream():
    stream = Stream(stock_job(), delay_ms=1_000, forget=lambda: True)
    sizes = []
    for seed in range(24):
        events = stocks(1_000, symbols=1_000, seed=seed)  # 10 seconds
        shifted = pa.array(np.asarray(events["ts"]) + np.timedelta64(30 * seed, "s"))
        events = events.set_column(0, "ts", shifted.cast(events.schema.field("ts").type))
        stream.feed(events)
        outcome = run(stream.stores[0, 0, 0], stream.workload, stream.watermark_ms)
        stored = sum(len(v) for v in stream.stores[0, 0, 0].values.values() if isinstance(v, bytes))
        sizes.append((outcome.counters.state_bytes, stored))
    early, later = sizes[: len(sizes) // 2], sizes[len(sizes) // 2 :]
    assert max(s for s, _ in later) < 1.5 * max(s for s, _ in early)
    assert max(s for _, s in later) < 1.5 * max(s for _, s in early)


def test_another_process_finds_the_key_group_on_the_shelf(tmp_path, monkeypatch):
    monkeypatch.setattr("ensue.runtime.tasks.task_state.MIN_CACHED_BYTES", 0)
    job, events, store, cache = stock_job(), stocks(300), DictStore(), TaskCache(tmp_path)
    for k in range(0, 300, 100):
        forget_live()
        outcome = run(store, job, 0, [serialize_table(events.slice(k, 100))], cache=cache)
        assert outcome.counters.rebuilt == 0
        assert len(list(tmp_path.iterdir())) == 1  # the one before is gone
    forget_live()
    end = int(get_end_times(events, job.source.shape)[-1]) // 1_000 + 1
    found = run(store, job, end, cache=cache)
    assert ids(matches_of(found, job)) == ids(ensue.match(events, SEQUENCE, time="ts", type="type"))
    forget_live()
    for left in tmp_path.iterdir():
        left.unlink()
    assert run(store, job, end, cache=cache).counters.rebuilt == 1


def used_store(**options) -> DictStore:
    store = DictStore()
    run(store, stock_job(**options), 0, [serialize_table(stocks(100))])
    forget_live()
    return store


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"key_groups": 2}, "number of key groups"),
        ({"query": SEQUENCE.replace("20", "30")}, "query"),
        ({"emit_timeouts": True}, "choice of emit_timeouts"),
    ],
)
def test_a_checkpoint_of_another_job_is_refused_by_name(options, named):
    with pytest.raises(StateError, match=f"another {named}"):
        run(used_store(), stock_job(**options), 0)


def test_state_of_an_unknown_format_is_refused():
    store = used_store()
    store.put_head(replace(store.head(), format=99))
    with pytest.raises(StateError, match="format 99"):
        run(store, stock_job(), 0)


def test_damaged_state_is_refused():
    store = used_store()
    entry = store.values["entry", 0]
    store.values["entry", 0] = entry[:-1] + bytes([entry[-1] ^ 1])
    with pytest.raises(StateError, match="damaged"):
        run(store, stock_job(), 0)


def test_a_call_that_fails_leaves_the_key_group_as_it_is_in_the_store():
    """A task that dies half-way has changed the key group in memory; the retry must not see that."""
    job, events = stock_job(), stocks(1_000, symbols=5)
    store = DictStore()
    run(store, job, 0, [serialize_table(events)])
    end = int(get_end_times(events, job.source.shape)[-1]) // 1_000 + 1
    broken = pickle.loads(pickle.dumps(store))
    broken.put_entry = broken.put_parts = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        run(broken, job, end)
    again = run(store, job, end)
    assert ids(matches_of(again, job)) == ids(ensue.match(events, SEQUENCE, time="ts", type="type"))


def test_a_job_whose_text_has_an_unknown_format_is_refused():
    store = used_store()
    for format in (None, 99):
        store.put_job(json.dumps(json.loads(stock_job().texts[0]) | {"format": format}))
        with pytest.raises(StateError, match=rf"in format {format}(.|\n)*hint"):
            run(store, replace(stock_job(), key_groups=2), 0)


def test_a_job_is_what_its_text_says():
    job = stock_job(emit_timeouts=True, key_groups=7)
    assert Workload.read(job.texts).texts == job.texts


def test_a_job_keeps_how_it_was_planned():
    planning = PlannerOptions(
        statistics=Statistics.given(rates={"A": 5, "B": 1}, passes={"a.price < b.price": 0.25}),
        off=frozenset({"window"}),
        structure="runs",
    )
    job = stock_job(planning=planning)
    again = Workload.read(job.texts)
    assert again.options.planning == planning
    assert again.works[0].expected[0].plan == job.works[0].expected[0].plan
    assert again.texts == job.texts
    assert Workload.read(stock_job().texts).options.planning == PlannerOptions()


def test_a_checkpoint_goes_on_with_the_plan_it_was_written_with():
    known = PlannerOptions(statistics=Statistics.given(rates={"A": 5, "B": 1}))
    for before, after in ((known, PlannerOptions()), (PlannerOptions(), known)):
        stream = Stream(stock_job(planning=before), delay_ms=0, forget=lambda: True)
        stream.feed(stocks(100))
        other = Stream(stock_job(planning=after), delay_ms=0, forget=lambda: True)
        other.stores = stream.stores
        with pytest.raises(StateError, match="another choice of plan"):
            other.feed(stocks(100, seed=1))


@pytest.mark.parametrize("clause", ["", "WHERE [k]", "AFTER MATCH SKIP PAST LAST EVENT"])
def test_one_event_needs_no_window(clause):
    """Nothing is waited for, so as little is remembered as with one."""
    where, after = ("", clause) if clause.startswith("AFTER") else (clause, "")
    events = pa.table({"t": range(800), "type": ["A", "B"] * 400, "k": ["p", "q"] * 400})

    def streamed_and_kept(window: str) -> tuple[int, int]:
        text = f"SEQ(A a) {where} {window} {after}"
        stream = Stream(workload_of(text, events.schema, "t", "type"), 1)
        for begin in range(0, 800, 20):
            stream.feed(events.slice(begin, 20))
        (store,) = stream.stores.values()
        kept = sum(len(v) for v in store.values.values() if isinstance(v, bytes))
        return stream.finish().num_rows, kept

    matches, kept = streamed_and_kept("")
    assert matches == 400
    assert kept <= streamed_and_kept("WITHIN 5")[1] + 100
