"""A hash table from keys to chains of entries with incremental growth.

While it grows there are two tables: every update moves some slots of the old one, so that no
update waits for all of them. Each table has a filter of one bit per key.

An entry has six words: the slot of an atom, the kind of its box, and the box, four float32 rounded
outwards. Entries are stored in chunks of one or five; a chunk begins with the next chunk of its
chain (-1: none) and its capacity and number of entries.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import kernel

Words = npt.NDArray[np.uint64]
Cells = npt.NDArray[np.int32]
Reals = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

# indices into the state
TOP, FREE_SMALL, FREE_LARGE, USED, LEFT, CURSOR, GONE, ENTRIES = range(8)
STATE = 8

UNIT = 8  # words of a small chunk
LARGE = 4  # units of a large one
HEAD, ENTRY = 2, 6  # words of a chunk's head, of an entry
STEP = 16  # slots of the old table moved by each update
FILTER_BITS = 8  # filter bits per slot
MOST = 0.75  # the greatest load factor

_EMPTY, _MOVED, _REAL = np.uint64(0), np.uint64(1), np.uint64(2)
_ONE = np.uint64(1)
_S2, _S6, _S32 = np.uint64(2), np.uint64(6), np.uint64(32)
_LOW6 = np.uint64(63)
_S27, _S30, _S31 = np.uint64(27), np.uint64(30), np.uint64(31)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ACROSS = np.uint64(0xD6E8FEB86659FD93)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


class HashTable(NamedTuple):
    """The arrays of a table; the old ones are empty unless it grows."""

    keys: Words  # 0: empty, 1: moved
    heads: Cells  # the first chunk of a key's chain
    bits: Words
    old_keys: Words
    old_heads: Cells
    old_bits: Words
    words: Cells
    reals: Reals  # the same memory as words
    state: Ints


@kernel(inline="always")
def hash_key(seed: Any, a: Any, b: Any) -> Any:
    """Hash two numbers under a path."""
    word = np.uint64(seed) ^ (np.uint64(a) * _GOLDEN + np.uint64(b) * _ACROSS)
    word = (word ^ (word >> _S30)) * _FIRST
    word = (word ^ (word >> _S27)) * _SECOND
    return (word ^ (word >> _S31)) | _REAL


@kernel()
def _place(keys: Words, heads: Cells, bits: Words, key: np.uint64, head: np.int32) -> None:
    """Insert a key that the table does not contain."""
    mask = np.uint64(len(keys) - 1)
    at = (key >> _S32) & mask
    while keys[at] != _EMPTY:
        at = (at + _ONE) & mask
    keys[at] = key
    heads[at] = head
    bit = (key >> _S2) & np.uint64(len(bits) * 64 - 1)
    bits[bit >> _S6] |= _ONE << (bit & _LOW6)


@kernel()
def move_slots(table: HashTable, steps: int) -> None:
    """Move the keys in the next slots of the old table."""
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


@kernel()
def _bring(table: HashTable, key: np.uint64) -> None:
    """Move a key that is still in the old table."""
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


@kernel()
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


@kernel()
def insert(table: HashTable, key: np.uint64, slot: int, what: int, x0: float, y0: float, x1: float, y1: float) -> None:
    """Add an entry; the caller has reserved a key and LARGE units."""
    state, words, reals = table.state, table.words, table.reals
    keys, heads = table.keys, table.heads
    if state[CURSOR] < len(table.old_keys):
        move_slots(table, STEP)
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


@kernel()
def remove(table: HashTable, key: np.uint64, slot: int) -> bool:
    """Remove an atom's entry, and fill its position with the newest entry of the chain."""
    state, words = table.state, table.words
    keys, heads = table.keys, table.heads
    if state[CURSOR] < len(table.old_keys):
        move_slots(table, STEP)
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


@kernel()
def _drop_chunk(table: HashTable, at: np.uint64, head: int) -> None:
    """Free the first chunk of a chain, and the key with its last chunk."""
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
    # backward-shift deletion leaves no tombstones
    keys, heads = table.keys, table.heads
    mask = np.uint64(len(keys) - 1)
    hole = at
    probe = (hole + _ONE) & mask
    while keys[probe] != _EMPTY:
        home = (keys[probe] >> _S32) & mask
        if ((probe - home) & mask) >= ((probe - hole) & mask):
            keys[hole] = keys[probe]
            heads[hole] = heads[probe]
            hole = probe
        probe = (probe + _ONE) & mask
    keys[hole] = _EMPTY
    state[USED] -= 1
    state[GONE] += 1
