"""Key groups of the service on Spark, which process steps in the order of the service.

A step has a number, a text header and a body that only the job understands. Numbers increase,
every key group gets every step and ignores steps that it has processed, so the sender may repeat
steps. Time is part of the steps; Spark's watermark is not used.

A key group is deterministic, so its state is a snapshot and the log of its input since, as in
`runtime/tasks/task_state.py`.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from ensue.backends.spark.session import freeze_loaded_code, silence_init_worker
from ensue.backends.spark.state_store import KeyGroupStore, compute_state_keys
from ensue.backends.spark.stream import get_task_cache
from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.errors import StateError
from ensue.runtime.tasks.task_state import (
    FORMAT,
    PART,
    SMALL,
    StateHeader,
    TaskCache,
    TaskStateStore,
    hash_job,
    next_stamp,
)

STEP_SCHEMA = pa.schema({"position": pa.int64(), "head": pa.string(), "body": pa.binary()})
RESULT_SCHEMA = pa.schema(  # the last row of a key group has `counted` and its position
    {"key_group": pa.int32(), "position": pa.int64(), "found": pa.binary(), "counted": pa.string()}
)
STEPS_FOLDER, RESULTS_FOLDER = "steps", "found"
_HALF_WRITTEN = ".tmp-"
_SUFFIX = ".arrow"
_DIGITS = 16
_PIECE = 1 << 20  # bytes of steps that justify a task


class StepFiles:
    """The files of steps that the service sends to Spark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / STEPS_FOLDER

    def __iter__(self) -> Iterator[tuple[int, int, Path]]:
        """Yield the first and last step number and the path of each file, in order."""
        for path in sorted(self.folder.glob(f"[0-9]*{_SUFFIX}")):
            first, _, last = path.stem.partition("-")
            yield int(first), int(last), path

    @property
    def last(self) -> int:
        """The number of the last step; 0 without steps."""
        return max((last for _, last, _ in self), default=0)

    def put(self, steps: pa.Table) -> None:
        """Write steps to a new file."""
        first, last = steps["position"][0].as_py(), steps["position"][-1].as_py()
        name = f"{first:0{_DIGITS}}-{last:0{_DIGITS}}{_SUFFIX}"
        rows = max(1, steps.num_rows * _PIECE // max(_PIECE, steps.nbytes))
        _write(self.folder / name, steps, rows)

    def forget(self, upto: int) -> None:
        """Delete the files with steps up to a number."""
        for _, last, path in self:
            if last <= upto:
                path.unlink(missing_ok=True)

    def between(self, after: int, upto: int) -> list[tuple[Path, int]]:
        """Return the record batches of the steps in a range of numbers."""
        pieces: list[tuple[Path, int]] = []
        if after < upto and not any(last == upto for _, last, _ in self):
            raise StateError(
                f"the steps after {after} up to {upto} are missing in {self.folder}\n"
                "  hint: restore the folder together with the file of the service"
            )
        for _, last, path in self:
            if after < last <= upto:
                with pa.ipc.open_file(path) as reader:
                    pieces += [(path, number) for number in range(reader.num_record_batches)]
        return pieces


def read_steps(path: Path, piece: int) -> pa.RecordBatch:
    """Read a record batch of a step file."""
    with pa.ipc.open_file(path) as reader:
        return reader.get_batch(piece)


class ResultFiles:
    """The files of results that the service has not delivered yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / RESULTS_FOLDER

    def put(self, batch: int, found: pa.Table) -> None:
        """Write the results of a micro-batch; a repeated one replaces its file."""
        _write(self.folder / f"{batch:0{_DIGITS}}{_SUFFIX}", found)

    def oldest(self) -> tuple[int, Path] | None:
        """Return the number and file of the oldest micro-batch."""
        path = min(self.folder.glob(f"[0-9]*{_SUFFIX}"), default=None)
        return None if path is None else (int(path.stem), path)


def create_folders(folder: Path) -> None:
    """Create the folders, and delete incomplete files of a killed writer."""
    for name in (STEPS_FOLDER, RESULTS_FOLDER):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for incomplete in (folder / name).glob(f"{_HALF_WRITTEN}*"):
            incomplete.unlink(missing_ok=True)


def _write(path: Path, table: pa.Table, rows: int | None = None) -> None:
    temporary = path.with_name(f"{_HALF_WRITTEN}{path.name}")
    with temporary.open("wb") as file:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ------------------------------------------------------------------------- key groups

ServiceStep = tuple[int, str, bytes]
FailureCauses = Mapping[str, tuple[int, str]]  # by name: since which step, and why
ROUTED_SCHEMA = pa.schema({"key_group": pa.int32(), "first": pa.int64(), "steps": pa.binary()})


class ServiceKeyGroup(Protocol):
    """Interface of the state of a key group."""

    @property
    def position(self) -> int:
        """The number of the last processed step."""

    @property
    def state_bytes(self) -> int:
        """The approximate size of the snapshot."""

    def take(self, steps: Sequence[ServiceStep]) -> list[tuple[int, bytes]]:
        """Process the next steps; return results with their step numbers."""

    def get_failure_causes(self) -> FailureCauses:
        """Return the subscriptions that made `take` fail; none if it would fail without them."""

    def leave_out(self, blamed: FailureCauses) -> None:
        """Exclude the subscriptions that made `take` fail."""

    def format_counters(self) -> str:
        """Return its counters as text."""

    def snapshot(self) -> bytes:
        """Serialize the state."""

    def save_apart(self) -> bytes:
        """Serialize the state for a process on this machine."""

    def restore(self, data: bytes) -> None:
        """Load a serialized state."""


class ServiceStreamJob(Protocol):
    """Interface of the job that processes steps; it is sent to the tasks."""

    @property
    def key_groups(self) -> int: ...

    @property
    def text(self) -> str:
        """The signature that a checkpoint stores."""

    def route_step(self, head: str, body: bytes) -> list[bytes]:
        """Return the body of a step for each key group."""

    def task(self, place: int) -> ServiceKeyGroup:
        """Create an empty key group."""


# ------------------------------------------------------------------------------ in the workers


@dataclass(frozen=True)
class RouteSteps:
    """Routes steps to key groups, with one output row for each key group."""

    work: ServiceStreamJob

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        inputs: list[list[ServiceStep]] = [[] for _ in range(self.work.key_groups)]
        for batch in batches:
            for row in batch.to_pylist():
                for steps, body in zip(inputs, self.work.route_step(row["head"], row["body"]), strict=True):
                    steps.append((row["position"], row["head"], body))
        rows = [
            {"key_group": key, "first": steps[0][0], "steps": pack_steps(steps)}
            for key, steps in zip(compute_state_keys(self.work.key_groups), inputs, strict=True)
            if steps
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=ROUTED_SCHEMA)
        freeze_loaded_code()


class ServiceProcessor(StatefulProcessor):
    """Runs a key group of the service with its state in Spark's store."""

    def __init__(self, work: ServiceStreamJob) -> None:
        self.work = work

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        silence_init_worker()

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.store = KeyGroupStore(handle)

    def handleInputRows(  # noqa: N802 - Spark prescribes the name and arguments
        self,
        key: Any,
        rows: Any,
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        pieces = [bytes(row.steps) for row in sorted(rows, key=lambda row: row.first)]
        place = compute_state_keys(self.work.key_groups).index(key[0])
        stored = StoredKeyGroup(self.store, self.work, place, get_task_cache())
        results = stored.take(unpack_steps(pieces))
        stored.keep(pieces)
        task = stored.task
        for position, table in results:
            yield Row(key_group=place, position=position, found=table, counted=None)
        yield Row(key_group=place, position=task.position, found=None, counted=task.format_counters())

    def close(self) -> None:
        freeze_loaded_code()


def pack_steps(steps: Sequence[ServiceStep]) -> bytes:
    """Serialize steps.

    >>> unpack_steps([pack_steps([(2, "b", b"")]), pack_steps([(1, "a", b"x"), (2, "b", b"")])])
    [(1, 'a', b'x'), (2, 'b', b'')]
    """
    columns = zip(*steps, strict=True)
    return serialize_table(
        pa.table([pa.array(c, f.type) for c, f in zip(columns, STEP_SCHEMA, strict=True)], schema=STEP_SCHEMA)
    )


def unpack_steps(pieces: Iterable[bytes]) -> list[ServiceStep]:
    """Deserialize steps, sorted and without duplicates."""
    rows = [row for piece in pieces for row in deserialize_table(piece).to_pylist()]
    by_position = {row["position"]: (row["position"], row["head"], row["body"]) for row in rows}
    return [by_position[position] for position in sorted(by_position)]


class StoredKeyGroup:
    """A key group with its state in the store."""

    def __init__(self, store: TaskStateStore, work: ServiceStreamJob, place: int, cache: TaskCache) -> None:
        self.store, self.work, self.place, self.cache = store, work, place, cache
        head = store.head()
        if head is None:
            store.put_job(work.text)
            self.head = StateHeader(FORMAT, hash_job(work.text), b"", 0, 0, 0, None)
            self.task = work.task(place)
            return
        if head.format != FORMAT or head.job != hash_job(work.text):
            raise StateError(
                "the checkpoint of the service was written for another stream of events\n"
                f"  then: {store.job()}\n  now:  {work.text}\n"
                "  hint: continue with the stream that it was written for, or name another file"
            )
        self.head = head
        self.task = self._from_cache(head.stamp) or self._rebuild(head)

    def _from_cache(self, stamp: bytes) -> ServiceKeyGroup | None:
        task: ServiceKeyGroup | None = self.cache.take(stamp)  # type: ignore[assignment]
        if task is None and (copy := self.cache.copy(stamp)) is not None:
            task = self.work.task(self.place)
            task.restore(copy)
        return task

    def _rebuild(self, head: StateHeader, excluded: FailureCauses | None = None) -> ServiceKeyGroup:
        self.cache.drop_others(head.stamp)
        task = self.work.task(self.place)
        if head.parts:
            task.restore(b"".join(self.store.parts(head.parts)))
        if excluded:
            task.leave_out(excluded)
        for entry in self.store.entries(head.entries):
            _, _, blobs = unpack_state(entry)
            try:
                task.take(unpack_steps(blobs.values()))  # its results were delivered before
            except Exception:
                if not (blamed := task.get_failure_causes()):
                    raise
                return self._rebuild(head, {**(excluded or {}), **blamed})
        return task

    def take(self, steps: Sequence[ServiceStep]) -> list[tuple[int, bytes]]:
        """Process the next steps, without subscriptions that make them fail."""
        excluded: dict[str, tuple[int, str]] = {}
        while True:
            try:
                return self.task.take(steps)
            except Exception:
                blamed = self.task.get_failure_causes()
                if not blamed.keys() - excluded.keys():
                    raise
                excluded |= blamed
                self.task = self._rebuild(self.head, excluded)

    def keep(self, pieces: Sequence[bytes]) -> None:
        """Append the input to the log in the store, or write a snapshot."""
        task: Any = self.task
        entry = pack_state({}, {}, {str(k): piece for k, piece in enumerate(pieces)})
        head = replace(self.head, stamp=next_stamp(self.head.stamp))
        logged, snapshot = head.logged + len(entry), None
        if logged > max(SMALL, task.state_bytes):
            snapshot = task.snapshot()
            parts = [snapshot[k : k + PART] for k in range(0, len(snapshot), PART)]
            self.store.put_parts(parts)
            if head.entries:
                self.store.clear_entries()
            head = replace(head, parts=len(parts), entries=0, logged=0)
        else:
            self.store.put_entry(head.entries, entry)
            head = replace(head, entries=head.entries + 1, logged=logged)
        self.store.put_head(head)
        self.cache.leave(head.stamp, task, self.head.stamp, snapshot)
        self.cache.put(head.stamp, task)
        self.head = head
