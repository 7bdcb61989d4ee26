"""The archive interface, the list of an archive's files, and the options of a call."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, astuple, dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, NoReturn, Protocol, Self
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.brief_tracebacks import shorten_tracebacks
from ensue.errors import EventError, StateError, did_you_mean
from ensue.schema import ValueKind
from ensue.vector.arrow_types import kind_of_arrow, plain_type
from ensue.vector.event_table import StreamSchema, check_reserved_names, create_schema

KEY, SINCE, UNTIL = "key", "since", "until"  # the columns of `ArchiveRead.pieces`

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ArchiveRead:
    """A range query over an archive.

    `pieces` has a row for each time range: an event belongs to it if it starts at or after
    `since` and ends at or before `until` (both have the type of the archive's time column; NULL is
    open), and, where `field` is set, if its field equals the piece's `key`. Pieces of one key do
    not overlap, so each event is returned once.
    """

    pieces: pa.Table
    field: str | None = None  # None: events of all keys
    types: frozenset[str] | None = None  # None: all event types
    columns: tuple[str, ...] | None = None  # None: all columns


@dataclass(frozen=True, slots=True)
class ArchiveRows:
    """The result of an `ArchiveRead` in stream order, with what was read for it."""

    events: pa.Table
    files: int = 0  # opened
    rows: int = 0  # that passed the filter of the scan, if known


@dataclass(frozen=True, slots=True)
class ArchiveLayout:
    """Metadata of an archive, available without reading its events."""

    kind: str  # "delta", "parquet", "iceberg", "table", "frame"
    place: str  # as the user wrote it
    version: str | None  # None: not versioned
    rows: int | None
    files: int
    bytes: int | None
    since: object | None  # no event starts earlier, as a Python value; None: unknown
    until: object | None  # no event ends later; Delta's statistics are a millisecond off
    partitioned_by: tuple[str, ...] = ()
    sorted_by: tuple[str, ...] = ()
    buckets: int | None = None  # number of hash buckets of the key, where Ensue wrote it
    clustered: bool = False  # whether the events of one key are stored together


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """Counts of a compaction."""

    parts: int = 0  # partitions: days and buckets
    before: int = 0  # files that were replaced
    after: int = 0
    rows: int = 0
    skipped: int = 0  # partitions that another process rewrote meanwhile

    def __add__(self, other: "CompactionResult") -> "CompactionResult":
        return CompactionResult(*map(sum, zip(astuple(self), astuple(other), strict=True)))


class Archive(Protocol):
    """A table of past events that can be read by key and time. It is frozen and picklable."""

    @property
    def shape(self) -> StreamSchema:
        """The schema of its events."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify the object of an event."""

    def pinned(self) -> "Archive":
        """The archive fixed to its current version: later writes are not visible."""

    def describe(self) -> dict[str, object]:
        """Plain values, including the pinned version, by which a checkpoint identifies it."""

    def layout(self) -> ArchiveLayout:
        """Its metadata."""

    def read(self, request: ArchiveRead) -> ArchiveRows:
        """Reads events by key and time."""

    def append(self, events: Any) -> int:
        """Appends events, as having arrived after all others; returns how many."""

    def compact(self, *, fewest: int = 4, vacuum: int | None = None) -> CompactionResult:
        """Merges the small files of days and buckets that have at least `fewest`."""


def describe_archive(archive: Archive, kind: str, place: str, version: str | None) -> dict[str, object]:
    """The plain values of `Archive.describe` that all archives have."""
    schema = archive.shape.schema
    return {
        "kind": kind, "place": place, "version": version, "time": [schema.start, schema.end],
        "type": schema.type_column, "key": list(archive.key), "order": list(schema.order),
    }  # fmt: skip


class ReadOnlyArchive:
    """A table in memory or a DataFrame, whose version Spark resolves when it is computed."""

    def pinned(self) -> Self:
        return self

    @shorten_tracebacks
    def append(self, *_: Any, **__: Any) -> NoReturn:
        what = "a table in memory or a DataFrame is only read"
        raise StateError(f"{what}\n  hint: ensue.create_archive(place, events, ...) makes an archive to write")

    compact = append


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """The minimum and maximum of a column in each file or row group; NULL: unknown.

    `slack` is the possible error of both in nanoseconds: Delta cuts timestamps to milliseconds.
    """

    least: pa.Array
    greatest: pa.Array
    slack: int = 0


@dataclass(frozen=True, eq=False)
class FileList:
    """The files of one version of a table, in the order in which their events arrived."""

    paths: tuple[str, ...]  # of the local file system, or URIs
    rows: Ints  # -1: unknown
    sizes: Ints  # in bytes; -1: unknown
    bounds: Callable[[str], ColumnBounds | None]  # of a column; None: unknown
    partitions: Mapping[str, pa.Array] = field(default_factory=dict)  # one value per file
    buckets: Ints | None = None  # of each file, where keys are hashed
    # by path: a mask of the rows that were not deleted
    left: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def total_rows(self) -> int | None:
        """The number of events; None if it is unknown for a file."""
        if bool((self.rows < 0).any()):
            return None
        deleted = sum(int((~kept).sum()) for kept in self.left.values())
        return int(self.rows.sum()) - deleted

    @property
    def total_bytes(self) -> int | None:
        return None if bool((self.sizes < 0).any()) else int(self.sizes.sum())


def get_local_path(path: str) -> str | None:
    """The path in the local file system, or None if it is remote.

    >>> get_local_path("file:///data/a%20b.parquet"), get_local_path("s3://bucket/x")
    ('/data/a b.parquet', None)
    """
    if "://" not in path:
        return path
    parts = urlsplit(path)
    return unquote(parts.path) if parts.scheme == "file" else None


def build_partition_columns(files: FileList, numbers: npt.NDArray[Any], schema: pa.Schema) -> dict[str, pa.Array]:
    """The partition columns of rows that come from the files with these numbers."""
    return {
        field.name: files.partitions[field.name].take(pa.array(numbers)).cast(field.type)
        for field in schema
        if field.name in files.partitions
    }


TimeColumns = str | tuple[str, str]


@dataclass(frozen=True)
class ArchiveOptions:
    """The options of `ensue.archive`."""

    time: TimeColumns | None
    type: str | None = None
    key: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    version: int | str | None = None
    complete: object | None = None

    def refuse_version(self, what: str) -> None:
        if self.version is not None:
            raise EventError(
                f"version={self.version!r}: {what} has no versions\n"
                "  hint: leave version= out; Delta and Iceberg tables have them"
            )

    def shape(self, schema: pa.Schema) -> StreamSchema:
        """The schema of the archive's events, after checking all options against its columns."""
        if self.time is None:
            raise EventError(
                "the time column of the archive is missing: pass time=\n  hint: only archives created by Ensue know it"
            )
        check_reserved_names(schema.names)
        shape = create_schema(schema, time=self.time, type=self.type, order=self.order)
        for name in self.key:
            if name not in schema.names:
                hint = did_you_mean(name, schema.names)
                raise EventError(f"no column '{name}' for key=\n  hint: {hint or 'no columns'}")
            if kind_of_arrow(schema.field(name).type) is ValueKind.OTHER:
                raise EventError(
                    f"key column '{name}' is {schema.field(name).type}: it cannot "
                    "identify objects\n  hint: use a text, a number, a boolean or a time"
                )
        return shape


CONFIGURATION = "ensue.archive"  # the entry of the table's configuration
DAY, BUCKET, ORDER = "__day", "__bucket", "__order"
HIDDEN_COLUMNS = (DAY, BUCKET, ORDER)
_FORM = 1


@dataclass(frozen=True, slots=True)
class ArchiveProperties:
    """The layout of an archive that Ensue wrote, stored in the Delta table's configuration."""

    time: tuple[str, str]
    type: str | None
    key: tuple[str, ...]
    order: tuple[str, ...]
    buckets: int
    day: float | None = None  # length of a day partition of numeric times; 0: one partition

    def text(self) -> str:
        """The JSON in the table's configuration.

        >>> own = ArchiveProperties(("t", "t"), None, ("id",), (), 16)
        >>> ArchiveProperties.read({CONFIGURATION: own.text()}) == own
        True
        """
        return json.dumps({"form": _FORM, **asdict(self)}, sort_keys=True)

    @staticmethod
    def read(configuration: Mapping[str, str | None]) -> "ArchiveProperties | None":
        """Parses the configuration; None: Ensue did not create the table."""
        text = configuration.get(CONFIGURATION)
        if text is None:
            return None
        known = json.loads(text)
        if known.pop("form", None) != _FORM:
            raise EventError(
                "the archive was written by another release of Ensue, in a form that this one "
                "does not know\n  hint: install the newer release"
            )
        start, end = known.pop("time")
        key, order = tuple(known.pop("key")), tuple(known.pop("order"))
        return ArchiveProperties(time=(start, end), key=key, order=order, **known)

    def named_time(self) -> str | tuple[str, str]:
        """The value of `time=`."""
        return self.time[0] if self.time[0] == self.time[1] else self.time


def read_last_end(archive: Archive) -> pa.Array | None:
    """The exact end of an archive's last event, as an array of one; None: it has no events."""
    layout, schema = archive.layout(), archive.shape.schema
    if layout.rows == 0:
        return None
    type = plain_type(archive.shape.arrow.field(schema.end).type)
    if layout.kind in ("table", "frame"):  # their layouts are computed from the events
        return None if layout.until is None else pa.array([layout.until], type)
    since = layout.until  # statistics may be rounded up: Delta stores milliseconds
    if isinstance(since, date):
        since -= timedelta(milliseconds=2) if isinstance(since, datetime) else timedelta(days=1)
    if schema.intervals:  # pieces are narrowed by starts
        since = None
    columns = tuple(dict.fromkeys((schema.start, schema.end)))
    for first in dict.fromkeys((since, None)):
        piece = pa.table({SINCE: pa.array([first], type), UNTIL: pa.nulls(1, type)})
        ends = archive.read(ArchiveRead(piece, columns=columns)).events.column(schema.end)
        if len(ends):
            return pa.array([pc.max(ends).as_py()], type)
    return None
