"""Compiled queries with JOIN ARCHIVE."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ensue.ir.archive_join import ArchiveJoinQuery, RowPatternSide
from ensue.ir.query import Query
from ensue.operators.archive_join.archive_access import ArchiveLookup
from ensue.operators.archive_join.join_sides import CompiledSide
from ensue.operators.archive_join.joining import KeyEquality, MatchJoiner
from ensue.planner.access_paths import AccessDecision
from ensue.vector.arrow_types import Unit


@dataclass(frozen=True)
class CompiledJoin:
    """A compiled join: its lookup, and the value of the live match that it reads by."""

    lookup: ArchiveLookup
    key: KeyEquality | None  # by which the archive is read; None: all keys
    far: float  # how far back its range reaches
    waits: float  # how long after its range archived matches are undecided


@dataclass(frozen=True)
class CompiledArchiveJoin:
    """A compiled query with JOIN ARCHIVE: a live side, lookups, and the join of their matches."""

    archive_join: ArchiveJoinQuery  # checked
    live: CompiledSide
    joins: tuple[CompiledJoin, ...]
    joining: MatchJoiner
    unit: Unit
    decision: AccessDecision  # the access, and the reason
    latency: float = 0.0  # how long grouped access may delay a live match
    live_window: float | None = None  # the longest duration of live matches, if known
    filter_field: str | None = None  # the live field by which keys without matches are skipped
    partition_key: tuple[str, ...] = ()  # splits the stream into key groups
    has_null_partition_keys: bool = False  # NULL keys count
    why_unpartitioned: str | None = None  # why no key splits the stream

    @property
    def meaning(self) -> Query:
        """The live side with the returned columns."""
        live = self.archive_join.live
        if isinstance(live, RowPatternSide):
            return Query(live.pattern, returns=self.archive_join.returns)
        return replace(live, returns=self.archive_join.returns)

    @property
    def keeps(self) -> float | None:
        """How long after its end an event may be needed; None: forever.

        A live match starts at most its window before now, and may be delayed.
        """
        return self._add_delay(join.far + join.lookup.before + join.waits for join in self.joins)

    @property
    def asks(self) -> float | None:
        """How long after its start an archived match may be needed; None: forever."""
        return self._add_delay(join.far + join.waits for join in self.joins)

    def _add_delay(self, distances: Iterable[float]) -> float | None:
        if self.live_window is None:
            return None
        return self.live_window + self.latency + max(distances, default=0)

    @property
    def access(self) -> str:
        return self.decision.access
