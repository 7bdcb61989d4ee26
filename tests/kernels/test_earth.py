"""Distances on the earth: the minima over ever finer points, also at 180 degrees and poles."""

import math

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from ensue.geo import geometry as places
from ensue.geo import geometry as plain
from ensue.kernels import geometry
from ensue.kernels.geometry import EARTH
from support.seeds import scaled

pytestmark = pytest.mark.kernels

MILLIMETRE = 1e-3


def clipped(latitude):
    return min(90.0, max(-90.0, latitude))


@st.composite
def points_near(draw, count):
    """Points within a distance in degrees that is between a village's and a continent's."""
    x, y = draw(st.floats(-180, 180)), draw(st.floats(-90, 90))
    width = draw(st.sampled_from([0.001, 0.1, 2.0, 30.0, 90.0]))
    found = []
    for _ in range(count):
        dx, dy = draw(st.floats(-1, 1)), draw(st.floats(-1, 1))
        found.append((x + width * dx, clipped(y + width * dy)))
    return found


def haversines(p, x, y):
    radian = math.pi / 180
    across, along = np.sin((y - p[1]) * radian / 2), np.sin((x - p[0]) * radian / 2)
    h = across**2 + np.cos(y * radian) * math.cos(p[1] * radian) * along**2
    return 2 * geometry.RADIUS * np.arcsin(np.minimum(1, np.sqrt(h)))


def densified(p, a, b, sign):
    """The extreme over many points of an edge, then over many around the best."""
    low, high = 0.0, 1.0
    for size in (20_001, 2_001, 2_001):
        part = np.linspace(low, high, size)
        found = sign * haversines(p, a[0] + part * (b[0] - a[0]), a[1] + part * (b[1] - a[1]))
        k = int(found.argmin())
        low, high = part[max(k - 1, 0)], part[min(k + 1, size - 1)]
    return sign * float(found[k])


@settings(max_examples=scaled(60), deadline=None)
@given(points_near(3), st.sampled_from([1.0, -1.0]))
@example([(0.0, 60.0), (-40.0, 50.0), (40.0, 50.0)], 1.0)  # the middle of a parallel
@example([(0.0, 50.0), (-40.0, 50.0), (40.0, 50.0)], -1.0)
@example([(0.0, 89.9), (-170.0, 80.0), (170.0, 81.0)], 1.0)  # over a pole
def test_the_distance_to_an_edge_is_that_to_its_nearest_point(points, sign):
    p, a, b = points
    found = geometry.edge_extreme(*p, *a, *b, sign)
    assert found == pytest.approx(densified(p, a, b, sign), abs=MILLIMETRE)
    assert found == pytest.approx(plain.find_edge_extreme(p, (a, b), sign), abs=1e-6)


@settings(max_examples=scaled(20), deadline=None)
@given(points_near(4))
@example([(-40.0, 50.0), (40.0, 50.0), (-40.0, 55.0), (40.0, 61.0)])
@example([(0.0, -2.977286168611537e-44), (22.5, 0.0), (0.0, 30.0), (15.0, 0.0)])  # all but touching
def test_two_edges_may_be_nearest_within_both(points):
    a, b, c, d = points
    assume(a != b and c != d)
    first, second = places.ConvexHull((a, b)), places.ConvexHull((c, d))
    assume(not places.do_overlap(first, second, "earth"))
    low, high = np.zeros(2), np.ones(2)
    best = math.inf
    for _ in range(12):  # a grid over both edges, then a finer one around the best
        s, t = (np.linspace(low[k], high[k], 161) for k in (0, 1))
        x, y = a[0] + s * (b[0] - a[0]), a[1] + s * (b[1] - a[1])
        u, v = c[0] + t * (d[0] - c[0]), c[1] + t * (d[1] - c[1])
        grid = np.array([haversines((x[k], y[k]), u, v) for k in range(161)])
        i, j = np.unravel_index(grid.argmin(), grid.shape)
        best = min(best, float(grid[i, j]))
        middle, width = np.array([s[i], t[j]]), (high - low) / 10
        low, high = np.maximum(middle - width, 0), np.minimum(middle + width, 1)
    found = geometry.edge_distance(*a, *b, *c, *d)
    assert found == pytest.approx(best, abs=MILLIMETRE)
    assert geometry.box_distance(*a, *b, *c, *d) <= best
    assert found == pytest.approx(plain.compute_edge_distance((a, b), (c, d)), abs=1e-6)


def line(*corners):
    return np.array([x for x, _ in corners]), np.array([y for _, y in corners]), len(corners)


def test_places_meet_over_180_degrees():
    assert geometry.convex_overlap(*line((180.0, 1.0)), *line((-180.0, 1.0)), EARTH)
    bar = line((170.0, 0.0), (190.0, 0.0))
    assert geometry.convex_overlap(*bar, *line((-175.0, 0.0)), EARTH)
    assert geometry.convex_inside(*line((-172.0, 0.0), (-178.0, 0.0)), *bar, EARTH)
    assert not geometry.convex_overlap(*bar, *line((-169.0, 0.0)), EARTH)
    degree = 2 * math.pi * geometry.RADIUS / 360
    assert geometry.convex_distance(*bar, *line((-169.0, 0.0)), EARTH) == pytest.approx(degree)
    assert geometry.convex_distance(*line((359.0, 0.0)), *line((0.0, 0.0)), EARTH) == (pytest.approx(degree))


def test_a_pole_is_one_place_at_all_longitudes():
    north = line((17.0, 90.0))
    assert geometry.convex_distance(*north, *line((-120.0, 90.0)), EARTH) < MILLIMETRE
    degree = 2 * math.pi * geometry.RADIUS / 360
    assert geometry.convex_distance(*north, *line((100.0, 80.0)), EARTH) == pytest.approx(10 * degree)


def test_the_other_side_of_the_earth_is_half_a_turn_away():
    found = geometry.point_distance(10.0, 20.0, -170.0, -20.0, EARTH)
    assert found == pytest.approx(math.pi * geometry.RADIUS, abs=1)
