"""What explain says beyond the golden plans."""

import pyarrow as pa
import pytest

import ensue
from ensue.planner.explain.plan_description import MAX_STATES, describe_plan
from ensue.planner.explain.plan_node import format_plan


def test_a_long_list_of_states_is_cut(case):
    atoms = ", ".join(f"A a{n}" for n in range(8))
    text = format_plan(describe_plan(case(f"AND({atoms})").plan))
    assert text.count("\n  state ") == MAX_STATES
    assert f"and {2**8 - MAX_STATES} more states" in text


def test_names_that_need_quotes_have_them(case):
    text = format_plan(describe_plan(case('SEQ("my type" "a b", B b) WHERE "a b".x < b.x').plan))
    assert '"my type" "a b": kept on a stack' in text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("SEQ(A a, B b) WHERE [k, s]", "partition  [k, s]"),
        ("SEQ(A a, B b) WITHIN 3 EVENTS", "window     3 EVENTS, pushed into the scan"),
        ("SEQ(A a, B b)", "window     none"),
        ("EVENT Rise AS SEQ(A a, B b)", "event      Rise"),
        ("SEQ(A a, B b) HAVING a.x > 1", "  HAVING a.x > 1"),
        ("SEQ(A{1,2} a[], B b)", "      at most 2 events in a[]"),
        ("SEQ(A{3} a[], B b)", "      at least 3 events in a[]"),
    ],
)
def test_a_line_of_the_plan(case, text, line):
    assert line in format_plan(describe_plan(case(text).plan)).splitlines()


def test_with_events_the_kinds_are_theirs():
    events = pa.table({"t": [1, 2], "kind": ["A", "B"], "x": [1, 2]})
    query = "SEQ(A a, B b) WHERE a.x < b.x WITHIN 5"
    told = ensue.explain(query, events, time="t", type="kind")
    assert "the kinds of fields are assumed" not in told
    assert ensue.explain(query).startswith(told)
    assert ensue.picture(query, events, time="t", type="kind").startswith("<svg")
