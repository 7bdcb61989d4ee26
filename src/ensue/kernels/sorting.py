"""Radix sort of integers, and merging of sorted row lists."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import kernel

Ints = npt.NDArray[np.int64]

_DIGIT = 11  # of a pass at most, so that its counters stay in the nearest cache
_ZERO, _ONE = np.uint64(0), np.uint64(1)


@kernel()
def measure_order(values: Any) -> tuple[Any, Any, int]:
    """The least and the greatest of some values, and how many are less than the one before."""
    low = high = values[0]
    falls = 0
    for k in range(1, len(values)):
        low, high = min(low, values[k]), max(high, values[k])
        falls += int(values[k] < values[k - 1])
    return low, high, falls


@kernel()
def stable_order(values: Ints) -> Ints:
    """The stable ascending order of values.

    A radix sort from the lowest digit, with as many passes as the range of the values needs.
    """
    n = len(values)
    if n == 0:
        return np.empty(0, np.int64)
    low = high = values[0]
    for k in range(n):
        low = min(low, values[k])
        high = max(high, values[k])
    least = np.uint64(low)
    span = np.uint64(high) - least  # fits into 64 bits, whatever the signs are
    bits = 0
    while bits < 64 and span >> np.uint64(bits) != _ZERO:
        bits += 1
    passes = max(1, (bits + _DIGIT - 1) // _DIGIT)
    width = (bits + passes - 1) // passes
    mask = (_ONE << np.uint64(width)) - _ONE
    keys, places = (np.empty(n, np.uint64), np.empty(n, np.uint32))  # 32 bits suffice for the rows of a table
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
            to = np.uint64(begin[digit_of_it])  # an unsigned index has no wraparound
            begin[digit_of_it] += 1
            other_keys[to] = key
            other_places[to] = np.uint32(k) if p == 0 else places[k]
        keys, other_keys = other_keys, keys
        places, other_places = other_places, places
    return places.astype(np.int64)


@kernel()
def merge_rows(rows: Any, offsets: Any, bits: Any, out_rows: Ints, out_mask: Ints) -> int:
    """Merge ascending lists of rows, with the bits of the lists that contain each row.

    List k is `rows[offsets[k] : offsets[k + 1]]`. Returns the number of rows.
    """
    lists = bits.shape[0]
    at = offsets[:lists].copy()
    count = 0
    while True:
        least = np.int64(-1)
        for k in range(lists):
            if at[k] < offsets[k + 1]:
                row = rows[at[k]]
                if least < 0 or row < least:
                    least = row
        if least < 0:
            return count
        mask = np.int64(0)
        for k in range(lists):
            if at[k] < offsets[k + 1] and rows[at[k]] == least:
                mask |= bits[k]
                at[k] += 1
        out_rows[count] = least
        out_mask[count] = mask
        count += 1


@kernel()
def select_rows(mask: Any, rows: Ints, selected: Ints) -> int:
    """Writes the rows with a mask other than 0, and their masks; returns their number.

    It writes each row, so that no branch has to be predicted.
    """
    count = 0
    for row in range(len(mask)):
        rows[count] = row
        selected[count] = mask[row]
        count += int(mask[row] != 0)
    return count


@kernel()
def group_rows(groups: Any, rows: Any, mask: Any, codes: Any, bounds: Ints, out: Ints, masks: Ints, keys: Any) -> None:
    """Sorts rows, their masks and key codes by group, stably; fills the bounds of the groups.

    `bounds` has one entry more than there are groups, all 0 before. `codes` may be empty.
    """
    for k in range(len(groups)):
        bounds[groups[k] + 1] += 1
    for group in range(1, len(bounds)):
        bounds[group] += bounds[group - 1]
    places = bounds[:-1].copy()
    for k in range(len(groups)):
        place = places[groups[k]]
        places[groups[k]] += 1
        out[place] = rows[k]
        masks[place] = mask[k]
        if len(codes):
            keys[place] = codes[k]


@kernel()
def select_part(mask: Any, codes: Any, parts: Any, part: int, every: bool, rows: Ints) -> int:
    """Writes the rows whose code is in a part, with a mask other than 0 unless `every`; returns their number.

    `parts` has the part of each code, and that of -1 last.
    """
    count = 0
    for row in range(len(mask)):
        rows[count] = row
        count += int((parts[codes[row]] == part) & (every | (mask[row] != 0)))
    return count


@kernel()
def find_firsts(codes: Any, firsts: Ints) -> None:
    """Writes the first row of each code, where there is none yet; codes below 0 are left out."""
    for row in range(len(codes)):
        if codes[row] >= 0 and firsts[codes[row]] < 0:
            firsts[codes[row]] = row
