"""Adding atoms to the predicate index and removing them."""

import math

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import kernel
from ensue.kernels.predicate_index_arrays import (
    ALIVE,
    AMONG,
    AMONG_LAST,
    EQUAL,
    GRID,
    MASK,
    NOTHING,
    OPS,
    PATH_TOP,
    PLACE,
    SEED,
    SLOT_FREE,
    SLOT_TOP,
    SPAN,
    TEST_TOP,
    TURN_LEVELS,
    WORD,
    Atoms,
    Cells,
    Floats,
    Ints,
    choose_path,
    compute_cell,
    decode_float,
    drop_tests,
    open_level,
    release_path,
    round_outward,
    store_tests,
    take_path,
)
from ensue.kernels.predicate_index_hash import (
    CURSOR,
    LARGE,
    LEFT,
    MOST,
    TOP,
    UNIT,
    USED,
    HashTable,
    hash_key,
    insert,
    remove,
)
from ensue.kernels.regions import RegionTable

FULL = 0.6  # load factor at which a table starts to grow
ENTRIES = 16  # of an atom indexed by cells, at most
_NEAR = 1e-9  # degrees: more than the rounding of a full turn

Box = npt.NDArray[np.float32]


@kernel()
def add_atoms(
    table: HashTable,
    atoms: Atoms,
    regions: RegionTable,
    space: int,
    begins: Ints,
    tests: Ints,
    groups: Cells,
    type_field: int,
    slots: Cells,
    start: int,
) -> int:
    """Add atoms from number `start`; return the first one that needs more space.

    Atom k has the rows of `tests` from `begins[k]` up to `begins[k + 1]`: op and field, then three
    words. Its group is 0 if it has no event type, and -1 if it is unsatisfiable.
    """
    box = np.empty(4, np.float64)
    small = np.empty(4, np.float32)
    state = atoms.state
    for k in range(start, len(groups)):
        begin, end = begins[k], begins[k + 1]
        if not _has_room(table, atoms, end - begin):
            return k
        slot = state[SLOT_FREE] - 1
        if slot >= 0:
            state[SLOT_FREE] = atoms.access[slot, 1]
        else:
            slot = state[SLOT_TOP]
            state[SLOT_TOP] += 1
        slots[k] = slot
        state[ALIVE] += 1
        store_tests(atoms, slot, tests, begin, end)
        for w in range(4):
            atoms.access[slot, w] = 0
        group = np.int64(groups[k])
        if group < 0:
            continue
        tested_field = type_field if group > 0 else -1
        chosen, test, what = choose_path(atoms, regions, space, tests, begin, end, tested_field, box)
        _hang(atoms, slot, group, tests, chosen, test, box, space == 1)
        for w in range(4):
            small[w] = 0
        if what == PLACE and space == 1:
            _normalize_box(box)
        if what != NOTHING:
            round_outward(box, small)
        _change_entries(table, atoms, slot, True, what, small)
    return len(groups)


@kernel()
def _has_room(table: HashTable, atoms: Atoms, tests: int) -> bool:
    entries = max(ENTRIES, 2 * tests)
    held = table.state[USED] + table.state[LEFT] + entries
    growing = table.state[CURSOR] < len(table.old_keys)
    state = atoms.state
    slots = min(len(atoms.first), len(atoms.access))
    return (
        held <= (MOST if growing else FULL) * len(table.keys)
        and (table.state[TOP] + LARGE * entries) * UNIT <= len(table.words)
        and state[TEST_TOP] + tests <= len(atoms.tests)
        and (state[SLOT_FREE] > 0 or state[SLOT_TOP] < slots)
        and state[PATH_TOP] < min(len(atoms.paths), len(atoms.scales))
    )


@kernel()
def _normalize_box(box: Floats) -> None:
    """Shift a box so that it begins between -180 and 180; a full circle becomes unbounded."""
    if box[2] - box[0] >= 360:
        box[0], box[2] = -np.inf, np.inf
        return
    turn = 360 * math.floor((box[0] + 180) / 360)
    box[0], box[2] = box[0] - turn, box[2] - turn


@kernel()
def _compute_level(width: float, far: float) -> int:
    """The least even level whose cells are at least half as wide, and have exact numbers."""
    width = max(width, far * 2.0**-50)
    if width <= 2.0**-59:
        return -60
    level = math.ceil(math.log2(width / 2))
    return min(level + (level & 1), 1022)


@kernel()
def _hang(atoms: Atoms, slot: int, group: int, tests: Ints, chosen: int, test: int, box: Floats, earth: bool) -> None:
    """Store in `access` how an atom is indexed."""
    access = atoms.access[slot]
    field = np.int64(0)
    if chosen == EQUAL or chosen == SPAN:
        field = tests[test, 0] >> OPS
    level = 0
    x0, y0, x1, y1 = box[0], box[1], box[2], box[3]
    if chosen == SPAN:
        x0 = decode_float(tests[test, 1], atoms.kinds[field])
        x1 = decode_float(tests[test, 2], atoms.kinds[field])
        level = _compute_level(x1 - x0, max(abs(x0), abs(x1)))
        level = open_level(atoms, group, SPAN, field, level, slot)
    elif chosen == GRID and earth:
        x0, x1 = x0 - _NEAR, x1 + _NEAR
        finest = 360 * 2.0**-TURN_LEVELS
        level = _compute_level(max(x1 - x0, y1 - y0) / finest, 0.0)
        level = open_level(atoms, group, GRID, 0, min(max(level, 0), TURN_LEVELS), slot)
        level = min(level, TURN_LEVELS)
    elif chosen == GRID:
        far = max(max(abs(x0), abs(x1)), max(abs(y0), abs(y1)))
        level = _compute_level(max(x1 - x0, y1 - y0), far)
        level = open_level(atoms, group, GRID, 0, level, slot)
    path = take_path(atoms, group, chosen, field, level, earth)
    access[0] = chosen + (group << 8) + (path << 36)
    across, along = np.int64(1), np.int64(1)
    if chosen == EQUAL:
        if tests[test, 0] & 15 == AMONG_LAST:
            across = np.int64(0)  # its values are in the tests
        access[1] = tests[test, 1]
    elif chosen == GRID or chosen == SPAN:
        scale = atoms.scales[path]
        access[1] = compute_cell(x0, scale)
        across = compute_cell(x1, scale) - access[1] + 1
        if chosen == GRID:
            access[2] = compute_cell(y0, scale)
            along = compute_cell(y1, scale) - access[2] + 1
            mask = atoms.paths[path, MASK]
            if mask >= 0:
                across = min(across, mask + 1)
    access[3] = across + (along << WORD)


@kernel()
def _change_entries(table: HashTable, atoms: Atoms, slot: int, adding: bool, what: int, box: Box) -> None:
    """Insert the entries of an atom into the table, or remove them."""
    access = atoms.access[slot]
    path = access[0] >> 36
    seed, mask = np.uint64(atoms.paths[path, SEED]), atoms.paths[path, MASK]
    across, along = access[3] & ((np.int64(1) << WORD) - 1), access[3] >> WORD
    for i in range(across):
        for j in range(along):
            key = hash_key(seed, np.uint64((access[1] + i) & mask), np.uint64(access[2] + j))
            if adding:
                insert(table, key, slot, what, box[0], box[1], box[2], box[3])
            else:
                remove(table, key, slot)
    if across > 0:
        return
    field = (atoms.paths[path, 1] >> 8) & ((1 << 24) - 1)
    tests = atoms.tests
    at = np.int64(atoms.first[slot]) - 1
    while at >= 0:
        operation = tests[at, 0] >> WORD
        if (operation & 15 == AMONG or operation & 15 == AMONG_LAST) and operation >> OPS == field:
            for w in range(1, 3):
                if w == 2 and tests[at, 1] == tests[at, 2]:
                    continue
                key = hash_key(seed, np.uint64(tests[at, w]), np.uint64(0))
                if adding:
                    insert(table, key, slot, what, box[0], box[1], box[2], box[3])
                else:
                    remove(table, key, slot)
        at = (tests[at, 0] & ((np.int64(1) << WORD) - 1)) - 1


@kernel()
def remove_atoms(table: HashTable, atoms: Atoms, slots: Cells) -> None:
    """Remove atoms and free their slots."""
    box = np.zeros(4, np.float32)
    state = atoms.state
    for k in range(len(slots)):
        slot = np.int64(slots[k])
        access = atoms.access[slot]
        if access[0] != 0:
            _change_entries(table, atoms, slot, False, 0, box)
            release_path(atoms, (access[0] >> 8) & ((1 << 28) - 1), access[0] >> 36)
        drop_tests(atoms, slot)
        access[0] = -1
        access[1] = state[SLOT_FREE]
        state[SLOT_FREE] = slot + 1
        state[ALIVE] -= 1


@kernel()
def list_operands(atoms: Atoms, slots: Cells, op: int, owners: Cells, out: Ints) -> int:
    """The first operands of the tests of one op, with the atoms' positions; return their number.

    Tests that do not fit into `out` are only counted.
    """
    tests = atoms.tests
    count = 0
    for k in range(len(slots)):
        at = np.int64(atoms.first[slots[k]]) - 1
        while at >= 0:
            if (tests[at, 0] >> WORD) & 15 == op:
                if count < len(out):
                    owners[count] = k
                    out[count] = tests[at, 1]
                count += 1
            at = (tests[at, 0] & ((np.int64(1) << WORD) - 1)) - 1
    return count


@kernel()
def list_tests(atoms: Atoms, slot: int, out: Ints) -> int:
    """The tests of an atom: op and field, then three words; return their number.

    Tests that do not fit into `out` are only counted.
    """
    tests = atoms.tests
    count = 0
    at = np.int64(atoms.first[slot]) - 1
    while at >= 0:
        if count < len(out):
            out[count, 0] = tests[at, 0] >> WORD
            for w in range(1, 4):
                out[count, w] = tests[at, w]
        count += 1
        at = (tests[at, 0] & ((np.int64(1) << WORD) - 1)) - 1
    return count
