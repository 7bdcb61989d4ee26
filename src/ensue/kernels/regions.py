"""Regions: polygons with holes, several of them, and circles, as rows of one table.

A place is tested against a polygon exactly; against a circle by its distance from the centre, in
double precision. On the earth a region may reach beyond 180 degrees; a place is tried at its own
longitudes and a turn to both sides.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.kernels.earth import RADIAN, RADIUS, edge_extreme
from ensue.kernels.geometry import (
    DISTANCE,
    GREATER,
    INSIDE,
    LESS,
    OVERLAP,
    PLANE,
    SAME,
    centre,
    compared,
    convex_distance,
    convex_overlap,
    first_turn,
    nearer_edge,
    point_distance,
)
from ensue.kernels.kept_code import kernel
from ensue.kernels.polygons import RegionTable, box_of, polygon_inside, polygon_overlap

__all__ = [
    "CIRCLE",
    "POLYGON",
    "RegionTable",
    "region_box",
    "region_centre_distance",
    "region_distance",
    "region_inside",
    "region_overlap",
    "region_test",
]

POLYGON, CIRCLE = 0, 1

Floats = npt.NDArray[np.float64]
Box = tuple[float, float, float, float]

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


@kernel(**_OPTIONS)
def _circle_inside(table: RegionTable, r: int, xs: Floats, ys: Floats, n: int, space: int) -> bool:
    """Whether a place's farthest point is no farther from the centre than the radius."""
    x, y, radius = table.centre[r, 0], table.centre[r, 1], table.radius[r]
    for k in range(n):
        if point_distance(x, y, xs[k], ys[k], space) > radius:
            return False
    if space == PLANE or n == 1:
        return True
    for k in range(n if n > 2 else 1):  # straight in degrees, an edge may lead outside
        m = k + 1 if k + 1 < n else 0
        if edge_extreme(x, y, xs[k], ys[k], xs[m], ys[m], -1.0) > radius:
            return False
    if radius >= math.pi * RADIUS:
        return True
    opposite_x = np.array([x + 180.0])
    opposite_y = np.array([-y])
    return not convex_overlap(xs, ys, n, opposite_x, opposite_y, 1, space)


@kernel(**_OPTIONS)
def _from_centre(table: RegionTable, r: int, xs: Floats, ys: Floats, n: int, space: int) -> float:
    """The least distance of a place from the centre of a region."""
    if n == 1:
        return point_distance(table.centre[r, 0], table.centre[r, 1], xs[0], ys[0], space)
    at = table.centre[r]
    return convex_distance(at[0:1], at[1:2], 1, xs, ys, n, space)


@kernel(**_OPTIONS)
def region_inside(table: RegionTable, r: int, xs: Floats, ys: Floats, n: int, space: int) -> bool:
    """Whether every point of a place is in a region or on its border."""
    if n == 0:
        return False
    if table.kind[r] == CIRCLE:
        return _circle_inside(table, r, xs, ys, n, space)
    if space == PLANE:
        return polygon_inside(table, r, xs, ys, n, 0.0)
    turn = first_turn(xs[0], 0.5 * (table.box[r, 0] + table.box[r, 2]), space)
    return (
        polygon_inside(table, r, xs, ys, n, turn)
        or polygon_inside(table, r, xs, ys, n, turn - 360.0)
        or polygon_inside(table, r, xs, ys, n, turn + 360.0)
    )


@kernel(**_OPTIONS)
def region_overlap(table: RegionTable, r: int, xs: Floats, ys: Floats, n: int, space: int) -> bool:
    """Whether a place and a region share a point."""
    if n == 0:
        return False
    if table.kind[r] == CIRCLE:
        return _from_centre(table, r, xs, ys, n, space) <= table.radius[r]
    if space == PLANE:
        return polygon_overlap(table, r, xs, ys, n, 0.0)
    turn = first_turn(xs[0], 0.5 * (table.box[r, 0] + table.box[r, 2]), space)
    return (
        polygon_overlap(table, r, xs, ys, n, turn)
        or polygon_overlap(table, r, xs, ys, n, turn - 360.0)
        or polygon_overlap(table, r, xs, ys, n, turn + 360.0)
    )


@kernel(**_OPTIONS)
def region_distance(
    table: RegionTable, r: int, xs: Floats, ys: Floats, n: int, space: int
) -> float:
    """The least distance of a place and a region; 0.0 if they share a point, inf without place."""
    if n == 0:
        return math.inf
    if table.kind[r] == CIRCLE:
        return max(0.0, _from_centre(table, r, xs, ys, n, space) - table.radius[r])
    if region_overlap(table, r, xs, ys, n, space):
        return 0.0
    corners = table.corners
    best = math.inf
    first = table.first_ring[r]
    for ring in range(first, first + table.rings[r]):
        begin = table.first_corner[ring]
        for k in range(begin, begin + table.ring_corners[ring] - 1):
            ax, ay = corners[k, 0], corners[k, 1]
            bx, by = corners[k + 1, 0], corners[k + 1, 1]
            for i in range(n if n != 2 else 1):
                j = i + 1 if i + 1 < n else 0
                best = nearer_edge(best, xs[i], ys[i], xs[j], ys[j], ax, ay, bx, by, space)
    return best


@kernel(**_OPTIONS)
def region_centre_distance(
    table: RegionTable, r: int, xs: Floats, ys: Floats, n: int, space: int
) -> float:
    """The distance of the centres of a place and a region; inf without place."""
    if n == 0:
        return math.inf
    x, y = centre(xs, ys, n)
    return point_distance(table.centre[r, 0], table.centre[r, 1], x, y, space)


@kernel(**_OPTIONS)
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
    """One test of a place against a region; False without place."""
    if n == 0:
        return False
    if where == INSIDE:
        return region_inside(table, r, xs, ys, n, space)
    if where == OVERLAP:
        return region_overlap(table, r, xs, ys, n, space)
    if where == SAME:
        return region_centre_distance(table, r, xs, ys, n, space) < number
    if comparison == LESS and space == PLANE:
        left, below, right, above = box_of(xs, ys, n, 0.0)
        across = max(table.box[r, 0] - right, left - table.box[r, 2])
        along = max(table.box[r, 1] - above, below - table.box[r, 3])
        if max(across, along) * (1.0 - 1e-9) > number:
            return False
    distance = region_distance(table, r, xs, ys, n, space)
    return compared(distance, comparison, number, tolerance)


@kernel(**_OPTIONS)
def region_box(
    table: RegionTable,
    r: int,
    where: int,
    comparison: int,
    number: float,
    tolerance: float,
    space: int,
) -> Box:
    """A box (least x and y, greatest x and y) that the box of every place that passes meets.

    It is rounded outwards. On the earth it holds longitudes from -180 to 180, all of them where it
    would touch 180 degrees: a place that reaches beyond them must be tried at all longitudes.
    """
    box = table.box
    if where == DISTANCE and comparison == GREATER:
        return -math.inf, -math.inf, math.inf, math.inf
    if where == SAME:
        x, y = table.centre[r, 0], table.centre[r, 1]
        return grown_box(x, y, x, y, number, space)
    more = 0.0
    if where == DISTANCE:
        more = number if comparison == LESS else number + tolerance
    return grown_box(box[r, 0], box[r, 1], box[r, 2], box[r, 3], more, space)


@kernel(**_OPTIONS)
def grown_box(
    left: float, below: float, right: float, above: float, length: float, space: int
) -> Box:
    """A box that holds all that is no farther than `length` from another one."""
    length = max(length, 0.0)
    if space == PLANE:
        most = max(abs(left), abs(below), abs(right), abs(above))
        more = length + 1e-12 * (length + most)
        return left - more, below - more, right + more, above + more
    angle = length / RADIUS
    up = angle / RADIAN + 1e-6  # degrees: wider than haversine can be off
    below, above = below - up, above + up
    if below <= -90.0 or above >= 90.0:
        return -180.0, max(below, -90.0), 180.0, min(above, 90.0)
    far = max(abs(below), abs(above)) - up
    across = math.asin(min(1.0, math.sin(angle) / math.cos(far * RADIAN))) / RADIAN + 1e-6
    left, right = left - across, right + across
    if left <= -180.0 or right >= 180.0:
        left, right = -180.0, 180.0
    return left, below, right, above
