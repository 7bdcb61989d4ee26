"""Estimates the sizes and rates of both sides of an archive join, which access costs depend on.

Where it pays, both patterns run over a sample: the last events of an archive, or those in the
middle of a table, so that the same events are always taken. Otherwise the figures follow from
statistics.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.archives.archive import Archive, ArchiveLayout
from ensue.cached import cached_property
from ensue.engine.sampling import sample_statistics, ticks_per_second
from ensue.errors import LimitError, SkipError
from ensue.ir.archive_join import ArchiveJoin
from ensue.operators.archive_join.archived_events import ArchivedEvents, ArchiveRanges
from ensue.operators.archive_join.join_sides import CompiledSide, PatternSide
from ensue.operators.archive_join.joining import CompiledJoin
from ensue.planner.access_paths import EVENTS_PER_KEY, KEYS, ROWS, ArchiveStatistics, LiveStatistics, choose_access_path
from ensue.planner.cost_model import Cardinalities, estimate_structure
from ensue.planner.physical_plan import ReferencePlan
from ensue.runtime.compiled_query import CompiledQuery
from ensue.runtime.event_pruning import takes_subsets
from ensue.runtime.query_spec import InputEvents
from ensue.runtime.stage import SLICE_ROWS
from ensue.schema import ValueKind
from ensue.vector.arrow_types import Unit, plain_type
from ensue.vector.column_values import from_arrow
from ensue.vector.event_table import StreamSchema, drop_bad_times, get_end_times, sort_events
from ensue.vector.key_codes import ColumnCodes

SAMPLE = 10_000  # sampled events of each side
MOST = 50_000  # largest sample, where 1 % of the events is more than SAMPLE
WORTH = 100_000  # microseconds; cheaper queries are not sampled
FEWEST = 0.5  # assumed matches in a sample without any
TESTED_EVENTS = 2_000  # sampled events on which conditions are tested
SCATTERED = 4  # times the expected duration: neighbouring rows are not ordered by time
ROW_COST = 20.0  # cost of a MATCH_RECOGNIZE row, in comparisons
CACHED_SAMPLES = 64  # cached figures of archives and patterns

_SampleKey = tuple[ArchiveLayout, bytes, str | None, int]
_SAMPLE_CACHE: "OrderedDict[_SampleKey, SampleFigures]" = OrderedDict()


@dataclass(frozen=True, slots=True)
class SampleFigures:
    """The figures of a sample."""

    rows: int  # of all types
    share: float  # of relevant rows
    objects: int | None  # distinct keys
    matches: float  # per row
    cost: float  # per row, in comparisons
    rate: float | None  # rows per unit of time


def estimate_sides(
    live: CompiledSide,
    joins: Sequence[tuple[ArchiveJoin, CompiledJoin, Archive]],
    coming: InputEvents,
    unit: Unit,
    own: str | None,
    *,
    latency: float,
    window: float | None,
    explain: bool,
    look: bool = True,
) -> tuple[LiveStatistics, tuple[ArchiveStatistics, ...]]:
    """Estimates both sides for the planner.

    `explain` samples even cheap queries, for EXPLAIN; without `look` no event is read.
    """
    layouts = [archive.layout() for _, _, archive in joins]
    samples = [
        _ArchiveSample(archive, layout, unit, _sample_size(coming))
        for (_, _, archive), layout in zip(joins, layouts, strict=True)
    ]
    archives = [
        _describe_archive(join, sample, own=definition.archive == own, grows=not coming.whole)
        for (definition, join, _), sample in zip(joins, samples, strict=True)
    ]
    expected = _describe_live(live, coming, None, latency, window)
    if not look:
        return expected, tuple(archives)
    if coming.table is not None and not explain:
        quick = choose_access_path(expected, archives)
        if quick.candidate(quick.access).cost * expected.events < WORTH:
            return expected, tuple(archives)
    measured = None
    for k, ((_, join, _), sample) in enumerate(zip(joins, samples, strict=True)):
        archives[k] = _apply_sample(archives[k], sample.measure(join.lookup.prepared, join.lookup.field))
        if archives[k].own and coming.table is None:
            measured = sample.measure(live, None)  # the stream resembles its archive
    if coming.table is not None:
        middle = _take_middle(coming.table, live.shape, _sample_size(coming))
        measured = _measure(live, middle, None)
    return _describe_live(live, coming, measured, latency, window), tuple(archives)


def _sample_size(coming: InputEvents) -> int:
    return min(MOST, max(SAMPLE, (coming.events or 0) // 100))


def _describe_live(
    side: CompiledSide, coming: InputEvents, measured: SampleFigures | None, latency: float, window: float | None
) -> LiveStatistics:
    live = side.prepared if isinstance(side, PatternSide) else None
    rate = None if live is None else live.plan.statistics.rate
    rate = None if live is None or rate is None else rate / ticks_per_second(live)
    figures = LiveStatistics(rate=rate, window=window, latency=latency)
    if coming.events is not None:
        figures = replace(figures, events=float(coming.events))
    if coming.whole or coming.events is not None:
        figures = replace(figures, batch=float(SLICE_ROWS))
    if measured is not None:
        if measured.rate is not None and math.isfinite(measured.rate):
            figures = replace(figures, rate=measured.rate)
        matches, cost = measured.matches, measured.cost
        return replace(figures, matches=matches, cost=cost, share=measured.share, assumed=False)
    if live is not None and not live.plan.statistics.assumed:
        load = Cardinalities.estimate(live.plan.query, live.plan.roles, live.plan.statistics)
        matches, cost = _estimate(live, load)
        return replace(figures, matches=matches, cost=cost, assumed=False)
    return figures


def _describe_archive(join: CompiledJoin, sample: "_ArchiveSample", *, own: bool, grows: bool) -> ArchiveStatistics:
    """Describes an archive without reading its events."""
    lookup, layout = join.lookup, sample.layout
    first, last = sample.bounds
    rows = ROWS if layout.rows is None else float(max(1, layout.rows))
    if own and grows and rows < SAMPLE:  # the stream will enlarge it
        rows, first = ROWS, None
    return ArchiveStatistics(
        lookup.archive,
        far=join.far,
        wider=lookup.before + lookup.behind,
        rows=rows,
        span=None if first is None or last is None else float(last - first) or None,
        files=layout.files,
        clustered=layout.clustered and lookup.field in (sample.archive.key[:1] or (None,)),
        buckets=layout.buckets,
        keyed=lookup.field is not None,
        keys=min(KEYS, max(1.0, rows / EVENTS_PER_KEY)),
        own=own,
    )


def _apply_sample(past: ArchiveStatistics, measured: SampleFigures | None) -> ArchiveStatistics:
    """Replaces the figures of an archive by those of a sample."""
    if measured is None:
        return past
    return replace(
        past,
        keys=past.keys if measured.objects is None else _estimate_keys(measured, past.rows),
        share=max(measured.share, 1e-6),
        cost=measured.cost,
        matches=measured.matches,
        assumed=False,
    )


def _estimate(prepared: CompiledQuery, load: Cardinalities) -> tuple[float, float]:
    """Estimates matches and comparisons per event by the cost formulas."""
    if isinstance(prepared.plan.structure, ReferencePlan):
        return 0.01, 1_000.0  # the reference has no cost formula and is slow
    figures = estimate_structure(prepared.plan.structure, prepared.plan.query, load)
    return min(figures.matches, 10.0), min(figures.cost, 10_000.0)


def _estimate_keys(measured: SampleFigures, rows: float) -> float:
    """Estimates the number of distinct keys from those in a sample.

    Of K keys, d = K (1 - exp(-s / K)) different ones occur in s random rows.
    """
    assert measured.objects is not None
    seen, drawn = float(max(1, measured.objects)), float(max(1, measured.rows))
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


class _ArchiveSample:
    """The last events of an archive. Figures are cached per version of the archive."""

    def __init__(self, archive: Archive, layout: ArchiveLayout, unit: Unit, count: int) -> None:
        self.archive, self.layout, self.unit, self.count = archive, layout, unit, count

    @cached_property
    def bounds(self) -> tuple[float | None, float | None]:
        """The times of its first and last event, if known."""
        return self._moment(self.layout.since), self._moment(self.layout.until)

    def _moment(self, value: object | None) -> float | None:
        if value is None:
            return None
        shape = self.archive.shape
        type_ = plain_type(shape.arrow.field(shape.schema.end).type)
        return float(from_arrow(pa.array([value], type_), self.unit).values[0])

    def measure(self, side: CompiledSide, field: str | None) -> SampleFigures | None:
        """Measures a pattern on the sample; None if it cannot be read."""
        names = side.shape.arrow.names
        if self.layout.kind == "frame" or not set(names) <= set(self.archive.shape.arrow.names):
            return None
        cache_key = self.layout, side.name, field, self.count
        if cache_key in _SAMPLE_CACHE:
            return _SAMPLE_CACHE[cache_key]
        events = self._events
        if events is None:
            return None
        measured = _measure(side, events.select(names).cast(side.shape.arrow), field)
        if self.layout.kind != "table":  # tables in memory have equal layouts
            _SAMPLE_CACHE[cache_key] = measured
            while len(_SAMPLE_CACHE) > CACHED_SAMPLES:
                _SAMPLE_CACHE.popitem(last=False)
        return measured

    @cached_property
    def _events(self) -> pa.Table | None:
        archive, layout = self.archive, self.layout
        first, last = self.bounds
        if first is None or last is None or not layout.rows:
            return None
        since = last - (last - first) * min(1.0, self.count / layout.rows)
        is_float = archive.shape.schema.time_kind is ValueKind.FLOAT
        dtype = np.float64 if is_float else np.int64
        bounds = [np.array([time]).astype(dtype) for time in (since, last)]
        events = ArchivedEvents(archive, self.unit).read(ArchiveRanges(None, *bounds), None, None)
        return events.slice(max(0, events.num_rows - 2 * self.count)) if events.num_rows else None


def _take_middle(table: pa.Table, shape: StreamSchema, count: int) -> pa.Table:
    """Returns the ordered events around the middle of a table's time."""
    if table.num_rows <= count:
        return _sort_by_time(table, shape)
    # usually rows are ordered by time, and the middle rows suffice
    middle = _sort_by_time(table.slice((table.num_rows - count) // 2, count), shape)
    bounds = pc.min_max(table.column(shape.schema.end))
    ends_ = pa.array([bounds["min"].as_py(), bounds["max"].as_py()], bounds["min"].type)
    first, last = np.asarray(from_arrow(ends_, shape.unit).values, np.float64)
    expected = (last - first) * count / table.num_rows
    times = get_end_times(middle, shape)
    if len(times) and float(times.max() - times.min()) <= SCATTERED * expected:
        return middle
    vector = from_arrow(table.column(shape.schema.end), shape.unit, shape.schema.end)
    near = np.abs(np.asarray(vector.values) - (first + last) / 2) <= expected / 2
    if vector.valid is not None:
        near &= vector.valid
    return _sort_by_time(table.take(pa.array(np.flatnonzero(near)[: 2 * count])), shape)


def _sort_by_time(table: pa.Table, shape: StreamSchema) -> pa.Table:
    usable, _ = drop_bad_times(table, shape, "drop")
    return sort_events(usable, shape)


def _measure(side: CompiledSide, events: pa.Table, field: str | None) -> SampleFigures:
    rows = events.num_rows
    objects = None
    if field is not None and rows:
        codes = ColumnCodes()
        codes.encode(events.column(field))
        objects = len(codes)
    if not isinstance(side, PatternSide):
        return _measure_clause(side, events, objects)
    prepared, plan = side.prepared, side.prepared.plan
    statistics = sample_statistics(prepared, events, sample=TESTED_EVENTS)
    load = Cardinalities.estimate(plan.query, plan.roles, statistics)
    matches, cost = _estimate(prepared, load)
    if rows and not isinstance(plan.structure, ReferencePlan) and not takes_subsets(prepared):
        engine = prepared.engine()
        try:
            counted = (engine.process(events).count + engine.on_watermark(math.inf).count) / rows
            matches = counted or min(matches, FEWEST / rows)  # without matches the formulas decide
        except LimitError:  # the query itself raises it later
            matches = max(matches, 1.0)
    share = min(1.0, sum(s for _, s in statistics.shares)) if statistics.shares else 1.0
    rate = None if statistics.rate is None else statistics.rate / ticks_per_second(prepared)
    return SampleFigures(rows, share, objects, matches, cost, rate)


def _measure_clause(side: CompiledSide, events: pa.Table, objects: int | None) -> SampleFigures:
    """Measures a MATCH_RECOGNIZE clause, for which every row is relevant."""
    rows = events.num_rows
    try:
        matches = max(side.matches(events).num_rows, FEWEST) / rows if rows else 0.0
    except (LimitError, SkipError):  # rows from the middle of a partition may match differently
        matches = 1.0
    times = get_end_times(events, side.shape)
    duration = float(times.max() - times.min()) if rows else 0.0
    rate = rows / duration if duration else None
    return SampleFigures(rows, 1.0, objects, matches, ROW_COST, rate)
