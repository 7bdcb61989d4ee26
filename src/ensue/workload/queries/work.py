"""Queries without definitions: those that can split the stream alike share lanes and a scan."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from ensue.algebra.answers import summarised
from ensue.algebra.form import is_lapse
from ensue.columns.matches import Matches
from ensue.columns.stream import Rows, slices
from ensue.computed import cached_property
from ensue.errors import QueryError
from ensue.plan.limits import Limits
from ensue.results.time_order import rows_in_time_order
from ensue.workload.live_matcher import LiveMatchers
from ensue.workload.prepared import Prepared, build_result, joined_of, time_ordered, unseen_types
from ensue.workload.queries.shared_matcher import SharedMatcher
from ensue.workload.queries.whole_scan import WholeScan
from ensue.workload.relevance import only_roles_matter, rows_with_a_role, types_that_matter
from ensue.workload.spill.evictable import not_evictable, why_not_evictable
from ensue.workload.spill.spilling import spilling
from ensue.workload.stage import ARRIVAL, Fed, Output, Reads, StageMatcher
from ensue.workload.timed_out import Bundle
from ensue.workload.work import SLICE, Progress, Unseen, Whole


@dataclass(frozen=True)
class QueryWork:
    """Queries over one stream, and the outputs that their matches go to."""

    bundles: tuple[Bundle, ...]
    outputs: tuple[Output, ...]
    alone: bool  # one query of its own, not one of a list
    of_events: bool = True  # it is found in the events as they come in

    @property
    def prepared(self) -> tuple[Prepared, ...]:
        """All that is matched: queries, and those for their timed-out partial matches."""
        return tuple(query for bundle in self.bundles for query in bundle.queries)

    @property
    def expected(self) -> tuple[Prepared, ...]:
        """What may be foreseen of it: the queries themselves."""
        return tuple(bundle.main for bundle in self.bundles)

    @cached_property
    def reads(self) -> Reads:
        return Reads(types_that_matter(self.prepared))

    @property
    def rows(self) -> Rows | None:
        """Picks the events that may be in a match or forbid one; None: all of them are needed."""
        if len(self.prepared) > 1 or not only_roles_matter(self.prepared[0]):
            return None
        return partial(rows_with_a_role, self.prepared[0])

    def matched(self, events: pa.Table, progress: Progress | None = None) -> Whole:
        """The matches in events that are in the order of the stream."""
        found = matched(self.prepared, events, progress, ordered=True)
        tables = iter(found.tables)
        merged = [b.merged([next(tables) for _ in b.queries]) for b in self.bundles]
        for number, bundle in enumerate(self.bundles):
            if len(bundle.queries) > 1 or summarised(bundle.main.query):
                merged[number] = rows_in_time_order(merged[number], bundle.main.query)
        return Whole(merged, found.unseen)

    def chains(self) -> "tuple[tuple[QueryStage, ...], ...]":
        """The queries by the key they are split by: each is a chain of one stage."""
        for bundle in self.bundles:
            query = bundle.main.query
            if is_lapse(query.pattern):
                raise QueryError(
                    "a pattern that is only an absence does not run on Spark yet: a task begins "
                    "with an event",
                    hint="add an event that must occur: AND(A a, !B b FROM ... TO ...)",
                    span=query.pattern.span,
                    text=query.text,
                )
        keys = self._keys()
        found = []
        for key in dict.fromkeys(keys):
            numbers = [n for n, k in enumerate(keys) if k == key]
            found.append((self._stage(key, numbers),))
        return tuple(found)

    def whole(self) -> "QueryStage":
        """All queries as one stage that no key splits."""
        return QueryStage(self.bundles, self.outputs, (), not self.alone)

    def _stage(self, key: tuple[str, ...], numbers: Sequence[int]) -> "QueryStage":
        bundles = tuple(self.bundles[n] for n in numbers)
        whole = None if key else self._why_whole(len(numbers))
        return QueryStage(
            bundles, tuple(self.outputs[n] for n in numbers), key, not self.alone, whole
        )

    def _keys(self) -> list[tuple[str, ...]]:
        """What splits the stream of each query: a key of its own, or the whole of a smaller one.

        A query partitioned by (user, device) goes with one by user: events that are equal in both
        are equal in one.
        """
        own = [_key(bundle.main) for bundle in self.bundles]
        if self.alone:
            return own
        keys = [frozenset(key) for key in own]
        least = sorted({k for k in keys if k and not any(o and o < k for o in keys)}, key=sorted)
        split = [next((small for small in least if small <= key), key) for key in keys]
        return [tuple(sorted(key)) for key in split]

    def _why_whole(self, count: int) -> str:
        if not self.alone:
            return (
                f"{count} of the {len(self.bundles)} queries have no [attr] that would split the "
                "stream: one task, on one core, will match all events for them"
            )
        if self.bundles[0].main.plan.whole_stream:
            return (
                "strict contiguity looks at the events of every partition: one task, on one core, "
                "will match all events"
            )
        return (
            "the query has no [attr] to split the stream: one task, on one core, will "
            "match all events"
        )


def _key(prepared: Prepared) -> tuple[str, ...]:
    plan = prepared.plan
    return () if plan.whole_stream else tuple(e.field_name for e in plan.query.equivalence)


@dataclass(frozen=True)
class QueryStage:
    """Queries that find all they need in the lanes of one key."""

    bundles: tuple[Bundle, ...]
    outputs: tuple[Output, ...]  # one a bundle
    key: tuple[str, ...]
    shared: bool  # they share one scan of the events
    whole_stream: str | None = None  # why one lane has to see all events, if it has to
    takes: Mapping[str, pa.Schema] = field(default_factory=dict)
    hold: int = 0
    arrival: tuple[str, ...] = (ARRIVAL,)

    @property
    def prepared(self) -> tuple[Prepared, ...]:
        return tuple(query for bundle in self.bundles for query in bundle.queries)

    @cached_property
    def reads(self) -> Reads:
        return Reads(types_that_matter(self.prepared), self.key)

    @property
    def limits(self) -> Limits:
        return self.bundles[0].main.planning.limits

    def matcher(self) -> StageMatcher:
        """A matcher for a lane, with no events yet."""
        return matcher_of(self.prepared, self.reads, self.limits, shared=self.shared)

    def matched(self, given: Fed) -> list[pa.Table]:
        """What a lane finds where all events are there."""
        return matched(self.prepared, given.bare).tables

    def matches(self, found: Sequence[pa.Table]) -> int:
        """How many matches were found."""
        return sum(table.num_rows for table in found)

    def delivered(self, found: Sequence[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        """The matches of each query, with the number of its output."""
        tables = iter(found)
        for output, bundle in zip(self.outputs, self.bundles, strict=True):
            mine = [next(tables) for _ in bundle.queries]
            if any(table.num_rows for table in mine):
                yield output.number, bundle.merged(mine)

    def sent(self, found: Sequence[pa.Table]) -> Iterator[tuple[str, pa.Table]]:  # noqa: ARG002
        """No other stage is made of what queries find."""
        return iter(())


def matcher_of(
    queries: Sequence[Prepared], reads: Reads, limits: Limits, *, shared: bool
) -> StageMatcher:
    """A matcher of queries over one stream; beyond its memory keys go to disk where they can."""

    def plain(queries: Sequence[Prepared]) -> SharedMatcher | LiveMatchers:
        return SharedMatcher(queries) if shared else LiveMatchers(queries)

    if limits.evicting:
        why = why_not_evictable(queries)
        if why is None:
            return spilling(queries, reads, limits, plain)
        if limits.evict is not None:
            raise not_evictable(why)
    return plain(queries)


def matched(
    queries: Sequence[Prepared],
    events: pa.Table,
    progress: Progress | None = None,
    *,
    ordered: bool = False,
) -> Whole:
    """The result of each query, in one pass over events that are all there.

    `ordered`: by the times of matches.
    """
    if len(queries) > 1:
        scan = WholeScan(queries, ordered=ordered)
        return Whole(scan.match(events, progress), Unseen(frozenset(scan.unseen)))
    (query,) = queries
    engine = query.engine()
    found: list[Matches] = []
    for piece in slices(events, SLICE):
        found.append(engine.feed(piece))
        if progress is not None:
            progress(engine.rows, events.num_rows)
    unseen = Unseen(unseen_types(query, engine))
    matches = joined_of(engine, [*found, engine.finish()])
    if ordered:
        matches = time_ordered(query, matches, events)
    return Whole([build_result(query, matches, events)], unseen)
