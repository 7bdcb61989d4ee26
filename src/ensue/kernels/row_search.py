"""Loops over the sorted partitions of MATCH_RECOGNIZE.

Partition p has the rows from `bounds[p]` up to `bounds[p + 1]`. Reachable states belong to the
gaps between rows: a partition has one gap more than rows, at `row + p`.
"""

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import kernel

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Masks = npt.NDArray[np.uint8] | Ints  # bits of variables
Labels = npt.NDArray[np.int16]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

EXCLUDED = 1 << 14  # a label's bit for rows that are not output
VARIABLE = EXCLUDED - 1
UNKNOWN = -1  # a transition that is not computed yet


@kernel()
def group_rows(codes: Codes | Ints, count: int) -> tuple[Ints, Ints]:
    """Counting sort: the rows by code, and where each code begins."""
    bounds = np.zeros(count + 1, np.int64)
    for code in codes:
        bounds[code + 1] += 1
    for k in range(count):
        bounds[k + 1] += bounds[k]
    free = bounds[:-1].copy()
    order = np.empty(len(codes), np.int64)
    for row in range(len(codes)):
        code = codes[row]
        order[free[code]] = row
        free[code] += 1
    return order, bounds


@kernel()
def clear_failed(holds: Bools, mask: Masks, bit: int) -> None:
    """Clear a bit of the rows for which a condition does not hold."""
    for row in range(len(holds)):
        mask[row] = mask[row] if holds[row] else mask[row] & ~bit


@kernel()
def clear_outside(bounds: Ints, shift: int, valid: Bools) -> None:
    """Clear the rows for which the row `shift` later is outside the partition."""
    for p in range(len(bounds) - 1):
        first, last = bounds[p], bounds[p + 1]
        if shift < 0:
            for row in range(first, min(first - shift, last)):
                valid[row] = False
        else:
            for row in range(max(first, last - shift), last):
                valid[row] = False


@kernel()
def propagate_backwards(
    symbols: Masks,
    bounds: Ints,
    limits: Ints,
    last: Codes,
    begun: Bools,
    starts: int,
    table: npt.NDArray[np.int32],
    alive: Codes,
    place: Ints,
) -> int:
    """Compute the states of all gaps, from the last row of each partition to its first.

    `table[state, symbol]` is the state before a row; a first row's symbol is offset by `starts`.
    Returns the row whose transition is missing, or -1; `place` is the position to resume from.
    """
    for p in range(place[0], len(bounds) - 1):
        row = limits[p]
        if place[1] >= 0:
            row = place[1]
            place[1] = -1
        else:
            alive[row + p] = last[p]
        state = alive[row + p]
        first = bounds[p]
        while row > first:
            row -= 1
            symbol = symbols[row]
            if row == first and not begun[p]:
                symbol += starts
            before = table[state, symbol]
            if before == UNKNOWN:
                place[0], place[1] = p, row + 1
                return row
            state = before
            alive[row + p] = state
    return -1


@kernel()
def find_nth_rows(labels: Labels, offsets: Ints, starts: Ints, selected: Bools, first: bool, nth: int) -> Ints:
    """The nth row of some variables in each match, from its first or last row; -1 if missing."""
    out = np.full(len(starts), -1, np.int64)
    for m in range(len(starts)):
        remaining = nth
        begin, end = offsets[m], offsets[m + 1]
        for step in range(end - begin):
            k = begin + step if first else end - 1 - step
            if selected[labels[k] & VARIABLE]:
                if remaining == 0:
                    out[m] = starts[m] + k - begin
                    break
                remaining -= 1
    return out


@kernel()
def find_running_nth_rows(labels: Labels, offsets: Ints, starts: Ints, selected: Bools, first: bool, nth: int) -> Ints:
    """The nth row for each row of each match, among the rows up to it."""
    out = np.full(len(labels), -1, np.int64)
    recent = np.empty(nth + 1, np.int64)
    for m in range(len(starts)):
        seen = 0
        result = -1
        for k in range(offsets[m], offsets[m + 1]):
            if selected[labels[k] & VARIABLE]:
                row = starts[m] + k - offsets[m]
                if first:
                    if seen == nth:
                        result = row
                else:
                    recent[seen % (nth + 1)] = row
                    if seen >= nth:
                        result = recent[(seen - nth) % (nth + 1)]
                seen += 1
            if first or seen > nth:
                out[k] = result
    return out


@kernel()
def select_rows(labels: Labels, offsets: Ints, starts: Ints, selected: Bools) -> tuple[Ints, Ints, Ints]:
    """The rows of some variables by match: offsets, rows, and running counts for all rows."""
    upto = np.empty(len(labels), np.int64)
    total = 0
    for k in range(len(labels)):
        if selected[labels[k] & VARIABLE]:
            total += 1
    rows = np.empty(total, np.int64)
    places = np.zeros(len(starts) + 1, np.int64)
    total = 0
    for m in range(len(starts)):
        begun = total
        for k in range(offsets[m], offsets[m + 1]):
            if selected[labels[k] & VARIABLE]:
                rows[total] = starts[m] + k - offsets[m]
                total += 1
            upto[k] = total - begun
        places[m + 1] = total
    return places, rows, upto


@kernel()
def running_sums(places: Ints, values: Floats | Ints, kept: Bools) -> Floats | Ints:
    """The sum of a segment's values up to each one; sums of integers fit into 64 bits."""
    out = np.empty_like(values)
    for m in range(len(places) - 1):
        total = values.dtype.type(0)
        for k in range(places[m], places[m + 1]):
            if kept[k]:
                total += values[k]
            out[k] = total
    return out


@kernel()
def running_best(places: Ints, values: Floats | Ints, kept: Bools, least: bool) -> Ints:
    """The position of the least or greatest value of a segment up to each one; -1 if missing.

    Any number replaces NaN.
    """
    out = np.empty(len(values), np.int64)
    for m in range(len(places) - 1):
        best = -1
        for k in range(places[m], places[m + 1]):
            if kept[k]:
                if best < 0 or (values[k] < values[best] if least else values[k] > values[best]):
                    best = k
                elif values[best] != values[best] and values[k] == values[k]:
                    best = k
            out[k] = best
    return out
