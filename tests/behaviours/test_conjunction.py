"""AND: all of the parts, in any order."""

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")


@pytest.mark.everywhere
def test_either_order_is_a_match(matched):
    assert matched("AND(A a, B b)", "ABXA") == [(0, 1), (3, 1)]


def test_three_parts(matched):
    for stream in ("ABC", "ACB", "BAC", "BCA", "CAB", "CBA"):
        expected = tuple(stream.index(c) for c in "ABC")
        assert matched("AND(A a, B b, C c)", stream) == [expected]


def test_one_event_plays_one_part(matched):
    assert matched("AND(A a, A b)", "A") == []
    assert matched("AND(A a, A b)", "AA") == [(0, 1), (1, 0)]


def test_a_sequence_inside(matched):
    assert matched("AND(SEQ(A a, B b), C c)", "ACB") == [(0, 2, 1)]
    assert matched("AND(SEQ(A a, B b), C c)", "BCA") == []


@pytest.mark.everywhere(slow=True)
def test_inside_a_sequence(matched):
    query = "SEQ(A a, AND(B b, C c), D d)"
    assert matched(query, "ACBD") == [(0, 2, 1, 3)]
    assert matched(query, "CABD") == []


def test_conditions_between_the_parts(matched):
    query = "AND(A a, B b) WHERE a.x < b.x"
    assert matched(query, "BAAB", x=[2, 1, 3, 4]) == [(1, 0), (1, 3), (2, 3)]


def test_under_next_match_each_run_uses_what_it_can(matched):
    query = "AND(A a, B b) WHERE skip_till_next_match(a, b) { 1 = 1 }"
    assert matched(query, "ABB") == [(0, 1)]


def test_the_window_spans_all_parts(matched):
    assert matched("AND(A a, B b) WITHIN 1", "AXBA") == [(3, 2)]


def test_a_kleene_part(matched):
    query = "AND(A+ a[], B b) WHERE skip_till_next_match(a[], b) { a.LEN = 2 }"
    assert matched(query, "ABA") == [((0, 2), 1)]
