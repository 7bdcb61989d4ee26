"""Distances on the earth: a sphere, coordinates in degrees, edges straight in degrees.

The distance to an edge is the least haversine distance to its points. The edge is cut into pieces
of at most `PIECE` degrees; where the derivative changes its sign in a piece, a bracketed false
position (Illinois) finds the minimum. `geo.geometry` does the same in Python. Compared with
densified edges the error is below a millimetre for edges up to a continent's width.
"""

import math

from ensue.kernels.jit import kernel

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
