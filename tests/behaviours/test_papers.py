"""Streams and answers that papers print."""

import pytest

# Paper 003 lists the results of its query over its figure 1. From them and from its text the
# events that count can be told: a1 ... d20 with attr1, c8 of partition 2 (named in the text), and
# a C of partition 1 between b10 and b18, where <a1, b10, d20> falls away and <a1, b18, d20> stays.
Q1 = "EVENT SEQ(A a, B b, ! (C c), D d)\nWHERE [ attr1 ] ∧ d. attr2 = '1'\nWITHIN20"
STREAM = {
    1: ("A", 1),
    2: ("E", 1),
    3: ("B", 1),
    4: ("A", 2),
    5: ("E", 2),
    6: ("B", 2),
    7: ("D", 1),
    8: ("C", 2),
    9: ("D", 2),
    10: ("B", 1),
    11: ("E", 2),
    12: ("C", 1),
    13: ("B", 2),
    14: ("E", 1),
    15: ("E", 2),
    16: ("B", 2),
    17: ("D", 2),
    18: ("B", 1),
    19: ("E", 2),
    20: ("D", 1),
}


def run(matched, query):
    found = matched(
        query,
        "".join(kind for kind, _ in STREAM.values()),
        at=list(STREAM),
        attr1=[key for _, key in STREAM.values()],
        attr2=["1"] * len(STREAM),
    )
    return [tuple(position + 1 for position in match) for match in found]


def test_the_sequences_before_negation(matched):
    """The eight intermediate results of SASE; the print has b3 where only b13 can be."""
    assert run(matched, Q1.replace("! (C c), ", "")) == [
        (1, 3, 7),
        (1, 3, 20),
        (1, 10, 20),
        (1, 18, 20),
        (4, 6, 9),
        (4, 6, 17),
        (4, 13, 17),
        (4, 16, 17),
    ]


@pytest.mark.everywhere
def test_the_query_as_it_is_printed(matched):
    """The four results; the print has a4 where b18 and d20 belong to a1."""
    assert run(matched, Q1) == [(1, 3, 7), (1, 18, 20), (4, 13, 17), (4, 16, 17)]


def test_events_that_fail_the_condition_do_not_end_a_match(matched):
    found = matched(Q1, "ABDD", attr1=[1, 1, 1, 1], attr2=["1", "1", "2", "1"])
    assert found == [(0, 1, 3)]
