"""Exact predicates of polygons with holes, stored as rows of a table, and convex places.

Rings are closed (the first corner is repeated), outer ones counter-clockwise, holes clockwise. A
point inside an odd number of rings is in the polygon, and so is its border.

The side of a line on which a point lies is decided exactly. A result in double precision is used
if it is far enough from zero. Otherwise the determinant is expanded into a sum of doubles without
rounding (two-sum and two-product), whose sign is exact. This holds unless a product overflows or
underflows: coordinates must be 0 or between 1e-140 and 1e140 in magnitude.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import kernel

Floats = npt.NDArray[np.float64]


_SPLITTER = 134217729.0  # 2 ** 27 + 1
_BOUND = 3.3306690738754716e-16  # of the determinant's relative error (Shewchuk's ccwerrboundA)


@kernel()
def product_error(a: float, b: float, product: float) -> float:
    """The rounding error of `product = a * b` (Veltkamp and Dekker)."""
    c = _SPLITTER * a
    a_high = c - (c - a)
    a_low = a - a_high
    c = _SPLITTER * b
    b_high = c - (c - b)
    b_low = b - b_high
    rest = product - a_high * b_high
    rest = rest - a_low * b_high
    rest = rest - a_high * b_low
    return a_low * b_low - rest


@kernel()
def difference_error(a: float, b: float, difference: float) -> float:
    """The rounding error of `difference = a - b` (Knuth)."""
    virtual = a - difference
    return (a - (difference + virtual)) + (virtual - b)


@kernel()
def exact_sign(terms: Floats, n: int) -> int:
    """The sign of the sum of the first n terms; overwrites `terms`."""
    used = 0  # the parts of the sum so far, nonoverlapping, the largest last
    for k in range(n):
        x = terms[k]
        kept = 0
        for p in range(used):
            y = terms[p]
            if abs(x) < abs(y):
                x, y = y, x
            high = x + y
            low = y - (high - x)
            if low != 0.0:
                terms[kept] = low
                kept += 1
            x = high
        if x != 0.0:
            terms[kept] = x
            kept += 1
        used = kept
    last = terms[used - 1] if used > 0 else 0.0
    return 1 if last > 0.0 else (-1 if last < 0.0 else 0)


@kernel()
def add_product(terms: Floats, at: int, a: float, b: float) -> int:
    """Write a * b as two terms; return the next position."""
    product = a * b
    terms[at] = product
    terms[at + 1] = product_error(a, b, product)
    return at + 2


@kernel()
def add_determinant(terms: Floats, at: int, ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> int:
    """Write the determinant of (a, b, c) as twelve terms."""
    at = add_product(terms, at, ax, by)
    at = add_product(terms, at, -ax, cy)
    at = add_product(terms, at, -cx, by)
    at = add_product(terms, at, -ay, bx)
    at = add_product(terms, at, ay, cx)
    return add_product(terms, at, cy, bx)


@kernel()
def orientation(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> int:
    """1: c lies to the left of the line from a to b, -1: to the right, 0: on it."""
    dax, day, dbx, dby = ax - cx, ay - cy, bx - cx, by - cy
    left = dax * dby
    right = day * dbx
    determinant = left - right
    bound = _BOUND * (abs(left) + abs(right))
    if determinant > bound:
        return 1
    if -determinant > bound:
        return -1
    return _exact_orientation(ax, ay, bx, by, cx, cy)


@kernel()
def _exact_orientation(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> int:
    dax, day, dbx, dby = ax - cx, ay - cy, bx - cx, by - cy
    if (
        difference_error(ax, cx, dax) == 0.0
        and difference_error(ay, cy, day) == 0.0
        and difference_error(bx, cx, dbx) == 0.0
        and difference_error(by, cy, dby) == 0.0
    ):
        # only two products remain; if they round to the same number, their errors decide
        left, right = dax * dby, day * dbx
        if left == right:
            left, right = product_error(dax, dby, left), product_error(day, dbx, right)
        return 1 if left > right else (-1 if left < right else 0)
    terms = np.empty(12, np.float64)
    return exact_sign(terms, add_determinant(terms, 0, ax, ay, bx, by, cx, cy))


@kernel()
def side_of_mean(
    ax: float, ay: float, bx: float, by: float, px: float, py: float, qx: float, qy: float, rx: float, ry: float
) -> int:
    """The exact orientation of (a, b, the mean of p, q and r)."""
    p = orientation(ax, ay, bx, by, px, py)
    q = orientation(ax, ay, bx, by, qx, qy)
    r = orientation(ax, ay, bx, by, rx, ry)
    if p >= 0 and q >= 0 and r >= 0:
        return 1 if p + q + r > 0 else 0
    if p <= 0 and q <= 0 and r <= 0:
        return -1
    terms = np.empty(36, np.float64)  # the determinant is linear in its last point
    at = add_determinant(terms, 0, ax, ay, bx, by, px, py)
    at = add_determinant(terms, at, ax, ay, bx, by, qx, qy)
    return exact_sign(terms, add_determinant(terms, at, ax, ay, bx, by, rx, ry))


@kernel()
def compare_mean(p: float, q: float, r: float, value: float) -> int:
    """The sign of the mean of three numbers minus `value`."""
    if p >= value and q >= value and r >= value:
        return 1 if p > value or q > value or r > value else 0
    if p <= value and q <= value and r <= value:
        return -1
    terms = np.empty(6, np.float64)
    terms[0], terms[1], terms[2] = p, q, r
    terms[3] = terms[4] = terms[5] = -value
    return exact_sign(terms, 6)


Ints = npt.NDArray[np.int64]


# the columns of a row
KIND, LEFT, BELOW, RIGHT, ABOVE, X, Y, CIRCLE_RADIUS, FIRST, RINGS = range(10)


class RegionTable(NamedTuple):
    """Regions, polygons and circles, as one argument of kernels.

    It has only two arrays, because references of each array are counted at every call.
    """

    rows: Floats  # (n, 10): kind, box, centre, radius of a circle, first ring, number of rings
    corners: Floats  # (m, 2): for each ring (number of corners, whether a hole), then its corners


@kernel()
def locate(corners: Floats, at: int, rings: int, x: float, y: float) -> int:
    """Whether a point is inside a polygon (1), on its border (0) or outside (-1)."""
    inside = False
    for _ in range(rings):
        end = at + int(corners[at, 0])
        for k in range(at + 1, end):
            ax, ay = corners[k, 0], corners[k, 1]
            bx, by = corners[k + 1, 0], corners[k + 1, 1]
            if (ay > y) != (by > y):
                if x < ax and x < bx:
                    inside = not inside
                elif x <= ax or x <= bx:
                    side = orientation(ax, ay, bx, by, x, y)
                    if side == 0:
                        return 0
                    if (side > 0) == (by > ay):
                        inside = not inside
            elif ay == y and (ax == x or (by == y and (ax < x) != (bx < x))):
                return 0
        at = end + 1
    return 1 if inside else -1


@kernel()
def locate_mean(
    corners: Floats, at: int, rings: int, px: float, py: float, qx: float, qy: float, sx: float, sy: float
) -> int:
    """Locate the mean of three points, without rounding."""
    inside = False
    for _ in range(rings):
        end = at + int(corners[at, 0])
        above = compare_mean(py, qy, sy, corners[at + 1, 1])
        for k in range(at + 1, end):
            ax, ay = corners[k, 0], corners[k, 1]
            bx, by = corners[k + 1, 0], corners[k + 1, 1]
            before, above = above, compare_mean(py, qy, sy, by)
            if (before < 0) != (above < 0):
                side = side_of_mean(ax, ay, bx, by, px, py, qx, qy, sx, sy)
                if side == 0:
                    return 0
                if (side > 0) == (by > ay):
                    inside = not inside
            elif before == 0:
                left = compare_mean(px, qx, sx, ax)
                if left == 0 or (above == 0 and left * compare_mean(px, qx, sx, bx) <= 0):
                    return 0
        at = end + 1
    return 1 if inside else -1


@kernel()
def _edge_meets(
    ax: float, ay: float, bx: float, by: float, xs: Floats, ys: Floats, n: int, turn: float, interior: bool
) -> bool:
    """Whether an edge shares a point with a place; with `interior`, with the inside of a polygon.

    They are disjoint if an edge of one separates it from the other.
    """
    reach = 1 if interior else 0  # touching the line does not reach the interior
    if n > 1:
        for i in range(n if n > 2 else 1):
            j = i + 1 if i + 1 < n else 0
            x0, y0, x1, y1 = xs[i] + turn, ys[i], xs[j] + turn, ys[j]
            a = orientation(x0, y0, x1, y1, ax, ay)
            if a >= reach and n > 2:
                continue
            b = orientation(x0, y0, x1, y1, bx, by)
            if (a < reach and b < reach) or (n == 2 and a > 0 and b > 0):
                return False
    left, right = True, True
    for i in range(n):
        side = orientation(ax, ay, bx, by, xs[i] + turn, ys[i])
        left = left and side > -reach
        right = right and side < reach
        if not left and not right:
            return True
    return False


@kernel()
def polygon_contains_point(rows: Floats, corners: Floats, r: int, x: float, y: float) -> bool:
    """Whether a point is in a polygon or on its border."""
    if x < rows[r, LEFT] or x > rows[r, RIGHT] or y < rows[r, BELOW] or y > rows[r, ABOVE]:
        return False
    return locate(corners, int(rows[r, FIRST]), int(rows[r, RINGS]), x, y) >= 0


@kernel()
def _far_edge(
    ax: float, ay: float, bx: float, by: float, left: float, below: float, right: float, above: float
) -> bool:
    """Whether an edge's box is disjoint from another box."""
    return (
        (ax < left and bx < left)
        or (ax > right and bx > right)
        or (ay < below and by < below)
        or (ay > above and by > above)
    )


@kernel()
def compute_box(xs: Floats, ys: Floats, n: int, turn: float) -> tuple[float, float, float, float]:
    left, below, right, above = math.inf, math.inf, -math.inf, -math.inf
    for k in range(n):
        x, y = xs[k] + turn, ys[k]
        left, right = min(left, x), max(right, x)
        below, above = min(below, y), max(above, y)
    return left, below, right, above


@kernel()
def polygon_inside(rows: Floats, corners: Floats, r: int, xs: Floats, ys: Floats, n: int, turn: float) -> bool:
    """Whether a segment or convex polygon lies in a polygon with holes."""
    left, below, right, above = compute_box(xs, ys, n, turn)
    if left < rows[r, LEFT] or below < rows[r, BELOW]:
        return False
    if right > rows[r, RIGHT] or above > rows[r, ABOVE]:
        return False
    first, rings = int(rows[r, FIRST]), int(rows[r, RINGS])
    if locate(corners, first, rings, xs[0] + turn, ys[0]) < 0:
        return False
    if n == 2:
        return _segment_inside(corners, first, rings, xs[0] + turn, ys[0], xs[1] + turn, ys[1])
    at = first
    for _ in range(rings):
        end = at + int(corners[at, 0])
        for k in range(at + 1, end):
            ax, ay = corners[k, 0], corners[k, 1]
            bx, by = corners[k + 1, 0], corners[k + 1, 1]
            if not _far_edge(ax, ay, bx, by, left, below, right, above) and _edge_meets(
                ax, ay, bx, by, xs, ys, n, turn, True
            ):
                return False
        at = end + 1
    # no border crosses it, so it is completely inside or outside
    return locate_mean(corners, first, rings, xs[0] + turn, ys[0], xs[1] + turn, ys[1], xs[2] + turn, ys[2]) > 0


@kernel()
def _segment_inside(corners: Floats, first: int, rings: int, px: float, py: float, qx: float, qy: float) -> bool:
    """Whether a segment lies in a polygon: check each part between the corners that it touches."""
    if locate(corners, first, rings, qx, qy) < 0:
        return False
    x, y = px, py
    while x != qx or y != qy:
        next_x, next_y = qx, qy  # the next corner on the segment after (x, y)
        at = first
        for _ in range(rings):
            end = at + int(corners[at, 0])
            for k in range(at + 1, end):
                ax, ay = corners[k, 0], corners[k, 1]
                bx, by = corners[k + 1, 0], corners[k + 1, 1]
                if _far_edge(ax, ay, bx, by, min(x, qx), min(y, qy), max(x, qx), max(y, qy)):
                    continue
                a = orientation(px, py, qx, qy, ax, ay)
                if a == 0:
                    if _between(x, y, ax, ay, next_x, next_y):
                        next_x, next_y = ax, ay
                elif (
                    a * orientation(px, py, qx, qy, bx, by) < 0
                    and orientation(ax, ay, bx, by, px, py) * orientation(ax, ay, bx, by, qx, qy) < 0
                ):
                    return False
            at = end + 1
        if locate_mean(corners, first, rings, x, y, x, y, next_x, next_y) < 0:
            return False
        x, y = next_x, next_y
    return True


@kernel()
def _between(x: float, y: float, ax: float, ay: float, bx: float, by: float) -> bool:
    """Whether a, on the line of (x, y) and b, lies strictly between them."""
    if x != bx:
        return x < ax < bx or bx < ax < x
    return y < ay < by or by < ay < y


@kernel()
def polygon_overlap(rows: Floats, corners: Floats, r: int, xs: Floats, ys: Floats, n: int, turn: float) -> bool:
    """Whether a segment or convex polygon and a polygon share a point."""
    left, below, right, above = compute_box(xs, ys, n, turn)
    if right < rows[r, LEFT] or above < rows[r, BELOW]:
        return False
    if left > rows[r, RIGHT] or below > rows[r, ABOVE]:
        return False
    first, rings = int(rows[r, FIRST]), int(rows[r, RINGS])
    if locate(corners, first, rings, xs[0] + turn, ys[0]) >= 0:
        return True
    at = first
    for _ in range(rings):
        end = at + int(corners[at, 0])
        for k in range(at + 1, end):
            ax, ay = corners[k, 0], corners[k, 1]
            bx, by = corners[k + 1, 0], corners[k + 1, 1]
            if not _far_edge(ax, ay, bx, by, left, below, right, above) and _edge_meets(
                ax, ay, bx, by, xs, ys, n, turn, False
            ):
                return True
        at = end + 1
    return False
