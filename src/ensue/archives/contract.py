"""What an archive is to those who look things up in it, and to those who write it."""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from ensue.columns.stream import Shape

KEY, SINCE, UNTIL = "key", "since", "until"  # the columns of a table of pieces


@dataclass(frozen=True, slots=True)
class Wanted:
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
class Read:
    """The events that were asked for, in the order of the stream, and what it took."""

    events: pa.Table
    files: int = 0  # that were opened
    groups: int = 0  # row groups that were decoded, as far as is known
    rows: int = 0  # that were looked at, as far as is known
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Layout:
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
    def shape(self) -> Shape:
        """Its columns, and what each of them is for."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that say of which object an event is."""

    def pinned(self) -> "Archive":
        """It as it is now: whatever is written later is not seen."""

    def described(self) -> dict[str, object]:
        """As plain values, with the version it is pinned to: what a checkpoint knows it by."""

    def layout(self) -> Layout:
        """What is known of it without reading its events."""

    def read(self, wanted: Wanted) -> Read:
        """Events by object and time."""
