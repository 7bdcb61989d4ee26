"""Parquet footers, each read once per process, and paths and errors of archive files."""

from datetime import date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from ensue.archives.archive import SINCE, UNTIL, Archive, ArchiveRead, ColumnBounds, LruCache, get_local_path
from ensue.errors import EventError
from ensue.schema import ValueKind
from ensue.vector.arrow_types import kind_of_arrow, plain_type

_DIRECT = (ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.STRING, ValueKind.BOOLEAN)


class ParquetFooter:
    """The footer of one file: its columns, its row groups, and their bounds."""

    def __init__(self, path: str, metadata: pq.FileMetaData) -> None:
        self.path, self.metadata = path, metadata
        self.schema: pa.Schema = metadata.schema.to_arrow_schema()
        lengths = [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]
        self.offsets: npt.NDArray[np.int64] = np.cumsum([0, *lengths])
        self._columns = {metadata.schema.column(k).path: k for k in range(metadata.num_columns)}
        self.bounds = cache(self._read_bounds)

    def _read_bounds(self, name: str) -> ColumnBounds | None:
        """The minimum and maximum of a column in each row group."""
        number = self._columns.get(name)
        if number is None:
            return None
        type = plain_type(self.schema.field(name).type)
        kind = kind_of_arrow(type)
        if kind not in (*_DIRECT, ValueKind.TIMESTAMP, ValueKind.DATE):
            return None
        least: list[object] = []
        greatest: list[object] = []
        for k in range(self.metadata.num_row_groups):
            statistics = self.metadata.row_group(k).column(number).statistics
            if statistics is None or not statistics.has_min_max:
                low, high = None, None
            elif kind in _DIRECT:
                low, high = statistics.min, statistics.max
            else:
                low, high = statistics.min_raw, statistics.max_raw
            least.append(low)
            greatest.append(high)
        try:
            return ColumnBounds(build_bounds_array(least, type), build_bounds_array(greatest, type))
        except (pa.ArrowException, TypeError, ValueError):  # statistics with another meaning
            return None

    def compute_file_bounds(self, name: str) -> tuple[object, object]:
        """The bounds of a column in the whole file, as Arrow scalars; None: unknown."""
        bounds = self.bounds(name)
        if bounds is None or not len(bounds.least) or bounds.least.null_count:
            return None, None
        return pc.min(bounds.least), pc.max(bounds.greatest)


def build_bounds_array(values: list[Any], type: pa.DataType) -> pa.Array:
    """An array of bounds, of which times are raw numbers; NaN becomes NULL."""
    if pa.types.is_timestamp(type) or pa.types.is_date64(type):
        return pa.array(values, pa.int64()).cast(type)
    if pa.types.is_date32(type):
        return pa.array(values, pa.int32()).cast(type)
    if pa.types.is_floating(type):
        values = [None if v != v else v for v in values]
    return pa.array(values, type)


_footers: LruCache[ParquetFooter] = LruCache(8_192)  # one of 100 row groups takes some 100 KB


def read_footer(path: str) -> ParquetFooter:
    """The footer of a file. Raises an EventError that names the file if it cannot be read."""
    try:
        local = get_local_path(path)
        stat = None if local is None else Path(local).stat()
        key = (path,) if stat is None else (path, stat.st_size, stat.st_mtime_ns)
        return _footers.get(key, lambda: _open_footer(path))
    except (OSError, pa.ArrowException) as error:
        raise build_file_error(path, error) from error


def _open_footer(path: str) -> ParquetFooter:
    system, inside = split_path(path)
    with system.open_input_file(inside) as file:
        return ParquetFooter(path, pq.read_metadata(file))


def split_path(path: str) -> tuple[pa.fs.FileSystem, str]:
    """The file system of a path, and the path in it."""
    local = get_local_path(path)
    if local is not None:
        return pa.fs.LocalFileSystem(), local
    parts: tuple[pa.fs.FileSystem, str] = pa.fs.FileSystem.from_uri(path)
    return parts


def get_first_line(error: Exception) -> str:
    """The first line of an error message of another package."""
    return str(error).splitlines()[0] if str(error) else error.__class__.__name__


class MissingFileError(EventError):
    """A file of an archive was removed."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"a file of the archive is missing: {path}\n"
            "  hint: restore it, or open the archive again if it was removed on purpose"
        )
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return MissingFileError, (self.path,)


def build_file_error(path: str, error: Exception) -> EventError:
    """The error for a missing or damaged file of an archive."""
    if isinstance(error, FileNotFoundError):
        return MissingFileError(path)
    return EventError(
        f"a file of the archive cannot be read: {path}: {get_first_line(error)}\n"
        "  hint: it is damaged or not a Parquet file: restore it, or remove it from the table"
    )


def read_last_end(archive: Archive) -> pa.Array | None:
    """The exact end of an archive's last event, as an array of one; None: it has no events."""
    layout, schema = archive.layout(), archive.shape.schema
    if layout.rows == 0:
        return None
    type = plain_type(archive.shape.arrow.field(schema.end).type)
    if layout.kind in ("table", "frame"):  # their layouts are computed from the events
        return None if layout.until is None else pa.array([layout.until], type)
    since = layout.until  # statistics may be rounded up: Delta stores milliseconds
    if isinstance(since, date):
        since -= timedelta(milliseconds=2) if isinstance(since, datetime) else timedelta(days=1)
    if schema.intervals:  # pieces are narrowed by starts
        since = None
    columns = tuple(dict.fromkeys((schema.start, schema.end)))
    for first in dict.fromkeys((since, None)):
        piece = pa.table({SINCE: pa.array([first], type), UNTIL: pa.nulls(1, type)})
        ends = archive.read(ArchiveRead(piece, columns=columns)).events.column(schema.end)
        if len(ends):
            return pa.array([pc.max(ends).as_py()], type)
    return None
