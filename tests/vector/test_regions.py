"""Regions as rows: shared, released, saved, and refused with a reason."""

import math
import random

import numpy as np
import pytest
import shapely

import ensue
from ensue.errors import QueryError, Span
from ensue.ir.subscription import Region
from ensue.kernels.geometry import PLANE
from ensue.kernels.regions import region_inside
from ensue.vector.geo_regions import Regions, normalize_region


def box(x, y, size=1):
    return normalize_region(shapely.box(x, y, x + size, y + size))


def holds(regions, row, x, y):
    point = np.array([float(x)]), np.array([float(y)]), 1
    return bool(region_inside(regions.table, row, *point, PLANE))


def test_equal_texts_are_one_region():
    regions = Regions()
    first, again = regions.add(Region(box(0, 0))), regions.add(Region(box(0, 0), name="Depot"))
    other = regions.add(Region(box(5, 5)))
    assert first == again != other
    assert len(regions) == 2
    regions.release(first)
    assert holds(regions, first, 0.5, 0.5)
    regions.release(first)
    assert not holds(regions, first, 0.5, 0.5)
    assert len(regions) == 1
    assert regions.add(Region(box(9, 9))) == first


def test_regions_come_and_go_in_any_order(tmp_path):
    chance = random.Random(3)
    regions, there = Regions(), {}
    for step in range(3000):
        if there and chance.random() < 0.5:
            row = chance.choice(sorted(there))
            regions.release(row)
            del there[row]
        else:
            x = step * 3
            there[regions.add(Region(box(x, 0, 2)))] = x
        if step == 1500:
            regions.save(tmp_path / "kept")
            regions = Regions.open(tmp_path / "kept")
    assert len(regions) == len(there)
    for row, x in there.items():
        assert holds(regions, row, x + 1, 1)
        assert not holds(regions, row, x + 2.5, 1)
        assert regions.text(row) == box(x, 0, 2)
    assert len(regions.arrays()["corners"]) < 4 * 6 * len(there) + 1024


def test_regions_of_any_size_come_and_go():
    chance = random.Random(4)
    regions, there = Regions(), {}
    for step in range(600):
        if there and chance.random() < 0.55:
            row = chance.choice(sorted(there))
            regions.release(row)
            del there[row]
        else:
            size = chance.randint(3, 40)
            turns = [2 * math.pi * k / size for k in range(size)]
            ring = [(step * 3 + math.cos(turn), math.sin(turn)) for turn in turns]
            there[regions.add(Region(normalize_region(ring)))] = step * 3
    for row, x in there.items():
        assert holds(regions, row, x, 0)
        assert not holds(regions, row, x + 2, 0)


def test_what_was_opened_is_mapped_and_changes_stay_here(tmp_path):
    regions = Regions("earth")
    circle = regions.add(Region("CIRCLE (8.5 47.4, 300)"))
    square = regions.add(Region(box(0, 0)))
    regions.save(tmp_path)
    opened = Regions.open(tmp_path, "earth")
    assert isinstance(opened.table.rows.base, np.memmap)
    np.testing.assert_array_equal(opened.table.rows, regions.table.rows[:2])
    assert opened.add(Region("CIRCLE (8.5 47.4, 300)")) == circle
    opened.release(square)
    assert len(Regions.open(tmp_path, "earth")) == 2
    for name, array in opened.arrays().items():
        again = Regions.from_arrays("earth", opened.arrays()).arrays()[name]
        np.testing.assert_array_equal(array, again)


def test_no_regions_can_be_saved(tmp_path):
    Regions().save(tmp_path)
    opened = Regions.open(tmp_path)
    assert len(opened) == 0
    assert opened.add(Region(box(0, 0))) == 0


def test_rings_run_around_their_inside():
    text = "POLYGON ((0 0, 0 9, 9 9, 9 0, 0 0), (2 2, 4 2, 4 4, 4 4, 2 4, 2 2))"
    regions = Regions()
    regions.add(Region(text))
    corners = regions.table.corners
    assert corners[0].tolist() == [5, 0]
    assert corners[6].tolist() == [5, 1]  # the repeated corner is gone
    assert shapely.is_ccw(shapely.LinearRing(corners[1:6]))
    assert not shapely.is_ccw(shapely.LinearRing(corners[7:12]))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0))", r"its edges cross at \(1 1\)"),
        ("POLYGON ((0 0, 1 1, 0 0))", "a ring has 2 corners"),
        ("POLYGON ((0 0, 1 1, 2 2, 0 0))", "its edges cross|its area is 0"),
        ("POLYGON ((0 0, nan 1, 2 2, 0 0))", r"the corner \(nan 1\) is not a number"),
        ("POLYGON ((0 0, 1 inf, 2 2, 0 0))", r"the corner \(1 inf\) is not a number"),
        ("CIRCLE (nan 0, 3)", r"the corner \(nan 0\) is not a number"),
        ("POLYGON EMPTY", "it is empty"),
        ("CIRCLE (0 0, 0)", "the radius 0 is not positive"),
        ("CIRCLE (0 0, -3)", "the radius -3 is not positive"),
        ("CIRCLE (0 0, nan)", "the radius nan is not positive"),
        ("POINT (1 2)", "it has no area"),
        ("POLYGON ((0 0, 1, 2 2, 0 0))", "expected number but encountered ','"),
        ("POLYGON ((0 0, 1 1, 2 0, 0 0)) POINT (1 1)", "unexpected text after end of geometry"),
        ("POLYGON 0 0, 1 1", "expected word but encountered number: '0'"),
        ("17", "a geometry cannot be read: expected word but encountered number: '17'"),
        ("CIRCLE (1 2)", "a circle is 'CIRCLE"),
        ("CIRCLE (1 2, 3, 4)", "a circle is 'CIRCLE"),
        ("POINT (1 2, 3 4)", "point coordinate list must contain a single element"),
        ("SQUARE (1 2)", "'SQUARE' is not a supported geometry"),
        ("POLYGON ((0 0, 1 1, 2 2", "cannot be read: expected word but encountered end"),
        ("POLYGON ((0 0, 1 1; 2 2))", "expected number but encountered word: '1;'"),
        ("POLYGON ((0 0, 9 0, 9 9, 0 0), (20 20, 21 20, 21 21, 20 20))", "a hole lies outside"),
        ("MULTIPOLYGON (((0 0, 9 0, 9 9, 0 0)), ((2 1, 8 1, 8 7, 2 1)))", "a polygon lies in another one"),
    ],
)
def test_what_is_no_region_is_refused_with_a_reason(text, problem):
    span = Span(3, 9)
    with pytest.raises(QueryError, match=problem) as caught:
        Regions().add(Region(text, name="Depot", span=span))
    assert caught.value.problem.startswith("region 'Depot': ")
    assert caught.value.span == span


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("CIRCLE (8 91, 3)", r"the corner \(8 91\) is not on the earth"),
        ("POLYGON ((0 0, 361 0, 361 5, 0 0))", r"the corner \(361 0\) is not on the earth"),
        ("POLYGON ((0 80, 120 80, -120 80, 0 80))", "its border goes around a pole"),
    ],
)
def test_what_is_not_on_the_earth_is_refused(text, problem):
    with pytest.raises(QueryError, match=problem):
        Regions("earth").add(Region(text))


def test_a_region_has_at_most_ten_thousand_corners():
    turns = [2 * math.pi * k / 10_001 for k in range(10_001)]
    ring = [(math.cos(turn), math.sin(turn)) for turn in turns]
    with pytest.raises(QueryError, match="10,002 corners, more than 10,000") as caught:
        Regions().add(Region(normalize_region(ring)))
    assert "simplify" in caught.value.hint
    assert Regions().add(Region(normalize_region(ring[:-3]))) == 0


def test_a_refused_region_leaves_nothing_behind():
    regions = Regions()
    with pytest.raises(QueryError):
        regions.add(Region("CIRCLE (0 0, -3)"))
    assert len(regions) == 0
    assert regions.add(Region(box(0, 0))) == 0


def test_regions_of_calls_have_one_spelling():
    square = "POLYGON ((0 0, 2 0, 2 2, 0 0))"
    assert normalize_region("polygon((0 0,2.0 0,2 2,0 0))") == square
    assert normalize_region(shapely.from_wkt(square)) == square
    exact = square.replace("2 2", "2 0.06482028045623743")
    assert normalize_region(shapely.from_wkt(exact)) == exact
    assert normalize_region([(0, 0), (2, 0), (2, 2)]) == square
    assert normalize_region(np.array([(0, 0), (2, 0), (2, 2), (0, 0)])) == square
    assert normalize_region("circle(1 -0.0,2e0)") == "CIRCLE (1 0, 2)"
    third = normalize_region([(1 / 3, 0), (2, 0), (2, 2)])
    assert shapely.from_wkt(third).exterior.coords[0][0] == 1 / 3
    with pytest.raises(QueryError, match="is not a region"):
        normalize_region(17)


def test_a_set_of_subscriptions_refuses_them_when_they_are_given():
    fleet = ensue.Subscriptions(time="t", location=("x", "y"))
    text = "@(POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0)))(ARITH:id = 7)"
    with pytest.raises(QueryError, match=r"'here': a region: its edges cross at \(1 1\)") as caught:
        fleet.add("here", text)
    assert caught.value.span.over(text).startswith("POLYGON ((0 0, 2 2")
    with pytest.raises(QueryError, match="region 'Depot': the radius -1 is not positive"):
        fleet.add("here", "@(Depot)(ARITH:id = 7)", regions={"Depot": "CIRCLE (0 0, -1)"})
    assert list(fleet) == []
