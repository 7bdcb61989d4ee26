"""The answer to *why not?*: how far events got in a subscription, and what stopped them.

All of it is numbers, texts, tuples and mappings, so that JSON can hold it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ensue.semantics.why_not.report import report_of
from ensue.span import Span

ShownTime = str | int | float  # ISO 8601 where times are timestamps, else a number


@dataclass(frozen=True, slots=True)
class Seen:
    """An event, the role that it plays or was tried for, and what it is known as."""

    name: str
    known_as: str
    position: int
    start: ShownTime
    end: ShownTime
    values: Mapping[str, Any]
    corners: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class NearMiss:
    """An event that failed one test of an atom, and no other."""

    event: Seen
    why: str
    distance: float | None = None  # from a region's border, where it is about a region


@dataclass(frozen=True, slots=True)
class Check:
    """One predicate or region of an atom: which events it stopped, and how many are left."""

    said: str
    span: Span | None
    stopped: int  # that had passed all tests before
    passed: int
    near: tuple[NearMiss, ...] = ()  # the newest first


@dataclass(frozen=True, slots=True)
class Atom:
    """An event that is asked for: how many were looked at, and what is left after each test."""

    name: str
    events: int
    passed: int
    tests: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Demand:
    """What must hold among events, and how many combinations it stopped."""

    said: str
    kind: str  # "time", "place", "field", "absence", "role", or "event": none passed its tests
    span: Span | None
    stopped: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """Events that got so far."""

    events: tuple[Seen, ...]  # where one was tried and did not fit, it is the last
    why: str
    demand: int | None = None  # which one stopped it
    span: Span | None = None
    until: ShownTime | None = None  # of one that waits


@dataclass(frozen=True, slots=True)
class Candidates:
    """How many there are, and some of them."""

    count: int = 0
    shown: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True)
class Way:
    """One way to satisfy the subscription: one choice at each `||`."""

    atoms: tuple[Atom, ...]
    demands: tuple[Demand, ...]
    matched: int
    stuck: Candidates = Candidates()  # the furthest first, then the newest
    waiting: Candidates = Candidates()  # may still become matches; the newest first
    undelivered: Candidates = Candidates()  # matches that others were preferred to


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Why a subscription has not found more in a stream.

    `cut`: the work was bounded before all was looked at. Then `events`, the newest ones, were
    looked at, and not all combinations of them.
    """

    events: int
    matched: int  # before `select`
    delivered: int
    waiting: int
    ways: tuple[Way, ...]
    steps: int
    cut: bool = False
    subscription: str | None = field(default=None, repr=False)  # its text, for spans

    def as_dict(self) -> dict[str, Any]:
        """What JSON can hold; spans are `{"start": .., "end": ..}`."""
        found = _plain(self)
        assert isinstance(found, dict)
        return found

    def text(self) -> str:
        """For people, as lines of text."""
        return report_of(self)


def _plain(value: Any) -> Any:
    match value:
        case tuple():
            return [_plain(one) for one in value]
        case Mapping():
            return dict(value)
        case None | str() | int() | float():
            return value
        case _:
            return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
