"""Events that belong to an archive themselves."""

import pyarrow as pa
import pytest

import ensue

QUERY = "SEQ(A a) JOIN ARCHIVE old SEQ(A o) RANGE 10 BEFORE START ON [k]"


def match(live: pa.Table, past: pa.Table, time: str = "t", **options) -> pa.Table:
    old = ensue.archive(past, time=options.pop("past_time", time), type="type", key="k")
    return ensue.match(live, QUERY, time=time, type="type", archives=ensue.Archives({"old": old}, own="old", **options))


def events(*times: int, **columns) -> pa.Table:
    made = {"t": pa.array(times, pa.int64())}
    made |= {name: pa.array([v] * len(times), pa.string()) for name, v in (("type", "A"), ("k", "x"))}
    return pa.table(made | columns)


@pytest.mark.parametrize("access", ["eager", "lazy", "grouped", "archive_first"])
def test_an_event_that_the_archive_has_already_is_seen_once(access):
    """What a table and a stream of it have in common is before the archive's last event."""
    found = match(events(4, 5, 8), events(1, 4, 5), access=access)
    rows = [(row["a"]["t"], row["o"]["t"]) for row in found.to_pylist()]
    assert rows == [(4, 1), (5, 1), (5, 4), (8, 1), (8, 4), (8, 5)]


def test_an_empty_archive():
    rows = match(events(4, 5), events()).to_pylist()
    assert [(row["a"]["t"], row["o"]["t"]) for row in rows] == [(5, 4)]


def test_a_column_that_the_events_lack():
    with pytest.raises(ensue.EventError, match="have no column 'x' as it has"):
        match(events(4), events(1, x=[1]))


def test_a_column_of_another_kind():
    with pytest.raises(ensue.EventError, match="'x' is string in the events and integer in the"):
        match(events(4, x=["a"]), events(1, x=[1]))


def test_another_time_column():
    with pytest.raises(ensue.EventError, match="the time of the events is in t and t, that of"):
        match(events(4, u=[4]), events(1, u=[1]), past_time="u")


def test_a_clause_over_rows_looks_into_no_archive():
    clause = "MATCH_RECOGNIZE (ORDER BY t MEASURES a.t AS at PATTERN (a) DEFINE a AS a.t > 1)"
    past = ensue.Archives({"old": ensue.archive(events(1), time="t", type="type", key="k")}, own="old")
    with pytest.raises(ensue.QueryError, match="archives= cannot be combined with MATCH_RECOGNIZE"):
        ensue.match(events(4), clause, archives=past)


def test_an_archive_that_is_not_given():
    with pytest.raises(ensue.EventError, match="own='new' is none of the archives"):
        ensue.match(events(1), QUERY, time="t", type="type", archives=ensue.Archives({}, own="new"))


def test_a_table_that_is_not_wrapped():
    with pytest.raises(ensue.EventError, match=r"hint: wrap it, as in ensue.archive\(table"):
        ensue.match(events(1), QUERY, time="t", type="type", archives={"old": events(1)})


def test_an_access_that_is_none():
    with pytest.raises(ensue.EventError, match="access='quick' is none of 'eager', 'lazy'"):
        match(events(4), events(1), access="quick")


@pytest.mark.parametrize("latency", ["2 seconds", -1])
def test_a_latency_that_is_none(latency):
    with pytest.raises(ensue.EventError, match="is not a length of time"):
        match(events(4), events(1), latency=latency)
