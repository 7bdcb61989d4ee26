"""The options of a call: how to run its queries, and the archives they read."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ensue.errors import EventError, did_you_mean
from ensue.planner.planner_options import DEFAULT_OPTIONS, PlannerOptions

if TYPE_CHECKING:
    from ensue.archives.archive import Archive
    from ensue.operators.archive_join.archived_events import ArchivedEvents
    from ensue.runtime.stage import ArchiveSink
    from ensue.vector.arrow_types import Unit


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """How archives are accessed."""

    access: str | None = None  # None: the cheapest access path
    latency: str | int | float | None = None  # maximum wait of a live match for batching

    def __post_init__(self) -> None:
        if self.access is None:
            return
        from ensue.planner.access_paths import ACCESSES

        if self.access not in ACCESSES:
            raise EventError(
                f"access={self.access!r} is none of {', '.join(map(repr, ACCESSES))}\n"
                "  hint: leave it out, and the cheapest is taken"
            )


@dataclass(frozen=True, eq=False)
class InputEvents:
    """The events of a call, as known to the planner."""

    table: pa.Table | None = None  # all events, in any order, if they are in memory
    whole: bool = False  # whether they are complete, not a stream

    @property
    def events(self) -> int | None:
        return None if self.table is None else self.table.num_rows


STREAM_INPUT = InputEvents()


def describe_input(events: object, *, streaming: bool) -> InputEvents:
    if isinstance(events, pa.Table):
        return InputEvents(events, whole=True)
    return InputEvents(whole=not streaming)


@dataclass(frozen=True)
class ArchiveSet:
    """The archives of a call by name, pinned when it begins."""

    archives: "Mapping[str, Archive]"
    own: str | None = None  # the archive that the stream itself writes
    # events that end before are in the own archive already: a number, or nanoseconds; None: it
    # was empty
    cut: int | float | None = None
    archiving: "ArchiveSink | None" = None  # how the own archive is written
    unpinned: "Mapping[str, Archive]" = field(default_factory=dict, repr=False)

    def with_own_archive(self, name: str, archive: "Archive") -> "ArchiveSet":
        """The set with an archive that the stream writes."""
        archives = {**self.archives, name: archive}
        return replace(self, archives=archives, own=name, cut=_find_cut(archive.pinned()))

    def renew(self) -> "ArchiveSet":
        """The set with the current end of the own archive as the cut."""
        return self if self.own is None else self.with_own_archive(self.own, self.archives[self.own])

    @property
    def travelling(self) -> "ArchiveSet":
        """The part that tasks need."""
        return replace(self, unpinned={})

    def open_archived_events(self, name: str, unit: "Unit") -> "ArchivedEvents":
        """The archived events of a new key group."""
        from ensue.operators.archive_join.archived_events import ArchivedEvents

        own = name == self.own
        cut = self.first_cut(unit) if own else None
        waits = own and self.archiving is not None
        return ArchivedEvents(self.archives[name], unit, own, cut, cut, waits_for_archive=waits)

    def first_cut(self, unit: "Unit") -> int | float | None:
        """The cut in ticks."""
        if self.own is None or self.cut is None or unit == "ns":
            return self.cut
        if self.archives[self.own].shape.schema.time_kind.numeric:
            return self.cut
        return -(-int(self.cut) // 1_000)


def _find_cut(archive: "Archive") -> int | float | None:
    """The time after an archive's last event: a number, or nanoseconds; None: it is empty."""
    from ensue.archives.parquet_metadata import read_last_end
    from ensue.vector.column_values import from_arrow

    last_end = read_last_end(archive)
    if last_end is None:
        return None
    last = from_arrow(last_end, "ns").values[0].item()
    return math.nextafter(last, math.inf) if isinstance(last, float) else int(last) + 1


NO_ARCHIVES = ArchiveSet({})

# ------------------------------------------------------------------------- streams
REFUSE, ALLOW = "refuse", "allow"


@dataclass(frozen=True, eq=False)
class History:
    """Past events that a stream starts with, for `ensue.start(..., history=)`.

    `events` are those that `history=` takes; older ones than `since` are left out. If the stream
    starts later than the history ends, it stops with a StateError that names the gap; with
    `gap="allow"` it goes on, since nothing happened in between.

    >>> History("/data/readings", since=7).gap
    'refuse'
    """

    events: Any
    since: Any = None
    gap: str = REFUSE

    def __post_init__(self) -> None:
        if self.events is None:
            raise EventError("a history needs events\n  hint: leave out history=, to start a stream without one")
        if self.gap not in (REFUSE, ALLOW):
            raise EventError(f"gap= must be {REFUSE!r} or {ALLOW!r}, not {self.gap!r}")


@dataclass(frozen=True, eq=False)
class ArchiveWriter:
    """The archive that a stream writes, and when, for `ensue.start(..., archive=)`.

    `archive` is the result of `ensue.archive` for one that Ensue has created, or its name among
    those of `ensue.match`. Relevant events stay in the state of a key group until it has `rows`
    of them (50,000), or one of them is older than `age`, such as "1 hour"; then they become files
    of the archive, in one transaction per micro-batch. Late events do not.

    >>> ArchiveWriter("passes", rows=10_000, age="1 hour")
    ArchiveWriter(archive='passes', rows=10000, age='1 hour')
    """

    archive: "str | Archive"
    rows: int | None = None
    age: str | int | float | None = None

    def __post_init__(self) -> None:
        if self.rows is not None and self.rows < 1:
            raise EventError(f"rows={self.rows}: an archive takes at least 1 event at a time")


def open_archives(archives: object, own: object, *, streaming: bool = False) -> ArchiveSet:
    """Pins the archives of a call; that of a stream's own events stays unpinned."""
    if archives is None:
        archives = {}
    if not isinstance(archives, Mapping):
        raise EventError(
            "archives= is a dict of archives by the names that JOIN ARCHIVE uses\n"
            '  hint: archives={"trades": ensue.archive(place, time=..., key=...)}'
        )
    for name, archive in archives.items():
        if not hasattr(type(archive), "pinned"):  # a DataFrame may have a column of that name
            raise EventError(
                f"archives[{name!r}] is no archive but of type {type(archive).__name__}\n"
                "  hint: wrap it, as in ensue.archive(table, time=..., key=...)"
            )
    if own is not None and own not in archives:
        hint = did_you_mean(str(own), list(archives)) or f"pass it: archives={{{own!r}: ...}}"
        raise EventError(f"archive={own!r} is none of archives=\n  hint: {hint}")
    pinned = {name: archive.pinned() for name, archive in archives.items()}
    opened = ArchiveSet(pinned, unpinned=dict(archives))
    if own is None:
        return opened
    name = str(own)
    return opened.with_own_archive(name, archives[name] if streaming else pinned[name])


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a call for all its queries."""

    emit_timeouts: bool = False
    levels: tuple[str, ...] | str | None = None
    trace: bool = False
    streaming: bool = False
    planning: PlannerOptions = DEFAULT_OPTIONS
    access: AccessOptions = AccessOptions()
    coming: InputEvents = STREAM_INPUT
    ids: bool = True  # whether results of MATCH_RECOGNIZE begin with a column match_id
    flat: bool = False  # whether events are flat columns
