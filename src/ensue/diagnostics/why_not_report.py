"""The answer to *why not?* as JSON-compatible records, and as lines of text.

The names of the fields are the keys of the service's JSON.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ensue.errors import Span
from ensue.options import format_count

JsonTime = str | int | float  # ISO 8601 where times are timestamps, else a number


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """An event with the name of the part that it fills or was tried for."""

    name: str
    known_as: str
    position: int
    start: JsonTime
    end: JsonTime
    values: Mapping[str, Any]
    corners: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class NearMiss:
    """An event that failed exactly one test of an atom."""

    event: SeenEvent
    why: str
    distance: float | None = None  # from the border of the region, for tests of regions


@dataclass(frozen=True, slots=True)
class CheckReport:
    """A predicate or region of an atom, with the numbers of events it stopped and let pass."""

    said: str
    span: Span | None
    stopped: int  # of the events that passed all tests before
    passed: int
    near: tuple[NearMiss, ...] = ()  # newest first


@dataclass(frozen=True, slots=True)
class AtomReport:
    """An atom of the subscription, with the number of events left after each of its tests."""

    name: str
    events: int
    passed: int
    tests: tuple[CheckReport, ...]


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition among events, with the number of combinations it stopped."""

    said: str
    kind: str  # "time", "place", "field", "absence", "role", or "event": none passed its tests
    span: Span | None
    stopped: int


@dataclass(frozen=True, slots=True)
class MatchCandidate:
    """A combination of events that is not a match; an event that did not fit is the last."""

    events: tuple[SeenEvent, ...]
    why: str
    demand: int | None = None  # the index of the requirement that stopped it
    span: Span | None = None
    until: JsonTime | None = None  # for candidates that still wait


@dataclass(frozen=True, slots=True)
class MatchCandidates:
    """The number of candidates, and some of them."""

    count: int = 0
    shown: tuple[MatchCandidate, ...] = ()


@dataclass(frozen=True, slots=True)
class AlternativeReport:
    """The report on one alternative of the subscription: one choice at each `||`."""

    atoms: tuple[AtomReport, ...]
    demands: tuple[Requirement, ...]
    matched: int
    stuck: MatchCandidates = MatchCandidates()  # the furthest first, then the newest
    waiting: MatchCandidates = MatchCandidates()  # may still become matches; newest first
    undelivered: MatchCandidates = MatchCandidates()  # matches that lost to others


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Explains why a subscription has no more matches in a stream.

    With `cut`, the budget ended the search: only the newest `events` were looked at, and not all
    of their combinations.
    """

    events: int
    matched: int  # before `select`
    delivered: int
    waiting: int
    ways: tuple[AlternativeReport, ...]
    steps: int
    cut: bool = False
    subscription: str | None = field(default=None, repr=False)  # its text, for spans

    def as_dict(self) -> dict[str, Any]:
        """Returns a JSON-compatible dict; spans are `{"start": .., "end": ..}`."""
        return {f.name: _to_json(getattr(self, f.name)) for f in fields(self)}

    def text(self) -> str:
        return "\n".join(_format_report(self)) + "\n"


def _to_json(value: Any) -> Any:
    match value:
        case tuple():
            return [_to_json(item) for item in value]
        case Mapping():
            return dict(value)
        case None | str() | int() | float():
            return value
        case _:
            return {f.name: _to_json(getattr(value, f.name)) for f in fields(value)}


def _format_report(result: WhyNot) -> Iterator[str]:
    yield (
        f"{format_count(result.events, 'event')}, {format_count(result.matched, 'match')}, "
        f"{result.delivered} delivered, {result.waiting} waiting"
        + (f"; cut after {result.steps} steps" if result.cut else "")
    )
    total = len(result.ways)
    for number, way in enumerate(result.ways, 1):
        if total > 1:
            yield from ("", f"way {number} of {total}: {format_count(way.matched, 'match')}")
        for atom in way.atoms:
            yield from _format_atom(atom)
        if way.demands:
            yield ""
            rows = [(demand.said, str(demand.stopped)) for demand in way.demands]
            yield from _align_columns([("what has to hold", "stopped"), *rows])
        for title, found in (
            ("how far it got", way.stuck),
            ("waiting", way.waiting),
            ("not delivered", way.undelivered),
        ):
            if found.count:
                yield from ("", f"{title}: {len(found.shown)} of {found.count}")
                yield from (f"  {_format_candidate(candidate)}" for candidate in found.shown)


def _format_atom(atom: AtomReport) -> Iterator[str]:
    rows = [(test.said, str(test.passed)) for test in atom.tests]
    title = f"{atom.name}: {format_count(atom.events, 'event')}"
    head, *lines = _align_columns([(title, ""), *rows])
    yield from ("", head)
    for test, line in zip(atom.tests, lines, strict=True):
        yield line
        for miss in test.near:
            yield f"    nearly: {_format_event(miss.event)}: {miss.why}"


def _format_candidate(candidate: MatchCandidate) -> str:
    events = "; ".join(f"{event.name} {_format_event(event)}" for event in candidate.events)
    return f"{events}: {candidate.why}" if events else candidate.why


def _format_event(event: SeenEvent) -> str:
    at = event.end
    shown = at.removesuffix("+00:00").replace("T", " ") if isinstance(at, str) else f"{at}"
    return f"({event.known_as}) at {shown}" if event.known_as else f"at {shown}"


def _align_columns(rows: list[tuple[str, str]]) -> Iterator[str]:
    """Aligns texts and numbers below a title, which is the first row."""
    width = max(len(text) for text, _ in rows) + 2
    digits = max(len(number) for _, number in rows)
    for row, (text, number) in enumerate(rows):
        indent = "" if row == 0 else "  "
        yield f"{indent}{text:<{width - len(indent) + 2}}{number:>{digits}}".rstrip()
