"""SEQ: events one after the other."""

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")


@pytest.mark.everywhere(slow=True)
def test_events_in_between_are_passed_over(matched):
    assert matched("SEQ(A a, B b)", "AXB") == [(0, 2)]


def test_the_wrong_order_is_no_match(matched):
    assert matched("SEQ(A a, B b)", "BA") == []


@pytest.mark.everywhere
def test_without_a_strategy_all_combinations_are_found(matched):
    assert matched("SEQ(A a, B b)", "AABB") == [(0, 2), (0, 3), (1, 2), (1, 3)]


def test_named_it_is_the_same(matched):
    query = "SEQ(A a, B b) WHERE skip_till_any_match(a, b) { 1 = 1 }"
    assert matched(query, "AABB") == [(0, 2), (0, 3), (1, 2), (1, 3)]


def test_three_events(matched):
    assert matched("SEQ(A a, B b, C c)", "ABCBC") == [(0, 1, 2), (0, 1, 4), (0, 3, 4)]


def test_arrows_are_a_sequence(matched):
    assert matched("A a -> B b → C c", "ABC") == [(0, 1, 2)]


def test_a_nested_sequence_is_one_sequence(matched):
    assert matched("SEQ(A a, SEQ(B b, C c))", "ABXC") == [(0, 1, 3)]


def test_one_type_in_two_places_needs_two_events(matched):
    assert matched("SEQ(A a, A b)", "A") == []
    assert matched("SEQ(A a, A b)", "AAA") == [(0, 1), (0, 2), (1, 2)]


def test_a_single_event(matched):
    assert matched("A a", "ABA") == [(0,), (2,)]


def test_events_of_the_same_time_keep_the_order_of_arrival(matched):
    assert matched("SEQ(A a, B b)", "ABA", at=[5, 5, 5]) == [(0, 1)]


@pytest.mark.everywhere(slow=True)
def test_conditions_between_events(matched):
    query = "SEQ(A a, B b) WHERE a.x < b.x"
    assert matched(query, "AABB", x=[1, 3, 2, 4]) == [(0, 2), (0, 3), (1, 3)]


def test_a_long_sequence(matched):
    letters = "ABCDEFGHIJKLMNOPQRST"
    parts = ", ".join(f"{c} {c.lower()}" for c in letters)
    assert matched(f"SEQ({parts})", letters) == [tuple(range(20))]
