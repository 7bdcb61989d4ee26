"""How long a new query takes to its first answer, in a process that has run another one.

Every measurement is a process of its own (`python -m benchmarks.first_answer`): two of them share
a folder of kernels, which is empty at first. The loops that come with Ensue are compiled once per
installation and are not part of it.
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


def _in_a_fresh_process(name: str, folder: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.first_answer", name],
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parents[1],
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
