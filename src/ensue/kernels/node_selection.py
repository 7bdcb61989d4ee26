"""Which of the matches that were found together are delivered, and who is in them."""

import numpy as np

from ensue.kernels.jit import kernel
from ensue.kernels.node_tables import (
    ALL,
    EVENT,
    FIRST,
    LAST,
    LEFT,
    ONCE,
    RIGHT,
    Bytes,
    Ints,
    Times,
)
from ensue.kernels.node_tests import MOST_DEPTH

_OPTIONS = {"nogil": True, "error_model": "numpy"}


@kernel(**_OPTIONS)
def members_of(instances: Ints, instance: int, members: Ints) -> int:
    """The events of a value, the newest first; their number."""
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


@kernel(**_OPTIONS)
def newer(instances: Ints, times: Times, a: int, b: int, mine: Ints, other: Ints) -> int:
    """1 if a value is later than another by its members, 0 if they are the same, else -1."""
    m, n = members_of(instances, a, mine), members_of(instances, b, other)
    for k in range(min(m, n)):
        if mine[k] != other[k]:
            return 1 if mine[k] > other[k] else -1
    if m != n:
        return 1 if m > n else -1
    for end in (1, 0):
        if times[a, end] != times[b, end]:
            return 1 if times[a, end] > times[b, end] else -1
    return 0


@kernel(**_OPTIONS)
def place_of_key(tied: Ints, subscription: int, key: int) -> int:
    """Where a key of a subscription is in the table, or would be."""
    mask = tied.shape[0] - 1
    at = (key ^ (key >> 17) ^ (key >> 37) ^ (subscription * 40_503)) & mask
    while tied[at, 0] != 0 and (tied[at, 0] != subscription + 1 or tied[at, 1] != key):
        at = (at + 1) & mask
    return at


@kernel(**_OPTIONS)
def with_key(tied: Ints, keys: int, subscription: int, key: int, position: int) -> Ints:
    """The table where events of a key are used up to a position; longer, if it is half full."""
    if 2 * keys >= tied.shape[0]:
        more = np.zeros((2 * tied.shape[0], 3), np.int64)
        for k in range(tied.shape[0]):
            if tied[k, 0] != 0:
                more[place_of_key(more, tied[k, 0] - 1, tied[k, 1])] = tied[k]
        tied = more
    at = place_of_key(tied, subscription, key)
    tied[at, 0] = subscription + 1
    tied[at, 1] = key
    tied[at, 2] = position
    return tied


@kernel(**_OPTIONS)
def _used_up(used: Ints, tied: Ints, row: Ints) -> int:
    """Up to where events are used up for a row."""
    if row[2] == 0:
        return used[row[0]]
    at = place_of_key(tied, row[0], row[3])
    return -1 if tied[at, 0] == 0 else tied[at, 2]


@kernel(**_OPTIONS)
def _use_up(used: Ints, tied: Ints, keys: int, row: Ints, position: int) -> tuple[Ints, int]:
    if row[2] == 0:
        used[row[0]] = max(used[row[0]], position)
        return tied, keys
    new = 1 if tied[place_of_key(tied, row[0], row[3]), 0] == 0 else 0
    position = max(position, _used_up(used, tied, row))
    return with_key(tied, keys, row[0], row[3], position), keys + new


@kernel(**_OPTIONS)
def _behind(instances: Ints, some: Ints, a: int, b: int) -> bool:
    """Whether a row comes behind another: by subscription, then by the last event."""
    if some[a, 0] != some[b, 0]:
        return bool(some[a, 0] > some[b, 0])
    return bool(instances[some[a, 1], LAST] > instances[some[b, 1], LAST])


@kernel(**_OPTIONS)
def _swap(some: Ints, a: int, b: int) -> None:
    for column in range(4):
        kept = some[a, column]
        some[a, column] = some[b, column]
        some[b, column] = kept


@kernel(**_OPTIONS)
def _sort(instances: Ints, some: Ints) -> None:
    """A heap sort: NumPy's own takes ten seconds to compile."""
    size = some.shape[0]
    end = size
    at = size // 2
    while end > 1:
        if at > 0:
            at -= 1
        else:
            end -= 1
            _swap(some, np.int64(0), end)
        down = at
        while 2 * down + 1 < end:
            below = 2 * down + 1
            if below + 1 < end and _behind(instances, some, below + 1, below):
                below += 1
            if not _behind(instances, some, below, down):
                break
            _swap(some, below, down)
            down = below


@kernel(**_OPTIONS)
def chosen(
    select: Bytes,
    used: Ints,
    tied: Ints,
    keys: int,
    instances: Ints,
    times: Times,
    rows: Ints,
    begin: int,
    end: int,
) -> tuple[int, Ints, int]:
    """Of the rows from `begin` on, found at one instant, keeps those that are delivered.

    They come to stand by subscription, then by the last event. Gives where they end, and what is
    used up by key.
    """
    if end - begin == 1:
        alone = rows[begin]
        if select[alone[0]] == ONCE:
            if instances[alone[1], FIRST] <= _used_up(used, tied, alone):
                return begin, tied, keys
            tied, keys = _use_up(used, tied, keys, alone, instances[alone[1], LAST])
        return end, tied, keys
    mine, other = np.empty(MOST_DEPTH, np.int64), np.empty(MOST_DEPTH, np.int64)
    some = np.empty((end - begin, 4), np.int64)
    for k in range(begin, end):
        for column in range(4):
            some[k - begin, column] = rows[k, column]
    _sort(instances, some)
    n = begin
    k = begin - begin  # a plain 0 would be a type of its own, for which all is compiled again
    while k < some.shape[0]:
        s = some[k, 0]
        first = k
        at = instances[some[k, 1], LAST]
        while k < some.shape[0] and some[k, 0] == s and instances[some[k, 1], LAST] == at:
            k += 1
        if select[s] == ALL:
            n = _distinct(instances, times, some, first, k, rows, n, mine, other)
            continue
        best = -1
        for j in range(first, k):
            v = some[j, 1]
            if select[s] == ONCE and instances[v, FIRST] <= _used_up(used, tied, some[j]):
                continue
            if best < 0 or newer(instances, times, v, some[best, 1], mine, other) > 0:
                best = j
        if best >= 0:
            if select[s] == ONCE:
                tied, keys = _use_up(used, tied, keys, some[best], at)
            rows[n] = some[best]
            n += 1
    return n, tied, keys


@kernel(**_OPTIONS)
def _distinct(
    instances: Ints,
    times: Times,
    some: Ints,
    first: int,
    last: int,
    rows: Ints,
    n: int,
    mine: Ints,
    other: Ints,
) -> int:
    """Each match once, though its events may fill its roles in several ways: a heap sort."""
    size = last - first
    for begin in range(size // 2 - 1, -1, -1):
        _sift(instances, times, some, first, begin, size, mine, other)
    for end in range(size - 1, 0, -1):
        swap = some[first, 1]
        some[first, 1] = some[first + end, 1]
        some[first + end, 1] = swap
        _sift(instances, times, some, first, np.int64(0), end, mine, other)
    for k in range(first, last):
        if k > first and newer(instances, times, some[k, 1], some[k - 1, 1], mine, other) == 0:
            continue
        rows[n] = some[k]
        n += 1
    return n


@kernel(**_OPTIONS)
def _sift(
    instances: Ints,
    times: Times,
    some: Ints,
    first: int,
    at: int,
    size: int,
    mine: Ints,
    other: Ints,
) -> None:
    while True:
        below = 2 * at + 1
        if below >= size:
            return
        if below + 1 < size and (
            newer(
                instances, times, some[first + below + 1, 1], some[first + below, 1], mine, other
            )
            > 0
        ):
            below += 1
        if newer(instances, times, some[first + below, 1], some[first + at, 1], mine, other) <= 0:
            return
        swap = some[first + at, 1]
        some[first + at, 1] = some[first + below, 1]
        some[first + below, 1] = swap
        at = below


@kernel(**_OPTIONS)
def gathered(instances: Ints, rows: Ints, offsets: Ints, members: Ints) -> None:
    """The events of each row, the oldest first: where each begins, and which they are."""
    mine = np.empty(MOST_DEPTH, np.int64)
    at = 0
    for k in range(rows.shape[0]):
        offsets[k] = at
        count = members_of(instances, rows[k, 1], mine)
        for j in range(count):
            members[at + j] = mine[count - 1 - j]
        at += count
    offsets[rows.shape[0]] = at


@kernel(**_OPTIONS)
def member_count(instances: Ints, rows: Ints) -> int:
    """How many events all rows have together."""
    mine = np.empty(MOST_DEPTH, np.int64)
    total = 0
    for k in range(rows.shape[0]):
        total += members_of(instances, rows[k, 1], mine)
    return total
