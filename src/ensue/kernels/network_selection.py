"""Selects which matches of one instant are delivered, and lists their members."""

import numpy as np

from ensue.kernels.jit import kernel
from ensue.kernels.network_tables import ALL, EVENT, FIRST, LAST, LEFT, ONCE, RIGHT, Bytes, Ints, Times
from ensue.kernels.network_tests import MOST_DEPTH


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
