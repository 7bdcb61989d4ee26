"""Results as tables: for a terminal, and as Markdown for the pages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.table import Table

Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A titled table of texts; the first column is a name, the others are figures."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def rich(self) -> Table:
        """For a terminal."""
        table = Table(title=self.title, title_justify="left", header_style="bold")
        for place, column in enumerate(self.columns):
            table.add_column(column, justify="right" if place else "left")
        for row in self.rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        """For a page.

        >>> print(Sheet("Sums", ("what", "is"), (("1 + 1", "2"),)).markdown())
        **Sums**
        <BLANKLINE>
        | what | is |
        |---|---:|
        | 1 + 1 | 2 |
        """
        marks = ["---", *["---:"] * (len(self.columns) - 1)]
        lines = [self.columns, *self.rows]
        head, *rows = (f"| {' | '.join(line)} |" for line in lines)
        return "\n".join([f"**{self.title}**", "", head, f"|{'|'.join(marks)}|", *rows])


def local_sheet(reports: Sequence[Report]) -> Sheet:
    """Kernel and `ensue.match`, few keys and many."""
    return Sheet(
        f"One process, {_counted(reports)} events, millions of events a second",
        ("query", "keys", "matches", "kernel", "kernel, M matches/s", "from Arrow", "compiled in"),
        tuple(
            (
                r["query"],
                f"{r['symbols']:,}",
                f"{r['kernel']['matches']:,}" + ("" if r["same"] else " (differ)"),
                f"{r['kernel']['events_per_second'] / 1e6:.1f}",
                f"{r['kernel']['matches_per_second'] / 1e6:.1f}",
                f"{r['arrow']['events_per_second'] / 1e6:.1f}",
                f"{r['compile_seconds']:.1f} s",
            )
            for r in reports
        ),
    )


def threads_sheet(reports: Sequence[Report]) -> Sheet:
    """`ensue.match` with one thread and with one for each core."""
    threads = max(r["threads"] for r in reports)
    return Sheet(
        f"One process, {_counted(reports)} events, one thread and {threads}",
        (
            "query",
            "keys",
            "matches",
            "one thread",
            f"{threads} threads",
            "times as fast",
            "processor time",
            "serial",
            "at most on 16 cores",
        ),
        tuple(
            (
                r["query"],
                f"{r['symbols']:,}",
                f"{r['one']['matches']:,}" + ("" if r["same"] else " (differ)"),
                f"{1e3 * r['one']['best_seconds']:.0f} ms",
                f"{1e3 * r['cores']['best_seconds']:.0f} ms",
                f"{r['clock_ratio']:.2f}",
                f"x {r['cpu_ratio']:.2f}",
                f"{r['serial_share']:.0%}",
                f"x {r['on_many']:.1f}",
            )
            for r in reports
        ),
    )


def loops_sheet(reports: Sequence[Report]) -> Sheet:
    """Loops as they are written, beside encodings of them."""
    return Sheet(
        f"Loops, kernels alone, {_counted(reports)} events, millions a second of processor time",
        ("loop", "matches", "native", "encoded", "times as fast", "compiled in", "encoded in"),
        tuple(
            (
                r["query"],
                f"{r['native']['matches']:,}" + ("" if r["same"] else " (differ)"),
                f"{r['events'] / r['native']['cpu_seconds'] / 1e6:.1f}",
                f"{r['events'] / r['encoded']['cpu_seconds'] / 1e6:.1f}",
                f"{r['ratio']:.2f}",
                f"{r['native']['compile_seconds']:.1f} s",
                f"{r['encoded']['compile_seconds']:.1f} s",
            )
            for r in reports
        ),
    )


def growth_sheet(reports: Sequence[Report]) -> Sheet:
    """What a loop holds when its last event has come."""
    return Sheet(
        "A loop of n events",
        ("n", "partial matches", "matches"),
        tuple(tuple(f"{r[k]:,}" for k in ("loop", "partial_matches", "matches")) for r in reports),
    )


def streaming_sheet(reports: Sequence[Report]) -> Sheet:
    """Structured Streaming beside the identity pipeline, by size of micro-batch."""
    return Sheet(
        "Structured Streaming, compared with the same job without a matcher",
        ("rows a micro-batch", "keys", "match", "identity", "throughput ratio", "events a second"),
        tuple(
            (
                f"{r['rows']:,}",
                f"{r['symbols']:,}" + ("" if r["same"] else " (differ)"),
                f"{r['match_seconds']:.2f} s",
                f"{r['identity_seconds']:.2f} s",
                f"{r['ratio']:.2f}",
                f"{r['events_per_second']:,.0f}",
            )
            for r in reports
        ),
    )


def live_latency_sheet(reports: Sequence[Report]) -> Sheet:
    """From one event in to what it gives."""
    return Sheet(
        "`ensue.live`: milliseconds from one event in (a dict) to its matches out",
        ("query", "with a match, p50", "p99", "any event, p50", "p99"),
        tuple(
            (
                r["query"],
                f"{r['match_p50_ms']:.2f}",
                f"{r['match_p99_ms']:.2f}",
                f"{r['p50_ms']:.2f}",
                f"{r['p99_ms']:.2f}",
            )
            for r in reports
        ),
    )


def live_sheet(reports: Sequence[Report]) -> Sheet:
    """Events a second by the size of a feed."""
    sizes = list(reports[0]["events_per_second"])
    return Sheet(
        "`ensue.live`: events a second by the number of events in a feed",
        ("query", *(f"{int(size):,}" for size in sizes)),
        tuple((r["query"], *(f"{r['events_per_second'][size]:,.0f}" for size in sizes)) for r in reports),
    )


def per_key_sheet(reports: Sequence[Report]) -> Sheet:
    """Key groups beside one state for each key."""
    return Sheet(
        "Structured Streaming: our tasks compared with one state for each key (the naive way)",
        ("rows a micro-batch, keys", "tasks", "one state a key", "ratio"),
        tuple(
            (
                f"{r['rows']:,}, {r['symbols']:,}" + ("" if r["same"] else " (differ)"),
                f"{r['match_seconds']:.2f} s",
                f"{r['per_key_seconds']:.1f} s",
                f"{r['ratio']:.0f}",
            )
            for r in reports
        ),
    )


def latency_sheet(reports: Sequence[Report]) -> Sheet:
    """How long a small micro-batch takes, and with what."""
    (said,) = reports
    where = sorted(said["where_seconds"].items(), key=lambda step: -step[1])
    return Sheet(
        f"Structured Streaming: {said['batches']} micro-batches of {said['rows']:,} rows",
        ("", "seconds"),
        (
            ("p50", f"{said['p50']:.2f}"),
            ("p99", f"{said['p99']:.2f}"),
            *((f"of it {name} (median)", f"{seconds:.3f}") for name, seconds in where if seconds),
            ("all tasks, state included", f"{said['key_groups_busy_seconds']:.3f}"),
            ("of it matching", f"{said['key_groups_matching_seconds']:.3f}"),
        ),
    )


def large_sheet(reports: Sequence[Report]) -> Sheet:
    """Files larger than memory."""
    return Sheet(
        'Parquet files larger than memory, `Limits(memory="2 GB")`',
        ("query", "rows", "matches", "processor time a row", "peak memory", "spilled to disk"),
        tuple(
            (
                r["query"],
                f"{r['rows']:,}",
                f"{r['matches']:,}" + ("" if r.get("same", True) else " (differ)"),
                f"{r['cpu_microseconds_per_row']:.2f} µs",
                f"{(r['peak_bytes'] or 0) / 1e6:,.0f} MB",
                f"{r['written_bytes'] / 1e6:,.0f} MB",
            )
            for r in reports
        ),
    )


def soak_sheet(reports: Sequence[Report]) -> Sheet:
    """A long stream: its last quarter beside the second."""
    shown = ("state_bytes", "partial_matches", "python_bytes", "java_bytes")
    return Sheet(
        "A long stream: state and memory in the last quarter, as a multiple of the second",
        (
            "events", "matches", "state, MB", "state", "partial matches", "Python memory",
            "JVM memory",
        ),
        tuple(
            (
                f"{r['events']:,}",
                f"{r['matches']:,}" + ("" if r["matches"] == r["batch_matches"] else " (differ)"),
                f"{max(s['state_bytes'] for s in r['samples']) / 1e6:.0f}",
                *(f"{growth(r['samples'], what):.2f}" for what in shown),
            )
            for r in reports
        ),
    )  # fmt: skip


def growth(samples: Sequence[Mapping[str, float]], what: str) -> float:
    """The median of something in the last quarter of a run over that in the second.

    >>> growth([{"bytes": size} for size in (9, 9, 10, 20, 15, 15, 30, 30)], "bytes")
    2.0
    """
    count = len(samples)
    second, last = samples[count // 4 : count // 2], samples[count * 3 // 4 :]
    before, after = (median(s[what] for s in part) for part in (second, last))
    return after / max(1, before)


def spark_sheet(reports: Sequence[Report]) -> Sheet:
    """Spark beside the identity pipeline."""
    return Sheet(
        f"Spark from Parquet, {_counted(reports)} events, compared with a job that only shuffles them",
        ("query", "matches", "match", "identity", "ratio", "to the same events moved"),
        tuple(
            (
                r["query"],
                f"{r['matches']:,}" + ("" if r.get("same", True) else " (differ)"),
                f"{r['match_seconds']:.2f} s",
                f"{r['identity_seconds']:.2f} s",
                f"{r['ratio']:.2f}",
                f"{r['same_events_ratio']:.2f}",
            )
            for r in reports
        ),
    )


def first_answer_sheet(reports: Sequence[Report]) -> Sheet:
    """A new query in a running process."""
    return Sheet(
        "First answer of a new query on 100,000 events",
        ("query", "matches", "new kernel", "kernel in the cache", "a new process's first query"),
        tuple(
            (
                r["query"],
                f"{r['matches']:,}",
                f"{r['cold_seconds']:.2f} s",
                f"{r['warm_seconds']:.2f} s",
                f"{r['process_seconds']:.2f} s",
            )
            for r in reports
        ),
    )


def readme_example_sheet(reports: Sequence[Report]) -> Sheet:
    """The first example of README.md in a new process."""
    return Sheet(
        "The first example of README.md, or a first query after pandas, in a new process, seconds of processor time",
        ("cache", "Python starts", "imports", "answer", "whole process", "processes beside it"),
        tuple(
            (
                r["cache"],
                *(f"{r[f'{part}cpu_seconds']:.2f}" for part in ("python_", "import_", "answer_", "", "children_")),
            )
            for r in reports
        ),
    )


def first_kinds_sheet(reports: Sequence[Report]) -> Sheet:
    """One query of each kind in a new process."""
    return Sheet(
        "First answer of a new process from an Arrow file, seconds of processor time, imports included",
        ("kind of query", "rows", "empty cache", "filled cache"),
        tuple((r["kind"], f"{r['rows']:,}", f"{r['empty']:.2f}", f"{r['filled']:.2f}") for r in reports),
    )


def peers_sheet(reports: Sequence[Report]) -> Sheet:
    """Apache Flink and Ensue on the same files."""
    return Sheet(
        f"From a CSV file to a CSV file of matches, {_counted(reports)} events, events a second",
        ("query", "matches", "Apache Flink", "Ensue", "ratio"),
        tuple(
            (
                r["query"],
                f"{r['ensue']['matches']:,}" + ("" if r["same"] else " (differ)"),
                f"{r['events'] / r['flink']['net_seconds']:,.0f}",
                f"{r['events'] / r['ensue']['net_seconds']:,.0f}",
                f"{r['ratio']:.0f}",
            )
            for r in reports
        ),
    )


def esper_sheet(reports: Sequence[Report]) -> Sheet:
    """Esper and Ensue on the same events, in processor time."""
    return Sheet(
        f"From events in memory, {_counted(reports)} events, events a second of processor time",
        ("query", "matches", "Esper", "Ensue", "ratio"),
        tuple((r["query"], *_esper_cells(r)) for r in reports),
    )


def esper_lengths_sheet(reports: Sequence[Report]) -> Sheet:
    """Sequences of more and more events on Esper and on Ensue, without and with a negation."""
    said = {r["query"]: r for r in reports}
    pairs = [(name, r, said[f"{name}, negated"]) for name, r in said.items() if "negated" not in name]
    sides = ("Esper", "Ensue", "ratio")
    return Sheet(
        f"Sequences of one symbol, {_counted(reports)} events in memory, events a second of processor time",
        ("length", "matches", *sides, "negated: matches", *sides),
        tuple((name, *_esper_cells(plain), *_esper_cells(negated)) for name, plain, negated in pairs),
    )


def _esper_cells(r: Report) -> tuple[str, str, str, str]:
    return (
        f"{r['matches']:,}" + ("" if r["same"] else " (differ)"),
        f"{r['events'] / r['esper']['cpu_seconds']:,.0f}",
        f"{r['events'] / r['ensue']['cpu_seconds']:,.0f}",
        f"{r['ratio']:.1f}",
    )


def by_hand_sheet(reports: Sequence[Report]) -> Sheet:
    """A question in Ensue and in what one would write by hand, in processor time on all cores."""
    bare = "ensue without ids"
    more = all(bare in r["cpu_seconds"] for r in reports)
    ways = ("ensue", *((bare,) if more else ()), "polars", "pandas", "duckdb")
    return Sheet(
        "Compared with code written by hand, milliseconds of processor time",
        (
            "question", "events", "symbols", "matches",
            "Ensue", *(("without ids",) if more else ()), "Polars", "pandas", "DuckDB", "Polars / Ensue",
            *(("Polars / without ids",) if more else ()), "DuckDB / Ensue",
        ),
        tuple(
            (
                describe_question(r),
                f"{r['events']:,}",
                f"{r.get('symbols', 1_000):,}",
                f"{r['matches']:,}" + ("" if r["same"] else " (differ)"),
                *(f"{r['cpu_seconds'][way] * 1e3:,.0f}" if way in r["cpu_seconds"] else "-" for way in ways),
                f"{r['ratio']['polars']:.1f}",
                *((f"{r['cpu_seconds']['polars'] / r['cpu_seconds'][bare]:.1f}",) if more else ()),
                f"{r['ratio']['duckdb']:.1f}",
            )
            for r in on_all_cores(reports)
        ),
    )  # fmt: skip


def by_hand_clock_sheet(reports: Sequence[Report]) -> Sheet | None:
    """The same by the clock, for texts in order, on one core and on all; None for results without it."""
    timed = [r for r in reports if "seconds" in r and r["ordered"] and r["form"] == "strings"]
    if not timed:
        return None
    ways = ("ensue", "polars", "pandas", "duckdb")
    return Sheet(
        "Compared with code written by hand, milliseconds of the clock, as many threads as cores",
        (
            "question", "events", "symbols", "cores",
            "Ensue", "Polars", "pandas", "DuckDB", "Polars / Ensue", "DuckDB / Ensue",
        ),
        tuple(
            (
                describe_question(r),
                f"{r['events']:,}",
                f"{r['symbols']:,}",
                f"{r['cores']}",
                *(f"{r['seconds'][way] * 1e3:,.0f}" if way in r["seconds"] else "-" for way in ways),
                *(f"{r['seconds'][way] / r['seconds']['ensue']:.1f}" for way in ("polars", "duckdb")),
            )
            for r in sorted(timed, key=lambda r: (r["events"], r["symbols"], r["question"], r["cores"]))
        ),
    )  # fmt: skip


def on_all_cores(reports: Sequence[Report]) -> list[Report]:
    """Of questions written by hand, the runs with the most cores."""
    most = max((r.get("cores", 0) for r in reports), default=0)
    return [r for r in reports if r.get("cores", 0) == most]


def describe_question(report: Report) -> str:
    """A question written by hand, and the table that it is asked of."""
    return f"{report['question']}, {report['form']}" + ("" if report["ordered"] else ", unsorted")


def floor_sheet(reports: Sequence[Report]) -> Sheet:
    """Reading the events, a loop for one question, and `ensue.match`, on one core."""
    return Sheet(
        f"One core, {_counted(reports)} events, millions of events a second of processor time",
        ("what", "from", "matches", "events", "GB a second"),
        tuple(
            (
                r["query"],
                r["form"],
                "-" if r["matches"] is None else f"{r['matches']:,}" + ("" if r["same"] else " (differ)"),
                f"{r['events_per_cpu_second'] / 1e6:,.1f}",
                f"{r['events_per_cpu_second'] * r['bytes'] / r['events'] / 1e9:.1f}" if r["matches"] is None else "-",
            )
            for r in reports
        ),
    )


def row_pattern_sheet(reports: Sequence[Report]) -> Sheet:
    """`ensue.sql` from Arrow and its engine alone, in processor time."""
    return Sheet(
        f"MATCH_RECOGNIZE in one process, {_counted(reports)} rows, "
        "millions of rows a second of processor time",
        (
            "clause", "keys", "rows found", "`ensue.sql`", "by the clock", "search alone",
            "`SELECT *`", "bytes a row",
        ),
        tuple(
            (
                r["query"],
                f"{r['symbols']:,}",
                f"{r['sql']['matches']:,}",
                f"{r['sql']['events_per_cpu_second'] / 1e6:.1f}",
                f"{r['sql']['events_per_second'] / 1e6:.1f}",
                f"{r['engine']['events_per_cpu_second'] / 1e6:.1f}",
                f"{r['copy']['events_per_cpu_second'] / 1e6:.1f}",
                "-" if r["bytes_per_row"] is None else f"{r['bytes_per_row']:.0f}",
            )
            for r in reports
        ),
    )  # fmt: skip


def row_pattern_growth_sheet(reports: Sequence[Report]) -> Sheet:
    """Processor time by the number of rows."""
    sizes = reports[0]["rows"]
    return Sheet(
        "MATCH_RECOGNIZE: seconds of processor time by the number of rows, "
        "and how much more ten times as many rows take",
        ("clause", "keys", *(f"{size:,}" for size in sizes), "ten times the rows", "in user mode"),
        tuple(
            (
                r["query"],
                f"{r['symbols']:,}",
                *(f"{seconds:.3f}" for seconds in r["cpu_seconds"]),
                *(
                    ", ".join("-" if times is None else f"{times:.1f}" for times in r[which])
                    for which in ("growth", "user_growth")
                ),
            )
            for r in reports
        ),
    )


def row_pattern_spark_sheet(reports: Sequence[Report]) -> Sheet:
    """Clauses on Spark beside the identity pipeline."""
    return Sheet(
        f"MATCH_RECOGNIZE on Spark from Parquet, {_counted(reports)} rows, compared with a job that only shuffles them",
        ("clause", "rows found", "match", "identity", "ratio"),
        tuple(
            (
                r["query"],
                f"{r['matches']:,}" + ("" if r["same"] else " (differ)"),
                f"{r['match_seconds']:.2f} s",
                f"{r['identity_seconds']:.2f} s",
                f"{r['ratio']:.2f}",
            )
            for r in reports
        ),
    )


def row_pattern_stream_sheet(reports: Sequence[Report]) -> Sheet:
    """A clause on a stream, by size of micro-batch."""
    return Sheet(
        "MATCH_RECOGNIZE on Structured Streaming, compared with a stream that only shuffles the rows",
        ("rows a micro-batch", "rows found", "match", "identity", "rows a second"),
        tuple(
            (
                f"{r['rows']:,}",
                f"{r['matches']:,}" + ("" if r["same"] else " (differ)"),
                f"{r['match_seconds']:.2f} s",
                f"{r['identity_seconds']:.2f} s",
                f"{r['events_per_second']:,.0f}",
            )
            for r in reports
        ),
    )


def _counted(reports: Iterable[Report]) -> str:
    return " or ".join(f"{count:,}" for count in sorted({r["events"] for r in reports}))
