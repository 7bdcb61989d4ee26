"""The meaning of expressions on single values."""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from ensue.functions import FUNCTIONS
from ensue.functions.interpreter import compile_like, compute_aggregate, evaluate
from ensue.ir.expression import Between, Binary, FieldRef, FunctionCall, In, IsNull, Like, Literal, Unary


def value(expr, **fields):
    return evaluate(expr, lambda ref: fields[ref.name])


def of(operator, left, right):
    return value(Binary(operator, Literal(left), FieldRef("a", "x")), x=right)


def called(function, *arguments):
    return value(FunctionCall(function, tuple(Literal(a) for a in arguments)))


@pytest.mark.parametrize(
    ("left", "right", "both", "either"),
    [(True, None, None, True), (False, None, False, None), (None, None, None, None), (True, False, False, True)],
)
def test_unknown_is_neither_true_nor_false(left, right, both, either):
    assert of("and", left, right) is both
    assert of("and", right, left) is both
    assert of("or", left, right) is either
    assert of("or", right, left) is either


def test_null_equals_nothing():
    assert of("=", None, None) is None
    assert value(Unary("not", Literal(None))) is None
    assert value(IsNull(Literal(None))) is True


def test_nan_is_unordered():
    assert of("<", math.nan, 1.0) is False
    assert of(">=", math.nan, math.nan) is False
    assert of("=", math.nan, math.nan) is False
    assert of("!=", math.nan, math.nan) is True


def test_in_with_null_options():
    options = (Literal(1), Literal(None))
    assert value(In(Literal(1), options)) is True
    assert value(In(Literal(2), options)) is None
    assert value(In(Literal(2), options, negated=True)) is None
    assert value(In(Literal(None), (Literal(1),))) is None


def test_between_is_false_if_one_end_says_so():
    assert value(Between(Literal(5), Literal(7), Literal(None))) is False
    assert value(Between(Literal(5), Literal(3), Literal(None))) is None
    assert value(Between(Literal(5), Literal(5), Literal(5))) is True


@pytest.mark.parametrize(
    ("operator", "left", "right", "result"),
    [
        ("/", 1, 2, 0.5),
        ("/", 1, 0, None),
        ("/", 1.0, -0.0, None),
        ("%", -7, 3, -1),
        ("%", 7, -3, 1),
        ("%", -7.5, 2, -1.5),
        ("%", 1, 0, None),
        ("+", 2**63 - 1, 1, None),
        ("-", -(2**63), 1, None),
        ("*", 2**62, 4, None),
        ("*", 2**62, -2, -(2**63)),
        ("+", Decimal("0.1"), Decimal("0.2"), 0.1 + 0.2),
        ("||", "a", "b", "ab"),
    ],
)
def test_arithmetic(operator, left, right, result):
    found = of(operator, left, right)
    assert found == result
    assert type(found) is type(result)


def test_infinity_has_no_rest():
    assert math.isnan(of("%", math.inf, 2.0))


def test_numbers_of_different_kinds_are_compared_exactly():
    assert of("=", 2**53 + 1, float(2**53)) is False
    assert of(">", 2**53 + 1, float(2**53)) is True
    assert of("<", 2**63 - 1, 2.0**63) is True
    assert of("=", 2**53 + 1, 2**53) is False
    assert of("=", Decimal("0.1"), 0.1) is True


def test_instants_are_compared_whatever_their_zone():
    noon = datetime(2026, 1, 1, 12)
    east = datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    assert of("=", noon, east) is True
    assert of("=", datetime(2026, 1, 1), date(2026, 1, 1)) is True
    assert of("-", east, noon) == timedelta(0)


def test_time_arithmetic():
    noon, minute = datetime(2026, 1, 1, 12), timedelta(minutes=1)
    assert of("+", noon, minute) == datetime(2026, 1, 1, 12, 1, tzinfo=UTC)
    assert of("-", date(2026, 1, 2), date(2026, 1, 1)) == timedelta(days=1)
    assert of("*", minute, 1.5) == timedelta(seconds=90)
    assert of("/", minute, 0) is None
    assert of("/", minute, timedelta(seconds=30)) == 2.0
    assert of("%", timedelta(seconds=-7), timedelta(seconds=4)) == timedelta(seconds=-3)
    assert of("*", minute, math.nan) is None
    assert of("+", datetime(9999, 12, 31), timedelta(days=2)) is None


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("a%", "abc", True),
        ("a_", "a\n", True),
        ("%b", "ab", True),
        (r"a\%", "a%", True),
        (r"a\%", "ab", False),
        ("a.c", "abc", False),
        ("", "", True),
        ("\\", "\\", True),
    ],
)
def test_like(pattern, text, matches):
    assert bool(compile_like(pattern).fullmatch(text)) is matches
    assert value(Like(Literal(text), pattern, negated=True)) is not matches
    assert value(Like(Literal(None), pattern)) is None


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (("round", 2.5), 3.0),
        (("round", -2.5), -3.0),
        (("round", 0.49999999999999994), 0.0),
        (("round", 2.345, 2), 2.35),
        (("round", 1250, -2), 1300),
        (("round", -1250, -2), -1300),
        (("round", 1e300, 300), 1e300),
        (("round", 7, -19), 0),
        (("abs", -(2**63)), None),
        (("round", 2**63 - 1, -1), None),
        (("round", 2**63 - 1, -19), None),
        (("floor", -0.5), -1.0),
        (("ceil", 0.5), 1.0),
        (("sign", -3), -1),
        (("sign", 2.5), 1.0),
        (("sqrt", -1), None),
        (("ln", 0), None),
        (("log10", 1000), 3.0),
        (("exp", 1000), math.inf),
        (("power", 2, 10), 1024.0),
        (("power", -8, 0.5), None),
        (("power", 0, -1), None),
        (("power", 0, -math.inf), None),
        (("power", -10, 309), -math.inf),
        (("least", 3, None, 1), 1),
        (("greatest", None, None), None),
        (("least", math.nan, 1.0), 1.0),
        (("coalesce", None, 2), 2),
        (("nullif", 1, 1), None),
        (("nullif", 1, None), 1),
        (("lower", "ÄB"), "äb"),
        (("upper", "ß"), "SS"),
        (("length", "日本"), 2),
        (("trim", "  a "), "a"),
        (("substring", "abcdef", 2), "bcdef"),
        (("substring", "abcdef", 2, 3), "bcd"),
        (("substring", "abcdef", 0, 3), "ab"),
        (("substring", "abcdef", 3, -1), ""),
        (("concat", "a", None), None),
        (("concat", "a", "b"), "ab"),
        (("starts_with", "abc", "ab"), True),
        (("ends_with", "abc", "ab"), False),
        (("contains", "abc", ""), True),
        (("year", datetime(2026, 3, 4, 5, 6, 7)), 2026),
        (("month", date(2026, 3, 4)), 3),
        (("day", date(2026, 3, 4)), 4),
        (("hour", datetime(2026, 3, 4, 1, tzinfo=timezone(timedelta(hours=2)))), 23),
        (("minute", datetime(2026, 3, 4, 5, 6, 7)), 6),
        (("second", datetime(2026, 3, 4, 5, 6, 7)), 7),
    ],
)
def test_functions(call, result):
    function, *arguments = call
    assert called(function, *arguments) == result


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if f != "is_distinct"])
def test_every_function_takes_null(function):
    assert called(function, *[None] * FUNCTIONS[function].least) is None


@pytest.mark.parametrize(
    ("function", "values", "parameter", "result"),
    [
        ("count", [1, None, 2], None, 2),
        ("count", [], None, 0),
        ("sum", [1, None, 2], None, 3),
        ("sum", [0.1, 0.2, 0.3], None, 0.1 + 0.2 + 0.3),
        ("sum", [2**63 - 1, 1], None, None),
        ("sum", [2**63 - 1, 1, -1], None, 2**63 - 1),
        ("avg", [2**63 - 1, 2**63 - 1], None, 2.0**63),
        ("sum", [Decimal("0.5"), Decimal("0.25")], None, 0.75),
        ("sum", [timedelta(1), timedelta(2)], None, timedelta(3)),
        ("avg", [1, 2], None, 1.5),
        ("avg", [timedelta(1), timedelta(2)], None, timedelta(days=1.5)),
        ("avg", [None], None, None),
        ("min", [3, None, 1], None, 1),
        ("min", [math.nan, 1.0], None, 1.0),
        ("max", ["a", "b"], None, "b"),
        ("max", [Decimal("0.1"), Decimal("0.2")], None, Decimal("0.2")),
        ("first", [None, 1], None, None),
        ("last", [None, 1], None, 1),
        ("last", [], None, None),
        ("stddev", [1], None, None),
        ("stddev", [2, 4, 4, 4, 5, 5, 7, 9], None, math.sqrt(32 / 7)),
        ("percentile", [1, 2, 3, 4], 25, 1.75),
        ("percentile", [10], 99, 10.0),
        ("percentile", [timedelta(seconds=4), None, timedelta(seconds=1)], 25, timedelta(seconds=1.75)),
        ("percentile", [], 50, None),
        ("percentile", [1.0, math.inf, math.inf], 75, math.inf),
    ],
)
def test_aggregates(function, values, parameter, result):
    assert compute_aggregate(function, values, parameter) == result


def test_nan_taints_a_percentile():
    assert math.isnan(compute_aggregate("percentile", [1.0, math.nan], 0))
