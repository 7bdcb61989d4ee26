"""A kind of work over the events of a stream, and what it finds where all events are there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from ensue.columns.stream import Rows
from ensue.workload.prepared import Prepared
from ensue.workload.stage import Output, Reads, Stage

SLICE = 1 << 20  # rows a kernel looks at before it can be interrupted
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Unseen:
    """Types of events that are asked for, and of which none came as far as is known."""

    types: frozenset[str] = frozenset()
    defined: tuple[str, ...] = ()  # events that are defined, and may have been meant


@dataclass(frozen=True, slots=True)
class Whole:
    """What was found in events that are all there."""

    tables: list[pa.Table]
    unseen: Unseen = Unseen()


class Work(Protocol):
    """One kind of work over the events of a workload, planned."""

    @property
    def outputs(self) -> tuple[Output, ...]: ...
    @property
    def expected(self) -> tuple[Prepared, ...]:
        """The parts of it of which it can be foreseen what they hold and find."""

    @property
    def of_events(self) -> bool:
        """Whether these are found in the events as they come in."""

    @property
    def reads(self) -> Reads:
        """The events that matter to it."""

    @property
    def rows(self) -> Rows | None:
        """Picks the events that may be in a match or forbid one; None: all of them are needed."""

    def matched(self, events: pa.Table, progress: Progress | None = None) -> Whole:
        """What it finds in events that are all there, in the order of the stream."""

    def chains(self) -> tuple[tuple[Stage, ...], ...]:
        """Its stages, as chains that do not wait for each other."""

    def whole(self) -> Stage:
        """All of it as one stage, where one lane has all events."""
