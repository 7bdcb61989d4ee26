"""Values that are not computed with: they would become others than they are."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ensue.algebra.values import DIGITS, EXACT, beyond, is_double
from ensue.columns.arrow_kinds import Unit
from ensue.columns.buffers import Bools, beyond_64_bits, booleans, counted, raw, unscaled
from ensue.columns.canonical import decimal_texts
from ensue.schema import Kind

_LONGEST = np.int64(10**DIGITS)


def not_computed(
    array: pa.Array, kind: Kind, valid: Bools | None, unit: Unit, name: str | None
) -> str | None:
    """Why a column is not computed with, if one of its values says so.

    >>> found = not_computed(pa.array([2**63], pa.uint64()), Kind.INTEGER, None, "us", "id")
    >>> found.splitlines()[0][:50]
    "9223372036854775808 in column 'id' is beyond the 6"
    """
    match kind:
        case Kind.INTEGER if types.is_uint64(array.type):
            large = raw(array, np.uint64) > np.uint64(2**63 - 1)
            row = _first(large, valid)
            return None if row is None else beyond(array[row].as_py(), name)
        case Kind.DECIMAL:
            row = _first_inexact(array)
            return None if row is None else beyond(array[row].as_py(), name)
        case Kind.TIMESTAMP | Kind.DURATION if array.type.unit == unit:
            return None  # they are counted as they are
        case Kind.TIMESTAMP | Kind.DATE | Kind.DURATION:
            row = _first(beyond_64_bits(array, unit), valid)
            if row is None:
                return None
            return _beyond_time(array, int(counted(array, unit)[0][row]), unit, name)
        case _:
            return None


def _first(marks: Bools, valid: Bools | None) -> int | None:
    """The first row that is marked, and not NULL."""
    if not marks.any():
        return None
    if valid is not None:
        marks = marks & valid
    return int(marks.argmax()) if marks.any() else None


def _first_inexact(array: pa.Array) -> int | None:
    """The first decimal for which no double stands."""
    parts = unscaled(array)
    if parts is not None:
        low, narrow, scale = parts
        fine = narrow & (low < _LONGEST) & (low > -_LONGEST)
        if not fine.all() and scale <= 18:
            unit = np.int64(10**scale)
            fine |= narrow & (low % unit == 0) & (np.abs(low // unit) <= EXACT)
        if fine.all():
            return None
    texts = decimal_texts(array)
    digits = pc.utf8_ltrim(pc.replace_substring(texts, ".", ""), characters="-0")
    doubtful = booleans(pc.greater(pc.utf8_length(digits), DIGITS))
    for row in np.flatnonzero(doubtful).tolist():
        if not is_double(Decimal(texts[row].as_py())):
            return int(row)
    return None


def _beyond_time(array: pa.Array, count: int, unit: Unit, name: str | None) -> str:
    where = "" if name is None else f" in column '{name}'"
    fine = "nanoseconds" if unit == "ns" else "microseconds"
    own = "days" if types.is_date32(array.type) else _UNITS[_unit_of(array.type)]
    since = "" if types.is_duration(array.type) else " since 1970"
    way = (
        "cast the columns with nanoseconds to microseconds: all times of a table use "
        "the finest unit of any column"
        if unit == "ns"
        else "replace it with a nearer time, or NULL"
    )
    return (
        f"{count} {own}{since}{where} is too far away to be counted in {fine} with 64 bits\n"
        f"  hint: {way}; carried through, or as a key [...], it stays unchanged"
    )


_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


def _unit_of(type: pa.DataType) -> str:
    return "ms" if types.is_date64(type) else str(type.unit)
