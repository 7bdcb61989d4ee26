"""Runs the subscriptions of the documentation.

An `opsl` block is a subscription under the events it is asked of, which are written as comments:

    -- 1: a1 b0, 2: b1 (5,5), 3-4: c1      names of events, by time; a place may follow
    -- t type id x y                       or a table: the first line names the columns

The letter of a name is the event's field `type`; A, B, ... stand for events of that type, unless
the subscription defines them. Tables of a page with the columns subscription, stream and matches
are examples too, a line each.

In tables R is the square from (0, 0) to (10, 10).
`python -m tests.docs.subscription_examples PAGE...` writes what the blocks give into the pages.
Read what it wrote before you keep it.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import ensue
from ensue.ir.subscription import Subscription
from ensue.reference.conditions import Event
from ensue.reference.subscription_matches import Corners, ReferenceStream, SubscriptionMatch, find_subscription_matches

SQUARE = "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"

_AT = re.compile(r"(?P<start>\d+)(?:-(?P<end>\d+))?:\s*")
_NAMED = re.compile(r"(?P<name>(?P<type>[a-z])\d+)\s*(?:\((?P<x>-?[\d.]+),\s*(?P<y>-?[\d.]+)\))?")
_LETTER = re.compile(r"(?<![\w$;'])(?P<letter>[A-E])(?![\w:])")
_DEFINED = re.compile(r"[,\s](?P<letter>[A-E])\s*=(?!\|)")
_ROW = re.compile(r"^\| `(?P<text>[^`]+)` \| (?P<stream>\d[^|]*) \| (?P<matches>[^|]+) \|$")


@dataclass(frozen=True, slots=True)
class Asked:
    """A subscription, events in their order, what they are called, and where they are."""

    subscription: Subscription
    events: Sequence[Event]
    names: Sequence[str]
    corners: dict[int, Corners] = field(default_factory=dict)

    def found(self) -> list[SubscriptionMatch]:
        return find_subscription_matches(self.subscription, ReferenceStream(self.events, self.corners))

    def shown(self) -> str:
        """A match a line: the names of its events."""
        lines = [self.match(match) for match in self.found()]
        return "".join(f"{line}\n" for line in lines) or "no match\n"

    def delivered(self) -> str:
        """The same, from the matcher: what it gives by the time it gives it."""
        rows = [
            dict(event.values) | {"start": event.start, "end": event.end, "named": name}
            | dict(zip("xy", self.corners.get(position, ((None, None),))[0], strict=True))
            for position, (event, name) in enumerate(zip(self.events, self.names, strict=True))
        ]  # fmt: skip
        fleet = ensue.Subscriptions(time=("start", "end"), location=("x", "y"))
        fleet.add("it", ensue.show(self.subscription, "opsl"))
        columns = {name: pa.array([row[name] for row in rows]) for name in rows[0]}
        columns |= {name: columns[name].cast(pa.float64()) for name in "xy"}
        given = ensue.match(pa.table(columns), fleet).to_pylist()
        named = [" ".join(member["named"] for member in row["members"]) for row in given]
        return "".join(f"{line or self._nobody()}\n" for line in named) or "no match\n"

    def _nobody(self) -> str:
        (match,) = [match for match in self.found() if not match.members]
        return self.match(match)

    def match(self, match: SubscriptionMatch) -> str:
        named = " ".join(self.names[position] for position in match.members)
        return named or f"no event, from {match.start:g} to {match.end:g}"


def notified(code: str) -> str:
    """What the subscription of an `opsl` block finds, or what is wrong with it."""
    try:
        return asked(code).shown()
    except ensue.EnsueError as error:
        return f"{error}\n"


def asked(code: str) -> Asked:
    lines = code.splitlines()
    count = next((k for k, line in enumerate(lines) if not line.startswith("--")), len(lines))
    events = [line.removeprefix("--").strip() for line in lines[:count]]
    assert events, "an example needs its events, in comments"
    text = "\n".join(lines[count:]) + "\n"
    if _AT.match(events[0]):
        return asked_of(text, ", ".join(events))
    return _of_table(text, [line.split() for line in events])


def asked_of(text: str, stream: str) -> Asked:
    """A subscription of a stream such as `1: a1 b0, 2: b1`; R is a square."""
    subscription = ensue.parse(completed(text), language="opsl", regions={"R": SQUARE})
    assert isinstance(subscription, Subscription)
    events, names, corners = [], [], dict[int, Corners]()
    for start, end, found in _named(stream):
        position = len(events)
        values = {"type": found["type"], "name": found["name"]}
        events.append(Event(position, found["type"], start, end, values))
        names.append(found["name"])
        if found["x"] is not None:
            corners[position] = ((float(found["x"]), float(found["y"])),)
    return Asked(subscription, events, names, corners)


def _named(stream: str) -> Iterator[tuple[int, int, re.Match[str]]]:
    at = 0
    while at < len(stream):
        time = _AT.match(stream, at)
        assert time is not None, stream[at:]
        at = time.end()
        start = int(time["start"])
        while (named := _NAMED.match(stream, at)) is not None:
            yield start, int(time["end"] or start), named
            at = named.end()
            at += len(stream[at:]) - len(stream[at:].lstrip())
        at += stream[at:].startswith(",")
        at += len(stream[at:]) - len(stream[at:].lstrip())


def completed(text: str) -> str:
    """With definitions of the letters that it uses.

    >>> completed("=|(A; 2)B WITH select = all")
    "=|(A; 2)B, A = (STRING:type = 'a'), B = (STRING:type = 'b') WITH select = all"
    """
    body, options, rest = text.partition(" WITH ")
    if not options:
        body, options, rest = text.partition("\nWITH ")
    used = {found["letter"] for found in _LETTER.finditer(body)}
    used -= {found["letter"] for found in _DEFINED.finditer(body)}
    defined = "".join(f", {name} = (STRING:type = '{name.lower()}')" for name in sorted(used))
    return body.rstrip() + defined + options + rest


def _of_table(text: str, lines: Sequence[Sequence[str]]) -> Asked:
    subscription = ensue.parse(text, language="opsl")
    assert isinstance(subscription, Subscription)
    events, names, corners = [], [], dict[int, Corners]()
    for position, line in enumerate(lines[1:]):
        row = {name: _value(word) for name, word in zip(lines[0], line, strict=True)}
        time: Any = row["t"]
        events.append(Event(position, str(row.get("type")), time, time, row))
        names.append(f"{row.get('id', row.get('type'))}@{time}")
        if row.get("x") is not None:
            corners[position] = ((float(row["x"]), float(row["y"])),)  # type: ignore[arg-type]
    return Asked(subscription, events, names, corners)


def _value(word: str) -> object:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return {"null": None, "true": True, "false": False}.get(word, word)


# -------------------------------------------------------------------------------------- tables


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table: `subscription`, stream, matches."""

    line: int
    text: str
    stream: str
    matches: str

    def found(self) -> str:
        """As the table writes it: `a1b1, a1b2`, `none`, or `one, without members`."""
        asked = asked_of(f"{self.text} WITH select = all", self.stream)
        found = [asked.match(match).replace(" ", "") for match in asked.found()]
        if any(name.startswith("noevent") for name in found):
            assert len(found) == 1
            return "one, without members"
        return ", ".join(found) or "none"


def rows(page: Path) -> list[Row]:
    """The lines of a page's tables that are examples."""
    found = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        row = _ROW.match(line.replace("\\|", "¦"))
        if row is not None:
            text = row["text"].replace("¦", "|")
            found.append(Row(number, text, row["stream"], row["matches"]))
    return found


def bless(page: Path) -> None:
    """Writes what the examples of a page give into it."""
    from tests.docs.pages import examples

    text = page.read_text(encoding="utf-8")
    for example in reversed([e for e in examples(page, "opsl") if e.place is not None]):
        assert example.place is not None
        start, end = example.place
        text = text[:start] + notified(example.code) + text[end:]
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        bless(Path(argument).resolve())
