"""Rows of files by pyarrow: groups are picked by their bounds, decoded, and judged."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ensue.archives.archive import FileList, build_partition_columns
from ensue.archives.parquet_metadata import (
    ParquetFooter,
    build_file_error,
    read_footer,
    split_path,
)
from ensue.archives.pruning import FilePruner
from ensue.archives.row_selection import ReadColumns, RowSelector
from ensue.errors import EventError
from ensue.vector.take import create_empty_table

FILE, ROW = "__file", "__row"  # where a row lies
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Rows that were asked for, with the file and the row in it, and what it took."""

    rows: pa.Table
    groups: int = 0
    looked_at: int = 0


def build_read_schema(schema: pa.Schema, needed: ReadColumns) -> pa.Schema:
    """The columns of a read, with where each row lies."""
    own = [schema.field(name) for name in needed.decoded]
    return pa.schema([*own, pa.field(FILE, pa.int64()), pa.field(ROW, pa.int64())])


def read_with_pyarrow(
    files: FileList,
    numbers: Ints,
    pieces: RowSelector,
    picker: FilePruner,
    needed: ReadColumns,
    schema: pa.Schema,
) -> DecodedRows:
    """The rows of some files that were asked for."""
    found, groups, looked_at = [], 0, 0
    for number in numbers.tolist():
        one = _of_file(files, number, pieces, picker, needed, schema)
        groups, looked_at = groups + one.groups, looked_at + one.looked_at
        if one.rows.num_rows:
            found.append(one.rows)
    whole = build_read_schema(schema, needed)
    return DecodedRows(
        pa.concat_tables(found) if found else create_empty_table(whole), groups, looked_at
    )


def _of_file(
    files: FileList,
    number: int,
    pieces: RowSelector,
    picker: FilePruner,
    needed: ReadColumns,
    schema: pa.Schema,
) -> DecodedRows:
    path = files.paths[number]
    known = read_footer(path)
    picked = picker.groups(files, number, known.metadata.num_row_groups, known.bounds)
    whole = build_read_schema(schema, needed)
    if not len(picked):
        return DecodedRows(create_empty_table(whole))
    inside = [n for n in needed.decoded if n in known.schema.names and n not in files.partitions]
    try:
        system, place = split_path(path)
        with system.open_input_file(place) as source:
            file = pq.ParquetFile(source, metadata=known.metadata)
            table = file.read_row_groups(picked.tolist(), columns=inside, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise build_file_error(path, error) from error
    places = _places(known, picked)
    table = fit_columns(table, files, np.full(len(places), number), needed, schema, path)
    holds = pieces.holds(table)
    if path in files.left:
        holds &= files.left[path][places]
    rows = table.filter(pa.array(holds))
    rows = rows.append_column(FILE, pa.array(np.full(rows.num_rows, number, np.int64)))
    rows = rows.append_column(ROW, pa.array(places[holds]))
    return DecodedRows(rows, len(picked), table.num_rows)


def _places(known: ParquetFooter, picked: Ints) -> Ints:
    parts = [np.arange(known.offsets[k], known.offsets[k + 1]) for k in picked]
    return np.concatenate(parts).astype(np.int64)


def fit_columns(
    table: pa.Table,
    files: FileList,
    numbers: Ints,
    needed: ReadColumns,
    schema: pa.Schema,
    path: str,
) -> pa.Table:
    """Rows as the archive's own columns: values of partitions come in, other types are cast."""
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
            f"{str(error).splitlines()[0]}\n  hint: files of one table have columns of one type"
        ) from error
