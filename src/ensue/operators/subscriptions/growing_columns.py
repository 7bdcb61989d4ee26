"""Rows in growing columns, whose files readers map into memory, and the numbers of rows by key."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.errors import StateError

Array = npt.NDArray[Any]

KEY = 16  # bytes
_ROOM = 16  # rows of a new table
_SPARE = 8  # one spare row per this many rows in files
_ABOUT = "rows.json"


class Column(NamedTuple):
    """The values of a column in one row: how many, of which type, and what they are at first."""

    type: Any
    width: int = 0  # 0: a single number
    fill: Any = 0

    def new(self, rows: int) -> Array:
        return np.full((rows, self.width) if self.width else rows, self.fill, self.type)


class GrowingColumns(dict[str, Array]):
    """Rows with named columns, which double when they are full. Numbers of removed rows are reused.

    >>> rows = GrowingColumns(pair=Column(np.int32, 2, -1))
    >>> rows.take(), rows.take()
    (0, 1)
    >>> rows["pair"][1] = (3, 4)
    >>> rows["pair"][: rows.count].tolist()
    [[-1, -1], [3, 4]]
    >>> rows.unused.append(1)
    >>> rows.take(), rows["pair"][1].tolist()
    (1, [-1, -1])
    """

    def __init__(self, **columns: Column) -> None:
        super().__init__({name: column.new(_ROOM) for name, column in columns.items()})
        self._columns = columns
        self._room = _ROOM
        self.count = 0
        self.unused: list[int] = []  # numbers of removed rows

    def take(self) -> int:
        """Adds a row and returns its number, that of a removed row if there is one."""
        if not self.unused:
            return self.extend(1)
        number = self.unused.pop()
        for name, column in self._columns.items():
            self[name][number] = column.fill
        return number

    def extend(self, rows: int) -> int:
        """Appends rows and returns the number of the first."""
        first = self.count
        self.count += rows
        if self.count > self._room:
            self._room = max(self.count, 2 * self._room)
            for name, column in self._columns.items():
                longer = column.new(self._room)
                longer[:first] = self[name][:first]
                self[name] = longer
        return first

    def reach(self, count: int) -> None:
        """Appends rows until there are this many."""
        if count > self.count:
            self.extend(count - self.count)

    def list_used(self) -> npt.NDArray[np.int64]:
        """Returns the numbers of the rows in use."""
        used = np.ones(self.count, np.bool_)
        used[self.unused] = False
        return np.flatnonzero(used)

    def save(self, folder: Path) -> None:
        """Writes the columns to a new folder."""
        folder.mkdir(parents=True)
        kept = self.count + self.count // _SPARE + 1
        save_arrays(folder, {name: array[:kept] for name, array in self.items()})
        (folder / _ABOUT).write_text(json.dumps({"count": self.count, "unused": self.unused}))

    def open(self, folder: Path) -> None:
        """Continues with saved columns. Their files are mapped and never changed."""
        metadata = read_metadata(folder / _ABOUT)
        self.update(map_arrays(folder, self._columns))
        self.count, self.unused = metadata["count"], metadata["unused"]
        self._room = min(map(len, self.values()))


class KeyIndex:
    """The numbers of rows by a column of keys: two halves of 64 bits.

    The saved ones are found in sorted arrays that are mapped, the changes since in a dictionary.

    >>> rows = GrowingColumns(key=Column(np.uint64, 2))
    >>> index = KeyIndex(rows)
    >>> index.add(b"k" * KEY, rows.take())
    >>> index.find(b"k" * KEY), index.find(bytes(KEY)), len(index), list(index)
    (0, -1, 1, [0])
    """

    def __init__(self, rows: GrowingColumns) -> None:
        self._rows = rows
        self._sorted: dict[str, Array] = {"halves": np.zeros(0, np.uint64), "numbers": np.zeros(0, np.int64)}
        self._changed: dict[bytes, int] = {}  # -1: removed
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for number in self._sorted["numbers"].tolist():
            key = self.get_key(number)
            if key not in self._changed and self.find(key) == number:
                yield number
        yield from (number for number in self._changed.values() if number >= 0)

    def get_key(self, number: int) -> bytes:
        return bytes(self._rows["key"][number].astype(">u8").tobytes())

    def find(self, key: bytes) -> int:
        """Returns the number of the row with a key; -1: there is none."""
        number = self._changed.get(key)
        if number is not None:
            return number
        halves, numbers = self._sorted["halves"], self._sorted["numbers"]
        if not len(halves):
            return -1
        first, second = _split(key)
        place = int(np.searchsorted(halves, np.uint64(first)))
        while place < len(halves) and halves[place] == first:
            if self._rows["key"][numbers[place]].tolist() == [first, second]:
                return int(numbers[place])
            place += 1
        return -1

    def add(self, key: bytes, number: int) -> None:
        """Gives a row a key that no row has."""
        self._rows["key"][number] = _split(key)
        self._changed[key] = number
        self._count += 1

    def remove(self, key: bytes) -> None:
        """Forgets a key that a row has."""
        if len(self._sorted["halves"]):
            self._changed[key] = -1
        else:
            del self._changed[key]
        self._count -= 1

    def save(self, folder: Path) -> None:
        """Writes the numbers to a new folder; the rows have the keys."""
        folder.mkdir()
        numbers = np.fromiter(self, np.int64, len(self))
        halves = self._rows["key"][numbers, 0]
        order = np.argsort(halves, kind="stable")
        save_arrays(folder, {"halves": halves[order], "numbers": numbers[order]})

    def open(self, folder: Path) -> None:
        self._sorted = map_arrays(folder, self._sorted)
        self._count = len(self._sorted["numbers"])


def _split(key: bytes) -> tuple[int, int]:
    return int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big")


# ---------------------------------------------------------------------------- files


def save_arrays(folder: Path, arrays: dict[str, Array]) -> None:
    """Writes arrays to a folder, as a file for each."""
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)


def map_arrays(folder: Path, names: Any) -> dict[str, Array]:
    """Maps saved arrays copy-on-write; empty ones are loaded, since they cannot be mapped."""
    mapped = {name: np.load(folder / f"{name}.npy", mmap_mode="c") for name in names}
    return {
        name: np.asarray(array) if array.size else np.asarray(np.load(folder / f"{name}.npy"))
        for name, array in mapped.items()
    }


def read_metadata(path: Path) -> dict[str, Any]:
    """Reads the description of saved arrays."""
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise StateError(f"{path.parent} holds no part of a compiled set: {error}") from None
