"""CHOOSE: which of the matches with one last event are kept."""

import pyarrow as pa
import pytest

import ensue

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")


def test_all_is_what_a_query_does_anyway(matched):
    assert matched("SEQ(A a, B b) CHOOSE ALL", "AAB") == [(0, 2), (1, 2)]


@pytest.mark.streams(slow=True)
def test_the_latest(matched):
    assert matched("SEQ(A a, B b) CHOOSE LATEST", "AABAB") == [(1, 2), (3, 4)]


def test_the_latest_may_share_events(matched):
    assert matched("SEQ(A a, B b) CHOOSE LATEST", "ABB") == [(0, 1), (0, 2)]


def test_compared_from_the_newest_to_the_oldest(matched):
    assert matched("SEQ(A a, B b, C c) CHOOSE LATEST", "AABABC") == [(3, 4, 5)]
    assert matched("SEQ(A a, B b, C c) WHERE a.x = b.x CHOOSE LATEST", "ABABC", x=[1, 1, 2, 1, 0]) == [(0, 3, 4)]


def test_more_events_win(matched):
    assert matched("SEQ(A+ a[], B b) CHOOSE LATEST", "AAB") == [((0, 1), 2)]
    assert matched("SEQ(A? a, B b) CHOOSE LATEST", "AB") == [(0, 1)]


def test_the_same_events_in_other_roles_are_one_match(matched):
    assert matched("AND(A a, A b) CHOOSE LATEST", "AA") == [(0, 1)]


@pytest.mark.everywhere(slow=True)
def test_once(matched):
    assert matched("SEQ(A a, B b) CHOOSE ONCE", "AABBAB") == [(1, 2), (4, 5)]


def test_once_uses_up_what_is_between(matched):
    assert matched("SEQ(A a, B b, C c) CHOOSE ONCE", "ABACBC") == [(0, 1, 3)]


def test_once_within_a_partition(matched):
    query = "SEQ(A a, B b) WHERE [k] CHOOSE ONCE"
    assert matched(query, "AABBB", k="pqpqp") == [(0, 2), (1, 3)]


def test_once_within_what_equalities_tie(matched):
    query = "SEQ(A a, B b) WHERE a.k = b.k CHOOSE ONCE"
    assert matched(query, "AABBB", k="pqpqp") == [(0, 2), (1, 3)]
    loose = "SEQ(A a, B b, C c) WHERE a.k = b.k CHOOSE ONCE"
    assert matched(loose, "ABABCC", k="ppqqpp") == [(2, 3, 4)]


@pytest.mark.streams(slow=True)
def test_where_the_end_of_the_window_decides(matched):
    query = "SEQ(A a, B b, !C c) WITHIN 4 CHOOSE LATEST"
    # known at different moments, so that both are the latest
    assert matched(query, "AABX") == [(0, 2), (1, 2)]
    query = "SEQ(A a, B b, !C c) WITHIN 4 CHOOSE ONCE"
    assert matched(query, "AABXXX") == [(0, 2)]
    assert matched(query, "AABXXC") == [(0, 2)]
    assert matched(query, "AABXCX") == []


def test_the_newest_of_those_known_together(matched):
    query = "SEQ(A a, B b, B d, !C c) WITHIN 6 CHOOSE LATEST"
    assert matched(query, "ABBB") == [(0, 1, 2), (0, 2, 3)]


@pytest.mark.parametrize("strategy", ["skip_till_next_match", "partition_contiguity"])
def test_with_a_strategy(matched, strategy):
    query = f"SEQ(A a, B b) WHERE {strategy}(a, b) {{ [k] }} CHOOSE ONCE"
    assert matched(query, "ABAB", k="pppp") == [(0, 1), (2, 3)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SEQ(A a, B b) AFTER MATCH SKIP PAST LAST EVENT CHOOSE ONCE", "AFTER MATCH"),
        ("SEQ(A a, B b) AFTER MATCH SKIP PAST LAST EVENT IN ORDER OF START CHOOSE LATEST", "IN ORDER OF START"),
        ("SEQ(A a, B b, !C c) WITHIN 5 EVENTS CHOOSE ONCE", "number of events"),
        ("SEQ(A a, B++ b[]) WITHIN 5 EVENTS CHOOSE LATEST", "number of events"),
        ("A a JOIN ARCHIVE p A b RANGE 5 BEFORE START CHOOSE LATEST", "JOIN ARCHIVE"),
    ],
)
def test_what_it_does_not_go_with(text, problem):
    with pytest.raises(ensue.QueryError, match=r"CHOOSE.*" + problem.replace("(", r"\(")):
        ensue.parse(text)


@pytest.mark.streams(slow=True)
def test_after_match_says_where_the_next_of_the_chosen_matches_may_begin(matched):
    query = "SEQ(A a, B b) WITHIN 9 AFTER MATCH SKIP {} CHOOSE LATEST"
    assert matched(query.format("PAST LAST EVENT"), "AABBAB") == [(1, 2), (4, 5)]  # as CHOOSE ONCE
    assert matched(query.format("TO LAST a"), "AABBAB") == [(1, 2), (4, 5)]
    assert matched("SEQ(A a, B b) AFTER MATCH SKIP TO NEXT EVENT", "AABB") == [(0, 2), (1, 2)]
    assert matched("SEQ(A a, B b) AFTER MATCH SKIP TO NEXT EVENT CHOOSE LATEST", "AABB") == [(1, 2)]


def test_one_of_each_last_event_even_if_after_match_allows_another(matched):
    query = "SEQ(A+ a[], B b) WITHIN 9 AFTER MATCH SKIP TO NEXT EVENT CHOOSE LATEST"
    assert matched(query, "AAB") == [((0, 1), 2)]  # (1, 2) begins later
    assert matched(query, "AABB") == [((0, 1), 2), ((1,), 3)]


def test_having_is_about_the_chosen_matches(matched):
    # conditions that say among which matches to choose belong in WHERE
    assert matched("SEQ(A a, B b) HAVING a.x > 1 CHOOSE LATEST", "AABAB", x=[5, 1, 0, 3, 0]) == [(3, 4)]
    assert matched("SEQ(A a, B b) WHERE a.x > 1 CHOOSE LATEST", "AABAB", x=[5, 1, 0, 3, 0]) == [(0, 2), (3, 4)]
    # a chosen match uses its events up, whatever becomes of it
    assert matched("SEQ(A a, B b) HAVING b.x > 1 CHOOSE ONCE", "ABBAB", x=[0, 0, 2, 0, 2]) == [(3, 4)]


def test_limit_among_chosen_matches_that_are_known_at_different_times(matched):
    query = "SEQ(A a, B b, !C c) WITHIN 4 CHOOSE LATEST"
    assert matched(query, "AABXXX") == [(0, 2), (1, 2)]
    assert matched(query.replace("CHOOSE", "LIMIT 1 CHOOSE"), "AABXXX") == [(0, 2)]


def test_next_to_definitions():
    table = pa.table({"at": range(6), "type": list("AABCBC")})
    query = "EVENT P AS SEQ(A a, B b) {} RETURN a.at AS at; SEQ(P p, C c) WITHIN 9 RETURN p.at AS p, c.at AS c {}"

    def found(*chosen):
        result = ensue.match(table, query.format(*chosen), time="at", type="type")
        return sorted((row["p"], row["c"]) for row in result.to_pylist())

    assert found("WITHIN 9", "") == [(0, 3), (0, 5), (0, 5), (1, 3), (1, 5), (1, 5)]
    assert found("WITHIN 9 CHOOSE ONCE", "") == [(1, 3), (1, 5)]
    assert found("WITHIN 9", "CHOOSE LATEST") == [(1, 3), (1, 5)]


def test_it_is_printed_and_read_again():
    text = "SEQ(A a, B b) choose once"
    assert ensue.show(ensue.parse(text)).splitlines()[-1] == "CHOOSE ONCE"
    assert ensue.parse(ensue.show(ensue.parse(text))) == ensue.parse(text)


def test_words_that_only_look_like_it():
    query = ensue.parse("SEQ(Choose choose, B latest) WHERE choose.once = latest.all")
    assert query.choose is None
    with pytest.raises(ensue.QueryError, match="say which: CHOOSE LATEST"):
        ensue.parse("SEQ(A a, B b) WITHIN 5 CHOOSE FIRST")
