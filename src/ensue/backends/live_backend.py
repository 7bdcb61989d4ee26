"""The live matcher: matches events in this process as they arrive."""

import asyncio
import math
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.backends.live_rows import LiveEventReader
from ensue.brief_tracebacks import shorten_class_tracebacks
from ensue.errors import EventError
from ensue.ir.values import parse_duration
from ensue.runtime.live import LiveCounters, LiveWorkload
from ensue.runtime.query_spec import Name
from ensue.runtime.source_schema import SourceOptions, SourceSchema
from ensue.runtime.tasks.watermark import is_calendar_time
from ensue.runtime.workload import Workload
from ensue.schema import ValueKind
from ensue.vector.column_values import from_arrow
from ensue.vector.event_table import StreamSchema

LiveResult = Any  # a pa.Table, or a dict of them by output
TimeValue = int | float | date | datetime | np.datetime64


@shorten_class_tracebacks
class LiveSession:
    """A live matcher, created by `ensue.live`.

    Its results have the form of `ensue.match`: an Arrow table, or a dict of tables for several
    queries or levels. It is not thread-safe.
    """

    def __init__(self, reader: LiveEventReader, workload: Workload, options: SourceOptions) -> None:
        delay = parse_watermark_delay(options.watermark, workload.source.shape)
        self._reader = reader
        self._drops = options.stream.drops_bad_events
        self.work = LiveWorkload(workload, delay, options.stream.bad_events)
        self._one = workload.is_single and len(workload.outputs) == 1

    def feed(self, events: Any) -> LiveResult:
        """Process the next events and return the matches that they complete.

        `events` is a table of Arrow, pandas, Polars or another library with an Arrow export, one
        event as a dict, or a list of dicts; with a schema for each event type, a dict of these by
        type. A column that a row lacks is NULL.
        """
        read = self._reader.read(events, drop=self._drops)
        matches = self.work.process(read.events, ordered=read.ordered)
        self.work.dropped += read.dropped
        return self._unwrap(matches)

    def advance(self, time: TimeValue) -> LiveResult:
        """Advance event time to `time` without an event, and return the matches this completes."""
        return self._unwrap(self.work.on_watermark(to_engine_time(time, self.work.workload.source.shape)))

    def finish(self) -> LiveResult:
        """End the stream and return the matches that waited for its end."""
        return self._unwrap(self.work.on_watermark(math.inf))

    def _unwrap(self, matches: Mapping[Name, pa.Table]) -> LiveResult:
        return next(iter(matches.values())) if self._one else matches

    async def over(self, source: AsyncIterable[Any] | Iterable[Any]) -> AsyncIterator[LiveResult]:
        """Feed the items of a source and yield the non-empty results, the last when it ends."""
        async for events in source if isinstance(source, AsyncIterable) else _iterate(source):
            if _has_rows(matches := self.feed(events)):
                yield matches
        if _has_rows(matches := self.finish()):
            yield matches

    # ---------------------------------------------------------------------------- counters

    @property
    def progress(self) -> LiveCounters:
        """Counters of events, matches and state."""
        return self.work.counts

    @property
    def late(self) -> int:
        """The number of events that arrived too late to be matched."""
        return self.work.late

    @property
    def dropped(self) -> int:
        """The number of dropped events: without a usable time, or not conforming to the schema."""
        return self.work.dropped

    def late_events(self) -> pa.Table:
        """Return the late events since the last call, with `StreamOptions(late_events="deliver")`."""
        if not self.work.workload.deliver_late:
            raise EventError(
                "late events are only counted\n"
                '  hint: ensue.live(..., options=ensue.StreamOptions(late_events="deliver"))'
            )
        return self.work.take_late_events()

    # ---------------------------------------------------------------------------- state

    def save(self) -> bytes:
        """Serialize the state."""
        return self.work.snapshot()

    def restore(self, state: bytes) -> "LiveSession":
        """Continue from a saved state, which must come from the same `ensue.live` call."""
        self.work.restore(state)
        return self

    def __repr__(self) -> str:
        counts = self.progress
        return (
            f"<ensue.Live: {counts.events} events, {counts.matches} matches, {counts.partial_matches} partial matches>"
        )


async def _iterate(source: Iterable[Any]) -> AsyncIterator[Any]:
    for item in source:
        yield item
        await asyncio.sleep(0)


def build_source(reader: LiveEventReader, options: SourceOptions) -> SourceSchema:
    """Build the source schema from the reader."""
    if reader.arranged is not None:
        options = replace(options, time=reader.arranged.time, order=reader.arranged.order)
    return SourceSchema.from_options(reader.shape, options)


def _has_rows(matches: LiveResult) -> bool:
    tables = matches.values() if isinstance(matches, Mapping) else (matches,)
    return any(table.num_rows for table in tables)


def parse_watermark_delay(watermark: Any, shape: StreamSchema) -> int | float | None:
    """Convert `watermark=` to the engine's time unit."""
    if watermark is None:
        return None
    calendar = is_calendar_time(shape)
    delay = parse_delay(watermark, on_calendar=calendar)
    if calendar and shape.unit == "us":
        delay = -(-delay // 1_000)
    return math.floor(delay) if shape.schema.time_kind is ValueKind.INTEGER else delay


def parse_delay(watermark: Any, *, on_calendar: bool) -> int | float:
    """Convert `watermark=` to nanoseconds, or to a number where the time column holds numbers."""
    delay: int | float
    match watermark:
        case timedelta() if on_calendar:
            delay = watermark // timedelta(microseconds=1) * 1_000
        case str() if on_calendar:
            delay = parse_duration(watermark)
        case bool():
            delay = math.nan
        case int() | float() if not on_calendar:
            delay = watermark
        case _:
            hint = 'a length of time such as "10 seconds"' if on_calendar else "a number"
            kind = "timestamps" if on_calendar else "numbers"
            raise EventError(f"watermark={watermark!r}: the time column holds {kind}, so the watermark must be {hint}")
    if not (math.isfinite(delay) and delay >= 0):
        raise EventError(f"watermark={watermark!r} is not a length of time")
    return delay


def to_engine_time(time: Any, shape: StreamSchema) -> int | float:
    """Convert a point in time to the engine's time unit."""
    numeric = isinstance(time, int | float | np.number) and not isinstance(time, bool)
    if not is_calendar_time(shape):
        if not numeric or not math.isfinite(time):
            raise EventError(f"time={time!r}: the time column holds numbers, so pass a number")
        return math.ceil(time) if shape.schema.time_kind is ValueKind.INTEGER else float(time)
    if numeric or isinstance(time, str | bool) or time is None:
        raise EventError(f"time={time!r}: the time column holds timestamps, so pass a datetime")
    kind = shape.arrow.field(shape.schema.end).type
    zone = kind.tz if pa.types.is_timestamp(kind) else None
    try:
        if isinstance(time, np.datetime64):  # Arrow accepts only its own unit
            time = time.astype(f"datetime64[{shape.unit}]").astype(np.int64).item()
        array = pa.array([time], pa.timestamp(shape.unit, zone))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise EventError(f"time={time!r} is not a point in time: {error}") from None
    if array.null_count:
        raise EventError(f"time={time!r} is not a point in time")
    ticks: int = np.asarray(from_arrow(array, shape.unit).values)[0].item()
    return ticks
