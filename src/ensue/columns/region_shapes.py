"""One region made for kernels: checked, told from what is none, its rings laid out.

Shapely is the judge of what is a polygon; edges over 180 degrees go the short way.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ensue.algebra.places import centre, unwrapped
from ensue.algebra.subscription import Region
from ensue.algebra.wkt import Circle, Geometry, Points, Polygons, read_wkt, written
from ensue.errors import QueryError
from ensue.extras import needed
from ensue.kernels.geometry import EARTH, PLANE, turning
from ensue.kernels.polygons import ABOVE, BELOW, KIND, LEFT, RIGHT, RINGS, X, Y
from ensue.kernels.regions import CIRCLE, POLYGON, grown_box

if TYPE_CHECKING:
    from shapely import Geometry as Shaped

Floats = npt.NDArray[np.float64]

MOST_CORNERS = 10_000
FARTHEST = 1e100  # the greatest coordinate: products of four still fit into a double
SPACES = {"plane": PLANE, "earth": EARTH}


def made(region: Region, space: str) -> tuple[Floats, Floats]:
    """The row and the corners of a region. Raises a QueryError that says what is wrong with it."""
    try:
        return _made(region.text, space)
    except QueryError as error:
        name = "a region" if region.name is None else f"region '{region.name}'"
        raise QueryError(
            f"{name}: {error.problem}", hint=error.hint, span=region.span, text=error.text
        ) from None


@lru_cache(maxsize=256)  # a region is checked when it is given, and made when it is used
def _made(text: str, space: str) -> tuple[Floats, Floats]:
    geometry = read_wkt(text)
    _check(geometry, space)
    match geometry:
        case Circle():
            return _circle(geometry, SPACES[space]), np.zeros((0, 2))
        case Polygons():
            return _polygons(geometry, space)
        case Points():
            raise QueryError(
                "it has no area", hint="write a polygon or a circle: 'CIRCLE (8.5 47.4, 300)'"
            )


def _check(geometry: Geometry, space: str) -> None:
    match geometry:
        case Circle(x, y, radius):
            corners = [(x, y)]
            if not radius > 0 or math.isinf(radius):
                raise QueryError(
                    f"the radius {radius:g} is not positive",
                    hint="a circle is 'CIRCLE (x y, radius)', with metres on the earth",
                )
        case Points(points):
            corners = list(points)
        case Polygons(polygons):
            corners = [corner for ring in geometry.rings for corner in ring]
            for ring in geometry.rings:
                if len(set(ring)) < 3:
                    raise QueryError(
                        f"a ring has {len(set(ring))} corners",
                        hint="a polygon needs at least three",
                    )
            if not polygons:
                raise QueryError("it is empty", hint="a polygon needs at least three corners")
    if len(corners) > MOST_CORNERS:
        raise QueryError(
            f"it has {len(corners):,} corners, more than {MOST_CORNERS:,}",
            hint="simplify it: shapely.simplify(region, tolerance)",
        )
    for x, y in corners:
        if not (abs(x) <= FARTHEST and abs(y) <= FARTHEST):
            raise QueryError(f"the corner ({x:g} {y:g}) is not a number, or too far away")
        if space == "earth" and not (-180 <= x <= 360 and -90 <= y <= 90):
            raise QueryError(
                f"the corner ({x:g} {y:g}) is not on the earth",
                hint="longitudes are from -180 to 360, latitudes from -90 to 90, in this order",
            )


def _circle(circle: Circle, space: int) -> Floats:
    x, y, radius = circle.x, circle.y, circle.radius
    if space == EARTH and x > 180:
        x -= 360
    box = grown_box(x, y, x, y, radius, space)
    return np.array([CIRCLE, *box, x, y, radius, 0.0, 0.0])


def _polygons(polygons: Polygons, space: str) -> tuple[Floats, Floats]:
    if space == "earth":
        polygons = unwrapped(polygons)
        for ring in polygons.rings:
            _check_turns(ring)
    row = np.zeros(10)
    row[KIND] = POLYGON
    row[X : Y + 1] = centre(polygons, space)
    convex = _convex_ring(polygons)
    if convex is not None:
        row[LEFT], row[BELOW] = convex[1:].min(axis=0)
        row[RIGHT], row[ABOVE] = convex[1:].max(axis=0)
        row[RINGS] = 1
        if row[RIGHT] - row[LEFT] < 360 or space == "plane":
            return row, convex
    shaped = _shaped(polygons)
    row[LEFT : ABOVE + 1] = shaped.bounds
    if space == "earth" and row[RIGHT] - row[LEFT] == 360:
        shaped = _all_round(shaped)
        row[RIGHT] += 360
    corners, row[RINGS] = _rings(shaped)
    return row, corners


def _convex_ring(polygons: Polygons) -> Floats | None:
    """The ring of one convex polygon with its header, for which Shapely need not be asked."""
    if len(polygons.rings) > 1:
        return None
    ring = np.array([(len(polygons.rings[0]), 0), *polygons.rings[0]], np.float64)
    side = turning(ring[1:, 0], ring[1:, 1], len(ring) - 2)
    if side < 0:
        ring[1:] = ring[:0:-1].copy()
    return None if side == 0 else ring


def _check_turns(ring: Sequence[tuple[float, float]]) -> None:
    xs = [x for x, _ in ring]
    if ring[0] != ring[-1]:
        raise QueryError(
            "its border goes around a pole",
            hint="add the corners (-180 90), (180 90) or (-180 -90), (180 -90), "
            "or write a circle around the pole",
        )
    if max(xs) - min(xs) > 360:
        raise QueryError("it is wider than 360 degrees of longitude")


def _shaped(polygons: Polygons) -> "Shaped":
    """The region for Shapely, which says whether it is one."""
    shapely = imported_shapely()
    found = shapely.MultiPolygon([(p[0], list(p[1:])) for p in polygons.polygons])
    if not shapely.is_valid(found):
        reason = shapely.is_valid_reason(found)
        problem, _, place = reason.partition("[")
        place = f" at ({place.removesuffix(']')})" if place else ""
        raise QueryError(
            f"{_PROBLEMS.get(problem, problem.lower())}{place}",
            hint="the border of a region must not cross or touch itself; "
            "shapely.make_valid(region) may fix it",
        )
    if found.area == 0:
        raise QueryError("its area is 0", hint="the corners of a polygon are not all on one line")
    return found


_PROBLEMS = {
    "Self-intersection": "its edges cross",
    "Ring Self-intersection": "its border touches itself",
    "Hole lies outside shell": "a hole lies outside",
    "Holes are nested": "a hole lies in another one",
    "Nested shells": "a polygon lies in another one",
    "Interior is disconnected": "its holes cut it into pieces",
    "Too few points in geometry component": "its area is 0",
}


def _all_round(shaped: "Shaped") -> "Shaped":
    """A region that goes all the way round, twice: so no seam is within any place."""
    shapely = imported_shapely()
    again = shapely.transform(shaped, lambda xy: xy + np.array([360.0, 0.0]))
    return shapely.union(shaped, again)


def _rings(shaped: "Shaped") -> tuple[Floats, int]:
    """Rings with their headers: outer ones counter-clockwise, holes clockwise."""
    shapely = imported_shapely()
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


def region_text(value: Any) -> str:
    """A region in one spelling: a WKT or CIRCLE text, a Shapely geometry, or a list of corners.

    >>> region_text([(0, 0), (4, 0), (4, 3)])
    'POLYGON ((0 0, 4 0, 4 3, 0 0))'
    """
    if isinstance(value, str):
        return written(read_wkt(value))
    text = getattr(value, "wkt", None)
    if isinstance(text, str):
        return written(read_wkt(text))
    try:
        ring = tuple((float(x), float(y)) for x, y in value)
    except (TypeError, ValueError):
        raise QueryError(
            f"{value!r:.60} is not a region",
            hint="pass a WKT text, 'CIRCLE (x y, radius)', a Shapely geometry or a list of (x, y)",
        ) from None
    if not ring:
        return written(Polygons(()))
    return written(Polygons(((ring if ring[0] == ring[-1] else (*ring, ring[0]),),)))


def imported_shapely() -> Any:
    """Shapely, which is asked for only where there are places."""
    with needed("a place that is no point", "space"):
        import shapely
    return shapely
