"""Every Arrow type with its extreme values, as keys, in conditions, in aggregates and in results.

Each cell is exact, judged by plain Python numbers, or refused by an error that says why.
"""

import struct
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ensue.errors import EventError, QueryError

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # kernels are not compiled here

MAX, MIN = 2**63 - 1, -(2**63)
INF, NAN = float("inf"), float("nan")

BEYOND_64 = "is beyond the 64-bit integers"
DIGITS = "has more digits than conditions and aggregates keep of a decimal"
FAR = "is too far away to be counted in"
PYTHON = "times that only compiled queries compare"
NESTED = "cannot be compared"


@dataclass(frozen=True)
class Case:
    """A type with values; those that are compared are refused with a reason, or exact."""

    array: pa.Array
    refused: str | None = None  # by every runner
    by_reference: str | None = None  # by the semantics alone, whose values are Python's

    def reason(self, runner: Any) -> str | None:
        return (
            self.by_reference if runner.name == "semantics" and not self.refused else self.refused
        )


def counts(type: pa.DataType, values: list[int | None]) -> pa.Array:
    width = pa.int32() if pa.types.is_date32(type) or pa.types.is_time32(type) else pa.int64()
    return pa.array(values, width).view(type)


def decimals(type: pa.DataType, values: list[str | None]) -> pa.Array:
    return pa.array([None if v is None else Decimal(v) for v in values], type)


def signed(bits: int) -> list[int | None]:
    return [-(2 ** (bits - 1)), -1, 0, None, 1, 2 ** (bits - 1) - 1]


YEAR = 31_556_952
FAR_S = 250_000 * YEAR  # within 64 bits of microseconds, outside of Python's years
HALF = struct.unpack("<e", b"\x01\x00")[0]  # the least positive number of 16 bits

CASES: dict[str, Case] = {
    **{f"int{b}": Case(pa.array(signed(b), f"int{b}")) for b in (8, 16, 32, 64)},
    "int64 beyond 2^53": Case(pa.array([2**53, 2**53 + 1, MAX - 1, MAX, MIN, MIN + 1])),
    **{f"uint{b}": Case(pa.array([0, None, 1, 2**b - 1], f"uint{b}")) for b in (8, 16, 32)},
    "uint64": Case(pa.array([0, None, 2**53 + 1, MAX], pa.uint64())),
    "uint64 beyond": Case(pa.array([0, None, MAX, 2**63, 2**64 - 1], pa.uint64()), BEYOND_64),
    "float16": Case(pa.array(np.array([-INF, -65504, -0.0, HALF, 0.0, INF, NAN], np.float16))),
    "float32": Case(pa.array([-INF, -3.4028234663852886e38, 1e-45, -0.0, 0.0, None, INF, NAN], pa.float32())),
    "float64": Case(pa.array([-INF, -1.7976931348623157e308, -5e-324, -0.0, 0.0, 5e-324, None, INF, NAN])),
    "decimal32": Case(decimals(pa.decimal32(9, 2), ["-9999999.99", "0.00", None, "0.10", "9999999.99"])),
    "decimal64": Case(decimals(pa.decimal64(18, 4), ["-99999999999.9999", "0.1", None, "0.3"])),
    "decimal64 long": Case(decimals(pa.decimal64(18, 4), ["99999999999999.9999", "0.1"]), DIGITS),
    "decimal128": Case(decimals(pa.decimal128(38, 18), ["-0.123456789012345", "1234.56", None, "0.1"])),
    "decimal128 whole": Case(decimals(pa.decimal128(20, 0), [str(2**53 - 1), str(2**53), "0", str(10**19)])),
    "decimal128 beyond": Case(decimals(pa.decimal128(20, 0), [str(2**53), str(2**53 + 1), None]), DIGITS),
    "decimal128 long": Case(decimals(pa.decimal128(38, 18), ["0.1234567890123456", "0.1"]), DIGITS),
    "decimal128 negative scale": Case(decimals(pa.decimal128(5, -2), ["-9999900", "100", None, "0"])),
    "decimal256": Case(decimals(pa.decimal256(76, 3), ["-0.001", None, "123456789012.345", "1e20"])),
    "decimal256 beyond": Case(decimals(pa.decimal256(76, 0), [str(10**75 + 1), "1"]), DIGITS),
    "bool": Case(pa.array([True, None, False])),
    "string": Case(pa.array(["", "a", None, "A", "é", "\U0001f600", "a\0"])),
    "large_string": Case(pa.array(["", "b", None, "a"], pa.large_string())),
    "string_view": Case(pa.array(["", "b", None, "a long text, not inlined"], pa.string_view())),
    "binary": Case(pa.array([b"", b"\xff", None, b"a"]), NESTED),
    "large_binary": Case(pa.array([b"", b"\xff", None], pa.large_binary()), NESTED),
    "binary_view": Case(pa.array([b"", b"\xff", None], pa.binary_view()), NESTED),
    "fixed_size_binary": Case(pa.array([b"ab", b"\xff\0", None], pa.binary(2)), NESTED),
    "date32": Case(counts(pa.date32(), [-719_162, -1, 0, None, 2_932_896])),
    "date32 far": Case(counts(pa.date32(), [-80_000_000, 0, 90_000_000]), None, PYTHON),
    "date32 ends": Case(counts(pa.date32(), [-(2**31), 0, None, 2**31 - 1]), FAR),
    "date64": Case(counts(pa.date64(), [-62_135_596_800_000, 0, None, 86_400_000])),
    "date64 ends": Case(counts(pa.date64(), [-(2**63 // 86_400_000) * 86_400_000, 0]), FAR),
    "time32": Case(counts(pa.time32("s"), [0, None, 86_399]), NESTED),
    "time64": Case(counts(pa.time64("ns"), [0, None, 86_399_999_999_999]), NESTED),
    "timestamp s": Case(counts(pa.timestamp("s"), [-62_135_596_800, 0, None, 253_402_300_799])),
    "timestamp s far": Case(counts(pa.timestamp("s"), [-FAR_S, 0, FAR_S]), None, PYTHON),
    "timestamp s ends": Case(counts(pa.timestamp("s"), [MIN, 0, None, MAX]), FAR),
    "timestamp ms": Case(counts(pa.timestamp("ms", "Europe/Berlin"), [-1, 0, None, 253_402_000_000_000])),
    "timestamp ms ends": Case(counts(pa.timestamp("ms", "UTC"), [MIN, MAX]), FAR),
    "timestamp us": Case(counts(pa.timestamp("us", "UTC"), [-62_135_596_800_000_000, 0, None, 1])),
    "timestamp us ends": Case(counts(pa.timestamp("us"), [MIN, 0, None, MAX]), None, PYTHON),
    "timestamp ns": Case(counts(pa.timestamp("ns"), [-1000, 0, None, 9_223_372_036_854_775_000])),
    "timestamp ns ends": Case(counts(pa.timestamp("ns", "UTC"), [MIN, 0, None, 1, MAX]), None, PYTHON),
    "duration s": Case(counts(pa.duration("s"), [-9_000_000_000_000, 0, None, 9_000_000_000_000])),
    "duration s ends": Case(counts(pa.duration("s"), [MIN, 0, MAX]), FAR),
    "duration ms": Case(counts(pa.duration("ms"), [-(2**53), 0, None, 2**53 + 1])),
    "duration ms ends": Case(counts(pa.duration("ms"), [MIN, MAX]), FAR),
    "duration us": Case(counts(pa.duration("us"), [MIN, MIN + 1, 0, None, MAX - 1, MAX])),
    "duration ns": Case(counts(pa.duration("ns"), [-1000, 0, None, 9_223_372_036_854_775_000])),
    "duration ns ends": Case(counts(pa.duration("ns"), [MIN, 0, None, MAX]), None, PYTHON),
    "interval": Case(pa.array([(1, 2, 3), None, (0, 0, MAX)], pa.month_day_nano_interval()), NESTED),
    "dictionary of string": Case(pa.array(["b", "a", None, "b"]).dictionary_encode()),
    "dictionary of int64": Case(pa.array([MAX, MAX - 1, None, MIN]).dictionary_encode()),
    "dictionary of uint64": Case(pa.array([2**64 - 1, 1, None], pa.uint64()).dictionary_encode(), BEYOND_64),
    "dictionary of decimal": Case(
        decimals(pa.decimal128(20, 0), [str(2**53), str(2**53 + 1), None]).dictionary_encode(), DIGITS
    ),
    "dictionary of timestamp": Case(counts(pa.timestamp("ms"), [0, None, 5]).dictionary_encode()),
    "dictionary of float64": Case(pa.array([0.5, NAN, None, INF]).dictionary_encode()),
    "list": Case(pa.array([[1], [], None, [MAX, None]], pa.list_(pa.int64())), NESTED),
    "struct": Case(pa.array([{"k": 2**63}, None, {"k": None}], pa.struct([("k", pa.uint64())])), NESTED),
    "map": Case(pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())), NESTED),
    "null": Case(pa.nulls(3)),
    "uuid": Case(pa.array([b"0123456789abcdef", None, b"\0" * 16], pa.uuid()), NESTED),
}  # fmt: skip


def truth(array: pa.Array) -> list[Any]:
    """The values as Python compares them exactly."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    type = array.type
    if pa.types.is_date32(type):
        array = array.view(pa.int32())
    elif pa.types.is_timestamp(type) or pa.types.is_duration(type) or pa.types.is_date64(type):
        array = array.view(pa.int64())
    values = array.to_pylist()
    if pa.types.is_floating(type):
        return [None if v is None else float(v) for v in values]
    return [str(v) if isinstance(v, dict | list) else v for v in values]


def stream(array: pa.Array, types: str = "AB") -> pa.Table:
    """Every value once for each type: the A's first."""
    rows = np.tile(np.arange(len(array)), len(types))
    return pa.table(
        {
            "t": np.arange(len(rows)),
            "type": [t for t in types for _ in range(len(array))],
            "row": rows,
            "x": pa.chunked_array([array] * len(types)),
        }
    )


def pairs(runner: Any, table: pa.Table, condition: str) -> set[tuple[int, int]]:
    query = f"SEQ(A a, B b) WHERE {condition} RETURN a.row AS i, b.row AS j"
    found = runner.match(table, query, time="t", type="type")
    return {(row["i"], row["j"]) for row in found.to_pylist()}


def only_where_known(runner: Any, case: Case) -> None:
    if runner.name == "lanes" and pa.types.is_binary_view(case.array.type):
        pytest.skip("streams come from Spark, which has no views")


@pytest.mark.parametrize("name", CASES)
def test_keys_are_exact(name, runner):
    case = CASES[name]
    only_where_known(runner, case)
    if case.refused == NESTED:
        with pytest.raises(QueryError, match=NESTED):
            pairs(runner, stream(case.array), "[x]")
        return
    assert pairs(runner, stream(case.array), "[x]") == that_hold("=", truth(case.array))


def that_hold(operator: str, values: list[Any], others: list[Any] | None = None) -> set[Any]:
    """The pairs of values for which a comparison is true."""
    holds, others = COMPARISONS[operator], values if others is None else others
    known = [(i, j, x, y) for i, x in enumerate(values) for j, y in enumerate(others)]
    return {(i, j) for i, j, x, y in known if x is not None and y is not None and holds(x, y)}


@pytest.mark.parametrize("name", CASES)
def test_results_come_out_as_they_went_in(name, runner):
    case = CASES[name]
    only_where_known(runner, case)
    table = stream(case.array)
    query = (
        "SEQ(A a, B b) WHERE a.row = b.row "
        "RETURN a.x AS x, b AS b, first(a.x) AS f, last(b.x) AS l, count(b.x) AS n, a.row AS row, "
        "a.x IS NULL AS missing"
    )
    found = runner.match(table, query, time="t", type="type")
    assert sorted(found["row"].to_pylist()) == list(range(len(case.array)))
    order = np.argsort(found["row"].to_numpy())
    values = shown(case.array)
    for column in (found["x"], found["f"], found["l"], found["b"].combine_chunks().field("x")):
        assert column.type == case.array.type
        assert [shown(column)[k] for k in order] == values
    known = case.array.is_valid().to_pylist()
    assert found["n"].to_numpy()[order].tolist() == [int(v) for v in known]
    assert found["missing"].to_numpy()[order].tolist() == [not v for v in known]
    asked = pairs(runner, table, "a.x IS NOT NULL and a.row = b.row")
    assert asked == {(k, k) for k, there in enumerate(known) if there}


def shown(column: Any) -> list[str]:
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return [str(v) for v in truth(column)]


COMPARISONS = {
    "<": lambda x, y: x < y, "<=": lambda x, y: x <= y, "=": lambda x, y: x == y,
    "!=": lambda x, y: x != y, ">": lambda x, y: x > y,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_conditions_between_events(name, runner):
    case = CASES[name]
    only_where_known(runner, case)
    values, table = truth(case.array), stream(case.array)
    for operator in ("<", "="):
        # an equality of all events is a key, which the plan of the semantics does not know
        as_key = operator == "=" and runner.name != "semantics" and case.refused != NESTED
        if case.reason(runner) and not as_key:
            with pytest.raises((EventError, QueryError), match=case.reason(runner)):
                pairs(runner, table, f"a.x {operator} b.x")
            continue
        assert pairs(runner, table, f"a.x {operator} b.x") == that_hold(operator, values)


@pytest.mark.parametrize("name", CASES)
def test_conditions_on_one_event_and_along_a_kleene_variable(name, runner):
    """`x = x` of one event, and a chain of ascending values."""
    case = CASES[name]
    only_where_known(runner, case)
    values, table = truth(case.array), stream(case.array)
    chain = (
        "SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { a[i].x > a[i-1].x and b.row = 0 }"
    )
    if case.reason(runner):
        with pytest.raises((EventError, QueryError), match=case.reason(runner)):
            pairs(runner, table, "a.x = a.x")
        with pytest.raises((EventError, QueryError), match=case.reason(runner)):
            runner.match(table, chain, time="t", type="type")
        return
    wanted = {k for k, x in enumerate(values) if x is not None and x == x}
    assert {i for i, _ in pairs(runner, table, "a.x = a.x")} == wanted
    found = runner.match(table, f"{chain} RETURN a[].row AS rows", time="t", type="type")
    assert sorted(found["rows"].to_pylist()) == sorted(ascending(values))


def ascending(values: list[Any]) -> list[list[int]]:
    """Of each event the chain of those that are greater than the last one taken."""
    chains = []
    for begin in range(len(values)):
        chain = [begin]
        for k in range(begin + 1, len(values)):
            last = values[chain[-1]]
            if last is not None and values[k] is not None and values[k] > last:
                chain.append(k)
        chains.append(chain)
    return chains


AGGREGATES = "SEQ(A+ a[], B b) WHERE strict_contiguity(a[], b) { a.LEN = %d } RETURN %s"


@pytest.mark.parametrize("name", CASES)
def test_least_and_greatest(name, runner):
    case = CASES[name]
    only_where_known(runner, case)
    values, table = truth(case.array), stream(case.array)
    query = AGGREGATES % (len(values), "min(a.x) AS low, max(a.x) AS high, count(a.x) AS n")
    # what is returned is computed alike by all runners
    reason = "does not work on" if case.refused == NESTED else case.refused
    if reason:
        with pytest.raises((EventError, QueryError), match=reason):
            runner.match(table, query, time="t", type="type")
        return
    found = runner.match(table, query, time="t", type="type")
    assert found["low"].type == found["high"].type == case.array.type
    known = [v for v in values if v is not None and v == v]
    low, high = (truth(found[n].combine_chunks())[0] for n in ("low", "high"))
    assert (low, high) == ((min(known), max(known)) if known else (None, None))
    assert found["n"].to_pylist() == [sum(v is not None for v in values)]


NUMBERS = [n for n in CASES if n.startswith(("int", "uint", "decimal", "duration"))]
NUMBERS = [n for n in NUMBERS if n != "interval"]


@pytest.mark.parametrize("name", NUMBERS)
def test_sums_and_averages(name, runner):
    """A sum of integers or durations is exact, or NULL beyond 64 bits; of decimals it is a float."""
    case = CASES[name]
    values, table = truth(case.array), stream(case.array)
    returned = AGGREGATES % (len(values), "sum(a.x) AS total, avg(a.x) AS mean")
    running = (
        "SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) "
        "{ sum(a[..i].x) IS NOT NULL and b.row = 0 } "
        "RETURN a[].row AS rows"
    )
    if case.refused:
        with pytest.raises(EventError, match=case.refused):
            runner.match(table, returned, time="t", type="type")
        with pytest.raises(EventError, match=case.refused):
            runner.match(table, running, time="t", type="type")
        return
    found = runner.match(table, returned, time="t", type="type")
    known = [Fraction(v) for v in values if v is not None]
    total = found["total"].combine_chunks()
    if pa.types.is_decimal(case.array.type):
        rounding = float(max(map(abs, known))) * 2**-52
        assert total.to_pylist()[0] == pytest.approx(float(sum(known)), abs=rounding)
        assert found["mean"].to_pylist()[0] == pytest.approx(
            float(sum(known) / len(known)), abs=rounding
        )
        return
    scale = {"s": 10**6, "ms": 1000}.get(getattr(case.array.type, "unit", ""), 1)
    exact = int(sum(known)) * scale
    assert truth(total) == [exact if MIN <= exact <= MAX else None]
    mean = truth(found["mean"].combine_chunks())[0]
    assert mean == pytest.approx(float(Fraction(exact, len(known))), rel=1e-15, abs=1)
    if case.reason(runner):
        with pytest.raises(EventError, match=case.reason(runner)):
            runner.match(table, running, time="t", type="type")
        return
    found = runner.match(table, running, time="t", type="type")
    assert sorted(found["rows"].to_pylist()) == sorted(within_64_bits(values, scale))


def within_64_bits(values: list[int | None], scale: int) -> list[list[int]]:
    """The chains whose sum so far is there."""
    chains = []
    for begin, first in enumerate(values):
        if first is None:
            continue
        chain, total = [begin], first * scale
        for k in range(begin + 1, len(values)):
            more = total + (values[k] or 0) * scale
            if MIN <= more <= MAX:
                chain.append(k)
                total = more
        chains.append(chain)
    return chains
