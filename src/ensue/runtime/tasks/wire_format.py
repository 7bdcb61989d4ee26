"""What tasks send each other: data and control, addressed to key groups; and reads their input.

Data are serialized tables: events and complex events for a stage, or the matches of an output.
Control is everything else: the clock of the stream, counters, late events, files, shed keys.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.analyzer.hierarchy_layers import get_layer_column
from ensue.engine.state_format import deserialize_table, serialize_table
from ensue.runtime.pipeline import PipelinePlan
from ensue.runtime.stage import COPY, RoutedEvents, SubscriptionVersion
from ensue.vector.event_table import drop_bad_times, get_end_times
from ensue.vector.key_groups import assign_key_groups

if TYPE_CHECKING:
    from ensue.archives.parquet_writer import AddedFile

MAX_ROWS = 65_536  # of a packed table
_NAME = b"made"  # where a packed table says whose events these are


class Control(StrEnum):
    """The kinds of control messages."""

    CLOCK = "clock"  # the newest event of a task, or the watermark of a sender, for every key group
    COUNTERS = "counters"  # of a key group in a micro-batch
    LATE = "late"  # late events, to be delivered
    ARCHIVED = "archived"  # a file that was written, to be made part of the stream's archive
    SHED = "shed"  # keys that were given up, each with its interval
    KEY_GROUP = "key group"  # a history: the key group exists, maybe without events
    STATE = "state"  # a history: a part of the state of a key group
    SUBSCRIPTIONS = "subscriptions"  # those that were left out, and their sizes


@dataclass(frozen=True, slots=True)
class PackedTable:
    """Data: a serialized table for a key group of a stage; after the last stage it is delivered."""

    stage: int
    key_group: int  # from 0
    output: int | None  # None: events of a stage
    blob: bytes


@dataclass(frozen=True, slots=True)
class ControlMessage:
    """Control: a message to a key group of a stage, or after the last stage to the driver."""

    stage: int
    key_group: int
    control: Control
    blob: bytes = b""


Message = PackedTable | ControlMessage


def pack_events(
    chain: PipelinePlan, events: pa.Table, first: int = 0, key_groups: npt.NDArray[np.integer] | None = None
) -> Iterator[PackedTable]:
    """Input events for the stages from `first` on that read them.

    `key_groups` are those of the events in the only stage, if they are known.
    """
    for number in range(first, len(chain.stages)):
        reads = chain.stages[number].reads
        if key_groups is not None:
            yield from _by_key_group(chain, number, events, key_groups)
            continue
        selected = events.filter(pa.array(reads.compute_mask(events, chain.source.shape)))
        if selected.num_rows:
            yield from _by_key_group(chain, number, selected, _hash_keys(chain, number, selected, reads.key))


def pack_routed_events(chain: PipelinePlan, events: pa.Table, spread: RoutedEvents) -> Iterator[PackedTable]:
    """Events for the key groups of a routing stage."""
    rows, before = spread.rows, np.arange(len(spread.rows))
    copies = before - np.searchsorted(rows, rows)  # the rows of an event follow each other
    going = events.take(pa.array(rows))
    for field in spread.added.schema:
        going = going.append_column(field, spread.added.column(field.name))
    going = going.append_column(COPY, pa.array(copies, pa.int64()))
    yield from _by_key_group(chain, 0, going, spread.key_groups)


def pack_outputs(chain: PipelinePlan, number: int, found: Sequence[pa.Table]) -> Iterator[PackedTable]:
    """The output of a stage: delivered tables, and complex events for later stages."""
    stage = chain.stages[number]
    outputs = {output.number: output for output in stage.outputs}
    for output, table in stage.iterate_outputs(found):
        for piece in _pieces(outputs[output].convert(table)):
            yield PackedTable(len(chain.stages), 0, output, serialize_table(piece))
    for name, table in stage.iterate_forwarded(found):
        if not table.num_rows:
            continue
        marked = table.replace_schema_metadata({_NAME: name.encode()})
        for later in range(number + 1, len(chain.stages)):
            if name in chain.stages[later].takes:
                key = [get_layer_column(field) for field in chain.stages[later].reads.key]
                yield from _by_key_group(chain, later, marked, _hash_keys(chain, later, marked, key))


def pack_late_events(chain: PipelinePlan, late: pa.Table) -> Iterator[ControlMessage]:
    """Late events, to be delivered."""
    for piece in _pieces(late):
        yield ControlMessage(len(chain.stages), 0, Control.LATE, serialize_table(piece))


def pack_files(chain: PipelinePlan, files: "Iterable[AddedFile]") -> Iterator[ControlMessage]:
    """Files of the stream's archive, to be committed."""
    for file in files:
        yield ControlMessage(len(chain.stages), 0, Control.ARCHIVED, file.text().encode())


def pack_shed_keys(chain: PipelinePlan, shed: pa.Table | None) -> Iterator[ControlMessage]:
    """Shed keys, to be listed."""
    for piece in () if shed is None else _pieces(shed):
        yield ControlMessage(len(chain.stages), 0, Control.SHED, serialize_table(piece))


def unpack_table(blob: bytes) -> tuple[str | None, pa.Table]:
    """Deserializes a table, with the name of its complex events; None: input events."""
    table = deserialize_table(blob)
    metadata = table.schema.metadata or {}
    if _NAME not in metadata:
        return None, table
    return metadata[_NAME].decode(), table.replace_schema_metadata(None)


def _hash_keys(chain: PipelinePlan, number: int, events: pa.Table, key: Sequence[str]) -> npt.NDArray[np.int64]:
    return assign_key_groups(events, key, chain.count_key_groups(number), chain.source.shape.unit)


def _by_key_group(
    chain: PipelinePlan, number: int, events: pa.Table, key_groups: npt.NDArray[np.integer]
) -> Iterator[PackedTable]:
    if not events.num_rows:
        return
    count = chain.count_key_groups(number)
    if count > 1:
        narrow = key_groups.astype(np.uint16)  # sorted by radix
        order = np.argsort(narrow, kind="stable")
        events, key_groups = events.take(pa.array(order)), narrow[order]
    bounds = np.searchsorted(key_groups, np.arange(count + 1)) if count > 1 else [0, events.num_rows]
    for key_group in range(count):
        begin, end = int(bounds[key_group]), int(bounds[key_group + 1])
        for piece in _pieces(events.slice(begin, end - begin)):
            yield PackedTable(number, key_group, None, serialize_table(piece))


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    for begin in range(0, table.num_rows, MAX_ROWS):
        yield table.slice(begin, MAX_ROWS)


KEY_GROUP = "__key_group"  # the column that says where an event goes
PASSING, AHEAD = -1, -2  # in the place of a key group: it only tells the time; it is too far ahead


@dataclass(frozen=True, slots=True)
class TaskInput:
    """The input events of a task with their key groups, and counts of dropped events."""

    events: pa.Table
    dropped: int  # without a usable time
    ahead: int  # too far ahead of the clock
    newest_ms: int | None  # None: no events
    oldest: float | None  # in ticks


def read_task_input(batches: Iterable[pa.RecordBatch], chain: PipelinePlan, bad_events: str) -> TaskInput:
    """Drops unusable events from the input of a task."""
    schema = chain.source.arrow.append(pa.field(KEY_GROUP, pa.int32()))
    kept = [batch for batch in batches if batch.num_rows]
    whole = pa.Table.from_batches(kept).cast(schema) if kept else schema.empty_table()
    far = _key_groups(whole) == AHEAD
    if far.any():
        whole = whole.filter(pa.array(~far))
    events, dropped = drop_bad_times(whole, chain.source.shape, bad_events, chain.types, finite=True)
    times = get_end_times(events, chain.source.shape)
    newest_ms = chain.clock.newest_ms(times)
    oldest = times.min().item() if len(times) else None
    passing = _key_groups(events) == PASSING
    if passing.any():
        events = events.filter(pa.array(~passing))
    return TaskInput(events, dropped, int(far.sum()), newest_ms, oldest)


def _key_groups(events: pa.Table) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    return np.asarray(events.column(KEY_GROUP).to_numpy(), np.int32)


@dataclass(frozen=True, slots=True)
class StreamClock:
    """What tasks know of a whole micro-batch or of a step: its times, and the version of its subscriptions.

    A sender that puts events in order sends them in steps, each with its own watermark and version.
    """

    newest_ms: int | None = None  # of its events; None: it has none
    oldest: float | None = None  # for the task that has to find a gap after a history
    version: SubscriptionVersion | None = None  # None: the subscriptions do not change
    position: int = 0  # of a step; 0: a micro-batch
    watermark: float | None = None  # after a step; None: it is unknown

    def pack(self) -> bytes:
        """Serializes it for a control message."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def merge(cls, messages: Iterable[bytes]) -> "StreamClock":
        """Combines the messages of all tasks.

        >>> StreamClock.merge([StreamClock(5).pack(), StreamClock().pack(), StreamClock(-7, 3).pack()])
        StreamClock(newest_ms=5, oldest=3, version=None, position=0, watermark=None)
        """
        clocks = [json.loads(message) for message in messages]
        known = {name: [clock[name] for clock in clocks if clock[name] is not None] for name in cls.__slots__}
        return cls(
            max(known["newest_ms"], default=None),
            min(known["oldest"], default=None),
            next((SubscriptionVersion(**version) for version in known["version"]), None),
            max(known["position"], default=0),
            max(known["watermark"], default=None),
        )

    def watermark_ms(self, delay_ms: int | None) -> int | None:
        """The watermark after the micro-batch; None: it is unknown."""
        return None if self.newest_ms is None or delay_ms is None else self.newest_ms - delay_ms


@dataclass(frozen=True, slots=True)
class StepInput:
    """The messages of a micro-batch or of a step: its clock, and its data."""

    clock: StreamClock
    blobs: Sequence[bytes]


def read_steps(messages: Iterable[tuple[str | None, bytes]]) -> list[StepInput]:
    """Reads messages, given as control and blob: a clock begins a step; of a micro-batch all clocks are merged."""
    steps: defaultdict[int, tuple[list[bytes], list[bytes]]] = defaultdict(lambda: ([], []))  # clocks and data
    position = 0
    for control, blob in messages:
        if control == Control.CLOCK:
            position = json.loads(blob)["position"]
        if control in (None, Control.CLOCK):
            steps[position][control is None].append(blob)
    return [StepInput(StreamClock.merge(clocks), blobs) for _, (clocks, blobs) in sorted(steps.items())]
