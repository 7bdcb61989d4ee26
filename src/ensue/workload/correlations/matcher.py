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
        self._accesses: dict[tuple[int, str], Access] = {}
        self._of = [[self._access(q, join) for join in q.joins] for q in queries]
        self._begun = False

    def _access(self, query: PreparedCorrelation, join: PreparedJoin) -> Access:
        """Joins that look for the same in the same way share what they find."""
        past = self.pasts[join.lookup.archive]
        for known in self._accesses.values():
            if isinstance(known, _WAYS[query.access]) and known.lookup == join.lookup:
                return known
        made: Access
        match query.access:
            case "grouped":
                made = Grouped(join.lookup, past)
            case "lazy":
                made = Lazy(join.lookup, past)
            case _:
                made = Eager(join.lookup, past, query.live_window)
        self._accesses[len(self._accesses), query.access] = made
        return made

    # ---------------------------------------------------------------------------- feeding

    def feed(self, given: Fed) -> list[pa.Table]:
        """The live matches that the next events complete, as far as their past is decided."""
        events = given.bare
        if not events.num_rows:
            return [query.joining.nothing() for query in self.queries]
        self._take(events)
        now = ends(events, self.shape)[-1].item()
        return self._answered(self.live.feed(self._admitted(given)), self._time(now))

    def _time(self, now: float) -> float:
        """The time of the stream as the past counts it."""
        return rescaled(now, self.shape, self.shape.unit, self.unit)

    def _take(self, events: pa.Table) -> None:
        """Events go into the past that they belong to, before anything is looked up there."""
        if not self._begun:
            self._begun = True
            name = self.shape.schema.start
            first = times_of(events, name, self.unit).min().item()
            for access in self._accesses.values():
                access.begin(first)
        for name, past in self.pasts.items():
            if past.own:
                fresh = past.add(events)
                for access in self._accesses.values():
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
        for access in self._accesses.values():
            access.advance(now)
        return self._answered(found, now)

    def finish(self) -> list[pa.Table]:
        """What was only waiting for the stream to end."""
        found = self.live.finish()
        for access in self._accesses.values():
            if isinstance(access, Eager):
                access.finish()
        return self._answered(found, None)

    # ---------------------------------------------------------------------------- the past

    def _answered(self, found: Sequence[pa.Table], now: float | None) -> list[pa.Table]:
        """The rows of live matches whose past is decided at a time; None: everything is."""
        result = []
        for number, (query, fresh) in enumerate(zip(self.queries, found, strict=True)):
            waiting = self.waiting[number]
            if fresh.num_rows:
                waiting = pa.concat_tables([waiting, fresh]) if waiting.num_rows else fresh
            ready, self.waiting[number] = self._ready(query, waiting, now)
            result.append(self._joined(number, query, ready))
        return result

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

    def _joined(self, number: int, query: PreparedCorrelation, live: pa.Table) -> pa.Table:
        if not live.num_rows:
            return query.joining.nothing()
        if query.access != "lazy":
            return query.joining.joined(live, self._instances(number, query, live))
        one_by_one = [live.slice(k, 1) for k in range(live.num_rows)]
        return pa.concat_tables(
            [query.joining.joined(one, self._instances(number, query, one)) for one in one_by_one]
        )

    def _instances(
        self, number: int, query: PreparedCorrelation, live: pa.Table
    ) -> list[pa.Table]:
        """For each join archived matches, among them all that belong to some live ones."""
        found = []
        for k, (join, access) in enumerate(zip(query.joins, self._of[number], strict=True)):
            keys = None if join.key is None else query.joining.live_keys(live, join.key)
            asked = Asked(keys, *query.joining.ranges(k, live))
            found.append(access.instances(asked))
        return found

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
        kept = sum(access.nbytes for access in self._accesses.values())
        return self.live.state_bytes + waiting + recent + kept

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""
        pasts = {name: past.save() for name, past in self.pasts.items() if past.own}
        header = {"begun": self._begun, "pasts": {n: head for n, (head, _) in pasts.items()}}
        blobs = {"live": self.live.save()}
        blobs |= {f"waiting {k}": to_bytes(t) for k, t in enumerate(self.waiting)}
        blobs |= {f"past {name}": data for name, (_, data) in pasts.items()}
        blobs |= {f"access {k}": a.save() for (k, _), a in self._accesses.items()}
        return packed(header, {}, blobs)

    def restore(self, data: bytes) -> None:
        """Goes on where the saved one stopped."""
        header, _, blobs = unpacked(data)
        own = {name for name, past in self.pasts.items() if past.own}
        wanted = {f"access {k}" for k, _ in self._accesses}
        if set(header["pasts"]) != own or wanted != {n for n in blobs if n.startswith("access ")}:
            raise StateError("the state of a stream was saved for another set of archives")
        self._begun = bool(header["begun"])
        self.live.restore(blobs["live"])
        for name in own:
            self.pasts[name].restore(header["pasts"][name], blobs[f"past {name}"])
        for (k, _), access in self._accesses.items():
            access.restore(blobs[f"access {k}"])
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
