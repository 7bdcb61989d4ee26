"""Compaction of the subscription network: drops values that no later match can use."""

from typing import Any

import numpy as np

from ensue.kernels.jit import kernel
from ensue.kernels.network import add_timer, grow_array
from ensue.kernels.network_tables import (
    ABSENCE,
    EVENT,
    LEFT,
    LIFE,
    PENDING,
    RIGHT,
    Bytes,
    Ints,
    NetworkNodes,
    NetworkValues,
)


@kernel()
def _mark(instances: Ints, instance: int, marks: Bytes, stack: Ints) -> Ints:
    """Mark a value and all its parts."""
    stack[0] = instance
    top = 1
    while top > 0:
        top -= 1
        at = stack[top]
        if marks[at] == 1:
            continue
        marks[at] = 1
        if top + 2 > stack.shape[0]:
            stack = grow_array(stack, 2 * stack.shape[0])
        for side in (LEFT, RIGHT):
            if instances[at, side] >= 0:
                stack[top] = instances[at, side]
                top += 1
    return stack


@kernel()
def mark_needed(nodes: NetworkNodes, held: NetworkValues, marks: Bytes, alive: Bytes) -> tuple[int, int]:
    """Mark the waiting values, and unlink expired ones; return the numbers of instances and cells.

    `alive` marks the nodes in use.
    """
    instances, times, cells, heads = held.instances, held.times, held.cells, held.heads
    clock = held.clock[0]
    stack = np.empty(256, np.int64)
    linked = 0
    for m in range(heads.shape[0]):
        for side in range(2):
            cell, before = heads[m, side], np.int32(-1)
            if cell < 0:
                continue
            absence = nodes.kind[m] == ABSENCE
            waits = nodes.waits[m, 2] if absence else nodes.waits[m, side]
            while cell >= 0:
                v = np.int64(cells[cell, 0])
                if absence and side == 0:
                    keep = instances[v, LIFE] == PENDING
                else:
                    keep = not clock - times[v, 1] > waits
                if alive[m] == 1 and keep:
                    stack = _mark(instances, v, marks, stack)
                    linked += 1
                    before = cell
                elif before < 0:
                    heads[m, side] = cells[cell, 1]
                else:
                    cells[before, 1] = cells[cell, 1]
                cell = cells[cell, 1]
    made = 0
    for k in range(held.counted[0]):
        made += 1 if marks[k] == 1 else 0
    return made, linked


@kernel()
def copy_marked(held: NetworkValues, marks: Bytes, events: Ints, instances: Ints, times: Any, cells: Any) -> int:
    """Copy the marked values to the front of new tables; return the number of timers.

    `events` is the new position of each event. Timers of dropped values are dropped.
    """
    place = np.full(held.counted[0], -1, np.int64)
    n = 0
    for k in range(held.counted[0]):
        if marks[k] == 1:
            place[k] = n
            instances[n] = held.instances[k]
            times[n] = held.times[k]
            n += 1
    for k in range(n):
        for side in (LEFT, RIGHT):
            if instances[k, side] >= 0:
                instances[k, side] = place[instances[k, side]]
        if instances[k, EVENT] >= 0:
            instances[k, EVENT] = events[instances[k, EVENT]]
    linked = 0
    for m in range(held.heads.shape[0]):
        for side in range(2):
            cell = held.heads[m, side]
            if cell < 0:
                continue
            held.heads[m, side] = linked
            while cell >= 0:
                cells[linked, 0] = place[held.cells[cell, 0]]
                cells[linked, 2] = held.cells[cell, 2]
                cell = held.cells[cell, 1]
                cells[linked, 1] = linked + 1 if cell >= 0 else -1
                linked += 1
    timers = 0
    for k in range(held.counted[2]):
        v = held.heap[k, 0]
        if marks[v] == 1 and held.instances[v, LIFE] == PENDING:
            height, due = held.heap[k, 1], held.heap_times[k]
            add_timer(held.heap, held.heap_times, timers, place[v], height, due)
            timers += 1
    return timers


@kernel()
def mark_events(instances: Ints, count: int, marks: Bytes, events: Bytes) -> None:
    """Mark the events of marked values."""
    for k in range(count):
        if marks[k] == 1 and instances[k, EVENT] >= 0:
            events[instances[k, EVENT]] = 1
