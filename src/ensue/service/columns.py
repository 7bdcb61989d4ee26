"""The events of a service as columns: their Arrow schema, their times, their objects."""

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.api import Subscriptions
from ensue.columns.stream import Shape, ends
from ensue.computed import cached_property
from ensue.errors import EventError, ServiceError
from ensue.runners.live import delay_of, made
from ensue.runners.live_rows import Reader
from ensue.schema import Kind
from ensue.service.settings import Stream
from ensue.workload.arguments import Arguments
from ensue.workload.lanes.clock import calendar
from ensue.workload.source import Source

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Columns:
    """What is known of the events of a stream before any has come."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        schema = {name: _type(name, text) for name, text in stream.columns}
        self.reader = Reader(pa.schema(schema), stream.time, stream.type, stream.order)
        self.arguments = Arguments(
            time=stream.time, type=stream.type, order=stream.order, location=stream.location,
            space=stream.space, bad_events="drop", watermark=stream.watermark,
        )  # fmt: skip
        self.source: Source = made(self.reader, self.arguments)
        delay_of(stream.watermark, self.shape)
        if stream.key is not None and stream.key not in schema:
            raise EventError(
                f"key={stream.key!r}: the events have no such column\n"
                f"  hint: one of {', '.join(schema)}"
            )

    @property
    def shape(self) -> Shape:
        return self.source.shape

    @property
    def arrow(self) -> pa.Schema:
        return self.shape.arrow

    @cached_property
    def calendar(self) -> bool:
        """Whether times are timestamps or dates, not numbers."""
        return calendar(self.shape)

    def subscriptions(self, **more: Any) -> dict[str, Any]:
        """How a set of subscriptions over these events is made."""
        stream = self.stream
        return {
            "time": stream.time, "type": stream.type, "order": stream.order,
            "location": stream.location, "space": stream.space, **more,
        }  # fmt: skip

    def alone(self, name: str, text: str, **rest: Any) -> Subscriptions:
        """A set of one subscription."""
        found = Subscriptions(**self.subscriptions())
        found.add(name, text, **rest)
        return found

    # ---------------------------------------------------------------------------- times

    def seconds(self, events: pa.Table) -> Any:
        """When events end, as numbers: seconds since 1970, or as they are."""
        times = ends(events, self.shape).astype(np.float64)
        return times / self._per_second if self.calendar else times

    @property
    def _per_second(self) -> float:
        return 1e9 if self.shape.unit == "ns" else 1e6

    def as_seconds(self, time: Any) -> float | None:
        """A time of the matcher in the same numbers."""
        if time is None:
            return None
        return float(time) / self._per_second if self.calendar else float(time)

    def moment(self, seconds: float) -> Any:
        """A number of seconds as a moment that a live matcher takes."""
        if not self.calendar:
            return int(seconds) if self.shape.schema.time_kind is Kind.INTEGER else seconds
        found = datetime.fromtimestamp(seconds, UTC)
        zone = getattr(self.arrow.field(self.shape.schema.end).type, "tz", None)
        return found if zone else found.replace(tzinfo=None)

    def shown(self, seconds: float | None) -> str | float | None:
        """A number of seconds as it is shown in JSON."""
        if seconds is None:
            return None
        if self.calendar:
            return iso(seconds)
        return int(seconds) if self.shape.schema.time_kind is Kind.INTEGER else seconds

    def read_moment(self, given: Any, what: str) -> float | None:
        """A moment that a user gave, in seconds or numbers as the stream has them."""
        if given is None:
            return None
        if isinstance(given, datetime | date):
            found = given if isinstance(given, datetime) else datetime(*given.timetuple()[:3])
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
        if isinstance(given, int | float) and not isinstance(given, bool):
            return float(given)
        try:
            if not self.calendar:
                return float(given)
            found = datetime.fromisoformat(str(given))
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
        except ValueError:
            form = "2026-01-31T10:00:00Z" if self.calendar else "12.5"
            raise ServiceError(f"{what}={given!r} is not a moment\n  hint: as in {form}") from None

    # ---------------------------------------------------------------------------- places

    def places(self, events: pa.Table) -> tuple[list[Any], list[Any]]:
        """Where events are, x and y; of shapes that are no points nothing is known here."""
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
    found = shapely.centroid(read(np.array(values, object), on_invalid="ignore"))
    x, y = shapely.get_x(found), shapely.get_y(found)
    return (
        [None if np.isnan(v) else float(v) for v in x],
        [None if np.isnan(v) else float(v) for v in y],
    )


def iso(seconds: float) -> str:
    """A moment as people and programs read it.

    >>> iso(0.5)
    '1970-01-01T00:00:00.500000Z'
    """
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")[:-6] + "Z"
    except (ValueError, OverflowError):  # years that Python does not know, but Arrow does
        return f"{np.datetime64(int(seconds), 's')}Z"


def _type(name: str, text: str) -> pa.DataType:
    zone = text.partition(", tz=")
    try:
        if zone[1] and zone[0].startswith("timestamp["):
            return pa.timestamp(zone[0][len("timestamp[") :], zone[2].rstrip("]"))
        return pa.type_for_alias(text)
    except ValueError:
        raise EventError(
            f"column '{name}' is of a type '{text}' that a service does not support\n"
            '  hint: "int64", "double", "string", "bool", "timestamp[us]", "date32"'
        ) from None
