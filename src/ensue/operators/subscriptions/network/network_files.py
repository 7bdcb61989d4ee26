"""The files of the network table: arrays that readers map into memory.

The rows of nodes, beyond the arrays of the kernel, are read on demand: matching needs none, and a
change of the set only those of the nodes that it touches.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ensue.errors import StateError
from ensue.operators.subscriptions.predicate_index.index_arrays import GrowingArray, SavedMapping, map_array

if TYPE_CHECKING:
    from ensue.operators.subscriptions.network.network_table import NetworkTable

FORMAT = 1
KEY = 16  # bytes
_ABOUT = "table.json"
_SPARE = 8  # one spare row per this many rows
_LISTS = ("gone", "gone_subscriptions", "_free", "_free_edges", "_free_users",
          "_free_subscriptions")  # fmt: skip


@dataclass(slots=True)
class NodeRow:
    """The properties of a node beyond its row in the arrays."""

    node: int
    key: bytes
    users: int  # nodes above and subscriptions
    children: tuple[tuple[int, int], ...]  # (node, edge)
    tests: tuple[int, int]
    regions: tuple[int, ...]
    slot: int = -1  # of a leaf


def save_network(table: "NetworkTable", folder: Path) -> None:
    """Writes a table to an empty folder."""
    columns = _columns(table)
    for name, column in columns.items():
        rows = column.array[: column.count + column.count // _SPARE + 1]
        np.save(folder / f"{name}.npy", rows, allow_pickle=False)
    _save_rows(table, folder)
    numbers = sorted(table.placed)
    positions = [table.placed[number] for number in numbers]
    _save_ragged(folder / "placed", [[p] for list_ in positions for p in list_], positions)
    np.save(folder / "placed_numbers.npy", np.array(numbers, np.int64), allow_pickle=False)
    metadata = {
        "format": FORMAT,
        "counts": {name: column.count for name, column in columns.items()},
        "lists": {name: list(getattr(table, name)) for name in _LISTS},
        "free_tests": list(table.free_tests.items()),
        "fields": table.fields,
        "seeds": list(table.seeds.items()),
        "key_groups": table.key_groups,
        "changes": table.changes,
        "requests": table.requests,
    }
    (folder / _ABOUT).write_text(json.dumps(metadata))


def _columns(table: "NetworkTable") -> dict[str, GrowingArray]:
    """Returns the growing columns of a table, by attribute."""
    return {name: value for name, value in vars(table).items() if isinstance(value, GrowingArray)}


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
    for name, column in _columns(table).items():
        mapped = map_array(folder / f"{name}.npy")
        if mapped.dtype != column.array.dtype:
            raise StateError(f"{folder} holds a table of nodes for another time column")
        column.array, column.count = mapped, metadata["counts"][name]
    for name, values in metadata["lists"].items():
        setattr(table, name, values)
    table.free_tests = {int(size): places for size, places in metadata["free_tests"]}
    table.fields = metadata["fields"]
    table.seeds = dict(metadata["seeds"])
    table.key_groups, table.changes, table.requests = (metadata[n] for n in ("key_groups", "changes", "requests"))
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
    """Rows by number: the saved ones, and later additions and changes."""

    def __init__(self, folder: Path) -> None:
        self._keys = map_array(folder / "row_keys.npy")
        self._alive = map_array(folder / "row_alive.npy")
        self._plain = map_array(folder / "row_plain.npy")
        self._children = _Ragged(folder / "row_children")
        self._regions = _Ragged(folder / "row_regions")
        self._known: dict[int, NodeRow | None] = {}
        self._count = len(self._alive)

    def __getitem__(self, number: int) -> NodeRow | None:
        if number not in self._known:
            if not 0 <= number < len(self._alive):
                raise IndexError(number)
            # stored, since the caller may change it
            self._known[number] = self._row(number) if self._alive[number] else None
        return self._known[number]

    def __setitem__(self, number: int, row: NodeRow | None) -> None:
        self._known[number] = row

    def append(self, row: NodeRow | None) -> None:
        self._known[self._count] = row
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def _row(self, number: int) -> NodeRow:
        users, slot, first, count = self._plain[number].tolist()
        children = tuple((c, e) for c, e in self._children[number].tolist())
        regions = tuple(self._regions[number][:, 0].tolist())
        key = b"".join(int(half).to_bytes(8, "big") for half in self._keys[number])
        return NodeRow(number, key, users, children, (first, count), regions, slot)


class SavedRowsByKey(SavedMapping[bytes, NodeRow]):
    """Rows by the keys of their nodes."""

    def __init__(self, folder: Path, numbers: SavedRows) -> None:
        self._numbers = numbers
        self._order = map_array(folder / "row_order.npy")
        self._halves = map_array(folder / "row_keys.npy")
        self._first = np.ascontiguousarray(self._halves[self._order, 0])
        super().__init__(len(self._order))

    def _read(self, key: bytes) -> NodeRow | None:
        first, second = (np.uint64(int.from_bytes(half, "big")) for half in (key[:8], key[8:]))
        place = int(np.searchsorted(self._first, first))
        while place < len(self._first) and self._first[place] == first:
            number = int(self._order[place])
            if self._halves[number, 1] == second:
                return self._numbers[number]
            place += 1
        return None

    def _saved_keys(self) -> Iterator[bytes]:
        for number in self._order.tolist():
            yield b"".join(int(half).to_bytes(8, "big") for half in self._halves[number])


class SavedUserPositions(SavedMapping[int, tuple[int, ...]]):
    """The positions of subscriptions among the users of nodes."""

    def __init__(self, folder: Path) -> None:
        self._numbers = map_array(folder / "placed_numbers.npy")
        self._ragged = _Ragged(folder / "placed")
        super().__init__(len(self._numbers))

    def _read(self, number: int) -> tuple[int, ...] | None:
        place = int(np.searchsorted(self._numbers, number))
        if place == len(self._numbers) or self._numbers[place] != number:
            return None
        return tuple(self._ragged[place][:, 0].tolist())

    def _saved_keys(self) -> Iterator[int]:
        return iter(self._numbers.tolist())
