"""What a task reads of a stream: its events sorted out before they go to their lanes."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ensue.columns.stream import ends, with_time
from ensue.workload.chain import Chain

LANE = "__lane"  # the column that says where an event goes
PASSING, AHEAD = -1, -2  # in the place of a lane: it only tells the time; it is too far ahead


@dataclass(frozen=True, slots=True)
class Arrived:
    """The events of a task, with the lane of each, and what became of the others."""

    events: pa.Table
    dropped: int  # without usable time
    ahead: int  # further ahead of the clock than is allowed
    newest_ms: int | None  # of all that were not left out; None: there are none
    oldest: float | None  # of them, in the matcher's time


def arrived(batches: Iterable[pa.RecordBatch], chain: Chain, bad_events: str) -> Arrived:
    """Sorts out what a task has read."""
    schema = chain.source.arrow.append(pa.field(LANE, pa.int32()))
    kept = [batch for batch in batches if batch.num_rows]
    whole = pa.Table.from_batches(kept).cast(schema) if kept else schema.empty_table()
    far = _lanes(whole) == AHEAD
    if far.any():
        whole = whole.filter(pa.array(~far))
    events, dropped = with_time(whole, chain.source.shape, bad_events, chain.types, finite=True)
    times = ends(events, chain.source.shape)
    newest_ms = chain.clock.newest_ms(times)
    oldest = times.min().item() if len(times) else None
    passing = _lanes(events) == PASSING
    if passing.any():
        events = events.filter(pa.array(~passing))
    return Arrived(events, dropped, int(far.sum()), newest_ms, oldest)


def _lanes(events: pa.Table) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    return np.asarray(events.column(LANE).to_numpy(), np.int32)


def next_watermark(newest: Iterable[int | None], delay_ms: int | None) -> int | None:
    """The watermark that the newest events of all tasks bring about; None: it is not known.

    >>> next_watermark([None, -7, 5], 10), next_watermark([None], 10), next_watermark([5], None)
    (-5, None, None)
    """
    known = [ms for ms in newest if ms is not None]
    return max(known) - delay_ms if known and delay_ms is not None else None
