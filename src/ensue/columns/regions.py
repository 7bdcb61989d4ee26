"""Regions of subscriptions as rows of one table for kernels: made, shared, released, saved."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.algebra.subscription import Region
from ensue.columns.region_shapes import made, region_text
from ensue.kernels.polygons import FIRST, RINGS
from ensue.kernels.regions import POLYGON, RegionTable

__all__ = ["Regions", "region_text"]

Floats = npt.NDArray[np.float64]
Arrays = Mapping[str, npt.NDArray[Any]]

_NAMES = ("rows", "corners", "uses", "text_offsets", "texts")
_WIDTH = 10
_NOWHERE = np.array([POLYGON, np.inf, np.inf, -np.inf, -np.inf, 0.0, 0.0, 0.0, 0.0, 0.0])


class Regions:
    """A growing table of regions; equal texts are one of them, counted.

    >>> regions = Regions()
    >>> regions.add(Region("CIRCLE (0 0, 5)")), regions.add(Region("CIRCLE (0 0, 5)"))
    (0, 0)
    """

    def __init__(self, space: str = "plane") -> None:
        self.space = space
        self._rows = np.zeros((16, _WIDTH))
        self._corners = np.zeros((64, 2))
        self._count = 0
        self._filled = 0  # rows of corners
        self._known = _Known()
        self._closed: Arrays | None = None  # of one that was opened: what `_known` is made of

    @property
    def table(self) -> RegionTable:
        """For kernels. Adding may move it: take it anew afterwards."""
        return RegionTable(self._rows, self._corners)

    @property
    def nbytes(self) -> int:
        """What the table takes."""
        return int(self._rows.nbytes + self._corners.nbytes)

    def __len__(self) -> int:
        """How many regions there are."""
        return len(self._texts().rows)

    def text(self, row: int) -> str:
        """The text that a row was made of."""
        return self._texts().texts[row]

    def add(self, region: Region) -> int:
        """The row of a region, made if it is new. Raises a QueryError if it is none."""
        known = self._texts()
        row = known.rows.get(region.text)
        if row is None:
            values, corners = made(region, self.space)
            row = self._place(values, corners)
            known.texts[row] = region.text
            known.rows[region.text] = row
        known.uses[row] += 1
        return row

    def release(self, row: int) -> None:
        """Takes back one `add`; the last one frees the row."""
        known = self._texts()
        known.uses[row] -= 1
        if known.uses[row] > 0:
            return
        del known.rows[known.texts[row]]
        known.texts[row] = ""
        known.free.append(row)
        size = self._size(row)
        known.lost += size
        known.blocks.setdefault(size, []).append(int(self._rows[row, FIRST]))
        self._rows[row] = _NOWHERE
        if known.lost > 1024 and 2 * known.lost > self._filled:
            self._close_up()
            known.lost = 0
            known.blocks.clear()

    def _texts(self) -> "_Known":
        if self._closed is not None:
            used = sum(self._size(row) for row in range(self._count))
            self._known = _Known.of_arrays(self._closed, self._filled - used)
            self._closed = None
        return self._known

    def _place(self, values: Floats, corners: Floats) -> int:
        known = self._texts()
        if known.free:
            row = known.free.pop()
        else:
            row = self._count
            self._rows = _room(self._rows, row + 1)
            known.texts.append("")
            known.uses.append(0)
            self._count += 1
        size = len(corners)
        if known.blocks.get(size):
            first = known.blocks[size].pop()
            known.lost -= size
        else:
            first = self._filled
            self._filled += size
            self._corners = _room(self._corners, self._filled)
        self._corners[first : first + size] = corners
        self._rows[row] = values
        self._rows[row, FIRST] = first
        return row

    def _size(self, row: int) -> int:
        at = first = int(self._rows[row, FIRST])
        for _ in range(int(self._rows[row, RINGS])):
            at += 1 + int(self._corners[at, 0])
        return at - first

    def _close_up(self) -> None:
        """Moves the corners that are in use to the front."""
        rows = self._rows[: self._count]
        used = np.flatnonzero(rows[:, RINGS] > 0)
        filled = 0
        for row in used[np.argsort(rows[used, FIRST])]:
            first, size = int(rows[row, FIRST]), self._size(row)
            self._corners[filled : filled + size] = self._corners[first : first + size].copy()
            rows[row, FIRST] = filled
            filled += size
        self._filled = filled

    # ---------------------------------------------------------------------------- kept

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All of it as arrays; `of_arrays` makes it again."""
        return {
            "rows": self._rows[: self._count],
            "corners": self._corners[: self._filled],
            **self._texts().arrays(),
        }

    @classmethod
    def of_arrays(cls, space: str, arrays: Arrays) -> "Regions":
        """The table that the arrays are of; they are not copied until it grows."""
        found = cls(space)
        found._rows, found._corners = (np.asarray(arrays[n]) for n in ("rows", "corners"))
        found._count, found._filled = len(found._rows), len(found._corners)
        found._closed = arrays
        return found

    def save(self, folder: Path) -> None:
        """Writes the arrays into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in self.arrays().items():
            np.save(folder / f"regions_{name}.npy", array)

    @classmethod
    def open(cls, folder: Path, space: str = "plane") -> "Regions":
        """What was saved there, its arrays mapped into memory; changes stay in this process."""
        files = {name: folder / f"regions_{name}.npy" for name in _NAMES}
        # an empty array cannot be mapped
        return cls.of_arrays(
            space,
            {
                name: np.load(path) if path.stat().st_size <= 128 else np.load(path, mmap_mode="c")
                for name, path in files.items()
            },
        )


class _Known:
    """Which texts the rows are of, and how often they are used; who only looks needs it not."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.uses: list[int] = []
        self.rows: dict[str, int] = {}
        self.free: list[int] = []
        self.lost = 0  # rows of corners that belong to no region any more
        self.blocks: dict[int, list[int]] = {}  # where they are, by how many they are

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        encoded = [text.encode() for text in self.texts]
        return {
            "uses": np.array(self.uses, np.int64),
            "text_offsets": np.cumsum([0, *map(len, encoded)], dtype=np.int64),
            "texts": np.frombuffer(b"".join(encoded), np.uint8),
        }

    @classmethod
    def of_arrays(cls, arrays: Arrays, lost: int) -> "_Known":
        found = cls()
        data = arrays["texts"].tobytes()
        found.texts = [data[a:b].decode() for a, b in pairwise(arrays["text_offsets"].tolist())]
        found.uses = arrays["uses"].tolist()
        found.rows = {text: row for row, text in enumerate(found.texts) if found.uses[row] > 0}
        found.free = [row for row, uses in enumerate(found.uses) if uses == 0]
        found.lost = lost
        return found


def _room(array: Floats, needed: int) -> Floats:
    if needed <= len(array):
        return array
    larger = np.zeros((max(needed, 2 * len(array)), array.shape[1]))
    larger[: len(array)] = array
    return larger
