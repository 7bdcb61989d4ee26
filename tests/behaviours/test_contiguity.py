"""Strategies that pass over no event: of the stream, or of the partition."""

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")

STRICT = "SEQ(A a, B b) WHERE strict_contiguity(a, b) { 1 = 1 }"
STRICT_BY_KEY = "SEQ(A a, B b) WHERE strict_contiguity(a, b) { [k] }"
PARTITION = "SEQ(A a, B b) WHERE partition_contiguity(a, b) { [k] }"


@pytest.mark.everywhere
def test_strict_events_are_neighbours(matched):
    assert matched(STRICT, "ABAXB") == [(0, 1)]


def test_an_event_of_any_type_breaks_strict_contiguity(matched):
    assert matched(STRICT, "AAB") == [(1, 2)]


@pytest.mark.everywhere
def test_an_event_of_another_key_breaks_strict_contiguity(matched):
    assert matched(STRICT_BY_KEY, "AABB", k="pqpq") == []
    assert matched(STRICT_BY_KEY, "AABB", k="qppq") == [(1, 2)]


def test_an_event_without_a_key_breaks_strict_contiguity(matched):
    assert matched(STRICT_BY_KEY, "AXB", k=["p", None, "p"]) == []


@pytest.mark.everywhere
def test_other_keys_do_not_break_partition_contiguity(matched):
    assert matched(PARTITION, "AABB", k="pqpq") == [(0, 2), (1, 3)]


def test_an_event_of_the_key_breaks_partition_contiguity(matched):
    assert matched(PARTITION, "AXB", k="ppp") == []


def test_an_event_without_a_key_does_not(matched):
    assert matched(PARTITION, "AXB", k=["p", None, "p"]) == [(0, 2)]


def test_without_a_key_the_partition_is_the_stream(matched):
    query = "SEQ(A a, B b) WHERE partition_contiguity(a, b) { 1 = 1 }"
    assert matched(query, "ABAXB") == [(0, 1)]


def test_an_event_that_fails_its_condition_breaks_it_too(matched):
    query = "SEQ(A a, B b) WHERE strict_contiguity(a, b) { b.x > 1 }"
    assert matched(query, "ABB", x=[0, 1, 2]) == []


def test_neighbours_in_the_order_of_time_not_of_arrival(matched):
    assert matched(STRICT, "AXB", at=[1, 9, 2]) == [(0, 2)]


def test_a_conjunction_of_neighbours(matched):
    query = "AND(A a, B b) WHERE strict_contiguity(a, b) { 1 = 1 }"
    assert matched(query, "BAXB") == [(1, 0)]
