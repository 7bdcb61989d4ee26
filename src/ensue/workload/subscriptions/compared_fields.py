"""The fields of events that subscriptions compare with those of other events, as numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.buffers import codes, plain_text, single, text_parts, validity
from ensue.columns.stream import Shape
from ensue.columns.values import from_arrow
from ensue.kernels import hashing
from ensue.schema import Kind

_UNKNOWN, _WHOLE, _FLOAT = 0, 1, 2


def compared_fields(
    events: pa.Table, shape: Shape, names: Sequence[str]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.int8]]:
    """For each event and field its number, its whole number or code, and which of them counts.

    The code of a text is a hash of 64 bits, the same in every process.
    """
    size = events.num_rows, len(names)
    numbers, whole = np.zeros(size), np.zeros(size, np.int64)
    known = np.zeros(size, np.int8)
    for place, name in enumerate(names):
        column = name
        if name not in events.column_names and shape.schema.type_column is not None:
            column = shape.schema.type_column
        array = single(events.column(column))
        vector = from_arrow(array, shape.unit, column)
        valid = np.ones(len(array), np.bool_) if (v := validity(array)) is None else v
        if vector.kind is Kind.STRING:
            whole[:, place] = _hashes(array)
            known[:, place] = np.where(valid, _WHOLE, _UNKNOWN)
        elif vector.kind in (Kind.FLOAT, Kind.DECIMAL):
            numbers[:, place] = np.asarray(vector.values, np.float64)
            known[:, place] = np.where(valid, _FLOAT, _UNKNOWN)
        else:
            whole[:, place] = np.asarray(vector.values).astype(np.int64)
            numbers[:, place] = whole[:, place]
            known[:, place] = np.where(valid, _WHOLE, _UNKNOWN)
    return numbers, whole, known


def _hashes(array: pa.Array) -> Any:
    if pa.types.is_dictionary(array.type):
        if not len(array.dictionary):
            return np.zeros(len(array), np.int64)
        return _hashes(array.dictionary)[codes(array)]
    texts = plain_text(array)
    high, low = np.empty(len(texts), np.uint64), np.empty(len(texts), np.uint64)
    offsets, data = text_parts(texts)
    hashing.hash_texts(offsets, data, high, low)
    return high.view(np.int64)
