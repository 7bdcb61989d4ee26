"""Events that last: time is a pair of columns."""

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")


@pytest.mark.streams(slow=True)
def test_one_ends_before_the_next_begins(matched):
    found = matched("SEQ(A a, B b)", "ABB", start=[0, 1, 2], end=[2, 3, 4])
    assert found == [(0, 2)]  # the first B begins before A ends


def test_meeting_is_enough(matched):
    assert matched("SEQ(A a, B b)", "AB", start=[0, 2], end=[2, 3]) == [(0, 1)]


@pytest.mark.everywhere
def test_the_window_runs_from_the_first_start_to_the_last_end(matched):
    query = "SEQ(A a, B b) WITHIN %d"
    assert matched(query % 9, "AB", start=[0, 6], end=[5, 10]) == []
    assert matched(query % 10, "AB", start=[0, 6], end=[5, 10]) == [(0, 1)]


def test_a_conjunction_may_overlap(matched):
    assert matched("AND(A a, B b)", "AB", start=[0, 1], end=[5, 6]) == [(0, 1)]


def test_the_first_start_may_belong_to_the_last_event(matched):
    # B ends last but begins first: 0 to 6
    query = "AND(A a, B b) WITHIN %d"
    assert matched(query % 5, "AB", start=[3, 0], end=[5, 6]) == []
    assert matched(query % 6, "AB", start=[3, 0], end=[5, 6]) == [(0, 1)]


def test_a_kleene_variable_takes_successive_intervals(matched):
    query = "SEQ(A+ a[], B b)"
    found = matched(query, "AAB", start=[0, 1, 9], end=[2, 3, 9])
    assert found == [((0,), 2), ((1,), 2)]  # the two overlap


def test_only_what_lies_between_is_forbidden(matched):
    query = "SEQ(A a, !C c, B b)"
    assert matched(query, "ACB", start=[0, 1, 5], end=[2, 3, 6]) == [(0, 2)]  # overlaps A
    assert matched(query, "ACB", start=[0, 2, 5], end=[2, 3, 6]) == []


def test_the_stream_is_ordered_by_end(matched):
    query = "SEQ(A a, B b) WHERE skip_till_next_match(a, b) { 1 = 1 }"
    found = matched(query, "ABB", start=[0, 3, 2], end=[1, 9, 4])
    assert found == [(0, 2)]


def test_start_and_end_are_fields_of_every_event(runner):
    import pyarrow as pa

    events = pa.table({"b": [0, 4], "e": [3, 5], "type": ["A", "B"]})
    query = "SEQ(A a, B b) RETURN b.start - a.end AS pause, b.end - b.start AS took"
    found = runner.match(events, query, time=("b", "e"), type="type")
    assert found.select(["start", "end", "pause", "took"]).to_pylist() == [
        {"start": 0, "end": 5, "pause": 1, "took": 1}
    ]
