"""Values of the subscription network: their slots, places and members, tests on them, and which are delivered."""

from typing import Any

import numpy as np

from ensue.kernels.geometry import EARTH, hull, passes_place_test
from ensue.kernels.jit import kernel
from ensue.kernels.network_tables import (
    ALL,
    CODE_A,
    CODE_B,
    CODE_C,
    EVENT,
    FIRST,
    KIND,
    LAST,
    LEFT,
    ONCE,
    PLACE,
    REGION,
    RIGHT,
    SLOTS_A,
    SLOTS_B,
    TIME,
    Bytes,
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


# ---------------------------------------------------------------------------- matches of one instant


@kernel()
def list_members(instances: Ints, instance: int, members: Ints) -> int:
    """Write the events of a value, newest first; return their number."""
    stack = np.empty(MOST_DEPTH, np.int64)
    stack[0] = instance
    top = 1
    count = 0
    while top > 0:
        top -= 1
        at = stack[top]
        e = instances[at, EVENT]
        if e >= 0:
            k = count
            while k > 0 and members[k - 1] < e:
                members[k] = members[k - 1]
                k -= 1
            members[k] = e
            count += 1
        if instances[at, RIGHT] >= 0:
            stack[top] = instances[at, RIGHT]
            top += 1
        if instances[at, LEFT] >= 0:
            stack[top] = instances[at, LEFT]
            top += 1
    return count


@kernel()
def compare_age(instances: Ints, times: Times, a: int, b: int, left: Ints, right: Ints) -> int:
    """1 if the first value is newer by its members, 0 if they are equal, else -1."""
    m, n = list_members(instances, a, left), list_members(instances, b, right)
    for k in range(min(m, n)):
        if left[k] != right[k]:
            return 1 if left[k] > right[k] else -1
    if m != n:
        return 1 if m > n else -1
    for end in (1, 0):
        if times[a, end] != times[b, end]:
            return 1 if times[a, end] > times[b, end] else -1
    return 0


@kernel()
def find_key_slot(tied: Ints, subscription: int, key: int) -> int:
    """The slot of a subscription's key in the hash table, used or free."""
    mask = tied.shape[0] - 1
    at = (key ^ (key >> 17) ^ (key >> 37) ^ (subscription * 40_503)) & mask
    while tied[at, 0] != 0 and (tied[at, 0] != subscription + 1 or tied[at, 1] != key):
        at = (at + 1) & mask
    return at


@kernel()
def set_used_position(tied: Ints, keys: int, subscription: int, key: int, position: int) -> Ints:
    """Set the position up to which events of a key are used; grow the table if it is half full."""
    if 2 * keys >= tied.shape[0]:
        more = np.zeros((2 * tied.shape[0], 3), np.int64)
        for k in range(tied.shape[0]):
            if tied[k, 0] != 0:
                more[find_key_slot(more, tied[k, 0] - 1, tied[k, 1])] = tied[k]
        tied = more
    at = find_key_slot(tied, subscription, key)
    tied[at, 0] = subscription + 1
    tied[at, 1] = key
    tied[at, 2] = position
    return tied


@kernel()
def _find_used_end(used: Ints, tied: Ints, row: Ints) -> int:
    """The position up to which events are used for a row."""
    if row[2] == 0:
        return used[row[0]]
    at = find_key_slot(tied, row[0], row[3])
    return -1 if tied[at, 0] == 0 else tied[at, 2]


@kernel()
def _use_up(used: Ints, tied: Ints, keys: int, row: Ints, position: int) -> tuple[Ints, int]:
    if row[2] == 0:
        used[row[0]] = max(used[row[0]], position)
        return tied, keys
    new = 1 if tied[find_key_slot(tied, row[0], row[3]), 0] == 0 else 0
    position = max(position, _find_used_end(used, tied, row))
    return set_used_position(tied, keys, row[0], row[3], position), keys + new


@kernel()
def _follows(instances: Ints, times: Times, batch: Ints, a: int, b: int, age: bool, left: Ints, right: Ints) -> bool:
    """Whether a row follows another: by age, or by subscription, then by last event."""
    if age:
        return compare_age(instances, times, batch[a, 1], batch[b, 1], left, right) > 0
    if batch[a, 0] != batch[b, 0]:
        return bool(batch[a, 0] > batch[b, 0])
    return bool(instances[batch[a, 1], LAST] > instances[batch[b, 1], LAST])


@kernel()
def _swap(batch: Ints, a: int, b: int) -> None:
    for column in range(4):
        value = batch[a, column]
        batch[a, column] = batch[b, column]
        batch[b, column] = value


@kernel()
def _sort(instances: Ints, times: Times, batch: Ints, age: bool, left: Ints, right: Ints) -> None:
    """Heap sort, because NumPy's sort takes ten seconds to compile."""
    size = batch.shape[0]
    end = size
    at = size // 2
    while end > 1:
        if at > 0:
            at -= 1
        else:
            end -= 1
            _swap(batch, np.int64(0), end)
        down = at
        while 2 * down + 1 < end:
            below = 2 * down + 1
            if below + 1 < end and _follows(instances, times, batch, below + 1, below, age, left, right):
                below += 1
            if not _follows(instances, times, batch, below, down, age, left, right):
                break
            _swap(batch, below, down)
            down = below


@kernel()
def select_rows_to_deliver(
    select: Bytes, used: Ints, tied: Ints, keys: int, instances: Ints, times: Times, rows: Ints, begin: int, end: int
) -> tuple[int, Ints, int]:
    """Select the rows to deliver among those of one instant, from `begin` on.

    They are sorted by subscription, then by last event. Returns their end, and the table of used
    keys with its size.
    """
    if end - begin == 1:
        row = rows[begin]
        if select[row[0]] == ONCE:
            if instances[row[1], FIRST] <= _find_used_end(used, tied, row):
                return begin, tied, keys
            tied, keys = _use_up(used, tied, keys, row, instances[row[1], LAST])
        return end, tied, keys
    left, right = np.empty(MOST_DEPTH, np.int64), np.empty(MOST_DEPTH, np.int64)
    batch = np.empty((end - begin, 4), np.int64)
    for k in range(begin, end):
        for column in range(4):
            batch[k - begin, column] = rows[k, column]
    _sort(instances, times, batch, False, left, right)
    n = begin
    k = begin - begin  # a literal 0 has its own type and would compile functions again
    while k < batch.shape[0]:
        s = batch[k, 0]
        first = k
        at = instances[batch[k, 1], LAST]
        while k < batch.shape[0] and batch[k, 0] == s and instances[batch[k, 1], LAST] == at:
            k += 1
        if select[s] == ALL:
            # each match once, though its events may fill its roles in several ways
            _sort(instances, times, batch[first:k], True, left, right)
            for j in range(first, k):
                v, before = batch[j, 1], batch[max(j - 1, first), 1]
                if j == first or compare_age(instances, times, v, before, left, right) != 0:
                    rows[n] = batch[j]
                    n += 1
            continue
        best = -1
        for j in range(first, k):
            v = batch[j, 1]
            if select[s] == ONCE and instances[v, FIRST] <= _find_used_end(used, tied, batch[j]):
                continue
            if best < 0 or compare_age(instances, times, v, batch[best, 1], left, right) > 0:
                best = j
        if best >= 0:
            if select[s] == ONCE:
                tied, keys = _use_up(used, tied, keys, batch[best], at)
            rows[n] = batch[best]
            n += 1
    return n, tied, keys


@kernel()
def gather_members(instances: Ints, rows: Ints, offsets: Ints, members: Ints) -> None:
    """Write the events of each row, oldest first, as offsets and members."""
    path = np.empty(MOST_DEPTH, np.int64)
    at = 0
    for k in range(rows.shape[0]):
        offsets[k] = at
        count = list_members(instances, rows[k, 1], path)
        for j in range(count):
            members[at + j] = path[count - 1 - j]
        at += count
    offsets[rows.shape[0]] = at


@kernel()
def count_members(instances: Ints, rows: Ints) -> int:
    """The total number of events of all rows."""
    path = np.empty(MOST_DEPTH, np.int64)
    total = 0
    for k in range(rows.shape[0]):
        total += list_members(instances, rows[k, 1], path)
    return total
