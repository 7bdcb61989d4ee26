"""Operators of users beside built-in ones: `python -m benchmarks.papers.user_operators [--quick]`.

All variants of an experiment run over the same events in one process, turn by turn, in the same
join-tree kernel, compiled before the clock starts. Those that mean the same must find the same
matches. Times are those of the kernel: neither scanning nor taking out matches. Ratios are of the
least processor time of all rounds.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

import ensue
from benchmarks.machine import machine
from benchmarks.papers.operators import events, in_turns, least, planned, report_of
from benchmarks.tables import Sheet

RESULTS = Path(__file__).parent.parent / "results"
CONDITION = "a.x1 < 0.5 * b.x1"

console = Console(width=140, highlight=False)
Report = dict[str, Any]

OPERATORS = [
    # The Q and F of the built-in sequence, written by a user.
    ensue.operator("then", q=lambda a, b: a.end <= b.start, f=lambda a, b: (a.start, b.end), cost=1.0, passes=0.5),
    # The paper's second example: F makes the result an instant.
    ensue.operator("at_once", q=lambda a, b: a.end <= b.start, f=lambda _, b: (b.end, b.end)),
    # A result with an attribute of its own, which the query asks for.
    ensue.operator(
        "rise", q=lambda a, b: a.end <= b.start, f=lambda a, b: (a.start, b.end, b.x1 - a.x1), z={"by": "float"}
    ),
    # The paper's first example.
    ensue.operator("dedup", over="repeat", q=lambda last, e, period: e.start - last.start >= period),
    ensue.operator("any_of", over="each", q=lambda e: e.start >= 0),
]


def sequences(size: int, times: int) -> Report:
    """A -> B -> C by the built-in operator and by operators of users, left-deep."""
    table = events(size, "ABC")
    tail = f"WHERE {CONDITION} WITHIN 120"
    texts = {
        "built-in": f"SEQ(SEQ(A a, B b), C c) {tail}",
        "user's Q and F": f"then(then(A a, B b) r, C c) s {tail}",
        "user's, the result an instant": f"at_once(at_once(A a, B b) r, C c) s {tail}",
    }
    shape = (("a", "b"), "c")
    found = in_turns(
        {name: planned(text, table, shape, definitions=OPERATORS) for name, text in texts.items()}, table, times
    )
    built_in = least(found["built-in"])
    return {
        "patterns": texts,
        "events": size,
        "variants": report_of(found, size),
        "over_built_in": {n: least(r) / built_in - 1 for n, r in found.items() if n != "built-in"},
    }


def attributes(size: int, times: int) -> Report:
    """A condition on an attribute that F computes, beside the same condition on the events."""
    table = events(size, "ABC")
    texts = {
        "built-in": "SEQ(SEQ(A a, B b), C c) WHERE b.x1 - a.x1 > 800 WITHIN 120",
        "user's": "SEQ(rise(A a, B b) r, C c) WHERE r.by > 800 WITHIN 120",
    }
    shape = (("a", "b"), "c")
    found = in_turns(
        {name: planned(text, table, shape, definitions=OPERATORS) for name, text in texts.items()}, table, times
    )
    return {
        "patterns": texts,
        "events": size,
        "variants": report_of(found, size),
        "over_built_in": {"user's": least(found["user's"]) / least(found["built-in"]) - 1},
    }


def repeats(size: int, times: int) -> Report:
    """De-duplication beside a user's operator that lets all pass, and beside a Kleene closure."""
    table = events(size, "ABC")
    texts = {
        "all pass": "SEQ(any_of(A a) d, B b) WITHIN 12",
        "Kleene": "SEQ(A+ a[], B b) WITHIN 12",
        "dedup": "SEQ(dedup(A a, 12) d, B b) WITHIN 12",
    }
    found = in_turns(
        {name: planned(text, table, definitions=OPERATORS) for name, text in texts.items()}, table, times, same=False
    )
    return {
        "patterns": texts,
        "events": size,
        "variants": report_of(found, size),
        "dedup_over_kleene": least(found["dedup"]) / least(found["Kleene"]) - 1,
    }


# -------------------------------------------------------------------------------------- results


def sheets(said: Report) -> list[Sheet]:
    """The figures side by side."""
    titles = {"sequences": "a sequence", "attributes": "an attribute", "repeats": "repeats"}
    return [
        Sheet(
            title,
            ("variant", "seconds", "events a second", "matches"),
            tuple(
                (name, f"{v['cpu_seconds']:.4f}", f"{v['events_per_second']:,.0f}", f"{v['matches']:,}")
                for name, v in said[key]["variants"].items()
            ),
        )
        for key, title in titles.items()
    ]


def plot(said: Report, folder: Path) -> None:
    """Bars: events a second of each variant."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(said), figsize=(4 * len(said), 3.6))
    for axis, (name, report) in zip(axes, said.items(), strict=True):
        rates = {n: v["events_per_second"] / 1e6 for n, v in report["variants"].items()}
        drawn = axis.bar(range(len(rates)), list(rates.values()), color="#4c78a8")
        axis.bar_label(drawn, fmt="%.3g")
        axis.set_xticks(range(len(rates)), [n.replace(", ", ",\n") for n in rates], fontsize=7)
        axis.set_title(name)
        axis.set_ylabel("million events a second")
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(folder / "papers_user_operators.svg")
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures everything; with --quick fewer events, and nothing is written."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.user_operators")
    parser.add_argument("--quick", action="store_true", help="fewer events, nothing is written")
    parser.add_argument("--times", type=int, default=7, help="how often everything is run")
    options = parser.parse_args(argv)
    scale = 10 if options.quick else 1
    here = machine()
    experiments: dict[str, Callable[[], Report]] = {
        "sequences": partial(sequences, 100_000 // scale, options.times),
        "attributes": partial(attributes, 100_000 // scale, options.times),
        "repeats": partial(repeats, 1_000_000 // scale, options.times),
    }
    said = {name: run() for name, run in experiments.items()}
    for sheet in sheets(said):
        console.print(sheet.rich())
    for name in ("sequences", "attributes"):
        for variant, more in said[name]["over_built_in"].items():
            console.print(f"{name}, {variant}: {more:+.1%} beside the built-in one")
    if not options.quick:
        RESULTS.mkdir(parents=True, exist_ok=True)
        content = json.dumps({"machine": here, **said}, indent=2)
        (RESULTS / "papers_user_operators.json").write_text(content + "\n", encoding="utf-8")
        plot(said, RESULTS)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
