"""The state of a task in a state store: a snapshot, and a log of its input since then.

A task is deterministic, so its input is its state. A micro-batch appends its events to the log;
when the log is larger than the task, a new snapshot replaces the log. So the store writes at most
about twice the input, however large the task is.

A process that has the task of the store's stamp, in memory or as a file in the task cache, uses
it. Other processes, after a crash or on another machine, rebuild the task from the store.
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
from types import MappingProxyType
from typing import Any, Protocol

import pyarrow as pa

from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.errors import StateError
from ensue.runtime.job_fingerprint import parse_stage
from ensue.runtime.pipeline import PipelinePlan
from ensue.runtime.stage import FailedSubscriptions, IsolatingMatcher, SubscriptionVersion
from ensue.runtime.tasks.task import AcceptedEvents, Task

MAX_CACHED_TASKS = 256  # in the memory of a process
MAX_CACHED_BYTES = 1 << 30  # of their states; the last task is cached whatever its size
MIN_CACHED_BYTES = 64 << 10  # state size from which on a task gets a file
MAX_AGE_SECONDS = 3_600  # after which a file is considered abandoned
_SWEEP_EVERY = 600  # seconds
_CHECKED = 8  # least recently used tasks that each call checks
_OF_TASK = 8  # bytes that all stamps of a task share


@dataclass(frozen=True, slots=True)
class CachedTask:
    """A task in memory."""

    stamp: bytes
    task: Task
    bytes: int
    copy: Path | None  # file for other processes


_live: OrderedDict[bytes, CachedTask] = OrderedDict()  # by the common part of a task's stamps
_swept = float("-inf")  # time of the last sweep


def next_stamp(before: bytes) -> bytes:
    """A new stamp of the task that had the stamp `before`; of a new task if that is empty."""
    return (before[:_OF_TASK] or os.urandom(_OF_TASK)) + os.urandom(16 - _OF_TASK)


class TaskCache:
    """Tasks by stamp: in the memory of the process, and as files for other processes."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def take(self, stamp: bytes) -> Task | None:
        """Removes a task from the cache and returns it, unless it has another stamp."""
        cached = _live.pop(stamp[:_OF_TASK], None)
        return None if cached is None or cached.stamp != stamp else cached.task

    def copy(self, stamp: bytes) -> bytes | None:
        """The file of a task that another process wrote."""
        if self.folder is None:
            return None
        try:
            return self._path(stamp).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, stamp: bytes, task: Task) -> None:
        """Caches a task in memory, and evicts stale and surplus tasks."""
        path = None if self.folder is None else self._path(stamp)
        copy = path if path is not None and path.exists() else None
        _live.pop(stamp[:_OF_TASK], None)
        for key, live in list(islice(_live.items(), _CHECKED)):
            if live.copy is not None and not live.copy.exists():
                del _live[key]
        _live[stamp[:_OF_TASK]] = CachedTask(stamp, task, task.usage.state_bytes, copy)
        size = sum(live.bytes for live in _live.values())
        while len(_live) > 1 and (len(_live) > MAX_CACHED_TASKS or size > MAX_CACHED_BYTES):
            size -= _live.popitem(last=False)[1].bytes

    def leave(self, stamp: bytes, task: Task, before: bytes, saved: bytes | None = None) -> None:
        """Writes a file for other processes, and removes that of the stamp `before`.

        `saved` is the serialized task if it is known already.
        """
        if self.folder is None:
            return
        if task.usage.state_bytes >= MIN_CACHED_BYTES:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(task.save_apart() if saved is None else saved)
            Path(name).rename(self._path(stamp))
            self._sweep()
        if before:
            self._path(before).unlink(missing_ok=True)

    def drop_others(self, stamp: bytes) -> None:
        """Removes the task's files of other stamps: their micro-batch was repeated."""
        if self.folder is None or not self.folder.exists():
            return
        for path in self.folder.glob(stamp[:_OF_TASK].hex() + "*"):
            if path.name != stamp.hex():
                path.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Removes abandoned files, of ended streams and killed workers."""
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


FORMAT = 2
PART = 4 << 20  # bytes of a snapshot in one entry of the store
SEGMENTS = 1 << 20  # parts from this number on belong to segments and are written once
_SHED = "shed"  # in a log entry: the shed keys
SMALL = 256 << 10  # log size up to which no snapshot is written


@dataclass(frozen=True, slots=True)
class StateHeader:
    """The metadata that each micro-batch reads and writes."""

    format: int
    job: bytes  # a digest of the job's queries, input schema and parallelism
    stamp: bytes
    parts: int  # of the snapshot
    entries: int  # of the log
    logged: int  # bytes of the log
    timer: int | None  # milliseconds


class SnapshotReader(Protocol):
    """The stored snapshot and log of a task."""

    def parts(self, count: int) -> Iterator[bytes]: ...
    def part(self, number: int) -> bytes: ...
    def entries(self, count: int) -> Iterator[bytes]: ...


class TaskStateStore(SnapshotReader, Protocol):
    """The state store of one task."""

    def job(self) -> str: ...
    def put_job(self, job: str) -> None: ...
    def head(self) -> StateHeader | None: ...
    def put_head(self, head: StateHeader) -> None: ...
    def put_parts(self, parts: Sequence[bytes], kept: Collection[int] = ()) -> None:
        """Replaces the parts of the snapshot; of the others, only `kept` remain."""

    def put_part(self, number: int, part: bytes) -> None: ...
    def put_entry(self, number: int, entry: bytes) -> None: ...
    def clear_entries(self) -> None: ...


@dataclass(frozen=True, slots=True)
class TaskStep:
    """What a task processes at once, a micro-batch or a step; the same steps give the same state."""

    blobs: Sequence[bytes]
    late_before: float | None = None  # the watermark that decides which events are late
    watermark: float | None = None  # up to which events are matched; None: it has not begun
    version: SubscriptionVersion | None = None
    oldest: float | None = None  # event of the micro-batch on any task, after a history
    in_order: bool = False  # whether the sender has put events in order
    shed: float | pa.Table = 0.0  # the share of keys to shed; in the log the keys: it cannot repeat what clocks decided

    def run(self, task: Task) -> tuple[AcceptedEvents, list[pa.Table]]:
        """The counts of the events, and the matches up to the watermark."""
        if self.version is not None:
            task.renew(self.version)
        if self.oldest is not None:
            task.tell_oldest(self.oldest)
        accepted = task.accept(self.blobs, self.late_before, self.shed)
        return accepted, [] if self.watermark is None else task.release(self.watermark, in_order=self.in_order)


def pack_steps(steps: Sequence[TaskStep]) -> bytes:
    """Serializes steps for the log."""
    names = ("late_before", "watermark", "oldest", "in_order")
    heads: list[dict[str, Any]] = [{name: getattr(step, name) for name in names} for step in steps]
    for head, step in zip(heads, steps, strict=True):
        head |= {"version": None if step.version is None else asdict(step.version), "blobs": len(step.blobs)}
    blobs = {f"{number} {k}": blob for number, step in enumerate(steps) for k, blob in enumerate(step.blobs)}
    sheds = ((number, step.shed) for number, step in enumerate(steps))
    blobs |= {f"{number} {_SHED}": serialize_table(shed) for number, shed in sheds if isinstance(shed, pa.Table)}
    return pack_state({"steps": heads}, {}, blobs)


def unpack_steps(entry: bytes) -> Iterator[TaskStep]:
    """Deserializes steps of the log."""
    header, _, blobs = unpack_state(entry)
    for number, head in enumerate(header["steps"]):
        version, shed = head["version"], blobs.get(f"{number} {_SHED}")
        head["blobs"] = [blobs[f"{number} {k}"] for k in range(head["blobs"])]
        head["version"] = None if version is None else SubscriptionVersion(**version)
        head["shed"] = 0.0 if shed is None else deserialize_table(shed)
        yield TaskStep(**head)


class StoredTask:
    """A task of a pipeline in its state store, which it opens and writes back."""

    def __init__(
        self, store: TaskStateStore, chain: PipelinePlan, number: int, cache: TaskCache, place: int = 0
    ) -> None:
        self.store = store
        self.cache = cache
        self.rebuilt = False
        self._of_chain, self._place = (chain, number), place
        job, head = chain.stage_text(number), store.head()
        self.fresh = head is None
        if head is None:
            store.put_job(job)
            self.head = StateHeader(FORMAT, hash_job(job), b"", 0, 0, 0, None)
            self.task = Task(chain, number, place)
            return
        if head.format != FORMAT:
            raise StateError(
                f"the checkpoint was written in format {head.format}, this release reads "
                f"{FORMAT}\n"
                "  hint: use the release that wrote it, or start with a new checkpoint"
            )
        if head.job != hash_job(job):
            require_same_job(store.job(), job)
            store.put_job(job)  # an equal job with another text
        self.head = replace(head, job=hash_job(job))
        task = self._take_cached(head.stamp)
        self.rebuilt = task is None
        if task is None:
            cache.drop_others(head.stamp)
            task = rebuild_task(store, self.head, chain, number, place)
        self.task = task

    def _take_cached(self, stamp: bytes) -> Task | None:
        task, (chain, number) = self.cache.take(stamp), self._of_chain
        if task is None and (copy := self.cache.copy(stamp)) is not None:
            with contextlib.suppress(FileNotFoundError):  # a segment was removed by its owner
                task = Task.restore(chain, number, copy, self.store.part, self._place)
        if task is not None and task.limits != chain.stages[number].limits:
            # the stream was restarted with other limits
            return Task.restore(chain, number, task.save_apart(), place=self._place)
        return task

    def process(self, steps: Sequence[TaskStep]) -> list[tuple[AcceptedEvents, list[pa.Table]]]:
        """Processes the next steps; subscriptions that make the task fail are left out, if its matcher does so."""
        failed: FailedSubscriptions = {}
        while True:
            try:
                return [step.run(self.task) for step in steps]
            except Exception as error:
                if not (failed := find_failed(self.task, error, failed)):
                    raise
                self.task = rebuild_task(self.store, self.head, *self._of_chain, self._place, failed)

    def keep(self, steps: Sequence[TaskStep], timer: int | None, *, whole: bool = False) -> int:
        """Appends the input of the micro-batch to the log, or writes a snapshot; returns the bytes written.

        `whole`: the task has archived events, which a replay would archive again, so a snapshot is written.
        """
        entry = pack_steps(steps)
        stamp = next_stamp(self.head.stamp)
        head = replace(self.head, stamp=stamp, timer=timer)
        logged, snapshot = head.logged + len(entry), None
        if whole or logged > max(SMALL, self.task.usage.state_bytes):
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
        self.cache.leave(stamp, self.task, self.head.stamp, snapshot)
        self.head = head
        self.cache.put(stamp, self.task)
        return written

    def _keep_segments(self) -> int:
        """Writes new segments to the store; returns the bytes written."""
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
        """Caches the unchanged task for the next micro-batch."""
        if self.rebuilt:  # spares other processes the work
            self.cache.leave(self.head.stamp, self.task, b"")
        self.cache.put(self.head.stamp, self.task)


def find_failed(task: Task, error: Exception, known: FailedSubscriptions) -> FailedSubscriptions:
    """The subscriptions to leave out after an error, with those that are known; none: it has another cause."""
    failed = task.matcher.find_failed(error) if isinstance(task.matcher, IsolatingMatcher) else {}
    return {**known, **failed} if failed.keys() - known.keys() else {}


def rebuild_task(
    store: SnapshotReader,
    head: StateHeader,
    chain: PipelinePlan,
    number: int = 0,
    place: int = 0,
    failed: FailedSubscriptions = MappingProxyType({}),
) -> Task:
    """Restores the snapshot of a task, and replays its log without the subscriptions that made it fail."""
    if head.parts:
        snapshot = b"".join(store.parts(head.parts))
        task = Task.restore(chain, number, snapshot, store.part, place)
    else:
        task = Task(chain, number, place)
    if isinstance(task.matcher, IsolatingMatcher):
        task.matcher.leave_out(failed)
    try:
        for entry in store.entries(head.entries):
            for step in unpack_steps(entry):
                step.run(task)  # its matches were delivered before
    except Exception as error:
        if more := find_failed(task, error, failed):
            return rebuild_task(store, head, chain, number, place, more)
        raise
    return task


def import_part(
    store: TaskStateStore, chain: PipelinePlan, number: int, part: tuple[int, int], data: bytes, timer: int | None
) -> None:
    """Writes one part of a saved task to a new store; `part` is its number, and the count."""
    if store.head() is None:
        job = chain.stage_text(number)
        store.put_job(job)
        store.put_head(StateHeader(FORMAT, hash_job(job), next_stamp(b""), part[1], 0, 0, timer))
    store.put_part(part[0], data)


def hash_job(job: str) -> bytes:
    return hashlib.sha256(job.encode()).digest()[:16]


def require_same_job(then_: str, now_: str, what: str = "checkpoint") -> None:
    """Raises a StateError that names the difference, if the state is of another job."""
    old, new = _split_job(parse_stage(then_)), _split_job(json.loads(now_))
    (old_kind, old_queries), (new_kind, new_queries) = _describe_job(old), _describe_job(new)
    if old_kind != new_kind:
        raise StateError(
            f"the {what} is that of {old_kind}, and this is {new_kind}:\n"
            f"  then: {_format_value(old_queries)}\n"
            f"  now:  {_format_value(new_queries)}\n"
            f"  hint: {_RESTART}"
        )
    for name in {**new, **old}:
        if old.get(name) != new.get(name):
            then, now = _format_value(old.get(name)), _format_value(new.get(name))
            shown = "" if name == "arrow" else f":\n  then: {then}\n  now:  {now}"
            raise StateError(
                f"the {what} was written with another {_WORDS.get(name, name)}{shown}\n"
                f"  hint: {_REMEDY.get(name, _RESTART)}"
            )


def _split_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a job that error messages name."""
    queries, rest = job["queries"], {name: v for name, v in job.items() if name != "queries"}
    definitions = {n: text for q in queries for n, text in q.get("definitions", {}).items()}
    emit = [name for query in queries for name in query.get("emit", ())]
    parts = {"definitions": definitions, "emit": emit} if definitions else {}
    if "subscriptions" in queries[0]:
        return {"subscriptions": queries[0]["subscriptions"], **rest}
    texts = [query["query"] for query in queries]
    if queries[0]["name"] is None:
        return {**parts, "query": texts[0], **rest}
    return {
        **parts,
        "queries": texts,
        "names": [query["name"] for query in queries],
        "numbers": [query["number"] for query in queries],
        **rest,
    }


def _describe_job(job: Mapping[str, Any]) -> tuple[str, str]:
    """The kind of a job, and the text of its queries."""
    if "subscriptions" in job:
        return "a set of subscriptions", str(job["subscriptions"])
    kind = "a query with definitions" if "definitions" in job else "one query"
    queries = [*job.get("definitions", {}).values(), *job.get("queries", (job.get("query"),))]
    return "several queries" if "queries" in job else kind, "; ".join(queries)


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
    "levels": "choice of levels",
    "trace": "choice of trace",
    "stage": "division into stages",
    "order": "order= of events",
    "location": "location column",
    "space": "space of its location",
    "zone": "zone of the session",
    "tables": "set of tables by type",
    "emit_timeouts": "choice of emit_timeouts",
    "operators": "set of operators",
    "planning": "choice of plan",
    "archives": "version of an archive, or another one",
    "archive": "archive that its events belong to",
    "cut": "moment at which its own archive ended",
    "access": "access to its archives",
    "latency": "latency of its archives",
}
_REMEDY = {
    "key_groups": "pass ensue.StreamOptions(key_groups=...) as it was; the state of a stream stays in the key "
    "groups it began with",
    "subscriptions": "ensue.Subscriptions(folder=...) is a set that may change; else go on with "
    "the one that it was written with, or start with a new checkpoint",
    "planning": "pass ensue.PlannerOptions as they were; Statistics.text() keeps them",
    "zone": "set spark.sql.session.timeZone as it was: functions such as hour() read clocks of "
    "that zone, and so does Spark where the times of events are text without a zone",
    "archives": "ensue.start goes on with the versions it began with; else pass them: ensue.archive(..., version=)",
}


def _format_value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return " ".join(text.split())
