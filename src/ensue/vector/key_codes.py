"""Dense codes for key values, stable across batches."""

import io
import math
import struct
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ensue.errors import StateError
from ensue.kernels import hashing
from ensue.schema import ValueKind
from ensue.vector.arrow_numpy import (
    Bools,
    Floats,
    Ints,
    as_read_only,
    booleans,
    build_texts,
    decode_text,
    exceeds_64_bits,
    floats,
    get_indices,
    get_raw_values,
    get_time_counts,
    get_unscaled,
    integers,
    text_parts,
    to_kernel_validity,
    to_single_array,
    to_ticks,
    validity,
)
from ensue.vector.arrow_types import kind_of_arrow
from ensue.vector.column_values import format_decimals, format_nested
from ensue.vector.take import take_values

Codes = npt.NDArray[np.int32]
Offsets: TypeAlias = npt.NDArray[np.integer]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_FIRST_SLOTS = 1 << 10
_FIRST_BYTES = 1 << 14
_BLOCK = 1 << 14  # strings hashed at a time
_FEW, _MANY = (
    64,
    1 << 18,
)  # numbers of strings between which Arrow finds the distinct ones while kernels are interpreted
_USED, _NEXT, _ENTRIES, _BYTES = range(4)  # indices into a table's state


class Counter:
    """The next free code, shared by the tables of a column."""

    def __init__(self) -> None:
        self.next = 0


class IntegerCodes:
    """Codes of 64-bit integers.

    >>> IntegerCodes(Counter()).encode(np.array([7, 9, 7]), None).tolist()
    [0, 1, 0]
    """

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._state = np.zeros(4, np.int64)
        self._keys = np.zeros(_FIRST_SLOTS, np.int64)
        self._codes = np.full(_FIRST_SLOTS, -1, np.int32)

    def encode(self, keys: Ints, valid: Bools | None) -> Codes:
        """The code of each integer, -1 for invalid ones."""
        keys, known = as_read_only(keys), to_kernel_validity(valid)
        out = np.empty(len(keys), np.int32)
        state = self._state
        state[_NEXT] = self._counter.next
        done = 0
        while True:
            done = hashing.encode_integers(keys, known, self._keys, self._codes, state, out, done)
            if done == len(keys):
                break
            self._grow(2 * len(self._keys))
        self._counter.next = int(state[_NEXT])
        return out

    def _grow(self, size: int) -> None:
        keys, codes = np.zeros(size, np.int64), np.full(size, -1, np.int32)
        hashing.insert_integers(self._keys, self._codes, keys, codes)
        self._keys, self._codes = keys, codes

    def items(self) -> tuple[Ints, Codes]:
        """The known integers and their codes."""
        used = self._codes >= 0
        keys, codes = self._keys[used], self._codes[used]
        order = np.argsort(codes)
        return keys[order], codes[order]

    def restore(self, keys: Ints, codes: Codes) -> None:
        """Load what `items` returned into an empty table."""
        size = _slots_for(len(keys))
        self._keys, self._codes = np.zeros(size, np.int64), np.full(size, -1, np.int32)
        hashing.insert_integers(as_read_only(keys), as_read_only(codes), self._keys, self._codes)
        self._state[_USED] = len(keys)

    def keep(self, moved: Codes) -> None:
        """Renumber codes by `moved`; -1 removes an integer."""
        keys, codes = self.items()
        codes = moved[codes]
        self.restore(keys[codes >= 0], codes[codes >= 0])

    @property
    def nbytes(self) -> int:
        """The size of what `items` returns."""
        return int(self._state[_USED]) * 12


class TextCodes:
    """Codes of strings, read from Arrow's buffers.

    >>> data = np.frombuffer(b"abcab", np.uint8)
    >>> TextCodes(Counter()).encode(np.array([0, 2, 3, 5]), data, None).tolist()
    [0, 1, 0]
    """

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._state = np.zeros(4, np.int64)
        self._slots = np.zeros(_FIRST_SLOTS, np.uint64)
        self._offsets = np.zeros(_FIRST_SLOTS // 2 + 1, np.int64)
        self._codes = np.zeros(_FIRST_SLOTS // 2, np.int32)
        self._data = np.zeros(_FIRST_BYTES, np.uint8)

    def encode(self, offsets: Offsets, data: Bytes, valid: Bools | None, rows: Ints | None = None) -> Codes:
        """The code of each string, or of those in some rows, -1 for invalid ones."""
        offsets, data = as_read_only(offsets), as_read_only(data)
        known, every = to_kernel_validity(valid), rows is None
        count = len(offsets) - 1 if rows is None else len(rows)
        rows = hashing.EVERY_ROW if rows is None else as_read_only(rows)
        hashes, spare = np.empty((2, min(count, _BLOCK)), np.uint64)
        out = np.empty(count, np.int32)
        self._state[_NEXT] = self._counter.next
        for begin in range(0, count, _BLOCK):
            block = offsets[begin : begin + _BLOCK + 1] if every else offsets
            some = rows[begin : begin + _BLOCK]
            hashing.hash_texts(block, data, some, hashes, spare)
            own = known[begin:] if every else known
            self._encode_some(hashes, block, data, some, own, out[begin : begin + _BLOCK])
        self._counter.next = int(self._state[_NEXT])
        return out

    def _encode_some(
        self, hashes: npt.NDArray[np.uint64], offsets: Offsets, data: Bytes, rows: Ints, known: Bools, out: Codes
    ) -> None:
        done = 0
        while True:
            done = hashing.encode_texts(
                hashes, offsets, data, rows, known, self._slots, self._offsets, self._data, self._codes,
                self._state, out, done,
            )  # fmt: skip
            if done == len(out):
                return
            row = int(rows[done]) if len(rows) else done
            self._grow(int(offsets[row + 1] - offsets[row]))

    def _grow(self, length: int) -> None:
        """Grow for one more string of this length."""
        entries, used = int(self._state[_ENTRIES]), int(self._state[_BYTES])
        if used + length > len(self._data):
            data = np.zeros(max(2 * len(self._data), used + length), np.uint8)
            data[:used] = self._data[:used]
            self._data = data
        if 2 * (entries + 1) > len(self._slots):
            size = 2 * len(self._slots)
            offsets, codes = np.zeros(size // 2 + 1, np.int64), np.zeros(size // 2, np.int32)
            offsets[: entries + 1] = self._offsets[: entries + 1]
            codes[:entries] = self._codes[:entries]
            self._offsets, self._codes = offsets, codes
            self._place(size)

    def _place(self, size: int) -> None:
        hashes, spare = np.empty((2, int(self._state[_ENTRIES])), np.uint64)
        offsets, data = as_read_only(self._offsets[: len(hashes) + 1]), as_read_only(self._data)
        hashing.hash_texts(offsets, data, hashing.EVERY_ROW, hashes, spare)
        self._slots = np.zeros(size, np.uint64)
        hashing.insert_texts(hashes, self._slots)

    def items(self) -> tuple[Ints, npt.NDArray[np.uint8], Codes]:
        """The known strings (offsets and bytes) and their codes."""
        entries, used = int(self._state[_ENTRIES]), int(self._state[_BYTES])
        return self._offsets[: entries + 1], self._data[:used], self._codes[:entries]

    def restore(self, offsets: Ints, data: npt.NDArray[np.uint8], codes: Codes) -> None:
        """Load what `items` returned into an empty table."""
        entries = len(codes)
        size = _slots_for(entries)
        self._offsets = np.zeros(size // 2 + 1, np.int64)
        self._codes = np.zeros(size // 2, np.int32)
        self._data = np.zeros(max(_FIRST_BYTES, len(data)), np.uint8)
        self._offsets[: entries + 1] = offsets
        self._codes[:entries] = codes
        self._data[: len(data)] = data
        self._state[:] = (entries, 0, entries, len(data))
        self._place(size)

    def keep(self, moved: Codes) -> None:
        """Renumber codes by `moved`; -1 removes a string."""
        offsets, data, codes = self.items()
        kept = hashing.compact_texts(offsets, data, codes, moved)
        self.restore(offsets[: kept + 1], data[: offsets[kept]], codes[:kept])

    @property
    def nbytes(self) -> int:
        """The size of what `items` returns."""
        return int(self._state[_ENTRIES]) * 12 + int(self._state[_BYTES])


def _slots_for(entries: int) -> int:
    """The least power of two that keeps the table at most half full."""
    return max(_FIRST_SLOTS, 1 << (2 * entries).bit_length())


# ---------------------------------------------------------------------------- columns and keys

_VERSION = 1
_MAGIC = b"ensue keys"


class ColumnCodes:
    """Codes of the values of one column; the same value has the same code in every batch.

    Numbers are equal regardless of type and width, times regardless of unit. NULL and NaN, which
    equal nothing, are -1.

    >>> codes = ColumnCodes()
    >>> codes.encode(pa.array(["x", None, "y"])).tolist(), codes.encode(pa.array(["y"])).tolist()
    ([0, -1, 1], [1])
    """

    def __init__(self) -> None:
        self._counter = Counter()
        self._integers: dict[str, IntegerCodes] = {}  # by meaning
        self._texts: dict[str, TextCodes] = {}
        self._dictionary: tuple[pa.Array, Codes] | None = None

    def __len__(self) -> int:
        return self._counter.next

    def encode(self, column: pa.Array | pa.ChunkedArray, rows: Ints | None = None) -> Codes:
        """The code of each value, or of those in some rows."""
        if rows is not None:
            array = to_single_array(column)
            if types.is_dictionary(array.type):
                return self._encode_dictionary(array, rows)
            if types.is_string(array.type) or types.is_large_string(array.type):
                return self._encode_texts("string", array, validity(array), rows)
            column = take_values(array, rows)
        if isinstance(column, pa.ChunkedArray):
            pieces = [self.encode(chunk) for chunk in column.chunks]
            if len(pieces) == 1:
                return pieces[0]
            return np.concatenate(pieces) if pieces else np.empty(0, np.int32)
        array = to_single_array(column)
        if types.is_dictionary(array.type):
            return self._encode_dictionary(array)
        valid = validity(array)
        kind = kind_of_arrow(array.type)
        match kind:
            case ValueKind.STRING:
                return self._encode_texts("string", decode_text(array), valid)
            case ValueKind.INTEGER:
                return self._encode_whole("number", integers(array), valid)
            case ValueKind.FLOAT:
                return self._encode_floats(floats(array), valid)
            case ValueKind.DECIMAL:
                return self._encode_decimals(array, valid)
            case ValueKind.BOOLEAN:
                return self._encode_whole("boolean", booleans(array).astype(np.int64), valid)
            case ValueKind.TIMESTAMP | ValueKind.DATE:
                return self._encode_times("instant", array, valid)
            case ValueKind.DURATION:
                return self._encode_times("duration", array, valid)
            case ValueKind.NULL:
                return np.full(len(array), -1, np.int32)
            case ValueKind.OTHER | ValueKind.PLACE:
                return self._encode_texts("other", format_nested(array), valid)

    def _encode_dictionary(self, array: pa.DictionaryArray, rows: Ints | None = None) -> Codes:
        dictionary = array.dictionary
        if self._dictionary is None or not _same_memory(self._dictionary[0], dictionary):
            self._dictionary = dictionary, self.encode(dictionary)
        known = self._dictionary[1]
        if not len(known):
            return np.full(len(array) if rows is None else len(rows), -1, np.int32)
        indices, valid = get_indices(array), validity(array.indices)
        if rows is not None:
            indices, valid = indices.take(rows, mode="clip"), None if valid is None else valid[rows]
        codes_of_rows = known.take(indices, mode="clip")  # without a check of bounds
        return codes_of_rows if valid is None else np.where(valid, codes_of_rows, np.int32(-1))

    def _encode_whole(self, meaning: str, keys: Ints, valid: Bools | None) -> Codes:
        table = self._integers.setdefault(meaning, IntegerCodes(self._counter))
        return table.encode(keys, valid)

    def _encode_texts(self, meaning: str, texts: pa.Array, valid: Bools | None, rows: Ints | None = None) -> Codes:
        table = self._texts.setdefault(meaning, TextCodes(self._counter))
        interpreted = hashing.encode_texts.is_interpreted
        if interpreted and rows is not None:
            texts, valid, rows = to_single_array(take_values(texts, rows)), None if valid is None else valid[rows], None
        if not (interpreted and _is_quick_to_group(texts)):
            return table.encode(*text_parts(texts), valid, rows)
        entries = texts.dictionary_encode()
        codes = table.encode(*text_parts(entries.dictionary), None)[get_indices(entries)]
        return codes if valid is None else np.where(valid, codes, np.int32(-1))

    def _encode_floats(self, values: Floats, valid: Bools | None) -> Codes:
        """Whole numbers share the codes of integers; others are encoded by their bits."""
        usable = ~np.isnan(values) if valid is None else valid & ~np.isnan(values)
        whole = usable & (np.abs(values) < 2.0**63) & (np.trunc(values) == values)
        out = self._encode_whole("number", np.where(whole, values, 0.0).astype(np.int64), whole)
        fractional = usable & ~whole
        if fractional.any():
            bits = self._encode_whole("fraction", values.view(np.int64), fractional)
            out = np.where(fractional, bits, out)
        return out

    def _encode_decimals(self, array: pa.Array, valid: Bools | None) -> Codes:
        """Whole numbers share the codes of integers; others are encoded by their shortest text."""
        out = np.full(len(array), -1, np.int32)
        rest = np.ones(len(array), np.bool_) if valid is None else valid
        parts = get_unscaled(array)
        if parts is not None and parts[2] <= 18:
            low, narrow, scale = parts
            unit = np.int64(10**scale)
            whole = rest & narrow & (low % unit == 0)
            out = self._encode_whole("number", low // unit, whole)
            rest = rest & ~whole
        if rest.any():
            texts = self._encode_texts("decimal", format_decimals(array), rest)
            out = np.where(rest, texts, out)
        return out

    def _encode_times(self, meaning: str, array: pa.Array, valid: Bools | None) -> Codes:
        """Encode by microseconds; times between two of them, or out of range, by their own unit."""
        if types.is_date(array.type) or array.type.unit != "ns":
            keys, own = to_ticks(array, "us"), get_time_counts(array, "us")[0]
            apart, rest_meaning = exceeds_64_bits(array, "us"), f"{meaning} far away"
        else:
            own = get_raw_values(array, np.int64)
            keys, apart, rest_meaning = own // 1_000, own % 1_000 != 0, f"{meaning} in nanoseconds"
        if valid is not None:
            apart &= valid
        if not apart.any():
            return self._encode_whole(meaning, keys, valid)
        out = self._encode_whole(meaning, keys, ~apart if valid is None else valid & ~apart)
        return np.where(apart, self._encode_whole(rest_meaning, own, apart), out)

    def values(self) -> list[object]:
        """The value of each code: numbers, strings, times as counts of microseconds."""
        values: list[object] = [None] * len(self)
        for meaning, table in self._integers.items():
            keys, at = table.items()
            numbers: npt.NDArray[Any] = keys.view(np.float64) if meaning == "fraction" else keys
            if meaning == "boolean":
                numbers = keys.astype(np.bool_)
            for code, value in zip(at.tolist(), numbers.tolist(), strict=True):
                values[code] = value
        for texts in self._texts.values():
            offsets, data, at = texts.items()
            for k, code in enumerate(at.tolist()):
                values[code] = data[offsets[k] : offsets[k + 1]].tobytes().decode(errors="backslashreplace")
        return values

    @property
    def _tables(self) -> list[IntegerCodes | TextCodes]:
        return [*self._integers.values(), *self._texts.values()]

    def keep(self, alive: Bools) -> Codes:
        """Remove the values of dead codes; return the new code of each old one, or -1."""
        moved = _renumber(alive)
        for table in self._tables:
            table.keep(moved)
        self._counter.next = int(np.count_nonzero(alive))
        self._dictionary = None
        return moved

    @property
    def nbytes(self) -> int:
        """The approximate serialized size."""
        return sum(table.nbytes for table in self._tables)

    def write(self, out: io.BytesIO) -> None:
        """Serialize the values and codes, without the hash slots."""
        _write(out, np.array([len(self), len(self._integers), len(self._texts)], np.int64))
        for meaning, table in self._integers.items():
            _write(out, np.frombuffer(meaning.encode(), np.uint8), *table.items())
        for meaning, texts in self._texts.items():
            _write(out, np.frombuffer(meaning.encode(), np.uint8), *texts.items())

    @classmethod
    def read(cls, saved: io.BytesIO) -> "ColumnCodes":
        column = cls()
        count, wholes, texts = (int(n) for n in _read(saved))
        column._counter.next = count
        for _ in range(wholes):
            meaning = _read(saved).tobytes().decode()
            column._integers[meaning] = IntegerCodes(column._counter)
            column._integers[meaning].restore(_read(saved), _read(saved))
        for _ in range(texts):
            meaning = _read(saved).tobytes().decode()
            column._texts[meaning] = TextCodes(column._counter)
            column._texts[meaning].restore(_read(saved), _read(saved), _read(saved))
        return column


class KeyCodes:
    """Codes of the combined values of one or several columns.

    >>> codes = KeyCodes()
    >>> codes.encode([pa.array([1, 1, 2]), pa.array(["x", "y", "x"])]).tolist()
    [0, 1, 2]
    >>> KeyCodes.restore(codes.snapshot()).encode([pa.array([2]), pa.array(["x"])]).tolist()
    [2]
    """

    def __init__(self) -> None:
        self._columns: list[ColumnCodes] = []
        # a pair of the codes so far and of the next column's code is encoded in turn
        self._pairs: list[IntegerCodes] = []
        self._counters: list[Counter] = []

    def __len__(self) -> int:
        if self._counters:
            return self._counters[-1].next
        return len(self._columns[0]) if self._columns else 0

    @property
    def known(self) -> int:
        """The number of values and combinations with a code."""
        return sum(map(len, self._columns)) + sum(counter.next for counter in self._counters)

    def encode(self, columns: Sequence[pa.Array | pa.ChunkedArray], rows: Ints | None = None) -> Codes:
        """The code of each row, or of some; -1 where a value is NULL or NaN."""
        self._shape(len(columns))
        out = self._columns[0].encode(columns[0], rows)
        for k, column in enumerate(columns[1:]):
            further = self._columns[k + 1].encode(column, rows)
            known = (out >= 0) & (further >= 0)
            pairs = (out.astype(np.int64) << 32) | further
            out = self._pairs[k].encode(pairs, None if known.all() else known)
        return out

    def _shape(self, count: int) -> None:
        if not self._columns:
            self._columns = [ColumnCodes() for _ in range(count)]
            self._counters = [Counter() for _ in range(count - 1)]
            self._pairs = [IntegerCodes(counter) for counter in self._counters]
        if count != len(self._columns):
            raise ValueError(f"{len(self._columns)} key columns so far, now {count}")

    def values(self) -> list[tuple[object, ...]]:
        """The values of each code, one per column."""
        if not self._columns:
            return []
        keys: list[tuple[object, ...]] = [(value,) for value in self._columns[0].values()]
        for column, table in zip(self._columns[1:], self._pairs, strict=True):
            further = column.values()
            pairs, _ = table.items()
            keys = [(*keys[pair >> 32], further[pair & 0xFFFFFFFF]) for pair in pairs.tolist()]
        return keys

    def keep(self, alive: Bools) -> Codes:
        """Remove the keys of dead codes; return the new code of each old one, or -1.

        The order of codes stays. A removed key that returns gets a new code.

        >>> codes = KeyCodes()
        >>> codes.encode([pa.array([7, 8, 9])]).tolist()
        [0, 1, 2]
        >>> codes.keep(np.array([False, True, True])).tolist()
        [-1, 0, 1]
        >>> codes.encode([pa.array([9, 7])]).tolist()
        [1, 2]
        """
        moved = _renumber(alive)
        # from the last pair to the first, keeping the parts of live pairs
        for k in reversed(range(len(self._pairs))):
            pairs, known = self._pairs[k].items()
            pairs = pairs[alive[known]]
            left, right = pairs >> 32, pairs & 0xFFFFFFFF
            before = len(self._columns[0]) if k == 0 else self._counters[k - 1].next
            alive = _mark_codes(left, before)
            new_right = self._columns[k + 1].keep(_mark_codes(right, len(self._columns[k + 1])))
            new_pairs = (_renumber(alive)[left].astype(np.int64) << 32) | new_right[right]
            self._pairs[k].restore(new_pairs, np.arange(len(pairs), dtype=np.int32))
            self._counters[k].next = len(pairs)
        if self._columns:
            self._columns[0].keep(alive)
        return moved

    @property
    def nbytes(self) -> int:
        """About how many bytes are saved."""
        return sum(c.nbytes for c in self._columns) + sum(t.nbytes for t in self._pairs)

    def snapshot(self) -> bytes:
        """Serialize all codes."""
        out = io.BytesIO()
        out.write(_MAGIC)
        out.write(struct.pack("<HH", _VERSION, len(self._columns)))
        for column in self._columns:
            column.write(out)
        for table in self._pairs:
            _write(out, *table.items())
        return out.getvalue()

    @classmethod
    def restore(cls, saved: bytes) -> "KeyCodes":
        """Restore codes that `save` wrote."""
        source = io.BytesIO(saved)
        if source.read(len(_MAGIC)) != _MAGIC:
            raise StateError("these bytes are not the codes of keys")
        version, count = struct.unpack("<HH", source.read(4))
        if version != _VERSION:
            raise StateError(f"codes of keys have version {version}, this release reads {_VERSION}")
        keys = cls()
        if count:
            keys._shape(count)
        keys._columns = [ColumnCodes.read(source) for _ in range(count)]
        for table, counter in zip(keys._pairs, keys._counters, strict=True):
            pairs, known = _read(source), _read(source)
            table.restore(pairs, known)
            counter.next = len(known)
        return keys


class DenseCodes:
    """Codes of the keys of a table that need no hash table: those of a dictionary, or of integers in a narrow range.

    >>> table = pa.table({"k": pa.array(["x", None, "y", "x"]).dictionary_encode()})
    >>> DenseCodes.find(table, 100).encode(table).tolist()
    [0, -1, 1, 0]
    """

    def __init__(self, columns: "Sequence[_DenseColumn]") -> None:
        self._columns = columns

    @classmethod
    def find(cls, keys: pa.Table, most: int) -> "DenseCodes | None":
        """The codes, if there are fewer than `most`; NULL is -1."""
        columns: list[_DenseColumn] = []
        for column in keys.columns:
            dense = _DenseColumn.find(column, most)
            if dense is None or dense.size * math.prod(known.size for known in columns) > most:
                return None
            columns.append(dense)
        return cls(columns) if columns else None

    def encode(self, keys: pa.Table) -> Codes:
        """The codes of some rows of the table."""
        total: Codes | None = None
        for dense, column in zip(self._columns, keys.columns, strict=True):
            codes = dense.encode(to_single_array(column))
            if total is None:
                total = codes
            else:
                total = np.where((total < 0) | (codes < 0), np.int32(-1), total * np.int32(dense.size) + codes)
        assert total is not None
        return total


class _DenseColumn:
    def __init__(self, size: int, by_entry: Codes | None = None, least: int = 0, bits: int = 0) -> None:
        self.size = size  # all codes are below
        self._by_entry = by_entry  # the codes of a dictionary's entries
        self._least, self._bits = least, bits  # of integers

    @classmethod
    def find(cls, column: pa.ChunkedArray, most: int) -> "_DenseColumn | None":
        if types.is_dictionary(column.type) and column.num_chunks:
            entries = column.chunk(0).dictionary
            if len(entries) > most or not all(_same_memory(c.dictionary, entries) for c in column.chunks):
                return None
            codes = ColumnCodes()
            by_entry = codes.encode(entries)
            return cls(max(1, len(codes)), by_entry)
        if not types.is_integer(column.type):
            return None
        extremes = pc.min_max(column)
        least, greatest = extremes["min"].as_py(), extremes["max"].as_py()
        if least is None or greatest - least >= most or greatest >= 1 << 63:
            return None
        bits = (greatest - least).bit_length()
        return cls(1 << bits, None, least, bits)

    def encode(self, array: pa.Array) -> Codes:
        if self._by_entry is not None:
            if not len(self._by_entry):
                return np.full(len(array), -1, np.int32)
            codes = self._by_entry[get_indices(array)]
        else:
            codes = np.empty(len(array), np.int32)
            hashing.scatter_integers(as_read_only(integers(array)), self._least, self._bits, codes)
        valid = validity(array.indices if types.is_dictionary(array.type) else array)
        return codes if valid is None else np.where(valid, codes, np.int32(-1))


class TypeNames:
    """The event types of a query, found in the column of types.

    >>> TypeNames(["A", "B"]).find(pa.chunked_array([["B", None, "X", "A"]])).tolist()
    [1, -1, -1, 0]
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(map(as_read_only, text_parts(build_texts(names))))
        self._codes = np.append(np.arange(len(names), dtype=np.int32), np.int32(-1))

    def find(self, column: pa.ChunkedArray) -> Codes:
        """The position of each event's type among the names; -1 for others."""
        return self.map(column, self._codes)

    def map(self, column: pa.ChunkedArray, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The value of each event's type: one per name, and the last one for other types."""
        array = to_single_array(column)
        if kind_of_arrow(array.type) is not ValueKind.STRING:
            array = array.cast(pa.string())
        valid = validity(array)
        if types.is_dictionary(array.type):
            by_entry = self._map_texts(decode_text(array.dictionary), values)
            # Arrow leaves open what the index of a NULL is
            mapped = by_entry[get_indices(array)] if len(by_entry) else np.full(len(array), values[-1])
        else:
            mapped = self._map_texts(decode_text(array), values)
        return mapped if valid is None else np.where(valid, mapped, values[-1])

    def _map_texts(self, texts: pa.Array, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if hashing.map_names.is_interpreted and _is_quick_to_group(texts):
            entries = texts.dictionary_encode()
            return np.take(self._map_texts(entries.dictionary, values), get_indices(entries))
        mapped = np.empty(len(texts), values.dtype)
        hashing.map_names(*map(as_read_only, text_parts(texts)), *self._names, values, mapped)
        return mapped


def _is_quick_to_group(texts: pa.Array) -> bool:
    """Whether Arrow should find the distinct strings for kernels that are interpreted."""
    return 64 < len(texts) < 1 << 18 and texts.null_count < len(texts)


def _renumber(alive: Bools) -> Codes:
    """The rank of each code among the live ones; -1 for the others."""
    return np.where(alive, np.cumsum(alive) - 1, -1).astype(np.int32)


def _mark_codes(codes: Ints, count: int) -> Bools:
    """Which of `count` codes occur."""
    marks = np.zeros(count, np.bool_)
    marks[codes] = True
    return marks


def _same_memory(left: pa.Array, right: pa.Array) -> bool:
    """Whether two arrays share memory; both are referenced, so it is not reused."""
    if left.type != right.type or len(left) != len(right) or left.offset != right.offset:
        return False
    pairs = zip(left.buffers(), right.buffers(), strict=True)
    return all((a and a.address) == (b and b.address) for a, b in pairs)


def _write(out: io.BytesIO, *arrays: npt.NDArray[Any]) -> None:
    for array in arrays:
        data = np.ascontiguousarray(array).tobytes()
        out.write(struct.pack("<4sq", array.dtype.str[1:].encode().ljust(4), len(data)))
        out.write(data)


def _read(source: io.BytesIO) -> npt.NDArray[Any]:
    dtype, length = struct.unpack("<4sq", source.read(12))
    data = source.read(length)
    if len(data) != length:
        raise StateError("the saved codes of keys are cut short")
    return np.frombuffer(data, np.dtype(dtype.decode().strip()))
