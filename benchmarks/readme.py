"""Rewrites the figures in the README from the files of results: `python -m benchmarks.readme`."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.machine import sentence
from benchmarks.tables import (
    Report,
    Sheet,
    by_hand_sheet,
    esper_sheet,
    first_answer_sheet,
    latency_sheet,
    live_latency_sheet,
    live_sheet,
    local_sheet,
    peers_sheet,
    per_key_sheet,
    row_pattern_growth_sheet,
    row_pattern_sheet,
    row_pattern_spark_sheet,
    row_pattern_stream_sheet,
    soak_sheet,
    spark_sheet,
    streaming_sheet,
)

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "README.md"
START, END = "<!-- bench:start -->", "<!-- bench:end -->"

Draw = Callable[[Sequence[Report]], Sheet]
_TABLES: tuple[tuple[str, str, Draw], ...] = (  # file, part of it, table
    ("local.json", "queries", local_sheet),
    ("spark.json", "queries", spark_sheet),
    ("streaming.json", "throughput", streaming_sheet),
    ("streaming.json", "per_key", per_key_sheet),
    ("streaming.json", "latency", latency_sheet),
    ("live.json", "latency", live_latency_sheet),
    ("live.json", "throughput", live_sheet),
    ("soak.json", "runs", soak_sheet),
    ("first_answer.json", "queries", first_answer_sheet),
    ("row_patterns.json", "tables", row_pattern_sheet),
    ("row_patterns.json", "growth", row_pattern_growth_sheet),
    ("row_patterns.json", "spark", row_pattern_spark_sheet),
    ("row_patterns.json", "stream", row_pattern_stream_sheet),
    ("by_hand.json", "questions", by_hand_sheet),
    ("peers.json", "queries", peers_sheet),
    ("esper.json", "queries", esper_sheet),
)


def main() -> None:
    """Puts the tables between the marks; says so if there is no place for them."""
    if not README.exists() or START not in (text := README.read_text(encoding="utf-8")):
        print(f"README.md has no {START}: its figures are left as they are")
        return
    README.write_text(replaced(text, block(RESULTS)), encoding="utf-8")


def replaced(text: str, block: str) -> str:
    """A page with the block between its marks.

    >>> replaced(f"a {START} old {END} b", "new").split()
    ['a', '<!--', 'bench:start', '-->', 'new', '<!--', 'bench:end', '-->', 'b']
    """
    before, _, rest = text.partition(START)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"README.md has {START} without {END}")
    return f"{before}{START}\n{block}\n{END}{after}"


def block(folder: Path) -> str:
    """The tables of all files of results, each with its machine."""
    parts = []
    machines = set()
    for name, part, draw in _TABLES:
        path = folder / name
        if not path.exists():
            continue
        results = json.loads(path.read_text(encoding="utf-8"))
        if not results.get(part):  # it was left out
            continue
        parts.append(draw(results[part]).markdown())
        machines.add(sentence(results["machine"]))
    parts.extend(f"Measured on {machine}." for machine in sorted(machines))
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
