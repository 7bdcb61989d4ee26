"""Compaction of run and instance tables, and bit masks of events."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import kernel

Table = npt.NDArray[Any]

PREVIOUS, RIP, ROW, KEY = 0, 1, 2, 3  # columns of an instance


@kernel()
def keep_instances(whole: Table, real: Table, tops: Table, links: Table, alive: Table, to_older: bool) -> int:
    """Move the live instances to the front and update the links; return the new top.

    `alive` marks the live ones, `links` are the columns with links. A link to a dead instance
    becomes -1 or, with `to_older`, moves on to the next older live one of its list.
    """
    new, top = 0, alive.shape[0]
    moved = np.empty(top, np.int64)
    for old in range(top):
        if alive[old]:
            moved[old] = new
            new += 1
        else:
            link = whole[old, PREVIOUS]
            moved[old] = moved[link] if to_older and link >= 0 else -1
    for old in range(top):
        if not alive[old]:
            continue
        place = moved[old]
        for column in range(whole.shape[1]):
            whole[place, column] = whole[old, column]
        for column in range(real.shape[1]):
            real[place, column] = real[old, column]
        for column in links:
            link = whole[place, column]
            whole[place, column] = moved[link] if link >= 0 else -1
    for key in range(tops.shape[0]):
        for place in range(tops.shape[1]):
            link = tops[key, place]
            tops[key, place] = moved[link] if link >= 0 else -1
    return new


@kernel()
def drop_unreached(whole: Table, tops: Table, alive: Table) -> None:
    """Clear the marks of instances that no stack reaches; links point to older instances."""
    reached = np.zeros(alive.shape[0], np.bool_)
    for key in range(tops.shape[0]):
        for stack in range(tops.shape[1]):
            if tops[key, stack] >= 0:
                reached[tops[key, stack]] = True
    for node in range(alive.shape[0] - 1, -1, -1):
        alive[node] = alive[node] and reached[node]
        if alive[node]:
            for column in (PREVIOUS, RIP):
                if whole[node, column] >= 0:
                    reached[whole[node, column]] = True


@kernel()
def keep_nodes(nodes: Table, reals: Table, head: Table, nxt: Table, runs: Table, columns: Table) -> int:
    """Drop the Kleene events that no run holds; return their number.

    `columns` are the columns of a run with its newest events.
    """
    moved = np.full(nodes.shape[0], -1)
    for key in range(head.shape[0]):
        for place in range(head.shape[1]):
            run = head[key, place]
            while run >= 0:
                for column in columns:
                    node = runs[run, column]
                    while node >= 0 and moved[node] < 0:
                        moved[node] = 1
                        node = nodes[node, 0]
                run = nxt[run]
    new = 0
    for old in range(nodes.shape[0]):
        if moved[old] < 0:
            continue
        moved[old] = new
        for column in range(nodes.shape[1]):
            nodes[new, column] = nodes[old, column]
        for column in range(reals.shape[1]):
            reals[new, column] = reals[old, column]
        link = nodes[new, 0]
        nodes[new, 0] = moved[link] if link >= 0 else -1
        new += 1
    for key in range(head.shape[0]):
        for place in range(head.shape[1]):
            run = head[key, place]
            while run >= 0:
                for column in columns:
                    node = runs[run, column]
                    runs[run, column] = moved[node] if node >= 0 else -1
                run = nxt[run]
    return new


@kernel()
def write_lists(nodes: Table, link: int, row: int, heads: Table, counts: Table, offsets: Table, rows: Table) -> None:
    """Write out the events of Kleene variables, oldest first.

    `link` and `row` are the columns of a node with its predecessor and its row.
    """
    for k in range(heads.shape[0]):
        node = heads[k]
        place = offsets[k] + counts[k] - 1
        while node >= 0 and place >= offsets[k]:
            rows[place] = nodes[node, row]
            node = nodes[node, link]
            place -= 1


@kernel()
def list_live_runs(head: Table, nxt: Table, runs: Table) -> int:
    """Write the numbers of all runs; return their count."""
    count = 0
    for key in range(head.shape[0]):
        for place in range(head.shape[1]):
            run = head[key, place]
            while run >= 0:
                runs[count] = run
                count += 1
                run = nxt[run]
    return count


@kernel()
def pack_runs(head: Table, nxt: Table, origin: Table, following: Table) -> int:
    """Renumber the live runs without gaps, in list order; return their count.

    `head` then holds the new numbers, `following` the links between them, and `origin` the old
    ones.
    """
    count = 0
    for key in range(head.shape[0]):
        for place in range(head.shape[1]):
            run = head[key, place]
            if run >= 0:
                head[key, place] = count
            while run >= 0:
                origin[count] = run
                run = nxt[run]
                following[count] = count + 1 if run >= 0 else -1
                count += 1
    return count


@kernel()
def has_missed_events(lists: Table, nxt: Table, last: Table, newest: Table, passed: Table, bit: int) -> bool:
    """Whether a run without a bit in `passed` has missed its partition's newest event."""
    for key in range(lists.shape[0]):
        for place in range(lists.shape[1]):
            run = lists[key, place]
            while run >= 0:
                if last[run] < newest[key] and passed[run] & bit == 0:
                    return True
                run = nxt[run]
    return False


@kernel()
def drop_runs(head: Table, live: Table, nxt: Table, last: Table, newest: Table, free: int) -> tuple[int, int]:
    """Drop the runs that have missed an event that they had to take.

    `last` is the last event of each run and `newest` that of each partition. Runs that wait for
    time to pass (in lists with odd numbers) stay. Returns the first free run and the number of
    dropped runs.
    """
    dropped = 0
    for key in range(head.shape[0]):
        if live[key] == 0:
            continue
        for place in range(0, head.shape[1], 2):
            before = -1
            run = head[key, place]
            while run >= 0:
                following = nxt[run]
                if last[run] < newest[key]:
                    if before < 0:
                        head[key, place] = following
                    else:
                        nxt[before] = following
                    nxt[run] = free
                    free = run
                    live[key] -= 1
                    dropped += 1
                else:
                    before = run
                run = following
    return free, dropped


@kernel()
def _first_rows(nodes: Table) -> Table:
    """The oldest row of the list that ends with each node; links point to older nodes."""
    first = np.empty(nodes.shape[0], np.int64)
    for node in range(nodes.shape[0]):
        previous = nodes[node, 0]
        first[node] = nodes[node, 1] if previous < 0 else first[previous]
    return first


@kernel()
def find_run_ends(head: Table, nxt: Table, runs: Table, rows: Table, lists: Table, nodes: Table, out: Table) -> int:
    """Write the number, key, first row, last row and list of each run; return their count.

    `rows` are the row columns of a run, `lists` those of its Kleene variables' newest events.
    """
    first = _first_rows(nodes)
    count = 0
    for key in range(head.shape[0]):
        for place in range(head.shape[1]):
            run = head[key, place]
            while run >= 0:
                begin, end = np.iinfo(np.int64).max, np.int64(-1)
                for column in rows:
                    if runs[run, column] >= 0:
                        begin = min(begin, runs[run, column])
                        end = max(end, runs[run, column])
                for column in lists:
                    node = runs[run, column]
                    if node >= 0:
                        begin = min(begin, first[node])
                        end = max(end, nodes[node, 1])
                out[count, 0], out[count, 1] = run, key
                out[count, 2], out[count, 3] = begin, end
                out[count, 4] = place
                count += 1
                run = nxt[run]
    return count


@kernel()
def clear_bit(mask: Table, truth: Table, bit: int) -> None:
    """Clear a role of the events that fail its condition."""
    off = ~(np.int64(1) << bit)
    for i in range(mask.shape[0]):
        if not truth[i]:
            mask[i] &= off
