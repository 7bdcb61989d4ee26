"""SQL around MATCH_RECOGNIZE over tables in memory; what a clause finds is made up here."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
from ensue.backends.sql_backend import run_sql
from ensue.errors import EventError, QueryError, RunnerError

EVENTS = pa.table({"id": [1, 2, 3, 4], "price": [10.0, 20.0, 30.0, 40.0]})
TABLES = {"t": EVENTS}


def first_rows(clause, relation):
    """`MATCH_RECOGNIZE (PATTERN (()) WITHIN 2)` finds the first two rows."""
    return relation.slice(0, clause.row_pattern.within)


def rows(text, tables=TABLES):
    found = run_sql(text, tables=tables, recognize=first_rows)
    assert isinstance(found, pa.Table)
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def refused(text, tables=TABLES, error=QueryError):
    with pytest.raises(error) as caught:
        run_sql(text, tables=tables, recognize=first_rows)
    return caught.value


# ---------------------------------------------------------------------------- places


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)", [(1, 10.0)]),
        ("SELECT m.id FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 2) AS m", [(1,), (2,)]),
        ("SELECT y FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) AS m (x, y)", [(10.0,)]),
        ("FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) SELECT id + 1", [(2,)]),
        (
            "SELECT id FROM T x MATCH_RECOGNIZE (PATTERN (()) WITHIN 3) m WHERE m.price > 15 ORDER BY 1 DESC",
            [(3,), (2,)],
        ),
        ("SELECT u.id FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 2) m JOIN t u ON u.id = m.id + 1", [(2,), (3,)]),
        ("SELECT u.id FROM t u, t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) m WHERE u.id > m.id + 2", [(4,)]),
        ("SELECT id FROM (SELECT * FROM t WHERE id > 2) MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)", [(3,)]),
        (
            "SELECT value FROM (VALUES (1, 'a'), (2, 'b')) v(id, value) MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)",
            [("a",)],
        ),
        ("SELECT i FROM range(10) r(i) MATCH_RECOGNIZE (PATTERN (()) WITHIN 2)", [(0,), (1,)]),
        ("SELECT id FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) UNION ALL SELECT 7", [(1,), (7,)]),
        ("SELECT 7 UNION ALL (SELECT id FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1))", [(7,), (1,)]),
        ("SELECT id FROM t WHERE id IN (SELECT id FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 2))", [(1,), (2,)]),
        ("SELECT (SELECT max(id) FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 3))", [(3,)]),
        (
            "SELECT id FROM t WHERE EXISTS (FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 2) m WHERE m.id + 2 = t.id)",
            [(3,), (4,)],
        ),
        (
            "SELECT id FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 3) a MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) b",
            [(1,)],
        ),
        (
            (
                "SELECT id FROM (FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 3) WHERE id > 1) "
                "MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)"
            ),
            [(2,)],
        ),
        (
            (
                "WITH a AS (SELECT * FROM t WHERE id > 1), b AS (FROM a MATCH_RECOGNIZE (PATTERN (()) WITHIN 2)) "
                "SELECT b.id FROM b JOIN a USING (id)"
            ),
            [(2,), (3,)],
        ),
        ("WITH t AS (SELECT id * 10 AS id FROM t) SELECT * FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)", [(10,)]),
        (
            (
                "WITH a AS (SELECT 1 AS x), b AS (SELECT 5 AS y) SELECT * FROM "
                "(WITH a AS (SELECT y + 1 AS x FROM b) SELECT * FROM a MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)), a"
            ),
            [(6, 1)],
        ),
        (
            (
                "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n WHERE x < 5) "
                "SELECT max(x) FROM n MATCH_RECOGNIZE (PATTERN (()) WITHIN 3)"
            ),
            [(3,)],
        ),
        ("SELECT id FROM (t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) m JOIN t u USING (id))", [(1,)]),
        ("SELECT count(*) FROM t", [(4,)]),
        ("VALUES (1), (2);", [(1,), (2,)]),
        ("(SELECT 1)", [(1,)]),
        ("SELECT '{', '''' FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) -- }", [("{", "'")]),
    ],
)
def test_a_clause_may_stand_wherever_a_table_may(text, expected):
    assert sorted(rows(text), key=repr) == sorted(expected, key=repr)


def test_the_order_of_the_query_is_that_of_the_result():
    assert rows("SELECT id FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 3) ORDER BY id DESC") == [(3,), (2,), (1,)]


def test_clauses_over_clauses_over_clauses():
    text = "SELECT * FROM " + "(SELECT * FROM " * 50 + "t" + ") MATCH_RECOGNIZE (PATTERN (()) WITHIN 2)" * 50
    assert rows(text) == [(1, 10.0), (2, 20.0)]


def test_all_clauses_are_read_before_one_is_run():
    text = "SELECT * FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) a, t MATCH_RECOGNIZE (PATTERN (A) WITHIN 2) b"
    with pytest.raises(QueryError, match="DEFINE is missing"):
        run_sql(text, tables=TABLES, recognize=lambda clause, relation: 1 / 0)


# ---------------------------------------------------------------------------- tables


def test_a_table_that_is_just_named_is_handed_over_as_it_is(monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    seen = []
    found = run_sql(
        "SELECT * FROM T AS x MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) AS m",
        tables=TABLES,
        recognize=lambda clause, relation: seen.append(relation) or relation,
    )
    assert seen[0] is EVENTS
    assert found is EVENTS


def test_without_duckdb_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    said = str(refused("SELECT 1", error=RunnerError))
    assert "needs the package duckdb, which is not installed\n  hint: pip install" in said


@pytest.mark.parametrize(
    "made",
    [lambda: EVENTS, EVENTS.to_batches, EVENTS.to_reader, EVENTS.to_pylist],
    ids=["Arrow", "batches", "reader", "dicts"],
)
def test_tables_of_any_library_that_speaks_arrow(made):
    assert rows("SELECT id FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) WHERE price > 1", {"t": made()}) == [(1,)]


@pytest.mark.parametrize("text", ["SELECT * FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 2)", "SELECT id, price FROM t"])
def test_pandas_in_pandas_out(text):
    frame = EVENTS.to_pandas().set_index(pd.Index([5, 6, 7, 8], name="row"))
    found = run_sql(text, tables={"t": frame}, recognize=first_rows)
    assert isinstance(found, pd.DataFrame)
    assert list(found.columns) == ["id", "price"]


@pytest.mark.parametrize("text", ["SELECT * FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 2)", "SELECT id, price FROM t"])
def test_polars_in_polars_out(text):
    found = run_sql(text, tables={"t": pl.from_arrow(EVENTS)}, recognize=first_rows)
    assert isinstance(found, pl.DataFrame)
    assert found.columns == ["id", "price"]


def test_a_relation_of_duckdb_in_a_relation_on_its_connection_out():
    connection = duckdb.connect()
    connection.register("given", EVENTS)
    tables = {"t": connection.table("given")}
    found = run_sql("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 2)", tables=tables, recognize=first_rows)
    assert isinstance(found, duckdb.DuckDBPyRelation)
    assert found.join(connection.table("given"), "id").project("id").fetchall() == [(1,), (2,)]


def test_tables_of_several_libraries_give_arrow():
    tables = {"a": EVENTS.to_pandas(), "b": pl.from_arrow(EVENTS)}
    assert rows("SELECT a.id FROM a JOIN b MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) m USING (id)", tables) == [(1,)]


def test_without_tables_the_result_is_of_arrow():
    assert rows("SELECT * FROM range(3) MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)", None) == [(0,)]


def test_names_of_tables_may_be_anything_that_is_quoted():
    tables = {"my table": EVENTS, "Größe": EVENTS, "select": EVENTS}
    text = 'SELECT a.id FROM "My Table" MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) a, größe b, "SELECT" c LIMIT 1'
    assert rows(text, tables) == [(1,)]


def test_sums_of_integers_are_integers():
    found = run_sql("SELECT sum(id) AS s FROM t", tables=TABLES, recognize=first_rows)
    assert found.schema.field("s").type == pa.int64()
    large = pa.table({"x": [2**63 - 1, 2**63 - 1]})
    assert rows("SELECT sum(x) FROM t", {"t": large}) == [(2**64 - 2,)]


def test_differences_of_times_are_durations():
    times = pa.table({"x": pa.array([0, None, 90_000_000_001], pa.timestamp("us"))})
    times = times.append_column("d", pa.array([1, None, 2], pa.duration("us")))
    found = run_sql(
        "SELECT x - TIMESTAMP '1970-01-01' AS since, d, INTERVAL 1 MONTH AS m FROM t",
        tables={"t": times},
        recognize=first_rows,
    )
    assert found["since"].cast(pa.int64()).to_pylist() == [0, None, 90_000_000_001]
    assert found["d"].cast(pa.int64()).to_pylist() == [1, None, 2]
    assert pa.types.is_interval(found.schema.field("m").type)
    none = run_sql("SELECT d FROM t WHERE false", tables={"t": times}, recognize=first_rows)
    assert none.schema.field("d").type == pa.duration("us")


def test_a_pivot_names_its_columns():
    assert rows("SELECT * FROM (PIVOT t ON id IN (1) USING sum(price))") == [(10.0,)]
    assert "PIVOT" in refused("SELECT * FROM (PIVOT t ON id USING sum(price))").hint


def test_times_are_of_utc_on_every_machine():
    times = pa.table({"day": pa.array([0], pa.timestamp("us", "UTC"))})
    assert rows("SELECT CAST(day AS VARCHAR) FROM t", {"t": times}) == [("1970-01-01 00:00:00+00",)]


def test_variables_of_the_program_are_no_tables_beside_those_that_are_passed():
    hidden = EVENTS  # noqa: F841  DuckDB would find it
    assert "unknown table 'hidden'" in str(refused("SELECT * FROM hidden"))
    with pytest.raises(QueryError, match="unknown table 'hidden'"):
        ensue.sql("SELECT * FROM hidden", tables={})


CLAUSE = "MATCH_RECOGNIZE (ORDER BY id MEASURES LAST(id) AS last PATTERN (A UP+) DEFINE UP AS price > PREV(price))"


def test_tables_are_variables_of_the_caller():
    local = EVENTS.to_pandas()  # noqa: F841
    found = ensue.sql(f"SELECT * FROM local {CLAUSE}")
    assert isinstance(found, pd.DataFrame)
    assert list(found["last"]) == [4]
    joined = ensue.sql(f"SELECT e.price FROM Local {CLAUSE} AS m JOIN EVENTS e ON e.id = m.last")
    assert joined.to_pylist() == [{"price": 40.0}]


def test_a_named_query_hides_a_variable_and_other_values_are_no_tables():
    number = 5  # noqa: F841
    local = EVENTS.slice(0, 2)  # noqa: F841
    found = ensue.sql(f"WITH local AS (SELECT * FROM events WHERE id > 2) SELECT * FROM local {CLAUSE}")
    assert found.to_pylist() == [{"last": 4}]
    with pytest.raises(QueryError, match="unknown table 'number'") as caught:
        ensue.sql(f"SELECT * FROM number {CLAUSE}")
    assert "tables={'number': ...}" in str(caught.value)


LIMITS = pa.table({"name": ["b", None, "c"], "low": [15, 25, 35]})


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("price > (SELECT avg(price) FROM t)", [3, 4]),
        ("price > (SELECT low FROM limits WHERE false)", []),
        ("price > (SELECT low FROM limits LIMIT 1) - 5", [2, 3, 4]),
        ("price - 5 IN (SELECT low FROM limits)", [2, 3, 4]),
        ("price - 5 NOT IN (SELECT low FROM limits)", [1]),
        ("'b' IN (SELECT name FROM limits)", [1, 2, 3, 4]),
        ("'x' NOT IN (SELECT name FROM limits)", []),  # unknown: there is a NULL
        ("'x' NOT IN (SELECT name FROM limits WHERE false)", [1, 2, 3, 4]),
        ("id < 3 AND NOT EXISTS (SELECT * FROM limits WHERE low > 100)", [1, 2]),
        ("EXISTS (SELECT * FROM limits WHERE low > 100)", []),
        ("id = (SELECT x FROM w)", [3]),
        ("id = (WITH v AS (SELECT x + 1 AS y FROM w) SELECT y FROM v)", [4]),
        ("price > :low AND id > (SELECT min(id) FROM t WHERE price > :low)", [3, 4]),
        (
            "id IN (SELECT m.at FROM t MATCH_RECOGNIZE (MEASURES id AS at PATTERN (B) DEFINE B AS price > 30) AS m)",
            None,
        ),
    ],
)
def test_a_subquery_in_a_clause_runs_before_it(condition, ids):
    params = {"low": 15} if ":low" in condition else None
    text = (
        "WITH w AS (SELECT 3 AS x) SELECT m.at, m.most FROM t MATCH_RECOGNIZE (ORDER BY id "
        f"MEASURES id AS at, (SELECT max(price) FROM t) AS most PATTERN (A) DEFINE A AS {condition}) AS m"
    )
    tables = {"t": EVENTS, "limits": LIMITS}
    if ids is None:
        with pytest.raises(QueryError, match="MATCH_RECOGNIZE cannot be inside the parentheses of another"):
            ensue.sql(text, tables=tables)
        return
    assert ensue.sql(text, tables=tables, params=params).to_pylist() == [{"at": id, "most": 40.0} for id in ids]


@pytest.mark.parametrize(
    ("condition", "problem", "hint"),
    [
        ("price > (SELECT low FROM limits)", "returns more than one row", "LIMIT 1"),
        ("price > ANY (SELECT low FROM limits)", "ANY is not supported before a subquery", "IN (SELECT ...)"),
        ("price > (SELECT low, name FROM limits)", "returns one column, and this one 2", "SELECT one of them"),
        ("price > (SELECT max(low) FROM limits WHERE low > price)", "unknown column 'price'", "join the table in FROM"),
        ("price > (SELECT max(low) FROM limits WHERE low > t.price)", "unknown table 't'", "cannot read its rows"),
        ("price > (SELECT max(low) FROM limitz)", "unknown table 'limitz'", "did you mean 'limits'?"),
        ("id IN (SELECT * FROM range(10001))", "more than 10,000 values", "join its table"),
        ("price > (SELECT 'nan'::DOUBLE)", "a value of this subquery is nan", "cast it"),
    ],
)
def test_a_wrong_subquery_in_a_clause_is_named_with_a_way_out(condition, problem, hint):
    text = f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id PATTERN (A) DEFINE A AS {condition})"
    with pytest.raises(QueryError) as caught:
        ensue.sql(text, tables={"t": EVENTS, "limits": LIMITS})
    assert problem in str(caught.value)
    assert hint in str(caught.value)
    assert "SELECT" in caught.value.span.over(text)


def test_a_subquery_reads_variables_and_exact_numbers():
    big = pd.DataFrame({"id": [2**53 + 1]})  # noqa: F841
    frame = pd.DataFrame({"id": [2**53, 2**53 + 1]})  # noqa: F841
    clause = "MATCH_RECOGNIZE (ORDER BY id MEASURES id AS at PATTERN (A) DEFINE A AS id = (SELECT max(id) FROM big))"
    assert list(ensue.sql(f"SELECT * FROM frame {clause}")["at"]) == [2**53 + 1]


def test_the_plans_of_a_whole_query_are_explained():
    second = "MATCH_RECOGNIZE (ORDER BY last MEASURES last AS x PATTERN (B) DEFINE B AS last > 1)"
    text = f"SELECT count(*) FROM (SELECT * FROM t {CLAUSE}) {second}"
    plans = ensue.explain(text)
    assert plans == ensue.explain(text, {"t": EVENTS.to_pandas()})
    assert plans.startswith("clause 1, line 1, over t\npattern    A UP+")
    assert "clause 2, line 1, over (SELECT * FROM t MATCH_RECOGNIZE" in plans
    assert "last > 1" in plans
    assert ensue.explain(text, {"t": EVENTS}, analyze=True).startswith("clause 1")
    assert "</svg>" in ensue.picture(text)
    alone = ensue.explain(f"SELECT * FROM t {CLAUSE} AS m WHERE m.last > :low", params={"low": 3})
    assert alone == ensue.explain(CLAUSE)
    with pytest.raises(QueryError, match="there is no column 'prize'"):
        ensue.explain(f"SELECT * FROM t {CLAUSE.replace('PREV(price)', 'PREV(prize)')}", {"t": EVENTS})


def test_tables_are_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(EVENTS.slice(0, 3), "Events.parquet")
    pq.write_table(EVENTS.slice(3), "events_2.parquet")
    assert ensue.sql(f"SELECT * FROM 'Events.parquet' {CLAUSE}").to_pylist() == [{"last": 3}]
    joined = f"SELECT e.price FROM '*.parquet' {CLAUSE} AS m JOIN 'events_2.parquet' e ON e.id = m.last"
    assert ensue.sql(joined).to_pylist() == [{"price": 40.0}]
    with pytest.raises(EventError, match=r"there is no file or folder Event\.parquet") as caught:
        ensue.sql(f"SELECT * FROM 'Event.parquet' {CLAUSE}")
    assert "did you mean 'Events.parquet'?" in str(caught.value)
    with pytest.raises(QueryError, match="only reads the tables you pass"):
        ensue.sql("SELECT * FROM 'Events.parquet'", tables={})


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ([EVENTS], "tables= is a list"),
        ({1: EVENTS}, "tables= has the key 1"),
        ({"": EVENTS}, "tables= has the key ''"),
        ({"t": 5}, "table t: events of type int are not supported"),
        ({"t": None}, "table t: events of type NoneType"),
        ({"t": pl.Series([1])}, "table t"),
        ({"t": EVENTS, "T": EVENTS}, "tables= has t and T"),
    ],
)
def test_what_is_no_table_is_refused(tables, problem):
    assert problem in str(refused("SELECT * FROM t", tables, EventError))


def test_spark_is_a_session():
    with pytest.raises(EventError, match="spark= is a str"):
        run_sql("SELECT 1", spark="local", recognize=first_rows)


def test_a_query_is_a_text():
    assert "a query is a text" in str(refused(5))


# ---------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("text", "place", "problem", "hint"),
    [
        ("SELECT * FROM tt MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)", "tt", "unknown table 'tt'", "did you mean 't'?"),
        ("SELECT 'äö€', prize FROM t", "prize", "unknown column 'prize'", "did you mean 'price'?"),
        (
            "SELECT prize FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)",
            "prize",
            "unknown column 'prize'",
            "did you mean 'price'?",
        ),
        (
            "SELECT * FROM t, (SELECT * FROM t u WHERE u.id = t.id) MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)",
            "t.id",
            "unknown table 't'",
            "runs separately",
        ),
        (
            "SELECT * FROM t AS x MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) WHERE x.id = 1",
            "x.id",
            "unknown table 'x'",
            "MATCH_RECOGNIZE (...) AS m",
        ),
        ("SELECT foo(id) FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)", "foo(id)", "foo does not exist", None),
        ("SELECT id FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) WHERE id = 'x'", "'x'", "convert string 'x'", None),
        (
            "SELECT match_number() FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)",
            "match_number()",
            "MATCH_NUMBER() only works inside MATCH_RECOGNIZE",
            "MEASURES MATCH_NUMBER() AS n",
        ),
        (
            "SELECT id, prev(price) FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)",
            "prev(price)",
            "PREV() only works inside MATCH_RECOGNIZE",
            "MEASURES PREV(A.x) AS n",
        ),
        ("SELECT 1 +", "+", "'+' does not belong here", "something is missing"),
        (
            "SELECT * FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) GRUOP BY x y",
            "BY",
            "'BY' does not belong here",
            None,
        ),
    ],
)
def test_errors_of_duckdb_point_into_the_text(text, place, problem, hint):
    error = refused(text)
    assert problem in error.problem
    assert error.span.over(text) == place
    assert hint is None or hint in error.hint
    assert "__ensue" not in str(error)


MIXED = pa.table({"x": [1], "X": [2], "y": [3]})
SAME = "the columns 'x' and 'X'{} have the same name: SQL ignores case"


@pytest.mark.parametrize(
    ("text", "place", "of"),
    [
        ("SELECT X FROM t", "t", " of t"),
        ("SELECT y FROM (SELECT * FROM t) MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)", "t", " of t"),
        (
            "SELECT y FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)",
            "t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)",
            " of MATCH_RECOGNIZE",
        ),
        ("SELECT 1 FROM t AS k(x, X, y) MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)", "t AS k(x, X, y)", " of k"),
        ('SELECT k.x FROM t k(x, "X")', 't k(x, "X")', " of k"),
        ("SELECT 1 FROM (SELECT y AS x, y AS X FROM t k(a, b)) q", "(SELECT y AS x, y AS X", " of q"),
        ("WITH k(x, X) AS (SELECT 1, 2) FROM k", None, ""),
    ],
)
def test_columns_that_differ_only_in_case_are_refused(text, place, of):
    error = refused(text, {"t": MIXED})
    assert error.problem == SAME.format(of)
    assert "another name" in error.hint
    assert place is None or error.span.over(text).startswith(place)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM t AS k(a, b) MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)", [(1, 2, 3)]),
        ("SELECT b FROM t AS k(a, b)", [(2,)]),
        ("WITH t AS (SELECT 5 AS x) SELECT x FROM t", [(5,)]),
        ("SELECT id, ID FROM u", [(4, 4)]),
        ("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)", [(1, 2, 3)]),
    ],
)
def test_columns_that_differ_only_in_case_may_be_renamed(text, expected):
    assert rows(text, {"t": MIXED, "u": pa.table({"id": [4]})}) == expected


def test_an_error_of_a_clause_points_at_the_clause():
    def recognize(clause, relation):
        raise QueryError("be a pattern")

    with pytest.raises(QueryError) as error:
        run_sql("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)", tables=TABLES, recognize=recognize)
    assert "column 17" in str(error.value)


def test_deep_expressions_are_refused():
    refused("SELECT " + "(" * 399 + "1" + ")" * 399 + "+ 1" * 5_000)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_csv('{file}') MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)",
        "SELECT * FROM '{file}'",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_blob('{file}')",
        "SELECT * FROM read_parquet('{file}')",
        "SELECT * FROM glob('{file}*')",
        "SELECT * FROM query('FROM read_text(''{file}'')')",
        "SELECT * FROM query_table('{file}')",
        "SELECT * FROM sniff_csv('{file}')",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM 'https://example.com/x.csv'",
        "SELECT * FROM read_csv('https://example.com/x.csv')",
        "SELECT * FROM enable_logging('QueryLog', storage = 'file', storage_path = '{file}.log')",
        "SELECT getenv('HOME')",
    ],
)
def test_a_query_reads_and_writes_no_files(text, tmp_path):
    file = tmp_path / "secret.csv"
    file.write_text("a,b\n1,2\n")
    refused(text.format(file=file))
    assert list(tmp_path.iterdir()) == [file]


def test_a_query_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows("SELECT count(*) FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 2)")
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("made", ["count(*)", "*"])
def test_a_query_ends_with_an_interrupt(made):
    text = f"SELECT {made} FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 999 = 3"
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        rows(text)
    assert time.monotonic() - started < 15


def test_queries_of_several_threads():
    found = []

    def ask():
        found.append(rows("SELECT count(*) FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 3)"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[(3,)]] * 8


def test_a_whole_query_is_not_what_match_takes():
    with pytest.raises(QueryError, match="this is a SQL query") as error:
        ensue.match(EVENTS, "SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS TRUE)")
    assert "ensue.sql" in str(error.value)
