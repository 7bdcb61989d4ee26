"""OR: exactly one of the parts."""

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")


@pytest.mark.everywhere
def test_either_part_is_a_match(matched):
    assert matched("OR(A a, B b)", "AXB") == [(None, 2), (0, None)]


def test_never_both(matched):
    assert matched("OR(A a, B b)", "AB") == [(None, 1), (0, None)]


@pytest.mark.everywhere(slow=True)
def test_inside_a_sequence(matched):
    query = "SEQ(A a, OR(B b, C c), D d)"
    assert matched(query, "ACBD") == [(0, None, 1, 3), (0, 2, None, 3)]


def test_parts_of_one_type_are_both_found(matched):
    assert matched("OR(A a, A b) WHERE a.x > 1 and b.x < 3", "A", x=[2]) == [(None, 0), (0, None)]


def test_a_sequence_as_a_part(matched):
    assert matched("OR(SEQ(A a, B b), C c)", "ACB") == [(None, None, 1), (0, 2, None)]


def test_conditions_on_the_unbound_part_do_not_apply(matched):
    query = "SEQ(A a, OR(B b, C c)) WHERE b.x > a.x and c.x < a.x"
    assert matched(query, "ABC", x=[2, 1, 1]) == [(0, None, 2)]


def test_under_next_match_the_first_of_either_is_taken(matched):
    query = "SEQ(A a, OR(B b, C c)) WHERE skip_till_next_match(a, b, c) { 1 = 1 }"
    assert matched(query, "ACB") == [(0, None, 1)]


def test_nested_disjunctions_are_one(matched):
    assert matched("OR(A a, OR(B b, C c))", "C") == [(None, None, 0)]
