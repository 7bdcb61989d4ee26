"""The tables of the subscription network: nodes, tests, events and state."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float64]
Times = npt.NDArray[Any]  # int64, or float64 where the time column holds floats

LEAF, SIEVE, JOIN, ABSENCE = 0, 1, 2, 3
LEFT_SIDE, RIGHT_SIDE, BAR = 0, 1, 2  # of an edge
TIME, PLACE, REGION, FIELD = 0, 1, 2, 3  # kinds of tests
LATEST, ONCE, ALL = 0, 1, 2

# columns of `instances`
NODE, LEFT, RIGHT, EVENT, FIRST, LAST, SINCE, LIFE, BARRED_BY = range(9)
WIDTH = 9
PENDING, BARRED, THERE = 0, 1, 2  # values of LIFE
NEVER = np.int64(2**62)  # the version of a value without events

# A value counts for subscriptions registered no later than its oldest event (SINCE), and after the
# newest event that bars it (BARRED_BY), which they have not seen.

# columns of `tests`
KIND, SLOTS_A, SLOTS_B, CODE_A, CODE_B, CODE_C = range(6)
MOST_SLOTS = 128  # of a waiting value and the value that may bar it


class NetworkNodes(NamedTuple):
    """The compiled subscriptions; they change only with the set of subscriptions."""

    kind: Bytes  # of a node
    edges: Small  # of a node: its first edge to one above it
    users: Small  # of a node: its first subscriber
    tests: Ints  # of a node: (first, count)
    waits: Floats  # of a node: how long left, right, bars wait
    only_latest: Bytes  # only the newest result of a join matters
    simple: Bytes  # a join of two events by their times
    absence: Ints  # (node, [base, since, until, until_end])
    absence_times: Times  # (node, [length, at])
    height: Small  # of a node: greater than that of its inputs
    key_groups: npt.NDArray[np.uint64]  # of a node: the key groups, modulo 64, of its subscriptions
    edge: Small  # (edge, [next, node, side, first test, tests])
    user: Small  # (place, [next, subscription, slot and field of its key or -1])
    select: Bytes  # of a subscription
    since: Ints  # of a subscription: the version that holds it
    key_group: Small  # of a subscription
    test: Ints  # (test, columns as above)
    test_time: Times  # (test, [by, at])
    test_number: Floats  # (test, [number, tolerance])


class NetworkEvents(NamedTuple):
    """The retained and new events, in stream order."""

    position: Ints
    version: Ints
    start: Times
    end: Times
    corner: Ints  # offsets of the corners, one more than events
    x: Floats
    y: Floats
    numbers: Floats  # (event, field): as a float
    codes: Ints  # (event, field): as an integer, where it is one, or a text's code
    known: Bytes  # (event, field): 0 NULL, 1 an integer or a code, 2 a float


class NetworkValues(NamedTuple):
    """The state of the network."""

    instances: Ints
    times: Times  # of instances: (start, end)
    cells: Small  # (cell, [instance, next, edge])
    heads: Small  # (node, [left or pending, right or bars])
    heap: Ints  # timers: (instance, height of its node), the earliest first
    heap_times: Times
    used: Ints  # of a subscription: position up to which events are used
    tied: Ints  # the same by key, a hash table: (subscription + 1, key, position)
    counted: Ints  # [instances, cells, timers, clock is set, keys]
    clock: Times  # [event time]


class NetworkOutput(NamedTuple):
    """The matches found, one row each."""

    rows: Ints  # (subscription, instance, has a key, key)
    counted: Ints  # [rows, status]
