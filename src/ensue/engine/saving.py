"""What a matcher saves of itself, and how it takes that up again."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.columns.keys import KeyCodes
from ensue.engine.meaning import require_same, stamp
from ensue.engine.program import Program
from ensue.engine.state import Arrays, packed, unpacked
from ensue.errors import StateError
from ensue.plan.estimates.counters import Label
from ensue.plan.physical_rules.pushing import not_pushed
from ensue.source.counting import TABLE
from ensue.structures.contract import BEGAN, USED, State


@dataclass(frozen=True, slots=True, eq=False)
class Saved:
    """The state of an engine, as it is kept."""

    nullable: bool
    rows: int
    now: float | None
    seen: int
    keys: KeyCodes
    strings: KeyCodes
    columns: dict[str, list[str]]  # of the tables that have named ones
    arrays: Arrays
    counted: dict[str, Any] | None = None  # of an engine that counts
    pushed: tuple[str, ...] = ()  # negated variables whose events are not kept
    inner: tuple[bytes, ...] = ()  # the engines of negated complex events

    def packed(self, program: Program) -> bytes:
        header = {
            **stamp(program.plan, program.schema, program.unit),
            "nullable": self.nullable,
            "rows": self.rows,
            "now": self.now,
            "seen": self.seen,
            "columns": self.columns,
            "counted": self.counted,
            "pushed": list(self.pushed),
        }
        blobs = {"keys": self.keys.save(), "strings": self.strings.save()}
        blobs |= {f"inner {number}": data for number, data in enumerate(self.inner)}
        return packed(header, self.arrays, blobs)

    @classmethod
    def unpacked(cls, data: bytes, program: Program) -> "Saved":
        """What was saved, if it was by the same query."""
        header, arrays, blobs = unpacked(data)
        require_same(header, program.plan, program.schema, program.unit)
        return cls(
            nullable=bool(header["nullable"]),
            rows=int(header["rows"]),
            now=header["now"],
            seen=int(header["seen"]),
            keys=KeyCodes.restore(blobs["keys"]),
            strings=KeyCodes.restore(blobs["strings"]),
            columns=header["columns"],
            arrays=arrays,
            counted=header.get("counted"),
            pushed=tuple(header.get("pushed", ())),
            inner=tuple(data for name, data in blobs.items() if name.startswith("inner ")),
        )


def pushed_by(program: Program) -> tuple[str, ...]:
    """The negated variables whose events a program does not keep."""
    return tuple(sorted(program.frame.dropped))


def fitting(program: Program, saved: Saved) -> Program:
    """The program that goes on with a state: it pushes the negations that were pushed before."""
    plan, nullable = program.plan, saved.nullable or program.nullable
    if saved.pushed != pushed_by(program):
        if not set(saved.pushed) <= set(pushed_by(program)):
            raise StateError(
                "the state was saved with negations pushed into the scan\n"
                "  hint: restore it without switching push_negation off"
            )
        plan = replace(plan, structure=not_pushed(plan.structure, saved.pushed))
    elif nullable == program.nullable:
        return program
    return replace(program, plan=plan, nullable=nullable)


def column_names(state: State[Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for columns in state.source.columns:
        found[columns.whole], found[columns.real] = list(columns.wholes), list(columns.reals)
    return found


def take_up(state: State[Any], saved: Saved) -> None:
    """Fills a fresh state with what was saved."""
    arrays, lacking = dict(saved.arrays), set()
    for name, columns in column_names(state).items():
        known = list(saved.columns[name])
        for column in set(columns) - set(known):
            # earlier releases did not keep these: a carry of none so far, the run's first row
            if column.startswith("carry_") or column == BEGAN:
                lacking.add(column)
                none = np.zeros((len(arrays[name]), 1), arrays[name].dtype)
                arrays[name] = np.concatenate([arrays[name][:, : len(known)], none], axis=1)
                known.append(column)
        if set(known) != set(columns):
            raise StateError(
                "the state was saved by a release with a different state format\n"
                "  hint: restore it with that release, or start from an empty state"
            )
        if columns:
            arrays[name] = arrays[name][:, [known.index(c) for c in columns]]
    for name, fresh in state.tables.items():
        if name == TABLE:
            _take_up_counts(fresh, state.frame.tally.labels, saved)
            continue
        if name in ("O", USED):
            continue
        table = arrays[name]
        if name in state.listed:
            room = np.zeros((max(len(fresh), len(table) * 2), *fresh.shape[1:]), fresh.dtype)
            room[: len(table)] = table
            table = room
        state.tables[name] = np.ascontiguousarray(table)
    state.recall(lacking)


def _take_up_counts(table: npt.NDArray[np.int64], labels: dict[Label, int], saved: Saved) -> None:
    """Goes on counting what was counted before, by its label."""
    if saved.counted is None:
        return
    for number, (place, what) in enumerate(saved.counted["labels"]):
        if (place, what) in labels:
            table[labels[place, what]] = saved.arrays[TABLE][number]
