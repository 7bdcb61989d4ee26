"""Events as the semantics sees them, and what binds them."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the stream; `position` is its rank in the whole stream.

    `start` and `end` are numbers: nanoseconds for timestamps, else the units of the time column.
    """

    position: int
    type: str
    start: int | float
    end: int | float
    values: Mapping[str, object]


Binding = dict[str, tuple[Event, ...]]  # variable -> its events; unbound variables are missing


def before(a: Event, b: Event) -> bool:
    """The order a sequence speaks of; for simple events it is the order of the stream."""
    return a.position < b.position and a.end <= b.start


def members(binding: Mapping[str, tuple[Event, ...]]) -> list[Event]:
    """The events of a match in the order of the stream."""
    return sorted((e for es in binding.values() for e in es), key=lambda e: e.position)
