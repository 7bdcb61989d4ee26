"""Counters of a matcher: evaluations and passes in its kernel, and events in the scan.

A kernel counts only in programs that request it: its source then has a table `T` with a row for
each label, of evaluations and passes.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.codegen.names import KernelNames
from ensue.codegen.state_layout import SourceWriter
from ensue.ir.expression import Expr
from ensue.planner.physical_plan import NegationCheck
from ensue.planner.statistics import CounterLabel, PassCount
from ensue.printing.expression_printer import format_condition

TABLE = "T"
COLUMNS: dict[str, float] = {"TRIED": 0, "PASSED": 1}


@dataclass(slots=True)
class CounterWriter:
    """Writes counters into a kernel's source; if it is off, it writes nothing.

    >>> tally = CounterWriter(on=True)
    >>> tally.count_try("a", "a.x < b.x"), tally.count_pass("a", "a.x < b.x")
    (['T[COUNTED_0, TRIED] += 1'], ['T[COUNTED_0, PASSED] += 1'])
    """

    on: bool = False
    names: KernelNames = field(default_factory=KernelNames)
    labels: dict[CounterLabel, int] = field(default_factory=dict)

    @property
    def tables(self) -> list[str]:
        """The tables that a kernel counts in."""
        return [TABLE] if self.on else []

    def count_try(self, place: str, what: str = "") -> list[str]:
        """Counts an evaluation or, without `what`, a visit of a partial match at a place."""
        return self._count((place, what), "TRIED")

    def count_pass(self, place: str, what: str = "") -> list[str]:
        """Counts a test that holds or, without `what`, a new partial match at a place."""
        return self._count((place, what), "PASSED")

    def _count(self, label: CounterLabel, column: str) -> list[str]:
        if not self.on:
            return []
        number = self.labels.setdefault(label, len(self.labels))
        meaning = ": ".join(filter(None, label))
        row = self.names.number(f"COUNTED_{number}", number, "rows of T", meaning)
        return [f"{TABLE}[{row}, {column}] += 1"]

    def all_hold(self, out: SourceWriter, flag: str, tests: list[tuple[str, CounterLabel | None]]) -> None:
        """Sets a flag to whether all tests hold, with short-circuit evaluation."""
        if not self.on:
            out.all_hold(f"{flag} = ", [(text, label[1] if label else "") for text, label in tests])
            return
        out(f"{flag} = True")
        for text, label in tests:
            with out.block(f"if {flag}:"):
                out(*(self.count_try(*label) if label else []), f"{flag} = {text}")
                if label:
                    with out.block(f"if {flag}:"):
                        out(*self.count_pass(*label))

    def count_test(self, out: SourceWriter, flag: str, label: CounterLabel, write: Callable[[], None]) -> None:
        """Counts a part of the source that may clear a flag."""
        if self.on:
            with out.block(f"if {flag}:"):
                out(*self.count_try(*label))
        write()
        if self.on:
            with out.block(f"if {flag}:"):
                out(*self.count_pass(*label))


def make_check_label(place: str, condition: Expr) -> CounterLabel:
    """The label of a condition at a place."""
    return place, format_condition(condition)


def make_absence_label(place: str, absence: NegationCheck) -> CounterLabel:
    """The label of a negation at a place."""
    return place, f"!{absence.variable}"


@dataclass(slots=True)
class ScanCounts:
    """Counts of the scan."""

    events: int = 0
    first: float | None = None  # start of the first event
    last: float | None = None  # end of the last event
    partitions: int = 0
    crowding: float = 0.0
    roles: dict[str, list[int]] = field(default_factory=dict)
    conditions: dict[CounterLabel, list[int]] = field(default_factory=dict)

    def batch(self, starts: npt.NDArray[Any], ends: npt.NDArray[Any], key: npt.NDArray[np.int32]) -> None:
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

    def role(self, variable: str, of_type: int, matching: int) -> None:
        _add(self.roles, variable, of_type, matching)

    def condition(self, variable: str, condition: Expr, tried: int, passed: int) -> None:
        _add(self.conditions, (variable, format_condition(condition)), tried, passed)

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` reads."""
        conditions = [[*label, *count] for label, count in self.conditions.items()]
        return asdict(self) | {"conditions": conditions}

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> "ScanCounts":
        conditions = {(v, text): count for v, text, *count in described["conditions"]}
        return cls(**{**described, "conditions": conditions})


def _add(counts: dict[Any, list[int]], label: Any, tried: int, passed: int) -> None:
    count = counts.setdefault(label, [0, 0])
    count[0] += tried
    count[1] += passed


def read_counters(
    labels: Mapping[CounterLabel, int], table: npt.NDArray[np.int64]
) -> tuple[dict[CounterLabel, PassCount], dict[CounterLabel, PassCount], dict[str, PassCount]]:
    """Splits a kernel's table into counts of conditions, of negations, and of places."""
    checks: dict[CounterLabel, PassCount] = {}
    absences: dict[CounterLabel, PassCount] = {}
    places: dict[str, PassCount] = {}
    for (place, subject), number in labels.items():
        count = PassCount(int(table[number, 0]), int(table[number, 1]))
        if not subject:
            places[place] = count
        elif subject.startswith("!"):
            absences[place, subject[1:]] = count
        else:
            checks[place, subject] = count
    return checks, absences, places
