"""A match happened where its members did: in the convex hull of their locations."""

import pyarrow as pa
import pytest
import shapely

from ensue.errors import EventError

EVENTS = pa.table(
    {
        "t": [1, 2, 3, 4],
        "type": ["A", "B", "B", "C"],
        "place": ["POINT (0 0)", "POINT (4 0)", "POINT (4 4)", None],
    }
)
QUERY = "SEQ(A a, B+ b[], C c) WHERE partition_contiguity(a, b[], c) {} RETURN count(b) AS n"


@pytest.mark.everywhere
def test_the_location_is_the_hull_of_the_members(runner):
    (match,) = runner.match(EVENTS, QUERY, time="t", type="type", location="place").to_pylist()
    expected = shapely.from_wkt("POLYGON ((0 0, 4 4, 4 0, 0 0))")
    assert shapely.from_wkt(match["location"]).equals(expected)


def test_places_as_bytes_give_a_hull_as_bytes(runner):
    wkb = [
        None if p is None else shapely.to_wkb(shapely.from_wkt(p))
        for p in EVENTS["place"].to_pylist()
    ]
    events = EVENTS.set_column(2, "place", pa.array(wkb, pa.binary()))
    (match,) = runner.match(events, QUERY, time="t", type="type", location="place").to_pylist()
    assert shapely.from_wkb(match["location"]).area == 8


def test_a_match_of_events_without_place_has_none(runner):
    (match,) = runner.match(
        EVENTS, "SEQ(C c)", time="t", type="type", location="place"
    ).to_pylist()
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
