"""Conditions on times bound a match as a window does."""

from math import nextafter

import pytest

from ensue.analyzer.time_bounds import compute_window_bound
from ensue.ir.selection import ByTime, ByUnits
from ensue.planner.rewrites import derive_window

STAMPS = "-- fields: x integer, at timestamp\n"
SPANS = "-- fields: x integer, from integer, to integer\n-- time: from, to\n"
REAL = "-- fields: x integer, r float\n"

BOUND = [
    ("SEQ(A a, B b) WHERE b.t <= a.t + 25", ByUnits(25)),
    ("SEQ(A a, B b) WHERE b.t < a.t + 3 + 4", ByUnits(7)),
    ("SEQ(A a, B b) WHERE b.t - a.t < 10", ByUnits(10)),
    ("SEQ(A a, B b) WHERE a.t >= b.t - 5", ByUnits(5)),
    ("SEQ(A a, B b) WHERE b.end <= a.start + 4", ByUnits(4)),
    ("SEQ(A a, B b) WHERE b.t = a.t", ByUnits(1)),
    ("SEQ(A a, B b) WHERE b.t BETWEEN a.t + 2 AND a.t + 6", ByUnits(6)),
    ("SEQ(A a, B b) WHERE b.t - a.t <= 2.5", ByUnits(2.5)),
    ("SEQ(A a, B b, C c) WHERE b.t <= a.t + 3 and c.t <= b.t + 4", ByUnits(7)),
    ("SEQ(A a, B b, C c) WHERE c.t <= a.t + 4", ByUnits(4)),  # b is between them
    ("AND(A a, B b) WHERE b.t <= a.t + 3 and a.t <= b.t + 2", ByUnits(3)),
    ("AND(A a, B b, C c) WHERE greatest(b.t, c.t) <= a.t + 3 and a.t <= least(b.t, c.t)",
     ByUnits(3)),
    ("OR(SEQ(A a, B b), SEQ(C c, D d)) WHERE b.t <= a.t + 3 and d.t <= c.t + 5", ByUnits(5)),
    ("SEQ(A a, B? b, C c) WHERE c.t <= a.t + 3 and b.x > 1", ByUnits(3)),
    ("SEQ(A a, B+ b[]) WHERE b[i].t <= a.t + 3", ByUnits(3)),
    ("SEQ(A a, B+ b[], C c) WHERE b[b.LEN].t <= a.t + 3 and c.t <= b[1].t + 3", ByUnits(6)),
    ("SEQ(A a, !B b, C c) WHERE c.t <= a.t + 3", ByUnits(3)),
    ("AND(A a, B b) WHERE a.t >= 10 and b.t >= 10 and a.t <= 14 and b.t <= 15", ByUnits(5)),
    ("SEQ(A a, B b) WHERE skip_till_next_match(a, b) { b.t <= a.t + 4 }", ByUnits(4)),
    (STAMPS + "SEQ(A a, B b) WHERE b.end <= a.end + 25 minutes", ByTime(1_500_000_000_000)),
    (STAMPS + "SEQ(A a, B b) WHERE b.at - a.at < 2 seconds", ByTime(2_000_000_000)),
    (STAMPS + "AND(A a, B b) WHERE a.at > TIMESTAMP '2026-01-01 00:00:00'"
     " and b.at > TIMESTAMP '2026-01-01 00:00:00' and a.at < TIMESTAMP '2026-01-01 00:00:03'"
     " and b.at < TIMESTAMP '2026-01-01 00:00:02'", ByTime(3_000_000_000)),
    (SPANS + "SEQ(A a, B b) WHERE b.end <= a.start + 9", ByUnits(9)),
]  # fmt: skip

UNBOUND = [
    "SEQ(A a, B b)",
    "SEQ(A a, B b) WHERE b.t >= a.t + 3",
    "SEQ(A a, B b) WHERE b.x <= a.x + 3",
    "AND(A a, B b) WHERE b.t <= a.t + 3",
    "SEQ(A a, B b, C c) WHERE b.t <= a.t + 3",
    "OR(SEQ(A a, B b), SEQ(C c, D d)) WHERE b.t <= a.t + 3",
    "SEQ(A a, B? b, C c) WHERE b.t <= a.t + 3 and c.t <= b.t + 3",  # nothing without b
    "SEQ(A a, B b) WHERE b.t <= a.t + 3 or b.x = 1",
    "SEQ(A a, B b) WHERE b.t <= greatest(a.t, 7) + 3",
    "SEQ(A a, B b) WHERE b.t <= a.t + 2.5",  # computed in floats
    "SEQ(A a, B+ b[]) WHERE b[1].t <= a.t + 3",
    "SEQ(!C c, A a, B b) WHERE b.t <= a.t + 3",  # it looks back as far as a window says
    "SEQ(A a, B b) WHERE b.t < a.t - 1 and a.t < b.t",  # a contradiction
    SPANS + "SEQ(A a, B b) WHERE b.end <= a.end + 9",  # a may last any time
    SPANS + "AND(A a, B b) WHERE skip_till_next_match(a, b) {"
    " b.end <= a.start + 9 and a.end <= b.start + 9"
    " and a.end <= a.start + 9 and b.end <= b.start + 9 }",
]


@pytest.mark.parametrize(("text", "window"), BOUND)
def test_the_greatest_span_of_a_match(case, text, window):
    told = case(text)
    assert compute_window_bound(told.checked, told.shape.schema) == window


@pytest.mark.parametrize("text", UNBOUND)
def test_no_bound(case, text):
    told = case(text)
    assert compute_window_bound(told.checked, told.shape.schema) is None
    assert derive_window(told.checked, told.shape.schema) == told.checked


@pytest.mark.parametrize(
    "text", [t for t, _ in BOUND if "minutes" not in t and "TIMESTAMP" not in t and "10 and" not in t]
)
def test_matches_stay_what_they_were(case, keeps_matches, text):
    schema = case(text).shape.schema
    keeps_matches(lambda query: derive_window(query, schema), text)


def test_a_window_that_is_given_stays(case):
    told = case("SEQ(A a, B b) WHERE b.t <= a.t + 3 WITHIN 9")
    assert derive_window(told.checked, told.shape.schema) == told.checked


@pytest.mark.parametrize("start", [0.0, 0.1, 1e9, 1e15, 2.0**53 - 1, 1e17])
@pytest.mark.parametrize("length", [0.1, 0.3, 7.7, 1e-9, 1024.0])
def test_rounded_sums_are_never_farther_than_the_window(case, start, length):
    told = case(f"{REAL}SEQ(A a, B b, C c) WHERE b.r <= a.r + {length} and c.r - b.r <= {length}")
    window = compute_window_bound(told.checked, told.shape.schema)
    middle = start + length
    last = middle + length
    while not last - middle <= length:
        last = nextafter(last, middle)
    assert last - start <= window.amount


def test_too_many_alternatives_are_not_looked_at(case):
    options = ", ".join(f"B? b{k}" for k in range(9))
    told = case(f"SEQ(A a, {options}, C c) WHERE c.t <= a.t + 3")
    assert compute_window_bound(told.checked, told.shape.schema) is None


def test_explain_says_where_the_window_comes_from(case):
    from ensue.planner.explain.plan_description import describe_plan
    from ensue.planner.explain.plan_node import format_plan

    told = case("SEQ(A a, B b) WHERE b.t <= a.t + 25")
    text = format_plan(describe_plan(told.plan))
    assert "window     derived from conditions: 25, pushed into the scan" in text
    assert "derive_window: applied" in text
    off = case("-- off: derive_window\nSEQ(A a, B b) WHERE b.t <= a.t + 25")
    assert "window     none" in format_plan(describe_plan(off.plan))
