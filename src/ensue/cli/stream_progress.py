"""Progress of a stream: live counters on a terminal, or a line for each micro-batch."""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.console import Console
from rich.filesize import decimal
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ensue.backends.spark.stream_progress import StreamTotals
from ensue.cli.output import print_matches, write_matches
from ensue.cli.terminal import format_count, get_message_console, print_notice
from ensue.projection.notification_rows import convert_to_json_rows

if TYPE_CHECKING:
    from ensue.backends.spark.stream_progress import BatchProgress


@dataclass(frozen=True, slots=True)
class TimeFormatter:
    """Formats the times of a stream as dates, or as numbers if its time column is numeric."""

    numbers: bool = False

    def moment(self, watermark: datetime | int | None) -> str:
        if watermark is None:
            return "none yet"
        if isinstance(watermark, int):
            return f"{watermark:,}"
        return watermark.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]

    def length(self, seconds: float) -> str:
        return f"{seconds * 1_000:,.0f}" if self.numbers else f"{seconds:,.1f} s"


def build_counter_table(title: str, totals: StreamTotals, running: float, scale: TimeFormatter) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_column(style="dim")
    table.title, table.title_justify, table.title_style = Text(title), "left", "bold"
    for row in _rows(totals, running, scale):
        table.add_row(*(Text(cell) for cell in row))
    return table


def _rows(totals: StreamTotals, running: float, scale: TimeFormatter) -> list[Sequence[str]]:
    minutes, seconds = divmod(int(running), 60)
    clock = f"running {minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
    last, counts = totals.last, totals.counts
    if last is None:
        return [("micro-batches", "0", f"{clock}, waiting for the first")]
    stored = f"keys, {decimal(last.stored_bytes)}; {counts['misses']:,} loaded again"
    shed = f"events, keys dropped {counts['shed_keys']:,} times"
    known = ("  before the cut", f"{counts['before_cut']:,}", "already in the history or the archive")
    read = f"archive reads, {counts['rows_read']:,} rows"
    kept = f"events, {last.recent:,} not archived yet"
    return [
        ("micro-batches", f"{totals.batches:,}", f"{clock}, the last took {last.seconds:.2f} s"),
        ("events in", f"{counts['input_rows']:,}", f"{last.rows_per_second:,.0f} a second"),
        ("  for the query", f"{counts['events']:,}", "of its types, with a key"),
        ("  late", f"{counts['late']:,}", "behind the watermark"),
        ("  dropped", f"{counts['dropped']:,}", "without usable time"),
        ("  ahead", f"{counts['ahead']:,}", "too far ahead of the clock"),
        *([known] if counts["before_cut"] else ()),
        ("matches", f"{counts['matches']:,}", f"{last.matches:,} in the last micro-batch"),
        ("partial matches", f"{last.partial_matches:,}", "live"),
        ("waiting", f"{last.waiting:,}", "events for the watermark"),
        ("state", decimal(last.state_bytes), ""),
        *([("lookups", f"{counts['probes']:,}", read)] if counts["probes"] else ()),
        *([("archived", f"{counts['archived']:,}", kept)] if counts["archived"] or last.recent else ()),
        *([("spilled", f"{last.stored_keys:,}", stored)] if last.stored_keys else ()),
        *([("shed", f"{counts['shed_events']:,}", shed)] if counts["shed_events"] else ()),
        ("matching", f"{last.matching_share:.0%}", "of the time in Python workers"),
        ("watermark", "", _watermark(totals.watermark, last.lag_seconds, scale)),
    ]


def _watermark(watermark: datetime | int | None, lag: float | None, scale: TimeFormatter) -> str:
    behind = "" if lag is None else f", {scale.length(lag)} behind the newest event"
    return scale.moment(watermark) + behind


def format_progress_line(report: "BatchProgress", scale: TimeFormatter) -> str:
    speed = f"{report.seconds:.2f} s ({report.rows_per_second:,.0f} a second)"
    parts = [
        f"micro-batch {report.batch}: {format_count(report.input_rows, 'event', 'events')} in {speed}",
        f"{report.late:,} late" if report.late else "",
        f"{report.dropped:,} dropped" if report.dropped else "",
        f"{report.ahead:,} ahead of the clock" if report.ahead else "",
        f"{report.before_cut:,} before the cut" if report.before_cut else "",
        format_count(report.matches, "match", "matches"),
        f"{report.partial_matches:,} partial",
        f"{report.waiting:,} waiting",
        f"state {decimal(report.state_bytes)}",
        f"{report.probes:,} archive reads" if report.probes else "",
        f"{report.archived:,} archived" if report.archived else "",
        f"{report.stored_keys:,} keys spilled" if report.stored_keys else "",
        f"{report.misses:,} loaded again" if report.misses else "",
        f"{report.shed_events:,} shed" if report.shed_events else "",
        f"matching {report.matching_share:.0%}",
        f"watermark {_watermark(report.watermark, report.lag_seconds, scale)}",
    ]
    return ", ".join(part for part in parts if part)


class StreamScreen:
    """Shows the counters and matches of a stream on one terminal."""

    def __init__(self, title: str, *, form: str | None, limit: int, scale: TimeFormatter) -> None:
        self.title, self.limit, self.scale = title, limit, scale
        self.form = form or ("table" if sys.stdout.isatty() else "json")
        from ensue.backends.spark.stream_progress import StreamWarnings

        self.totals = StreamTotals()
        self._warnings = StreamWarnings()
        self.broken = False  # the reader closed the pipe
        self._began = time.monotonic()
        self._live: Live | None = None
        if sys.stderr.isatty():
            # Matches above the counters must use the same console.
            console = Console(highlight=False) if sys.stdout.isatty() else get_message_console()
            self._live = Live(
                console=console,
                refresh_per_second=4,
                get_renderable=lambda: build_counter_table(
                    self.title, self.totals, time.monotonic() - self._began, self.scale
                ),
            )

    def __enter__(self) -> "StreamScreen":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def report(self, reports: "Iterable[BatchProgress]") -> None:
        for new in self.totals.add(reports):
            if self._live is None:
                print_notice(format_progress_line(new, self.scale))
            for warning in self._warnings.take_new(new):
                if self._live is None:
                    print_notice(f"note: {warning}")
                else:  # above the counters
                    self._live.console.print(Text(f"note: {warning}", style="yellow"))

    def show(self, matches: Any, batch: int, level: str | None = None) -> None:  # noqa: ARG002
        """Print the matches of a micro-batch, as a sink."""
        from ensue.backends.spark.session import collect

        table: pa.Table = collect(matches)
        if level is not None:
            table = table.add_column(0, "level", pa.array([level] * table.num_rows, pa.string()))
        if not table.num_rows or self.broken:
            return
        try:
            self._print(table)
        except BrokenPipeError:
            self.broken = True

    def _print(self, table: pa.Table) -> None:
        if self._live is None or not sys.stdout.isatty():
            write_matches(table, "-", self.form, self.limit)
        elif self.form == "table":
            shown = [name for name in table.column_names if name != "match_id"]  # it is wide
            table = table.select(shown or ["match_id"])
            print_matches(self._live.console, table, self.limit, short_ids=True)
        else:
            for row in convert_to_json_rows(table):
                text = Text(json.dumps(row, ensure_ascii=False, allow_nan=False))
                self._live.console.print(text, soft_wrap=True)
