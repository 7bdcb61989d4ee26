"""Places: how they lie to each other, exactly, in plain Python.

A place is the convex hull of points: a point, a segment or a polygon. A region is any number of
polygons with holes, or a circle. All are closed: border points belong to them. Whether they share
points is decided in fractions, without rounding; distances, and with them all about circles, are
floats. On the earth x and y are degrees of longitude and latitude, distances metres, and edges
straight in degrees: decisions are those of the plane, at one of the turns by 360 degrees.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import floor, pi, sqrt

from ensue.algebra import earth
from ensue.algebra.subscription import Where
from ensue.algebra.wkt import Circle, Point, Points, Polygons, Ring, read_wkt

PLANE, EARTH = "plane", "earth"
FARTHEST = 1e100  # the greatest coordinate: products of four still fit into a double

Exact = tuple[Fraction, Fraction]
Edge = tuple[Point, Point]


@dataclass(frozen=True, slots=True)
class Place:
    """A convex hull: its corners counter-clockwise; one of a point, two of a segment."""

    corners: tuple[Point, ...]


Shape = Polygons | Circle
Solid = Place | Polygons  # what has edges


def hull_of(points: Iterable[Point]) -> Place | None:
    """The smallest convex place around points (Andrew's scan); None around none.

    >>> hull_of([(0, 0), (2, 0), (1, 0), (2, 2), (1, 1)])
    Place(corners=((0, 0), (2, 0), (2, 2)))
    """
    found = sorted(set(points))
    if len(found) < 3:
        return Place(tuple(found)) if found else None
    lower, upper = _left_turns(found), _left_turns(found[::-1])
    return Place(tuple(lower[:-1] + upper[:-1]))


def _left_turns(points: list[Point]) -> list[Point]:
    chain: list[Point] = []
    for point in points:
        while len(chain) >= 2 and side(chain[-2], chain[-1], point) <= 0:
            chain.pop()
        chain.append(point)
    return chain


def shape_of(text: str, space: str = PLANE) -> Shape:
    """The region that a text describes."""
    found = read_wkt(text)
    if isinstance(found, Points):
        raise ValueError(f"a region has an area: {text}")
    return unwrapped(found) if space == EARTH and isinstance(found, Polygons) else found


def place_of(text: str, space: str = PLANE) -> Place | None:
    """The place of an event that a WKT text describes: its convex hull. None: it is nowhere."""
    found = read_wkt(text)
    if isinstance(found, Circle):
        raise ValueError(f"an event's place cannot be a circle: {text}")
    return place_around(found.points if isinstance(found, Points) else sum(found.rings, ()), space)


def place_around(points: tuple[Point, ...], space: str = PLANE) -> Place | None:
    """The place of an event that points describe, one after the other. None: it is nowhere."""
    if not all(somewhere(point, space) for point in points):
        return None
    if space == PLANE or not points:
        return hull_of(points)
    points = short_way(points)
    start = points[0][0]
    turn = 360 * floor((start + 180) / 360) if abs(start) > 180 else 0
    return hull_of((x - turn, y) for x, y in points)


def somewhere(point: Point, space: str) -> bool:
    """Whether coordinates are those of a place: numbers, and on the earth degrees of it."""
    x, y = point
    if space == EARTH:
        return abs(x) <= 540 and abs(y) <= 90
    return abs(x) <= FARTHEST and abs(y) <= FARTHEST


# ------------------------------------------------------------------------------ decisions


def inside(q: Place, p: Place | Shape, space: str = PLANE) -> bool:
    """Whether every point of q is in p or on its border."""
    if isinstance(p, Circle):
        return _in_circle(q, p, space)
    if any(_inside(at, p) for at in _turned(q, p, space)):
        return True
    if space == PLANE or isinstance(p, Place):
        return False
    west, east = _width(p)
    if east - west != 360:
        return False
    parts = [part for at in _turned(q, p, space)[:1] for part in _cut(at, west)]
    return len(parts) > 1 and all(inside(part, p, space) for part in parts)


def overlaps(p: Place | Shape, q: Place, space: str = PLANE) -> bool:
    """Whether p and q share a point."""
    if isinstance(p, Circle):
        return distance(Place(((p.x, p.y),)), q, space) <= p.radius
    return any(_overlap(p, at) for at in _turned(q, p, space))


def _inside(q: Place, p: Solid) -> bool:
    corners = [_exact(c) for c in q.corners]
    if isinstance(p, Place):
        return all(_holds(p, c) for c in corners)
    if len(corners) == 1:
        return _holds(p, corners[0])
    if len(corners) == 2:
        return all(_holds(p, point) for point in _samples((corners[0], corners[1]), p))
    for edge in _edges(p):  # no border of p may pass through q
        if any(_holds(q, point, strictly=True) for point in _samples(edge, q)):
            return False
    return _holds(p, _mean(*corners[:3]))


def _overlap(p: Solid, q: Place) -> bool:
    return (
        any(_holds(p, _exact(c)) for c in q.corners)
        or any(_holds(q, _exact(a)) for a, _ in _edges(p))
        or any(_meet(e, f) for e in _edges(p) for f in _edges(q))
    )


def _holds(p: Solid, point: Exact, *, strictly: bool = False) -> bool:
    """Whether a point is in p; `strictly` leaves out the border."""
    edges = _edges(p)
    if any(_on(edge, point) for edge in edges):
        return not strictly
    if isinstance(p, Place):
        return len(edges) > 2 and all(side(a, b, point) > 0 for a, b in edges)
    crossed = 0  # by a ray to the right
    for a, b in edges:
        if (a[1] > point[1]) != (b[1] > point[1]):
            crossed += (side(a, b, point) > 0) == (b[1] > a[1])
    return crossed % 2 == 1


def _samples(edge: Edge | tuple[Exact, Exact], p: Solid) -> Iterator[Exact]:
    """Points of an edge: one between each two at which it touches or crosses a border of p."""
    a, b = _exact(edge[0]), _exact(edge[1])
    cuts = {Fraction(0), Fraction(1)}
    for c, d in ((_exact(c), _exact(d)) for c, d in _edges(p)):
        crossing = (b[0] - a[0]) * (d[1] - c[1]) - (b[1] - a[1]) * (d[0] - c[0])
        if crossing != 0:
            part = ((c[0] - a[0]) * (d[1] - c[1]) - (c[1] - a[1]) * (d[0] - c[0])) / crossing
            cuts.add(part)
        for end in (c, d):
            if _on((a, b), end):
                axis = 0 if a[0] != b[0] else 1
                cuts.add((end[axis] - a[axis]) / (b[axis] - a[axis]))
    parts = sorted(part for part in cuts if 0 <= part <= 1)
    for low, high in pairwise(parts):
        middle = (low + high) / 2
        yield a[0] + middle * (b[0] - a[0]), a[1] + middle * (b[1] - a[1])


def side(a: Point | Exact, b: Point | Exact, c: Point | Exact) -> int:
    """1: c is to the left of the line from a to b, -1: to the right, 0: on it."""
    (ax, ay), (bx, by), (cx, cy) = _exact(a), _exact(b), _exact(c)
    determinant = (ax - cx) * (by - cy) - (ay - cy) * (bx - cx)
    return (determinant > 0) - (determinant < 0)


def _on(edge: Edge | tuple[Exact, Exact], point: Point | Exact) -> bool:
    (ax, ay), (bx, by) = edge
    x, y = point
    within = min(ax, bx) <= x <= max(ax, bx) and min(ay, by) <= y <= max(ay, by)
    return within and side(edge[0], edge[1], point) == 0


def _meet(e: Edge, f: Edge) -> bool:
    (a, b), (c, d) = e, f
    if side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0:
        return True
    return _on(e, c) or _on(e, d) or _on(f, a) or _on(f, b)


def _exact(point: Point | Exact) -> Exact:
    return Fraction(point[0]), Fraction(point[1])


def _mean(*points: Exact) -> Exact:
    x, y = sum(x for x, _ in points), sum(y for _, y in points)
    return Fraction(x, len(points)), Fraction(y, len(points))


def _edges(p: Solid) -> list[Edge]:
    if isinstance(p, Polygons):
        return [e for ring in p.rings for e in pairwise(ring)]
    if len(p.corners) < 3:
        return [(p.corners[0], p.corners[-1])]
    return list(zip(p.corners, (*p.corners[1:], p.corners[0]), strict=True))


# ------------------------------------------------------------------------------ distances


def distance(p: Place | Shape, q: Place, space: str = PLANE) -> float:
    """The least distance of points of p and q; 0 if they share one."""
    if isinstance(p, Circle):
        return max(0.0, distance(Place(((p.x, p.y),)), q, space) - p.radius)
    if overlaps(p, q, space):
        return 0.0
    if isinstance(p, Place) and len(p.corners) == len(q.corners) == 1:
        return between(p.corners[0], q.corners[0], space)
    measured = earth.apart if space == EARTH else _edges_apart
    if isinstance(p, Place):
        return min(measured(e, f) for e in _edges(p) for f in _edges(q))
    return min(measured(f, e) for e in _edges(p) for f in _edges(q))


def between(a: Point, b: Point, space: str = PLANE) -> float:
    """The distance of two points."""
    if space == EARTH:
        return earth.haversine(a, b)
    return sqrt((b[0] - a[0]) * (b[0] - a[0]) + (b[1] - a[1]) * (b[1] - a[1]))


def _edges_apart(e: Edge, f: Edge) -> float:
    """Of edges that do not cross: from an end of one."""
    return min(*(_from_edge(point, f) for point in e), *(_from_edge(point, e) for point in f))


def _from_edge(point: Point, edge: Edge) -> float:
    (ax, ay), (bx, by) = edge
    ex, ey = bx - ax, by - ay
    along, square = (point[0] - ax) * ex + (point[1] - ay) * ey, ex * ex + ey * ey
    if along <= 0:
        return between(point, edge[0])
    if along >= square:
        return between(point, edge[1])
    return abs(ex * (point[1] - ay) - ey * (point[0] - ax)) / sqrt(square)


def _in_circle(q: Place, circle: Circle, space: str) -> bool:
    middle = circle.x, circle.y
    if any(between(middle, c, space) > circle.radius for c in q.corners):
        return False
    if space == PLANE or len(q.corners) == 1 or circle.radius >= pi * earth.RADIUS:
        return True
    if any(earth.extreme(middle, edge, -1.0) > circle.radius for edge in _edges(q)):
        return False  # straight in degrees, an edge may lead outside
    opposite = Place(((circle.x + 180.0, -circle.y),))
    return not overlaps(q, opposite, space)


def centre(p: Place | Shape, space: str = PLANE) -> Point:
    """The point itself, the middle of a segment, the centroid of an area, summed up by fans."""
    match p:
        case Circle(x, y):
            return x, y
        case Place(((x, y),)):
            return x, y
        case Place(((ax, ay), (bx, by))):
            return ax + 0.5 * (bx - ax), ay + 0.5 * (by - ay)
        case Place(corners):
            return _centroid([((*corners, corners[0]),)])
        case Polygons(polygons):
            return _centroid(list(polygons if space == PLANE else _side_by_side(polygons)))


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


def satisfies(
    where: Where,
    p: Place | Shape | None,
    q: Place | None,
    comparison: str | None,
    number: float,
    tolerance: float,
    space: str = PLANE,
) -> bool:
    """Whether `@(P)Q`, `OVLP(P)Q`, `SPL(P)Q` or `DIST(P;..)Q` holds; without a place nothing does.

    `number` is the threshold of SPL, or the length of DIST.
    """
    if p is None or q is None:
        return False
    match where:
        case Where.INSIDE:
            return inside(q, p, space)
        case Where.OVERLAP:
            return overlaps(p, q, space)
        case Where.SAME:
            return between(centre(p, space), centre(q, space), space) < number
        case Where.DISTANCE:
            found = distance(p, q, space)
            if comparison == "=":
                return abs(found - number) <= tolerance
            return found < number if comparison == "<" else found > number


# ------------------------------------------------------------------------------ turns


def unwrapped(polygons: Polygons) -> Polygons:
    """Rings on the earth whose edges go the short way, also over 180 degrees.

    An edge of exactly 360 degrees goes all the way round. Polygons begin between -180 and 180;
    holes lie beside their outer ring.
    """
    return Polygons(tuple(_unwrapped(polygon) for polygon in polygons.polygons))


def _unwrapped(polygon: tuple[Ring, ...]) -> tuple[Ring, ...]:
    outer, *holes = [short_way(ring) for ring in polygon]
    outer = _begun_behind(outer, -180)
    west = min(x for x, _ in outer)
    return (outer, *(_begun_behind(hole, west) for hole in holes))


def _begun_behind(ring: Ring, west: float) -> Ring:
    turn = 360 * floor((min(x for x, _ in ring) - west) / 360)
    return tuple((x - turn, y) for x, y in ring)


def short_way(ring: tuple[Point, ...]) -> tuple[Point, ...]:
    """Points on the earth, each beside the one before: over 180 degrees if that is shorter."""
    found, turn = [ring[0]], 0.0
    for (before, _), (x, y) in pairwise(ring):
        jump = x - before
        if 180 < abs(jump) != 360:
            turn += -360.0 if jump > 0 else 360.0
        found.append((x + turn, y))
    return tuple(found)


def _side_by_side(polygons: tuple[tuple[Ring, ...], ...]) -> Iterator[tuple[Ring, ...]]:
    """For a common centre: polygons on both sides of 180 degrees, turned towards the first."""
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


def _turned(q: Place, p: Solid, space: str) -> list[Place]:
    """q where it is, and on the earth at the turns that may bring it to p."""
    if space == PLANE:
        return [q]
    if isinstance(p, Place):
        there = p.corners[0][0]
    else:
        west, east = _width(p)
        there = 0.5 * (west + east)
    nearest = 360 * floor((there - q.corners[0][0]) / 360 + 0.5)
    return [
        Place(tuple((x + turn, y) for x, y in q.corners))
        for turn in (nearest, nearest - 360, nearest + 360)
    ]


def _cut(q: Place, west: float) -> list[Place]:
    """q along the meridians at which a region that goes all the way round begins."""
    line = Fraction(west + 360.0 * floor((max(x for x, _ in q.corners) - west) / 360))
    corners = [_exact(c) for c in q.corners]
    if not min(x for x, _ in corners) < line < max(x for x, _ in corners):
        return [q]
    crossings = []
    for a, b in zip(corners, [*corners[1:], corners[0]], strict=True):
        if (a[0] - line) * (b[0] - line) < 0:
            part = (line - a[0]) / (b[0] - a[0])
            crossings.append((line, a[1] + part * (b[1] - a[1])))
    sides = (
        hull_of([*(c for c in corners if c[0] <= line), *crossings]),  # type: ignore[list-item]
        hull_of([*(c for c in corners if c[0] >= line), *crossings]),  # type: ignore[list-item]
    )
    return [part for part in sides if part is not None]
