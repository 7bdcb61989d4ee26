"""What can be an archive: the kind of a place is recognised, and its columns are checked."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs

from ensue.archives.contract import Archive
from ensue.archives.footers import place_of
from ensue.archives.given import Given, Time
from ensue.archives.reading import Stored
from ensue.archives.stored import FileArchive, Source
from ensue.archives.tables import TableArchive
from ensue.columns.rows import no_rows
from ensue.errors import EventError, StateError

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
    given = Given(time, type, tuple(key), tuple(order), version, complete)
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


def again(described: Mapping[str, Any], known: Mapping[str, Archive] | None = None) -> Archive:
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
    from ensue.archives.writing import require_described

    start, end = described["time"]
    opened_ = opened(
        described["place"],
        time=start if start == end else (start, end),
        type=described["type"],
        key=described["key"],
        order=described["order"],
        version=None if kind == "parquet" else version,
    )
    assert isinstance(opened_, FileArchive)
    if "files" in described:
        from ensue.archives.folders import Folder

        opened_ = replace(opened_, source=Folder(described["place"], tuple(described["files"])))
    require_described(opened_, described)
    return opened_


def _at(place: str, given: Given) -> Archive:
    if _has_log(place):
        from ensue.archives.delta import archive_at

        return archive_at(place, given)
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
        raise EventError(f"cannot list {place}: {str(error).splitlines()[0]}") from error
    return bool(info.type == pa.fs.FileType.Directory)


def _made(source: Source, schema: pa.Schema, given: Given) -> FileArchive:
    stored = Stored(schema, given.key)
    return FileArchive(source, given.shape(schema), given.key, stored, given.complete)


def _in_memory(place: Any, given: Given) -> TableArchive:
    table = table_of(place)
    return TableArchive.of(table, given.shape(table.schema), given.key, given.complete)


def table_of(place: Any) -> pa.Table:
    """Events of any library that speaks Arrow as a table; of a schema, one without rows."""
    if isinstance(place, pa.Schema):
        return no_rows(place)
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
