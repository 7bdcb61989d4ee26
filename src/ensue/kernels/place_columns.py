"""How the places of two columns lie, row by row.

A column of places is all their corners, and where those of each row begin; the places of a column
of one row go with every row of the other.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.kernels.geometry import (
    INSIDE,
    centre,
    convex_distance,
    places_test,
)
from ensue.kernels.geometry import point_distance as between_points
from ensue.kernels.jit import kernel
from ensue.kernels.regions import RegionTable, region_distance, region_inside, region_overlap

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


@kernel(**_OPTIONS)
def column_distances(
    ax: Floats, ay: Floats, a_first: Ints, bx: Floats, by: Floats, b_first: Ints, space: int
) -> Floats:
    """The distance of the places of each row."""
    a_step = 0 if len(a_first) == 2 else 1
    b_step = 0 if len(b_first) == 2 else 1
    n = max(len(a_first), len(b_first)) - 1
    if len(a_first) == 1 or len(b_first) == 1:
        n = 0
    out = np.empty(n, np.float64)
    for row in range(n):
        a, a_end = a_first[row * a_step], a_first[row * a_step + 1]
        b, b_end = b_first[row * b_step], b_first[row * b_step + 1]
        out[row] = convex_distance(
            ax[a:a_end], ay[a:a_end], a_end - a, bx[b:b_end], by[b:b_end], b_end - b, space
        )
    return out


@kernel(**_OPTIONS)
def column_tests(
    where: int,
    ax: Floats,
    ay: Floats,
    a_first: Ints,
    bx: Floats,
    by: Floats,
    b_first: Ints,
    space: int,
) -> Bools:
    """Whether the place b of each row lies inside a, or overlaps it."""
    a_step = 0 if len(a_first) == 2 else 1
    b_step = 0 if len(b_first) == 2 else 1
    n = max(len(a_first), len(b_first)) - 1
    if len(a_first) == 1 or len(b_first) == 1:
        n = 0
    out = np.empty(n, np.bool_)
    for row in range(n):
        a, a_end = a_first[row * a_step], a_first[row * a_step + 1]
        b, b_end = b_first[row * b_step], b_first[row * b_step + 1]
        out[row] = places_test(
            where,
            0,
            0.0,
            0.0,
            ax[a:a_end],
            ay[a:a_end],
            a_end - a,
            bx[b:b_end],
            by[b:b_end],
            b_end - b,
            space,
        )
    return out


@kernel(**_OPTIONS)
def region_distances(table: RegionTable, x: Floats, y: Floats, first: Ints, space: int) -> Floats:
    """The distance of each place from the first region."""
    out = np.empty(len(first) - 1, np.float64)
    for row in range(len(out)):
        begin, end = first[row], first[row + 1]
        out[row] = region_distance(table, 0, x[begin:end], y[begin:end], end - begin, space)
    return out


@kernel(**_OPTIONS)
def region_tests(
    table: RegionTable, where: int, x: Floats, y: Floats, first: Ints, space: int
) -> Bools:
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


@kernel(**_OPTIONS)
def column_centres(x: Floats, y: Floats, first: Ints) -> tuple[Floats, Floats]:
    """The centre of each place; NaN where there is none."""
    n = len(first) - 1
    out_x, out_y = np.full(n, np.nan), np.full(n, np.nan)
    for row in range(n):
        begin, end = first[row], first[row + 1]
        if end > begin:
            out_x[row], out_y[row] = centre(x[begin:end], y[begin:end], end - begin)
    return out_x, out_y


@kernel(**_OPTIONS)
def point_distances(ax: Floats, ay: Floats, bx: Floats, by: Floats, space: int) -> Floats:
    """The distance of the points of each row."""
    n = len(ax)
    out = np.empty(n, np.float64)
    for row in range(n):
        out[row] = between_points(ax[row], ay[row], bx[row], by[row], space)
    return out
