"""MATCH_RECOGNIZE against a table: which columns are meant, and do their kinds go together."""

import pytest

from ensue.analyzer.row_pattern_checks import check_row_pattern, get_output_kinds
from ensue.errors import QueryError
from ensue.ir.expression import FieldRef
from ensue.ir.row_pattern import OPERAND, ROW, Navigation
from ensue.parser.sql.clause_parser import parse_clause
from ensue.schema import ValueKind
from support.row_patterns import iterate_row_columns

TICKS = {
    "symbol": ValueKind.STRING,
    "time": ValueKind.TIMESTAMP,
    "price": ValueKind.FLOAT,
    "Volume": ValueKind.INTEGER,
    "id": ValueKind.INTEGER,
    "lot": ValueKind.INTEGER,
    "LOT": ValueKind.INTEGER,
    "tags": ValueKind.OTHER,
    "halted": ValueKind.BOOLEAN,
}


def clause(measures="price AS p", before="", behind="", define="TRUE"):
    return f"({before} MEASURES {measures} {behind} PATTERN (A B+) DEFINE B AS {define})"


def columns(text):
    found = check_row_pattern(parse_clause(text), TICKS)
    return [column.name for value in found.values for column in iterate_row_columns(value)]


def refused(text):
    with pytest.raises(QueryError) as caught:
        check_row_pattern(parse_clause(text), TICKS)
    error = caught.value
    assert error.text == text
    assert error.span is not None
    return error.problem, error.span.over(text), error.hint


# -------------------------------------------------------------------------------------- columns


def test_columns_are_found_whatever_their_case():
    assert columns(clause("PRICE AS a, A.volume AS b, LAST(Symbol) AS c")) == ["price", "Volume", "symbol"]
    found = check_row_pattern(parse_clause(clause(before="PARTITION BY SYMBOL ORDER BY Time")), TICKS)
    assert [(key.column, key.name) for key in found.partition] == [("symbol", "symbol")]
    assert found.order[0].expr == FieldRef(ROW, "time")


def test_quotes_tell_columns_apart_that_differ_only_in_case():
    assert columns(clause('"lot" AS a, "LOT" AS b, A."LOT" AS c')) == ["lot", "LOT", "LOT"]


@pytest.mark.parametrize("name", ["lot", "LOT", "Lot"])
def test_a_name_that_may_be_several_columns_is_refused(name):
    assert refused(clause(f"{name} AS a")) == (
        f"'{name}' may be any of the columns lot, LOT: SQL ignores case",
        name,
        'quote the one you mean: "lot"',
    )


def test_quoted_names_are_taken_as_they_are():
    problem, place, hint = refused(clause('A."PRICE" AS a'))
    assert (problem, place) == ("there is no column 'PRICE'", '"PRICE"')
    assert hint == "did you mean 'price'?"


@pytest.mark.parametrize(
    "text",
    [
        clause("pric AS p"),
        clause("sum(A.pric) AS p"),
        clause("LAST(upper(pric)) AS p"),
        clause("count(*) FILTER (WHERE pric > 3) AS p"),
        clause("array_agg(id ORDER BY pric) AS p"),
        clause(define="PREV(pric) > 3"),
        clause(before="PARTITION BY pric"),
        clause(before="ORDER BY time, pric"),
    ],
)
def test_unknown_columns_are_refused_everywhere(text):
    assert refused(text) == ("there is no column 'pric'", "pric", "did you mean 'price'?")


def test_reaches_that_turn_out_to_be_the_same_become_one():
    found = check_row_pattern(parse_clause(clause("price + PRICE + A.price AS p")), TICKS)
    value = found.measures[0].value
    assert value.operands == (Navigation(FieldRef(ROW, "price")), Navigation(FieldRef(ROW, "price"), ("A",)))
    assert value.expr.left.right == FieldRef(OPERAND, "0")
    assert value.expr.right == FieldRef(OPERAND, "1")


def test_checking_twice_changes_nothing():
    text = clause("PRICE + A.volume AS p, CLASSIFIER() AS c", before="PARTITION BY SYMBOL")
    once = check_row_pattern(parse_clause(text), TICKS)
    assert check_row_pattern(once, TICKS) == once


# ---------------------------------------------------------------------------------------- kinds


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("A.price", ValueKind.FLOAT),
        ("LAST(volume) + 1", ValueKind.INTEGER),
        ("CLASSIFIER()", ValueKind.STRING),
        ("MATCH_NUMBER()", ValueKind.INTEGER),
        ("time - FIRST(time)", ValueKind.DURATION),
        ("count(*)", ValueKind.INTEGER),
        ("sum(volume)", ValueKind.INTEGER),
        ("sum(price)", ValueKind.FLOAT),
        ("avg(volume)", ValueKind.FLOAT),
        ("min(symbol)", ValueKind.STRING),
        ("max_by(symbol, price)", ValueKind.STRING),
        ("array_agg(price)", ValueKind.OTHER),
        ("string_agg(symbol, ',')", ValueKind.STRING),
        ("bool_or(price > 3)", ValueKind.BOOLEAN),
        ("median(volume)", ValueKind.FLOAT),
        ("any_value(tags)", ValueKind.OTHER),
        ("NULL", ValueKind.NULL),
        ("price > 3", ValueKind.BOOLEAN),
    ],
)
def test_kinds_of_measures(expression, kind):
    assert get_output_kinds(parse_clause(clause(f"{expression} AS m")), TICKS)["m"] == kind


@pytest.mark.parametrize(
    ("text", "problem", "place"),
    [
        (clause("avg(symbol) AS m"), "avg does not work on string", "avg(symbol)"),
        (clause("min(tags) AS m"), "min does not work on other", "min(tags)"),
        (clause("bool_and(price) AS m"), "bool_and does not work on float", "bool_and(price)"),
        (clause("price + symbol AS m"), "'+' cannot be combined with a float", "price + symbol"),
        (clause("LAST(symbol > 3) AS m"), "a string cannot be compared", "symbol > 3"),
        (clause("count(DISTINCT tags) AS m"), "DISTINCT compares values", "count(DISTINCT tags)"),
        (clause("count(*) FILTER (WHERE id) AS m"), "FILTER takes a condition", "id"),
        (clause("array_agg(id ORDER BY tags) AS m"), "ORDER BY compares values", "tags"),
        (clause(define="price"), "B is defined by a condition", "price"),
        (clause(define="price AND halted"), "'and' joins conditions", "price"),
        (clause(before="PARTITION BY tags"), "PARTITION BY compares values", "tags"),
        (clause(before="ORDER BY tags DESC"), "ORDER BY compares values", "tags DESC"),
    ],
)
def test_kinds_that_do_not_go_together(text, problem, place):
    found = refused(text)
    assert found[0].startswith(problem)
    assert found[1] == place


def test_a_condition_may_be_a_column():
    check_row_pattern(parse_clause(clause(define="halted")), TICKS)
    check_row_pattern(parse_clause(clause(define="NULL")), TICKS)


@pytest.mark.parametrize(
    ("order", "within", "problem"),
    [
        ("", "INTERVAL '5' MINUTE", "WITHIN needs ORDER BY, and a time as its first key"),
        ("", "5", "WITHIN needs ORDER BY, and a number as its first key"),
        ("ORDER BY symbol", "5", "WITHIN is a number here, and rows are ordered by string"),
        ("ORDER BY id", "INTERVAL '5' MINUTE", "WITHIN is a length of time here, and rows are"),
        ("ORDER BY time", "5", "WITHIN is a number here, and rows are ordered by timestamp"),
        ("ORDER BY time DESC", "INTERVAL '5' MINUTE", "WITHIN needs rows in ascending order"),
    ],
)
def test_within_is_about_the_first_key_of_the_order(order, within, problem):
    found = refused(f"({order} PATTERN (A) WITHIN {within} DEFINE A AS TRUE)")
    assert found[0].startswith(problem)


def test_within_goes_with_times_and_with_numbers():
    for order, within in (("time, id", "INTERVAL '5' MINUTE"), ("price", "2.5"), ("id", "3")):
        text = f"(ORDER BY {order} MEASURES 1 AS one PATTERN (A) WITHIN {within} DEFINE A AS TRUE)"
        check_row_pattern(parse_clause(text), TICKS)


# --------------------------------------------------------------------------------------- output


def test_one_row_has_the_keys_and_the_measures():
    text = clause(before="PARTITION BY symbol, hour(time) AS h ORDER BY time")
    assert get_output_kinds(parse_clause(text), TICKS) == {
        "symbol": ValueKind.STRING,
        "h": ValueKind.INTEGER,
        "p": ValueKind.FLOAT,
    }


def test_all_rows_have_keys_order_measures_and_the_other_columns():
    text = clause(before="PARTITION BY symbol ORDER BY time", behind="ALL ROWS PER MATCH")
    names = ["symbol", "time", "p", "price", "Volume", "id", "lot", "LOT", "tags", "halted"]
    assert list(get_output_kinds(parse_clause(text), TICKS)) == names


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (clause("price AS symbol", before="PARTITION BY symbol"), "price AS symbol"),
        (clause("price AS Symbol", before="PARTITION BY symbol"), "price AS Symbol"),
        (clause("id AS price", behind="ALL ROWS PER MATCH"), "id AS price"),
        (clause("id AS volume", behind="ALL ROWS PER MATCH"), "id AS volume"),
        (clause("id AS time", "ORDER BY time", "ALL ROWS PER MATCH"), "id AS time"),
        (clause(before="PARTITION BY symbol, id AS symbol"), "id AS symbol"),
    ],
)
def test_two_columns_of_the_result_have_different_names(text, place):
    found = refused(text)
    assert found[0].startswith("two columns of the result would be called")
    assert found[1] == place


def test_measures_may_be_called_as_columns_that_are_not_in_the_result():
    check_row_pattern(parse_clause(clause("A.price AS price, id AS time", before="ORDER BY time")), TICKS)
    check_row_pattern(parse_clause(clause('id AS "volume"', behind="ALL ROWS PER MATCH")), TICKS)
