"""Counters of a matcher: what its kernel tries and what passes, and what the scan sees.

A kernel counts only in programs that ask for it: then its source says so, in a table `T` with a
row for each label: how often it was tried, how often it passed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.algebra.predicate import Expr
from ensue.algebra.text import show_condition
from ensue.plan.estimates.counters import Label, Tried
from ensue.plan.physical import Absence
from ensue.source.names import Names
from ensue.source.table_columns import Source

TABLE = "T"
COLUMNS: dict[str, float] = {"TRIED": 0, "PASSED": 1}


@dataclass(slots=True)
class Tally:
    """Writes the counting into a kernel's source; switched off, it writes nothing.

    >>> tally = Tally(on=True)
    >>> tally.tried(("a", "a.x < b.x")), tally.passed(("a", "a.x < b.x"))
    (['T[COUNTED_0, TRIED] += 1'], ['T[COUNTED_0, PASSED] += 1'])
    """

    on: bool = False
    names: Names = field(default_factory=Names)
    labels: dict[Label, int] = field(default_factory=dict)

    @property
    def tables(self) -> list[str]:
        """The state that a kernel counts in."""
        return [TABLE] if self.on else []

    def tried(self, label: Label) -> list[str]:
        return self._counted(label, "TRIED")

    def passed(self, label: Label) -> list[str]:
        return self._counted(label, "PASSED")

    def _counted(self, label: Label, column: str) -> list[str]:
        if not self.on:
            return []
        number = self.labels.setdefault(label, len(self.labels))
        told = ": ".join(filter(None, label))
        row = self.names.number(f"COUNTED_{number}", number, "rows of T", told)
        return [f"{TABLE}[{row}, {column}] += 1"]

    def all_hold(self, out: Source, flag: str, tests: list[tuple[str, Label | None]]) -> None:
        """Sets a flag to whether all tests hold, tried one after the other."""
        if not self.on:
            out.all_hold(
                f"{flag} = ", [(text, label[1] if label else "") for text, label in tests]
            )
            return
        out(f"{flag} = True")
        for text, label in tests:
            with out.block(f"if {flag}:"):
                out(*(self.tried(label) if label else []), f"{flag} = {text}")
                if label:
                    with out.block(f"if {flag}:"):
                        out(*self.passed(label))

    def around(self, out: Source, flag: str, label: Label, write: Callable[[], None]) -> None:
        """Counts a part of the source that may clear a flag."""
        if self.on:
            with out.block(f"if {flag}:"):
                out(*self.tried(label))
        write()
        if self.on:
            with out.block(f"if {flag}:"):
                out(*self.passed(label))


def check_label(place: str, condition: Expr) -> Label:
    """A condition tried at a place."""
    return place, show_condition(condition)


def absence_label(place: str, absence: Absence) -> Label:
    """A negation judged at a place."""
    return place, f"!{absence.variable}"


def place_label(place: str) -> Label:
    """Partial matches at a place: those looked at, and those made."""
    return place, ""


@dataclass(slots=True)
class ScanCounts:
    """What the scan has seen."""

    events: int = 0
    first: float | None = None  # when the first event began
    last: float | None = None  # when the last one ended
    partitions: int = 0
    crowding: float = 0.0
    roles: dict[str, list[int]] = field(default_factory=dict)
    conditions: dict[Label, list[int]] = field(default_factory=dict)

    def batch(
        self, starts: npt.NDArray[Any], ends: npt.NDArray[Any], key: npt.NDArray[np.int32]
    ) -> None:
        """Counts the events of a batch, by their times and partitions."""
        self.events += len(key)
        if len(key):
            self.first = starts.min().item() if self.first is None else self.first
            self.last = ends.max().item()
        known = key[key >= 0]
        if len(known):
            sizes = np.bincount(known)
            self.partitions = max(self.partitions, len(sizes))
            self.crowding += float((sizes.astype(np.float64) ** 2).sum()) / len(known)

    def role(self, variable: str, of_type: int, playing: int) -> None:
        _add(self.roles, variable, of_type, playing)

    def condition(self, variable: str, condition: Expr, tried: int, passed: int) -> None:
        _add(self.conditions, (variable, show_condition(condition)), tried, passed)

    def described(self) -> dict[str, Any]:
        """As plain values; `of` gives it back."""
        return {
            "events": self.events,
            "first": self.first,
            "last": self.last,
            "partitions": self.partitions,
            "crowding": self.crowding,
            "roles": self.roles,
            "conditions": [[*label, *count] for label, count in self.conditions.items()],
        }

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "ScanCounts":
        return cls(
            found["events"],
            found["first"],
            found["last"],
            found["partitions"],
            found["crowding"],
            {variable: list(count) for variable, count in found["roles"].items()},
            {(v, text): [tried, passed] for v, text, tried, passed in found["conditions"]},
        )


def _add(counts: dict[Any, list[int]], label: Any, tried: int, passed: int) -> None:
    count = counts.setdefault(label, [0, 0])
    count[0] += tried
    count[1] += passed


def kernel_counts(
    labels: Mapping[Label, int], table: npt.NDArray[np.int64]
) -> tuple[dict[Label, Tried], dict[Label, Tried], dict[str, Tried]]:
    """A kernel's table as counts of conditions, of negations, and of places."""
    checks: dict[Label, Tried] = {}
    absences: dict[Label, Tried] = {}
    places: dict[str, Tried] = {}
    for (place, what), number in labels.items():
        count = Tried(int(table[number, 0]), int(table[number, 1]))
        if not what:
            places[place] = count
        elif what.startswith("!"):
            absences[place, what[1:]] = count
        else:
            checks[place, what] = count
    return checks, absences, places
