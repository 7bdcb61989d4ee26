"""Delta tables as archives: their logs stay open and list the files; types of stored columns."""

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from threading import RLock
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from ensue.archives.archive import (
    BUCKET,
    HIDDEN_COLUMNS,
    ArchiveOptions,
    ArchiveProperties,
    ColumnBounds,
    FileList,
    get_local_path,
)
from ensue.archives.file_archive import FileArchive
from ensue.archives.parquet_reader import get_first_line
from ensue.errors import EventError, did_you_mean
from ensue.optional_deps import require_extra
from ensue.vector.arrow_types import plain_type
from ensue.vector.event_table import check_reserved_names

_TRUNCATED = 1_000_000  # nanoseconds: statistics of timestamps are cut to milliseconds
_lock = RLock()


def import_deltalake() -> Any:
    """The package, or an EventError that explains how to install it."""
    with require_extra("a Delta table", "archive", EventError):
        import deltalake
    return deltalake


@dataclass(frozen=True, slots=True)
class DeltaTableFiles:
    """A Delta table as of a version; None: the newest version at each read."""

    place: str
    identity: str  # of the table: one that was recreated at the place has another
    number: int | None = None
    kind = "delta"

    @property
    def version(self) -> str | None:
        return None if self.number is None else str(self.number)

    def pinned(self) -> "DeltaTableFiles":
        if self.number is not None:
            return self
        with _lock:
            return replace(self, number=int(self._newest().version()))

    def describe(self) -> dict[str, object]:
        return {"identity": self.identity}

    def get_partition_columns(self) -> tuple[str, ...]:
        with _lock:
            return tuple(self._newest().metadata().partition_columns)

    def files(self) -> FileList:
        with _lock:
            return _list_files(self.pinned())

    def open(self) -> Any:
        newest = self._newest()
        if newest.version() == self.number:
            return newest
        return open_delta_table(self.place, self.number)

    def _newest(self) -> Any:
        """The newest version, from the log that stays open."""
        table = _open_log(self.place, self.identity)
        try:
            table.update_incremental()
        except import_deltalake().exceptions.DeltaError as error:
            _open_log.cache_clear()  # whoever opens the archive again opens the log again
            raise EventError(
                f"cannot follow the log of {self.place}: {get_first_line(error)}\n"
                "  hint: if the table was removed or recreated, open the archive again"
            ) from error
        return table


@lru_cache(32)
def _open_log(place: str, identity: str) -> Any:
    """The table of a log, which stays open."""
    table = open_delta_table(place)
    if table.metadata().id != identity:
        raise EventError(f"the table at {place} is not the one that was opened\n  hint: open the archive again")
    return table


def open_delta_table(place: str, number: int | None = None) -> Any:
    """Opens the table at a place. Raises an EventError if the version does not exist."""
    package = import_deltalake()
    try:
        return package.DeltaTable(place, version=number)
    except package.exceptions.DeltaError as error:
        if number is None and not package.DeltaTable.is_deltatable(place):
            raise EventError(f"there is no Delta table at {place}\n  hint: ensue archive create makes one") from error
        if number is None:
            raise EventError(
                f"cannot read the Delta table {place}: {get_first_line(error)}\n"
                "  hint: its log is damaged, or needs something that the deltalake package "
                "cannot do"
            ) from error
        newest = package.DeltaTable(place).version()
        gone = f"version {number} of {place} is not there"
        if number > newest:
            raise EventError(f"{gone}: the newest is {newest}\n  hint: version=None takes it") from None
        raise EventError(
            f"{gone} any more: its part of the log was cleaned up ({get_first_line(error)})\n"
            f"  hint: take a newer version, up to {newest}, and keep the log for longer "
            "(delta.logRetentionDuration)"
        ) from error


@lru_cache(64)
def _list_files(pinned: DeltaTableFiles) -> FileList:
    table = pinned.open()
    actions = pa.table(table.get_add_actions(flatten=True))
    by_time = [("modification_time", "ascending"), ("path", "ascending")]
    actions = actions.sort_by(by_time).combine_chunks()
    base = table.table_uri.rstrip("/")
    base = get_local_path(base) or base
    paths = [
        (get_local_path(path) or path) if "://" in path else f"{base}/{unquote(path)}"
        for path in actions.column("path").to_pylist()
    ]
    partitions = {
        name.removeprefix("partition."): actions.column(name).combine_chunks()
        for name in actions.column_names
        if name.startswith("partition.")
    }
    own = ArchiveProperties.read(table.metadata().configuration)
    features = table.protocol().reader_features or []
    return FileList(
        paths=tuple(paths),
        rows=_to_integers(actions.column("num_records")),
        sizes=_to_integers(actions.column("size_bytes")),
        bounds=partial(_get_bounds, actions, partitions),
        partitions=partitions,
        buckets=None if own is None else _to_integers(partitions[BUCKET]),
        left=_read_row_masks(table) if "deletionVectors" in features else {},
    )


def _to_integers(column: Any) -> npt.NDArray[np.int64]:
    return np.asarray(column.cast(pa.int64()).fill_null(-1).to_numpy(), np.int64)


def _read_row_masks(table: Any) -> dict[str, npt.NDArray[np.bool_]]:
    """By path: a mask of the rows that no deletion vector removes."""
    return {
        get_local_path(row["filepath"]) or row["filepath"]: np.array(row["selection_vector"], np.bool_)
        for batch in table.deletion_vectors()
        for row in pa.record_batch(batch).to_pylist()
    }


def _get_bounds(actions: pa.Table, partitions: dict[str, pa.Array], name: str) -> ColumnBounds | None:
    """The bounds of a column in each file, from the log."""
    if name in partitions:
        return ColumnBounds(partitions[name], partitions[name])
    if f"min.{name}" not in actions.column_names:
        return None
    least, greatest = (actions.column(f"{end}.{name}").combine_chunks() for end in ("min", "max"))
    return ColumnBounds(least, greatest, _TRUNCATED if types.is_timestamp(least.type) else 0)


def open_delta_archive(place: str, options: ArchiveOptions) -> FileArchive:
    try:
        number = None if options.version is None else int(options.version)
    except ValueError:
        raise EventError(
            f"version={options.version!r}: versions of Delta tables are numbers\n"
            "  hint: DeltaTable(place).history() lists them"
        ) from None
    table = open_delta_table(place, number)
    _refuse_column_mapping(table, place)
    log = DeltaTableFiles(place, table.metadata().id, number)
    columns = pa.schema(table.schema().to_arrow())
    schema = pa.schema([pa.field(field.name, field.type) for field in columns])
    own = ArchiveProperties.read(table.metadata().configuration)
    if own is None:
        return FileArchive(log, options.shape(schema), options.key, schema, complete=options.complete)
    known = {"time": own.named_time(), "type": own.type, "key": own.key, "order": own.order}
    for name, value in known.items():
        option = getattr(options, name)
        if option not in (None, ()) and option != value:
            raise EventError(
                f"the archive {place} was created with {name}={value!r}, not {option!r}\n  hint: leave {name}= out"
            )
    shown = pa.schema([field for field in schema if field.name not in HIDDEN_COLUMNS])
    shape = ArchiveOptions(own.named_time(), own.type, own.key, own.order).shape(shown)
    return FileArchive(log, shape, own.key, schema, own, options.complete)


def _refuse_column_mapping(table: Any, place: str) -> None:
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mode not in (None, "none"):
        raise EventError(
            f"the Delta table {place} maps the names of its columns "
            f"(delta.columnMapping.mode = {mode}), which is not supported\n"
            "  hint: copy it into a table without, or pass it as a DataFrame or an Arrow table"
        )


_WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(),
          pa.uint64(): pa.int64(), pa.float16(): pa.float32()}  # fmt: skip


def get_stored_schema(schema: pa.Schema) -> pa.Schema:
    """The types in which a Delta table stores these columns.

    >>> get_stored_schema(pa.schema({"t": pa.timestamp("ns"), "n": pa.uint8()}))
    t: timestamp[us]
    n: int16
    """
    check_reserved_names(schema.names)
    for name in schema.names:
        if name in HIDDEN_COLUMNS:
            raise EventError(
                f"the events have a column '{name}', a name that archives use internally\n"
                "  hint: rename the column, or leave it out"
            )
    return pa.schema([pa.field(field.name, _get_stored_type(field)) for field in schema])


def _get_stored_type(field: pa.Field) -> pa.DataType:
    type = plain_type(field.type)
    if types.is_timestamp(type):
        return pa.timestamp("us", None if type.tz is None else "UTC")
    if types.is_large_string(type) or types.is_string_view(type):
        return pa.string()
    if types.is_large_binary(type) or types.is_fixed_size_binary(type):
        return pa.binary()
    if types.is_date(type):
        return pa.date32()
    if types.is_duration(type) or types.is_time(type) or types.is_null(type):
        raise EventError(
            f"column '{field.name}' is {type}, which a Delta table cannot store\n"
            "  hint: cast it to a number or a text, or leave it out"
        )
    return _WIDER.get(type, type)


def cast_to_stored(events: pa.Table, schema: pa.Schema, what: str) -> pa.Table:
    """Casts events to the columns and types of a table; values that do not fit are refused."""
    missing = [name for name in schema.names if name not in events.column_names]
    extra = [name for name in events.column_names if name not in schema.names]
    if missing:
        hint = did_you_mean(missing[0], extra) or "add it, with NULL where it is unknown"
        raise EventError(f"the events have no column '{missing[0]}', and {what} has\n  hint: {hint}")
    if extra:
        hint = did_you_mean(extra[0], schema.names) or "leave it out"
        raise EventError(f"the events have a column '{extra[0]}', and {what} has not\n  hint: {hint}")
    columns = [_cast(events.column(field.name), field, what) for field in schema]
    return pa.table(columns, schema=schema)


def _cast(column: pa.ChunkedArray, field: pa.Field, what: str) -> pa.ChunkedArray:
    try:
        return column if column.type == field.type else column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        fine = types.is_timestamp(field.type) and types.is_timestamp(column.type)
        hint = (
            "Delta tables store microseconds: round the times first"
            if fine
            else f"cast the column to {field.type} first"
        )
        raise EventError(
            f"column '{field.name}' ({column.type}) cannot be put into {what} as {field.type}: "
            f"{get_first_line(error)}\n  hint: {hint}"
        ) from error
