"""AFTER MATCH SKIP over the matches of a batch: their order, and which of them are kept."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import kernel

Table = npt.NDArray[Any]

FEW = 32  # up to so many matches are compared one by one


@kernel(nogil=True)
def are_apart(last: Table, first: Table) -> bool:
    """Whether no two matches have the same first and last event, as far as is easily seen.

    Those with the same last event stand together, and are few, or their first events only rise
    or only fall.
    """
    begin, falls, rises = 0, True, True
    for k in range(1, last.shape[0]):
        if last[k] < last[k - 1]:
            return False
        if last[k] > last[k - 1]:
            begin, falls, rises = k, True, True
            continue
        falls = falls and first[k] < first[k - 1]
        rises = rises and first[k] > first[k - 1]
        if falls or rises:
            continue
        if k - begin > FEW:
            return False
        for other in range(begin, k):
            if first[other] == first[k]:
                return False
    return True


@kernel(nogil=True)
def order_by_ends(last: Table, first: Table) -> Table:
    """The order by last event, then by first. Matches mostly come by last event already."""
    count = last.shape[0]
    order = np.arange(count)
    for k in range(1, count):
        if last[k] < last[k - 1]:
            order = np.argsort(last, kind="mergesort")
            break
    begin = 0
    while begin < count:
        end = begin + 1
        falls = True
        while end < count and last[order[end]] == last[order[begin]]:
            falls = falls and first[order[end]] < first[order[end - 1]]
            end += 1
        if falls:  # the newest run was asked first
            order[begin:end] = order[begin:end][::-1].copy()
        elif end - begin <= FEW:
            for k in range(begin + 1, end):
                moved, place = order[k], k
                while place > begin and first[order[place - 1]] > first[moved]:
                    order[place] = order[place - 1]
                    place -= 1
                order[place] = moved
        else:
            group = order[begin:end].copy()
            order[begin:end] = group[np.argsort(first[group], kind="mergesort")]
        begin = end
    return order


@kernel(nogil=True)
def skip_matches(
    order: Table, keys: Table, first: Table, target: Table, earliest: Table, kept: Table
) -> None:
    """A match is kept if it begins where the ones kept before it allow.

    Its target is the row that it skips to; -1: it skips nothing.
    """
    for k in order:
        key = keys[k]
        if first[k] >= earliest[key]:
            kept[k] = True
            if target[k] >= 0:
                earliest[key] = max(target[k], first[k] + 1)


@kernel(nogil=True)
def is_before(a: int, b: int, offsets: Table, steps: Table) -> bool:
    """Whether the members of match `a` come before those of match `b`, compared one by one."""
    i, j = offsets[a], offsets[b]
    while i < offsets[a + 1] and j < offsets[b + 1]:
        if steps[i] != steps[j]:
            return bool(steps[i] < steps[j])
        i += 1
        j += 1
    return bool(i == offsets[a + 1] and j < offsets[b + 1])


@kernel(nogil=True)
def order_by_members(groups: Table, offsets: Table, steps: Table) -> Table:
    """The order of matches that are sorted by group, within each group by their members.

    The members of match k are the ascending numbers `steps[offsets[k] : offsets[k + 1]]`. Equal
    ones stay as they are: a merge sort, from the bottom up.
    """
    count = groups.shape[0]
    order, merged = np.arange(count), np.empty(count, np.int64)
    begin = 0
    while begin < count:
        end = begin + 1
        while end < count and groups[end] == groups[begin]:
            end += 1
        width = 1
        while width < end - begin:
            for low in range(begin, end, 2 * width):
                middle, high = min(low + width, end), min(low + 2 * width, end)
                i, j = low, middle
                for place in range(low, high):
                    if j >= high or (
                        i < middle and not is_before(order[j], order[i], offsets, steps)
                    ):
                        merged[place] = order[i]
                        i += 1
                    else:
                        merged[place] = order[j]
                        j += 1
            order[begin:end] = merged[begin:end]
            width *= 2
        begin = end
    return order


@kernel(nogil=True)
def take_turns(
    order: Table,
    matches: tuple[Table, Table, Table, Table, Table],
    runs: tuple[Table, Table, Table, Table],
    earliest: Table,
    fate: Table,
) -> None:
    """AFTER MATCH SKIP where a match waits for others that come before it and are not found yet.

    `matches` are keys, first rows, the rows that they skip to (-1: none), and two numbers by which
    they come one after the other; `order` sorts them by key, then by these. `runs` are keys, first
    rows and the least two numbers that a match of a partial match can have, sorted likewise. One
    that begins before the ones kept allow is in nobody's way. Fates: 0 used up, 1 kept, 2 waits.
    """
    keys, first, target, turn, later = matches
    run_keys, run_first, run_turn, run_later = runs
    run, count = 0, run_keys.shape[0]
    for k in order:
        key = keys[k]
        while run < count and (
            run_keys[run] < key or (run_keys[run] == key and run_first[run] < earliest[key])
        ):
            run += 1
        if first[k] < earliest[key]:
            fate[k] = 0
        elif (
            run < count
            and run_keys[run] == key
            and (
                run_turn[run] < turn[k]
                or (run_turn[run] == turn[k] and run_later[run] <= later[k])
            )
        ):
            fate[k] = 2
        else:
            fate[k] = 1
            if target[k] >= 0:
                earliest[key] = max(target[k], first[k] + 1)
