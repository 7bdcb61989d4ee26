"""Encodes values as order-preserving 64-bit integers, so that every comparison is an interval.

Integers, booleans and times are their own codes. The code of a double is its bits, those of
negative ones inverted; NaN is above infinity, and NULL is the least integer, where doubles of the
same row are NaN. Constants are compared exactly: `x < 17.5` is `x <= 17` where x is an integer,
and `x <= 2**53 + 1` ends at the double below where x is one.
"""

import math
import struct
from collections.abc import Hashable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

LEAST, GREATEST = -(2**63), 2**63 - 1
EVERYTHING = (LEAST, GREATEST)

_AS_DOUBLE, _AS_INTEGER = struct.Struct("<d").pack, struct.Struct("<q").unpack

Interval = tuple[int, int]  # both ends included


def integer_interval(operator: str, constant: float) -> Interval | None:
    """Returns the integers that satisfy a comparison with a constant; None if there are none.

    >>> integer_interval("<", 17.5), integer_interval("=", 17.5), integer_interval(">", 2**63)
    ((-9223372036854775808, 17), None, None)
    """
    if constant != constant:
        return None
    if constant in (math.inf, -math.inf):
        below = constant > 0
        holds = operator in (("<", "<=") if below else (">", ">="))
        return EVERYTHING if holds else None
    floor, ceiling = math.floor(constant), math.ceil(constant)
    low, high = {
        "=": (ceiling, floor), "<": (LEAST, ceiling - 1), "<=": (LEAST, floor),
        ">": (floor + 1, GREATEST), ">=": (ceiling, GREATEST),
    }[operator]  # fmt: skip
    low, high = max(low, LEAST), min(high, GREATEST)
    return (low, high) if low <= high else None


def encode_float(value: float) -> int:
    """Encodes a double.

    >>> (encode_float(-0.0) == encode_float(0.0) == 0, encode_float(-1.5) < encode_float(-1.0) < encode_float(2.5))
    (True, True)
    """
    if math.isnan(value):
        return GREATEST
    bits: int = _AS_INTEGER(_AS_DOUBLE(value + 0.0))[0]
    return bits if bits >= 0 else bits ^ GREATEST


_LOWEST, _HIGHEST = encode_float(-math.inf), encode_float(math.inf)


def float_interval(operator: str, constant: float) -> Interval | None:
    """Returns the codes of doubles that satisfy a comparison with a constant, without NaN.

    >>> (float_interval("=", 2**53 + 1) is None, float_interval("<=", 2**53 + 1) == float_interval("<=", 2**53))
    (True, True)
    """
    if constant != constant:
        return None
    try:
        nearest = float(constant)
    except OverflowError:
        nearest = math.inf if constant > 0 else -math.inf
    low, high = _LOWEST, _HIGHEST
    code = encode_float(nearest)
    if operator == "=":
        low = high = code if nearest == constant else _HIGHEST + 1
    elif operator in ("<", "<="):
        high = code - (nearest > constant or (operator == "<" and nearest == constant))
    else:
        low = code + (nearest < constant or (operator == ">" and nearest == constant))
    return (low, high) if _LOWEST <= low <= high <= _HIGHEST else None


def encode_floats(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Encodes doubles.

    >>> encode_floats(np.array([-0.0, 1.0, np.nan])).tolist() == [0, encode_float(1.0), GREATEST]
    True
    """
    bits = (values + 0.0).view(np.int64)
    encoded = np.where(bits < 0, bits ^ GREATEST, bits)
    encoded[np.isnan(values)] = GREATEST
    return encoded


# ---------------------------------------------------------------------------- codes of texts

_SHARDS = 256  # a growing dictionary moves all its entries: these stay small

_FILES = ("text_offsets.npy", "text_bytes.npy", "text_uses.npy")

UNKNOWN = -1  # the code of a text that no atom uses


V = TypeVar("V", bound=Hashable)


class CountedIds(Generic[V]):
    """Assigns a number to each value while it is in use; free numbers are reused."""

    def __init__(self, shards: int = 1) -> None:
        self._shards: list[dict[V, int]] = [{} for _ in range(shards)]
        self._values: list[V | None] = []
        self._uses: list[int] = []
        self._free: list[int] = []

    def _shard(self, value: V) -> dict[V, int]:
        return self._shards[hash(value) % len(self._shards)]

    def take(self, value: V) -> int:
        """Returns the number of a value and counts one more use."""
        shard = self._shard(value)
        number = shard.get(value)
        if number is None:
            if self._free:
                number = self._free.pop()
            else:
                number = len(self._values)
                self._values.append(None)
                self._uses.append(0)
            self._values[number] = value
            shard[value] = number
        self._uses[number] += 1
        return number

    def give_back(self, number: int) -> bool:
        """Counts one use less; returns whether the number is free now."""
        self._uses[number] -= 1
        if self._uses[number]:
            return False
        value = self._values[number]
        assert value is not None
        del self._shard(value)[value]
        self._values[number] = None
        self._free.append(number)
        return True

    def items(self) -> list[tuple[V | None, int]]:
        """Returns the values and their uses by number, for `restore`."""
        return list(zip(self._values, self._uses, strict=True))

    @classmethod
    def restore(cls, items: Iterable[tuple[V | None, int]]) -> Self:
        ids = cls()
        ids._values, ids._uses = [], []
        for number, (value, uses) in enumerate(items):
            ids._values.append(value)
            ids._uses.append(uses)
            if value is None:
                ids._free.append(number)
            else:
                ids._shard(value)[value] = number
        return ids


class AtomTextCodes(CountedIds[str]):
    """Assigns a code to each text while it is in use.

    >>> texts = AtomTextCodes()
    >>> texts.take("truck"), texts.take("van"), texts.take("truck")
    (0, 1, 0)
    >>> texts.give_back(1), texts.take("bus"), texts.codes(["van", "bus"]).tolist()
    (True, 1, [-1, 1])
    """

    def __init__(self) -> None:
        super().__init__(_SHARDS)

    def __len__(self) -> int:
        return len(self._values) - len(self._free)

    def codes(self, texts: Iterable[str]) -> npt.NDArray[np.int64]:
        shards = self._shards
        return np.array([shards[hash(t) % _SHARDS].get(t, UNKNOWN) for t in texts], np.int64)

    def save(self, folder: Path) -> None:
        encoded = [(text or "").encode("utf-8", "surrogatepass") for text in self._values]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(e) for e in encoded], out=offsets[1:])
        data, uses = np.frombuffer(b"".join(encoded), np.uint8), np.array(self._uses, np.int64)
        parts: tuple[npt.NDArray[Any], ...] = (offsets, data, uses)
        for name, part in zip(_FILES, parts, strict=True):
            np.save(folder / name, part, allow_pickle=False)

    @classmethod
    def open(cls, folder: Path) -> "AtomTextCodes":
        offsets, data, uses = (np.load(folder / name, allow_pickle=False) for name in _FILES)
        encoded, bounds = data.tobytes(), pairwise(offsets.tolist())
        texts = (encoded[start:end].decode("utf-8", "surrogatepass") for start, end in bounds)
        pairs = zip(texts, uses.tolist(), strict=True)
        return cls.restore((text if used else None, used) for text, used in pairs)

    @property
    def nbytes(self) -> int:
        """The approximate size: each text is a string, a table entry and two list entries."""
        sample = self._values[:1024]
        average = sum(len(text or "") for text in sample) / max(1, len(sample))
        return int((150 + average) * len(self._values))
