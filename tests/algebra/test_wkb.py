"""WKB as databases write it, read without Shapely."""

import pytest
import shapely

from ensue.algebra.wkb import read_wkb
from ensue.errors import QueryError

TEXTS = (
    "POINT (1 2)", "POINT Z (1 2 3)", "LINESTRING (0 0, 1 1, 2 0)", "POINT EMPTY",
    "POLYGON ((0 0, 4 0, 4 4, 0 0), (1 0.5, 2 0.5, 2 1, 1 0.5))",
    "POLYGON Z ((0 0 1, 1 0 2, 1 1 3, 0 0 1))",
    "MULTIPOINT (1 1, 2 2)", "MULTILINESTRING ((0 0, 1 1), (2 2, 3 3))",
    "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5 5)))",
    "GEOMETRYCOLLECTION (POINT (1 2), LINESTRING (3 4, 5 6))",
)  # fmt: skip


@pytest.mark.parametrize("flavor", ["iso", "extended"])
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("text", TEXTS)
def test_all_points_of_a_geometry_are_read(text, order, flavor):
    shape = shapely.from_wkt(text)
    if flavor == "extended":
        shape = shapely.set_srid(shape, 4326)
    data = shapely.to_wkb(shape, byte_order=order, flavor=flavor, include_srid=flavor != "iso")
    expected = tuple(map(tuple, shapely.get_coordinates(shape).tolist()))
    assert read_wkb(data).points == expected


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "end too early"),
        (b"\x01\x01\x00\x00\x00\x00", "end too early"),
        (b"\x02" + bytes(20), "not WKB"),
        (b"\x01\x63\x00\x00\x00" + bytes(16), "not WKB"),
        (shapely.to_wkb(shapely.Point(1, 2)) + b"!", "after its end"),
        (b"\x01\x02\x00\x00\x00\xff\xff\xff\xff", "end too early"),
    ],
)
def test_what_is_no_wkb_is_refused(data, problem):
    with pytest.raises(QueryError, match=problem):
        read_wkb(data)
