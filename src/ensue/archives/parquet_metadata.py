"""What the footers of Parquet files say; each is read once in a process and kept."""

from collections import OrderedDict
from datetime import date, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from ensue.archives.archive import SINCE, UNTIL, Archive, ArchiveRead, ColumnBounds, get_local_path
from ensue.errors import EventError
from ensue.schema import ValueKind
from ensue.vector.arrow_types import kind_of_arrow, plain_type

_KEPT = 8_192  # footers; one of a file of 100 groups takes some 100 KB
_DIRECT = (ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.STRING, ValueKind.BOOLEAN)


class ParquetFooter:
    """The footer of one file: its columns, its groups of rows, and their bounds."""

    def __init__(self, path: str, metadata: pq.FileMetaData) -> None:
        self.path, self.metadata = path, metadata
        self.schema: pa.Schema = metadata.schema.to_arrow_schema()
        count = metadata.num_row_groups
        lengths = [metadata.row_group(k).num_rows for k in range(count)]
        self.lengths: npt.NDArray[np.int64] = np.array(lengths, np.int64)
        self.offsets: npt.NDArray[np.int64] = np.concatenate(([0], np.cumsum(self.lengths)))
        self._columns = {metadata.schema.column(k).path: k for k in range(metadata.num_columns)}
        self._bounds: dict[str, ColumnBounds | None] = {}

    def bounds(self, name: str) -> ColumnBounds | None:
        """The least and the greatest value of a column in each group."""
        if name not in self._bounds:
            self._bounds[name] = self._read_bounds(name)
        return self._bounds[name]

    def _read_bounds(self, name: str) -> ColumnBounds | None:
        place = self._columns.get(name)
        if place is None:
            return None
        type = plain_type(self.schema.field(name).type)
        kind = kind_of_arrow(type)
        if kind not in (*_DIRECT, ValueKind.TIMESTAMP, ValueKind.DATE):
            return None
        least: list[object] = []
        greatest: list[object] = []
        for k in range(self.metadata.num_row_groups):
            found = self.metadata.row_group(k).column(place).statistics
            if found is None or not found.has_min_max:
                low, high = None, None
            elif kind in _DIRECT:
                low, high = found.min, found.max
            else:
                low, high = found.min_raw, found.max_raw
            least.append(low)
            greatest.append(high)
        try:
            return ColumnBounds(_array(least, type), _array(greatest, type))
        except (pa.ArrowException, TypeError, ValueError):  # statistics that mean something else
            return None

    def whole(self, name: str) -> tuple[object, object]:
        """The bounds of a column in the whole file, as Arrow scalars; None: not known."""
        import pyarrow.compute as pc

        bounds = self.bounds(name)
        if bounds is None or not len(bounds.least) or bounds.least.null_count:
            return None, None
        return pc.min(bounds.least), pc.max(bounds.greatest)


def _array(values: list[object], type: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(type) or pa.types.is_date64(type):
        return pa.array(values, pa.int64()).cast(type)
    if pa.types.is_date32(type):
        return pa.array(values, pa.int32()).cast(type)
    if pa.types.is_floating(type):
        values = [None if v != v else v for v in values]
    return pa.array(values, type)


_footers: OrderedDict[tuple[Any, ...], ParquetFooter] = OrderedDict()
_lock = Lock()


def read_footer(path: str) -> ParquetFooter:
    """The footer of a file. Raises an EventError that names the file if it cannot be read."""
    try:
        known = _name(path)
        with _lock:
            if known in _footers:
                _footers.move_to_end(known)
                return _footers[known]
        system, inside = split_path(path)
        with system.open_input_file(inside) as file:
            found = ParquetFooter(path, pq.read_metadata(file))
    except (OSError, pa.ArrowException) as error:
        raise build_file_error(path, error) from error
    with _lock:
        _footers[known] = found
        while len(_footers) > _KEPT:
            _footers.popitem(last=False)
    return found


def _name(path: str) -> tuple[Any, ...]:
    """What a footer is known by: a file that was replaced is another one."""
    here = get_local_path(path)
    if here is None:
        return (path,)
    stat = Path(here).stat()
    return (path, stat.st_size, stat.st_mtime_ns)


def split_path(path: str) -> tuple[pa.fs.FileSystem, str]:
    """The file system a path is of, and the path in it."""
    here = get_local_path(path)
    if here is not None:
        return pa.fs.LocalFileSystem(), here
    found: tuple[pa.fs.FileSystem, str] = pa.fs.FileSystem.from_uri(path)
    return found


class MissingFileError(EventError):
    """A file of an archive that is not there any more."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"a file of the archive is missing: {path}\n"
            "  hint: restore it, or open the archive again if it was removed on purpose"
        )
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return MissingFileError, (self.path,)


def build_file_error(path: str, error: Exception) -> EventError:
    """The error for a file of an archive that is not there, or is not what it should be."""
    if isinstance(error, FileNotFoundError):
        return MissingFileError(path)
    reason = str(error).splitlines()[0]
    return EventError(
        f"a file of the archive cannot be read: {path}: {reason}\n"
        "  hint: it is damaged or not a Parquet file: restore it, or remove it from the table"
    )


# ----------------------------------------------------------------------
# When the last event of an archive ends, exactly: statistics may be rounded up.

_EXACT = ("table", "frame")  # their layouts come from the events themselves
_ROUNDED = timedelta(milliseconds=2)  # Delta keeps milliseconds


def read_last_end(archive: Archive) -> pa.Array | None:
    """The end of an archive's last event, as an array of one; None: it has no events."""
    layout, schema = archive.layout(), archive.shape.schema
    if layout.rows == 0:
        return None
    if layout.kind in _EXACT:
        kind = plain_type(archive.shape.arrow.field(schema.end).type)
        return None if layout.until is None else pa.array([layout.until], kind)
    near = None
    if layout.until is not None and not schema.intervals:  # pieces are narrowed by starts
        near = _before(layout.until)
    for since in dict.fromkeys((near, None)):
        found = _last(archive, since)
        if found is not None:
            return found
    return None


def _last(archive: Archive, since: object) -> pa.Array | None:
    schema = archive.shape.schema
    kind = plain_type(archive.shape.arrow.field(schema.end).type)
    piece = pa.table({SINCE: pa.array([since], kind), UNTIL: pa.nulls(1, kind)})
    columns = tuple(dict.fromkeys((schema.start, schema.end)))
    ends = archive.read(ArchiveRead(piece, columns=columns)).events.column(schema.end)
    return pa.array([pc.max(ends).as_py()], kind) if len(ends) else None


def _before(until: object) -> object:
    """A little before a bound."""
    match until:
        case datetime():
            return until - _ROUNDED
        case date():
            return until - timedelta(days=1)
        case _:
            return until
