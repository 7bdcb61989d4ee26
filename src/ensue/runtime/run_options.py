"""The options of a call: how to run its queries, and the archives they read."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from ensue.options import Archives, OutputOptions
from ensue.planner.planner_options import DEFAULT_OPTIONS, PlannerOptions

if TYPE_CHECKING:
    from ensue.archives.archive import Archive
    from ensue.operators.archive_join.archived_events import ArchivedEvents
    from ensue.runtime.stage import ArchiveSink
    from ensue.vector.arrow_types import Unit


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
    access: str | None = None  # None: the cheapest access path
    latency: str | int | float | None = None  # maximum wait of a live match for batching

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


def open_archives(archives: "Mapping[str, Archive] | Archives | None", *, streaming: bool = False) -> ArchiveSet:
    """Pins the archives of a call; that of a stream's own events stays unpinned."""
    archives = Archives.wrap(archives)
    pinned = {name: archive.pinned() for name, archive in archives.archives.items()}
    opened = ArchiveSet(
        pinned, unpinned=dict(archives.archives), access=archives.access, latency=archives.latency
    )  # fmt: skip
    if archives.own is None:
        return opened
    own = archives.own
    return opened.with_own_archive(own, archives.archives[own] if streaming else pinned[own])


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a call for all its queries."""

    streaming: bool = False
    planning: PlannerOptions = DEFAULT_OPTIONS
    output: OutputOptions = OutputOptions()  # noqa: RUF009  it is frozen
    coming: InputEvents = STREAM_INPUT
    ids: bool = True  # whether results of MATCH_RECOGNIZE begin with a column match_id
