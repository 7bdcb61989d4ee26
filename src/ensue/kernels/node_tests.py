"""Whether values of subscriptions fit together: tests on times, places and fields."""

from typing import Any

import numpy as np

from ensue.kernels.geometry import EARTH, hull, places_test
from ensue.kernels.jit import kernel
from ensue.kernels.node_tables import (
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
    Events,
    Floats,
    Ints,
    Times,
)
from ensue.kernels.regions import RegionTable, region_test

_OPTIONS = {"nogil": True, "error_model": "numpy"}
MOST_DEPTH = 256


@kernel(**_OPTIONS)
def slots_of(instances: Ints, instance: int, slots: Ints, count: int) -> int:
    """Writes the slots of a value behind those that are there, and gives how many there are."""
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


@kernel(**_OPTIONS)
def time_of(mask: int, end: bool, slots: Ints, times: Times) -> Any:
    """The greatest end, or the least start, of some slots."""
    found = times[slots[0], 0]
    first = True
    k = 0
    while mask != 0:
        if mask & 1:
            value = times[slots[k], 1] if end else times[slots[k], 0]
            if first or (value > found if end else value < found):
                found = value
                first = False
        mask = (mask >> 1) & 0x7FFFFFFFFFFFFFFF
        k += 1
    return found


@kernel(**_OPTIONS)
def corner_count(mask: int, slots: Ints, instances: Ints, events: Events) -> int:
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


@kernel(**_OPTIONS)
def place_of(
    mask: int, slots: Ints, instances: Ints, events: Events, space: int, xs: Floats, ys: Floats
) -> int:
    """The hull of the places of some slots; 0: they have none.

    On earth all are turned to the side of the first in the stream's order.
    """
    count = corner_count(mask, slots, instances, events)
    if count == 0:
        return 0
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
    if n == 1:
        xs[0] = x[0]
        ys[0] = y[0]
        return 1
    return int(hull(x, y, n, xs, ys))


@kernel(**_OPTIONS)
def compared(
    operator: int, events: Events, e: int, field: int, other: int, other_field: int
) -> bool:
    """A field of an event against one of another; NULL satisfies nothing, NaN only `!=`."""
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


@kernel(**_OPTIONS)
def key_of(events: Events, e: int, field: int) -> int:
    """The value of a field as a whole number: equal ones are equal, be they of floats or not."""
    if events.known[e, field] != 2:
        return events.codes[e, field]
    value = events.numbers[e, field]
    if abs(value) < 9007199254740992.0 and value == np.floor(value):
        return int(value)
    return int(events.numbers[e : e + 1, field].copy().view(np.int64)[0])


@kernel(**_OPTIONS)
def _lies(
    test: Ints,
    number: float,
    tolerance: float,
    slots: Ints,
    instances: Ints,
    events: Events,
    regions: RegionTable,
    space: int,
) -> bool:
    """Whether groups of slots lie as a test says, to each other or to a region."""
    a, b = test[SLOTS_A], test[SLOTS_B]
    size = max(1, corner_count(b, slots, instances, events))
    qx, qy = np.empty(size), np.empty(size)
    q = place_of(b, slots, instances, events, space, qx, qy)
    if q == 0:
        return False
    where, comparison = test[CODE_A], test[CODE_B]
    if test[KIND] == REGION:
        return bool(
            region_test(regions, a, where, comparison, number, tolerance, qx, qy, q, space)
        )
    size = max(1, corner_count(a, slots, instances, events))
    px, py = np.empty(size), np.empty(size)
    p = place_of(a, slots, instances, events, space, px, py)
    if p == 0:
        return False
    return bool(places_test(where, comparison, number, tolerance, px, py, p, qx, qy, q, space))


@kernel(**_OPTIONS)
def fits(
    first: int,
    count: int,
    test: Ints,
    test_time: Times,
    test_number: Floats,
    slots: Ints,
    instances: Ints,
    times: Times,
    events: Events,
    regions: RegionTable | None,
    space: int,
) -> bool:
    """Whether values with these slots pass some tests; `regions` is None where nothing has a
    place."""
    for t in range(first, first + count):
        kind = test[t, KIND]
        a, b = test[t, SLOTS_A], test[t, SLOTS_B]
        if kind == TIME:
            at = test_time[t, 1]
            earlier = time_of(a, test[t, CODE_A] == 1, slots, times) if a != 0 else at
            later = time_of(b, test[t, CODE_B] == 1, slots, times) if b != 0 else at
            apart = later - earlier
            if test[t, CODE_C] == 1:
                if not apart > test_time[t, 0]:
                    return False
            elif not apart <= test_time[t, 0]:
                return False
        elif kind == PLACE or kind == REGION:
            if regions is None:  # then nothing of geometry is compiled
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
            if not compared(codes[0], events, e, codes[1], other, codes[2]):
                return False
    return True


@kernel(**_OPTIONS)
def share_event(slots: Ints, middle: int, count: int, instances: Ints) -> bool:
    """Whether a slot of the first ones has the event of one of the others."""
    for i in range(middle):
        e = instances[slots[i], EVENT]
        if e >= 0:
            for j in range(middle, count):
                if instances[slots[j], EVENT] == e:
                    return True
    return False


@kernel(**_OPTIONS)
def base_shares_event(base: int, slots: Ints, middle: int, count: int, instances: Ints) -> bool:
    """The same for those of the first ones that are in the base."""
    for i in range(middle):
        if (base >> i) & 1:
            e = instances[slots[i], EVENT]
            if e >= 0:
                for j in range(middle, count):
                    if instances[slots[j], EVENT] == e:
                        return True
    return False
