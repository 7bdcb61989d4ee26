"""Decoding of published events into a table of the stream's columns; misfits become bad events.

The decoded size of an Arrow stream is checked before decoding: a few kilobytes of compressed
buffers, a dictionary, or a column of NULLs can expand to gigabytes. The metadata of each message
declares the number of rows and bytes, and Arrow rejects buffers that differ. PyArrow does not
expose these declarations, so they are read here, from FlatBuffers that PyArrow has verified
(Message.fbs of the Arrow format).
"""

import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ensue.errors import EventError
from ensue.service.errors import OverLimitError
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


# Slots of tables in Message.fbs.
_HEADER = 2
_ROWS, _BUFFERS, _COMPRESSION = 0, 2, 3
_DICTIONARY = 1
_UNREADABLE = (pa.ArrowException, OSError, ValueError, struct.error)


def measure_stream(data: Any) -> tuple[int, int]:
    """Returns the declared rows and bytes of an Arrow stream, without decompressing it."""
    rows = size = 0
    try:
        for message in pa.ipc.MessageReader.open_stream(data):
            if message.type not in ("record batch", "dictionary"):
                continue
            if message.metadata_version != pa.ipc.MetadataVersion.V5:
                raise EventError(
                    "the events are an Arrow stream of a format before 1.0\n  hint: write it with metadata version V5"
                )
            metadata = memoryview(message.metadata)
            (root,) = struct.unpack_from("<I", metadata)
            batch = _table(metadata, _field(metadata, root, _HEADER))
            if message.type == "dictionary":
                batch = _table(metadata, _field(metadata, batch, _DICTIONARY))
            else:
                rows += _row_count(metadata, batch)
            size += sum(_buffer_sizes(metadata, batch, memoryview(message.body)))
    except _UNREADABLE as error:
        raise _unreadable(error) from None
    return rows, size


def read_stream(data: Any, most_bytes: int, most_rows: int) -> pa.Table:
    """Decodes an Arrow stream; a stream above the limits is rejected before decoding."""
    rows, size = measure_stream(data)
    if rows > most_rows:
        raise event_limit_error(rows, most_rows)
    if size > most_bytes:
        raise _build_size_error(size, most_bytes)
    try:
        with pa.ipc.open_stream(data) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except _UNREADABLE as error:
        raise _unreadable(error) from None
    named = zip(table.column_names, table.columns, strict=True)
    plain = sum(_plain_bytes(name, column) for name, column in named)
    if plain > most_bytes:
        raise _build_size_error(plain, most_bytes)
    return table


def event_limit_error(count: int, most: int) -> OverLimitError:
    """The error for a request with too many events."""
    return OverLimitError(
        "events_per_request",
        f"{count:,} events in one request exceed the limit of {most:,}\n  hint: send them in several requests",
    )


def _build_size_error(size: int, most: int) -> OverLimitError:
    return OverLimitError(
        "body_bytes",
        f"the decoded events have {size:,} bytes, more than the limit of {most:,}\n"
        "  hint: send them in several requests",
    )


def _unreadable(error: Exception) -> EventError:
    return EventError(f"the events are not an Arrow stream: {error}")


def _plain_bytes(name: str, column: pa.ChunkedArray) -> int:
    """Size of the strings of a column without dictionary encoding."""
    kind = column.type
    if pa.types.is_run_end_encoded(kind):
        raise EventError(f"column '{name}' is run-end encoded\n  hint: send it as {kind.value_type}")
    total = 0
    for chunk in column.chunks:
        shared = pa.types.is_dictionary(kind)
        lengths = _lengths(chunk.dictionary if shared else chunk)
        if lengths is not None and shared:
            lengths = lengths[chunk.indices.drop_null().to_numpy()]
        total += 0 if lengths is None else int(lengths.sum())
    return total


def _lengths(array: pa.Array) -> Any:
    """The length of each string, or None for types that cannot share values."""
    kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        views = np.frombuffer(array.buffers()[1], np.int32)[::4]  # a view begins with its length
        return views[array.offset : array.offset + len(array)].astype(np.int64)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pc.binary_length(array).fill_null(0).to_numpy().astype(np.int64)
    return None


# -------------------------------------------------------------------------------- FlatBuffers


def _buffer_sizes(metadata: memoryview, batch: int, body: memoryview) -> Iterator[int]:
    """The size of each buffer of a batch; a compressed one begins with it."""
    compressed = _field(metadata, batch, _COMPRESSION) is not None
    buffers = _field(metadata, batch, _BUFFERS)
    if buffers is None:
        return
    vector = _table(metadata, buffers)
    (count,) = struct.unpack_from("<I", metadata, vector)
    for offset, length in struct.iter_unpack("<qq", metadata[vector + 4 :][: 16 * count]):
        if compressed and length > 0:
            (declared,) = struct.unpack_from("<q", body[max(0, offset) :])
            yield length if declared < 0 else declared  # -1: not compressed
        else:
            yield max(0, length)


def _row_count(metadata: memoryview, batch: int) -> int:
    place = _field(metadata, batch, _ROWS)
    count = 0 if place is None else int(struct.unpack_from("<q", metadata, place)[0])
    if count < 0:
        raise ValueError(f"a batch of {count} rows")
    return count


def _table(metadata: memoryview, place: int | None) -> int:
    """The offset of the table or vector that a field refers to."""
    if place is None:
        raise ValueError("a message without its content")
    return place + int(struct.unpack_from("<I", metadata, place)[0])


def _field(metadata: memoryview, table: int, slot: int) -> int | None:
    """The offset of a field of a table, or None if it is absent."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    (size,) = struct.unpack_from("<H", metadata, vtable)
    at = 4 + 2 * slot
    offset = struct.unpack_from("<H", metadata, vtable + at)[0] if at < size else 0
    return table + offset if offset else None
