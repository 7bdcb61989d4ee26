"""Aggregates over one event are the event's value."""

import pytest

from ensue.planner.rewrites import unwrap_aggregates
from ensue.printing.expression_printer import format_condition


def conditions(query):
    return [format_condition(c) for c in query.where]


@pytest.mark.parametrize(
    ("condition", "after"),
    [
        ("avg(b.y) < 2", "b.y < 2"),
        ("max(b.x + 1) >= a.x", "b.x + 1 >= a.x"),
        ("percentile(b.y, 90) > 0", "b.y > 0"),
        ("first(b.s) = last(a.s)", "b.s = a.s"),
        ("count(a) <= b.x", "1 <= b.x"),
        ("sum(a.x) + min(b.x) > 1", "a.x + b.x > 1"),
    ],
)
def test_what_it_unwraps(case, condition, after):
    query = case(f"SEQ(A a, B b) WHERE {condition}").checked
    assert conditions(unwrap_aggregates(query)) == [after]


@pytest.mark.parametrize(
    "text",
    [
        "SEQ(A a, B b) WHERE count(b.x) = 1",  # 0 where x is NULL
        "SEQ(A a, B b) WHERE stddev(b.y) > 0",  # unknown for one event
        "SEQ(A a, B+ b[]) WHERE avg(b.y) > 0",
        "SEQ(A a, B? b) WHERE max(b.x) is null",  # an aggregate applies to nothing, a field not
        "OR(A a, B b) WHERE max(b.x) is null",
        "SEQ(A a, B? b) WHERE count(b) = 0",
    ],
)
def test_what_it_leaves(case, text):
    query = case(text).checked
    assert unwrap_aggregates(query) == query


@pytest.mark.parametrize(
    "text",
    [
        "SEQ(A a, B b) WHERE avg(b.y) < 2 and max(a.x) >= 1 WITHIN 4",
        "SEQ(A a, B+ b[], C c) WHERE sum(c.x) > sum(b.x) WITHIN 5",
        "AND(A a, B b) WHERE skip_till_next_match(a, b) { min(a.x) <= last(b.x) } WITHIN 5",
    ],
)
def test_it_keeps_the_matches(keeps_matches, text):
    keeps_matches(unwrap_aggregates, text)
