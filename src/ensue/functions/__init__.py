"""The scalar functions of the language, one record each.

A record defines all of a function: parsing, type checks, evaluation over values and columns, and
generated code. `docs/language.md` lists the functions.
"""

from collections import UserDict
from collections.abc import Sequence
from functools import cache
from pkgutil import resolve_name

from ensue.functions.record import AT_TIME_ZONE, CIRCLE, EARTH, EARTH_LOCATION, LOCATION, SPACES, WKT, ScalarFunction

__all__ = [
    "AT_TIME_ZONE", "CIRCLE", "EARTH", "EARTH_LOCATION", "FUNCTIONS", "LOCATION", "SPACES", "WKT",
    "call_function", "resolve_function_name",
]  # fmt: skip

_GROUPS = (
    "numeric:NUMBERS", "numeric:ANGLES", "numeric:BITS", "casts:CHOICES", "casts:CASTS",
    "string:TEXTS", "string:REGEXPS", "datetime:TIMES", "datetime:CALENDAR", "datetime:ZONES",
    "spatial:PLACES",
)  # fmt: skip


class _Functions(UserDict[str, ScalarFunction]):
    """The functions by name. Their modules are loaded on the first access."""

    def __init__(self) -> None:
        pass  # `data` is computed on demand

    @property
    def data(self) -> dict[str, ScalarFunction]:  # type: ignore[override]
        return _by_name()


@cache
def _by_name() -> dict[str, ScalarFunction]:
    groups = (resolve_name(f"{__name__}.{group}") for group in _GROUPS)
    return {function.name: function for group in groups for function in group}


FUNCTIONS = _Functions()


def call_function(function: str, arguments: Sequence[object]) -> object:
    """Calls a function; None stands for NULL.

    >>> call_function("round", [-2.45, 1]), call_function("greatest", [1, None, 3])
    (-2.5, 3)
    """
    return FUNCTIONS[function](arguments)


def resolve_function_name(written: str) -> str:
    """Resolves aliases of functions; unknown names are returned unchanged.

    >>> resolve_function_name("pow"), resolve_function_name("abs"), resolve_function_name("foo")
    ('power', 'abs', 'foo')
    """
    if written in FUNCTIONS:
        return written
    return next((f.name for f in FUNCTIONS.values() if written in f.aliases), written)
