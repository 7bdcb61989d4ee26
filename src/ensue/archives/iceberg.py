"""Iceberg tables as archives, as of the snapshot that was current when they were opened."""

from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ensue.archives.archive import ColumnBounds, FileList, get_local_path
from ensue.archives.parquet_reader import build_bounds_array, build_file_error, get_first_line, split_path
from ensue.errors import EventError
from ensue.optional_deps import require_extra


@dataclass(frozen=True)
class IcebergSnapshot:
    """A snapshot of an Iceberg table. Its metadata never change, so it is always pinned."""

    metadata: str  # path
    number: int | None  # None: the table has no snapshot, so it is empty
    properties: dict[str, str] = field(default_factory=dict, repr=False, compare=False)  # to access the files
    kind = "iceberg"

    @property
    def place(self) -> str:
        return self.metadata

    @property
    def version(self) -> str | None:
        return None if self.number is None else str(self.number)

    def pinned(self) -> "IcebergSnapshot":
        return self

    def describe(self) -> dict[str, object]:
        """Nothing besides place and version: the access properties may hold secrets."""
        return {}

    def get_partition_columns(self) -> tuple[str, ...]:
        return tuple(part.name for part in self._table().spec().fields)

    def _table(self) -> Any:
        from pyiceberg.table import StaticTable

        return StaticTable.from_metadata(self.metadata, self.properties)

    @lru_cache(16)  # noqa: B019  a snapshot is a value
    def files(self) -> FileList:
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
            bounds=cache(lambda name: _read_bounds(name, table.schema(), files)),
            left=_read_row_masks(tasks),
        )


def _read_bounds(name: str, schema: Any, files: list[Any]) -> ColumnBounds | None:
    """The bounds of a column in each file, from the manifests."""
    from pyiceberg.conversions import from_bytes

    column = schema.find_field(name)
    if not column.field_type.is_primitive:
        return None
    arrays = []
    for side in ("lower_bounds", "upper_bounds"):
        raw = [(getattr(f, side) or {}).get(column.field_id) for f in files]
        values = [None if r is None else from_bytes(column.field_type, r) for r in raw]
        try:
            arrays.append(build_bounds_array(values, schema.as_arrow().field(name).type))
        except (pa.ArrowException, TypeError, ValueError):  # bounds that cannot be compared
            return None
    return ColumnBounds(*arrays)


def _read_row_masks(tasks: list[Any]) -> dict[str, npt.NDArray[np.bool_]]:
    """By path: a mask of the rows that no position delete file removes."""
    masks: dict[str, npt.NDArray[np.bool_]] = {}
    for task in tasks:
        path = get_local_path(task.file.file_path) or task.file.file_path
        for deletes in task.delete_files:
            positions = _read_deleted_positions(deletes, task.file.file_path)
            mask = masks.setdefault(path, np.ones(task.file.record_count, np.bool_))
            mask[positions] = False
    return masks


def _read_deleted_positions(deletes: Any, path: str) -> npt.NDArray[np.int64]:
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
    """The current or given snapshot of a pyiceberg table, and its columns."""
    if not hasattr(table, "metadata_location"):
        raise EventError(
            f"{table.__class__.__name__} cannot be used as an archive\n  hint: pass a table: catalog.load_table(name)"
        )
    return _open_snapshot(table, dict(table.io.properties), version)


def open_iceberg_path(place: str, version: int | str | None) -> tuple[IcebergSnapshot, pa.Schema]:
    """The current or given snapshot of the table with this metadata file, and its columns."""
    with require_extra("an Iceberg table", "archive", EventError):
        from pyiceberg.table import StaticTable
    try:
        table = StaticTable.from_metadata(place)
    except (OSError, ValueError) as error:
        raise EventError(
            f"cannot read the metadata of an Iceberg table at {place}: {get_first_line(error)}\n"
            "  hint: pass the path of one of the table's .metadata.json files"
        ) from error
    return _open_snapshot(table, {}, version)


def _open_snapshot(
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
    _refuse_renamed_columns(table, place)
    schema = table.schema()
    if number is not None:
        schemas = {schema.schema_id: schema for schema in table.metadata.schemas}
        schema = schemas.get(table.snapshot_by_id(number).schema_id, schema)
    columns = pa.schema([pa.field(f.name, f.type) for f in schema.as_arrow()])
    return IcebergSnapshot(place, number, properties), columns


def _refuse_renamed_columns(table: Any, place: str) -> None:
    names: dict[int, str] = {}
    for schema in table.metadata.schemas:
        for column in schema.fields:
            if names.setdefault(column.field_id, column.name) != column.name:
                raise EventError(
                    f"column '{column.name}' of the Iceberg table {place} once had another name "
                    f"('{names[column.field_id]}'), which is not supported\n"
                    "  hint: rewrite its data files, or pass table.scan().to_arrow()"
                )
