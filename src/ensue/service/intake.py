"""Events as they come in, as a table of the stream's columns; what does not fit is put aside."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from ensue.columns.buffers import Bools
from ensue.columns.stream import with_time
from ensue.errors import EventError
from ensue.service.arrow_streams import read_stream, too_many_events
from ensue.service.columns import Columns
from ensue.service.settings import Limits

JSON_LINES, JSON, ARROW = (
    "application/x-ndjson",
    "application/json",
    "application/vnd.apache.arrow.stream",
)
MEDIA = (JSON_LINES, JSON, ARROW)
_SHOWN = 2_000  # characters of a bad event that are kept


@dataclass(frozen=True, slots=True)
class Bad:
    """An event that cannot be taken, and why."""

    place: int  # among those that came with it
    reason: str
    event: str


@dataclass(frozen=True, slots=True)
class Taken:
    """Events that fit, each with its place among those that came, and those that do not."""

    events: pa.Table
    places: Sequence[int]
    bad: Sequence[Bad]
    count: int  # of all that came


class Intake:
    """Reads events of a stream."""

    def __init__(
        self, columns: Columns, limits: Limits, clock: Callable[[], float] = time.time
    ) -> None:
        self.columns = columns
        self.limits = limits
        self.clock = clock
        self._times = {
            field.name: field.type
            for field in columns.arrow
            if pa.types.is_timestamp(field.type) or pa.types.is_date(field.type)
        }

    def read(self, given: Any, media: str | None = None, *, limits: Limits | None = None) -> Taken:
        """Events from bytes of a media type, from rows, or from a table.

        Bytes that stand for more than the limits allow are refused before they are decoded.
        """
        limits = limits or self.limits
        if isinstance(given, str):
            given, media = given.encode(), media or JSON_LINES
        if isinstance(given, bytes | bytearray | memoryview):
            kind = (media or JSON_LINES).partition(";")[0].strip().lower()
            if kind == ARROW:
                most = limits.body_bytes, limits.events_per_request
                return self._table(read_stream(given, *most))
            if kind in (JSON, JSON_LINES, "application/jsonl", "text/plain"):
                rows, bad = _json(bytes(given), lines=kind != JSON)
                if len(rows) > limits.events_per_request:
                    raise too_many_events(len(rows), limits.events_per_request)
                return self._rows(rows, bad)
            raise EventError(f"events cannot be read as {kind}\n  hint: one of {', '.join(MEDIA)}")
        if isinstance(given, Mapping):
            return self._rows([given], [])
        if isinstance(given, Sequence) and all(isinstance(row, Mapping) for row in given):
            return self._rows(list(given), [])
        return self._table(given)

    # ---------------------------------------------------------------------------- tables

    def _table(self, given: Any) -> Taken:
        table = self.columns.reader.read(given, drop=False).events
        return self._timed(table, list(range(table.num_rows)), [], table.num_rows)

    def _timed(self, table: pa.Table, places: Sequence[int], bad: list[Bad], count: int) -> Taken:
        """Puts aside events that have no usable time, or one too far ahead of the clock."""
        marked = table.append_column("__place", pa.array(np.arange(table.num_rows)))
        shape = self.columns.shape
        try:
            usable, dropped = with_time(marked, shape, "drop", finite=True)
        except EventError as error:  # times that lie too far apart for one stream
            raise EventError(f"{error}") from None
        ahead = self._ahead(usable)
        if not dropped and not ahead.any():
            return Taken(table, places, bad, count)
        timed = usable.column("__place").to_numpy()
        untimed = np.setdiff1d(np.arange(table.num_rows), timed)
        why = "it has no usable time: missing, not a number, or it ends before it starts"
        bad += [Bad(places[row], why, _shown(table, row)) for row in untimed.tolist()]
        why = (
            f"its time is more than {self.limits.max_ahead:g} seconds ahead of the service's clock"
        )
        bad += [Bad(places[row], why, _shown(table, row)) for row in timed[ahead].tolist()]
        left = usable.drop_columns(["__place"]).filter(pa.array(~ahead))
        return Taken(left, [places[row] for row in timed[~ahead].tolist()], bad, count)

    def _ahead(self, events: pa.Table) -> Bools:
        """Which events are too far ahead of the clock: one would make all others late.

        Numbers have no clock that they could be compared with.
        """
        if not self.columns.calendar or not events.num_rows:
            return np.zeros(events.num_rows, np.bool_)
        found: Bools = self.columns.seconds(events) > self.clock() + self.limits.max_ahead
        return found

    # ---------------------------------------------------------------------------- rows

    def _rows(self, rows: list[Any], refused: list[Bad]) -> Taken:
        """Rows as a table. One that does not fit is put aside with the reason."""
        count = len(rows)
        bad = list(refused)
        gone = {one.place for one in bad}
        places = [place for place in range(count) if place not in gone]
        fitting = [self._with_times(rows[place]) for place in places]
        try:
            table = self.columns.reader.read(fitting, drop=False).events
        except EventError:
            kept_places, kept = [], []
            for place, row in zip(places, fitting, strict=True):
                try:
                    self.columns.reader.read([row], drop=False)
                except EventError as error:
                    shown = orjson.dumps(rows[place], default=str, option=orjson.OPT_NON_STR_KEYS)
                    bad.append(Bad(place, _reason(error), shown.decode()[:_SHOWN]))
                else:
                    kept_places.append(place)
                    kept.append(row)
            places, fitting = kept_places, kept
            table = self.columns.reader.read(fitting, drop=False).events
        return self._timed(table, places, bad, count)

    def _with_times(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """JSON has no timestamps: texts in ISO form and seconds since 1970 are read as such."""
        if not self._times:
            return row
        found = dict(row)
        for name, type in self._times.items():
            value = found.get(name)
            if isinstance(value, str):
                found[name] = _moment(value, type)
            elif isinstance(value, float) and pa.types.is_timestamp(type):
                found[name] = _seconds(value, type)
        return found


def _moment(text: str, type: pa.DataType) -> Any:
    try:
        if pa.types.is_date(type):
            return date.fromisoformat(text)
        found = datetime.fromisoformat(text)
    except ValueError:
        return text  # refused where the row is read, with its name
    if type.tz is None:
        return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _seconds(value: float, type: pa.DataType) -> Any:
    try:
        found = datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return value
    return found if type.tz else found.replace(tzinfo=None)


def _json(data: bytes, *, lines: bool) -> tuple[list[Any], list[Bad]]:
    """The events of a body; a line that is no JSON object is bad, the others are not."""
    if not lines:
        try:
            read = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise EventError(f"the events are not JSON: {error}") from None
        rows = read if isinstance(read, list) else [read]
        return rows, _no_objects(rows)
    texts = [line for line in data.split(b"\n") if line.strip()]
    rows, bad = [], []
    for place, text in enumerate(texts):
        try:
            rows.append(orjson.loads(text))
        except orjson.JSONDecodeError as error:
            rows.append(None)
            bad.append(Bad(place, f"it is no JSON: {error}", shown_text(text)))
    known = {one.place for one in bad}
    return rows, bad + [one for one in _no_objects(rows) if one.place not in known]


def _no_objects(rows: list[Any]) -> list[Bad]:
    why = 'it is not a JSON object, as in {"id": 17, ...}'
    return [
        Bad(place, why, orjson.dumps(row).decode()[:_SHOWN])
        for place, row in enumerate(rows)
        if not isinstance(row, dict)
    ]


def _shown(table: pa.Table, row: int) -> str:
    """An event of a table as a text."""
    one = table.slice(row, 1)
    try:
        event = one.to_pylist()[0]
    except (ValueError, OverflowError):  # Python's years end with 9999, Arrow's do not
        event = {name: str(one.column(name).cast(pa.string())[0]) for name in one.column_names}
    shown = orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS)
    return shown.decode()[:_SHOWN]


def shown_text(data: bytes) -> str:
    """The beginning of what could not be read."""
    return data.decode("utf-8", "replace")[:_SHOWN]


def _reason(error: EventError) -> str:
    return str(error).partition("\n")[0]
