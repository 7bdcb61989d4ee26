"""Texts with several definitions."""

import pytest

from ensue.analyzer.hierarchy_layers import build_layers
from ensue.errors import QueryError
from ensue.ir.hierarchy import Hierarchy
from ensue.ir.query import Query
from ensue.parser.definitions import parse_pattern_text

THREE = """
-- readings make incidents; incidents make outages
EVENT Incident AS SEQ(Reading a, Reading b) WHERE [machine] and b.heat > a.heat
    WITHIN 5 minutes RETURN a.machine AS machine, 'a;b' AS odd;
EVENT Outage AS SEQ(Incident x, Incident y) WITHIN 1 hour;
SEQ(Outage o, !Repair r) WITHIN 1 day;
"""


def names(found: Hierarchy) -> list[str]:
    return [definition.name for definition in found.definitions]


def test_definitions_and_a_query_on_top():
    found = parse_pattern_text(THREE)
    assert isinstance(found, Hierarchy)
    assert names(found) == ["Incident", "Outage"]
    assert found.query.name is None


def test_one_statement_is_a_query():
    assert isinstance(parse_pattern_text("SEQ(A a, B b) WITHIN 5;"), Query)
    assert isinstance(parse_pattern_text("EVENT X AS SEQ(A a, B b) WHERE a.s = ';'"), Query)


def test_the_order_of_definitions_does_not_matter():
    text = "EVENT Top AS SEQ(Low a, Low b); EVENT Low AS SEQ(A a, B b); SEQ(Top t, C c)"
    assert names(parse_pattern_text(text)) == ["Low", "Top"]


def test_what_nobody_uses_is_left_out_unless_it_is_emitted():
    text = "EVENT Low AS SEQ(A a, B b); EVENT Other AS SEQ(B a, B b); SEQ(Low t, C c)"
    assert names(parse_pattern_text(text)) == ["Low"]
    assert names(parse_pattern_text(text + "; EMIT Other")) == ["Low", "Other"]


def test_definitions_come_from_files(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "low.ensue").write_text("EVENT Low AS SEQ(A a, B b) WITHIN 5")
    (tmp_path / "mid.ensue").write_text('IMPORT "deep/low.ensue"; EVENT Mid AS SEQ(Low a, Low b) WITHIN 50')
    found = parse_pattern_text('IMPORT "mid.ensue"; IMPORT "deep/low.ensue"; SEQ(Mid m, Low l) WITHIN 500', tmp_path)
    assert names(found) == ["Low", "Mid"]
    assert found.defined("Low").file == "deep/low.ensue"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            ("EVENT X AS SEQ(Y a, B b); EVENT Y AS SEQ(Z a, B b); EVENT Z AS SEQ(X a, B b); SEQ(X x, B b)"),
            "X -> Y -> Z -> X",
        ),
        ("EVENT X AS SEQ(X a, B b); SEQ(X x, B b)", "X -> X"),
        ("EVENT X AS SEQ(A a, B b); EVENT X AS SEQ(A a, C b); SEQ(X x, B b)", "defined twice"),
        ("EVENT X AS SEQ(A a, B b); EVENT X AS SEQ(X a, C b)", "X -> X"),
        ("EVENT X AS SEQ(A a, B b); EVENT X AS SEQ(A a, C b)", "defined twice"),
        ("SEQ(A a, B b); SEQ(X x, B b)", "have no name"),
        ('IMPORT "nowhere.ensue"; SEQ(X x, B b)', "cannot be imported"),
        ("IMPORT nowhere; SEQ(X x, B b)", "in quotes"),
        ("EVENT X AS SEQ(A a, B b); SEQ(X x, B b); EMIT Y", "no such event"),
        ("EVENT X AS SEQ(A a, B b); SEQ(X x, B b); EMIT 3", "EMIT is followed by"),
        ("EVENT X AS SEQ(A a, B b; SEQ(X x, B b)", "expected"),
    ],
)
def test_what_is_wrong_is_said(text, problem):
    with pytest.raises(QueryError, match=problem):
        parse_pattern_text(text)


def test_an_error_points_into_the_whole_text():
    text = "EVENT Low AS SEQ(A a, B b);\nSEQ(Low x, B b) WHERE x.y >< 3"
    with pytest.raises(QueryError) as caught:
        parse_pattern_text(text)
    assert "line 2" in str(caught.value)
    assert "SEQ(Low x, B b) WHERE x.y >< 3" in str(caught.value)


def test_an_error_in_a_file_names_it(tmp_path):
    (tmp_path / "low.ensue").write_text("EVENT Low AS SEQ(A a B b)")
    with pytest.raises(QueryError, match=r"in low\.ensue: expected"):
        parse_pattern_text('IMPORT "low.ensue"; SEQ(Low a, B b)', tmp_path)


def test_an_error_underlines_the_name_of_a_definition():
    text = "EVENT Low AS SEQ(Low2 a, B b);\nEVENT Low2 AS SEQ(Low a, B b);\nSEQ(Low x, B b)"
    with pytest.raises(QueryError) as caught:
        parse_pattern_text(text)
    assert caught.value.span.over(text) == "Low"


def test_a_circle_over_files_names_the_file(tmp_path):
    (tmp_path / "a.ensue").write_text('IMPORT "b.ensue"; EVENT X AS SEQ(Y a, B b)')
    (tmp_path / "b.ensue").write_text('IMPORT "a.ensue"; EVENT Y AS SEQ(X a, B b)')
    with pytest.raises(QueryError, match=r"in a\.ensue: the definition of X .*: X -> Y -> X"):
        parse_pattern_text('IMPORT "a.ensue"; SEQ(X a, B b)', tmp_path)


def test_a_wrong_path_is_shown_where_it_is_written(tmp_path):
    (tmp_path / "low.ensue").write_text("\n\n\nEVENT Low AS SEQ(A a, B+ k[]) WITHIN 5")
    text = 'IMPORT "low.ensue"; SEQ(Low x, B b) WHERE x.k.price > 3'
    with pytest.raises(QueryError, match="which one do you mean") as caught:
        build_layers(parse_pattern_text(text, tmp_path))
    assert caught.value.text == text
    assert caught.value.span.over(text) == "x.k.price"


def test_what_is_defined_for_nobody_is_still_known_by_name():
    found = parse_pattern_text("EVENT Low AS SEQ(A a, B b); EVENT High AS SEQ(A a, B b); SEQ(High x, Lo y)")
    assert found.names == ("High", "Low")
