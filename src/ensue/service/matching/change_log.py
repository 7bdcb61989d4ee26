"""The steps that a service sends to Spark, and the answers.

A step is a batch of the database: its position, the version of the set that matches it, the events
that are in order by now, and the watermark. The database has events in order of acceptance; steps
have them in stream order, so Spark needs no watermark.
"""

import json
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.backends.live_backend import parse_watermark_delay, to_engine_time
from ensue.backends.spark.service_tasks import STEP_SCHEMA
from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.errors import StateError
from ensue.projection.match_ids import ORDINAL
from ensue.runtime.event_buffer import DuplicateEvents, StreamOrder
from ensue.service.event_columns import EventColumns
from ensue.service.store.event_batches import StoredBatch
from ensue.vector.arrow_numpy import Ints

FORMAT = 1  # of the saved state


@dataclass(frozen=True, slots=True)
class StreamStep:
    """A step without its events."""

    position: int
    after: int  # position of the previous step
    version: int  # of the set; later subscriptions ignore its events
    now: Any  # the watermark, in the matcher's time; None: unknown
    alone: bool  # an advance of time without events
    floor: int = 0  # subscriptions cancelled up to this version are removed

    @property
    def head(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, head: str) -> "StreamStep":
        return cls(**json.loads(head))


def get_ordinals(events: pa.Table) -> Ints:
    """The ordinals of events among equal ones."""
    if ORDINAL not in events.column_names:
        return np.zeros(events.num_rows, np.int64)
    return np.asarray(events.column(ORDINAL).to_numpy(), np.int64)


class StepBuilder:
    """Converts batches to steps, in order."""

    def __init__(self, columns: EventColumns) -> None:
        self.columns = columns
        self.order = StreamOrder(columns.shape, parse_watermark_delay(columns.stream.watermark, columns.shape))
        self._twins = DuplicateEvents(columns.shape.schema.end, columns.shape.unit)
        self.position = 0
        self.version = 0

    def take(self, batch: StoredBatch) -> tuple[StreamStep, pa.Table]:
        """Converts a batch; returns the step and the events that are in order by now."""
        if batch.advance is not None:
            to = to_engine_time(self.columns.moment(batch.advance), self.columns.shape)
            events = self.order.on_watermark(to)
        else:
            events = self.order.take(batch.events(self.columns.arrow)).events
        step = StreamStep(
            batch.position, self.position, batch.version, self.order.now,
            batch.advance is not None,
        )  # fmt: skip
        self.position, self.version = batch.position, batch.version
        return step, self._add_ordinals(events)

    def _add_ordinals(self, events: pa.Table) -> pa.Table:
        """Adds the ordinals of events among equal ones, if any are equal."""
        numbers = self._twins.ordinals(events, np.ones(events.num_rows, np.bool_))
        return events.append_column(ORDINAL, pa.array(numbers)) if numbers.any() else events

    def snapshot(self) -> bytes:
        header = {"steps": FORMAT, "position": self.position, "version": self.version}
        return pack_state(header, self._twins.snapshot(), {"order": self.order.snapshot()})

    def restore(self, data: bytes) -> None:
        header, arrays, blobs = unpack_state(data)
        if header.get("steps") != FORMAT:
            raise StateError(
                "the database was matched in the process of its service, and this state cannot be "
                "transferred to Spark\n"
                "  hint: continue without Spark, or use a new database"
            )
        self.order.restore(blobs["order"])
        self._twins.restore(arrays)
        self.position, self.version = header["position"], header["version"]


MAX_BATCH_BYTES = 16 << 20  # of the encoded events of a batch
MAX_BATCH_STEPS = 5_000


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Steps that are matched together, with their events."""

    steps: tuple[tuple[StreamStep, pa.Table], ...]

    @property
    def last(self) -> int:
        return self.steps[-1][0].position

    def table(self) -> pa.Table:
        """Encodes the steps as rows of a file."""
        floor = self.steps[0][0].version
        rows = [
            {
                "position": step.position,
                "head": replace(step, floor=floor).head,
                "body": serialize_table(events) if events.num_rows else b"",
            }
            for step, events in self.steps
        ]
        return pa.Table.from_pylist(rows, schema=STEP_SCHEMA)


@dataclass(frozen=True, slots=True)
class MicroBatchAnswer:
    """The matches of a micro-batch."""

    upto: int  # position of its last step
    matches: tuple[tuple[int, pa.Table], ...]  # by position, in order
    counted: tuple[dict[str, Any], ...]  # statistics of tasks

    @classmethod
    def read(cls, path: Path) -> "MicroBatchAnswer":
        try:
            with pa.ipc.open_file(path) as reader:
                table = reader.read_all()
        except pa.ArrowInvalid as error:
            raise StateError(
                f"{path} is corrupt: {error}\n  hint: restore the folder of the stream together with its database"
            ) from None
        ends = table.filter(pc.is_valid(table["counted"]))
        rows = table.filter(pc.is_valid(table["found"])).sort_by(
            [("position", "ascending"), ("key_group", "ascending")]
        )
        matches = tuple(
            (row["position"], deserialize_table(row["found"])) for row in rows.select(["position", "found"]).to_pylist()
        )
        counted = tuple(json.loads(text) for text in ends["counted"].to_pylist())
        return cls(min(ends["position"].to_pylist(), default=0), matches, counted)

    def matches_after(self, position: int, empty: pa.Table) -> pa.Table:
        """Concatenates the matches of steps after a position."""
        tables = [table for at, table in self.matches if at > position]
        return pa.concat_tables([empty, *tables])

    @property
    def left_out(self) -> dict[str, tuple[int, str]]:
        """Subscriptions that tasks have left out: the newest version then, and the error."""
        return dict(pair for task in self.counted for pair in task["left_out"].items())

    @property
    def held_bytes(self) -> Counter[str]:
        """The state size of subscriptions, if tasks hold much."""
        return sum((Counter(task["bytes"]) for task in self.counted), Counter())

    def total(self, name: str) -> int:
        return sum(int(task[name]) for task in self.counted)
