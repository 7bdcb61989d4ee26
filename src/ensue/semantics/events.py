"""Events as the semantics sees them, and what binds them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
    made_of: tuple["Event", ...] = ()  # of a result: the events and results it is made of
    first: int = -1  # of what is made of others: the position of the first of them
    numbers: Mapping[str, Any] = field(
        default_factory=dict
    )  # of a result: its attributes as F gave them
    match: Mapping[str, tuple["Event", ...]] = field(
        default_factory=dict
    )  # of a complex event: the events it was found in, by variable

    @property
    def begin(self) -> int:
        """The position of its first event; `position` is that of the last."""
        return self.position if self.first < 0 else self.first


Binding = dict[str, tuple[Event, ...]]  # variable -> its events; unbound variables are missing


def before(a: Event, b: Event) -> bool:
    """The order a sequence speaks of; for simple events it is the order of the stream.

    A result stands where its start and end say; where `a` ends at the very time `b` starts, the
    order of the stream decides.
    """
    return a.end < b.start or (a.end == b.start and a.position < b.begin)


def members(binding: Mapping[str, tuple[Event, ...]]) -> list[Event]:
    """The events of a match in the order of the stream, without results."""
    return sorted(
        (e for es in binding.values() for e in es if not e.made_of), key=lambda e: e.position
    )


def seen(binding: Mapping[str, tuple[Event, ...]]) -> list[Event]:
    """What a sequence around them puts in order: a result in the place of what it is made of."""
    found = [e for es in binding.values() for e in es]
    inside = {id(part) for e in found for part in e.made_of}
    return [e for e in found if id(e) not in inside] if inside else found
