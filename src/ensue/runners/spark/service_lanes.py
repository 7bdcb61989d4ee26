"""Lanes that are given steps of a stream in an order that somebody else has decided.

A step is a number, a head of text, and bytes: what they mean is known to the work alone. Numbers
grow, every lane gets every step, and one that it had before is left out by the lane: so whoever
sends steps may send them twice. Time is part of the steps; Spark's own watermark has no say.

A lane is deterministic, so its state is a snapshot and the log of what it was given since, as in
`workload/lanes/state.py`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from ensue.engine.state import from_bytes, packed, to_bytes, unpacked
from ensue.errors import StateError
from ensue.runners.spark.lanes import lane_keys
from ensue.runners.spark.python_workers import freeze_loaded_code, silence_init_worker
from ensue.runners.spark.service_files import STEPS
from ensue.runners.spark.state import LaneStore
from ensue.runners.spark.stream import shelf
from ensue.workload.lanes.shelf import Shelf, next_stamp
from ensue.workload.lanes.state import FORMAT, PART, SMALL, Head, Store, digest

Step = tuple[int, str, bytes]
Blamed = Mapping[str, tuple[int, str]]  # since when, and why
DEALT = pa.schema({"lane": pa.int32(), "first": pa.int64(), "steps": pa.binary()})


class Lane(Protocol):
    """What one lane knows."""

    @property
    def position(self) -> int:
        """The number of the last step that it was given."""

    @property
    def state_bytes(self) -> int:
        """About as many bytes as `save` gives."""

    def take(self, steps: Sequence[Step]) -> list[tuple[int, bytes]]:
        """What the next steps find, each with its number."""

    def blamed(self) -> Blamed:
        """What `take` failed because of, by name; none: it would always fail."""

    def leave_out(self, blamed: Blamed) -> None:
        """Goes on without what `take` failed because of."""

    def counted(self) -> str:
        """What it holds, as a text."""

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""

    def save_apart(self) -> bytes:
        """The same for a process of this machine."""

    def restore(self, data: bytes) -> None:
        """Goes on where the saved one stopped."""


class Work(Protocol):
    """What is done with steps. It travels to the tasks."""

    @property
    def lanes(self) -> int: ...

    @property
    def text(self) -> str:
        """What a checkpoint knows it by."""

    def dealt(self, head: str, body: bytes) -> list[bytes]:
        """What each lane is given of a step."""

    def lane(self, place: int) -> Lane:
        """A lane to which nothing has happened yet."""


# ------------------------------------------------------------------------------ in the workers


@dataclass(frozen=True)
class Deal:
    """Deals steps out to lanes: one row for each lane, with what it gets of all of them."""

    work: Work

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        hands: list[list[Step]] = [[] for _ in range(self.work.lanes)]
        for batch in batches:
            for row in batch.to_pylist():
                for hand, body in zip(
                    hands, self.work.dealt(row["head"], row["body"]), strict=True
                ):
                    hand.append((row["position"], row["head"], body))
        rows = [
            {"lane": key, "first": hand[0][0], "steps": steps_packed(hand)}
            for key, hand in zip(lane_keys(self.work.lanes), hands, strict=True)
            if hand
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=DEALT)
        freeze_loaded_code()


class LaneProcessor(StatefulProcessor):
    """A lane in Spark's state store."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        silence_init_worker()

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.store = LaneStore(handle)

    def handleInputRows(  # noqa: N802 - Spark gives it its name and arguments
        self,
        key: Any,
        rows: Any,
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        given = [bytes(row.steps) for row in sorted(rows, key=lambda row: row.first)]
        place = lane_keys(self.work.lanes).index(key[0])
        kept = KeptLane(self.store, self.work, place, shelf())
        found = kept.take(steps_of(given))
        kept.keep(given)
        lane = kept.lane
        for position, table in found:
            yield Row(lane=place, position=position, found=table, counted=None)
        yield Row(lane=place, position=lane.position, found=None, counted=lane.counted())

    def close(self) -> None:
        freeze_loaded_code()


def steps_packed(steps: Sequence[Step]) -> bytes:
    """Steps as one piece.

    >>> steps_of([steps_packed([(2, "b", b"")]), steps_packed([(1, "a", b"x"), (2, "b", b"")])])
    [(1, 'a', b'x'), (2, 'b', b'')]
    """
    columns = zip(*steps, strict=True)
    return to_bytes(
        pa.table([pa.array(c, f.type) for c, f in zip(columns, STEPS, strict=True)], schema=STEPS)
    )


def steps_of(pieces: Iterable[bytes]) -> list[Step]:
    """The steps of several pieces in order, each once."""
    rows = [row for piece in pieces for row in from_bytes(piece).to_pylist()]
    found = {row["position"]: (row["position"], row["head"], row["body"]) for row in rows}
    return [found[position] for position in sorted(found)]


class KeptLane:
    """A lane as it stands in the store, ready to go on."""

    def __init__(self, store: Store, work: Work, place: int, shelf: Shelf) -> None:
        self.store, self.work, self.place, self.shelf = store, work, place, shelf
        found = store.head()
        if found is None:
            store.put_job(work.text)
            self.head = Head(FORMAT, digest(work.text), b"", 0, 0, 0, None)
            self.lane = work.lane(place)
            return
        if found.format != FORMAT or found.job != digest(work.text):
            raise StateError(
                "the checkpoint of the service was written for another stream of events\n"
                f"  then: {store.job()}\n  now:  {work.text}\n"
                "  hint: go on with what it was written with, or name another file"
            )
        self.head = found
        self.lane = self._in_memory(found.stamp) or self._rebuilt(found)

    def _in_memory(self, stamp: bytes) -> Lane | None:
        live: Any = self.shelf.take(stamp)
        if live is None and (copy := self.shelf.copy(stamp)) is not None:
            live = self.work.lane(self.place)
            live.restore(copy)
        found: Lane | None = live
        return found

    def _rebuilt(self, head: Head, left_out: Blamed | None = None) -> Lane:
        self.shelf.drop_others(head.stamp)
        lane = self.work.lane(self.place)
        if head.parts:
            lane.restore(b"".join(self.store.parts(head.parts)))
        if left_out:
            lane.leave_out(left_out)
        for entry in self.store.entries(head.entries):
            _, _, blobs = unpacked(entry)
            try:
                lane.take(steps_of(blobs.values()))  # what it finds was delivered before
            except Exception:
                if not (blamed := lane.blamed()):
                    raise
                return self._rebuilt(head, {**(left_out or {}), **blamed})
        return lane

    def take(self, steps: Sequence[Step]) -> list[tuple[int, bytes]]:
        """What the next steps find, without what makes the lane fail."""
        left_out: dict[str, tuple[int, str]] = {}
        while True:
            try:
                return self.lane.take(steps)
            except Exception:
                blamed = self.lane.blamed()
                if not blamed.keys() - left_out.keys():
                    raise
                left_out |= blamed
                self.lane = self._rebuilt(self.head, left_out)

    def keep(self, given: Sequence[bytes]) -> None:
        """Writes down what the lane was given since it was opened."""
        lane: Any = self.lane
        entry = packed({}, {}, {str(k): piece for k, piece in enumerate(given)})
        head = replace(self.head, stamp=next_stamp(self.head.stamp))
        logged, snapshot = head.logged + len(entry), None
        if logged > max(SMALL, lane.state_bytes):
            snapshot = lane.save()
            parts = [snapshot[k : k + PART] for k in range(0, len(snapshot), PART)]
            self.store.put_parts(parts)
            if head.entries:
                self.store.clear_entries()
            head = replace(head, parts=len(parts), entries=0, logged=0)
        else:
            self.store.put_entry(head.entries, entry)
            head = replace(head, entries=head.entries + 1, logged=logged)
        self.store.put_head(head)
        self.shelf.leave(head.stamp, lane, self.head.stamp, snapshot)
        self.shelf.put(head.stamp, lane)
        self.head = head
