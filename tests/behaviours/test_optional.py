"""`?`: a part that may be missing."""

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")


@pytest.mark.everywhere
def test_with_and_without(matched):
    assert matched("SEQ(A a, B? b, C c)", "ABC") == [(0, None, 2), (0, 1, 2)]


def test_without_it_in_the_stream(matched):
    assert matched("SEQ(A a, B? b, C c)", "AC") == [(0, None, 1)]


def test_at_the_end(matched):
    assert matched("SEQ(A a, B? b)", "AB") == [(0, None), (0, 1)]


def test_at_the_start(matched):
    assert matched("SEQ(A? a, B b)", "AB") == [(None, 1), (0, 1)]


@pytest.mark.everywhere(slow=True)
def test_a_condition_on_it_applies_only_if_it_is_there(matched):
    query = "SEQ(A a, B? b, C c) WHERE b.x > a.x"
    assert matched(query, "ABBC", x=[2, 1, 3, 0]) == [(0, None, 3), (0, 2, 3)]


def test_an_aggregate_over_it_always_applies(matched):
    assert matched("SEQ(A a, B? b, C c) WHERE count(b) = 0", "ABC") == [(0, None, 2)]
    assert matched("SEQ(A a, B? b, C c) WHERE max(b.x) > 0", "ABC", x=[1, 1, 1]) == [(0, 1, 2)]


def test_a_group(matched):
    query = "SEQ(A a, (SEQ(B b, C c))?, D d)"
    assert matched(query, "ABCD") == [(0, None, None, 3), (0, 1, 2, 3)]
    assert matched(query, "ABD") == [(0, None, None, 2)]


def test_under_next_match_it_is_taken_when_it_comes(matched):
    query = "SEQ(A a, B? b, C c) WHERE skip_till_next_match(a, b, c) { 1 = 1 }"
    assert matched(query, "ABC") == [(0, 1, 2)]
    assert matched(query, "AXC") == [(0, None, 2)]


def test_strictly_adjacent_or_left_out(matched):
    query = "SEQ(A a, B? b, C c) WHERE strict_contiguity(a, b, c) { 1 = 1 }"
    assert matched(query, "ABC") == [(0, 1, 2)]
    assert matched(query, "AC") == [(0, None, 1)]
