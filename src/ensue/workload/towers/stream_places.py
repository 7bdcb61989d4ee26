"""Places of events in a stream that nobody sees as a whole.

Where a tower's key changes, its events come together from many lanes. What tells their order is
their key: (end, start, order columns, arrival), written as bytes that compare as the events do. A
matcher wants numbers instead: each key gets one when it is first seen, between those of its
neighbours.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.distinct import distinct
from ensue.columns.stream import Shape
from ensue.columns.values import from_arrow

Keys = npt.NDArray[np.bytes_]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

GAP = 1 << 20  # between the numbers of neighbours: room for keys that are seen later


class Places:
    """Numbers for keys: less for earlier ones, the same for the same key.

    >>> places = Places()
    >>> first = places.of(np.array([b"b", b"d"]))
    >>> later = places.of(np.array([b"c", b"d", b"e"]))
    >>> bool(first[0] < later[0] < later[1] < later[2]), bool(later[1] == first[1])
    (True, True)
    >>> places.keys(later[:2]).tolist()
    [b'c', b'd']
    """

    def __init__(self, known: Keys | None = None, numbers: Ints | None = None) -> None:
        self.known = np.zeros(0, "S1") if known is None else known
        self.numbers = np.zeros(0, np.int64) if numbers is None else numbers

    def of(self, keys: Keys) -> Ints:
        """The numbers of keys; those that were not seen before get one."""
        found = keys if _ascending(keys) else distinct(keys)
        at = np.searchsorted(self.known, found)
        inside = at < len(self.known)
        fresh = ~inside
        fresh[inside] = self.known[at[inside]] != found[inside]
        if fresh.any():
            self._insert(found[fresh], at[fresh])
        return self.numbers[np.searchsorted(self.known, keys)]

    def _insert(self, keys: Keys, at: npt.NDArray[np.intp]) -> None:
        """Takes in keys, in their order, each in front of the known one at its place."""
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
        # Without room left keys share a number, but not with one that was given at the end
        crowded = np.where(
            high - low > 1, np.minimum(low + nth, high - 1), np.where(low % GAP, low, high)
        )
        given = np.where(step > 0, low + step * nth, crowded)
        self.known = np.insert(self.known.astype(_wider(self.known, keys)), at, keys)
        self.numbers = np.insert(self.numbers, at, given)

    def keys(self, numbers: Ints) -> Keys:
        """The keys that have these numbers."""
        return self.known[np.searchsorted(self.numbers, numbers)]

    def forget(self, before: bytes) -> None:
        """Lets go of keys that are less than one."""
        kept = int(np.searchsorted(self.known, np.bytes_(before)))
        if 2 * kept > len(self.known):
            self.known, self.numbers = self.known[kept:].copy(), self.numbers[kept:].copy()


def _ascending(keys: Keys) -> bool:
    return bool((keys[1:] > keys[:-1]).all())


def _wider(one: Keys, other: Keys) -> np.dtype[np.bytes_]:
    return max(one.dtype, other.dtype, key=lambda dtype: dtype.itemsize)


# ------------------------------------------------------------------------------------- keys


def keys_of(events: pa.Table, shape: Shape, arrival: Sequence[str]) -> Keys:
    """The key of each event: equal bytes for equal places, less for earlier ones."""
    schema = shape.schema
    times = [_of_numbers(_values(events, n, shape)) for n in (schema.end, schema.start)]
    ties = [_of_column(events, name, shape) for name in schema.order]
    rest = [_of_numbers(_values(events, name, shape)) for name in arrival]
    parts = [*times, *ties, *rest]
    if not events.num_rows:
        return np.zeros(0, "S1")
    plain = [part for part in parts if isinstance(part, np.ndarray)]
    if len(plain) == len(parts):
        whole = np.ascontiguousarray(np.concatenate(plain, axis=1))
        return whole.view(f"S{whole.shape[1]}").reshape(-1)
    rows = zip(*(map(bytes, part) for part in parts), strict=True)
    return np.array([b"".join(row) for row in rows])


def first_keys(events: pa.Table, keys: Keys, shape: Shape) -> Keys:
    """Where events that last begin among the others: behind those that end by then."""
    starts = _of_numbers(_values(events, shape.schema.start, shape))
    behind = np.full((len(starts), 9), 0xFF, np.uint8)
    begun = np.concatenate([starts, behind], axis=1).view("S17").reshape(-1)
    return np.where(begun < keys, begun, keys)


def key_before(time: float) -> bytes:
    """What is not greater than the key of any event that ends at a time or later."""
    return bytes(_of_numbers(np.array([time]))[0])


def in_arrow(keys: Keys) -> pa.Array:
    """Keys as a column."""
    width = keys.dtype.itemsize
    buffer = pa.py_buffer(np.ascontiguousarray(keys))
    fixed = pa.Array.from_buffers(pa.binary(width), len(keys), [None, buffer])
    return fixed.cast(pa.binary())


def keys_in(events: pa.Table, name: str) -> Keys:
    """Keys out of a column."""
    return np.array(events.column(name).to_pylist() or [], "S")


def _values(events: pa.Table, name: str, shape: Shape) -> npt.NDArray[np.generic]:
    return np.asarray(from_arrow(events.column(name), shape.unit, name).values)


def _of_column(events: pa.Table, name: str, shape: Shape) -> Bytes | list[bytes]:
    """An order column: what is not known comes last."""
    column = events.column(name)
    values = from_arrow(column, shape.unit, name).values
    if isinstance(values, np.ndarray):
        absent = column.is_null().to_numpy()
        numbers = np.where(absent[:, None], np.uint8(0), _of_numbers(values))
        return np.concatenate([absent[:, None].astype(np.uint8), numbers], axis=1)
    return [_of_text(value) for value in column.to_pylist()]


def _of_text(value: str | bytes | None) -> bytes:
    """A text with an end that is less than any further letter."""
    if value is None:
        return b"\x01"
    data = value.encode() if isinstance(value, str) else bytes(value)
    return b"\x00" + data.replace(b"\x00", b"\x00\x01") + b"\x00\x00"


def _of_numbers(values: npt.NDArray[np.generic]) -> Bytes:
    """Numbers as eight bytes that compare like them; NaN comes last."""
    if values.dtype.kind == "f":
        exact = np.where(values == 0, 0.0, values).astype(np.float64)  # -0.0 equals 0.0
        bits = exact.view(np.int64)
        bits = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
        bits = np.where(np.isnan(exact), np.int64(2**63 - 1), bits)
    else:
        bits = values.astype(np.int64)
    flipped = (bits.view(np.uint64) ^ np.uint64(1 << 63)).astype(">u8")
    return flipped.view(np.uint8).reshape(-1, 8)
