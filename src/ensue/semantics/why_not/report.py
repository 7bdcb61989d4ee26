"""The answer to *why not?* as lines of text."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ensue.semantics.why_not.answer import (
        Atom,
        Candidate,
        Candidates,
        Seen,
        Way,
        WhyNot,
    )


def report_of(answer: "WhyNot") -> str:
    """All of it, way by way."""
    lines = [_head(answer)]
    for number, way in enumerate(answer.ways, 1):
        if len(answer.ways) > 1:
            lines += ["", f"way {number} of {len(answer.ways)}: {_several(way.matched, 'match')}"]
        for atom in way.atoms:
            lines += _atom(atom)
        lines += _demands(way)
        lines += _candidates("how far it got", way.stuck)
        lines += _candidates("waiting", way.waiting)
        lines += _candidates("not delivered", way.undelivered)
    return "\n".join(lines) + "\n"


def _head(answer: "WhyNot") -> str:
    said = (
        f"{_several(answer.events, 'event')}, {_several(answer.matched, 'match')}, "
        f"{answer.delivered} delivered, {answer.waiting} waiting"
    )
    return f"{said}; cut after {answer.steps} steps" if answer.cut else said


def _atom(atom: "Atom") -> Iterator[str]:
    rows = [(test.said, str(test.passed)) for test in atom.tests]
    title, *lines = _columns([(f"{atom.name}: {_several(atom.events, 'event')}", ""), *rows])
    yield from ("", title)
    for test, line in zip(atom.tests, lines, strict=True):
        yield line
        for miss in test.near:
            yield f"    nearly: {_event(miss.event)}: {miss.why}"


def _demands(way: "Way") -> Iterator[str]:
    if way.demands:
        rows = [(demand.said, str(demand.stopped)) for demand in way.demands]
        yield ""
        yield from _columns([("what has to hold", "stopped"), *rows])


def _candidates(title: str, found: "Candidates") -> Iterator[str]:
    if found.count:
        yield ""
        yield f"{title}: {len(found.shown)} of {found.count}"
        yield from (f"  {_candidate(candidate)}" for candidate in found.shown)


def _candidate(candidate: "Candidate") -> str:
    events = "; ".join(f"{event.name} {_event(event)}" for event in candidate.events)
    return f"{events}: {candidate.why}" if events else candidate.why


def _event(event: "Seen") -> str:
    at = event.end
    shown = at.removesuffix("+00:00").replace("T", " ") if isinstance(at, str) else f"{at}"
    return f"({event.known_as}) at {shown}" if event.known_as else f"at {shown}"


def _columns(rows: list[tuple[str, str]]) -> Iterator[str]:
    """The first row is a title; numbers stand below each other."""
    width = max(len(said) for said, _ in rows) + 2
    most = max(len(number) for _, number in rows)
    for place, (said, number) in enumerate(rows):
        blank = "" if place == 0 else "  "
        yield f"{blank}{said:<{width - len(blank) + 2}}{number:>{most}}".rstrip()


def _several(count: int, what: str) -> str:
    plural = "es" if what.endswith("ch") else "s"
    return f"{count} {what}{'' if count == 1 else plural}"
