"""Subscriptions of many shapes: 1,000 shapes against one, and one plan against many queries.

`python -m benchmarks.papers.shapes [--quick]`. Two parts:

- *nodes*: 200,000 subscriptions in OPSL over one stream, all of one structure, and of 1,000
  structures: which operators, how they are nested, what is asked of each event, what is chosen.
  Counted are events a second of routing and matching together;
- *patterns*: many subscriptions of one Kleene shape in the pattern language, as one plan, against
  the same texts as a list of queries in one call of `ensue.match`, of which at most 100 are run.

Time is that of the processor (one thread). Subscriptions are added and kernels compiled before
the clock starts. Matches of all that ran both ways must be as many.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

import ensue
from benchmarks.machine import machine
from benchmarks.tables import Sheet
from benchmarks.timing import Clock
from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from ensue.operators.subscriptions.subscription_matcher import SubscriptionMatcher
from ensue.operators.subscriptions.subscription_set import SubscriptionSet
from ensue.options import Limits
from ensue.runtime.pipeline import run_to_end
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import StageInput

RESULTS = Path(__file__).parent.parent / "results"
MOST_APART = 100  # queries that are also run as queries
KINDS = "ABC"
SCHEMA = pa.schema({"t": pa.int64(), "type": pa.string(), "id": pa.int64(), "x": pa.int64(), "y": pa.int64()})
HERE: dict[str, Any] = {"time": "t", "type": "type"}


def events(count: int, ids: int, seed: int = 7) -> pa.Table:
    """Three types, a time that is the position, and an id for each subscription."""
    random = np.random.default_rng(seed)
    columns = [
        np.arange(count),
        pa.array(np.array(list(KINDS))[random.integers(0, 3, count)]),
        random.integers(0, ids, count),
        random.integers(0, 100, count),
        random.integers(0, 100, count),
    ]
    return pa.table(columns, schema=SCHEMA)


# ----------------------------------------------------------------------------- on nodes

OPERATORS = ("=|({0}; {t})({1})", "|=({0}; {t})({1})", "({0}) && ({1})", "({0}) || ({1})",
             "!({0}; {t})({1})")  # fmt: skip
SELECTS = ("latest", "once", "all")
ASKED = ("", ", ARITH:x > 20", ", ARITH:y < 80", ", ARITH:x > 10, ARITH:y < 90")


def structures() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Operators inside and outside, nested left or right, what is chosen, what is asked."""
    for inner, outer, side, select in product(OPERATORS, OPERATORS, (0, 1), SELECTS):
        for asked in product(ASKED[:3], ASKED[1:], ("",)):
            pair = inner.format("A", "B", t="{t}")
            whole = outer.format(*((pair, "C") if side else ("C", pair)), t="{t}")
            yield whole, select, inner, asked


def several_structures(count: int) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """As many different ones, dealt from all of them."""
    found = list(dict.fromkeys(structures()))
    return Random(5).sample(found, count)


def text_of(structure: tuple[str, str, str, tuple[str, ...]], number: int, span: int) -> str:
    """A subscription to the events of one id."""
    whole, select, _, asked = structure
    defined = ", ".join(
        f"{kind} = (STRING:type = '{kind}', ARITH:id = {number}{more})" for kind, more in zip(KINDS, asked, strict=True)
    )
    return f"{whole.format(t=span)}, {defined} WITH within = {2 * span}, select = {select}"


ONE_SHAPE = ("=|(=|(A; {t})(B); {t})(C)", "latest", "", ("", ", ARITH:x > 20", ""))


def matcher_of(texts: Sequence[tuple[str, str]], language: str) -> tuple[SubscriptionMatcher, float]:
    """All of them in one matcher, and the time it took to add them."""
    fleet = SubscriptionSet(SourceSchema(SCHEMA, **HERE).shape)
    with Clock() as clock:
        for name, text in texts:
            fleet.take(SubscriptionChange.add(name, text, language=language), 1)
    warm = _matcher(fleet)
    fed(warm, events(2_000, len(texts), seed=1))
    warm.snapshot()  # now all kernels are compiled, or loaded
    return _matcher(fleet), clock.cpu_seconds


def _matcher(fleet: SubscriptionSet) -> SubscriptionMatcher:
    matcher = SubscriptionMatcher(fleet, Limits())
    matcher.version = 1
    return matcher


def fed(matcher: SubscriptionMatcher, table: pa.Table) -> tuple[float, pa.Table]:
    """What is found, and in what time."""
    with Clock() as clock:
        found = pa.concat_tables(run_to_end(matcher, StageInput.from_events(table)))
    return clock.cpu_seconds, found


def on_nodes(shapes: int, subscriptions: int, count: int) -> dict[str, Any]:
    """So many subscriptions, dealt to so many structures."""
    span = 4 * subscriptions  # a few events of each id
    known = [ONE_SHAPE] if shapes == 1 else several_structures(shapes)
    texts = [(str(n), text_of(known[n % len(known)], n, span)) for n in range(subscriptions)]
    matcher, adding = matcher_of(texts, "opsl")
    table = events(count, subscriptions)
    seconds, found = fed(matcher, table)
    return {
        "shapes": shapes,
        "subscriptions": subscriptions,
        "nodes": matcher.subscription_set.counters()["nodes"],
        "events": count,
        "adding_seconds": adding,
        "cpu_seconds": seconds,
        "events_per_second": count / seconds,
        "matches": found.num_rows,
    }


# ----------------------------------------------------------------------------- as one plan


def kleene(number: int, window: int) -> str:
    """A subscription to the events of one id, whose other constants few events meet."""
    return (
        f"SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) {{ [id] and a.x > "
        f"{70 + number % 25} and a.id = {number} and b[i].id = {number} and c.id = {number} "
        f"and sum(b.y) > {number % 90} }} WITHIN {window}"
    )


def as_one_plan(subscriptions: int, count: int) -> dict[str, Any]:
    """The same texts as one plan and, the first of them, as a list of queries."""
    window = 20 * subscriptions  # a few events of each id
    texts = [(str(n), kleene(n, window)) for n in range(subscriptions)]
    table = events(count, subscriptions)
    matcher, adding = matcher_of(texts, "patterns")
    assert len(matcher.subscription_set.patterns.shapes) == 1
    seconds, found = fed(matcher, table)
    few = [ensue.parse(text) for _, text in texts[:MOST_APART]]
    ensue.match(table.slice(0, 2_000), few, **HERE)
    with Clock() as clock:
        apart = ensue.match(table, few, **HERE)
    together = Counter(found["subscription"].to_pylist())
    for number, result in enumerate(apart.values()):
        if together[str(number)] != result.num_rows:
            raise AssertionError(f"subscription {number} found others than its query")
    scaled = clock.cpu_seconds / len(few) * subscriptions
    return {
        "subscriptions": subscriptions,
        "events": count,
        "adding_seconds": adding,
        "cpu_seconds": seconds,
        "events_per_second": count / seconds,
        "queries": len(few),
        "queries_cpu_seconds": clock.cpu_seconds,
        "queries_scaled_seconds": scaled,
        "ratio": scaled / seconds,
        "matches": found.num_rows,
    }


# ----------------------------------------------------------------------------- sheets


def sheets(report: dict[str, Any]) -> tuple[Sheet, Sheet]:
    """Both parts as tables."""
    nodes = Sheet(
        "on nodes: one structure and many",
        ("subscriptions", "shapes", "events a second", "speed", "matches"),
        tuple(
            (
                f"{row['subscriptions']:,}",
                f"{row['shapes']:,}",
                f"{row['events_per_second']:,.0f}",
                f"{row['events_per_second'] / report['nodes'][0]['events_per_second']:.2f}",
                f"{row['matches']:,}",
            )
            for row in report["nodes"]
        ),
    )
    patterns = Sheet(
        "one Kleene shape: one plan, and a list of queries",
        ("subscriptions", "one plan, s", "list of queries, s", "ratio", "matches"),
        tuple(
            (
                f"{row['subscriptions']:,}",
                f"{row['cpu_seconds']:.2f}",
                f"{row['queries_scaled_seconds']:.2f}",
                f"{row['ratio']:.0f}",
                f"{row['matches']:,}",
            )
            for row in report["patterns"]
        ),
    )
    return nodes, patterns


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of all numbers")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    part = 10 if options.quick else 1
    report: dict[str, Any] = {
        "machine": machine(),
        "quick": options.quick,
        "counted": "processor seconds of routing and matching; subscriptions added before",
        "nodes": [on_nodes(shapes, 200_000 // part, 1_000_000 // part) for shapes in (1, 1_000 // part)],
        "patterns": [as_one_plan(count // part, 1_000_000 // part) for count in (1_000, 10_000, 100_000)],
    }
    console = Console()
    for sheet in sheets(report):
        console.print(sheet.rich())
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "papers_shapes.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
