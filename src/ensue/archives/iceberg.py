"""Iceberg tables as archives, as of the snapshot that was current when they were opened."""

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ensue.archives.archive import ColumnBounds, FileList, get_local_path
from ensue.archives.parquet_metadata import build_file_error, split_path
from ensue.errors import EventError
from ensue.optional_deps import require_extra

_KEPT = 16  # snapshots whose lists of files are kept


@dataclass(frozen=True)
class IcebergSnapshot:
    """A snapshot of an Iceberg table. Its metadata never change, so it is pinned by itself."""

    metadata: str  # where its metadata lie
    number: int | None  # None: the table has no snapshot, so it is empty
    properties: dict[str, str] = field(default_factory=dict, repr=False)  # how to get there
    kind = "iceberg"

    @property
    def place(self) -> str:
        return self.metadata

    @property
    def version(self) -> str | None:
        return None if self.number is None else str(self.number)

    def pinned(self) -> "IcebergSnapshot":
        """Itself: whatever is written later has other metadata."""
        return self

    def described(self) -> dict[str, object]:
        """Nothing beside its place and version; how to get there is not told."""
        return {}

    def partitioned_by(self) -> tuple[str, ...]:
        return tuple(part.name for part in self._table().spec().fields)

    def files(self) -> FileList:
        """The files of the snapshot."""
        name = (self.metadata, self.number)
        with _lock:
            if name in _snapshots:
                _snapshots.move_to_end(name)
                return _snapshots[name]
        found = self._listed()
        with _lock:
            _snapshots[name] = found
            while len(_snapshots) > _KEPT:
                _snapshots.popitem(last=False)
        return found

    def _table(self) -> Any:
        from pyiceberg.table import StaticTable

        return StaticTable.from_metadata(self.metadata, self.properties)

    def _listed(self) -> FileList:
        table = self._table()
        tasks: list[Any] = []
        if self.number is not None:
            try:
                tasks = list(table.scan(snapshot_id=self.number).plan_files())
            except OSError as error:
                raise EventError(
                    f"version {self.number} of {self.metadata} cannot be read any more: {error}\n"
                    "  hint: its snapshot was expired: use a newer one"
                ) from error
        tasks.sort(key=lambda task: str(task.file.file_path))
        files = [task.file for task in tasks]
        return FileList(
            paths=tuple(get_local_path(f.file_path) or f.file_path for f in files),
            rows=np.array([f.record_count for f in files], np.int64),
            sizes=np.array([f.file_size_in_bytes for f in files], np.int64),
            bounds=_Statistics(table.schema(), files).of,
            even=len(table.metadata.schemas) == 1,
            left=_left(tasks),
        )


_lock = Lock()
_snapshots: OrderedDict[tuple[str, int | None], FileList] = OrderedDict()


class _Statistics:
    """The bounds of columns in each file, as the manifests have them."""

    def __init__(self, schema: Any, files: list[Any]) -> None:
        self._schema, self._files = schema, files
        self._known: dict[str, ColumnBounds | None] = {}

    def of(self, name: str) -> ColumnBounds | None:
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def _read(self, name: str) -> ColumnBounds | None:
        from pyiceberg.conversions import from_bytes

        column = self._schema.find_field(name)
        arrow = self._schema.as_arrow().field(name).type
        if not column.field_type.is_primitive:
            return None
        ends = []
        for side in ("lower_bounds", "upper_bounds"):
            raw = [(getattr(f, side) or {}).get(column.field_id) for f in self._files]
            values = [None if r is None else from_bytes(column.field_type, r) for r in raw]
            ends.append(_typed(values, arrow))
        return None if ends[0] is None or ends[1] is None else ColumnBounds(ends[0], ends[1])


def _typed(values: list[Any], type: pa.DataType) -> pa.Array | None:
    try:
        if pa.types.is_timestamp(type):
            return pa.array(values, pa.int64()).cast(type)
        if pa.types.is_date32(type):
            return pa.array(values, pa.int32()).cast(type)
        return pa.array(values, type)
    except (pa.ArrowException, TypeError):  # a type whose bounds are not compared
        return None


def _left(tasks: list[Any]) -> dict[str, npt.NDArray[np.bool_]]:
    """Which rows of files are left by files of deleted positions."""
    found: dict[str, npt.NDArray[np.bool_]] = {}
    for task in tasks:
        path = get_local_path(task.file.file_path) or task.file.file_path
        for deletes in task.delete_files:
            positions = _deleted(deletes, task.file.file_path)
            left = found.setdefault(path, np.ones(task.file.record_count, np.bool_))
            left[positions] = False
    return found


def _deleted(deletes: Any, path: str) -> npt.NDArray[np.int64]:
    if not str(deletes.file_format).upper().endswith("PARQUET"):
        raise EventError(
            f"the Iceberg table has deleted rows in {deletes.file_path}, in a form that is not "
            "supported\n  hint: rewrite its data files, which applies the deletions"
        )
    try:
        system, inside = split_path(deletes.file_path)
        with system.open_input_file(inside) as source:
            table = pq.read_table(source, columns=["file_path", "pos"])
    except (OSError, pa.ArrowException) as error:
        raise build_file_error(deletes.file_path, error) from error
    rows = table.filter(pc.equal(table.column("file_path"), path))
    return np.asarray(rows.column("pos").to_numpy(), np.int64)


def open_iceberg_table(table: Any, version: int | str | None) -> tuple[IcebergSnapshot, pa.Schema]:
    """A table of pyiceberg's, and its columns."""
    if not hasattr(table, "metadata_location"):
        raise EventError(
            f"{table.__class__.__name__} cannot be used as an archive\n"
            "  hint: pass a table: catalog.load_table(name)"
        )
    return _made(table, dict(table.io.properties), version)


def open_iceberg_path(place: str, version: int | str | None) -> tuple[IcebergSnapshot, pa.Schema]:
    """The table whose metadata lie at a place, and its columns."""
    with require_extra("an Iceberg table", "archive", EventError):
        from pyiceberg.table import StaticTable
    try:
        table = StaticTable.from_metadata(place)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise EventError(
            f"cannot read the metadata of an Iceberg table at {place}: {reason}\n"
            "  hint: pass the path of one of the table's .metadata.json files"
        ) from error
    return _made(table, {}, version)


def _made(
    table: Any, properties: dict[str, str], version: int | str | None
) -> tuple[IcebergSnapshot, pa.Schema]:
    place = table.metadata_location
    if version is None:
        current = table.current_snapshot()
        number = None if current is None else int(current.snapshot_id)
    else:
        known = [str(s.snapshot_id) for s in table.metadata.snapshots]
        if str(version) not in known:
            shown = ", ".join(known[-5:]) or "none"
            raise EventError(
                f"version {version} of {place} does not exist: the snapshot has expired or never "
                f"existed\n  hint: there are {shown}; version=None takes the newest"
            )
        number = int(version)
    _refuse_renamed(table, place)
    schema = table.schema() if number is None else _schema_of(table, number)
    columns = pa.schema([pa.field(f.name, f.type) for f in schema.as_arrow()])
    return IcebergSnapshot(place, number, properties), columns


def _schema_of(table: Any, number: int) -> Any:
    snapshot = table.snapshot_by_id(number)
    known = {schema.schema_id: schema for schema in table.metadata.schemas}
    return known.get(snapshot.schema_id, table.schema())


def _refuse_renamed(table: Any, place: str) -> None:
    names: dict[int, str] = {}
    for schema in table.metadata.schemas:
        for column in schema.fields:
            if names.setdefault(column.field_id, column.name) != column.name:
                raise EventError(
                    f"column '{column.name}' of the Iceberg table {place} once had another name "
                    f"('{names[column.field_id]}'), which is not supported\n"
                    "  hint: rewrite its data files, or pass table.scan().to_arrow()"
                )
