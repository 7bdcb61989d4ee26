"""Keeping arenas tidy: what is out of reach makes room for what comes."""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Table = npt.NDArray[Any]

PREVIOUS, RIP, ROW, KEY = 0, 1, 2, 3  # places in an instance


@njit(cache=True, nogil=True)
def keep_instances(
    whole: Table, real: Table, top: int, tops: Table, alive: Table, moved: Table
) -> int:
    """Moves the instances that are still alive to the front and mends the links.

    `alive` says which ones (of the first `top`); an instance's links lead to older ones, so a
    link to a dead instance ends there. Returns the new top. `moved` is scratch of size top.
    """
    new = 0
    for old in range(top):
        if not alive[old]:
            moved[old] = -1
            continue
        moved[old] = new
        for column in range(whole.shape[1]):
            whole[new, column] = whole[old, column]
        for column in range(real.shape[1]):
            real[new, column] = real[old, column]
        for column in (PREVIOUS, RIP):
            link = whole[new, column]
            whole[new, column] = moved[link] if link >= 0 else -1
        new += 1
    for key in range(tops.shape[0]):
        for stack in range(tops.shape[1]):
            link = tops[key, stack]
            tops[key, stack] = moved[link] if link >= 0 else -1
    return new


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def lists_of(nodes: Table, heads: Table, counts: Table, offsets: Table, rows: Table) -> None:
    """Writes out the events of Kleene variables, oldest first."""
    for k in range(heads.shape[0]):
        node = heads[k]
        place = offsets[k] + counts[k] - 1
        while node >= 0 and place >= offsets[k]:
            rows[place] = nodes[node, 1]
            node = nodes[node, 0]
            place -= 1


@njit(cache=True, nogil=True)
def live_runs(head: Table, nxt: Table, runs: Table) -> int:
    """Writes the numbers of all live runs; returns how many there are."""
    count = 0
    for key in range(head.shape[0]):
        for place in range(head.shape[1]):
            run = head[key, place]
            while run >= 0:
                runs[count] = run
                count += 1
                run = nxt[run]
    return count


@njit(cache=True, nogil=True)
def skip_matches(
    order: Table, keys: Table, first: Table, target: Table, earliest: Table, kept: Table
) -> None:
    """AFTER MATCH SKIP: a match is kept if it begins where the ones kept before it allow."""
    for k in order:
        key = keys[k]
        if first[k] >= earliest[key]:
            kept[k] = True
            earliest[key] = max(target[k], first[k] + 1)


@njit(cache=True, nogil=True)
def set_bits(mask: Table, codes: Table, bits: Table) -> None:
    """The roles of each event by its type's code; a code of -1 plays none."""
    for i in range(codes.shape[0]):
        code = codes[i]
        mask[i] = bits[code] if code >= 0 else 0


@njit(cache=True, nogil=True)
def clear_bit(mask: Table, truth: Table, bit: int) -> None:
    """Takes a role from the events that do not pass its test."""
    off = ~(np.int64(1) << bit)
    for i in range(mask.shape[0]):
        if not truth[i]:
            mask[i] &= off
