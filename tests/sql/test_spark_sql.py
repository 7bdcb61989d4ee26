"""SQL around MATCH_RECOGNIZE on Spark; what a clause finds is made up here."""

import json
import subprocess
import sys
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
from ensue.backends.sql_backend import run_sql
from ensue.errors import EventError, QueryError

pytestmark = pytest.mark.spark

EVENTS = [(1, 10.0), (2, 20.0), (3, 30.0), (4, 40.0)]


def small_ids(clause, relation):
    """`MATCH_RECOGNIZE (PATTERN (()) WITHIN 2)` finds the rows whose id is at most 2."""
    return relation.where(f"id <= {clause.row_pattern.within}")


@pytest.fixture(scope="module")
def tables(spark):
    return {"t": spark.createDataFrame(EVENTS, "id long, price double")}


@pytest.fixture
def rows(spark, tables):
    def run(text, **given):
        given = {"tables": tables, "spark": spark} | given
        return [tuple(row) for row in run_sql(text, recognize=small_ids, **given).collect()]

    return run


@pytest.fixture
def refused(spark, tables):
    def run(text):
        with pytest.raises(QueryError) as error:
            run_sql(text, spark=spark, tables=tables, recognize=small_ids)
        return error.value

    return run


def test_subqueries_in_a_clause_run_before_it(spark, tables):
    text = (
        "WITH w AS (SELECT 3 AS x) SELECT m.at, m.most FROM t MATCH_RECOGNIZE (ORDER BY id "
        "MEASURES id AS at, (SELECT max(price) FROM t) AS most PATTERN (A) "
        "DEFINE A AS price > (SELECT avg(price) FROM t) OR id IN (SELECT x - 1 FROM w)) AS m"
    )
    assert sorted(map(tuple, ensue.sql(text, tables=tables).collect())) == [(2, 40.0), (3, 40.0), (4, 40.0)]
    live = spark.readStream.format("rate").load()
    text = "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id PATTERN (A) DEFINE A AS id = (SELECT max(value) FROM live))"
    with pytest.raises(QueryError, match="a subquery cannot read a stream"):
        ensue.sql(text, tables=tables | {"live": live})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)", [(1, 10.0)]),
        ("SELECT m.id FROM T x MATCH_RECOGNIZE (PATTERN (()) WITHIN 2) AS m ORDER BY 1 DESC", [(2,), (1,)]),
        ("SELECT y FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) AS m (x, y)", [(10.0,)]),
        ("SELECT u.id FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) m JOIN t u ON u.id = m.id + 1", [(2,)]),
        ("SELECT id FROM (SELECT * FROM t WHERE id > 2) MATCH_RECOGNIZE (PATTERN (()) WITHIN 3)", [(3,)]),
        ("SELECT v FROM VALUES (1, 'a'), (2, 'b') AS x(id, v) MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)", [("a",)]),
        ("SELECT id FROM range(10) r(id) MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)", [(0,), (1,)]),
        ("SELECT (SELECT max(id) FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 3))", [(3,)]),
        (
            (
                "SELECT id FROM t WHERE EXISTS "
                "(SELECT 1 FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) m WHERE m.id + 2 = t.id)"
            ),
            [(3,)],
        ),
        (
            (
                "SELECT id FROM (SELECT id FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 3) WHERE id > 1) y "
                "MATCH_RECOGNIZE (PATTERN (()) WITHIN 2)"
            ),
            [(2,)],
        ),
        (
            "SELECT id FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 3) a MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) b",
            [(1,)],
        ),
        (
            (
                "WITH t AS (SELECT id * 10 AS id FROM t), "
                "b AS (SELECT * FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 20)) "
                "SELECT b.id FROM b JOIN t USING (id) ORDER BY id DESC"
            ),
            [(20,), (10,)],
        ),
        (
            (
                "WITH a AS (SELECT 1 AS id), b AS (SELECT 5 AS y) SELECT * FROM "
                "(WITH a AS (SELECT y + 1 AS id FROM b) SELECT * FROM a MATCH_RECOGNIZE (PATTERN (()) WITHIN 9)), a"
            ),
            [(6, 1)],
        ),
        (r"SELECT '{x}', '\'', `id` FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) -- }", [("{x}", "'", 1)]),
        ("SELECT count(*) FROM t", [(4,)]),
        ("SELECT '{x}'", [("{x}",)]),
        ("VALUES (1), (2);", [(1,), (2,)]),
    ],
)
def test_a_clause_may_stand_wherever_a_table_may(rows, text, expected):
    assert rows(text) == expected


def test_tables_and_views_of_the_session_by_name(spark, rows):
    spark.createDataFrame([(7,)], "id long").createOrReplaceTempView("kept")
    try:
        text = "SELECT kept.id FROM kept MATCH_RECOGNIZE (PATTERN (()) WITHIN 9) m JOIN kept USING (id)"
        assert rows(text, tables=None) == [(7,)]
        assert rows("SELECT * FROM Kept x MATCH_RECOGNIZE (PATTERN (()) WITHIN 9)", tables={}) == [(7,)]
        hidden = {"kept": spark.createDataFrame([(8,)], "id long")}
        assert rows(text, tables=hidden) == [(8,)]
        assert [row.id for row in spark.table("kept").collect()] == [7]
    finally:
        spark.catalog.dropTempView("kept")


def test_no_view_is_left_in_the_session(spark, rows):
    before = {table.name for table in spark.catalog.listTables()}
    rows("SELECT m.id FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) m JOIN t USING (id)")
    assert {table.name for table in spark.catalog.listTables()} == before


def test_the_session_is_that_of_the_tables(tables):
    found = run_sql(
        "SELECT count(*) FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 3)", tables=tables, recognize=small_ids
    )
    assert found.collect()[0][0] == 3


def test_a_table_that_is_just_named_is_handed_over_as_it_is(tables):
    seen = []
    found = run_sql(
        "SELECT * FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) m",
        tables=tables,
        recognize=lambda clause, relation: seen.append(relation) or relation,
    )
    assert found is seen[0] is tables["t"]


def test_a_stream_in_a_stream_out(spark, tmp_path):
    spark.createDataFrame(EVENTS, "id long, price double").write.parquet(str(tmp_path / "events"))
    stream = spark.readStream.schema("id long, price double").parquet(str(tmp_path / "events"))
    prices = spark.createDataFrame([(1, "one")], "id long, name string")
    found = run_sql(
        "WITH dear AS (SELECT * FROM t WHERE price < 100) SELECT m.id, name "
        "FROM dear MATCH_RECOGNIZE (PATTERN (()) WITHIN 2) m LEFT JOIN prices USING (id) WHERE m.price > 1",
        tables={"t": stream, "prices": prices},
        recognize=small_ids,
    )
    assert found.isStreaming
    query = (
        found.writeStream.format("memory")
        .queryName("sql_stream")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert {tuple(row) for row in spark.table("sql_stream").collect()} == {(1, "one"), (2, None)}
    spark.catalog.dropTempView("sql_stream")


@pytest.mark.parametrize(
    ("text", "place", "problem", "hint"),
    [
        ("SELECT * FROM tt MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)", "tt", "unknown table 'tt'", "did you mean 't'?"),
        ("SELECT prize FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)", "prize", "column 'prize'", "'price'?"),
        (
            "SELECT * FROM t o, (SELECT * FROM t u WHERE u.id = o.id) MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)",
            "o.id",
            "unknown column 'o.id'",
            "runs separately",
        ),
        ("SELECT 1 FROM t WHERE WHERE 1 = 1 GRUOP", "WHERE", "does not belong here", None),
        ("SELECT foo(id) FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)", "foo(id)", "foo", None),
        (
            "SELECT MATCH_NUMBER() FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)",
            "MATCH_NUMBER()",
            "only works inside MATCH_RECOGNIZE",
            "MEASURES MATCH_NUMBER() AS n",
        ),
        (
            "SELECT 1 FROM t AS k(x, X) MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)",
            "t AS k(x, X)",
            "the columns 'x' and 'X' have the same name",
            "FROM t AS k(x, y, z)",
        ),
    ],
)
def test_errors_of_spark_point_into_the_text(refused, text, place, problem, hint):
    error = refused(text)
    assert problem in error.problem
    assert error.span.over(text) == place
    assert hint is None or hint in error.hint
    for noise in ("__ensue", "_pyspark", "SQLSTATE", "== SQL"):
        assert noise not in str(error)


def test_tables_beside_spark_are_dataframes(spark):
    with pytest.raises(EventError, match=r"spark\.createDataFrame"):
        run_sql("SELECT * FROM t", spark=spark, tables={"t": pa.table({"id": [1]})}, recognize=None)


def test_deep_nesting_is_run_or_refused(refused, rows):
    text = "SELECT * FROM " + "(SELECT * FROM " * 60 + "t" + ")" * 60 + " MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)"
    assert rows(text) == [(1, 10.0)]
    refused("SELECT " + "(" * 5_000 + "1" + ")" * 5_000)


CLIENT = """
import json
from pyspark.sql import SparkSession
from ensue.errors import QueryError
from ensue.backends.sql_backend import run_sql as sql

session = (
    SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
)
assert type(session).__module__.startswith("pyspark.sql.connect"), type(session)
frame = session.createDataFrame([(1, 10.0), (2, 20.0)], "id long, price double")

def small_ids(clause, relation):
    return relation.where(f"id <= {clause.row_pattern.within}")

found = sql(
    "WITH a AS (SELECT * FROM t) SELECT u.id, '{x}' FROM a MATCH_RECOGNIZE (PATTERN (()) WITHIN 1) m JOIN t u "
    "ON u.id = m.id + 1", tables={"t": frame}, recognize=small_ids,
)
try:
    sql("SELECT prize FROM t MATCH_RECOGNIZE (PATTERN (()) WITHIN 1)", spark=session, tables={"t": frame},
        recognize=small_ids)
except QueryError as error:
    print(json.dumps([[tuple(row) for row in found.collect()], str(error)]))
"""


@pytest.mark.connect
@pytest.mark.slow
def test_spark_connect_gives_the_same():
    ended = subprocess.run([sys.executable, "-c", CLIENT], capture_output=True, text=True, check=True)
    found, error = json.loads(ended.stdout.splitlines()[-1])
    assert found == [[2, "{x}"]]
    assert "unknown column 'prize'" in error
    assert "did you mean 'price'?" in error


@pytest.mark.slow
def test_what_is_left_of_a_stream_goes_through_the_query_too(spark, tmp_path):
    """A stream that is started and flushed gives what the same query gives of a table."""
    count = 60
    table = pa.table(
        {
            "k": [("a", "b")[n % 2] for n in range(count)],
            "ts": [datetime(2026, 1, 1) + timedelta(seconds=n) for n in range(count)],
            "v": [n * 7 % 11 for n in range(count)],
        }
    )
    query = """
        SELECT m.match_id, m.k, m.n FROM t MATCH_RECOGNIZE (
            PARTITION BY k ORDER BY ts MEASURES count(*) AS n
            PATTERN (A B+) WITHIN INTERVAL '1' HOUR DEFINE B AS v > PREV(v)
        ) AS m WHERE m.n > 2
    """
    (tmp_path / "live").mkdir()
    for part in range(2):
        pq.write_table(table.slice(part * 30, 30), tmp_path / "live" / f"{part}.parquet")
    folder = str(tmp_path / "live")
    stream = spark.readStream.schema(spark.read.parquet(folder).schema).parquet(folder)
    found = ensue.sql(query, tables={"t": stream}, watermark="10 seconds")
    ensue.start(found, tmp_path / "found", checkpoint=tmp_path / "checkpoint", once=True, flush=True)
    given = spark.read.parquet(str(tmp_path / "found")).toArrow().to_pylist()
    wanted = ensue.sql(query, tables={"t": table}).to_pylist()
    assert sorted(map(str, given)) == sorted(map(str, wanted))
    assert wanted


def test_parameters_stand_in_clauses_and_around_them(spark):
    prices = spark.createDataFrame([(1, 1.0, "x"), (2, 2.0, "y"), (3, 3.0, "x")], "day int, price double, n string")
    text = """
    SELECT day, :label AS label, :gap AS gap
    FROM (SELECT * FROM prices WHERE n IN :names AND n IN ('z', :names))
    MATCH_RECOGNIZE (
        ORDER BY day MEASURES LAST(day) AS day PATTERN (S UP{:least,}) DEFINE UP AS price > :step
    )
    WHERE day >= :low LIMIT :n
    """
    params = {"label": "it's \\ {x}", "names": ["x", "y"], "least": 1, "step": 1.5, "low": 3, "n": 2}
    params["gap"] = timedelta(minutes=5)
    found = ensue.sql(text, tables={"prices": prices}, params=params).collect()
    assert [tuple(row) for row in found] == [(3, "it's \\ {x}", timedelta(minutes=5))]
