"""Absence over an interval of its own: FROM is open, TO is closed."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import ensue
from ensue.errors import QueryError

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")

SILENT = "AND(A a, !B b FROM a.end TO a.end + 2)"


@pytest.mark.streams(slow=True)
def test_behind_an_event(matched):
    # b at 3 is on the border and counts, b at 7 comes too late
    assert matched(SILENT, "ABAB", at=[1, 3, 4, 7]) == [(2,)]


def test_the_left_border_is_open(matched):
    assert matched(SILENT, "ABX", at=[1, 1, 9]) == [(0,)]
    assert matched(SILENT, "BAX", at=[1, 1, 9]) == [(1,)]


def test_between_two_events(matched):
    query = "SEQ(A a, !C c FROM a.end TO b.start, B b)"
    assert matched(query, "ACAB", at=[1, 2, 3, 4]) == [(2, 3)]
    # an event of the time of b may still come
    assert matched("SEQ(A a, !C c FROM a.end TO b.start, B b)", "ABC", at=[1, 2, 2]) == []


def test_where_it_stands_does_not_matter(matched):
    for query in (
        "SEQ(!C c FROM a.end TO a.end + 3, A a, B b)",
        "SEQ(A a, !C c FROM a.end TO a.end + 3, B b)",
        "SEQ(A a, B b, !C c FROM a.end TO a.end + 3)",
    ):
        assert matched(query, "ABC", at=[1, 2, 4]) == []
        assert matched(query, "ABC", at=[1, 2, 5]) == [(0, 1)]


def test_before_an_event(matched):
    query = "AND(A a, !B b FROM a.start - 3 TO a.start - 1) WITHIN 1"
    assert matched(query, "BABA", at=[1, 4, 5, 7]) == [(1,)]


def test_conditions_on_what_is_absent(matched):
    query = "AND(A a, !B b FROM a.end TO a.end + 2) WHERE b.x > a.x and b.x < 9"
    assert matched(query, "ABABAB", x=[1, 1, 1, 9, 1, 2]) == [(0,), (2,)]


def test_within_a_partition(matched):
    query = "AND(A a, !B b FROM a.end TO a.end + 2) WHERE [k]"
    assert matched(query, "AAB", k="pqp") == [(1,)]


def test_events_of_the_match_do_not_count(matched):
    query = "SEQ(A a, A b, !A c FROM a.end TO b.end)"
    assert matched(query, "AAA") == [(0, 1), (1, 2)]


def test_several_intervals(matched):
    query = "AND(A a, !B b FROM a.end TO a.end + 1, !C c FROM a.end + 1 TO a.end + 3)"
    assert matched(query, "ABXXAXCXAXXXX") == [(8,)]


def test_one_alternative_has_it(matched):
    query = "OR(AND(A a, !C c FROM a.end TO a.end + 1), SEQ(B b, D d))"
    assert matched(query, "ACBD") == [(None, 2, 3)]


def test_an_empty_interval_forbids_nothing(matched):
    assert matched("AND(A a, !B b FROM a.end TO a.end - 1)", "AB") == [(0,)]


def test_with_events_that_are_several(matched):
    query = "SEQ(A+ a[], B b, !C c FROM a[1].end TO a[a.LEN].end)"
    assert matched(query, "ACAB") == [((0,), 3), ((2,), 3)]


def test_latest_and_greatest(matched):
    query = "SEQ(A a, B b, !C c FROM least(a.end, b.end) TO greatest(a.end, b.end) + 1)"
    assert matched(query, "ACBXX") == []
    assert matched(query, "ABXC") == [(0, 1)]
    assert matched(query, "ABC") == []


def test_with_a_moment_at_one_end(matched):
    query = "AND(A a, !B b FROM a.end TO 3)"
    assert matched(query, "ABAXB") == [(2,)]


def test_chosen_when_it_is_known(matched):
    query = "SEQ(A a, B b, !C c FROM b.end TO b.end + 2) CHOOSE LATEST"
    assert matched(query, "AABBXX") == [(1, 2), (1, 3)]
    once = "SEQ(A a, B b, !C c FROM b.end TO b.end + 2) CHOOSE ONCE"
    assert matched(once, "AABBXX") == [(1, 2)]


def test_events_that_last(runner):
    events = pa.table(
        {"from": [1, 3, 1, 3, 10], "to": [2, 4, 5, 6, 10], "type": ["A", "A", "B", "B", "X"], "n": range(5)}
    )
    # the b of 1 to 5 begins too early, that of 3 to 6 is inside
    query = "AND(A a, !B b FROM a.end TO a.end + 4)"
    found = runner.match(events, query, time=("from", "to"), type="type").to_pylist()
    assert [m["a"]["n"] for m in found] == [1]
    assert (found[0]["start"], found[0]["end"]) == (3, 4)


def test_it_fires_when_time_has_passed_and_not_before():
    schema = pa.schema({"at": pa.int64(), "type": pa.string()})
    live = ensue.live(SILENT, schema=schema, time="at", type="type")
    assert live.feed([{"at": 1, "type": "A"}]).num_rows == 0
    assert live.advance(3).num_rows == 0  # an event at 3 may still come
    assert live.advance(4).num_rows == 1
    assert live.progress.partial_matches <= 1


def test_timestamps():
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    at = [noon + timedelta(minutes=m) for m in (0, 5, 6, 12)]
    events = pa.table({"at": at, "type": ["A", "B", "A", "B"]})
    query = "AND(A a, !B b FROM a.end TO a.end + 5 minutes)"
    found = ensue.match(events, query, time="at", type="type")
    assert found["start"].to_pylist() == [at[2]]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("AND(A a, !B b FROM b.end TO 9)", "b is negated"),
        ("AND(A a, !B b FROM z.end TO 9)", "unknown variable 'z'"),
        ("OR(A a, !B b FROM 1 TO 9)", "alternative"),
        ("AND(A a, !B b FROM a.end TO 9) JOIN ARCHIVE p A x RANGE 5 BEFORE START", "JOIN ARCHIVE"),
        ("EVENT P AS SEQ(A a, B b); !P p FROM 1 TO 9", "definitions need some"),
    ],
)
def test_what_is_refused(text, problem):
    with pytest.raises(QueryError, match=problem):
        ensue.parse(text)


def test_the_ends_are_points_in_time():
    events = pa.table({"at": [1], "type": ["A"], "s": ["x"]})
    with pytest.raises(QueryError, match="an interval must be points in time"):
        ensue.match(events, "AND(A a, !B b FROM a.s TO a.end)", time="at", type="type")
    with pytest.raises(QueryError, match="emit_timeouts"):
        ensue.match(
            events, f"{SILENT} WITHIN 5", time="at", type="type", options=ensue.OutputOptions(emit_timeouts=True)
        )


def test_a_stream_must_know_how_far_it_looks():
    from ensue.analyzer.query import check_query
    from ensue.schema import ValueKind, build_table_schema

    fields = {"t": ValueKind.INTEGER, "x": ValueKind.INTEGER, "type": ValueKind.STRING}
    schema = build_table_schema(fields, time="t", type_column="type")
    check_query(ensue.parse(SILENT), schema, streaming=True)
    unknown = ensue.parse("SEQ(A a, B b, !C c FROM a.x TO b.end) WITHIN 5")
    with pytest.raises(QueryError, match="is not bounded"):
        check_query(unknown, schema, streaming=True)


def test_it_is_printed_and_read_again():
    text = "SEQ(A a, !C c FROM greatest(a.end, 3) TO b.start + 5, B b) WHERE c.x > 1"
    assert "!C c FROM greatest(a.end, 3) TO b.start + 5" in ensue.show(ensue.parse(text))
    assert ensue.parse(ensue.show(ensue.parse(text))) == ensue.parse(text)


def test_names_that_only_look_like_it():
    ensue.parse("SEQ(A from, B to) WHERE from.to = to.from")
    ensue.parse("A from -> !B to -> C c WITHIN 5")
    ensue.parse("SEQ(A a, !B from, C to)")
