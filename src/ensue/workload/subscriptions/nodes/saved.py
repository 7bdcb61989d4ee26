"""The table of nodes as files: arrays that readers map into memory, however large they are.

What a table knows of its nodes beside the arrays of the kernel is read row by row when somebody
asks: matching never does, and a change of the set asks for the few nodes that it touches.
"""

import json
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ensue.errors import StateError
from ensue.workload.subscriptions.nodes.growing import Growing

if TYPE_CHECKING:
    from ensue.workload.subscriptions.nodes.table import NodeTable, Row

FORMAT = 1
KEY = 16  # bytes
_ABOUT = "table.json"
_SPARE = 8  # one row in so many is room for more
# the columns of a table that grow, under their names in it
COLUMNS = (
    "_kind", "_edges", "_users", "_tests", "_waits", "_only_latest", "_simple", "_absence",
    "_absence_times",
    "_height", "_lanes", "_not_latest", "_edge", "_edge_before", "_edge_child", "_user",
    "_user_before", "_user_node", "_select", "_since", "_lane", "_hash", "_test", "_test_time",
    "_test_number", "leaf_of",
)  # fmt: skip
_LISTS = ("gone", "gone_subscriptions", "_free", "_free_edges", "_free_users",
          "_free_subscriptions")  # fmt: skip

Ints = npt.NDArray[Any]


def save(table: "NodeTable", folder: Path) -> None:
    """Writes a table into an empty folder."""
    counts = {}
    for name in COLUMNS:
        column: Growing = getattr(table, name)
        counts[name] = column.count
        rows = column.array[: column.count + column.count // _SPARE + 1]
        np.save(folder / f"{name}.npy", rows, allow_pickle=False)
    _save_rows(table, folder)
    numbers = sorted(table.placed)
    places = [table.placed[number] for number in numbers]
    _save_ragged(folder / "placed", [[p] for several in places for p in several], places)
    np.save(folder / "placed_numbers.npy", np.array(numbers, np.int64), allow_pickle=False)
    about = {
        "format": FORMAT,
        "counts": counts,
        "lists": {name: list(getattr(table, name)) for name in _LISTS},
        "free_tests": list(table.free_tests.items()),
        "fields": table.fields,
        "seeds": list(table.seeds.items()),
        "lanes": table.lanes,
        "changes": table.changes,
        "asked": table.asked,
    }
    (folder / _ABOUT).write_text(json.dumps(about))


def _save_rows(table: "NodeTable", folder: Path) -> None:
    rows = [table.by_number[number] for number in range(table.size)]
    keys = b"".join(bytes(KEY) if row is None else row.key for row in rows)
    halves = np.frombuffer(keys, ">u8").reshape(-1, 2).astype(np.uint64)
    alive = np.array([row is not None for row in rows], np.bool_)
    order = np.flatnonzero(alive)
    order = order[np.lexsort((halves[order, 1], halves[order, 0]))]
    plain = [(0, -1, 0, 0) if row is None else (row.users, row.slot, *row.tests) for row in rows]
    np.save(folder / "row_keys.npy", halves, allow_pickle=False)
    np.save(folder / "row_order.npy", order, allow_pickle=False)
    np.save(folder / "row_alive.npy", alive, allow_pickle=False)
    np.save(folder / "row_plain.npy", np.array(plain, np.int64).reshape(-1, 4))
    children = [() if row is None else row.children for row in rows]
    _save_ragged(folder / "row_children", [p for c in children for p in c], children)
    regions = [() if row is None else row.regions for row in rows]
    _save_ragged(folder / "row_regions", [[r] for several in regions for r in several], regions)


def _save_ragged(path: Path, flat: list[Any], several: list[Any]) -> None:
    """Lists of different lengths, one behind the other, and where each begins."""
    offsets = np.zeros(len(several) + 1, np.int64)
    np.cumsum([len(one) for one in several], out=offsets[1:])
    width = len(flat[0]) if flat else 1
    np.save(f"{path}.npy", np.array(flat, np.int64).reshape(-1, width), allow_pickle=False)
    np.save(f"{path}_offsets.npy", offsets, allow_pickle=False)


def load(table: "NodeTable", folder: Path) -> None:
    """Makes an empty table the one that was saved. Its files are mapped, and never changed."""
    try:
        about = json.loads((folder / _ABOUT).read_text())
    except (OSError, ValueError) as error:
        raise StateError(f"{folder} holds no table of nodes: {error}") from None
    if about["format"] != FORMAT:
        raise StateError(
            f"{folder} holds a table of nodes of format {about['format']}, and this release reads "
            f"{FORMAT}\n  hint: use the release that wrote it"
        )
    for name in COLUMNS:
        column: Growing = getattr(table, name)
        found = _mapped(folder / f"{name}.npy")
        if found.dtype != column.array.dtype:
            raise StateError(f"{folder} holds a table of nodes for another time column")
        column.array, column.count = found, about["counts"][name]
    for name, values in about["lists"].items():
        setattr(table, name, values)
    table.free_tests = {int(size): places for size, places in about["free_tests"]}
    table.fields = about["fields"]
    table.seeds = dict(about["seeds"])
    table.lanes, table.changes, table.asked = (about[n] for n in ("lanes", "changes", "asked"))
    numbers = Numbers(folder)
    table.by_number = numbers
    table.rows = Keys(folder, numbers)
    table.placed = Placed(folder)


def _mapped(path: Path) -> Ints:
    shape = np.load(path, mmap_mode="r").shape
    if not np.prod(shape, dtype=np.int64):  # nothing cannot be mapped
        return np.asarray(np.load(path))
    return np.asarray(np.load(path, mmap_mode="c"))


class _Ragged:
    def __init__(self, path: Path) -> None:
        self.flat = _mapped(path.with_name(f"{path.name}.npy"))
        self.offsets = _mapped(path.with_name(f"{path.name}_offsets.npy"))

    def __getitem__(self, number: int) -> Any:
        return self.flat[self.offsets[number] : self.offsets[number + 1]]


class Numbers:
    """Rows by number: those of the files, and those that were made or changed since."""

    def __init__(self, folder: Path) -> None:
        self._keys = _mapped(folder / "row_keys.npy")
        self._alive = _mapped(folder / "row_alive.npy")
        self._plain = _mapped(folder / "row_plain.npy")
        self._children = _Ragged(folder / "row_children")
        self._regions = _Ragged(folder / "row_regions")
        self._known: dict[int, Row | None] = {}
        self._count = len(self._alive)

    def __getitem__(self, number: int) -> "Row | None":
        if number not in self._known:
            if not 0 <= number < len(self._alive):
                raise IndexError(number)
            # whoever asks may change it: it is kept
            self._known[number] = self._row(number) if self._alive[number] else None
        return self._known[number]

    def __setitem__(self, number: int, row: "Row | None") -> None:
        self._known[number] = row

    def append(self, row: "Row | None") -> None:
        self._known[self._count] = row
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def _row(self, number: int) -> "Row":
        from ensue.workload.subscriptions.nodes.table import Row

        users, slot, first, count = self._plain[number].tolist()
        children = tuple((c, e) for c, e in self._children[number].tolist())
        regions = tuple(self._regions[number][:, 0].tolist())
        key = b"".join(int(half).to_bytes(8, "big") for half in self._keys[number])
        return Row(number, key, users, children, (first, count), regions, slot)


class Keys(MutableMapping[bytes, "Row"]):
    """Rows by the keys of their nodes."""

    def __init__(self, folder: Path, numbers: Numbers) -> None:
        self._numbers = numbers
        self._order = _mapped(folder / "row_order.npy")
        halves = _mapped(folder / "row_keys.npy")
        self._first = np.ascontiguousarray(halves[self._order, 0])
        self._second = halves
        self._new: dict[bytes, Row | None] = {}  # None: it is gone
        self._count = len(self._order)

    def __getitem__(self, key: bytes) -> "Row":
        if key in self._new:
            row = self._new[key]
        else:
            number = self._found(key)
            row = None if number is None else self._numbers[number]
        if row is None:
            raise KeyError(key)
        return row

    def _found(self, key: bytes) -> int | None:
        first, second = (np.uint64(int.from_bytes(half, "big")) for half in (key[:8], key[8:]))
        place = int(np.searchsorted(self._first, first))
        while place < len(self._first) and self._first[place] == first:
            number = int(self._order[place])
            if self._second[number, 1] == second:
                return number
            place += 1
        return None

    def __setitem__(self, key: bytes, row: "Row") -> None:
        self._count += key not in self
        self._new[key] = row

    def __delitem__(self, key: bytes) -> None:
        if key not in self:
            raise KeyError(key)
        self._new[key] = None
        self._count -= 1

    def __iter__(self) -> Iterator[bytes]:
        for number in self._order.tolist():
            key = b"".join(int(half).to_bytes(8, "big") for half in self._second[number])
            if key not in self._new:
                yield key
        yield from (key for key, row in self._new.items() if row is not None)

    def __len__(self) -> int:
        return self._count


class Placed(MutableMapping[int, tuple[int, ...]]):
    """Where subscriptions are among the users of nodes."""

    def __init__(self, folder: Path) -> None:
        self._numbers = _mapped(folder / "placed_numbers.npy")
        self._ragged = _Ragged(folder / "placed")
        self._new: dict[int, tuple[int, ...] | None] = {}
        self._count = len(self._numbers)

    def __getitem__(self, number: int) -> tuple[int, ...]:
        if number in self._new:
            found = self._new[number]
        else:
            place = int(np.searchsorted(self._numbers, number))
            known = place < len(self._numbers) and self._numbers[place] == number
            found = tuple(self._ragged[place][:, 0].tolist()) if known else None
        if found is None:
            raise KeyError(number)
        return found

    def __setitem__(self, number: int, places: tuple[int, ...]) -> None:
        self._count += number not in self
        self._new[number] = places

    def __delitem__(self, number: int) -> None:
        if number not in self:
            raise KeyError(number)
        self._new[number] = None
        self._count -= 1

    def __iter__(self) -> Iterator[int]:
        yield from (n for n in self._numbers.tolist() if n not in self._new)
        yield from (n for n, places in self._new.items() if places is not None)

    def __len__(self) -> int:
        return self._count
