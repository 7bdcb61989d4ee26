"""An archive that consists of files, whatever lists them."""

from dataclasses import dataclass, replace
from datetime import timedelta
from time import perf_counter
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.archives import duckdb_reader as duck
from ensue.archives import parquet_reader as decoding
from ensue.archives.archive import ArchiveLayout, ArchiveRead, ArchiveRows, FileList
from ensue.archives.parquet_metadata import MissingFileError
from ensue.archives.parquet_reader import FILE, ROW
from ensue.archives.pruning import FilePruner, is_clustered
from ensue.archives.row_selection import RowSelector, get_read_columns
from ensue.errors import EventError
from ensue.vector.event_table import StreamSchema, find_stream_order
from ensue.vector.take import take_rows


@dataclass(frozen=True, slots=True)
class StorageLayout:
    """How the events of an archive are stored, beside what they are."""

    schema: pa.Schema  # of the table, with columns that are not shown
    key: tuple[str, ...] = ()
    buckets: int | None = None  # into which keys are hashed
    order: str | None = None  # the hidden column of the order in which events arrived
    day: float | None = None  # how long a part is, where times are numbers; 0: all of it


def read_files(
    files: FileList,
    wanted: ArchiveRead,
    shape: StreamSchema,
    stored: StorageLayout,
    engine: str | None = None,
) -> ArchiveRows:
    """The events that are asked for. `engine` is "duckdb" or "pyarrow"; None: what is there."""
    began = perf_counter()
    pieces = RowSelector(wanted, shape)
    columns = get_read_columns(wanted, shape, () if stored.order is None else (stored.order,))
    picker = FilePruner(pieces, stored.key, stored.buckets)
    numbers = picker.files(files)
    quick = engine != "pyarrow" and duck.can_read_with_duckdb(
        files, numbers, columns, stored.schema
    )
    decode = duck.read_with_duckdb if quick and len(numbers) else decoding.read_with_pyarrow
    found = decode(files, numbers, pieces, picker, columns, stored.schema)
    events = sort_rows(found.rows, shape, stored).select(list(columns.given))
    return ArchiveRows(events, len(numbers), found.groups, found.looked_at, perf_counter() - began)


def sort_rows(rows: pa.Table, shape: StreamSchema, stored: StorageLayout) -> pa.Table:
    """Rows in the order of the stream: time, order columns, arrival, then where they lie."""
    if not rows.num_rows:
        return rows
    ties = [np.asarray(rows.column(name).to_numpy()) for name in (ROW, FILE)]
    if stored.order is not None:
        ties.append(np.asarray(rows.column(stored.order).to_numpy()))
    places = np.lexsort(ties)
    rows = take_rows(rows, places)
    again = find_stream_order(rows, shape)
    return rows if again is None else take_rows(rows, again)


# ----------------------------------------------------------------------
# An archive that consists of files, whatever lists them.


class FileSource(Protocol):
    """Who knows the files of a table: a log, a folder, a catalogue. It is frozen and picklable."""

    @property
    def kind(self) -> str:
        """delta, parquet or iceberg."""

    @property
    def place(self) -> str:
        """As the user wrote it."""

    @property
    def version(self) -> str | None:
        """The version that it is pinned to."""

    def pinned(self) -> "FileSource":
        """It as it is now."""

    def files(self) -> FileList:
        """The files of its version, or those that are there now."""

    def described(self) -> dict[str, object]:
        """What it needs, beside kind, place and version, to be found again."""

    def partitioned_by(self) -> tuple[str, ...]:
        """The columns by which files lie apart."""


@dataclass(frozen=True, eq=False)
class FileArchive:
    """A table of past events in Parquet files."""

    source: FileSource
    shape: StreamSchema
    key: tuple[str, ...]
    stored: StorageLayout
    complete: object | None = None
    engine: str | None = None  # what decodes rows: "duckdb", "pyarrow", None: what is there

    @property
    def place(self) -> str:
        return self.source.place

    def pinned(self) -> "FileArchive":
        """It as it is now: whatever is written later is not seen."""
        return replace(self, source=self.source.pinned())

    def described(self) -> dict[str, object]:
        """As plain values, with the version it is pinned to."""
        schema = self.shape.schema
        return {
            "kind": self.source.kind,
            "place": self.source.place,
            "version": self.source.version,
            "time": [schema.start, schema.end],
            "type": schema.type_column,
            "key": list(self.key),
            "order": list(schema.order),
            "buckets": self.stored.buckets,
            **self.source.described(),
        }

    def layout(self) -> ArchiveLayout:
        """What is known of it without reading its events."""
        pinned = self.source.pinned()
        files = pinned.files()
        schema = self.shape.schema
        own = self.stored.buckets is not None
        return ArchiveLayout(
            kind=self.source.kind,
            place=self.source.place,
            version=pinned.version,
            rows=files.total_rows,
            files=len(files),
            bytes=files.total_bytes,
            since=_outermost(files, schema.start, first=True),
            until=_outermost(files, schema.end, first=False),
            partitioned_by=self.source.partitioned_by(),
            sorted_by=(*self.key, schema.end) if own else (),
            buckets=self.stored.buckets,
            clustered=own or is_clustered(files, self.key),
        )

    def read(self, wanted: ArchiveRead) -> ArchiveRows:
        """Events by object and time."""
        source = self.source
        if source.kind == "delta":
            source = source.pinned()  # so that an error can name the version
        try:
            return read_files(source.files(), wanted, self.shape, self.stored, self.engine)
        except MissingFileError as error:
            if source.version is None:
                raise
            raise EventError(
                f"version {source.version} of {self.place} cannot be read any more: its file "
                f"{error.path} is gone, so it was vacuumed\n"
                "  hint: take a newer version, and let vacuum keep files as long as they are read"
            ) from error


def _outermost(files: FileList, column: str, *, first: bool) -> object | None:
    """A time that no event is before, or behind; None if a file does not say."""
    if not len(files):
        return None
    bounds = files.bounds(column)
    if bounds is None:
        return None
    values = bounds.least if first else bounds.greatest
    if values.null_count:
        return None
    found = (pc.min(values) if first else pc.max(values)).as_py()
    if bounds.slack and not first:
        found += timedelta(microseconds=bounds.slack // 1_000)
    outermost: object = found
    return outermost
