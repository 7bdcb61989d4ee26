"""The arrays of an index: how they grow, and their files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.kernels import routing_arrays, routing_atoms, routing_table
from ensue.kernels.routing_arrays import Atoms
from ensue.kernels.routing_choice import SKETCH
from ensue.kernels.routing_table import FILTER_BITS, LARGE, UNIT, Table

Array = npt.NDArray[Any]

_FIRST_KEYS = 1 << 10
_FULL_AGAIN = 0.4  # how full a table is, at most, when it was made anew
_STEP = 1 << 19  # bytes: so much is cleared, or given back, in well below a millisecond
_HEADER = 128  # bytes of a file without numbers
_ROWS: dict[str, tuple[int, Any]] = {  # words of a row (0: the row is one number), and their type
    "words": (0, np.int32),
    "tests": (4, np.int64),
    "first": (0, np.int32),
    "access": (4, np.int64),
    "generation": (0, np.int32),
    "paths": (routing_arrays.PATH_WORDS, np.int64),
    "scales": (0, np.float64),
    "groups": (0, np.int32),
    "kinds": (0, np.int32),
    "sketches": (SKETCH // 64, np.uint64),
    "seen": (routing_arrays.SEEN, np.float64),
}
_TABLE = ("keys", "heads", "bits")
_OLD = ("old_keys", "old_heads", "old_bits")
_FIXED = ("table_state", "atom_state", "extent", "counters")


class Arrays:
    """Named arrays that grow by steps, and the tuples in which kernels take them.

    Growing asks for the same memory again, which moves no bytes where they are many.
    """

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays = arrays
        self._retired: list[Array] = []  # old tables that shrink step by step
        self._build()

    @classmethod
    def empty(cls) -> "Arrays":
        arrays: dict[str, Array] = {
            name: np.zeros((16, width) if width else 16, type)
            for name, (width, type) in _ROWS.items()
        }
        arrays |= dict(zip(_TABLE, _new_table(_FIRST_KEYS), strict=True))
        arrays |= dict(zip(_OLD, _new_table(0), strict=True))
        arrays["table_state"] = np.zeros(routing_table.STATE, np.int64)
        arrays["table_state"][[routing_table.FREE_SMALL, routing_table.FREE_LARGE]] = -1
        arrays["atom_state"] = np.zeros(routing_arrays.STATE, np.int64)
        arrays["extent"] = np.zeros(5, np.float64)
        arrays["counters"] = np.zeros(5, np.int64)
        return cls(arrays)

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def _build(self) -> None:
        a = self._arrays
        self.table = Table(
            keys=a["keys"],
            heads=a["heads"],
            bits=a["bits"],
            old_keys=a["old_keys"],
            old_heads=a["old_heads"],
            old_bits=a["old_bits"],
            words=a["words"],
            reals=a["words"].view(np.float32),
            state=a["table_state"],
        )
        self.atoms = Atoms(
            tests=a["tests"],
            numbers=a["tests"].view(np.float64),
            first=a["first"],
            access=a["access"],
            generation=a["generation"],
            paths=a["paths"],
            scales=a["scales"],
            groups=a["groups"],
            state=a["atom_state"],
            kinds=a["kinds"],
            sketches=a["sketches"],
            seen=a["seen"],
            extent=a["extent"],
        )

    def reach(self, needed: Mapping[str, int]) -> None:
        """Makes arrays at least so long."""
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
            else:  # of a file
                more = np.zeros((length, *array.shape[1:]), array.dtype)
                more[: len(array)] = array
                self._arrays[name] = more
        self._build()

    # ---- the hash table

    @property
    def growing(self) -> bool:
        state = self._arrays["table_state"]
        return bool(state[routing_table.CURSOR] < len(self._arrays["old_keys"]))

    def rebuild(self, size: int) -> None:
        """Starts to move all keys to a table of another size; changes go on with it."""
        arrays, state = self._arrays, self._arrays["table_state"]
        for old, name, fresh in zip(_OLD, _TABLE, _new_table(size), strict=True):
            arrays[old], arrays[name] = arrays[name], fresh
        state[routing_table.LEFT] = state[routing_table.USED]
        state[routing_table.USED] = 0
        state[routing_table.CURSOR] = 0
        state[routing_table.GONE] = 0
        self._build()

    def forget_old(self) -> None:
        """Lets the old table go, which is empty."""
        self._retired += [a for a in (self._arrays[n] for n in _OLD) if a.flags.owndata]
        self._arrays |= dict(zip(_OLD, _new_table(0), strict=True))
        self._arrays["table_state"][routing_table.CURSOR] = 0
        self._build()

    def _give_some_back(self) -> None:
        """Gives a piece of a table that is no longer used to the system."""
        array = self._retired[-1]
        left = len(array) - _STEP // array.itemsize
        if left > 0:
            array.resize(left, refcheck=False)
        else:
            self._retired.pop()

    def make_room(self, tests: int) -> None:
        """Room for one more atom of so many tests, at least."""
        table, atoms = self._arrays["table_state"], self._arrays["atom_state"]
        entries = max(routing_atoms.ENTRIES, 2 * tests)
        units = int(table[routing_table.TOP]) + LARGE * entries
        slots = int(atoms[routing_arrays.SLOT_TOP]) + 1
        paths = int(atoms[routing_arrays.PATH_TOP]) + 1
        self.reach(
            {
                "words": units * UNIT,
                "tests": int(atoms[routing_arrays.TEST_TOP]) + tests,
                **dict.fromkeys(("first", "access", "generation"), slots),
                **dict.fromkeys(("paths", "scales"), paths),
            }
        )
        self.tidy()
        size = len(self._arrays["keys"])
        held = int(table[routing_table.USED] + table[routing_table.LEFT]) + entries
        if held <= (routing_table.MOST if self.growing else routing_atoms.FULL) * size:
            return
        if self.growing:  # one atom of very many values
            routing_table.move_some(self.table, len(self._arrays["old_keys"]))
            self.tidy()
        while held > routing_atoms.FULL * size:
            size *= 2
        self.rebuild(size)

    def tidy(self) -> None:
        """Lets an old table go; begins a new one where most of the filter is stale."""
        table = self._arrays["table_state"]
        if self._retired:
            self._give_some_back()
        if self.growing:
            return
        if len(self._arrays["old_keys"]):
            self.forget_old()
        if table[routing_table.GONE] > len(self._arrays["keys"]) // 2:
            size = _FIRST_KEYS
            while table[routing_table.USED] > _FULL_AGAIN * size:
                size *= 2
            self.rebuild(size)

    # ---- files

    def save(self, folder: Path) -> None:
        for name in (*_ROWS, *_TABLE, *_OLD, *_FIXED):
            np.save(folder / f"{name}.npy", self._arrays[name], allow_pickle=False)

    @classmethod
    def open(cls, folder: Path) -> "Arrays":
        """Maps the files; what is changed is kept in memory."""
        arrays = {}
        for name in (*_ROWS, *_TABLE, *_OLD, *_FIXED):
            path = folder / f"{name}.npy"
            mapped = name not in _FIXED and path.stat().st_size > _HEADER  # none maps no bytes
            loaded = np.load(path, mmap_mode="c" if mapped else None, allow_pickle=False)
            arrays[name] = np.asarray(loaded)
        return cls(arrays)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays.values())


def _new_table(size: int) -> tuple[Array, Array, Array]:
    return (
        np.zeros(size, np.uint64),
        np.zeros(size, np.int32),
        np.zeros(size * FILTER_BITS // 64, np.uint64),
    )
