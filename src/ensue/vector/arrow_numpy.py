"""Conversion of Arrow arrays to NumPy arrays, without a copy where the layouts agree."""

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from ensue.ir.values import MAX_EXACT_INTEGER
from ensue.vector.arrow_types import plain_type

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def to_single_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Combine a column into one array, decoding run ends and extension types.

    >>> to_single_array(pa.chunked_array([[1], [2, 3]])).to_pylist()
    [1, 2, 3]
    """
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks != 1 and types.is_dictionary(column.type):
            column = column.unify_dictionaries()
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        return to_single_array(column.storage)
    if types.is_run_end_encoded(column.type):
        return to_single_array(pc.run_end_decode(column))
    return column


def validity(array: pa.Array) -> Bools | None:
    """Where an array is not null; None if it has no nulls."""
    if array.null_count == 0:
        return None
    return booleans(pc.is_valid(array))


def booleans(array: pa.BooleanArray) -> Bools:
    """Unpack a boolean array to one byte per value; nulls become false.

    >>> booleans(pa.array([True, None, False])).tolist()
    [True, False, False]
    """
    if array.null_count:
        array = pc.and_kleene(array, pc.is_valid(array))
    return get_raw_values(array.cast(pa.uint8()), np.uint8).view(np.bool_)


def get_raw_values(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The fixed-width values in an array's buffer; null slots are undefined."""
    width = np.dtype(dtype)
    buffer, count = array.buffers()[1], len(array)
    if buffer is None or count == 0:
        return np.empty(0, width)
    return np.frombuffer(buffer, width, count, array.offset * width.itemsize)


def integers(array: pa.Array) -> Ints:
    """Widen integers to 64 bits; unsigned ones from 2^63 on keep only their bits.

    >>> integers(pa.array([1, 2], pa.uint8())).tolist()
    [1, 2]
    """
    narrow = get_raw_values(array, array.type.to_pandas_dtype())
    if narrow.dtype == np.uint64:
        return narrow.view(np.int64)
    return narrow.astype(np.int64, copy=False)


def floats(array: pa.Array) -> Floats:
    """Widen floats to doubles."""
    return get_raw_values(array, array.type.to_pandas_dtype()).astype(np.float64, copy=False)


def to_ticks(array: pa.Array, unit: str) -> Ints:
    """Convert timestamps, dates or durations to counts of `unit` ("us" or "ns"), modulo 2^64.

    >>> to_ticks(pa.array([2], pa.duration("ms")), "us").tolist()
    [2000]
    """
    counts, factor = get_time_counts(array, unit)
    if factor is _SAME:
        return counts
    return counts * int(factor) if factor > 1 else counts // int(1 / factor)


def get_time_counts(array: pa.Array, unit: str) -> tuple[Ints, Fraction]:
    """The counts in the buffer of a time column, and the ratio of its unit to `unit`."""
    type = array.type
    if types.is_date32(type):
        return get_raw_values(array, np.int32).astype(np.int64), _factor("day", unit)
    source = "ms" if types.is_date64(type) else type.unit
    return get_raw_values(array, np.int64), _factor(source, unit)


_SAME = Fraction(1)


@cache
def _factor(source: str, unit: str) -> Fraction:
    """The ratio of a source unit to `unit`."""
    if source == unit:
        return _SAME
    per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
    per_second["day"] = Fraction(1, 86_400)  # type: ignore[assignment]
    return Fraction(per_second[unit]) / per_second[source]


def exceeds_64_bits(array: pa.Array, unit: str) -> Bools:
    """The times that do not fit into 64 bits of `unit`; null slots are undefined."""
    counts, factor = get_time_counts(array, unit)
    most = (2**63 - 1) // max(int(factor), 1)
    if factor <= 1 or not len(counts) or (counts.min() >= -most and counts.max() <= most):
        return np.zeros(len(counts), np.bool_)
    return (counts > most) | (counts < -most)


def decimals(array: pa.Array) -> Floats:
    """Convert decimals to the nearest doubles.

    >>> decimals(pa.array(["0.30"]).cast(pa.decimal128(5, 2))).tolist()
    [0.3]
    """
    parts = get_unscaled(array)
    if parts is not None:
        low, narrow, scale = parts
        # exact because dividend and divisor are exact doubles
        if scale <= 22 and bool(np.all(narrow & (np.abs(low) < MAX_EXACT_INTEGER))):
            return low / np.float64(10.0**scale)
    text = array.cast(pa.string())
    return get_raw_values(text.cast(pa.float64()), np.float64)


def get_unscaled(array: pa.Array) -> tuple[Ints, Bools, int] | None:
    """A decimal column as 64-bit integers, a mask of the values that fit, and the scale.

    None if the type has 256 bits or a negative scale.
    """
    type = array.type
    if type.scale < 0 or type.precision > 38:
        return None
    if not types.is_decimal128(type):
        array = array.cast(pa.decimal128(38, type.scale))
    words = get_raw_values(array, "V16").view(np.int64).reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    known = validity(array)
    if known is not None:  # null slots are undefined
        low, high = np.where(known, low, 0), np.where(known, high, 0)
    narrow: Bools = (low >> 63) == high
    return low, narrow, type.scale


def decode_text(array: pa.Array) -> pa.Array:
    """Strings without dictionary or views."""
    type = plain_type(array.type)
    if types.is_string_view(type):
        type = pa.string()
    return array if array.type == type else array.cast(type)


def get_indices(array: pa.DictionaryArray) -> npt.NDArray[Any]:
    """The indices of a dictionary array; 0 for nulls."""
    indices = array.indices
    dense = get_raw_values(indices, indices.type.to_pandas_dtype())
    known = validity(indices)
    return dense if known is None else np.where(known, dense, np.zeros(1, dense.dtype))


def fixed_array(type: pa.DataType, values: npt.NDArray[Any], valid: Bools | None = None) -> pa.Array:
    """Wrap the memory of a NumPy array in an Arrow array.

    >>> fixed_array(pa.int64(), np.array([1, 2]), np.array([True, False])).to_pylist()
    [1, None]
    """
    if types.is_boolean(type):
        data = pa.py_buffer(np.packbits(values, bitorder="little"))
    else:
        data = pa.py_buffer(np.ascontiguousarray(values))
    mask = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(type, len(values), [mask, data])


def wrap_numbers(values: npt.NDArray[Any]) -> pa.Array:
    """Wrap the memory of an array of numbers, booleans or times.

    Unlike `pyarrow.array` and `pyarrow.scalar`, whose first call imports pandas if it is installed,
    this and `build_texts` take no time to load.

    >>> wrap_numbers(np.array([True, False])).to_pylist()
    [True, False]
    """
    return fixed_array(pa.from_numpy_dtype(values.dtype), values)


def build_texts(texts: Sequence[str | None]) -> pa.StringArray:
    """The Arrow array of a list of texts.

    >>> build_texts(["SHELF", None, "é"]).to_pylist()
    ['SHELF', None, 'é']
    """
    encoded = [(text or "").encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    valid = np.array([text is not None for text in texts], np.bool_)
    mask = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    data = [mask, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(encoded), data).cast(pa.string())


def text_parts(array: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """The offset and data buffers of strings or binary values.

    >>> offsets, data = text_parts(pa.array(["ab", "c"])[1:])
    >>> offsets.tolist(), data.tobytes()
    ([2, 3], b'abc')
    """
    wide = types.is_large_string(array.type) or types.is_large_binary(array.type)
    width = np.dtype(np.int64 if wide else np.int32)
    _, places, content = array.buffers()
    if places is None or len(array) == 0:
        return np.zeros(1, width), np.empty(0, np.uint8)
    offsets = np.frombuffer(places, width, len(array) + 1, array.offset * width.itemsize)
    data = np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    return offsets, data


def as_read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A read-only view, so that kernels are compiled only once for Arrow's buffers and ours."""
    flags = array.flags
    if flags.c_contiguous and not flags.writeable:
        return array
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


_EVERYWHERE = as_read_only(np.zeros(0, np.bool_))


def to_kernel_validity(valid: Bools | None) -> Bools:
    """The validity argument of kernels: an empty array if nothing is null."""
    return _EVERYWHERE if valid is None else as_read_only(valid)


def sorted_unique(numbers: NDArray[Any]) -> NDArray[Any]:
    """The distinct numbers of an array in ascending order.

    `numpy.unique` hashes from release 2.3 on, which takes about forty times as long.

    >>> sorted_unique(np.array([5, 3, 5, 1])).tolist()
    [1, 3, 5]
    """
    ordered = np.sort(numbers, axis=None)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]
