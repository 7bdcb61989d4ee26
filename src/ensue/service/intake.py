"""Decoding of published events into a table of the stream's columns; misfits become bad events."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from ensue.errors import EventError
from ensue.service.arrow_streams import event_limit_error, read_stream
from ensue.service.event_columns import EventColumns
from ensue.service.settings import ServiceLimits
from ensue.vector.arrow_numpy import Bools
from ensue.vector.event_table import drop_bad_times

JSON_LINES, JSON = "application/x-ndjson", "application/json"
ARROW = "application/vnd.apache.arrow.stream"
MEDIA = (JSON_LINES, JSON, ARROW)
_SHOWN = 2_000  # characters of a bad event that are stored


@dataclass(frozen=True, slots=True)
class BadEvent:
    """A rejected event and the reason."""

    place: int  # its index in the request
    reason: str
    event: str


@dataclass(frozen=True, slots=True)
class DecodedEvents:
    """The valid events of a request, with their indexes, and the bad ones."""

    events: pa.Table
    places: Sequence[int]
    bad: Sequence[BadEvent]
    count: int  # of all events of the request


class Intake:
    """Decodes published events."""

    def __init__(self, columns: EventColumns, limits: ServiceLimits, clock: Callable[[], float] = time.time) -> None:
        self.columns = columns
        self.limits = limits
        self.clock = clock
        self._times = {
            field.name: field.type
            for field in columns.arrow
            if pa.types.is_timestamp(field.type) or pa.types.is_date(field.type)
        }

    def read(self, payload: Any, media: str | None = None, *, limits: ServiceLimits | None = None) -> DecodedEvents:
        """Decodes events from bytes of a media type, from rows, or from a table.

        Bytes that would decode to more than the limits allow are rejected before decoding.
        """
        limits = limits or self.limits
        if isinstance(payload, str):
            payload, media = payload.encode(), media or JSON_LINES
        if isinstance(payload, bytes | bytearray | memoryview):
            kind = (media or JSON_LINES).partition(";")[0].strip().lower()
            if kind == ARROW:
                most = limits.body_bytes, limits.events_per_request
                return self._read_table(read_stream(payload, *most))
            if kind in (JSON, JSON_LINES, "application/jsonl", "text/plain"):
                rows, bad = _parse_json(bytes(payload), lines=kind != JSON)
                if len(rows) > limits.events_per_request:
                    raise event_limit_error(len(rows), limits.events_per_request)
                return self._read_rows(rows, bad)
            raise EventError(f"events cannot be read as {kind}\n  hint: one of {', '.join(MEDIA)}")
        if isinstance(payload, Mapping):
            return self._read_rows([payload], [])
        if isinstance(payload, Sequence) and all(isinstance(row, Mapping) for row in payload):
            return self._read_rows(list(payload), [])
        return self._read_table(payload)

    def _read_table(self, payload: Any) -> DecodedEvents:
        table = self.columns.reader.read(payload, drop=False).events
        return self._check_times(table, list(range(table.num_rows)), [], table.num_rows)

    def _check_times(self, table: pa.Table, places: Sequence[int], bad: list[BadEvent], count: int) -> DecodedEvents:
        """Rejects events without a usable time, or with one too far ahead of the clock."""
        marked = table.append_column("__place", pa.array(np.arange(table.num_rows)))
        shape = self.columns.shape
        usable, dropped = drop_bad_times(marked, shape, "drop", finite=True)
        ahead = self._ahead(usable)
        if not dropped and not ahead.any():
            return DecodedEvents(table, places, bad, count)
        timed = usable.column("__place").to_numpy()
        untimed = np.setdiff1d(np.arange(table.num_rows), timed)
        ahead_by = f"{self.limits.max_ahead:g} seconds"
        for rows, why in (
            (untimed, "it has no usable time: missing, not a number, or it ends before it starts"),
            (timed[ahead], f"its time is more than {ahead_by} ahead of the service's clock"),
        ):
            bad += [BadEvent(places[row], why, _preview(table, row)) for row in rows.tolist()]
        left = usable.drop_columns(["__place"]).filter(pa.array(~ahead))
        return DecodedEvents(left, [places[row] for row in timed[~ahead].tolist()], bad, count)

    def _ahead(self, events: pa.Table) -> Bools:
        """Marks events too far ahead of the clock, since one would make all others late."""
        if not self.columns.calendar or not events.num_rows:
            return np.zeros(events.num_rows, np.bool_)
        ahead: Bools = self.columns.seconds(events) > self.clock() + self.limits.max_ahead
        return ahead

    def _read_rows(self, rows: list[Any], rejected: list[BadEvent]) -> DecodedEvents:
        """Converts rows into a table; rows that do not fit become bad events."""
        count = len(rows)
        bad = list(rejected)
        skipped = {each.place for each in bad}
        places = [place for place in range(count) if place not in skipped]
        fitting = [self._parse_times(rows[place]) for place in places]
        try:
            table = self.columns.reader.read(fitting, drop=False).events
        except EventError:
            valid_places, valid = [], []
            for place, row in zip(places, fitting, strict=True):
                try:
                    self.columns.reader.read([row], drop=False)
                except EventError as error:
                    reason = str(error).partition("\n")[0]
                    bad.append(BadEvent(place, reason, _shorten(rows[place])))
                else:
                    valid_places.append(place)
                    valid.append(row)
            places, fitting = valid_places, valid
            table = self.columns.reader.read(fitting, drop=False).events
        return self._check_times(table, places, bad, count)

    def _parse_times(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Reads ISO strings and epoch seconds as timestamps, which JSON lacks."""
        if not self._times:
            return row
        converted = dict(row)
        for name, type in self._times.items():
            value = converted.get(name)
            if isinstance(value, str):
                converted[name] = _parse_time(value, type)
            elif isinstance(value, float) and pa.types.is_timestamp(type):
                converted[name] = _from_epoch(value, type)
        return converted


def _parse_time(text: str, type: pa.DataType) -> Any:
    try:
        if pa.types.is_date(type):
            return date.fromisoformat(text)
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return text  # rejected when the row is read, with the column's name
    if type.tz is None:
        return parsed.astimezone(UTC).replace(tzinfo=None) if parsed.tzinfo else parsed
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def _from_epoch(value: float, type: pa.DataType) -> Any:
    try:
        parsed = datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return value
    return parsed if type.tz else parsed.replace(tzinfo=None)


def _parse_json(data: bytes, *, lines: bool) -> tuple[list[Any], list[BadEvent]]:
    """Parses JSON or JSON lines; a line that is not a JSON object is a bad event."""
    if not lines:
        try:
            parsed = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise EventError(f"the events are not JSON: {error}") from None
        rows = parsed if isinstance(parsed, list) else [parsed]
        return rows, _reject_non_objects(rows)
    texts = [line for line in data.split(b"\n") if line.strip()]
    rows, bad = [], []
    for place, text in enumerate(texts):
        try:
            rows.append(orjson.loads(text))
        except orjson.JSONDecodeError as error:
            rows.append(None)
            bad.append(BadEvent(place, f"it is not JSON: {error}", preview_payload(text)))
    known = {each.place for each in bad}
    return rows, bad + [each for each in _reject_non_objects(rows) if each.place not in known]


def _reject_non_objects(rows: list[Any]) -> list[BadEvent]:
    why = 'it is not a JSON object, as in {"id": 17, ...}'
    return [BadEvent(place, why, _shorten(row)) for place, row in enumerate(rows) if not isinstance(row, dict)]


def _preview(table: pa.Table, row: int) -> str:
    """Renders an event of a table as JSON, shortened."""
    sliced = table.slice(row, 1)
    try:
        event = sliced.to_pylist()[0]
    except (ValueError, OverflowError):  # Python's years end with 9999, Arrow's do not
        columns = zip(sliced.column_names, sliced.columns, strict=True)
        event = {name: str(column.cast(pa.string())[0]) for name, column in columns}
    return _shorten(event)


def _shorten(event: Any) -> str:
    text = orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS)
    return text.decode()[:_SHOWN]


def preview_payload(data: bytes) -> str:
    """Returns the beginning of an unreadable payload."""
    return data.decode("utf-8", "replace")[:_SHOWN]
