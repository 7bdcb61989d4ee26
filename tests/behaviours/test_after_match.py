"""AFTER MATCH SKIP: where the next match of a partition may begin."""

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")

PAIRS = "SEQ(A a, B b) %s"
RUNS = "SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) { 1 = 1 } %s"


def test_without_it_every_match_is_kept(matched):
    assert matched(PAIRS % "", "AABB") == [(0, 2), (0, 3), (1, 2), (1, 3)]


@pytest.mark.streams(slow=True)
def test_past_the_last_event(matched):
    query = PAIRS % "AFTER MATCH SKIP PAST LAST EVENT"
    assert matched(query, "AABB") == [(0, 2)]
    assert matched(query, "AABBAB") == [(0, 2), (4, 5)]


def test_rows_are_events(matched):
    assert matched(PAIRS % "AFTER MATCH SKIP PAST LAST ROW", "AABB") == [(0, 2)]


@pytest.mark.everywhere(slow=True)
def test_to_the_next_event(matched):
    query = PAIRS % "AFTER MATCH SKIP TO NEXT EVENT"
    assert matched(query, "AABB") == [(0, 2), (1, 2)]


def test_to_the_last_of_a_variable(matched):
    query = "SEQ(A a, A b) AFTER MATCH SKIP TO LAST b"
    assert matched(query, "AAA") == [(0, 1), (1, 2)]


def test_to_the_first_of_a_kleene_variable(matched):
    query = "SEQ(A+ a[], B b) WHERE a.LEN = 2 AFTER MATCH SKIP TO LAST a"
    assert matched(query, "AAAB") == [((0, 1), 3), ((1, 2), 3)]


def test_each_partition_skips_for_itself(matched):
    query = "SEQ(A a, B b) WHERE [k] AFTER MATCH SKIP PAST LAST EVENT"
    assert matched(query, "AABB", k="pqpq") == [(0, 2), (1, 3)]


def test_the_earliest_to_end_wins(matched):
    query = RUNS % "AFTER MATCH SKIP PAST LAST EVENT"
    assert matched(query, "ABABC") == [(0, (1, 3), 4)]


def test_with_a_window(matched):
    query = "SEQ(A a, B b) WITHIN 2 AFTER MATCH SKIP PAST LAST EVENT"
    assert matched(query, "AXXABAB") == [(3, 4), (5, 6)]


@pytest.mark.everywhere(slow=True)
def test_having_looks_at_what_is_left(matched):
    query = "SEQ(A a, B b) AFTER MATCH SKIP PAST LAST EVENT HAVING b.x > 1"
    # (0, 1) uses up its events although HAVING drops it
    assert matched(query, "ABBAB", x=[0, 1, 2, 0, 2]) == [(3, 4)]
