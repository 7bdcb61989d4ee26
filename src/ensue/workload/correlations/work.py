"""Queries over a stream and its past: live queries that share a scan, and what they look up."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from ensue.algebra.tower import types_of as types_named
from ensue.archives.contract import Archive
from ensue.columns.stream import slices
from ensue.computed import cached_property
from ensue.plan.limits import Limits
from ensue.results.time_order import rows_in_time_order
from ensue.workload.correlations.matcher import CorrelatedMatcher
from ensue.workload.correlations.prepared import Pasts, PreparedCorrelation, PreparedJoin
from ensue.workload.correlations.sides import patterns_of
from ensue.workload.prepared import Prepared
from ensue.workload.queries.work import matcher_of
from ensue.workload.source import Source
from ensue.workload.stage import ARRIVAL, Archiving, Fed, Output, Reads, StageMatcher, types_of
from ensue.workload.together import Together
from ensue.workload.work import SLICE, Progress, Unseen, Whole


@dataclass(frozen=True)
class CorrelationWork:
    """Queries over one stream and its past, and the outputs that their rows go to."""

    queries: tuple[PreparedCorrelation, ...]
    outputs: tuple[Output, ...]
    pasts: Pasts
    source: Source
    of_events: bool = True  # live matches are found in the events as they come in
    rows: None = None  # all events are needed

    @property
    def expected(self) -> tuple[Prepared, ...]:
        """What may be foreseen of it: the live queries."""
        return patterns_of([query.live for query in self.queries])

    @cached_property
    def reads(self) -> Reads:
        return Reads(types_of(stage.reads for (stage,) in self.chains()))

    def matched(self, events: pa.Table, progress: Progress | None = None) -> Whole:
        """The rows of all queries in events that are in the order of the stream."""
        matcher = self.whole().matcher()
        found: list[list[pa.Table]] = []
        done = 0
        for piece in slices(events, SLICE):
            found.append(matcher.feed(Fed.of(piece)))
            done += piece.num_rows
            if progress is not None:
                progress(done, events.num_rows)
        found.append(matcher.finish())
        tables = [
            rows_in_time_order(pa.concat_tables(pieces), output.meaning, by_id=False)
            for output, pieces in zip(self.outputs, zip(*found, strict=True), strict=True)
        ]
        return Whole(tables, self._unseen(events))

    def _unseen(self, events: pa.Table) -> Unseen:
        """Types that live queries name, and that no event has."""
        column = self.source.shape.schema.type_column
        if column is None or not events.num_rows:
            return Unseen()
        seen = {str(value) for value in events.column(column).unique().to_pylist()}
        lives = patterns_of([query.live for query in self.queries])
        named = {name for live in lives for name in types_named(live.query)}
        return Unseen(frozenset(named - seen))

    def chains(self) -> "tuple[tuple[CorrelationStage, ...], ...]":
        """The queries by the key they are split by: each is a chain of one stage."""
        found = []
        for key in dict.fromkeys(query.lane_key for query in self.queries):
            numbers = [n for n, q in enumerate(self.queries) if q.lane_key == key]
            found.append((self._stage(key, numbers),))
        return tuple(found)

    def whole(self) -> "CorrelationStage":
        """All queries as one stage that no key splits."""
        return self._stage((), range(len(self.queries)))

    def _stage(self, key: tuple[str, ...], numbers: Sequence[int]) -> "CorrelationStage":
        queries = tuple(self.queries[n] for n in numbers)
        used = {join.lookup.archive for query in queries for join in query.joins}
        used |= set() if self.pasts.own is None else {self.pasts.own}
        archives = {name: self.pasts.archives[name] for name in sorted(used)}
        return CorrelationStage(
            queries,
            tuple(self.outputs[n] for n in numbers),
            replace(self.pasts.travelling, archives=archives),
            self.source,
            key,
        )


@dataclass(frozen=True)
class CorrelationStage:
    """Live queries that find all they need in the lanes of one key, and their pasts."""

    queries: tuple[PreparedCorrelation, ...]
    outputs: tuple[Output, ...]  # one a query
    pasts: Pasts
    source: Source
    key: tuple[str, ...]
    takes: Mapping[str, pa.Schema] = field(default_factory=dict)
    hold: int = 0
    arrival: tuple[str, ...] = (ARRIVAL,)

    @cached_property
    def reads(self) -> Reads:
        """What the live queries are made of, and what belongs to the past."""
        types = types_of(Reads(query.live.types) for query in self.queries)
        several = [Reads(types), *self._of_own_past()]
        unkeyed = any(query.lane_key_may_be_null for query in self.queries)
        return Reads(types_of(several), self.key, nulls=unkeyed)

    def _of_own_past(self) -> Iterator[Reads]:
        if self.pasts.own is not None:
            yield from (Reads(join.lookup.types) for join in self._joins(self.pasts.own))

    @property
    def whole_stream(self) -> str | None:
        """Why one lane has to see all events, if it has to."""
        if self.key:
            return None
        return next(
            (query.why_whole for query in self.queries if query.why_whole is not None),
            "the query has no [attr] to split the stream: one task, on one core, will "
            "match all events",
        )

    @property
    def limits(self) -> Limits:
        return self.queries[0].live.limits

    # ---------------------------------------------------------------------------- archives

    @property
    def archives(self) -> Mapping[str, Archive]:
        """Those that it looks things up in, by name."""
        return self.pasts.archives

    @property
    def archiving(self) -> Archiving | None:
        """How events are written to the own archive; None: they stay in the lane."""
        return self.pasts.archiving

    def archived_types(self, name: str) -> frozenset[str] | None:
        """The types of events of an archive that matter to it. None: all of them."""
        return types_of(Reads(join.lookup.types) for join in self._joins(name))

    def _joins(self, name: str) -> Iterator[PreparedJoin]:
        for query in self.queries:
            yield from (join for join in query.joins if join.lookup.archive == name)

    def split_like(self, name: str) -> frozenset[str]:
        """The fields by which an archive can be split as the stream is."""
        fields = set(self.key)
        for query in self.queries:
            for join, equal in zip(query.joins, query.joining.equal, strict=True):
                if join.lookup.archive == name:
                    fields &= {e.field for e in equal if e.same_field}
        return frozenset(fields)

    def with_archives(self, archives: Mapping[str, Archive]) -> "CorrelationStage":
        """The same with some archives in the place of those of the same names."""
        pasts = replace(self.pasts, archives={**self.pasts.archives, **archives})
        return replace(self, pasts=pasts)

    # ---------------------------------------------------------------------------- running

    def matcher(self) -> StageMatcher:
        """A matcher for a lane, with no events yet."""
        live = [query.live for query in self.queries]
        patterns = patterns_of(live)
        matcher: StageMatcher
        if len(patterns) == len(live):
            matcher = matcher_of(patterns, self.reads, self.limits, shared=len(live) > 1)
        else:
            matcher = Together([side.matcher() for side in live])
        pasts = {name: self.pasts.past(name, self.queries[0].unit) for name in self.archives}
        return CorrelatedMatcher(matcher, self.queries, pasts, self.source.shape)

    def matched(self, given: Fed) -> list[pa.Table]:
        """What a lane finds where all events are there."""
        matcher = self.matcher()
        found = [matcher.feed(Fed.of(piece)) for piece in slices(given.bare, SLICE)]
        found.append(matcher.finish())
        return [pa.concat_tables(tables) for tables in zip(*found, strict=True)]

    def matches(self, found: Sequence[pa.Table]) -> int:
        """How many rows were found."""
        return int(np.sum([table.num_rows for table in found], dtype=np.int64))

    def delivered(self, found: Sequence[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        """The rows of each query, with the number of its output."""
        for output, table in zip(self.outputs, found, strict=True):
            if table.num_rows:
                yield output.number, table

    def sent(self, found: Sequence[pa.Table]) -> Iterator[tuple[str, pa.Table]]:  # noqa: ARG002
        """No other stage is made of what these find."""
        return iter(())
