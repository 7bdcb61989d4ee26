"""Regions in kernels: what plain Python in fractions says, and what Shapely says."""

import math

import numpy as np
import pytest
import shapely
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from ensue.geo import geometry as places
from ensue.ir.subscription import Region, SpatialRelation
from ensue.kernels import regions
from ensue.kernels.geometry import EARTH, PLANE
from ensue.vector.geo_regions import Regions, normalize_region
from support.seeds import scaled

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

SPACES = {"plane": PLANE, "earth": EARTH}
WHERE = {SpatialRelation.INSIDE: 0, SpatialRelation.OVERLAP: 1, SpatialRelation.SAME: 2, SpatialRelation.DISTANCE: 3}
COMPARISONS = {"<": 0, "=": 1, ">": 2}

coordinates = st.integers(0, 6)
corners = st.tuples(coordinates, coordinates)
halves = st.integers(-1, 13).map(lambda k: k / 2)
place_points = st.lists(st.tuples(halves, halves), min_size=1, max_size=4)


@st.composite
def polygons(draw):
    """Boxes and triangles on a grid, added to and taken from each other."""
    found = shapely.Polygon()
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.integers(0, 3)):
            (x0, y0), (x1, y1) = draw(corners), draw(corners)
            piece = shapely.box(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
        else:
            piece = shapely.Polygon([draw(corners) for _ in range(3)])
        found = found.difference(piece) if draw(st.integers(0, 2)) == 0 else found.union(piece)
    parts = [p for p in shapely.get_parts(found) if p.geom_type == "Polygon" and p.area > 0]
    assume(parts)
    found = shapely.MultiPolygon(parts)
    assume(np.all(shapely.get_coordinates(found) * 2 % 1 == 0))  # else crossings are rounded
    assume(shapely.is_valid(found))
    return found if len(parts) > 1 else parts[0]


def table_of(text, space="plane"):
    found = Regions(space)
    found.add(Region(text))
    return found.table


def arrays(place):
    xs = np.array([x for x, _ in place.corners], np.float64)
    ys = np.array([y for _, y in place.corners], np.float64)
    return xs, ys, len(xs)


def shaped(place):
    found = place.corners
    if len(found) == 1:
        return shapely.Point(found[0])
    return shapely.LineString(found) if len(found) == 2 else shapely.Polygon(found)


@settings(max_examples=scaled(120), deadline=None)
@given(polygons(), place_points)
@example(shapely.box(0, 0, 6, 6) - shapely.box(2, 2, 4, 4), [(2, 2), (4, 2), (4, 4), (2, 4)])
@example(shapely.box(0, 0, 6, 6) - shapely.box(2, 2, 4, 4), [(1, 1), (5, 1), (5, 5), (1, 5)])
@example(shapely.box(0, 0, 6, 6) - shapely.box(2, 2, 4, 4), [(0, 2), (6, 2)])  # along a border
@example(shapely.Polygon([(0, 0), (3, 1), (6, 0), (6, 6), (0, 6)]), [(0, 0), (6, 0)])
@example(shapely.Polygon([(0, 0), (6, 0), (6, 6), (3, 1), (0, 6)]), [(2, 2), (4, 2)])
@example(shapely.box(0, 0, 2, 2) | shapely.box(2, 2, 4, 4), [(1, 1), (3, 3)])  # through a corner
def test_places_lie_in_polygons_as_plain_python_and_shapely_say(region, points):
    text = normalize_region(region)
    table, shape = table_of(text), places.parse_region(text)
    place = places.build_hull([(float(x), float(y)) for x, y in points])
    q, judge = arrays(place), shaped(place)
    inside = regions.region_inside(table, 0, *q, PLANE)
    assert inside == places.is_inside(place, shape) == shapely.covers(region, judge)
    overlap = regions.region_overlap(table, 0, *q, PLANE)
    assert overlap == places.do_overlap(shape, place) == shapely.intersects(region, judge)
    distance = regions.region_distance(table, 0, *q, PLANE)
    assert distance == places.compute_distance(shape, place)
    assert math.isclose(distance, shapely.distance(region, judge), abs_tol=1e-12)
    x, y = places.compute_centroid(shape)
    assert shapely.dwithin(shapely.Point(x, y), shapely.centroid(region), 1e-12)
    assert tuple(table.rows[0, 5:7]) == (x, y)


@pytest.mark.parametrize("points", [[(1.0, 1.0), (2.0, 1.0)], [(1.0, 1.0), (3.0, 1.0), (2.0, 2.0)]])
@pytest.mark.parametrize("inner", ["", ", (1 1, 1 1, 1 2, 2 2, 1 1)"])
def test_a_repeated_corner_changes_nothing(points, inner):
    text = f"POLYGON ((0 0, 6 0, 6 0, 6 6, 0 6, 0 0){inner})"
    shape, place = places.parse_region(text), places.build_hull(points)
    table, q = table_of(text), arrays(place)
    assert places.is_inside(place, shape) == regions.region_inside(table, 0, *q, PLANE)
    assert places.compute_distance(shape, place) == regions.region_distance(table, 0, *q, PLANE) == 0


def passes(table, where, comparison, number, q, space):
    code = COMPARISONS[comparison]
    return regions.region_test(table, 0, WHERE[where], code, number, 0.5, *q, SPACES[space])


tests = (
    st.sampled_from(list(SpatialRelation)),
    st.sampled_from("<=>"),
    st.sampled_from([0.0, 0.5, 1.0, 2.0, 111_195.0, 500_000.0]),
)


@settings(max_examples=scaled(80), deadline=None)
@given(polygons(), place_points, *tests, st.sampled_from(["plane", "earth"]))
def test_one_test_of_a_polygon(region, points, where, comparison, number, space):
    text = normalize_region(region)
    place = places.build_hull(points)
    found = passes(table_of(text, space), where, comparison, number, arrays(place), space)
    shape = places.parse_region(text, space)
    assert found == places.evaluate_relation(where, shape, place, comparison, number, 0.5, space)


@settings(max_examples=scaled(80), deadline=None)
@given(
    st.tuples(halves, halves, st.sampled_from([0.5, 1.0, 2.5, 5.0])),
    place_points,
    *tests,
    st.sampled_from(["plane", "earth"]),
)
@example((0.0, 0.0, 5.0), [(3.0, 4.0)], SpatialRelation.INSIDE, "<", 0.0, "plane")  # on its border
@example((0.0, 0.0, 5.0), [(5.0, -1.0), (5.0, 1.0)], SpatialRelation.OVERLAP, "<", 0.0, "plane")
def test_one_test_of_a_circle(circle, points, where, comparison, number, space):
    x, y, radius = circle
    text = f"CIRCLE ({x} {y}, {radius * (100_000 if space == 'earth' else 1)})"
    place = places.build_hull(points)
    found = passes(table_of(text, space), where, comparison, number, arrays(place), space)
    shape = places.parse_region(text, space)
    assert found == places.evaluate_relation(where, shape, place, comparison, number, 0.5, space)


def test_a_circle_holds_its_border():
    circle = table_of("CIRCLE (0 0, 5)")
    for x, y in [(3.0, 4.0), (0.0, -5.0)]:
        point = np.array([x]), np.array([y]), 1
        assert regions.region_inside(circle, 0, *point, PLANE)
    assert not regions.region_inside(circle, 0, np.array([3.0]), np.array([4.0000001]), 1, PLANE)


# ------------------------------------------------------------------------------ the earth


@st.composite
def earth_boxes(draw):
    """Boxes in degrees, over 180 degrees and at poles too, and circles."""
    x, y = draw(st.integers(-180, 180)), draw(st.integers(-90, 85))
    if draw(st.booleans()):
        return f"CIRCLE ({x} {y}, {draw(st.sampled_from([1000, 300_000, 3_000_000, 12_000_000]))})"
    wide, high = draw(st.sampled_from([1, 5, 60, 170])), draw(st.integers(1, 5))
    ring = [(x, y), (x + wide, y), (x + wide, y + high), (x, y + high)]
    if draw(st.booleans()):  # the same corners in longitudes from -180 to 180
        ring = [((a + 180) % 360 - 180, b) for a, b in ring]
    return normalize_region([(a, b) for a, b in ring if a <= 360])


@st.composite
def earth_points(draw, most=3):
    x, y = draw(st.integers(-180, 180)), draw(st.integers(-90, 90))
    near = st.tuples(st.integers(-6, 6), st.integers(-6, 6))
    steps = draw(st.lists(near, max_size=most - 1))
    found = [(x + a, max(-90, min(90, y + b))) for a, b in steps]
    return [(float(a), float(b)) for a, b in [(x, y), *found]]


@settings(max_examples=scaled(100), deadline=None)
@given(
    earth_boxes(),
    earth_points(),
    st.sampled_from([SpatialRelation.INSIDE, SpatialRelation.OVERLAP, SpatialRelation.SAME, SpatialRelation.DISTANCE]),
    st.sampled_from("<=>"),
    st.sampled_from([1000.0, 400_000.0, 5_000_000.0]),
)
def test_the_earth_is_tested_as_plain_python_says(text, points, where, comparison, number):
    place = places.build_hull(points)
    table = table_of(text, "earth")
    q = arrays(place)
    wanted = places.evaluate_relation(
        where, places.parse_region(text, "earth"), place, comparison, number, 0.5, "earth"
    )
    for turn in (0.0, 360.0, -360.0):
        found = passes(table, where, comparison, number, (q[0] + turn, *q[1:]), "earth")
        assert found == wanted


@st.composite
def near_ones(draw):
    """A region and a place that may well be in it."""
    if draw(st.booleans()):
        return (normalize_region(draw(polygons())), draw(place_points), draw(st.sampled_from(list(SPACES))))
    text = draw(earth_boxes())
    box = table_of(text, "earth").rows[0, 1:5]
    x = draw(st.floats(box[0] - 5, box[2] + 5))
    y = draw(st.floats(max(box[1] - 5, -90), min(box[3] + 5, 90)))
    return text, [((x + 180) % 360 - 180, y)], "earth"


@settings(max_examples=scaled(60), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(near_ones(), *tests)
def test_all_that_passes_meets_the_box(near, where, comparison, number):
    text, points, space = near
    table = table_of(text, space)
    place = places.build_hull(points)
    assume(passes(table, where, comparison, number, arrays(place), space))
    left, below, right, above = regions.region_box(
        table, 0, WHERE[where], COMPARISONS[comparison], number, 0.5, SPACES[space]
    )
    xs, ys = zip(*place.corners, strict=True)
    assert min(ys) <= above
    assert max(ys) >= below
    beyond = max(xs) > 180 or min(xs) < -180
    assert (space == "earth" and beyond) or (min(xs) <= right and max(xs) >= left)


def inside(text, *points):
    place = places.build_hull(points)
    found = regions.region_inside(table_of(text, "earth"), 0, *arrays(place), EARTH)
    assert found == places.is_inside(place, places.parse_region(text, "earth"), "earth")
    return found


CUT = """MULTIPOLYGON (((170 0, 180 0, 180 10, 170 10, 170 0)),
    ((-180 0, -170 0, -170 10, -180 10, -180 0)))"""


@pytest.mark.parametrize(
    "text",
    [
        "POLYGON ((170 0, 190 0, 190 10, 170 10, 170 0))",  # longitudes beyond 180
        "POLYGON ((170 0, -170 0, -170 10, 170 10, 170 0))",  # the short way
        CUT,
    ],
)
def test_a_region_over_180_degrees_has_no_seam(text):
    assert inside(text, (175.0, 5.0))
    assert inside(text, (-175.0, 5.0))
    assert inside(text, (180.0, 5.0))
    assert inside(text, (-180.0, 5.0))
    assert inside(text, (-170.0, 10.0))
    assert not inside(text, (-169.9, 5.0))
    assert not inside(text, (0.0, 5.0))
    assert inside(text, (179.0, 1.0), (181.0, 1.0), (180.0, 9.0))
    assert inside(text, (-179.0, 1.0), (-181.0, 2.0))
    assert not inside(text, (179.0, 1.0), (191.0, 1.0))
    assert places.compute_centroid(places.parse_region(text, "earth"), "earth") == (180.0, 5.0)
    assert tuple(table_of(text, "earth").rows[0, 5:7]) == (180.0, 5.0)


def test_a_cap_goes_all_the_way_round():
    cap = "POLYGON ((-180 60, 180 60, 180 90, -180 90, -180 60))"
    assert inside(cap, (0.0, 60.0))
    assert inside(cap, (180.0, 75.0), (190.0, 80.0))
    assert inside(cap, (175.0, 75.0), (185.0, 75.0), (180.0, 88.0))
    assert not inside(cap, (175.0, 75.0), (185.0, 59.0))


def test_a_circle_around_a_pole():
    circle = "CIRCLE (0 90, 1200000)"
    assert inside(circle, (10.0, 80.0))
    assert inside(circle, (-170.0, 80.0))
    assert not inside(circle, (-170.0, 79.0))
    left, below, right, above = regions.region_box(table_of(circle, "earth"), 0, 0, 0, 0.0, 0.0, EARTH)
    assert (left, right, above) == (-180.0, 180.0, 90.0)
    assert 79 < below < 80


def test_an_edge_leaves_a_circle_that_holds_its_ends():
    circle = "CIRCLE (180 0, 10950000)"
    assert inside(circle, (-40.0, 80.0))
    assert inside(circle, (40.0, 80.0))
    assert not inside(circle, (0.0, 80.0))
    assert not inside(circle, (-40.0, 80.0), (40.0, 80.0))
    assert inside("CIRCLE (180 0, 20100000)", (-40.0, 80.0), (40.0, 80.0))  # the whole earth


def test_no_place_passes_no_test():
    table, none = table_of("CIRCLE (0 0, 5)"), (np.zeros(0), np.zeros(0), 0)
    for where in range(4):
        for comparison in range(3):
            assert not regions.region_test(table, 0, where, comparison, 1e9, 1e9, *none, PLANE)
    assert math.isinf(regions.region_distance(table, 0, *none, PLANE))
    assert math.isinf(regions.region_centre_distance(table, 0, *none, PLANE))
