"""What a running stream says of itself, without a listener."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from ensue.runners.spark.failure import failed
from ensue.runners.spark.stream import NUMBERS, is_ours

_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
_KEPT = ("partial_matches", "waiting", "state_bytes", "recent", "stored_keys", "stored_bytes")


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One micro-batch of a stream.

    In one without events only the lanes that are due take part; what all of them keep is then
    that of the one before.
    """

    batch: int
    events: int  # that matter to the query
    late: int
    dropped: int  # without usable time
    ahead: int  # further ahead of the clock than max_ahead=
    before_cut: int  # that history=, or the stream's own archive, had already
    matches: int
    partial_matches: int
    waiting: int  # events that the watermark has not passed
    state_bytes: int
    written_bytes: int  # of state
    rebuilt: int  # lanes that had to be built from the state store
    input_rows: int  # of the source
    seconds: float  # for the whole micro-batch
    matching_share: float  # of the time in Python workers, what went into matching
    watermark: datetime | int | None  # a number where the time column holds numbers
    lag_seconds: float | None  # from the watermark to the newest event; numbers in thousands
    probes: int = 0  # reads of archives
    files_read: int = 0
    rows_read: int = 0
    recent: int = 0  # events that are not in the stream's own archive yet
    archived: int = 0  # events that went there
    misses: int = 0  # keys that were not in memory when an event of theirs came
    stored_keys: int = 0  # that are not in memory
    stored_bytes: int = 0  # of their events
    shed_events: int = 0  # of keys that were given up, since the stream was behind (shed=)
    shed_keys: int = 0
    shed_partial_matches: int = 0  # that went with them
    stopped: str | None = None  # why the stream stopped by itself after it, if it did

    @property
    def rows_per_second(self) -> float:
        return self.input_rows / self.seconds if self.seconds else 0.0


NONE_YET = BatchProgress(
    batch=-1, events=0, late=0, dropped=0, ahead=0, before_cut=0, matches=0, partial_matches=0,
    waiting=0, state_bytes=0, written_bytes=0, rebuilt=0, input_rows=0, seconds=0.0,
    matching_share=0.0, watermark=None, lag_seconds=None,
)  # fmt: skip


def progress_of(query: Any) -> list[BatchProgress]:
    """The micro-batches that a query remembers (Spark keeps the last 100), the newest last.

    Of a stream that has failed, the last one says why; its number is -1 if none was done.
    """
    # While there is nothing to do Spark reports too, under the number of the next micro-batch.
    found: list[BatchProgress] = []
    for report in query.recentProgress:
        if "addBatch" in report["durationMs"]:
            done = read(report)
            if not done.input_rows and found:
                done = replace(done, **{name: getattr(found[-1], name) for name in _KEPT})
            found.append(done)
    error = failed(query)
    if error is not None:
        found = [*found[:-1], replace(found[-1] if found else NONE_YET, stopped=str(error))]
    return found


def read(progress: Any) -> BatchProgress:
    """One report of Spark."""
    observed = dict(progress["observedMetrics"] or {}).items()
    several: list[Mapping[str, Any]] = [_counts(row) for name, row in observed if is_ours(name)]

    def count(name: str) -> int:
        return sum(int(counts.get(name) or 0) for counts in several)

    times = progress["eventTime"] or {}
    watermark, newest = _milliseconds(times.get("watermark")), _milliseconds(times.get("max"))
    if watermark is not None and watermark <= 0:  # Spark's word for none yet
        watermark = None
    lag = None if watermark is None or newest is None else (newest - watermark) / 1_000
    busy = count("busy_us")
    return BatchProgress(
        batch=int(progress["batchId"]),
        events=count("events"),
        late=count("late"),
        dropped=count("dropped"),
        ahead=count("ahead"),
        before_cut=count("before_cut"),
        matches=count("matches"),
        partial_matches=count("partial_matches"),
        waiting=count("waiting"),
        state_bytes=count("state_bytes"),
        written_bytes=count("written_bytes"),
        rebuilt=count("rebuilt"),
        input_rows=int(progress.numInputRows),  # over Connect it is not among the items
        seconds=int(dict(progress["durationMs"]).get("triggerExecution", 0)) / 1_000,
        matching_share=count("matching_us") / busy if busy else 0.0,
        watermark=_moment(watermark, numbers=any(NUMBERS in counts for counts in several)),
        lag_seconds=lag,
        probes=count("probes"),
        files_read=count("files_read"),
        rows_read=count("rows_read"),
        recent=count("recent"),
        archived=count("archived"),
        misses=count("misses"),
        stored_keys=count("stored_keys"),
        stored_bytes=count("stored_bytes"),
        shed_events=count("shed_events"),
        shed_keys=count("shed_keys"),
        shed_partial_matches=count("shed_partial_matches"),
    )


def _counts(row: Any) -> dict[str, Any]:
    """The counters of a report; over Connect, Spark sends their values and their schema apart.

    >>> from pyspark.sql import Row
    >>> _counts(Row(values=[3], schema={"fields": [{"name": "matches"}]}))
    {'matches': 3}
    """
    counts: dict[str, Any] = row.asDict()
    if set(counts) != {"values", "schema"}:
        return counts
    names = [field["name"] for field in counts["schema"]["fields"]]
    return dict(zip(names, counts["values"], strict=True))


def _moment(ms: int | None, *, numbers: bool) -> datetime | int | None:
    return ms if numbers or ms is None else _BEGIN + timedelta(milliseconds=ms)


def _milliseconds(text: str | None) -> int | None:
    """The time of a report. Years of numbers may be far beyond those of the calendar.

    >>> _milliseconds("1970-01-01T00:00:01.500Z"), _milliseconds("+11970-01-01T00:00:00.000Z")
    (1500, 315569520000000)
    """
    if not text:
        return None
    year, _, rest = text.partition("-")
    # the calendar repeats itself after 400 years
    cycles, first = divmod(int(year) - 2_000, 400)
    moment = datetime.fromisoformat(f"{2_000 + first}-{rest}")
    return (moment - _BEGIN) // timedelta(milliseconds=1) + cycles * 146_097 * 86_400_000
