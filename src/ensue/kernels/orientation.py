"""The orientation predicate: the side of a line on which a point lies, decided exactly.

A result in double precision is used if it is far enough from zero. Otherwise the determinant is
expanded into a sum of doubles without rounding (two-sum and two-product), whose sign is exact.
This holds unless a product overflows or underflows: coordinates must be 0 or between 1e-140 and
1e140 in magnitude.
"""

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
