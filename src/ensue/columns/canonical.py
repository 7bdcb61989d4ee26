"""Values as canonical text: the same text for the same value, whatever Arrow type carries it."""

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types


def decimal_texts(array: pa.Array) -> pa.Array:
    """The shortest plain notation of decimals.

    >>> decimal_texts(pa.array(["1.50", "0.00", "200.00"]).cast(pa.decimal128(9, 2))).to_pylist()
    ['1.5', '0', '200']
    """
    texts = array.cast(pa.string())
    if array.type.scale < 0 or pc.any(pc.match_substring(texts, "E"), min_count=0).as_py():
        return pa.array([_plain(value) for value in array.to_pylist()], pa.string())
    if array.type.scale > 0:
        texts = pc.utf8_rtrim(pc.utf8_rtrim(texts, characters="0"), characters=".")
    return texts


def _plain(value: Decimal | None) -> str | None:
    if value is None:
        return None
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def nested_texts(array: pa.Array) -> pa.Array:
    """Nested, binary and other values as the text of their Python value."""
    if types.is_binary(array.type) or types.is_large_binary(array.type):
        return array.cast(pa.large_binary())
    texts = [None if value is None else repr(value) for value in array.to_pylist()]
    return pa.array(texts, pa.large_string())
