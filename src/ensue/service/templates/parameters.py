"""Parsing and checking of template parameters, and the layout of the resulting OPSL."""

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from numbers import Integral, Real
from typing import Any

from ensue.errors import EventError, QueryError, did_you_mean
from ensue.ir.subscription import Region
from ensue.ir.values import parse_duration
from ensue.service.templates.template import (
    NANOSECONDS,
    Duration,
    FilledTemplate,
    ObjectSelection,
    Parameter,
    ParameterKind,
    Template,
    TemplateStream,
    Value,
    format_number,
)
from ensue.vector.geo_regions import build_region, normalize_region

ALL_OBJECTS = "all"  # stands for all objects

_NAME = re.compile(r"[^\W\d]\w*(-\w+)*")
_DISTANCE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(km|m)?\s*", re.IGNORECASE)
_SHAPE = re.compile(r"\s*\w+\s*(Z|M|ZM)?\s*\(", re.IGNORECASE)
_LONGEST = 2**63 - 1  # nanoseconds
_LARGEST = 2**63  # bound of an integer column
_MICROSECOND = 1_000  # nanoseconds; the shortest duration


@dataclass(frozen=True, slots=True)
class TemplateRegion:
    """A region: its name in the text, and its definition."""

    name: str
    shape: str | None = None  # None: defined elsewhere

    @property
    def words(self) -> str:
        return self.name if self.shape is None else "the region"


@dataclass(frozen=True, slots=True)
class ParameterValues:
    """The parsed and checked values, by parameter."""

    template: str
    stream: TemplateStream
    values: Mapping[str, Any]

    def length(self, name: str) -> Duration:
        """A duration, 0 if it is missing."""
        return self.values[name] or Duration(0, self.stream.calendar)

    def distance(self, name: str) -> float:
        """A distance, 0 if it is missing."""
        return self.values.get(name) or 0.0

    def objects(self, name: str) -> ObjectSelection:
        selection: ObjectSelection = self.values[name]
        return selection

    def place(self, name: str) -> TemplateRegion | None:
        return self.values.get(name)

    def build_error(self, name: str, problem: str, *, hint: str) -> QueryError:
        return QueryError(f"template '{self.template}', '{name}': {problem}", hint=hint)

    def metres(self, distance: float) -> str:
        """Formats a distance with its unit."""
        return f"{format_number(distance)} m" if self.stream.earth else format_number(distance)


def parse_values(template: Template, values: Mapping[str, Any], stream: TemplateStream) -> ParameterValues:
    """Parses the values of a template; raises QueryError for a wrong one."""
    known = {parameter.name: parameter for parameter in template.parameters}
    for name in values:
        if name not in known:
            raise QueryError(
                f"template '{template.name}' has no parameter '{name}'", hint=did_you_mean(str(name), known)
            )
    parsed = {}
    for parameter in template.parameters:
        try:
            parsed[parameter.name] = _read(parameter, values.get(parameter.name), stream)
        except QueryError as error:
            error.problem = f"template '{template.name}', '{parameter.name}': {error.problem}"
            raise
    return ParameterValues(template.name, stream, parsed)


def _read(
    parameter: Parameter, value: Any, stream: TemplateStream
) -> Duration | float | ObjectSelection | TemplateRegion | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        value = parameter.default
    if value is None and parameter.required:
        raise QueryError(f"{_EXPECTED[parameter.kind]} is missing", hint=_example(parameter, stream))
    if parameter.kind is ParameterKind.OBJECT:
        return ObjectSelection(stream, _objects(value, parameter, stream))
    if value is None:
        return None
    read = {ParameterKind.LENGTH: _length, ParameterKind.DISTANCE: _distance, ParameterKind.REGION: _place}
    parsed = read[parameter.kind](value, parameter, stream)
    if parsed is None:
        raise _error(parameter, value, stream)
    return parsed


def _error(parameter: Parameter, value: Any, stream: TemplateStream) -> QueryError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:59]}…"
    return QueryError(f"expected {_EXPECTED[parameter.kind]}, found {shown}", hint=_example(parameter, stream))


_EXPECTED = {
    ParameterKind.REGION: "a region",
    ParameterKind.LENGTH: "a length of time",
    ParameterKind.DISTANCE: "a distance",
    ParameterKind.OBJECT: "an object, or a list of them",
}


def _example(parameter: Parameter, stream: TemplateStream) -> str:
    match parameter.kind:
        case ParameterKind.REGION:
            named = "the name of a region (letters, digits, _ and -)"
            return f"{named}, or a shape: POLYGON ((0 0, 9 0, 9 9, 0 0))"
        case ParameterKind.LENGTH if stream.calendar:
            return "write it like '5 minutes', or as a number of seconds"
        case ParameterKind.LENGTH:
            kind = "a whole number" if stream.whole_numbers else "a number"
            return f"{kind} in the units of the time column, as in 300"
        case ParameterKind.DISTANCE:
            unit = "metres" if stream.earth else "the units of the plane"
            return f"a number in {unit}, as in 50"
        case ParameterKind.OBJECT:
            one, two = ("'truck 7'", "'truck 8'") if stream.key_is_text else ("7", "8")
            listed = f"{one}, [{one}, {two}] or '{ALL_OBJECTS}'"
            return f"values of the column '{stream.key}', as in {listed}"


def _length(value: Any, parameter: Parameter, stream: TemplateStream) -> Duration | None:
    amount = _nanoseconds(value) if stream.calendar else _number(value)
    if amount is None:
        return None
    if stream.whole_numbers and not stream.calendar:
        if amount != int(amount):
            return None
        amount = int(amount)
    length = Duration(amount, stream.calendar)
    least = _MICROSECOND / NANOSECONDS if stream.calendar else None
    _require(length.seconds, parameter, least, lambda bound: _format_duration(bound, stream))
    return length


def _format_duration(seconds: float, stream: TemplateStream) -> str:
    amount = round(seconds * NANOSECONDS) if stream.calendar else seconds
    return str(Duration(amount, stream.calendar))


def _nanoseconds(value: Any) -> int | None:
    if isinstance(value, timedelta):
        return (value // timedelta(microseconds=1)) * _MICROSECOND
    if isinstance(value, str):
        try:
            nanoseconds = parse_duration(value)
        except EventError:
            return None
    else:
        number = _number(value)
        if number is None or abs(number) * NANOSECONDS > _LONGEST:
            return None
        nanoseconds = round(number * NANOSECONDS)
    return nanoseconds if abs(nanoseconds) <= _LONGEST else None


def _distance(value: Any, parameter: Parameter, stream: TemplateStream) -> float | None:
    distance = _number(value)
    if distance is None and stream.earth and isinstance(value, str):
        parsed = _DISTANCE.fullmatch(value)
        if parsed is not None:
            distance = float(parsed[1]) * (1_000 if (parsed[2] or "").lower() == "km" else 1)
    if distance is None:
        return None
    _require(distance, parameter, None, format_number)
    return float(distance)


def _require(value: float, parameter: Parameter, smallest: float | None, shown: Any) -> None:
    """Raises QueryError if a number is out of the bounds of its parameter."""
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
    """Parses a finite number, also from the text of a form, or returns None."""
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
    number = int(value) if isinstance(value, Integral) else float(value)
    return number if math.isfinite(number) else None


def _objects(value: Any, parameter: Parameter, stream: TemplateStream) -> tuple[Value, ...]:
    if value is None or value == ALL_OBJECTS:
        return ()
    if isinstance(value, str) and not stream.key_is_text:
        value = value.split(",")  # from a form
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        value = [value]
    objects = tuple(dict.fromkeys(_object(each, parameter, stream) for each in value))
    if not objects:
        raise QueryError("this list of objects is empty", hint=_example(parameter, stream))
    return objects


def _object(value: Any, parameter: Parameter, stream: TemplateStream) -> Value:
    if stream.key_is_text:
        if not isinstance(value, str):
            raise _error(parameter, value, stream)
        return value
    number = _number(value)
    if number is None or (isinstance(number, int) and not -_LARGEST <= number < _LARGEST):
        raise _error(parameter, value, stream)
    return number


def _place(value: Any, parameter: Parameter, stream: TemplateStream) -> TemplateRegion | None:
    if isinstance(value, str) and _NAME.fullmatch(value.strip()):
        return TemplateRegion(value.strip())
    if isinstance(value, str) and not _SHAPE.match(value):
        return None
    try:
        shape = normalize_region(value)
        build_region(Region(shape), "earth" if stream.earth else "plane")
    except QueryError as error:
        raise QueryError(error.problem, hint=_example(parameter, stream)) from None
    return TemplateRegion("Region", shape)


_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0

REGION = Parameter(
    "region",
    "Region",
    ParameterKind.REGION,
    "The name of a region, or its shape as WKT. The border counts as inside.",
    required=True,
)
OBJECT = Parameter("object", "Who", ParameterKind.OBJECT, "One object, several, or all of them.", default=ALL_OBJECTS)
MARGIN = Parameter(
    "margin",
    "Wider border",
    ParameterKind.DISTANCE,
    "An object outside by no more than this counts neither as inside nor as outside.",
    default=50.0,
    least=0.0,
)
REACH = Parameter(
    "reach",
    "Search radius",
    ParameterKind.DISTANCE,
    "Reports from further away than this are ignored. Without it every report of the stream is "
    "examined, which is too expensive with many subscriptions. Use more than the distance an "
    "object covers between two reports.",
)
DWELL = Parameter(
    "dwell",
    "Has to last",
    ParameterKind.LENGTH,
    "The state before and after the change has to last this long, or it does not count.",
    default="2 minutes",
    least=0.0,
    most=_DAY,
)
WITHIN = Parameter(
    "within",
    "Within",
    ParameterKind.LENGTH,
    "The report before the change and the one after it are at most this far apart.",
    default="30 minutes",
    most=7 * _DAY,
)
LONGER_THAN = Parameter(
    "longer_than",
    "Longer than",
    ParameterKind.LENGTH,
    "It is reported when this much time has passed, without another report.",
    required=True,
    most=30 * _DAY,
)
TOGETHER = Parameter(
    "together",
    "At the same time",
    ParameterKind.LENGTH,
    "A report is compared with the one of the other object just before it, if that is no older "
    "than this. Objects that report once a minute need a minute.",
    default="1 minute",
    most=_HOUR,
)
QUIET = Parameter(
    "quiet",
    "Quiet period",
    ParameterKind.LENGTH,
    "After a notification about an object there are no more about it for this long.",
    least=0.0,
    most=30 * _DAY,
)


DISTANCE = Parameter("distance", "Distance", ParameterKind.DISTANCE, "", required=True)
_WIDTH = 92
_LONGEST_WORDING = 120  # characters of a title


def write_template(
    args: ParameterValues,
    title: str,
    says: str,
    conditions: Sequence[str],
    definitions: Iterable[str],
    place: TemplateRegion | None = None,
    select: str | None = None,
) -> FilledTemplate:
    """Writes readable OPSL: a comment, the conditions, then the definitions."""
    comment = textwrap.wrap(says, _WIDTH, initial_indent="-- ", subsequent_indent="-- ")
    first, *rest = conditions
    lines = ["\n".join([first, *(f"    && {condition}" for condition in rest)])]
    lines += [f"    {definition}" for definition in definitions]
    if place is not None and place.shape is not None:
        lines.append(f"    {place.name} = {place.shape}")
    text = "\n".join([*comment, ",\n".join(lines)])
    if select is not None:
        text += f"\nWITH select = {select}"
    quiet = args.length("quiet")
    title = title if len(title) <= _LONGEST_WORDING else f"{title[: _LONGEST_WORDING - 1]}…"
    return FilledTemplate(text, quiet.seconds if quiet else None, title)


def format_dwell(length: object) -> str:
    """Formats a duration as part of a sentence; empty if it is 0."""
    return f" for {length}" if length else ""
