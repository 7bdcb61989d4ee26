"""Reads Parquet files with pyarrow: prunes row groups by their bounds, decodes, and filters."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ensue.archives.archive import FileList, build_partition_columns
from ensue.archives.parquet_metadata import ParquetFooter, build_file_error, get_first_line, read_footer, split_path
from ensue.archives.pruning import FilePruner
from ensue.archives.row_selection import ReadColumns, RowSelector
from ensue.errors import EventError
from ensue.vector.take import create_empty_table

FILE, ROW = "__file", "__row"  # the columns of a row's file number and row number
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """The selected rows with their file and row numbers, and the cost of decoding."""

    rows: pa.Table
    groups: int = 0
    scanned: int = 0


def read_with_pyarrow(
    files: FileList, numbers: Ints, pieces: RowSelector, pruner: FilePruner, needed: ReadColumns, schema: pa.Schema
) -> DecodedRows:
    """Reads the selected rows of some files."""
    own = [schema.field(name) for name in needed.decoded]
    located = pa.schema([*own, pa.field(FILE, pa.int64()), pa.field(ROW, pa.int64())])
    tables, groups, scanned = [create_empty_table(located)], 0, 0
    for number in numbers.tolist():
        path = files.paths[number]
        footer = read_footer(path)
        picked = pruner.groups(files, number, footer.metadata.num_row_groups, footer.bounds)
        if not len(picked):
            continue
        stored = set(footer.schema.names) - set(files.partitions)
        table = _read_groups(path, footer, picked, [n for n in needed.decoded if n in stored])
        groups, scanned = groups + len(picked), scanned + table.num_rows
        rows = np.concatenate([np.arange(footer.offsets[k], footer.offsets[k + 1], dtype=np.int64) for k in picked])
        table = fit_columns(table, files, np.full(len(rows), number), needed, schema, path)
        holds = pieces.holds(table)
        if path in files.left:
            holds &= files.left[path][rows]
        rows = rows[holds]
        table = table.filter(pa.array(holds)).append_column(FILE, pa.array(np.full(len(rows), number, np.int64)))
        tables.append(table.append_column(ROW, pa.array(rows)))
    return DecodedRows(pa.concat_tables(tables), groups, scanned)


def _read_groups(path: str, footer: ParquetFooter, picked: Ints, columns: list[str]) -> pa.Table:
    try:
        system, inside = split_path(path)
        with system.open_input_file(inside) as source:
            file = pq.ParquetFile(source, metadata=footer.metadata)
            return file.read_row_groups(picked.tolist(), columns=columns, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise build_file_error(path, error) from error


def fit_columns(
    table: pa.Table, files: FileList, numbers: Ints, needed: ReadColumns, schema: pa.Schema, path: str
) -> pa.Table:
    """Rows with the archive's own columns: adds partition values and casts other types."""
    constant = build_partition_columns(files, numbers, needed.decoded, schema)
    columns = []
    for name in needed.decoded:
        type = schema.field(name).type
        if name in constant:
            columns.append(constant[name])
        elif name in table.column_names:
            columns.append(_cast(table.column(name), type, name, path))
        else:  # added to the table after this file was written
            columns.append(pa.nulls(table.num_rows, type))
    return pa.table(columns, schema=pa.schema([schema.field(n) for n in needed.decoded]))


def _cast(column: pa.ChunkedArray, type: pa.DataType, name: str, path: str) -> pa.ChunkedArray:
    if column.type == type:
        return column
    try:
        return column.cast(type)
    except pa.ArrowException as error:
        raise EventError(
            f"column '{name}' of {path} is {column.type}, and cannot be read as {type}: "
            f"{get_first_line(error)}\n  hint: files of one table have columns of one type"
        ) from error
