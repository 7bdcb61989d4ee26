"""Loops over the rows of MATCH_RECOGNIZE: partitions side by side, each in its order.

Partition p has the rows from `bounds[p]` up to `bounds[p + 1]`. What can still become a match is
known between rows: there is one place more than rows in a partition, at `row + p`.
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

EXCLUDED = 1 << 14  # a label's bit for rows that are left out of the result
VARIABLE = EXCLUDED - 1
_OPTIONS = {"nogil": True, "error_model": "numpy"}
UNKNOWN = -1  # of a transition that is not worked out yet


@kernel(**_OPTIONS)
def grouped(codes: Codes | Ints, count: int) -> tuple[Ints, Ints]:
    """The rows by their code, in their order, and where each code begins."""
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


@kernel(**_OPTIONS)
def at_places(order: Ints, rows: Ints) -> Ints:
    """The places of rows; those below 0 stay so."""
    out = np.empty(len(rows), np.int64)
    for k in range(len(rows)):
        out[k] = order[rows[k]] if rows[k] >= 0 else rows[k]
    return out


@kernel(**_OPTIONS)
def forbid(held: Bools, mask: Masks, bit: int) -> None:
    """Takes a bit from the rows for which a condition does not hold."""
    for row in range(len(held)):
        mask[row] = mask[row] if held[row] else mask[row] & ~bit


@kernel(**_OPTIONS)
def inside(bounds: Ints, shift: int, valid: Bools) -> None:
    """Marks the rows as missing from which `shift` rows on the partition is over."""
    for p in range(len(bounds) - 1):
        first, last = bounds[p], bounds[p + 1]
        if shift < 0:
            for row in range(first, min(first - shift, last)):
                valid[row] = False
        else:
            for row in range(max(first, last - shift), last):
                valid[row] = False


@kernel(**_OPTIONS)
def backwards(
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
    """From the last row of each partition to its first: what can still become a match.

    `table[state, symbol]` is what comes before a row of a symbol; a first row's symbol is `starts`
    further on. Returns the row whose transition is missing, or -1. `place` is where it stands.
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


@kernel(**_OPTIONS)
def nth_of_match(
    labels: Labels, offsets: Ints, starts: Ints, wanted: Bools, first: bool, nth: int
) -> Ints:
    """Of each match the nth row of some variables, from its first row or its last; -1: none."""
    out = np.full(len(starts), -1, np.int64)
    for m in range(len(starts)):
        left = nth
        begin, end = offsets[m], offsets[m + 1]
        for step in range(end - begin):
            k = begin + step if first else end - 1 - step
            if wanted[labels[k] & VARIABLE]:
                if left == 0:
                    out[m] = starts[m] + k - begin
                    break
                left -= 1
    return out


@kernel(**_OPTIONS)
def nth_so_far(
    labels: Labels, offsets: Ints, starts: Ints, wanted: Bools, first: bool, nth: int
) -> Ints:
    """The same for each row of each match, of the rows up to it."""
    out = np.full(len(labels), -1, np.int64)
    recent = np.empty(nth + 1, np.int64)
    for m in range(len(starts)):
        seen = 0
        found = -1
        for k in range(offsets[m], offsets[m + 1]):
            if wanted[labels[k] & VARIABLE]:
                row = starts[m] + k - offsets[m]
                if first:
                    if seen == nth:
                        found = row
                else:
                    recent[seen % (nth + 1)] = row
                    if seen >= nth:
                        found = recent[(seen - nth) % (nth + 1)]
                seen += 1
            if first or seen > nth:
                out[k] = found
    return out


@kernel(**_OPTIONS)
def chosen_rows(
    labels: Labels, offsets: Ints, starts: Ints, wanted: Bools
) -> tuple[Ints, Ints, Ints]:
    """The rows of some variables match by match: where each match's begin, the rows, and for each
    row of each match how many there are up to it."""
    upto = np.empty(len(labels), np.int64)
    total = 0
    for k in range(len(labels)):
        if wanted[labels[k] & VARIABLE]:
            total += 1
    rows = np.empty(total, np.int64)
    places = np.zeros(len(starts) + 1, np.int64)
    total = 0
    for m in range(len(starts)):
        begun = total
        for k in range(offsets[m], offsets[m + 1]):
            if wanted[labels[k] & VARIABLE]:
                rows[total] = starts[m] + k - offsets[m]
                total += 1
            upto[k] = total - begun
        places[m + 1] = total
    return places, rows, upto


@kernel(**_OPTIONS)
def running_counts(places: Ints, kept: Bools) -> Ints:
    """How many values there are from the first one of a segment up to each."""
    out = np.empty(len(kept), np.int64)
    for m in range(len(places) - 1):
        total = 0
        for k in range(places[m], places[m + 1]):
            if kept[k]:
                total += 1
            out[k] = total
    return out


@kernel(**_OPTIONS)
def running_sums(places: Ints, values: Floats, kept: Bools) -> Floats:
    """The sum of a segment's values up to each."""
    out = np.empty(len(values), np.float64)
    for m in range(len(places) - 1):
        total = 0.0
        for k in range(places[m], places[m + 1]):
            if kept[k]:
                total += values[k]
            out[k] = total
    return out


@kernel(**_OPTIONS)
def running_whole_sums(places: Ints, values: Ints, kept: Bools) -> Ints:
    """The same for whole numbers of which no sum leaves 64 bits."""
    out = np.empty(len(values), np.int64)
    for m in range(len(places) - 1):
        total = 0
        for k in range(places[m], places[m + 1]):
            if kept[k]:
                total += values[k]
            out[k] = total
    return out


@kernel(**_OPTIONS)
def running_best(
    places: Ints, values: npt.NDArray[np.float64] | Ints, kept: Bools, least: bool
) -> Ints:
    """Where the least, or the greatest, value of a segment up to each is; -1: there is none.

    A NaN gives way to any number.
    """
    out = np.empty(len(values), np.int64)
    for m in range(len(places) - 1):
        best = -1
        for k in range(places[m], places[m + 1]):
            if kept[k]:
                if best < 0:
                    best = k
                elif least:
                    if values[k] < values[best] or (
                        values[best] != values[best] and values[k] == values[k]
                    ):
                        best = k
                elif values[k] > values[best] or (
                    values[best] != values[best] and values[k] == values[k]
                ):
                    best = k
            out[k] = best
    return out
