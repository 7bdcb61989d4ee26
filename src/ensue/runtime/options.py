"""What a call wants of all its queries, and what it knows of the events and their past."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

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
    """How a call wants archives to be accessed."""

    access: str | None = None  # None: the cheapest way
    latency: str | int | float | None = None  # how long a live match may wait for others

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
    """What a call knows of the events that it brings."""

    table: pa.Table | None = None  # all of them, in any order, if they are here
    whole: bool = False  # they are all there, wherever

    @property
    def events(self) -> int | None:
        return None if self.table is None else self.table.num_rows


STREAM_INPUT = InputEvents()


def describe_input(events: object, *, streaming: bool) -> InputEvents:
    """What is known of the events of a call."""
    if isinstance(events, pa.Table):
        return InputEvents(events, whole=True)
    return InputEvents(whole=not streaming)


@dataclass(frozen=True)
class ArchiveSet:
    """The archives of a call by name, as they are when it begins."""

    archives: "Mapping[str, Archive]"
    own: str | None = None  # the one that the events themselves belong to
    # events that end before are in the own archive already, whatever it will hold later: a number,
    # or nanoseconds; None: it has nothing
    cut: int | float | None = None
    archiving: "ArchiveSink | None" = None  # how the own archive is written
    given: "Mapping[str, Archive]" = field(
        default_factory=dict, repr=False
    )  # as the call has them

    def owning(self, name: str, archive: "Archive") -> "ArchiveSet":
        """The events belong to an archive, which is read as it is then."""
        archives = {**self.archives, name: archive}
        return replace(self, archives=archives, own=name, cut=_behind(archive.pinned()))

    def renewed(self) -> "ArchiveSet":
        """The same, where the own archive ends as it does now."""
        return self if self.own is None else self.owning(self.own, self.archives[self.own])

    @property
    def travelling(self) -> "ArchiveSet":
        """What a task has to know."""
        return replace(self, given={})

    def past(self, name: str, unit: "Unit") -> "ArchivedEvents":
        """An archive as key groups begin with it."""
        from ensue.operators.archive_join.archived_events import ArchivedEvents

        own = name == self.own
        cut = self.first_cut(unit) if own else None
        waits = own and self.archiving is not None
        return ArchivedEvents(self.archives[name], unit, own, cut, cut, waits_for_archive=waits)

    def first_cut(self, unit: "Unit") -> int | float | None:
        """The cut as the past counts time."""
        if self.own is None or self.cut is None or unit == "ns" or not self._calendar:
            return self.cut
        return -(-int(self.cut) // 1_000)

    @property
    def _calendar(self) -> bool:
        assert self.own is not None
        return not self.archives[self.own].shape.schema.time_kind.numeric


def _behind(archive: "Archive") -> int | float | None:
    """The moment after an archive's last event: a number, or nanoseconds; None: it is empty."""
    from ensue.archives.parquet_metadata import read_last_end
    from ensue.vector.column_values import from_arrow

    found = read_last_end(archive)
    if found is None:
        return None
    last = from_arrow(found, "ns").values[0].item()
    return math.nextafter(last, math.inf) if isinstance(last, float) else int(last) + 1


NO_ARCHIVES = ArchiveSet({})


def open_archives(archives: object, own: object, *, streaming: bool = False) -> ArchiveSet:
    """The archives that a call is given, as they are now; the one that a stream writes is read as
    it is then."""
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
    found = ArchiveSet(pinned, given=dict(archives))
    if own is None:
        return found
    name = str(own)
    return found.owning(name, archives[name] if streaming else pinned[name])


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a call wants of all its queries."""

    emit_timeouts: bool = False
    levels: tuple[str, ...] | str | None = None
    trace: bool = False
    streaming: bool = False
    planning: PlannerOptions = DEFAULT_OPTIONS
    access: AccessOptions = AccessOptions()
    coming: InputEvents = STREAM_INPUT  # what is known of the events
    ids: bool = True  # whether what clauses give begins with a column match_id
    flat: bool = False  # whether events are plain columns
