"""Ordering and selecting matches (AFTER MATCH SKIP), interval negation, first and last rows."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import kernel

Table = npt.NDArray[Any]

FEW = 32  # up to this number, matches are compared pairwise


@kernel()
def are_distinct(last: Table, first: Table) -> bool:
    """Whether all matches certainly differ in first or last event.

    True if matches with the same last event are adjacent, and are few or have monotone first
    events.
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


@kernel()
def order_by_ends(last: Table, first: Table) -> Table:
    """The order by last event, then by first; the input is mostly sorted by last event."""
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
        if falls:  # the newest run was processed first
            for k in range((end - begin) // 2):
                order[begin + k], order[end - 1 - k] = order[end - 1 - k], order[begin + k]
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


@kernel()
def skip_matches(
    order: Table, keys: Table, first: Table, last: Table, target: Table, earliest: Table, kept: Table, single: bool
) -> None:
    """Select the matches that begin where the earlier selected ones allow; `single`: one of each last row.

    The target is the row to which a match skips; -1: it skips nothing.
    """
    done = np.int64(-1)
    for k in order:
        key = keys[k]
        if first[k] >= earliest[key] and last[k] != done:
            kept[k] = True
            if single:
                done = last[k]
            if target[k] >= 0:
                earliest[key] = max(target[k], first[k] + 1)


@kernel()
def merge_members(offsets: Table, rows: Table, number: int, of: int, begins: Table, ends: Table, steps: Table) -> None:
    """Merge the ascending rows of variable `number` of `of` into the ascending steps of matches."""
    for k in range(ends.shape[0]):
        own, added = ends[k] - 1, offsets[k + 1] - 1
        ends[k] += offsets[k + 1] - offsets[k]
        place = ends[k] - 1
        while added >= offsets[k]:
            step = rows[added] * of + number
            if own >= begins[k] and steps[own] > step:
                steps[place], own = steps[own], own - 1
            else:
                steps[place], added = step, added - 1
            place -= 1


@kernel()
def is_before(a: int, b: int, offsets: Table, steps: Table) -> bool:
    """Whether the members of match `a` precede those of match `b` lexicographically; a prefix comes last."""
    i, j = offsets[a], offsets[b]
    while i < offsets[a + 1] and j < offsets[b + 1] and steps[i] == steps[j]:
        i, j = i + 1, j + 1
    return bool(i < offsets[a + 1] and (j == offsets[b + 1] or steps[i] < steps[j]))


@kernel()
def order_by_members(groups: Table, offsets: Table, steps: Table) -> Table:
    """The order of matches sorted by group, within a group by members: a stable merge sort.

    The members of match k are the ascending numbers `steps[offsets[k] : offsets[k + 1]]`. Many kernels give the
    matches of a group in order or in reverse, so both are seen first.
    """
    count = groups.shape[0]
    order, merged = np.arange(count), np.empty(count, np.int64)
    begin = 0
    while begin < count:
        end, rises, falls = begin + 1, True, True
        while end < count and groups[end] == groups[begin]:
            if rises or falls:
                earlier = is_before(end, end - 1, offsets, steps)
                rises, falls = rises and not earlier, falls and earlier
            end += 1
        for place in range(begin, end if falls else begin):
            order[place] = begin + end - 1 - place
        width = 1
        while width < end - begin and not (rises or falls):
            for low in range(begin, end, 2 * width):
                middle, high = min(low + width, end), min(low + 2 * width, end)
                i, j = low, middle
                for place in range(low, high):
                    if j >= high or (i < middle and not is_before(order[j], order[i], offsets, steps)):
                        merged[place], i = order[i], i + 1
                    else:
                        merged[place], j = order[j], j + 1
            order[begin:end] = merged[begin:end]
            width *= 2
        begin = end
    return order


@kernel()
def skip_ordered_matches(
    order: Table,
    matches: tuple[Table, Table, Table, Table, Table],
    runs: tuple[Table, Table, Table, Table],
    earliest: Table,
    fate: Table,
) -> None:
    """AFTER MATCH SKIP where a match waits for earlier ones that are not found yet.

    `matches` are keys, first rows, the rows to which they skip (-1: none), and two sort numbers;
    `order` sorts them by key, then by these. `runs` are keys, first rows and the least sort
    numbers that a partial match can lead to, sorted likewise. A run that begins too early to be
    selected blocks no match. Fates: 0 dropped, 1 selected, 2 waits.
    """
    keys, first, target, turn, later = matches
    run_keys, run_first, run_turn, run_later = runs
    run, count = 0, run_keys.shape[0]
    for k in order:
        key = keys[k]
        while run < count and (run_keys[run] < key or (run_keys[run] == key and run_first[run] < earliest[key])):
            run += 1
        if first[k] < earliest[key]:
            fate[k] = 0
        elif (
            run < count
            and run_keys[run] == key
            and (run_turn[run] < turn[k] or (run_turn[run] == turn[k] and run_later[run] <= later[k]))
        ):
            fate[k] = 2
        else:
            fate[k] = 1
            if target[k] >= 0:
                earliest[key] = max(target[k], first[k] + 1)


@kernel()
def mark_violations(
    first: Any, last: Any, starts: Any, ends: Any, rows: Any, after: Any, until: Any, members: Any, violated: Any
) -> None:
    """Mark the matches k with an event completely in (after[k], until[k]].

    The events of a match's key are `first[k]` to `last[k]`, sorted by end; its own rows,
    `members`, do not count. Matches that are already marked are skipped.
    """
    for k in range(after.shape[0]):
        if violated[k]:
            continue
        low, high = first[k], last[k]
        while low < high:
            middle = (low + high) // 2
            if ends[middle] > after[k]:
                high = middle
            else:
                low = middle + 1
        place = low
        while place < last[k] and ends[place] <= until[k]:
            if starts[place] > after[k]:
                foreign = True
                for j in range(members.shape[1]):
                    if members[k, j] == rows[place]:
                        foreign = False
                        break
                if foreign:
                    violated[k] = True
                    break
            place += 1


@kernel()
def widen_by_rows(rows: Table, first: Table, last: Table) -> None:
    """Widen the first and last rows of matches by a variable's row; -1 is unbound."""
    for k in range(rows.shape[0]):
        row = rows[k]
        if row >= 0:
            first[k] = min(first[k], row)
            last[k] = max(last[k], row)


@kernel()
def widen_by_lists(offsets: Table, rows: Table, first: Table, last: Table) -> None:
    """Widen the first and last rows by the ascending rows of a Kleene variable."""
    for k in range(offsets.shape[0] - 1):
        if offsets[k] < offsets[k + 1]:
            first[k] = min(first[k], rows[offsets[k]])
            last[k] = max(last[k], rows[offsets[k + 1] - 1])


@kernel()
def pick_lists(offsets: Table, rows: Table, numbers: Table, places: Table, picked: Table) -> None:
    """Copy the lists of the matches `numbers` to their places."""
    for k in range(numbers.shape[0]):
        begin = offsets[numbers[k]]
        for p in range(places[k + 1] - places[k]):
            picked[places[k] + p] = rows[begin + p]
