"""The events of a service as columns: their schema, times and JSON values, and where objects are."""

import base64
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Annotated, Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import PlainSerializer

from ensue.backends.live_backend import LiveEventReader, build_source, parse_watermark_delay
from ensue.cached import cached_property
from ensue.errors import EventError, ServiceError
from ensue.options import StreamOptions
from ensue.runtime.source_schema import SourceOptions, SourceSchema
from ensue.runtime.tasks.watermark import is_calendar_time
from ensue.schema import ValueKind
from ensue.service.settings import StreamDescription
from ensue.service.templates.template import TemplateStream
from ensue.vector.event_table import StreamSchema, get_end_times


class EventColumns:
    """Schema and time handling of the events of a stream."""

    def __init__(self, stream: StreamDescription) -> None:
        self.stream = stream
        schema = {name: _type(name, text) for name, text in stream.columns}
        self.reader = LiveEventReader(pa.schema(schema), stream.time, stream.type, stream.order)
        self.arguments = SourceOptions(
            time=stream.time, type=stream.type, order=stream.order, location=stream.location,
            space=stream.space, stream=StreamOptions(bad_events="drop"), watermark=stream.watermark,
        )  # fmt: skip
        self.source: SourceSchema = build_source(self.reader, self.arguments)
        parse_watermark_delay(stream.watermark, self.shape)
        if stream.key is not None and stream.key not in schema:
            raise EventError(f"key={stream.key!r}: the events have no such column\n  hint: one of {', '.join(schema)}")

    @property
    def shape(self) -> StreamSchema:
        return self.source.shape

    @property
    def arrow(self) -> pa.Schema:
        return self.shape.arrow

    @cached_property
    def calendar(self) -> bool:
        """Whether times are timestamps or dates, not numbers."""
        return is_calendar_time(self.shape)

    @property
    def template_stream(self) -> TemplateStream:
        """The properties of the stream that templates depend on."""
        key = self.stream.key
        text = key is not None and str(self.arrow.field(key).type) in ("string", "large_string")
        return TemplateStream(
            key=key,
            key_is_text=text,
            calendar=self.calendar,
            whole_numbers=self.shape.schema.time_kind is ValueKind.INTEGER,
            located=self.stream.location is not None,
            earth=self.stream.space == "earth",
        )

    def subscriptions(self, **more: Any) -> dict[str, Any]:
        """The arguments for a subscription set over these events."""
        stream = self.stream
        return {
            "time": stream.time, "type": stream.type, "order": stream.order,
            "location": stream.location, "space": stream.space, **more,
        }  # fmt: skip

    def seconds(self, events: pa.Table) -> Any:
        """End times of events as numbers: seconds since 1970, or numeric times unchanged."""
        times = get_end_times(events, self.shape).astype(np.float64)
        return times / self._per_second if self.calendar else times

    @property
    def _per_second(self) -> float:
        return 1e9 if self.shape.unit == "ns" else 1e6

    def as_seconds(self, time: Any) -> float | None:
        """Converts a time of the matcher to the same numbers."""
        if time is None:
            return None
        return float(time) / self._per_second if self.calendar else float(time)

    def moment(self, seconds: float) -> Any:
        """Converts seconds to the time type of a live matcher."""
        if not self.calendar:
            return int(seconds) if self.shape.schema.time_kind is ValueKind.INTEGER else seconds
        time = datetime.fromtimestamp(seconds, UTC)
        zone = getattr(self.arrow.field(self.shape.schema.end).type, "tz", None)
        return time if zone else time.replace(tzinfo=None)

    def to_json(self, seconds: float | None) -> str | float | None:
        """Converts seconds to their JSON form."""
        if seconds is None:
            return None
        if self.calendar:
            return format_time(seconds)
        return int(seconds) if self.shape.schema.time_kind is ValueKind.INTEGER else seconds

    def parse_time(self, value: Any, what: str) -> float | None:
        """Parses a time given by a user into seconds, or the numbers of the stream."""
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        try:
            if isinstance(value, datetime):
                time = value
            elif isinstance(value, date):
                time = datetime(*value.timetuple()[:3])
            elif not self.calendar:
                return float(value)
            else:
                time = datetime.fromisoformat(str(value))
            return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
        except ValueError:
            form = "2026-01-31T10:00:00Z" if self.calendar else "12.5"
            raise ServiceError(f"{what}={value!r} is not a time\n  hint: as in {form}") from None

    def match_ends(self, matches: pa.Table) -> list[float]:
        """End times of matches as the same numbers."""
        column = matches.column("end")
        if not self.calendar:
            return [float(value) for value in column.to_pylist()]
        micros = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)))
        return [value / 1e6 for value in micros.cast(pa.int64()).to_pylist()]

    def places(self, events: pa.Table) -> tuple[list[Any], list[Any]]:
        """The x and y of events; the centroid of shapes."""
        where = self.stream.location
        if isinstance(where, tuple):
            x, y = (events.column(name).to_pylist() for name in where)
            return x, y
        if where is None:
            nothing = [None] * events.num_rows
            return nothing, nothing
        return _points(events.column(where).to_pylist())


def _points(values: list[Any]) -> tuple[list[Any], list[Any]]:
    import shapely

    texts = [v for v in values if v is not None]
    read = shapely.from_wkb if texts and isinstance(texts[0], bytes) else shapely.from_wkt
    centroids = shapely.centroid(read(np.array(values, object), on_invalid="ignore"))
    x, y = (
        [None if np.isnan(v) else float(v) for v in axis]
        for axis in (shapely.get_x(centroids), shapely.get_y(centroids))
    )
    return x, y


def format_time(seconds: float) -> str:
    """Formats a time as ISO 8601 in UTC.

    >>> format_time(0.5)
    '1970-01-01T00:00:00.500000Z'
    """
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")[:-6] + "Z"
    except (ValueError, OverflowError):  # years beyond Python's range, which Arrow supports
        return f"{np.datetime64(int(seconds), 's')}Z"


EpochTime = Annotated[float, PlainSerializer(format_time, return_type=str)]  # seconds since 1970, a text in JSON


def _type(name: str, text: str) -> pa.DataType:
    zone = text.partition(", tz=")
    try:
        if zone[1] and zone[0].startswith("timestamp["):
            return pa.timestamp(zone[0][len("timestamp[") :], zone[2].rstrip("]"))
        return pa.type_for_alias(text)
    except ValueError:
        raise EventError(
            f"column '{name}' has the unsupported type '{text}'\n"
            '  hint: "int64", "double", "string", "bool", "timestamp[us]", "date32"'
        ) from None


MAX_OBJECTS = 200_000  # objects in memory; the longest silent are evicted first


class ObjectPositions:
    """The newest event of every object, by the stream's key; written by one thread."""

    def __init__(self, columns: EventColumns) -> None:
        self.columns = columns
        self.moves = 0  # grows with every event, so that readers can ask for changes
        self._seen: OrderedDict[Any, dict[str, Any]] = OrderedDict()  # oldest move first
        self._lock = threading.Lock()

    def take(self, events: pa.Table) -> None:
        """Records accepted events, in order."""
        key = self.columns.stream.key
        if key is None or not events.num_rows:
            return
        names = events.column_names
        ids = events.column(key).to_pylist()
        last = {id: row for row, id in enumerate(ids) if id is not None}
        newest = events.take(pa.array(sorted(last.values()))) if len(last) < len(ids) else events
        fields = [to_json_values(newest.column(name)) for name in names]
        times = self.columns.seconds(newest).tolist()
        xs, ys = self.columns.places(newest)
        with self._lock:
            for id, t, x, y, *values in zip(newest.column(key).to_pylist(), times, xs, ys, *fields, strict=True):
                if id is None:
                    continue
                known = self._seen.get(id)
                if known is not None and known["t"] > t:
                    continue  # out of order: a newer position is known
                self.moves += 1
                self._seen[id] = {
                    "id": id, "t": t, "x": x, "y": y, "moves": self.moves,
                    "fields": dict(zip(names, values, strict=True)),
                }  # fmt: skip
                self._seen.move_to_end(id)
            while len(self._seen) > MAX_OBJECTS:
                self._seen.popitem(last=False)

    def list_moved(self, moves: int = 0, most: int = MAX_OBJECTS) -> tuple[list[dict[str, Any]], int]:
        """Returns the objects that moved since, newest first, and the number for the next call."""
        objects: list[dict[str, Any]] = []
        with self._lock:
            for seen in reversed(self._seen.values()):
                if seen["moves"] <= moves or len(objects) >= most:
                    break
                objects.append({**seen, "t": self.columns.to_json(seen["t"])})
            return objects, self.moves

    def __len__(self) -> int:
        return len(self._seen)


RATE_WINDOW = 10.0  # seconds of the averaging window


class RateMeter:
    """Measures events per second; one thread counts, others read."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()

    def count(self, events: int, now: float | None = None) -> None:
        instant = time.monotonic() if now is None else now
        self._counts.append((instant, events))
        while self._counts and self._counts[0][0] < instant - RATE_WINDOW:
            self._counts.popleft()

    def per_second(self, now: float | None = None) -> float:
        """The average rate of the last seconds.

        >>> pace = RateMeter()
        >>> pace.count(30, now=100.0)
        >>> pace.per_second(now=104.0), pace.per_second(now=120.0)
        (3.0, 0.0)
        """
        instant = time.monotonic() if now is None else now
        return sum(n for at, n in list(self._counts) if at >= instant - RATE_WINDOW) / RATE_WINDOW


def to_json_values(column: "pa.Array | pa.ChunkedArray") -> Sequence[Any]:
    """Converts a column to values that JSON can represent."""
    type = column.type
    if pa.types.is_timestamp(type):
        # Without a time zone Arrow formats timestamps forty times as fast.
        texts = column.cast(pa.timestamp(type.unit)).cast(pa.timestamp("us"), safe=False)
        strings = pc.binary_replace_slice(texts.cast(pa.string()), 10, 11, "T")
        if type.tz:
            strings = pc.binary_join_element_wise(strings, "Z", "")
        return list(strings.to_pylist())
    if pa.types.is_date(type):
        return list(column.cast(pa.string()).to_pylist())
    values: Sequence[Any] = column.to_pylist()
    if pa.types.is_decimal(type):
        return [None if v is None else str(v) for v in values]
    if pa.types.is_binary(type) or pa.types.is_large_binary(type):
        return [None if v is None else base64.b64encode(v).decode() for v in values]
    if pa.types.is_nested(type) or pa.types.is_time(type) or pa.types.is_duration(type):
        return [_json(value) for value in values]
    return values


def _json(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY))
