"""Files of stored events: written once, read by rows, removed as a whole.

Local disk is a cache: what is there also goes into the saved state of its key group, and a file that
is gone or damaged is an error that a restart mends.
"""

import contextlib
import errno
import os
import shutil
import tempfile
import time
import weakref
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.errors import LimitError, StateError
from ensue.planner.limits import format_size
from ensue.vector.take import take_rows

SPILL_VARIABLE = "ENSUE_SPILL"  # a folder on a disk with room, where the usual one has too little
MAX_AGE_SECONDS = (
    86_400  # seconds after which a folder is taken for one of a process that was killed
)
_PREFIX = "ensue-spill-"
_swept = False


@dataclass(frozen=True, slots=True)
class SpillFile:
    """A file of rows that never change."""

    name: str  # no other segment has it, whoever wrote it
    path: Path
    rows: int
    bytes: int
    checksum: int

    def described(self) -> list[Any]:
        """What is saved of it."""
        return [self.name, self.rows, self.bytes, self.checksum]


class SpillFolder:
    """A private folder for the segments of one matcher; it goes when the matcher does."""

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
        """A new segment with these rows."""
        name = os.urandom(8).hex()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        data = sink.getvalue()
        path = self._written(name, data)
        return SpillFile(name, path, table.num_rows, data.size, zlib.crc32(data))

    def adopt(self, described: Sequence[Any], found: "Path | bytes") -> SpillFile:
        """A segment that was saved: its bytes, or a file of this machine that has them."""
        name, rows, size, checksum = described
        path = self._path_of(name)
        if isinstance(found, bytes):
            self._written(name, found)
        else:
            try:
                os.link(found, path)
            except FileNotFoundError:
                raise
            except OSError:  # another disk
                self._written(name, found.read_bytes())
        return SpillFile(name, path, rows, size, checksum)

    def _path_of(self, name: str) -> Path:
        return self.path / f"{name}.arrow"

    def _written(self, name: str, data: Any) -> Path:
        path = self._path_of(name)
        try:
            with _disk_full(self._place, len(data)), path.open("wb") as file:
                file.write(data)
        except LimitError:
            path.unlink(missing_ok=True)
            raise
        return path

    def read(self, segment: SpillFile, rows: npt.NDArray[np.int64]) -> pa.Table:
        """Some rows of a segment, as a table of its own memory."""
        try:
            return take_rows(self._opened(segment), rows).combine_chunks()
        except FileNotFoundError as error:
            raise _lost(segment, "is gone") from error
        except (pa.ArrowInvalid, OSError) as error:
            raise _lost(segment, f"cannot be read ({error})") from error

    def table(self, segment: SpillFile) -> pa.Table:
        """All rows of a segment, where they are."""
        try:
            return self._opened(segment)
        except (pa.ArrowInvalid, OSError) as error:
            raise _lost(segment, f"cannot be read ({error})") from error

    def _opened(self, segment: SpillFile) -> pa.Table:
        """The rows of a file: read as a whole when it is new here, or not as it was."""
        stat = segment.path.stat()
        seen = (stat.st_size, stat.st_mtime_ns)
        known = self._open.get(segment.path)
        if known is not None and known[0] == seen:
            return known[1]
        # a map: what is read stays in the machine's page cache, not in this process's memory
        source = pa.memory_map(str(segment.path))
        if zlib.crc32(source.read_buffer()) != segment.checksum:
            raise _lost(segment, "is damaged: its checksum is wrong")
        source.seek(0)
        table = pa.ipc.open_file(source).read_all()
        self._open[segment.path] = (seen, table)
        return table

    def remove(self, segment: SpillFile) -> None:
        self._open.pop(segment.path, None)
        segment.path.unlink(missing_ok=True)


def _lost(segment: SpillFile, why: str) -> StateError:
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
            f"larger disk by the environment variable {SPILL_VARIABLE}, or allow more memory="
        ) from error


def _sweep(place: Path) -> None:
    """Removes the folders of processes that were killed, once a process."""
    global _swept  # noqa: PLW0603
    if _swept or not place.exists():
        return
    _swept = True
    for path in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or another process does the same
            if time.time() - path.stat().st_mtime > MAX_AGE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
