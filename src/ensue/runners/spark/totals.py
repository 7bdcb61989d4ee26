"""The counters of a stream, added up over its micro-batches."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ensue.runners.spark.progress import BatchProgress

_REMEMBERED = 200  # micro-batches; a report of one may still change while it is the newest
_TOTALS = (
    "input_rows", "events", "late", "dropped", "ahead", "before_cut", "matches", "misses",
    "probes", "rows_read", "archived", "shed_events", "shed_keys",
)  # fmt: skip


@dataclass
class Totals:
    """The counters of all micro-batches so far. Spark remembers only the last 100."""

    input_rows: int = 0
    events: int = 0
    late: int = 0
    dropped: int = 0
    ahead: int = 0
    before_cut: int = 0
    matches: int = 0
    misses: int = 0
    probes: int = 0
    rows_read: int = 0
    archived: int = 0
    shed_events: int = 0
    shed_keys: int = 0
    batches: int = 0
    last: "BatchProgress | None" = None
    watermark: datetime | int | None = None
    _counted: "dict[int, BatchProgress]" = field(default_factory=dict, repr=False)

    def add(self, reports: "Iterable[BatchProgress]") -> "list[BatchProgress]":
        """Counts what is new in the reports, and returns it."""
        new = [p for p in reports if self._counted.get(p.batch) != p]
        for report in new:
            before = self._counted.pop(report.batch, None)
            for name in _TOTALS:
                change = getattr(report, name) - (getattr(before, name) if before else 0)
                setattr(self, name, getattr(self, name) + change)
            self.batches += before is None
            self._counted[report.batch] = report
            self.last = report
            self.watermark = report.watermark or self.watermark
        while len(self._counted) > _REMEMBERED:
            del self._counted[next(iter(self._counted))]
        return new

    @property
    def told(self) -> str:
        """All of it in a line."""
        if self.last is None:
            return "waiting for the first micro-batch"
        counts = {"micro-batches": self.batches, "events": self.events, "matches": self.matches}
        lost = {"late": self.late, "dropped": self.dropped, "too far ahead": self.ahead}
        counts |= {name: count for name, count in lost.items() if count}
        said = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        return f"{said}; the last took {self.last.seconds:,.1f} s"
