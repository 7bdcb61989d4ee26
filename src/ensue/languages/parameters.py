"""Parameters of a query: `:gap` in its text, and the values that stand in their places.

A parameter is a value and never a piece of the query: its text is not read.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from ensue.algebra.predicate import Constant
from ensue.errors import QueryError, did_you_mean
from ensue.span import Span

_KINDS = (
    "a number, a text, a truth value, a date, a datetime, a timedelta, None, or a list of them"
)
_LISTS = (list, tuple, set, frozenset, range)
_LISTED = ("tolist", "to_pylist", "to_list")  # of NumPy and pandas, of Arrow, of Polars
_TIMES_OF_NUMPY = {"datetime64": "datetime64[us]", "timedelta64": "timedelta64[us]"}


def _in_params(name: str) -> str:
    return f'give it one: params={{"{name}": ...}}'


@dataclass(frozen=True, slots=True)
class Parameters:
    """The values of parameters, by name, and which of them a text has asked for."""

    values: Mapping[str, object]
    how: Callable[[str], str] = _in_params  # how a value is given
    used: set[str] = field(default_factory=set)
    each: bool = True  # a value that no text asks for is a mistake

    def constants(self, name: str, span: Span | None = None) -> list[Constant] | Constant:
        """The constant that a parameter stands for, or the list of them.

        >>> Parameters({"names": {"b", "a"}, "low": Decimal("0.5")}).constants("names")
        ['a', 'b']
        """
        if name not in self.values:
            near = did_you_mean(name, self.values) or ""
            hint = near if near.startswith("did") else self.how(name)
            raise QueryError(f"no value is given for :{name}", hint=hint, span=span)
        self.used.add(name)
        value = self.values[name]
        several = _several(value)
        if several is None:
            return self._constant(name, value, span)
        if not several:
            raise QueryError(
                f":{name} is an empty list", hint="leave the condition out", span=span
            )
        return [self._constant(name, one, span) for one in several]

    def plain(self, name: str, span: Span | None = None) -> object:
        """A value as Python has it, where it need not be a constant of ours: decimals stay so."""
        self.constants(name, span)
        value = self.values[name]
        several = _several(value)
        return _plain(value) if several is None else [_plain(one) for one in several]

    def require_used(self) -> None:
        """Raises a QueryError for a value that no text has asked for."""
        for name in self.values:
            if self.each and name not in self.used:
                near = did_you_mean(name, self.used) or ""
                raise QueryError(
                    f"no query here has the parameter :{name}",
                    hint=near if near.startswith("did") else "leave its value out",
                )

    def _constant(self, name: str, value: object, span: Span | None) -> Constant:
        try:
            return constant_of(value)
        except ValueError as error:
            raise QueryError(f":{name} {error}", hint=f"pass {_KINDS}", span=span) from None


NO_PARAMETERS = Parameters({}, lambda _: "parameters have no values here: write the value itself")


def parameters_of(given: object) -> Parameters:
    """What a call is given as `params=`."""
    if given is None:
        return Parameters({})
    if isinstance(given, Parameters):
        return given
    if not isinstance(given, Mapping):
        raise QueryError(
            f"params= is a {type(given).__name__}", hint='values by name: params={"gap": 5}'
        )
    for name in given:
        if not isinstance(name, str) or not name.isidentifier():
            hint = f"write {name[1:]!r}" if isinstance(name, str) and name[:1] == ":" else None
            raise QueryError(f"params= has {name!r}, which is no name of a parameter", hint=hint)
    return Parameters(given)


def several_values(name: str, span: Span | None) -> QueryError:
    """The error for a list in a place of one value."""
    return QueryError(
        f":{name} is a list, and one value is meant here",
        hint=f"a list stands behind IN, and alone: a.kind IN :{name}",
        span=span,
    )


def told(value: Constant) -> str:
    """What a parameter is, for an error.

    >>> told("x"), told(True), told(3)
    ("the text 'x'", 'true', 'the number 3')
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the text {value!r}"
        case int() | float():
            return f"the number {value!r}"
        case timedelta():
            return f"a length of time, {value}"
        case _:
            return f"the time {value}"


# -------------------------------------------------------------------------------------- values


def constant_of(value: object) -> Constant:
    """A value of Python, or of a library of tables, as a constant; a ValueError says why not.

    >>> constant_of(Decimal("2.50")), constant_of(date(2026, 1, 31))
    (2.5, datetime.datetime(2026, 1, 31, 0, 0))
    """
    value = _plain(value)
    match value:
        case None | bool():
            return value
        case str():
            return str(value)
        case int():
            return int(value)
        case float():
            if not math.isfinite(value):
                raise ValueError(f"is {value}, which the language has no constant for")
            return float(value)
        case Decimal():
            if not value.is_finite():
                raise ValueError(f"is {value}, which the language has no constant for")
            return int(value) if value.as_tuple().exponent == 0 else float(value)
        case datetime():
            if value != value:  # NaT, which pandas calls a datetime
                return None
            _whole_microseconds(value, "nanosecond")
            return datetime.fromisoformat(value.isoformat(timespec="microseconds"))
        case date():
            return datetime.combine(value, datetime.min.time())
        case timedelta():
            _whole_microseconds(value, "nanoseconds")
            return timedelta(value.days, value.seconds, value.microseconds)
        case _:
            raise ValueError(
                f"is of the type {type(value).__name__}, which cannot be used as a constant"
            )


def _plain(value: Any) -> object:
    """Values of NumPy, pandas and Arrow as those of Python; the libraries are not imported."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    if library == "numpy" and kind.__name__ in _TIMES_OF_NUMPY:
        whole = value.astype(_TIMES_OF_NUMPY[kind.__name__])
        if whole != value and value == value:
            raise ValueError(f"is {value}, and parameters have whole microseconds")
        return whole.item()
    if library == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    if library == "pandas" and kind.__name__ == "NAType":
        return None
    if library == "pyarrow" and hasattr(value, "as_py"):
        return value.as_py()
    return value


def _whole_microseconds(value: object, rest: str) -> None:
    if getattr(value, rest, 0):
        raise ValueError(f"is {value}, and parameters have whole microseconds")


def _several(value: Any) -> list[object] | None:
    """The values of a list; None where it is one value. Those of a set come in one order."""
    if isinstance(value, _LISTS):
        found: Iterable[object] = value
        return sorted(found, key=repr) if isinstance(value, set | frozenset) else list(found)
    if getattr(value, "ndim", 1) == 0 or isinstance(value, str | bytes | date | timedelta):
        return None
    listed = next((getattr(value, name) for name in _LISTED if hasattr(value, name)), None)
    if listed is None:
        return None
    found = listed()
    return list(found) if isinstance(found, list) else None
