"""A matcher of live queries that looks for the past of each match."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.algebra.correlation import JoinKind
from ensue.columns.arrow_kinds import Unit
from ensue.columns.rows import no_rows
from ensue.columns.stream import Shape, ends
from ensue.columns.values import decoded
from ensue.engine.state import from_bytes, packed, to_bytes, unpacked
from ensue.errors import StateError
from ensue.results.pairing import times_of
from ensue.schema import Kind
from ensue.workload.correlations.access import Access, Eager, Grouped, Lazy
from ensue.workload.correlations.past import Past, all_looked_up, rescaled
from ensue.workload.correlations.pieces import Asked, Times
from ensue.workload.correlations.prepared import PreparedCorrelation, PreparedJoin
from ensue.workload.stage import Fed, Handover, LookedUp, StageMatcher

FULL = 10_000  # live matches that are a group at the most


class CorrelatedMatcher:
    """Live queries over one stream, each joined with its past.

    A live match waits until its past is decided, and where live matches are looked up in groups,
    until its group is full or old enough.
    """

    def __init__(
        self,
        live: StageMatcher,
        queries: Sequence[PreparedCorrelation],
        pasts: Mapping[str, Past],
        shape: Shape,
    ) -> None:
        self.live = live
        self.queries = tuple(queries)
        self.pasts = pasts
        self.shape = shape  # of the stream's events
        self.unit: Unit = next((query.unit for query in queries), shape.unit)  # of the past
        self.waiting = [no_rows(query.joining.live.schema) for query in queries]
        self._accesses: list[Access] = []  # each once
        self._of = [[self._access(q, join) for join in q.joins] for q in queries]
        keeps = [query.keeps for query in queries]
        # how long behind it an event of the past may be asked for; None: for ever
        self._keeps = (
            None if None in keeps else max((k for k in keeps if k is not None), default=0)
        )
        self._begun = False
        self.looked_for = 0  # live matches whose past was looked for

    def _access(self, query: PreparedCorrelation, join: PreparedJoin) -> Access:
        """Joins that look for the same in the same way share what they find."""
        for known in self._accesses:
            if type(known) is _WAYS[query.access] and known.lookup == join.lookup:
                if isinstance(known, Eager):
                    known.share(join.far, query.asks)
                return known
        past = self.pasts[join.lookup.archive]
        made: Access
        match query.access:
            case "grouped":
                made = Grouped(join.lookup, past)
            case "lazy":
                made = Lazy(join.lookup, past)
            case _:
                made = Eager(join.lookup, past, join.far, query.asks)
        self._accesses.append(made)
        return made

    # ---------------------------------------------------------------------------- feeding

    def feed(self, given: Fed) -> list[pa.Table]:
        """The live matches that the next events complete, as far as their past is decided."""
        events = given.bare
        if not events.num_rows:
            return [query.joining.nothing() for query in self.queries]
        self._take(events)
        now = self._time(ends(events, self.shape)[-1].item())
        for access in self._accesses:
            access.advance(now)  # what only waited for time is decided, before it is asked for
        return self._answered(self.live.feed(self._admitted(given)), now)

    def _time(self, now: float) -> float:
        """The time of the stream as the past counts it."""
        return rescaled(now, self.shape, self.shape.unit, self.unit)

    def _take(self, events: pa.Table) -> None:
        """Events go into the past that they belong to, before anything is looked up there."""
        if not self._begun:
            self._begun = True
            name = self.shape.schema.start
            first = times_of(events, name, self.unit).min().item()
            for access in self._accesses:
                access.begin(first)
        for name, past in self.pasts.items():
            if past.own:
                fresh = past.add(events)
                for access in self._accesses:
                    if access.lookup.archive == name and fresh.num_rows:
                        access.feed(fresh)

    def _admitted(self, given: Fed) -> Fed:
        """The events of objects that have a past, where all queries start from there."""
        if any(query.admitted_by is None for query in self.queries):
            return given
        kept = np.zeros(given.events.num_rows, np.bool_)
        for query, accesses in zip(self.queries, self._of, strict=True):
            kept |= self._with_past(query, accesses, given.events)
        return given if kept.all() else Fed(given.events.filter(kept), given.made, given.arrival)

    def _with_past(
        self, query: PreparedCorrelation, accesses: Sequence[Access], events: pa.Table
    ) -> npt.NDArray[np.bool_]:
        assert query.admitted_by is not None
        column = decoded_column(events.column(query.admitted_by))
        kept = np.ones(events.num_rows, np.bool_)
        for number, access in enumerate(accesses):
            if query.correlation.joins[number].kind is not JoinKind.INNER:
                continue
            known = access.instances(_NOTHING)
            keys = query.joining.archived_keys(number, known, query.joins[number].key)
            found = pc.is_in(column, value_set=pc.unique(keys).cast(column.type))
            kept &= found.to_numpy(zero_copy_only=False)
        return kept

    def advance(self, now: float) -> list[pa.Table]:
        """What was only waiting for time to pass."""
        found = self.live.advance(now)
        now = self._time(now)
        for access in self._accesses:
            access.advance(now)
        return self._answered(found, now)

    def finish(self) -> list[pa.Table]:
        """What was only waiting for the stream to end."""
        found = self.live.finish()
        for access in self._accesses:
            if isinstance(access, Eager):
                access.finish()
        return self._answered(found, None)

    # ---------------------------------------------------------------------------- the past

    def _answered(self, found: Sequence[pa.Table], now: float | None) -> list[pa.Table]:
        """The rows of live matches whose past is decided at a time; None: everything is."""
        ready = []
        for number, (query, fresh) in enumerate(zip(self.queries, found, strict=True)):
            waiting = self.waiting[number]
            if fresh.num_rows:
                waiting = pa.concat_tables([waiting, fresh]) if waiting.num_rows else fresh
            due, self.waiting[number] = self._ready(query, waiting, now)
            ready.append(due)
        result = self._joined(ready)
        if now is not None:
            self._forget(now)
        return result

    def _forget(self, now: float) -> None:
        """Drops what no live match to come can ask for."""
        for access in self._accesses:
            access.forget(now)
        if self._keeps is not None:
            for past in self.pasts.values():
                past.forget(now - self._keeps)

    def _ready(
        self, query: PreparedCorrelation, live: pa.Table, now: float | None
    ) -> tuple[pa.Table, pa.Table]:
        if now is None or not live.num_rows:
            return live, live.slice(0, 0)
        due = self._due(query, live)
        late = np.asarray(due >= now)
        if not late.any():
            return live, live.slice(0, 0)
        return live.filter(pa.array(~late)), live.filter(pa.array(late)).combine_chunks()

    def _due(self, query: PreparedCorrelation, live: pa.Table) -> Times:
        """The time behind which each live match is looked up."""
        stops = times_of(live, "end", query.unit)
        due = np.full(len(stops), np.iinfo(np.int64).min).astype(stops.dtype)
        for number, join in enumerate(query.joins):
            if join.waits:
                _, until = query.joining.ranges(number, live)
                due = np.maximum(due, until + join.waits)
        if query.access == "grouped" and query.latency:  # the group's first has ended so long ago
            due = np.maximum(due, group_ends(stops, query.latency))
        return due

    def _joined(self, ready: Sequence[pa.Table]) -> list[pa.Table]:
        """The rows of live matches, with one look into the past for those that go together."""
        self.looked_for += sum(live.num_rows for live in ready)
        asked: dict[int, Asked] = {}
        places = [k for k, q in enumerate(self.queries) if q.access != "lazy" and len(ready[k])]
        for k in places:
            for access, wanted in zip(self._of[k], self._asked(k, ready[k]), strict=True):
                known = asked.get(id(access))
                asked[id(access)] = wanted if known is None else known.and_(wanted)
        found = {id(a): a.instances(asked[id(a)]) for a in self._accesses if id(a) in asked}
        result = []
        for k, (query, live) in enumerate(zip(self.queries, ready, strict=True)):
            if not live.num_rows:
                result.append(query.joining.nothing())
            elif query.access == "lazy":
                result.append(self._one_by_one(k, live))
            else:
                past = [found[id(access)] for access in self._of[k]]
                result.append(query.joining.joined(live, past))
        return result

    def _one_by_one(self, number: int, live: pa.Table) -> pa.Table:
        joining, rows = self.queries[number].joining, []
        for k in range(live.num_rows):
            one = live.slice(k, 1)
            wanted = zip(self._of[number], self._asked(number, one), strict=True)
            rows.append(joining.joined(one, [access.instances(asked) for access, asked in wanted]))
        return pa.concat_tables(rows)

    def _asked(self, number: int, live: pa.Table) -> list[Asked]:
        """What live matches of a query ask each of its joins for."""
        query = self.queries[number]
        return [
            Asked(
                None if join.key is None else query.joining.live_keys(live, join.key),
                *query.joining.ranges(k, live),
            )
            for k, join in enumerate(query.joins)
        ]

    def found_in(self, archive: str) -> int:
        """How many archived matches were found so far."""
        return sum(a.total for a in self._accesses if a.lookup.archive == archive)

    def kept_of(self, archive: str) -> int:
        """How many of them are kept."""
        return sum(a.kept for a in self._accesses if a.lookup.archive == archive)

    def looked_up(self) -> LookedUp:
        """What it has read so far, and what it keeps."""
        return all_looked_up(self.pasts.values())

    def hand_over(self, now: float, rows: int, age: float | None) -> Handover | None:
        """The events of its own past before `now`, to be archived, if they are enough."""
        for past in self.pasts.values():
            if past.own:
                age = (
                    None if age is None else rescaled(age, self.shape, self.shape.unit, self.unit)
                )
                return past.hand_over(self._time(now), rows, age)
        return None

    def deadline(self) -> float | None:
        times = [t for t in (self.live.deadline(),) if t is not None]
        for query, live in zip(self.queries, self.waiting, strict=True):
            if live.num_rows:
                due = self._due(query, live).min().item()
                times.append(rescaled(due, self.shape, self.unit, self.shape.unit))
        return min(times, default=None)

    # ---------------------------------------------------------------------------- state

    @property
    def partial_matches(self) -> int:
        """Those of the live queries, and the live matches that wait."""
        waiting = sum(table.num_rows for table in self.waiting)
        return int(self.live.partial_matches + waiting)

    @property
    def state_bytes(self) -> int:
        """About as many bytes as `save` gives."""
        waiting = sum(int(table.nbytes) for table in self.waiting)
        recent = sum(past.nbytes for past in self.pasts.values())
        kept = sum(access.nbytes for access in self._accesses)
        return self.live.state_bytes + waiting + recent + kept

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""
        pasts = {name: past.save() for name, past in self.pasts.items() if past.own}
        header = {"begun": self._begun, "pasts": {n: head for n, (head, _) in pasts.items()}}
        blobs = {"live": self.live.save()}
        blobs |= {f"waiting {k}": to_bytes(t) for k, t in enumerate(self.waiting)}
        blobs |= {f"past {name}": data for name, (_, data) in pasts.items()}
        blobs |= {f"access {k}": a.save() for k, a in enumerate(self._accesses)}
        return packed(header, {}, blobs)

    def restore(self, data: bytes) -> None:
        """Goes on where the saved one stopped."""
        header, _, blobs = unpacked(data)
        own = {name for name, past in self.pasts.items() if past.own}
        wanted = {f"access {k}" for k in range(len(self._accesses))}
        if set(header["pasts"]) != own or wanted != {n for n in blobs if n.startswith("access ")}:
            raise StateError("the state of a stream was saved for another set of archives")
        self._begun = bool(header["begun"])
        self.live.restore(blobs["live"])
        for name in own:
            self.pasts[name].restore(header["pasts"][name], blobs[f"past {name}"])
        for k, access in enumerate(self._accesses):
            access.restore(blobs[f"access {k}"])
            if isinstance(access, Eager) and self._begun and not access.begun:
                access.begin_again(
                    floats=self.shape.schema.time_kind in (Kind.FLOAT, Kind.DECIMAL)
                )
        self.waiting = [
            from_bytes(blobs[f"waiting {k}"]).cast(query.joining.live.schema)
            for k, query in enumerate(self.queries)
        ]


_NOTHING = Asked(None, np.zeros(0, np.int64), np.zeros(0, np.int64))
_WAYS = {"grouped": Grouped, "lazy": Lazy, "eager": Eager, "archive_first": Eager}


def decoded_column(column: pa.ChunkedArray) -> pa.Array:
    """A column of plain values in one piece."""
    return decoded(column.combine_chunks())


def group_ends(stops: Times, latency: float) -> Times:
    """When the group of each live match is looked up: its first one ended so long ago.

    A group is full with `FULL` matches: then it waits no longer.

    >>> group_ends(np.array([1, 3, 6, 9, 20]), 5)
    array([ 6,  6,  6, 14, 25])
    """
    found = np.empty(len(stops), stops.dtype)
    order = np.argsort(stops, kind="stable")
    ordered, at = stops[order], 0
    while at < len(ordered):
        last = int(np.searchsorted(ordered, ordered[at] + latency, side="right"))
        end = min(last, at + FULL)
        due = ordered[at] + latency if end == last else ordered[end - 1]
        found[order[at:end]] = due
        at = end
    return found
