"""The arrays of atoms (conjunctions of tests) and of the access paths that index them.

Values of every kind are 64-bit integers in the order of the values, so that a comparison is an
interval of integers. A test is four words: operation and next test of its atom, then three
operands. A *path* is one way to index atoms: by values of a field, by cells of one size, or
unconditionally. Atoms with the same event type form a group with its own paths; group 0 has atoms
without a type. An event follows the paths of its type's group and of group 0.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import kernel
from ensue.kernels.predicate_index_hash import hash_key
from ensue.kernels.regions import RegionTable, region_box

Ints = npt.NDArray[np.int64]
Cells = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

# the operation in the lowest bits of a test's word; above it a field, or how a region is compared
WITHIN = 0  # low <= value <= high
UNLIKE = 1  # value != low
AMONG = 2  # value is low or high, or one of the following tests
AMONG_LAST = 3  # value is low or high, or one of the preceding tests
REGION = 4  # low: the region's row; high: the number; extra: the tolerance
LATE = 5  # low: the number of a test that the caller evaluates
OPS = 4  # bits
WORD = 32  # bits of the next test, below the operation

NEVER, EQUAL, GRID, SPAN, ALL = range(5)  # how an atom is indexed

NEXT, WHAT, COUNT, SEED, MASK = range(5)  # columns of a path
PATH_WORDS = 5
SLOT_TOP, SLOT_FREE, TEST_TOP, TEST_FREE, PATH_TOP, PATH_FREE, ALIVE = range(7)  # in the state
STATE = 8

EQUALS, BITS, SPANS, SPAN_LOW, SPAN_HIGH = range(5)  # statistics of a field
SEEN = 5

NOTHING, PLACE = -1, -2  # the box of an entry is absent, or of the place; else of fields

TURN_LEVELS = 24  # the finest cells on the earth: a turn halved this often
LEAST = np.int64(-(2**63))
GREATEST = np.int64(2**63 - 1)
_FAR = 2.0**52


class Atoms(NamedTuple):
    """Links hold one more than the number that they point to; 0 is the end."""

    tests: Ints
    numbers: Floats  # the same memory as tests
    first: Cells  # by slot: its first test
    access: Ints  # by slot: kind, group and path; first cells; their number; next free slot
    paths: Ints
    scales: Floats  # by path: cells per unit
    groups: Cells  # by group: its first path
    state: Ints
    kinds: Cells  # by field: 1 if the integers encode floats
    sketches: Words  # by field: a linear-counting sketch of the values in equalities
    seen: Floats  # by field
    extent: Floats  # of all regions: x0, y0, x1, y1, count


@kernel(inline="always")
def compute_cell(value: Any, scale: Any) -> Any:
    """The cell of a number; numbers far out share the last one."""
    return np.int64(math.floor(min(max(value * scale, -_FAR), _FAR)))


@kernel()
def decode_float(value: int, kind: int) -> float:
    """The nearest double of an ordered integer."""
    if kind != 1:
        return np.float64(value)
    bits = np.empty(1, np.int64)
    bits[0] = value if value >= 0 else value ^ GREATEST
    return bits.view(np.float64)[0]


@kernel()
def find_path(atoms: Atoms, group: int, kind: int, field: int, level: int) -> Any:
    """The path of a kind, field and level in a group, or -1."""
    path_key = kind + (field << 8) + ((level + 2048) << 32)
    path = np.int64(atoms.groups[group]) - 1
    while path >= 0 and atoms.paths[path, WHAT] != path_key:
        path = atoms.paths[path, NEXT] - 1
    return path


@kernel()
def open_level(atoms: Atoms, group: int, kind: int, field: int, level: int, slot: int) -> int:
    """The level, or a coarser one in use, as each costs a probe; one atom in 16 opens it."""
    if slot & 15 == 0 or find_path(atoms, group, kind, field, level) >= 0:
        return level
    for coarser in range(level + 2, level + 6, 2):
        if find_path(atoms, group, kind, field, coarser) >= 0:
            return coarser
    return level


@kernel()
def take_path(atoms: Atoms, group: int, kind: int, field: int, level: int, earth: bool) -> int:
    """Find or create a path, and count one more atom."""
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
        seed = hash_key(np.uint64(0), np.uint64(group), np.uint64(what)) >> np.uint64(1)
        paths[path, SEED] = np.int64(seed)
        paths[path, MASK] = np.int64(-1)
        atoms.scales[path] = 2.0**-level
        if kind == GRID and earth:
            atoms.scales[path] = 2.0 ** (TURN_LEVELS - level) / 360
            paths[path, MASK] = (np.int64(1) << (TURN_LEVELS - level)) - 1
        atoms.groups[group] = path + 1
    paths[path, COUNT] += 1
    return path


@kernel()
def release_path(atoms: Atoms, group: int, path: int) -> None:
    """Count one atom less, and drop an empty path."""
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


@kernel()
def store_tests(atoms: Atoms, slot: int, tests: Ints, begin: int, end: int) -> None:
    """Store the tests of an atom and link them to its slot; the caller has made space."""
    state, stored = atoms.state, atoms.tests
    following = np.int64(0)
    for t in range(end - 1, begin - 1, -1):
        at = state[TEST_FREE] - 1
        if at >= 0:
            state[TEST_FREE] = stored[at, 0]
        else:
            at = state[TEST_TOP]
            state[TEST_TOP] += 1
        stored[at, 0] = (tests[t, 0] << WORD) + following
        for w in range(1, 4):
            stored[at, w] = tests[t, w]
        following = at + 1
    atoms.first[slot] = following


@kernel()
def drop_tests(atoms: Atoms, slot: int) -> None:
    """Free the tests of an atom."""
    stored = atoms.tests
    at = np.int64(atoms.first[slot]) - 1
    while at >= 0:
        following = (stored[at, 0] & ((np.int64(1) << WORD) - 1)) - 1
        stored[at, 0] = atoms.state[TEST_FREE]
        atoms.state[TEST_FREE] = at + 1
        at = following
    atoms.first[slot] = 0


SKETCH = 1024  # bits of a sketch
_PROVEN = 64  # observations before an estimate is used
_FEW = 1 / 256  # selective enough for one key, regardless of other predicates
_LEAST_SHARE = 1e-9
_TINY = 1e-300
_NONE = 2.0  # the selectivity of a missing predicate
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ONE, _S6, _S54, _LOW6 = np.uint64(1), np.uint64(6), np.uint64(54), np.uint64(63)


@kernel()
def _record_equality(atoms: Atoms, field: int, value: int) -> None:
    """Record a value of an equality in the sketch."""
    place = ((np.uint64(value) + _ONE) * _GOLDEN) >> _S54
    word, bit = place >> _S6, _ONE << (place & _LOW6)
    atoms.seen[field, EQUALS] += 1
    if atoms.sketches[field, word] & bit == np.uint64(0):
        atoms.sketches[field, word] |= bit
        atoms.seen[field, BITS] += 1


@kernel()
def _share_of_equality(atoms: Atoms, field: int) -> float:
    if atoms.seen[field, EQUALS] < _PROVEN:
        return 1 / 1024
    free = max(SKETCH - atoms.seen[field, BITS], 0.5)
    return 1 / max(SKETCH * math.log(SKETCH / free), 1.0)


@kernel()
def _share_of_span(atoms: Atoms, field: int, low: float, high: float) -> float:
    seen = atoms.seen[field]
    seen[SPAN_LOW] = low if seen[SPANS] == 0 else min(seen[SPAN_LOW], low)
    seen[SPAN_HIGH] = high if seen[SPANS] == 0 else max(seen[SPAN_HIGH], high)
    seen[SPANS] += 1
    if seen[SPANS] < _PROVEN:
        return 1 / 128
    return max((high - low) / max(seen[SPAN_HIGH] - seen[SPAN_LOW], _TINY), _LEAST_SHARE)


@kernel()
def _share_of_box(atoms: Atoms, x0: float, y0: float, x1: float, y1: float) -> float:
    seen = atoms.extent
    fresh = seen[4] == 0
    seen[0] = x0 if fresh else min(seen[0], x0)
    seen[1] = y0 if fresh else min(seen[1], y0)
    seen[2] = x1 if fresh else max(seen[2], x1)
    seen[3] = y1 if fresh else max(seen[3], y1)
    seen[4] += 1
    if seen[4] < _PROVEN:
        return 1 / 1024
    across = (x1 - x0) / max(seen[2] - seen[0], _TINY)
    along = (y1 - y0) / max(seen[3] - seen[1], _TINY)
    return max(across * along, _LEAST_SHARE)


@kernel()
def choose_path(
    atoms: Atoms, regions: RegionTable, space: int, tests: Ints, begin: int, end: int, type_field: int, box: Floats
) -> tuple[Any, Any, Any]:
    """Choose how to index an atom (EQUAL, GRID, SPAN or ALL), by which test, and its kind of box.

    `type_field` is the field that its group has tested, or -1.
    """
    numbers = tests.view(np.float64)
    equal: Any
    place: Any
    span: Any
    equal, rare = np.int64(-1), _NONE
    place, area = np.int64(-1), _NONE
    span, narrow = np.int64(-1), _NONE
    for t in range(begin, end):
        op, field = tests[t, 0] & 15, tests[t, 0] >> OPS
        if op == WITHIN and field == type_field:
            continue
        if op == AMONG or op == AMONG_LAST or (op == WITHIN and tests[t, 1] == tests[t, 2]):
            _record_equality(atoms, field, tests[t, 1])
            if tests[t, 1] != tests[t, 2]:
                _record_equality(atoms, field, tests[t, 2])
            many = 1
            while op != WITHIN and t - many >= begin and tests[t - many, 0] & 15 == AMONG:
                many += 1
            share = _share_of_equality(atoms, field) * many
            if op != AMONG and share < rare:
                equal, rare = t, share
        elif op == WITHIN and tests[t, 1] != LEAST and tests[t, 2] != GREATEST:
            low = decode_float(tests[t, 1], atoms.kinds[field])
            high = decode_float(tests[t, 2], atoms.kinds[field])
            if high - low < np.inf:
                share = _share_of_span(atoms, field, low, high)
                if share < narrow:
                    span, narrow = t, share
        elif op == REGION:
            x0, y0, x1, y1 = region_box(
                regions, tests[t, 1], field & 3, field >> 2, numbers[t, 2], numbers[t, 3], space
            )
            if x1 - x0 < np.inf and y1 - y0 < np.inf:
                share = _share_of_box(atoms, x0, y0, x1, y1)
                if share < area:
                    place, area = t, share
                    box[0], box[1], box[2], box[3] = x0, y0, x1, y1
    chosen, test = ALL, np.int64(-1)
    if rare <= _FEW or (rare < _NONE and rare <= min(area, narrow)):
        chosen, test = EQUAL, equal
    elif place >= 0 and area <= narrow:
        chosen, test = GRID, place
    elif span >= 0:
        chosen, test = SPAN, span
    what = PLACE
    if place < 0:
        what = _ranges(atoms, tests, begin, end, type_field, chosen, test, box)
    return chosen, test, what


@kernel()
def _ranges(
    atoms: Atoms, tests: Ints, begin: int, end: int, type_field: int, chosen: int, test: int, box: Floats
) -> Any:
    """Write one or two ranges that the key does not test into the box; return their fields."""
    what, count = np.int64(NOTHING), 0
    for t in range(begin, end):
        field = tests[t, 0] >> OPS
        judged = field == type_field or (chosen == EQUAL and t == test)
        every = tests[t, 1] == LEAST and tests[t, 2] == GREATEST  # NaN too
        if tests[t, 0] & 15 != WITHIN or judged or every or field >= 1 << 15 or count == 2:
            continue
        box[count] = decode_float(tests[t, 1], atoms.kinds[field])
        box[count + 2] = decode_float(tests[t, 2], atoms.kinds[field])
        what = field if count == 0 else what + (field << 16)
        count += 1
    if count == 1:
        box[1], box[3] = box[0], box[2]
        what += what << 16
    return what


@kernel()
def round_outward(box: Floats, out: npt.NDArray[np.float32]) -> None:
    """Round a box outwards to float32, with a margin for the rounding of a full turn."""
    for k in range(2):
        out[k] = np.nextafter(np.float32(box[k]), np.float32(-np.inf))
        out[k + 2] = np.nextafter(np.float32(box[k + 2]), np.float32(np.inf))
