"""A match happened where its members did: in the convex hull of their locations."""

import pyarrow as pa
import pytest
import shapely

import ensue
from ensue.errors import EventError

pytestmark = pytest.mark.stateless

EVENTS = pa.table(
    {"t": [1, 2, 3, 4], "type": ["A", "B", "B", "C"], "place": ["POINT (0 0)", "POINT (4 0)", "POINT (4 4)", None]}
)
QUERY = "SEQ(A a, B+ b[], C c) WHERE partition_contiguity(a, b[], c) {} RETURN count(b) AS n"


@pytest.mark.everywhere
def test_the_location_is_the_hull_of_the_members(runner):
    (match,) = runner.match(EVENTS, QUERY, time="t", type="type", location="place").to_pylist()
    expected = shapely.from_wkt("POLYGON ((0 0, 4 4, 4 0, 0 0))")
    assert shapely.from_wkt(match["location"]).equals(expected)


def test_places_as_bytes_give_a_hull_as_bytes(runner):
    wkb = [None if p is None else shapely.to_wkb(shapely.from_wkt(p)) for p in EVENTS["place"].to_pylist()]
    events = EVENTS.set_column(2, "place", pa.array(wkb, pa.binary()))
    (match,) = runner.match(events, QUERY, time="t", type="type", location="place").to_pylist()
    assert shapely.from_wkb(match["location"]).area == 8


def test_a_match_of_events_without_place_has_none(runner):
    (match,) = runner.match(EVENTS, "SEQ(C c)", time="t", type="type", location="place").to_pylist()
    assert match["location"] is None


def test_a_location_that_cannot_be_read_is_named(runner):
    events = EVENTS.set_column(2, "place", pa.array(["here"] * 4))
    with pytest.raises(EventError, match="location cannot be read"):
        runner.match(events, QUERY, time="t", type="type", location="place")


def test_the_column_must_be_there_and_hold_places(runner):
    with pytest.raises(EventError, match="did you mean 'place'"):
        runner.match(EVENTS, QUERY, time="t", type="type", location="plac")
    with pytest.raises(EventError, match="WKT"):
        runner.match(EVENTS, QUERY, time="t", type="type", location="t")


@pytest.mark.everywhere
def test_two_columns_of_numbers_are_a_place(runner):
    events = EVENTS.append_column("x", pa.array([0.0, 4.0, 4.0, None]))
    events = events.append_column("y", pa.array([0, 0, 4, 7]))
    (match,) = runner.match(events, QUERY, time="t", type="type", location=("x", "y")).to_pylist()
    assert match["location"] == "POLYGON ((0 0, 4 0, 4 4, 0 0))"
    (match,) = runner.match(events, "SEQ(A a)", time="t", type="type", location=("x", "y")).to_pylist()
    assert match["location"] == "POINT (0 0)"


def test_on_the_earth_a_match_may_lie_over_180_degrees(runner):
    events = pa.table({"t": [1, 2], "type": ["A", "B"], "lon": [179.0, -179.0], "lat": [1, 2]})
    (match,) = runner.match(
        events, "SEQ(A a, B b)", time="t", type="type", location=ensue.Location("lon", "lat", space="earth")
    ).to_pylist()
    assert match["location"] == "LINESTRING (179 1, 181 2)"


def test_complex_events_are_where_their_members_are():
    events = pa.table({"t": [1, 2, 3], "type": list("ABC"), "x": [0.0, 4.0, 4.0], "y": [0.0, 0.0, 4.0]})
    query = """EVENT Pair AS SEQ(A a, B b) WITHIN 5 RETURN a.t AS t0;
        SEQ(Pair p, C c) WITHIN 5"""
    found = ensue.match(
        events, query, time="t", type="type", location=("x", "y"), options=ensue.OutputOptions(levels="all")
    )
    assert [m["location"] for m in found["Pair"].to_pylist()] == ["LINESTRING (0 0, 4 0)"]
    assert [m["location"] for m in found[""].to_pylist()] == ["POLYGON ((0 0, 4 0, 4 4, 0 0))"]
