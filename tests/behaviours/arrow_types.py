"""Every Arrow type with its extreme values, and what plain Python says of them."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

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
        return self.by_reference if runner.name == "semantics" and not self.refused else self.refused


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
}


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


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda x, y: x < y, "<=": lambda x, y: x <= y, "=": lambda x, y: x == y,
    "!=": lambda x, y: x != y, ">": lambda x, y: x > y, ">=": lambda x, y: x >= y,
}  # fmt: skip


def that_hold(operator: str, values: list[Any], others: list[Any] | None = None) -> set[Any]:
    """The pairs of values for which a comparison is true."""
    holds, others = COMPARISONS[operator], values if others is None else others
    known = [(i, j, x, y) for i, x in enumerate(values) for j, y in enumerate(others)]
    return {(i, j) for i, j, x, y in known if x is not None and y is not None and holds(x, y)}


EVERY_DAY = (
    "int64", "int64 beyond 2^53", "uint64", "uint64 beyond", "float64", "decimal128",
    "decimal128 whole", "decimal128 beyond", "string", "binary", "date32 ends", "timestamp s ends",
    "timestamp us ends", "timestamp ns", "timestamp ns ends", "duration us", "duration s ends",
    "dictionary of decimal", "struct", "null", "uuid",
)  # fmt: skip


def cases(names: Any = tuple(CASES)) -> Any:
    """The names of types as parameters of a test; the less telling ones take their time."""
    slow = [() if name in EVERY_DAY else (pytest.mark.slow,) for name in names]
    return pytest.mark.parametrize("name", [pytest.param(n, marks=m) for n, m in zip(names, slow, strict=True)])
