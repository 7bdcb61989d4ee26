"""The files of the network table: arrays that readers map into memory.

The rows of nodes, beyond the arrays of the kernel, are read on demand: matching needs none, and a
change of the set only those of the nodes that it touches.
"""

import json
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ensue.errors import StateError
from ensue.operators.subscriptions.predicate_index.index_arrays import GrowingArray, map_array

if TYPE_CHECKING:
    from ensue.operators.subscriptions.network.network_table import NetworkTable, NodeRow

FORMAT = 1
KEY = 16  # bytes
_ABOUT = "table.json"
_SPARE = 8  # one spare row per this many rows
# the growing columns of a table, by attribute
COLUMNS = (
    "_kind", "_edges", "_users", "_tests", "_waits", "_only_latest", "_simple", "_absence",
    "_absence_times",
    "_height", "_key_groups", "_not_latest", "_edge", "_edge_before", "_edge_child", "_user",
    "_user_before", "_user_node", "_select", "_since", "_key_group", "_hash", "_test", "_test_time",
    "_test_number", "leaf_of",
)  # fmt: skip
_LISTS = ("gone", "gone_subscriptions", "_free", "_free_edges", "_free_users",
          "_free_subscriptions")  # fmt: skip

Ints = npt.NDArray[Any]


def save_network(table: "NetworkTable", folder: Path) -> None:
    """Writes a table to an empty folder."""
    counts = {}
    for name in COLUMNS:
        column: GrowingArray = getattr(table, name)
        counts[name] = column.count
        rows = column.array[: column.count + column.count // _SPARE + 1]
        np.save(folder / f"{name}.npy", rows, allow_pickle=False)
    _save_rows(table, folder)
    numbers = sorted(table.placed)
    positions = [table.placed[number] for number in numbers]
    _save_ragged(folder / "placed", [[p] for list_ in positions for p in list_], positions)
    np.save(folder / "placed_numbers.npy", np.array(numbers, np.int64), allow_pickle=False)
    metadata = {
        "format": FORMAT,
        "counts": counts,
        "lists": {name: list(getattr(table, name)) for name in _LISTS},
        "free_tests": list(table.free_tests.items()),
        "fields": table.fields,
        "seeds": list(table.seeds.items()),
        "key_groups": table.key_groups,
        "changes": table.changes,
        "asked": table.asked,
    }
    (folder / _ABOUT).write_text(json.dumps(metadata))


def _save_rows(table: "NetworkTable", folder: Path) -> None:
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


def _save_ragged(path: Path, flat: list[Any], lists: list[Any]) -> None:
    """Writes lists of different lengths as one array and the offsets of the lists."""
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(list_) for list_ in lists], out=offsets[1:])
    width = len(flat[0]) if flat else 1
    np.save(f"{path}.npy", np.array(flat, np.int64).reshape(-1, width), allow_pickle=False)
    np.save(f"{path}_offsets.npy", offsets, allow_pickle=False)


def load_network(table: "NetworkTable", folder: Path) -> None:
    """Loads a saved table into an empty one. Its files are mapped and never changed."""
    try:
        metadata = json.loads((folder / _ABOUT).read_text())
    except (OSError, ValueError) as error:
        raise StateError(f"{folder} holds no table of nodes: {error}") from None
    if metadata["format"] != FORMAT:
        raise StateError(
            f"{folder} holds a table of nodes of format {metadata['format']}, and this release "
            f"reads {FORMAT}\n  hint: use the release that wrote it"
        )
    for name in COLUMNS:
        column: GrowingArray = getattr(table, name)
        mapped = map_array(folder / f"{name}.npy")
        if mapped.dtype != column.array.dtype:
            raise StateError(f"{folder} holds a table of nodes for another time column")
        column.array, column.count = mapped, metadata["counts"][name]
    for name, values in metadata["lists"].items():
        setattr(table, name, values)
    table.free_tests = {int(size): places for size, places in metadata["free_tests"]}
    table.fields = metadata["fields"]
    table.seeds = dict(metadata["seeds"])
    table.key_groups, table.changes, table.asked = (
        metadata[n] for n in ("key_groups", "changes", "asked")
    )
    numbers = SavedRows(folder)
    table.by_number = numbers
    table.rows = SavedRowsByKey(folder, numbers)
    table.placed = SavedUserPositions(folder)


class _Ragged:
    def __init__(self, path: Path) -> None:
        self.flat = map_array(path.with_name(f"{path.name}.npy"))
        self.offsets = map_array(path.with_name(f"{path.name}_offsets.npy"))

    def __getitem__(self, number: int) -> Any:
        return self.flat[self.offsets[number] : self.offsets[number + 1]]


class SavedRows:
    """Rows by number: saved ones, and those that were added or changed since."""

    def __init__(self, folder: Path) -> None:
        self._keys = map_array(folder / "row_keys.npy")
        self._alive = map_array(folder / "row_alive.npy")
        self._plain = map_array(folder / "row_plain.npy")
        self._children = _Ragged(folder / "row_children")
        self._regions = _Ragged(folder / "row_regions")
        self._known: dict[int, NodeRow | None] = {}
        self._count = len(self._alive)

    def __getitem__(self, number: int) -> "NodeRow | None":
        if number not in self._known:
            if not 0 <= number < len(self._alive):
                raise IndexError(number)
            # stored, since the caller may change it
            self._known[number] = self._row(number) if self._alive[number] else None
        return self._known[number]

    def __setitem__(self, number: int, row: "NodeRow | None") -> None:
        self._known[number] = row

    def append(self, row: "NodeRow | None") -> None:
        self._known[self._count] = row
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def _row(self, number: int) -> "NodeRow":
        from ensue.operators.subscriptions.network.network_table import NodeRow

        users, slot, first, count = self._plain[number].tolist()
        children = tuple((c, e) for c, e in self._children[number].tolist())
        regions = tuple(self._regions[number][:, 0].tolist())
        key = b"".join(int(half).to_bytes(8, "big") for half in self._keys[number])
        return NodeRow(number, key, users, children, (first, count), regions, slot)


class SavedRowsByKey(MutableMapping[bytes, "NodeRow"]):
    """Rows by the keys of their nodes."""

    def __init__(self, folder: Path, numbers: SavedRows) -> None:
        self._numbers = numbers
        self._order = map_array(folder / "row_order.npy")
        halves = map_array(folder / "row_keys.npy")
        self._first = np.ascontiguousarray(halves[self._order, 0])
        self._second = halves
        self._new: dict[bytes, NodeRow | None] = {}  # None: removed
        self._count = len(self._order)

    def __getitem__(self, key: bytes) -> "NodeRow":
        if key in self._new:
            row = self._new[key]
        else:
            number = self._find(key)
            row = None if number is None else self._numbers[number]
        if row is None:
            raise KeyError(key)
        return row

    def _find(self, key: bytes) -> int | None:
        first, second = (np.uint64(int.from_bytes(half, "big")) for half in (key[:8], key[8:]))
        place = int(np.searchsorted(self._first, first))
        while place < len(self._first) and self._first[place] == first:
            number = int(self._order[place])
            if self._second[number, 1] == second:
                return number
            place += 1
        return None

    def __setitem__(self, key: bytes, row: "NodeRow") -> None:
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


class SavedUserPositions(MutableMapping[int, tuple[int, ...]]):
    """The positions of subscriptions among the users of nodes."""

    def __init__(self, folder: Path) -> None:
        self._numbers = map_array(folder / "placed_numbers.npy")
        self._ragged = _Ragged(folder / "placed")
        self._new: dict[int, tuple[int, ...] | None] = {}
        self._count = len(self._numbers)

    def __getitem__(self, number: int) -> tuple[int, ...]:
        if number in self._new:
            positions = self._new[number]
        else:
            number_position = int(np.searchsorted(self._numbers, number))
            is_saved = (
                number_position < len(self._numbers) and self._numbers[number_position] == number
            )
            positions = tuple(self._ragged[number_position][:, 0].tolist()) if is_saved else None
        if positions is None:
            raise KeyError(number)
        return positions

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
