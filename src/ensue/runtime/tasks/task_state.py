"""A task in a state store: a snapshot, and the log of what it was given since.

A task is deterministic, so what it was given is its state. A micro-batch appends its events to
the log; when the log is longer than the task itself, a new snapshot takes the log's place. What
is written in the long run is at most about twice what comes in, however large the task is, and a
task smaller than its input is written instead of it.

A process that has the task of the store's stamp, in memory or as a copy on the machine's shelf,
goes on with it. Any other, after a crash or on another machine, builds the task anew from the
store.
"""

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.errors import StateError
from ensue.runtime.job_fingerprint import parse_stage
from ensue.runtime.pipeline import Pipeline
from ensue.runtime.stage import SubscriptionVersion
from ensue.runtime.tasks.task import Task

MAX_CACHED_TASKS = 256  # tasks kept in the memory of a process
MAX_CACHED_BYTES = 1 << 30  # of their states; the task of the last call is kept whatever its size
MIN_CACHED_BYTES = 64 << 10  # bytes from which on a task is worth a file
MAX_AGE_SECONDS = 3_600  # seconds after which a copy is taken for one of a stream that has ended
_SWEEP_EVERY = 600  # seconds
_LOOKED_AT = 8  # tasks in memory, of those not used for longest, that a call looks at
_OF_TASK = 8  # bytes of a stamp that all stamps of a task have in common


@dataclass(frozen=True, slots=True)
class CachedTask:
    """A task in memory."""

    stamp: bytes
    task: Task
    bytes: int
    copy: Path | None  # where other processes find it


_live: OrderedDict[bytes, CachedTask] = (
    OrderedDict()
)  # by what the stamps of a task have in common
_swept = float("-inf")  # when old copies were looked for


def next_stamp(before: bytes) -> bytes:
    """A new stamp of the task that had the stamp `before`; of a new task if that is empty."""
    return (before[:_OF_TASK] or os.urandom(_OF_TASK)) + os.urandom(16 - _OF_TASK)


class TaskCache:
    """Live tasks by stamp: in the memory of the process, and as files beside it."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def take(self, stamp: bytes) -> Task | None:
        """The live task, which the caller now changes: it is no longer on the shelf.

        Nor is one with another stamp of the task: the store has gone another way.
        """
        found = _live.pop(stamp[:_OF_TASK], None)
        return None if found is None or found.stamp != stamp else found.task

    def copy(self, stamp: bytes) -> bytes | None:
        """The bytes of a task that another process left."""
        if self.folder is None:
            return None
        try:
            return self._path(stamp).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, stamp: bytes, task: Task) -> None:
        """Keeps a task in memory, and lets go of what is stale or too much."""
        path = None if self.folder is None else self._path(stamp)
        copy = path if path is not None and path.exists() else None
        _live.pop(stamp[:_OF_TASK], None)
        for key, live in list(islice(_live.items(), _LOOKED_AT)):
            if live.copy is not None and not live.copy.exists():
                del _live[key]
        _live[stamp[:_OF_TASK]] = CachedTask(stamp, task, task.state_bytes, copy)
        size = sum(live.bytes for live in _live.values())
        while len(_live) > 1 and (len(_live) > MAX_CACHED_TASKS or size > MAX_CACHED_BYTES):
            size -= _live.popitem(last=False)[1].bytes

    def leave(self, stamp: bytes, task: Task, before: bytes, saved: bytes | None = None) -> None:
        """Leaves a copy for other processes, in place of the one of the stamp `before`.

        `saved` are the bytes of the task where they are known already.
        """
        if self.folder is None:
            return
        if task.state_bytes >= MIN_CACHED_BYTES:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(task.save_apart() if saved is None else saved)
            Path(name).rename(self._path(stamp))
            self._sweep()
        if before:
            self._path(before).unlink(missing_ok=True)

    def drop_others(self, stamp: bytes) -> None:
        """Removes copies of the task that no store has come to: its micro-batch was repeated."""
        if self.folder is None or not self.folder.exists():
            return
        for path in self.folder.glob(stamp[:_OF_TASK].hex() + "*"):
            if path.name != stamp.hex():
                path.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Removes what streams that have ended and workers that were killed have left.

        A task that has only been quiet so long is built from the store again.
        """
        global _swept  # noqa: PLW0603
        assert self.folder is not None
        if time.monotonic() - _swept < _SWEEP_EVERY:
            return
        _swept = time.monotonic()
        for path in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another process does the same
                if time.time() - path.stat().st_mtime > MAX_AGE_SECONDS:
                    path.unlink()

    def _path(self, stamp: bytes) -> Path:
        assert self.folder is not None
        return self.folder / stamp.hex()


FORMAT = 1
PART = 4 << 20  # bytes of a snapshot in one entry of the store
SEGMENTS = 1 << 20  # parts from this number on are pieces of segments: written once
_SHED = "shed"  # in an entry: the keys that were given up
SMALL = 256 << 10  # a log up to this size is never worth a snapshot


@dataclass(frozen=True, slots=True)
class StateHeader:
    """The little that is read and written with each micro-batch."""

    format: int
    job: bytes  # a digest of the job: which query over which events, in how many tasks
    stamp: bytes
    parts: int  # of the snapshot
    entries: int  # of the log
    logged: int  # bytes of the log
    timer: int | None  # milliseconds


class SnapshotReader(Protocol):
    """What a task can be built from."""

    def parts(self, count: int) -> Iterator[bytes]: ...
    def part(self, number: int) -> bytes: ...
    def entries(self, count: int) -> Iterator[bytes]: ...


class TaskStateStore(SnapshotReader, Protocol):
    """Where the parts of one task are kept."""

    def job(self) -> str: ...
    def put_job(self, job: str) -> None: ...
    def head(self) -> StateHeader | None: ...
    def put_head(self, head: StateHeader) -> None: ...
    def put_parts(self, parts: Sequence[bytes], kept: Collection[int] = ()) -> None:
        """The parts from 0 on; of all others only those stay that are kept."""

    def put_part(self, number: int, part: bytes) -> None: ...
    def put_entry(self, number: int, entry: bytes) -> None: ...
    def clear_entries(self) -> None: ...


class StoredTask:
    """A task as it stands in the store, ready to go on."""

    def __init__(
        self, store: TaskStateStore, chain: Pipeline, number: int, shelf: TaskCache, place: int = 0
    ) -> None:
        job = chain.stage_text(number)
        self.store = store
        self.shelf = shelf
        self.rebuilt = False
        found = store.head()
        if found is None:
            store.put_job(job)
            self.head = StateHeader(FORMAT, hash_job(job), b"", 0, 0, 0, None)
            self.task = Task(chain, number, place)
            self.fresh = True
            return
        _check_format(found)
        if found.job != hash_job(job):
            require_same_job(store.job(), job)
            store.put_job(job)  # it was only written in another way
        self.head = replace(found, job=hash_job(job))
        self.fresh = False
        live = shelf.take(found.stamp)
        if live is None and (copy := shelf.copy(found.stamp)) is not None:
            with contextlib.suppress(FileNotFoundError):  # a file of its is gone with its owner
                live = Task.restore(chain, number, copy, store.part, place)
        elif live is not None and live.limits != chain.stages[number].limits:
            # the stream was started anew
            live = Task.restore(chain, number, live.save_apart(), place=place)
        self.rebuilt = live is None
        if live is None:
            shelf.drop_others(found.stamp)
        self.task = rebuild_task(store, found, chain, number, place) if live is None else live

    def keep(
        self,
        watermark: float | None,
        blobs: Sequence[bytes],
        timer: int | None,
        *,
        whole: bool = False,
        shed: pa.Table | None = None,
    ) -> int:
        """Writes down what the task was given and has done since it was opened.

        `watermark` is the one by which its events were late or not; the task knows how far it has
        come. `whole`: the task has given away what a log would bring back, so it is written as it
        is. `shed` are the keys that it has given up: a clock said so, which cannot be asked again.
        Gives the number of bytes written.
        """
        header: dict[str, Any] = {"late_before": watermark, "watermark": self.task.watermark}
        if self.task.oldest is not None:
            header["oldest"] = self.task.oldest
        if self.task.version is not None:
            header["version"] = asdict(self.task.version)
        logged_blobs = {str(k): b for k, b in enumerate(blobs)}
        if shed is not None:
            logged_blobs[_SHED] = serialize_table(shed)
        entry = pack_state(header, {}, logged_blobs)
        stamp = next_stamp(self.head.stamp)
        head = replace(self.head, stamp=stamp, timer=timer)
        logged, snapshot = head.logged + len(entry), None
        if whole or logged > max(SMALL, self.task.state_bytes):
            written = self._keep_segments()
            snapshot = self.task.save_apart()
            parts = [snapshot[k : k + PART] for k in range(0, len(snapshot), PART)]
            self.store.put_parts(parts, [n for used in self.task.kept.values() for n in used])
            written += len(snapshot)
            if head.entries:
                self.store.clear_entries()
            head = replace(head, parts=len(parts), entries=0, logged=0)
        else:
            self.store.put_entry(head.entries, entry)
            written = len(entry)
            head = replace(head, entries=head.entries + 1, logged=logged)
        self.store.put_head(head)
        self.shelf.leave(stamp, self.task, self.head.stamp, snapshot)
        self.head = head
        self._hold()
        return written

    def _keep_segments(self) -> int:
        """Puts segments into the store that it has not yet; gives the number of bytes written."""
        task, written = self.task, 0
        task.kept = {name: used for name, used in task.kept.items() if name in task.segments}
        number = max((n for used in task.kept.values() for n in used), default=SEGMENTS - 1)
        for name, path in task.segments.items():
            if name in task.kept:
                continue
            task.kept[name] = []
            with path.open("rb") as file:
                while piece := file.read(PART):
                    number += 1
                    self.store.put_part(number, piece)
                    task.kept[name].append(number)
                    written += len(piece)
        return written

    def remember(self) -> None:
        """Leaves the task in memory for the next micro-batch, as it was found."""
        if self.rebuilt:  # no other process has to build it again
            self.shelf.leave(self.head.stamp, self.task, b"")
        self._hold()

    def _hold(self) -> None:
        self.shelf.put(self.head.stamp, self.task)


def rebuild_task(
    store: SnapshotReader, head: StateHeader, chain: Pipeline, number: int = 0, place: int = 0
) -> Task:
    """The task of a stage that the store describes."""
    parts = b"".join(store.parts(head.parts))
    if head.parts:
        task = Task.restore(chain, number, parts, store.part, place)
    else:
        task = Task(chain, number, place)
    for entry in store.entries(head.entries):
        header, _, blobs = unpack_state(entry)
        shed = deserialize_table(blobs.pop(_SHED)) if _SHED in blobs else 0.0
        given = [blobs[str(k)] for k in range(len(blobs))]
        task.oldest = header.get("oldest")
        if "version" in header:
            task.renew(SubscriptionVersion(**header["version"]))
        task.accept(given, header["late_before"], shed)
        if header["watermark"] is not None:
            task.release(header["watermark"])  # what it finds was delivered before
    return task


def import_part(
    store: TaskStateStore,
    chain: Pipeline,
    number: int,
    part: tuple[int, int],
    data: bytes,
    timer: int | None,
) -> None:
    """Puts a part of a task that was saved elsewhere into a new store: which one, of how many."""
    if store.head() is None:
        job = chain.stage_text(number)
        store.put_job(job)
        store.put_head(StateHeader(FORMAT, hash_job(job), next_stamp(b""), part[1], 0, 0, timer))
    store.put_part(part[0], data)


def hash_job(job: str) -> bytes:
    return hashlib.sha256(job.encode()).digest()[:16]


def _check_format(head: StateHeader) -> None:
    if head.format != FORMAT:
        raise StateError(
            f"the checkpoint was written in format {head.format}, this release reads {FORMAT}\n"
            "  hint: use the release that wrote it, or start with a new checkpoint"
        )


def require_same_job(then_: str, now_: str, what: str = "checkpoint") -> None:
    """Refuses what was written for another workload, and says what is different."""
    written, given = _compared(parse_stage(then_)), _compared(json.loads(now_))
    if _kind(written) != _kind(given):
        raise StateError(
            f"the {what} is that of {_kind(written)}, and this is {_kind(given)}:\n"
            f"  then: {_short(_queries(written))}\n"
            f"  now:  {_short(_queries(given))}\n"
            f"  hint: {_RESTART}"
        )
    for name in {**given, **written}:
        if written.get(name) != given.get(name):
            then, now = _short(written.get(name)), _short(given.get(name))
            shown = "" if name == "arrow" else f":\n  then: {then}\n  now:  {now}"
            raise StateError(
                f"the {what} was written with another {_WORDS.get(name, name)}{shown}\n"
                f"  hint: {_REMEDY.get(name, _RESTART)}"
            )


def _compared(job: Mapping[str, Any]) -> dict[str, Any]:
    """A job in the parts that an error speaks of."""
    asked, rest = job["asked"], {name: v for name, v in job.items() if name != "asked"}
    below = {name: text for one in asked for name, text in one.get("definitions", {}).items()}
    emit = [name for one in asked for name in one.get("emit", ())]
    found = {"definitions": below, "emit": emit} if below else {}
    if "subscriptions" in asked[0]:
        return {"subscriptions": asked[0]["subscriptions"], **rest}
    if asked[0]["name"] is None:
        return {**found, "query": asked[0]["query"], **rest}
    return {
        **found,
        "queries": [one["query"] for one in asked],
        "names": [one["name"] for one in asked],
        "numbers": [one["number"] for one in asked],
        **rest,
    }


def _kind(job: Mapping[str, Any]) -> str:
    """What a job is, in a word: each kind has parts of its own."""
    if "subscriptions" in job:
        return "a set of subscriptions"
    if "queries" in job:
        return "several queries"
    return "a query with definitions" if "definitions" in job else "one query"


def _queries(job: Mapping[str, Any]) -> str:
    """The queries of a job, whatever its kind."""
    if "subscriptions" in job:
        return str(job["subscriptions"])
    queries = [*job.get("definitions", {}).values(), *job.get("queries", ())]
    return "; ".join([*queries, *([job["query"]] if "query" in job else ())])


_RESTART = "go on with what it was written with, or start with a new checkpoint"
_WORDS = {
    "key_groups": "number of key groups",
    "time": "time column",
    "type": "type column",
    "columns": "set of columns",
    "arrow": "set of columns: fields inside of them",
    "definitions": "set of definitions",
    "queries": "set of queries",
    "subscriptions": "set of subscriptions",
    "names": "set of names for its queries",
    "numbers": "order of its queries",
    "emit": "EMIT",
    "levels": "choice of levels=",
    "trace": "choice of trace=",
    "stage": "division into stages",
    "order": "order= of events",
    "location": "location column",
    "space": "space=",
    "zone": "zone of the session",
    "tables": "set of tables by type",
    "emit_timeouts": "choice of emit_timeouts=",
    "operators": "set of operators",
    "planning": "choice of plan",
    "archives": "version of an archive, or another one",
    "archive": "archive that its events belong to",
    "cut": "moment at which its own archive ended",
    "access": "choice of access=",
    "latency": "latency=",
}
_REMEDY = {
    "key_groups": "pass key_groups= as it was; the state of a stream stays in the key groups it began with",
    "subscriptions": "ensue.Subscriptions(folder=...) is a set that may change; else go on with "
    "the one that it was written with, or start with a new checkpoint",
    "planning": "pass statistics=, off= and structure= as they were; Statistics.text() keeps them",
    "zone": "set spark.sql.session.timeZone as it was: functions such as hour() read clocks of "
    "that zone, and so does Spark where the times of events are text without a zone",
    "archives": "ensue.start goes on with the versions it began with; else pass them: "
    "ensue.archive(..., version=)",
}


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return " ".join(text.split())
