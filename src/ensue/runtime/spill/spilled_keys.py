"""The spilled keys: an index of their segments and rows, and their deadlines; the segments, and the saved state.

Segments are files of events. The local disk is a cache: segments are also part of the saved state of their task, so
a restart repairs a missing or damaged file.
"""

import contextlib
import errno
import os
import shutil
import tempfile
import time
import weakref
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.errors import LimitError, StateError
from ensue.options import format_size
from ensue.runtime.spill.resident_keys import ReplayableMatcher, find_runs, grow_array
from ensue.vector.arrow_numpy import Bools, Ints
from ensue.vector.event_table import StreamSchema, get_end_times
from ensue.vector.take import create_empty_table, take_rows

SPILL_VARIABLE = "ENSUE_SPILL"  # the folder for segments, instead of the temporary folder
MAX_AGE_SECONDS = 86_400  # after which a folder is considered abandoned
_PREFIX = "ensue-spill-"
_swept = False


@dataclass(frozen=True, slots=True)
class SpillFile:
    """An immutable file of events."""

    name: str  # globally unique
    path: Path
    rows: int
    bytes: int
    checksum: int

    def to_list(self) -> list[Any]:
        return [self.name, self.rows, self.bytes, self.checksum]


class SpillFolder:
    """A private folder for the segments of one matcher, removed with the matcher."""

    def __init__(self, place: str | None = None) -> None:
        self._place = place or os.environ.get(SPILL_VARIABLE) or tempfile.gettempdir()
        self._path: Path | None = None
        self._open: dict[Path, tuple[tuple[int, int], pa.Table]] = {}  # by size and time

    @property
    def path(self) -> Path:
        if self._path is None:
            _sweep(Path(self._place))
            with _disk_full(self._place, 0):
                Path(self._place).mkdir(parents=True, exist_ok=True)
                self._path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._place))
            weakref.finalize(self, shutil.rmtree, self._path, ignore_errors=True)
        return self._path

    def write(self, table: pa.Table) -> SpillFile:
        name = os.urandom(8).hex()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        data = sink.getvalue()
        path = self._write_file(name, data)
        return SpillFile(name, path, table.num_rows, data.size, zlib.crc32(data))

    def adopt(self, described: Sequence[Any], source: "Path | bytes") -> SpillFile:
        """Adds a saved segment, given its bytes or a local file."""
        name, rows, size, checksum = described
        path = self.path / f"{name}.arrow"
        if isinstance(source, bytes):
            self._write_file(name, source)
        else:
            try:
                os.link(source, path)
            except FileNotFoundError:
                raise
            except OSError:  # another disk
                self._write_file(name, source.read_bytes())
        return SpillFile(name, path, rows, size, checksum)

    def _write_file(self, name: str, data: Any) -> Path:
        path = self.path / f"{name}.arrow"
        try:
            with _disk_full(self._place, len(data)), path.open("wb") as file:
                file.write(data)
        except LimitError:
            path.unlink(missing_ok=True)
            raise
        return path

    def read(self, segment: SpillFile, rows: npt.NDArray[np.int64]) -> pa.Table:
        """A copy of some rows of a segment."""
        table = self.table(segment)
        try:
            return take_rows(table, rows).combine_chunks()
        except (pa.ArrowInvalid, OSError) as error:
            raise _build_error(segment, f"cannot be read ({error})") from error

    def table(self, segment: SpillFile) -> pa.Table:
        """All rows of a segment, memory-mapped; a new or changed file is verified first."""
        try:
            stat = segment.path.stat()
            stamp = (stat.st_size, stat.st_mtime_ns)
            opened = self._open.get(segment.path)
            if opened is not None and opened[0] == stamp:
                return opened[1]
            source = pa.memory_map(str(segment.path))
            if zlib.crc32(source.read_buffer()) != segment.checksum:
                raise _build_error(segment, "is damaged: its checksum is wrong")
            source.seek(0)
            table = pa.ipc.open_file(source).read_all()
        except FileNotFoundError as error:
            raise _build_error(segment, "is gone") from error
        except (pa.ArrowInvalid, OSError) as error:
            raise _build_error(segment, f"cannot be read ({error})") from error
        self._open[segment.path] = (stamp, table)
        return table

    def remove(self, segment: SpillFile) -> None:
        self._open.pop(segment.path, None)
        segment.path.unlink(missing_ok=True)


def _build_error(segment: SpillFile, why: str) -> StateError:
    return StateError(
        f"a file of stored keys {why}: {segment.path}\n"
        "  hint: start the stream again: it goes on from its checkpoint or last saved state, "
        "which has these keys too"
    )


@contextlib.contextmanager
def _disk_full(place: str, size: int) -> Any:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise LimitError(
            f"the disk for stored keys is full: {place} has no room for {format_size(size)} more\n"
            f"  hint: make room and start the stream again, it goes on where it was; or name a "
            f"larger disk by the environment variable {SPILL_VARIABLE}, or allow more by ensue.Limits(memory=...)"
        ) from error


def _sweep(place: Path) -> None:
    """Removes abandoned folders, once per process."""
    global _swept  # noqa: PLW0603
    if _swept or not place.exists():
        return
    _swept = True
    for path in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or another process does the same
            if time.time() - path.stat().st_mtime > MAX_AGE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


Times = npt.NDArray[Any]
Codes = npt.NDArray[np.int64]
DueTimes = Callable[[pa.Table, npt.NDArray[np.int64]], Times]


@dataclass
class _Part:
    """The keys of a segment, whose rows are sorted by key."""

    segment: SpillFile
    codes: Codes
    first: Ints  # row of each key's first event
    count: Ints  # number of its events
    last: Times  # end of its last event
    due: Times  # its deadline
    alive: Bools
    rows: int  # of live keys
    next_due: Any  # the earliest deadline

    def count_live(self) -> None:
        self.rows = int(self.count[self.alive].sum())
        self.next_due = self.due[self.alive].min() if self.alive.any() else None


class SpilledKeys:
    """Whole keys in segments. Sparse segments are rewritten without dead rows."""

    def __init__(self, arrow: pa.Schema, never: Any, folder: SpillFolder) -> None:
        self.arrow = arrow
        self.never = never  # later than any time of a stream
        self.folder = folder
        self._parts: dict[int, _Part] = {}
        self._next = 0
        self._where = np.full(0, -1, np.int32)  # by code: the part
        self._slot = np.full(0, 0, np.int32)  # and the index in it

    def __len__(self) -> int:
        return sum(int(p.alive.sum()) for p in self._parts.values())

    @property
    def rows(self) -> int:
        return sum(p.rows for p in self._parts.values())

    @property
    def bytes(self) -> int:
        """The size of the live events."""
        sizes = (p.segment.bytes * p.rows // max(1, p.segment.rows) for p in self._parts.values())
        return sum(sizes)

    def holds(self, codes: Codes) -> Bools:
        self._grow(int(codes.max(initial=-1)) + 1)
        return np.asarray(self._where[codes] >= 0, np.bool_)

    def next_due(self) -> Any | None:
        """The earliest deadline of a key; None: no key has one."""
        times = [p.next_due for p in self._parts.values() if p.next_due is not None]
        due = min(times, default=None)
        return None if due is None or due >= self.never else due.item()

    def find_due(self, now: float) -> Codes:
        """The keys whose deadline is before `now`."""
        return _concat_codes(
            p.codes[p.alive & (p.due < now)]
            for p in self._parts.values()
            if p.next_due is not None and p.next_due < now
        )

    @property
    def codes(self) -> Codes:
        return _concat_codes(p.codes[p.alive] for p in self._parts.values())

    def put(self, table: pa.Table, codes: Codes, ends: Times, due: DueTimes) -> None:
        """Spills keys: the rows of `table` are sorted by key; `codes` and `ends` are by row.

        `due` computes the deadline of each key from the row of its first event.
        """
        if table.num_rows:
            alive = np.ones(len(codes), np.bool_)
            self.adopt(self.folder.write(table), table, codes, ends, due, alive)

    def adopt(
        self, segment: SpillFile, table: pa.Table, codes: Codes, ends: Times, due: DueTimes, alive: Bools
    ) -> None:
        """Adds a segment; `alive` marks the rows of keys that were not restored from it."""
        first, count = find_runs(codes)
        keys, last, alive = codes[first], ends[first + count - 1], alive[first]
        part = _Part(segment, keys, first, count, last, due(table, first), alive, 0, None)
        part.count_live()
        slots = np.flatnonzero(alive)
        self._parts[self._next] = part
        self._grow(int(keys[slots].max(initial=-1)) + 1)
        self._where[keys[slots]], self._slot[keys[slots]] = self._next, slots
        self._drop_if_dead(self._next)
        self._next += 1

    def segments(self) -> list[tuple[SpillFile, Bools]]:
        """All segments, with a mask of the rows of live keys."""
        return [(p.segment, np.repeat(p.alive, p.count)) for p in self._parts.values()]

    def take(self, codes: Codes) -> tuple[pa.Table, Codes]:
        """Removes keys; returns their events, sorted by key, with the code of each."""
        tables, row_codes = [create_empty_table(self.arrow)], [np.zeros(0, np.int64)]
        where = self._where[codes]
        for number in np.unique(where).tolist():
            part = self._parts[number]
            slots = np.sort(self._slot[codes[where == number]].astype(np.int64))
            tables.append(self._read(part, slots))
            row_codes.append(np.repeat(part.codes[slots], part.count[slots]))
            self._forget(number, slots)
        return pa.concat_tables(tables).combine_chunks(), np.concatenate(row_codes)

    def all_events(self) -> pa.Table:
        """The events of all keys, sorted by key. They stay spilled."""
        tables = [self._read(part, np.flatnonzero(part.alive)) for part in self._parts.values()]
        return pa.concat_tables([create_empty_table(self.arrow), *tables])

    def _read(self, part: _Part, slots: Ints) -> pa.Table:
        """The events of some keys of a part."""
        count = part.count[slots]
        begin = np.repeat(part.first[slots] - (np.cumsum(count) - count), count)
        return self.folder.read(part.segment, begin + np.arange(len(begin)))

    def forget_before(self, time: float) -> Codes:
        """Drops the keys whose last event ended before `time`, and returns them."""
        dropped = []
        for number, part in list(self._parts.items()):
            slots = np.flatnonzero(part.alive & (part.last < time))
            if len(slots):
                dropped.append(part.codes[slots])
                self._forget(number, slots)
        return _concat_codes(dropped)

    def _forget(self, number: int, slots: Ints) -> None:
        part = self._parts[number]
        self._where[part.codes[slots]] = -1
        part.alive[slots] = False
        part.count_live()
        self._drop_if_dead(number)

    def _drop_if_dead(self, number: int) -> None:
        if not self._parts[number].rows:
            self.folder.remove(self._parts.pop(number).segment)

    def find_sparse(self) -> Codes:
        """The keys of segments most of whose rows are dead: they are worth rewriting."""
        sparse = (p for p in self._parts.values() if 2 * p.rows < p.segment.rows)
        return _concat_codes(p.codes[p.alive] for p in sparse)

    def renumber(self, moved: npt.NDArray[np.int32]) -> None:
        """Replaces the codes of keys; `moved` is the new code by old code."""
        self._where = np.full(0, -1, np.int32)
        self._slot = np.full(0, 0, np.int32)
        self._grow(int(moved.max(initial=-1)) + 1)
        for number, part in self._parts.items():
            part.codes = np.where(part.alive, moved[part.codes], -1).astype(np.int64)
            slots = np.flatnonzero(part.alive)
            self._where[part.codes[slots]] = number
            self._slot[part.codes[slots]] = slots

    def _grow(self, count: int) -> None:
        self._where = grow_array(self._where, count, -1)
        self._slot = grow_array(self._slot, count)


def _concat_codes(codes: Iterable[Codes]) -> Codes:
    return np.concatenate([np.zeros(0, np.int64), *codes])


SPILLED = "spilled"
FORMAT = 1

Described = tuple[list[Any], npt.NDArray[np.bool_]]  # a segment, and a mask of its live rows
Find = Callable[[str], Path | bytes]  # reads a segment by name


@dataclass(frozen=True)
class SpillSnapshot:
    """The state of a spilling matcher."""

    now: float | None  # up to which all matches are decided
    resident: pa.Table  # events of resident keys, in stream order within each key
    stored: pa.Table  # events of spilled keys that are not in segments
    misses: int
    unknown_before: float | None  # earlier events of resident keys may be missing
    plain: bytes | None  # then this is the state of a matcher that has matched them
    learned: dict[str, npt.NDArray[Any]]
    segments: Sequence[Described] = ()  # stored elsewhere

    def pack(self) -> bytes:
        header = {
            "format": FORMAT,
            "now": self.now,
            "misses": self.misses,
            "unknown before": self.unknown_before,
            "segments": [described for described, _ in self.segments],
        }
        marks = {f"alive {d[0]}": np.packbits(alive) for d, alive in self.segments}
        blobs = {"plain": self.plain} if self.plain is not None else {}
        blobs |= {"resident": serialize_table(self.resident), "stored": serialize_table(self.stored)}
        return pack_state({}, {}, {SPILLED: pack_state(header, self.learned | marks, blobs)})

    @classmethod
    def unpack(cls, data: bytes, arrow: pa.Schema) -> "SpillSnapshot":
        _, _, saved = unpack_state(data)
        header, arrays, blobs = unpack_state(saved[SPILLED])
        if header["format"] != FORMAT:
            raise StateError(
                f"stored keys were saved in format {header['format']}, this release reads "
                f"{FORMAT}\n  hint: use the release that saved it"
            )
        resident, stored = (deserialize_table(blobs[n]).cast(arrow) for n in ("resident", "stored"))
        segments = []
        for described in header["segments"]:
            marks = np.unpackbits(arrays.pop(f"alive {described[0]}"), count=described[1])
            segments.append((described, marks.astype(np.bool_)))
        return cls(
            header["now"], resident, stored, int(header["misses"]), header["unknown before"],
            blobs.get("plain"), arrays, segments,
        )  # fmt: skip


def is_spill_snapshot(data: bytes) -> bool:
    """Whether a saved state is that of a spilling matcher."""
    return SPILLED in unpack_state(data)[2]


def embed_segments(data: bytes, arrow: pa.Schema, find: Find) -> bytes:
    """A saved state with the events of all its segments."""
    if not is_spill_snapshot(data):
        return data
    saved = SpillSnapshot.unpack(data, arrow)
    tables = [saved.stored]
    for (name, *_), alive in saved.segments:
        source = find(name)
        file = source if isinstance(source, bytes) else source.read_bytes()
        tables.append(pa.ipc.open_file(file).read_all().cast(arrow).filter(pa.array(alive)))
    return replace(saved, stored=pa.concat_tables(tables), segments=()).pack()


def restore_unlimited(matcher: ReplayableMatcher, data: bytes, shape: StreamSchema) -> None:
    """Restores the state of a spilling matcher in an unlimited one."""
    saved = SpillSnapshot.unpack(data, shape.arrow)
    if saved.plain is not None:
        matcher.restore(saved.plain)
    else:
        events = pa.concat_tables([saved.resident, saved.stored])
        matcher.replay(sort_events(events, shape), saved.now)


def sort_events(events: pa.Table, shape: StreamSchema) -> pa.Table:
    """Sorts events by time, stable."""
    times = get_end_times(events, shape)
    if not len(times) or bool((times[1:] >= times[:-1]).all()):
        return events
    return take_rows(events, np.argsort(times, kind="stable")).combine_chunks()
