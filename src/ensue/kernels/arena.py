"""Keeping arenas tidy: what is out of reach makes room for what comes."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import kernel

Table = npt.NDArray[Any]

PREVIOUS, RIP, ROW, KEY = 0, 1, 2, 3  # places in an instance


@kernel(nogil=True)
def keep_instances(
    whole: Table, real: Table, top: int, tops: Table, links: Table, alive: Table, moved: Table
) -> int:
    """Moves the instances that are still alive to the front and mends the links.

    `alive` says which ones (of the first `top`); an instance's links, in PREVIOUS and the columns
    `links`, lead to older ones. A link to a dead instance leads on to the next older one of its
    list. Returns the new top. `moved` is scratch of size top.
    """
    new = 0
    for old in range(top):
        if not alive[old]:
            link = whole[old, PREVIOUS]
            moved[old] = moved[link] if link >= 0 else -1
            continue
        moved[old] = new
        for column in range(whole.shape[1]):
            whole[new, column] = whole[old, column]
        for column in range(real.shape[1]):
            real[new, column] = real[old, column]
        link = whole[new, PREVIOUS]
        whole[new, PREVIOUS] = moved[link] if link >= 0 else -1
        for column in links:
            link = whole[new, column]
            whole[new, column] = moved[link] if link >= 0 else -1
        new += 1
    for key in range(tops.shape[0]):
        for stack in range(tops.shape[1]):
            link = tops[key, stack]
            tops[key, stack] = moved[link] if link >= 0 else -1
    return new


@kernel(nogil=True)
def keep_linked(
    whole: Table, real: Table, top: int, tops: Table, alive: Table, moved: Table, links: Table
) -> int:
    """Moves the nodes that are still alive to the front and mends their links, both ways.

    `links` are the columns that lead to other nodes; a link to a dead one ends there. Returns the
    new top. `moved` is scratch of size top.
    """
    new = 0
    for old in range(top):
        moved[old] = new if alive[old] else -1
        new += 1 if alive[old] else 0
    for old in range(top):
        place = moved[old]
        if place < 0:
            continue
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


@kernel(nogil=True)
def drop_unreached(whole: Table, tops: Table, alive: Table) -> None:
    """Takes the life of instances that no stack leads to any more; links lead to older ones."""
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


@kernel(nogil=True)
def keep_nodes(
    nodes: Table,
    reals: Table,
    top: int,
    head: Table,
    nxt: Table,
    runs: Table,
    columns: Table,
    moved: Table,
) -> int:
    """Drops the Kleene events that no run holds any more; returns the new top.

    `columns` are the places in a run that lead to its newest events; `moved` is scratch.
    """
    moved[:top] = -1
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
    for old in range(top):
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


@kernel(nogil=True)
def lists_of(
    nodes: Table,
    link: int,
    row: int,
    heads: Table,
    counts: Table,
    offsets: Table,
    rows: Table,
) -> None:
    """Writes out the events of Kleene variables, oldest first.

    `link` and `row` are the places in a node that lead to the node before and that hold its row.
    """
    for k in range(heads.shape[0]):
        node = heads[k]
        place = offsets[k] + counts[k] - 1
        while node >= 0 and place >= offsets[k]:
            rows[place] = nodes[node, row]
            node = nodes[node, link]
            place -= 1


@kernel(nogil=True)
def live_runs(head: Table, nxt: Table, first: int, step: int, runs: Table) -> int:
    """Writes the numbers of the runs in every `step`-th list from `first`; returns how many."""
    count = 0
    for key in range(head.shape[0]):
        for place in range(first, head.shape[1], step):
            run = head[key, place]
            while run >= 0:
                runs[count] = run
                count += 1
                run = nxt[run]
    return count


@kernel(nogil=True)
def pack_runs(head: Table, nxt: Table, origin: Table, following: Table) -> int:
    """Numbers the live runs without gaps, in the order of their lists; returns how many.

    `head` then holds the new numbers, `following` the links between them, and `origin` where
    each run has been.
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


@kernel(nogil=True)
def some_apart(
    lists: Table, nxt: Table, last: Table, newest: Table, passed: Table, told: int
) -> bool:
    """Whether some run has missed what came last in its partition, and is not `told` yet."""
    for key in range(lists.shape[0]):
        for place in range(lists.shape[1]):
            run = lists[key, place]
            while run >= 0:
                if last[run] < newest[key] and passed[run] & told == 0:
                    return True
                run = nxt[run]
    return False


@kernel(nogil=True)
def drop_runs(
    head: Table, live: Table, nxt: Table, last: Table, newest: Table, free: int
) -> tuple[int, int]:
    """Drops the runs that have missed an event they would have had to take.

    `last` says what each run took last and `newest` what came last in each partition. Runs that
    wait for time to pass (in the lists with odd numbers) take nothing and stay. Returns the first
    free place and how many runs were dropped.
    """
    dropped = 0
    for key in range(head.shape[0]):
        if live[key] == 0:
            continue
        for place in range(0, head.shape[1], 2):
            before = -1
            run = head[key, place]
            while run >= 0:
                behind = nxt[run]
                if last[run] < newest[key]:
                    if before < 0:
                        head[key, place] = behind
                    else:
                        nxt[before] = behind
                    nxt[run] = free
                    free = run
                    live[key] -= 1
                    dropped += 1
                else:
                    before = run
                run = behind
    return free, dropped


@kernel(nogil=True)
def oldest_rows(
    head: Table,
    nxt: Table,
    runs: Table,
    rows: Table,
    lists: Table,
    nodes: Table,
    top: int,
    oldest: Table,
) -> None:
    """Lowers `oldest` to the oldest row that the runs of each partition hold.

    `rows` are the places of rows in a run, `lists` those of its Kleene variables' newest events.
    Runs that only wait for time to pass do not count.
    """
    first = np.empty(top, np.int64)  # of the list that ends with a node; links lead to older ones
    for node in range(top):
        previous = nodes[node, 0]
        first[node] = nodes[node, 1] if previous < 0 else first[previous]
    for key in range(head.shape[0]):
        for place in range(0, head.shape[1], 2):
            run = head[key, place]
            while run >= 0:
                for column in rows:
                    if runs[run, column] >= 0:
                        oldest[key] = min(oldest[key], runs[run, column])
                for column in lists:
                    if runs[run, column] >= 0:
                        oldest[key] = min(oldest[key], first[runs[run, column]])
                run = nxt[run]


@kernel(nogil=True)
def ends_of_runs(
    head: Table,
    nxt: Table,
    runs: Table,
    rows: Table,
    lists: Table,
    nodes: Table,
    top: int,
    found: Table,
) -> int:
    """Writes of each run its number, key, first and last row, and the list that it is in.

    `rows` are the places of rows in a run, `lists` those of its Kleene variables' newest events.
    Returns how many runs there are.
    """
    first = np.empty(top, np.int64)  # of the list that ends with a node; links lead to older ones
    for node in range(top):
        previous = nodes[node, 0]
        first[node] = nodes[node, 1] if previous < 0 else first[previous]
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
                found[count, 0], found[count, 1] = run, key
                found[count, 2], found[count, 3] = begin, end
                found[count, 4] = place
                count += 1
                run = nxt[run]
    return count


@kernel(nogil=True)
def set_bits(mask: Table, codes: Table, bits: Table) -> None:
    """The roles of each event by its type's code; at the end those of other types, of code -1."""
    others = bits[bits.shape[0] - 1]
    for i in range(codes.shape[0]):
        code = codes[i]
        mask[i] = bits[code] if code >= 0 else others


@kernel(nogil=True)
def clear_bit(mask: Table, truth: Table, bit: int) -> None:
    """Takes a role from the events that do not pass its test."""
    off = ~(np.int64(1) << bit)
    for i in range(mask.shape[0]):
        if not truth[i]:
            mask[i] &= off
