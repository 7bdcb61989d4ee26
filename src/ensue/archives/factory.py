"""What can be an archive: the kind of a place is recognised, and its columns are checked."""

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, Protocol
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.fs

from ensue.archives.archive import Archive, ArchiveOptions, ColumnBounds, FileList, TimeColumns
from ensue.archives.file_archive import FileArchive, FileSource, StorageLayout
from ensue.archives.memory_archive import TableArchive
from ensue.archives.parquet_metadata import (
    MissingFileError,
    ParquetFooter,
    read_footer,
    split_path,
)
from ensue.errors import EventError, StateError
from ensue.optional_deps import require_extra
from ensue.vector.arrow_types import plain_type
from ensue.vector.event_table import StreamSchema
from ensue.vector.take import create_empty_table

_KINDS = (
    "an archive is the path of a Delta table or of a folder of Parquet files, an Iceberg table, "
    "an Arrow, pandas or Polars table, or in batch a Spark DataFrame"
)


def open_archive(
    place: Any,
    *,
    time: TimeColumns | None,
    type: str | None = None,
    key: Sequence[str] = (),
    order: Sequence[str] = (),
    version: int | str | None = None,
    complete: object | None = None,
) -> Archive:
    """The archive at a place, or made of a table."""
    given = ArchiveOptions(time, type, tuple(key), tuple(order), version, complete)
    if isinstance(place, str | Path):
        return _at(os.fspath(place), given)
    module = place.__class__.__module__.partition(".")[0]
    if module == "pyiceberg":
        from ensue.archives.iceberg import open_iceberg_table

        source, schema = open_iceberg_table(place, version)
        return _made(source, schema, given)
    if module == "pyspark":
        given.refuse_version("a DataFrame")
        return open_frame_archive(place, given)
    given.refuse_version("a table in memory")
    return _in_memory(place, given)


def reopen_archive(
    described: Mapping[str, Any], known: Mapping[str, Archive] | None = None
) -> Archive:
    """The archive that `Archive.described` has described, with the version it was pinned to.

    A table in memory is found among those that are `known` by their versions. Raises a StateError
    if another one is there now.
    """
    kind, version = described["kind"], described["version"]
    if kind not in ("delta", "parquet", "iceberg"):
        found = (known or {}).get(str(version))
        if found is None:
            raise StateError(
                "an archive of the stream is a table in memory, which other processes cannot "
                "read\n"
                "  hint: pass the path of a table: ensue.archive(path, ...)"
            )
        return found
    from ensue.archives.delta_writer import require_same_archive

    start, end = described["time"]
    opened_ = open_archive(
        described["place"],
        time=start if start == end else (start, end),
        type=described["type"],
        key=described["key"],
        order=described["order"],
        version=None if kind == "parquet" else version,
    )
    assert isinstance(opened_, FileArchive)
    if "files" in described:
        opened_ = replace(
            opened_, source=ParquetFolder(described["place"], tuple(described["files"]))
        )
    require_same_archive(opened_, described)
    return opened_


def _at(place: str, given: ArchiveOptions) -> Archive:
    if _has_log(place):
        from ensue.archives.delta import open_delta_archive

        return open_delta_archive(place, given)
    if place.endswith(".metadata.json"):
        from ensue.archives.iceberg import open_iceberg_path

        iceberg, schema = open_iceberg_path(place, given.version)
        return _made(iceberg, schema, given)

    folder = ParquetFolder(place)
    given.refuse_version("a folder of Parquet files")
    return _made(folder, folder.schema(), given)


def _has_log(place: str) -> bool:
    try:
        system, inside = split_path(place)
        info = system.get_file_info(inside.rstrip("/") + "/_delta_log")
    except (OSError, pa.ArrowException) as error:
        raise EventError(f"cannot list {place}: {str(error).splitlines()[0]}") from error
    return bool(info.type == pa.fs.FileType.Directory)


def _made(source: FileSource, schema: pa.Schema, given: ArchiveOptions) -> FileArchive:
    stored = StorageLayout(schema, given.key)
    return FileArchive(source, given.shape(schema), given.key, stored, given.complete)


def _in_memory(place: Any, given: ArchiveOptions) -> TableArchive:
    table = convert_to_table(place)
    return TableArchive.of(table, given.shape(table.schema), given.key, given.complete)


def convert_to_table(place: Any) -> pa.Table:
    """Events of any library that speaks Arrow as a table; of a schema, one without rows."""
    if isinstance(place, pa.Schema):
        return create_empty_table(place)
    if isinstance(place, pa.Table):
        return place
    if isinstance(place, pa.RecordBatch):
        return pa.Table.from_batches([place])
    if place.__class__.__module__.startswith("pandas."):
        return pa.Table.from_pandas(place, preserve_index=False)
    if isinstance(place, Mapping):
        raise EventError(
            "a dict of tables is not one archive\n"
            "  hint: put the events of all types into one table with a type column"
        )
    if hasattr(place, "to_table") and hasattr(place, "get_fragments"):
        return place.to_table()
    if hasattr(place, "__arrow_c_stream__") or hasattr(place, "__arrow_c_array__"):
        return pa.table(place)
    raise EventError(f"{place.__class__.__name__} cannot be used as an archive\n  hint: {_KINDS}")


# ----------------------------------------------------------------------
# Spark DataFrames as archives: the seam to the runner that knows Spark.

_RUNNER = "ensue.backends.spark.dataframe_archives"  # by name: archives lie below runners


class FrameRunner(Protocol):
    """What the runner gives: the columns of a DataFrame, and an archive made of it."""

    def arrow_schema(self, frame: Any) -> pa.Schema:
        """The columns of a DataFrame as Arrow has them."""

    def frame_archive(
        self, frame: Any, shape: StreamSchema, key: tuple[str, ...], complete: object | None
    ) -> Archive:
        """A DataFrame as an archive, in batch."""


def open_frame_archive(frame: Any, given: ArchiveOptions) -> Archive:
    """An archive of a DataFrame. Raises a RunnerError where Spark is not there."""
    with require_extra("a DataFrame as an archive", "spark"):
        runner: Any = import_module(_RUNNER)
    found: FrameRunner = runner
    shape = given.shape(found.arrow_schema(frame))
    return found.frame_archive(frame, shape, given.key, given.complete)


# ----------------------------------------------------------------------
# A folder of Parquet files, or one file, as a table. Parts of paths like day=3 are columns.

_NONE = "__HIVE_DEFAULT_PARTITION__"
_KEPT = 16  # folders whose list of files is kept


@dataclass(frozen=True, slots=True)
class ParquetFolder:
    """The Parquet files at a place; those of `names` if it is pinned."""

    place: str
    names: tuple[str, ...] | None = None  # relative to the place; "" for one file

    kind = "parquet"

    @property
    def version(self) -> str | None:
        return None

    def pinned(self) -> "ParquetFolder":
        """With the files that are there now."""
        if self.names is not None:
            return self
        return ParquetFolder(self.place, tuple(name for name, _, _ in self._listed()))

    def described(self) -> dict[str, object]:
        """The names of its files, if it is pinned."""
        return {} if self.names is None else {"files": list(self.names)}

    def partitioned_by(self) -> tuple[str, ...]:
        return tuple(self.files().partitions)

    def files(self) -> FileList:
        """The files, with what their footers say."""
        listed = self._listed() if self.names is None else self._known(self.names)
        known = (self.place, tuple(listed))  # a file that changed is another one
        with _lock:
            if known in _lists:
                _lists.move_to_end(known)
                return _lists[known]
        found = self._opened([name for name, _, _ in listed])
        with _lock:
            _lists[known] = found
            while len(_lists) > _KEPT:
                _lists.popitem(last=False)
        return found

    def schema(self) -> pa.Schema:
        """The columns of all files together, and those of the paths."""
        files = self.files()
        schemas = [_plain(read_footer(path).schema) for path in files.paths]
        try:
            whole = pa.unify_schemas(schemas, promote_options="permissive")
        except pa.ArrowException as error:
            raise EventError(
                f"the files in {self.place} are not compatible: {str(error).splitlines()[0]}\n"
                "  hint: an archive is one table: put each kind of file in its own folder"
            ) from error
        for name, values in files.partitions.items():
            whole = whole.append(pa.field(name, values.type))
        return whole

    def _listed(self) -> list[tuple[str, int, int]]:
        """Name, size and time of each file, by name; hidden ones are left out."""
        system, inside = split_path(self.place)
        try:
            info = system.get_file_info(inside)
            if info.type == pa.fs.FileType.NotFound:
                raise EventError(
                    f"there is no file or folder {self.place}\n"
                    "  hint: an archive is a Delta table, a folder of Parquet files, or a table"
                )
            if info.is_file:
                return [("", info.size, info.mtime_ns or 0)]
            found = system.get_file_info(pa.fs.FileSelector(inside, recursive=True))
        except OSError as error:
            raise EventError(f"cannot list {self.place}: {error}") from error
        base = len(inside.rstrip("/")) + 1
        logs = [f.path[base:] for f in found if f.path.endswith("/_delta_log")]
        if logs:
            table = logs[0].rpartition("/")[0]
            raise EventError(
                f"the folder {self.place} is not a table, but contains a Delta table: {table}\n"
                "  hint: name that table; not all of its files still belong to it"
            )
        names = [
            (f.path[base:], f.size, f.mtime_ns or 0)
            for f in found
            if f.is_file and f.path.endswith((".parquet", ".pq"))
        ]
        shown = sorted(n for n in names if not _hidden(n[0]))
        if not shown:
            raise EventError(
                f"the folder {self.place} holds no Parquet files"
                + ("" if not names else ": names that start with _ or . are ignored")
                + "\n  hint: an archive is a Delta table, a folder of Parquet files, or a table"
            )
        return shown

    def _known(self, names: tuple[str, ...]) -> list[tuple[str, int, int]]:
        """Name, size and time of the files that it is pinned to."""
        paths = self._paths(names)
        system, _ = split_path(self.place)
        infos = system.get_file_info([split_path(path)[1] for path in paths])
        for path, info in zip(paths, infos, strict=True):
            if not info.is_file:
                raise MissingFileError(path)
        return [(n, i.size, i.mtime_ns or 0) for n, i in zip(names, infos, strict=True)]

    def _paths(self, names: Sequence[str]) -> tuple[str, ...]:
        base = self.place.rstrip("/")
        return tuple(f"{base}/{name}" if name else self.place for name in names)

    def _opened(self, names: list[str]) -> FileList:
        paths = self._paths(names)
        footers = [read_footer(path) for path in paths]
        first = footers[0].schema if footers else pa.schema([])
        inside = {name for f in footers for name in f.schema.names}
        return FileList(
            paths=paths,
            rows=np.array([f.metadata.num_rows for f in footers], np.int64),
            sizes=np.array([_size(f) for f in footers], np.int64),
            bounds=_Bounds(footers).of,
            partitions={k: v for k, v in _partitions(names).items() if k not in inside},
            even=all(f.schema.equals(first) for f in footers),
        )


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _size(known: ParquetFooter) -> int:
    groups = range(known.metadata.num_row_groups)
    return sum(
        known.metadata.row_group(k).column(c).total_compressed_size
        for k in groups
        for c in range(known.metadata.num_columns)
    )


class _Bounds:
    """The bounds of columns in each file, from the footers, computed when asked for."""

    def __init__(self, footers: list[ParquetFooter]) -> None:
        self._footers = footers
        self._known: dict[str, ColumnBounds | None] = {}

    def of(self, name: str) -> ColumnBounds | None:
        if name not in self._known:
            self._known[name] = self._computed(name)
        return self._known[name]

    def _computed(self, name: str) -> ColumnBounds | None:
        types = {
            plain_type(f.schema.field(name).type) for f in self._footers if name in f.schema.names
        }
        if len(types) != 1:
            return None
        type = types.pop()
        pairs: list[tuple[Any, Any]] = [f.whole(name) for f in self._footers]
        return ColumnBounds(
            pa.array([None if p[0] is None else p[0] for p in pairs], type),
            pa.array([None if p[1] is None else p[1] for p in pairs], type),
        )


def _hidden(name: str) -> bool:
    return any(part.startswith((".", "_")) and "=" not in part for part in name.split("/"))


def _partitions(names: list[str]) -> dict[str, pa.Array]:
    """The columns in the paths of files, as integers where all of them are."""
    found: list[dict[str, str]] = []
    for name in names:
        parts = [part.partition("=") for part in name.split("/")[:-1] if "=" in part]
        found.append({unquote(key): unquote(value) for key, _, value in parts})
    columns = dict.fromkeys(key for parts in found for key in parts)
    return {key: _typed([parts.get(key, _NONE) for parts in found]) for key in columns}


def _typed(texts: list[str]) -> pa.Array:
    values = [None if text == _NONE else text for text in texts]
    try:
        return pa.array([None if v is None else int(v) for v in values], pa.int32())
    except (ValueError, OverflowError, pa.ArrowInvalid):
        return pa.array(values, pa.string())


_lists: OrderedDict[Any, FileList] = OrderedDict()
_lock = Lock()
