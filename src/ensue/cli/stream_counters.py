"""What a running stream shows: its counters, live on a terminal or a line per micro-batch."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ensue.cli.matches import drawn, write
from ensue.cli.terminal import messages, notice
from ensue.results.readable import rows
from ensue.runners.spark.totals import Totals

if TYPE_CHECKING:
    from ensue.runners.spark.progress import BatchProgress


@dataclass(frozen=True, slots=True)
class Scale:
    """How the stream's time is written: as dates, or as the numbers that its column holds."""

    numbers: bool = False

    def moment(self, watermark: datetime | int | None) -> str:
        if watermark is None:
            return "none yet"
        if isinstance(watermark, int):
            return f"{watermark:,}"
        return watermark.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]

    def length(self, seconds: float) -> str:
        return f"{seconds * 1_000:,.0f}" if self.numbers else f"{seconds:,.1f} s"


def many(count: int, one: str, several: str) -> str:
    """So many of them.

    >>> many(1, "match", "matches"), many(1_200, "match", "matches")
    ('1 match', '1,200 matches')
    """
    return f"{count:,} {one if count == 1 else several}"


def size(count: int) -> str:
    """So many bytes, readable.

    >>> size(512), size(1_536_000)
    ('512 B', '1.5 MB')
    """
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1_000:
            return f"{amount:,.0f} B" if unit == "B" else f"{amount:,.1f} {unit}"
        amount /= 1_000
    return f"{amount:,.1f} TB"


def counters(title: str, totals: Totals, running: float, scale: Scale) -> Table:
    """The counters as a table for a terminal."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_column(style="dim")
    table.title, table.title_justify, table.title_style = Text(title), "left", "bold"
    for row in _rows(totals, running, scale):
        table.add_row(*(Text(cell) for cell in row))
    return table


def _rows(totals: Totals, running: float, scale: Scale) -> list[Sequence[str]]:
    minutes, seconds = divmod(int(running), 60)
    clock = f"running {minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
    last = totals.last
    if last is None:
        return [("micro-batches", "0", f"{clock}, waiting for the first")]
    stored = f"keys, {size(last.stored_bytes)}; {totals.misses:,} were missed"
    shed = f"events, {totals.shed_keys:,} times a key was given up"
    known = ("  before the cut", f"{totals.before_cut:,}", "that the history or the archive had")
    read = f"reads of archives, {totals.rows_read:,} rows"
    kept = f"events, {last.recent:,} are not there yet"
    return [
        ("micro-batches", f"{totals.batches:,}", f"{clock}, the last took {last.seconds:.2f} s"),
        ("events in", f"{totals.input_rows:,}", f"{last.rows_per_second:,.0f} a second"),
        ("  for the query", f"{totals.events:,}", "of its types, with a key"),
        ("  late", f"{totals.late:,}", "behind the watermark"),
        ("  dropped", f"{totals.dropped:,}", "without usable time"),
        ("  ahead", f"{totals.ahead:,}", "further ahead of the clock than is allowed"),
        *([known] if totals.before_cut else ()),
        ("matches", f"{totals.matches:,}", f"{last.matches:,} in the last micro-batch"),
        ("partial matches", f"{last.partial_matches:,}", "live"),
        ("waiting", f"{last.waiting:,}", "events that the watermark has not passed"),
        ("state", size(last.state_bytes), ""),
        *([("looked up", f"{totals.probes:,}", read)] if totals.probes else ()),
        *([("archived", f"{totals.archived:,}", kept)] if totals.archived or last.recent else ()),
        *([("stored", f"{last.stored_keys:,}", stored)] if last.stored_keys else ()),
        *([("shed", f"{totals.shed_events:,}", shed)] if totals.shed_events else ()),
        ("matching", f"{last.matching_share:.0%}", "of the time in Python workers"),
        ("watermark", "", _watermark(totals.watermark, last.lag_seconds, scale)),
    ]


def _watermark(watermark: datetime | int | None, lag: float | None, scale: Scale) -> str:
    behind = "" if lag is None else f", {scale.length(lag)} behind the newest event"
    return scale.moment(watermark) + behind


def line(report: "BatchProgress", scale: Scale) -> str:
    """A micro-batch in one line, for logs."""
    speed = f"{report.seconds:.2f} s ({report.rows_per_second:,.0f} a second)"
    parts = [
        f"micro-batch {report.batch}: {many(report.input_rows, 'event', 'events')} in {speed}",
        f"{report.late:,} late" if report.late else "",
        f"{report.dropped:,} dropped" if report.dropped else "",
        f"{report.ahead:,} ahead of the clock" if report.ahead else "",
        f"{report.before_cut:,} before the cut" if report.before_cut else "",
        many(report.matches, "match", "matches"),
        f"{report.partial_matches:,} partial",
        f"{report.waiting:,} waiting",
        f"state {size(report.state_bytes)}",
        f"{report.probes:,} reads of archives" if report.probes else "",
        f"{report.archived:,} archived" if report.archived else "",
        f"{report.stored_keys:,} keys stored" if report.stored_keys else "",
        f"{report.misses:,} missed" if report.misses else "",
        f"{report.shed_events:,} shed" if report.shed_events else "",
        f"matching {report.matching_share:.0%}",
        f"watermark {_watermark(report.watermark, report.lag_seconds, scale)}",
    ]
    return ", ".join(part for part in parts if part)


class Screen:
    """Shows counters and matches: one place, as both may be on the same terminal."""

    def __init__(self, title: str, *, form: str | None, limit: int, scale: Scale) -> None:
        self.title, self.limit, self.scale = title, limit, scale
        self.form = form or ("table" if sys.stdout.isatty() else "json")
        from ensue.runners.spark.concerns import Concerns

        self.totals = Totals()
        self._concerns = Concerns()
        self.broken = False  # nobody reads the matches any more
        self._began = time.monotonic()
        self._live: Live | None = None
        if sys.stderr.isatty():
            # Matches above the counters must come through the same console.
            console = Console(highlight=False) if sys.stdout.isatty() else messages()
            self._live = Live(console=console, refresh_per_second=4, get_renderable=self._drawn)

    def __enter__(self) -> "Screen":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def _drawn(self) -> Table:
        return counters(self.title, self.totals, time.monotonic() - self._began, self.scale)

    def report(self, reports: "Iterable[BatchProgress]") -> None:
        """Takes what the query says of itself."""
        for new in self.totals.add(reports):
            if self._live is None:
                notice(line(new, self.scale))
            for concern in self._concerns.of(new):
                self._note(concern)

    def _note(self, text: str) -> None:
        if self._live is None:
            notice(f"note: {text}")
        else:  # above the counters
            self._live.console.print(Text(f"note: {text}", style="yellow"))

    def show_of(self, level: str) -> Callable[[Any, int], None]:
        """A sink that prints matches with the name of their level."""
        return lambda matches, batch: self.show(matches, batch, level)

    def show(self, matches: Any, batch: int, level: str | None = None) -> None:  # noqa: ARG002
        """Prints the matches of a micro-batch: a sink."""
        from ensue.runners.spark.session import collect

        found: pa.Table = collect(matches)
        if level is not None:
            found = found.add_column(0, "level", pa.array([level] * found.num_rows, pa.string()))
        if not found.num_rows or self.broken:
            return
        try:
            self._print(found)
        except BrokenPipeError:
            self.broken = True

    def _print(self, found: pa.Table) -> None:
        if self._live is None or not sys.stdout.isatty():
            write(found, "-", self.form, self.limit)
        elif self.form == "table":
            shown = [name for name in found.column_names if name != "match_id"]  # it is wide
            self._live.console.print(drawn(found.select(shown or ["match_id"]), self.limit))
        else:
            for row in rows(found):
                text = Text(json.dumps(row, ensure_ascii=False, allow_nan=False))
                self._live.console.print(text, soft_wrap=True)
