"""A process keeps each task once, however often another process goes on with it."""

import os
import time

import pytest

from ensue.engine.memory_budget import Usage
from ensue.engine.state_format import serialize_table
from ensue.runtime.tasks import task_state as task_shelf
from ensue.runtime.tasks.micro_batch import run_task
from ensue.runtime.tasks.task_state import TaskCache, next_stamp
from ensue.runtime.workload import Workload
from samples.stocks import stocks
from support.key_groups import DictStore, Stream, workload_of
from support.task_caches import forget_live, live_tasks

SEQUENCE = "SEQ(A a, B b, C c) WHERE [symbol] and a.price < c.price WITHIN 20 seconds"


def stock_job(key_groups: int = 1) -> Workload:
    return workload_of(SEQUENCE, stocks(1).schema, "ts", "type", key_groups=key_groups)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)
    monkeypatch.setattr(task_shelf, "MIN_CACHED_BYTES", 0)
    forget_live()
    yield
    forget_live()


class Worker:
    """A process of its own as far as tasks in memory go."""

    def __init__(self) -> None:
        self.live = type(task_shelf._live)()

    def __enter__(self) -> None:
        self.before, task_shelf._live = task_shelf._live, self.live

    def __exit__(self, *_: object) -> None:
        task_shelf._live = self.before


class OfSize:
    """A task of which only the size matters."""

    def __init__(self, size: int) -> None:
        self.usage = Usage(0, size)

    def snapshot(self) -> bytes:
        return b"x"


def test_tasks_that_go_from_worker_to_worker_are_kept_once(tmp_path):
    """Each micro-batch of a task goes to the other worker."""
    workers, events = (Worker(), Worker()), stocks(400)
    stream = Stream(stock_job(key_groups=2), delay_ms=1_000, cache=TaskCache(tmp_path))
    for k in range(20):
        with workers[k % 2]:
            stream.feed(events.slice(20 * k, 20))
            assert len(live_tasks()) <= 2
    assert len(list(tmp_path.iterdir())) == 2


def test_without_a_folder_a_stale_task_goes_when_the_task_comes_back():
    workers, events = (Worker(), Worker()), stocks(400)
    stream = Stream(stock_job(key_groups=1), delay_ms=1_000)
    for k in range(20):
        with workers[k % 2]:
            stream.feed(events.slice(20 * k, 20))
    assert [len(w.live) for w in workers] == [1, 1]


def test_a_worker_drops_tasks_that_another_one_has_gone_on_with(tmp_path):
    """It does not wait until they come back: there may be many workers."""
    here, there = Worker(), Worker()
    cache, (one, other) = TaskCache(tmp_path), (DictStore(), DictStore())
    blob = serialize_table(stocks(50))
    with here:
        run_task(one, stock_job().chains[0], 0, 0, [blob], cache=cache)
        run_task(other, stock_job().chains[0], 0, 0, [blob], cache=cache)
        assert len(live_tasks()) == 2
    with there:
        run_task(one, stock_job().chains[0], 0, 0, [blob], cache=cache)
    with here:
        run_task(other, stock_job().chains[0], 0, 0, [blob], cache=cache)
        assert [stamp for stamp, _ in live_tasks()] == [other.head().stamp]


def test_streams_of_one_query_keep_tasks_of_their_own():
    """Two streams with the same query in one process do not drive each other out."""
    stores, blob = [DictStore() for _ in range(3)], serialize_table(stocks(50))
    for _ in range(4):
        for store in stores:
            assert run_task(store, stock_job().chains[0], 0, 0, [blob]).counters.rebuilt == 0
    assert len(live_tasks()) == 3


def test_a_restarted_stream_finds_its_task_and_leaves_no_other(tmp_path):
    """A micro-batch that is not committed leaves a task and a copy that nobody wants."""
    cache, store, blob = TaskCache(tmp_path), DictStore(), serialize_table(stocks(50))
    run_task(store, stock_job().chains[0], 0, 0, [blob], cache=cache)
    for _ in range(5):
        before = dict(store.values)
        run_task(store, stock_job().chains[0], 0, 0, [blob], cache=cache)
        store.values = before
        assert run_task(store, stock_job().chains[0], 0, 0, [blob], cache=cache).counters.rebuilt == 1
        assert len(live_tasks()) == 1
        assert len(list(tmp_path.iterdir())) == 1


def test_tasks_in_memory_are_bounded_by_bytes(monkeypatch):
    monkeypatch.setattr(task_shelf, "MAX_CACHED_BYTES", 100)
    cache = TaskCache()
    stamps = [next_stamp(b"") for _ in range(5)]
    for stamp in stamps:
        cache.put(stamp, OfSize(40))
    assert [stamp for stamp, _ in live_tasks()] == stamps[-2:]
    large = next_stamp(b"")
    cache.put(large, OfSize(1_000))  # one task is always kept
    assert [stamp for stamp, _ in live_tasks()] == [large]
    assert cache.take(large) is not None
    assert not live_tasks()


def test_tasks_in_memory_are_bounded_by_number(monkeypatch):
    monkeypatch.setattr(task_shelf, "MAX_CACHED_TASKS", 3)
    for _ in range(10):
        TaskCache().put(next_stamp(b""), OfSize(1))
    assert len(live_tasks()) == 3


def test_a_stamp_says_which_task_it_is_of():
    first = next_stamp(b"")
    second = next_stamp(first)
    assert len(first) == len(second) == 16
    assert first[:8] == second[:8] != next_stamp(b"")[:8]
    assert first != second


def test_a_task_that_was_built_from_the_store_is_left_for_others_too(tmp_path):
    """Also in a micro-batch that changes nothing of it."""
    cache, store = TaskCache(tmp_path), DictStore()
    run_task(store, stock_job().chains[0], 0, 0, [serialize_table(stocks(50))], cache=cache)
    for rebuilt in (1, 0):
        forget_live()
        if rebuilt:
            (tmp_path / store.head().stamp.hex()).unlink()
        assert run_task(store, stock_job().chains[0], 0, 0, cache=cache).counters.rebuilt == rebuilt


def test_copies_that_nobody_has_asked_for_in_a_long_time_go(tmp_path, monkeypatch):
    """Streams that have ended, and workers that were killed while they wrote."""
    blob, old = serialize_table(stocks(50)), time.time() - task_shelf.MAX_AGE_SECONDS - 60
    ended, cache = DictStore(), TaskCache(tmp_path)
    run_task(ended, stock_job().chains[0], 0, 0, [blob], cache=cache)
    (tmp_path / "tmphalf").write_bytes(b"half")
    for path in tmp_path.iterdir():
        os.utime(path, (old, old))
    (tmp_path / "tmpnow").write_bytes(b"another writes it now")
    monkeypatch.setattr(task_shelf, "_swept", float("-inf"))
    begun = DictStore()
    run_task(begun, stock_job().chains[0], 0, 0, [blob], cache=cache)
    assert {p.name for p in tmp_path.iterdir()} == {begun.head().stamp.hex(), "tmpnow"}
    assert [stamp for stamp, _ in live_tasks()] == [begun.head().stamp]
