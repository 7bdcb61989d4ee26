"""Places of many rows at once: what vectors of kind PLACE hold."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ensue.columns.buffers import Bools, Floats, Ints
from ensue.kernels.regions import RegionTable


@dataclass(frozen=True, slots=True, eq=False)
class Corners:
    """Convex places, one a row: row k has the corners from `first[k]` up to `first[k + 1]`.

    Where `first` is None, all of them are points: row k has corner k.
    """

    x: Floats
    y: Floats
    first: Ints | None = None

    def __len__(self) -> int:
        return len(self.x) if self.first is None else len(self.first) - 1

    def starts(self) -> Ints:
        """`first`, whatever the places are."""
        return np.arange(len(self.x) + 1) if self.first is None else self.first

    def repeated(self, length: int) -> "Corners":
        """The first place for every row."""
        size = int(self.starts()[1])
        x, y = np.tile(self.x[:size], length), np.tile(self.y[:size], length)
        return Corners(x, y, None if size == 1 else np.arange(length + 1) * size)


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A place that a query writes down: the same for all rows."""

    text: str
    rows: int = 1

    def __len__(self) -> int:
        return self.rows

    def repeated(self, length: int) -> "Region":
        return Region(self.text, length)

    def table(self, space: int) -> RegionTable:
        raise NotImplementedError

    def corners(self) -> Corners:
        """Those of its hull."""
        raise NotImplementedError


PlaceValues = Corners | Region


def written(places: PlaceValues, valid: Bools | None) -> pa.Array:
    """Places as WKT."""
    raise NotImplementedError
