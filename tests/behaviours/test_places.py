"""Places in patterns: regions, distances and hulls, by where events were."""

import math

import pyarrow as pa
import pytest
import shapely

import ensue
from ensue.errors import EventError, QueryError

pytestmark = [pytest.mark.stateless, pytest.mark.filterwarnings("ignore:no event is of type")]

SQUARE = "WKT 'POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))'"
RING = "WKT 'POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0), (4 4, 4 6, 6 6, 6 4, 4 4))'"
NAN = math.nan


def events(types: str, places: list, **columns) -> pa.Table:
    """Events at 1, 2, 3, ...; a place is a pair, or None."""
    xs, ys = zip(*((None, None) if p is None else p for p in places), strict=True)
    return pa.table(
        {
            "t": range(1, len(types) + 1),
            "type": list(types),
            "x": pa.array(xs, pa.float64()),
            "y": pa.array(ys, pa.float64()),
            **columns,
        }
    )


EARTH = ensue.Location("x", "y", space="earth")


def times(runner, table: pa.Table, query: str, **options) -> list[tuple]:
    """The times of the events of each match."""
    given = {"time": "t", "type": "type", "location": ("x", "y")} | options
    found = runner.match(table, query, **given)
    names = [n for n in found.column_names if n not in ("match_id", "start", "end", "location")]
    return sorted(tuple(_times(match[name]) for name in names) for match in found.select(names).to_pylist())


def _times(value):
    return [v["t"] for v in value] if isinstance(value, list) else value and value["t"]


# ------------------------------------------------------------------------------- one event


@pytest.mark.everywhere(slow=True)
def test_an_event_is_inside_a_region_or_on_its_border(runner):
    table = events("AAAAAA", [(5, 5), (10, 3), (0, 0), (10.001, 3), None, (NAN, 3)])
    assert times(runner, table, f"A a WHERE inside(a.location, {SQUARE})") == [(1,), (2,), (3,)]
    assert times(runner, table, f"A a WHERE not inside(a.location, {SQUARE})") == [(4,)]
    assert times(runner, table, "A a WHERE a.location IS NULL") == [(5,), (6,)]


def test_a_hole_is_outside_and_its_border_inside(runner):
    table = events("AAA", [(5, 5), (4, 5), (3, 5)])
    assert times(runner, table, f"A a WHERE overlaps({RING}, a.location)") == [(2,), (3,)]


def test_the_distance_from_a_region_is_the_least_one(runner):
    table = events("AAAA", [(5, 5), (13, 5), (13, 14), (13.1, 14)])
    found = times(runner, table, f"A a WHERE distance(a.location, {SQUARE}) <= 5")
    assert found == [(1,), (2,), (3,)]
    found = times(runner, table, f"A a WHERE distance({RING}, a.location) BETWEEN 1 AND 3")
    assert found == [(1,), (2,)]


def test_a_circle_is_a_region(runner):
    table = events("AAA", [(3, 4), (0, 0), (3, 4.1)])
    assert times(runner, table, "A a WHERE inside(a.location, CIRCLE(0, 0, 5))") == [(1,), (2,)]
    found = times(runner, table, "A a WHERE distance(a.location, CIRCLE(0, 0, 4)) >= 1")
    assert found == [(1,), (3,)]
    found = times(runner, table, "A a WHERE same_place(a.location, CIRCLE(1, 0, 9), 2)")
    assert found == [(2,)]


def test_a_point_and_a_segment_are_places_too(runner):
    table = events("AAA", [(1, 1), (2, 2), (2, 2.5)])
    assert times(runner, table, "A a WHERE overlaps(a.location, WKT 'POINT (2 2)')") == [(2,)]
    line = "WKT 'LINESTRING (0 0, 4 4)'"
    assert times(runner, table, f"A a WHERE inside(a.location, {line})") == [(1,), (2,)]
    assert times(runner, table, "A a WHERE distance(a.location, point(2, a.t)) < 1") == [(2,), (3,)]


def test_a_place_beyond_the_earth_is_null(runner):
    events = pa.table({"t": [1, 2], "type": ["A", "A"], "lon": [0.0, 0.0], "lat": [95.0, 45.0]})
    options = {"time": "t", "type": "type", "location": ensue.Location("lon", "lat", space="earth")}
    found = runner.match(events, "A a WHERE a.location IS NULL RETURN a.t AS t", **options)
    assert found.column("t").to_pylist() == [1]


# ---------------------------------------------------------------------------- several events


@pytest.mark.streams(slow=True)
@pytest.mark.everywhere(slow=True)
def test_events_are_compared_by_their_distance(runner):
    table = events("ABBBB", [(0, 0), (3, 4), (3, 3.9), None, (6, 8)])
    query = "SEQ(A a, B b) WHERE distance(a.location, b.location) {} WITHIN 10"
    assert times(runner, table, query.format("< 5")) == [(1, 3)]
    assert times(runner, table, query.format("<= 5")) == [(1, 2), (1, 3)]
    assert times(runner, table, query.format("> 5")) == [(1, 5)]


def test_two_points_overlap_where_they_are_one(runner):
    table = events("ABBB", [(1, 2), (1, 2), (1, 2.5), (1, None)])
    for condition in ("overlaps(a.location, b.location)", "inside(b.location, a.location)"):
        assert times(runner, table, f"SEQ(A a, B b) WHERE {condition}") == [(1, 2)]
    query = "SEQ(A a, B b) WHERE same_place(a.location, b.location, b.t / 6.0)"
    assert times(runner, table, query) == [(1, 2)]  # the distance is less, not equal


@pytest.mark.everywhere(slow=True)
def test_an_event_lies_inside_the_hull_of_others(runner):
    table = events("ABCDDDD", [(0, 0), (4, 0), (0, 4), (1, 1), (2, 2), (2.1, 2), None])
    query = "SEQ(A a, B b, C c, D d) WHERE inside(d.location, hull(a.location, b.location, c.location))"
    assert times(runner, table, query) == [(1, 2, 3, 4), (1, 2, 3, 5)]
    shown = ensue.explain(query, table, time="t", type="type", location=("x", "y"))
    assert "finished matches" not in shown
    assert "reference" not in shown


def test_a_hull_passes_over_events_without_place(runner):
    table = events("ABCABC", [(0, 0), None, (0, 0), None, None, (0, 0)])
    query = "SEQ(A a, B b, C c) WHERE {} WITHIN 2"
    found = times(runner, table, query.format("overlaps(c.location, hull(a.location, b.location))"))
    assert found == [(1, 2, 3)]
    assert times(runner, table, query.format("hull(a.location, b.location) IS NULL")) == [(4, 5, 6)]


def test_a_hull_and_a_region(runner):
    table = events("ABAB", [(-1, 5), (11, 5), (11, -1), (12, 12)])
    query = f"SEQ(A a, B b) WHERE overlaps(hull(a.location, b.location), {SQUARE}) WITHIN 1"
    assert times(runner, table, query) == [(1, 2)]
    query = f"SEQ(A a, B b) WHERE distance({SQUARE}, hull(a.location, b.location)) > 0 WITHIN 1"
    assert times(runner, table, query) == [(3, 4)]


def test_each_event_of_a_list_is_near_the_one_before(runner):
    table = events("AAAB", [(0, 0), (1, 0), (3, 0), (3, 0)])
    query = "SEQ(A+ a[], B b) WHERE distance(a[i].location, a[i-1].location) <= 1"
    found = times(runner, table, query)
    assert found == [([1], 4), ([1, 2], 4), ([2], 4), ([3], 4)]


def test_no_event_may_have_been_near(runner):
    table = events("ACBACB", [(0, 0), (1, 1), (0, 0), (0, 0), (9, 9), (0, 0)])
    query = "SEQ(A a, !C c, B b) WHERE distance(a.location, c.location) < 2 WITHIN 2"
    assert times(runner, table, query) == [(4, 6)]


def test_the_next_near_event_is_taken(runner):
    table = events("ABBB", [(0, 0), (9, 9), (1, 1), (1, 0)])
    query = "SEQ(A a, B b) WHERE skip_till_next_match(a, b) { distance(a.location, b.location) < 2 }"
    assert times(runner, table, query) == [(1, 3)]


# -------------------------------------------------------------------------------- what is returned


def test_distances_and_places_are_returned(runner):
    table = events("ABAB", [(0, 0), (3, 4), (1, 1), None])
    query = (
        "SEQ(A a, B b) WITHIN 1 RETURN distance(a.location, b.location) AS d, "
        "hull(a.location, b.location) AS area, b.location AS b"
    )
    found = runner.match(table, query, time="t", type="type", location=("x", "y")).to_pylist()
    first, second = sorted(found, key=lambda match: match["start"])
    assert (first["d"], first["b"]) == (5.0, "POINT (3 4)")
    assert shapely.from_wkt(first["area"]).equals(shapely.LineString([(0, 0), (3, 4)]))
    assert (second["d"], second["b"], second["area"]) == (None, None, "POINT (1 1)")


def test_aggregates_and_having_see_distances(runner):
    table = events("AAAB", [(0, 0), (3, 4), (6, 8), (0, 0)])
    query = (
        "SEQ(A+ a[], B b) WHERE max(distance(a.location, point(0, 0))) > 4 "
        "RETURN max(distance(a.location, point(0, 0))) AS far, count(a) AS n "
        "HAVING distance(a[1].location, b.location) = 0"
    )
    found = runner.match(table, query, time="t", type="type", location=("x", "y")).to_pylist()
    assert sorted((m["far"], m["n"]) for m in found) == [(5.0, 2), (10.0, 2), (10.0, 3)]


# ----------------------------------------------------------------------- places that are written

WRITTEN = pa.table(
    {
        "t": [1, 2, 3, 4, 5],
        "type": list("ABBBB"),
        "place": [
            "POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0))",
            "LINESTRING (4 4, 6 6)",
            "POINT (5 4)",
            None,
            "POLYGON ((1 1, 2 1, 2 2, 1 1))",
        ],
    }
)


@pytest.mark.parametrize("bytes_", [False, True])
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("overlaps(a.location, b.location)", [(1, 2), (1, 5)]),
        ("inside(b.location, a.place)", [(1, 5)]),
        ("distance(a.location, b.location) = 1", [(1, 3)]),
        ("same_place(a.location, b.location, 1)", [(1, 5)]),
        ("overlaps(hull(b.location), WKT 'POINT (5 5)')", [(1, 2)]),
    ],
)
def test_places_may_be_written_as_text_or_bytes(runner, bytes_, condition, expected):
    table = WRITTEN
    if bytes_:
        wkb = [p and shapely.to_wkb(shapely.from_wkt(p)) for p in table["place"].to_pylist()]
        table = table.set_column(2, "place", pa.array(wkb, pa.binary()))
    query = f"SEQ(A a, B b) WHERE {condition}"
    assert times(runner, table, query, location="place") == expected


def test_what_kernels_do_not_know_of_such_places_is_judged_elsewhere_and_explain_says_so(runner):
    given = {"time": "t", "type": "type", "location": "place"}
    near = "distance(a.location, b.location) < 2"
    shown = ensue.explain(f"SEQ(A a, B b) WHERE {near}", WRITTEN, **given)
    assert f"finished matches\n  {near}" in shown
    next_ = f"SEQ(A a, B b) WHERE skip_till_next_match(a, b) {{ {near} }}"
    assert "reference: slower exact path" in ensue.explain(next_, WRITTEN, **given)
    assert times(runner, WRITTEN, next_, location="place") == [(1, 2)]


def test_a_place_that_cannot_be_read_is_named(runner):
    table = WRITTEN.set_column(2, "place", pa.array(["here"] * 5))
    with pytest.raises(EventError, match="location cannot be read"):
        times(runner, table, f"A a WHERE inside(a.location, {SQUARE})", location="place")


def test_a_column_called_location_is_returned_as_it_is(runner):
    table = WRITTEN.rename_columns(["t", "type", "location"])
    query = "SEQ(A a, B b) WHERE inside(b.location, a.location) RETURN b.location"
    (match,) = runner.match(table, query, time="t", type="type", location="location").to_pylist()
    assert match["location"] == "POLYGON ((1 1, 2 1, 2 2, 1 1))"


# ------------------------------------------------------------------ complex events, several tables


@pytest.mark.parametrize("location", [("x", "y"), "place"])
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("distance(m.location, c.location) < 1", [3]),
        ("inside(c.location, hull(m.a.location, m.b.location))", [3]),
        ("not overlaps(m.location, c.location)", [4]),
        (f"inside(m.location, {SQUARE})", [3, 4]),
    ],
)
def test_complex_events_and_their_members_have_places(location, condition, expected):
    table = events("ABCC", [(0, 0), (2, 0), (1, 0), (9, 9)])
    places = [f"POINT ({x} {y})" for x, y in [(0, 0), (2, 0), (1, 0), (9, 9)]]
    hierarchy = (
        "EVENT Meeting AS SEQ(A a, B b) WHERE distance(a.location, b.location) < 3 WITHIN 9;\n"
        f"SEQ(Meeting m, C c) WHERE {condition} WITHIN 9 RETURN c.t AS t"
    )
    given = {"time": "t", "type": "type", "location": location}
    found = ensue.match(table.append_column("place", pa.array(places)), hierarchy, **given)
    assert sorted(found.column("t").to_pylist()) == expected


def test_events_of_several_tables_have_places(runner):
    tables = {
        "A": pa.table({"t": [1], "x": [0.0], "y": [0.0], "size": [1]}),
        "B": pa.table({"t": [2, 3], "x": [1.0, 5.0], "y": [0, 0], "size": ["s", "m"]}),
    }
    query = "SEQ(A a, B b) WHERE distance(a.location, b.location) < 3"
    assert times(runner, tables, query, type=None) == [(1, 2)]


def test_live_and_archived_events_are_compared_by_place():
    past = pa.table({"t": [-5, -3], "type": ["P", "P"], "x": [0.0, 5.0], "y": [0.0, 0.0]})
    query = "A a JOIN ARCHIVE h P p RANGE 10 BEFORE START ON distance(a.location, point(p.x, p.y)) < 3 RETURN p.t AS t"
    archives = {"h": ensue.archive(past, time="t", type="type")}
    given = {"time": "t", "type": "type", "location": ("x", "y"), "archives": archives}
    found = ensue.match(events("A", [(1, 1)]), query, **given)
    assert found.column("t").to_pylist() == [-5]


# -------------------------------------------------------------------------------------- the earth

ZURICH, BERN = (8.54, 47.38), (7.44, 46.95)


def test_on_the_earth_lengths_are_metres(runner):
    table = events("ABB", [ZURICH, BERN, (8.55, 47.38)])
    query = "SEQ(A a, B b) WHERE distance(a.location, b.location) > {}"
    assert times(runner, table, query.format(90_000), location=EARTH) == [(1, 2)]
    assert times(runner, table, query.format(96_000), location=EARTH) == []
    near = "SEQ(A a, B b) WHERE same_place(a.location, b.location, 1000)"
    assert times(runner, table, near, location=EARTH) == [(1, 3)]
    circle = "A a WHERE inside(a.location, CIRCLE(7.44, 46.95, 96000))"
    assert times(runner, table, circle, location=EARTH) == [(1,)]


def test_places_meet_across_the_date_line(runner):
    table = events("ABBC", [(179.9, 0), (-179.9, 0), (180.1, 0), (-180, 0)])
    near = "SEQ(A a, B b) WHERE distance(a.location, b.location) < 23000"
    assert times(runner, table, near, location=EARTH) == [(1, 2), (1, 3)]
    assert times(runner, table, "SEQ(B a, B b) WHERE overlaps(a.location, b.location)",
                 location=EARTH) == [(2, 3)]  # fmt: skip
    between = "SEQ(A a, B b, C c) WHERE inside(c.location, hull(a.location, b.location))"
    assert times(runner, table, between, location=EARTH) == [(1, 2, 4), (1, 3, 4)]
    region = "WKT 'POLYGON ((179 -1, 181 -1, 181 1, 179 1, 179 -1))'"
    assert len(times(runner, table, f"B a WHERE inside(a.location, {region})", location=EARTH)) == 2


# ------------------------------------------------------------------------------------- refusals


def test_a_region_that_crosses_itself_is_refused_where_it_stands(runner):
    bow = "WKT 'POLYGON ((0 0, 1 1, 1 0, 0 1, 0 0))'"
    table, query = events("A", [(1, 2)]), f"A a WHERE inside(a.location, {bow})"
    with pytest.raises(QueryError, match="its edges cross") as caught:
        times(runner, table, query)
    assert caught.value.span.over(query) == bow.removeprefix("WKT ")
    far = "A a WHERE overlaps(a.location, CIRCLE(0, 91, 5))"
    with pytest.raises(QueryError, match="not on the earth"):
        times(runner, table, far, location=EARTH)


def test_a_query_about_places_needs_them(runner):
    with pytest.raises(QueryError, match="the events have no location column"):
        times(runner, events("A", [(1, 2)]), f"A a WHERE inside(a.location, {SQUARE})", location=None)
