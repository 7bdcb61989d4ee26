"""Distances on the earth in plain Python: a sphere, places in degrees, edges straight in degrees.

The steps are those of the kernels, so that both find the same numbers.
"""

from math import asin, ceil, cos, inf, pi, sin, sqrt

from ensue.algebra.wkt import Point

RADIUS = 6371008.8  # metres: the mean radius of the earth
RADIAN = pi / 180
PIECE = 5.0  # degrees: along so much of an edge a distance has no more than one minimum
Edge = tuple[Point, Point]


def haversine(p: Point, q: Point) -> float:
    """Metres between two places.

    >>> round(haversine((8.54, 47.38), (2.35, 48.86)) / 1000)
    488
    """
    across = sin((q[1] - p[1]) * RADIAN * 0.5)
    along = sin((q[0] - p[0]) * RADIAN * 0.5)
    h = across * across + cos(p[1] * RADIAN) * cos(q[1] * RADIAN) * along * along
    return 2 * RADIUS * asin(min(1.0, sqrt(h)))


def extreme(p: Point, edge: Edge, sign: float = 1.0) -> float:
    """The least (or, with sign -1, the greatest) distance from p to the points of an edge.

    It is at an end, or where the slope along the edge passes 0: found by false position.
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


def apart(edge: Edge, other: Edge) -> float:
    """The least distance of two edges that share no point, by golden section along the first."""
    (ax, ay), (bx, by) = edge
    if edge[0] == edge[1]:
        return extreme(edge[0], other)
    if other[0] == other[1]:
        return extreme(other[0], edge)

    def from_part(part: float) -> float:
        return extreme((ax + part * (bx - ax), ay + part * (by - ay)), other)

    pieces = max(2, ceil(max(abs(bx - ax), abs(by - ay)) / PIECE))
    best, nearest = inf, 0
    for k in range(pieces + 1):
        found = from_part(k / pieces)
        if found < best:
            best, nearest = found, k
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
