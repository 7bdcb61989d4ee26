"""Segments of spilled events: files that are written once and read by row.

The local disk is a cache: segments are also part of the saved state of their task, so a restart
repairs a missing or damaged file.
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
from ensue.options import format_size
from ensue.vector.take import take_rows

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
        """The values in a saved state."""
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
        """Writes a new segment."""
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
