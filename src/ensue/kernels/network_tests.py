"""Tests of the subscription network on times, places and fields."""

from typing import Any

import numpy as np

from ensue.kernels.geometry import EARTH, hull, passes_place_test
from ensue.kernels.jit import kernel
from ensue.kernels.network_tables import (
    CODE_A,
    CODE_B,
    CODE_C,
    EVENT,
    KIND,
    LEFT,
    PLACE,
    REGION,
    RIGHT,
    SLOTS_A,
    SLOTS_B,
    TIME,
    Floats,
    Ints,
    NetworkEvents,
    Times,
)
from ensue.kernels.regions import RegionTable, region_test

MOST_DEPTH = 256


@kernel()
def append_slots(instances: Ints, instance: int, slots: Ints, count: int) -> int:
    """Append the slots of a value; return the number of slots."""
    if instances[instance, LEFT] < 0 and instances[instance, RIGHT] < 0:
        slots[count] = instance
        return count + 1
    stack = np.empty(MOST_DEPTH, np.int64)
    stack[0] = instance
    top = 1
    while top > 0:
        top -= 1
        at = stack[top]
        left, right = instances[at, LEFT], instances[at, RIGHT]
        if left < 0 and right < 0:
            slots[count] = at
            count += 1
            continue
        if right >= 0:
            stack[top] = right
            top += 1
        if left >= 0:
            stack[top] = left
            top += 1
    return count


@kernel()
def find_time(mask: int, end: bool, slots: Ints, times: Times) -> Any:
    """The greatest end, or the least start, of some slots."""
    result = times[slots[0], 0]
    first = True
    k = 0
    while mask != 0:
        if mask & 1:
            value = times[slots[k], 1] if end else times[slots[k], 0]
            if first or (value > result if end else value < result):
                result = value
                first = False
        mask = (mask >> 1) & 0x7FFFFFFFFFFFFFFF
        k += 1
    return result


@kernel()
def count_corners(mask: int, slots: Ints, instances: Ints, events: NetworkEvents) -> int:
    count = 0
    k = 0
    while mask != 0:
        if mask & 1:
            e = instances[slots[k], EVENT]
            if e >= 0:
                count += events.corner[e + 1] - events.corner[e]
        mask = (mask >> 1) & 0x7FFFFFFFFFFFFFFF
        k += 1
    return count


@kernel()
def compute_place(
    mask: int, slots: Ints, instances: Ints, events: NetworkEvents, space: int
) -> tuple[Floats, Floats, int]:
    """The corners of the hull of some slots' places, and their number.

    On the earth all are shifted by full turns towards the first event in stream order.
    """
    count = count_corners(mask, slots, instances, events)
    x, y = np.empty(count), np.empty(count)
    n = 0
    earliest = np.int64(-1)
    origin = 0.0
    k = 0
    while mask != 0:
        if mask & 1:
            e = instances[slots[k], EVENT]
            if e >= 0:
                first, last = events.corner[e], events.corner[e + 1]
                if last > first and (earliest < 0 or e < earliest):
                    earliest = e
                    origin = events.x[first]
                for c in range(first, last):
                    x[n] = events.x[c]
                    y[n] = events.y[c]
                    n += 1
        mask = (mask >> 1) & 0x7FFFFFFFFFFFFFFF
        k += 1
    if space == EARTH:
        for c in range(n):
            while x[c] - origin > 180.0:
                x[c] -= 360.0
            while x[c] - origin < -180.0:
                x[c] += 360.0
    if n < 2:
        return x, y, n
    xs, ys = np.empty(count), np.empty(count)
    return xs, ys, int(hull(x, y, n, xs, ys))


@kernel()
def compare_fields(operator: int, events: NetworkEvents, e: int, field: int, other: int, other_field: int) -> bool:
    """Compare fields of two events; NULL fails every test, NaN all but `!=`."""
    a, b = events.known[e, field], events.known[other, other_field]
    if a == 0 or b == 0:
        return False
    if a == 1 and b == 1:
        i, j = events.codes[e, field], events.codes[other, other_field]
        order = -1 if i < j else (1 if i > j else 0)
    else:
        v, w = events.numbers[e, field], events.numbers[other, other_field]
        if v != v or w != w:
            return operator == 1
        order = -1 if v < w else (1 if v > w else 0)
    if operator == 0:
        return order == 0
    if operator == 1:
        return order != 0
    if operator == 2:
        return order < 0
    if operator == 3:
        return order <= 0
    if operator == 4:
        return order > 0
    return order >= 0


@kernel()
def get_key(events: NetworkEvents, e: int, field: int) -> int:
    """The value of a field as an integer that is equal for equal integers and floats."""
    if events.known[e, field] != 2:
        return events.codes[e, field]
    value = events.numbers[e, field]
    if abs(value) < 9007199254740992.0 and value == np.floor(value):
        return int(value)
    return int(events.numbers[e : e + 1, field].copy().view(np.int64)[0])


@kernel()
def _lies(
    test: Ints,
    number: float,
    tolerance: float,
    slots: Ints,
    instances: Ints,
    events: NetworkEvents,
    regions: RegionTable,
    space: int,
) -> bool:
    """Whether the places of two groups of slots, or of one and a region, pass a test."""
    a, b = test[SLOTS_A], test[SLOTS_B]
    qx, qy, q = compute_place(b, slots, instances, events, space)
    if q == 0:
        return False
    where, comparison = test[CODE_A], test[CODE_B]
    if test[KIND] == REGION:
        return bool(region_test(regions, a, where, comparison, number, tolerance, qx, qy, q, space))
    px, py, p = compute_place(a, slots, instances, events, space)
    return bool(passes_place_test(where, comparison, number, tolerance, px, py, p, qx, qy, q, space))


@kernel()
def passes_tests(
    first: int,
    count: int,
    test: Ints,
    test_time: Times,
    test_number: Floats,
    slots: Ints,
    instances: Ints,
    times: Times,
    events: NetworkEvents,
    regions: RegionTable | None,
    space: int,
) -> bool:
    """Whether values with these slots pass some tests; `regions` is None without places."""
    for t in range(first, first + count):
        kind = test[t, KIND]
        a, b = test[t, SLOTS_A], test[t, SLOTS_B]
        if kind == TIME:
            at = test_time[t, 1]
            earlier = find_time(a, test[t, CODE_A] == 1, slots, times) if a != 0 else at
            later = find_time(b, test[t, CODE_B] == 1, slots, times) if b != 0 else at
            apart = later - earlier
            if test[t, CODE_C] == 1:
                if not apart > test_time[t, 0]:
                    return False
            elif not apart <= test_time[t, 0]:
                return False
        elif kind == PLACE or kind == REGION:
            if regions is None:  # so that no geometry is compiled
                return False
            else:
                if not _lies(
                    test[t], test_number[t, 0], test_number[t, 1], slots, instances, events,
                    regions, space,
                ):  # fmt: skip
                    return False
        else:
            e, other = instances[slots[a], EVENT], instances[slots[b], EVENT]
            codes = test[t, CODE_A], test[t, CODE_B], test[t, CODE_C]
            if not compare_fields(codes[0], events, e, codes[1], other, codes[2]):
                return False
    return True


@kernel()
def have_common_event(slots: Ints, middle: int, count: int, instances: Ints) -> bool:
    """Whether a slot before `middle` and one after it have the same event."""
    for i in range(middle):
        e = instances[slots[i], EVENT]
        if e >= 0:
            for j in range(middle, count):
                if instances[slots[j], EVENT] == e:
                    return True
    return False


@kernel()
def has_common_base_event(base: int, slots: Ints, middle: int, count: int, instances: Ints) -> bool:
    """The same for the slots before `middle` that are in the base."""
    for i in range(middle):
        if (base >> i) & 1:
            e = instances[slots[i], EVENT]
            if e >= 0:
                for j in range(middle, count):
                    if instances[slots[j], EVENT] == e:
                        return True
    return False
