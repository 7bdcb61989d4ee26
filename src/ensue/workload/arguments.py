"""What a call says of its events and of how to run, beside the query: the same on all runners."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ensue.errors import EventError
from ensue.workload.arranged import Arranging

USUAL = "usual"  # what an argument is by default, where it can be kept


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Where time, type, order and place of events are, and what becomes of bad and late ones."""

    time: str | tuple[str, str]
    type: str | None = None
    order: tuple[str, ...] = ()
    location: str | tuple[str, str] | None = None
    space: str = "plane"
    arranging: Arranging | None = None  # how queries say themselves what orders and splits events
    bad_events: str = "raise"
    progress: Callable[[int, int], None] | None = None
    # of streams
    watermark: Any = None
    late_events: str = "count"
    lanes: int | None = None
    max_ahead: Any = USUAL
    number: int = 1  # among those of one query of Spark, whose counters have names of their own

    def __post_init__(self) -> None:
        if self.bad_events not in ("raise", "drop"):
            raise EventError(f"bad_events must be 'raise' or 'drop', not {self.bad_events!r}")

    def require_table(self) -> None:
        """Raises an EventError for what only streams take: a table is sorted as a whole."""
        refused = {
            "max_ahead": (USUAL, "in a table no event moves the others"),
            "watermark": (None, "a table is sorted by time as a whole"),
            "late_events": ("count", "in a table no event is late"),
        }
        for name, (default, reason) in refused.items():
            value = getattr(self, name)
            if value != default:
                raise EventError(
                    f"{name}={value!r} is only for streams: {reason}\n  hint: leave it out"
                )

    @property
    def deliver_late(self) -> bool:
        """Whether late events are given back: otherwise they are only counted."""
        if self.late_events not in ("count", "deliver"):
            raise EventError(f"late_events must be 'count' or 'deliver', not {self.late_events!r}")
        return self.late_events == "deliver"
