"""The state of lanes in Spark's state store."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle

from ensue.errors import StateError
from ensue.workload.lanes.state import Head

JOB, HEAD, SNAPSHOT, LOG = "ensue_job", "ensue_head", "ensue_snapshot", "ensue_log"

_HEAD = "format int, job binary, stamp binary, parts int, entries int, logged long, timer long"


class LaneStore:
    """The parts of a lane as state variables. Which lane it is, Spark knows."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._job = handle.getValueState(JOB, "job string")
        self._head = handle.getValueState(HEAD, _HEAD)
        self._snapshot = handle.getMapState(SNAPSHOT, "part int", "data binary")
        self._log = handle.getMapState(LOG, "entry int", "data binary")

    def job(self) -> str:
        found = self._job.get()
        return "{}" if found is None else str(found[0])

    def put_job(self, job: str) -> None:
        self._job.update((job,))

    def head(self) -> Head | None:
        found = self._head.get()
        return None if found is None else head_of(tuple(found))

    def put_head(self, head: Head) -> None:
        self._head.update(
            (
                head.format, head.job, head.stamp, head.parts, head.entries, head.logged,
                head.timer,
            )
        )  # fmt: skip

    def parts(self, count: int) -> Iterator[bytes]:
        return _values(self._snapshot, count)

    def part(self, number: int) -> bytes:
        return _value(self._snapshot, number)

    def put_parts(self, parts: Sequence[bytes], kept: Collection[int] = ()) -> None:
        if not kept:
            self._snapshot.clear()
        else:
            stay = {*kept, *range(len(parts))}
            for (number,) in [key for key in self._snapshot.keys() if key[0] not in stay]:  # noqa: SIM118
                self._snapshot.removeKey((number,))
        for number, part in enumerate(parts):
            self.put_part(number, part)

    def put_part(self, number: int, part: bytes) -> None:
        self._snapshot.updateValue((number,), (part,))

    def entries(self, count: int) -> Iterator[bytes]:
        return _values(self._log, count)

    def put_entry(self, number: int, entry: bytes) -> None:
        self._log.updateValue((number,), (entry,))

    def clear_entries(self) -> None:
        self._log.clear()


def _values(state: MapState, count: int) -> Iterator[bytes]:
    for number in range(count):
        yield _value(state, number)


def _value(state: MapState, number: int) -> bytes:
    found = state.getValue((number,))
    if found is None:
        raise StateError("a part of the stream's state is missing from the checkpoint")
    return bytes(found[0])


def head_of(row: Sequence[Any]) -> Head:
    """The head of a lane as Spark's store has it."""
    format, job, stamp, parts, entries, logged, timer = row
    return Head(format, bytes(job), bytes(stamp), parts, entries, logged, timer)
