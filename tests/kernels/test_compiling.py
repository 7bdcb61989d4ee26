"""When kernels are compiled: when running uncompiled has cost as much, or never."""

from itertools import product
from random import Random

import numba
import numpy as np
import pytest

import ensue
from ensue.codegen import kernel_cache as compiling
from ensue.engine.program import count_arrangements
from support.streams import random_events

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

compiled_ones = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
EVENTS = random_events(Random("compiling"), 300)
COLUMNS = {"time": "t", "type": "type"}
QUERIES = {
    "runs": "SEQ(A a, B+ b[], C c) USING next WHERE b[i].x >= b[i-1].x + {n} WITHIN 9",
    "stacks": "SEQ(A a, B b, C c) WHERE c.x >= a.x + {n} WITHIN 9",
    "counting": "SEQ(A a, B b, C c) WHERE a.x > {n} WITHIN 9 RETURN COUNT(*)",
    "tree": "AND(A a, B b, C c) WHERE c.x >= a.x + {n} WITHIN 5",
}


@pytest.fixture
def compiled(monkeypatch):
    """What is compiled, in a process that has compiled nothing before."""
    asked, compile_ = [], compiling.compile_function

    def noted(text, function, signature, *, python=False):
        if not python:
            asked.append(function)
        return compile_(text, function, signature, python=python)

    monkeypatch.setenv("ENSUE_COMPILE", "auto")
    monkeypatch.setattr(compiling, "compile_function", noted)
    monkeypatch.setattr(compiling, "is_ready", lambda *_: False)
    compiling.get_lazy_kernel.cache_clear()
    yield asked
    compiling.get_lazy_kernel.cache_clear()


def matched(name):
    structure = "tree" if name == "tree" else None
    return ensue.match(EVENTS, QUERIES[name].format(n=1), **COLUMNS, options=ensue.PlannerOptions(structure=structure))


@compiled_ones
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("turns", [1, 2, 7, 30])
def test_compiled_code_takes_over_after_any_event(name, turns, compiled, monkeypatch):
    monkeypatch.setenv("ENSUE_COMPILE", "always")
    wanted = matched(name)
    monkeypatch.setenv("ENSUE_COMPILE", "auto")
    steps = []

    class Counted(compiling.LazyKernel):
        """Uncompiled for so many turns, of three events each."""

        def _compile_if_worth(self, _):
            return self._compile() if len(steps) >= turns else None

        def _measure(self, *given):
            steps.append(1)
            return self._plain(*given)

        def _pace(self, *_):
            self._events = 3

    monkeypatch.setattr("ensue.codegen.kernel_cache.LazyKernel", Counted)
    compiled.clear()
    assert matched(name).equals(wanted)
    assert wanted.num_rows > 0
    assert len(steps) >= turns
    assert "step" in compiled


@compiled_ones
@pytest.mark.parametrize("said", ["auto", "never"])
def test_a_short_table_is_never_compiled_for(said, compiled, monkeypatch):
    monkeypatch.setenv("ENSUE_COMPILE", said)
    found = matched("runs")
    assert found.num_rows
    assert not compiled
    monkeypatch.setenv("ENSUE_COMPILE", "always")
    assert matched("runs").equals(found)
    assert "step" in compiled


@compiled_ones
def test_what_is_compiled_already_is_loaded_where_that_is_quicker(compiled, monkeypatch):
    monkeypatch.setattr(compiling, "is_ready", lambda *_: True)
    monkeypatch.setattr(compiling.jit, "LOAD", 60.0)
    matched("runs")
    assert not compiled
    monkeypatch.setattr(compiling.jit, "LOAD", 0.0)
    matched("runs")
    assert "step" in compiled


@compiled_ones
def test_a_live_matcher_begins_with_what_is_compiled_already(compiled, monkeypatch):
    text, columns = QUERIES["runs"].format(n=1), {**COLUMNS, "schema": EVENTS.schema}
    ensue.live(text, **columns).feed(EVENTS)
    assert not compiled
    monkeypatch.setattr(compiling, "is_ready", lambda *_: True)
    ensue.live(text, **columns).feed(EVENTS)
    assert "step" in compiled


@compiled_ones
def test_short_tables_pay_for_compiling_together(compiled, monkeypatch):
    monkeypatch.setenv("ENSUE_COMPILE", "in_process")
    begun, measured = [], compiling.LazyKernel._measure

    def noted(self, *given):
        begun.append(self)
        return measured(self, *given)

    monkeypatch.setattr(compiling.LazyKernel, "_measure", noted)
    before = matched("runs")
    assert not compiled
    for later in begun:
        later.payoff.spend(later.payoff.seconds + compiling.jit.FIRST)
    assert matched("runs").equals(before)
    assert "step" in compiled


@compiled_ones
def test_another_process_compiles_what_is_asked_for_again(compiled, monkeypatch):
    """Its machine code comes back through the cache folder; nobody compiles in this process."""
    requested = []
    monkeypatch.setattr(compiling, "compile_beside", lambda *a: requested.append(a))
    monkeypatch.setattr(compiling.jit.compile_process, "is_allowed", lambda: True)
    monkeypatch.setattr(compiling.jit, "SHARE", 0.0)
    monkeypatch.setattr(compiling.jit, "IMPORT", 0.0)
    monkeypatch.setattr(compiling.jit, "LOAD", 0.0)
    before = matched("runs")
    assert matched("runs").equals(before)
    assert not compiled
    assert [function for _, function, _ in requested] == ["step"]  # once
    monkeypatch.setattr(compiling, "is_ready", lambda *_: True)
    assert matched("runs").equals(before)
    assert "step" in compiled


@compiled_ones
def test_what_one_event_completes_may_be_too_much_for_uncompiled_code(compiled, monkeypatch):
    matched("stacks")
    assert not compiled
    monkeypatch.setattr(compiling, "MOST_ARRANGEMENTS", 10)
    matched("stacks")
    assert "step" in compiled


def test_a_setting_that_is_none_is_told(monkeypatch):
    monkeypatch.setenv("ENSUE_COMPILE", "sometimes")
    with pytest.raises(ensue.EventError, match="none of auto, always, never, in_process"):
        matched("runs")


def test_explain_says_what_takes_long_to_compile(monkeypatch):
    text = QUERIES["runs"].format(n=1)
    assert "kernel:" not in ensue.explain(text)
    monkeypatch.setattr("ensue.engine.program.LONG_COMPILE", 0.1)
    assert "s to compile; until that pays off" in ensue.explain(text)
    monkeypatch.setattr("ensue.engine.program.MAX_COMPILE", 0.2)
    assert "kernel: not compiled" in ensue.explain(text, EVENTS, **COLUMNS)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("window", [None, 1, 3, 2.5])
def test_there_are_no_more_arrangements_than_said(seed, window):
    random = np.random.default_rng(seed)
    mask, key = random.integers(0, 8, 12), random.integers(-1, 2, 12).astype(np.int32)
    ends = np.sort(random.integers(0, 12, 12))
    said = count_arrangements(mask, key, ends, [0, 1, 2], window)
    roles = [[n for n in range(12) if mask[n] >> bit & 1 and key[n] >= 0] for bit in range(3)]
    found = [
        rows
        for rows in product(*roles)
        if len({key[n] for n in rows}) == 1 and (window is None or max(ends[[*rows]]) - min(ends[[*rows]]) <= window)
    ]
    assert len(found) <= said
    assert window is not None or said == len(found)
