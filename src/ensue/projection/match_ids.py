"""Stable ids of matches: a hash of the query and of the content of the events."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from ensue.ir.hierarchy import FIRST_POSITION, LAST_POSITION
from ensue.kernels import hashing
from ensue.kernels.sorting import stable_order
from ensue.schema import ValueKind
from ensue.vector.arrow_numpy import (
    Bools,
    Ints,
    as_read_only,
    booleans,
    decode_text,
    floats,
    get_indices,
    get_raw_values,
    integers,
    sorted_unique,
    text_parts,
    to_kernel_validity,
    to_single_array,
    to_ticks,
    validity,
)
from ensue.vector.arrow_types import Unit, kind_of_arrow, time_unit
from ensue.vector.column_values import format_decimals, format_nested, from_arrow
from ensue.vector.match_rows import Matches
from ensue.vector.take import take_values

Words = npt.NDArray[np.uint64]
Pair = tuple[Words, Words]
ColumnsOf = Mapping[str, Sequence[tuple[str, str]]]  # variable -> (field, column of the events)

DIGITS = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8)
ORDINAL = "__ordinal"  # the column of duplicate events' numbers, if they are known
_BLOCK = 1 << 15  # values hashed at once, so that they fit into the processor's cache
_MOST = (2**31 - 1) // 32  # ids whose offsets fit into 32 bits


def compute_match_ids(
    query_fingerprint: bytes,
    matches: Matches,
    events: pa.Table,
    columns_of: ColumnsOf,
    end: str,
    hashes: "RowHashes | None" = None,
) -> pa.Array:
    """A string of 32 hexadecimal digits for each match.

    It depends on the query and, for each variable, on the content of its events, not on their
    Arrow encoding. `events` is sorted by its column `end`, so duplicates are close.
    """
    if matches.count > _MOST:
        raise pa.ArrowCapacityError("more ids than one array of strings can hold")
    first, second = compute_salts(query_fingerprint)
    high, low = np.full(matches.count, first), np.full(matches.count, second)
    hashed: dict[tuple[tuple[str, str], ...], HashedRows] = {}
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for variable in matches.variables:
        groups.setdefault(tuple(columns_of[variable]), []).append(variable)
    for columns, variables in groups.items():
        if hashes is not None:
            hashed[columns] = hashes.get_hashes(columns)
            continue
        rows = [matches.elements(v) for v in variables]
        hashed[columns] = _event_hashes(events, columns, rows, end)
    for variable in sorted(matches.variables):
        some = hashed[tuple(columns_of[variable])]
        salt, _ = compute_salts(variable.encode())
        if variable in matches.lists:
            offsets, members = matches.lists[variable]
            found = as_read_only(offsets), some.places(members)
            hashing.fold_lists(*found, some.high, some.low, salt, high, low)
        else:
            places = some.places(matches.rows[variable])
            hashing.fold_rows(places, some.high, some.low, salt, high, low)
    return format_hashes(high, low)


def compute_subscription_ids(
    identities: Sequence[bytes],
    which: Ints,
    times: Sequence[Ints],
    matches: Matches,
    events: pa.Table,
    columns: Sequence[tuple[str, str]],
    end: str,
) -> pa.Array:
    """The ids of matches of the subscriptions `identities[which]`.

    `times` are start and end as 64-bit words that do not depend on their Arrow encoding.
    """
    pairs = [compute_salts(identity) for identity in identities]
    high = np.array([first for first, _ in pairs], np.uint64)[which]
    low = np.array([second for _, second in pairs], np.uint64)[which]
    for word in times:
        time_high, time_low = hash_words(word)
        every = np.arange(len(which))
        hashing.fold_rows(every, time_high, time_low, np.uint64(1), high, low)
    (variable,) = matches.variables
    offsets, members = matches.lists[variable]
    some = _event_hashes(events, columns, [members], end)
    found = as_read_only(offsets), some.places(members)
    hashing.fold_lists(*found, some.high, some.low, np.uint64(2), high, low)
    return format_hashes(high, low)


def format_hashes(high: Words, low: Words) -> pa.Array:
    """Hashes as texts of 32 hexadecimal digits."""
    if len(high) > _MOST:
        raise pa.ArrowCapacityError("more ids than one array of strings can hold")
    data = hashing.format_hex(high, low, DIGITS)
    places = np.arange(0, 32 * len(high) + 1, 32, dtype=np.int32)
    buffers = [None, pa.py_buffer(places), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(high), buffers)


@dataclass(frozen=True, slots=True, eq=False)
class HashedRows:
    """The hashes of some rows of a table, or of all."""

    high: Words
    low: Words
    at: npt.NDArray[np.int32] | None = None  # by row: index of its hash; None: the row itself

    def places(self, rows: Ints) -> Ints:
        """The indices of the hashes of rows; -1 stays -1."""
        if self.at is None:
            return as_read_only(rows)
        return as_read_only(self.at[rows].astype(np.int64))


class RowHashes:
    """The hashes of all rows of a table with ordinals, or of some in stream order, shared by several results.

    `times` are those of `rows`, which include all rows of the same content.
    """

    def __init__(
        self, events: pa.Table, end: str, rows: Ints | None = None, times: npt.NDArray[np.generic] | None = None
    ) -> None:
        self.events = events
        self.end = end
        self._rows, self._times = rows, times
        self._found: dict[tuple[tuple[str, str], ...], HashedRows] = {}

    def get_hashes(self, columns: tuple[tuple[str, str], ...]) -> HashedRows:
        if columns not in self._found and self._rows is not None:
            assert self._times is not None
            self._found[columns] = HashedRows(*_hash_in_order(self.events, columns, self._rows, self._times))
        if columns not in self._found:
            every = np.arange(self.events.num_rows)
            self._found[columns] = _event_hashes(self.events, columns, [every], self.end)
        return self._found[columns]


def _hash_in_order(
    events: pa.Table, columns: Sequence[tuple[str, str]], rows: Ints, times: npt.NDArray[np.generic]
) -> Pair:
    """The hashes of rows of an unsorted table; columns of strings are read from the first row to the last."""
    order = stable_order(as_read_only(rows))
    high, low = np.empty((2, len(rows)), np.uint64)
    high[order], low[order] = hash_rows(events, columns, rows[order])
    twins = find_equal_times(times, np.ones(len(rows), np.bool_))
    if twins.any():
        alike = np.zeros(len(rows), np.int64)
        alike[twins] = hashing.number_duplicates(*hash_content(events, rows[twins]))
        add_ordinals((high, low), alike)
    return high, low


@lru_cache(maxsize=4_096)
def compute_salts(name: bytes) -> tuple[np.uint64, np.uint64]:
    digest = blake2b(name, digest_size=16).digest()
    high, low = np.frombuffer(digest, "<u8")
    return np.uint64(high), np.uint64(low)


def _event_hashes(
    events: pa.Table, columns: Sequence[tuple[str, str]], members: Iterable[Ints], end: str
) -> HashedRows:
    """The hashes of the events in matches; duplicate events are numbered."""
    selected = np.zeros(events.num_rows, np.bool_)
    for rows in members:
        selected[rows] = True
    known = ORDINAL in events.column_names
    twins = None if known else find_equal_times(get_event_times(events, end), selected)
    if twins is None or not twins.any():
        twins = None
    else:
        selected |= twins
    # hashing some rows too many is cheaper than taking rows
    chosen = None if np.count_nonzero(selected) * 3 > 2 * len(selected) else np.flatnonzero(selected)
    some = hash_rows(events, columns, chosen)
    if known:
        alike = integers(to_single_array(events.column(ORDINAL)))
        add_ordinals(some, alike if chosen is None else alike[chosen])
    elif twins is not None:
        within = twins if chosen is None else twins[chosen]
        alike = np.zeros(len(within), np.int64)
        if len(columns) == events.num_columns:
            alike[within] = hashing.number_duplicates(some[0][within], some[1][within])
        else:
            alike[within] = _number_duplicates(events, twins)
        add_ordinals(some, alike)
    if chosen is None:
        return HashedRows(*some)
    # the last one is for -1, an unbound variable
    at = np.full(events.num_rows + 1, -1, np.int32)
    at[chosen] = np.arange(len(chosen), dtype=np.int32)
    return HashedRows(*some, at)


def add_ordinals(hashes: Pair, ordinals: Ints) -> None:
    """Adds the ordinals of duplicate events to their hashes; the first one is 0."""
    later = ordinals > 0
    if later.any():
        high, low = hash_words(ordinals[later])
        hashes[0][later] += high
        hashes[1][later] += low


def number_duplicates(events: pa.Table, selected: Bools, times: npt.NDArray[np.generic]) -> Ints:
    """The ordinals of the selected rows among rows of the same content, 0 for the others.

    `events` is sorted by `times`.

    >>> table = pa.table({"t": [1, 1, 1, 2], "x": ["a", "b", "a", "a"]})
    >>> number_duplicates(table, np.array([False, False, True, True]), get_event_times(table, "t"))
    array([0, 0, 1, 0])
    """
    found = np.zeros(events.num_rows, np.int64)
    if events.num_rows < 2:
        return found
    twins = find_equal_times(times, selected)
    if twins.any():
        found[twins] = _number_duplicates(events, twins)
    found[~selected] = 0
    return found


def _number_duplicates(events: pa.Table, twins: Bools) -> Ints:
    found: Ints = hashing.number_duplicates(*hash_content(events, np.flatnonzero(twins)))
    return found


def hash_content(events: pa.Table, rows: Ints | None = None) -> Pair:
    """The hashes of the content of some rows, or of all."""
    columns = [(name, name) for name in events.column_names if name not in (LAST_POSITION, FIRST_POSITION)]
    return hash_rows(events, columns, np.arange(events.num_rows) if rows is None else rows)


def find_equal_times(times: npt.NDArray[np.generic], selected: Bools) -> Bools:
    """The rows in runs of equal times that contain a selected row.

    >>> find_equal_times(np.array([1, 2, 2, 3, 3]), np.array([True, False, True, False, False]))
    array([False,  True,  True, False, False])
    """
    inside = np.zeros(len(times), np.bool_)
    if not (times[1:] == times[:-1]).any():
        return inside
    rows = np.flatnonzero(selected)
    if not len(rows):
        return inside
    same = (rows > 0) & (times[rows - 1] == times[rows])
    after = np.minimum(rows + 1, len(times) - 1)
    same |= (after > rows) & (times[after] == times[rows])
    tied = sorted_unique(times[rows[same]])
    begin = np.searchsorted(times, tied, side="left")
    length = np.searchsorted(times, tied, side="right") - begin
    shift = np.repeat(begin - (np.cumsum(length) - length), length)
    inside[shift + np.arange(len(shift))] = True
    return inside


def get_event_times(events: pa.Table, end: str, unit: Unit | None = None) -> npt.NDArray[np.generic]:
    """The times by which events are sorted; without a unit they may be in that of their column."""
    column = events.column(end)
    if unit is None and types.is_timestamp(column.type) and not column.null_count:
        return get_raw_values(to_single_array(column), np.int64)
    return np.asarray(from_arrow(column, unit or time_unit(events.schema), end).values)


def hash_rows(events: pa.Table, columns: Sequence[tuple[str, str]], rows: Ints | None = None) -> Pair:
    """128-bit hashes of the content of some rows or of all; the order of columns does not matter.

    >>> one = pa.table({"id": pa.array([1, 2], pa.int8()), "x": [None, None]})
    >>> other = pa.table({"id": [2]})
    >>> a = hash_rows(one, [("id", "id"), ("x", "x")], np.array([1]))
    >>> a == hash_rows(other, [("id", "id")], np.array([0]))
    True
    """
    count = events.num_rows if rows is None else len(rows)
    high, low = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    for field, column in columns:
        array = to_single_array(events.column(column))
        some = valid = None
        if rows is not None and count != len(array):
            if types.is_string(array.type):  # hashed where they are
                some, known = rows, validity(array)
                valid = None if known is None else known[rows]
            else:
                array = to_single_array(take_values(array, rows))
        kind, own = _compute_column_salts(array.type, field)
        if kind is ValueKind.NULL:
            continue
        if types.is_dictionary(array.type) and 0 < len(array.dictionary) <= count and array.null_count == 0:
            _add_entries(array, kind, own, high, low)
            continue
        for begin in range(0, count, _BLOCK):
            totals, part = (high[begin:], low[begin:]), slice(begin, begin + _BLOCK)
            if some is None:
                _add(array if count <= _BLOCK else array.slice(begin, _BLOCK), kind, own, *totals)
            else:
                bound = to_kernel_validity(None if valid is None else valid[part])
                hashing.add_column(*_hash_texts(array, some[part]), bound, *own, *totals)
    return high, low


@lru_cache(maxsize=4_096)
def _compute_column_salts(type: pa.DataType, field: str) -> tuple[ValueKind, tuple[np.uint64, np.uint64]]:
    """The kind of a column, and the salts of its hashes."""
    kind = kind_of_arrow(type)
    return kind, compute_salts(f"{_FAMILY.get(kind, kind.value)}\0{field}".encode())


def hash_column(column: pa.Array | pa.ChunkedArray) -> Words:
    """64-bit hashes of values; equal values have equal ones.

    >>> one, _, other = hash_column(pa.array(["x", "y", "x"])).tolist()
    >>> one == other
    True
    """
    array = to_single_array(column)
    return _hashes(array, kind_of_arrow(array.type))[0]


def _add(array: pa.Array, kind: ValueKind, own: tuple[np.uint64, np.uint64], high: Words, low: Words) -> None:
    """Adds some values of a column to the hashes of their rows."""
    valid, words = to_kernel_validity(validity(array)), _words(array, kind)
    if words is not None:
        hashing.add_words(as_read_only(words), valid, *own, high, low)
    else:
        hashing.add_column(*_hashes(array, kind), valid, *own, high, low)


def _add_entries(array: pa.Array, kind: ValueKind, own: tuple[np.uint64, np.uint64], high: Words, low: Words) -> None:
    """Adds the values of a dictionary to the hashes of their rows; each entry is hashed once."""
    entries = np.zeros((2, len(array.dictionary)), np.uint64)
    _add(array.dictionary, kind, own, *entries)
    places = get_indices(array)
    for begin in range(0, len(places), _BLOCK):
        part = slice(begin, begin + _BLOCK)
        high[part] += entries[0].take(places[part])
        low[part] += entries[1].take(places[part])


_FAMILY = {ValueKind.DATE: "timestamp"}  # equal dates and timestamps have equal hashes


def _hashes(array: pa.Array, kind: ValueKind) -> Pair:
    """The hashes of values, after normalization."""
    if types.is_dictionary(array.type):
        if not len(array.dictionary):
            return np.zeros(len(array), np.uint64), np.zeros(len(array), np.uint64)
        high, low = _hashes(array.dictionary, kind)
        places = get_indices(array)
        return high[places], low[places]
    words = _words(array, kind)
    if words is not None:
        return hash_words(words)
    match kind:
        case ValueKind.STRING:
            return _hash_texts(decode_text(array))
        case ValueKind.DECIMAL:
            return _hash_texts(format_decimals(array))
        case ValueKind.OTHER | ValueKind.PLACE:
            return _hash_texts(format_nested(array))
        case _:
            return np.zeros(len(array), np.uint64), np.zeros(len(array), np.uint64)


def _words(array: pa.Array, kind: ValueKind) -> Ints | None:
    """Values as 64-bit words; None: their kind does not fit."""
    if types.is_dictionary(array.type):
        return None
    match kind:
        case ValueKind.INTEGER:
            return integers(array)
        case ValueKind.FLOAT:
            values = floats(array) + 0.0  # -0.0 becomes 0.0
            values[np.isnan(values)] = np.nan  # one bit pattern for all NaN
            return values.view(np.int64)
        case ValueKind.BOOLEAN:
            return booleans(array).astype(np.int64)
        case ValueKind.TIMESTAMP | ValueKind.DATE | ValueKind.DURATION:
            return to_ticks(array, "ns")
        case _:
            return None


def hash_words(words: Ints) -> Pair:
    high, low = np.empty(len(words), np.uint64), np.empty(len(words), np.uint64)
    hashing.hash_words(as_read_only(words), high, low)
    return high, low


def _hash_texts(texts: pa.Array, rows: Ints = hashing.EVERY_ROW) -> Pair:
    high, low = np.empty((2, len(rows) or len(texts)), np.uint64)
    offsets, data = text_parts(texts)
    hashing.hash_texts(as_read_only(offsets), as_read_only(data), as_read_only(rows), high, low)
    return high, low
