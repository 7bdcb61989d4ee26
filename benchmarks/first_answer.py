"""How long the first answer takes: of a new query, and of the first example in README.md.

Every measurement is a process of its own: two of them share a cache folder, which is empty at
first. A new query is asked in a process that has run another one. The example is all that its
process does; its modules are there as bytecode, as those of an installed package are. A third
process has imported NumPy, Arrow and pandas before: its imports and answer are those of Ensue alone.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

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
