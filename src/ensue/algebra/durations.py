"""Lengths of time as people write them: `5 minutes`, `12 h`, `500 ms`."""

import re
from decimal import Decimal
from difflib import get_close_matches

from ensue.errors import EventError, QueryError
from ensue.span import Span

# The length in nanoseconds and the accepted spellings, the first one being how it is printed.
_UNITS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (604_800_000_000_000, ("week", "weeks", "w")),
    (86_400_000_000_000, ("day", "days", "d")),
    (3_600_000_000_000, ("hour", "hours", "hr", "hrs", "h")),
    (60_000_000_000, ("minute", "minutes", "min", "mins", "m")),
    (1_000_000_000, ("second", "seconds", "sec", "secs", "s")),
    (1_000_000, ("millisecond", "milliseconds", "millis", "ms")),
    (1_000, ("microsecond", "microseconds", "micros", "us", "µs", "μs")),
    (1, ("nanosecond", "nanoseconds", "nanos", "ns")),
)
_LENGTH = {spelling: length for length, spellings in _UNITS for spelling in spellings}
_CALENDAR = ("month", "months", "year", "years", "quarter", "quarters")
_MOST = 9.2e18  # nanoseconds that fit into a signed 64-bit integer


def nanoseconds(amount: str, unit: str, span: Span) -> int:
    """The length of so many units, to the nearest nanosecond.

    >>> nanoseconds("1.5", "hours", Span(0, 9))
    5400000000000
    """
    spelling = unit.lower()
    if spelling not in _LENGTH:
        raise QueryError(f"'{unit}' is not a unit of time", hint=unit_hint(unit), span=span)
    # The float keeps exponents that no Decimal can hold away from it.
    rough = float(amount) * _LENGTH[spelling]
    if abs(rough) > _MOST:
        raise QueryError("this duration is too long", hint="at most 292 years", span=span)
    return round(Decimal(amount) * _LENGTH[spelling]) if rough else 0


def is_unit(word: str) -> bool:
    """Whether a word is a unit of time.

    >>> is_unit("D"), is_unit("minutes"), is_unit("Day1")
    (True, True, False)
    """
    return word.lower() in _LENGTH


def parse_duration(text: str) -> int:
    """The length of a text such as `10 seconds`, in nanoseconds.

    >>> parse_duration("1.5 min")
    90000000000
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([^\W\d]+)\s*", text)
    if found is None:
        raise EventError(f"{text!r} is not a length of time\n  hint: write it like '10 seconds'")
    if found[2].lower() not in _LENGTH:
        raise EventError(f"'{found[2]}' is not a unit of time\n  hint: {unit_hint(found[2])}")
    return round(Decimal(found[1]) * _LENGTH[found[2].lower()])


def show_duration(length: int) -> str:
    """So many nanoseconds in the largest unit that divides them.

    >>> show_duration(3_600_000_000_000), show_duration(90_000_000_000), show_duration(-1_000)
    ('1 hour', '90 seconds', '-1 microsecond')
    """
    size, name = next(
        ((size, names[0]) for size, names in _UNITS if length and length % size == 0),
        (1_000_000_000, "second"),
    )
    count = length // size
    return f"{count} {name}" if abs(count) == 1 else f"{count} {name}s"


def unit_hint(unit: str) -> str:
    """What to write in place of an unknown unit.

    >>> unit_hint("minuts")
    "did you mean 'minutes'?"
    """
    if unit.lower() in _CALENDAR:
        return "months and years differ in length: count days or weeks"
    near = get_close_matches(unit.lower(), _LENGTH, n=1)
    if near:
        return f"did you mean '{near[0]}'?"
    return "units are weeks, days, hours, minutes, seconds, ms, us and ns"
