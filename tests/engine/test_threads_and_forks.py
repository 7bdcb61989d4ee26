"""Threads that compile, and processes that are forked meanwhile: right matches, no waiting."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pyarrow as pa
import pytest

import ensue
from ensue.codegen import kernel_cache as cache

pytestmark = pytest.mark.usefixtures("compiled")

FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
EVENTS = {"at": range(300), "type": ["ABC"[k % 3] for k in range(300)]}

# Threads compile one new kernel after the other; the main thread forks all the while.
FORKING = """
import multiprocessing, os, sys, threading, time
from concurrent.futures import ProcessPoolExecutor
import pyarrow as pa
import ensue

events = pa.table({"at": range(300), "type": ["ABC"[k % 3] for k in range(300)]})

def found(number):
    conditions = " AND ".join(f"a.at != b.at + {k}" for k in range(1, number + 2))
    query = f"SEQ(A a, B b) WHERE {conditions} WITHIN 9"
    return ensue.match(events, query, time="at", type="type").num_rows

def by_fork(number):
    child = os.fork()
    if not child:
        os._exit(0 if found(number) == wanted else 3)
    assert os.waitpid(child, 0)[1] == 0

def by_process(number):
    process = multiprocessing.get_context("fork").Process(target=found, args=(number,))
    process.start()
    process.join()
    assert process.exitcode == 0

def by_pool(number):
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        assert list(pool.map(found, [number, number])) == [wanted, wanted]

wanted = found(0)
over = threading.Event()
failed = []

def compile_on(start):
    for number in range(start, 200, 2):
        if over.is_set():
            return
        if found(number) != wanted:
            failed.append(number)

threads = [threading.Thread(target=compile_on, args=(k,), daemon=True) for k in (1, 2)]
for thread in threads:
    thread.start()
for number in range(int(sys.argv[2])):
    time.sleep(0.05 * number)
    {"fork": by_fork, "process": by_process, "pool": by_pool}[sys.argv[1]](number)
over.set()
for thread in threads:
    thread.join()
print("failed" if failed else "done")
"""


@FORKS
@pytest.mark.parametrize(
    ("way", "times"),
    [
        pytest.param("process", 4, marks=pytest.mark.slow),
        pytest.param("fork", 8, marks=pytest.mark.slow),
        pytest.param("pool", 6, marks=pytest.mark.slow),
    ],
)
def test_a_process_forked_while_threads_compile_finds_its_matches(tmp_path, way, times):
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, way, str(times)],
        env=os.environ | {"ENSUE_CACHE": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ended.stdout.strip(), ended.returncode) == ("done", 0), ended.stderr[-2000:]


QUERIES = [
    *(f"SEQ(A a, B b) WITHIN {window}" for window in (3, 6, 9)),
    *(f"SEQ(A a, B+ b[], C c) WITHIN {window}" for window in (3, 5)),
    "SEQ(A a, !B b, C c) WITHIN 6",
]


def test_threads_that_match_at_once_find_what_they_find_alone():
    events = pa.table(EVENTS)

    def rows(query: str) -> list[object]:
        return ensue.match(events, query, time="at", type="type").to_pylist()

    alone = {query: rows(query) for query in QUERIES}
    with ThreadPoolExecutor(8) as pool:
        asked = QUERIES * 6
        for query, found in zip(asked, pool.map(rows, asked), strict=True):
            assert found == alone[query]


AT_ONCE = """
import sys, threading
import pyarrow as pa, ensue
events = pa.table({"at": range(300), "type": ["ABC"[k % 3] for k in range(300)]})
ensue.match(events, "SEQ(A a, B b) WITHIN 5", time="at", type="type")
sys.setswitchinterval(1e-6)
barrier, found = threading.Barrier(8), []
def ask():
    barrier.wait()
    for last in range(3, 6):
        query = f"SEQ(A a, {', '.join(f'B b{k}' for k in range(last))}) WITHIN 5"
        found.append(ensue.match(events, query, time="at", type="type").num_rows)
threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(found))
"""


def test_threads_may_ask_the_same_new_query_at_once(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", AT_ONCE],
        env=os.environ | {"ENSUE_CACHE": str(tmp_path), "ENSUE_COMPILE": "auto"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ended.stdout.strip(), ended.stderr) == ("24", "")


def test_threads_may_compile_the_same_new_text_at_once():
    others = "\n".join(f"def other{k}(x):\n    return x" for k in range(500))
    text = f"from numba import njit\n{others}\ndef step(x):\n    return x + {os.getpid()}\n"
    barrier = Barrier(8)

    def compiled(_: int) -> int:
        barrier.wait()
        cache.is_ready(text, "step", ("int64",))
        return cache.compile_function(text, "step", ("int64",))(1)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(compiled, range(8))) == {os.getpid() + 1}


@FORKS
@pytest.mark.slow
def test_threads_that_compile_the_same_query_at_once_find_the_same(tmp_path):
    script = """
import pyarrow as pa, ensue
from concurrent.futures import ThreadPoolExecutor
events = pa.table({"at": range(300), "type": ["ABC"[k % 3] for k in range(300)]})
queries = ["SEQ(A a, B b) WITHIN 5", "SEQ(A a, B b) WITHIN 7", "SEQ(A a, B b, C c) WITHIN 5"]
def rows(query):
    return ensue.match(events, query, time="at", type="type").to_pylist()
with ThreadPoolExecutor(9) as pool:
    found = list(pool.map(rows, queries * 3))
assert found == [rows(query) for query in queries] * 3
print("done")
"""
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"ENSUE_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ended.stdout.strip(), ended.stderr) == ("done", "")


INTERRUPTED = """
import os, signal, sys
import pyarrow as pa, ensue

class Interrupting:
    sent = False
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1] and not self.sent:
            self.sent = True
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
events = pa.table({"at": range(300), "type": ["ABC"[k % 3] for k in range(300)]})

def found():
    return ensue.match(events, "SEQ(A a, B b) WITHIN 3", time="at", type="type").num_rows

try:
    print("not interrupted", found())
except KeyboardInterrupt:
    print(found())
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize(
    "moment",
    [
        "llvmlite.binding",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("numba.core.types", "numba.np.ufunc", "numba.core.typing.npydecl")
        ),
    ],
)
def test_ctrl_c_while_numba_is_loaded_is_no_harm(moment):
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, moment],
        env=os.environ | {"ENSUE_COMPILE": "always"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ended.stdout.strip(), ended.stderr) == ("100", "")
