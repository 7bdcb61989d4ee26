"""Live and archived streams: the paper's experiments 1 to 4, and the planner's choice.

`python -m benchmarks.papers.live_archive [--quick]`. Time is a number, one event a unit, so that a
sub-window of 500 is 500 events and 500 units. Both patterns are sequences of two events of an
object with a condition on each, which sets how often they match.

1. All accesses by the size of both streams, in memory and as a Delta table.
2. By the selectivity of the archived pattern, that of the live one being fixed.
3. By the sub-window (`latency=`), fed to `ensue.live` in micro-batches of 100 events.
4. By the share of the past that is in memory (RBuffer) and not in the Delta table.

At the paper's sizes and at 100 times these. 100 times are the events of both streams in 1, 2 and
in the rest of the grid, and those of the archive in 3 and 4. Not so: the window of 2,000; objects,
100 times as many in 1 and in the rest, 10 times in 2, as many as before in 3 and 4; live events,
micro-batches and sub-windows in 3 (10 times) and live events in 4 (as before). In 1 to 4 fewer
live events meet their conditions, so live matches are rather fewer than more: 1 and 7 in
experiment 1. The tables of the grid say how many there were.

The rows of all accesses must be equal. Time is that of the processor, the best of some runs over
one archive, so without compiling, and with the index that the first read of a table in memory
makes; planning is inside. Lazy is run once, and where it is expected to take seconds, not minutes.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

import ensue
from benchmarks.machine import machine
from benchmarks.tables import Sheet
from benchmarks.timing import Clock
from ensue.operators.archive_join.join_planner import compile_archive_join
from ensue.planner.access_paths import ACCESSES, AccessDecision, LiveStatistics, choose_access_path
from ensue.planner.planner_options import PlannerOptions
from ensue.runtime.query_spec import InputEvents, open_archives
from ensue.vector.event_table import create_schema

RESULTS = Path(__file__).parent.parent / "results"
COLUMNS: dict[str, Any] = {"time": "t", "type": "type"}
SIZES = (10_000, 20_000, 30_000, 40_000, 50_000)
SUB_WINDOWS = (500, 1_000, 1_500, 2_000, 2_500, 3_000)
MOST_LAZY = 8.0  # seconds that lazy may be expected to take
CHOSEN = "chosen"
WITHIN = 2_000


def query(live: float, past: float, far: int) -> str:
    """Of all events a share plays each part: the smaller it is, the fewer matches there are."""
    return f"""SEQ(A a, B b) WHERE [key] and a.x < {live} and b.x < {live} WITHIN {WITHIN}
        JOIN ARCHIVE past SEQ(C c, D d) WHERE [key] and c.x < {past} and d.x < {past}
        WITHIN {WITHIN} RANGE {far} BEFORE START ON [key]
        RETURN a.t AS a, b.t AS b, c.t AS c, d.t AS d"""


def events(count: int, first: int, keys: int, types: str = "ABCD", seed: int = 7) -> pa.Table:
    dice = np.random.default_rng((seed, count, first))
    return pa.table(
        {
            "t": np.arange(first, first + count),
            "type": np.array(list(types))[dice.integers(0, len(types), count)],
            "key": dice.integers(0, keys, count),
            "x": dice.random(count),
        }
    )


@dataclass(frozen=True)
class Setting:
    """Both streams and the query over them."""

    live: pa.Table
    past: pa.Table
    text: str
    place: str = "memory"

    def archive(self, folder: Path) -> Any:
        if self.place == "memory":
            return ensue.archive(self.past, **COLUMNS, key="key")
        place = folder / f"{self.past.num_rows}"
        if not place.exists():
            day = max(1, self.past.num_rows // 5)
            ensue.create_archive(place, self.past, **COLUMNS, key="key", buckets=4, day=day)
        return ensue.archive(place)


def measured(work: Callable[[], pa.Table], times: int) -> tuple[pa.Table, dict[str, float]]:
    """What a piece of work gives, and the best of its times."""
    cpu, wall, found = [], [], None
    for _ in range(times):
        with Clock() as clock:
            found = work()
        cpu.append(clock.cpu_seconds)
        wall.append(clock.seconds)
    assert found is not None
    return found, {"cpu_seconds": min(cpu), "wall_seconds": min(wall)}


def planned(setting: Setting, asked: ensue.ArchiveJoinQuery, archive: Any) -> AccessDecision:
    """What is decided for a call."""
    shape = create_schema(setting.live.schema, **COLUMNS, order=())
    pasts = open_archives({"past": archive})
    coming = InputEvents(setting.live, whole=True)
    return compile_archive_join(asked, shape, pasts, PlannerOptions(), coming=coming).decision


def compared(setting: Setting, archive: Any, times: int) -> dict[str, Any]:
    """All accesses, and the one that is chosen."""
    asked = ensue.parse(setting.text)
    assert isinstance(asked, ensue.ArchiveJoinQuery)
    live = ensue.match(setting.live, asked.live, **COLUMNS).num_rows
    decision = planned(setting, asked, archive)
    count = setting.live.num_rows
    exact = replace(decision.live or LiveStatistics(), matches=live / count)
    expected = choose_access_path(exact, decision.archives).candidate("lazy").cost * count / 1e6
    rows: pa.Table | None = None
    found: dict[str, Any] = {}
    for access in (*ACCESSES, CHOSEN):
        if access == "lazy" and expected > MOST_LAZY:
            continue
        forced = None if access == CHOSEN else access

        def work(forced: str | None = forced) -> pa.Table:
            archives = ensue.Archives({"past": archive}, access=forced)
            return ensue.match(setting.live, asked, archives=archives, **COLUMNS)

        table, found[access] = measured(work, 1 if access == "lazy" else times + 1)
        if rows is not None and not table.equals(rows):
            raise AssertionError(f"{access} found other rows: {setting.text}")
        rows = table
    assert rows is not None
    best = min(found[name]["cpu_seconds"] for name in found if name != CHOSEN)
    return {
        "live_events": count,
        "archived_events": setting.past.num_rows,
        "place": setting.place,
        "live_matches": live,
        "rows": rows.num_rows,
        "accesses": found,
        "chosen": decision.access,
        "chosen_over_best": found[CHOSEN]["cpu_seconds"] / best,
    }


# ------------------------------------------------------------------------------- experiments


def by_size(times: int, scale: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Experiment 1."""
    for place in ("memory", "delta"):
        for size in SIZES if scale == 1 else (SIZES[0], SIZES[-1]):
            count = size * scale
            keys = count // 100
            share = 0.4 if scale == 1 else 0.02
            setting = Setting(events(count, count, keys), events(count, 0, keys), query(share, 0.5, count), place)
            yield compared(setting, setting.archive(folder), times) | {"size": count}


def by_selectivity(times: int, scale: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Experiment 2."""
    count = SIZES[-1] * scale
    keys = 500 * (scale if scale == 1 else 10)
    past, live = events(count, 0, keys), events(count, count, keys)
    share = 0.3 if scale == 1 else 0.05
    for place in ("memory", "delta"):
        for archived in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if scale == 1 else (0.02, 0.2, 1.0):
            setting = Setting(live, past, query(share, archived, count // 2), place)
            found = compared(setting, setting.archive(folder), times)
            yield found | {"selectivity": archived}


def by_range(times: int, scale: int, folder: Path) -> Iterator[dict[str, Any]]:
    """More of the grid: few live events over a large archive, and ranges of all lengths."""
    count = SIZES[-1] * scale
    keys = max(100, count // 200)
    past = events(count, 0, keys)
    for place in ("memory", "delta"):
        for share in (10, 1):
            live = events(max(1_000, count // share), count, keys)
            for far in (count // 50, count // 5, count)[:: 1 if scale == 1 else 2]:
                setting = Setting(live, past, query(0.2, 0.5, far), place)
                yield compared(setting, setting.archive(folder), times) | {"range": far}


def by_sub_window(times: int, scale: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Experiment 3: micro-batches of a stream, with every live pair a match."""
    count = SIZES[0] * (1 if scale == 1 else 10)
    past_count = SIZES[-1] * scale
    keys = 500
    batch, longer = (100, 1) if scale == 1 else (1_000, 10)
    live = events(count, past_count, keys)
    past = events(past_count, 0, keys)
    text = query(0.5 if scale == 1 else 0.15, 1.0, past_count // 10)
    asked = ensue.parse(text)
    for place in ("memory", "delta"):
        archive = Setting(live, past, text, place).archive(folder)
        rows: pa.Table | None = None
        for sub_window in (None, 0, *(w * longer for w in SUB_WINDOWS)):
            way = {"access": "lazy"} if sub_window is None else {
                "access": "grouped", "latency": sub_window,
            }  # fmt: skip

            def work(way: dict[str, Any] = way, archive: Any = archive) -> pa.Table:
                stream = ensue.live(
                    asked, schema=live.schema, **COLUMNS, archives=ensue.Archives({"past": archive}, **way)
                )
                parts = [stream.feed(live.slice(k, batch)) for k in range(0, live.num_rows, batch)]
                return pa.concat_tables([*parts, stream.finish()])

            table, figures = measured(work, 1 if sub_window is None else times)
            table = table.sort_by("match_id")
            if rows is not None and not table.equals(rows):
                raise AssertionError(f"a sub-window of {sub_window} found other rows")
            rows = table
            yield {
                "place": place, "sub_window": sub_window, "rows": rows.num_rows,
                "live_events": count, "archived_events": past_count, **figures,
            }  # fmt: skip


def by_buffer(times: int, scale: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Experiment 4: the newest part of the past is in memory, the rest in the Delta table."""
    keys = 500
    past_count = SIZES[-1] * scale
    past = events(past_count, 0, keys, "CD")
    for count in (SIZES[0], SIZES[-1]) if scale == 1 else (SIZES[0],):
        live = events(count, past_count, keys, "AB")
        text = query(0.12 if scale == 1 else 0.03, 1.0, past_count)
        asked = ensue.parse(text)
        rows: pa.Table | None = None
        for share in (0, 20, 40, 60, 80, 100):
            buffered = past_count * share // 100
            stored = past_count - buffered
            place = folder / f"buffer {scale} {share}"
            if not place.exists():
                kept = past.slice(0, stored) if stored else past.schema
                day = max(1, past_count // 5)
                ensue.create_archive(place, kept, **COLUMNS, key="key", buckets=4, day=day)
            for access in ("lazy", "grouped"):
                cpu, wall = [], []
                table = None
                for _ in range(1 if access == "lazy" else times):
                    stream = ensue.live(
                        asked,
                        schema=live.schema,
                        **COLUMNS,
                        archives=ensue.Archives({"past": ensue.archive(place)}, own="past", access=access),
                    )
                    if buffered:
                        stream.feed(past.slice(stored))
                    with Clock() as clock:
                        parts = [stream.feed(live.slice(k, 1_000)) for k in range(0, count, 1_000)]
                        table = pa.concat_tables([*parts, stream.finish()])
                    cpu.append(clock.cpu_seconds)
                    wall.append(clock.seconds)
                assert table is not None
                table = table.sort_by("match_id")
                if rows is not None and not table.equals(rows):
                    raise AssertionError(f"a buffer of {buffered} found other rows")
                rows = table
                yield {
                    "live_events": count, "archived_events": past_count, "buffer": buffered,
                    "access": access, "rows": rows.num_rows,
                    "cpu_seconds": min(cpu), "wall_seconds": min(wall),
                }  # fmt: skip


def thousand(times: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Grouped against lazy at 1,000 live matches."""
    past, live = events(500_000, 0, 1_000), events(100_000, 500_000, 1_000)
    for place in ("memory", "delta"):
        setting = Setting(live, past, query(0.285, 0.5, 20_000), place)
        found = compared(setting, setting.archive(folder), times)
        ratio = found["accesses"]["lazy"]["cpu_seconds"]
        ratio /= found["accesses"]["grouped"]["cpu_seconds"]
        yield found | {"lazy_over_grouped": ratio}


EXPERIMENTS: dict[str, Callable[[int, int, Path], Iterator[dict[str, Any]]]] = {
    "size": by_size,
    "selectivity": by_selectivity,
    "range": by_range,
    "sub_window": by_sub_window,
    "buffer": by_buffer,
}
GRID = ("size", "selectivity", "range")  # where all accesses are compared with the chosen one


# ------------------------------------------------------------------------------------ report


def sheets(report: dict[str, Any]) -> Iterator[Sheet]:
    """The tables of a report."""
    for scale, found in report["scales"].items():
        for name, title in TITLES.items():
            yield Sheet(
                f"{title}, {scale}",
                (FIRST[name], "live matches", *ACCESSES, CHOSEN, "over the best", "taken"),
                tuple(map(_grid_row, found[name])),
            )
        yield Sheet(
            f"3. by sub-window, {scale}: ms of processor",
            ("archive", "lazy", "each micro-batch", *_lengths(found["sub_window"])),
            tuple(_sub_windows(found["sub_window"])),
        )
        yield Sheet(
            f"4. by RBuffer, {scale}: ms of processor",
            ("live events", "buffer", "lazy", "grouped"),
            tuple(_buffers(found["buffer"])),
        )
    yield Sheet(
        "1,000 live matches: grouped against lazy, ms of processor",
        ("archive", "live matches", "lazy", "grouped", "times cheaper"),
        tuple(
            (
                row["place"],
                f"{row['live_matches']:,}",
                *(f"{row['accesses'][a]['cpu_seconds'] * 1e3:,.0f}" for a in ("lazy", "grouped")),
                f"{row['lazy_over_grouped']:.0f}",
            )
            for row in report["thousand"]
        ),
    )


TITLES = {
    "size": "1. by the size of both streams: ms of processor",
    "selectivity": "2. by the selectivity of the archived pattern: ms of processor",
    "range": "More of the grid, by range: ms of processor",
}
FIRST = {"size": "events", "selectivity": "selectivity", "range": "live events, range"}


def _grid_row(row: dict[str, Any]) -> tuple[str, ...]:
    if "size" in row:
        first = f"{row['size']:,}"
    elif "selectivity" in row:
        first = f"{row['selectivity']:g}"
    else:
        first = f"{row['live_events']:,}, {row['range']:,}"
    times = row["accesses"]
    shown = [f"{times[name]['cpu_seconds'] * 1e3:,.0f}" if name in times else "-" for name in (*ACCESSES, CHOSEN)]
    return (
        f"{first}, {row['place']}", f"{row['live_matches']:,}", *shown,
        f"{row['chosen_over_best']:.2f}", row["chosen"],
    )  # fmt: skip


def _lengths(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [f"{w:,}" for w in dict.fromkeys(row["sub_window"] for row in rows) if w]


def _sub_windows(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for place in dict.fromkeys(row["place"] for row in rows):
        own = [row for row in rows if row["place"] == place]
        yield place, *(f"{row['cpu_seconds'] * 1e3:,.0f}" for row in own)


def _buffers(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for live, buffer in dict.fromkeys((row["live_events"], row["buffer"]) for row in rows):
        own = {
            row["access"]: f"{row['cpu_seconds'] * 1e3:,.0f}"
            for row in rows
            if (row["live_events"], row["buffer"]) == (live, buffer)
        }
        yield f"{live:,}", f"{buffer:,}", own["lazy"], own["grouped"]


def worst(report: dict[str, Any]) -> float:
    """The chosen access over the best forced one, at its worst."""
    cells = [row for found in report["scales"].values() for name in GRID for row in found[name]]
    return max(row["chosen_over_best"] for row in [*cells, *report["thousand"]])


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the paper's sizes, one run each")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    times = 1 if options.quick else 3
    report: dict[str, Any] = {"machine": machine(), "quick": options.quick, "scales": {}}
    folder = Path(tempfile.mkdtemp(prefix="live_archive"))
    try:
        for scale in (1,) if options.quick else (1, 100):
            runs = times if scale == 1 else 1
            name = "as in the paper" if scale == 1 else "100 times"
            report["scales"][name] = {
                key: list(run(runs, scale, folder / f"{key} {scale}")) for key, run in EXPERIMENTS.items()
            }
        report["thousand"] = list(thousand(times, folder / "thousand"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report["chosen_over_best_at_worst"] = worst(report)
    console = Console()
    for sheet in sheets(report):
        console.print(sheet.rich())
    console.print(f"chosen over the best forced access, at its worst: {worst(report):.2f}")
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "papers_live_archive.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
