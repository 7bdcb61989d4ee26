"""Expressions over columns mean what they mean for single values."""

import itertools
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.expressions import expressions, tables

from ensue.functions import FUNCTIONS
from ensue.functions.interpreter import evaluate as plain
from ensue.functions.record import ArgumentType, ScalarFunction
from ensue.ir.expression import Binary, Expr, FieldRef, FunctionCall, In, Like, Literal
from ensue.ir.values import to_instant
from ensue.schema import ValueKind
from ensue.vector.arrow_types import kind_of_arrow, time_unit
from ensue.vector.column_values import Vector, from_arrow, to_arrow, truth
from ensue.vector.evaluation import evaluate
from support.seeds import scaled

KINDS = (
    ValueKind.BOOLEAN,
    ValueKind.INTEGER,
    ValueKind.FLOAT,
    ValueKind.STRING,
    ValueKind.TIMESTAMP,
    ValueKind.DURATION,
)


def normal(value: object) -> object:
    """Values that mean the same, made equal."""
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    if isinstance(value, date):
        return to_instant(value)
    return value


def by_columns(expr: Expr, table: pa.Table) -> Vector:
    unit = time_unit(table.schema)
    return evaluate(expr, lambda f: from_arrow(table.column(f.name), unit), len(table), unit)


def one_by_one(expr: Expr, table: pa.Table) -> list[object]:
    return [plain(expr, lambda f, row=row: row[f.name]) for row in table.to_pylist()]


@settings(max_examples=scaled(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), tables(), st.sampled_from(KINDS))
def test_columns_give_what_single_values_give(data, table, kind):
    expr = data.draw(expressions(kind))
    found = by_columns(expr, table)
    assert len(found) == len(table)
    assert found.valid is None or len(found.valid) == len(table)
    shown = to_arrow(found, "us").to_pylist()
    assert [normal(v) for v in shown] == [normal(v) for v in one_by_one(expr, table)]


@settings(max_examples=scaled(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), tables())
def test_only_what_is_true_holds(data, table):
    expr = data.draw(expressions(ValueKind.BOOLEAN))
    wanted = [value is True for value in one_by_one(expr, table)]
    assert truth(by_columns(expr, table)).tolist() == wanted


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (pa.uint64(), [1, 2**63 - 1, None]),
        (pa.float16(), [1.5, None]),
        (pa.string_view(), ["a", None, "b"]),
        (pa.dictionary(pa.int8(), pa.int64()), [7, None, 7]),
        (pa.decimal256(50, 2), [Decimal("1.25"), None]),
        (pa.decimal128(5, -2), [Decimal(1200), None]),
        (pa.date64(), [date(2026, 1, 1), None]),
        (pa.timestamp("s"), [datetime(1969, 12, 31, 23, 59, 59), None]),
        (pa.duration("ms"), [timedelta(milliseconds=-5), None]),
        (pa.null(), [None, None]),
    ],
)
def test_every_encoding_is_read(type, values):
    field = FieldRef("a", "x")
    table = pa.table({"x": pa.array(values, type)})
    expr = Binary("=", field, field)
    assert truth(by_columns(expr, table)).tolist() == [v is not None for v in values]
    assert by_columns(field, table).kind is kind_of_arrow(type)


def test_chunks_with_different_dictionaries_are_one_column():
    chunks = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", None]).dictionary_encode()]
    table = pa.table({"x": pa.chunked_array(chunks)})
    assert truth(by_columns(Binary("=", FieldRef("a", "x"), Literal("b")), table)).tolist() == [
        False, True, True, False,
    ]  # fmt: skip


def test_run_ends_are_read():
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([5, 6]))
    assert from_arrow(runs, "us").values.tolist() == [5, 5, 6]


def test_nanoseconds_are_kept():
    table = pa.table({"t": pa.array([1, 1001], pa.timestamp("ns"))})
    later = Binary(">", FieldRef("a", "t"), Literal(datetime(1970, 1, 1, 0, 0, 0, 1)))
    assert time_unit(table.schema) == "ns"
    assert truth(by_columns(later, table)).tolist() == [False, True]


def test_a_column_is_not_copied():
    values = pa.array(np.arange(4))
    assert from_arrow(values, "us").values.ctypes.data == values.buffers()[1].address


def test_a_null_in_a_dictionary_is_null():
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))
    table = pa.table({"x": coded})
    assert by_columns(Binary("=", FieldRef("a", "x"), Literal("a")), table).valid.tolist() == [
        True, False,
    ]  # fmt: skip


def test_many_options_on_a_dictionary():
    table = pa.table({"x": pa.array(["a", None, "c"]).dictionary_encode()})
    options = tuple(Literal(v) for v in ("a", "b", "d", None))
    found = by_columns(In(FieldRef("a", "x"), options), table)
    assert found.valid.tolist() == [True, False, False]
    assert truth(found).tolist() == [True, False, False]


def test_computing_on_a_dictionary_keeps_it():
    table = pa.table({"x": pa.array(["a", "b", "a"]).dictionary_encode()})
    upper = by_columns(FunctionCall("upper", (FieldRef("a", "x"),)), table)
    assert pa.types.is_dictionary(upper.values.type)
    assert truth(by_columns(Like(FunctionCall("upper", (FieldRef("a", "x"),)), "A%"), table)).tolist() == [
        True, False, True,
    ]  # fmt: skip


def test_computed_timestamps_carry_the_zone_asked_for():
    vector = Vector(ValueKind.TIMESTAMP, np.array([0]))
    assert to_arrow(vector, "us", "UTC").to_pylist() == [datetime(1970, 1, 1, tzinfo=UTC)]


# ------------------------------------------------------------------- the years 1 to 9999

EXTREMES = [
    edge + sign * step
    for edge, sign in ((datetime.min, 1), (datetime.max, -1))
    for step in (timedelta(0), timedelta(microseconds=1), timedelta(hours=11), timedelta(days=3))
]
SHIFTS = {
    "as it is": lambda time: time,
    "ahead": lambda time: FunctionCall("from_utc_timestamp", (time, Literal("Asia/Tokyo"))),
    "behind": lambda time: FunctionCall("from_utc_timestamp", (time, Literal("America/New_York"))),
    "to UTC": lambda time: FunctionCall("to_utc_timestamp", (time, Literal("Asia/Tokyo"))),
    "later": lambda time: Binary("+", time, Literal(timedelta(days=2))),
    "earlier": lambda time: Binary("-", time, Literal(timedelta(days=2))),
}
OTHERS = {
    ArgumentType.UNIT: ("week", "month", "hour"),
    ArgumentType.ZONE: ("Asia/Tokyo", "America/New_York"),
    ArgumentType.TEXT: ("%Y-%m-%d %H %G-%V",),
    ArgumentType.WHOLE: (1, -1),
    ArgumentType.NUMBER: (1, -1),
}
OF_TIMES = [
    function
    for function in FUNCTIONS.values()
    if {ArgumentType.TIME, ArgumentType.MOMENT, ArgumentType.PRINTED}
    & set(function.get_argument_types(len(function.takes)))
]


def calls_of(function: ScalarFunction, time: Expr) -> list[Expr]:
    """Calls with a time wherever one goes."""
    choices = [
        [Literal(value) for value in OTHERS[wanted]] if wanted in OTHERS else [time]
        for wanted in function.get_argument_types(len(function.takes))
    ]
    return [FunctionCall(function.name, arguments) for arguments in itertools.product(*choices)]


@pytest.mark.parametrize("shift", SHIFTS.values(), ids=SHIFTS)
@pytest.mark.parametrize("function", OF_TIMES, ids=lambda function: function.name)
def test_beyond_the_years_1_to_9999_is_null(function, shift):
    table = pa.table({"t": pa.array([*EXTREMES, None], pa.timestamp("us"))})
    for call in calls_of(function, shift(FieldRef("a", "t"))):
        found = to_arrow(by_columns(call, table), "us").to_pylist()
        assert list(map(normal, found)) == list(map(normal, one_by_one(call, table)))


def test_times_that_python_does_not_know_have_no_text():
    table = pa.table({"t": pa.array([0, 2**60, -(2**60)], pa.timestamp("us"))})
    text = FunctionCall("strftime", (FieldRef("a", "t"), Literal("%Y")))
    assert to_arrow(by_columns(text, table), "us").to_pylist() == ["1970", None, None]


def test_a_minute_that_seconds_round_up_to_the_year_10000_is_null():
    parts = (9999, 12, 31, 23, 59, 59.9999999)
    assert plain(FunctionCall("make_timestamp", tuple(map(Literal, parts))), None) is None
