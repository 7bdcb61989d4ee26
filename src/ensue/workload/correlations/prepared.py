"""A query over a stream and its past, made ready."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from ensue.algebra.correlation import Correlation
from ensue.archives.contract import Archive
from ensue.columns.arrow_kinds import Unit, plain_type
from ensue.columns.values import from_arrow
from ensue.plan.access import Decision
from ensue.workload.correlations.access import Lookup
from ensue.workload.correlations.joining import Equal, Joining
from ensue.workload.prepared import Prepared


@dataclass(frozen=True)
class Pasts:
    """The archives of a call by name, as they are when it begins."""

    archives: Mapping[str, Archive]
    own: str | None = None  # the one that the events themselves belong to

    def first_cut(self, unit: Unit) -> float | None:
        """The moment behind the own archive's last event: what is before is in it already.

        None: it is empty.
        """
        if self.own is None:
            return None
        archive = self.archives[self.own]
        until = archive.layout().until
        if until is None:
            return None
        type_ = archive.shape.arrow.field(archive.shape.schema.end).type
        last = from_arrow(pa.array([until], plain_type(type_)), unit).values[0].item()
        return math.nextafter(last, math.inf) if isinstance(last, float) else last + 1


@dataclass(frozen=True)
class PreparedJoin:
    """What a join looks up, and by which value of the live match."""

    lookup: Lookup
    key: Equal | None  # by which the archive is read; None: all objects
    waits: float  # how long behind its range a live match waits until its past is decided


@dataclass(frozen=True)
class PreparedCorrelation:
    """A live query, its lookups, and how their matches go together."""

    correlation: Correlation  # checked
    live: Prepared
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
    def access(self) -> str:
        return self.decision.access
