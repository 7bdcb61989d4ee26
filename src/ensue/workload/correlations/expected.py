"""What a query over a stream and its past is expected to meet: the figures that accesses cost by.

Where it pays, some events of both sides are looked at, always the same ones: of an archive its
last, of a table those in its middle. Both patterns are run over them, so that their matches are
counted and not guessed. Else they follow from statistics, given or assumed.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.algebra.correlation import ArchiveJoin
from ensue.archives.contract import Archive, Layout
from ensue.columns.arrow_kinds import Unit, plain_type
from ensue.columns.keys import ColumnCodes
from ensue.columns.stream import Shape, ends, in_order, with_time
from ensue.columns.values import from_arrow
from ensue.computed import cached_property
from ensue.engine.sampling import sampled, ticks_per_second
from ensue.errors import LimitError, SkipError
from ensue.plan.access import KEYS, OF_A_KEY, ROWS, LiveSide, PastSide, decide
from ensue.plan.estimates.estimates import estimate
from ensue.plan.estimates.load import Load
from ensue.plan.physical import Reference
from ensue.schema import Kind
from ensue.workload.correlations.past import Past
from ensue.workload.correlations.pieces import Asked
from ensue.workload.correlations.prepared import PreparedJoin
from ensue.workload.correlations.sides import PatternSide, PreparedSide
from ensue.workload.foresight import takes_subsets
from ensue.workload.prepared import Prepared
from ensue.workload.work import SLICE

SAMPLE = 10_000  # events of each side that are looked at
MOST = 50_000  # where it is 1 in 100 of those that come
WORTH = 100_000  # microseconds; what takes less is not worth looking at events first
FEWEST = 0.5  # matches in them at the most, where none was found
TRIED = 2_000  # of them, on which conditions are tried
SCATTERED = 4  # times as long as expected: rows that lie together are not of one time
OF_A_ROW = 20.0  # comparisons that a row of a clause is worth
KNOWN = 64  # archives and patterns of which figures are kept

_MET: "OrderedDict[tuple[Layout, bytes, str | None, int], Met]" = OrderedDict()


@dataclass(frozen=True, eq=False)
class Coming:
    """What a call knows of the events that it brings."""

    table: pa.Table | None = None  # all of them, in any order, if they are here
    whole: bool = False  # they are all there, wherever

    @property
    def events(self) -> int | None:
        return None if self.table is None else self.table.num_rows

    @property
    def sample(self) -> int:
        """How many events of each side are looked at."""
        return min(MOST, max(SAMPLE, (self.events or 0) // 100))


STREAM = Coming()


def coming_of(events: object, *, streaming: bool) -> Coming:
    """What is known of the events of a call."""
    if isinstance(events, pa.Table):
        return Coming(events, whole=True)
    return Coming(whole=not streaming)


@dataclass(frozen=True, slots=True)
class Met:
    """What was counted in some events."""

    rows: int  # of all types
    share: float  # that the pattern can use
    objects: int | None  # in them
    matches: float  # of a row
    cost: float  # of a row, in comparisons
    rate: float | None  # rows a unit of time


def both_sides(
    live: PreparedSide,
    joins: Sequence[tuple[ArchiveJoin, PreparedJoin, Archive]],
    coming: Coming,
    unit: Unit,
    own: str | None,
    *,
    latency: float,
    window: float | None,
    told: bool,
    look: bool = True,
) -> tuple[LiveSide, tuple[PastSide, ...]]:
    """Both sides as the planner sees them.

    `told`: their figures are wanted whatever they cost; not `look`: no event is looked at.
    """
    layouts = [archive.layout() for _, _, archive in joins]
    somes = [
        _Some(archive, layout, unit, coming.sample)
        for (_, _, archive), layout in zip(joins, layouts, strict=True)
    ]
    pasts = [
        _past(join, some, own=asked.archive == own, grows=not coming.whole)
        for (asked, join, _), some in zip(joins, somes, strict=True)
    ]
    expected = _live(live, coming, None, latency, window)
    if not look:
        return expected, tuple(pasts)
    if coming.table is not None and not told:
        quick = decide(expected, pasts)
        if quick.candidate(quick.access).cost * expected.events < WORTH:
            return expected, tuple(pasts)
    met = None
    for k, ((_, join, _), some) in enumerate(zip(joins, somes, strict=True)):
        pasts[k] = _known(pasts[k], some.met(join.lookup.prepared, join.lookup.field))
        if pasts[k].own and coming.table is None:
            met = some.met(live, None)  # the past of a stream is what it looks like
    if coming.table is not None:
        met = _met(live, _middle(coming.table, live.shape, coming.sample), None)
    return _live(live, coming, met, latency, window), tuple(pasts)


def _live(
    side: PreparedSide, coming: Coming, met: Met | None, latency: float, window: float | None
) -> LiveSide:
    live = side.prepared if isinstance(side, PatternSide) else None
    rate = None if live is None else live.plan.statistics.rate
    found = LiveSide(
        rate=None if live is None or rate is None else rate / ticks_per_second(live),
        window=window,
        latency=latency,
    )
    changes: dict[str, float | bool | None] = {}
    if coming.events is not None:
        changes |= {"events": float(coming.events)}
    if coming.whole or coming.events is not None:
        changes |= {"batch": float(SLICE)}
    if met is not None:
        rate = found.rate if met.rate is None or not math.isfinite(met.rate) else met.rate
        changes |= {"matches": met.matches, "cost": met.cost, "rate": rate, "assumed": False}
        changes |= {"share": met.share}
    elif live is not None and not live.plan.statistics.assumed:
        load = Load.of(live.plan.query, live.plan.roles, live.plan.statistics)
        matches, cost = _estimate(live, load)
        changes |= {"matches": matches, "cost": cost, "assumed": False}
    return _with(found, changes)


def _past(join: PreparedJoin, some: "_Some", *, own: bool, grows: bool) -> PastSide:
    """What is known of an archive without reading its events."""
    lookup, layout = join.lookup, some.layout
    first, last = some.bounds
    rows = ROWS if layout.rows is None else float(max(1, layout.rows))
    if own and grows and rows < SAMPLE:  # a stream begins to write it: it will be larger
        rows, first = ROWS, None
    return PastSide(
        lookup.archive,
        far=join.far,
        wider=lookup.before + lookup.behind,
        rows=rows,
        span=None if first is None or last is None else float(last - first) or None,
        files=layout.files,
        clustered=layout.clustered and lookup.field in (some.archive.key[:1] or (None,)),
        buckets=layout.buckets,
        keyed=lookup.field is not None,
        keys=min(KEYS, max(1.0, rows / OF_A_KEY)),
        own=own,
    )


def _known(past: PastSide, met: Met | None) -> PastSide:
    """The same, where some of its events were looked at."""
    if met is None:
        return past
    return replace(
        past,
        keys=past.keys if met.objects is None else _objects(met, past.rows),
        share=max(met.share, 1e-6),
        cost=met.cost,
        matches=met.matches,
        assumed=False,
    )


def _with(side: LiveSide, changes: dict[str, float | bool | None]) -> LiveSide:
    return replace(side, **changes)  # type: ignore[arg-type]


def _estimate(prepared: Prepared, load: Load) -> tuple[float, float]:
    """Matches and comparisons of an event, by the formulas of plans."""
    if isinstance(prepared.plan.structure, Reference):
        return 0.01, 1_000.0  # nothing is known of it but that it is slow
    found = estimate(prepared.plan.structure, prepared.plan.query, load)
    return min(found.matches, 10.0), min(found.cost, 10_000.0)


def _objects(met: Met, rows: float) -> float:
    """How many objects there are, if so many were met in some rows.

    Drawn at random, K objects show d = K (1 - exp(-s / K)) different ones in s rows.
    """
    assert met.objects is not None
    seen, drawn = float(max(1, met.objects)), float(max(1, met.rows))
    if seen >= 0.99 * drawn:
        return max(seen, rows * seen / drawn)
    low, high = seen, seen * 1e6
    for _ in range(100):
        middle = math.sqrt(low * high)
        if -middle * math.expm1(-drawn / middle) < seen:
            low = middle
        else:
            high = middle
    return min(low, rows)


# ------------------------------------------------------------------------------- some events


class _Some:
    """The last events of an archive, about as many as are looked at. What is met in them is known
    for as long as the version stays."""

    def __init__(self, archive: Archive, layout: Layout, unit: Unit, count: int) -> None:
        self.archive, self.layout, self.unit, self.count = archive, layout, unit, count

    @cached_property
    def bounds(self) -> tuple[float | None, float | None]:
        """The times of its first and last event, if they are known."""
        return self._moment(self.layout.since), self._moment(self.layout.until)

    def _moment(self, value: object | None) -> float | None:
        if value is None:
            return None
        shape = self.archive.shape
        type_ = plain_type(shape.arrow.field(shape.schema.end).type)
        return float(from_arrow(pa.array([value], type_), self.unit).values[0])

    def met(self, side: PreparedSide, field: str | None) -> Met | None:
        """What a pattern meets in them; None: they cannot be looked at."""
        names = side.shape.arrow.names
        if self.layout.kind == "frame" or not set(names) <= set(self.archive.shape.arrow.names):
            return None
        at = self.layout, side.name, field, self.count
        if at in _MET:
            return _MET[at]
        events = self._events
        if events is None:
            return None
        found = _met(side, events.select(names).cast(side.shape.arrow), field)
        if self.layout.kind != "table":  # one table in memory looks like the other
            _MET[at] = found
            while len(_MET) > KNOWN:
                _MET.popitem(last=False)
        return found

    @cached_property
    def _events(self) -> pa.Table | None:
        archive, layout = self.archive, self.layout
        first, last = self.bounds
        if first is None or last is None or not layout.rows:
            return None
        since = last - (last - first) * min(1.0, self.count / layout.rows)
        whole = archive.shape.schema.time_kind is not Kind.FLOAT
        bounds = [np.array([t]).astype(np.int64 if whole else np.float64) for t in (since, last)]
        events = Past(archive, self.unit).read(Asked(None, *bounds), None, None)
        return events.slice(max(0, events.num_rows - 2 * self.count)) if events.num_rows else None


def _middle(table: pa.Table, shape: Shape, count: int) -> pa.Table:
    """The events of a table around the middle of its time, in order."""
    if table.num_rows <= count:
        return _ordered(table, shape)
    # mostly they are in order, and then the rows in the middle are those
    some = _ordered(table.slice((table.num_rows - count) // 2, count), shape)
    bounds = pc.min_max(table.column(shape.schema.end))
    ends_ = pa.array([bounds["min"].as_py(), bounds["max"].as_py()], bounds["min"].type)
    first, last = np.asarray(from_arrow(ends_, shape.unit).values, np.float64)
    expected = (last - first) * count / table.num_rows
    times = ends(some, shape)
    if len(times) and float(times.max() - times.min()) <= SCATTERED * expected:
        return some
    vector = from_arrow(table.column(shape.schema.end), shape.unit, shape.schema.end)
    near = np.abs(np.asarray(vector.values) - (first + last) / 2) <= expected / 2
    if vector.valid is not None:
        near &= vector.valid
    return _ordered(table.take(pa.array(np.flatnonzero(near)[: 2 * count])), shape)


def _ordered(table: pa.Table, shape: Shape) -> pa.Table:
    usable, _ = with_time(table, shape, "drop")
    return in_order(usable, shape)


def _counted(prepared: Prepared, events: pa.Table) -> int:
    """How many matches there are in some events, whatever is made of them."""
    engine = prepared.engine()
    return engine.feed(events).count + engine.finish().count


def _met(side: PreparedSide, events: pa.Table, field: str | None) -> Met:
    """Runs a pattern over some events that are in order, and counts."""
    rows = events.num_rows
    objects = None
    if field is not None and rows:
        codes = ColumnCodes()
        codes.encode(events.column(field))
        objects = len(codes)
    if not isinstance(side, PatternSide):
        return _met_by_clause(side, events, objects)
    prepared = side.prepared
    plan = prepared.plan
    statistics = sampled(prepared, events, sample=TRIED)
    load = Load.of(plan.query, plan.roles, statistics)
    matches, cost = _estimate(prepared, load)
    if rows and not isinstance(plan.structure, Reference) and not takes_subsets(prepared):
        try:
            counted = _counted(prepared, events) / rows
            matches = counted or min(matches, FEWEST / rows)  # where none is, the formulas say
        except LimitError:  # the formulas say so, too, and the call itself
            matches = max(matches, 1.0)
    share = min(1.0, sum(s for _, s in statistics.shares)) if statistics.shares else 1.0
    rate = statistics.rate
    return Met(
        rows, share, objects, matches, cost,
        None if rate is None else rate / ticks_per_second(prepared),
    )  # fmt: skip


def _met_by_clause(side: PreparedSide, events: pa.Table, objects: int | None) -> Met:
    """The same for a clause: every row is of use to it."""
    rows = events.num_rows
    try:
        matches = max(side.matches(events).num_rows, FEWEST) / rows if rows else 0.0
    except (LimitError, SkipError):  # rows from the middle of a partition may match otherwise
        matches = 1.0
    times = ends(events, side.shape)
    lasting = float(times.max() - times.min()) if rows else 0.0
    return Met(rows, 1.0, objects, matches, OF_A_ROW, rows / lasting if lasting else None)
