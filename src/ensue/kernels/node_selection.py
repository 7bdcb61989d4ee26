"""Which of the matches that were found together are delivered, and who is in them."""

import numpy as np

from ensue.kernels.kept_code import kernel
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
def chosen(
    select: Bytes,
    used: Ints,
    instances: Ints,
    times: Times,
    rows: Ints,
    begin: int,
    end: int,
) -> int:
    """Of the rows from `begin` on, found at one instant, keeps those that are delivered.

    They come to stand by subscription, then by the last event. Gives where they end.
    """
    mine, other = np.empty(MOST_DEPTH, np.int64), np.empty(MOST_DEPTH, np.int64)
    if end - begin == 1:
        s = rows[begin, 0]
        if select[s] == ONCE:
            used[s] = max(used[s], instances[rows[begin, 1], LAST])
        return end
    last = np.empty(end - begin, np.int64)
    for k in range(begin, end):
        last[k - begin] = instances[rows[k, 1], LAST]
    order = np.argsort(last, kind="mergesort")
    some = rows[begin:end].copy()[order]
    order = np.argsort(some[:, 0], kind="mergesort")
    some = some[order]
    n = begin
    k = 0
    while k < some.shape[0]:
        s = some[k, 0]
        first = k
        at = instances[some[k, 1], LAST]
        while k < some.shape[0] and some[k, 0] == s and instances[some[k, 1], LAST] == at:
            k += 1
        if select[s] == ALL:
            n = _distinct(instances, times, some, first, k, rows, n, mine, other)
            continue
        best = np.int64(-1)
        for j in range(first, k):
            v = some[j, 1]
            if select[s] == ONCE and instances[v, FIRST] <= used[s]:
                continue
            if best < 0 or newer(instances, times, v, best, mine, other) > 0:
                best = v
        if best >= 0:
            rows[n, 0] = s
            rows[n, 1] = best
            n += 1
            if select[s] == ONCE:
                used[s] = max(used[s], at)
    return n


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
        _sift(instances, times, some, first, 0, end, mine, other)
    for k in range(first, last):
        if k > first and newer(instances, times, some[k, 1], some[k - 1, 1], mine, other) == 0:
            continue
        rows[n, 0] = some[k, 0]
        rows[n, 1] = some[k, 1]
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
