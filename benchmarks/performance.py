"""What docs/performance.md says and shows, from the result files: sentences with figures, plots, tables by topic."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import sentence
from benchmarks.plots import Plot, list_plots
from benchmarks.service import latency, messages, outbox, sse, subscribing
from benchmarks.tables import (
    Report,
    Sheet,
    by_hand_clock_sheet,
    by_hand_sheet,
    describe_question,
    esper_lengths_sheet,
    esper_sheet,
    first_answer_sheet,
    first_kinds_sheet,
    floor_sheet,
    large_sheet,
    latency_sheet,
    live_latency_sheet,
    live_sheet,
    local_sheet,
    on_all_cores,
    peers_sheet,
    per_key_sheet,
    readme_example_sheet,
    row_pattern_growth_sheet,
    row_pattern_sheet,
    row_pattern_spark_sheet,
    row_pattern_stream_sheet,
    soak_sheet,
    spark_sheet,
    streaming_sheet,
    threads_sheet,
)

Draw = Callable[[Any], Sheet | None]
WHOLE = ""  # the part that is the whole file
TOPICS: Mapping[str, tuple[tuple[str, str, Draw], ...]] = {  # file, part of it, table; a topic is a mark of the page
    "tables": (
        ("floor", "queries", floor_sheet),
        ("local", "queries", local_sheet),
        ("threads", "queries", threads_sheet),
        ("large", "reports", large_sheet),
        ("readme_example", "queries", readme_example_sheet),
        ("first_kinds", "queries", first_kinds_sheet),
        ("first_answer", "queries", first_answer_sheet),
    ),
    "compared": (
        ("by_hand", "questions", by_hand_sheet),
        ("by_hand", "questions", by_hand_clock_sheet),
        ("peers", "queries", peers_sheet),
        ("esper", "queries", esper_sheet),
        ("esper_lengths", "queries", esper_lengths_sheet),
    ),
    "live": (("live", "latency", live_latency_sheet), ("live", "throughput", live_sheet)),
    "spark": (
        ("spark", "queries", spark_sheet),
        ("streaming", "throughput", streaming_sheet),
        ("streaming", "per_key", per_key_sheet),
        ("streaming", "latency", latency_sheet),
        ("soak", "runs", soak_sheet),
    ),
    "sql": (
        ("row_patterns", "tables", row_pattern_sheet),
        ("row_patterns", "growth", row_pattern_growth_sheet),
        ("row_patterns", "spark", row_pattern_spark_sheet),
        ("row_patterns", "stream", row_pattern_stream_sheet),
    ),
    "service": (
        ("service_latency", WHOLE, latency.sheet),
        ("service_outbox", WHOLE, outbox.sheet),
        ("service_sse", "sse", sse.sheet),
        ("service_messages", WHOLE, messages.sheet),
        ("service_subscribing", WHOLE, subscribing.sheet),
    ),
}


@dataclass(frozen=True, slots=True)
class Results:
    """The files of results in a folder."""

    folder: Path

    def read(self, name: str, part: str) -> Any:
        """A part of a file, an empty list if there is no such file or part."""
        path = self.folder / f"{name}.json"
        if not path.exists():
            return []
        content = json.loads(path.read_text(encoding="utf-8"))
        return content.get(part, []) if part else content

    def measured(self, *names: str) -> str:
        """On which machines, and at which commits."""
        machines = dict.fromkeys(sentence(self.read(name, "machine")) for name in names)
        return f"Measured on {'; and on '.join(machines)}."


def write_blocks(results: Results) -> dict[str, str]:
    """The text of each mark of the page."""
    return {
        "summary": "\n".join(summarize(results)),
        "plots": "\n\n".join(show_plots(results)),
        "serial": "\n".join(describe_serial_part(results)),
        "slower": "\n".join(list_slower(results)),
        **{topic: "\n\n".join(write_topic(results, topic)) for topic in TOPICS},
    }


def write_topic(results: Results, topic: str) -> Iterator[str]:
    """The tables of a topic that were measured, each with its machine."""
    for name, part, draw in TOPICS[topic]:
        if (reports := results.read(name, part)) and (sheet := draw(reports)):
            yield sheet.markdown()
            yield results.measured(name)


# ------------------------------------------------------------------------------- sentences


def summarize(results: Results) -> Iterator[str]:
    """Three sentences: what to expect of a table, beside others, and of an event."""
    if local := results.read("local", "queries"):
        rates = [r["arrow"]["events_per_second"] / 1e6 for r in local]
        yield (
            f"On one core, Ensue takes {span(rates)} million events a second from an Arrow table to a table of "
            "matches; the fewer matches, the more."
        )
    by_hand, esper, flink = (
        results.read(*where) for where in (("by_hand", "questions"), ("esper", "queries"), ("peers", "queries"))
    )
    if by_hand and esper and flink:
        polars, duckdb = ([r["ratio"][way] for r in on_all_cores(by_hand)] for way in ("polars", "duckdb"))
        yield (
            f"Questions written by hand take {span(polars)} times its processor time in Polars "
            f"({median(polars):.1f} in the middle) and {span(duckdb)} times in DuckDB; Esper takes "
            f"{span([r['ratio'] for r in esper])} times, and Apache Flink from file to file "
            f"{span([r['ratio'] for r in flink], 0)} times as long."
        )
    live, spark = results.read("live", "latency"), results.read("spark", "queries")
    if live and spark:
        yield (
            f"`ensue.live` gives the match of an event after {live[0]['match_p50_ms']:.1f} ms "
            f"(p99 {live[0]['match_p99_ms']:.1f} ms), and a Spark job with a query takes "
            f"{span([r['ratio'] for r in spark])} times as long as one that only shuffles the events."
        )


def describe_serial_part(results: Results) -> Iterator[str]:
    """How much of a call no core shares, and which calls are no faster in threads."""
    reports = results.read("threads", "queries")
    if not reports:
        return
    threads = max(r["threads"] for r in reports)
    divided = [r for r in reports if r["serial_share"] < 1]
    shares = [100 * r["serial_share"] for r in divided]
    yield (
        f"Of the processor time of a call that runs in threads, {span(shares, 0)} % ({median(shares):.0f} % in the "
        "middle) goes into steps that cores do not share, before, between and after the tasks; by Amdahl's law such "
        f"calls are at most {span([r['on_many'] for r in divided])} times as fast on 16 cores."
    )
    whole = [_case(r) for r in reports if r["serial_share"] >= 1]
    if whole:
        yield f"In one thread whatever the number of cores: {'; '.join(whole)}."
    slower = [_case(r) for r in divided if r["clock_ratio"] < 1]
    yield (
        f"By the clock, {len(divided) - len(slower)} of {len(divided)} calls are faster in {threads} threads"
        + (f", and these are not: {'; '.join(slower)}." if slower else ".")
    )
    yield f"\n{results.measured('threads')}"


def list_slower(results: Results) -> Iterator[str]:
    """Where code by hand takes less processor time than Ensue, by question."""
    reports = on_all_cores(results.read("by_hand", "questions"))
    for name, way in (("Polars", "polars"), ("DuckDB", "duckdb"), ("pandas", "pandas")):
        asked = [r for r in reports if way in r["ratio"]]
        slower = sorted((r for r in asked if r["ratio"][way] < 1), key=lambda r: r["ratio"][way])
        if not slower:
            yield f"- {name} takes less processor time in none of {len(asked)} cases."
            continue
        least = slower[0]
        questions = dict.fromkeys(r["question"] for r in asked)
        counts = [(q, [r["ratio"][way] for r in asked if r["question"] == q]) for q in questions]
        by_question = "; ".join(
            f"{question} ({sum(r < 1 for r in ratios)} of {len(ratios)})"
            for question, ratios in counts
            if min(ratios) < 1
        )
        yield (
            f"- {name} takes less processor time in {len(slower)} of {len(asked)} cases: {by_question}. "
            f"The least is {least['ratio'][way]:.2f} times that of Ensue: {describe_question(least)}, "
            f"{least.get('symbols', 1_000):,} symbols."
        )


def describe_floor(reports: Sequence[Report]) -> str:
    """A query beside a loop for it, and what reading costs."""
    rate = {(r["query"], r["form"]): r["events_per_cpu_second"] / 1e6 for r in reports}
    (loop,) = (r for r in reports if r["form"] == "numbers")
    question = loop["query"].partition(":")[0]
    hand = rate[loop["query"], "numbers"]
    ours = ", ".join(
        f"{rate[question, form]:.1f} from {form} ({rate[question, form] / hand:.0%} of the loop)"
        for form in ("texts", "dictionaries")
    )
    reads = " and ".join(f"{rate[r['query'], r['form']]:,.0f} ({r['query']})" for r in reports if r["matches"] is None)
    return (
        f"A loop written for *{question}*, given columns of numbers, takes {hand:.1f} million events a second; "
        f"`ensue.match` {ours}. Reading alone takes {reads}."
    )


def _case(report: Report) -> str:
    """A call that was measured, in the plot's words."""
    return report["query"] + (f", {report['symbols']:,} keys" if report["symbols"] > 1_000 else "")


def span(values: Sequence[float], digits: int = 1) -> str:
    """The least and the greatest value.

    >>> span([2.04, 1, 3.96])
    '1.0 to 4.0'
    """
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


# ------------------------------------------------------------------------------------ plots

HEADINGS = {
    "performance_floor": ("Against the floor", ("floor",)),
    "performance_keys": ("Beside Polars and DuckDB, over the number of keys", ("by_hand",)),
    "performance_cores": ("Over cores", ("threads", "by_hand")),
    "performance_peers": ("Beside Apache Flink and Esper", ("peers", "esper")),
}


def list_all_plots(results: Results) -> list[Plot]:
    """All plots of which there are results."""
    return list(list_plots(results.read))


def show_plots(results: Results) -> Iterator[str]:
    """Each plot under its heading, with its machine."""
    for plot in list_all_plots(results):
        title, files = HEADINGS[plot.name]
        yield f"### {title}"
        if plot.name == "performance_floor":
            yield describe_floor(results.read("floor", "queries"))
        yield f"![{plot.alt}](../benchmarks/results/{plot.name}.svg)"
        yield results.measured(*files)
