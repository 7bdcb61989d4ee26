"""One kernel that matches all subscriptions by interpreting the table of their nodes.

An event enters at its leaves. A node that receives a value joins it with the values waiting on its
other side, passes the results to its parents, and then lets the value wait. Lists are newest first
and are cut at the first expired value, since all later ones are older.
"""

from typing import Any

import numpy as np

from ensue.kernels.jit import kernel
from ensue.kernels.network_tables import (
    ABSENCE,
    BARRED,
    BARRED_BY,
    CODE_A,
    CODE_B,
    CODE_C,
    EVENT,
    FIRST,
    LAST,
    LEFT,
    LEFT_SIDE,
    LIFE,
    MOST_SLOTS,
    NEVER,
    NODE,
    ONCE,
    PENDING,
    RIGHT,
    SIEVE,
    SINCE,
    SLOTS_A,
    SLOTS_B,
    THERE,
    Ints,
    NetworkEvents,
    NetworkNodes,
    NetworkOutput,
    NetworkValues,
    Small,
    Times,
)
from ensue.kernels.network_values import (
    append_slots,
    find_time,
    get_key,
    has_common_base_event,
    have_common_event,
    passes_tests,
    select_rows_to_deliver,
)
from ensue.kernels.regions import RegionTable

DONE, TOO_MANY_HELD, TOO_MANY_FOUND = 0, 1, 2


@kernel()
def grow_table(table: Ints, size: int) -> Ints:
    """Grow a table to `size` rows."""
    larger = np.empty((size, table.shape[1]), table.dtype)
    larger[: table.shape[0]] = table
    return larger


@kernel()
def grow_array(table: Times, size: int) -> Times:
    larger = np.empty(size, table.dtype)
    larger[: table.shape[0]] = table
    return larger


@kernel()
def add_timer(heap: Ints, heap_times: Times, count: int, instance: int, height: int, due: Any) -> None:
    """Add a timer to a heap with spare capacity, ordered by time, then by height."""
    i = count
    while i > 0:
        above = (i - 1) >> 1
        if heap_times[above] < due or (heap_times[above] == due and heap[above, 1] <= height):
            break
        heap_times[i] = heap_times[above]
        heap[i, 0] = heap[above, 0]
        heap[i, 1] = heap[above, 1]
        i = above
    heap_times[i] = due
    heap[i, 0] = instance
    heap[i, 1] = height


@kernel()
def pop_timer(heap: Ints, heap_times: Times, count: int) -> None:
    """Remove the first timer of a heap; `count` remain."""
    due, instance, height = heap_times[count], heap[count, 0], heap[count, 1]
    i = 0
    while True:
        below = 2 * i + 1
        if below >= count:
            break
        other = below + 1
        if other < count and (
            heap_times[other] < heap_times[below]
            or (heap_times[other] == heap_times[below] and heap[other, 1] < heap[below, 1])
        ):
            below = other
        if heap_times[below] > due or (heap_times[below] == due and heap[below, 1] >= height):
            break
        heap_times[i] = heap_times[below]
        heap[i, 0] = heap[below, 0]
        heap[i, 1] = heap[below, 1]
        i = below
    heap_times[i] = due
    heap[i, 0] = instance
    heap[i, 1] = height


@kernel()
def _all_take(nodes: NetworkNodes, node: int, first: int, since: int, barred: int, key_group: int, used: Ints) -> bool:
    """Whether every subscriber of a node accepts a value."""
    u = nodes.users[node]
    while u >= 0:
        s = nodes.user[u, 1]
        if key_group < 0 or nodes.key_group[s] == key_group:
            if since < nodes.since[s] or nodes.since[s] <= barred:
                return False
            if nodes.select[s] == ONCE and first <= used[s]:
                return False
        u = nodes.user[u, 0]
    return True


@kernel()
def run_network(
    nodes: NetworkNodes,
    events: NetworkEvents,
    held: NetworkValues,
    found: NetworkOutput,
    routed: Small,
    leaves: Small,
    regions: RegionTable | None,
    space: int,
    key_group: int,
    upto: Any,
    flush: bool,
    most_held: int,
    most_found: int,
) -> tuple[NetworkValues, NetworkOutput]:
    """Process routed events in order, then advance time to `upto` (or flush all timers).

    `routed` are ascending positions in `events`, `leaves` the node that each one reaches.
    """
    instances, times, cells, heads = held.instances, held.times, held.cells, held.heads
    heap, heap_times, used = held.heap, held.heap_times, held.used
    counted, clock, tied = held.counted, held.clock, held.tied
    rows, total = found.rows, found.counted
    made, linked, timers, keys = counted[0], counted[1], counted[2], counted[4]
    started = counted[3] == 1
    n = begin = total[0]
    status = DONE
    slots = np.empty(MOST_SLOTS, np.int64)
    zero = np.int64(0)  # a literal 0 has its own type and would compile functions again
    stack = np.empty(256, np.int64)
    top = 0
    bit = np.uint64(1) << np.uint64(key_group & 63)
    now = clock[0]
    due = now
    firing = False  # processing timers of the time `due`
    q = 0
    while True:
        if top == 0 and firing and timers > 0 and heap_times[0] == due:
            # one by one, lower nodes first, since they may bar higher ones
            stack[0] = heap[0, 0]
            timers -= 1
            pop_timer(heap, heap_times, timers)
            if instances[stack[0], LIFE] == PENDING:
                instances[stack[0], LIFE] = THERE
                top = 1
            continue
        if top == 0:
            # ------------------------------------------------------------ end of an instant
            if n > begin:
                n, tied, keys = select_rows_to_deliver(nodes.select, used, tied, keys, instances, times, rows, begin, n)
                begin = n
            if made > most_held:
                status = TOO_MANY_HELD
                break
            if n > most_found:
                status = TOO_MANY_FOUND
                break
            # ------------------------------------------------------------ next instant
            firing = False
            if q < routed.shape[0]:
                until = events.end[routed[q]]
                firing = timers > 0 and heap_times[0] < until
            else:
                firing = timers > 0 and (flush or heap_times[0] < upto)
                if not firing:
                    if not flush and started and upto > now:
                        now = upto
                    break
            if firing:
                due = heap_times[0]
                if not started or due > now:
                    now = due
                    started = True
                continue
            e = np.int64(routed[q])
            if not started or until > now:
                now = until
                started = True
            while q < routed.shape[0] and routed[q] == e:
                if made == instances.shape[0]:
                    instances = grow_table(instances, 2 * made)
                    times = grow_table(times, 2 * made)
                if top == stack.shape[0]:
                    stack = grow_array(stack, 2 * top)
                instances[made, NODE] = leaves[q]
                instances[made, LEFT] = -1
                instances[made, RIGHT] = -1
                instances[made, EVENT] = e
                instances[made, FIRST] = events.position[e]
                instances[made, LAST] = events.position[e]
                instances[made, SINCE] = events.version[e]
                instances[made, LIFE] = THERE
                instances[made, BARRED_BY] = -1
                times[made, 0] = events.start[e]
                times[made, 1] = events.end[e]
                stack[top] = made
                top += 1
                made += 1
                q += 1
            continue
        # ---------------------------------------------------------------- propagate a value
        if n > most_found or made > most_held:
            status = TOO_MANY_HELD if made > most_held else TOO_MANY_FOUND
            break
        top -= 1
        a = stack[top]
        node = instances[a, NODE]
        u = nodes.users[node]
        while u >= 0:
            s = nodes.user[u, 1]
            if (
                (key_group < 0 or nodes.key_group[s] == key_group)
                and instances[a, SINCE] >= nodes.since[s] > instances[a, BARRED_BY]
                and (nodes.select[s] != ONCE or instances[a, FIRST] > used[s])
            ):
                if n == rows.shape[0]:
                    rows = grow_table(rows, 2 * n)
                rows[n, 0] = s
                rows[n, 1] = a
                rows[n, 2] = 0
                rows[n, 3] = 0
                if nodes.user[u, 2] >= 0:
                    append_slots(instances, a, slots, zero)
                    e = instances[slots[nodes.user[u, 2]], EVENT]
                    rows[n, 2] = 1
                    rows[n, 3] = get_key(events, e, nodes.user[u, 3])
                n += 1
            u = nodes.user[u, 0]
        edge = nodes.edges[node]
        while edge >= 0:
            m = np.int64(nodes.edge[edge, 1])
            side = nodes.edge[edge, 2]
            this = edge
            edge = nodes.edge[edge, 0]
            if key_group >= 0 and (nodes.key_groups[m] & bit) == 0:
                continue
            if top + 2 > stack.shape[0]:
                stack = grow_array(stack, 2 * stack.shape[0])
            if made + 2 > instances.shape[0]:
                instances = grow_table(instances, 2 * instances.shape[0])
                times = grow_table(times, 2 * times.shape[0])
            if linked == cells.shape[0]:
                cells = grow_table(cells, 2 * linked)
            if nodes.kind[m] == SIEVE:
                append_slots(instances, a, slots, zero)
                if passes_tests(
                    nodes.tests[m, 0], nodes.tests[m, 1], nodes.test, nodes.test_time,
                    nodes.test_number, slots, instances, times, events, regions, space,
                ):  # fmt: skip
                    instances[made] = instances[a]
                    instances[made, NODE] = m
                    instances[made, LEFT] = a
                    instances[made, RIGHT] = -1
                    instances[made, EVENT] = -1
                    times[made, 0] = times[a, 0]
                    times[made, 1] = times[a, 1]
                    stack[top] = made
                    top += 1
                    made += 1
            elif nodes.kind[m] == ABSENCE and side == LEFT_SIDE:
                count = append_slots(instances, a, slots, zero)
                since = nodes.absence_times[m, 1]
                until = nodes.absence_times[m, 1]
                if nodes.absence[m, 1] != 0:
                    since = find_time(nodes.absence[m, 1], zero == 0, slots, times)
                if nodes.absence[m, 2] != 0:
                    until = find_time(nodes.absence[m, 2], nodes.absence[m, 3] == 1, slots, times)
                until = until + nodes.absence_times[m, 0]
                barred = False
                barred_by = instances[a, BARRED_BY]
                cell, before = heads[m, 1], np.int32(-1)
                while cell >= 0:
                    c = np.int64(cells[cell, 0])
                    if now - times[c, 1] > nodes.waits[m, 2]:
                        if before < 0:
                            heads[m, 1] = -1
                        else:
                            cells[before, 1] = -1
                        break
                    if since < times[c, 0] and times[c, 1] <= until:
                        size = append_slots(instances, c, slots, count)
                        by = cells[cell, 2]
                        if not has_common_base_event(
                            nodes.absence[m, 0], slots, count, size, instances
                        ) and passes_tests(
                            np.int64(nodes.edge[by, 3]), np.int64(nodes.edge[by, 4]), nodes.test,
                            nodes.test_time, nodes.test_number, slots, instances, times,
                            events, regions, space,
                        ):  # fmt: skip
                            barred_by = max(barred_by, instances[c, SINCE])
                            if barred_by >= instances[a, SINCE]:
                                barred = True
                                break
                    before = cell
                    cell = cells[cell, 1]
                if barred:
                    continue
                instances[made, NODE] = -1
                instances[made, LEFT] = -1
                instances[made, RIGHT] = -1
                instances[made, EVENT] = -1
                instances[made, FIRST] = NEVER
                instances[made, LAST] = -1
                instances[made, SINCE] = NEVER
                instances[made, LIFE] = THERE
                instances[made, BARRED_BY] = -1
                times[made, 0] = since
                times[made, 1] = until
                v = np.int64(made + 1)
                instances[v] = instances[a]
                instances[v, NODE] = m
                instances[v, LEFT] = a
                instances[v, RIGHT] = made
                instances[v, EVENT] = -1
                instances[v, BARRED_BY] = barred_by
                times[v, 0] = min(times[a, 0], since)
                times[v, 1] = max(times[a, 1], until)
                made += 2
                if until < now:
                    instances[v, LIFE] = THERE
                    stack[top] = v
                    top += 1
                    continue
                instances[v, LIFE] = PENDING
                cells[linked, 0] = v
                cells[linked, 1] = heads[m, 0]
                cells[linked, 2] = this
                heads[m, 0] = linked
                linked += 1
                if timers == heap_times.shape[0]:
                    heap = grow_table(heap, 2 * timers)
                    heap_times = grow_array(heap_times, 2 * timers)
                add_timer(heap, heap_times, timers, v, nodes.height[m], until)
                timers += 1
            elif nodes.kind[m] == ABSENCE:
                cell, before = heads[m, 0], np.int32(-1)
                while cell >= 0:
                    v = np.int64(cells[cell, 0])
                    dead = instances[v, LIFE] != PENDING
                    if not dead:
                        p = instances[v, RIGHT]
                        if times[p, 0] < times[a, 0] and times[a, 1] <= times[p, 1]:
                            count = 0
                            if instances[v, LEFT] >= 0:
                                count = append_slots(instances, instances[v, LEFT], slots, zero)
                            size = append_slots(instances, a, slots, count)
                            if not has_common_base_event(
                                nodes.absence[m, 0], slots, count, size, instances
                            ) and passes_tests(
                                np.int64(nodes.edge[this, 3]), np.int64(nodes.edge[this, 4]),
                                nodes.test, nodes.test_time, nodes.test_number, slots,
                                instances, times, events, regions, space,
                            ):  # fmt: skip
                                barred_by = max(instances[v, BARRED_BY], instances[a, SINCE])
                                instances[v, BARRED_BY] = barred_by
                                if barred_by >= instances[v, SINCE]:
                                    instances[v, LIFE] = BARRED
                                    dead = True
                    if dead:
                        if before < 0:
                            heads[m, 0] = cells[cell, 1]
                        else:
                            cells[before, 1] = cells[cell, 1]
                    else:
                        before = cell
                    cell = cells[cell, 1]
                if nodes.waits[m, 2] > 0:
                    cells[linked, 0] = a
                    cells[linked, 1] = heads[m, 1]
                    cells[linked, 2] = this
                    heads[m, 1] = linked
                    linked += 1
            else:
                other = 1 - side
                cell, before = heads[m, other], np.int32(-1)
                while cell >= 0:
                    b = np.int64(cells[cell, 0])
                    if now - times[b, 1] > nodes.waits[m, other]:
                        if before < 0:
                            heads[m, other] = -1
                        else:
                            cells[before, 1] = -1
                        break
                    left, right = (a, b) if side == LEFT_SIDE else (b, a)
                    if nodes.simple[m] == 1:
                        fit = instances[a, EVENT] != instances[b, EVENT]
                        t = nodes.tests[m, 0]
                        last = t + nodes.tests[m, 1]
                        while fit and t < last:
                            earlier = later = nodes.test_time[t, 1]
                            mask = nodes.test[t, SLOTS_A]
                            if mask != 0:
                                earlier = times[left if mask == 1 else right, nodes.test[t, CODE_A]]
                            mask = nodes.test[t, SLOTS_B]
                            if mask != 0:
                                later = times[left if mask == 1 else right, nodes.test[t, CODE_B]]
                            if nodes.test[t, CODE_C] == 1:
                                fit = later - earlier > nodes.test_time[t, 0]
                            else:
                                fit = later - earlier <= nodes.test_time[t, 0]
                            t += 1
                    else:
                        middle = append_slots(instances, left, slots, zero)
                        count = append_slots(instances, right, slots, middle)
                        fit = not have_common_event(slots, middle, count, instances) and passes_tests(
                            nodes.tests[m, 0], nodes.tests[m, 1], nodes.test, nodes.test_time,
                            nodes.test_number, slots, instances, times, events, regions, space,
                        )  # fmt: skip
                    if fit:
                        if made == instances.shape[0]:
                            instances = grow_table(instances, 2 * made)
                            times = grow_table(times, 2 * made)
                        if top == stack.shape[0]:
                            stack = grow_array(stack, 2 * top)
                        first = min(instances[a, FIRST], instances[b, FIRST])
                        version = min(instances[a, SINCE], instances[b, SINCE])
                        instances[made, NODE] = m
                        instances[made, LEFT] = left
                        instances[made, RIGHT] = right
                        instances[made, EVENT] = -1
                        instances[made, FIRST] = first
                        instances[made, LAST] = max(instances[a, LAST], instances[b, LAST])
                        instances[made, SINCE] = version
                        instances[made, LIFE] = THERE
                        barred_by = max(instances[a, BARRED_BY], instances[b, BARRED_BY])
                        instances[made, BARRED_BY] = barred_by
                        times[made, 0] = min(times[a, 0], times[b, 0])
                        times[made, 1] = max(times[a, 1], times[b, 1])
                        stack[top] = made
                        top += 1
                        made += 1
                        if nodes.only_latest[m] == 1 and _all_take(
                            nodes, m, first, version, barred_by, key_group, used
                        ):
                            break
                    before = cell
                    cell = cells[cell, 1]
                if nodes.waits[m, side] >= 0:
                    cells[linked, 0] = a
                    cells[linked, 1] = heads[m, side]
                    cells[linked, 2] = this
                    heads[m, side] = linked
                    linked += 1
    counted[0], counted[1], counted[2] = made, linked, timers
    counted[3] = 1 if started else 0
    counted[4] = keys
    clock[0] = now
    total[0], total[1] = n, status
    return (
        NetworkValues(instances, times, cells, heads, heap, heap_times, used, tied, counted, clock),
        NetworkOutput(rows, total),
    )
