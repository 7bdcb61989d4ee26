"""match_id: the same for the same match of the same query, wherever and however it is found."""

import pyarrow as pa
import pytest

import ensue
from samples.stocks import stocks

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")

QUERY = "SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) { [k] } WITHIN 9"
EVENTS = pa.table(
    {
        "at": [1, 1, 2, 3, 3, 4, 5],
        "type": list("AABBABC"),
        "k": list("pppqqpp"),
        "x": [1.5, 1.5, None, 2.5, 0.5, -0.0, 3.5],
    }
)


def ids(events, query=QUERY, **options):
    found = ensue.match(events, query, time="at", type="type", **options)
    return sorted(found.column("match_id").to_pylist())


EXPECTED = ids(EVENTS)


@pytest.mark.streams(slow=True)
def test_it_is_the_same_on_every_runner(runner):
    found = runner.match(EVENTS, QUERY, time="at", type="type")
    assert sorted(found.column("match_id").to_pylist()) == EXPECTED
    assert len(EXPECTED) == 2


def test_equal_events_give_different_matches():
    """The two A events have the same time and content."""
    assert len(set(EXPECTED)) == 2


def test_it_does_not_depend_on_the_encoding():
    encoded = EVENTS.set_column(1, "type", EVENTS.column("type").dictionary_encode())
    encoded = encoded.set_column(2, "k", EVENTS.column("k").cast(pa.large_string()))
    assert ids(encoded) == EXPECTED


def test_it_does_not_depend_on_the_order_of_columns_or_of_arrival():
    assert ids(EVENTS.select(["x", "k", "type", "at"])) == EXPECTED
    assert ids(EVENTS.take([6, 5, 4, 3, 2, 1, 0])) == EXPECTED


def test_it_does_not_depend_on_chunks_or_slices(monkeypatch):
    monkeypatch.setattr("ensue.runtime.stage.SLICE_ROWS", 2)
    assert ids(EVENTS) == EXPECTED
    assert ids(pa.concat_tables([EVENTS.slice(0, 3), EVENTS.slice(3)])) == EXPECTED


@pytest.mark.parametrize(
    "query",
    [
        "SEQ(A a, B+ b[], C c) WITHIN 9",
        "EVENT P AS SEQ(A a, B b) WITHIN 9 RETURN a.x AS x; SEQ(P p, C c) WITHIN 9",
        "SEQ(B b, C c) WITHIN 9 JOIN ARCHIVE old A a RANGE 9 BEFORE START",
        {"one": "SEQ(A a, B b)", "other": "SEQ(B b, C c) WITHIN 9"},
    ],
)
def test_matches_and_progress_do_not_depend_on_the_slices_of_a_table(monkeypatch, query):
    done = []
    options = {"time": "at", "type": "type", "progress": lambda rows, _: done.append(rows)}
    if "ARCHIVE" in query:
        options["archives"] = {"old": ensue.archive(EVENTS, time="at", type="type")}
    whole = ensue.match(EVENTS, query, **options)
    monkeypatch.setattr("ensue.runtime.stage.SLICE_ROWS", 2)
    monkeypatch.setattr("ensue.operators.match.shared_engine.BLOCK", 2)
    sliced = ensue.match(EVENTS, query, **options)
    assert sliced == whole
    assert all(table.num_rows for table in (whole.values() if isinstance(whole, dict) else [whole]))
    assert done[-1] == EVENTS.num_rows
    assert done.count(EVENTS.num_rows) == 2


def test_it_does_not_depend_on_other_events():
    more = pa.table({"at": [0, 9], "type": ["X", "C"], "k": ["p", "q"], "x": [0.0, 0.0]})
    assert ids(pa.concat_tables([EVENTS, more])) == EXPECTED


def test_spelling_does_not_matter_but_meaning_does():
    same = "pattern A a -> B+ b -> C c where skip_till_next_match(a, b[], c) { [ k ] } within 9"
    assert ids(EVENTS, same) == EXPECTED
    assert not set(ids(EVENTS, QUERY.replace("WITHIN 9", "WITHIN 8"))) & set(EXPECTED)


def test_they_are_distinct_in_many_matches():
    found = ensue.match(
        stocks(5_000, symbols=20, seed=3), "SEQ(A a, B b, C c) WHERE [symbol] WITHIN 10 seconds", time="ts", type="type"
    )
    assert found.num_rows > 1_000
    assert len(set(found.column("match_id").to_pylist())) == found.num_rows
    assert all(len(text) == 32 for text in found.column("match_id").to_pylist())


@pytest.mark.spark
def test_it_can_be_left_out_on_spark(spark):
    without = ensue.OutputOptions(ids=False)
    frame = spark.createDataFrame(EVENTS)
    found = ensue.match(frame, QUERY, time="at", type="type", options=without).toArrow()
    here = ensue.match(EVENTS, QUERY, time="at", type="type", options=without)
    assert found.column_names == here.column_names == ["start", "end", "a", "b", "c"]
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, here.to_pylist()))
    arriving = spark.readStream.format("rate").load().selectExpr("value AS at", "'A' AS type", "'p' AS k")
    with pytest.raises(ensue.QueryError, match="the matches of a stream need their ids"):
        ensue.match(arriving, QUERY, time="at", type="type", watermark=1, options=without)


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("SEQ(A a, B b) RETURN COUNT(*) AS n", {}),
        ("SEQ(A a, B b, C c) WITHIN 2", {"emit_timeouts": True}),
        ("SEQ(A a, B b)", {"flat": True}),
        (["SEQ(A a, B b)", "SEQ(B b, C c)"], {}),
        ("EVENT P AS SEQ(A a, B b) RETURN a.k AS k; SEQ(P p, C c)", {"levels": "all"}),
        ("MATCH_RECOGNIZE (ORDER BY at MEASURES a.x AS x PATTERN (a b) DEFINE b AS b.x > a.x)", {}),
        ("SEQ(A a, B b) RETURN a.k AS match_id", {}),
        ("SEQ(A a, B b) ORDER BY b.at DESC", {}),
        ("SEQ(A a, B b) RETURN a.k AS match_id FETCH FIRST 2 ROWS ONLY", {}),
    ],
)
def test_it_can_be_left_out_of_any_result(query, options):
    columns = {} if "MATCH_RECOGNIZE" in query else {"time": "at", "type": "type"}
    whole = ensue.match(EVENTS, query, **columns, options=ensue.OutputOptions(**options))
    left = ensue.match(EVENTS, query, **columns, options=ensue.OutputOptions(**options, ids=False))
    tables = [(whole, left)] if isinstance(whole, pa.Table) else [(whole[name], left[name]) for name in whole]
    for one, other in tables:
        assert one.num_rows
        own = "AS match_id" in str(query)
        assert other.equals(one if own else one.drop_columns(["match_id"]))


def test_groups_do_not_need_it():
    for query in (
        "SEQ(A a, B b) RETURN TOTAL COUNT(*) AS n",
        "SEQ(A a, B b) RETURN a.k AS k, max(b.at) AS t GROUP BY k",
    ):
        whole = ensue.match(EVENTS, query, time="at", type="type")
        assert ensue.match(EVENTS, query, time="at", type="type", options=ensue.OutputOptions(ids=False)).equals(whole)


def test_a_query_that_needs_none_of_its_definitions_has_the_same_ids_beside_others():
    pair = "EVENT Pair AS SEQ(A a, B b) RETURN a.k AS k; "
    texts = {"plain": "SEQ(A a, C c)", "unused": f"{pair}SEQ(A a, C c)", "other": f"{pair}SEQ(Pair p, C c)"}
    found = ensue.match(EVENTS, texts, time="at", type="type")
    assert (
        sorted(found["unused"]["match_id"].to_pylist()) == ids(EVENTS, texts["plain"]) == ids(EVENTS, texts["unused"])
    )
    assert found["plain"].num_rows == 3


def test_a_live_matcher_does_not_need_it():
    options = [ensue.OutputOptions(ids=False)]
    matcher = ensue.live(QUERY, schema=EVENTS.schema, time="at", type="type", options=options)
    assert matcher.feed(EVENTS.slice(0, 1)).column_names == ["start", "end", "a", "b", "c"]
