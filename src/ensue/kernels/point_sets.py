"""How the places of a few points lie, for generated kernels.

A place is a tuple of coordinates (x, y, x, y, ...): the hull of those points that are there. A
point with a coordinate that is no number, or not on the earth, is none.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.kernels.earth import haversine
from ensue.kernels.geometry import (
    EARTH,
    PLANE,
    centre,
    convex_distance,
    convex_inside,
    convex_overlap,
    first_turn,
    hull,
    point_distance,
)
from ensue.kernels.jit import kernel

Floats = npt.NDArray[np.float64]
Points = tuple[float, ...]

FARTHEST = 1e100  # the greatest coordinate: products of four still fit into a double

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


# ---- two points


@kernel(**_OPTIONS)
def is_place(x: float, y: float, space: int) -> bool:
    """Whether coordinates are those of a place: numbers, and on the earth degrees of it."""
    if space == EARTH:
        return abs(x) <= 540.0 and abs(y) <= 90.0
    return abs(x) <= FARTHEST and abs(y) <= FARTHEST


@kernel(**_OPTIONS)
def plane_places(ax: float, ay: float, bx: float, by: float) -> bool:
    """Whether both points are there."""
    return is_place(ax, ay, PLANE) and is_place(bx, by, PLANE)


@kernel(**_OPTIONS)
def earth_places(ax: float, ay: float, bx: float, by: float) -> bool:
    """Likewise, on the earth."""
    return is_place(ax, ay, EARTH) and is_place(bx, by, EARTH)


@kernel(**_OPTIONS)
def plane_points_meet(ax: float, ay: float, bx: float, by: float) -> bool:
    """Whether two points are one."""
    return float(ax) == float(bx) and float(ay) == float(by)


@kernel(**_OPTIONS)
def earth_points_meet(ax: float, ay: float, bx: float, by: float) -> bool:
    """Likewise, plus or minus full turns of b."""
    x = float(bx) + first_turn(float(bx), float(ax), EARTH)
    return float(ay) == float(by) and (x == ax or x - 360.0 == ax or x + 360.0 == ax)


@kernel(**_OPTIONS)
def plane_point_distance(ax: float, ay: float, bx: float, by: float) -> float:
    """The distance of two points."""
    dx, dy = float(bx) - float(ax), float(by) - float(ay)
    return math.sqrt(dx * dx + dy * dy)


@kernel(**_OPTIONS)
def earth_point_distance(ax: float, ay: float, bx: float, by: float) -> float:
    """Likewise, in metres."""
    if earth_points_meet(ax, ay, bx, by):
        return 0.0
    return haversine(float(ax), float(ay), float(bx), float(by))


# ---- hulls of several points


@kernel(**_OPTIONS)
def points_there(points: Points, space: int) -> bool:
    """Whether there is at least one point."""
    for k in range(0, len(points), 2):
        if is_place(points[k], points[k + 1], space):
            return True
    return False


@kernel(**_OPTIONS)
def corners_of(points: Points, space: int) -> tuple[Floats, Floats, int]:
    """The hull of the points, on the earth around the longitude of the first; how many corners."""
    most = len(points) // 2
    xs, ys = np.empty(most, np.float64), np.empty(most, np.float64)
    n = 0
    for k in range(most):
        x, y = points[2 * k], points[2 * k + 1]
        if is_place(x, y, space):
            xs[n] = x if n == 0 else x + first_turn(x, xs[0], space)
            ys[n] = y
            n += 1
    out_x, out_y = np.empty(most, np.float64), np.empty(most, np.float64)
    return out_x, out_y, hull(xs, ys, n, out_x, out_y)


@kernel(**_OPTIONS)
def points_inside(q: Points, p: Points, space: int) -> bool:
    """Whether every point of q is in p or on its border."""
    qx, qy, qn = corners_of(q, space)
    px, py, pn = corners_of(p, space)
    return convex_inside(qx, qy, qn, px, py, pn, space)


@kernel(**_OPTIONS)
def points_overlap(p: Points, q: Points, space: int) -> bool:
    """Whether two places share a point."""
    px, py, pn = corners_of(p, space)
    qx, qy, qn = corners_of(q, space)
    return convex_overlap(px, py, pn, qx, qy, qn, space)


@kernel(**_OPTIONS)
def points_distance(p: Points, q: Points, space: int) -> float:
    """The least distance of two places."""
    px, py, pn = corners_of(p, space)
    qx, qy, qn = corners_of(q, space)
    return convex_distance(px, py, pn, qx, qy, qn, space)


@kernel(**_OPTIONS)
def points_apart(p: Points, q: Points, space: int) -> float:
    """The distance of the centres of two places."""
    px, py, pn = corners_of(p, space)
    qx, qy, qn = corners_of(q, space)
    if pn == 0 or qn == 0:
        return math.inf
    ax, ay = centre(px, py, pn)
    bx, by = centre(qx, qy, qn)
    return point_distance(ax, ay, bx, by, space)
