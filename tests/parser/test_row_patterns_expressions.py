"""Expressions of MATCH_RECOGNIZE: SQL to expressions of the algebra."""

from datetime import UTC, datetime, timedelta

import pytest

from ensue.functions import FUNCTIONS
from ensue.ir.expression import Between, Binary, FieldRef, FunctionCall, In, IsNull, Like, Literal, Unary
from ensue.ir.row_pattern import ROW
from ensue.parser.sql.clause_parser import parse_clause

X, Y = FieldRef(ROW, "x"), FieldRef(ROW, "y")
NO = Literal(False)


def read(text):
    """An expression over the columns of one row."""
    value = parse_clause(f"(MEASURES max({text}) AS m PATTERN (A) DEFINE A AS TRUE)")
    return value.measures[0].value.operands[0].arguments[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("17", 17),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("'it''s'", "it's"),
        ("''", ""),
        ("'-- no /* comment'", "-- no /* comment"),
        ("TRUE", True),
        ("false", False),
        ("NULL", None),
        ("TIMESTAMP '2026-01-31 10:00:00'", datetime(2026, 1, 31, 10)),
        ("timestamp '2026-01-31T10:00:00+00:00'", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ("INTERVAL '5' MINUTE", timedelta(minutes=5)),
        ("INTERVAL '5 minutes'", timedelta(minutes=5)),
        ("INTERVAL '-5' MINUTE", timedelta(minutes=-5)),
        ("INTERVAL 5 MINUTE", timedelta(minutes=5)),
        ("INTERVAL '1.5' HOUR", timedelta(minutes=90)),
        ("INTERVAL '1 day 2 hours'", timedelta(hours=26)),
        ("INTERVAL '1:30' HOUR TO MINUTE", timedelta(minutes=90)),
        ("INTERVAL '1 02:03:04.5' DAY TO SECOND", timedelta(1, 2 * 3600 + 3 * 60 + 4.5)),
    ],
)
def test_constants(text, value):
    found = read(text)
    assert found == Literal(value)
    assert type(found.value) is type(value)


@pytest.mark.parametrize(
    ("text", "expr"),
    [
        ("x + y * 2", Binary("+", X, Binary("*", Y, Literal(2)))),
        ("(x + y) * 2", Binary("*", Binary("+", X, Y), Literal(2))),
        ("x - y - 1", Binary("-", Binary("-", X, Y), Literal(1))),
        ("x / y % 3", Binary("%", Binary("/", X, Y), Literal(3))),
        ("mod(x, 3)", Binary("%", X, Literal(3))),
        ("-x", Unary("-", X)),
        ("+x", X),
        ("x || 'a' || y", Binary("||", Binary("||", X, Literal("a")), Y)),
        ("x <> y", Binary("!=", X, Y)),
        ("x != y", Binary("!=", X, Y)),
        ("x = y", Binary("=", X, Y)),
        ("x >= 1", Binary(">=", X, Literal(1))),
        ("NOT x", Unary("not", X)),
        ("NOT x = y", Unary("not", Binary("=", X, Y))),
        ("x AND y OR x", Binary("or", Binary("and", X, Y), X)),
        ("x IS NULL", IsNull(X)),
        ("x IS NOT NULL", IsNull(X, negated=True)),
        ("x IS UNKNOWN", IsNull(X)),
        ("x IS TRUE", FunctionCall("coalesce", (X, NO))),
        ("x IS NOT TRUE", Unary("not", FunctionCall("coalesce", (X, NO)))),
        ("x IS FALSE", FunctionCall("coalesce", (Unary("not", X), NO))),
        ("x IN (1, y)", In(X, (Literal(1), Y))),
        ("x NOT IN (1)", In(X, (Literal(1),), negated=True)),
        ("x BETWEEN 1 AND y", Between(X, Literal(1), Y)),
        ("x NOT BETWEEN 1 AND 2", Between(X, Literal(1), Literal(2), negated=True)),
        ("x LIKE 'a%'", Like(X, "a%")),
        ("x NOT LIKE 'a%'", Like(X, "a%", negated=True)),
        (r"x LIKE 'a\%'", Like(X, r"a\%")),
        (r"x LIKE '5!%!!\' ESCAPE '!'", Like(X, r"5\%!\\")),
        ("x ILIKE 'Ab%'", Like(FunctionCall("lower", (X,)), "ab%")),
        ("COALESCE(x, y, 0)", FunctionCall("coalesce", (X, Y, Literal(0)))),
        ("nvl(x, 0)", FunctionCall("coalesce", (X, Literal(0)))),
        ("NULLIF(x, 0)", FunctionCall("nullif", (X, Literal(0)))),
        ("pow(x, 2)", FunctionCall("power", (X, Literal(2)))),
        ("EXTRACT(YEAR FROM x)", FunctionCall("year", (X,))),
        ("year(x)", FunctionCall("year", (X,))),
        ("SUBSTRING(x FROM 2 FOR 3)", FunctionCall("substring", (X, Literal(2), Literal(3)))),
        ("substr(x, 2)", FunctionCall("substring", (X, Literal(2)))),
        ("TRIM(x)", FunctionCall("trim", (X,))),
        ("CEIL(x)", FunctionCall("ceil", (X,))),
        ("floor(x)", FunctionCall("floor", (X,))),
        ("concat(x, y)", FunctionCall("concat", (X, Y))),
        ('"x" + `y`', Binary("+", X, Y)),
        ("(((x)))", X),
    ],
)
def test_expressions(text, expr):
    assert read(text) == expr


NEWER = pytest.mark.skipif("case" not in FUNCTIONS, reason="there is no CASE yet")


@NEWER
@pytest.mark.parametrize(
    ("text", "expr"),
    [
        (
            "CASE WHEN x > 1 THEN 'a' WHEN y THEN 'b' ELSE 'c' END",
            FunctionCall("case", (Binary(">", X, Literal(1)), Literal("a"), Y, Literal("b"), Literal("c"))),
        ),
        ("CASE x WHEN 1 THEN y END", FunctionCall("case", (Binary("=", X, Literal(1)), Y, Literal(None)))),
        ("if(x, 1, 2)", FunctionCall("case", (X, Literal(1), Literal(2)))),
        ("CAST(x AS INTEGER)", FunctionCall("to_integer", (X,))),
        ("TRY_CAST(x AS double)", FunctionCall("to_float", (X,))),
        ("x::varchar(10)", FunctionCall("to_string", (X,))),
        ("CAST(x AS DECIMAL(10, 2))", FunctionCall("round", (FunctionCall("to_float", (X,)), Literal(2)))),
        ("DATE '2026-01-31'", FunctionCall("to_date", (Literal(datetime(2026, 1, 31)),))),
        ("CAST('2026-01-31' AS DATE)", FunctionCall("to_date", (Literal("2026-01-31"),))),
        ("x IS DISTINCT FROM y", FunctionCall("is_distinct", (X, Y))),
        ("x IS NOT DISTINCT FROM y", Unary("not", FunctionCall("is_distinct", (X, Y)))),
    ],
)
def test_cases_and_casts(text, expr):
    assert read(text) == expr


@pytest.mark.parametrize(
    "name",
    [
        name
        for f in FUNCTIONS.values()
        for name in (f.name, *f.aliases)
        if name.isidentifier() and name not in ("case", "mod")  # CASE WHEN, and %
    ],
)
def test_every_function_is_called_by_each_of_its_names(name):
    function = next(f for f in FUNCTIONS.values() if name in (f.name, *f.aliases))
    arguments = ", ".join(["x"] * function.least)
    found = read(f"{name.upper()}({arguments})")
    assert isinstance(found, FunctionCall)
    assert found.function == function.name


def test_many_conditions_are_no_deep_tree():
    text = " OR ".join(f"x = {number}" for number in range(5000))
    assert read(text).operator == "or"


@pytest.mark.parametrize(
    "name",
    [
        "time",
        "date",
        "timestamp",
        "range",
        "map",
        "array",
        "list",
        "struct",
        "object",
        "call",
        "show",
        "values",
        "describe",
        "row",
        "order",
        "first",
        "last",
        "prev",
        "next",
        "final",
        "running",
        "text",
        "char",
        "json",
        "year",
        "interval_",
        "key",
        "value",
        "left",
        "limit",
        "offset",
        "group",
        "end",
        "filter",
        "over",
        "percent",
        "match",
        "one",
    ],
)
def test_columns_may_be_called_like_words_of_sql(name):
    column = FieldRef(ROW, name)
    assert read(f"{name} < NULL") == Binary("<", column, Literal(None))
    assert read(f"x = {name}") == Binary("=", X, column)
    assert read(f"{name} + {name} IS NULL") == IsNull(Binary("+", column, column))
