"""Templates: a name, a description, and parameters; and the objects that they select."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ensue.errors import QueryError
from ensue.ir.values import format_duration


class ParameterKind(StrEnum):
    """The type of a parameter."""

    REGION = "region"  # the name of a region, or WKT
    LENGTH = "length of time"  # a duration
    DISTANCE = "distance"
    OBJECT = "object"  # one or several values of the key column, or all


@dataclass(frozen=True, slots=True)
class TemplateStream:
    """The properties of the stream that templates depend on."""

    key: str | None  # the column that identifies the object
    key_is_text: bool = False
    calendar: bool = True  # times are timestamps or dates, not numbers
    whole_numbers: bool = False  # times are integers
    located: bool = True
    earth: bool = False  # coordinates are degrees, distances metres


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a template.

    `least` and `most` are bounds, in seconds for durations; without `least` the value must be
    positive.
    """

    name: str
    title: str
    kind: ParameterKind
    says: str
    unit: str | None = None
    default: Any = None
    required: bool = False
    least: float | None = None
    most: float | None = None

    def on(self, stream: TemplateStream) -> "Parameter":
        """Adapts unit and default to a stream."""
        match self.kind:
            case ParameterKind.LENGTH if stream.calendar:
                return replace(self, unit="as in 5 minutes")
            case ParameterKind.LENGTH:
                # the unit of numeric times is unknown, so most defaults would be arbitrary
                bound = self.required or (self.default is not None and self.least is None)
                default = None if self.default is None or self.least is None else self.least
                unit = "units of the time column"
                return replace(self, unit=unit, default=default, required=bound, most=None)
            case ParameterKind.DISTANCE if stream.earth:
                return replace(self, unit="m")
            case ParameterKind.DISTANCE:
                default = None if self.default is None else self.least
                return replace(self, unit="units of the plane", default=default)
            case ParameterKind.REGION | ParameterKind.OBJECT:
                return self


@dataclass(frozen=True, slots=True)
class Template:
    """A frequent query as data; `fill` writes it as OPSL."""

    name: str
    title: str
    says: str
    parameters: tuple[Parameter, ...]

    def on(self, stream: TemplateStream) -> "Template":
        """Adapts the template; raises QueryError if the stream lacks a key or locations."""
        if stream.key is None:
            raise QueryError(
                f"template '{self.name}' is about objects, and the stream has no key column",
                hint='name the column of the object: key="id"',
            )
        return replace(self, parameters=tuple(self._parameters(stream)))

    def _parameters(self, stream: TemplateStream) -> Iterator[Parameter]:
        for parameter in self.parameters:
            if stream.located or parameter.kind not in (ParameterKind.REGION, ParameterKind.DISTANCE):
                yield parameter.on(stream)
            elif parameter.required:
                raise QueryError(
                    f"template '{self.name}' needs locations, and the events have none",
                    hint='name the columns of the location: location=("x", "y")',
                )


@dataclass(frozen=True, slots=True)
class FilledTemplate:
    """A template with values: OPSL, a title, and the quiet period per object.

    Matches within `quiet` (seconds, or units of the time column) after the last one of the same
    object are not reported.
    """

    text: str
    quiet: float | None
    title: str


def format_number(number: int | float) -> str:
    """Formats a number that parses to the same value.

    >>> format_number(50.0), format_number(0.1), format_number(7)
    ('50', '0.1', '7')
    """
    if isinstance(number, float) and number.is_integer() and abs(number) < 2**53:
        return str(int(number))
    return repr(number)


NANOSECONDS = 1_000_000_000  # per second


@dataclass(frozen=True, slots=True)
class Duration:
    """A duration in nanoseconds, or in units of the time column.

    >>> str(Duration(90 * NANOSECONDS, True)), str(Duration(2.5, False))
    ('90 seconds', '2.5')
    """

    amount: int | float
    calendar: bool

    def __bool__(self) -> bool:
        return self.amount > 0

    def __add__(self, other: "Duration") -> "Duration":
        return Duration(self.amount + other.amount, self.calendar)

    def __str__(self) -> str:
        return format_duration(int(self.amount)) if self.calendar else format_number(self.amount)

    @property
    def seconds(self) -> float:
        """Seconds, or units of the time column."""
        return self.amount / NANOSECONDS if self.calendar else self.amount


Value = int | float | str

_NAME = re.compile(r"[^\W\d]\w*(-\w+)*")
_SHOWN = 3  # objects listed in a description


@dataclass(frozen=True, slots=True)
class ObjectSelection:
    """Some objects, or all, and the predicates for them over the key column.

    >>> trucks = ObjectSelection(TemplateStream("id"), (17, 18))
    >>> trucks.first, trucks.write_same_object("$a;")
    ('ARITH:id IN (17, 18)', 'ARITH:id IN (17, 18), ARITH:id = $a;.id')
    >>> ObjectSelection(TemplateStream("name", key_is_text=True), ("O'Neil",)).write_same_object("$a;")
    "STRING:name = 'O''Neil'"
    """

    stream: TemplateStream
    values: tuple[Value, ...] = ()  # empty: all objects

    @property
    def single(self) -> bool:
        return len(self.values) == 1

    @property
    def _field(self) -> str:
        """The column name after a type or a variable, quoted if it could be misread."""
        column = self.stream.key or ""
        if _NAME.fullmatch(column) and column.upper() not in ("IN", "LIKE", "WITH"):
            return column
        return '"' + column.replace('"', '""') + '"'

    @property
    def _typed(self) -> str:
        return f"{'STRING' if self.stream.key_is_text else 'ARITH'}:{self._field}"

    @property
    def first(self) -> str:
        """Predicates for any of the objects; for all of them one that always holds, since an atom needs one."""
        if not self.values:
            return f"{self._typed} LIKE '%'" if self.stream.key_is_text else f"{self._typed} > -1e300"
        if self.single:
            return f"{self._typed} = {_literal(self.values[0])}"
        return f"{self._typed} IN ({', '.join(map(_literal, self.values))})"

    def write_same_object(self, variable: str) -> str:
        """Predicates for the object of a variable's event."""
        if self.single:
            return self.first
        tied = f"{self._typed} = {variable}.{self._field}"
        return f"{self.first}, {tied}" if self.values else tied

    def write_different_object(self, variable: str) -> str:
        """A predicate for another object than that of a variable, with each pair once.

        Strings of two events cannot be ordered, so there each pair appears twice.
        """
        return f"{self._typed} {'!=' if self.stream.key_is_text else '>'} {variable}.{self._field}"

    def write_exclusion(self) -> str:
        """Predicates for all other objects."""
        return ", ".join(f"{self._typed} != {_literal(value)}" for value in self.values)

    @property
    def one(self) -> str:
        """One of the objects, as the subject of a sentence."""
        return f"one of {self.words}" if len(self.values) > 1 else self.words

    @property
    def words(self) -> str:
        """A description in one line.

        >>> ObjectSelection(TemplateStream("id"), (1, 2, 3, 4, 5)).words
        '1, 2, 3 and 2 more'
        """
        if not self.values:
            return "any object"
        shown = [_label(value) for value in self.values[:_SHOWN]]
        rest = len(self.values) - len(shown)
        return ", ".join(shown) + (f" and {rest} more" if rest else "")


def _literal(value: Value) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return format_number(value)


def _label(value: Value) -> str:
    """Formats a value in one line, since it is part of a comment."""
    text = value if isinstance(value, str) else format_number(value)
    text = " ".join(text.split())
    return text if len(text) <= 40 else f"{text[:39]}…"
