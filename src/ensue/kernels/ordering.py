"""Sorting whole numbers, quicker than by comparing them."""

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import kernel

Ints = npt.NDArray[np.int64]

_DIGIT = 11  # bits at most that one pass goes by: its counters stay in the nearest cache
_ZERO, _ONE = np.uint64(0), np.uint64(1)


@kernel(nogil=True, error_model="numpy")
def stable_order(values: Ints) -> Ints:
    """The places of values in ascending order; equal ones stay in the order they are in.

    A radix sort from the lowest digit on: as many passes as the span of the values has digits.
    """
    n = len(values)
    if n == 0:
        return np.empty(0, np.int64)
    low = high = values[0]
    for k in range(n):
        low = min(low, values[k])
        high = max(high, values[k])
    least = np.uint64(low)
    span = np.uint64(high) - least  # of 64 bits, whatever the signs are
    bits = 0
    while bits < 64 and span >> np.uint64(bits) != _ZERO:
        bits += 1
    passes = max(1, (bits + _DIGIT - 1) // _DIGIT)
    width = (bits + passes - 1) // passes
    mask = (_ONE << np.uint64(width)) - _ONE
    keys, places = np.empty(n, np.uint64), np.empty(n, np.uint32)  # no table has more rows
    other_keys, other_places = np.empty(n, np.uint64), np.empty(n, np.uint32)
    begin = np.empty(1 << width, np.int64)
    for p in range(passes):
        shift = np.uint64(p * width)
        begin[:] = 0
        if p == 0:
            for k in range(n):
                begin[(np.uint64(values[k]) - least) & mask] += 1
        else:
            for k in range(n):
                begin[(keys[k] >> shift) & mask] += 1
        total = 0
        for digit in range(len(begin)):
            count = begin[digit]
            begin[digit] = total
            total += count
        for k in range(n):
            key = np.uint64(values[k]) - least if p == 0 else keys[k]
            digit_of_it = (key >> shift) & mask
            to = np.uint64(begin[digit_of_it])  # unsigned places do not count from the end
            begin[digit_of_it] += 1
            other_keys[to] = key
            other_places[to] = np.uint32(k) if p == 0 else places[k]
        keys, other_keys = other_keys, keys
        places, other_places = other_places, places
    return places.astype(np.int64)
