"""Numbers beyond 2^53 and 64 bits: mixed kinds, constants, arithmetic, times, order."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.behaviours.arrow_types import (
    BEYOND_64,
    DIGITS,
    FAR,
    INF,
    MAX,
    MIN,
    NAN,
    counts,
    decimals,
    pairs,
    stream,
    that_hold,
    truth,
)

import ensue
from ensue.errors import EventError, QueryError

pytestmark = [
    pytest.mark.stateless,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # kernels are not compiled here
]

# ------------------------------------------------------------------------------- mixed kinds

MIXED: dict[str, tuple[pa.Array, pa.Array]] = {
    "int64 and float64": (
        pa.array([2**53, 2**53 + 1, MAX, MIN, -1, None]),
        pa.array([2.0**53, 2.0**63, -(2.0**63), 0.5, NAN, INF, -INF]),
    ),
    "uint64 and int64": (pa.array([0, 2**53 + 1, MAX], pa.uint64()), pa.array([MIN, -1, 0, MAX])),
    "decimal and int64": (
        decimals(pa.decimal128(30, 3), ["0.001", str(2**53), str(2**62), str(-(2**63))]),
        pa.array([2**53 + 1, 2**53, 2**62 - 1, 2**62, MIN, 0]),
    ),
    "decimals of two scales": (
        decimals(pa.decimal128(20, 2), ["0.10", "0.30", "9999999999999.99"]),
        decimals(pa.decimal128(38, 18), ["0.1", "0.3", "0.300000000000001"]),
    ),
    "float32 and float64": (pa.array([0.1, 1e-45], pa.float32()), pa.array([0.1, 0.0, 1e-45])),
    "int8 and float16": (pa.array([-128, 1], pa.int8()), pa.array(np.array([1, -0.5], np.float16))),
}


@pytest.mark.parametrize(
    "operator", ["=", "<", ">=", *(pytest.param(o, marks=pytest.mark.slow) for o in ("!=", "<=", ">"))]
)
@pytest.mark.parametrize("name", MIXED)
def test_numbers_of_different_kinds_are_compared_by_their_values(name, operator, runner):
    left, right = MIXED[name]
    table = pa.table(
        {
            "t": range(len(left) + len(right)),
            "type": ["A"] * len(left) + ["B"] * len(right),
            "row": [*range(len(left)), *range(len(right))],
            "x": pa.concat_arrays([left, pa.nulls(len(right), left.type)]),
            "y": pa.concat_arrays([pa.nulls(len(left), right.type), right]),
        }
    )
    wanted = that_hold(operator, exactly(left), exactly(right))
    assert pairs(runner, table, f"a.x {operator} b.y") == wanted
    mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(operator, operator)
    assert pairs(runner, table, f"b.y {mirrored} a.x") == wanted


def exactly(array: pa.Array) -> list[Any]:
    return [v if v is None or v != v or v in (INF, -INF) else Fraction(v) for v in truth(array)]


@pytest.mark.parametrize(
    ("values", "condition", "rows"),
    [
        (pa.array([2**53, 2**53 + 1]), f"a.x = {2**53 + 1}", [1]),
        (pa.array([2**53, 2**53 + 1]), f"a.x > {2**53}.0", [1]),
        (pa.array([MAX - 1, MAX]), f"a.x < {2**63}", [0, 1]),
        (pa.array([MIN, MAX]), f"a.x >= {MIN}", [0, 1]),
        (pa.array([MAX, 7], pa.uint64()), f"a.x < {2**64 - 1}", [0, 1]),
        (pa.array([MIN, MAX]), "a.x > -99999999999999999999", [0, 1]),
        (pa.array([2.0**53, 2.0**53 + 2]), f"a.x < {2**53 + 1}", [0]),
        (pa.array([2.0**63, 0.0]), f"a.x = {2**63}", [0]),
        (decimals(pa.decimal128(20, 0), [str(2**53), "7"]), f"a.x < {2**53 + 1}", [0, 1]),
        (decimals(pa.decimal128(9, 2), ["0.10", "0.30"]), "a.x = 0.1", [0]),
        (decimals(pa.decimal128(38, 18), ["0.10", "0.30"]), "a.x IN (0.3, 1)", [1]),
        (decimals(pa.decimal128(9, 2), ["0.10", "0.30"]), "a.x BETWEEN 0.1 AND 0.2", [0]),
        # beyond 64 bits there is no integer
        (pa.array([MAX, 1]), "a.x + 1 IS NULL", [0]),
        (pa.array([MIN, 1]), "-a.x IS NULL", [0]),
        (pa.array([MIN, 1]), "abs(a.x) IS NULL", [0]),
        (pa.array([MAX, 1]), "a.x * 2 > 0 or a.x * 2 <= 0", [1]),
        (pa.array([MAX, 1]), "a.x * 2.0 > 0", [0, 1]),
        (pa.array([2**31, 2**32]), "a.x * a.x > 0", [0]),
        (pa.array([MIN, 5]), "a.x % -1 = 0", [0, 1]),
    ],
)
def test_constants_and_arithmetic(values, condition, rows, runner):
    table = pa.table({"t": range(len(values)), "x": values, "row": range(len(values))})
    query = f"SEQ(A a) WHERE {condition} RETURN a.row AS row"
    assert sorted(runner.match(table, query, time="t")["row"].to_pylist()) == rows


@pytest.mark.parametrize(
    "condition",
    [f"a.f < {2**63 + 1}", f"a.d = {2**64 - 1}", f"a.x + {2**63 + 1} > 0", f"greatest(a.f, {2**64 - 1}) > 1"],
)
def test_a_constant_that_would_be_rounded_is_refused(condition):
    table = pa.table({"t": [1], "x": [1], "f": [1.0], "d": decimals(pa.decimal128(9, 0), ["1"])})
    with pytest.raises(QueryError, match="no float is exactly this number") as error:
        ensue.match(table, f"SEQ(A a) WHERE {condition}", time="t")
    assert "hint: write the nearest float, 1" in str(error.value) or "9.22" in str(error.value)


@pytest.mark.parametrize(
    ("operation", "exact"),
    [
        ("a.x + b.x", lambda x, y: x + y),
        ("a.x - b.x", lambda x, y: x - y),
        ("a.x * b.x", lambda x, y: x * y),
        ("-(a.x - b.x)", lambda x, y: None if not MIN <= x - y <= MAX else y - x),
        ("abs(a.x - b.x)", lambda x, y: None if not MIN <= x - y <= MAX else abs(x - y)),
    ],
)
def test_arithmetic_between_events_is_exact_or_null(operation, exact, runner):
    values = [MIN, MIN + 1, -(2**32), -3, -1, 0, 1, 2, 2**31, 2**32, 2**62, MAX - 1, MAX]
    table = stream(pa.array(values))
    found = {(i, j): exact(x, y) for i, x in enumerate(values) for j, y in enumerate(values)}
    there = {k: v for k, v in found.items() if v is not None and MIN <= v <= MAX}
    assert pairs(runner, table, f"({operation}) IS NULL") == found.keys() - there.keys()
    assert pairs(runner, table, f"{operation} > 0") == {k for k, v in there.items() if v > 0}
    assert pairs(runner, table, f"{operation} = {MIN}") == {k for k, v in there.items() if v == MIN}


# ------------------------------------------------------------------------------- time and order


def test_times_that_64_bits_do_not_hold_are_refused(runner):
    for times, reason in [
        (pa.array([1, 2**63], pa.uint64()), BEYOND_64),
        (counts(pa.timestamp("s"), [0, MAX]), FAR),
        (pa.array([MIN, MAX]), "lie too far apart"),
        (decimals(pa.decimal128(20, 0), [str(2**53), str(2**53 + 1)]), DIGITS),
    ]:
        table = pa.table({"t": times, "type": ["A", "B"]})
        window = "5 seconds" if pa.types.is_timestamp(times.type) else "5"
        with pytest.raises(EventError, match=reason):
            runner.match(table, f"SEQ(A a, B b) WITHIN {window}", time="t", type="type")


def test_nanoseconds_far_from_each_other_are_outside_a_window(runner):
    table = pa.table({"t": counts(pa.timestamp("ns"), [-(2**62), 2**62 - 1]), "type": ["A", "B"]})
    query = "SEQ(A a, B b) WITHIN 5 seconds"
    assert runner.match(table, query, time="t", type="type").num_rows == 0


def test_a_time_of_another_column_is_not_moved_by_nanoseconds():
    """All times are counted in the finest unit of any: 9999 is too far for nanoseconds."""
    table = pa.table(
        {"t": counts(pa.timestamp("ns"), [1, 2]), "until": counts(pa.timestamp("us"), [253_402_300_799_000_000, 0])}
    )
    with pytest.raises(EventError, match="in column 'until' is too far away") as error:
        ensue.match(table, "SEQ(A a, A b) WHERE a.until > b.until", time="t")
    assert "cast the columns with nanoseconds to microseconds" in str(error.value)
    assert ensue.match(table, "SEQ(A a, A b)", time="t").num_rows == 1


@pytest.mark.parametrize(
    "order",
    [
        pa.array([2**64 - 1, 2**63, 1], pa.uint64()),
        decimals(pa.decimal128(20, 0), [str(2**53 + 2), str(2**53 + 1), str(2**53)]),
        counts(pa.timestamp("s"), [MAX, 0, MIN]),
    ],
    ids=["uint64", "decimal", "timestamp"],
)
def test_order_columns_of_any_value(order):
    table = pa.table({"t": [1, 1, 1], "o": order, "row": [2, 1, 0]})
    found = ensue.match(table, "SEQ(A a, A b, A c) RETURN a.row AS a, b.row AS b, c.row AS c", time="t", order="o")
    assert found.select(["a", "b", "c"]).to_pylist() == [{"a": 0, "b": 1, "c": 2}]


# ------------------------------------------------------------------------------- Spark


@pytest.mark.everywhere(slow=True)
def test_decimals_everywhere(runner):
    table = pa.table(
        {
            "t": range(4),
            "type": ["A", "A", "B", "B"],
            "row": [0, 1, 0, 1],
            "x": decimals(pa.decimal128(38, 18), ["0.1", "1234.56", "0.3", "0.1"]),
            "k": decimals(pa.decimal128(20, 0), [str(2**53), str(2**53 + 1)] * 2),
        }
    )
    assert pairs(runner, table, "a.x < b.x") == {(0, 0)}
    assert pairs(runner, table, "[k]") == {(0, 0), (1, 1)}
    query = "SEQ(A a, B b) WHERE [k] RETURN a.k AS k, a.x AS x, a.row AS row"
    found = runner.match(table, query, time="t", type="type")
    assert found["k"].type == pa.decimal128(20, 0)
    kept = {r["row"]: (r["k"], r["x"]) for r in found.to_pylist()}
    assert kept == {0: (2**53, Decimal("0.1")), 1: (2**53 + 1, Decimal("1234.56"))}
    with pytest.raises(Exception, match=DIGITS):
        pairs(runner, table, "a.k < b.k")
