"""A hash table from keys to chains of entries, which grows step by step.

While it grows there are two tables: every change moves some slots of the old one, and whatever it
touches, so that none waits for all of them. In front of each stands a filter of one bit a key.

An entry is six words: the slot of an atom, what its box is of, and the box, four float32 rounded
outwards. Entries lie in chunks, of one entry or of five; a chunk's first two words are the next
chunk of its chain (-1: none) and its room and number of entries.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import kernel

Words = npt.NDArray[np.uint64]
Cells = npt.NDArray[np.int32]
Reals = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

OPTIONS = {"nogil": True, "error_model": "numpy"}
INLINE = {**OPTIONS, "inline": "always"}

# places in the state
TOP, FREE_SMALL, FREE_LARGE, USED, LEFT, CURSOR, GONE, ENTRIES = range(8)
STATE = 8

UNIT = 8  # words of a small chunk
LARGE = 4  # units of a large one
HEAD, ENTRY = 2, 6  # words of a chunk's head, of an entry
STEP = 16  # slots of the old table that each change moves
FILTER_BITS = 8  # bits of the filter for each slot
MOST = 0.75  # how full a table may ever be

_EMPTY, _MOVED, _REAL = np.uint64(0), np.uint64(1), np.uint64(2)
_ONE = np.uint64(1)
_S2, _S6, _S32 = np.uint64(2), np.uint64(6), np.uint64(32)
_LOW6 = np.uint64(63)
_S27, _S30, _S31 = np.uint64(27), np.uint64(30), np.uint64(31)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ACROSS = np.uint64(0xD6E8FEB86659FD93)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


class Table(NamedTuple):
    """The arrays of a table; those of the old one are empty unless it grows."""

    keys: Words  # 0: empty, 1: moved away
    heads: Cells  # the first chunk of a key's chain
    bits: Words
    old_keys: Words
    old_heads: Cells
    old_bits: Words
    words: Cells
    reals: Reals  # the same memory as words
    state: Ints


@kernel(**INLINE)
def key_of(seed: Any, a: Any, b: Any) -> Any:
    """The key of two numbers under a path."""
    word = np.uint64(seed) ^ (np.uint64(a) * _GOLDEN + np.uint64(b) * _ACROSS)
    word = (word ^ (word >> _S30)) * _FIRST
    word = (word ^ (word >> _S27)) * _SECOND
    return (word ^ (word >> _S31)) | _REAL


@kernel(**OPTIONS)
def _place(keys: Words, heads: Cells, bits: Words, key: np.uint64, head: np.int32) -> None:
    """Puts a key into a table that does not hold it."""
    mask = np.uint64(len(keys) - 1)
    at = (key >> _S32) & mask
    while keys[at] != _EMPTY:
        at = (at + _ONE) & mask
    keys[at] = key
    heads[at] = head
    bit = (key >> _S2) & np.uint64(len(bits) * 64 - 1)
    bits[bit >> _S6] |= _ONE << (bit & _LOW6)


@kernel(**OPTIONS)
def move_some(table: Table, steps: int) -> None:
    """Moves the keys in the next slots of the old table."""
    state, old = table.state, table.old_keys
    at = state[CURSOR]
    end = min(at + steps, len(old))
    while at < end:
        key = old[at]
        if key >= _REAL:
            _place(table.keys, table.heads, table.bits, key, table.old_heads[at])
            old[at] = _MOVED
            state[USED] += 1
            state[LEFT] -= 1
        at += 1
    state[CURSOR] = at


@kernel(**OPTIONS)
def _bring(table: Table, key: np.uint64) -> None:
    """Moves a key that is still in the old table."""
    old = table.old_keys
    mask = np.uint64(len(old) - 1)
    at = (key >> _S32) & mask
    while old[at] != _EMPTY:
        if old[at] == key:
            _place(table.keys, table.heads, table.bits, key, table.old_heads[at])
            old[at] = _MOVED
            table.state[USED] += 1
            table.state[LEFT] -= 1
            return
        at = (at + _ONE) & mask


@kernel(**OPTIONS)
def _new_chunk(words: Cells, state: Ints, large: bool) -> int:
    free = state[FREE_LARGE] if large else state[FREE_SMALL]
    if free >= 0:
        if large:
            state[FREE_LARGE] = words[free * UNIT]
        else:
            state[FREE_SMALL] = words[free * UNIT]
        return free
    top = state[TOP]
    state[TOP] = top + (LARGE if large else 1)
    return top


@kernel(**OPTIONS)
def insert(
    table: Table,
    key: np.uint64,
    slot: int,
    what: int,
    x0: float,
    y0: float,
    x1: float,
    y1: float,
) -> None:
    """Adds an entry. The caller has seen to room: a key, and LARGE units."""
    state, words, reals = table.state, table.words, table.reals
    keys, heads = table.keys, table.heads
    if state[CURSOR] < len(table.old_keys):
        move_some(table, STEP)
        _bring(table, key)
    mask = np.uint64(len(keys) - 1)
    at = (key >> _S32) & mask
    while keys[at] != key and keys[at] != _EMPTY:
        at = (at + _ONE) & mask
    head = np.int64(-1)
    if keys[at] == key:
        head = np.int64(heads[at])
    else:
        keys[at] = key
        bit = (key >> _S2) & np.uint64(len(table.bits) * 64 - 1)
        table.bits[bit >> _S6] |= _ONE << (bit & _LOW6)
        state[USED] += 1
    chunk = head
    if head < 0 or words[head * UNIT + 1] & 15 == words[head * UNIT + 1] >> 4:
        large = head >= 0
        chunk = _new_chunk(words, state, large)
        words[chunk * UNIT] = head
        words[chunk * UNIT + 1] = (5 if large else 1) << 4
        heads[at] = chunk
    count = words[chunk * UNIT + 1] & 15
    place = chunk * UNIT + HEAD + ENTRY * count
    words[place] = slot
    words[place + 1] = what
    reals[place + 2] = x0
    reals[place + 3] = y0
    reals[place + 4] = x1
    reals[place + 5] = y1
    words[chunk * UNIT + 1] += 1
    state[ENTRIES] += 1


@kernel(**OPTIONS)
def remove(table: Table, key: np.uint64, slot: int) -> bool:
    """Takes an atom's entry out; its place is filled with the newest of the chain."""
    state, words = table.state, table.words
    keys, heads = table.keys, table.heads
    if state[CURSOR] < len(table.old_keys):
        move_some(table, STEP)
        _bring(table, key)
    mask = np.uint64(len(keys) - 1)
    at = (key >> _S32) & mask
    while keys[at] != key:
        if keys[at] == _EMPTY:
            return False
        at = (at + _ONE) & mask
    head = np.int64(heads[at])
    chunk = head
    while chunk >= 0:
        count = words[chunk * UNIT + 1] & 15
        for k in range(count):
            place = chunk * UNIT + HEAD + ENTRY * k
            if words[place] == slot:
                last = (words[head * UNIT + 1] & 15) - 1
                other = head * UNIT + HEAD + ENTRY * last
                for w in range(ENTRY):
                    words[place + w] = words[other + w]
                words[head * UNIT + 1] -= 1
                state[ENTRIES] -= 1
                if last == 0:
                    _drop_chunk(table, at, head)
                return True
        chunk = np.int64(words[chunk * UNIT])
    return False


@kernel(**OPTIONS)
def _drop_chunk(table: Table, at: np.uint64, head: int) -> None:
    """Gives the first chunk of a chain back, and with the last one the key."""
    state, words = table.state, table.words
    following = words[head * UNIT]
    if words[head * UNIT + 1] >> 4 == 1:
        words[head * UNIT] = state[FREE_SMALL]
        state[FREE_SMALL] = head
    else:
        words[head * UNIT] = state[FREE_LARGE]
        state[FREE_LARGE] = head
    if following >= 0:
        table.heads[at] = following
        return
    # keys behind the hole that may not lie behind it move up: no marks are left
    keys, heads = table.keys, table.heads
    mask = np.uint64(len(keys) - 1)
    hole = at
    behind = (hole + _ONE) & mask
    while keys[behind] != _EMPTY:
        home = (keys[behind] >> _S32) & mask
        if ((behind - home) & mask) >= ((behind - hole) & mask):
            keys[hole] = keys[behind]
            heads[hole] = heads[behind]
            hole = behind
        behind = (behind + _ONE) & mask
    keys[hole] = _EMPTY
    state[USED] -= 1
    state[GONE] += 1
