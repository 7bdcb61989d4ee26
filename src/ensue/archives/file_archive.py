"""An archive of Parquet files, listed by a Delta log, an Iceberg snapshot or a folder."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.archives.archive import (
    ORDER,
    ArchiveLayout,
    ArchiveProperties,
    ArchiveRead,
    ArchiveRows,
    ColumnBounds,
    CompactionResult,
    FileList,
    describe_archive,
)
from ensue.archives.parquet_reader import FILE, MissingFileError, get_decoded_columns, read_footer, read_rows
from ensue.archives.pruning import RowSelector, find_files
from ensue.brief_tracebacks import shorten_tracebacks
from ensue.errors import EventError
from ensue.vector.event_table import StreamSchema, find_stream_order
from ensue.vector.take import take_rows


def _sort_rows(rows: pa.Table, shape: StreamSchema) -> pa.Table:
    """Rows in stream order: time, order columns, arrival, then by file; those of a file are in order."""
    if not rows.num_rows:
        return rows
    if ORDER in rows.column_names:
        ties = (np.asarray(rows.column(name).to_numpy()) for name in (FILE, ORDER))
        rows = take_rows(rows, np.lexsort(tuple(ties)))
    order = find_stream_order(rows, shape)
    return rows if order is None else take_rows(rows, order)


class FileSource(Protocol):
    """Lists the files of a table: a log, a folder, a catalog. It is frozen and picklable."""

    @property
    def kind(self) -> str:
        """delta, parquet or iceberg."""

    @property
    def place(self) -> str:
        """As the user wrote it."""

    @property
    def version(self) -> str | None:
        """The pinned version."""

    def pinned(self) -> "FileSource":
        """The source fixed to its current version."""

    def files(self) -> FileList:
        """The files of the pinned or the current version."""

    def describe(self) -> dict[str, object]:
        """What identifies it besides kind, place and version."""

    def get_partition_columns(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, eq=False)
class FileArchive:
    """A table of past events in Parquet files."""

    source: FileSource
    shape: StreamSchema
    key: tuple[str, ...]
    stored: pa.Schema  # of the table, with hidden columns
    own: ArchiveProperties | None = None  # how Ensue has written it; None: others did
    complete: object | None = None

    @property
    def place(self) -> str:
        return self.source.place

    def pinned(self) -> "FileArchive":
        return replace(self, source=self.source.pinned())

    def describe(self) -> dict[str, object]:
        described = describe_archive(self, self.source.kind, self.source.place, self.source.version)
        return described | {"buckets": self._buckets, **self.source.describe()}

    def layout(self) -> ArchiveLayout:
        pinned = self.source.pinned()
        files = pinned.files()
        schema = self.shape.schema
        own = self.own is not None
        return ArchiveLayout(
            kind=self.source.kind,
            place=self.source.place,
            version=pinned.version,
            rows=files.total_rows,
            files=len(files),
            bytes=files.total_bytes,
            since=_find_bound(files, schema.start, first=True),
            until=_find_bound(files, schema.end, first=False),
            partitioned_by=self.source.get_partition_columns(),
            sorted_by=(*self.key, schema.end) if own else (),
            buckets=self._buckets,
            clustered=own or is_clustered(files, self.key),
        )

    @property
    def _buckets(self) -> int | None:
        return None if self.own is None else self.own.buckets

    def read(self, request: ArchiveRead) -> ArchiveRows:
        source = self.source
        if source.kind == "delta":
            source = source.pinned()  # so that an error can name the version
        try:
            files, pieces = source.files(), RowSelector(request, self.shape)
            columns = get_decoded_columns(pieces, () if self.own is None else (ORDER,))
            numbers = find_files(pieces, self.key, self._buckets, files)
            rows, scanned = read_rows(files, numbers, pieces, columns, self.stored)
        except MissingFileError as error:
            if source.version is None:
                raise
            raise EventError(
                f"version {source.version} of {self.place} cannot be read any more: its file "
                f"{error.path} is gone, so it was vacuumed\n"
                "  hint: take a newer version, and let vacuum keep files as long as they are read"
            ) from error
        events = _sort_rows(rows, self.shape).select(pieces.get_columns())
        return ArchiveRows(events, len(numbers), scanned)

    @shorten_tracebacks
    def append(self, events: Any) -> int:
        """Appends events, as having arrived after all others; returns how many."""
        from ensue.archives.delta_writer import append
        from ensue.archives.factory import convert_to_table

        return append(self, convert_to_table(events))

    @shorten_tracebacks
    def compact(self, *, fewest: int = 4, vacuum: int | None = None) -> CompactionResult:
        """Merges the small files of days and buckets that have at least `fewest`.

        Streams can go on. `vacuum` deletes files that no version of that many hours needs.
        """
        from ensue.archives import delta_writer

        done = delta_writer.compact(self, fewest=fewest)
        if vacuum is not None:
            delta_writer.vacuum(self.place, hours=vacuum)
        return done


def _find_bound(files: FileList, column: str, *, first: bool) -> object | None:
    """A lower or upper bound of a time column; None if it is unknown for a file."""
    bounds = files.bounds(column) if len(files) else None
    if bounds is None or (bounds.least if first else bounds.greatest).null_count:
        return None
    bound = (pc.min(bounds.least) if first else pc.max(bounds.greatest)).as_py()
    slack = timedelta(microseconds=bounds.slack // 1_000)
    return bound + slack if slack and not first else bound  # type: ignore[no-any-return]


_SAMPLE = 64  # keys that are looked up in the bounds
_SAMPLE_FILES = 4  # files whose row groups are examined
_MAX_SHARE = 0.25  # of the row groups that may contain a key
_MIN_GROUPS = 4  # with fewer, pruning gains nothing


def is_clustered(files: FileList, key: Sequence[str]) -> bool:
    """Whether statistics prune most files, or most row groups of a file, for one key."""
    if not key or not len(files):
        return False
    name = key[0]
    if name in files.partitions or _compute_share(files.bounds(name)) <= _MAX_SHARE:
        return True
    largest = np.argsort(files.sizes)[::-1][:_SAMPLE_FILES]
    footers = (read_footer(files.paths[k]) for k in largest.tolist())
    return any(_compute_share(footer.bounds(name)) <= _MAX_SHARE for footer in footers)


def _compute_share(bounds: ColumnBounds | None) -> float:
    """The average share of files or row groups that can contain a key; 1 if it is unknown."""
    if bounds is None or len(bounds.least) < _MIN_GROUPS or bounds.least.null_count:
        return 1.0
    step = max(1, len(bounds.least) // _SAMPLE)
    keys = bounds.least.take(pa.array(np.arange(0, len(bounds.least), step)))
    counts = [
        pc.sum(pc.and_(pc.less_equal(bounds.least, key), pc.greater_equal(bounds.greatest, key))).as_py()
        for key in keys
    ]
    return float(np.mean(counts)) / len(bounds.least)


def describe_scan_cost(layout: ArchiveLayout) -> str | None:
    """The extra cost of reads where an archive is not clustered; None if it is.

    >>> from dataclasses import replace
    >>> plain = ArchiveLayout("parquet", "trades/", None, 20_000_000, 30, None, None, None)
    >>> print(describe_scan_cost(plain))
    trades/: the events of an object are not stored together, so a read by object decodes all
    20,000,000 events of 30 files whose time fits: about 10 to 30 times the cost over a month
      hint: ensue archive create and append write a table that is clustered by object
    >>> describe_scan_cost(replace(plain, clustered=True)) is None
    True
    """
    if layout.clustered:
        return None
    rows = "all" if layout.rows is None else f"all {layout.rows:,}"
    files = f"{layout.files:,} {'file' if layout.files == 1 else 'files'}"
    return (
        f"{layout.place}: the events of an object are not stored together, so a read by object "
        f"decodes {rows} events of {files} whose time fits: about 10 to 30 times the cost over a "
        "month\n  hint: ensue archive create and append write a table that is clustered by object"
    )
