"""Which of its predicates an atom hangs under: the one that lets the fewest events through.

Shares are estimates: an equality's from how many values its field has been asked for, a range's
and a region's from how wide they are among all that were seen. The first ones are guesses.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import kernel
from ensue.kernels.regions import RegionTable, region_box
from ensue.kernels.routing_arrays import (
    ALL,
    AMONG,
    AMONG_LAST,
    BITS,
    EQUAL,
    EQUALS,
    GREATEST,
    GRID,
    LEAST,
    NOTHING,
    OPS,
    PLACE,
    REGION,
    SPAN,
    SPAN_HIGH,
    SPAN_LOW,
    SPANS,
    WITHIN,
    Atoms,
    Floats,
    Ints,
    as_float,
)
from ensue.kernels.routing_table import OPTIONS

SKETCH = 1024  # bits that tell how many values a field has
_PROVEN = 64  # how many must have been seen before an estimate is believed
_FEW = 1 / 256  # a share that is small enough for one key, whatever else there is
_LEAST_SHARE = 1e-9
_TINY = 1e-300
_NONE = 2.0  # the share of what is not there
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ONE, _S6, _S54, _LOW6 = np.uint64(1), np.uint64(6), np.uint64(54), np.uint64(63)


@kernel(**OPTIONS)
def _asked_for(atoms: Atoms, field: int, value: int) -> None:
    """Notes a value that an equality asks for."""
    place = ((np.uint64(value) + _ONE) * _GOLDEN) >> _S54
    word, bit = place >> _S6, _ONE << (place & _LOW6)
    atoms.seen[field, EQUALS] += 1
    if atoms.sketches[field, word] & bit == np.uint64(0):
        atoms.sketches[field, word] |= bit
        atoms.seen[field, BITS] += 1


@kernel(**OPTIONS)
def _share_of_equality(atoms: Atoms, field: int) -> float:
    if atoms.seen[field, EQUALS] < _PROVEN:
        return 1 / 1024
    free = max(SKETCH - atoms.seen[field, BITS], 0.5)
    return 1 / max(SKETCH * math.log(SKETCH / free), 1.0)


@kernel(**OPTIONS)
def _share_of_span(atoms: Atoms, field: int, low: float, high: float) -> float:
    seen = atoms.seen[field]
    seen[SPAN_LOW] = low if seen[SPANS] == 0 else min(seen[SPAN_LOW], low)
    seen[SPAN_HIGH] = high if seen[SPANS] == 0 else max(seen[SPAN_HIGH], high)
    seen[SPANS] += 1
    if seen[SPANS] < _PROVEN:
        return 1 / 128
    return max((high - low) / max(seen[SPAN_HIGH] - seen[SPAN_LOW], _TINY), _LEAST_SHARE)


@kernel(**OPTIONS)
def _share_of_box(atoms: Atoms, x0: float, y0: float, x1: float, y1: float) -> float:
    seen = atoms.extent
    fresh = seen[4] == 0
    seen[0] = x0 if fresh else min(seen[0], x0)
    seen[1] = y0 if fresh else min(seen[1], y0)
    seen[2] = x1 if fresh else max(seen[2], x1)
    seen[3] = y1 if fresh else max(seen[3], y1)
    seen[4] += 1
    if seen[4] < _PROVEN:
        return 1 / 1024
    across = (x1 - x0) / max(seen[2] - seen[0], _TINY)
    along = (y1 - y0) / max(seen[3] - seen[1], _TINY)
    return max(across * along, _LEAST_SHARE)


@kernel(**OPTIONS)
def choose(
    atoms: Atoms,
    regions: RegionTable,
    space: int,
    tests: Ints,
    begin: int,
    end: int,
    type_field: int,
    box: Floats,
) -> tuple[Any, Any, Any]:
    """How an atom hangs (EQUAL, GRID, SPAN or ALL), under which test, and what `box` is of.

    `type_field` is the field that its group says all of, or -1.
    """
    numbers = tests.view(np.float64)
    equal: Any
    place: Any
    span: Any
    equal, rare = np.int64(-1), _NONE
    place, area = np.int64(-1), _NONE
    span, narrow = np.int64(-1), _NONE
    for t in range(begin, end):
        op, field = tests[t, 0] & 15, tests[t, 0] >> OPS
        if op == WITHIN and field == type_field:
            continue
        if op == AMONG or op == AMONG_LAST or (op == WITHIN and tests[t, 1] == tests[t, 2]):
            _asked_for(atoms, field, tests[t, 1])
            if tests[t, 1] != tests[t, 2]:
                _asked_for(atoms, field, tests[t, 2])
            many = 1
            while op != WITHIN and t - many >= begin and tests[t - many, 0] & 15 == AMONG:
                many += 1
            share = _share_of_equality(atoms, field) * many
            if op != AMONG and share < rare:
                equal, rare = t, share
        elif op == WITHIN and tests[t, 1] != LEAST and tests[t, 2] != GREATEST:
            low = as_float(tests[t, 1], atoms.kinds[field])
            high = as_float(tests[t, 2], atoms.kinds[field])
            if high - low < np.inf:
                share = _share_of_span(atoms, field, low, high)
                if share < narrow:
                    span, narrow = t, share
        elif op == REGION:
            x0, y0, x1, y1 = region_box(
                regions, tests[t, 1], field & 3, field >> 2, numbers[t, 2], numbers[t, 3], space
            )
            if x1 - x0 < np.inf and y1 - y0 < np.inf:
                share = _share_of_box(atoms, x0, y0, x1, y1)
                if share < area:
                    place, area = t, share
                    box[0], box[1], box[2], box[3] = x0, y0, x1, y1
    chosen, test = ALL, np.int64(-1)
    if rare <= _FEW or (rare < _NONE and rare <= min(area, narrow)):
        chosen, test = EQUAL, equal
    elif place >= 0 and area <= narrow:
        chosen, test = GRID, place
    elif span >= 0:
        chosen, test = SPAN, span
    what = PLACE
    if place < 0:
        what = _ranges(atoms, tests, begin, end, type_field, chosen, test, box)
    return chosen, test, what


@kernel(**OPTIONS)
def _ranges(
    atoms: Atoms,
    tests: Ints,
    begin: int,
    end: int,
    type_field: int,
    chosen: int,
    test: int,
    box: Floats,
) -> Any:
    """Puts one or two ranges that are not judged by the key into the box; says of which fields."""
    what, count = np.int64(NOTHING), 0
    for t in range(begin, end):
        field = tests[t, 0] >> OPS
        judged = field == type_field or (chosen == EQUAL and t == test)
        every = tests[t, 1] == LEAST and tests[t, 2] == GREATEST  # NaN too
        if tests[t, 0] & 15 != WITHIN or judged or every or field >= 1 << 15 or count == 2:
            continue
        box[count] = as_float(tests[t, 1], atoms.kinds[field])
        box[count + 2] = as_float(tests[t, 2], atoms.kinds[field])
        what = field if count == 0 else what + (field << 16)
        count += 1
    if count == 1:
        box[1], box[3] = box[0], box[2]
        what += what << 16
    return what


@kernel(**OPTIONS)
def outward(box: Floats, out: npt.NDArray[np.float32]) -> None:
    """A box in float32 around a given one, with room for the rounding of a full turn."""
    for k in range(2):
        out[k] = np.nextafter(np.float32(box[k]), np.float32(-np.inf))
        out[k + 2] = np.nextafter(np.float32(box[k + 2]), np.float32(np.inf))
