"""Equalities that tie all variables become a partition key."""

import pytest

from ensue.ir.query import Equivalence
from ensue.planner.rewrites import partition_by_equality
from ensue.printing.expression_printer import format_condition


def partitioned(query):
    after = partition_by_equality(query)
    return [e.field_name for e in after.equivalence], [format_condition(c) for c in after.where]


@pytest.mark.parametrize(
    ("text", "keys", "left"),
    [
        ("SEQ(A a, B b) WHERE a.k = b.k", ["k"], []),
        ("SEQ(A a, B b, C c) WHERE a.k = b.k and c.k = a.k and a.x < b.x", ["k"], ["a.x < b.x"]),
        ("SEQ(A a, B b) WHERE a.k = b.k and a.s = b.s", ["k", "s"], []),
        ("SEQ(A a, B b) WHERE [k] and a.k = b.k", ["k"], []),
        ("SEQ(A a, !C c, B b) WHERE a.k = b.k and c.k = b.k WITHIN 4", ["k"], []),
        ("AND(A a, B b) WHERE a.k = b.k", ["k"], []),
        ("SEQ(A a, B b) WHERE strict_contiguity(a, b) { a.k = b.k }", ["k"], []),
    ],
)
def test_what_becomes_a_key(case, text, keys, left):
    assert partitioned(case(text).checked) == (keys, left)


@pytest.mark.parametrize(
    "text",
    [
        "SEQ(A a, B b, C c) WHERE a.k = b.k",  # c may have any
        "SEQ(A a, B b) WHERE a.k = b.x",  # different fields
        "SEQ(A a, !C c, B b) WHERE a.k = b.k WITHIN 4",  # c may have any
        "SEQ(A a, B b) WHERE a.k = b.k WITHIN 4 EVENTS",  # events are counted in partitions
        "SEQ(A a, B b) WHERE partition_contiguity(a, b) { a.k = b.k }",
        "SEQ(A a, B? b) WHERE a.k = b.k",  # says nothing where b is missing
        "SEQ(A a, B+ b[]) WHERE a.k = b[1].k",
        "A a WHERE a.k = a.k",  # false where k is NULL
        "AND(A a, B b) WHERE skip_till_next_match(a, b) { a.k = b.k }",
        "SEQ(A a, B b, C c) WHERE skip_till_next_match(a, b, c) { a.k = c.k and b.k = c.k }",
        "SEQ(A a, B b) WHERE a.k = b.k or a.x = 1",
        "SEQ(A a, B b) WHERE a.k = b.k AFTER MATCH SKIP PAST LAST EVENT",  # skips in partitions
    ],
)
def test_what_stays_a_condition(case, text):
    query = case(text).checked
    assert partition_by_equality(query) == query


@pytest.mark.parametrize(
    "text",
    [
        "SEQ(A a, B b, C c) WHERE a.k = b.k and b.k = c.k WITHIN 6",
        "SEQ(A a, !C c, B b) WHERE a.k = b.k and c.k = b.k WITHIN 5",
        "SEQ(A a, B b, !C c) WHERE a.k = b.k and c.k = b.k WITHIN 5",
        "SEQ(A a, B b) WHERE skip_till_next_match(a, b) { a.k = b.k and a.x < b.x } WITHIN 6",
        "SEQ(A a, B b, C c) WHERE skip_till_next_match(a, b, c) { a.k = b.k and b.k = c.k }",
        "SEQ(A a, B b) WHERE strict_contiguity(a, b) { a.k = b.k } WITHIN 5",
        "AND(A a, B b) WHERE a.k = b.k and a.s = b.s WITHIN 5",
    ],
)
def test_it_keeps_the_matches(keeps_matches, text):
    after = keeps_matches(partition_by_equality, text)
    assert Equivalence("k") in after.equivalence
