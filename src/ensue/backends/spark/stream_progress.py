"""Progress reports and totals of streams, load shedding reports, and the late-event listener."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from weakref import WeakSet

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.listener import StreamingQueryListener

from ensue.backends.spark.frames import spark_schema
from ensue.backends.spark.sinks import BatchStep, Sink
from ensue.backends.spark.spark_errors import get_stream_failure
from ensue.backends.spark.stream import COUNTERS, NUMBERS, is_ensue_metric
from ensue.engine.state_format import deserialize_table
from ensue.errors import EventError
from ensue.options import format_count
from ensue.runtime.tasks.load_shedding import build_shed_schema
from ensue.runtime.tasks.wire_format import Control
from ensue.runtime.workload import Workload

_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
_STATE_COUNTERS = (
    "partial_matches", "waiting", "state_bytes", "recent", "stored_keys", "stored_bytes",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The counters of one micro-batch.

    A micro-batch without events only runs the key groups with a due timer, so its state counters
    are those of the micro-batch before.
    """

    batch: int
    events: int = 0  # that matter to the query
    late: int = 0
    dropped: int = 0  # without usable time
    ahead: int = 0  # further ahead of the clock than max_ahead=
    before_cut: int = 0  # already in history=, or in the stream's own archive
    matches: int = 0
    partial_matches: int = 0
    waiting: int = 0  # events that the watermark has not passed yet
    state_bytes: int = 0
    written_bytes: int = 0  # of state
    rebuilt: int = 0  # key groups that were rebuilt from the state store
    input_rows: int = 0  # of the source
    seconds: float = 0.0  # for the whole micro-batch
    matching_share: float = 0.0  # of the time in Python workers
    watermark: datetime | int | None = None  # a number where the time column holds numbers
    lag_seconds: float | None = None  # from the watermark to the newest event, or thousands
    probes: int = 0  # reads of archives
    files_read: int = 0
    rows_read: int = 0
    recent: int = 0  # events not yet in the stream's own archive
    archived: int = 0  # events written there
    misses: int = 0  # keys that had to be loaded for an event
    stored_keys: int = 0  # spilled keys
    stored_bytes: int = 0  # of their events
    shed_events: int = 0  # of shed keys, since the stream was behind (shed=)
    shed_keys: int = 0
    shed_partial_matches: int = 0  # of these keys
    stopped: str | None = None  # why the stream failed after it, if it did

    @property
    def rows_per_second(self) -> float:
        return self.input_rows / self.seconds if self.seconds else 0.0


EMPTY_PROGRESS = BatchProgress(-1)
_COUNTED = {f.name for f in fields(BatchProgress)} & set(COUNTERS)


def get_progress(query: Any) -> list[BatchProgress]:
    """Return the last micro-batches of a query (Spark keeps 100), the newest last.

    The last one of a failed stream has the error; its number is -1 if no micro-batch finished.
    """
    # an idle Spark reports too, with the number of the next micro-batch
    batches: list[BatchProgress] = []
    for report in query.recentProgress:
        if "addBatch" in report["durationMs"]:
            current = read_progress(report)
            if not current.input_rows and batches:
                state = {name: getattr(batches[-1], name) for name in _STATE_COUNTERS}
                current = replace(current, **state)
            batches.append(current)
    error = get_stream_failure(query)
    if error is not None:
        batches[-1:] = [replace(*batches[-1:] or [EMPTY_PROGRESS], stopped=str(error))]
    return batches


def read_progress(progress: Any) -> BatchProgress:
    observed = dict(progress["observedMetrics"] or {}).items()
    counter_rows: list[Mapping[str, Any]] = [_counts(row) for name, row in observed if is_ensue_metric(name)]

    def count(name: str) -> int:
        return sum(int(row.get(name) or 0) for row in counter_rows)

    times = progress["eventTime"] or {}
    watermark, newest = _milliseconds(times.get("watermark")), _milliseconds(times.get("max"))
    if watermark is not None and watermark <= 0:  # Spark's value for none yet
        watermark = None
    lag = None if watermark is None or newest is None else (newest - watermark) / 1_000
    busy = count("busy_us")
    counts: dict[str, Any] = {name: count(name) for name in _COUNTED}
    return BatchProgress(
        batch=int(progress["batchId"]),
        **counts,
        input_rows=int(progress.numInputRows),  # Connect has no item of this name
        seconds=int(dict(progress["durationMs"]).get("triggerExecution", 0)) / 1_000,
        matching_share=count("matching_us") / busy if busy else 0.0,
        watermark=_moment(watermark, numbers=any(NUMBERS in row for row in counter_rows)),
        lag_seconds=lag,
    )


def _counts(row: Any) -> dict[str, Any]:
    """Read the counters of a report, of which Connect sends values and schema separately.

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
    """Parse the time of a report, whose year may be beyond Python's range for numeric times.

    >>> _milliseconds("1970-01-01T00:00:01.500Z"), _milliseconds("+11970-01-01T00:00:00.000Z")
    (1500, 315569520000000)
    """
    if not text:
        return None
    year, _, rest = text.partition("-")
    # the calendar repeats after 400 years
    cycles, first = divmod(int(year) - 2_000, 400)
    moment = datetime.fromisoformat(f"{2_000 + first}-{rest}")
    return (moment - _BEGIN) // timedelta(milliseconds=1) + cycles * 146_097 * 86_400_000


# ------------------------------------------------------------------------- totals

_REMEMBERED = 200  # micro-batches; the report of the newest one may still change


@dataclass
class StreamTotals:
    """The counters of all micro-batches so far, of which Spark keeps only the last 100."""

    counts: "Counter[str]" = field(default_factory=Counter)
    batches: int = 0
    last: BatchProgress | None = None
    watermark: datetime | int | None = None
    _counted: dict[int, BatchProgress] = field(default_factory=dict, repr=False)

    def add(self, reports: Iterable[BatchProgress]) -> list[BatchProgress]:
        """Add the reports that are new, and return them."""
        new = [p for p in reports if self._counted.get(p.batch) != p]
        for report in new:
            before = self._counted.pop(report.batch, None)
            for name in (*_COUNTED, "input_rows"):
                self.counts[name] += getattr(report, name) - (getattr(before, name) if before else 0)
            self.batches += before is None
            self._counted[report.batch] = report
            self.last = report
            self.watermark = report.watermark or self.watermark
        while len(self._counted) > _REMEMBERED:
            del self._counted[next(iter(self._counted))]
        return new

    @property
    def line(self) -> str:
        if self.last is None:
            return "waiting for the first micro-batch"
        counts = {"micro-batches": self.batches, "events": self.counts["events"], "matches": self.counts["matches"]}
        lost = {"late": self.counts["late"], "dropped": self.counts["dropped"], "too far ahead": self.counts["ahead"]}
        counts |= {name: count for name, count in lost.items() if count}
        text = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        return f"{text}; last micro-batch took {self.last.seconds:,.1f} s"


# ------------------------------------------------------------------------- load shedding


def make_shed_delivery(workload: Workload, sink: Sink) -> BatchStep:
    unpack = UnpackShed.from_workload(workload)

    def deliver_shed(batch: DataFrame, number: int) -> None:
        shed = batch.filter(sql.col("control") == str(Control.SHED))
        sink(shed.mapInArrow(unpack, spark_schema(unpack.schema)), number)

    return deliver_shed


def require_load_shedding(workload: Workload) -> None:
    if workload.options.planning.limits.shed_ms is None:
        raise EventError(
            "shed_to= lists shed keys, but this stream does not shed load\n"
            "  hint: ensue.match(..., options=ensue.Limits(shed='30 seconds')), or leave out shed_to="
        )


@dataclass(frozen=True)
class UnpackShed:
    """Unpacks shed keys to rows; a key column that a query lacks is NULL."""

    schema: pa.Schema

    @classmethod
    def from_workload(cls, workload: Workload) -> "UnpackShed":
        stages = [stage for chain in workload.chains for stage in chain.stages]
        keys = dict.fromkeys(name for stage in stages for name in stage.reads.key)
        return cls(build_shed_schema(list(keys), workload.source.shape))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch.column("matches"):
                table = deserialize_table(blob.as_py())
                for column in self.schema:
                    if column.name not in table.column_names:
                        table = table.append_column(column, pa.nulls(len(table), column.type))
                yield from table.select(self.schema.names).cast(self.schema).to_batches()


# ------------------------------------------------------------------------- late-event listener

LOGGER = "ensue.stream"
_listened: "WeakSet[SparkSession]" = WeakSet()  # sessions with a listener


class StreamWarnings:
    """The warnings about late and dropped events of one stream, each issued once."""

    def __init__(self) -> None:
        self._issued: set[str] = set()

    def take_new(self, progress: BatchProgress) -> list[str]:
        warnings = {}
        if progress.ahead:
            warnings["ahead"] = (
                f"{format_count(progress.ahead, 'event')} of micro-batch {progress.batch} dropped: the time is "
                "further ahead of the clock than max_ahead allows\n"
                "  hint: fix the sender; ensue.StreamOptions(max_ahead=None) would accept them, and "
                "make all other events late"
            )
        if 2 * progress.late > progress.events:
            warnings["late"] = (
                f"most of micro-batch {progress.batch} is late: {progress.late} of "
                f"{format_count(progress.events, 'event')} end before the watermark, {progress.watermark}\n"
                "  hint: a longer watermark= includes them; if the watermark is in the future, an "
                "event with a wrong time has moved it, and you need a new checkpoint"
            )
        if progress.dropped:
            warnings["dropped"] = (
                f"{format_count(progress.dropped, 'event')} of micro-batch {progress.batch} dropped, "
                "without usable time"
            )
        if progress.shed_keys:  # every time, since each loses other events
            warnings[f"shed {progress.batch}"] = (
                f"micro-batch {progress.batch} is behind the clock by more than shed allows: "
                f"{format_count(progress.shed_events, 'event')} of {progress.shed_keys:,} keys dropped, and "
                f"{progress.shed_partial_matches:,} of their partial matches\n"
                "  hint: ensue.start(..., shed_to=folder) lists them by key and interval"
            )
        new = [text for kind, text in warnings.items() if kind not in self._issued]
        self._issued |= set(warnings)
        return new


class LateEventListener(StreamingQueryListener):
    """Logs the warnings of all streams of a session."""

    def __init__(self) -> None:
        self.concerns: dict[str, StreamWarnings] = {}

    # Spark prescribes these names and arguments.

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress
        if not any(map(is_ensue_metric, dict(progress["observedMetrics"] or {}))):
            return  # not a stream of Ensue
        concerns = self.concerns.setdefault(str(progress["runId"]), StreamWarnings())
        name = progress["name"]
        for text in concerns.take_new(read_progress(progress)):
            logging.getLogger(LOGGER).warning(f"{name}: {text}" if name else text)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self.concerns.pop(str(event.runId), None)


def add_late_event_listener(session: SparkSession) -> None:
    """Add the late-event listener to a session, once."""
    if session not in _listened:
        session.streams.addListener(LateEventListener())
        _listened.add(session)
