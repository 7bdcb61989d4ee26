"""RETURN ALL EVENTS: one row for each event of a match."""

import pyarrow as pa
import pytest

import ensue
from ensue.errors import QueryError

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")

EVENTS = pa.table({"at": [0, 1, 2, 3], "type": list("AABC"), "id": [5, 6, 7, 8]})


def rows(runner, query, events=EVENTS, **options):
    """The rows without ids, those of a match together, and how many matches there are."""
    options = {"time": "at", "type": "type"} | options
    found = runner.match(events, query, **options)
    listed = sorted(found.to_pylist(), key=lambda r: (r["end"], r["start"], r["match_id"], r["position"]))
    ids = {row.pop("match_id") for row in listed}
    return listed, len(ids)


@pytest.mark.streams(slow=True)
def test_a_row_for_each_event(runner):
    found, matches = rows(runner, "SEQ(A+ a[], B b) WHERE a.LEN = 2 WITHIN 5 RETURN ALL EVENTS")
    assert matches == 1
    of_match = {"start": 0, "end": 2}
    assert found == [
        of_match | {"variable": "a", "position": 1, "index": 1, "at": 0, "type": "A", "id": 5},
        of_match | {"variable": "a", "position": 2, "index": 2, "at": 1, "type": "A", "id": 6},
        of_match | {"variable": "b", "position": 3, "index": 1, "at": 2, "type": "B", "id": 7},
    ]


def test_what_return_lists_is_the_same_in_all_rows(runner):
    query = "SEQ(A a, B b) WITHIN 1 RETURN a.id AS first, b.id - a.id AS more ALL EVENTS"
    found, _ = rows(runner, query)
    assert [(r["variable"], r["first"], r["more"], r["id"]) for r in found] == [("a", 6, 1, 6), ("b", 6, 1, 7)]


def test_a_column_of_events_whose_name_is_taken(runner):
    found, _ = rows(runner, "SEQ(A a, B b) WITHIN 1 RETURN a.id AS id ALL EVENTS")
    assert [(row["id"], row["event_id"]) for row in found] == [(6, 6), (6, 7)]


def test_events_that_last_have_times_of_their_own(runner):
    events = pa.table({"start": [0, 2], "end": [1, 3], "type": list("AB")})
    found, _ = rows(runner, "SEQ(A a, B b) RETURN ALL EVENTS", events, time=("start", "end"))
    assert [(r["start"], r["end"], r["event_start"], r["event_end"]) for r in found] == [(0, 3, 0, 1), (0, 3, 2, 3)]


def test_rows_are_in_the_order_of_time(runner):
    found, _ = rows(runner, "AND(B b, A a) WITHIN 1 RETURN ALL EVENTS")
    assert [row["variable"] for row in found] == ["a", "b"]


def test_what_is_not_there_has_no_row(runner):
    found, _ = rows(runner, "SEQ(A a, D? d, B b) WITHIN 1 RETURN ALL EVENTS")
    assert [row["variable"] for row in found] == ["a", "b"]


def test_negated_events_have_no_row(runner):
    found, _ = rows(runner, "SEQ(B b, !D d, C c) WITHIN 3 RETURN ALL EVENTS")
    assert [row["variable"] for row in found] == ["b", "c"]


@pytest.mark.everywhere(slow=True)
def test_tables_of_different_columns(runner):
    tables = {"A": pa.table({"at": [1], "x": [5]}), "B": pa.table({"at": [3], "y": ["u"], "x": [0.5]})}
    found, _ = rows(runner, "SEQ(A a, B b) RETURN ALL EVENTS", tables, type=None)
    assert [(row["at"], row["x"], row["y"]) for row in found] == [(1, 5.0, None), (3, 0.5, "u")]


def test_a_field_without_a_common_type(runner):
    tables = {"A": pa.table({"at": [1], "x": [5]}), "B": pa.table({"at": [3], "x": ["u"]})}
    with pytest.raises(QueryError, match="one column for the field 'x'"):
        rows(runner, "SEQ(A a, B b) RETURN ALL EVENTS", tables, type=None)


def test_limit_and_having_are_about_matches(runner):
    found, matches = rows(runner, "SEQ(A a, B b) RETURN ALL EVENTS HAVING a.id > 5")
    assert (matches, [row["id"] for row in found]) == (1, [6, 7])
    found, matches = rows(runner, "SEQ(A a, B b) RETURN ALL EVENTS LIMIT 1")
    assert (matches, [row["id"] for row in found]) == (1, [5, 7])


def test_timed_out_partial_matches(runner):
    query = "SEQ(A a, B b, D d) WITHIN 2 RETURN ALL EVENTS"
    found, matches = rows(runner, query, options=ensue.OutputOptions(emit_timeouts=True))
    assert matches == 2
    assert {row["timed_out"] for row in found} == {True}
    assert [(r["variable"], r["id"]) for r in found] == [("a", 5), ("b", 7), ("a", 6), ("b", 7)]


def test_events_made_of_events():
    query = "EVENT P AS SEQ(A a, B b) RETURN a.id AS id; SEQ(P p, C c) RETURN p.id ALL EVENTS"
    found = ensue.match(EVENTS, query, time="at", type="type")
    shown = found.select(["variable", "id", "event_id", "event_start"]).to_pylist()
    assert [tuple(row.values())[:2] for row in shown] == [("p", 5), ("c", 5), ("p", 6), ("c", 6)]
    assert [row["event_id"] for row in shown] == [5, 8, 6, 8]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SEQ(A a, B b) RETURN COUNT(*) ALL EVENTS", "and COUNT\\(\\*\\) no matches"),
        ("SEQ(A a, B b) RETURN EXISTS ALL EVENTS", "and EXISTS no matches"),
        ("SEQ(A a, B b) RETURN a.id AS position ALL EVENTS", "cannot be called 'position'"),
        ("SEQ(A a, B b) RETURN a.id AS v, COUNT(*) AS n ALL EVENTS GROUP BY v", "a group has no single events"),
        ("SEQ(A a, B b) RETURN ALL EVENTS ORDER BY price", "takes columns of the result"),
        ("A a JOIN ARCHIVE old B b RANGE 5 BEFORE START RETURN ALL EVENTS", "JOIN ARCHIVE"),
        ("EVENT P AS SEQ(A a, B b) RETURN ALL EVENTS; SEQ(P p)", "not complex events"),
    ],
)
def test_what_is_refused(query, words):
    with pytest.raises(QueryError, match=words):
        ensue.match(EVENTS, query, time="at", type="type")
