"""Spatial relations of locations and regions, by Shapely, and distances in plain Python.

A location is the convex hull of points: a point, a segment or a polygon. A region is a set of
polygons with holes, or a circle. Borders belong to them. Distances, and so all relations with
circles, are computed as compiled loops do, to the last bit. On the earth x and y are degrees of
longitude and latitude, distances are metres, and edges are straight in degrees: relations are
those of the plane, after a shift by a multiple of 360 degrees.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import asin, ceil, cos, floor, inf, pi, sin, sqrt
from typing import TYPE_CHECKING

from ensue.geo.wkt import MAX_COORDINATE, Circle, Point, Points, Polygons, Ring, read_wkt
from ensue.ir.subscription import SpatialRelation

if TYPE_CHECKING:
    from shapely import Geometry

RADIUS = 6371008.8  # mean radius of the earth in metres
RADIAN = pi / 180
PIECE = 5.0  # degrees: on a piece of an edge of this length a distance has one minimum at most
PLANE, EARTH = "plane", "earth"

Edge = tuple[Point, Point]


def haversine(p: Point, q: Point) -> float:
    """Computes the great-circle distance of two points in metres.

    >>> round(haversine((8.54, 47.38), (2.35, 48.86)) / 1000)
    488
    """
    across = sin((q[1] - p[1]) * RADIAN * 0.5)
    along = sin((q[0] - p[0]) * RADIAN * 0.5)
    h = across * across + cos(p[1] * RADIAN) * cos(q[1] * RADIAN) * along * along
    return 2 * RADIUS * asin(min(1.0, sqrt(h)))


def find_edge_extreme(p: Point, edge: Edge, sign: float = 1.0) -> float:
    """Computes the minimum (or, with sign -1, maximum) distance from p to the points of an edge.

    It is at an end, or at a root of the derivative along the edge (false position method).
    """
    (ax, ay), (bx, by) = edge
    best = min(sign * haversine(p, edge[0]), sign * haversine(p, edge[1]))

    def at(part: float) -> Point:
        return ax + part * (bx - ax), ay + part * (by - ay)

    def slope(part: float) -> float:
        here, there = at(part)[1] * RADIAN, p[1] * RADIAN
        turn = (at(part)[0] - p[0]) * RADIAN
        half = sin(turn * 0.5)
        up = 0.5 * sin(here - there) - sin(here) * cos(there) * half * half
        side = 0.5 * cos(here) * cos(there) * sin(turn)
        return sign * ((up * (by - ay) + side * (bx - ax)) * RADIAN)

    pieces = ceil(max(abs(bx - ax), abs(by - ay)) / PIECE)
    for k in range(pieces):
        low, high = k / pieces, (k + 1) / pieces
        low_slope, high_slope = slope(low), slope(high)
        if not low_slope < 0 <= high_slope:
            continue
        before, kept = -1.0, 0
        for _ in range(60):
            part = high - high_slope * (high - low) / (high_slope - low_slope)
            steepness = slope(part)
            best = min(best, sign * haversine(p, at(part)))
            if steepness == 0 or abs(part - before) < 1e-14:
                break
            before = part
            if steepness < 0:
                low, low_slope = part, steepness
                high_slope *= 0.5 if kept == -1 else 1.0
                kept = -1
            else:
                high, high_slope = part, steepness
                low_slope *= 0.5 if kept == 1 else 1.0
                kept = 1
    return sign * best


def compute_edge_distance(edge: Edge, other: Edge) -> float:
    """Computes the distance of two disjoint edges by golden-section search along the first."""
    (ax, ay), (bx, by) = edge
    if edge[0] == edge[1]:
        return find_edge_extreme(edge[0], other)
    if other[0] == other[1]:
        return find_edge_extreme(other[0], edge)

    def from_part(part: float) -> float:
        return find_edge_extreme((ax + part * (bx - ax), ay + part * (by - ay)), other)

    pieces = max(2, ceil(max(abs(bx - ax), abs(by - ay)) / PIECE))
    best, nearest = inf, 0
    for k in range(pieces + 1):
        length = from_part(k / pieces)
        if length < best:
            best, nearest = length, k
    low, high = max(nearest - 1, 0) / pieces, min(nearest + 1, pieces) / pieces
    golden = (sqrt(5) - 1) / 2
    first, second = high - golden * (high - low), low + golden * (high - low)
    at_first, at_second = from_part(first), from_part(second)
    for _ in range(48):
        best = min(best, at_first, at_second)
        if at_first < at_second:
            high, second, at_second = second, first, at_first
            first = high - golden * (high - low)
            at_first = from_part(first)
        else:
            low, first, at_first = first, second, at_second
            second = low + golden * (high - low)
            at_second = from_part(second)
    return min(best, at_first, at_second)


# --- locations and regions


@dataclass(frozen=True, slots=True)
class ConvexHull:
    """A convex hull by its corners, counter-clockwise: one for a point, two for a segment."""

    corners: tuple[Point, ...]


Shape = Polygons | Circle
Solid = ConvexHull | Polygons  # geometries with edges


def build_hull(points: Iterable[Point]) -> ConvexHull | None:
    """Computes the convex hull of points (Andrew's monotone chain); None for no points.

    >>> build_hull([(0, 0), (2, 0), (1, 0), (2, 2), (1, 1)]).corners
    ((0, 0), (2, 0), (2, 2))
    """
    distinct = sorted(set(points))
    if len(distinct) < 3:
        return ConvexHull(tuple(distinct)) if distinct else None
    lower, upper = _left_turns(distinct), _left_turns(distinct[::-1])
    return ConvexHull(tuple(lower[:-1] + upper[:-1]))


def _left_turns(points: list[Point]) -> list[Point]:
    chain: list[Point] = []
    for point in points:
        while len(chain) >= 2 and compute_orientation(chain[-2], chain[-1], point) <= 0:
            chain.pop()
        chain.append(point)
    return chain


def parse_region(text: str, space: str = PLANE) -> Shape:
    """Parses a region from WKT."""
    geometry = read_wkt(text)
    if isinstance(geometry, Points):
        raise ValueError(f"a region has an area: {text}")
    return unwrap_polygons(geometry) if space == EARTH and isinstance(geometry, Polygons) else geometry


def locate_event(points: tuple[Point, ...], space: str = PLANE) -> ConvexHull | None:
    """Builds the location of an event from its points; None if a point is invalid."""
    if not all(is_valid_point(point, space) for point in points):
        return None
    if space == PLANE or not points:
        return build_hull(points)
    points = unwrap_longitudes(points)
    start = points[0][0]
    turn = 360 * floor((start + 180) / 360) if abs(start) > 180 else 0
    return build_hull((x - turn, y) for x, y in points)


def is_valid_point(point: Point, space: str) -> bool:
    """Whether coordinates are valid: finite numbers, and on the earth degrees."""
    x, y = point
    if space == EARTH:
        return abs(x) <= 540 and abs(y) <= 90
    return abs(x) <= MAX_COORDINATE and abs(y) <= MAX_COORDINATE


# --- relations


def is_inside(q: ConvexHull, p: ConvexHull | Shape, space: str = PLANE) -> bool:
    """Whether every point of q is in p or on its border."""
    if isinstance(p, Circle):
        return _in_circle(q, p, space)
    import shapely
    from shapely.affinity import translate

    shape = _to_shapely(p)
    if space == EARTH and isinstance(p, Polygons) and _is_all_round(p):
        shape = shapely.union(shape, translate(shape, 360.0))
    return any(shapely.covers(shape, _to_shapely(at)) for at in _list_shifts(q, p, space))


def do_overlap(p: ConvexHull | Shape, q: ConvexHull, space: str = PLANE) -> bool:
    """Whether p and q share a point."""
    if isinstance(p, Circle):
        return compute_distance(ConvexHull(((p.x, p.y),)), q, space) <= p.radius
    import shapely

    return any(shapely.intersects(_to_shapely(p), _to_shapely(at)) for at in _list_shifts(q, p, space))


@lru_cache(maxsize=4_096)
def _to_shapely(p: Solid) -> "Geometry":
    import shapely

    match p:
        case Polygons(polygons):
            return shapely.MultiPolygon([(outer, holes) for outer, *holes in polygons])
        case ConvexHull((corner,)):
            return shapely.Point(corner)
        case ConvexHull((start, end)):
            return shapely.LineString([start, end])
        case ConvexHull(corners):
            return shapely.Polygon(corners)


def compute_orientation(a: Point, b: Point, c: Point) -> int:
    """Returns 1 if c is left of the line from a to b, -1 if it is right, 0 if it is on it."""
    (ax, ay), (bx, by), (cx, cy) = (map(Fraction, point) for point in (a, b, c))
    determinant = (ax - cx) * (by - cy) - (ay - cy) * (bx - cx)
    return (determinant > 0) - (determinant < 0)


def _edges(p: Solid) -> list[Edge]:
    if isinstance(p, Polygons):
        return [(a, b) for ring in p.rings for a, b in pairwise(ring) if a != b]
    if len(p.corners) < 3:
        return [(p.corners[0], p.corners[-1])]
    return list(zip(p.corners, (*p.corners[1:], p.corners[0]), strict=True))


# --- distances


def compute_distance(p: ConvexHull | Shape, q: ConvexHull, space: str = PLANE) -> float:
    """Computes the minimum distance of p and q; 0 if they overlap."""
    if isinstance(p, Circle):
        return max(0.0, compute_distance(ConvexHull(((p.x, p.y),)), q, space) - p.radius)
    if do_overlap(p, q, space):
        return 0.0
    if isinstance(p, ConvexHull) and len(p.corners) == len(q.corners) == 1:
        return compute_point_distance(p.corners[0], q.corners[0], space)
    measure = compute_edge_distance if space == EARTH else _edges_apart
    if isinstance(p, ConvexHull):
        return min(measure(e, f) for e in _edges(p) for f in _edges(q))
    return min(measure(f, e) for e in _edges(p) for f in _edges(q))


def compute_point_distance(a: Point, b: Point, space: str = PLANE) -> float:
    """Computes the distance of two points."""
    if space == EARTH:
        return haversine(a, b)
    return sqrt((b[0] - a[0]) * (b[0] - a[0]) + (b[1] - a[1]) * (b[1] - a[1]))


def _edges_apart(e: Edge, f: Edge) -> float:
    """Computes the distance of disjoint edges, which is that of an end of one of them."""
    return min(*(_from_edge(point, f) for point in e), *(_from_edge(point, e) for point in f))


def _from_edge(point: Point, edge: Edge) -> float:
    (ax, ay), (bx, by) = edge
    ex, ey = bx - ax, by - ay
    along, square = (point[0] - ax) * ex + (point[1] - ay) * ey, ex * ex + ey * ey
    if along <= 0:
        return compute_point_distance(point, edge[0])
    if along >= square:
        return compute_point_distance(point, edge[1])
    return abs(ex * (point[1] - ay) - ey * (point[0] - ax)) / sqrt(square)


def _in_circle(q: ConvexHull, circle: Circle, space: str) -> bool:
    middle = circle.x, circle.y
    if any(compute_point_distance(middle, c, space) > circle.radius for c in q.corners):
        return False
    if space == PLANE or len(q.corners) == 1 or circle.radius >= pi * RADIUS:
        return True
    if any(find_edge_extreme(middle, edge, -1.0) > circle.radius for edge in _edges(q)):
        return False  # straight in degrees, an edge may lead outside
    opposite = ConvexHull(((circle.x + 180.0, -circle.y),))
    return not do_overlap(q, opposite, space)


def compute_centroid(p: ConvexHull | Shape, space: str = PLANE) -> Point:
    """Computes the centroid of a point, segment or area."""
    match p:
        case Circle(x, y):
            return x, y
        case ConvexHull(((x, y),)):
            return x, y
        case ConvexHull(((ax, ay), (bx, by))):
            return ax + 0.5 * (bx - ax), ay + 0.5 * (by - ay)
        case ConvexHull(corners):
            return _centroid([((*corners, corners[0]),)])
        case Polygons(polygons):
            return _centroid(list(polygons if space == PLANE else _iterate_adjacent(polygons)))


def _centroid(polygons: list[tuple[Ring, ...]]) -> Point:
    x0, y0 = polygons[0][0][0]
    total = x = y = 0.0
    for polygon in polygons:
        for number, ring in enumerate(polygon):
            size, ring_x, ring_y = _moments(ring, x0, y0)
            sign = 1.0 if (size >= 0) == (number == 0) else -1.0  # holes count as missing
            total, x, y = total + sign * size, x + sign * ring_x, y + sign * ring_y
    if total == 0:  # too thin for floats
        bx, by = polygons[0][0][-2]
        return x0 + 0.5 * (bx - x0), y0 + 0.5 * (by - y0)
    return x0 + x / (3 * total), y0 + y / (3 * total)


def _moments(ring: Ring, x0: float, y0: float) -> tuple[float, float, float]:
    total = x = y = 0.0
    for (ax, ay), (bx, by) in pairwise(ring):
        area = (ax - x0) * (by - y0) - (ay - y0) * (bx - x0)
        total += area
        x += area * ((ax - x0) + (bx - x0))
        y += area * ((ay - y0) + (by - y0))
    return total, x, y


def evaluate_relation(
    where: SpatialRelation,
    p: ConvexHull | Shape | None,
    q: ConvexHull | None,
    comparison: str | None,
    number: float,
    tolerance: float,
    space: str = PLANE,
) -> bool:
    """Whether `@(P)Q`, `OVLP(P)Q`, `SPL(P)Q` or `DIST(P;..)Q` holds; false without a location.

    `number` is the threshold of SPL or the length of DIST.
    """
    if p is None or q is None:
        return False
    match where:
        case SpatialRelation.INSIDE:
            return is_inside(q, p, space)
        case SpatialRelation.OVERLAP:
            return do_overlap(p, q, space)
        case SpatialRelation.SAME:
            return compute_point_distance(compute_centroid(p, space), compute_centroid(q, space), space) < number
        case SpatialRelation.DISTANCE:
            length = compute_distance(p, q, space)
            if comparison == "=":
                return abs(length - number) <= tolerance
            return length < number if comparison == "<" else length > number


# --- longitudes beyond 180 degrees


def unwrap_polygons(polygons: Polygons) -> Polygons:
    """Unwraps rings on the earth, so that edges take the short way across 180 degrees.

    An edge of exactly 360 degrees goes around the earth. Polygons start between -180 and 180;
    holes are shifted next to their outer ring.
    """
    return Polygons(tuple(_unwrap(polygon) for polygon in polygons.polygons))


def _unwrap(polygon: tuple[Ring, ...]) -> tuple[Ring, ...]:
    outer, *holes = [unwrap_longitudes(ring) for ring in polygon]
    outer = _shift_east(outer, -180)
    west = min(x for x, _ in outer)
    return (outer, *(_shift_east(hole, west) for hole in holes))


def _shift_east(ring: Ring, west: float) -> Ring:
    turn = 360 * floor((min(x for x, _ in ring) - west) / 360)
    return tuple((x - turn, y) for x, y in ring)


def unwrap_longitudes(ring: tuple[Point, ...]) -> tuple[Point, ...]:
    """Shifts each longitude next to the previous one, across 180 degrees if that is shorter."""
    shifted, turn = [ring[0]], 0.0
    for (before, _), (x, y) in pairwise(ring):
        jump = x - before
        if 180 < abs(jump) != 360:
            turn += -360.0 if jump > 0 else 360.0
        shifted.append((x + turn, y))
    return tuple(shifted)


def _iterate_adjacent(polygons: tuple[tuple[Ring, ...], ...]) -> Iterator[tuple[Ring, ...]]:
    """Shifts polygons on both sides of 180 degrees next to the first, for a common centroid."""
    first = _middle(polygons[0])
    for polygon in polygons:
        turn = 360.0 * floor((first - _middle(polygon)) / 360 + 0.5)
        yield tuple(tuple((x + turn, y) for x, y in ring) for ring in polygon)


def _middle(polygon: tuple[Ring, ...]) -> float:
    xs = [x for x, _ in polygon[0]]
    return 0.5 * (min(xs) + max(xs))


def _width(p: Polygons) -> tuple[float, float]:
    xs = [x for ring in p.rings for x, _ in ring]
    return min(xs), max(xs)


def _is_all_round(p: Polygons) -> bool:
    """Whether a region goes around the whole earth: a place may lie across its seam."""
    west, east = _width(p)
    return east - west == 360


def _list_shifts(q: ConvexHull, p: Solid, space: str) -> list[ConvexHull]:
    """Returns q, or on the earth its shifts by 360 degrees that may reach p."""
    if space == PLANE:
        return [q]
    if isinstance(p, ConvexHull):
        there = p.corners[0][0]
    else:
        west, east = _width(p)
        there = 0.5 * (west + east)
    nearest = 360 * floor((there - q.corners[0][0]) / 360 + 0.5)
    return [ConvexHull(tuple((x + turn, y) for x, y in q.corners)) for turn in (nearest, nearest - 360, nearest + 360)]
