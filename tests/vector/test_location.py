"""Where events are: texts, bytes or two numbers, on the plane and on the earth."""

import json
import math
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.errors import EventError
from ensue.functions import EARTH_LOCATION, FUNCTIONS, LOCATION
from ensue.runtime.source_schema import SourceOptions, SourceSchema
from ensue.vector.event_table import add_location, create_schema
from ensue.vector.geo_columns import compute_match_hulls, format_match_hulls, read_places
from ensue.vector.match_rows import Matches
from support.seeds import scaled


def schema_of(events, location, space="plane"):
    return add_location(create_schema(events.schema, time="t", type=None, order=()), location, space).schema


def corners(events, location, space="plane"):
    places = read_places(events, schema_of(events, location, space))
    assert len(places) == events.num_rows
    x, y, first = places.x.tolist(), places.y.tolist(), places.first.tolist()
    return [list(zip(x[a:b], y[a:b], strict=True)) for a, b in pairwise(first)]


def table(**columns):
    rows = len(next(iter(columns.values())))
    return pa.table({"t": list(range(rows)), **columns})


def test_two_numbers_are_a_point():
    events = table(x=[1.5, None, math.nan, 4.0, 5.0], y=[2, 2, 2, None, 3])
    assert corners(events, ("x", "y")) == [[(1.5, 2.0)], [], [], [], [(5.0, 3.0)]]
    events = table(x=[Decimal("1.5"), None], y=pa.array([1, 2], pa.uint8()))
    assert corners(events, ("x", "y")) == [[(1.5, 1.0)], []]


def test_infinities_are_no_place():
    events = table(x=[math.inf, 1.0], y=[0.0, -math.inf])
    assert corners(events, ("x", "y")) == [[], []]


def test_texts_are_their_convex_hulls():
    events = table(
        place=[
            "POINT (1 2)",
            None,
            "POINT EMPTY",
            "LINESTRING (3 1, 0 0, 6 2)",
            "POLYGON ((0 0, 4 0, 1 1, 0 4, 0 0))",
            "POINT (nan 1)",
            "POINT (7 8)",
        ]
    )
    assert corners(events, "place") == [[(1, 2)], [], [], [(0, 0), (6, 2)], [(0, 0), (4, 0), (0, 4)], [], [(7, 8)]]
    known = shapely.from_wkt(np.array(events["place"].to_pylist(), object))
    wkb = list(shapely.to_wkb(known))
    assert corners(table(place=wkb), "place") == corners(events, "place")


def test_the_earth_is_round():
    events = table(
        lon=[8.5, 190.0, -190.0, 359.0, 180.0, -180.0, 8.0, 600.0], lat=[47.0, 0.0, 0.0, 0.0, 0.0, 90.0, 90.5, 0.0]
    )
    assert corners(events, ("lon", "lat"), "earth") == [
        [(8.5, 47.0)],
        [(-170.0, 0.0)],
        [(170.0, 0.0)],
        [(-1.0, 0.0)],
        [(180.0, 0.0)],
        [(-180.0, 90.0)],
        [],
        [],
    ]
    assert len(corners(events, ("lon", "lat"))[6]) == 1  # a plane has no latitudes


def test_a_shape_over_180_degrees_goes_the_short_way():
    events = table(
        place=[
            "LINESTRING (175 0, -175 0)",
            "LINESTRING (-175 0, 175 0)",
            "POINT (1 1)",
            "POLYGON ((190 0, 200 0, 200 9, 190 0))",
        ]
    )
    assert corners(events, "place", "earth") == [
        [(175, 0), (185, 0)],
        [(-185, 0), (-175, 0)],
        [(1, 1)],
        [(-170, 0), (-160, 0), (-160, 9)],
    ]


numbers = st.integers(-4, 4).map(lambda k: k * 100.0) | st.integers(-90, 90).map(float)
shapes = st.lists(st.tuples(numbers, numbers), min_size=2, max_size=5)


@settings(max_examples=scaled(100), deadline=None)
@given(st.lists(st.none() | shapes, min_size=1, max_size=5), st.sampled_from(["plane", "earth"]))
def test_texts_are_read_as_plain_python_reads_them(lists, space):
    texts = [None if p is None else shapely.LineString(p).wkt for p in lists]
    read = FUNCTIONS[LOCATION if space == "plane" else EARTH_LOCATION]
    wanted = [None if text is None else read([text]) for text in texts]
    found = corners(table(place=pa.array(texts, pa.string())), "place", space)
    assert found == [[] if place is None else list(place.corners) for place in wanted]


def test_no_events_have_no_places():
    for location, events in [(("x", "y"), table(x=[1.0], y=[1.0])), ("place", table(place=["POINT (1 1)"]))]:
        assert corners(events.slice(1), location) == []


def test_a_text_that_cannot_be_read_is_named():
    with pytest.raises(EventError, match=r"location cannot be read: 'here' \(row 1\)"):
        corners(table(place=["POINT (1 1)", "here"]), "place")
    with pytest.raises(EventError, match=r"location cannot be read: b'\\x00' \(row 0\)"):
        corners(table(place=[b"\0"]), "place")


def test_matches_are_where_their_members_are():
    events = table(x=[0.1, 4.0, 4.0, None, 2.0], y=[0.0, 0.0, 4.0, 1.0, 0.0])
    schema = schema_of(events, ("x", "y"))
    matches = Matches({"a": np.array([0, 3, 0])}, {"b": (np.array([0, 2, 2, 3]), np.array([1, 2, 1]))}, 3)
    assert format_match_hulls(matches, events, schema).to_pylist() == [
        "POLYGON ((0.1 0, 4 0, 4 4, 0.1 0))",
        None,
        "LINESTRING (0.1 0, 4 0)",
    ]


def test_a_match_over_180_degrees_stays_together():
    events = table(x=[179.0, -179.0, None, -178.0], y=[0.0, 0.0, 1.0, 2.0])
    schema = schema_of(events, ("x", "y"), "earth")
    matches = Matches({}, {"b": (np.array([0, 3, 5]), np.array([0, 1, 3, 2, 1]))}, 2)
    assert format_match_hulls(matches, events, schema).to_pylist() == [
        "POLYGON ((179 0, 181 0, 182 2, 179 0))",
        "POINT (-179 0)",
    ]


def test_bytes_give_bytes_and_precision_is_kept():
    place = shapely.Point(1 / 3, 2 / 3)
    events = table(place=[shapely.to_wkb(place)], text=[place.wkt])
    matches = Matches({"a": np.array([0])}, {}, 1)
    (found,) = compute_match_hulls(matches, events, schema_of(events, "place")).to_pylist()
    assert shapely.from_wkb(found).equals(place)
    (found,) = compute_match_hulls(matches, events, schema_of(events, "text")).to_pylist()
    assert shapely.from_wkt(found).equals(place)


@pytest.mark.parametrize(
    ("location", "space", "problem"),
    [
        (("x", "z"), "plane", "no column 'z' for location="),
        (("x", "place"), "plane", "'place' holds string"),
        (("x", "y", "t"), "plane", "be a column or a pair"),
        ("x", "plane", "location='x' holds double"),
        ("place", "moon", "space must be 'plane' or 'earth', not 'moon'"),
        (None, "earth", "there are none"),
    ],
)
def test_what_is_no_location_is_refused(location, space, problem):
    events = table(x=[1.0], y=[1.0], place=["POINT (1 1)"])
    with pytest.raises(EventError, match=problem):
        schema_of(events, location, space)


@pytest.mark.parametrize("location", ["place", ("x", "y"), None])
@pytest.mark.parametrize("space", ["plane", "earth"])
def test_a_source_is_described_and_read_again(location, space):
    events = table(x=[1.0], y=[1.0], place=["POINT (1 1)"])
    shape = create_schema(events.schema, time="t", type=None, order=())
    source = SourceSchema.from_options(shape, SourceOptions(time="t", location=location, space=space))
    described = json.loads(json.dumps(source.to_dict()))
    assert SourceSchema.from_dict(described) == source
