"""A folder of Parquet files, or one file, as a table. Parts of paths like day=3 are columns."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.fs

from ensue.archives.files import Bounds, Files
from ensue.archives.footers import Footer, MissingFileError, footer, place_of
from ensue.columns.arrow_kinds import plain_type
from ensue.errors import EventError

_NONE = "__HIVE_DEFAULT_PARTITION__"
_KEPT = 16  # folders whose list of files is kept


@dataclass(frozen=True, slots=True)
class Folder:
    """The Parquet files at a place; those of `names` if it is pinned."""

    place: str
    names: tuple[str, ...] | None = None  # relative to the place; "" for one file

    kind = "parquet"

    @property
    def version(self) -> str | None:
        return None

    def pinned(self) -> "Folder":
        """With the files that are there now."""
        if self.names is not None:
            return self
        return Folder(self.place, tuple(name for name, _, _ in self._listed()))

    def described(self) -> dict[str, object]:
        """The names of its files, if it is pinned."""
        return {} if self.names is None else {"files": list(self.names)}

    def partitioned_by(self) -> tuple[str, ...]:
        return tuple(self.files().partitions)

    def files(self) -> Files:
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
        schemas = [_plain(footer(path).schema) for path in files.paths]
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
        system, inside = place_of(self.place)
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
        system, _ = place_of(self.place)
        infos = system.get_file_info([place_of(path)[1] for path in paths])
        for path, info in zip(paths, infos, strict=True):
            if not info.is_file:
                raise MissingFileError(path)
        return [(n, i.size, i.mtime_ns or 0) for n, i in zip(names, infos, strict=True)]

    def _paths(self, names: Sequence[str]) -> tuple[str, ...]:
        base = self.place.rstrip("/")
        return tuple(f"{base}/{name}" if name else self.place for name in names)

    def _opened(self, names: list[str]) -> Files:
        paths = self._paths(names)
        footers = [footer(path) for path in paths]
        first = footers[0].schema if footers else pa.schema([])
        inside = {name for f in footers for name in f.schema.names}
        return Files(
            paths=paths,
            rows=np.array([f.metadata.num_rows for f in footers], np.int64),
            sizes=np.array([_size(f) for f in footers], np.int64),
            bounds=_Bounds(footers).of,
            partitions={k: v for k, v in _partitions(names).items() if k not in inside},
            even=all(f.schema.equals(first) for f in footers),
        )


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _size(known: Footer) -> int:
    groups = range(known.metadata.num_row_groups)
    return sum(
        known.metadata.row_group(k).column(c).total_compressed_size
        for k in groups
        for c in range(known.metadata.num_columns)
    )


class _Bounds:
    """The bounds of columns in each file, from the footers, computed when asked for."""

    def __init__(self, footers: list[Footer]) -> None:
        self._footers = footers
        self._known: dict[str, Bounds | None] = {}

    def of(self, name: str) -> Bounds | None:
        if name not in self._known:
            self._known[name] = self._computed(name)
        return self._known[name]

    def _computed(self, name: str) -> Bounds | None:
        types = {
            plain_type(f.schema.field(name).type) for f in self._footers if name in f.schema.names
        }
        if len(types) != 1:
            return None
        type = types.pop()
        pairs: list[tuple[Any, Any]] = [f.whole(name) for f in self._footers]
        return Bounds(
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


_lists: OrderedDict[Any, Files] = OrderedDict()
_lock = Lock()
