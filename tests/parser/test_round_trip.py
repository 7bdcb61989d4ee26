"""A query that is printed reads back as the same query."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.parser.strategies import expressions, literals, names, queries

from ensue.analyzer.query import check_structure
from ensue.ir.expression import FieldRef
from ensue.ir.query import Query
from ensue.parser.pattern_parser import parse
from ensue.printing.expression_printer import format_expr
from ensue.printing.pattern_printer import format_query, get_default_name
from support.seeds import scaled


def survives(query: Query) -> None:
    text = format_query(query)
    again = parse(text)
    assert again == query
    assert repr(again) == repr(query)  # in Python 1, 1.0 and True are equal
    assert format_query(again) == text
    assert repr(check_structure(query)) == repr(query)


@settings(max_examples=scaled(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(queries())
def test_any_query_survives_printing(query):
    survives(query)


@pytest.mark.slow
@settings(max_examples=scaled(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(queries())
def test_many_queries_survive_printing(query):
    survives(query)


@settings(max_examples=scaled(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(expressions(literals | st.builds(FieldRef, st.just("a"), names)))
def test_any_expression_survives_printing(expr):
    again = parse(f"A a HAVING {format_expr(expr)}").having
    assert repr(again) == repr(expr)


def test_a_column_is_named_only_where_its_name_is_not_the_usual_one():
    text = "PATTERN SEQ(A a, B+ b[])\nRETURN a.x, b[].y AS ys, avg(b.x), count(b) AS n"
    assert format_query(parse(text)) == text
    usual = [get_default_name(column.expr) for column in parse(text).returns]
    assert usual == ["x", "y", "avg(b.x)", "count(b)"]


def test_brackets_are_printed_only_where_they_matter():
    for condition in (
        "(a.x + 1) * 2 = 3",
        "a.x - (1 - 2) = -(a.y + 1)",
        "(a.x or a.y) and a.z or not (a.x and a.y)",
        "(a.x = 1) = (a.y = 2)",
        "a.x between 1 + 2 and 3 or a.y is null",
        "a.x or (a.y or a.z)",
        "not not a.x",
        "- -a.x = -5 seconds",
    ):
        assert format_query(parse(f"A a HAVING {condition}")) == f"PATTERN A a\nHAVING {condition}"


def test_a_chain_of_any_length_is_printed_without_brackets():
    for length in (2, 16, 17, 40, 500):
        chain = " or ".join(f"a.x = {n}" for n in range(length))
        text = f"PATTERN A a\nHAVING {chain}"
        assert format_query(parse(text)) == text


def test_what_is_said_of_rows_and_of_the_whole_result_survives_printing():
    for text, shown in (
        ("A a RETURN a.*", "RETURN a.*"),
        ("A+ a[] RETURN a[1].* AS low", "RETURN a[1].* AS low"),
        ("SEQ(A a, B b) RETURN *", "RETURN a, b"),
        ("SEQ(A a, B b) RETURN a.x ALL EVENTS", "RETURN a.x ALL EVENTS"),
        ("SEQ(A a, B b) RETURN ALL EVENTS", "RETURN ALL EVENTS"),
        ("SEQ(A a, B b) RETURN COUNT(*) AS n GROUP BY ()", "RETURN TOTAL COUNT(*) AS n"),
        ("SEQ(A a, B b) RETURN a.k, COUNT(*) GROUP BY ALL", "RETURN a.k, COUNT(*)\nGROUP BY k"),
        ("SEQ(A a, B b) RETURN avg(b.x - a.x), a.k GROUP BY a.k", "RETURN avg(b.x - a.x), a.k\nGROUP BY k"),
        (
            "SEQ(A a, B b) ORDER BY b.x - a.x DESC, end NULLS FIRST LIMIT 3",
            "ORDER BY b.x - a.x DESC, end NULLS FIRST\nFETCH FIRST 3 ROWS ONLY",
        ),
        ("A from FETCH NEXT 1 ROW", "FETCH FIRST 1 ROWS ONLY"),
    ):
        query = parse(text)
        assert format_query(query).endswith(shown)
        survives(query)


def test_fields_and_variables_may_be_called_like_these_clauses():
    text = "SEQ(A total, B all, C order) RETURN total.group AS x, all.limit AS y ORDER BY order.by"
    survives(parse(text))
