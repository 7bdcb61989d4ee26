"""How much processor time a new query costs before its first match, with no kernel kept.

Every query is the first of its kind in a process of its own, which comes from one that has run
others: what is measured is planning, writing and compiling its kernel, not Numba's own start. A
query that takes longer than `MOST` is ended. `python -m benchmarks.compile_time` prints and writes
`benchmarks/results/compile_time.json`.
"""

import argparse
import json
import linecache
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

from benchmarks.machine import machine, sentence
from benchmarks.readme import RESULTS
from benchmarks.tables import Report

MOST = 60  # seconds of processor time
TYPES = "ABCDEFGHIJ"
EVENTS = pa.table(
    {
        "ts": pa.array(range(40), pa.int64()),
        "type": pa.array([TYPES[n * 7 % 10] for n in range(40)]),
        "k": pa.array([n % 2 for n in range(40)], pa.int64()),
        "x": pa.array([n * 13 % 17 for n in range(40)], pa.int64()),
    }
)
NEXT = "WHERE skip_till_next_match({}) {{ [k] and a.x < 30 }} WITHIN 100"


def _single(count: int) -> str:
    return ", ".join(f"{t} {t.lower()}" for t in TYPES[:count])


def _names(count: int) -> str:
    return ", ".join(TYPES[:count].lower())


def _rising(count: int) -> str:
    pairs = zip(TYPES.lower(), TYPES.lower()[1:count], strict=False)
    return " AND ".join(f"{one}.x < {other}.x" for one, other in pairs)


def _clause(pattern: str, define: str) -> str:
    return (
        "MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES count(*) AS n "
        f"ONE ROW PER MATCH PATTERN ({pattern}) DEFINE {define})"
    )


QUERIES: dict[str, str] = {
    **{
        f"SEQ of {n}, next": f"PATTERN SEQ({_single(n)}) {NEXT.format(_names(n))}"
        for n in (3, 6, 10)
    },
    **{f"SEQ of {n}, any": f"PATTERN SEQ({_single(n)}) WITHIN 100" for n in (3, 6, 10)},
    **{
        f"SEQ of {n}, any, rising": f"PATTERN SEQ({_single(n)}) WHERE {_rising(n)} WITHIN 100"
        for n in (3, 6, 10)
    },
    **{f"AND of {n}": f"PATTERN AND({_single(n)}) WITHIN 100" for n in (3, 4, 5, 6, 8)},
    **{
        f"AND of {n}, next": f"PATTERN AND({_single(n)}) {NEXT.format(_names(n))}"
        for n in (3, 4, 5, 6)
    },
    "AND of 5, rising": f"PATTERN AND({_single(5)}) WHERE {_rising(5)} WITHIN 100",
    "AND of 4 Kleene": "PATTERN AND(A+ a[], B+ b[], C+ c[], D+ d[]) WITHIN 5",
    "AND of SEQs": "PATTERN AND(SEQ(A a, B b), SEQ(C c, D d), SEQ(E e, F f)) WITHIN 100",
    "OR of 5 SEQs": "PATTERN OR(SEQ(A a, B b), SEQ(C c, D d), SEQ(E e, F f), SEQ(G g, H h), "
    "SEQ(I i, J j)) WITHIN 100",
    "Kleene": "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) "
    "{ [k] and b[i].x > avg(b[..i-1].x) } WITHIN 100",
    "4 Kleenes": "PATTERN SEQ(A+ a[], B+ b[], C+ c[], D+ d[]) WITHIN 5",
    "group {2,8}, next": "PATTERN SEQ((A a, B b){2,8}, C c) USING next WITHIN 100",
    "group {2,20}, next": "PATTERN SEQ((A a, B b, D d){2,20}, C c) USING next WITHIN 100",
    "nested groups": "PATTERN SEQ(((A a, B b){1,3}, C c){2,4}, D d) USING next WITHIN 100",
    "alternatives in a group": "PATTERN SEQ((A a | B b | C c | D d)+, E e) USING next WITHIN 100",
    "8 optional events, next": "PATTERN SEQ("
    + ", ".join(f"{t}? {t.lower()}" for t in TYPES[:8])
    + ", I i) USING next WITHIN 100",
    "8 optional events, any": "PATTERN SEQ("
    + ", ".join(f"{t}? {t.lower()}" for t in TYPES[:8])
    + ", I i) WITHIN 5",
    "negations": "PATTERN SEQ(A a, !B b, C c, !D d, E e, !F f) WHERE b.x > a.x WITHIN 100",
    "AND of 4 and a negation": "PATTERN AND(A a, B b, C c, D d, !E e) WITHIN 100",
    "count of SEQ of 6": f"PATTERN SEQ({_single(6)}) WITHIN 100 RETURN COUNT(*)",
    "count of 3 Kleenes": "PATTERN SEQ(A+ a[], B+ b[], C+ c[]) WITHIN 100 RETURN COUNT(*)",
    "clause of 3": _clause("A B+ C", "B AS B.x > PREV(B.x), C AS C.x < PREV(C.x)"),
    "clause of 12, on the match": _clause(
        " ".join(f"V{n}+" for n in range(12)),
        ", ".join(f"V{n} AS sum(V{n}.x) < {9 + n} AND V{n}.x > LAST(V{n - 1}.x)"
                  for n in range(1, 12)),
    ),
}  # fmt: skip
TREES = ("SEQ of 6, any, rising", "AND of 4", "AND of 5", "AND of 6", "AND of 8")


def measured(names: list[str] | None = None) -> list[Report]:
    """For each query the processor time to its first answer, and the lines that were compiled."""
    import ensue

    asked = [(name, text, None) for name, text in QUERIES.items()]
    asked += [(name, QUERIES[name], "tree") for name in TREES]
    reports: list[Report] = []
    with tempfile.TemporaryDirectory(prefix="ensue-kernels-") as folder:
        os.environ |= {"ENSUE_CACHE": folder, "ENSUE_COMPILE": "always"}
        for text in ("PATTERN SEQ(J j, A a) WITHIN 3", QUERIES["clause of 3"]):
            ensue.match(EVENTS, text, time="ts", type="type")
        ensue.match(EVENTS, "PATTERN AND(J j, A+ a[]) WITHIN 3", time="ts", type="type")
        for name, text, structure in asked:
            called = f"{name}, tree" if structure else name
            if names is None or called in names:
                reports.append({"query": called, "text": text} | _in_a_child(text, structure))
                _say(reports[-1])
    return reports


def _in_a_child(text: str, structure: str | None) -> Report:
    here, there = multiprocessing.Pipe()
    fork = multiprocessing.get_context("fork")
    child = fork.Process(target=_measure, args=(text, structure, there))
    child.start()
    there.close()
    try:
        found: Report = here.recv()
    except EOFError:  # it was ended, or failed and has said why
        found = {"ended_after_seconds": MOST}
    child.join()
    if child.exitcode not in (0, -signal.SIGXCPU, -signal.SIGKILL):
        raise SystemExit(f"this query failed: {text}")
    return found


def _measure(text: str, structure: str | None, answer: Connection) -> None:
    import ensue

    used = int(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (used + MOST, used + MOST))
    with tempfile.TemporaryDirectory(prefix="ensue-kernels-") as folder:
        os.environ["ENSUE_CACHE"] = folder
        before = set(sys.modules)
        begun = time.process_time()
        found = ensue.match(EVENTS, text, time="ts", type="type", options=ensue.PlannerOptions(structure=structure))
        seconds = time.process_time() - begun
    new = [name for name in sys.modules if name.startswith("ensue_kernel_") and name not in before]
    texts = [linecache.cache[f"<{name}>"][2] for name in new]
    answer.send({"cpu_seconds": round(seconds, 3), "compiled_lines": sum(map(len, texts)), "matches": found.num_rows})


def _say(report: Report) -> None:
    seconds = report.get("cpu_seconds", f"> {MOST}")
    lines = report.get("compiled_lines", "?")
    print(f"{report['query']:32} {seconds:>8} s {lines:>6} lines", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_time", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="nothing is written")
    parser.add_argument("--only", nargs="+", metavar="QUERY", help="these queries")
    options = parser.parse_args()
    here = machine()
    print(sentence(here))
    reports = measured(options.only)
    if not options.quick and not options.only:
        content = json.dumps({"machine": here, "queries": reports}, indent=2)
        path = Path(RESULTS, "compile_time.json")
        path.write_text(content + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
