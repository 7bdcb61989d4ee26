"""Places in the pattern language: how they are written, read back, and refused."""

from dataclasses import replace

import pytest

import ensue
from ensue.analyzer.query import check_query
from ensue.errors import QueryError
from ensue.functions import LOCATION
from ensue.ir.expression import FieldRef, FunctionCall, Literal
from ensue.parser.pattern_parser import parse
from ensue.printing.expression_printer import format_expr, truncate_wkt
from ensue.schema import Schema, ValueKind, build_table_schema

FIELDS = {
    "t": ValueKind.INTEGER,
    "kind": ValueKind.STRING,
    "x": ValueKind.FLOAT,
    "y": ValueKind.INTEGER,
    "place": ValueKind.STRING,
    "raw": ValueKind.OTHER,
}
SQUARE = "WKT 'POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0))'"


def located(location=("x", "y"), fields=FIELDS, space="plane") -> Schema:
    table = build_table_schema(fields, time="t", type_column="kind")
    return replace(table, location=location, space=space)


def condition(text: str, schema: Schema):
    """A condition over a and b, and the Kleene events k, as the check leaves it."""
    return check_query(parse(f"SEQ(A a, B b, K+ k[]) WHERE {text}"), schema).where[0]


def error_of(text: str, schema: Schema | None = None) -> QueryError:
    with pytest.raises(QueryError) as caught:
        condition(text, located() if schema is None else schema)
    return caught.value


# ------------------------------------------------------------------------------- reading, printing


def test_a_place_is_written_as_wkt():
    (found,) = parse(f"A a WHERE inside(a.location, {SQUARE})").where
    text = "POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0))"
    assert found == FunctionCall("inside", (FieldRef("a", "location"), FunctionCall("wkt", (Literal(text),))))


def test_wkt_is_a_name_where_no_string_follows():
    (found,) = parse("A wkt WHERE wkt.wkt > 1").where
    assert found.left == FieldRef("wkt", "wkt")


@pytest.mark.parametrize(
    "text",
    [
        f"inside(a.location, {SQUARE})",
        "distance(a.location, b.location) < 500",
        "distance(k[i].location, k[i-1].location) < 50",
        "overlaps(hull(a.location, b.location, k[1].location), circle(1, -2.5, 3))",
        "same_place(a.location, point(a.x, 2 * a.y), 3)",
        "max(distance(k.location, point(0, 0))) > 3",
        "earth_distance(a.location, b.location) < 500",
    ],
)
def test_conditions_on_places_print_as_they_were_written(text):
    query = parse(f"SEQ(A a, B b, K+ k[]) WHERE {text}")
    assert ensue.parse(ensue.show(query)) == query
    assert text in ensue.show(query)
    assert format_expr(condition(text, located())) == text  # and so in explain


def test_a_circle_is_written_in_any_case():
    upper = parse("A a WHERE overlaps(a.location, CIRCLE(1, 2, 3))")
    assert upper == parse("A a WHERE overlaps(a.location, circle(1, 2, 3))")


def test_a_long_wkt_is_shown_by_its_beginning():
    long = "WKT 'POLYGON ((0 0, 9 0, 9 9, 5 9.5, 0 9, 0 0))'"
    text = f"inside(a.location, {long}) and a.x > 1"
    brief = "WKT 'POLYGON ((0 0, 9 0, 9 9, 5 9.5, ...'"
    assert truncate_wkt(text) == f"inside(a.location, {brief}) and a.x > 1"
    shown = ensue.explain(f"A a WHERE {text}")
    assert brief in shown
    assert long not in shown
    assert truncate_wkt("WKT 'POINT (1 2)'") == "WKT 'POINT (1 2)'"


# --------------------------------------------------------------------------- what a.location is


def test_a_location_is_a_pair_of_columns():
    found = condition("distance(a.location, b.location) < 5", located())
    a, b = (FunctionCall(LOCATION, (FieldRef(v, "x"), FieldRef(v, "y"))) for v in "ab")
    assert found.left == FunctionCall("distance", (a, b))


@pytest.mark.parametrize("column", ["place", "raw"])
def test_a_location_is_a_column_of_wkt_or_wkb(column):
    found = condition("distance(a.location, b.location) < 5", located(column))
    assert found.left.arguments[0] == FunctionCall(LOCATION, (FieldRef("a", column),))


def test_the_column_of_places_is_a_place_by_its_own_name_too():
    schema = located("place")
    assert condition("overlaps(a.place, b.place)", schema) == condition("overlaps(a.location, b.location)", schema)
    assert condition("a.place = 'POINT (1 2)'", schema).left == FieldRef("a", "place")


def test_a_column_called_location_that_holds_places_is_a_place_where_one_is_needed():
    schema = located("location", FIELDS | {"location": ValueKind.STRING})
    found = condition("overlaps(a.location, b.location)", schema)
    assert found.arguments[0] == FunctionCall(LOCATION, (FieldRef("a", "location"),))
    assert condition("a.location LIKE 'POINT%'", schema).operand == FieldRef("a", "location")


def test_a_column_called_location_that_holds_something_else_stays_what_it_is():
    schema = located(fields=FIELDS | {"location": ValueKind.STRING})
    assert condition("a.location = 'Bern'", schema).left == FieldRef("a", "location")
    error = error_of("overlaps(a.location, b.location)", schema)
    assert "overlaps takes a place, and this is a string" in str(error)
    assert "another name" in str(error)


def test_on_the_earth_functions_measure_on_it():
    found = condition("distance(a.location, hull(b.location)) < 5", located(space="earth"))
    assert found.left.function == "earth_distance"
    assert found.left.arguments[1].function == "earth_hull"
    assert condition("earth_distance(a.location, b.location) < 5", located()).left.function == ("earth_distance")


# -------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("text", "underlined", "problem", "hint"),
    [
        ("inside(a.location, WKT 'PONT (0 0)')", "'PONT (0 0)'", "not a supported geometry",
         "did you mean 'POINT'?"),
        ("inside(a.location, WKT 'POINT (0 x)')", "'POINT (0 x)'", "cannot be read", "POLYGON"),
        ("inside(a.location, WKT 'POLYGON ((0 0, 1 1))')", "'POLYGON ((0 0, 1 1))'",
         "a ring has 2 corners", "at least three"),
        ("inside(a.location, WKT 'POLYGON EMPTY')", "'POLYGON EMPTY'", "empty", "POLYGON (("),
        ("inside(a.location, WKT 'POINT (nan 1)')", "'POINT (nan 1)'", "is not a number", ""),
        ("overlaps(a.location, CIRCLE(0, 0, -1))", "CIRCLE(0, 0, -1)", "-1 is not positive", ""),
        ("overlaps(a.location, WKT 'CIRCLE (0 0, 0)')", "'CIRCLE (0 0, 0)'", "positive", ""),
        ("overlaps(a.location, CIRCLE(0, a.x, 1))", "CIRCLE(0, a.x, 1)",
         "must be numbers", "<= 300"),
        ("overlaps(a.location, CIRCLE(0, 1))", "CIRCLE(0, 1)", "3 arguments, not 2", ""),
        ("overlaps(a.location, wkt(a.place))", "wkt(a.place)", "a text in quotes", "location="),
        ("inside(a.location, 'POINT (1 2)')", "'POINT (1 2)'", "takes a place", "point(x, y)"),
        ("distance(a.location) < 3", "distance(a.location)", "2 arguments, not 1", ""),
        ("same_place(a.location, b.location)", "same_place(a.location, b.location)",
         "3 arguments, not 2", ""),
        ("a.location = b.location", "a.location = b.location",
         "a place cannot be compared with a place", "distance("),
        ("a.location", "a.location", "WHERE needs a condition", ""),
        ("max(k.location) is null", "max(k.location)", "max does not work on a place", "distance"),
        ("first(k.location) is null", "first(k.location)", "does not work on a place", ""),
        ("coalesce(a.location, b.location) is null", "a.location", "coalesce", ""),
        ("a.location + 1 > 2", "a.location + 1", "'+' cannot be combined with a place", ""),
        ("overlaps(hull(a.location, CIRCLE(0, 0, 1)), b.location)", "CIRCLE(0, 0, 1)",
         "a circle", ""),
        ("inside(CIRCLE(0, 0, 1), a.location)", "CIRCLE(0, 0, 1)", "a circle inside", ""),
        ("inside(WKT 'CIRCLE (0 0, 1)', a.location)", "WKT 'CIRCLE (0 0, 1)'", "circle", ""),
        ("distance(CIRCLE(0, 0, 1), WKT 'POINT (0 0)') < 1",
         "distance(CIRCLE(0, 0, 1), WKT 'POINT (0 0)')", "no event", ""),
    ],
)  # fmt: skip
def test_what_is_no_place_is_refused_where_it_stands(text, underlined, problem, hint):
    error = error_of(text)
    assert problem in str(error)
    assert hint in (error.hint or "")
    assert error.span.over(error.text) == underlined


def test_without_location_there_is_no_place():
    error = error_of("distance(a.location, b.location) < 5", located(None))
    assert "a.location: the events have no location column" in str(error)
    assert "location=('x', 'y')" in error.hint


def test_a_list_of_places_is_not_returned():
    with pytest.raises(QueryError, match="a list of places") as caught:
        check_query(parse("K+ k[] RETURN k[].location"), located())
    assert caught.value.hint == "return the columns: k[].x"


def test_a_query_without_events_is_planned_as_if_places_were_points():
    shown = ensue.explain("SEQ(A a, B b) WHERE distance(a.location, b.location) < 5")
    assert "distance(a.location, b.location) < 5" in shown
    assert "finished matches" not in shown
