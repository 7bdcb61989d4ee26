"""Tables that give each distinct integer or string a code, for as long as they live."""

import numpy as np
import numpy.typing as npt

from ensue.columns.buffers import Bools, Ints, frozen, known_to_kernels
from ensue.kernels import hashing

Codes = npt.NDArray[np.int32]

_FIRST_SLOTS = 1 << 10
_FIRST_BYTES = 1 << 14
_BLOCK = 1 << 14  # texts whose hashes are held at a time
_USED, _NEXT, _ENTRIES, _BYTES = range(4)  # places in a table's state


class Counter:
    """The next free code; the tables of a column share it."""

    def __init__(self) -> None:
        self.next = 0


class IntegerCodes:
    """Codes of 64-bit integers.

    >>> IntegerCodes(Counter()).encode(np.array([7, 9, 7]), None).tolist()
    [0, 1, 0]
    """

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._state = np.zeros(4, np.int64)
        self._keys = np.zeros(_FIRST_SLOTS, np.int64)
        self._codes = np.full(_FIRST_SLOTS, -1, np.int32)

    def encode(self, keys: Ints, valid: Bools | None) -> Codes:
        """The code of each integer, -1 where there is none."""
        keys, known = frozen(keys), known_to_kernels(valid)
        out = np.empty(len(keys), np.int32)
        state = self._state
        state[_NEXT] = self._counter.next
        done = 0
        while True:
            done = hashing.code_integers(keys, known, self._keys, self._codes, state, out, done)
            if done == len(keys):
                break
            self._grow(2 * len(self._keys))
        self._counter.next = int(state[_NEXT])
        return out

    def _grow(self, size: int) -> None:
        keys, codes = np.zeros(size, np.int64), np.full(size, -1, np.int32)
        hashing.place_integers(self._keys, self._codes, keys, codes)
        self._keys, self._codes = keys, codes

    def items(self) -> tuple[Ints, Codes]:
        """The integers known so far and their codes."""
        used = self._codes >= 0
        keys, codes = self._keys[used], self._codes[used]
        order = np.argsort(codes)
        return keys[order], codes[order]

    def restore(self, keys: Ints, codes: Codes) -> None:
        """Takes up what `items` gave, into an empty table."""
        size = _slots_for(len(keys))
        self._keys, self._codes = np.zeros(size, np.int64), np.full(size, -1, np.int32)
        hashing.place_integers(frozen(keys), frozen(codes), self._keys, self._codes)
        self._state[_USED] = len(keys)

    def keep(self, moved: Codes) -> None:
        """Takes the codes that `moved` gives for the old ones; -1 forgets an integer."""
        keys, codes = self.items()
        codes = moved[codes]
        self.restore(keys[codes >= 0], codes[codes >= 0])

    @property
    def nbytes(self) -> int:
        """How much `items` gives."""
        return int(self._state[_USED]) * 12


class TextCodes:
    """Codes of strings, read from Arrow's buffers as they lie.

    >>> data = np.frombuffer(b"abcab", np.uint8)
    >>> TextCodes(Counter()).encode(np.array([0, 2, 3, 5]), data, None).tolist()
    [0, 1, 0]
    """

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._state = np.zeros(4, np.int64)
        self._slots = np.zeros(_FIRST_SLOTS, np.uint64)
        self._offsets = np.zeros(_FIRST_SLOTS // 2 + 1, np.int64)
        self._codes = np.zeros(_FIRST_SLOTS // 2, np.int32)
        self._data = np.zeros(_FIRST_BYTES, np.uint8)

    def encode(
        self, offsets: npt.NDArray[np.integer], data: npt.NDArray[np.uint8], valid: Bools | None
    ) -> Codes:
        """The code of each string, -1 where there is none."""
        offsets, data = frozen(offsets), frozen(data)
        known = known_to_kernels(valid)
        rows = len(offsets) - 1
        hashes, spare = np.empty((2, min(rows, _BLOCK)), np.uint64)
        out = np.empty(rows, np.int32)
        self._state[_NEXT] = self._counter.next
        for begin in range(0, rows, _BLOCK):
            some = offsets[begin : begin + _BLOCK + 1]
            hashing.hash_texts(some, data, hashes, spare)
            self._encode_some(hashes, some, data, known[begin:], out[begin : begin + _BLOCK])
        self._counter.next = int(self._state[_NEXT])
        return out

    def _encode_some(
        self,
        hashes: npt.NDArray[np.uint64],
        offsets: npt.NDArray[np.integer],
        data: npt.NDArray[np.uint8],
        known: Bools,
        out: Codes,
    ) -> None:
        done = 0
        while True:
            done = hashing.code_texts(
                hashes,
                offsets,
                data,
                known,
                self._slots,
                self._offsets,
                self._data,
                self._codes,
                self._state,
                out,
                done,
            )
            if done == len(out):
                return
            self._grow(int(offsets[done + 1] - offsets[done]))

    def _grow(self, length: int) -> None:
        """Makes room for one more string of this length, at least."""
        entries, used = int(self._state[_ENTRIES]), int(self._state[_BYTES])
        if used + length > len(self._data):
            data = np.zeros(max(2 * len(self._data), used + length), np.uint8)
            data[:used] = self._data[:used]
            self._data = data
        if 2 * (entries + 1) > len(self._slots):
            size = 2 * len(self._slots)
            offsets, codes = np.zeros(size // 2 + 1, np.int64), np.zeros(size // 2, np.int32)
            offsets[: entries + 1] = self._offsets[: entries + 1]
            codes[:entries] = self._codes[:entries]
            self._offsets, self._codes = offsets, codes
            self._place(size)

    def _place(self, size: int) -> None:
        entries = int(self._state[_ENTRIES])
        hashes, spare = np.empty(entries, np.uint64), np.empty(entries, np.uint64)
        hashing.hash_texts(frozen(self._offsets[: entries + 1]), frozen(self._data), hashes, spare)
        self._slots = np.zeros(size, np.uint64)
        hashing.place_texts(hashes, self._slots)

    def items(self) -> tuple[Ints, npt.NDArray[np.uint8], Codes]:
        """The strings known so far (offsets and bytes) and their codes."""
        entries, used = int(self._state[_ENTRIES]), int(self._state[_BYTES])
        return self._offsets[: entries + 1], self._data[:used], self._codes[:entries]

    def restore(self, offsets: Ints, data: npt.NDArray[np.uint8], codes: Codes) -> None:
        """Takes up what `items` gave, into an empty table."""
        entries = len(codes)
        size = _slots_for(entries)
        self._offsets, self._codes = (
            np.zeros(size // 2 + 1, np.int64),
            np.zeros(size // 2, np.int32),
        )
        self._data = np.zeros(max(_FIRST_BYTES, len(data)), np.uint8)
        self._offsets[: entries + 1] = offsets
        self._codes[:entries] = codes
        self._data[: len(data)] = data
        self._state[:] = (entries, 0, entries, len(data))
        self._place(size)

    def keep(self, moved: Codes) -> None:
        """Takes the codes that `moved` gives for the old ones; -1 forgets a string."""
        offsets, data, codes = self.items()
        kept = hashing.keep_texts(offsets, data, codes, moved)
        self.restore(offsets[: kept + 1], data[: offsets[kept]], codes[:kept])

    @property
    def nbytes(self) -> int:
        """How much `items` gives."""
        return int(self._state[_ENTRIES]) * 12 + int(self._state[_BYTES])


def _slots_for(entries: int) -> int:
    """The least power of two that is at most half full."""
    return max(_FIRST_SLOTS, 1 << (2 * entries).bit_length())
