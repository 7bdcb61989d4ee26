"""The saved state of an engine and its restoration."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.codegen.counters import TABLE
from ensue.engine.program import Program
from ensue.engine.state_format import Arrays, check_signature, make_signature, pack_state, unpack_state
from ensue.errors import StateError
from ensue.physical.structure import USED, StructureState
from ensue.planner.negations import restrict_pushdown
from ensue.planner.statistics import CounterLabel
from ensue.vector.key_codes import KeyCodes


@dataclass(frozen=True, slots=True, eq=False)
class EngineSnapshot:
    """The saved state of an engine."""

    nullable: bool
    rows: int
    now: float | None
    seen: int
    keys: KeyCodes
    strings: KeyCodes
    columns: dict[str, list[str]]  # of the tables with named columns
    arrays: Arrays
    counted: dict[str, Any] | None  # of a counting engine
    pushed: list[str]  # negated variables whose events are not stored
    inner: list[bytes]  # the engines of negated complex events

    def pack(self, program: Program) -> bytes:
        header = make_signature(program.plan, program.schema, program.unit)
        header |= {name: getattr(self, name) for name in _IN_HEADER}
        blobs = {"keys": self.keys.snapshot(), "strings": self.strings.snapshot()}
        blobs |= {f"inner {number}": data for number, data in enumerate(self.inner)}
        return pack_state(header, self.arrays, blobs)

    @classmethod
    def unpack(cls, data: bytes, program: Program) -> "EngineSnapshot":
        """Unpack a state that the same query saved."""
        header, arrays, blobs = unpack_state(data)
        check_signature(header, program.plan, program.schema, program.unit)
        return cls(
            keys=KeyCodes.restore(blobs["keys"]),
            strings=KeyCodes.restore(blobs["strings"]),
            arrays=arrays,
            inner=[data for name, data in blobs.items() if name.startswith("inner ")],
            **{name: header[name] for name in _IN_HEADER},
        )


_IN_HEADER = ("nullable", "rows", "now", "seen", "columns", "counted", "pushed")


def adapt_program(program: Program, saved: EngineSnapshot) -> Program:
    """Adapt a program to a saved state: it pushes the same negations into the scan."""
    plan, nullable = program.plan, saved.nullable or program.nullable
    if set(saved.pushed) != program.frame.dropped:
        if not program.frame.dropped.issuperset(saved.pushed):
            raise StateError(
                "the state was saved with negations pushed into the scan\n"
                "  hint: restore it without switching push_negation off"
            )
        plan = replace(plan, structure=restrict_pushdown(plan.structure, saved.pushed))
    elif nullable == program.nullable:
        return program
    return replace(program, plan=plan, nullable=nullable)


def get_column_names(state: StructureState[Any]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for columns in state.source.columns:
        names[columns.whole], names[columns.real] = list(columns.wholes), list(columns.reals)
    return names


def restore_tables(state: StructureState[Any], saved: EngineSnapshot) -> None:
    """Fill a new state with saved tables."""
    arrays = dict(saved.arrays)
    for name, columns in get_column_names(state).items():
        saved_columns = saved.columns[name]
        if set(saved_columns) != set(columns):
            raise StateError(
                "the state was saved by a release with a different state format\n"
                "  hint: restore it with that release, or start from an empty state"
            )
        if columns:
            arrays[name] = arrays[name][:, [saved_columns.index(c) for c in columns]]
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


def _take_up_counts(table: npt.NDArray[np.int64], labels: dict[CounterLabel, int], saved: EngineSnapshot) -> None:
    """Restore counters by their labels."""
    if saved.counted is None:
        return
    for number, (place, what) in enumerate(saved.counted["labels"]):
        if (place, what) in labels:
            table[labels[place, what]] = saved.arrays[TABLE][number]
