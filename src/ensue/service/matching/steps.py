"""What happened to a service, step by step, as whoever matches elsewhere is told of it.

A step is a batch of the file: its position, the version of the set that it is matched by, the
events that are in order by now, and how far time has come. In the file they are as they came; here
they are in the order of the stream, so nobody has to wait for a watermark again.
"""

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.columns.buffers import Ints
from ensue.engine.state import packed, unpacked
from ensue.errors import StateError
from ensue.results.identity import ORDINAL
from ensue.runners.live import delay_of, moment
from ensue.service.columns import Columns
from ensue.service.store.batches import Batch
from ensue.workload.stream_order import StreamOrder
from ensue.workload.twins import Twins

FORMAT = 1  # of what is saved


@dataclass(frozen=True, slots=True)
class Step:
    """The next of what happened, but for its events."""

    position: int
    after: int  # the position before it
    version: int  # of the set: later subscriptions do not see its events
    now: Any  # how far time has come, in the matcher's time; None: nothing is known
    alone: bool  # time has passed, and no event came
    floor: int = 0  # what was cancelled up to this version is out of the set

    @property
    def head(self) -> str:
        """All of it as a text."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, head: str) -> "Step":
        """What was written as a text."""
        return cls(**json.loads(head))

    def matched_from(self, floor: int) -> "Step":
        """The same, where nothing is asked for any more that was cancelled up to a version."""
        return replace(self, floor=floor)


def ordinals_of(events: pa.Table) -> Ints:
    """The numbers of events of a step among equal ones."""
    if ORDINAL not in events.column_names:
        return np.zeros(events.num_rows, np.int64)
    return np.asarray(events.column(ORDINAL).to_numpy(), np.int64)


class Stepping:
    """Makes steps of batches, one after the other."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.order = StreamOrder(columns.shape, delay_of(columns.stream.watermark, columns.shape))
        self._twins = Twins(columns.shape.schema.end, columns.shape.unit)
        self.position = 0
        self.version = 0

    def take(self, batch: Batch) -> tuple[Step, pa.Table]:
        """The next step, and the events that nothing can come before any more."""
        if batch.advance is not None:
            to = moment(self.columns.moment(batch.advance), self.columns.shape)
            events = self.order.advance(to)
        else:
            events = self.order.take(batch.events(self.columns.arrow)).events
        step = Step(
            batch.position, self.position, batch.version, self.order.now,
            batch.advance is not None,
        )  # fmt: skip
        self.position, self.version = batch.position, batch.version
        return step, self._numbered(events)

    def _numbered(self, events: pa.Table) -> pa.Table:
        """The events with their number among equal ones, where there are any."""
        numbers = self._twins.ordinals(events, np.ones(events.num_rows, np.bool_))
        return events.append_column(ORDINAL, pa.array(numbers)) if numbers.any() else events

    # ---------------------------------------------------------------------------- state

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""
        header = {"steps": FORMAT, "position": self.position, "version": self.version}
        return packed(header, self._twins.save(), {"order": self.order.save()})

    def restore(self, data: bytes) -> None:
        """Goes on where the saved one stopped."""
        header, arrays, blobs = unpacked(data)
        if header.get("steps") != FORMAT:
            raise StateError(
                "the file was matched in the process of its service so far, and its state "
                "cannot be transferred to Spark\n"
                "  hint: continue without Spark, or name a new file"
            )
        self.order.restore(blobs["order"])
        self._twins.restore(arrays)
        self.position, self.version = header["position"], header["version"]
