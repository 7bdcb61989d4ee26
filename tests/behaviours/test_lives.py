"""Conditions that bound a match in time stand for a window."""

import pyarrow as pa
import pytest

import ensue

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")


@pytest.mark.streams(slow=True)
def test_a_sequence_without_a_window(matched):
    query = "SEQ(A a, B b) WHERE b.at <= a.at + 2"
    assert matched(query, "AXBB") == [(0, 2)]


def test_through_a_chain(matched):
    query = "SEQ(A a, B b, C c) WHERE b.at - a.at < 3 and c.at - b.at < 3"
    assert matched(query, "AXBXC") == [(0, 2, 4)]
    assert matched(query, "AXBXXC") == []


def test_any_order(matched):
    query = "AND(A a, B b) WHERE a.at <= b.at + 1 and b.at <= a.at + 2"
    assert matched(query, "BXAXBA") == [(2, 4), (5, 4)]


def test_each_alternative(matched):
    query = "OR(SEQ(A a, B b), SEQ(C c, D d)) WHERE b.at <= a.at + 1 and d.at <= c.at + 3"
    assert matched(query, "ABCXXD") == [(None, None, 2, 5), (0, 1, None, None)]


def test_what_waits_is_forgotten_as_with_a_window(monkeypatch):
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)
    assert held("SEQ(A a, B b) WHERE b.at <= a.at + 5") <= 6
    assert held("SEQ(A a, B b) WHERE b.at >= a.at + 5") == 100


def held(query):
    """How many events wait behind a hundred that are one apart."""
    schema = pa.schema({"at": pa.int64(), "type": pa.string()})
    live = ensue.live(query, schema=schema, time="at", type="type")
    for at in range(100):
        live.feed([{"at": at, "type": "A"}])
    live.advance(100)
    return live.progress.partial_matches


def test_a_stream_without_any_bound_is_refused():
    from ensue.analyzer.query import check_query
    from ensue.schema import ValueKind, build_table_schema

    schema = build_table_schema({"t": ValueKind.INTEGER, "type": ValueKind.STRING}, time="t", type_column="type")
    bound = ensue.parse("SEQ(A a, B b) WHERE b.t <= a.t + 5")
    assert check_query(bound, schema, streaming=True).within is None
    with pytest.raises(ensue.QueryError, match=r"WITHIN 20, or bound all its events") as error:
        check_query(ensue.parse("SEQ(A a, B b) WHERE b.t >= a.t + 5"), schema, streaming=True)
    assert "would have to store every event" in error.value.problem
