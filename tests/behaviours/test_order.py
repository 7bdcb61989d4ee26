"""The order of the stream: end, start, tie-breaker columns, arrival."""

import pyarrow as pa
import pytest

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")

NEXT = "SEQ(A a, B b) WHERE skip_till_next_match(a, b) { 1 = 1 }"


@pytest.mark.everywhere
def test_time_orders_not_arrival(matched):
    assert matched("SEQ(A a, B b)", "BA", at=[2, 1]) == [(1, 0)]


def test_arrival_orders_equal_times(matched):
    assert matched("SEQ(A a, B b)", "BAB", at=[1, 1, 1]) == [(1, 2)]


@pytest.mark.streams(slow=True)
def test_tie_breakers_come_before_arrival(matched):
    found = matched("SEQ(A a, B b)", "BA", at=[1, 1], n=[2, 1], order=["n"])
    assert found == [(1, 0)]


def test_several_tie_breakers(matched):
    found = matched("SEQ(A a, B b)", "BAB", at=[1, 1, 1], n=[1, 1, 0], m="cba", order=["n", "m"])
    assert found == [(1, 0)]


def test_tie_breakers_of_texts_and_nulls(matched):
    found = matched("SEQ(A a, B b)", "BA", at=[1, 1], n=[None, "x"], order=["n"])
    assert found == [(1, 0)]  # NULL comes last


def test_a_tie_breaker_does_not_outrank_time(matched):
    assert matched("SEQ(A a, B b)", "AB", at=[1, 2], n=[2, 1], order=["n"]) == [(0, 1)]


def test_one_tie_breaker_as_a_text(runner):
    events = pa.table({"at": [1, 1], "type": ["B", "A"], "n": [2, 1]})
    assert runner.match(events, "SEQ(A a, B b)", time="at", type="type", order="n").num_rows == 1


def test_strictly_adjacent_after_ordering(matched):
    query = "SEQ(A a, B b) WHERE strict_contiguity(a, b) { 1 = 1 }"
    assert matched(query, "BXA", at=[2, 3, 1]) == [(2, 0)]


def test_the_next_in_order(matched):
    assert matched(NEXT, "BAB", at=[9, 1, 5]) == [(1, 2)]
