"""Backfill: a task processes a history before its stream begins.

The history is everything before a *cut*. It is split into slices of time, which all tasks process
in order, like the micro-batches of a stream. So a task buffers one slice at most.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.runtime.pipeline import PipelinePlan
from ensue.runtime.stage import BATCH, ROW
from ensue.runtime.tasks.task import Task
from ensue.runtime.tasks.task_state import PART
from ensue.runtime.tasks.wire_format import PackedTable, pack_events, pack_outputs
from ensue.vector.event_table import get_end_times

BEFORE_CUT = -1  # the number of the micro-batch in which a history comes


@dataclass(frozen=True, slots=True)
class BackfillCut:
    """The time between history and stream, in ticks, and the slices of the history."""

    at: float  # events that end before belong to the history
    bounds: tuple[float, ...] = ()  # between the slices, ascending

    def slices(self, times: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
        """The slice of each event, by its end.

        >>> BackfillCut(10, (3, 5)).slices(np.array([2, 3, 4, 5, 9])).tolist()
        [0, 1, 1, 2, 2]
        """
        return np.searchsorted(np.array(self.bounds), times, side="right")

    @property
    def last(self) -> int:
        """The number of the last slice."""
        return len(self.bounds)

    def get_slice_end(self, number: int) -> float:
        """The end of a slice."""
        return self.bounds[number] if number < len(self.bounds) else self.at


@dataclass(frozen=True, slots=True)
class PackedSlice:
    """A packed table, and the slice of the history that it belongs to."""

    slice: int
    packed: PackedTable


def pack_history(
    chain: PipelinePlan,
    events: pa.Table,
    cut: BackfillCut,
    first: int = 0,
    key_groups: npt.NDArray[np.integer] | None = None,
) -> Iterator[PackedSlice]:
    """Events of a history before its cut, for the tasks of the stages that read them.

    `key_groups` as for `pack_events`; if they are unknown, `first` is the number of the first row
    among those of all tasks.
    """
    if key_groups is None:
        numbers = np.arange(first, first + events.num_rows)
        events = events.append_column(BATCH, pa.array(np.full(len(numbers), BEFORE_CUT)))
        events = events.append_column(ROW, pa.array(numbers))
    at = get_end_times(events, chain.source.shape)
    number_of = cut.slices(at)
    before = at < cut.at
    for number in np.unique(number_of[before]).tolist():
        rows = np.flatnonzero(before & (number_of == number))
        part = events if len(rows) == len(at) else events.take(pa.array(rows))
        groups = None if key_groups is None else key_groups[rows]
        for packed in pack_events(chain, part, key_groups=groups):
            yield PackedSlice(number, packed)


@dataclass(frozen=True, slots=True)
class BackfillState:
    """A task at the cut."""

    parts: list[bytes]
    timer: int | None  # the watermark of its next timer, in milliseconds


class BackfillTask:
    """A task of a stage that processes the slices of a history."""

    def __init__(self, chain: PipelinePlan, number: int, cut: BackfillCut) -> None:
        self.chain, self.number, self.cut = chain, number, cut
        self.task = Task(chain, number)
        self._next = 0  # the next slice

    def take(self, slice: int, blobs: Sequence[bytes]) -> Iterator[PackedSlice]:
        """Processes all events of a slice for the task."""
        yield from self._pass(slice)
        self.task.accept(blobs)
        yield from self._pass(slice + 1)

    def end(self) -> Iterator[PackedSlice]:
        """Processes the remaining slices, which have no events for the task."""
        yield from self._pass(self.cut.last + 1)

    def _pass(self, slice: int) -> Iterator[PackedSlice]:
        """Advances to the beginning of a slice, slice by slice: a later stage needs the matches
        of a slice before it reaches the end of that slice."""
        while self._next < slice:
            found = self.task.release(self.cut.get_slice_end(self._next))
            for packed in pack_outputs(self.chain, self.number, found):
                yield PackedSlice(self._next, packed)
            self._next += 1

    def save_state(self) -> BackfillState:
        """The state of the task for the stream."""
        self.task.cut = self.cut.at
        due = self.task.due()
        data = self.task.snapshot()
        parts = [data[k : k + PART] for k in range(0, len(data), PART)]
        return BackfillState(parts, None if due is None else self.chain.clock.timer(due))
