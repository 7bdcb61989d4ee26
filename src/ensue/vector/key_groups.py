"""Assignment of events to key groups by a hash of their key that is equal in every process."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.schema import ValueKind
from ensue.vector.arrow_numpy import to_single_array, to_ticks, validity
from ensue.vector.arrow_types import Unit, kind_of_arrow
from ensue.vector.column_values import NUMBER_READERS, decode_dictionary

Words = npt.NDArray[np.uint64]


def assign_key_groups(events: pa.Table, key: Sequence[str], count: int, unit: Unit) -> npt.NDArray[np.int64]:
    """The key group of each event; keys that compare equal share one, whatever their types."""
    hashes = np.zeros(events.num_rows, np.uint64)
    if count == 1 or not key:
        return hashes.astype(np.int64)
    for name in key:
        hashes = _mix(hashes ^ _hashes(events.column(name), unit))
    return (hashes % np.uint64(count)).astype(np.int64)


def _hashes(column: pa.ChunkedArray, unit: Unit) -> Words:
    array = decode_dictionary(to_single_array(column))
    values = _numbers(array, unit)
    if values is None:
        return _hash_texts(column)
    if values.dtype.kind == "f":
        whole = np.abs(values) < 2**63
        whole[whole] = values[whole] == np.floor(values[whole])
        bits = values.astype(np.float64).view(np.uint64).copy()
        bits[whole] = values[whole].astype(np.int64).view(np.uint64)  # 1.0 equals 1
    else:
        bits = values.astype(np.int64).view(np.uint64).copy()
    valid = validity(array)
    if valid is not None:
        bits[~valid] = 0
    return _mix(bits)


def _numbers(array: pa.Array, unit: Unit) -> npt.NDArray[Any] | None:
    """Numbers that are equal for equal keys; None for texts."""
    kind = kind_of_arrow(array.type)
    if kind in NUMBER_READERS:
        return NUMBER_READERS[kind](array)
    if kind in (ValueKind.TIMESTAMP, ValueKind.DATE, ValueKind.DURATION):
        return to_ticks(array, unit)
    return np.zeros(len(array), np.bool_) if kind is ValueKind.NULL else None


def _hash_texts(column: pa.ChunkedArray) -> Words:
    """Hash each distinct text once."""
    array = column.combine_chunks()
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    by_code = np.array([_hash_text(value) for value in array.dictionary.to_pylist()], np.uint64)
    hashes = np.zeros(len(array), np.uint64)
    present = array.is_valid().to_numpy(zero_copy_only=False)
    hashes[present] = by_code[array.indices.drop_null().to_numpy()]
    return hashes


def _hash_text(value: object) -> int:
    if value is None:
        return 0
    data = value if isinstance(value, bytes) else str(value).encode()
    return zlib.crc32(data) | zlib.crc32(data, 0x9E3779B9) << 32


def _mix(words: Words) -> Words:
    """Scatter the bits of words (splitmix64)."""
    with np.errstate(over="ignore"):
        words = words + np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ words >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ words >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return words ^ words >> np.uint64(31)
