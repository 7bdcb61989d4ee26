"""Reads Parquet files with `pyarrow.dataset`; each footer is read once per process."""

from collections.abc import Iterator, Mapping
from functools import cache, lru_cache, reduce
from itertools import groupby
from operator import and_
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq

from ensue.archives.archive import SINCE, UNTIL, ColumnBounds, FileList, build_partition_columns, get_local_path
from ensue.archives.pruning import RowSelector, cast_keys
from ensue.errors import EventError
from ensue.schema import ValueKind
from ensue.vector.arrow_types import kind_of_arrow, plain_type
from ensue.vector.take import create_empty_table

FILE = "__file"  # the column of the number of a row's file
_FRAGMENT = "__fragment_index"  # the same within a scan, as pyarrow calls it
Ints = npt.NDArray[np.int64]

_DIRECT = (ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.STRING, ValueKind.BOOLEAN)
_INSTANTS = (ValueKind.TIMESTAMP, ValueKind.DATE)
_LISTED = (ValueKind.INTEGER, ValueKind.STRING, ValueKind.BOOLEAN, *_INSTANTS)  # kinds of keys in the filter of a scan
# columns of a row group are read one by one, as far as they are needed
_FORMAT = ds.ParquetFileFormat(default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=False))


class ParquetFooter:
    """The footer of one file: its columns, its row groups, and their bounds."""

    def __init__(self, fragment: ds.ParquetFileFragment) -> None:
        fragment.ensure_complete_metadata()
        self.fragment, metadata = fragment, fragment.metadata
        self.metadata: pq.FileMetaData = metadata
        self.schema: pa.Schema = fragment.physical_schema
        self._columns = {metadata.schema.column(k).path: k for k in range(metadata.num_columns)}
        self.bounds = cache(self._read_bounds)

    def _read_bounds(self, name: str) -> ColumnBounds | None:
        """The minimum and maximum of a column in each row group."""
        number = self._columns.get(name)
        if number is None:
            return None
        type = plain_type(self.schema.field(name).type)
        kind = kind_of_arrow(type)
        if kind not in (*_DIRECT, *_INSTANTS):
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


def read_footer(path: str) -> ParquetFooter:
    """The footer of a file. Raises an EventError that names the file if it cannot be read."""
    try:
        local = get_local_path(path)
        stat = None if local is None else Path(local).stat()
        return _open_footer(path, None if stat is None else (stat.st_size, stat.st_mtime_ns))
    except (OSError, pa.ArrowException) as error:
        raise build_file_error(path, error) from error


@lru_cache(8_192)  # one of 100 row groups takes some 100 KB
def _open_footer(path: str, _: tuple[int, int] | None) -> ParquetFooter:
    system, inside = split_path(path)
    return ParquetFooter(_FORMAT.make_fragment(inside, system))


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
    if isinstance(error, FileNotFoundError):
        return MissingFileError(path)
    return EventError(
        f"a file of the archive cannot be read: {path}: {get_first_line(error)}\n"
        "  hint: it is damaged or not a Parquet file: restore it, or remove it from the table"
    )


# ----------------------------------------------------------------------------------- reading


def get_decoded_columns(pieces: RowSelector, hidden: tuple[str, ...] = ()) -> list[str]:
    """The columns that a read returns, and those that select and order its rows."""
    request, schema = pieces.request, pieces.shape.schema
    decoded = [*pieces.get_columns(), schema.start, schema.end, *schema.order, *hidden]
    if request.field is not None:
        decoded.append(request.field)
    if request.types is not None and schema.type_column is not None:
        decoded.append(schema.type_column)
    return list(dict.fromkeys(decoded))


def read_rows(
    files: FileList, numbers: Ints, pieces: RowSelector, needed: list[str], schema: pa.Schema
) -> tuple[pa.Table, int]:
    """Reads the selected rows of some files with their file numbers, in the order of files and rows.

    Row groups are skipped by their statistics. Returns also how many rows passed the filter of the scan.
    """
    own = pa.schema([schema.field(name) for name in needed])
    tables, scanned = [create_empty_table(own.append(pa.field(FILE, pa.int64())))], 0
    for group in _group_files(files, numbers.tolist()):
        table = _scan(files, group, pieces, own)
        scanned += table.num_rows
        holds = pieces.holds(table)
        left = files.left.get(files.paths[group[0]])
        if left is not None:
            holds &= left
        tables.append(table if bool(holds.all()) else table.filter(pa.array(holds)))
    return pa.concat_tables(tables), scanned


def _group_files(files: FileList, numbers: list[int]) -> Iterator[list[int]]:
    """Successive files of one schema, which are scanned together; files with deleted rows are scanned alone."""

    def get_scan(number: int) -> tuple[pa.Schema, int | None]:
        path = files.paths[number]
        return read_footer(path).schema, number if path in files.left else None

    for _, group in groupby(numbers, get_scan):
        yield list(group)


def _scan(files: FileList, group: list[int], pieces: RowSelector, own: pa.Schema) -> pa.Table:
    """The rows of files with one schema that pass the filter, with their file numbers."""
    footers = [read_footer(files.paths[number]) for number in group]
    types = {field.name: field.type for field in footers[0].schema}
    inside = [pa.field(f.name, types.get(f.name, f.type)) for f in own if f.name not in files.partitions]
    columns = [*(field.name for field in inside), _FRAGMENT]
    # deleted rows are known by their row numbers, so no row may be left out before
    condition = None if files.paths[group[0]] in files.left else build_filter(pieces, types)
    fragments = [footer.fragment for footer in footers]
    dataset = ds.FileSystemDataset(fragments, pa.schema(inside), _FORMAT, fragments[0].filesystem)
    try:
        table = dataset.to_table(columns=columns, filter=condition, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise _find_file_error([files.paths[number] for number in group], error) from error
    numbers = np.asarray(group, np.int64)[table.column(_FRAGMENT).to_numpy()]
    constant = build_partition_columns(files, numbers, own)
    fitted = [
        constant[field.name] if field.name in constant else _cast(table.column(field.name), field, footers[0])
        for field in own
    ]
    return pa.table([*fitted, pa.array(numbers)], schema=own.append(pa.field(FILE, pa.int64())))


def build_filter(pieces: RowSelector, types: Mapping[str, pa.DataType]) -> ds.Expression | None:
    """A condition that holds for all selected rows, and perhaps for more; None: no condition.

    `types` are those of the columns in the file.
    """
    request, schema = pieces.request, pieces.shape.schema
    conditions = []
    start, end = types.get(schema.start), types.get(schema.end)
    if (since := _cast_bound(pieces, SINCE, start)) is not None:
        conditions.append(ds.field(schema.start) >= since)
    if (until := _cast_bound(pieces, UNTIL, end)) is not None:
        conditions.append(ds.field(schema.end) <= until)
    named = None if schema.type_column is None else types.get(schema.type_column)
    if request.types is not None and _is_text(named):
        conditions.append(ds.field(schema.type_column).isin(pa.array(sorted(request.types), named)))
    stored = None if request.field is None else types.get(request.field)
    if stored is not None and kind_of_arrow(stored) in _LISTED and not pa.types.is_dictionary(stored):
        conditions.append(ds.field(request.field).isin(cast_keys(pieces.keys, stored).unique().drop_null()))
    return reduce(and_, conditions) if conditions else None


def _is_text(type: pa.DataType | None) -> bool:
    return type is not None and (pa.types.is_string(type) or pa.types.is_large_string(type))


def _cast_bound(pieces: RowSelector, name: str, type: pa.DataType | None) -> pa.Scalar | None:
    """The outermost bound of all pieces in the type of a column; None if there is none of it."""
    bounds = pieces.request.pieces.column(name).take(pa.array(pieces.places))
    if type is None or bounds.null_count:
        return None
    try:
        return (pc.min if name == SINCE else pc.max)(bounds).cast(type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # it would be rounded
        return None


def _find_file_error(paths: list[str], error: Exception) -> EventError:
    """The error for the file that a scan failed on."""
    for path in paths:
        try:
            read_footer(path).fragment.to_table(use_threads=False)
        except EventError as own:
            return own
        except (OSError, pa.ArrowException) as own:
            return build_file_error(path, own)
    return build_file_error(paths[0], error)


def _cast(column: pa.ChunkedArray, field: pa.Field, footer: ParquetFooter) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise EventError(
            f"column '{field.name}' of {footer.fragment.path} is {column.type}, and cannot be read as {field.type}: "
            f"{get_first_line(error)}\n  hint: files of one table have columns of one type"
        ) from error
