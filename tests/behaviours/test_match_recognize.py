"""MATCH_RECOGNIZE on every runner: tables, live, streams."""

import pyarrow as pa
import pytest

import ensue

PRICES = pa.table(
    {
        "symbol": ["x", "y", "x", "x", "y", None, "x", "y", None, "x", "y", "x"],
        "at": pa.array([1, 1, 2, 3, 3, 4, 5, 6, 7, 8, 8, 9], pa.int64()),
        "price": pa.array([9, 5, 7, 8, 4, 2, 6, 6, 3, 9, 7, 8], pa.int64()),
    }
)
DIPS = """MATCH_RECOGNIZE (
    PARTITION BY symbol ORDER BY at
    MEASURES FIRST(price) AS high, LAST(DOWN.price) AS low, LAST(at) AS until,
             MATCH_NUMBER() AS number
    %s
    PATTERN (S DOWN{1,3} UP{1,3})
    DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)
)"""


@pytest.fixture
def recognized(runner):
    """`recognized(clause, names...)`: the rows of some columns, in one order."""

    def run(clause: str, *names: str, rows: pa.Table = PRICES) -> list[tuple[object, ...]]:
        found = runner.match(rows, clause, time="at")
        if "match_id" in found.column_names:
            ids = found["match_id"].to_pylist()
            assert len(set(ids)) == len(ids)
        return sorted((tuple(row[n] for n in names) for row in found.to_pylist()), key=repr)

    return run


@pytest.mark.streams
def test_one_row_per_match(recognized):
    assert recognized(DIPS % "", "symbol", "high", "low", "until", "number") == [("x", 9, 7, 3, 1), ("y", 5, 4, 8, 1)]


@pytest.mark.everywhere(slow=True)
def test_all_rows_per_match(recognized):
    found = recognized(DIPS % "ALL ROWS PER MATCH", "symbol", "at", "low", "price")
    assert found[:3] == [("x", 1, None, 9), ("x", 2, 7, 7), ("x", 3, 7, 8)]
    assert len(found) == 7


def test_rows_that_match_nothing(recognized):
    found = recognized(DIPS % "ALL ROWS PER MATCH WITH UNMATCHED ROWS", "symbol", "at", "number")
    assert [row for row in found if row[2] is None] == [
        ("x", 5, None),
        ("x", 8, None),
        ("x", 9, None),
        (None, 4, None),
        (None, 7, None),
    ]


@pytest.mark.streams(slow=True)
def test_rows_without_a_key_are_a_partition(recognized):
    clause = """MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY at
        MEASURES A.price AS first, B.price AS second
        AFTER MATCH SKIP TO NEXT ROW
        PATTERN (A B) DEFINE B AS price > A.price)"""
    assert (None, 2, 3) in recognized(clause, "symbol", "first", "second")


@pytest.mark.everywhere(slow=True)
def test_one_partition(recognized):
    clause = """MATCH_RECOGNIZE (ORDER BY at
        MEASURES sum(price) AS total, count(*) AS rows_of_it
        PATTERN (A{2,4}) WITHIN 3 DEFINE A AS sum(A.price) < 20)"""
    assert recognized(clause, "total", "rows_of_it") == [(14, 2), (14, 3), (19, 3), (19, 3)]


def test_what_is_behind_a_match(recognized):
    clause = """MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY at
        MEASURES A.at AS at_it, NEXT(A.price, 2) AS later
        PATTERN (A) DEFINE A AS price > 7)"""
    assert recognized(clause, "symbol", "at_it", "later") == [
        ("x", 1, 8), ("x", 3, 9), ("x", 8, None), ("x", 9, None),
    ]  # fmt: skip


def test_a_key_that_is_computed():
    clause = """MATCH_RECOGNIZE (PARTITION BY price % 2 AS odd ORDER BY at, price
        MEASURES FIRST(at) AS since, count(*) AS rows_of_it
        PATTERN (A{3}) DEFINE A AS TRUE)"""
    found = ensue.match(PRICES, clause)
    assert found.column_names == ["match_id", "odd", "since", "rows_of_it"]
    live = ensue.live(clause, schema=PRICES.schema, watermark=0)
    pieces = [live.feed(PRICES.slice(k, 1)) for k in range(PRICES.num_rows)]
    assert not live.late
    whole = pa.concat_tables([*pieces, live.finish()])
    assert sorted(map(repr, whole.to_pylist())) == sorted(map(repr, found.to_pylist()))


def test_a_table_needs_no_time():
    rows = pa.table({"x": ["b", "a", "c", "a"], "n": [1, 2, 3, 4]})
    clause = "MATCH_RECOGNIZE (%s MEASURES A.n AS n PATTERN (A B) DEFINE B AS TRUE)"
    assert ensue.match(rows, clause % "")["n"].to_pylist() == [1, 3]
    assert ensue.match(rows, clause % "ORDER BY x DESC")["n"].to_pylist() == [3, 2]


def test_patterns_and_clauses_go_together():
    found = ensue.match(PRICES, {"dips": DIPS % "", "pairs": "SEQ(A a, A b) WITHIN 1"}, time="at")
    assert list(found) == ["dips", "pairs"]
    assert found["dips"].num_rows == 2
    assert found["pairs"].equals(ensue.match(PRICES, "SEQ(A a, A b) WITHIN 1", time="at"))


def test_a_clause_of_the_table_has_the_ids_of_the_stream():
    live = ensue.live(DIPS % "", schema=PRICES.schema)
    found = pa.concat_tables([live.feed(PRICES), live.finish()])
    ids = found["match_id"].to_pylist()
    assert sorted(ids) == sorted(ensue.match(PRICES, DIPS % "")["match_id"].to_pylist())
