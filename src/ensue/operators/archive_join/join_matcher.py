"""Matches live queries and joins each live match with its archived matches."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.memory_budget import Usage
from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.errors import StateError
from ensue.ir.archive_join import JoinKind
from ensue.operators.archive_join.archive_access import EagerAccess, GroupedAccess, LazyAccess
from ensue.operators.archive_join.archived_events import ArchivedEvents, ArchiveRanges, Times, convert_time_unit
from ensue.operators.archive_join.joining import CompiledArchiveJoin, CompiledJoin
from ensue.projection.join_output import get_match_times
from ensue.runtime.stage import ArchiveBatch, LookupCounters, StageInput, StageMatcher
from ensue.schema import ValueKind
from ensue.vector.arrow_types import Unit
from ensue.vector.column_values import decode_dictionary
from ensue.vector.event_table import StreamSchema, get_end_times
from ensue.vector.take import create_empty_table

MAX_GROUP = 10_000  # largest group of live matches


class ArchiveJoinMatcher:
    """Matches live queries over one stream and joins them with archived matches.

    A live match waits until its archived matches are decided and, with grouped access,
    until its group is full or old enough.
    """

    def __init__(
        self,
        live: StageMatcher,
        queries: Sequence[CompiledArchiveJoin],
        archived: Mapping[str, ArchivedEvents],
        shape: StreamSchema,
    ) -> None:
        self.live = live
        self.queries = tuple(queries)
        self.archived = archived
        self.shape = shape  # of the stream's events
        self.unit: Unit = next((query.unit for query in queries), shape.unit)  # of archived times
        self.waiting = [create_empty_table(query.joining.live.schema) for query in queries]
        self._accesses: list[GroupedAccess] = []  # without duplicates
        self._accesses_of = [[self._access(q, join) for join in q.joins] for q in queries]
        keeps = [keeps for query in queries if (keeps := query.keeps) is not None]
        # how long after its end an archived event may be needed; None: forever
        self._keeps = max(keeps, default=0) if len(keeps) == len(queries) else None
        self._begun = False
        self.lookup_count = 0  # live matches that were looked up

    def _access(self, query: CompiledArchiveJoin, join: CompiledJoin) -> GroupedAccess:
        """Creates the access of a join; joins with the same lookup and access method share one."""
        for known in self._accesses:
            if type(known) is _ACCESS_CLASSES[query.access] and known.lookup == join.lookup:
                if isinstance(known, EagerAccess):
                    known.share(join.far, query.asks)
                return known
        past = self.archived[join.lookup.archive]
        class_ = _ACCESS_CLASSES[query.access]
        if class_ is EagerAccess:
            self._accesses.append(EagerAccess(join.lookup, past, join.far, query.asks))
        else:
            self._accesses.append(class_(join.lookup, past))
        return self._accesses[-1]

    def process(self, batch: StageInput) -> list[pa.Table]:
        """Returns the rows of live matches whose archived matches are decided."""
        results = [self._process_slice(piece) for piece in batch.slices()]
        return results[0] if len(results) == 1 else [pa.concat_tables(t) for t in zip(*results, strict=True)]

    def _process_slice(self, batch: StageInput) -> list[pa.Table]:
        events = batch.bare
        if not events.num_rows:
            return [query.joining.nothing() for query in self.queries]
        self._take(events)
        now = self._time(get_end_times(events, self.shape)[-1].item())
        for access in self._accesses:  # decide archived matches before the lookup
            access.on_watermark(now)
        return self._join_decided(self.live.process(self._filter_events(batch)), now)

    def _time(self, now: float) -> float:
        """Converts stream time to the unit of archived times."""
        return convert_time_unit(now, self.shape, self.shape.unit, self.unit)

    def _take(self, events: pa.Table) -> None:
        """Adds events to the archive that they belong to, before any lookup."""
        if not self._begun:
            self._begun = True
            first = get_match_times(events, self.shape.schema.start, self.unit).min().item()
            for access in self._accesses:
                access.begin(first)
        for name, past in self.archived.items():
            if past.own:
                fresh = past.add(events)
                for access in self._accesses:
                    if access.lookup.archive == name and fresh.num_rows:
                        access.process(fresh)

    def _filter_events(self, batch: StageInput) -> StageInput:
        """Drops events of keys without archived matches, if all queries allow it."""
        if any(query.filter_field is None for query in self.queries):
            return batch
        needed = np.zeros(batch.events.num_rows, np.bool_)
        for query, accesses in zip(self.queries, self._accesses_of, strict=True):
            needed |= self._has_archived_matches(query, accesses, batch.events)
        if needed.all():
            return batch
        return StageInput(batch.events.filter(needed), batch.complex_events, batch.arrival)

    def _has_archived_matches(
        self, query: CompiledArchiveJoin, accesses: Sequence[GroupedAccess], events: pa.Table
    ) -> npt.NDArray[np.bool_]:
        assert query.filter_field is not None
        column = decode_dictionary(events.column(query.filter_field).combine_chunks())
        has_all = np.ones(events.num_rows, np.bool_)
        for number, access in enumerate(accesses):
            if query.archive_join.joins[number].kind is not JoinKind.INNER:
                continue
            archived, key = access.instances(_NO_RANGES), query.joins[number].key
            assert key is not None
            keys = query.joining.archived_keys(number, archived, key)
            has_key = pc.is_in(column, value_set=pc.unique(keys).cast(column.type))
            has_all &= has_key.to_numpy(zero_copy_only=False)
        return has_all

    def on_watermark(self, now: float) -> list[pa.Table]:
        """Returns the rows that only waited for time to pass."""
        live = self.live.on_watermark(now)
        now = now if now == math.inf else self._time(now)
        for access in self._accesses:
            access.on_watermark(now)
        return self._join_decided(live, now)

    # ---------------------------------------------------------------------------- lookups

    def _join_decided(self, live: Sequence[pa.Table], now: float) -> list[pa.Table]:
        """Returns the rows of live matches that are decided at a time; infinity decides all."""
        ready = []
        for number, (query, fresh) in enumerate(zip(self.queries, live, strict=True)):
            waiting = self.waiting[number]
            if fresh.num_rows:
                waiting = pa.concat_tables([waiting, fresh]) if waiting.num_rows else fresh
            due, self.waiting[number] = self._split_decided(query, waiting, now)
            ready.append(due)
        result = self._join(ready)
        if now != math.inf:
            self._forget(now)
        return result

    def _forget(self, now: float) -> None:
        """Drops archived events and matches that no later live match can need."""
        for access in self._accesses:
            access.forget(now)
        if self._keeps is not None:
            for past in self.archived.values():
                past.forget(now - self._keeps)

    def _split_decided(self, query: CompiledArchiveJoin, live: pa.Table, now: float) -> tuple[pa.Table, pa.Table]:
        if now == math.inf or not live.num_rows:
            return live, live.slice(0, 0)
        late = np.asarray(self._due(query, live) >= now)
        if not late.any():
            return live, live.slice(0, 0)
        return live.filter(pa.array(~late)), live.filter(pa.array(late)).combine_chunks()

    def _due(self, query: CompiledArchiveJoin, live: pa.Table) -> Times:
        """Returns the time after which each live match is looked up."""
        stops = get_match_times(live, "end", query.unit)
        due = np.full(len(stops), np.iinfo(np.int64).min).astype(stops.dtype)
        for number, join in enumerate(query.joins):
            if join.waits:
                _, until = query.joining.ranges(number, live)
                due = np.maximum(due, until + join.waits)
        if query.access == "grouped" and query.latency:  # since the end of the group's first match
            due = np.maximum(due, compute_group_deadlines(stops, query.latency))
        return due

    def _join(self, ready: Sequence[pa.Table]) -> list[pa.Table]:
        """Joins live matches, with one lookup per access for all of them."""
        self.lookup_count += sum(live.num_rows for live in ready)
        ranges: dict[int, ArchiveRanges] = {}
        for k, query in enumerate(self.queries):
            if query.access == "lazy" or not len(ready[k]):
                continue
            for access, requested in self._requested_ranges(k, ready[k]):
                earlier = ranges.get(id(access))
                ranges[id(access)] = requested if earlier is None else earlier.and_(requested)
        archived = {id(a): a.instances(ranges[id(a)]) for a in self._accesses if id(a) in ranges}
        result = []
        for k, (query, live) in enumerate(zip(self.queries, ready, strict=True)):
            if not live.num_rows:
                result.append(query.joining.nothing())
            elif query.access == "lazy":
                result.append(self._join_lazily(k, live))
            else:
                past = [archived[id(access)] for access in self._accesses_of[k]]
                result.append(query.joining.join(live, past))
        return result

    def _join_lazily(self, number: int, live: pa.Table) -> pa.Table:
        joining, rows = self.queries[number].joining, []
        for k in range(live.num_rows):
            match = live.slice(k, 1)
            requests = self._requested_ranges(number, match)
            archived = [access.instances(ranges) for access, ranges in requests]
            rows.append(joining.join(match, archived))
        return pa.concat_tables(rows)

    def _requested_ranges(self, number: int, live: pa.Table) -> Iterator[tuple[GroupedAccess, ArchiveRanges]]:
        """Yields the ranges that live matches of a query request from the access of each join."""
        query = self.queries[number]
        for k, access in enumerate(self._accesses_of[number]):
            join = query.joins[k]
            keys = None if join.key is None else query.joining.live_keys(live, join.key)
            yield access, ArchiveRanges(keys, *query.joining.ranges(k, live))

    def count_matches(self, archive: str) -> tuple[int, int]:
        """Counts all archived matches so far, and the stored ones."""
        accesses = [a for a in self._accesses if a.lookup.archive == archive]
        return sum(a.total for a in accesses), sum(a.kept for a in accesses)

    def get_lookup_counters(self) -> LookupCounters:
        counters = [astuple(past.get_lookup_counters()) for past in self.archived.values()]
        return LookupCounters(*map(sum, zip(*counters, strict=True)))

    def hand_over(self, now: float, rows: int, age: float | None) -> ArchiveBatch | None:
        for past in self.archived.values():
            if past.own:
                age = None if age is None else self._time(age)
                return past.hand_over(self._time(now), rows, age)
        return None

    def next_timer(self) -> float | None:
        times = [t for t in (self.live.next_timer(),) if t is not None]
        for query, live in zip(self.queries, self.waiting, strict=True):
            if live.num_rows:
                due = self._due(query, live).min().item()
                times.append(convert_time_unit(due, self.shape, self.unit, self.shape.unit))
        return min(times, default=None)

    @property
    def usage(self) -> Usage:
        """The partial matches of the live queries, and the waiting live matches."""
        waiting = Usage(sum(int(table.num_rows) for table in self.waiting))
        buffers = (*self.waiting, *self.archived.values(), *self._accesses)
        return (self.live.usage + waiting).add_bytes(sum(int(buffer.nbytes) for buffer in buffers))

    def snapshot(self) -> bytes:
        archived = {name: past.snapshot() for name, past in self.archived.items() if past.own}
        header = {"begun": self._begun, "pasts": {n: head for n, (head, _) in archived.items()}}
        blobs = {"live": self.live.snapshot()}
        blobs |= {f"waiting {k}": serialize_table(t) for k, t in enumerate(self.waiting)}
        blobs |= {f"past {name}": data for name, (_, data) in archived.items()}
        blobs |= {f"access {k}": a.snapshot() for k, a in enumerate(self._accesses)}
        return pack_state(header, {}, blobs)

    def restore(self, data: bytes) -> None:
        header, _, blobs = unpack_state(data)
        own = {name for name, past in self.archived.items() if past.own}
        accesses = {name for name in blobs if name.startswith("access ")}
        expected = {f"access {k}" for k in range(len(self._accesses))}
        if set(header["pasts"]) != own or accesses != expected:
            raise StateError("the state of a stream was saved for another set of archives")
        self._begun = bool(header["begun"])
        self.live.restore(blobs["live"])
        for name in own:
            self.archived[name].restore(header["pasts"][name], blobs[f"past {name}"])
        for k, access in enumerate(self._accesses):
            access.restore(blobs[f"access {k}"])
            if isinstance(access, EagerAccess) and self._begun and not access.begun:
                kind = self.shape.schema.time_kind
                access.restart(floats=kind in (ValueKind.FLOAT, ValueKind.DECIMAL))
        self.waiting = [
            deserialize_table(blobs[f"waiting {k}"]).cast(query.joining.live.schema)
            for k, query in enumerate(self.queries)
        ]


_NO_RANGES = ArchiveRanges(None, np.zeros(0, np.int64), np.zeros(0, np.int64))
_ACCESS_CLASSES: dict[str, type[GroupedAccess]] = {
    "grouped": GroupedAccess,
    "lazy": LazyAccess,
    "eager": EagerAccess,
    "archive_first": EagerAccess,
}


def compute_group_deadlines(stops: Times, latency: float) -> Times:
    """Returns when the group of each live match is looked up: `latency` after its first end.

    A group of `MAX_GROUP` matches is looked up at once.

    >>> compute_group_deadlines(np.array([1, 3, 6, 9, 20]), 5)
    array([ 6,  6,  6, 14, 25])
    """
    result = np.empty(len(stops), stops.dtype)
    order = np.argsort(stops, kind="stable")
    ordered, at = stops[order], 0
    while at < len(ordered):
        last = int(np.searchsorted(ordered, ordered[at] + latency, side="right"))
        end = min(last, at + MAX_GROUP)
        due = ordered[at] + latency if end == last else ordered[end - 1]
        result[order[at:end]] = due
        at = end
    return result
