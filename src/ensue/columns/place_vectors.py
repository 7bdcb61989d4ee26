"""Places of many rows at once: what vectors of kind PLACE hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ensue.algebra import subscription
from ensue.algebra.functions import FUNCTIONS, SPACES, WKT
from ensue.algebra.places import Place
from ensue.algebra.wkt import Circle, Points, Polygons
from ensue.algebra.wkt import written as wkt_of
from ensue.columns.buffers import Bools, Floats, Ints
from ensue.columns.regions import Regions
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
    """A region that a query writes down: the same for all rows."""

    text: str
    rows: int = 1

    def __len__(self) -> int:
        return self.rows

    def repeated(self, length: int) -> "Region":
        return Region(self.text, length)

    def table(self, space: int) -> RegionTable:
        """For kernels: its first row is the region."""
        return _table(self.text, SPACES[space])

    def corners(self, space: int) -> Corners:
        """Those of its hull, for every row."""
        return _corners(self.text, SPACES[space]).repeated(self.rows)


PlaceValues = Corners | Region


def circle_text(x: float, y: float, radius: float) -> str:
    """A circle as regions are written."""
    return wkt_of(Circle(float(x), float(y), float(radius)))


@lru_cache(maxsize=256)
def _table(text: str, space: str) -> RegionTable:
    regions = Regions(space)
    regions.add(subscription.Region(text))
    return regions.table


@lru_cache(maxsize=256)
def _corners(text: str, space: str) -> Corners:
    hull = FUNCTIONS["hull" if space == "plane" else "earth_hull"]
    found = hull([FUNCTIONS[WKT]([text])])
    assert isinstance(found, Place)
    return corners_of([found])


def corners_of(places: Sequence[Place | None]) -> Corners:
    """Places, one a row; of one that is not there, no corners."""
    sizes = [0 if place is None else len(place.corners) for place in places]
    points = np.array([c for p in places if p is not None for c in p.corners], np.float64)
    x, y = np.ascontiguousarray(points.reshape(-1, 2).T)
    return Corners(x, y, np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))


def written(places: PlaceValues, valid: Bools | None) -> pa.Array:
    """Places as WKT."""
    if isinstance(places, Region):
        return pa.array([places.text] * len(places), pa.string())
    starts, found = places.starts().tolist(), list[str | None]()
    corners = list(zip(places.x.tolist(), places.y.tolist(), strict=True))
    for row, (begin, end) in enumerate(pairwise(starts)):
        own = tuple(corners[begin:end])
        there = begin < end and (valid is None or bool(valid[row]))
        shape = Points(own) if len(own) < 3 else Polygons((((*own, own[0]),),))
        found.append(wkt_of(shape) if there else None)
    return pa.array(found, pa.string())
