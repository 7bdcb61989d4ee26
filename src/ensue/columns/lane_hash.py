"""Which lane an event belongs to: a hash of its key, the same in every process."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.arrow_kinds import Unit, kind_of_arrow
from ensue.columns.buffers import booleans, decimals, floats, integers, single, ticks, validity
from ensue.columns.values import decoded
from ensue.schema import Kind

Words = npt.NDArray[np.uint64]


def lanes_of(
    events: pa.Table, key: Sequence[str], count: int, unit: Unit
) -> npt.NDArray[np.int64]:
    """The lane of each event, from 0. Keys that are equal are in one lane, whatever their types.

    >>> lanes_of(pa.table({"k": [1, 2]}), ["k"], 8, "us").tolist() == lanes_of(
    ...     pa.table({"k": [1.0, 2.0]}), ["k"], 8, "us"
    ... ).tolist()
    True
    """
    found = np.zeros(events.num_rows, np.uint64)
    if count == 1 or not key:
        return found.astype(np.int64)
    for name in key:
        found = _mixed(found ^ _hashes(events.column(name), unit))
    return (found % np.uint64(count)).astype(np.int64)


def _hashes(column: pa.ChunkedArray, unit: Unit) -> Words:
    array = decoded(single(column))
    values = _numbers(array, unit)
    if values is None:
        return _of_texts(column)
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
    return _mixed(bits)


def _numbers(array: pa.Array, unit: Unit) -> npt.NDArray[Any] | None:
    """Numbers that are equal for equal keys, which they need not tell apart; None for texts."""
    match kind_of_arrow(array.type):
        case Kind.INTEGER:
            return integers(array)
        case Kind.FLOAT:
            return floats(array)
        case Kind.DECIMAL:
            return decimals(array)
        case Kind.BOOLEAN:
            return booleans(array)
        case Kind.TIMESTAMP | Kind.DATE | Kind.DURATION:
            return ticks(array, unit)
        case Kind.NULL:
            return np.zeros(len(array), np.bool_)
        case _:
            return None


def _of_texts(column: pa.ChunkedArray) -> Words:
    """A hash for each distinct text, and then by rows."""
    array = column.combine_chunks()
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    known = np.array([_of_text(value) for value in array.dictionary.to_pylist()], np.uint64)
    found = np.zeros(len(array), np.uint64)
    present = array.is_valid().to_numpy(zero_copy_only=False)
    found[present] = known[array.indices.drop_null().to_numpy()]
    return found


def _of_text(value: object) -> int:
    if value is None:
        return 0
    data = value if isinstance(value, bytes) else str(value).encode()
    return zlib.crc32(data) | zlib.crc32(data, 0x9E3779B9) << 32


def _mixed(words: Words) -> Words:
    """Spreads what differs in few bits over all of them (splitmix64)."""
    with np.errstate(over="ignore"):
        words = words + np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ words >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ words >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return words ^ words >> np.uint64(31)
