"""The operator paper's experiments: shapes of join trees, where and in which order conditions are
tried, and what negation costs: `python -m benchmarks.papers.operators [--quick]`.

All variants of an experiment run over the same events in one process, turn by turn, compiled
before the clock starts; they must find the same number of matches. Times are those of the kernel:
neither scanning nor taking out matches. Ratios are of the least processor time of all rounds.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

import ensue
from benchmarks import kernel
from benchmarks.machine import machine
from benchmarks.tables import Sheet
from benchmarks.timing import Runs
from ensue.ir.expression import Expr
from ensue.planner.join_tree import format_tree
from ensue.planner.physical_plan import JoinTree
from ensue.planner.planner_options import PlannerOptions, Shape
from ensue.planner.statistics import Statistics
from ensue.printing.expression_printer import format_condition
from ensue.runtime.compiled_query import CompiledQuery, compile_query
from ensue.vector.event_table import create_schema

RESULTS = Path(__file__).parent.parent / "results"

# Table 3, and the same five shapes for A -> B -> C -> D.
SHAPES: dict[str, Shape] = {
    "T1": ((("a", "b"), "c"), "d"),
    "T2": (("a", "b"), ("c", "d")),
    "T3": (("a", ("b", "c")), "d"),
    "T4": ("a", (("b", "c"), "d")),
    "T5": ("a", ("b", ("c", "d"))),
}
# Table 4: for x and y uniform in the same range, x < r * y holds for r / 2 of all pairs up to
# r = 1, and for 1 - 1 / (2 r) beyond.
CONDITIONS = {
    "WE1": ("a.x1 < 0.5 * b.x1", 1 / 4),
    "WE2": ("a.x2 < 0.25 * b.x2", 1 / 8),
    "WE3": ("a.x3 < b.x3", 1 / 2),
    "WE4": ("b.x4 < 2.5 * c.x4", 0.8),
    "WE5": ("c.x5 < 0.5 * d.x5", 1 / 4),
    "WE6": ("b.x6 < 0.125 * d.x6", 1 / 16),
}
# The same probabilities by a remainder: each costs as much, and a compiler cannot shorten it.
COSTLY = {
    "1": ("(a.x1 * b.x1) % 1.0 < 0.25", 1 / 4),
    "2": ("(a.x2 * b.x2) % 1.0 < 0.125", 1 / 8),
    "3": ("(a.x3 * b.x3) % 1.0 < 0.5", 1 / 2),
}
TREE = "planner's tree"

console = Console(width=140, highlight=False)
Report = dict[str, Any]


def events(count: int, types: str, seed: int = 1) -> pa.Table:
    """Random events of equally frequent types; their time is their position."""
    random = np.random.default_rng(seed)
    kinds = pa.array(np.array(list(types))[random.integers(len(types), size=count)])
    values = {f"x{k}": random.uniform(0, 1_000, count) for k in range(1, 7)}
    return pa.table({"t": np.arange(count), "type": kinds, **values})


def planned(
    text: str, table: pa.Table, shape: Shape | None = None, off: Sequence[str] = (), definitions: Sequence[Any] = ()
) -> CompiledQuery:
    """A query on a join tree of a shape, with the conditions in the order of the text."""
    stream = create_schema(table.schema, time="t", type="type", order=())
    planning = PlannerOptions(structure="tree", shape=shape)
    ready = compile_query(ensue.parse(text, definitions=definitions), stream, planning, off=("predicate_order", *off))
    assert isinstance(ready.plan.structure, JoinTree)
    return ready


def known(table: pa.Table) -> Statistics:
    """What the conditions let through, and how often events of each type come."""
    kinds = [str(kind) for kind in table.column("type").unique().to_pylist()]
    passes = {format_condition(_condition(text)): chance for text, chance in CONDITIONS.values()}
    return Statistics.given(rates=dict.fromkeys(kinds, 1 / len(kinds)), passes=passes)


def _condition(text: str) -> Expr:
    (condition,) = ensue.parse(f"SEQ(A a, B b, C c, D d) WHERE {text}").where
    return condition


def chosen(text: str, table: pa.Table, structure: str | None = None) -> CompiledQuery:
    """What the planner takes by itself, with the statistics of the stream."""
    stream = create_schema(table.schema, time="t", type="type", order=())
    planning = PlannerOptions(statistics=known(table), structure=structure)
    return compile_query(ensue.parse(text), stream, planning)


def in_turns(
    variants: Mapping[str, CompiledQuery], table: pa.Table, times: int, *, same: bool = True
) -> dict[str, Runs]:
    """Measures each variant once a round; all must find as many matches."""
    for ready in variants.values():
        ready.engine().process(table.slice(0, 10))
    rounds = [{name: kernel.measured(ready, table, 1) for name, ready in variants.items()} for _ in range(times)]
    found = {
        name: Runs(
            rounds[0][name].matches,
            tuple(r[name].seconds[0] for r in rounds),
            tuple(r[name].cpu_seconds[0] for r in rounds),
        )
        for name in variants
    }
    counted = {runs.matches for runs in found.values()}
    if same and len(counted) != 1:
        raise AssertionError(f"the variants found different numbers of matches: {counted}")
    return found


def least(runs: Runs) -> float:
    """Processor seconds of the least disturbed run."""
    return min(runs.cpu_seconds)


def report_of(found: Mapping[str, Runs], count: int) -> dict[str, Report]:
    return {name: runs.report(count) for name, runs in found.items()}


def spread(found: Mapping[str, Runs]) -> float:
    """How much longer the slowest takes than the fastest."""
    times = [least(runs) for runs in found.values()]
    return max(times) / min(times) - 1


# ---------------------------------------------------------------------------------- experiments


def shape_spread(size: int, times: int) -> Report:
    """T1 to T5 of the paper's pattern, and of four plain events, without conditions."""
    reports: Report = {}
    for name, pattern, window, count in (
        ("A -> !B -> C* -> D", "SEQ(A a, !B b, C* c[], D d)", 32, size),
        ("A -> B -> C -> D", "SEQ(A a, B b, C c, D d)", 80, size // 2),
    ):
        table = events(count, "ABCD")
        text = f"{pattern} WITHIN {window}"
        trees = {shape: planned(text, table, nested) for shape, nested in SHAPES.items()}
        found = in_turns(trees, table, times)
        reports[name] = {
            "pattern": text,
            "events": count,
            "shapes": report_of(found, count),
            "different_kernels": len({str(ready.plan.structure) for ready in trees.values()}),
            "spread": spread(found),
        }
    return reports


def pushdown(size: int, times: int) -> Report:
    """WE1 to WE6 at the lowest node that sees their events, against all of them at the root."""
    table = events(size, "ABCD")
    where = " and ".join(text for text, _ in CONDITIONS.values())
    text = f"SEQ(A a, B b, C c, D d) WHERE {where} WITHIN 240"
    variants = {}
    for shape, nested in SHAPES.items():
        variants[f"{shape} pushed"] = planned(text, table, nested)
        variants[f"{shape} at the root"] = planned(text, table, nested, ("predicate_placement",))
    by_planner, tree = chosen(text, table), chosen(text, table, "tree")
    assert isinstance(tree.plan.structure, JoinTree)
    found = in_turns({**variants, "planner": by_planner, TREE: tree}, table, times)
    best = min(least(found[f"{shape} pushed"]) for shape in SHAPES)
    return {
        "pattern": text,
        "events": size,
        "variants": report_of(found, size),
        "gain": {shape: least(found[f"{shape} at the root"]) / least(found[f"{shape} pushed"]) for shape in SHAPES},
        "planner": {
            "structure": type(by_planner.plan.structure).__name__,
            "over_best_shape": least(found["planner"]) / best - 1,
            "tree": format_tree(tree.plan.structure.root),
            "tree_over_best_shape": least(found[TREE]) / best - 1,
        },
    }


def condition_order(size: int, times: int) -> Report:
    """K123 to K321: the same three conditions on A -> B in every order."""
    table = events(size, "AB")
    orders = {f"K{''.join(order)}": order for order in permutations("123")}
    texts = {
        name: f"SEQ(A a, B b) WHERE {' and '.join(COSTLY[n][0] for n in order)} WITHIN 400"
        for name, order in orders.items()
    }
    found = in_turns({name: planned(t, table) for name, t in texts.items()}, table, times)
    pairs, tried = evaluations(table, orders, 400)
    return {
        "pattern": texts["K213"],
        "events": size,
        "pairs": pairs,
        "orders": {
            name: report | {"evaluations": tried[name], "expected_per_pair": _expected(order)}
            for (name, report), order in zip(report_of(found, size).items(), orders.values(), strict=True)
        },
        "best": min(found, key=lambda name: least(found[name])),
        "fewest_evaluations": min(tried, key=lambda name: tried[name]),
    }


def _expected(order: Sequence[str]) -> float:
    reached = np.cumprod([1.0, *(COSTLY[n][1] for n in order)])
    return float(reached[: len(order)].sum())


def evaluations(table: pa.Table, orders: Mapping[str, Sequence[str]], window: int) -> tuple[int, dict[str, int]]:
    """How many pairs there are, and how many conditions are tried in each order."""
    kinds = np.asarray(table.column("type").to_pylist())
    rows = {kind: np.flatnonzero(kinds == kind) for kind in "AB"}
    values = {n: np.asarray(table.column(f"x{n}")) for n in COSTLY}
    pairs, tried = 0, dict.fromkeys(orders, 0)
    for row in rows["B"]:
        low, high = np.searchsorted(rows["A"], [row - window, row])
        before = rows["A"][low:high]
        pairs += len(before)
        holds = {n: (values[n][before] * values[n][row]) % 1.0 < COSTLY[n][1] for n in COSTLY}
        for name, order in orders.items():
            left = np.ones(len(before), np.bool_)
            for number in order:
                tried[name] += int(left.sum())
                left &= holds[number]
    return pairs, tried


def negation(size: int, times: int) -> Report:
    """A -> !B -> C beside A -> B -> C (the paper) and beside A -> C, over the same events."""
    table = events(size, "ABC")
    texts = {
        "A -> B -> C": "SEQ(A a, B b, C c) WITHIN 60",
        "A -> !B -> C": "SEQ(A a, !B b, C c) WITHIN 60",
        "A -> C": "SEQ(A a, C c) WITHIN 60",
    }
    found = in_turns({name: planned(text, table) for name, text in texts.items()}, table, times, same=False)
    plain, negated, without = (least(runs) for runs in found.values())
    return {
        "patterns": texts,
        "events": size,
        "variants": report_of(found, size),
        "negated_over_plain": negated / plain,
        "negated_over_without": negated / without,
    }


# -------------------------------------------------------------------------------------- results


def sheets(said: Report) -> list[Sheet]:
    """The figures side by side."""
    push, order = said["pushdown"], said["condition_order"]
    return [
        *(
            Sheet(
                f"{name} by shape, spread {r['spread']:.1%}, {r['different_kernels']} different trees",
                ("shape", "seconds", "events a second", "matches"),
                tuple(_row(shape, v) for shape, v in r["shapes"].items()),
            )
            for name, r in said["shape_spread"].items()
        ),
        Sheet(
            "WE1 to WE6 pushed down",
            ("shape", "at the root", "pushed", "gain"),
            tuple(
                (
                    shape,
                    f"{push['variants'][f'{shape} at the root']['cpu_seconds']:.3f} s",
                    f"{push['variants'][f'{shape} pushed']['cpu_seconds']:.4f} s",
                    f"{gain:.1f} x",
                )
                for shape, gain in push["gain"].items()
            ),
        ),
        Sheet(
            "the planner's choice",
            ("choice", "seconds", "over the best shape"),
            (
                (
                    push["planner"]["structure"],
                    f"{push['variants']['planner']['cpu_seconds']:.4f}",
                    f"{push['planner']['over_best_shape']:.1%}",
                ),
                (
                    push["planner"]["tree"],
                    f"{push['variants'][TREE]['cpu_seconds']:.4f}",
                    f"{push['planner']['tree_over_best_shape']:.1%}",
                ),
            ),
        ),
        Sheet(
            f"three conditions on A -> B in every order, best {order['best']}",
            ("order", "seconds", "conditions tried a pair", "expected"),
            tuple(
                (
                    name,
                    f"{r['cpu_seconds']:.3f}",
                    f"{r['evaluations'] / order['pairs']:.3f}",
                    f"{r['expected_per_pair']:.3f}",
                )
                for name, r in order["orders"].items()
            ),
        ),
        Sheet(
            "negation",
            ("variant", "seconds", "events a second", "matches"),
            tuple(_row(name, v) for name, v in said["negation"]["variants"].items()),
        ),
    ]


def _row(name: str, report: Report) -> tuple[str, str, str, str]:
    return (name, f"{report['cpu_seconds']:.4f}", f"{report['events_per_second']:,.0f}", f"{report['matches']:,}")


def plot(said: Report, folder: Path) -> None:
    """Bars for each experiment."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    def bars(name: str, title: str, label: str, values: Mapping[str, float]) -> None:
        figure, axes = plt.subplots(figsize=(6, 3.4))
        drawn = axes.bar(list(values), list(values.values()), color="#4c78a8")
        axes.bar_label(drawn, fmt="%.3g")
        axes.set_title(title)
        axes.set_ylabel(label)
        axes.spines[["top", "right"]].set_visible(False)
        figure.tight_layout()
        figure.savefig(folder / f"papers_operators_{name}.svg")
        plt.close(figure)

    for number, (pattern, report) in enumerate(said["shape_spread"].items(), 1):
        times = {s: r["cpu_seconds"] for s, r in report["shapes"].items()}
        bars(f"shapes_{number}", f"{pattern}, no conditions", "seconds", times)
    bars("pushdown", "WE1 to WE6 pushed down", "times faster", said["pushdown"]["gain"])
    orders = {n: r["cpu_seconds"] for n, r in said["condition_order"]["orders"].items()}
    bars("order", "Three conditions on A → B", "seconds", orders)
    negated = {n: r["cpu_seconds"] for n, r in said["negation"]["variants"].items()}
    bars("negation", "Negation", "seconds", negated)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures everything; with --quick fewer events, and nothing is written."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.operators")
    parser.add_argument("--quick", action="store_true", help="fewer events, nothing is written")
    parser.add_argument("--times", type=int, default=5, help="how often everything is run")
    options = parser.parse_args(argv)
    scale = 10 if options.quick else 1
    here = machine()
    experiments: dict[str, Callable[[], Report]] = {
        "shape_spread": partial(shape_spread, 30_000 // scale, options.times),
        "pushdown": partial(pushdown, 12_000 // scale, options.times),
        "condition_order": partial(condition_order, 100_000 // scale, options.times + 4),
        "negation": partial(negation, 200_000 // scale, options.times),
    }
    said: Report = {}
    for name, run in experiments.items():
        console.print(f"{name} ...", style="dim")
        said[name] = run()
    for sheet in sheets(said):
        console.print(sheet.rich())
    if not options.quick:
        RESULTS.mkdir(parents=True, exist_ok=True)
        content = json.dumps({"machine": here, **said}, indent=2)
        (RESULTS / "papers_operators.json").write_text(content + "\n", encoding="utf-8")
        plot(said, RESULTS)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
