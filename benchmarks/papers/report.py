"""Writes docs/experiments.md, and the figures of docs/operators.md, from the papers' results.

`python -m benchmarks.papers.report`: every figure on the page comes from a file in
`benchmarks/results` that `make bench-papers` writes.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import fill
from typing import Any

from benchmarks.machine import sentence
from benchmarks.papers.definitions import sheets as definition_sheets
from benchmarks.papers.definitions_spark import sheets as spark_sheets
from benchmarks.papers.live_archive import sheets as live_archive_sheets
from benchmarks.papers.partial_matches import sheets as partial_sheets
from benchmarks.papers.subscription_sheets import sheets as subscription_sheets
from benchmarks.readme import TABLES, replace_block

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "experiments.md"
OPERATORS = ROOT / "docs" / "operators.md"

HEAD = """\
# The papers' experiments

`make bench-papers` measures these figures and writes this page. Variants that are compared ran in
one process over the same events, taking turns. Times are processor seconds of the kernel, without
compiling, unless stated otherwise. The matches of all variants were counted and are equal wherever
they must be.
"""


def main() -> None:
    sections = [HEAD]
    for topic, write in SECTIONS.items():
        path = RESULTS / f"papers_{topic}.json"
        if path.exists():
            result = json.loads(path.read_text())
            sections.append("\n".join([*write(result), "", f"On {sentence(result['machine'])}."]))
    PAGE.write_text("\n".join(f"{_flowed(section)}\n" for section in sections))
    if (path := RESULTS / "papers_user_operators.json").exists():
        figures = operator_figures(json.loads(path.read_text()))
        OPERATORS.write_text(replace_block(OPERATORS.read_text(), TABLES, figures))


def operator_figures(result: dict[str, Any]) -> str:
    """The table of docs/operators.md."""
    table = "\n".join(_over_built_in(result)).strip()
    return f"{table}\n\nMeasured on {sentence(result['machine'])}."


def _flowed(text: str) -> str:
    """Neighbouring lines of prose as one paragraph; tables, headings and code as they are."""
    paragraphs: list[tuple[str, bool]] = []
    fenced = False
    for line in text.splitlines():
        fence = line.startswith("```")
        fenced ^= fence
        prose = bool(line) and not fenced and not line.startswith(("#", "|", "!", "**", "```"))
        if prose and paragraphs and paragraphs[-1][1]:
            paragraphs[-1] = f"{paragraphs[-1][0]} {line}", True
        else:
            paragraphs.append((line, prose))
    return "\n".join(fill(p, 118) if prose else p for p, prose in paragraphs)


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    head = list(head)
    yield ""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(map(str, row))} |" for row in rows)
    yield ""


def _plot(name: str, what: str) -> str:
    return f"![{what}](../benchmarks/results/papers_{name}.svg)"


def negation(result: dict[str, Any]) -> Iterator[str]:
    yield "## Negation pushed into the scan (PNCEP)"
    yield "Five types with 20 % each, five places of which one is negated. *Pushed*: a"
    yield "negated event empties the stack in"
    yield "front of it. *Afterwards*: SASE's filter on whole sequences. An intermediate"
    yield "result is a sequence of positive"
    yield "events inside the window that is complete before the filter sees it."
    yield from _table(
        ("negation", "window", "matches", "throughput over the filter", "intermediate results"),
        (
            (
                case["negation"],
                case["window"],
                f"{case['matches']:,}",
                f"{case['cpu_ratio']:.1f} times",
                f"1/{case['intermediate_ratio']:.0f}",
            )
            for case in result["cases"]
        ),
    )
    yield "The paper: 13.7 to 20.2 times, 1/13 to 1/20 for windows of 500 to 900."
    yield ""
    yield _plot("negation", "throughput and intermediate results over the window")


def operators(result: dict[str, Any]) -> Iterator[str]:
    yield "## Join trees (Cesar)"
    for pattern, spread in result["shape_spread"].items():
        seconds = {name: s["cpu_seconds"] for name, s in spread["shapes"].items()}
        yield f"`{pattern}` without conditions ({spread['different_kernels']} different trees),"
        yield f"the slowest shape over the fastest: {spread['spread']:.1%}."
        yield from _table(seconds, [[f"{s:.3f} s" for s in seconds.values()]])
    yield "Conditions tested at the lowest node that sees their events, against all of them"
    yield "at the root (WE1 to WE6):"
    push = result["pushdown"]
    yield from _table(push["gain"], [[f"{g:.1f} times" for g in push["gain"].values()]])
    planner = push["planner"]
    yield f"The planner's tree is `{planner['tree']}`,"
    yield f"{planner['tree_over_best_shape']:+.1%} over the best shape;"
    yield f"given a free choice of structure it takes {planner['structure'].lower()},"
    yield f"{planner['over_best_shape']:+.1%}. The paper: 7.6 to 31 times."
    yield ""
    order = result["condition_order"]
    yield f"Orders of three conditions on one node; {order['fewest_evaluations']} tests the"
    yield "fewest:"
    yield from _table(
        ("order", "seconds", "conditions tried"),
        ((name, f"{o['cpu_seconds']:.3f}", f"{o['evaluations']:,}") for name, o in order["orders"].items()),
    )
    absent = result["negation"]
    yield f"Negation: `A -> !B -> C` takes {absent['negated_over_plain']:.2f} of the time of"
    yield "`A -> B -> C`"
    yield f"and {absent['negated_over_without']:.2f} of that of `A -> C`."
    yield ""
    yield _plot("operators_pushdown", "conditions at the lowest node and at the root, by shape")


def user_operators(result: dict[str, Any]) -> Iterator[str]:
    yield "## User-defined operators"
    yield "A user-defined sequence (Q and F in Python) against the built-in one in the"
    yield "same tree kernel:"
    yield from _over_built_in(result)
    yield _plot("user_operators", "user operators and built-in ones")


def _over_built_in(result: dict[str, Any]) -> Iterator[str]:
    rows = [
        (name + more, f"{over:+.1%}")
        for part, more in (("sequences", ""), ("attributes", ", a condition on an attribute"))
        for name, over in result[part]["over_built_in"].items()
    ]
    return _table(("variant", "processor time over built-in"), rows)


def dense(result: dict[str, Any]) -> Iterator[str]:
    yield "## Dense matches: counting without listing"
    yield "`SEQ(A a, B b, C c)`, one key, every event has one of the three types. Million"
    yield "events a second:"
    ways = [k for k, v in result["without_listing"][0].items() if isinstance(v, dict)]
    yield from _table(
        ("window", *ways),
        (
            (w["window"], *(_millions(w.get(way), "events_per_second") for way in ways))
            for w in result["without_listing"]
        ),
    )
    yield "Million matches a second when all are listed:"
    ways = [k for k, v in result["listing"][0].items() if isinstance(v, dict)]
    yield from _table(
        ("window", *ways),
        ((w["window"], *(_millions(w.get(way), "rows_per_second") for way in ways)) for w in result["listing"]),
    )
    yield _plot("dense", "events and matches a second over the window")


def _millions(figures: dict[str, Any] | None, name: str) -> str:
    return "not run" if figures is None else f"{figures[name] / 1e6:.3g}"


def several(result: dict[str, Any]) -> Iterator[str]:
    yield "## Several queries, one scan"
    yield f"{result['events']:,} events; processor milliseconds per query, in one call /"
    yield f"one by one ({result['counted']}):"
    sets = result["sets"]
    numbers = [case["queries"] for case in next(iter(sets.values()))]
    yield from _table(
        ("queries", *sets),
        (
            (
                f"{number:,}",
                *(
                    " / ".join(f"{cases[k][f'{way}_ms_per_query']:.1f}" for way in ("together", "apart"))
                    for cases in sets.values()
                ),
            )
            for k, number in enumerate(numbers)
        ),
    )
    yield _plot("several", "milliseconds a query over the number of queries")


def drift(result: dict[str, Any]) -> Iterator[str]:
    yield "## A stream that drifts"
    yield f"`{result['query']}` over {result['events']:,} events; rare and common types"
    yield "swap. Wall-clock seconds:"
    yield from _table(
        ("plan", "seconds", "changes"),
        [
            *(
                (name, f"{plan['seconds']:.2f}", len(plan.get("changes", ())) or "")
                for name, plan in result["plans"].items()
            ),
            ("the best static one of each chunk", f"{result['best_of_all_seconds']:.2f}", ""),
        ],
    )
    yield _plot("drift", "events a second over the stream, and where the plan changes")


def hierarchies(result: dict[str, Any]) -> Iterator[str]:
    yield "## Hierarchies: the EH-Tree against the flattened NFA"
    yield "A hierarchy of H levels, each a sequence of L parts with the box of the next level"
    yield "in its middle, run as one flat query: by a join tree with the hierarchy's modules"
    yield "(EH-Tree), by runs (NFA), by instance stacks. 25 event types, p = 70 %, events of a"
    yield "module have the same id. Partial matches are the mean of those alive, bytes of"
    yield "state the maximum."
    for scale, experiments in result["scales"].items():
        yield ""
        yield f"### {scale[0].upper()}{scale[1:]}"
        for name, title in HIERARCHY_TABLES.items():
            yield ""
            yield title
            yield from _table(HIERARCHY_HEAD, map(_hierarchy, experiments[name]))
        number = 1 if scale.startswith("as") else 100
        for figure in ("levels", "length", "window", "stream"):
            yield _plot(f"hierarchies_{figure}_x{number}", f"by {figure}, {scale}")


HIERARCHY_TABLES = {
    "levels": "By levels and length of a module (figures 10 to 13):",
    "window": "By window (figures 14 and 15):",
    "stream": "By stream size (figures 16 and 17):",
    "box": "The box first or last in its module, which the paper leaves out:",
}
HIERARCHY_HEAD = (
    *("H", "L", "T", "events", "box", "EH-Tree, million events/s", "NFA", "stacks"),
    *("times faster", "partial matches", "NFA", "times smaller", "matches"),
)


def _hierarchy(row: dict[str, Any]) -> Iterator[str]:
    yield from (str(row[name]) for name in ("levels", "length", "window"))
    yield from (f"{row['events']:,}", row["box"])
    for name in ("eh_tree", "nfa", "stacks"):
        yield f"{row[name]['events_per_second'] / 1e6:.3g}" if name in row else "-"
    yield f"{row['times_faster']:.2f}"
    yield from (f"{row[name]['mean_runs']:,.0f}" for name in ("eh_tree", "nfa"))
    yield f"{row['times_smaller']:.1f}"
    yield f"{row['matches']:,}"


def definitions(result: dict[str, Any]) -> Iterator[str]:
    yield "## A hierarchy of three levels, fused and by hand"
    yield "A load followed by errors is trouble, trouble and a restart are a failure, two failures"
    yield "are the match. *By hand*: one `ensue.match` per level, with a table between the levels."
    yield "*Planner*: with measured statistics. *Subscribed*: every level delivered."
    yield ""
    for sheet in definition_sheets(result):
        yield sheet.markdown()
    yield ""
    for row in result["hierarchies"]:
        yield f'The planner\'s hierarchy on the stream "{row["stream"]}":'
        yield ""
        yield "```text"
        yield row["plan"]
        yield "```"
        yield ""


def definitions_spark(result: dict[str, Any]) -> Iterator[str]:
    yield "## A hierarchy on Spark: a key change, and every level"
    yield "The same hierarchy and the same matches, with one key for all levels, or with a shuffle to"
    yield "another key below the top (one cut) and below the middle (two cuts)."
    yield ""
    for sheet in spark_sheets(result):
        yield sheet.markdown()
        yield ""


def partial_matches(result: dict[str, Any]) -> Iterator[str]:
    yield "## More partial matches than memory"
    yield "A stream whose keys go to disk beyond a limit, as their events of the last window,"
    yield "under the paper's policies and `need`. All runs find the same matches."
    yield ""
    for sheet in partial_sheets(result):
        yield sheet.markdown()
        yield ""


def archive_probe(result: dict[str, Any]) -> Iterator[str]:
    archive, rows = result["archive"], result["probes"]
    yield "## Probes of an archive"
    yield f"{archive['events']:,} events of 100,000 objects and 30 days, in"
    yield f"{archive['files']} files, {archive['bytes'] / 1e6:,.0f} MB. Processor milliseconds"
    yield "for a read by object and time, including the log and sorting the rows: warm,"
    yield "and in brackets the first read with empty caches and no file in memory."
    yield "*Clustered* is how Ensue writes an archive, *arrival* the same events in order of"
    yield "arrival, one file a day."
    probes = list(dict.fromkeys(row["probe"] for row in rows))
    by_place: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        by_place.setdefault((row["layout"], row["engine"]), {})[row["probe"]] = row
    goals = result["goals_cpu_ms"]
    yield from _table(
        ("archive", *probes),
        (
            *(
                (
                    f"{layout}, {engine}",
                    *(f"{own[n]['cpu_ms']:,.1f} ({own[n]['first_touch_cpu_ms']:,.0f})" for n in probes),
                )
                for (layout, engine), own in by_place.items()
            ),
            ("goal", *(goals.get(name, "") for name in probes)),
        ),
    )
    yield f"One core writes {archive['written_events_per_cpu_second'] / 1e6:.1f} million events a"
    yield f"second; a commit takes {archive['commit_ms']:.0f} ms."


def live_archive(result: dict[str, Any]) -> Iterator[str]:
    yield "## The stream and its past: four accesses"
    yield "Two-step sequences on both sides, joined by object; processor ms per call. All accesses"
    yield "give the same rows. *Chosen* is what the planner takes, including planning. The"
    yield "paper finds eager always more expensive than lazy, with a best sub-window in between:"
    yield "if a matcher call costs as much as thousands of events, neither is true. The chosen"
    worst = result["chosen_over_best_at_worst"]
    yield f"access takes at most {worst:.2f} times as long as the best."
    yield "*100 times* means 100 times the events, with the same window, more objects, and"
    yield "more selective conditions, so there are rather fewer live matches. Times are the best"
    yield "of several runs over one archive, so without compiling and with the index of a table in"
    yield "memory."
    yield ""
    for sheet in live_archive_sheets(result):
        yield sheet.markdown()
        yield ""


def subscriptions(result: dict[str, Any]) -> Iterator[str]:
    yield "## Subscriptions: left, arrived, strayed"
    yield f"{result['subscriptions']:,} subscriptions of a kind, then {result['events']:,} events"
    yield "at 2,000 a second; every two events, for a convoy every four, form a match. On the"
    yield "streams *parked* and *elsewhere* one event in a hundred is part of a match; the others"
    yield "satisfy somebody's atom, or nobody's. All systems compared find every planted match"
    yield "(`select = latest`); the paper found 71 % of them."
    runs = [run["queries"]["queries"] for run in result["runs"] if "queries" in run]
    yield f"*List of queries*: the same in the pattern language, {max(runs)} of them run in one"
    apart = ", taken after the other times" if result.get("queries_again") else ""
    yield f"call of `ensue.match`; the total is extrapolated by the cost of one more{apart}."
    yield "*Match, times faster* is without planning on both sides, *all, times faster* includes"
    yield "adding, planning and matching, but not reading the queries."
    yield "*Fat client*: an event goes to every client with an atom that it satisfies; the clients"
    yield "match, in plain Python."
    yield ""
    for sheet in subscription_sheets(result):
        yield sheet.markdown()
        yield ""
    yield "Matches at the end of each second:"
    seconds = range(1, 1 + max(len(run["ours"]["matches_by_second"]) for run in result["runs"]))
    yield from _table(
        ("run", *map(str, seconds)),
        (
            (run["kind"], *(f"{n:,}" for n in run["ours"]["matches_by_second"]))
            for run in result["runs"]
            if run["stream"] == "paper"
        ),
    )


def routing(result: dict[str, Any]) -> Iterator[str]:
    atoms = result["spreads"][0]["atoms"]
    yield f"## Routing to {atoms:,} atoms"
    yield "40 % of the atoms are a type and an id, 30 % a region, 20 % a region and a range, 10 %"
    yield "ranges. *Even*: events are spread evenly; *cities*: they cluster in fifty places."
    yield "Processor time, from Arrow tables to pairs of event and atom, one core. *Loop*: a"
    yield "compiled loop over the atoms of an event's type, in the order they were added; its"
    yield "pairs are the same."
    yield ""
    yield from _table(
        ("events", "events/s", "pairs an event", "times the loop", "bytes an atom"),
        (
            (
                spread["name"],
                f"{spread['events_per_second']:,.0f}",
                f"{spread['matches_per_event']:.1f}",
                f"{spread['tried']['as added']['ratio']:,.0f}",
                f"{spread['bytes_per_atom']:.0f}",
            )
            for spread in result["spreads"]
        ),
    )
    changes = result["spreads"][0]["changes"]
    yield ""
    yield from _table(
        ("change", "p50, µs", "p99, µs", "max, ms"),
        (
            (name, f"{us['p50']:.0f}", f"{us['p99']:,.0f}", f"{us['max'] / 1_000:.0f}")
            for name, us in (
                ("add, with reading its region", changes["add_us"]),
                ("add", changes["add_without_reading_regions_us"]),
                ("cancel", changes["cancel_us"]),
            )
        ),
    )


SECTIONS = {
    "live_archive": live_archive,
    "negation": negation,
    "operators": operators,
    "user_operators": user_operators,
    "dense": dense,
    "several": several,
    "drift": drift,
    "hierarchies": hierarchies,
    "definitions": definitions,
    "definitions_spark": definitions_spark,
    "partial_matches": partial_matches,
    "archive_probe": archive_probe,
    "subscriptions": subscriptions,
    "routing": routing,
}


if __name__ == "__main__":
    main()
