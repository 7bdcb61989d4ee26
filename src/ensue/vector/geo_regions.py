"""Regions as rows of a table for kernels: validated, shared by text, released, saved.

Shapely validates polygons; edges across 180 degrees take the short way.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ensue.errors import QueryError
from ensue.geo.geometry import compute_centroid, unwrap_polygons
from ensue.geo.wkt import Circle, Points, Polygons, check_geometry, convert_shapely, format_wkt, read_wkt
from ensue.ir.subscription import Region
from ensue.kernels.geometry import EARTH, PLANE, find_convex_side
from ensue.kernels.polygons import ABOVE, BELOW, FIRST, KIND, LEFT, RIGHT, RINGS, X, Y
from ensue.kernels.regions import CIRCLE, POLYGON, RegionTable, expand_box

if TYPE_CHECKING:
    from shapely import Geometry

Floats = npt.NDArray[np.float64]

SPACES = {"plane": PLANE, "earth": EARTH}


def build_region(region: Region, space: str) -> tuple[Floats, Floats]:
    """The row and the corners of a region. Raises QueryError if it is invalid."""
    try:
        return _build(region.text, space)
    except QueryError as error:
        name = "a region" if region.name is None else f"region '{region.name}'"
        raise QueryError(f"{name}: {error.problem}", hint=error.hint, span=region.span, text=error.text) from None


@lru_cache(maxsize=256)  # a region is validated when registered, and built when used
def _build(text: str, space: str) -> tuple[Floats, Floats]:
    geometry = read_wkt(text)
    for x, y in check_geometry(geometry):
        if space == "earth" and not (-180 <= x <= 360 and -90 <= y <= 90):
            raise QueryError(
                f"the corner ({x:g} {y:g}) is not on the earth",
                hint="longitudes are from -180 to 360, latitudes from -90 to 90, in this order",
            )
    match geometry:
        case Circle():
            return _circle(geometry, SPACES[space]), np.zeros((0, 2))
        case Polygons():
            return _polygons(geometry, space)
        case Points():
            raise QueryError("it has no area", hint="write a polygon or a circle: 'CIRCLE (8.5 47.4, 300)'")


def _circle(circle: Circle, space: int) -> Floats:
    x, y, radius = circle.x, circle.y, circle.radius
    if space == EARTH and x > 180:
        x -= 360
    box = expand_box(x, y, x, y, radius, space)
    return np.array([CIRCLE, *box, x, y, radius, 0.0, 0.0])


def _polygons(polygons: Polygons, space: str) -> tuple[Floats, Floats]:
    if space == "earth":
        polygons = unwrap_polygons(polygons)
        for ring in polygons.rings:
            _check_turns(ring)
    row = np.zeros(10)
    row[KIND] = POLYGON
    row[X : Y + 1] = compute_centroid(polygons, space)
    convex = _convex_ring(polygons)
    if convex is not None:
        row[LEFT], row[BELOW] = convex[1:].min(axis=0)
        row[RIGHT], row[ABOVE] = convex[1:].max(axis=0)
        row[RINGS] = 1
        if row[RIGHT] - row[LEFT] < 360 or space == "plane":
            return row, convex
    shaped = _to_shapely(polygons)
    row[LEFT : ABOVE + 1] = shaped.bounds
    if space == "earth" and row[RIGHT] - row[LEFT] == 360:
        shaped = _all_round(shaped)
        row[RIGHT] += 360
    corners, row[RINGS] = _rings(shaped)
    return row, corners


def _convex_ring(polygons: Polygons) -> Floats | None:
    """The ring of one convex polygon with its header, which needs no validation by Shapely."""
    if len(polygons.rings) > 1:
        return None
    ring = np.array([(len(polygons.rings[0]), 0), *polygons.rings[0]], np.float64)
    side = find_convex_side(ring[1:, 0], ring[1:, 1], len(ring) - 2)
    if side < 0:
        ring[1:] = ring[:0:-1].copy()
    return None if side == 0 else ring


def _check_turns(ring: Sequence[tuple[float, float]]) -> None:
    xs = [x for x, _ in ring]
    if ring[0] != ring[-1]:
        raise QueryError(
            "its border goes around a pole",
            hint="add the corners (-180 90), (180 90) or (-180 -90), (180 -90), or write a circle around the pole",
        )
    if max(xs) - min(xs) > 360:
        raise QueryError("it is wider than 360 degrees of longitude")


def _to_shapely(polygons: Polygons) -> "Geometry":
    """Convert to Shapely and validate."""
    import shapely

    shape = shapely.MultiPolygon([(p[0], list(p[1:])) for p in polygons.polygons])
    if not shapely.is_valid(shape):
        reason = shapely.is_valid_reason(shape)
        problem, _, place = reason.partition("[")
        place = f" at ({place.removesuffix(']')})" if place else ""
        raise QueryError(
            f"{_PROBLEMS.get(problem, problem.lower())}{place}",
            hint="the border of a region must not cross or touch itself; shapely.make_valid(region) may fix it",
        )
    if shape.area == 0:
        raise QueryError("its area is 0", hint="the corners of a polygon are not all on one line")
    return shape


_PROBLEMS = {
    "Self-intersection": "its edges cross",
    "Ring Self-intersection": "its border touches itself",
    "Hole lies outside shell": "a hole lies outside",
    "Holes are nested": "a hole lies in another one",
    "Nested shells": "a polygon lies in another one",
    "Interior is disconnected": "its holes cut it into pieces",
    "Too few points in geometry component": "its area is 0",
}


def _all_round(shaped: "Geometry") -> "Geometry":
    """Repeat a region around the whole earth once more, so that no place meets its seam."""
    import shapely

    again = shapely.transform(shaped, lambda xy: xy + np.array([360.0, 0.0]))
    return shapely.union(shaped, again)


def _rings(shaped: "Geometry") -> tuple[Floats, int]:
    """Rings with headers: outer ones counter-clockwise, holes clockwise."""
    import shapely

    pieces: list[Floats] = []
    for polygon in shapely.get_parts(shaped):
        for number, ring in enumerate((polygon.exterior, *polygon.interiors)):
            corners = shapely.get_coordinates(ring)
            if shapely.is_ccw(ring) != (number == 0):
                corners = corners[::-1]
            steps = np.any(corners[1:] != corners[:-1], axis=1)
            corners = corners[np.append(True, steps)]
            pieces += [np.array([[len(corners), number > 0]], np.float64), corners]
    return np.concatenate(pieces) + 0.0, len(pieces) // 2


def normalize_region(value: Any) -> str:
    """Normalize a region: a WKT or CIRCLE text, a Shapely geometry, or a list of corners.

    >>> normalize_region([(0, 0), (4, 0), (4, 3)])
    'POLYGON ((0 0, 4 0, 4 3, 0 0))'
    """
    if isinstance(value, str):
        return format_wkt(read_wkt(value))
    import shapely

    if isinstance(value, shapely.Geometry):
        return format_wkt(convert_shapely(value))
    try:
        ring = tuple((float(x), float(y)) for x, y in value)
    except (TypeError, ValueError):
        raise QueryError(
            f"{value!r:.60} is not a region",
            hint="pass a WKT text, 'CIRCLE (x y, radius)', a Shapely geometry or a list of (x, y)",
        ) from None
    if not ring:
        return format_wkt(Polygons(()))
    return format_wkt(Polygons(((ring if ring[0] == ring[-1] else (*ring, ring[0]),),)))


# ---------------------------------------------------------------------------- table

Arrays = Mapping[str, npt.NDArray[Any]]

_NAMES = ("rows", "corners", "uses", "text_offsets", "texts")
_WIDTH = 10
_NOWHERE = np.array([POLYGON, np.inf, np.inf, -np.inf, -np.inf, 0.0, 0.0, 0.0, 0.0, 0.0])


class Regions:
    """A growing table of regions; equal texts share a row, which is reference-counted.

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
        self._closed: Arrays | None = None  # saved arrays to read `_known` from

    @property
    def table(self) -> RegionTable:
        """The arguments of kernels; adding a region may reallocate them."""
        return RegionTable(self._rows, self._corners)

    @property
    def nbytes(self) -> int:
        """The size of the table."""
        return int(self._rows.nbytes + self._corners.nbytes)

    def __len__(self) -> int:
        return len(self._texts().rows)

    def text(self, row: int) -> str:
        """The text of a row."""
        return self._texts().texts[row]

    def add(self, region: Region) -> int:
        """Return the row of a region, building it if it is new; raise QueryError if invalid."""
        known = self._texts()
        row = known.rows.get(region.text)
        if row is None:
            values, corners = build_region(region, self.space)
            row = self._place(values, corners)
            known.texts[row] = region.text
            known.rows[region.text] = row
        known.uses[row] += 1
        return row

    def release(self, row: int) -> None:
        """Release one `add`; the last release frees the row."""
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
            self._known = _Known.from_arrays(self._closed, self._filled - used)
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
        """Compact the corners in use."""
        rows = self._rows[: self._count]
        used = np.flatnonzero(rows[:, RINGS] > 0)
        filled = 0
        for row in used[np.argsort(rows[used, FIRST])]:
            first, size = int(rows[row, FIRST]), self._size(row)
            self._corners[filled : filled + size] = self._corners[first : first + size].copy()
            rows[row, FIRST] = filled
            filled += size
        self._filled = filled

    # ---------------------------------------------------------------------------- persistence

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The table as arrays, which `from_arrays` reads."""
        return {"rows": self._rows[: self._count], "corners": self._corners[: self._filled], **self._texts().arrays()}

    @classmethod
    def from_arrays(cls, space: str, arrays: Arrays) -> "Regions":
        """Wrap arrays in a table; they are copied when it grows."""
        regions = cls(space)
        regions._rows, regions._corners = (np.asarray(arrays[n]) for n in ("rows", "corners"))
        regions._count, regions._filled = len(regions._rows), len(regions._corners)
        regions._closed = arrays
        return regions

    def save(self, folder: Path) -> None:
        """Write the arrays into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in self.arrays().items():
            np.save(folder / f"regions_{name}.npy", array)

    @classmethod
    def open(cls, folder: Path, space: str = "plane") -> "Regions":
        """Map the arrays of a folder into memory; changes stay in this process."""
        files = {name: folder / f"regions_{name}.npy" for name in _NAMES}
        # an empty array cannot be mapped
        return cls.from_arrays(
            space,
            {
                name: np.load(path) if path.stat().st_size <= 128 else np.load(path, mmap_mode="c")
                for name, path in files.items()
            },
        )


class _Known:
    """The texts and reference counts of rows; read-only users do not need them."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.uses: list[int] = []
        self.rows: dict[str, int] = {}
        self.free: list[int] = []
        self.lost = 0  # rows of corners that belong to no region
        self.blocks: dict[int, list[int]] = {}  # free blocks by size

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        encoded = [text.encode() for text in self.texts]
        return {
            "uses": np.array(self.uses, np.int64),
            "text_offsets": np.cumsum([0, *map(len, encoded)], dtype=np.int64),
            "texts": np.frombuffer(b"".join(encoded), np.uint8),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, lost: int) -> "_Known":
        known = cls()
        data = arrays["texts"].tobytes()
        known.texts = [data[a:b].decode() for a, b in pairwise(arrays["text_offsets"].tolist())]
        known.uses = arrays["uses"].tolist()
        known.rows = {text: row for row, text in enumerate(known.texts) if known.uses[row] > 0}
        known.free = [row for row, uses in enumerate(known.uses) if uses == 0]
        known.lost = lost
        return known


def _room(array: Floats, needed: int) -> Floats:
    if needed <= len(array):
        return array
    larger = np.zeros((max(needed, 2 * len(array)), array.shape[1]))
    larger[: len(array)] = array
    return larger
