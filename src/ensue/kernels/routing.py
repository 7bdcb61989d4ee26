"""From events to the atoms that each satisfies.

Events go in blocks. First all their keys are made and asked of the filter, then all that pass it
are looked up, then the entries are held against their boxes, and at last the tests of what is left
are made: in each step one event's accesses to memory do not wait for another's.
"""

from typing import Any, NamedTuple

import numpy as np

from ensue.kernels.kept_code import kernel
from ensue.kernels.regions import RegionTable, point_test, region_test
from ensue.kernels.routing_arrays import (
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
    cell_of,
)
from ensue.kernels.routing_table import CURSOR, ENTRY, HEAD, OPTIONS, UNIT, Table, key_of

PROBES, PASSED, ENTRIES, TESTED, FOUND = range(5)  # counters
BLOCK = 64  # events
_ROOM = 4096  # probes, and candidates, that are looked at together
_MOST_CELLS = 1024  # of a place on one level; wider ones are held against every atom there
_ONE, _EMPTY = np.uint64(1), np.uint64(0)
_S2, _S6, _S32, _LOW6 = np.uint64(2), np.uint64(6), np.uint64(32), np.uint64(63)
_LOWER = (np.int64(1) << np.int64(WORD)) - 1


class Events(NamedTuple):
    """A batch of events: a row each."""

    values: Ints  # by row and field: ordered integers
    numbers: Floats  # the same as doubles; NaN where there is none
    groups: Cells  # of their types; 0: no atom asks for it
    boxes: Floats  # x0, y0, x1, y1 of their places; NaN where there is none
    xs: Floats  # the corners of their places
    ys: Floats
    corners: Ints  # by row: its first corner; one more at the end


@kernel(**OPTIONS)
def route(
    table: Table,
    atoms: Atoms,
    regions: RegionTable,
    space: int,
    events: Events,
    counters: Ints,
) -> Ints:
    """Pairs of row and slot, ascending: row << 32 | slot << 1 | whether late tests are left."""
    values, numbers, boxes, groups = events.values, events.numbers, events.boxes, events.groups
    heads, paths, scales = atoms.groups, atoms.paths, atoms.scales
    bits, old_bits = table.bits, table.old_bits
    low = np.uint64(len(bits) * 64 - 1)
    growing = table.state[CURSOR] < len(table.old_keys)
    old_low = np.uint64(len(old_bits) * 64 - 1) if growing else _EMPTY
    keys, who = np.empty(_ROOM, np.uint64), np.empty(_ROOM, np.int32)
    found = np.empty(1024, np.int64)
    n = 0
    rows = len(groups)
    first = 0
    while first < rows:
        begin, last = n, min(first + BLOCK, rows)
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
                        x0, y0 = cell_of(boxes[e, 0], scale), cell_of(boxes[e, 1], scale)
                        if boxes[e, 2] != boxes[e, 0] or boxes[e, 3] != boxes[e, 1]:
                            across = cell_of(boxes[e, 2], scale) - x0 + 1
                            along = cell_of(boxes[e, 3], scale) - y0 + 1
                            if mask >= 0:
                                across = min(across, mask + 1)
                            if across > _MOST_CELLS or across * along > _MOST_CELLS:
                                wide = True
                                continue
                    elif kind == SPAN:
                        if np.isnan(numbers[e, field]):
                            continue
                        x0 = cell_of(numbers[e, field], scale)
                    for i in range(across):
                        for j in range(along):
                            key = key_of(seed, np.uint64((x0 + i) & mask), np.uint64(y0 + j))
                            bit = (key >> _S2) & low
                            there = (bits[bit >> _S6] >> (bit & _LOW6)) & _ONE
                            if growing:
                                bit = (key >> _S2) & old_low
                                there |= (old_bits[bit >> _S6] >> (bit & _LOW6)) & _ONE
                            keys[live] = key
                            who[live] = e
                            live += np.int64(there)
                            counters[PROBES] += 1
                            if live == _ROOM:
                                found, n = _look_up(
                                    table, atoms, regions, space, events, keys, who, live,
                                    found, n, counters,
                                )  # fmt: skip
                                live = 0
                if group == 0:
                    break
                group = np.int64(0)
            if wide:
                found, n = _try_all(atoms, regions, space, events, e, found, n, counters)
        found, n = _look_up(
            table, atoms, regions, space, events, keys, who, live, found, n, counters
        )
        n = _in_order(found, begin, n)
        first = last
    counters[FOUND] += n
    return found[:n]


@kernel(**OPTIONS)
def _in_order(found: Ints, begin: int, end: int) -> int:
    """Sorts the pairs of a block; what was found in two cells counts once."""
    if end - begin < 2:
        return end
    found[begin:end] = np.sort(found[begin:end])
    n = begin + 1
    for k in range(begin + 1, end):
        if found[k] != found[n - 1]:
            found[n] = found[k]
            n += 1
    return n


@kernel(**OPTIONS)
def _look_up(
    table: Table,
    atoms: Atoms,
    regions: RegionTable,
    space: int,
    events: Events,
    keys: Words,
    who: Cells,
    live: int,
    found: Ints,
    n: int,
    counters: Ints,
) -> tuple[Ints, int]:
    """Looks keys up, and tries the atoms in whose boxes their events are."""
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
    rows, slots = np.empty(_ROOM, np.int32), np.empty(_ROOM, np.int32)
    count: Any = 0
    turn = 360.0 if space == 1 else np.inf
    while active > 0:
        left: Any = 0
        for k in range(active):
            e = owners[k]
            base = np.int64(chunks[k]) * UNIT
            for place in range(
                base + HEAD, base + HEAD + ENTRY * np.int64(words[base + 1] & 15), ENTRY
            ):
                what = np.int64(words[place + 1])
                inside = True
                if what == PLACE:
                    x0, x1 = boxes[e, 0], boxes[e, 2]
                    low, high = reals[place + 2], reals[place + 4]
                    inside = boxes[e, 1] <= reals[place + 5] and boxes[e, 3] >= reals[place + 3]
                    inside = inside and (
                        (x0 <= high and x1 >= low) or x0 + turn <= high or x1 - turn >= low
                    )
                elif what != NOTHING:
                    a, b = numbers[e, what & 0xFFFF], numbers[e, what >> 16]
                    inside = reals[place + 2] <= a and a <= reals[place + 4]
                    inside = inside and reals[place + 3] <= b and b <= reals[place + 5]
                counters[ENTRIES] += 1
                rows[count] = e
                slots[count] = words[place]
                count += np.int64(inside)
                if count == _ROOM:
                    found, n = _tested(
                        atoms, regions, space, events, rows, slots, count, found, n, counters
                    )
                    count = 0
            chunks[left] = words[base]
            owners[left] = e
            left += np.int64(words[base] >= 0)
        active = left
    return _tested(atoms, regions, space, events, rows, slots, count, found, n, counters)


@kernel(**OPTIONS)
def _try_all(
    atoms: Atoms,
    regions: RegionTable,
    space: int,
    events: Events,
    e: int,
    found: Ints,
    n: int,
    counters: Ints,
) -> tuple[Ints, int]:
    """Tries every atom that hangs under cells: an event's place is too wide for them."""
    rows, slots = np.full(_ROOM, e, np.int32), np.empty(_ROOM, np.int32)
    count = 0
    for slot in range(atoms.state[SLOT_TOP]):
        access = atoms.access[slot, 0]
        if access & 255 == GRID and access >= 0:
            slots[count] = slot
            count += 1
            if count == _ROOM:
                found, n = _tested(
                    atoms, regions, space, events, rows, slots, count, found, n, counters
                )
                count = 0
    return _tested(atoms, regions, space, events, rows, slots, count, found, n, counters)


@kernel(**OPTIONS)
def _tested(
    atoms: Atoms,
    regions: RegionTable,
    space: int,
    events: Events,
    rows: Cells,
    slots: Cells,
    count: int,
    found: Ints,
    n: int,
    counters: Ints,
) -> tuple[Ints, int]:
    """Makes the tests of atoms on events, and appends the pairs that pass them."""
    tests, links = atoms.tests, atoms.numbers
    values, numbers = events.values, events.numbers
    xs, ys, corners, boxes = events.xs, events.ys, events.corners, events.boxes
    if n + count > len(found):
        more = np.empty(max(2 * len(found), n + count), np.int64)
        more[:n] = found[:n]
        found = more
    firsts = np.empty(count, np.int32)
    for k in range(count):
        firsts[k] = atoms.first[slots[k]]
    counters[TESTED] += count
    for k in range(count):
        e = np.int64(rows[k])
        at = np.int64(firsts[k]) - 1
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
            found[n] = (e << 32) | (np.int64(slots[k]) << 1) | late
            n += 1
    return found, n
