"""A query that is printed reads back as the same query."""

from hypothesis import HealthCheck, given, settings

from ensue.algebra.check import check_structure
from ensue.languages.patterns import parse
from ensue.languages.printing import default_name, show
from tests.languages.strategies import queries

SOME = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@SOME
@given(queries())
def test_any_query_survives_printing(query):
    # By repr too: in Python 1, 1.0 and True are equal.
    again = parse(show(query))
    assert again == query
    assert repr(again) == repr(query)


@SOME
@given(queries())
def test_the_normal_form_is_a_fixed_point(query):
    assert repr(check_structure(query)) == repr(query)


@SOME
@given(queries())
def test_the_canonical_text_is_a_fixed_point(query):
    text = show(query)
    assert show(parse(text)) == text


def test_a_column_is_named_only_where_its_name_is_not_the_usual_one():
    text = "PATTERN SEQ(A a, B+ b[])\nRETURN a.x, b[].y AS ys, avg(b.x), count(b) AS n"
    assert show(parse(text)) == text
    assert [default_name(r.expr) for r in parse(text).returns] == ["x", "y", "avg(b.x)", "count(b)"]


def test_brackets_are_printed_only_where_they_matter():
    for condition in (
        "(a.x + 1) * 2 = 3",
        "a.x - (1 - 2) = -(a.y + 1)",
        "(a.x or a.y) and a.z or not (a.x and a.y)",
        "(a.x = 1) = (a.y = 2)",
        "a.x between 1 + 2 and 3 or a.y is null",
        "a.x or (a.y or a.z)",
        "not not a.x",
        "-(-a.x) = - 5 seconds".replace("- 5", "-5"),
    ):
        assert show(parse(f"A a HAVING {condition}")) == f"PATTERN A a\nHAVING {condition}"
