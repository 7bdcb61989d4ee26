"""Operators of users in plans: nodes like others, by their cost and pass probability."""

import numba
import pyarrow as pa
import pytest

import ensue
from ensue.planner.join_tree import format_tree
from ensue.runtime.compiled_query import compile_query
from ensue.vector.event_table import create_schema

ARROW = pa.schema({"t": pa.int64(), "type": pa.string(), "x": pa.int64()})
KEPT: dict[str, int] = {}


def tree_of(text: str, *operators: ensue.UserOperator) -> str:
    shape = create_schema(ARROW, time="t", type="type", order=())
    return format_tree(compile_query(ensue.parse(text, definitions=operators), shape).plan.structure.root)


def test_an_operator_that_seldom_passes_is_joined_first():
    text = "SEQ(A a, B b, rare(C c, D d) r, E e) WITHIN 100"
    trees = [tree_of(text, ensue.operator("rare", passes=passes)) for passes in (0.0001, 1.0)]
    assert trees == ["(a -> (b -> ((c rare d) -> e)))", "((a -> b) -> ((c rare d) -> e))"]


def test_conditions_go_to_the_node_of_the_result():
    op = ensue.operator("rise", f=lambda a, b: (a.start, b.end, b.x - a.x), z={"by": "integer"})
    query = ensue.parse("SEQ(rise(A a, B b) r, C c) WHERE r.by > 3 WITHIN 9", definitions=[op])
    lines = ensue.explain(query).splitlines()
    at = lines.index("    rise")
    assert lines[at + 1] == "      . first(r.by) > 3"


def test_a_plan_with_operators_is_drawn():
    op = ensue.operator("dedup", over="repeat", q=lambda last, e: e.t > last.t + 5)
    query = ensue.parse("SEQ(dedup(A a) d, B b) WITHIN 9", definitions=[op])
    assert "dedup" in ensue.picture(query)


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_what_numba_cannot_compile_runs_as_python():
    op = ensue.operator("odd", q=lambda a, b: KEPT.get("x", 0) < b.x - a.x)
    events = pa.table({"t": [1, 2, 3], "type": ["A", "B", "B"], "x": [1, 3, 0]})
    query = ensue.parse("odd(A a, B b) o WITHIN 5", definitions=[op])
    plan = ensue.explain(query, events, time="t", type="type")
    assert "note: operator odd runs as Python: " in plan
    assert ensue.match(events, query, time="t", type="type").num_rows == 1


def test_strings_take_the_reference_path():
    op = ensue.operator("alike", q=lambda a, b: a.s[:1] == b.s[:1])
    events = pa.table({"t": [1, 2, 3], "type": ["A", "B", "B"], "s": ["ab", "ax", "b"]})
    query = ensue.parse("alike(A a, B b) o WITHIN 5", definitions=[op])
    plan = ensue.explain(query, events, time="t", type="type")
    assert "because of the operator alike: it reads or returns strings" in plan
    assert ensue.match(events, query, time="t", type="type").num_rows == 1
