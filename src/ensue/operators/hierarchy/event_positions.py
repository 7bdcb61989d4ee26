"""Keys of events that compare in stream order, and numbers for them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.vector.arrow_numpy import sorted_unique
from ensue.vector.column_values import from_arrow
from ensue.vector.event_table import StreamSchema

Keys = npt.NDArray[np.bytes_]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

GAP = 1 << 20  # between neighbouring numbers, for keys that arrive later


class KeyNumbers:
    """Assigns ascending numbers to ascending keys, the same number to the same key."""

    def __init__(self, known: Keys | None = None, numbers: Ints | None = None) -> None:
        self.known = np.zeros(0, "S1") if known is None else known
        self.numbers = np.zeros(0, np.int64) if numbers is None else numbers

    def get_numbers(self, keys: Keys) -> Ints:
        """Returns the numbers of keys, and assigns numbers to new ones."""
        ascending = keys if _is_ascending(keys) else sorted_unique(keys)
        at = np.searchsorted(self.known, ascending)
        inside = at < len(self.known)
        fresh = ~inside
        fresh[inside] = self.known[at[inside]] != ascending[inside]
        if fresh.any():
            self._insert(ascending[fresh], at[fresh])
        return self.numbers[np.searchsorted(self.known, keys)]

    def _insert(self, keys: Keys, at: npt.NDArray[np.intp]) -> None:
        """Inserts ascending keys, each before the known key at its position."""
        starts = np.flatnonzero(np.concatenate([[True], at[1:] != at[:-1]]))
        sizes = np.diff(np.append(starts, len(at)))
        gaps, count = at[starts], len(self.numbers)
        low = high = np.zeros(len(gaps), np.int64)
        if count:
            low = self.numbers[np.maximum(gaps - 1, 0)]
            high = self.numbers[np.minimum(gaps, count - 1)]
        room = GAP * (sizes + 1)
        low = np.where((gaps == 0) & (gaps < count), high - room, low)
        high = np.where(gaps == count, low + room, high)
        owner = np.repeat(np.arange(len(gaps)), sizes)
        nth = np.arange(len(at)) - np.repeat(starts, sizes) + 1
        low, high, sizes = low[owner], high[owner], sizes[owner]
        step = (high - low) // (sizes + 1)
        # without a gap keys share a number, but never one that was assigned at the end
        shared = np.where(low % GAP, low, high)
        crowded = np.where(high - low > 1, np.minimum(low + nth, high - 1), shared)
        assigned = np.where(step > 0, low + step * nth, crowded)
        wider = max(self.known.dtype, keys.dtype, key=lambda dtype: dtype.itemsize)
        self.known = np.insert(self.known.astype(wider), at, keys)
        self.numbers = np.insert(self.numbers, at, assigned)

    def keys(self, numbers: Ints) -> Keys:
        return self.known[np.searchsorted(self.numbers, numbers)]

    def forget(self, before: bytes) -> None:
        """Drops keys that are less than `before`."""
        start = int(np.searchsorted(self.known, np.bytes_(before)))
        if 2 * start > len(self.known):
            self.known, self.numbers = self.known[start:].copy(), self.numbers[start:].copy()


def _is_ascending(keys: Keys) -> bool:
    return bool((keys[1:] > keys[:-1]).all())


def encode_event_keys(events: pa.Table, shape: StreamSchema, arrival: Sequence[str]) -> Keys:
    """Returns the key of each event as bytes that compare in stream order."""
    schema = shape.schema
    parts: list[Bytes | list[bytes]] = [
        *(_encode_numbers(_values(events, name, shape)) for name in (schema.end, schema.start)),
        *(_encode_column(events, name, shape) for name in schema.order),
        *(_encode_numbers(_values(events, name, shape)) for name in arrival),
    ]
    if not events.num_rows:
        return np.zeros(0, "S1")
    plain = [part for part in parts if isinstance(part, np.ndarray)]
    if len(plain) == len(parts):
        joined = np.ascontiguousarray(np.concatenate(plain, axis=1))
        return joined.view(f"S{joined.shape[1]}").reshape(-1)
    rows = zip(*(map(bytes, part) for part in parts), strict=True)
    return np.array([b"".join(row) for row in rows])


def encode_start_keys(events: pa.Table, keys: Keys, shape: StreamSchema) -> Keys:
    """Returns the key at which events with a duration start: after those that end by then."""
    starts = _encode_numbers(_values(events, shape.schema.start, shape))
    suffix = np.full((len(starts), 9), 0xFF, np.uint8)
    start_keys = np.concatenate([starts, suffix], axis=1).view("S17").reshape(-1)
    return np.where(start_keys < keys, start_keys, keys)


def encode_time_bound(time: float) -> bytes:
    """Returns a lower bound of the keys of events that end at a time or later."""
    return bytes(_encode_numbers(np.array([time]))[0])


def keys_to_arrow(keys: Keys) -> pa.Array:
    buffer = pa.py_buffer(np.ascontiguousarray(keys))
    fixed = pa.Array.from_buffers(pa.binary(keys.dtype.itemsize), len(keys), [None, buffer])
    return fixed.cast(pa.binary())


def read_keys(events: pa.Table, name: str) -> Keys:
    return np.array(events.column(name).to_pylist() or [], "S")


def _values(events: pa.Table, name: str, shape: StreamSchema) -> npt.NDArray[np.generic]:
    return np.asarray(from_arrow(events.column(name), shape.unit, name).values)


def _encode_column(events: pa.Table, name: str, shape: StreamSchema) -> Bytes | list[bytes]:
    """Encodes an order column; NULL is last."""
    column = events.column(name)
    values = from_arrow(column, shape.unit, name).values
    if isinstance(values, np.ndarray):
        absent = column.is_null().to_numpy()
        numbers = np.where(absent[:, None], np.uint8(0), _encode_numbers(values))
        return np.concatenate([absent[:, None].astype(np.uint8), numbers], axis=1)
    return [_encode_text(value) for value in column.to_pylist()]


def _encode_text(value: str | bytes | None) -> bytes:
    """Encodes a text with a terminator that is less than any further letter."""
    if value is None:
        return b"\x01"
    data = value.encode() if isinstance(value, str) else bytes(value)
    return b"\x00" + data.replace(b"\x00", b"\x00\x01") + b"\x00\x00"


def _encode_numbers(values: npt.NDArray[np.generic]) -> Bytes:
    """Encodes numbers as eight bytes that compare like them; NaN is last."""
    if values.dtype.kind == "f":
        exact = np.where(values == 0, 0.0, values).astype(np.float64)  # -0.0 equals 0.0
        bits = exact.view(np.int64)
        bits = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
        bits = np.where(np.isnan(exact), np.int64(2**63 - 1), bits)
    else:
        bits = values.astype(np.int64)
    flipped = (bits.view(np.uint64) ^ np.uint64(1 << 63)).astype(">u8")
    return flipped.view(np.uint8).reshape(-1, 8)
