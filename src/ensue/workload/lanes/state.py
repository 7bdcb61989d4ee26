"""A lane in a state store: a snapshot, and the log of what it was given since.

A lane is deterministic, so what it was given is its state. A micro-batch appends its events to
the log; when the log is longer than the lane itself, a new snapshot takes the log's place. What
is written in the long run is at most about twice what comes in, however large the lane is, and a
lane smaller than its input is written instead of it.

A process that has the lane of the store's stamp, in memory or as a copy on the machine's shelf,
goes on with it. Any other, after a crash or on another machine, builds the lane anew from the
store.
"""

import contextlib
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from ensue.engine.state import from_bytes, packed, to_bytes, unpacked
from ensue.errors import StateError
from ensue.workload.chain import Chain
from ensue.workload.lanes.lane import Lane
from ensue.workload.lanes.shelf import Shelf, next_stamp
from ensue.workload.stage import Version
from ensue.workload.text import upgraded

FORMAT = 1
PART = 4 << 20  # bytes of a snapshot in one entry of the store
SEGMENTS = 1 << 20  # parts from this number on are pieces of segments: written once
_SHED = "shed"  # in an entry: the keys that were given up
SMALL = 256 << 10  # a log up to this size is never worth a snapshot


@dataclass(frozen=True, slots=True)
class Head:
    """The little that is read and written with each micro-batch."""

    format: int
    job: bytes  # a digest of the job: which query over which events, in how many lanes
    stamp: bytes
    parts: int  # of the snapshot
    entries: int  # of the log
    logged: int  # bytes of the log
    timer: int | None  # milliseconds


class Parts(Protocol):
    """What a lane can be built from."""

    def parts(self, count: int) -> Iterator[bytes]: ...
    def part(self, number: int) -> bytes: ...
    def entries(self, count: int) -> Iterator[bytes]: ...


class Store(Parts, Protocol):
    """Where the parts of one lane are kept."""

    def job(self) -> str: ...
    def put_job(self, job: str) -> None: ...
    def head(self) -> Head | None: ...
    def put_head(self, head: Head) -> None: ...
    def put_parts(self, parts: Sequence[bytes], kept: Collection[int] = ()) -> None:
        """The parts from 0 on; of all others only those stay that are kept."""

    def put_part(self, number: int, part: bytes) -> None: ...
    def put_entry(self, number: int, entry: bytes) -> None: ...
    def clear_entries(self) -> None: ...


class KeptLane:
    """A lane as it stands in the store, ready to go on."""

    def __init__(
        self, store: Store, chain: Chain, number: int, shelf: Shelf, place: int = 0
    ) -> None:
        job = chain.stage_text(number)
        self.store = store
        self.shelf = shelf
        self.rebuilt = False
        found = store.head()
        if found is None:
            store.put_job(job)
            self.head = Head(FORMAT, digest(job), b"", 0, 0, 0, None)
            self.lane = Lane(chain, number, place)
            self.fresh = True
            return
        _check_format(found)
        if found.job != digest(job):
            check_same(store.job(), job)
            store.put_job(job)  # it was only written in another way
        self.head = replace(found, job=digest(job))
        self.fresh = False
        live = shelf.take(found.stamp)
        if live is None and (copy := shelf.copy(found.stamp)) is not None:
            with contextlib.suppress(FileNotFoundError):  # a file of its is gone with its owner
                live = Lane.restore(chain, number, copy, store.part, place)
        elif live is not None and live.limits != chain.stages[number].limits:
            # the stream was started anew
            live = Lane.restore(chain, number, live.save_apart(), place=place)
        self.rebuilt = live is None
        if live is None:
            shelf.drop_others(found.stamp)
        self.lane = rebuilt(store, found, chain, number, place) if live is None else live

    def keep(
        self,
        watermark: float | None,
        blobs: Sequence[bytes],
        timer: int | None,
        *,
        whole: bool = False,
        shed: pa.Table | None = None,
    ) -> int:
        """Writes down what the lane was given and has done since it was opened.

        `watermark` is the one by which its events were late or not; the lane knows how far it has
        come. `whole`: the lane has given away what a log would bring back, so it is written as it
        is. `shed` are the keys that it has given up: a clock said so, which cannot be asked again.
        Gives the number of bytes written.
        """
        header: dict[str, Any] = {"late_before": watermark, "watermark": self.lane.watermark}
        if self.lane.oldest is not None:
            header["oldest"] = self.lane.oldest
        if self.lane.version is not None:
            header["version"] = asdict(self.lane.version)
        logged_blobs = {str(k): b for k, b in enumerate(blobs)}
        if shed is not None:
            logged_blobs[_SHED] = to_bytes(shed)
        entry = packed(header, {}, logged_blobs)
        stamp = next_stamp(self.head.stamp)
        head = replace(self.head, stamp=stamp, timer=timer)
        logged, snapshot = head.logged + len(entry), None
        if whole or logged > max(SMALL, self.lane.state_bytes):
            written = self._keep_segments()
            snapshot = self.lane.save_apart()
            parts = [snapshot[k : k + PART] for k in range(0, len(snapshot), PART)]
            self.store.put_parts(parts, [n for used in self.lane.kept.values() for n in used])
            written += len(snapshot)
            if head.entries:
                self.store.clear_entries()
            head = replace(head, parts=len(parts), entries=0, logged=0)
        else:
            self.store.put_entry(head.entries, entry)
            written = len(entry)
            head = replace(head, entries=head.entries + 1, logged=logged)
        self.store.put_head(head)
        self.shelf.leave(stamp, self.lane, self.head.stamp, snapshot)
        self.head = head
        self._hold()
        return written

    def _keep_segments(self) -> int:
        """Puts segments into the store that it has not yet; gives the number of bytes written."""
        lane, written = self.lane, 0
        lane.kept = {name: used for name, used in lane.kept.items() if name in lane.segments}
        number = max((n for used in lane.kept.values() for n in used), default=SEGMENTS - 1)
        for name, path in lane.segments.items():
            if name in lane.kept:
                continue
            lane.kept[name] = []
            with path.open("rb") as file:
                while piece := file.read(PART):
                    number += 1
                    self.store.put_part(number, piece)
                    lane.kept[name].append(number)
                    written += len(piece)
        return written

    def remember(self) -> None:
        """Leaves the lane in memory for the next micro-batch, as it was found."""
        if self.rebuilt:  # no other process has to build it again
            self.shelf.leave(self.head.stamp, self.lane, b"")
        self._hold()

    def _hold(self) -> None:
        self.shelf.put(self.head.stamp, self.lane)


def rebuilt(store: Parts, head: Head, chain: Chain, number: int = 0, place: int = 0) -> Lane:
    """The lane of a stage that the store describes."""
    parts = b"".join(store.parts(head.parts))
    if head.parts:
        lane = Lane.restore(chain, number, parts, store.part, place)
    else:
        lane = Lane(chain, number, place)
    for entry in store.entries(head.entries):
        header, _, blobs = unpacked(entry)
        shed = from_bytes(blobs.pop(_SHED)) if _SHED in blobs else 0.0
        given = [blobs[str(k)] for k in range(len(blobs))]
        lane.oldest = header.get("oldest")
        if "version" in header:
            lane.renew(Version(**header["version"]))
        lane.accept(given, header["late_before"], shed)
        if header["watermark"] is not None:
            lane.release(header["watermark"])  # what it finds was delivered before
    return lane


def begin(
    store: Store, chain: Chain, number: int, part: tuple[int, int], data: bytes, timer: int | None
) -> None:
    """Puts a part of a lane that was saved elsewhere into a new store: which one, of how many."""
    if store.head() is None:
        job = chain.stage_text(number)
        store.put_job(job)
        store.put_head(Head(FORMAT, digest(job), next_stamp(b""), part[1], 0, 0, timer))
    store.put_part(part[0], data)


def digest(job: str) -> bytes:
    return hashlib.sha256(job.encode()).digest()[:16]


def _check_format(head: Head) -> None:
    if head.format != FORMAT:
        raise StateError(
            f"the checkpoint was written in format {head.format}, this release reads {FORMAT}\n"
            "  hint: use the release that wrote it, or start with a new checkpoint"
        )


def check_same(then_: str, now_: str, what: str = "checkpoint") -> None:
    """Refuses what was written for another workload, and says what is different."""
    written, given = _compared(upgraded(then_)), _compared(json.loads(now_))
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
    "lanes": "number of lanes",
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
    "lanes": "pass lanes= as it was; the state of a stream stays in the lanes it began with",
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
