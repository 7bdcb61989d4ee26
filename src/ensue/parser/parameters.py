"""Parameters of a query: `:gap` in its text, and the values bound to them.

A parameter is a value and never a piece of the query: its text is not parsed.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from ensue.errors import QueryError, Span, did_you_mean
from ensue.ir.expression import Constant

_KINDS = "a number, a text, a truth value, a date, a datetime, a timedelta, None, or a list of them"
_LISTS = (list, tuple, set, frozenset, range)
_LIST_METHODS = ("tolist", "to_pylist", "to_list")  # of NumPy and pandas, of Arrow, of Polars
_NUMPY_TIMES = {"datetime64": "datetime64[us]", "timedelta64": "timedelta64[us]"}


@dataclass(frozen=True, slots=True)
class Parameters:
    """The values of parameters by name, and which of them a text has used."""

    values: Mapping[str, object]
    how: Callable[[str], str] = lambda name: f'give it one: params={{"{name}": ...}}'  # for a missing value
    used: set[str] = field(default_factory=set)
    each: bool = True  # report values that no text uses

    def constants(self, name: str, span: Span | None = None) -> list[Constant] | Constant:
        """Returns the constant of a parameter, or its list of constants.

        >>> Parameters({"names": {"b", "a"}, "low": Decimal("0.5")}).constants("names")
        ['a', 'b']
        """
        if name not in self.values:
            near = did_you_mean(name, self.values) or ""
            hint = near if near.startswith("did") else self.how(name)
            raise QueryError(f"no value is given for :{name}", hint=hint, span=span)
        self.used.add(name)
        value = self.values[name]
        items = _list_items(value)
        if items is None:
            return self._constant(name, value, span)
        if not items:
            raise QueryError(f":{name} is an empty list", hint="leave the condition out", span=span)
        return [self._constant(name, item, span) for item in items]

    def plain(self, name: str, span: Span | None = None) -> object:
        """Returns a value as a Python object that need not be a constant, e.g. a decimal."""
        self.constants(name, span)
        value = self.values[name]
        items = _list_items(value)
        return _plain(value) if items is None else [_plain(item) for item in items]

    def require_used(self) -> None:
        """Raises a QueryError for a value that no text has used."""
        for name in self.values:
            if self.each and name not in self.used:
                near = did_you_mean(name, self.used) or ""
                raise QueryError(
                    f"no query here has the parameter :{name}",
                    hint=near if near.startswith("did") else "leave its value out",
                )

    def _constant(self, name: str, value: object, span: Span | None) -> Constant:
        try:
            return to_constant(value)
        except ValueError as error:
            raise QueryError(f":{name} {error}", hint=f"pass {_KINDS}", span=span) from None


NO_PARAMETERS = Parameters({}, lambda _: "parameters have no values here: write the value itself")


def build_parameters(params: object) -> Parameters:
    """Converts the argument `params=`."""
    if params is None:
        return Parameters({})
    if isinstance(params, Parameters):
        return params
    if not isinstance(params, Mapping):
        raise QueryError(f"params= is a {type(params).__name__}", hint='values by name: params={"gap": 5}')
    for name in params:
        if not isinstance(name, str) or not name.isidentifier():
            hint = f"write {name[1:]!r}" if isinstance(name, str) and name[:1] == ":" else None
            raise QueryError(f"params= has {name!r}, which is not a parameter name", hint=hint)
    return Parameters(params)


def list_value_error(name: str, span: Span | None) -> QueryError:
    """Creates the error for a list in place of a single value."""
    return QueryError(
        f":{name} is a list, but a single value is expected here",
        hint=f"a list is allowed after IN, by itself: a.kind IN :{name}",
        span=span,
    )


def describe_constant(value: Constant) -> str:
    """Describes a parameter for an error.

    >>> describe_constant("x"), describe_constant(True), describe_constant(3)
    ("the text 'x'", 'true', 'the number 3')
    """
    match value:
        case None | bool():
            return {None: "NULL", True: "true", False: "false"}[value]
        case str() | int() | float():
            return f"the {'text' if isinstance(value, str) else 'number'} {value!r}"
        case timedelta():
            return f"a length of time, {value}"
        case _:
            return f"the time {value}"


def to_constant(value: object) -> Constant:
    """Converts a value of Python, NumPy, pandas or Arrow to a constant, or raises a ValueError.

    >>> to_constant(Decimal("2.50")), to_constant(date(2026, 1, 31))
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
        case float() | Decimal() if not math.isfinite(value):
            raise ValueError(f"is {value}, which the language has no constant for")
        case float():
            return float(value)
        case Decimal():
            return int(value) if value.as_tuple().exponent == 0 else float(value)
        case datetime():
            if value != value:  # pandas' NaT is a datetime
                return None
            _whole_microseconds(value, "nanosecond")
            return datetime.fromisoformat(value.isoformat(timespec="microseconds"))
        case date():
            return datetime.combine(value, datetime.min.time())
        case timedelta():
            _whole_microseconds(value, "nanoseconds")
            return timedelta(value.days, value.seconds, value.microseconds)
        case _:
            raise ValueError(f"is of the type {type(value).__name__}, which cannot be used as a constant")


def _plain(value: Any) -> object:
    """Converts values of NumPy, pandas and Arrow to Python, without importing the libraries."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    if library == "numpy" and kind.__name__ in _NUMPY_TIMES:
        microseconds = value.astype(_NUMPY_TIMES[kind.__name__])
        if microseconds != value and value == value:
            raise ValueError(f"is {value}, and parameters have whole microseconds")
        return microseconds.item()
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


def _list_items(value: Any) -> list[object] | None:
    """Returns the items of a list, in a stable order also for sets; None for a single value."""
    if isinstance(value, _LISTS):
        items: Iterable[object] = value
        return sorted(items, key=repr) if isinstance(value, set | frozenset) else list(items)
    if getattr(value, "ndim", 1) == 0 or isinstance(value, str | bytes | date | timedelta):
        return None
    to_list = next((getattr(value, name) for name in _LIST_METHODS if hasattr(value, name)), None)
    if to_list is None:
        return None
    items = to_list()
    return list(items) if isinstance(items, list) else None
