"""The arrays of atoms and of the paths that events take to them.

Values of every kind come as 64-bit integers in the order of the values, so that a comparison is an
interval of integers. A test is four words: what it asks and the next test of its atom, then three
of its own. A *path* is one way to hang atoms: under values of a field, under cells of one size, or
under nothing. Atoms that ask for one type are a group, with paths of its own; group 0 asks for
none. An event goes the paths of its type's group and of group 0.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import kernel
from ensue.kernels.routing_table import INLINE, OPTIONS, key_of

Ints = npt.NDArray[np.int64]
Cells = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

# what a test asks, in the lowest bits of its word; above it a field, or how a region is compared
WITHIN = 0  # low <= value <= high
UNLIKE = 1  # value != low
AMONG = 2  # value is low or high, or one of the tests behind
AMONG_LAST = 3  # value is low or high, or one of those before
REGION = 4  # low: the region's row; high: the number; extra: the tolerance
LATE = 5  # low: the number of a test that is made elsewhere
OPS = 4  # bits
WORD = 32  # bits for the next test, below what is asked

NEVER, EQUAL, GRID, SPAN, ALL = range(5)  # where an atom hangs

NEXT, WHAT, COUNT, SEED, MASK = range(5)  # places in a path
PATH_WORDS = 5
SLOT_TOP, SLOT_FREE, TEST_TOP, TEST_FREE, PATH_TOP, PATH_FREE, ALIVE = range(7)  # in the state
STATE = 8

EQUALS, BITS, SPANS, SPAN_LOW, SPAN_HIGH = range(5)  # what was seen of a field
SEEN = 5

NOTHING, PLACE = -1, -2  # what an entry's box is of; else it is of one field, or of two

TURN_LEVELS = 24  # the finest cells on the earth: a full turn halved so many times
LEAST = np.int64(-(2**63))
GREATEST = np.int64(2**63 - 1)
_FAR = 2.0**52


class Atoms(NamedTuple):
    """Links hold one more than the number they lead to; 0 leads nowhere."""

    tests: Ints
    numbers: Floats  # the same memory as tests
    first: Cells  # by slot: its first test
    access: Ints  # by slot: kind, group and path; the first cells; how many. Free: the next one
    generation: Cells  # by slot
    paths: Ints
    scales: Floats  # by path: cells a unit
    groups: Cells  # by group: its first path
    state: Ints
    kinds: Cells  # by field: 1 where the integers stand for floats
    sketches: Words  # by field: which of so many values an equality has asked for
    seen: Floats  # by field
    extent: Floats  # of all regions: x0, y0, x1, y1, their number


@kernel(**INLINE)
def cell_of(value: Any, scale: Any) -> Any:
    """The cell that a number lies in; those far out share the last."""
    return np.int64(math.floor(min(max(value * scale, -_FAR), _FAR)))


@kernel(**OPTIONS)
def as_float(value: int, kind: int) -> float:
    """The number that an ordered integer stands for, to the nearest double."""
    if kind != 1:
        return np.float64(value)
    bits = np.empty(1, np.int64)
    bits[0] = value if value >= 0 else value ^ GREATEST
    return bits.view(np.float64)[0]


@kernel(**OPTIONS)
def find_path(atoms: Atoms, group: int, kind: int, field: int, level: int) -> Any:
    """The path of a kind, field and level in a group, or -1."""
    wanted = kind + (field << 8) + ((level + 2048) << 32)
    path = np.int64(atoms.groups[group]) - 1
    while path >= 0 and atoms.paths[path, WHAT] != wanted:
        path = atoms.paths[path, NEXT] - 1
    return path


@kernel(**OPTIONS)
def open_level(atoms: Atoms, group: int, kind: int, field: int, level: int, slot: int) -> int:
    """The level, or a coarser one in use: each costs every event a probe. One in 16 opens it."""
    if slot & 15 == 0 or find_path(atoms, group, kind, field, level) >= 0:
        return level
    for coarser in range(level + 2, level + 6, 2):
        if find_path(atoms, group, kind, field, coarser) >= 0:
            return coarser
    return level


@kernel(**OPTIONS)
def take_path(atoms: Atoms, group: int, kind: int, field: int, level: int, earth: bool) -> int:
    """The path, made if it is not there; it counts one atom more."""
    path = find_path(atoms, group, kind, field, level)
    state, paths = atoms.state, atoms.paths
    if path < 0:
        path = state[PATH_FREE] - 1
        if path >= 0:
            state[PATH_FREE] = paths[path, NEXT]
        else:
            path = state[PATH_TOP]
            state[PATH_TOP] += 1
        what = kind + (field << 8) + ((level + 2048) << 32)
        paths[path, NEXT] = atoms.groups[group]
        paths[path, WHAT] = what
        paths[path, COUNT] = 0
        # numbers of any 64 bits, below 2**63
        seed = key_of(np.uint64(0), np.uint64(group), np.uint64(what)) >> np.uint64(1)
        paths[path, SEED] = np.int64(seed)
        paths[path, MASK] = np.int64(-1)
        atoms.scales[path] = 2.0**-level
        if kind == GRID and earth:
            atoms.scales[path] = 2.0 ** (TURN_LEVELS - level) / 360
            paths[path, MASK] = (np.int64(1) << (TURN_LEVELS - level)) - 1
        atoms.groups[group] = path + 1
    paths[path, COUNT] += 1
    return path


@kernel(**OPTIONS)
def leave_path(atoms: Atoms, group: int, path: int) -> None:
    """One atom less; a path without any is gone."""
    paths = atoms.paths
    paths[path, COUNT] -= 1
    if paths[path, COUNT] > 0:
        return
    before = np.int64(-1)
    at = np.int64(atoms.groups[group]) - 1
    while at != path:
        before, at = at, paths[at, NEXT] - 1
    if before < 0:
        atoms.groups[group] = paths[path, NEXT]
    else:
        paths[before, NEXT] = paths[path, NEXT]
    paths[path, NEXT] = atoms.state[PATH_FREE]
    atoms.state[PATH_FREE] = path + 1


@kernel(**OPTIONS)
def keep_tests(atoms: Atoms, slot: int, tests: Ints, begin: int, end: int) -> None:
    """Links the tests of an atom, which has room for them, to its slot."""
    state, kept = atoms.state, atoms.tests
    following = np.int64(0)
    for t in range(end - 1, begin - 1, -1):
        at = state[TEST_FREE] - 1
        if at >= 0:
            state[TEST_FREE] = kept[at, 0]
        else:
            at = state[TEST_TOP]
            state[TEST_TOP] += 1
        kept[at, 0] = (tests[t, 0] << WORD) + following
        for w in range(1, 4):
            kept[at, w] = tests[t, w]
        following = at + 1
    atoms.first[slot] = following


@kernel(**OPTIONS)
def drop_tests(atoms: Atoms, slot: int) -> None:
    """Gives the tests of an atom back."""
    kept = atoms.tests
    at = np.int64(atoms.first[slot]) - 1
    while at >= 0:
        following = (kept[at, 0] & ((np.int64(1) << WORD) - 1)) - 1
        kept[at, 0] = atoms.state[TEST_FREE]
        atoms.state[TEST_FREE] = at + 1
        at = following
    atoms.first[slot] = 0
