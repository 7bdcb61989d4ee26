"""Places in kernels: what plain Python in fractions says, and what Shapely says."""

import math
from fractions import Fraction

import numpy as np
import pytest
import shapely
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ensue.geo import geometry as places
from ensue.ir.subscription import SpatialRelation
from ensue.kernels import geometry, polygons
from ensue.kernels.geometry import EARTH, PLANE
from support.seeds import scaled

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

SPACES = {"plane": PLANE, "earth": EARTH}
WHERE = {SpatialRelation.INSIDE: 0, SpatialRelation.OVERLAP: 1, SpatialRelation.SAME: 2, SpatialRelation.DISTANCE: 3}
COMPARISONS = {"<": 0, "=": 1, ">": 2}

halves = st.integers(-6, 6).map(lambda k: k / 2)
tenths = st.integers(-30, 30).map(lambda k: k / 10)
ordinary = st.floats(-1e6, 1e6).map(lambda x: 0.0 if abs(x) < 1e-50 else x)

anywhere = st.tuples(ordinary, ordinary)


def points_of(numbers, most=6):
    return st.lists(st.tuples(numbers, numbers), min_size=1, max_size=most)


def arrays(place):
    xs = np.array([x for x, _ in place.corners], np.float64)
    ys = np.array([y for _, y in place.corners], np.float64)
    return xs, ys, len(xs)


def shaped(place):
    corners = place.corners
    if len(corners) == 1:
        return shapely.Point(corners[0])
    return shapely.LineString(corners) if len(corners) == 2 else shapely.Polygon(corners)


@settings(max_examples=scaled(120), deadline=None)
@given(anywhere, anywhere, st.floats(-1, 2), st.sampled_from([0.0, 1e-17, -1e-16, 1e-9]))
def test_the_side_of_a_line_is_exact_next_to_it(a, b, part, off):
    c = (a[0] + part * (b[0] - a[0]) + off, a[1] + part * (b[1] - a[1]))
    assert geometry.orientation(*a, *b, *c) == places.compute_orientation(a, b, c)
    assert geometry.orientation(*b, *a, *c) == -places.compute_orientation(a, b, c)


def test_the_side_of_a_line_is_exact_where_differences_round():
    assert geometry.orientation(0.1, 0.1, 0.2, 0.2, 0.3, 0.3) == 0
    assert geometry.orientation(0.1, 0.1, 0.2, 0.2, 0.3, 0.1 + 0.2) == 1
    assert geometry.orientation(0.0, 0.0, 1e16, 1.0, 2e16, 2.0) == 0
    assert geometry.orientation(1e-30, 0.0, 1e16, 1.0, 2e16, 2.0) == -1


@settings(max_examples=scaled(40), deadline=None)
@given(st.lists(st.tuples(ordinary, ordinary), min_size=3, max_size=3), *[st.tuples(ordinary, ordinary)] * 2)
def test_the_side_of_a_mean_is_exact(three, a, b):
    (px, py), (qx, qy), (rx, ry) = three
    mean = tuple(sum(Fraction(p[axis]) for p in three) / 3 for axis in (0, 1))
    found = polygons.side_of_mean(*a, *b, px, py, qx, qy, rx, ry)
    assert found == places.compute_orientation(a, b, mean)
    against = polygons.compare_mean(px, qx, rx, a[0])
    assert against == (mean[0] > Fraction(a[0])) - (mean[0] < Fraction(a[0]))


@settings(max_examples=scaled(80), deadline=None)
@given(points_of(halves, 12) | points_of(tenths, 12) | points_of(ordinary, 12))
@example([(0.0, 0.0)] * 3)
@example([(0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (0.5, 0.5)])
@example([(1.0, 0.0), (0.0, 0.0)])
def test_a_hull_is_that_of_plain_python(points):
    xs, ys = (np.array(column) for column in zip(*points, strict=True))
    out_x, out_y = np.empty(len(xs)), np.empty(len(xs))
    m = geometry.hull(xs, ys, len(xs), out_x, out_y)
    assert tuple(zip(out_x[:m], out_y[:m], strict=True)) == places.build_hull(points).corners


@settings(max_examples=scaled(120), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=3, max_size=6))
@example([(0, 2), (3, 2), (1, 0), (2, 3), (3, 0)])
@example([(0, 0), (2, 0), (2, 2), (0, 2)] * 2)  # twice round
def test_a_ring_is_convex_if_it_is_its_own_hull(ring):
    xs, ys = (np.array(column, np.float64) for column in zip(*ring, strict=True))
    hull = list(places.build_hull(ring).corners)

    def turned(corners):
        k = corners.index(hull[0]) if hull[0] in corners else 0
        return corners[k:] + corners[:k] == hull

    wanted = 0 if len(hull) < 3 else 1 if turned(ring) else -1 if turned(ring[::-1]) else 0
    assert geometry.find_convex_side(xs, ys, len(xs)) == wanted


def test_a_hull_of_nothing_has_no_corner():
    nothing = np.empty(0)
    assert geometry.hull(nothing, nothing, 0, nothing, nothing) == 0


@settings(max_examples=scaled(120), deadline=None)
@given(points_of(halves), points_of(halves))
@example([(0.0, 0.0), (2.0, 0.0)], [(1.0, 0.0), (3.0, 0.0)])  # on one line, one within the other
@example([(0.0, 0.0), (1.0, 0.0)], [(2.0, 0.0), (3.0, 0.0)])
@example([(-3.0, 0.0), (3.0, 1.0), (3.0, 0.0)], [(0.0, -3.0), (1.0, 3.0), (1.0, -3.0)])  # bars
def test_places_lie_as_plain_python_and_shapely_say(first, second):
    p, q = places.build_hull(first), places.build_hull(second)
    a, b = arrays(p), arrays(q)
    overlap = geometry.convex_overlap(*a, *b, PLANE)
    assert overlap == places.do_overlap(p, q) == shapely.intersects(shaped(p), shaped(q))
    inside = geometry.convex_inside(*b, *a, PLANE)
    assert inside == places.is_inside(q, p) == shapely.covers(shaped(p), shaped(q))
    distance = geometry.convex_distance(*a, *b, PLANE)
    assert distance == places.compute_distance(p, q)
    assert math.isclose(distance, shapely.distance(shaped(p), shaped(q)), abs_tol=1e-12)
    assert (distance == 0.0) == overlap
    centre = geometry.centre(*a)
    assert centre == places.compute_centroid(p)
    assert shapely.dwithin(shapely.Point(centre), shapely.centroid(shaped(p)), 1e-12)


@settings(max_examples=scaled(60), deadline=None)
@given(points_of(tenths) | points_of(ordinary), points_of(tenths) | points_of(ordinary))
def test_places_off_the_grid_lie_as_plain_python_says(first, second):
    p, q = places.build_hull(first), places.build_hull([*second, first[0]])
    a, b = arrays(p), arrays(q)
    assert geometry.convex_overlap(*a, *b, PLANE)
    assert geometry.convex_distance(*a, *b, PLANE) == 0.0
    assert geometry.convex_inside(*b, *a, PLANE) == places.is_inside(q, p)


@settings(max_examples=scaled(80), deadline=None)
@given(
    points_of(halves, 4),
    points_of(halves, 4),
    st.sampled_from(list(SpatialRelation)),
    st.sampled_from("<=>"),
    st.sampled_from([0.0, 0.5, 1.0, 2.0, 111195.0797]),
    st.sampled_from(["plane", "earth"]),
)
def test_one_test_of_two_places(first, second, where, comparison, number, space):
    p, q = places.build_hull(first), places.build_hull(second)
    found = geometry.passes_place_test(
        WHERE[where], COMPARISONS[comparison], number, 0.5, *arrays(p), *arrays(q), SPACES[space]
    )
    assert found == places.evaluate_relation(where, p, q, comparison, number, 0.5, space)


def test_no_place_passes_no_test():
    point, none = (np.zeros(1), np.zeros(1), 1), (np.zeros(0), np.zeros(0), 0)
    for where in range(4):
        for comparison in range(3):
            for a, b in ((point, none), (none, point), (none, none)):
                assert not geometry.passes_place_test(where, comparison, 1e9, 1e9, *a, *b, PLANE)
    assert math.isinf(geometry.convex_distance(*point, *none, PLANE))
