"""The growing arrays of the predicate index, and their files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.kernels import predicate_index_arrays, predicate_index_hash, predicate_index_updates
from ensue.kernels.predicate_index_arrays import SKETCH, Atoms
from ensue.kernels.predicate_index_hash import FILTER_BITS, LARGE, UNIT, HashTable
from ensue.operators.subscriptions.growing_columns import map_arrays, save_arrays

Array = npt.NDArray[Any]

_FIRST_KEYS = 1 << 10
_FULL_AGAIN = 0.4  # largest load factor after a rebuild
_STEP = 1 << 19  # bytes that are cleared or released in well below a millisecond
_ROWS: dict[str, tuple[int, Any]] = {  # words of a row (0: the row is one number), and their type
    "words": (0, np.int32),
    "tests": (4, np.int64),
    "first": (0, np.int32),
    "access": (4, np.int64),
    "paths": (predicate_index_arrays.PATH_WORDS, np.int64),
    "scales": (0, np.float64),
    "groups": (0, np.int32),
    "kinds": (0, np.int32),
    "sketches": (SKETCH // 64, np.uint64),
    "seen": (predicate_index_arrays.SEEN, np.float64),
}
_TABLE = ("keys", "heads", "bits")
_OLD = ("old_keys", "old_heads", "old_bits")
_FIXED = ("table_state", "atom_state", "extent", "counters")


class IndexArrays:
    """Named arrays that grow in steps, and the tuples in which kernels take them.

    Growing reallocates memory, which moves no bytes of large arrays.
    """

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays = arrays
        self._retired: list[Array] = []  # old tables, which are released in steps
        self._build()

    @classmethod
    def empty(cls) -> "IndexArrays":
        arrays: dict[str, Array] = {
            name: np.zeros((16, width) if width else 16, type) for name, (width, type) in _ROWS.items()
        }
        arrays |= dict(zip(_TABLE, _new_table(_FIRST_KEYS), strict=True))
        arrays |= dict(zip(_OLD, _new_table(0), strict=True))
        arrays["table_state"] = np.zeros(predicate_index_hash.STATE, np.int64)
        arrays["table_state"][[predicate_index_hash.FREE_SMALL, predicate_index_hash.FREE_LARGE]] = -1
        arrays["atom_state"] = np.zeros(predicate_index_arrays.STATE, np.int64)
        arrays["extent"] = np.zeros(5, np.float64)
        arrays["counters"] = np.zeros(5, np.int64)
        return cls(arrays)

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def _build(self) -> None:
        a = self._arrays
        shared = a | {"reals": a["words"].view(np.float32), "numbers": a["tests"].view(np.float64)}
        table, atoms = shared | {"state": a["table_state"]}, shared | {"state": a["atom_state"]}
        self.table = HashTable(**{name: table[name] for name in HashTable._fields})
        self.atoms = Atoms(**{name: atoms[name] for name in Atoms._fields})

    def reach(self, needed: Mapping[str, int]) -> None:
        """Grows arrays to at least these lengths."""
        short = {n: size for n, size in needed.items() if len(self._arrays[n]) < size}
        if not short:
            return
        del self.table, self.atoms  # they hold views of memory that may move
        for name, size in short.items():
            array = self._arrays[name]
            step = max(1, _STEP // max(array[:1].nbytes, 1))
            length = max(size, min(2 * len(array), len(array) + step))
            if array.flags.owndata:
                array.resize((length, *array.shape[1:]), refcheck=False)
            else:  # mapped from a file
                more = np.zeros((length, *array.shape[1:]), array.dtype)
                more[: len(array)] = array
                self._arrays[name] = more
        self._build()

    @property
    def growing(self) -> bool:
        state = self._arrays["table_state"]
        return bool(state[predicate_index_hash.CURSOR] < len(self._arrays["old_keys"]))

    def rebuild(self, size: int) -> None:
        """Starts to move all keys to a table of another size; later changes continue the move."""
        arrays, state = self._arrays, self._arrays["table_state"]
        for old, name, fresh in zip(_OLD, _TABLE, _new_table(size), strict=True):
            arrays[old], arrays[name] = arrays[name], fresh
        state[predicate_index_hash.LEFT] = state[predicate_index_hash.USED]
        state[predicate_index_hash.USED] = 0
        state[predicate_index_hash.CURSOR] = 0
        state[predicate_index_hash.GONE] = 0
        self._build()

    def forget_old(self) -> None:
        """Releases the old table after all keys were moved."""
        self._retired += [a for a in (self._arrays[n] for n in _OLD) if a.flags.owndata]
        self._arrays |= dict(zip(_OLD, _new_table(0), strict=True))
        self._arrays["table_state"][predicate_index_hash.CURSOR] = 0
        self._build()

    def _release_step(self) -> None:
        """Returns a part of a retired table to the system."""
        array = self._retired[-1]
        left = len(array) - _STEP // array.itemsize
        if left > 0:
            array.resize(left, refcheck=False)
        else:
            self._retired.pop()

    def make_room(self, tests: int) -> None:
        """Reserves space for one more atom with this number of tests."""
        table, atoms = self._arrays["table_state"], self._arrays["atom_state"]
        entries = max(predicate_index_updates.ENTRIES, 2 * tests)
        units = int(table[predicate_index_hash.TOP]) + LARGE * entries
        slots = int(atoms[predicate_index_arrays.SLOT_TOP]) + 1
        paths = int(atoms[predicate_index_arrays.PATH_TOP]) + 1
        self.reach(
            {
                "words": units * UNIT,
                "tests": int(atoms[predicate_index_arrays.TEST_TOP]) + tests,
                **dict.fromkeys(("first", "access"), slots),
                **dict.fromkeys(("paths", "scales"), paths),
            }
        )
        self.tidy()
        size = len(self._arrays["keys"])
        held = int(table[predicate_index_hash.USED] + table[predicate_index_hash.LEFT]) + entries
        if held <= (predicate_index_hash.MOST if self.growing else predicate_index_updates.FULL) * size:
            return
        if self.growing:  # an atom with very many values
            predicate_index_hash.move_slots(self.table, len(self._arrays["old_keys"]))
            self.tidy()
        while held > predicate_index_updates.FULL * size:
            size *= 2
        self.rebuild(size)

    def tidy(self) -> None:
        """Releases an old table, and starts a rebuild if most of the filter is stale."""
        table = self._arrays["table_state"]
        if self._retired:
            self._release_step()
        if self.growing:
            return
        if len(self._arrays["old_keys"]):
            self.forget_old()
        if table[predicate_index_hash.GONE] > len(self._arrays["keys"]) // 2:
            size = _FIRST_KEYS
            while table[predicate_index_hash.USED] > _FULL_AGAIN * size:
                size *= 2
            self.rebuild(size)

    def save(self, folder: Path) -> None:
        save_arrays(folder, self._arrays)

    @classmethod
    def open(cls, folder: Path) -> "IndexArrays":
        """Maps the files; changes stay in memory."""
        return cls(map_arrays(folder, (*_ROWS, *_TABLE, *_OLD, *_FIXED)))

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays.values())


def _new_table(size: int) -> tuple[Array, Array, Array]:
    return (np.zeros(size, np.uint64), np.zeros(size, np.int32), np.zeros(size * FILTER_BITS // 64, np.uint64))
