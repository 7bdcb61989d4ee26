"""A task that is brought up to date by a history, before its stream begins.

The history is everything before a *cut*. It comes in slices of time, all tasks of all stages take
them one after the other, and time passes at the end of each, as it does with the micro-batches of
a stream. So no task holds more than a slice besides what it keeps anyway.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.runtime.pipeline import Pipeline
from ensue.runtime.stage import BATCH, ROW
from ensue.runtime.tasks.task import Task
from ensue.runtime.tasks.task_state import PART
from ensue.runtime.tasks.wire_format import PackedTable, pack_events, pack_outputs
from ensue.vector.event_table import get_end_times

BEFORE_CUT = -1  # the number of the micro-batch in which a history comes


@dataclass(frozen=True, slots=True)
class BackfillCut:
    """Where a history ends and the stream begins, in the matcher's time, and its slices."""

    at: float  # events that end before it are the history's
    bounds: tuple[float, ...] = ()  # between the slices, ascending

    def slices(self, times: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
        """The slice of each event, by when it ends.

        >>> BackfillCut(10, (3, 5)).slices(np.array([2, 3, 4, 5, 9])).tolist()
        [0, 1, 1, 2, 2]
        """
        return np.searchsorted(np.array(self.bounds), times, side="right")

    @property
    def last(self) -> int:
        """The number of the last slice."""
        return len(self.bounds)

    def end_of(self, number: int) -> float:
        """Where a slice ends."""
        return self.bounds[number] if number < len(self.bounds) else self.at


@dataclass(frozen=True, slots=True)
class PackedSlice:
    """A packed table, and the slice of the history that it belongs to."""

    slice: int
    packed: PackedTable


def pack_history(
    chain: Pipeline,
    events: pa.Table,
    cut: BackfillCut,
    first: int = 0,
    key_groups: npt.NDArray[np.integer] | None = None,
) -> Iterator[PackedSlice]:
    """Events of a history before its cut, for the tasks of the stages that read them.

    `key_groups` as for `packed_events`; where somebody else has not found them out, `first` is the
    number of the first row among those of all tasks.
    """
    if key_groups is None:
        numbers = np.arange(first, first + events.num_rows)
        events = events.append_column(BATCH, pa.array(np.full(len(numbers), BEFORE_CUT)))
        events = events.append_column(ROW, pa.array(numbers))
    at = get_end_times(events, chain.source.shape)
    number_of = cut.slices(at)
    before = at < cut.at
    for number in np.unique(number_of[before]).tolist():
        mine = np.flatnonzero(before & (number_of == number))
        some = events if len(mine) == len(at) else events.take(pa.array(mine))
        for packed in pack_events(
            chain, some, key_groups=None if key_groups is None else key_groups[mine]
        ):
            yield PackedSlice(number, packed)


@dataclass(frozen=True, slots=True)
class BackfillState:
    """A task at the cut."""

    parts: list[bytes]
    timer: int | None  # the watermark, in milliseconds, at which it wants to be called


class BackfillTask:
    """A task of a stage that takes the slices of a history."""

    def __init__(self, chain: Pipeline, number: int, cut: BackfillCut) -> None:
        self.chain, self.number, self.cut = chain, number, cut
        self.task = Task(chain, number)
        self._next = 0  # the slice that is to come

    def take(self, slice: int, blobs: Sequence[bytes]) -> Iterator[PackedSlice]:
        """What is certain with all that a slice has for the task."""
        yield from self._pass(slice)
        self.task.accept(blobs)
        yield from self._pass(slice + 1)

    def end(self) -> Iterator[PackedSlice]:
        """What is certain up to the cut."""
        yield from self._pass(self.cut.last + 1)

    def _pass(self, slice: int) -> Iterator[PackedSlice]:
        """Lets time pass to the beginning of a slice, by every one before it: a later stage has
        what was found in a slice when its own time comes to the end of that."""
        while self._next < slice:
            found = self.task.release(self.cut.end_of(self._next))
            for packed in pack_outputs(self.chain, self.number, found):
                yield PackedSlice(self._next, packed)
            self._next += 1

    def saved(self) -> BackfillState:
        """The task, to go on with the stream."""
        self.task.cut = self.cut.at
        due = self.task.due()
        data = self.task.save()
        parts = [data[k : k + PART] for k in range(0, len(data), PART)]
        return BackfillState(parts, None if due is None else self.chain.clock.timer(due))
