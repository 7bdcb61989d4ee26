"""What a template is: a name, words for people, and the parameters that it wants."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ensue.errors import QueryError


class Kind(StrEnum):
    """What a parameter takes."""

    REGION = "region"  # the name of a region, or WKT
    LENGTH = "length of time"
    DISTANCE = "distance"
    OBJECT = "object"  # one or several values of the key column, or all


@dataclass(frozen=True, slots=True)
class TemplateStream:
    """What the text of a template needs to know of the stream."""

    key: str | None  # the column that names the object
    key_is_text: bool = False
    calendar: bool = True  # times are timestamps or dates, not numbers
    whole_numbers: bool = False  # times are integers
    located: bool = True
    earth: bool = False  # places are degrees, distances metres


@dataclass(frozen=True, slots=True)
class Parameter:
    """One thing that a template asks for.

    `least` and `most` are the bounds of what is taken, of lengths in seconds; without `least` it
    is anything above 0.
    """

    name: str
    title: str
    kind: Kind
    says: str
    unit: str | None = None
    default: Any = None
    required: bool = False
    least: float | None = None
    most: float | None = None

    def on(self, stream: TemplateStream) -> "Parameter":
        """As it is for a stream: its units, and defaults where they make sense."""
        match self.kind:
            case Kind.LENGTH if stream.calendar:
                return replace(self, unit="as in 5 minutes")
            case Kind.LENGTH:
                # nobody knows what 1 is there: a default would be an hour or a year
                bound = self.required or (self.default is not None and self.least is None)
                default = None if self.default is None or self.least is None else self.least
                unit = "units of the time column"
                return replace(self, unit=unit, default=default, required=bound, most=None)
            case Kind.DISTANCE if stream.earth:
                return replace(self, unit="m")
            case Kind.DISTANCE:
                default = None if self.default is None else self.least
                return replace(self, unit="units of the plane", default=default)
            case Kind.REGION | Kind.OBJECT:
                return self


@dataclass(frozen=True, slots=True)
class Template:
    """A question that many ask, as data; `fill` makes OPSL of it."""

    name: str
    title: str
    says: str
    parameters: tuple[Parameter, ...]

    def on(self, stream: TemplateStream) -> "Template":
        """As it is for a stream. QueryError if the stream has not what it needs."""
        if stream.key is None:
            raise QueryError(
                f"template '{self.name}' speaks of objects, and nothing says which column of the "
                "events names them",
                hint='name the column: key="id"',
            )
        return replace(self, parameters=tuple(self._parameters(stream)))

    def _parameters(self, stream: TemplateStream) -> Iterator[Parameter]:
        for parameter in self.parameters:
            if stream.located or parameter.kind not in (Kind.REGION, Kind.DISTANCE):
                yield parameter.on(stream)
            elif parameter.required:
                raise QueryError(
                    f"template '{self.name}' speaks of places, and the events have none",
                    hint='name the columns of the place: location=("x", "y")',
                )


@dataclass(frozen=True, slots=True)
class Filled:
    """A template with its values: OPSL, a title, and how long it is quiet about an object.

    Whoever delivers the matches leaves out those that come within `quiet` of the last one about
    the same object: seconds, or units of the time column.
    """

    text: str
    quiet: float | None
    title: str
