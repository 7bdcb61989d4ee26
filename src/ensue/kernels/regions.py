"""Regions, polygons with holes and circles, as rows of one table.

Places are tested against polygons exactly, and against circles by the distance from the centre in
double precision. On the earth a region may extend beyond 180 degrees; a place is tested at its own
longitudes and shifted by a turn to both sides.
"""

import math

import numpy as np
import numpy.typing as npt

from ensue.kernels.geometry import (
    DISTANCE,
    EARTH,
    GREATER,
    INSIDE,
    LESS,
    OVERLAP,
    PLANE,
    RADIAN,
    RADIUS,
    SAME,
    centre,
    compare_distance,
    convex_distance,
    convex_overlap,
    edge_extreme,
    find_nearest_turn,
    nearer_edge,
    point_distance,
)
from ensue.kernels.jit import kernel
from ensue.kernels.polygons import (
    ABOVE,
    BELOW,
    CIRCLE_RADIUS,
    FIRST,
    KIND,
    LEFT,
    RIGHT,
    RINGS,
    RegionTable,
    X,
    Y,
    compute_box,
    polygon_contains_point,
    polygon_inside,
    polygon_overlap,
)

__all__ = ["RegionTable"]

POLYGON, CIRCLE = 0, 1

Floats = npt.NDArray[np.float64]
Box = tuple[float, float, float, float]


@kernel()
def _holds(rows: Floats, corners: Floats, r: int, x: float, y: float, space: int) -> bool:
    """Whether a point is in a region or on its border."""
    if rows[r, KIND] == CIRCLE:
        return point_distance(rows[r, X], rows[r, Y], x, y, space) <= rows[r, CIRCLE_RADIUS]
    if space == PLANE:
        return polygon_contains_point(rows, corners, r, x, y)
    if y < rows[r, BELOW] or y > rows[r, ABOVE]:
        return False
    turn = _turn(rows, r, x)
    return (
        polygon_contains_point(rows, corners, r, x + turn, y)
        or polygon_contains_point(rows, corners, r, x + turn - 360.0, y)
        or polygon_contains_point(rows, corners, r, x + turn + 360.0, y)
    )


@kernel()
def _turn(rows: Floats, r: int, x: float) -> float:
    return find_nearest_turn(x, 0.5 * (rows[r, LEFT] + rows[r, RIGHT]), EARTH)


@kernel()
def _circle_inside(rows: Floats, r: int, xs: Floats, ys: Floats, n: int, space: int) -> bool:
    """Whether no point of a place is farther from the centre than the radius."""
    x, y, radius = rows[r, X], rows[r, Y], rows[r, CIRCLE_RADIUS]
    for k in range(n):
        if point_distance(x, y, xs[k], ys[k], space) > radius:
            return False
    if space == PLANE:
        return True
    for k in range(n if n > 2 else 1):  # an edge, straight in degrees, may leave the circle
        m = k + 1 if k + 1 < n else 0
        if edge_extreme(x, y, xs[k], ys[k], xs[m], ys[m], -1.0) > radius:
            return False
    if radius >= math.pi * RADIUS:
        return True
    opposite_x = np.array([x + 180.0])
    opposite_y = np.array([-y])
    return not convex_overlap(xs, ys, n, opposite_x, opposite_y, 1, space)


@kernel()
def _from_centre(rows: Floats, r: int, xs: Floats, ys: Floats, n: int, space: int) -> float:
    """The least distance of a place from the centre of a region."""
    return convex_distance(rows[r, X : X + 1], rows[r, Y : Y + 1], 1, xs, ys, n, space)


@kernel()
def region_inside(table: RegionTable, r: int, xs: Floats, ys: Floats, n: int, space: int) -> bool:
    """Whether every point of a place is in a region or on its border."""
    rows, corners = table.rows, table.corners
    if n == 0:
        return False
    if n == 1:
        return _holds(rows, corners, r, xs[0], ys[0], space)
    if rows[r, KIND] == CIRCLE:
        return _circle_inside(rows, r, xs, ys, n, space)
    if space == PLANE:
        return polygon_inside(rows, corners, r, xs, ys, n, 0.0)
    turn = _turn(rows, r, xs[0])
    return (
        polygon_inside(rows, corners, r, xs, ys, n, turn)
        or polygon_inside(rows, corners, r, xs, ys, n, turn - 360.0)
        or polygon_inside(rows, corners, r, xs, ys, n, turn + 360.0)
    )


@kernel()
def region_overlap(table: RegionTable, r: int, xs: Floats, ys: Floats, n: int, space: int) -> bool:
    """Whether a place and a region share a point."""
    rows, corners = table.rows, table.corners
    if n == 0:
        return False
    if n == 1:
        return _holds(rows, corners, r, xs[0], ys[0], space)
    if rows[r, KIND] == CIRCLE:
        return _from_centre(rows, r, xs, ys, n, space) <= rows[r, CIRCLE_RADIUS]
    if space == PLANE:
        return polygon_overlap(rows, corners, r, xs, ys, n, 0.0)
    turn = _turn(rows, r, xs[0])
    return (
        polygon_overlap(rows, corners, r, xs, ys, n, turn)
        or polygon_overlap(rows, corners, r, xs, ys, n, turn - 360.0)
        or polygon_overlap(rows, corners, r, xs, ys, n, turn + 360.0)
    )


@kernel()
def region_distance(table: RegionTable, r: int, xs: Floats, ys: Floats, n: int, space: int) -> float:
    """The least distance of a place and a region; 0.0 if they touch, inf for an empty place."""
    if n == 0:
        return math.inf
    if n == 1:
        return _point_to_region(table.rows, table.corners, r, xs[0], ys[0], math.inf, space)
    return _place_to_region(table, r, xs, ys, n, math.inf, space)


@kernel()
def _place_to_region(table: RegionTable, r: int, xs: Floats, ys: Floats, n: int, limit: float, space: int) -> float:
    """The least distance, or `limit` if it is greater."""
    rows, corners = table.rows, table.corners
    if rows[r, KIND] == CIRCLE:
        return max(0.0, _from_centre(rows, r, xs, ys, n, space) - rows[r, CIRCLE_RADIUS])
    if region_overlap(table, r, xs, ys, n, space):
        return 0.0
    best = limit
    at = int(rows[r, FIRST])
    for _ in range(int(rows[r, RINGS])):
        end = at + int(corners[at, 0])
        for k in range(at + 1, end):
            ax, ay = corners[k, 0], corners[k, 1]
            bx, by = corners[k + 1, 0], corners[k + 1, 1]
            for i in range(n if n != 2 else 1):
                j = i + 1 if i + 1 < n else 0
                best = nearer_edge(best, xs[i], ys[i], xs[j], ys[j], ax, ay, bx, by, space)
        at = end + 1
    return best


@kernel()
def _point_to_region(rows: Floats, corners: Floats, r: int, x: float, y: float, limit: float, space: int) -> float:
    if rows[r, KIND] == CIRCLE:
        distance = point_distance(rows[r, X], rows[r, Y], x, y, space)
        return max(0.0, distance - rows[r, CIRCLE_RADIUS])
    if _holds(rows, corners, r, x, y, space):
        return 0.0
    best = limit
    at = int(rows[r, FIRST])
    for _ in range(int(rows[r, RINGS])):
        end = at + int(corners[at, 0])
        for k in range(at + 1, end):
            ax, ay = corners[k, 0], corners[k, 1]
            best = nearer_edge(best, x, y, x, y, ax, ay, corners[k + 1, 0], corners[k + 1, 1], space)
        at = end + 1
    return best


@kernel()
def region_centre_distance(table: RegionTable, r: int, xs: Floats, ys: Floats, n: int, space: int) -> float:
    """The distance of the centres of a place and a region; inf for an empty place."""
    if n == 0:
        return math.inf
    x, y = centre(xs, ys, n)
    return point_distance(table.rows[r, X], table.rows[r, Y], x, y, space)


@kernel()
def region_test(
    table: RegionTable,
    r: int,
    where: int,
    comparison: int,
    number: float,
    tolerance: float,
    xs: Floats,
    ys: Floats,
    n: int,
    space: int,
) -> bool:
    """Test a place against a region; False for an empty place."""
    if n == 0:
        return False
    if n == 1:
        return point_test(table, r, where, comparison, number, tolerance, xs[0], ys[0], space)
    if where == INSIDE:
        return region_inside(table, r, xs, ys, n, space)
    if where == OVERLAP:
        return region_overlap(table, r, xs, ys, n, space)
    if where == SAME:
        return region_centre_distance(table, r, xs, ys, n, space) < number
    if comparison == LESS and space == PLANE:
        left, below, right, above = compute_box(xs, ys, n, 0.0)
        if _box_gap(table.rows, r, left, below, right, above) > number:
            return False
    limit = _compute_limit(number, tolerance)
    distance = _place_to_region(table, r, xs, ys, n, limit, space)
    return compare_distance(distance, comparison, number, tolerance)


@kernel()
def point_test(
    table: RegionTable,
    r: int,
    where: int,
    comparison: int,
    number: float,
    tolerance: float,
    x: float,
    y: float,
    space: int,
) -> bool:
    """Test a point against a region like `region_test`."""
    rows, corners = table.rows, table.corners
    if where in (INSIDE, OVERLAP):
        return _holds(rows, corners, r, x, y, space)
    if where == SAME:
        return point_distance(rows[r, X], rows[r, Y], x, y, space) < number
    if comparison == LESS and space == PLANE and _box_gap(rows, r, x, y, x, y) > number:
        return False
    limit = _compute_limit(number, tolerance)
    distance = _point_to_region(rows, corners, r, x, y, limit, space)
    return compare_distance(distance, comparison, number, tolerance)


@kernel()
def _compute_limit(number: float, tolerance: float) -> float:
    """A distance from which on the test has the same result."""
    return (abs(number) + abs(tolerance)) * (1.0 + 1e-9) + 1e-3


@kernel()
def _box_gap(rows: Floats, r: int, left: float, below: float, right: float, above: float) -> float:
    """A lower bound of the distance of a box and a region in the plane."""
    across = max(rows[r, LEFT] - right, left - rows[r, RIGHT])
    along = max(rows[r, BELOW] - above, below - rows[r, ABOVE])
    return max(across, along) * (1.0 - 1e-9)


@kernel()
def region_box(
    table: RegionTable, r: int, where: int, comparison: int, number: float, tolerance: float, space: int
) -> Box:
    """A box (least x and y, greatest x and y) that meets the box of every place that passes.

    It is rounded outwards. On the earth it has longitudes from -180 to 180, and all of them if it
    touches 180 degrees: a place beyond them must be looked up at all longitudes.
    """
    rows = table.rows
    if where == DISTANCE and comparison == GREATER:
        return -math.inf, -math.inf, math.inf, math.inf
    if where == SAME:
        x, y = rows[r, X], rows[r, Y]
        return expand_box(x, y, x, y, number, space)
    more = 0.0
    if where == DISTANCE:
        more = number if comparison == LESS else number + tolerance
    return expand_box(rows[r, LEFT], rows[r, BELOW], rows[r, RIGHT], rows[r, ABOVE], more, space)


@kernel()
def expand_box(left: float, below: float, right: float, above: float, length: float, space: int) -> Box:
    """A box with all points no farther than `length` from another box."""
    length = max(length, 0.0)
    if space == PLANE:
        most = max(abs(left), abs(below), abs(right), abs(above))
        more = length + 1e-12 * (length + most)
        return left - more, below - more, right + more, above + more
    angle = length / RADIUS
    up = angle / RADIAN + 1e-6  # degrees: more than the error of haversine
    below, above = below - up, above + up
    if below <= -90.0 or above >= 90.0:
        return -180.0, max(below, -90.0), 180.0, min(above, 90.0)
    far = max(abs(below), abs(above)) - up
    across = math.asin(min(1.0, math.sin(angle) / math.cos(far * RADIAN))) / RADIAN + 1e-6
    left, right = left - across, right + across
    if left <= -180.0 or right >= 180.0:
        left, right = -180.0, 180.0
    return left, below, right, above
