"""Matching events with the predicate index: from events to the atoms that they satisfy.

Events are processed in blocks, to overlap memory accesses: all keys are tested by the filter,
those that pass are looked up, entries are compared with their boxes, and last the tests are
evaluated.
"""

from typing import Any, NamedTuple

import numpy as np

from ensue.kernels.jit import kernel
from ensue.kernels.predicate_index_arrays import (
    AMONG_LAST,
    EQUAL,
    GRID,
    LEAST,
    MASK,
    NEXT,
    NOTHING,
    OPS,
    PLACE,
    REGION,
    SEED,
    SLOT_TOP,
    SPAN,
    UNLIKE,
    WHAT,
    WITHIN,
    WORD,
    Atoms,
    Cells,
    Floats,
    Ints,
    Words,
    compute_cell,
)
from ensue.kernels.predicate_index_hash import CURSOR, ENTRY, HEAD, UNIT, HashTable, hash_key
from ensue.kernels.regions import RegionTable, point_test, region_test

PROBES, PASSED, ENTRIES, TESTED, FOUND = range(5)  # counters; the caller updates the last two
_BLOCK, _FIRST_BLOCK = 64, 8  # events that are looked up together
_ROOM = 4096  # keys that are looked up together
_MOST_CELLS = 1024  # of a place on one level; wider places are tested against every atom
_ONE, _EMPTY = np.uint64(1), np.uint64(0)
_S2, _S6, _S32, _LOW6 = np.uint64(2), np.uint64(6), np.uint64(32), np.uint64(63)
_LOWER = (np.int64(1) << np.int64(WORD)) - 1


class IndexedEvents(NamedTuple):
    """A batch of events, one row each."""

    values: Ints  # by row and field: ordered integers
    numbers: Floats  # the same as doubles; NaN for NULL
    groups: Cells  # groups of their types; 0: no atom has this type
    boxes: Floats  # x0, y0, x1, y1 of their places; NaN for no place
    xs: Floats  # the corners of their places
    ys: Floats
    corners: Ints  # offsets of the corners by row


@kernel(lambda args: args[3].values.size)
def find_candidates(
    table: HashTable, atoms: Atoms, space: int, events: IndexedEvents, start: int, most: int, counters: Ints
) -> tuple[Ints, int]:
    """The candidate pairs of row and slot (row << 32 | slot), a superset of the matches; next row.

    It starts with row `start`, and stops at `most` pairs.
    """
    values, numbers, boxes, groups = events.values, events.numbers, events.boxes, events.groups
    heads, paths, scales = atoms.groups, atoms.paths, atoms.scales
    bits, old_bits = table.bits, table.old_bits
    low = np.uint64(len(bits) * 64 - 1)
    growing = table.state[CURSOR] < len(table.old_keys)
    old_low = np.uint64(len(old_bits) * 64 - 1) if growing else _EMPTY
    keys, who = np.empty(_ROOM, np.uint64), np.empty(_ROOM, np.int32)
    pairs = np.empty(1024, np.int64)
    n = 0
    rows = len(groups)
    first, block = start, _FIRST_BLOCK
    while first < rows and n < most:
        begin, last = n, min(first + block, rows)
        live: Any = 0
        for e in range(first, last):
            wide = False
            group = np.int64(groups[e])
            while True:
                path = np.int64(heads[group]) - 1
                while path >= 0:
                    what = paths[path, WHAT]
                    kind, field = what & 255, (what >> 8) & 0xFFFFFF
                    seed, scale = np.uint64(paths[path, SEED]), scales[path]
                    mask = paths[path, MASK]
                    path = paths[path, NEXT] - 1
                    x0, y0, across, along = np.int64(0), np.int64(0), np.int64(1), np.int64(1)
                    if kind == EQUAL:
                        x0 = values[e, field]
                        if x0 == LEAST and np.isnan(numbers[e, field]):
                            continue
                    elif kind == GRID:
                        if np.isnan(boxes[e, 0]):
                            continue
                        x0, y0 = compute_cell(boxes[e, 0], scale), compute_cell(boxes[e, 1], scale)
                        if boxes[e, 2] != boxes[e, 0] or boxes[e, 3] != boxes[e, 1]:
                            across = compute_cell(boxes[e, 2], scale) - x0 + 1
                            along = compute_cell(boxes[e, 3], scale) - y0 + 1
                            if mask >= 0:
                                across = min(across, mask + 1)
                            if across > _MOST_CELLS or across * along > _MOST_CELLS:
                                wide = True
                                continue
                    elif kind == SPAN:
                        if np.isnan(numbers[e, field]):
                            continue
                        x0 = compute_cell(numbers[e, field], scale)
                    for i in range(across):
                        for j in range(along):
                            key = hash_key(seed, np.uint64((x0 + i) & mask), np.uint64(y0 + j))
                            bit = (key >> _S2) & low
                            maybe = (bits[bit >> _S6] >> (bit & _LOW6)) & _ONE
                            if growing:
                                bit = (key >> _S2) & old_low
                                maybe |= (old_bits[bit >> _S6] >> (bit & _LOW6)) & _ONE
                            keys[live] = key
                            who[live] = e
                            live += np.int64(maybe)
                            counters[PROBES] += 1
                            if live == _ROOM:
                                pairs, n = _look_up(table, space, events, keys, who, live, pairs, n, counters)
                                live = 0
                if group == 0:
                    break
                group = np.int64(0)
            if wide:
                pairs, n = _all_under_cells(atoms, e, pairs, n)
        pairs, n = _look_up(table, space, events, keys, who, live, pairs, n, counters)
        # larger blocks, unless each event has very many candidates
        block = min(2 * block, _BLOCK) if n - begin < most >> 3 else max(block >> 1, 1)
        first = last
    return pairs[:n], first


@kernel()
def _more(pairs: Ints, n: int) -> Ints:
    """Double the capacity."""
    larger = np.empty(2 * len(pairs), np.int64)
    larger[:n] = pairs[:n]
    return larger


@kernel()
def _look_up(
    table: HashTable,
    space: int,
    events: IndexedEvents,
    keys: Words,
    who: Cells,
    live: int,
    pairs: Ints,
    n: Any,
    counters: Ints,
) -> tuple[Ints, int]:
    """Look keys up, and append the atoms whose boxes contain their events."""
    table_keys, heads = table.keys, table.heads
    old_keys, old_heads = table.old_keys, table.old_heads
    growing = table.state[CURSOR] < len(old_keys)
    mask = np.uint64(len(table_keys) - 1)
    counters[PASSED] += live
    chunks, owners = np.empty(live, np.int32), np.empty(live, np.int32)
    active: Any = 0
    for k in range(live):
        key = keys[k]
        at = (key >> _S32) & mask
        while table_keys[at] != key and table_keys[at] != _EMPTY:
            at = (at + _ONE) & mask
        chunk = np.int32(-1)
        if table_keys[at] == key:
            chunk = heads[at]
        elif growing:
            old_mask = np.uint64(len(old_keys) - 1)
            at = (key >> _S32) & old_mask
            while old_keys[at] != key and old_keys[at] != _EMPTY:
                at = (at + _ONE) & old_mask
            if old_keys[at] == key:
                chunk = old_heads[at]
        chunks[active] = chunk
        owners[active] = who[k]
        active += np.int64(chunk >= 0)
    words, reals = table.words, table.reals
    boxes, numbers = events.boxes, events.numbers
    turn = 360.0 if space == 1 else np.inf
    while active > 0:
        left: Any = 0
        for k in range(active):
            e = np.int64(owners[k])
            base = np.int64(chunks[k]) * UNIT
            count = np.int64(words[base + 1] & 15)
            counters[ENTRIES] += count
            if n + count > len(pairs):
                pairs = _more(pairs, n)
            for place in range(base + HEAD, base + HEAD + ENTRY * count, ENTRY):
                what = np.int64(words[place + 1])
                inside = True
                if what == PLACE:
                    x0, x1 = boxes[e, 0], boxes[e, 2]
                    low, high = reals[place + 2], reals[place + 4]
                    inside = boxes[e, 1] <= reals[place + 5] and boxes[e, 3] >= reals[place + 3]
                    inside = inside and ((x0 <= high and x1 >= low) or x0 + turn <= high or x1 - turn >= low)
                elif what != NOTHING:
                    a, b = numbers[e, what & 0xFFFF], numbers[e, what >> 16]
                    inside = reals[place + 2] <= a and a <= reals[place + 4]
                    inside = inside and reals[place + 3] <= b and b <= reals[place + 5]
                pairs[n] = (e << WORD) | np.int64(words[place])
                n += np.int64(inside)
            chunks[left] = words[base]
            owners[left] = e
            left += np.int64(words[base] >= 0)
        active = left
    return pairs, n


@kernel()
def _all_under_cells(atoms: Atoms, e: int, pairs: Ints, n: int) -> tuple[Ints, int]:
    """Append every atom indexed by cells, for an event whose place covers too many cells."""
    for slot in range(atoms.state[SLOT_TOP]):
        access = atoms.access[slot, 0]
        if access >= 0 and access & 255 == GRID:
            if n == len(pairs):
                pairs = _more(pairs, n)
            pairs[n] = (np.int64(e) << WORD) | slot
            n += 1
    return pairs, n


@kernel()
def filter_candidates(atoms: Atoms, regions: RegionTable, space: int, events: IndexedEvents, pairs: Ints) -> Ints:
    """The pairs whose event passes all tests: row << 32 | slot << 1 | has late tests.

    It is separate from `find_candidates`, because the geometry takes long to compile.
    """
    tests, links, firsts = atoms.tests, atoms.numbers, atoms.first
    values, numbers = events.values, events.numbers
    xs, ys, corners, boxes = events.xs, events.ys, events.corners, events.boxes
    matches = np.empty(len(pairs), np.int64)
    n = 0
    for k in range(len(pairs)):
        e, slot = pairs[k] >> WORD, pairs[k] & _LOWER
        at = np.int64(firsts[slot]) - 1
        passed, among, late = True, False, np.int64(0)
        while at >= 0:
            word = tests[at, 0]
            op, field = (word >> WORD) & 15, word >> (WORD + OPS)
            if op <= AMONG_LAST:
                value = values[e, field]
                if value == LEAST and np.isnan(numbers[e, field]):
                    passed = False
                elif op == WITHIN:
                    passed = tests[at, 1] <= value and value <= tests[at, 2]
                elif op == UNLIKE:
                    passed = value != tests[at, 1]
                else:
                    among = among or value == tests[at, 1] or value == tests[at, 2]
                    if op == AMONG_LAST:
                        passed, among = among, False
            elif op == REGION:
                a, b = corners[e], corners[e + 1]
                if b == a or np.isnan(boxes[e, 0]):
                    passed = False
                elif b == a + 1:
                    passed = point_test(
                        regions, tests[at, 1], field & 3, field >> 2, links[at, 2], links[at, 3],
                        xs[a], ys[a], space,
                    )  # fmt: skip
                else:
                    passed = region_test(
                        regions, tests[at, 1], field & 3, field >> 2, links[at, 2], links[at, 3],
                        xs[a:b], ys[a:b], b - a, space,
                    )  # fmt: skip
            else:
                late = np.int64(1)
            if not passed:
                break
            at = (word & _LOWER) - 1
        if passed:
            matches[n] = (e << WORD) | (slot << 1) | late
            n += 1
    return matches[:n]
