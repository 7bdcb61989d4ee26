"""Live matches joined with the past: JOIN, LEFT JOIN and ANTI JOIN ARCHIVE."""

import pyarrow as pa
import pytest

import ensue

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")

BEFORE = "SEQ(A a) JOIN ARCHIVE old SEQ(B b) RANGE 5 BEFORE START"
KEYED = "SEQ(A a) {} JOIN ARCHIVE old SEQ(B b) RANGE 50 BEFORE START ON [k]"


@pytest.mark.streams(slow=True)
def test_every_archived_match_in_the_range_is_a_row(joined):
    assert joined(BEFORE, "A", past="BBXB", past_at=[94, 95, 96, 99]) == [(0, 1001), (0, 1003)]


def test_the_far_end_belongs_to_the_range_and_the_anchor_does_not(joined):
    assert joined(BEFORE, "A", past="BB", past_at=[95, 100]) == [(0, 1000)]


def test_an_archived_match_lies_in_the_range_as_a_whole(joined):
    query = "SEQ(A a) JOIN ARCHIVE old SEQ(B b, C c) RANGE 5 BEFORE START"
    past_at = [94, 95, 96, 99]
    assert joined(query, "A", past="BBCC", past_at=past_at) == [(0, 1001, 1002), (0, 1001, 1003)]


def test_a_near_end_belongs_to_the_range(joined):
    query = "SEQ(A a) JOIN ARCHIVE old SEQ(B b) RANGE BETWEEN 5 AND 2 BEFORE START"
    assert joined(query, "A", past="BBB", past_at=[95, 98, 99]) == [(0, 1000), (0, 1001)]


@pytest.mark.everywhere
def test_before_end_counts_from_the_last_live_event(joined):
    query = "SEQ(A a, C c) WITHIN 20 JOIN ARCHIVE old SEQ(B b) RANGE 5 BEFORE END"
    found = joined(query, "AC", at=[100, 110], past="BB", past_at=[99, 106])
    assert found == [(0, 1, 1001)]


@pytest.mark.streams(slow=True)
def test_the_past_of_the_same_object(joined):
    found = joined(
        KEYED.format(""), "AA", k="pq", past="BBB", past_at=[90, 91, 92],
        past_columns={"k": "pqp"},
    )  # fmt: skip
    assert found == [(0, 1000), (0, 1002), (1, 1001)]


@pytest.mark.streams(slow=True)
def test_left_keeps_live_matches_without_a_past(joined):
    found = joined(
        KEYED.format("LEFT"), "AAA", k=["p", "q", None], past="B", past_at=[90],
        past_columns={"k": "p"},
    )  # fmt: skip
    assert found == [(0, 1000), (1, None), (2, None)]


@pytest.mark.streams(slow=True)
def test_anti_keeps_only_those(joined):
    found = joined(
        KEYED.format("ANTI"), "AAA", k=["p", "q", None], past="B", past_at=[90],
        past_columns={"k": "p"},
    )  # fmt: skip
    assert found == [(1,), (2,)]


@pytest.mark.everywhere
def test_last_takes_the_latest(joined):
    assert joined(f"{BEFORE} LAST 2", "A", past="BBB", past_at=[96, 98, 97]) == [(0, 1001), (0, 1002)]


@pytest.mark.parametrize("access", ["lazy", "grouped", "eager"])
def test_of_the_same_time_the_last_in_the_stream_is_the_latest(joined, access):
    """Whatever their ids: with several events, the first that differs decides."""
    for x in ([1, 2, 3], [3, 2, 1], [2, 3, 1]):
        given = {"past_at": [96, 96, 96], "past_columns": {"x": x}, "options": {"access": access}}
        assert joined(f"{BEFORE} LAST 1", "A", past="BBB", x=[0], **given) == [(0, 1002)]
        query = BEFORE.replace("SEQ(B b)", "SEQ(B b, B c) WITHIN 5") + " LAST 2"
        found = joined(query, "A", past="BBB", x=[0], **given)
        assert found == [(0, 1000, 1002), (0, 1001, 1002)]


@pytest.mark.parametrize("access", ["lazy", "grouped", "eager"])
@pytest.mark.parametrize("order", [[1, 2, 3], [3, 1, 2], [2, 3, 1]])
def test_of_the_same_time_the_order_columns_decide_which_is_the_latest(order, access):
    live = pa.table({"at": [100], "type": ["A"], "seq": [0]})
    old = pa.table({"at": [96] * 3, "type": ["B"] * 3, "seq": order})
    archive = ensue.archive(old, time="at", type="type", order="seq")
    found = ensue.match(
        live,
        f"{BEFORE} LAST 1 RETURN b.seq AS seq",
        time="at",
        type="type",
        order="seq",
        archives=ensue.Archives({"old": archive}, access=access),
    )
    assert found["seq"].to_pylist() == [3]


def test_conditions_between_the_sides(joined):
    query = f"{BEFORE} ON b.x < a.x"
    found = joined(query, "AA", x=[2, 5], past="BBB", past_at=[97, 98, 99], past_columns={"x": [1, 3, None]})
    assert found == [(0, 1000), (1, 1000), (1, 1001)]


@pytest.mark.everywhere
def test_consecutive_patterns_on_both_sides(joined):
    query = (
        "SEQ(A a, B b) WHERE partition_contiguity(a, b) { [k] } WITHIN 5 "
        "JOIN ARCHIVE old SEQ(C c, D+ d[]) WHERE partition_contiguity(c, d[]) { [k] } WITHIN 9 "
        "RANGE 200 BEFORE START ON [k]"
    )
    found = joined(
        query, "AABB", k="pqpq", past="CCDXDD", past_at=[1, 2, 3, 4, 5, 6],
        past_columns={"k": "pqpqpq"},
    )  # fmt: skip
    assert found == [(0, 2, 1000, (1002,)), (0, 2, 1000, (1002, 1004))]


def test_an_archived_pattern_means_its_matches_in_the_whole_archive(joined):
    """The first match ends the second one's chance, though it lies before the range."""
    query = "SEQ(A a) JOIN ARCHIVE old SEQ(B b, C c) WITHIN 9 AFTER MATCH SKIP PAST LAST EVENT RANGE 5 BEFORE START"
    assert joined(query, "A", past="BBC", past_at=[92, 96, 97]) == []
    assert joined(query, "A", past="BCBC", past_at=[92, 93, 96, 97]) == [(0, 1002, 1003)]


def test_a_negation_at_the_start_looks_before_the_range(joined):
    query = "SEQ(A a) JOIN ARCHIVE old SEQ(!C c, B b) WITHIN 4 RANGE 5 BEFORE START"
    assert joined(query, "A", past="CB", past_at=[94, 96]) == []
    assert joined(query, "A", past="CB", past_at=[91, 96]) == [(0, 1001)]


@pytest.mark.streams(slow=True)
def test_a_negation_at_the_end_is_waited_for(joined):
    query = "SEQ(A a) JOIN ARCHIVE old SEQ(B b, !C c) WITHIN 4 RANGE 5 BEFORE START"
    assert joined(query, "BAC", at=[98, 100, 101], own=True) == []
    assert joined(query, "BAC", at=[98, 100, 103], own=True) == [(1, 0)]


@pytest.mark.streams(slow=True)
def test_what_came_before_in_the_stream_is_past_too(joined):
    found = joined(
        KEYED.format(""), "BABA", k="ppqq", past="B", past_at=[60], past_columns={"k": "p"},
        own=True,
    )  # fmt: skip
    assert found == [(1, 0), (1, 1000), (3, 2)]


def test_several_joins(joined):
    query = (
        "SEQ(A a) JOIN ARCHIVE old SEQ(B b) RANGE 9 BEFORE START "
        "LEFT JOIN ARCHIVE old SEQ(C c) RANGE 9 BEFORE START ON c.x > b.x "
        "ANTI JOIN ARCHIVE old SEQ(D d) RANGE 9 BEFORE START"
    )
    past = {"past_at": [95, 96, 97], "past_columns": {"x": [1, 3, 2]}}
    assert joined(query, "A", past="BBC", x=[0], **past) == [(0, 1000, 1002), (0, 1001, None)]
    assert joined(query, "A", past="BBD", x=[0], **past) == []


def test_limit_is_of_each_live_match(joined):
    found = joined(f"{BEFORE} LIMIT 1", "AA", past="BB", past_at=[97, 98])
    assert found == [(0, 1000), (1, 1000)]


def test_having_speaks_of_all_sides(joined):
    query = f"{BEFORE} RETURN a, b HAVING a.at - b.at > 2"
    assert joined(query, "A", past="BB", past_at=[97, 98]) == [(0, 1000)]


@pytest.mark.parametrize("access", ["eager", "lazy", "grouped", "archive_first"])
def test_however_it_is_accessed(joined, access):
    found = joined(
        KEYED.format(""), "AAXA", k="pqpp", past="BBB", past_at=[90, 91, 92],
        past_columns={"k": "prp"}, options={"access": access, "latency": 2},
    )  # fmt: skip
    assert found == [(0, 1000), (0, 1002), (3, 1000), (3, 1002)]


def test_without_an_archive_of_that_name(runner):
    import pyarrow as pa

    from ensue import QueryError, archive

    events = pa.table({"at": [1], "type": ["A"]})
    with pytest.raises(QueryError, match="unknown archive 'old'"):
        runner.match(
            events, BEFORE, time="at", type="type",
            archives={"olde": archive(events, time="at", type="type")},
        )  # fmt: skip


def test_rows_of_one_live_match_come_in_the_order_of_their_archived_matches():
    """By time, not by their ids, which say nothing of it."""
    live = pa.table({"at": [100], "type": ["A"]})
    past = pa.table({"at": range(80, 90), "type": ["B"] * 10})
    found = ensue.match(
        live, BEFORE.replace("RANGE 5", "RANGE 50") + " RETURN b.at AS at",
        time="at", type="type", archives={"old": ensue.archive(past, time="at", type="type")},
    )  # fmt: skip
    assert found["at"].to_pylist() == list(range(80, 90))
