"""Hashes of values, and hash tables that encode distinct values.

The caller owns the arrays of a table. A kernel that runs out of space returns the number of the
row that needs more; the caller grows the table and calls again from there.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import kernel

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Codes = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[Any]  # of 64 bits; offsets may have 32


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_THIRD = np.uint64(0x87C37B91114253D5)
_FOURTH = np.uint64(0x4CF5AD432745937F)
_S8, _S16, _S24, _S32, _S40, _S48, _S56 = (np.uint64(k) for k in (8, 16, 24, 32, 40, 48, 56))
_S27, _S29, _S30, _S31, _S33, _S35 = (np.uint64(k) for k in (27, 29, 30, 31, 33, 35))
_B1, _B2, _B3, _B4, _B5, _B6, _B7 = (np.uint64(k) for k in range(1, 8))
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_LOWER = np.uint64(0xFFFFFFFF)
EVERY_ROW = np.zeros(0, np.int64)
EVERY_ROW.flags.writeable = False


@kernel()
def mix_bits(word: np.uint64) -> np.uint64:
    """Scatter the bits of a word (the finaliser of splitmix64)."""
    word = (word ^ (word >> _S30)) * _FIRST
    word = (word ^ (word >> _S27)) * _SECOND
    return word ^ (word >> _S31)


@kernel()
def hash_texts(offsets: Ints, data: Bytes, rows: Ints, high: Words, low: Words) -> None:
    """128-bit hashes of the strings in some rows, or in all: row k has the bytes from `offsets[k]` to `offsets[k + 1]`.

    Loading a word is written inline, because passing an array to a function counts references even
    if it is inlined.
    """
    size = np.int64(len(data))
    every = len(rows) == 0
    for k in range(len(offsets) - 1 if every else len(rows)):
        row = np.uint64(k if every else rows[k])
        at = np.int64(offsets[row])
        end = np.int64(offsets[row + _ONE])
        a = np.uint64(end - at) * _GOLDEN
        b = ~a
        while at < end:
            word = _ZERO
            if at + 8 <= size:
                # an unsigned index has no wraparound, so this becomes a single load
                u = np.uint64(at)
                word = (
                    np.uint64(data[u])
                    | (np.uint64(data[u + _B1]) << _S8)
                    | (np.uint64(data[u + _B2]) << _S16)
                    | (np.uint64(data[u + _B3]) << _S24)
                    | (np.uint64(data[u + _B4]) << _S32)
                    | (np.uint64(data[u + _B5]) << _S40)
                    | (np.uint64(data[u + _B6]) << _S48)
                    | (np.uint64(data[u + _B7]) << _S56)
                )
                if at + 8 > end:
                    word &= (_ONE << np.uint64(8 * (end - at))) - _ONE
            else:
                for p in range(end - at):  # fewer than eight bytes, at the end of the buffer
                    word |= np.uint64(data[at + p]) << np.uint64(8 * p)
            a = (a ^ word) * _THIRD
            a ^= a >> _S29
            b = (b ^ ((word << _S31) | (word >> _S33))) * _FOURTH
            b ^= b >> _S35
            at += 8
        high[k] = mix_bits(a + b)
        low[k] = mix_bits(b ^ (a * _FIRST))


@kernel()
def hash_words(words: Ints, high: Words, low: Words) -> None:
    """128-bit hashes of 64-bit words."""
    for k in range(len(words)):
        word = np.uint64(words[k])
        high[k] = mix_bits(word + _GOLDEN)
        low[k] = mix_bits((word ^ _FOURTH) * _THIRD)


@kernel()
def add_column(
    high: Words,
    low: Words,
    valid: Bools,
    salt_high: np.uint64,
    salt_low: np.uint64,
    total_high: Words,
    total_low: Words,
) -> None:
    """Add the hashed values of a column to the rows' hashes, independent of column order.

    The salt stands for the column's name and kind; a NULL adds nothing.
    """
    every = len(valid) == 0
    for k in range(len(high)):
        if every or valid[k]:
            total_high[k] += mix_bits(high[k] ^ salt_high)
            total_low[k] += mix_bits(low[k] + salt_low)


@kernel()
def add_words(
    words: Ints, valid: Bools, salt_high: np.uint64, salt_low: np.uint64, total_high: Words, total_low: Words
) -> None:
    """Hash a column of 64-bit words and add it like `add_column`."""
    every = len(valid) == 0
    for k in range(len(words)):
        if every or valid[k]:
            word = np.uint64(words[k])
            total_high[k] += mix_bits(mix_bits(word + _GOLDEN) ^ salt_high)
            total_low[k] += mix_bits(mix_bits((word ^ _FOURTH) * _THIRD) + salt_low)


@kernel()
def fold_rows(rows: Ints, row_high: Words, row_low: Words, salt: np.uint64, high: Words, low: Words) -> None:
    """Fold one event of each match, or none (-1), into the matches' hashes."""
    for k in range(len(rows)):
        a, b = _ZERO, salt
        if rows[k] >= 0:
            a, b = row_high[rows[k]], row_low[rows[k]]
        high[k] = mix_bits((high[k] ^ mix_bits(a ^ salt)) * _THIRD + _GOLDEN)
        low[k] = mix_bits((low[k] ^ mix_bits(b + salt)) * _FOURTH + _GOLDEN)


@kernel()
def fold_lists(
    offsets: Ints, rows: Ints, row_high: Words, row_low: Words, salt: np.uint64, high: Words, low: Words
) -> None:
    """Fold a list of events of each match into the matches' hashes."""
    for k in range(len(offsets) - 1):
        a = salt
        b = salt + np.uint64(offsets[k + 1] - offsets[k])
        for p in range(offsets[k], offsets[k + 1]):
            a = mix_bits((a ^ row_high[rows[p]]) * _THIRD + _GOLDEN)
            b = mix_bits((b ^ row_low[rows[p]]) * _FOURTH + _GOLDEN)
        high[k] = mix_bits((high[k] ^ a) * _THIRD + _GOLDEN)
        low[k] = mix_bits((low[k] ^ b) * _FOURTH + _GOLDEN)


@kernel()
def number_duplicates(high: Words, low: Words) -> Ints:
    """The number of earlier rows with the same hash."""
    n = len(high)
    out = np.zeros(n, np.int64)
    size = 16
    while size < 2 * n:
        size *= 2
    slots = np.full(size, -1, np.int64)  # the newest row with the slot's hash
    mask = np.uint64(size - 1)
    for k in range(n):
        at = high[k] & mask
        while slots[at] >= 0 and (high[slots[at]] != high[k] or low[slots[at]] != low[k]):
            at = (at + _ONE) & mask
        if slots[at] >= 0:
            out[k] = out[slots[at]] + 1
        slots[at] = k
    return out


@kernel()
def format_hex(high: Words, low: Words, digits: Bytes) -> Bytes:
    """32 hexadecimal digits for each pair of words; `digits` has those of each byte."""
    n = len(high)
    pairs, out = digits.view(np.uint16), np.empty(16 * n, np.uint16)
    for k in range(n):
        at = 16 * k
        for part in range(2):
            word = high[k] if part == 0 else low[k]
            for byte in range(8):
                out[at] = pairs[(word >> np.uint64(8 * (7 - byte))) & np.uint64(255)]
                at += 1
    return out.view(np.uint8)


# The state of a table: used slots [0], the next code [1], and, for strings, entries [2] and bytes
# [3].


@kernel()
def encode_integers(
    keys: Ints, valid: Bools, slot_keys: Ints, slot_codes: Codes, state: Ints, out: Codes, start: int
) -> int:
    """Encode integers from row `start`; return the row that needs a larger table.

    `slot_keys` and `slot_codes` (-1: free) have a power of two of slots and are at most half full.
    """
    mask = np.uint64(len(slot_keys) - 1)
    every = len(valid) == 0
    for k in range(start, len(keys)):
        if not (every or valid[k]):
            out[k] = -1
            continue
        key = keys[k]
        at = mix_bits(np.uint64(key) + _GOLDEN) & mask
        while slot_codes[at] >= 0 and slot_keys[at] != key:
            at = (at + _ONE) & mask
        if slot_codes[at] < 0:
            if 2 * (state[0] + 1) > len(slot_keys):
                return k
            slot_keys[at] = key
            slot_codes[at] = np.int32(state[1])
            state[0] += 1
            state[1] += 1
        out[k] = slot_codes[at]
    return len(keys)


@kernel()
def scatter_integers(values: Ints, least: int, bits: int, out: Codes) -> None:
    """A different code for each integer from `least` on, below 2 to the power of `bits`.

    The lower bits of the codes vary, whatever the integers have in common.
    """
    within, half = (_ONE << np.uint64(bits)) - _ONE, np.uint64((bits + 1) // 2)
    for k in range(len(values)):
        word = (np.uint64(values[k] - least) * _GOLDEN) & within
        out[k] = np.int32(word ^ (word >> half))


@kernel()
def insert_integers(keys: Ints, codes: Codes, slot_keys: Ints, slot_codes: Codes) -> None:
    """Fill an empty table with known keys and codes."""
    mask = np.uint64(len(slot_keys) - 1)
    for k in range(len(keys)):
        if codes[k] >= 0:
            at = mix_bits(np.uint64(keys[k]) + _GOLDEN) & mask
            while slot_codes[at] >= 0:
                at = (at + _ONE) & mask
            slot_keys[at] = keys[k]
            slot_codes[at] = codes[k]


@kernel()
def encode_texts(
    hashes: Words,
    offsets: Ints,
    data: Bytes,
    valid: Bools,
    slots: Words,
    entry_offsets: Ints,
    entry_data: Bytes,
    entry_codes: Codes,
    state: Ints,
    out: Codes,
    start: int,
) -> int:
    """Encode strings from row `start`; return the row that needs more space.

    A slot holds the upper half of a text's hash and, in the lower half, the number of its entry
    from 1 (0: free), so that one memory access mostly decides.
    """
    mask = np.uint64(len(slots) - 1)
    every = len(valid) == 0
    rows = len(offsets) - 1
    for k in range(start, rows):
        if not (every or valid[k]):
            out[k] = -1
            continue
        begin = np.int64(offsets[k])
        length = np.int64(offsets[k + 1]) - begin
        hashed = hashes[k]
        at = hashed & mask
        slot = slots[at]
        entry = np.int64(-1)
        while slot != _ZERO:
            if (slot ^ hashed) >> _S32 == _ZERO:
                entry = np.int64(slot & _LOWER) - 1
                known = entry_offsets[entry]
                if entry_offsets[entry + 1] - known == length:
                    # equal hashes: the texts are nearly always equal, so no early exit
                    own, other = np.uint64(begin), np.uint64(known)
                    differs = np.uint8(0)
                    for _ in range(length):
                        differs |= data[own] ^ entry_data[other]
                        own += _ONE
                        other += _ONE
                    if differs == 0:
                        break
            at = (at + _ONE) & mask
            slot = slots[at]
        if slot == _ZERO:
            entry, used = state[2], state[3]
            if 2 * (state[0] + 1) > len(slots) or entry >= len(entry_codes):
                return k
            if used + length > len(entry_data):
                return k
            for p in range(length):
                entry_data[used + p] = data[begin + p]
            entry_offsets[entry + 1] = used + length
            entry_codes[entry] = np.int32(state[1])
            slots[at] = (hashed & ~_LOWER) | np.uint64(entry + 1)
            state[0] += 1
            state[1] += 1
            state[2] += 1
            state[3] += length
        out[k] = entry_codes[entry]
    return rows


@kernel()
def insert_texts(hashes: Words, slots: Words) -> None:
    """Fill empty slots with entries by their hashes."""
    mask = np.uint64(len(slots) - 1)
    for entry in range(len(hashes)):
        at = hashes[entry] & mask
        while slots[at] != _ZERO:
            at = (at + _ONE) & mask
        slots[at] = (hashes[entry] & ~_LOWER) | np.uint64(entry + 1)


@kernel()
def compact_texts(offsets: Ints, data: Bytes, codes: Codes, moved: Codes) -> int:
    """Move the strings that keep a code to the front; return their number.

    `moved` is the new code of each old one, -1 for a removed string.
    """
    kept = 0
    used = np.int64(0)
    for entry in range(len(codes)):
        code = moved[codes[entry]]
        if code < 0:
            continue
        begin, end = offsets[entry], offsets[entry + 1]
        for p in range(begin, end):
            data[used] = data[p]
            used += 1
        codes[kept] = code
        kept += 1
        offsets[kept] = used
    return kept


@kernel()
def map_names(
    offsets: Ints, data: Bytes, name_offsets: Ints, name_data: Bytes, values: npt.NDArray[Any], out: npt.NDArray[Any]
) -> None:
    """For each string the value of the equal name, or the last value; the names are different.

    The first eight bytes are compared as one word. Without longer names nothing depends on a branch that the
    processor would have to predict.
    """
    names, size, are_short = name_offsets.shape[0] - 1, np.int64(len(data)), True
    words, lengths = np.zeros(names, np.uint64), np.zeros(names, np.int64)
    for name in range(names):
        lengths[name] = name_offsets[name + 1] - name_offsets[name]
        are_short &= lengths[name] <= 8
        for p in range(min(lengths[name], 8)):
            words[name] |= np.uint64(name_data[name_offsets[name] + p]) << np.uint64(8 * p)
    other = values[names]
    for row in range(out.shape[0]):
        at = np.int64(offsets[row])
        length = np.int64(offsets[row + 1]) - at
        word = _ZERO
        if at + 8 <= size:
            # an unsigned index has no wraparound, so this becomes a single load
            u = np.uint64(at)
            word = (
                np.uint64(data[u])
                | (np.uint64(data[u + _B1]) << _S8)
                | (np.uint64(data[u + _B2]) << _S16)
                | (np.uint64(data[u + _B3]) << _S24)
                | (np.uint64(data[u + _B4]) << _S32)
                | (np.uint64(data[u + _B5]) << _S40)
                | (np.uint64(data[u + _B6]) << _S48)
                | (np.uint64(data[u + _B7]) << _S56)
            )
        else:
            for p in range(min(length, size - at)):  # fewer than eight bytes, at the end of the buffer
                word |= np.uint64(data[at + p]) << np.uint64(8 * p)
        if length == 0:
            word = _ZERO
        unused = np.uint64(64 - 8 * length) if 0 < length < 8 else _ZERO
        word = (word << unused) >> unused
        found = other
        if are_short:
            for name in range(names):
                differs = (words[name] ^ word) | np.uint64(lengths[name] ^ length)
                found += (values[name] - other) * np.int64(differs == _ZERO)
        else:
            for name in range(names):
                if words[name] == word and lengths[name] == length:
                    same = True
                    for p in range(8, length):
                        same &= data[at + p] == name_data[name_offsets[name] + p]
                    if same:
                        found = values[name]
        out[row] = found
