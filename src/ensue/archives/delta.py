"""Delta tables as archives: the log is kept open and followed, files are known from it."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    ORDER,
    ArchiveOptions,
    ArchiveProperties,
    ColumnBounds,
    FileList,
    get_local_path,
)
from ensue.archives.file_archive import FileArchive, StorageLayout
from ensue.errors import EventError, did_you_mean
from ensue.optional_deps import require_extra
from ensue.vector.arrow_types import plain_type
from ensue.vector.event_table import check_reserved_names

_TRUNCATED = 1_000_000  # nanoseconds: statistics of timestamps are cut to milliseconds
_KEPT_LOGS, _KEPT_VERSIONS = 32, 64


def import_deltalake() -> Any:
    """The package, or an EventError that says how to get it."""
    with require_extra("a Delta table", "archive", EventError):
        import deltalake
    return deltalake


@dataclass(frozen=True, slots=True)
class DeltaTableFiles:
    """A Delta table, as of a version if one is given, else as it is when it is read."""

    place: str
    identity: str  # of the table: one that was made anew at the place is another
    number: int | None = None
    kind = "delta"

    @property
    def version(self) -> str | None:
        return None if self.number is None else str(self.number)

    def pinned(self) -> "DeltaTableFiles":
        """As of the newest version."""
        if self.number is not None:
            return self
        with _lock:
            return replace(self, number=int(self._newest().version()))

    def described(self) -> dict[str, object]:
        """Which table it is."""
        return {"identity": self.identity}

    def partitioned_by(self) -> tuple[str, ...]:
        with _lock:
            return tuple(self._newest().metadata().partition_columns)

    def files(self) -> FileList:
        """The files of the version."""
        pinned = self.pinned()
        name = (self.place, self.identity, pinned.number)
        with _lock:
            if name not in _versions:
                _versions[name] = _files(pinned._table())
                while len(_versions) > _KEPT_VERSIONS:
                    _versions.popitem(last=False)
            _versions.move_to_end(name)
            return _versions[name]

    def _table(self) -> Any:
        newest = self._newest()
        if newest.version() == self.number:
            return newest
        return open_delta_table(self.place, self.number)

    def _newest(self) -> Any:
        """The newest version, of the log that is kept open."""
        name = (self.place, self.identity)
        table = _logs.get(name)
        if table is None:
            table = open_delta_table(self.place)
            if table.metadata().id != self.identity:
                raise EventError(
                    f"the table at {self.place} is not the one that was opened\n"
                    "  hint: open the archive again"
                )
            _keep(name, table)
        else:
            _logs.move_to_end(name)
            try:
                table.update_incremental()
            except import_deltalake().exceptions.DeltaError as error:
                raise EventError(
                    f"cannot follow the log of {self.place}: {get_first_line(error)}\n"
                    "  hint: if the table was removed or recreated, open the archive again"
                ) from error
        return table


_lock = RLock()
_logs: OrderedDict[tuple[str, str], Any] = OrderedDict()
_versions: OrderedDict[tuple[str, str, int | None], FileList] = OrderedDict()


def _keep(name: tuple[str, str], table: Any) -> None:
    _logs[name] = table
    while len(_logs) > _KEPT_LOGS:
        _logs.popitem(last=False)


def open_delta_table(place: str, number: int | None = None) -> Any:
    """The table at a place. Raises an EventError if the version is not there."""
    package = import_deltalake()
    try:
        return package.DeltaTable(place, version=number)
    except package.exceptions.DeltaError as error:
        if number is None and not package.DeltaTable.is_deltatable(place):
            raise EventError(
                f"there is no Delta table at {place}\n  hint: ensue archive create makes one"
            ) from error
        if number is None:
            raise EventError(
                f"cannot read the Delta table {place}: {get_first_line(error)}\n"
                "  hint: its log is damaged, or needs something that the deltalake package "
                "cannot do"
            ) from error
        newest = package.DeltaTable(place).version()
        gone = f"version {number} of {place} is not there"
        if number > newest:
            raise EventError(
                f"{gone}: the newest is {newest}\n  hint: version=None takes it"
            ) from None
        raise EventError(
            f"{gone} any more: its part of the log was cleaned up ({get_first_line(error)})\n"
            f"  hint: take a newer version, up to {newest}, and keep the log for longer "
            "(delta.logRetentionDuration)"
        ) from error


def get_first_line(error: Exception) -> str:
    """The first line of what another package says."""
    return str(error).splitlines()[0] if str(error) else error.__class__.__name__


def _files(table: Any) -> FileList:
    actions = pa.table(table.get_add_actions(flatten=True))
    places = np.lexsort(
        (
            np.array(actions.column("path").to_pylist(), object),
            actions.column("modification_time").to_numpy(),
        )
    )
    actions = actions.take(pa.array(places)).combine_chunks()
    base = table.table_uri.rstrip("/")
    base = get_local_path(base) or base
    paths = [_path(base, path) for path in actions.column("path").to_pylist()]
    partitions = {
        name.removeprefix("partition."): actions.column(name).combine_chunks()
        for name in actions.column_names
        if name.startswith("partition.")
    }
    own = ArchiveProperties.read(table.metadata().configuration)
    features = table.protocol().reader_features or []
    return FileList(
        paths=tuple(paths),
        rows=_numbers(actions.column("num_records")),
        sizes=_numbers(actions.column("size_bytes")),
        bounds=_Statistics(actions, partitions).of,
        partitions=partitions,
        buckets=None if own is None else _numbers(partitions[BUCKET]),
        even="typeWidening" not in features and "typeWidening-preview" not in features,
        left=_left(table) if "deletionVectors" in features else {},
    )


def _path(base: str, path: str) -> str:
    if "://" in path:
        return get_local_path(path) or path
    return f"{base}/{unquote(path)}"


def _numbers(column: Any) -> npt.NDArray[np.int64]:
    return np.asarray(column.cast(pa.int64()).fill_null(-1).to_numpy(), np.int64)


def _left(table: Any) -> dict[str, npt.NDArray[np.bool_]]:
    found = {}
    for batch in table.deletion_vectors():
        rows = pa.record_batch(batch).to_pylist()
        for row in rows:
            path = row["filepath"]
            found[get_local_path(path) or path] = np.array(row["selection_vector"], np.bool_)
    return found


class _Statistics:
    """The bounds of columns in each file, as the log has them."""

    def __init__(self, actions: pa.Table, partitions: dict[str, pa.Array]) -> None:
        self._actions, self._partitions = actions, partitions

    def of(self, name: str) -> ColumnBounds | None:
        if name in self._partitions:
            return ColumnBounds(self._partitions[name], self._partitions[name])
        if f"min.{name}" not in self._actions.column_names:
            return None
        least, greatest = (
            self._actions.column(f"{end}.{name}").combine_chunks() for end in ("min", "max")
        )
        truncated = pa.types.is_timestamp(least.type)
        return ColumnBounds(least, greatest, _TRUNCATED if truncated else 0)


def open_delta_archive(place: str, given: ArchiveOptions) -> FileArchive:
    """The archive of a Delta table."""
    number = _number(given.version)
    table = open_delta_table(place, number)
    _refuse_renamed(table, place)
    log = DeltaTableFiles(place, table.metadata().id, number)
    if number is None:
        with _lock:
            _keep((place, log.identity), table)
    columns = pa.schema(table.schema().to_arrow())
    schema = pa.schema([pa.field(field.name, field.type) for field in columns])
    own = ArchiveProperties.read(table.metadata().configuration)
    if own is None:
        stored = StorageLayout(schema, given.key)
        return FileArchive(log, given.shape(schema), given.key, stored, given.complete)
    given = merge_properties(given, own, place)
    shown = pa.schema([field for field in schema if field.name not in HIDDEN_COLUMNS])
    stored = StorageLayout(schema, own.key, own.buckets, ORDER, own.day)
    return FileArchive(log, given.shape(shown), own.key, stored, given.complete)


def merge_properties(given: ArchiveOptions, own: ArchiveProperties, place: str) -> ArchiveOptions:
    """What the archive knows of itself; what the call says besides must not differ."""
    known = {"time": own.named_time(), "type": own.type, "key": own.key, "order": own.order}
    for name, mine in known.items():
        said = getattr(given, name)
        if said not in (None, ()) and said != mine:
            raise EventError(
                f"the archive {place} was created with {name}={mine!r}, not {said!r}\n"
                f"  hint: leave {name}= out"
            )
    return replace(given, time=own.named_time(), type=own.type, key=own.key, order=own.order)


def _number(version: int | str | None) -> int | None:
    if version is None:
        return None
    try:
        return int(version)
    except ValueError:
        raise EventError(
            f"version={version!r}: versions of Delta tables are numbers\n"
            "  hint: DeltaTable(place).history() lists them"
        ) from None


def _refuse_renamed(table: Any, place: str) -> None:
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mode not in (None, "none"):
        raise EventError(
            f"the Delta table {place} maps the names of its columns "
            f"(delta.columnMapping.mode = {mode}), which is not supported\n"
            "  hint: copy it into a table without, or pass it as a DataFrame or an Arrow table"
        )


# ----------------------------------------------------------------------
# Columns of events as a Delta table keeps them.

_WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(),
          pa.uint64(): pa.int64(), pa.float16(): pa.float32()}  # fmt: skip


def get_stored_schema(schema: pa.Schema) -> pa.Schema:
    """The types in which a table keeps these columns.

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
    return pa.schema([pa.field(field.name, _stored(field)) for field in schema])


def _stored(field: pa.Field) -> pa.DataType:
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
    """Events with the columns of a table, in its types. Nothing is cut off silently."""
    missing = [name for name in schema.names if name not in events.column_names]
    extra = [name for name in events.column_names if name not in schema.names]
    if missing or extra:
        raise EventError(_other_columns(missing, extra, schema.names, what))
    columns = []
    for field in schema:
        column = events.column(field.name)
        if column.type != field.type:
            column = _cast(column, field, what)
        columns.append(column)
    return pa.table(columns, schema=schema)


def _cast(column: pa.ChunkedArray, field: pa.Field, what: str) -> pa.ChunkedArray:
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        fine = types.is_timestamp(field.type) and types.is_timestamp(column.type)
        hint = (
            "Delta tables store microseconds: round the times first"
            if fine
            else f"cast the column to {field.type} first"
        )
        raise EventError(
            f"column '{field.name}' ({column.type}) cannot be put into {what} as {field.type}: "
            f"{str(error).splitlines()[0]}\n  hint: {hint}"
        ) from error


def _other_columns(
    missing: Sequence[str], extra: Sequence[str], known: Sequence[str], what: str
) -> str:
    if missing:
        return (
            f"the events have no column '{missing[0]}', and {what} has\n"
            f"  hint: {did_you_mean(missing[0], extra) or 'add it, with NULL where it is unknown'}"
        )
    return (
        f"the events have a column '{extra[0]}', and {what} has not\n"
        f"  hint: {did_you_mean(extra[0], known) or 'leave it out'}"
    )
