"""Locations and regions as WKT and WKB, which Shapely reads, and as `CIRCLE (x y, r)`.

>>> read_wkt("point(1 2.0)")
Points(points=((1.0, 2.0),))
>>> format_wkt(read_wkt("CIRCLE(1 2, 0.50)"))
'CIRCLE (1 2, 0.5)'
>>> format_wkt(read_wkt("POLYGON((0 0,4 0,4 3))"))
'POLYGON ((0 0, 4 0, 4 3, 0 0))'
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ensue.errors import QueryError, did_you_mean

if TYPE_CHECKING:
    from shapely import Geometry as ShapelyGeometry

Point = tuple[float, float]
Ring = tuple[Point, ...]  # closed: the last corner is the first


@dataclass(frozen=True, slots=True)
class Points:
    """Points or the ends of lines, which stand for their convex hull; may be empty."""

    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Polygons:
    """Polygons, each an outer ring and its holes; may be empty."""

    polygons: tuple[tuple[Ring, ...], ...]

    @property
    def rings(self) -> tuple[Ring, ...]:
        return tuple(ring for polygon in self.polygons for ring in polygon)


@dataclass(frozen=True, slots=True)
class Circle:
    """A closed disk."""

    x: float
    y: float
    radius: float


Geometry = Points | Polygons | Circle

HINT = "write 'POLYGON ((0 0, 10 0, 10 10, 0 0))', 'POINT (8.5 47.4)' or 'CIRCLE (8.5 47.4, 300)'"
KEYWORDS = (
    "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "CIRCLE",
)  # fmt: skip
MAX_CORNERS = 10_000
MAX_COORDINATE = 1e100  # the maximum coordinate: products of four still fit into a double
_KEYWORD = re.compile(r"\s*([A-Za-z]*)")
_CIRCLE = re.compile(r"\s*\w+\s*\(\s*([^\s,]+)\s+([^\s,]+)\s*,\s*([^\s,]+?)\s*\)\s*")


# Shapely loads NumPy, so it is imported where a geometry is read.


def read_wkt(text: str) -> Geometry:
    """Reads a geometry, or raises a QueryError. Rings are closed, Z and M are ignored."""
    found = _KEYWORD.match(text)
    keyword = found[1].upper() if found else ""
    if keyword == "CIRCLE":
        return _read_circle(text)
    if keyword and keyword not in KEYWORDS:
        raise _build_unsupported_error(keyword)
    import shapely

    shape = shapely.from_wkt(text, on_invalid="fix")
    if shape is None:
        try:
            shapely.from_wkt(text)
        except shapely.errors.ShapelyError as error:
            problem = str(error).partition("Exception: ")[2].strip()
            raise _unreadable(f"{problem[:1].lower()}{problem[1:]}", text) from None
    return convert_shapely(shape)


def convert_shapely(shape: "ShapelyGeometry") -> Geometry:
    """Converts a geometry of Shapely; raises a QueryError for collections and curves."""
    if shape.geom_type.upper() not in KEYWORDS:
        raise _build_unsupported_error(shape.geom_type.upper())
    if "Polygon" not in shape.geom_type:
        return Points(_points(shape))
    polygons = [part for part in getattr(shape, "geoms", [shape]) if not part.is_empty]
    return Polygons(tuple(tuple(map(_points, (p.exterior, *p.interiors))) for p in polygons))


def check_geometry(geometry: Geometry) -> Sequence[Point]:
    """Returns the corners; raises a QueryError if they or a radius are invalid."""
    corners: Sequence[Point]
    match geometry:
        case Circle(x, y, radius):
            corners = [(x, y)]
            if not 0 < radius < float("inf"):
                raise QueryError(
                    f"the radius {radius:g} is not positive",
                    hint="a circle is 'CIRCLE (x y, radius)', with metres on the earth",
                )
        case Points(corners):
            pass
        case Polygons():
            corners = [corner for ring in geometry.rings for corner in ring]
            for ring in geometry.rings:
                if len(set(ring)) < 3:
                    raise QueryError(
                        f"a ring has {len(set(ring))} corners",
                        hint="a polygon needs at least three: POLYGON ((0 0, 10 0, 10 10, 0 0))",
                    )
    if not corners:
        raise QueryError("it is empty", hint=HINT)
    if len(corners) > MAX_CORNERS:
        raise QueryError(
            f"it has {len(corners):,} corners, more than {MAX_CORNERS:,}",
            hint="simplify it: shapely.simplify(region, tolerance)",
        )
    for x, y in corners:
        if not (abs(x) <= MAX_COORDINATE and abs(y) <= MAX_COORDINATE):
            raise QueryError(f"the corner ({x:g} {y:g}) is not a number, or too far away", hint=HINT)
    return corners


def read_points(written: str | bytes) -> tuple[Point, ...] | None:
    """Reads the points of an event's location from WKT or WKB; None if it cannot be read."""
    import shapely

    read = shapely.from_wkt if isinstance(written, str) else shapely.from_wkb
    try:
        shape = read(written, on_invalid="fix")
    except (NotImplementedError, shapely.errors.ShapelyError):  # a curve, or no text
        return None
    return None if shape is None else _points(shape)


def _points(shape: "ShapelyGeometry") -> tuple[Point, ...]:
    import shapely

    return tuple((x, y) for x, y in shapely.get_coordinates(shape).tolist())


def _read_circle(text: str) -> Circle:
    found = _CIRCLE.fullmatch(text)
    try:
        if found is None or "_" in text:
            raise ValueError
        return Circle(*map(float, found.groups()))
    except ValueError:
        raise _unreadable("a circle is 'CIRCLE (x y, radius)'", text) from None


def _unreadable(problem: str, text: str) -> QueryError:
    shown = text if len(text) <= 60 else text[:57] + "..."
    return QueryError(f"a geometry cannot be read: {problem}, in '{shown}'", hint=HINT)


def _build_unsupported_error(keyword: str) -> QueryError:
    hint = did_you_mean(keyword, KEYWORDS)
    return QueryError(f"'{keyword}' is not a supported geometry", hint=hint)


# GEOS writes numbers below 1 without their last digits, so WKT is written here.


def format_wkt(geometry: Geometry) -> str:
    """Formats a geometry exactly; equal geometries have equal texts."""
    match geometry:
        case Circle(x, y, radius):
            return f"CIRCLE ({format_number(x)} {format_number(y)}, {format_number(radius)})"
        case Points(()):
            return "POINT EMPTY"
        case Points((point,)):
            return f"POINT {_list((point,))}"
        case Points((first, second)):
            return f"LINESTRING {_list((first, second))}"
        case Points(points):
            return f"MULTIPOINT {_list(points)}"
        case Polygons(()):
            return "POLYGON EMPTY"
        case Polygons((polygon,)):
            return f"POLYGON {_format_polygon(polygon)}"
        case Polygons(polygons):
            return f"MULTIPOLYGON ({', '.join(map(_format_polygon, polygons))})"


def _format_polygon(polygon: tuple[Ring, ...]) -> str:
    return f"({', '.join(map(_list, polygon))})"


def _list(points: tuple[Point, ...]) -> str:
    return f"({', '.join(f'{format_number(x)} {format_number(y)}' for x, y in points)})"


def format_number(number: float) -> str:
    """Formats a number without `.0`.

    >>> format_number(3.0), format_number(0.1), format_number(1e30)
    ('3', '0.1', '1e+30')
    """
    return repr(number + 0.0).removesuffix(".0")
