"""skip_till_next_match: an event that can be used must be used."""

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")

NEXT = "SEQ(A a, B b) WHERE skip_till_next_match(a, b) { %s }"

RISING = """PATTERN SEQ(Stock+ a[ ], Stock b)
WHERE skip_till_next_match(a[ ], b) {
    [symbol]
    and a[1]. volume > 1000
    and a[i]. price > avg(a[.. i-1]. price)
    and b. volume < 80% * a[a.LEN]. volume }
WITHIN 1 hour"""


@pytest.mark.everywhere(slow=True)
def test_the_first_fitting_event_is_taken(matched):
    assert matched(NEXT % "1 = 1", "AXBB") == [(0, 2)]


@pytest.mark.everywhere(slow=True)
def test_every_start_begins_a_run(matched):
    assert matched(NEXT % "1 = 1", "AABB") == [(0, 2), (1, 2)]


def test_events_that_do_not_fit_are_passed_over(matched):
    assert matched(NEXT % "b.x > a.x", "ABB", x=[2, 1, 3]) == [(0, 2)]


def test_only_events_of_the_partition_count(matched):
    assert matched(NEXT % "[k]", "ABB", k="pqp") == [(0, 2)]


def test_an_event_beyond_the_window_is_no_use(matched):
    assert matched(NEXT % "1 = 1" + " WITHIN 1", "AXB") == []


def test_what_the_next_variable_alone_can_use_may_be_passed_over_while_open(matched):
    query = "SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { 1 = 1 }"
    assert matched(query, "ABAB") == [((0,), 1), ((0, 2), 3), ((2,), 3)]


def test_one_type_can_be_taken_or_go_on(matched):
    query = "SEQ(A+ a[], A b) WHERE skip_till_next_match(a[], b) { b.x > 5 }"
    # the last event fits both variables: the run forks
    assert matched(query, "AAA", x=[1, 1, 9]) == [((0, 1), 2), ((1,), 2)]


PRICES = [100, 120, 120, 121, 120, 125, 120, 120]
VOLUMES = [1010, 990, 1005, 999, 999, 750, 950, 700]


@pytest.mark.everywhere
def test_the_stock_query_of_the_papers(matched):
    """Events e1 to e8: the rise from e1 and from e3 ends at e6, the one from e1 again at e8."""
    query = RISING.replace("1 hour", "60").replace("Stock", "S")
    found = matched(query, "S" * 8, price=PRICES, volume=VOLUMES, symbol=["IBM"] * 8)
    numbered = [(tuple(p + 1 for p in a), b + 1) for a, b in found]
    assert numbered == [((1, 2, 3, 4, 5), 6), ((1, 2, 3, 4, 5, 6, 7), 8), ((3, 4), 6)]
