"""COUNT(*), EXISTS and LIMIT: what is said of all matches that one event completes."""

import pyarrow as pa
import pytest

import ensue
from ensue.errors import QueryError

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")


@pytest.fixture
def rows(runner):
    """`rows(query, "ABAB")`: the result without ids, by its end; events at 0, 1, 2, ..."""

    def run(query, events, **columns):
        table = {"at": range(len(events)), "type": list(events)}
        table |= {n: list(c) if isinstance(c, str) else c for n, c in columns.items()}
        time = ("start", "at") if "start" in columns else "at"
        found = runner.match(pa.table(table), query, time=time, type="type")
        assert len(set(found.column("match_id").to_pylist())) == found.num_rows
        listed = found.drop_columns(["match_id"]).to_pylist()
        return sorted(listed, key=lambda row: str(sorted(row.items(), reverse=True)))

    return run


@pytest.mark.streams(slow=True)
def test_count_gives_one_row_for_each_last_event(rows):
    found = rows("SEQ(A a, B b) WITHIN 10 RETURN COUNT(*) AS n", "AABAB")
    assert found == [{"start": 0, "end": 2, "n": 2}, {"start": 0, "end": 4, "n": 3}]


def test_the_row_of_a_count_begins_with_the_first_of_its_matches(rows):
    found = rows("SEQ(A a, B b) WITHIN 2 RETURN COUNT(*) AS n", "AAAB")
    assert found == [{"start": 1, "end": 3, "n": 2}]


def test_a_count_without_a_name_is_called_count(rows):
    assert rows("SEQ(A a, B b) RETURN COUNT(*)", "AB") == [{"start": 0, "end": 1, "count(*)": 1}]


def test_fields_of_the_last_event_stand_beside_a_count(rows):
    found = rows("SEQ(A a, B b) RETURN b.x, COUNT(*) AS n, b.x * 2 AS y", "AAB", x=[1, 2, 3])
    assert found == [{"start": 0, "end": 2, "x": 3, "n": 2, "y": 6}]


@pytest.mark.everywhere(slow=True)
def test_every_choice_of_repeated_events_is_counted(rows):
    found = rows("SEQ(A+ a[], B b) WITHIN 50 RETURN COUNT(*) AS n", "A" * 8 + "B")
    assert found == [{"start": 0, "end": 8, "n": 2**8 - 1}]


def test_a_count_by_key(rows):
    found = rows("SEQ(A a, B b) WHERE [k] RETURN COUNT(*) AS n", "AAABB", k="xyxxy")
    assert found == [{"start": 0, "end": 3, "n": 2}, {"start": 1, "end": 4, "n": 1}]


def test_a_count_of_matches_with_conditions_between_events(rows):
    found = rows("SEQ(A a, B b) WHERE a.x < b.x RETURN COUNT(*) AS n", "AAAB", x=[1, 5, 2, 3])
    assert found == [{"start": 0, "end": 3, "n": 2}]


def test_a_count_of_matches_without_an_event_between(rows):
    found = rows("SEQ(A a, !C c, B b) WITHIN 9 RETURN COUNT(*) AS n", "AACABBCB")
    assert found == [{"start": 3, "end": 4, "n": 1}, {"start": 3, "end": 5, "n": 1}]


def test_a_count_of_events_that_last(rows):
    found = rows("SEQ(A a, B b) RETURN COUNT(*) AS n", "AAB", start=[0, -5, 2])
    assert found == [{"start": -5, "end": 2, "n": 2}]


def test_a_count_under_another_strategy(rows):
    text = "SEQ(A a, B b) WHERE skip_till_next_match(a, b) { 1 = 1 } RETURN COUNT(*) AS n"
    assert rows(text, "AABB") == [{"start": 0, "end": 2, "n": 2}]


def test_a_count_of_what_is_left_after_skipping(rows):
    text = "SEQ(A a, B b) WITHIN 9 AFTER MATCH SKIP PAST LAST EVENT RETURN COUNT(*) AS n"
    assert rows(text, "AABAB") == [{"start": 0, "end": 2, "n": 1}, {"start": 3, "end": 4, "n": 1}]


@pytest.mark.streams(slow=True)
def test_exists_gives_one_row_for_each_last_event(rows):
    found = rows("SEQ(A a, B b) WITHIN 3 RETURN EXISTS", "AABXXXB")
    assert found == [{"start": 1, "end": 2}]


def test_exists_begins_with_the_last_of_its_matches(rows):
    assert rows("SEQ(A a, B b, C c) RETURN EXISTS, c.x", "AABABC", x=range(6)) == [{"start": 3, "end": 5, "x": 5}]


@pytest.mark.everywhere(slow=True)
def test_limit_keeps_the_first_matches_of_each_last_event(matched):
    assert matched("SEQ(A a, B b, C c) LIMIT 2", "AABBCC") == [(0, 2, 4), (0, 2, 5), (0, 3, 4), (0, 3, 5)]


def test_the_first_match_takes_the_earliest_event_at_every_place(matched):
    assert matched("SEQ(A a, B+ b[], C c) LIMIT 1", "AABBC") == [(0, (2, 3), 4)]


def test_limit_with_conditions_between_events(matched):
    assert matched("SEQ(A a, B b) WHERE a.x < b.x LIMIT 1", "AAAB", x=[9, 1, 2, 5]) == [(1, 3)]


def test_limit_counts_what_having_keeps(matched):
    assert matched("SEQ(A a, B b) HAVING a.x < 5 LIMIT 1", "AAAB", x=[9, 1, 2, 5]) == [(1, 3)]


def test_the_id_of_a_count_is_that_of_its_query_and_last_event(runner):
    table = pa.table({"at": [0, 1, 2], "type": list("AAB"), "x": [1, 2, 3]})
    query = "SEQ(A a, B b) WITHIN 9 RETURN COUNT(*) AS n"
    whole = runner.match(table, query, time="at", type="type")
    fewer = runner.match(table.slice(1), query, time="at", type="type")
    other = runner.match(table, query.replace("9", "8"), time="at", type="type")
    assert whole.column("match_id") == fewer.column("match_id")
    assert whole.column("match_id") != other.column("match_id")


def test_tables_of_different_columns(runner):
    tables = {"A": pa.table({"at": [0, 1], "x": [1, 2]}), "B": pa.table({"at": [2, 3], "y": [3, 4]})}
    found = runner.match(tables, "OR(SEQ(A a, B b), SEQ(A c, A d)) RETURN COUNT(*)", time="at")
    assert sorted(found.column("count(*)").to_pylist()) == [1, 2, 2]
    assert len(set(found.column("match_id").to_pylist())) == 3


def test_several_answers_of_one_pattern_in_one_call():
    table = pa.table({"at": range(6), "type": list("AABBCC")})
    pattern = "SEQ(A a, B b, C c) WITHIN 9"
    answers = ("", "LIMIT 1", "LIMIT 3", "RETURN COUNT(*) AS n", "RETURN EXISTS")
    texts = [f"{pattern} {answer}" for answer in answers]
    found = ensue.match(table, texts, time="at", type="type")
    assert [result.num_rows for result in found.values()] == [8, 2, 6, 2, 2]
    for text, result in zip(texts, found.values(), strict=True):
        alone = ensue.match(table, text, time="at", type="type")
        assert sorted(map(str, result.to_pylist())) == sorted(map(str, alone.to_pylist()))


# -------------------------------------------------- matches of one event that are decided at different times


@pytest.mark.everywhere(slow=True)
def test_a_count_waits_until_an_absence_at_the_end_has_decided_all_its_matches(rows):
    query = "SEQ(A a, B b, !C c) WITHIN 4 RETURN COUNT(*) AS n, b.t"
    assert rows(query, "AABXXXX", t=range(7)) == [{"start": 0, "end": 2, "n": 2, "t": 2}]
    # the C comes when the window of the first A is over
    assert rows(query, "AABXXCX", t=range(7)) == [{"start": 0, "end": 2, "n": 1, "t": 2}]
    assert rows(query, "AABXCXX", t=range(7)) == []


def test_exists_next_to_an_absence_at_the_end(rows):
    query = "SEQ(A a, B b, !C c) WITHIN 4 RETURN EXISTS"
    assert rows(query, "AABXXXX") == [{"start": 1, "end": 2}]
    assert rows(query, "AABXXCX") == [{"start": 0, "end": 2}]


def test_limit_next_to_an_absence_at_the_end(matched):
    query = "SEQ(A a, B b, !C c) WITHIN 4 LIMIT 1"
    assert matched(query, "AABXXX") == [(0, 2)]


@pytest.mark.streams(slow=True)
def test_a_count_next_to_an_absence_with_an_interval(rows):
    query = "SEQ(A a, B b, !C c FROM b.end TO a.end + 4) WITHIN 4 RETURN COUNT(*) AS n"
    assert rows(query, "AABXXCX") == [{"start": 0, "end": 2, "n": 1}]
    assert rows(query, "AABXXXX") == [{"start": 0, "end": 2, "n": 2}]


def test_limit_next_to_an_absence_with_an_interval(matched):
    # the first match by its events is violated, and the next one counts
    query = "SEQ(A a, B b, !C c FROM a.end TO b.end + 2) WITHIN 9 LIMIT 1"
    assert matched(query, "ACAABXXX") == [(2, 4)]
    assert matched(query, "ACAABXCX") == []


def test_a_count_of_matches_that_end_with_a_greedy_loop(rows):
    query = "SEQ(B b, A++ a[]) WITHIN 4 RETURN COUNT(*) AS n"
    assert rows(query, "BAAXXX") == [{"start": 0, "end": 2, "n": 2}]


def test_a_count_in_order_of_start(rows):
    query = "SEQ(A a, B b) WITHIN 4 AFTER MATCH SKIP TO NEXT EVENT IN ORDER OF START RETURN COUNT(*) AS n"
    assert rows(query, "AABB") == [{"start": 0, "end": 2, "n": 2}]


# ----------------------------------------------------------------------------- what is left is counted


@pytest.mark.everywhere(slow=True)
def test_a_count_of_what_having_keeps(rows):
    query = "SEQ(A a, B b) WITHIN 9 RETURN COUNT(*) AS n HAVING a.x > 1"
    assert rows(query, "AABAB", x=[1, 2, 0, 3, 0]) == [{"start": 1, "end": 2, "n": 1}, {"start": 1, "end": 4, "n": 2}]


def test_exists_of_what_having_keeps(rows):
    query = "SEQ(A a, B b) WITHIN 9 RETURN EXISTS HAVING a.x > 1"
    assert rows(query, "ABAAB", x=[1, 0, 5, 1, 0]) == [{"start": 2, "end": 4}]


def test_a_count_up_to_a_limit(rows):
    query = "SEQ(A a, B b) WITHIN 9 RETURN COUNT(*) AS n LIMIT 2"
    assert rows(query, "ABAAB") == [{"start": 0, "end": 1, "n": 1}, {"start": 0, "end": 4, "n": 2}]


def test_the_shortest_of_the_first_matches(rows):
    assert rows("SEQ(A a, B b) WITHIN 9 RETURN EXISTS LIMIT 2", "AAAB") == [{"start": 1, "end": 3}]


def test_a_count_of_what_is_chosen(rows):
    query = "SEQ(A a, B b, !C c) WITHIN 4 RETURN COUNT(*) AS n CHOOSE LATEST"
    assert rows(query, "AABXXXX") == [{"start": 0, "end": 2, "n": 2}]  # each is the latest when it is known
    assert rows("SEQ(A a, B b) RETURN COUNT(*) AS n CHOOSE LATEST", "AAB") == [{"start": 1, "end": 2, "n": 1}]


# ------------------------------------------------------------------------------- what is refused

REFUSED = {
    "SEQ(A a, B b) RETURN EXISTS, COUNT(*)": "EXISTS and COUNT",
    "SEQ(A a, B b) RETURN COUNT(*), a.x": "'x' differs between the matches",
    "SEQ(A a, B+ b[]) RETURN COUNT(*), b[1].x": "'x' differs between the matches",
    "SEQ(A a, B b) RETURN COUNT(*) * 2": "a column of RETURN",
    "SEQ(A a, B b) LIMIT 0": "at least 1",
    "SEQ(A a, B b) LIMIT 1.5": "a whole number",
    "SEQ(A a, B b) RETURN avg(*)": "only COUNT",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_counted_is_refused(text):
    with pytest.raises(QueryError, match=REFUSED[text].replace("(", r"\(")):
        ensue.parse(text)


def test_timed_out_partial_matches_are_not_counted():
    table = pa.table({"at": [0], "type": ["A"]})
    query = "SEQ(A a, B b) WITHIN 5 RETURN COUNT(*)"
    with pytest.raises(QueryError, match="emit_timeouts cannot be combined with COUNT"):
        ensue.match(table, query, time="at", type="type", options=ensue.OutputOptions(emit_timeouts=True))
