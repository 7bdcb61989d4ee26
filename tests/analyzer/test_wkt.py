"""WKT and WKB as databases write them."""

import pytest
import shapely

from ensue.errors import EventError, QueryError
from ensue.functions import LOCATION, call_function
from ensue.geo.geometry import build_hull
from ensue.geo.wkt import Circle, Points, Polygons, convert_shapely, format_wkt, read_wkt

TEXTS = (
    "POINT (1 2)", "POINT Z (1 2 3)", "LINESTRING (0 0, 1 1, 2 0)", "POINT EMPTY",
    "POLYGON ((0 0, 4 0, 4 4, 0 0), (1 0.5, 2 0.5, 2 1, 1 0.5))",
    "POLYGON Z ((0 0 1, 1 0 2, 1 1 3, 0 0 1))",
    "MULTIPOINT (1 1, 2 2)", "MULTILINESTRING ((0 0, 1 1), (2 2, 3 3))",
    "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5 5)))",
    "GEOMETRYCOLLECTION (POINT (1 2), LINESTRING (3 4, 5 6))",
)  # fmt: skip


@pytest.mark.parametrize("flavor", ["iso", "extended"])
@pytest.mark.parametrize("text", TEXTS)
def test_a_location_is_the_hull_of_all_points_of_a_geometry(text, flavor):
    shape = shapely.from_wkt(text)
    if flavor == "extended":
        shape = shapely.set_srid(shape, 4326)
    data = shapely.to_wkb(shape, flavor=flavor, include_srid=flavor != "iso")
    expected = build_hull(map(tuple, shapely.get_coordinates(shape).tolist()))
    assert call_function(LOCATION, (data,)) == expected
    assert call_function(LOCATION, (text,)) == expected


@pytest.mark.parametrize(
    "location", [b"", b"\x02" + bytes(20), "", "here", "CIRCLE (1 2, 3)", "CIRCULARSTRING (0 0, 1 1, 2 0)"]
)
def test_a_location_that_cannot_be_read_is_named(location):
    with pytest.raises(EventError) as raised:
        call_function(LOCATION, (location,))
    assert f"a location cannot be read: {location!r}"[:60] in str(raised.value)


def test_rings_are_closed_and_empty_parts_left_out():
    assert read_wkt("POLYGON ((0 0, 1 0, 1 1))") == read_wkt("POLYGON ((0 0, 1 0, 1 1, 0 0))")
    assert read_wkt("MULTIPOLYGON (EMPTY)") == Polygons(())
    assert read_wkt("LINESTRING EMPTY") == Points(())


@pytest.mark.parametrize("x", [0.06482028045623743, 1 / 3, 1e-300, 1.49231e16, 1e100, -0.25])
def test_coordinates_are_written_and_read_exactly(x):
    for geometry in (Points(((x, 0.0),)), Circle(x, 0.0, 1.0)):
        assert read_wkt(format_wkt(geometry)) == geometry
    assert convert_shapely(shapely.Point(x, 0.0)) == Points(((x, 0.0),))


@pytest.mark.parametrize("text", ["CIRCLE (1_0 2, 3)", "CIRCLE 1 2, 3", "CIRCLE EMPTY", "CIRCLE (a b, c)"])
def test_what_is_no_circle_is_refused(text):
    with pytest.raises(QueryError, match=r"a circle is 'CIRCLE \(x y, radius\)'"):
        read_wkt(text)
