"""Relations of places row by row: for columns, and for single events in generated kernels.

A column of places is all corners and the offset of each row; a column of one row is broadcast.
"""

import math

import numpy as np
import numpy.typing as npt

from ensue.kernels.geometry import (
    EARTH,
    INSIDE,
    centre,
    convex_distance,
    convex_inside,
    convex_overlap,
    find_nearest_turn,
    hull,
    point_distance,
)
from ensue.kernels.jit import kernel
from ensue.kernels.regions import RegionTable, region_distance, region_inside, region_overlap

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@kernel()
def _broadcast(a_first: Ints, b_first: Ints) -> tuple[int, int, int]:
    """The number of rows of two columns, and the steps through them: 0 in a column of one row."""
    if len(a_first) == 1 or len(b_first) == 1:
        return 0, 0, 0
    n = max(len(a_first), len(b_first)) - 1
    return n, 0 if len(a_first) == 2 else 1, 0 if len(b_first) == 2 else 1


@kernel()
def column_distances(
    ax: Floats, ay: Floats, a_first: Ints, bx: Floats, by: Floats, b_first: Ints, space: int
) -> Floats:
    """The distance of the places of each row."""
    n, a_step, b_step = _broadcast(a_first, b_first)
    out = np.empty(n, np.float64)
    for row in range(n):
        a, a_end = a_first[row * a_step], a_first[row * a_step + 1]
        b, b_end = b_first[row * b_step], b_first[row * b_step + 1]
        out[row] = convex_distance(ax[a:a_end], ay[a:a_end], a_end - a, bx[b:b_end], by[b:b_end], b_end - b, space)
    return out


@kernel()
def column_tests(
    where: int, ax: Floats, ay: Floats, a_first: Ints, bx: Floats, by: Floats, b_first: Ints, space: int
) -> Bools:
    """Whether the place b of each row lies inside a, or overlaps it."""
    n, a_step, b_step = _broadcast(a_first, b_first)
    out = np.empty(n, np.bool_)
    for row in range(n):
        a, a_end = a_first[row * a_step], a_first[row * a_step + 1]
        b, b_end = b_first[row * b_step], b_first[row * b_step + 1]
        x, y, m = ax[a:a_end], ay[a:a_end], a_end - a
        u, v, k = bx[b:b_end], by[b:b_end], b_end - b
        if where == INSIDE:
            out[row] = convex_inside(u, v, k, x, y, m, space)
        else:
            out[row] = convex_overlap(x, y, m, u, v, k, space)
    return out


@kernel()
def region_distances(table: RegionTable, x: Floats, y: Floats, first: Ints, space: int) -> Floats:
    """The distance of each place from the first region."""
    out = np.empty(len(first) - 1, np.float64)
    for row in range(len(out)):
        begin, end = first[row], first[row + 1]
        out[row] = region_distance(table, 0, x[begin:end], y[begin:end], end - begin, space)
    return out


@kernel()
def region_tests(table: RegionTable, where: int, x: Floats, y: Floats, first: Ints, space: int) -> Bools:
    """Whether each place lies inside the first region, or overlaps it."""
    out = np.empty(len(first) - 1, np.bool_)
    for row in range(len(out)):
        begin, end = first[row], first[row + 1]
        xs, ys, n = x[begin:end], y[begin:end], end - begin
        if where == INSIDE:
            out[row] = region_inside(table, 0, xs, ys, n, space)
        else:
            out[row] = region_overlap(table, 0, xs, ys, n, space)
    return out


@kernel()
def column_centres(x: Floats, y: Floats, first: Ints) -> tuple[Floats, Floats]:
    """The centre of each place; NaN for an empty one."""
    n = len(first) - 1
    out_x, out_y = np.full(n, np.nan), np.full(n, np.nan)
    for row in range(n):
        begin, end = first[row], first[row + 1]
        if end > begin:
            out_x[row], out_y[row] = centre(x[begin:end], y[begin:end], end - begin)
    return out_x, out_y


@kernel()
def point_distances(ax: Floats, ay: Floats, bx: Floats, by: Floats, space: int) -> Floats:
    """The distance of the points of each row."""
    n = len(ax)
    out = np.empty(n, np.float64)
    for row in range(n):
        out[row] = point_distance(ax[row], ay[row], bx[row], by[row], space)
    return out


Points = tuple[float, ...]

FARTHEST = 1e100  # the greatest coordinate: products of four fit into a double


@kernel()
def is_place(x: float, y: float, space: int) -> bool:
    """Whether coordinates are usable: finite numbers, and degrees on the earth."""
    if space == EARTH:
        return abs(x) <= 540.0 and abs(y) <= 90.0
    return abs(x) <= FARTHEST and abs(y) <= FARTHEST


@kernel()
def are_places(ax: float, ay: float, bx: float, by: float, space: int) -> bool:
    """Whether both points are usable."""
    return is_place(ax, ay, space) and is_place(bx, by, space)


@kernel()
def points_meet(ax: float, ay: float, bx: float, by: float, space: int) -> bool:
    """Whether two points are equal, on the earth modulo full turns."""
    here = float(ax)
    there = float(bx) + find_nearest_turn(float(bx), here, space)
    turned = space == EARTH and (there - 360.0 == here or there + 360.0 == here)
    return float(ay) == float(by) and (there == here or turned)


@kernel()
def place_distance(ax: float, ay: float, bx: float, by: float, space: int) -> float:
    """The distance of two points, 0.0 if they meet."""
    if points_meet(ax, ay, bx, by, space):
        return 0.0
    return point_distance(float(ax), float(ay), float(bx), float(by), space)


@kernel()
def points_there(points: Points, space: int) -> bool:
    """Whether at least one point is usable."""
    for k in range(0, len(points), 2):
        if is_place(points[k], points[k + 1], space):
            return True
    return False


@kernel()
def compute_hull_corners(points: Points, space: int) -> tuple[Floats, Floats, int]:
    """The hull of the usable points, on the earth around the first, and its size."""
    most = len(points) // 2
    xs, ys = np.empty(most, np.float64), np.empty(most, np.float64)
    n = 0
    for k in range(most):
        x, y = points[2 * k], points[2 * k + 1]
        if is_place(x, y, space):
            xs[n] = x if n == 0 else x + find_nearest_turn(x, xs[0], space)
            ys[n] = y
            n += 1
    out_x, out_y = np.empty(most, np.float64), np.empty(most, np.float64)
    return out_x, out_y, hull(xs, ys, n, out_x, out_y)


@kernel()
def points_inside(q: Points, p: Points, space: int) -> bool:
    """Whether the hull of q lies inside that of p."""
    qx, qy, qn = compute_hull_corners(q, space)
    px, py, pn = compute_hull_corners(p, space)
    return convex_inside(qx, qy, qn, px, py, pn, space)


@kernel()
def points_overlap(p: Points, q: Points, space: int) -> bool:
    """Whether two hulls share a point."""
    px, py, pn = compute_hull_corners(p, space)
    qx, qy, qn = compute_hull_corners(q, space)
    return convex_overlap(px, py, pn, qx, qy, qn, space)


@kernel()
def points_distance(p: Points, q: Points, space: int) -> float:
    """The least distance of two hulls."""
    px, py, pn = compute_hull_corners(p, space)
    qx, qy, qn = compute_hull_corners(q, space)
    return convex_distance(px, py, pn, qx, qy, qn, space)


@kernel()
def points_apart(p: Points, q: Points, space: int) -> float:
    """The distance of the centres of two hulls."""
    px, py, pn = compute_hull_corners(p, space)
    qx, qy, qn = compute_hull_corners(q, space)
    if pn == 0 or qn == 0:
        return math.inf
    ax, ay = centre(px, py, pn)
    bx, by = centre(qx, qy, qn)
    return point_distance(ax, ay, bx, by, space)
