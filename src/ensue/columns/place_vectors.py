"""Places of many rows at once: the values of vectors of kind PLACE."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ensue.algebra import places
from ensue.columns.buffers import Floats, Ints


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

    def __iter__(self) -> Iterator[places.Place]:
        first = self.starts().tolist()
        corners = list(zip(self.x.tolist(), self.y.tolist(), strict=True))
        return (tuple(corners[a:b]) for a, b in pairwise(first))

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

    shape: places.Shape
    rows: int = 1

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Iterator[places.Shape]:
        return iter([self.shape] * self.rows)

    def repeated(self, length: int) -> "Region":
        return Region(self.shape, length)


PlaceValues = Corners | Region
