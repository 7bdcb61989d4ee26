"""A query over a stream and its past, made ready."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ensue.algebra.correlation import ClauseSide, Correlation
from ensue.algebra.query import Query
from ensue.archives.contract import Archive
from ensue.archives.last_event import last_end
from ensue.columns.arrow_kinds import Unit
from ensue.columns.values import from_arrow
from ensue.errors import EventError, did_you_mean
from ensue.plan.access import Decision
from ensue.workload.correlations.access import Lookup
from ensue.workload.correlations.joining import Equal, Joining
from ensue.workload.correlations.past import Past
from ensue.workload.correlations.sides import PreparedSide
from ensue.workload.stage import Archiving


@dataclass(frozen=True)
class Pasts:
    """The archives of a call by name, as they are when it begins."""

    archives: Mapping[str, Archive]
    own: str | None = None  # the one that the events themselves belong to
    # events that end before are in the own archive already, whatever it will hold later: a number,
    # or nanoseconds; None: it has nothing
    cut: int | float | None = None
    archiving: Archiving | None = None  # how the own archive is written
    given: Mapping[str, Archive] = field(default_factory=dict, repr=False)  # as the call has them

    def owning(self, name: str, archive: Archive) -> "Pasts":
        """The events belong to an archive, which is read as it is then."""
        archives = {**self.archives, name: archive}
        return replace(self, archives=archives, own=name, cut=behind(archive.pinned()))

    def renewed(self) -> "Pasts":
        """The same, where the own archive ends as it does now."""
        return self if self.own is None else self.owning(self.own, self.archives[self.own])

    @property
    def travelling(self) -> "Pasts":
        """What a task has to know."""
        return replace(self, given={})

    def past(self, name: str, unit: Unit) -> Past:
        """An archive as lanes begin with it."""
        own = name == self.own
        cut = self.first_cut(unit) if own else None
        waits = own and self.archiving is not None
        return Past(self.archives[name], unit, own, cut, cut, waits_for_archive=waits)

    def first_cut(self, unit: Unit) -> int | float | None:
        """The cut as the past counts time."""
        if self.own is None or self.cut is None or unit == "ns" or not self._calendar:
            return self.cut
        return -(-int(self.cut) // 1_000)

    @property
    def _calendar(self) -> bool:
        assert self.own is not None
        return not self.archives[self.own].shape.schema.time_kind.numeric


def behind(archive: Archive) -> int | float | None:
    """The moment behind an archive's last event: a number, or nanoseconds; None: it is empty."""
    found = last_end(archive)
    if found is None:
        return None
    last = from_arrow(found, "ns").values[0].item()
    return math.nextafter(last, math.inf) if isinstance(last, float) else int(last) + 1


NO_PAST = Pasts({})


def pasts_of(archives: object, own: object, *, streaming: bool = False) -> Pasts:
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
    found = Pasts(pinned, given=dict(archives))
    if own is None:
        return found
    name = str(own)
    return found.owning(name, archives[name] if streaming else pinned[name])


@dataclass(frozen=True)
class PreparedJoin:
    """What a join looks up, and by which value of the live match."""

    lookup: Lookup
    key: Equal | None  # by which the archive is read; None: all objects
    far: float  # how far back its range goes
    waits: float  # how long behind its range a live match waits until its past is decided


@dataclass(frozen=True)
class PreparedCorrelation:
    """A live query, its lookups, and how their matches go together."""

    correlation: Correlation  # checked
    live: PreparedSide
    joins: tuple[PreparedJoin, ...]
    joining: Joining
    unit: Unit
    decision: Decision  # how the archive is accessed, and why
    latency: float = 0.0  # how long a live match may wait for others, where they are grouped
    live_window: float | None = None  # how long live matches are at most, if that is known
    admitted_by: str | None = None  # the live field by which objects without a past are left out
    lane_key: tuple[str, ...] = ()  # by which lanes split the stream
    lane_key_may_be_null: bool = False  # a live match without a key counts, too
    why_whole: str | None = None  # why no key splits the stream

    @property
    def meaning(self) -> Query:
        """Its columns and its live side, as those see it who only want its names."""
        live = self.correlation.live
        if isinstance(live, ClauseSide):
            return Query(live.pattern, returns=self.correlation.returns)
        return replace(live, returns=self.correlation.returns)

    @property
    def keeps(self) -> float | None:
        """How long behind it an event may be asked for; None: for ever.

        A live match starts no earlier than its window before now, and may wait.
        """
        if self.live_window is None:
            return None
        reached = (join.far + join.lookup.before + join.waits for join in self.joins)
        return self.live_window + self.latency + max(reached, default=0)

    @property
    def asks(self) -> float | None:
        """How long behind it an archived match may start that is asked for; None: for ever."""
        if self.live_window is None:
            return None
        reached = (join.far + join.waits for join in self.joins)
        return self.live_window + self.latency + max(reached, default=0)

    @property
    def access(self) -> str:
        return self.decision.access
