"""Matching in this process as events come: one in, its matches out."""

import asyncio
import math
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.algebra.durations import parse_duration
from ensue.brief_errors import brief_calls
from ensue.columns.stream import Shape
from ensue.columns.values import from_arrow
from ensue.errors import EventError
from ensue.runners.live_rows import Reader
from ensue.schema import Kind
from ensue.workload.arguments import Arguments
from ensue.workload.lanes.clock import calendar
from ensue.workload.live import Counts, LiveWorkload
from ensue.workload.query_names import Name
from ensue.workload.source import Source
from ensue.workload.workload import Workload

Found = Any  # a pa.Table, or a dict of them by output
Moment = int | float | date | datetime | np.datetime64


@brief_calls
class Live:
    """A live matcher: `ensue.live` makes one.

    What it gives has the shape of what `ensue.match` gives: an Arrow table, or a dict of tables
    where there are several queries or levels. It is for one thread at a time.
    """

    def __init__(self, reader: Reader, workload: Workload, given: Arguments) -> None:
        delay = delay_of(given.watermark, workload.source.shape)
        self._reader = reader
        self._drops = given.bad_events == "drop"
        self.work = LiveWorkload(workload, delay, given.bad_events)
        self._one = workload.alone and len(workload.outputs) == 1

    def feed(self, events: Any) -> Found:
        """The matches that are certain with the next events.

        `events` are an Arrow, pandas or Polars table or anything that speaks Arrow, one event as a
        dict, or a list of such dicts; where the schemas were given by event type, a dict of these
        by type. A row that leaves a column out has NULL there.
        """
        read = self._reader.read(events, drop=self._drops)
        found = self.work.feed(read.events, ordered=read.ordered)
        self.work.dropped += read.dropped
        return self._given(found)

    def advance(self, time: Moment) -> Found:
        """The matches that only waited for time to pass, though no event came.

        Time has come to `time`, as if an event of that time had come that matters to no query.
        """
        return self._given(self.work.advance(moment(time, self.work.workload.source.shape)))

    def finish(self) -> Found:
        """The stream is over: the matches that only waited for that."""
        return self._given(self.work.finish())

    def _given(self, found: Mapping[Name, pa.Table]) -> Found:
        return next(iter(found.values())) if self._one else found

    async def over(self, source: "AsyncIterable[Any] | Iterable[Any]") -> AsyncIterator[Found]:
        """What is found in the events of a source, as they come, and when it has ended.

        The source gives what `feed` takes, and `async for` gets the results that are not empty.
        """
        if isinstance(source, AsyncIterable):
            async for events in source:
                if _any(found := self.feed(events)):
                    yield found
        else:
            for events in source:
                if _any(found := self.feed(events)):
                    yield found
                await asyncio.sleep(0)
        if _any(found := self.finish()):
            yield found

    # ---------------------------------------------------------------------------- counters

    @property
    def progress(self) -> Counts:
        """How many events came, what became of them, and what is held."""
        return self.work.counts

    @property
    def late(self) -> int:
        """How many events came too late to be matched."""
        return self.work.late

    @property
    def dropped(self) -> int:
        """How many events were left out: without usable time, or not of the schema."""
        return self.work.dropped

    def late_events(self) -> pa.Table:
        """The late events since it was asked last, of `live(..., late_events="deliver")`."""
        if not self.work.workload.deliver_late:
            raise EventError(
                'late events are only counted\n  hint: ensue.live(..., late_events="deliver")'
            )
        return self.work.take_late_events()

    # ---------------------------------------------------------------------------- state

    def save(self) -> bytes:
        """All that is needed to go on in another process."""
        return self.work.save()

    def restore(self, state: bytes) -> "Live":
        """Goes on where a saved one stopped; it must have been made by the same call."""
        self.work.restore(state)
        return self

    def __repr__(self) -> str:
        counts = self.progress
        return (
            f"<ensue.Live: {counts.events} events, {counts.matches} matches, "
            f"{counts.partial_matches} partial matches>"
        )


def made(reader: Reader, given: Arguments) -> Source:
    """What is known of the events before any has come."""
    if reader.arranged is not None:
        given = replace(given, time=reader.arranged.time, order=reader.arranged.order)
    return Source.of(reader.shape, given)


def _any(found: Found) -> bool:
    tables = found.values() if isinstance(found, Mapping) else (found,)
    return any(table.num_rows for table in tables)


def delay_of(watermark: Any, shape: Shape) -> int | float | None:
    """How far events may be out of order, in the matcher's time."""
    if watermark is None:
        return None
    delay: int | float
    match watermark:
        case timedelta() if calendar(shape):
            delay = watermark // timedelta(microseconds=1) * (1 if shape.unit == "us" else 1_000)
        case str() if calendar(shape):
            length = parse_duration(watermark)
            delay = length if shape.unit == "ns" else -(-length // 1_000)
        case bool():
            delay = math.nan
        case int() | float() if not calendar(shape):
            delay = watermark
        case _:
            wanted = 'a length of time such as "10 seconds"' if calendar(shape) else "a number"
            kind = "timestamps" if calendar(shape) else "numbers"
            raise EventError(
                f"watermark={watermark!r}: the time column holds {kind}, "
                f"so the watermark must be {wanted}"
            )
    if not (math.isfinite(delay) and delay >= 0):
        raise EventError(f"watermark={watermark!r} is not a length of time")
    return math.floor(delay) if shape.schema.time_kind is Kind.INTEGER else delay


def moment(time: Any, shape: Shape) -> int | float:
    """A moment in the matcher's time."""
    numeric = isinstance(time, int | float | np.number) and not isinstance(time, bool)
    if not calendar(shape):
        if not numeric or not math.isfinite(time):
            raise EventError(f"time={time!r}: the time column holds numbers, so pass a number")
        return math.ceil(time) if shape.schema.time_kind is Kind.INTEGER else float(time)
    if numeric or isinstance(time, str | bool) or time is None:
        raise EventError(f"time={time!r}: the time column holds timestamps, so pass a datetime")
    kind = shape.arrow.field(shape.schema.end).type
    zone = kind.tz if pa.types.is_timestamp(kind) else None
    try:
        if isinstance(time, np.datetime64):  # Arrow knows those of its own unit only
            time = time.astype(f"datetime64[{shape.unit}]").astype(np.int64).item()
        array = pa.array([time], pa.timestamp(shape.unit, zone))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise EventError(f"time={time!r} is no moment: {error}") from None
    if array.null_count:
        raise EventError(f"time={time!r} is not a moment")
    found: int = np.asarray(from_arrow(array, shape.unit).values)[0].item()
    return found
