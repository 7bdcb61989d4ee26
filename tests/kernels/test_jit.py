"""Loops run as Python until machine code pays off; both give the same, whoever compiles."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest

from ensue import cache_files as private_files
from ensue.kernels import compile_process, hashing, jit, regions
from ensue.kernels import geometry_pairs as point_sets

COMPILED = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")


class Pair(NamedTuple):
    first: np.ndarray
    second: float


READ_ONLY = np.zeros(3, np.int32)
READ_ONLY.flags.writeable = False
VALUES = [
    1, 2**63, -1.5, True, None, np.uint64(3), np.bool_(1), np.float32(1),
    np.zeros(3), np.zeros(0, np.bool_), np.zeros((2, 3), np.uint8), np.zeros((2, 3), order="F"),
    np.zeros((4, 3))[:, 1], READ_ONLY, Pair(READ_ONLY, 2.0), (1, 2), (1, np.zeros(2)),
    np.zeros(2, "datetime64[us]"),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_types_of_arguments_are_those_of_numba(value):
    from ensue.kernels.jit_cache import numba_type

    assert numba_type(jit.get_type(value)) == numba.typeof(value)


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A loop as in a process that has not called it yet, with an empty cache folder."""
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path))
    monkeypatch.setenv("ENSUE_COMPILE", "auto")
    private_files.get_cache_folder.cache_clear()

    def made(loop):
        return jit.kernel(**loop.targetoptions)(loop.py_func)

    yield made
    private_files.get_cache_folder.cache_clear()


def hashed(loop, size):
    words = np.arange(size) * 7_919
    high, low = np.zeros((2, size), np.uint64)
    loop(words, high, low)
    return high.tolist(), low.tolist()


@COMPILED
def test_short_arrays_are_not_compiled_for_and_long_ones_are(fresh):
    loop = fresh(hashing.hash_words)
    interpreted = hashed(loop, 1_000)
    assert loop._dispatcher is None
    loop._an_element = 1.0  # a second
    assert hashed(loop, 1_000) == interpreted
    assert len(loop.dispatcher.overloads) == 1


@COMPILED
def test_other_types_are_interpreted_again_until_they_pay_off(fresh):
    loop = fresh(hashing.mix_bits)
    interpreted = loop(np.uint64(5))
    loop.compile_for(np.uint64(5))
    assert loop(np.uint64(5)) == interpreted
    assert len(loop.dispatcher.overloads) == 1
    loop(np.uint32(5))
    assert len(loop.dispatcher.overloads) == 1
    assert loop._payoff.spent > 0


def test_interpreted_loops_call_no_compiled_ones():
    for loop in (hashing.hash_texts, regions.region_test, point_sets.points_distance):
        called = [loop.plain.__globals__.get(name) for name in loop.plain.__code__.co_names]
        assert any(map(callable, called))
        assert not any(isinstance(value, jit.JitFunction) for value in called)


@COMPILED
def test_loops_are_compiled_by_another_process(fresh, monkeypatch):
    loop = fresh(hashing.hash_words)
    interpreted = hashed(loop, 500)
    for name in ("SHARE", "IMPORT", "LOAD"):
        monkeypatch.setattr(jit, name, 0.0)
    monkeypatch.setattr(jit, "PATIENCE", 1e9)
    try:
        deadline = time.monotonic() + 120
        while loop._dispatcher is None or not loop._dispatcher.overloads:
            assert time.monotonic() < deadline
            assert hashed(loop, 500) == interpreted
            time.sleep(0.05)
        process = compile_process._CompileProcess.process
        assert sum(loop.dispatcher.stats.cache_hits.values()) == 1
        assert not loop.dispatcher.stats.cache_misses
        lower = min(19, os.getpriority(os.PRIO_PROCESS, 0) + compile_process.NICE)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) >= lower
        assert hashed(loop, 500) == interpreted
    finally:
        compile_process.stop_process()
    assert process.returncode is not None


STARTS = """
import os, sys
from ensue.kernels import compile_process
compile_process.request_compile(print)
print(compile_process._CompileProcess.process.pid, flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
if sys.argv[1] == "forked" and not os.fork():
    import time
    time.sleep(20)
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at the processes of Linux")
@pytest.mark.parametrize("end", ["over", "killed", "forked"])
def test_the_process_that_compiles_ends_with_its_parent(tmp_path, end):
    ended = subprocess.Popen(
        [sys.executable, "-c", STARTS, end],
        env=os.environ | {"ENSUE_CACHE": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    pid = int(ended.stdout.readline())
    ended.wait(60)
    deadline = time.monotonic() + 60
    while runs(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"  # one that nobody waits for is over, too


@pytest.mark.parametrize(("setting", "allowed"), [("auto", True), ("in_process", False)])
def test_another_process_can_be_forbidden(monkeypatch, setting, allowed):
    monkeypatch.setenv("ENSUE_COMPILE", setting)
    assert compile_process.is_allowed() == allowed


def test_no_process_is_started_where_nothing_can_be_kept(monkeypatch):
    monkeypatch.setenv("ENSUE_COMPILE", "auto")
    monkeypatch.setattr(private_files, "get_cache_folder", lambda: None)
    assert not compile_process.is_allowed()


def test_workers_start_no_process(monkeypatch):
    monkeypatch.setenv("ENSUE_COMPILE", "auto")
    monkeypatch.setitem(sys.modules, "pyspark.worker_util", None)
    assert not compile_process.is_allowed()


FIRST_USES = """
import sys
import pyarrow as pa
import ensue
events = pa.table({"t": [1, 2, 3, 4], "k": ["A", "A", "B", "B"], "n": ["x", "y", "x", "z"]})
columns = {"time": "t", "type": "k"}
def found(table):
    assert table.num_rows, table
    assert "numba" not in sys.modules
query = "SEQ(A a, !C c, B b) WHERE [n] WITHIN 9 AFTER MATCH SKIP PAST LAST EVENT RETURN a.n AS n"
found(ensue.match(events, query, **columns))
both = {"one": query, "two": "SEQ(A a, B+ b[])"}
found(ensue.match(events.take([3, 1, 0, 2]), both, **columns)["two"])
found(ensue.match(events, "SEQ(A a, B b) WHERE a.t < b.t RETURN COUNT(*)", **columns))
live = ensue.live("SEQ(A a, B b) WHERE [n]", schema=events.schema, **columns)
found(live.feed(events))
fleet = ensue.Subscriptions(time="t", location=("x", "y"))
fleet.add("near", "@(Depot)(A), A = (ARITH:n = 1)",
          regions={"Depot": "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"})
places = pa.table({"t": [1, 2], "n": [1, 2], "x": [1.0, 2.0], "y": [1.0, 2.0]})
found(ensue.match(places, fleet))
found(ensue.live(fleet, schema=places.schema, watermark=0).feed(places))
found(ensue.sql("SELECT * FROM events MATCH_RECOGNIZE (ORDER BY t MEASURES A.n AS n, sum(B.t) AS s"
    " PATTERN (A B+) DEFINE B AS sum(B.t) > 1)", tables={"events": events}))
"""


@COMPILED
def test_short_tables_first_events_and_first_subscriptions_wait_for_no_compiler(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", FIRST_USES],
        env=os.environ | {"ENSUE_CACHE": str(tmp_path), "ENSUE_COMPILE": "auto"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not [path for path in (tmp_path / "compiled").iterdir() if "." in path.name]
