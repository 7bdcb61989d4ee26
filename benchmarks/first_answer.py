"""How long the first answer takes: of a new query, and of the first example in README.md.

Every measurement is a process of its own: two of them share a cache folder, which is empty at
first. A new query is asked in a process that has run another one. The example is all that its
process does; its modules are there as bytecode, as those of an installed package are. A third
process has imported NumPy, Arrow and pandas before: its imports and answer are those of Ensue alone.
`kinds` asks one query of every kind in processes that do nothing else: they read the events from an
Arrow file, so what is measured is Python, NumPy, Arrow, Ensue and the answer.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from benchmarks.timing import Clock
from benchmarks.workloads import FEW_KEYS, WARM_UP, WORKLOADS, events

ROWS = 100_000
NAMES = ("next, unary", "next, correlated", "Kleene", "any, sparse")
Report = dict[str, object]
ROOT = Path(__file__).resolve().parents[1]
IMPORTS = "import pyarrow as pa\n\nimport ensue\n"
AFTER_PANDAS = """
import time

import numpy, pandas, pyarrow, pyarrow.compute

events = pandas.DataFrame({"t": [1, 2], "kind": ["A", "B"]})
python = time.process_time()
import ensue

imported = time.process_time()
ensue.match(events, "SEQ(A a, B b) WITHIN 5", time="t", type="kind")
"""
MEASURED = """
import json, resource, sys
whole = time.process_time()
beside = sys.modules.get("ensue.kernels.compile_process")
if beside is not None:
    beside.stop_process()
children = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({
    "python_cpu_seconds": python,
    "import_cpu_seconds": imported - python,
    "answer_cpu_seconds": whole - imported,
    "cpu_seconds": whole,
    "children_cpu_seconds": children.ru_utime + children.ru_stime,
    "modules": len(sys.modules),
    "numba": "numba" in sys.modules,
}))
"""

KIND_ROWS = (1_000, 100_000)
READ = """
import time
python = time.process_time()
import pyarrow as pa
with pa.memory_map({path!r}) as file:
    events = pa.ipc.open_file(file).read_all()
import ensue
imported = time.process_time()
"""
MATCH = """found = ensue.match(events, {query!r}, time="ts", type={type!r})"""
FEED = """live = ensue.live({query}, schema=events.schema{options})
found = [live.feed(events.slice(at, 100)) for at in range(0, events.num_rows, 100)]
found = pa.concat_tables([*found, live.finish()])"""
SUBSCRIBE = """watched = ensue.Subscriptions(time="ts", type="type")
for n in range(10):
    watched.add(f"{n}", f"=|(A; 300 seconds)B, A = (STRING:symbol = 'SYM0000{n}', ARITH:volume > 1500),"
                f" B = (STRING:symbol = 'SYM0000{n}', ARITH:volume < 500)")
"""
CLAUSE = """SELECT * FROM events MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts
MEASURES A.ts AS begin, LAST(DOWN.price) AS bottom, LAST(UP.price) AS top
PATTERN (A DOWN+ UP+) DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price))"""
RISES = """EVENT Rise AS SEQ(A a, B b)
WHERE skip_till_next_match(a, b) {{ [symbol] and b.price > a.price }} WITHIN 60 seconds RETURN b.price AS price;
SEQ(Rise x, C c) WHERE skip_till_next_match(x, c) {{ [symbol] and c.price < x.price }} WITHIN 60 seconds"""


def _kinds() -> dict[str, str]:
    """A program for each kind of query, between `READ` and `MEASURED`."""
    unary, correlated, kleene = (WORKLOADS[name].text(FEW_KEYS) for name in NAMES[:3])
    several = {str(least): correlated.replace("c.volume < b.volume", f"a.volume > {least}") for least in range(5)}
    pair = "A = (STRING:type = 'A', ARITH:volume > 1900), B = (STRING:type = 'B', ARITH:volume < 120)"
    opsl = (
        f"watched = ensue.Subscriptions(time='ts', type='type')\nwatched.add('one', {f'=|(A; 9 seconds)B, {pair}'!r})\n"
    )
    watch = "found = ensue.match(events, watched)"
    return {
        "pattern": MATCH.format(query=unary, type="type"),
        "Kleene": MATCH.format(query=kleene, type=None),
        "SQL MATCH_RECOGNIZE": f"found = ensue.sql({CLAUSE!r}, tables={{'events': events}})",
        "hierarchy": MATCH.format(query=RISES.format(), type="type"),
        "five queries": MATCH.format(query=several, type="type"),
        "OPSL": opsl + watch,
        "ten subscriptions": SUBSCRIBE + watch,
        "`ensue.live`": FEED.format(query=repr(unary), options=", time='ts', type='type'"),
        "`ensue.live`, subscriptions": SUBSCRIBE + FEED.format(query="watched", options=""),
    }


def kinds(times: int, rows: tuple[int, ...] = KIND_ROWS) -> list[Report]:
    """The least processor seconds of a process for each kind of query, by rows and state of the cache."""
    reports: list[Report] = []
    with tempfile.TemporaryDirectory(prefix="ensue-first-") as folder:
        for count in rows:
            table, path = events(count, max(count // 100, 10)), str(Path(folder, f"{count}.arrow"))
            with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            for name, program in _kinds().items():
                text = READ.format(path=path) + program + MEASURED
                _example(text, str(Path(folder, "unused")), folder)  # only to have the bytecode
                empty, filled = [], []
                for _ in range(times):
                    with tempfile.TemporaryDirectory(prefix="ensue-cache-") as cache:
                        empty.append(_example(text, cache, folder)["cpu_seconds"])
                        filled.append(_example(text, cache, folder)["cpu_seconds"])
                reports.append({"kind": name, "rows": count, "empty": min(empty), "filled": min(filled)})
    return reports


def measured(times: int) -> list[Report]:
    """For each query the median seconds with an empty and with a filled folder of kernels."""
    reports: list[Report] = []
    for name in NAMES:
        cold: list[float] = []
        warm: list[float] = []
        cpu: list[float] = []
        process: list[float] = []
        found: set[float] = set()
        for _ in range(times):
            with tempfile.TemporaryDirectory(prefix="ensue-kernels-") as folder:
                for seconds in (cold, warm):
                    answer = _in_a_fresh_process(name, folder)
                    seconds.append(answer["seconds"])
                    cpu.append(answer["cpu_seconds"])
                    found.add(answer["matches"])
                process.append(answer["warm_up_seconds"])  # of the second: its kernel is there
        assert len(found) == 1, f"{name}: different answers {found}"
        reports.append(
            {
                "query": name,
                "matches": found.pop(),
                "cold_seconds": statistics.median(cold),
                "best_cold_seconds": min(cold),
                "cold_cpu_seconds": min(cpu[::2]),
                "warm_seconds": statistics.median(warm),
                "best_warm_seconds": min(warm),
                "warm_cpu_seconds": min(cpu[1::2]),
                "process_seconds": statistics.median(process),
            }
        )
    return reports


def readme_example(times: int) -> list[Report]:
    """The least processor seconds of the first example, with an empty and with a filled cache, and
    of the first query of a process that has loaded pandas."""
    block = (ROOT / "README.md").read_text("utf-8").split("```python\n")[1].split("```")[0]
    assert block.startswith(IMPORTS)
    head, tail = "import time\npython = time.process_time()\n", "imported = time.process_time()\n"
    program = f"{head}{IMPORTS}{tail}{block.removeprefix(IMPORTS)}{MEASURED}"
    warm = "filled, NumPy, Arrow and pandas loaded"
    programs = {"empty": program, "filled": program, warm: AFTER_PANDAS + MEASURED}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in programs}
    with tempfile.TemporaryDirectory(prefix="ensue-bytecode-") as bytecode:
        for each in programs.values():
            _example(each, bytecode, bytecode)  # only to have the bytecode
        for _ in range(times):
            with tempfile.TemporaryDirectory(prefix="ensue-cache-") as cache:
                for name, each in programs.items():
                    found[name].append(_example(each, cache, bytecode))
    return [
        {"cache": name, **min(answers, key=lambda answer: answer["cpu_seconds"])} for name, answers in found.items()
    ]


def _example(program: str, cache: str, bytecode: str) -> dict[str, float]:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=env | {"ENSUE_CACHE": cache, "ENSUE_COMPILE": "auto", "PYTHONPYCACHEPREFIX": bytecode},
        check=True,
    )
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _in_a_fresh_process(name: str, folder: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.first_answer", name],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"ENSUE_CACHE": folder, "ENSUE_COMPILE": "auto"},
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"the first answer of '{name}' failed:\n{done.stderr[-2000:]}")
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def _answer(name: str) -> dict[str, float]:
    workload = WORKLOADS[name]
    table = events(ROWS, FEW_KEYS)
    warm_up = Clock()
    with warm_up:
        import ensue

        ensue.match(table, WARM_UP, time="ts", type="type")
    clock = Clock()
    with clock:
        found = ensue.match(table, workload.text(FEW_KEYS), time="ts", type=workload.type)
    return {
        "warm_up_seconds": warm_up.seconds,
        "seconds": clock.seconds,
        "cpu_seconds": clock.cpu_seconds,
        "matches": found.num_rows,
    }


if __name__ == "__main__":
    print(json.dumps(_answer(sys.argv[1])))
