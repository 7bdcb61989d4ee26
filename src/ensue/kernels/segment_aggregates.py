"""Aggregates over segments: segment k holds the values from `offsets[k]` up to `offsets[k + 1]`.

`valid` marks the values that are not NULL; an empty array means all. Every loop runs from left to
right, so that results are bitwise reproducible. Functions that return values also return where
they are valid.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import kernel

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]

_MOST = 2**63 - 1
_LEAST = -(2**63)


@kernel()
def counts(offsets: Ints, valid: Bools) -> Ints:
    """The number of values of each segment."""
    n = len(offsets) - 1
    out = np.zeros(n, np.int64)
    every = len(valid) == 0
    for k in range(n):
        if every:
            out[k] = offsets[k + 1] - offsets[k]
        else:
            total = 0
            for p in range(offsets[k], offsets[k + 1]):
                if valid[p]:
                    total += 1
            out[k] = total
    return out


@kernel()
def sums(offsets: Ints, values: Numbers, valid: Bools) -> tuple[Numbers, Bools]:
    """The sum of each segment, in double precision."""
    n = len(offsets) - 1
    out = np.zeros(n, np.float64)
    known = np.zeros(n, np.bool_)
    every = len(valid) == 0
    for k in range(n):
        for p in range(offsets[k], offsets[k + 1]):
            if every or valid[p]:
                out[k] += values[p]
                known[k] = True
    return out, known


@kernel()
def integer_sums(offsets: Ints, values: Ints, valid: Bools) -> tuple[Ints, Ints, Bools]:
    """The sum of each segment modulo 2^64, and the number of overflows (0: it is exact)."""
    n = len(offsets) - 1
    out = np.zeros(n, np.int64)
    carry = np.zeros(n, np.int64)
    known = np.zeros(n, np.bool_)
    every = len(valid) == 0
    for k in range(n):
        for p in range(offsets[k], offsets[k + 1]):
            if every or valid[p]:
                value = values[p]
                # checked before adding, since signed overflow is undefined in LLVM
                if value >= 0 and out[k] > _MOST - value:
                    out[k] = (out[k] + _LEAST) + (value + _LEAST)
                    carry[k] += 1
                elif value < 0 and out[k] < _LEAST - value:
                    out[k] = (out[k] - _LEAST) + (value - _LEAST)
                    carry[k] -= 1
                else:
                    out[k] += value
                known[k] = True
    return out, carry, known


@kernel()
def integer_averages(offsets: Ints, values: Ints, valid: Bools) -> tuple[Floats, Bools]:
    """The mean of each segment of integers: their exact sum as a double, divided."""
    totals, carry, known = integer_sums(offsets, values, valid)
    number = counts(offsets, valid)
    out = np.zeros(len(totals), np.float64)
    for k in range(len(totals)):
        if known[k]:
            out[k] = (np.float64(totals[k]) + carry[k] * 18446744073709551616.0) / number[k]
    return out, known


@kernel()
def averages(offsets: Ints, values: Numbers, valid: Bools) -> tuple[Floats, Bools]:
    """The mean of each segment: a sum in double precision, divided by the count."""
    out, known = sums(offsets, values, valid)
    number = counts(offsets, valid)
    for k in range(len(out)):
        if known[k]:
            out[k] /= number[k]
    return out, known


@kernel()
def deviations(offsets: Ints, values: Numbers, valid: Bools) -> tuple[Floats, Bools]:
    """The sample standard deviation of each segment, by Welford's method."""
    n = len(offsets) - 1
    out = np.zeros(n, np.float64)
    known = np.zeros(n, np.bool_)
    every = len(valid) == 0
    for k in range(n):
        mean = 0.0
        squares = 0.0
        count = 0
        for p in range(offsets[k], offsets[k + 1]):
            if every or valid[p]:
                value = np.float64(values[p])
                count += 1
                delta = value - mean
                mean += delta / count
                squares += delta * (value - mean)
        if count > 1:
            out[k] = math.sqrt(squares / (count - 1))
            known[k] = True
    return out, known


@kernel()
def percentiles(offsets: Ints, values: Numbers, valid: Bools, percent: float) -> tuple[Floats, Bools]:
    """The percentile of each segment, interpolated linearly; NaN if a value is."""
    n = len(offsets) - 1
    out = np.zeros(n, np.float64)
    known = np.zeros(n, np.bool_)
    every = len(valid) == 0
    longest = 0
    for k in range(n):
        longest = max(longest, offsets[k + 1] - offsets[k])
    room = np.empty(longest, np.float64)
    fraction = min(max(percent / 100.0, 0.0), 1.0)
    for k in range(n):
        count = 0
        has_nan = False
        for p in range(offsets[k], offsets[k + 1]):
            if every or valid[p]:
                value = np.float64(values[p])
                has_nan = has_nan or value != value
                room[count] = value
                count += 1
        if count == 0:
            continue
        known[k] = True
        if has_nan:
            out[k] = np.nan
            continue
        ordered = np.sort(room[:count])
        place = fraction * (count - 1)
        below = min(int(place), count - 1)
        share = place - below
        low = ordered[below]
        high = ordered[min(below + 1, count - 1)]
        if share == 0.0 or low == high:
            out[k] = low
        elif share >= 0.5:
            out[k] = high - (high - low) * (1.0 - share)
        else:
            out[k] = low + (high - low) * share
    return out, known


@kernel()
def find_extremes(offsets: Ints, values: Numbers, valid: Bools, least: bool) -> Ints:
    """The position of each segment's least or greatest value, the first of equals; -1 for none.

    Any number replaces NaN.
    """
    n = len(offsets) - 1
    out = np.full(n, -1, np.int64)
    every = len(valid) == 0
    for k in range(n):
        best = -1
        for p in range(offsets[k], offsets[k + 1]):
            if every or valid[p]:
                if best < 0 or (values[p] < values[best] if least else values[p] > values[best]):
                    best = p
                elif values[best] != values[best] and values[p] == values[p]:
                    best = p
        out[k] = best
    return out


def find_firsts(offsets: Ints) -> Ints:
    """The position of each segment's first value, NULL or not; -1 for none."""
    return np.where(offsets[:-1] < offsets[1:], offsets[:-1], np.int64(-1))


def find_lasts(offsets: Ints) -> Ints:
    """The position of each segment's last value, NULL or not; -1 for none."""
    return np.where(offsets[:-1] < offsets[1:], offsets[1:] - 1, np.int64(-1))
