"""Convex places: points, segments and convex polygons, in the plane or on the earth.

A place is its corners, counter-clockwise and without collinear ones: one for a point, two for a
segment. Relations of places are decided exactly (`orientation`); distances are in double
precision. On the earth, a sphere, edges are straight in degrees, so the same predicates hold for
places shifted by full turns; distances are in metres.

The distance to an edge on the earth is the least haversine distance to its points. The edge is cut
into pieces of at most `PIECE` degrees; where the derivative changes its sign in a piece, a
bracketed false position (Illinois) finds the minimum. `geo.geometry` does the same in Python.
Compared with densified edges the error is below a millimetre for edges up to a continent's width.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import kernel
from ensue.kernels.polygons import orientation

RADIUS = 6371008.8  # metres: the mean radius of the earth
RADIAN = math.pi / 180.0
PIECE = 5.0  # degrees
STEPS = 60  # of a false position, at most
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
SECTIONS = 48  # of a golden section


@kernel()
def haversine(x0: float, y0: float, x1: float, y1: float) -> float:
    """The distance of two points in metres."""
    across = math.sin((y1 - y0) * RADIAN * 0.5)
    along = math.sin((x1 - x0) * RADIAN * 0.5)
    h = across * across + math.cos(y0 * RADIAN) * math.cos(y1 * RADIAN) * along * along
    return 2.0 * RADIUS * math.asin(min(1.0, math.sqrt(h)))


@kernel()
def _slope(px: float, py: float, ax: float, ay: float, bx: float, by: float, at: float) -> float:
    """The derivative of the haversine of the distance from p at a + at * (b - a)."""
    here = (ay + at * (by - ay)) * RADIAN
    turn = (ax + at * (bx - ax) - px) * RADIAN
    there = py * RADIAN
    half = math.sin(turn * 0.5)
    up = 0.5 * math.sin(here - there) - math.sin(here) * math.cos(there) * half * half
    side = 0.5 * math.cos(here) * math.cos(there) * math.sin(turn)
    return (up * (by - ay) + side * (bx - ax)) * RADIAN


@kernel()
def edge_extreme(px: float, py: float, ax: float, ay: float, bx: float, by: float, sign: float) -> float:
    """The least (sign 1) or greatest (sign -1) distance from p to an edge."""
    first = haversine(px, py, ax, ay)
    last = haversine(px, py, bx, by)
    best = min(sign * first, sign * last)
    pieces = math.ceil(max(abs(bx - ax), abs(by - ay)) / PIECE)
    if pieces == 0:
        return sign * best
    left = 0.0
    left_slope = sign * _slope(px, py, ax, ay, bx, by, 0.0)
    for k in range(pieces):
        right = (k + 1.0) / pieces
        right_slope = sign * _slope(px, py, ax, ay, bx, by, right)
        if left_slope < 0.0 <= right_slope:
            low, low_slope, high, high_slope = left, left_slope, right, right_slope
            before = -1.0
            side = 0
            for _ in range(STEPS):
                at = high - high_slope * (high - low) / (high_slope - low_slope)
                slope = sign * _slope(px, py, ax, ay, bx, by, at)
                distance = haversine(px, py, ax + at * (bx - ax), ay + at * (by - ay))
                best = min(best, sign * distance)
                if slope == 0.0 or abs(at - before) < 1e-14:
                    break
                before = at
                if slope < 0.0:
                    low, low_slope = at, slope
                    if side == -1:
                        high_slope *= 0.5
                    side = -1
                else:
                    high, high_slope = at, slope
                    if side == 1:
                        low_slope *= 0.5
                    side = 1
        left, left_slope = right, right_slope
    return sign * best


@kernel()
def edge_distance(ax: float, ay: float, bx: float, by: float, cx: float, cy: float, dx: float, dy: float) -> float:
    """The least distance of two edges that do not cross; both nearest points may be interior."""
    pieces = math.ceil(max(abs(bx - ax), abs(by - ay)) / PIECE)
    if pieces == 0:
        return edge_extreme(ax, ay, cx, cy, dx, dy, 1.0)
    pieces = max(pieces, 2)
    best = math.inf
    nearest = 0
    for k in range(pieces + 1):
        at = k / pieces
        distance = edge_extreme(ax + at * (bx - ax), ay + at * (by - ay), cx, cy, dx, dy, 1.0)
        if distance < best:
            best, nearest = distance, k
    low, high = max(nearest - 1, 0) / pieces, min(nearest + 1, pieces) / pieces
    first = high - GOLDEN * (high - low)
    second = low + GOLDEN * (high - low)
    at_first = edge_extreme(ax + first * (bx - ax), ay + first * (by - ay), cx, cy, dx, dy, 1.0)
    at_second = edge_extreme(ax + second * (bx - ax), ay + second * (by - ay), cx, cy, dx, dy, 1.0)
    for _ in range(SECTIONS):
        best = min(best, at_first, at_second)
        if at_first < at_second:
            high, second, at_second = second, first, at_first
            first = high - GOLDEN * (high - low)
            at_first = edge_extreme(ax + first * (bx - ax), ay + first * (by - ay), cx, cy, dx, dy, 1.0)
        else:
            low, first, at_first = first, second, at_second
            second = low + GOLDEN * (high - low)
            at_second = edge_extreme(ax + second * (bx - ax), ay + second * (by - ay), cx, cy, dx, dy, 1.0)
    return min(best, at_first, at_second)


@kernel()
def box_distance(ax: float, ay: float, bx: float, by: float, cx: float, cy: float, dx: float, dy: float) -> float:
    """A cheap lower bound of the distance of the edges ab and cd."""
    low, high = min(ay, by), max(ay, by)
    below, above = min(cy, dy), max(cy, dy)
    gap = max(low - above, below - high, 0.0) * RADIAN
    west, east = min(ax, bx), max(ax, bx)
    left, right = min(cx, dx), max(cx, dx)
    turn = 0.5 * (left + right) - 0.5 * (west + east)
    turn = abs(turn - 360.0 * math.floor(turn / 360.0 + 0.5))
    apart = min(turn - 0.5 * (east - west) - 0.5 * (right - left), 90.0)
    if apart > 0.0:
        far = max(abs(low), abs(high), abs(below), abs(above))
        gap = max(gap, math.asin(min(1.0, math.cos(far * RADIAN) * math.sin(apart * RADIAN))))
    return RADIUS * gap * (1.0 - 1e-9) - 1e-6


PLANE, EARTH = 0, 1
INSIDE, OVERLAP, SAME, DISTANCE = 0, 1, 2, 3
LESS, EQUAL, GREATER = 0, 1, 2

Floats = npt.NDArray[np.float64]


@kernel()
def hull(xs: Floats, ys: Floats, n: int, out_x: Floats, out_y: Floats) -> int:
    """The convex hull of n points: write its corners to `out_x` and `out_y`; return their number.

    The first corner is the least one by x, then y. The output must not alias the input.
    """
    if n <= 2:
        swap = n == 2 and (xs[1] < xs[0] or (xs[1] == xs[0] and ys[1] < ys[0]))
        for k in range(n):
            out_x[n - 1 - k if swap else k] = xs[k]
            out_y[n - 1 - k if swap else k] = ys[k]
        return 1 if n == 2 and xs[0] == xs[1] and ys[0] == ys[1] else n
    x, y = xs[:n].copy(), ys[:n].copy()
    _sort_points(x, y, n)
    chain = np.empty(2 * n, np.int64)
    m = _extend_chain(x, y, chain, 0, 0, n, 1)  # the lower border, then the upper one
    m = _extend_chain(x, y, chain, m - 1, n - 1, -1, -1)
    if m > 1:
        m -= 1  # the first corner again
    for k in range(m):
        out_x[k], out_y[k] = x[chain[k]], y[chain[k]]
    return m


@kernel()
def compute_hulls(xs: Floats, ys: Floats, first: Any, out_x: Floats, out_y: Floats, begin: Any) -> None:
    """The hull of each group of points `first[k]` to `first[k + 1]`, at `begin[k]` in the output.

    `out_x` and `out_y` have room for all points.
    """
    at = 0
    begin[0] = 0
    for k in range(len(first) - 1):
        low, high = first[k], first[k + 1]
        at += hull(xs[low:high], ys[low:high], high - low, out_x[at:], out_y[at:])
        begin[k + 1] = at


@kernel()
def _sort_points(x: Floats, y: Floats, n: int) -> None:
    """Shell sort by x, then y."""
    gap = 1
    while gap < n // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for k in range(gap, n):
            px, py = x[k], y[k]
            at = k
            while at >= gap and (x[at - gap] > px or (x[at - gap] == px and y[at - gap] > py)):
                x[at], y[at] = x[at - gap], y[at - gap]
                at -= gap
            x[at], y[at] = px, py
        gap //= 3


@kernel()
def _extend_chain(x: Floats, y: Floats, chain: Any, base: int, start: int, stop: int, step: int) -> int:
    """Andrew's monotone chain: keep only left turns after `base`; return the length."""
    m = base
    for k in range(start, stop, step):
        if m > base and x[chain[m - 1]] == x[k] and y[chain[m - 1]] == y[k]:
            continue
        while m - base >= 2 and (
            orientation(x[chain[m - 2]], y[chain[m - 2]], x[chain[m - 1]], y[chain[m - 1]], x[k], y[k]) <= 0
        ):
            m -= 1
        chain[m] = k
        m += 1
    return m


@kernel()
def centre(xs: Floats, ys: Floats, n: int) -> tuple[float, float]:
    """A point itself, the midpoint of a segment, or the centroid of a polygon (by a fan)."""
    if n == 1:
        return xs[0], ys[0]
    if n == 2:
        return xs[0] + 0.5 * (xs[1] - xs[0]), ys[0] + 0.5 * (ys[1] - ys[0])
    x0, y0 = xs[0], ys[0]
    total, x, y = 0.0, 0.0, 0.0
    for k in range(1, n - 1):
        ax, ay = xs[k] - x0, ys[k] - y0
        bx, by = xs[k + 1] - x0, ys[k + 1] - y0
        area = ax * by - ay * bx
        total += area
        x += area * (ax + bx)
        y += area * (ay + by)
    if total == 0.0:  # too thin for double precision
        return x0 + 0.5 * (xs[n - 1] - x0), y0 + 0.5 * (ys[n - 1] - y0)
    return x0 + x / (3.0 * total), y0 + y / (3.0 * total)


@kernel()
def find_convex_side(xs: Floats, ys: Floats, n: int) -> int:
    """1 or -1 for a convex ring, counter-clockwise or clockwise; else 0.

    A convex ring turns to one side only, and changes from falling to rising once.
    """
    side, falls = 0, 0
    for k in range(n):
        m = k + 1 if k + 1 < n else 0
        p = m + 1 if m + 1 < n else 0
        turn = orientation(xs[k], ys[k], xs[m], ys[m], xs[p], ys[p])
        if turn == 0 or turn == -side:
            return 0
        side = turn
        down = ys[m] < ys[k] or (ys[m] == ys[k] and xs[m] < xs[k])
        up = ys[p] > ys[m] or (ys[p] == ys[m] and xs[p] > xs[m])
        if down and up:
            falls += 1
    return side if falls == 1 else 0


@kernel()
def point_distance(x0: float, y0: float, x1: float, y1: float, space: int) -> float:
    """The distance of two points."""
    if space == EARTH:
        return haversine(x0, y0, x1, y1)
    return math.sqrt((x1 - x0) * (x1 - x0) + (y1 - y0) * (y1 - y0))


@kernel()
def segment_distance(px: float, py: float, ax: float, ay: float, bx: float, by: float, space: int) -> float:
    """The distance of a point and a segment."""
    if space == EARTH:
        return edge_extreme(px, py, ax, ay, bx, by, 1.0)
    ex, ey = bx - ax, by - ay
    along = (px - ax) * ex + (py - ay) * ey
    square = ex * ex + ey * ey
    if along <= 0.0:
        return point_distance(px, py, ax, ay, PLANE)
    if along >= square:
        return point_distance(px, py, bx, by, PLANE)
    return abs(ex * (py - ay) - ey * (px - ax)) / math.sqrt(square)


@kernel()
def find_nearest_turn(here: float, there: float, space: int) -> float:
    """The shift by full turns that brings `here` nearest to `there`; 0 in the plane."""
    if space == PLANE:
        return 0.0
    return 360.0 * math.floor((there - here) / 360.0 + 0.5)


@kernel()
def _is_separated(ax: Floats, ay: Floats, an: int, bx: Floats, by: Floats, bn: int, turn: float, swap: bool) -> bool:
    """Whether the line of an edge of a separates all of b from a.

    `turn` shifts b, or, with `swap`, a.
    """
    a_turn, b_turn = (turn, 0.0) if swap else (0.0, turn)
    if an == 1:
        return False
    for i in range(an if an > 2 else 1):
        j = i + 1 if i + 1 < an else 0
        first = orientation(ax[i] + a_turn, ay[i], ax[j] + a_turn, ay[j], bx[0] + b_turn, by[0])
        if first == 0 or (an > 2 and first > 0):
            continue
        apart = True
        for k in range(1, bn):
            if first != orientation(ax[i] + a_turn, ay[i], ax[j] + a_turn, ay[j], bx[k] + b_turn, by[k]):
                apart = False
                break
        if apart:
            return True
    return False


@kernel()
def _boxes_meet(ax: Floats, ay: Floats, an: int, bx: Floats, by: Floats, bn: int, turn: float) -> bool:
    # written out: passing arrays to a function counts references
    left, below, right, above = math.inf, math.inf, -math.inf, -math.inf
    for k in range(an):
        left, right = min(left, ax[k]), max(right, ax[k])
        below, above = min(below, ay[k]), max(above, ay[k])
    west, south, east, north = math.inf, math.inf, -math.inf, -math.inf
    for k in range(bn):
        west, east = min(west, bx[k] + turn), max(east, bx[k] + turn)
        south, north = min(south, by[k]), max(north, by[k])
    return left <= east and west <= right and below <= north and south <= above


@kernel()
def convex_overlap(ax: Floats, ay: Floats, an: int, bx: Floats, by: Floats, bn: int, space: int) -> bool:
    """Whether two places share a point."""
    if an == 0 or bn == 0:
        return False
    turn = find_nearest_turn(bx[0], ax[0], space) - 360.0
    for _ in range(3):
        at = turn if space == EARTH else 0.0
        if (
            _boxes_meet(ax, ay, an, bx, by, bn, at)
            and not _is_separated(ax, ay, an, bx, by, bn, at, False)
            and not _is_separated(bx, by, bn, ax, ay, an, at, True)
        ):
            return True
        if space == PLANE:
            return False
        turn += 360.0
    return False


@kernel()
def convex_inside(qx: Floats, qy: Floats, qn: int, px: Floats, py: Floats, pn: int, space: int) -> bool:
    """Whether every point of q is in p or on its border."""
    if qn == 0 or pn == 0:
        return False
    turn = find_nearest_turn(qx[0], px[0], space) - 360.0
    for _ in range(3):
        at = turn if space == EARTH else 0.0
        within = True
        for k in range(qn):
            x, y = qx[k : k + 1], qy[k : k + 1]
            if not _boxes_meet(px, py, pn, x, y, 1, at) or _is_separated(px, py, pn, x, y, 1, at, False):
                within = False
                break
        if within:
            return True
        if space == PLANE:
            return False
        turn += 360.0
    return False


@kernel()
def convex_distance(ax: Floats, ay: Floats, an: int, bx: Floats, by: Floats, bn: int, space: int) -> float:
    """The least distance of two places; 0.0 if they share a point, inf if one is empty."""
    if an == 0 or bn == 0:
        return math.inf
    if convex_overlap(ax, ay, an, bx, by, bn, space):
        return 0.0
    if an == 1 and bn == 1:
        return point_distance(ax[0], ay[0], bx[0], by[0], space)
    best = math.inf
    for i in range(an if an != 2 else 1):
        j = i + 1 if i + 1 < an else 0
        for k in range(bn if bn != 2 else 1):
            m = k + 1 if k + 1 < bn else 0
            best = nearer_edge(best, ax[i], ay[i], ax[j], ay[j], bx[k], by[k], bx[m], by[m], space)
    return best


@kernel()
def nearer_edge(
    best: float, ax: float, ay: float, bx: float, by: float, cx: float, cy: float, dx: float, dy: float, space: int
) -> float:
    """The minimum of `best` and the distance of two edges, or points, that share no point."""
    if space == EARTH:
        if box_distance(ax, ay, bx, by, cx, cy, dx, dy) >= best:
            return best
        if ax == bx and ay == by:
            return min(best, edge_extreme(ax, ay, cx, cy, dx, dy, 1.0))
        if cx == dx and cy == dy:
            return min(best, edge_extreme(cx, cy, ax, ay, bx, by, 1.0))
        return min(best, edge_distance(ax, ay, bx, by, cx, cy, dx, dy))
    best = min(best, segment_distance(ax, ay, cx, cy, dx, dy, PLANE))
    if ax == bx and ay == by:
        return best
    best = min(best, segment_distance(bx, by, cx, cy, dx, dy, PLANE))
    best = min(best, segment_distance(cx, cy, ax, ay, bx, by, PLANE))
    return min(best, segment_distance(dx, dy, ax, ay, bx, by, PLANE))


@kernel()
def compare_distance(distance: float, comparison: int, number: float, tolerance: float) -> bool:
    """Compare a distance with a number: less, equal (within the tolerance) or greater."""
    if comparison == LESS:
        return distance < number
    if comparison == GREATER:
        return distance > number
    return abs(distance - number) <= tolerance


@kernel()
def passes_place_test(
    where: int,
    comparison: int,
    number: float,
    tolerance: float,
    ax: Floats,
    ay: Floats,
    an: int,
    bx: Floats,
    by: Floats,
    bn: int,
    space: int,
) -> bool:
    """Test a place b against a place a; False if one is empty."""
    if an == 0 or bn == 0:
        return False
    if where == INSIDE:
        return convex_inside(bx, by, bn, ax, ay, an, space)
    if where == OVERLAP:
        return convex_overlap(ax, ay, an, bx, by, bn, space)
    if where == SAME:
        x0, y0 = centre(ax, ay, an)
        x1, y1 = centre(bx, by, bn)
        return point_distance(x0, y0, x1, y1, space) < number
    distance = convex_distance(ax, ay, an, bx, by, bn, space)
    return compare_distance(distance, comparison, number, tolerance)
