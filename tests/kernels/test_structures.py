"""Structures behind one contract: the registry knows them all, and shared code none of them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest

import ensue
from ensue.codegen.kernel_inputs import KernelContext
from ensue.codegen.kernel_text import write_event_loop, write_kernel
from ensue.engine.engine import Engine
from ensue.engine.match_output import concat_matches
from ensue.engine.program import Program
from ensue.physical.structure import (
    FilledRows,
    KernelSource,
    KeyedRows,
    Structure,
    StructureState,
    TableShape,
    load_structure,
)
from ensue.planner import physical_plan as physical
from ensue.planner.physical_plan import CompactPlan, InstanceStacks, JoinTree, Nfa, ReferencePlan
from ensue.planner.planner_options import PlannerOptions
from ensue.runtime.compiled_query import CompiledQuery, compile_query
from ensue.vector.event_table import create_schema

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

SOURCE = Path(ensue.__file__).parent
PAIRS = "SEQ(A a, B b) WHERE [k] and b.x > a.x WITHIN 9"
WITHOUT = "SEQ(A a, !B n, C c) WHERE [k] and n.x > a.x and c.x > a.x WITHIN 9"
CASES = {
    "runs": (Nfa, "runs", WITHOUT),
    "waiting runs": (Nfa, "runs", "SEQ(A a, B b, !C n) WHERE [k] WITHIN 6"),
    "runs with lists": (Nfa, "runs", "SEQ(A a, B+ b[]) WHERE skip_till_next_match(a, b[]) { [k] } WITHIN 9"),
    "stacks": (InstanceStacks, "stacks", WITHOUT),
    "tree": (JoinTree, "tree", WITHOUT),
    "a count": (CompactPlan, "compact", "SEQ(A a, B b) WHERE [k] WITHIN 9 RETURN COUNT(*) AS n"),
    "a sign": (CompactPlan, "compact", "SEQ(A a, B b) WHERE [k] WITHIN 9 RETURN EXISTS"),
    "compact lists": (CompactPlan, "compact", "SEQ(A a, B+ b[], C c) WHERE [k] WITHIN 9"),
}
EVENTS = pa.table(
    {"t": [1, 2, 3, 4, 5, 6], "type": ["A", "A", "B", "C", "B", "C"], "k": [7, 8, 8, 7, 7, 8], "x": [1, 1, 2, 2, 3, 3]}
)


def prepared(text: str, structure: str = "") -> CompiledQuery:
    shape = create_schema(EVENTS.schema, time="t", type="type", order=())
    return compile_query(ensue.parse(text), shape, PlannerOptions(structure=structure or None))


@pytest.fixture(params=CASES)
def engine(request) -> Engine:
    node, name, text = CASES[request.param]
    found = prepared(text, name).engine(counted=True)
    assert isinstance(found, Engine)
    assert type(found.program.plan.structure) is node
    return found


# ------------------------------------------------------------------------------- the registry


@dataclass(frozen=True, slots=True)
class Heap:
    """A node that no structure takes."""


def test_an_unknown_structure_is_an_error():
    with pytest.raises(TypeError, match="no structure is registered for Heap"):
        load_structure(Heap())  # type: ignore[arg-type]


def test_a_plan_for_the_reference_path_has_no_kernel():
    ready = prepared(PAIRS, "reference")
    with pytest.raises(TypeError, match="reference path has no kernel"):
        Program(ready.plan, ready.shape.physical(ready.query)[1], "us", nullable=False)


def test_every_node_of_a_plan_with_a_kernel_has_a_case_here():
    assert {node for node, _, _ in CASES.values()} == {*get_args(physical.Structure)} - {ReferencePlan}


# ------------------------------------------------------------------------------- the contract


def test_a_structure_meets_the_contract(engine):
    program, state = engine.program, engine.state
    assert program.structure is load_structure(program.plan.structure)
    assert isinstance(program.source, KernelSource)
    assert isinstance(state, StructureState)
    assert {name for name, _ in parameters(program.source.text)} >= {"step", *program.source.kernels}


def test_kernels_take_the_tables_that_the_contract_says(engine):
    program = engine.program
    taken = dict(parameters(program.source.text))
    assert taken["step"][-len(program.tables) :] == list(program.tables)
    for name, signature in program.source.kernels.items():
        assert taken[name][-len(signature.tables) :] == list(signature.tables)
    known = {*engine.state.tables}
    assert known >= {*program.tables, *program.source.returned}
    assert known >= {t for s in program.source.kernels.values() for t in s.tables}


def test_tables_are_as_their_shapes_say(engine):
    engine.process(EVENTS)
    for shape in engine.program.source.shapes:
        table = engine.state.tables[shape.name]
        assert table.dtype == shape.dtype
        assert table.shape[1:] == (() if shape.width is None else (shape.width,))
        match shape.rows:
            case KeyedRows():
                assert len(table) >= len(engine.scan.keys)
            case FilledRows(top=top):
                assert len(table) >= engine.state.meta[top]
    for columns in engine.program.source.columns:
        assert {columns.whole, columns.real} <= {*engine.state.listed}


def test_a_fresh_state_holds_nothing(engine):
    state = engine.program.fresh_state()
    assert state.partial_matches == 0
    assert not state.live_keys().any()
    assert not len(state.get_held_rows(None))
    assert state.next_timer() is None


def test_what_is_too_old_is_dropped(engine):
    engine.process(EVENTS)
    assert engine.usage.partial_matches > 0
    assert len(engine.get_held_rows()) > 0
    assert engine.state.live_keys().any()
    engine.on_watermark(1_000)
    assert engine.usage.partial_matches == 0
    assert not len(engine.get_held_rows())
    engine.compact()
    assert len(engine.scan.keys) == 0


def parameters(text: str) -> Iterator[tuple[str, list[str]]]:
    """The functions of a kernel's text, and what they take."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, [argument.arg for argument in node.args.args]


# ------------------------------------------------------------------------------- shared code


@pytest.mark.parametrize("folder", ["engine", "projection", "runtime", "operators", "backends"])
def test_shared_code_asks_for_no_structure_in_particular(folder):
    own = {"Nfa", "InstanceStacks", "JoinTree", "CompactPlan"}
    for module in (SOURCE / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "ensue.planner.physical_plan":
                assert not own & {alias.name for alias in node.names}, module


# ------------------------------------------------------------------------------- a new structure


@dataclass(frozen=True, slots=True)
class Latest(ReferencePlan):
    """The plan's node of a structure that only this test has."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class LatestSource(KernelSource):
    """SEQ(A a, B b) with the latest `a` of each partition alone."""

    @property
    def shapes(self):
        return (TableShape("latest", KeyedRows(-1)),)

    @property
    def columns(self):
        return ()


def latest_source(frame: KernelContext) -> LatestSource:
    body = frame.source(depth=2)
    with body.block(f"if {frame.test('b')} and latest[k] >= 0:"):
        body("O[otop, 0] = latest[k]", "O[otop, 1] = row", "otop += 1")
    with body.block(f"if {frame.test('a')}:"):
        body("latest[k] = row")
    step = write_event_loop(
        body,
        frame,
        ["latest", *frame.tally.tables],
        registers={"otop": "OUT_TOP"},
        needs=lambda _: (("otop + 1 > O.shape[0]", "NEEDS_OUTPUT"),),
    )
    return LatestSource(write_kernel(frame, "The latest.", [step]), ("row_a", "row_b"))


class LatestState(StructureState[LatestSource]):
    def make_room(self, asked, room):  # noqa: ARG002
        raise AssertionError(f"it asks for nothing: {asked}")

    def expire(self, now, rows):
        """Nothing is ever too old."""

    @property
    def partial_matches(self):
        return int(self.live_keys().sum())

    @property
    def population(self):
        return self.partial_matches

    def live_keys(self):
        return self.tables["latest"] >= 0

    def get_held_rows(self, now):  # noqa: ARG002
        return np.sort(self.tables["latest"][self.live_keys()])


@pytest.fixture
def latest(monkeypatch) -> Engine:
    """An engine with a structure that the package does not have."""
    registered = Structure(latest_source, LatestState)
    monkeypatch.setattr("ensue.engine.program.load_structure", lambda _: registered)
    monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", 1)
    ready = prepared("SEQ(A a, B b) WHERE [k]")
    plan = replace(ready.plan, structure=Latest())
    return Engine(plan, ready.shape.physical(ready.query)[1], ready.shape.unit)


def pairs(found) -> list[tuple[int, int]]:
    return [*zip(found.rows["a"].tolist(), found.rows["b"].tolist(), strict=True)]


def test_a_new_structure_needs_nothing_of_the_engine(latest):
    count = 10_000  # keys, more than are kept without looking
    letters = pa.table(
        {
            "t": range(3 * count),
            "type": ["A", "A", "B"] * count,
            "k": np.repeat(np.arange(count), 3),
            "x": [0] * (3 * count),
        }
    )
    found = []
    for start in range(0, 3 * count, 4_500):
        found.append(latest.process(letters.slice(start, 4_500)))
        latest.restore(latest.snapshot())
    assert pairs(concat_matches(found, latest.program.source.output)) == [(3 * n + 1, 3 * n + 2) for n in range(count)]
    assert latest.get_held_rows().tolist() == [3 * n + 1 for n in range(count)]
    assert latest.partial_matches == count
    assert pairs(latest.process(letters.slice(2, 1))) == [(1, 3 * count)]
