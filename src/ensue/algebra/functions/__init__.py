"""The scalar functions of the language, one record each.

A new one is a record in one of these files; all else follows from it: parsing, checks of kinds,
evaluation over values and columns, compiled code. `docs/language.md` is to name it.
"""

from collections.abc import Sequence

from ensue.algebra.functions.bits import BITS
from ensue.algebra.functions.calendar import CALENDAR
from ensue.algebra.functions.casts import CASTS
from ensue.algebra.functions.choices import CHOICES
from ensue.algebra.functions.numbers import ANGLES, NUMBERS
from ensue.algebra.functions.places import (
    CIRCLE,
    EARTH,
    EARTH_LOCATION,
    LOCATION,
    PLACES,
    SPACES,
    WKT,
    on_earth,
)
from ensue.algebra.functions.record import Function
from ensue.algebra.functions.regexps import REGEXPS
from ensue.algebra.functions.texts import TEXTS
from ensue.algebra.functions.times import TIMES
from ensue.algebra.functions.zones import AT_TIME_ZONE, ZONES

__all__ = [
    "AT_TIME_ZONE",
    "CIRCLE",
    "EARTH",
    "EARTH_LOCATION",
    "FUNCTIONS",
    "LOCATION",
    "SPACES",
    "WKT",
    "call",
    "name_of",
    "on_earth",
]

_ALL = (
    *NUMBERS, *ANGLES, *BITS, *CHOICES, *CASTS, *TEXTS, *REGEXPS,
    *TIMES, *CALENDAR, *ZONES, *PLACES,
)  # fmt: skip
FUNCTIONS: dict[str, Function] = {f.name: f for f in _ALL}


def call(function: str, arguments: Sequence[object]) -> object:
    """A function's value; None for NULL.

    >>> call("round", [2.5]), call("round", [-2.45, 1]), call("sqrt", [-1]) is None
    (3.0, -2.5, True)
    >>> call("greatest", [1, None, 3]), call("coalesce", [None, 7]), call("upper", ["ab"])
    (3, 7, 'AB')
    """
    return FUNCTIONS[function](arguments)


def name_of(written: str) -> str:
    """The name of the function that a query means; names of no function stay as they are.

    >>> name_of("pow"), name_of("abs"), name_of("foo")
    ('power', 'abs', 'foo')
    """
    if written in FUNCTIONS:
        return written
    return next((f.name for f in FUNCTIONS.values() if written in f.aliases), written)
