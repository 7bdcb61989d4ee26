"""The values of a template's parameters, as a program or a form gives them."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from numbers import Integral, Real
from typing import Any

from ensue.algebra.durations import parse_duration
from ensue.algebra.subscription import Region
from ensue.columns.region_shapes import made, region_text
from ensue.errors import EventError, QueryError, did_you_mean
from ensue.service.templates.lengths import NANOSECONDS, Length
from ensue.service.templates.numbers import number_text
from ensue.service.templates.objects import Key, Objects, Value
from ensue.service.templates.template import Kind, Parameter, Template, TemplateStream

EVERYBODY = "all"  # the word for all objects

_NAME = re.compile(r"[^\W\d]\w*(-\w+)*")
_DISTANCE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(km|m)?\s*", re.IGNORECASE)
_SHAPE = re.compile(r"\s*\w+\s*(Z|M|ZM)?\s*\(", re.IGNORECASE)
_LONGEST = 2**63 - 1  # nanoseconds
_LARGEST = 2**63  # what a column of integers holds lies below
_MICROSECOND = 1_000  # nanoseconds: nothing is shorter


@dataclass(frozen=True, slots=True)
class Place:
    """A region: its name in the text, and what the text has to define."""

    name: str
    shape: str | None = None  # None: somebody else knows the name

    @property
    def words(self) -> str:
        return self.name if self.shape is None else "the region"


@dataclass(frozen=True, slots=True)
class Given:
    """What was given, by parameter, read and checked."""

    template: str
    stream: TemplateStream
    values: Mapping[str, "Length | float | Objects | Place | None"]

    def length(self, name: str) -> Length:
        """A length of time; one that was not given is 0."""
        found = self.values[name]
        if found is None:
            return Length(0, self.stream.calendar)
        assert isinstance(found, Length)
        return found

    def distance(self, name: str) -> float:
        found = self.values.get(name)
        assert isinstance(found, float | int | None)
        return found or 0.0

    def objects(self, name: str) -> Objects:
        found = self.values[name]
        assert isinstance(found, Objects)
        return found

    def place(self, name: str) -> Place | None:
        found = self.values.get(name)
        assert isinstance(found, Place | None)
        return found

    def wrong(self, name: str, problem: str, *, hint: str) -> QueryError:
        """What is wrong with the value of a parameter."""
        return QueryError(f"template '{self.template}', '{name}': {problem}", hint=hint)

    def metres(self, distance: float) -> str:
        """A distance as people say it."""
        return f"{number_text(distance)} m" if self.stream.earth else number_text(distance)


def read(template: Template, values: Mapping[str, Any], stream: TemplateStream) -> Given:
    """The values of a template that is made for the stream. QueryError if one is wrong."""
    known = {parameter.name: parameter for parameter in template.parameters}
    for name in values:
        if name not in known:
            raise QueryError(
                f"template '{template.name}' has no parameter '{name}'",
                hint=did_you_mean(str(name), known),
            )
    found = {}
    for parameter in template.parameters:
        try:
            found[parameter.name] = _read(parameter, values.get(parameter.name), stream)
        except QueryError as error:
            error.problem = f"template '{template.name}', '{parameter.name}': {error.problem}"
            raise
    return Given(template.name, stream, found)


def _read(
    parameter: Parameter, value: Any, stream: TemplateStream
) -> Length | float | Objects | Place | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        value = parameter.default
    if value is None and parameter.required:
        raise QueryError(f"{_wanted(parameter)} is missing", hint=_example(parameter, stream))
    if parameter.kind is Kind.OBJECT:
        return Objects(Key.of(stream), _objects(value, parameter, stream))
    if value is None:
        return None
    match parameter.kind:
        case Kind.LENGTH:
            return _length(value, parameter, stream)
        case Kind.DISTANCE:
            return _distance(value, parameter, stream)
        case Kind.REGION:
            return _place(value, parameter, stream)


def _refused(parameter: Parameter, value: Any, stream: TemplateStream) -> QueryError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:59]}…"
    return QueryError(
        f"expected {_wanted(parameter)}, found {shown}", hint=_example(parameter, stream)
    )


def _wanted(parameter: Parameter) -> str:
    return {
        Kind.REGION: "a region",
        Kind.LENGTH: "a length of time",
        Kind.DISTANCE: "a distance",
        Kind.OBJECT: "an object, or a list of them",
    }[parameter.kind]


def _example(parameter: Parameter, stream: TemplateStream) -> str:
    match parameter.kind:
        case Kind.REGION:
            named = "the name of a region (letters, digits, _ and -)"
            return f"{named}, or a shape: POLYGON ((0 0, 9 0, 9 9, 0 0))"
        case Kind.LENGTH if stream.calendar:
            return "write it like '5 minutes', or as a number of seconds"
        case Kind.LENGTH:
            kind = "a whole number" if stream.whole_numbers else "a number"
            return f"{kind} in the units of the time column, as in 300"
        case Kind.DISTANCE:
            unit = "metres" if stream.earth else "the units of the plane"
            return f"a number in {unit}, as in 50"
        case Kind.OBJECT:
            one, two = ("'truck 7'", "'truck 8'") if stream.key_is_text else ("7", "8")
            listed = f"{one}, [{one}, {two}] or '{EVERYBODY}'"
            return f"values of the column '{stream.key}', as in {listed}"


# --------------------------------------------------------------------------- lengths, distances


def _length(value: Any, parameter: Parameter, stream: TemplateStream) -> Length:
    amount = _nanoseconds(value) if stream.calendar else _number(value)
    if amount is None:
        raise _refused(parameter, value, stream)
    if stream.whole_numbers and not stream.calendar:
        if amount != int(amount):
            raise _refused(parameter, value, stream)
        amount = int(amount)
    found = Length(amount, stream.calendar)
    least = _MICROSECOND / NANOSECONDS if stream.calendar else None
    _require(found.seconds, parameter, least, lambda bound: _length_of(bound, stream))
    return found


def _length_of(seconds: float, stream: TemplateStream) -> str:
    amount = round(seconds * NANOSECONDS) if stream.calendar else seconds
    return str(Length(amount, stream.calendar))


def _nanoseconds(value: Any) -> int | None:
    if isinstance(value, timedelta):
        return (value // timedelta(microseconds=1)) * _MICROSECOND
    if isinstance(value, str):
        try:
            found = parse_duration(value)
        except EventError:
            return None
    else:
        number = _number(value)
        if number is None or abs(number) * NANOSECONDS > _LONGEST:
            return None
        found = round(number * NANOSECONDS)
    return found if abs(found) <= _LONGEST else None


def _distance(value: Any, parameter: Parameter, stream: TemplateStream) -> float:
    found = _number(value)
    if found is None and stream.earth and isinstance(value, str):
        written = _DISTANCE.fullmatch(value)
        if written is not None:
            found = float(written[1]) * (1_000 if (written[2] or "").lower() == "km" else 1)
    if found is None:
        raise _refused(parameter, value, stream)
    _require(found, parameter, None, number_text)
    return float(found)


def _require(value: float, parameter: Parameter, smallest: float | None, shown: Any) -> None:
    """QueryError if a number is out of the bounds of its parameter."""
    least, most = parameter.least, parameter.most
    if least is not None and value < least:
        raise QueryError(f"{shown(value)} is less than {shown(least)}", hint=parameter.says)
    if least is None and value <= 0:
        raise QueryError(f"{shown(value)} is not more than 0", hint=parameter.says)
    if most is not None and value > most:
        raise QueryError(f"{shown(value)} is more than {shown(most)}", hint=parameter.says)
    if smallest is not None and 0 < value < smallest:
        raise QueryError("this is less than a microsecond", hint=parameter.says)


def _number(value: Any) -> int | float | None:
    """A finite number, also where a form gives it as text; None: it is none."""
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            try:
                value = float(value)
            except ValueError:
                return None
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    found = int(value) if isinstance(value, Integral) else float(value)
    return found if math.isfinite(found) else None


# ----------------------------------------------------------------------------- objects, regions


def _objects(value: Any, parameter: Parameter, stream: TemplateStream) -> tuple[Value, ...]:
    if value is None or value == EVERYBODY:
        return ()
    if isinstance(value, str) and not stream.key_is_text:
        value = value.split(",")  # as a form gives it
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        value = [value]
    found = tuple(dict.fromkeys(_object(one, parameter, stream) for one in value))
    if not found:
        raise QueryError("this list of objects is empty", hint=_example(parameter, stream))
    return found


def _object(value: Any, parameter: Parameter, stream: TemplateStream) -> Value:
    if stream.key_is_text:
        if not isinstance(value, str):
            raise _refused(parameter, value, stream)
        return value
    found = _number(value)
    if found is None or (isinstance(found, int) and not -_LARGEST <= found < _LARGEST):
        raise _refused(parameter, value, stream)
    return found


def _place(value: Any, parameter: Parameter, stream: TemplateStream) -> Place:
    if isinstance(value, str) and _NAME.fullmatch(value.strip()):
        return Place(value.strip())
    if isinstance(value, str) and not _SHAPE.match(value):
        raise _refused(parameter, value, stream)
    try:
        shape = region_text(value)
        made(Region(shape), "earth" if stream.earth else "plane")
    except QueryError as error:
        raise QueryError(error.problem, hint=_example(parameter, stream)) from None
    return Place("Region", shape)
