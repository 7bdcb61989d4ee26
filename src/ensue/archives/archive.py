"""What an archive is to those who look things up in it, and to those who write it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.errors import EventError, did_you_mean
from ensue.schema import ValueKind
from ensue.vector.arrow_types import kind_of_arrow
from ensue.vector.event_table import StreamSchema, check_reserved_names, create_schema

KEY, SINCE, UNTIL = "key", "since", "until"  # the columns of a table of pieces


@dataclass(frozen=True, slots=True)
class ArchiveRead:
    """Which events of an archive are asked for.

    `pieces` has a row for each stretch of time: an event belongs to it if it starts at or behind
    `since` and ends at or before `until` (both have the type of the archive's time column; NULL is
    open), and, where `field` is set, if its field equals the piece's `key`. Pieces of one key do
    not overlap. An event comes once.
    """

    pieces: pa.Table
    field: str | None = None  # None: the events of all objects
    types: frozenset[str] | None = None  # None: those of every type
    columns: tuple[str, ...] | None = None  # None: all of them


@dataclass(frozen=True, slots=True)
class ArchiveRows:
    """The events that were asked for, in the order of the stream, and what it took."""

    events: pa.Table
    files: int = 0  # that were opened
    groups: int = 0  # row groups that were decoded, as far as is known
    rows: int = 0  # that were looked at, as far as is known
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ArchiveLayout:
    """What is known of an archive without reading its events."""

    kind: str  # "delta", "parquet", "iceberg", "table", "frame"
    place: str  # as the user wrote it
    version: str | None  # None: it has none
    rows: int | None
    files: int
    bytes: int | None
    since: object | None  # no event starts before it, as a Python value; None: not known
    until: object | None  # no event ends behind it; Delta's statistics are a millisecond off
    partitioned_by: tuple[str, ...] = ()
    sorted_by: tuple[str, ...] = ()
    buckets: int | None = None  # into which keys are hashed, where Ensue wrote it
    clustered: bool = False  # whether the events of one key lie together


class Archive(Protocol):
    """A table of past events that can be read by object and time. It is frozen and picklable."""

    @property
    def shape(self) -> StreamSchema:
        """Its columns, and what each of them is for."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that say of which object an event is."""

    def pinned(self) -> "Archive":
        """It as it is now: whatever is written later is not seen."""

    def described(self) -> dict[str, object]:
        """As plain values, with the version it is pinned to: what a checkpoint knows it by."""

    def layout(self) -> ArchiveLayout:
        """What is known of it without reading its events."""

    def read(self, wanted: ArchiveRead) -> ArchiveRows:
        """Events by object and time."""


# ----------------------------------------------------------------------
# The files of an archive, and what is known of each without opening it.

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """The least and the greatest value of a column in each file (or group); NULL: not known.

    `slack` is how far off both may be, in nanoseconds: Delta cuts timestamps to milliseconds.
    """

    least: pa.Array
    greatest: pa.Array
    slack: int = 0


@dataclass(frozen=True, eq=False)
class FileList:
    """The files of one version of a table, in the order in which their events arrived."""

    paths: tuple[str, ...]  # of the local file system, or URIs
    rows: Ints  # -1: not known
    sizes: Ints  # in bytes; -1: not known
    bounds: Callable[[str], ColumnBounds | None]  # of a column; None: nothing is known
    # Columns whose values are not in the files, but known for each of them.
    partitions: Mapping[str, pa.Array] = field(default_factory=dict)
    buckets: Ints | None = None  # of each file, where keys are hashed
    even: bool = True  # whether a column is of the same type in all of them
    # By path: which rows of a file are left, where some were deleted.
    left: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def total_rows(self) -> int | None:
        """How many events there are; None if a file does not say."""
        if bool((self.rows < 0).any()):
            return None
        deleted = sum(int((~kept).sum()) for kept in self.left.values())
        return int(self.rows.sum()) - deleted

    @property
    def total_bytes(self) -> int | None:
        return None if bool((self.sizes < 0).any()) else int(self.sizes.sum())


def get_local_path(path: str) -> str | None:
    """The path in the local file system, or None if it lies elsewhere.

    >>> (
    ...     get_local_path("file:///data/a%20b.parquet"),
    ...     get_local_path("s3://bucket/x"),
    ...     get_local_path("/data/x"),
    ... )
    ('/data/a b.parquet', None, '/data/x')
    """
    from urllib.parse import unquote, urlsplit

    if "://" not in path:
        return path
    parts = urlsplit(path)
    return unquote(parts.path) if parts.scheme == "file" else None


def build_partition_columns(
    files: FileList, numbers: npt.NDArray[Any], names: tuple[str, ...], schema: pa.Schema
) -> dict[str, pa.Array]:
    """The columns that stand in the names of files, for rows of the files with these numbers."""
    found = {}
    for name in names:
        if name in files.partitions:
            values = files.partitions[name].take(pa.array(numbers))
            found[name] = values.cast(schema.field(name).type)
    return found


# ----------------------------------------------------------------------
# What a call says of the columns of an archive, checked against them.

TimeColumns = str | tuple[str, str]


@dataclass(frozen=True)
class ArchiveOptions:
    """What the call said of the columns."""

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
        """The shape of the archive's events, with all columns checked."""
        if self.time is None:
            raise EventError(
                "the time column of the archive is missing: pass time=\n"
                "  hint: only archives created by Ensue know it"
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


# ----------------------------------------------------------------------
# What an archive that Ensue wrote says of itself, in the configuration of its Delta table.

CONFIGURATION = "ensue.archive"  # the entry of the table's configuration
DAY, BUCKET, ORDER = "__day", "__bucket", "__order"
HIDDEN_COLUMNS = (DAY, BUCKET, ORDER)
_FORM = 1


@dataclass(frozen=True, slots=True)
class ArchiveProperties:
    """How the events of an archive of Ensue's are laid out."""

    time: tuple[str, str]
    type: str | None
    key: tuple[str, ...]
    order: tuple[str, ...]
    buckets: int
    day: float | None = None  # how long a part is, where times are numbers; 0: all of it

    def text(self) -> str:
        """As the table's configuration keeps it.

        >>> own = ArchiveProperties(("t", "t"), None, ("id",), (), 16)
        >>> ArchiveProperties.read({CONFIGURATION: own.text()}) == own
        True
        """
        return json.dumps({"form": _FORM, **asdict(self)}, sort_keys=True)

    @staticmethod
    def read(configuration: Mapping[str, str | None]) -> "ArchiveProperties | None":
        """What the configuration says; None: the table is not one of Ensue's."""
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
        """The time columns as a call names them."""
        return self.time[0] if self.time[0] == self.time[1] else self.time
