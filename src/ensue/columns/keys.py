"""Dense, lasting codes for the values that partitions and equalities compare."""

import io
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from ensue.columns.arrow_kinds import kind_of_arrow
from ensue.columns.buffers import (
    Bools,
    Floats,
    Ints,
    beyond_64_bits,
    booleans,
    codes,
    counted,
    floats,
    integers,
    plain_text,
    raw,
    single,
    text_parts,
    ticks,
    unscaled,
    validity,
)
from ensue.columns.canonical import decimal_texts, nested_texts
from ensue.columns.code_tables import Codes, Counter, IntegerCodes, TextCodes
from ensue.errors import StateError
from ensue.schema import Kind

_VERSION = 1
_MAGIC = b"ensue keys"


class ColumnCodes:
    """Codes of the values of one column; the same value has the same code in every batch.

    Numbers are alike whatever their type and width, times whatever their unit. NULL and NaN, which
    equal nothing, are -1.

    >>> codes = ColumnCodes()
    >>> codes.encode(pa.array(["x", None, "y"])).tolist(), codes.encode(pa.array(["y"])).tolist()
    ([0, -1, 1], [1])
    """

    def __init__(self) -> None:
        self._counter = Counter()
        self._integers: dict[str, IntegerCodes] = {}  # by what the integers stand for
        self._texts: dict[str, TextCodes] = {}
        self._dictionary: tuple[pa.Array, Codes] | None = None

    def __len__(self) -> int:
        return self._counter.next

    def encode(self, column: pa.Array | pa.ChunkedArray) -> Codes:
        """The code of each value."""
        if isinstance(column, pa.ChunkedArray):
            pieces = [self.encode(chunk) for chunk in column.chunks]
            if len(pieces) == 1:
                return pieces[0]
            return np.concatenate(pieces) if pieces else np.empty(0, np.int32)
        array = single(column)
        if types.is_dictionary(array.type):
            return self._encode_dictionary(array)
        valid = validity(array)
        kind = kind_of_arrow(array.type)
        match kind:
            case Kind.STRING:
                return self._encode_texts("string", plain_text(array), valid)
            case Kind.INTEGER:
                return self._encode_whole("number", integers(array), valid)
            case Kind.FLOAT:
                return self._encode_floats(floats(array), valid)
            case Kind.DECIMAL:
                return self._encode_decimals(array, valid)
            case Kind.BOOLEAN:
                return self._encode_whole("boolean", booleans(array).astype(np.int64), valid)
            case Kind.TIMESTAMP | Kind.DATE:
                return self._encode_times("instant", array, valid)
            case Kind.DURATION:
                return self._encode_times("duration", array, valid)
            case Kind.NULL:
                return np.full(len(array), -1, np.int32)
            case Kind.OTHER | Kind.PLACE:
                return self._encode_texts("other", nested_texts(array), valid)

    def _encode_dictionary(self, array: pa.DictionaryArray) -> Codes:
        dictionary = array.dictionary
        if self._dictionary is None or not _same_memory(self._dictionary[0], dictionary):
            self._dictionary = dictionary, self.encode(dictionary)
        known = self._dictionary[1]
        if not len(known):
            return np.full(len(array), -1, np.int32)
        found = known[codes(array)]
        valid = validity(array.indices)
        return found if valid is None else np.where(valid, found, np.int32(-1))

    def _encode_whole(self, meaning: str, keys: Ints, valid: Bools | None) -> Codes:
        table = self._integers.setdefault(meaning, IntegerCodes(self._counter))
        return table.encode(keys, valid)

    def _encode_texts(self, meaning: str, texts: pa.Array, valid: Bools | None) -> Codes:
        table = self._texts.setdefault(meaning, TextCodes(self._counter))
        return table.encode(*text_parts(texts), valid)

    def _encode_floats(self, values: Floats, valid: Bools | None) -> Codes:
        """Whole numbers share the codes of integers; the others go by their bits."""
        usable = ~np.isnan(values) if valid is None else valid & ~np.isnan(values)
        whole = usable & (np.abs(values) < 2.0**63) & (np.trunc(values) == values)
        out = self._encode_whole("number", np.where(whole, values, 0.0).astype(np.int64), whole)
        broken = usable & ~whole
        if broken.any():
            bits = self._encode_whole("fraction", values.view(np.int64), broken)
            out = np.where(broken, bits, out)
        return out

    def _encode_decimals(self, array: pa.Array, valid: Bools | None) -> Codes:
        """Whole numbers share the codes of integers; the others go by their shortest text."""
        out = np.full(len(array), -1, np.int32)
        rest = np.ones(len(array), np.bool_) if valid is None else valid
        parts = unscaled(array)
        if parts is not None and parts[2] <= 18:
            low, narrow, scale = parts
            unit = np.int64(10**scale)
            whole = rest & narrow & (low % unit == 0)
            out = self._encode_whole("number", low // unit, whole)
            rest = rest & ~whole
        if rest.any():
            texts = self._encode_texts("decimal", decimal_texts(array), rest)
            out = np.where(rest, texts, out)
        return out

    def _encode_times(self, meaning: str, array: pa.Array, valid: Bools | None) -> Codes:
        """By microseconds; what lies between two of them goes by nanoseconds."""
        if types.is_date(array.type) or array.type.unit != "ns":
            return self._encode_coarse(meaning, array, valid)
        fine = raw(array, np.int64)
        between = fine % 1_000 != 0
        if valid is not None:
            between &= valid
        if not between.any():
            return self._encode_whole(meaning, fine // 1_000, valid)
        known = ~between if valid is None else valid & ~between
        out = self._encode_whole(meaning, fine // 1_000, known)
        finer = self._encode_whole(f"{meaning} in nanoseconds", fine, between)
        return np.where(between, finer, out)

    def _encode_coarse(self, meaning: str, array: pa.Array, valid: Bools | None) -> Codes:
        """By microseconds; what is too far away for them goes by its own unit."""
        far = beyond_64_bits(array, "us")
        if valid is not None:
            far &= valid
        if not far.any():
            return self._encode_whole(meaning, ticks(array, "us"), valid)
        near = ~far if valid is None else valid & ~far
        out = self._encode_whole(meaning, ticks(array, "us"), near)
        farther = self._encode_whole(f"{meaning} far away", counted(array, "us")[0], far)
        return np.where(far, farther, out)

    def values(self) -> list[object]:
        """What each code stands for: numbers, strings, times as counts of microseconds."""
        found: list[object] = [None] * len(self)
        for meaning, table in self._integers.items():
            keys, at = table.items()
            shown: npt.NDArray[Any] = keys.view(np.float64) if meaning == "fraction" else keys
            if meaning == "boolean":
                shown = keys.astype(np.bool_)
            for code, value in zip(at.tolist(), shown.tolist(), strict=True):
                found[code] = value
        for texts in self._texts.values():
            offsets, data, at = texts.items()
            for k, code in enumerate(at.tolist()):
                found[code] = (
                    data[offsets[k] : offsets[k + 1]].tobytes().decode(errors="backslashreplace")
                )
        return found

    @property
    def _tables(self) -> list[IntegerCodes | TextCodes]:
        return [*self._integers.values(), *self._texts.values()]

    def keep(self, alive: Bools) -> Codes:
        """Forgets the values whose codes are not alive; the new code of each old one, or -1."""
        moved = _renumbered(alive)
        for table in self._tables:
            table.keep(moved)
        self._counter.next = int(np.count_nonzero(alive))
        self._dictionary = None
        return moved

    @property
    def nbytes(self) -> int:
        """About how many bytes are saved."""
        return sum(table.nbytes for table in self._tables)

    def write(self, out: io.BytesIO) -> None:
        """The saved form: the tables with what they know, not their slots."""
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
            whole = column._integers[meaning] = IntegerCodes(column._counter)
            whole.restore(_read(saved), _read(saved))
        for _ in range(texts):
            meaning = _read(saved).tobytes().decode()
            text = column._texts[meaning] = TextCodes(column._counter)
            text.restore(_read(saved), _read(saved), _read(saved))
        return column


StringCodes = ColumnCodes


class KeyCodes:
    """Codes of the combined values of one or several columns.

    >>> codes = KeyCodes()
    >>> codes.encode([pa.array([1, 1, 2]), pa.array(["x", "y", "x"])]).tolist()
    [0, 1, 2]
    >>> KeyCodes.restore(codes.save()).encode([pa.array([2]), pa.array(["x"])]).tolist()
    [2]
    """

    def __init__(self) -> None:
        self._columns: list[ColumnCodes] = []
        # The pair of the codes so far and of the next column's has a code in turn.
        self._pairs: list[IntegerCodes] = []
        self._counters: list[Counter] = []

    def __len__(self) -> int:
        if self._counters:
            return self._counters[-1].next
        return len(self._columns[0]) if self._columns else 0

    @property
    def known(self) -> int:
        """How many values and combinations of values have a code."""
        return sum(map(len, self._columns)) + sum(counter.next for counter in self._counters)

    def encode(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> Codes:
        """The code of each row; -1 where any value is NULL or NaN."""
        self._shape(len(columns))
        out = self._columns[0].encode(columns[0])
        for k, column in enumerate(columns[1:]):
            further = self._columns[k + 1].encode(column)
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
        """What each code stands for, a value a column."""
        if not self._columns:
            return []
        found: list[tuple[object, ...]] = [(value,) for value in self._columns[0].values()]
        for column, table in zip(self._columns[1:], self._pairs, strict=True):
            further = column.values()
            pairs, _ = table.items()
            found = [(*found[pair >> 32], further[pair & 0xFFFFFFFF]) for pair in pairs.tolist()]
        return found

    def keep(self, alive: Bools) -> Codes:
        """Forgets the keys whose codes are not alive; the new code of each old one, or -1.

        The order of the codes stays. A forgotten key that comes back has a new code.

        >>> codes = KeyCodes()
        >>> codes.encode([pa.array([7, 8, 9])]).tolist()
        [0, 1, 2]
        >>> codes.keep(np.array([False, True, True])).tolist()
        [-1, 0, 1]
        >>> codes.encode([pa.array([9, 7])]).tolist()
        [1, 2]
        """
        found = _renumbered(alive)
        # from the last pair to the first: what the kept pairs are made of is kept
        for k in reversed(range(len(self._pairs))):
            pairs, known = self._pairs[k].items()
            pairs = pairs[alive[known]]
            left, right = pairs >> 32, pairs & 0xFFFFFFFF
            before = len(self._columns[0]) if k == 0 else self._counters[k - 1].next
            alive = _marked(left, before)
            new_right = self._columns[k + 1].keep(_marked(right, len(self._columns[k + 1])))
            new_pairs = (_renumbered(alive)[left].astype(np.int64) << 32) | new_right[right]
            self._pairs[k].restore(new_pairs, np.arange(len(pairs), dtype=np.int32))
            self._counters[k].next = len(pairs)
        if self._columns:
            self._columns[0].keep(alive)
        return found

    @property
    def nbytes(self) -> int:
        """About how many bytes are saved."""
        return sum(c.nbytes for c in self._columns) + sum(t.nbytes for t in self._pairs)

    def save(self) -> bytes:
        """All codes as bytes."""
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
        """Codes that `save` wrote."""
        source = io.BytesIO(saved)
        if source.read(len(_MAGIC)) != _MAGIC:
            raise StateError("these bytes are not the codes of keys")
        version, count = struct.unpack("<HH", source.read(4))
        if version != _VERSION:
            raise StateError(
                f"codes of keys have version {version}, this release reads {_VERSION}"
            )
        keys = cls()
        if count:
            keys._shape(count)
        keys._columns = [ColumnCodes.read(source) for _ in range(count)]
        for table, counter in zip(keys._pairs, keys._counters, strict=True):
            pairs, known = _read(source), _read(source)
            table.restore(pairs, known)
            counter.next = len(known)
        return keys


def _renumbered(alive: Bools) -> Codes:
    """The place of each code among those that are alive; -1 for the others."""
    return np.where(alive, np.cumsum(alive) - 1, -1).astype(np.int32)


def _marked(codes: Ints, count: int) -> Bools:
    """Which of `count` codes occur."""
    marks = np.zeros(count, np.bool_)
    marks[codes] = True
    return marks


def _same_memory(left: pa.Array, right: pa.Array) -> bool:
    """Whether two arrays are the same piece of memory; both are held, so it is not reused."""
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
