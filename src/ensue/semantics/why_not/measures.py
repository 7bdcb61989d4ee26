"""Times, lengths and distances as people read them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

from ensue.algebra.places import EARTH
from ensue.semantics.subscriptions import Time

_UNITS = (
    (86_400_000_000_000, "day"),
    (3_600_000_000_000, "hour"),
    (60_000_000_000, "minute"),
    (1_000_000_000, "second"),
    (1_000_000, "millisecond"),
    (1_000, "microsecond"),
    (1, "nanosecond"),
)
_FEW = 2  # units of a length that are shown
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Measures:
    """How a stream's numbers are shown."""

    timestamps: bool = False
    space: str = "plane"

    def length(self, length: Time, than: Time | None = None) -> str:
        """A length of time. One that is not `than` is not shown as if it were.

        >>> print(Measures(timestamps=True).length(1_872_000_000_000))
        31 minutes 12 seconds
        >>> print(Measures(timestamps=True).length(86_400_000_000_001))
        1 day 1 nanosecond
        """
        if not self.timestamps:
            return _number(length)
        units = list(_units(round(length)))
        shown = " ".join(units[:_FEW]) or "0 seconds"
        if than is not None and length != than and shown == self.length(than):
            return " ".join(units)
        return shown

    def moment(self, time: Time) -> str:
        """A point in time.

        >>> print(
        ...     Measures(timestamps=True).moment(1_769_855_400_000_000_000), Measures().moment(3.0)
        ... )
        2026-01-31 10:30:00 3
        """
        if not self.timestamps:
            return _number(time)
        at = _instant(time)
        return f"{time} ns" if at is None else at.replace(tzinfo=None).isoformat(sep=" ")

    def plain_time(self, time: Time) -> str | int | float:
        """A point in time as JSON has it."""
        at = _instant(time) if self.timestamps else None
        return plain(time) if at is None else at.isoformat()

    def distance(self, distance: float, than: float | None = None) -> str:
        """A distance, in metres on the earth. One that is not `than` is not shown as if it were.

        >>> print(
        ...     Measures().distance(14.000012), "-", Measures(space="earth").distance(20.0004, 20)
        ... )
        14 - 20.0004 m
        """
        shown = _rounded(distance)
        if than is not None and distance != than and shown == _rounded(than):
            shown = _number(distance)
        return f"{shown} m" if self.space == EARTH else shown


def _units(length: int) -> Iterator[str]:
    length = abs(length)
    for size, name in _UNITS:
        count, length = divmod(length, size)
        if count:
            yield f"{count} {name}{'' if count == 1 else 's'}"


def _instant(time: Time) -> datetime | None:
    """None: Python has no such time."""
    try:
        return _EPOCH + timedelta(microseconds=int(time) // 1_000)
    except OverflowError:
        return None


def _rounded(number: float) -> str:
    return _number(round(number) if abs(number) >= 1_000 else float(f"{number:.4g}"))


def _number(number: float) -> str:
    return repr(number).removesuffix(".0")


def plain(value: object) -> Any:
    """A field's value as JSON has it.

    >>> plain({"at": datetime(2026, 1, 31), "load": Decimal("1.5"), "by": float("nan")})
    {'at': '2026-01-31T00:00:00', 'load': 1.5, 'by': 'nan'}
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else repr(value)
        case Decimal():
            return plain(float(value))
        case date():
            return value.isoformat()
        case bytes():
            return value.hex()
        case Mapping():
            return {str(key): plain(one) for key, one in value.items()}
        case Sequence():
            return [plain(one) for one in value]
        case _:
            return str(value)
