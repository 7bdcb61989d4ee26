"""Opens archives: recognizes the kind of a place, and checks the columns. Parquet folders."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.fs

from ensue.archives.archive import Archive, ArchiveOptions, ColumnBounds, FileList
from ensue.archives.file_archive import FileArchive, FileSource
from ensue.archives.memory_archive import TableArchive
from ensue.archives.parquet_reader import MissingFileError, ParquetFooter, get_first_line, read_footer, split_path
from ensue.errors import EventError, StateError
from ensue.optional_deps import require_extra
from ensue.vector.arrow_types import plain_type
from ensue.vector.take import create_empty_table

_KINDS = (
    "an archive is the path of a Delta table or of a folder of Parquet files, an Iceberg table, "
    "an Arrow, pandas or Polars table, or in batch a Spark DataFrame"
)


def open_archive(place: Any, options: ArchiveOptions) -> Archive:
    """Opens the archive at a path, or wraps a table."""
    if isinstance(place, str | Path):
        return _open_path(os.fspath(place), options)
    module = place.__class__.__module__.partition(".")[0]
    if module == "pyiceberg":
        from ensue.archives.iceberg import open_iceberg_table

        source, schema = open_iceberg_table(place, options.version)
        return _build_file_archive(source, schema, options)
    if module == "pyspark":
        options.refuse_version("a DataFrame")
        with require_extra("a DataFrame as an archive", "spark"):  # archives lie below backends
            frames: Any = import_module("ensue.backends.spark.dataframe_archives")
        shape = options.shape(frames.arrow_schema(place))
        frame_archive: Archive = frames.frame_archive(place, shape, options.key, options.complete)
        return frame_archive
    options.refuse_version("a table in memory")
    table = convert_to_table(place)
    return TableArchive.from_table(table, options.shape(table.schema), options.key, options.complete)


def reopen_archive(described: Mapping[str, Any], known: Mapping[str, Archive] | None = None) -> Archive:
    """Opens the archive that `Archive.describe` describes, at the version it was pinned to.

    Tables in memory are looked up in `known` by version. Raises a StateError if the place has
    another archive now.
    """
    kind, version = described["kind"], described["version"]
    if kind not in ("delta", "parquet", "iceberg"):
        table = (known or {}).get(str(version))
        if table is None:
            raise StateError(
                "an archive of the stream is a table in memory, which other processes cannot "
                "read\n"
                "  hint: pass the path of a table: ensue.archive(path, ...)"
            )
        return table
    from ensue.archives.delta_writer import require_same_archive

    start, end = described["time"]
    time = start if start == end else (start, end)
    key, order = tuple(described["key"]), tuple(described["order"])
    options = ArchiveOptions(time, described["type"], key, order, None if kind == "parquet" else version)
    archive = open_archive(described["place"], options)
    assert isinstance(archive, FileArchive)
    if "files" in described:
        source = ParquetFolder(described["place"], tuple(described["files"]))
        archive = replace(archive, source=source)
    require_same_archive(archive, described)
    return archive


def _open_path(place: str, options: ArchiveOptions) -> Archive:
    try:
        system, inside = split_path(place)
        log = system.get_file_info(inside.rstrip("/") + "/_delta_log")
    except (OSError, pa.ArrowException) as error:
        raise EventError(f"cannot list {place}: {get_first_line(error)}") from error
    if log.type == pa.fs.FileType.Directory:
        from ensue.archives.delta import open_delta_archive

        return open_delta_archive(place, options)
    if place.endswith(".metadata.json"):
        from ensue.archives.iceberg import open_iceberg_path

        iceberg, schema = open_iceberg_path(place, options.version)
        return _build_file_archive(iceberg, schema, options)
    folder = ParquetFolder(place)
    options.refuse_version("a folder of Parquet files")
    return _build_file_archive(folder, folder.schema(), options)


def _build_file_archive(source: FileSource, schema: pa.Schema, options: ArchiveOptions) -> FileArchive:
    return FileArchive(source, options.shape(schema), options.key, schema, complete=options.complete)


def convert_to_table(place: Any) -> pa.Table:
    """Converts the events of any library with Arrow support; a schema becomes an empty table."""
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
            "a dict of tables is not one archive\n  hint: put the events of all types into one table with a type column"
        )
    if hasattr(place, "to_table") and hasattr(place, "get_fragments"):
        return place.to_table()
    if hasattr(place, "__arrow_c_stream__") or hasattr(place, "__arrow_c_array__"):
        return pa.table(place)
    raise EventError(f"{place.__class__.__name__} cannot be used as an archive\n  hint: {_KINDS}")


_NONE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class ParquetFolder:
    """The Parquet files in a folder, or one file; those of `names` if it is pinned.

    Parts of paths like day=3 are columns.
    """

    place: str
    names: tuple[str, ...] | None = None  # relative to the place; "" for one file

    kind = "parquet"

    @property
    def version(self) -> str | None:
        return None

    def pinned(self) -> "ParquetFolder":
        if self.names is not None:
            return self
        return ParquetFolder(self.place, tuple(name for name, _, _ in self._list_files()))

    def describe(self) -> dict[str, object]:
        """The names of its files, if it is pinned."""
        return {} if self.names is None else {"files": list(self.names)}

    def get_partition_columns(self) -> tuple[str, ...]:
        return tuple(self.files().partitions)

    def files(self) -> FileList:
        """The files, with the metadata of their footers."""
        listed = self._list_files() if self.names is None else self._list_pinned(self.names)
        return self._read_footers(tuple(listed))

    def schema(self) -> pa.Schema:
        """The union of the files' columns, and the partition columns."""
        files = self.files()
        schemas = [
            pa.schema([pa.field(field.name, field.type) for field in read_footer(path).schema]) for path in files.paths
        ]
        try:
            merged = pa.unify_schemas(schemas, promote_options="permissive")
        except pa.ArrowException as error:
            raise EventError(
                f"the files in {self.place} are not compatible: {get_first_line(error)}\n"
                "  hint: an archive is one table: put each kind of file in its own folder"
            ) from error
        for name, values in files.partitions.items():
            merged = merged.append(pa.field(name, values.type))
        return merged

    def _list_files(self) -> list[tuple[str, int, int]]:
        """Name, size and time of each file that is not hidden, by name."""
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
            infos = system.get_file_info(pa.fs.FileSelector(inside, recursive=True))
        except OSError as error:
            raise EventError(f"cannot list {self.place}: {error}") from error
        base = len(inside.rstrip("/")) + 1
        logs = [f.path[base:] for f in infos if f.path.endswith("/_delta_log")]
        if logs:
            table = logs[0].rpartition("/")[0]
            raise EventError(
                f"the folder {self.place} is not a table, but contains a Delta table: {table}\n"
                "  hint: name that table; not all of its files still belong to it"
            )
        names = [
            (f.path[base:], f.size, f.mtime_ns or 0)
            for f in infos
            if f.is_file and f.path.endswith((".parquet", ".pq"))
        ]
        visible = sorted(n for n in names if not _is_hidden(n[0]))
        if not visible:
            raise EventError(
                f"the folder {self.place} holds no Parquet files"
                + ("" if not names else ": names that start with _ or . are ignored")
                + "\n  hint: an archive is a Delta table, a folder of Parquet files, or a table"
            )
        return visible

    def _list_pinned(self, names: tuple[str, ...]) -> list[tuple[str, int, int]]:
        """Name, size and time of the pinned files."""
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

    @lru_cache(16)  # noqa: B019  the folder is a value
    def _read_footers(self, listed: tuple[tuple[str, int, int], ...]) -> FileList:
        names = [name for name, _, _ in listed]
        paths = self._paths(names)
        footers = [read_footer(path) for path in paths]
        inside = {name for f in footers for name in f.schema.names}
        return FileList(
            paths=paths,
            rows=np.array([f.metadata.num_rows for f in footers], np.int64),
            sizes=np.array([_compute_size(f) for f in footers], np.int64),
            bounds=cache(lambda name: _compute_bounds(name, footers)),
            partitions={k: v for k, v in _parse_partitions(names).items() if k not in inside},
        )


def _compute_size(footer: ParquetFooter) -> int:
    return sum(
        footer.metadata.row_group(k).column(c).total_compressed_size
        for k in range(footer.metadata.num_row_groups)
        for c in range(footer.metadata.num_columns)
    )


def _compute_bounds(name: str, footers: list[ParquetFooter]) -> ColumnBounds | None:
    types = {plain_type(f.schema.field(name).type) for f in footers if name in f.schema.names}
    if len(types) != 1:
        return None
    type = types.pop()
    bounds = [f.compute_file_bounds(name) for f in footers]
    return ColumnBounds(*(pa.array([pair[k] for pair in bounds], type) for k in (0, 1)))


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "_")) and "=" not in part for part in name.split("/"))


def _parse_partitions(names: list[str]) -> dict[str, pa.Array]:
    """The columns in the paths of files, as integers where all values are."""
    by_file: list[dict[str, str]] = []
    for name in names:
        parts = [part.partition("=") for part in name.split("/")[:-1] if "=" in part]
        by_file.append({unquote(key): unquote(value) for key, _, value in parts})
    columns = dict.fromkeys(key for parts in by_file for key in parts)
    return {key: _parse_values([parts.get(key, _NONE) for parts in by_file]) for key in columns}


def _parse_values(texts: list[str]) -> pa.Array:
    values = [None if text == _NONE else text for text in texts]
    try:
        return pa.array([None if v is None else int(v) for v in values], pa.int32())
    except (ValueError, OverflowError, pa.ArrowInvalid):
        return pa.array(values, pa.string())
