"""What can be an archive: the kind of a place is recognised, and its columns are checked."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs

from ensue.archives.contract import Archive
from ensue.archives.footers import place_of
from ensue.archives.reading import Stored
from ensue.archives.stored import FileArchive, Source
from ensue.archives.tables import TableArchive
from ensue.columns.arrow_kinds import kind_of_arrow
from ensue.columns.stream import Shape, refuse_own_names, shape_of
from ensue.errors import EventError, did_you_mean
from ensue.schema import Kind

Time = str | tuple[str, str]

_KINDS = (
    "an archive is the path of a Delta table or of a folder of Parquet files, an Iceberg table, "
    "an Arrow, pandas or Polars table, or in batch a Spark DataFrame"
)


def opened(
    place: Any,
    *,
    time: Time | None,
    type: str | None = None,
    key: Sequence[str] = (),
    order: Sequence[str] = (),
    version: int | str | None = None,
    complete: object | None = None,
) -> Archive:
    """The archive at a place, or made of a table."""
    given = _Given(time, type, tuple(key), tuple(order), version, complete)
    if isinstance(place, str | Path):
        return _at(os.fspath(place), given)
    module = place.__class__.__module__.partition(".")[0]
    if module == "pyiceberg":
        from ensue.archives.iceberg import of_table

        source, schema = of_table(place, version)
        return _made(source, schema, given)
    if module == "pyspark":
        from ensue.archives.frames import frame_archive

        given.refuse_version("a DataFrame")
        return frame_archive(place, given)
    given.refuse_version("a table in memory")
    return _in_memory(place, given)


class _Given:
    """What the call said of the columns."""

    def __init__(
        self,
        time: Time | None,
        type: str | None,
        key: tuple[str, ...],
        order: tuple[str, ...],
        version: int | str | None,
        complete: object | None,
    ) -> None:
        self.time, self.type, self.key, self.order = time, type, key, order
        self.version, self.complete = version, complete

    def refuse_version(self, what: str) -> None:
        if self.version is not None:
            raise EventError(
                f"version={self.version!r}: {what} has no versions\n"
                "  hint: leave version= out; Delta and Iceberg tables have them"
            )

    def shape(self, schema: pa.Schema) -> Shape:
        """The shape of the archive's events, with all columns checked."""
        if self.time is None:
            raise EventError(
                "the archive's time column is needed: pass time=\n"
                "  hint: only archives that Ensue has created know their own"
            )
        refuse_own_names(schema.names)
        shape = shape_of(schema, time=self.time, type=self.type, order=self.order)
        for name in self.key:
            if name not in schema.names:
                hint = did_you_mean(name, schema.names)
                raise EventError(f"no column '{name}' for key=\n  hint: {hint or 'no columns'}")
            if kind_of_arrow(schema.field(name).type) is Kind.OTHER:
                raise EventError(
                    f"key column '{name}' is {schema.field(name).type}: objects cannot be told "
                    "apart by it\n  hint: use a text, a number, a boolean or a time"
                )
        return shape


def _at(place: str, given: _Given) -> Archive:
    if _has_log(place):
        from ensue.archives import delta

        source = delta.Log(place, delta.number(given.version))
        return delta.made(source, given)
    if place.endswith(".metadata.json"):
        from ensue.archives.iceberg import of_path

        iceberg, schema = of_path(place, given.version)
        return _made(iceberg, schema, given)
    from ensue.archives.folders import Folder

    folder = Folder(place)
    given.refuse_version("a folder of Parquet files")
    return _made(folder, folder.schema(), given)


def _has_log(place: str) -> bool:
    try:
        system, inside = place_of(place)
        info = system.get_file_info(inside.rstrip("/") + "/_delta_log")
    except (OSError, pa.ArrowException) as error:
        raise EventError(f"cannot look into {place}: {str(error).splitlines()[0]}") from error
    return bool(info.type == pa.fs.FileType.Directory)


def _made(source: Source, schema: pa.Schema, given: _Given) -> FileArchive:
    shape = given.shape(schema)
    return FileArchive(source, shape, given.key, Stored(schema, given.key), given.complete)


def _in_memory(place: Any, given: _Given) -> TableArchive:
    table = _table(place)
    return TableArchive.of(table, given.shape(table.schema), given.key, given.complete)


def _table(place: Any) -> pa.Table:
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
    raise EventError(
        f"{place.__class__.__name__} is not understood as an archive\n  hint: {_KINDS}"
    )
