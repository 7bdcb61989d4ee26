"""Results as plots of docs/performance.md: the same results give the same files.

A file also has its figures as text, which tells whether it is of these results where another version of matplotlib
would draw it with other lines.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

from benchmarks.tables import Report, on_all_cores

FAMILY = {"font.family": "DejaVu Sans", "font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "ensue"}
COLOURS = {
    "Ensue": "#1f77b4",
    "Polars": "#ff7f0e",
    "DuckDB": "#8c8c8c",
    "Esper": "#2ca02c",
    "Apache Flink": "#d62728",
    "without Ensue": "#8c8c8c",
}
SHADES = ("#1f77b4", "#9ecae1")  # of Ensue's own series
BAR, HEAD, WIDTH = 0.15, 1.1, 4.6  # inches: a bar, what is around the bars, a panel beside another


@dataclass(frozen=True, slots=True)
class Panel:
    """Bars on one logarithmic axis: of each name one for each series, None where there is none."""

    title: str
    unit: str
    names: tuple[str, ...]
    series: Mapping[str, tuple[float | None, ...]]


@dataclass(frozen=True, slots=True)
class Plot:
    """Panels in columns, and what they show in words."""

    name: str  # of the file
    alt: str
    panels: tuple[Panel, ...]
    columns: int = 1

    @property
    def figures(self) -> str:
        """What is drawn, as text."""
        shown = ([panel.title, panel.names, dict(panel.series)] for panel in self.panels)
        return json.dumps([*shown], default=str)


def list_plots(read: Callable[[str, str], Sequence[Report]]) -> Iterator[Plot]:
    """The plots of all results that are there; `read` gives a part of a file of results, or nothing."""
    if floor := read("floor", "queries"):
        yield plot_floor(floor)
    if by_hand := read("by_hand", "questions"):
        yield plot_keys(by_hand)
    if threads := read("threads", "queries"):
        yield plot_cores(threads, by_hand)
    if (flink := read("peers", "queries")) and (esper := read("esper", "queries")):
        yield plot_peers(flink, esper)


def plot_floor(reports: Sequence[Report]) -> Plot:
    """Reading and a plain loop, then `ensue.match`."""
    forms = {r["form"]: None for r in reports if r["query"] in {q["query"] for q in reports if q["form"] == "texts"}}
    names = tuple(dict.fromkeys(r["query"] for r in reports))
    rate = {(r["query"], r["form"]): r["events_per_cpu_second"] for r in reports}
    others = {name: form for name, form in rate if form not in forms}
    return Plot(
        "performance_floor",
        "events a second: reading the table, a loop for one question, and ensue.match",
        (
            Panel(
                f"One core, {reports[0]['events']:,} events of {reports[0]['symbols']:,} keys",
                "events a second of processor time",
                tuple(name if name in others else f"ensue.match: {name}" for name in names),
                {
                    "without Ensue": tuple(rate.get((name, others.get(name, ""))) for name in names),
                    **{f"Ensue, from {form}": tuple(rate.get((name, form)) for name in names) for form in forms},
                },
            ),
        ),
    )


WAYS = {"Ensue": "ensue", "Polars": "polars", "DuckDB": "duckdb"}
MEASURES = {"cpu_seconds": "processor time, all cores together", "seconds": "the clock, all cores"}


def plot_keys(reports: Sequence[Report]) -> Plot:
    """Questions written by hand, over the number of keys: texts in order, the least number of events, all cores."""
    rows = on_all_cores(_texts_in_order(reports))
    measures = [measure for measure in MEASURES if all(measure in r for r in rows)]
    panels = []
    for measure in measures:
        for symbols in sorted({r.get("symbols", 1_000) for r in rows}):
            asked = [r for r in rows if r.get("symbols", 1_000) == symbols]
            panels.append(
                Panel(
                    f"{symbols:,} keys: {MEASURES[measure]}",
                    f"milliseconds for {asked[0]['events']:,} events",
                    tuple(r["question"] for r in asked),
                    {name: tuple(_milliseconds(r[measure], way) for r in asked) for name, way in WAYS.items()},
                )
            )
    return Plot(
        "performance_keys",
        "milliseconds of Ensue, Polars and DuckDB for questions written by hand, by the number of keys",
        tuple(panels[place] for place in _by_columns(len(panels), len(measures))),
        len(measures),
    )


def plot_cores(threads: Sequence[Report], by_hand: Sequence[Report]) -> Plot:
    """Calls of `ensue.match` in one thread and in several; questions written by hand on one core and on all."""
    most = max(r["threads"] for r in threads)
    panels = [
        Panel(
            f"ensue.match: {MEASURES_OF_RUNS[measure]}",
            f"milliseconds for {threads[0]['events']:,} events",
            tuple(r["query"] + (f", {r['symbols']:,} keys" if r["symbols"] > 1_000 else "") for r in threads),
            {
                name: tuple(1e3 * r[way][measure] for r in threads)
                for name, way in (("one thread", "one"), (f"{most} threads", "cores"))
            },
        )
        for measure in MEASURES_OF_RUNS
    ]
    timed = [r for r in _texts_in_order(by_hand) if "seconds" in r and r["symbols"] == 1_000]
    cores = sorted({r["cores"] for r in timed})
    if len(cores) > 1:
        panels += [
            Panel(
                f"{count} core{'s' * (count > 1)}: the clock",
                f"milliseconds for {timed[0]['events']:,} events",
                tuple(r["question"] for r in timed if r["cores"] == count),
                {
                    name: tuple(_milliseconds(r["seconds"], way) for r in timed if r["cores"] == count)
                    for name, way in WAYS.items()
                },
            )
            for count in (cores[0], cores[-1])
        ]
    return Plot(
        "performance_cores",
        "milliseconds of calls in one thread and in several, and of Ensue, Polars and DuckDB on one core and on all",
        tuple(panels),
        2,
    )


MEASURES_OF_RUNS = {"best_seconds": "the clock", "cpu_seconds": "processor time"}


def plot_peers(flink: Sequence[Report], esper: Sequence[Report]) -> Plot:
    """The same questions on Apache Flink and on Esper."""
    return Plot(
        "performance_peers",
        "events a second of Ensue beside Apache Flink and beside Esper",
        (
            _rates(
                flink, "Apache Flink", "net_seconds", "From a CSV file to a CSV file", "events a second of the clock"
            ),
            _rates(esper, "Esper", "cpu_seconds", "From events in memory", "events a second of processor time"),
        ),
        2,
    )


def _rates(reports: Sequence[Report], name: str, seconds: str, title: str, unit: str) -> Panel:
    keys = {"Ensue": "ensue", name: name.removeprefix("Apache ").lower()}
    return Panel(
        f"{title}, {reports[0]['events']:,} events",
        unit,
        tuple(r["query"] for r in reports),
        {system: tuple(r["events"] / r[key][seconds] for r in reports) for system, key in keys.items()},
    )


def _texts_in_order(reports: Sequence[Report]) -> list[Report]:
    least = min((r["events"] for r in reports), default=0)
    return [r for r in reports if r["ordered"] and r["form"] == "strings" and r["events"] == least]


def _milliseconds(seconds: Mapping[str, float], way: str) -> float | None:
    return 1e3 * seconds[way] if way in seconds else None


def _by_columns(count: int, columns: int) -> list[int]:
    """Places of panels so that each of so many measures has a column.

    >>> _by_columns(6, 2)
    [0, 3, 1, 4, 2, 5]
    """
    rows = count // columns
    return [column * rows + row for row in range(rows) for column in range(columns)]


def draw(plot: Plot) -> str:
    """The plot as SVG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = -(-len(plot.panels) // plot.columns)
    heights = [
        max(HEAD + BAR * len(p.names) * (_most_bars(p) + 0.7) for p in plot.panels[n * plot.columns :][: plot.columns])
        for n in range(rows)
    ]
    with mpl.rc_context(FAMILY):
        wide = WIDTH * plot.columns if plot.columns > 1 else 1.6 * WIDTH
        figure = Figure(figsize=(wide, sum(heights)), layout="constrained")
        grid = figure.subplots(rows, plot.columns, squeeze=False, gridspec_kw={"height_ratios": heights})
        for place, (axes, panel) in enumerate(zip(grid.flat, plot.panels, strict=False)):
            _draw_panel(axes, panel, [p for p in plot.panels if p.unit == panel.unit])
            if place % plot.columns and plot.panels[place - 1].names == panel.names:
                axes.set_yticklabels([])
        for axes in grid.flat[len(plot.panels) :]:
            axes.set_axis_off()
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Title": plot.alt, "Description": plot.figures})
    return _shorten(text.getvalue())


def _draw_panel(axes: Any, panel: Panel, beside: Sequence[Panel]) -> None:
    """Bars of a panel, on the axis of all panels of its unit."""
    places = range(len(panel.names))
    drawn = [[s for s, values in panel.series.items() if values[place] is not None] for place in places]
    height = 0.84 / _most_bars(panel)
    own = [s for s in panel.series if s not in COLOURS]
    for series, values in panel.series.items():
        there = [place for place in places if values[place] is not None]
        # the bars of a name stand around its middle
        at = [place + (drawn[place].index(series) - (len(drawn[place]) - 1) / 2) * height for place in there]
        colour = COLOURS[series] if series in COLOURS else SHADES[own.index(series) % len(SHADES)]
        bars = axes.barh(at, [values[place] for place in there], height, color=colour, label=series)
        axes.bar_label(bars, [shorten_figure(values[place]) for place in there], padding=2, fontsize=7)
    shown = [value for p in beside for values in p.series.values() for value in values if value is not None]
    axes.set_xscale("log")
    axes.set_xlim(10.0 ** math.floor(math.log10(0.8 * min(shown))), 2.2 * max(shown))
    axes.xaxis.set_major_formatter(lambda value, _: shorten_figure(value))
    axes.minorticks_off()
    axes.set_yticks(places, panel.names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(panel.names) - 0.4, -0.6)
    axes.set_xlabel(panel.unit)
    axes.set_title(panel.title, fontsize=10, pad=20)
    axes.grid(axis="x", alpha=0.4)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        fontsize=8, ncols=len(panel.series), loc="lower center", bbox_to_anchor=(0.5, 0.99), frameon=False,
        handlelength=1, handleheight=1, columnspacing=1.5, borderaxespad=0.2,
    )  # fmt: skip


def _most_bars(panel: Panel) -> int:
    """How many bars the name with the most has."""
    return max(sum(value is not None for value in values) for values in zip(*panel.series.values(), strict=True))


def shorten_figure(value: float) -> str:
    """A figure as it stands at a bar or an axis.

    >>> [shorten_figure(value) for value in (0.42, 2.34, 43.2, 999.6, 46_112, 1_000_000, 1_121_144, 24_300_000, 1e9)]
    ['0.4', '2.3', '43', '1,000', '46,112', '1 M', '1.1 M', '24 M', '1,000 M']
    """
    if value >= 1e6:
        return f"{float(f'{value / 1e6:.{2 if value < 1e8 else 3}g}'):,.10g} M"
    return f"{float(f'{value:.1f}'):g}" if value < 10 else f"{value:,.0f}"


def _shorten(svg: str) -> str:
    """Coordinates with two digits, a font for readers without this one, no blanks at the end of lines."""
    head, start, body = svg.partition("</metadata>")
    body = body.replace("'DejaVu Sans'", "'DejaVu Sans', sans-serif")
    body = re.sub(r' transform="rotate\(-0 [^"]*"', "", body)
    body = re.sub(r"-?\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", body)
    return "\n".join(line.rstrip() for line in f"{head}{start}{body}".splitlines()) + "\n"


def tell_same(one: str, other: str) -> bool:
    """Whether two files show the same, drawn by whatever version."""
    return one == other if _maker(one) == _maker(other) else _figures(one) == _figures(other)


def _maker(svg: str) -> list[str]:
    return re.findall(r"Matplotlib v[\d.]+", svg)


def _figures(svg: str) -> list[str]:
    return re.findall(r"<dc:description>.*?</dc:description>", svg, re.DOTALL)
