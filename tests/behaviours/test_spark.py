"""What is particular to Spark DataFrames: laziness, schema, key groups."""

import gc
import warnings

import pyarrow as pa
import pytest

import ensue
from ensue import pattern
from ensue.backends.spark.frames import WholeStreamWarning
from ensue.errors import EventError, QueryError
from samples.stocks import stocks

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:no event is of type")]


def notyet(reason):
    return pytest.mark.xfail(strict=True, reason=reason)


PAIRS = "SEQ(A a, B b) WHERE [symbol] and a.price < b.price WITHIN 1 second RETURN %s"


@pytest.fixture(scope="module")
def trades():
    return stocks(3_000, symbols=40, seed=5)


def local_and_spark(spark, events, query, **options):
    """The ids of the matches in this process and on Spark."""
    frame = spark.createDataFrame(events) if isinstance(events, pa.Table) else events
    here = ensue.match(frame.toArrow(), query, **options)
    there = ensue.match(frame, query, **options).toArrow()
    return [sorted(found.column("match_id").to_pylist()) for found in (here, there)]


# ------------------------------------------------------------------------------- laziness


def test_nothing_runs_before_an_action(spark, trades):
    from pyspark.sql import functions

    @functions.udf("long")
    def explode(value):
        raise AssertionError("an event was computed")

    frame = spark.createDataFrame(trades.slice(0, 10)).withColumn("bomb", explode("volume"))
    found = ensue.match(frame, PAIRS % "a.bomb AS b", time="ts", type="type")
    assert found.columns == ["match_id", "start", "end", "b"]  # and no error


def test_the_schema_is_known_without_a_job(spark, trades):
    frame = spark.createDataFrame(trades.slice(0, 10))
    query = "SEQ(A a, B+ b[]) WHERE [symbol] RETURN a, b, avg(b.price) AS m, count(b) AS n"
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("schema", "no job may run here")
    try:
        schema = ensue.match(frame, query, time="ts", type="type").schema
        assert not tracker.getJobIdsForGroup("schema")
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    types = {field.name: field.dataType.simpleString() for field in schema}
    event = "struct<ts:timestamp,type:string,symbol:string,price:double,volume:bigint>"
    assert types == {
        "match_id": "string",
        "start": "timestamp",
        "end": "timestamp",
        "a": event,
        "b": f"array<{event}>",
        "m": "double",
        "n": "bigint",
    }


def test_the_result_is_a_frame_like_any_other(spark, trades):
    frame = spark.createDataFrame(trades)
    found = ensue.match(frame, PAIRS % "a.symbol AS symbol, b.price AS p", time="ts", type="type")
    top = found.groupBy("symbol").count().orderBy("symbol").limit(2).collect()
    assert [row.symbol for row in top] == ["SYM00000", "SYM00001"]


def test_mistakes_show_at_the_call_not_in_a_task(spark, trades):
    frame = spark.createDataFrame(trades.slice(0, 10))
    with pytest.raises(QueryError, match="unknown field 'pric'"):
        ensue.match(frame, "SEQ(A a, B b) WHERE [symbol] and a.pric > 1", time="ts", type="type")
    with pytest.raises(EventError, match="no column 'tss'"):
        ensue.match(frame, "SEQ(A a, B b) WHERE [symbol]", time="tss", type="type")
    with pytest.raises(EventError, match="'raise' or 'drop'"):
        ensue.match(frame, "SEQ(A a, B b)", time="ts", type="type", options=ensue.StreamOptions(bad_events="x"))


# ------------------------------------------------------------------------------- key groups


def test_many_keys(spark):
    events = stocks(20_000, symbols=5_000, seed=6)
    query = "SEQ(A a, B b) WHERE [symbol] WITHIN 1 hour"
    here, there = local_and_spark(spark, events, query, time="ts", type="type")
    assert here == there
    assert len(here) > 1_000


def test_one_key_that_has_most_events(spark):
    events = stocks(4_000, symbols=50, seed=7)
    names = ["SYM00000" if k % 5 else name.as_py() for k, name in enumerate(events["symbol"])]
    events = events.set_column(2, "symbol", pa.array(names))
    query = "SEQ(A a, B b, !C c, D d) WHERE [symbol] WITHIN 100 milliseconds"
    here, there = local_and_spark(spark, events, query, time="ts", type="type")
    assert here == there
    assert here


def test_the_number_of_partitions_does_not_matter(spark, trades):
    frame = spark.createDataFrame(trades)
    # a repartition changes the order of arrival, so something else must order equal times
    options = {"time": "ts", "type": "type", "order": ["volume", "symbol"]}
    expected, _ = local_and_spark(spark, trades, PAIRS % "a, b", **options)
    for parts in (1, 7):
        found = ensue.match(frame.repartition(parts), PAIRS % "a, b", **options)
        assert sorted(row.match_id for row in found.select("match_id").collect()) == expected


def test_a_key_of_reals_and_several_keys(spark):
    events = pa.table(
        {
            "at": range(6),
            "type": list("AABBBB"),
            "k": [0.0, float("nan"), -0.0, float("nan"), None, 0.0],
            "s": list("pqpqpx"),
        }
    )
    options = {"time": "at", "type": "type"}
    here, there = local_and_spark(spark, events, "SEQ(A a, B b) WHERE [k, s]", **options)
    assert here == there
    assert len(here) == 1


def test_without_a_key_one_task_runs_and_a_warning_says_so(spark, trades):
    frame = spark.createDataFrame(trades.slice(0, 10))
    with pytest.warns(WholeStreamWarning, match="no \\[attr\\]"):
        found = ensue.match(frame, "SEQ(A a, B b) WITHIN 1 second", time="ts", type="type")
    expected = ensue.match(trades.slice(0, 10), "SEQ(A a, B b) WITHIN 1 second", time="ts", type="type")
    assert found.count() == expected.num_rows


def test_strict_contiguity_looks_at_every_key_and_warns(spark, trades):
    frame = spark.createDataFrame(trades.slice(0, 10))
    query = "SEQ(A a, B b) WHERE strict_contiguity(a, b) { [symbol] }"
    with pytest.warns(WholeStreamWarning, match="every partition"):
        ensue.match(frame, query, time="ts", type="type")


def test_with_a_key_nothing_warns(spark, trades):
    frame = spark.createDataFrame(trades.slice(0, 10))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ensue.match(frame, PAIRS % "a", time="ts", type="type")


def test_bad_events_are_an_error_of_the_task(spark):
    events = pa.table({"at": [1.0, None], "type": ["A", "B"], "k": ["p", "p"]})
    frame = spark.createDataFrame(events)
    found = ensue.match(frame, "SEQ(A a, B b) WHERE [k]", time="at", type="type")
    with pytest.raises(Exception, match="no usable time"):
        found.collect()
    dropped = ensue.match(
        frame, "SEQ(A a, B b) WHERE [k]", time="at", type="type", options=ensue.StreamOptions(bad_events="drop")
    )
    assert dropped.count() == 0


def test_arrival_orders_equal_times(spark):
    """Rows of one file keep their order when times are equal."""
    events = pa.table({"at": [1] * 6, "type": list("ABABAB"), "k": ["p"] * 6, "n": range(6)})
    options = {"time": "at", "type": "type"}
    frame = spark.createDataFrame(events).coalesce(1)
    query = "SEQ(A a, B b) WHERE partition_contiguity(a, b) { [k] } RETURN a.n AS n"
    found = ensue.match(frame, query, **options)
    assert sorted(row.n for row in found.collect()) == [0, 2, 4]


@pytest.mark.parametrize(
    "key",
    [
        "the key",
        "from",
        pytest.param("k.y", marks=notyet("mapInArrow resolves names with a dot as nested fields")),
        pytest.param("k`y", marks=notyet("mapInArrow does not quote names")),
    ],
)
def test_columns_with_awkward_names(spark, key):
    events = pa.table({"a t": [1, 2], "my type": ["A", "B"], key: ["p", "p"]})
    frame = spark.createDataFrame(events)
    query = f'SEQ(A a, B b) WHERE ["{key}"] RETURN a."a t" AS t, a."{key}" AS "{key}"'
    found = ensue.match(frame, query, time="a t", type="my type")
    assert [row.t for row in found.collect()] == [1]


def test_a_type_spark_has_and_arrow_does_not_is_named(spark):
    frame = spark.sql("select 1 as at, 'A' as type, interval 3 months as i")
    with pytest.raises(EventError, match="interval"):
        ensue.match(frame, "A a", time="at", type="type")


# ------------------------------------------------------------------------------- the builder


@pytest.mark.filterwarnings("ignore:the query has no")
def test_a_built_query_is_taken(spark):
    frame = spark.createDataFrame(pa.table({"t": [1, 2, 3, 4], "type": list("ABBC"), "x": [1, 5, 3, 0]}))
    built = pattern("a", "A").followed_by("b", "B").where("x > a.x").within(10)
    assert ensue.match(frame, built, time="t", type="type").count() == 1


# ------------------------------------------------------------------------------- workers


def test_workers_leave_loaded_code_out_of_garbage_collection_and_this_process_does_not(spark, trades):
    """PySpark collects after every task of a worker: each of them visited all loaded modules."""

    def frozen(batches):
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"objects": [gc.get_freeze_count()]})

    before = gc.get_freeze_count()
    frame = spark.createDataFrame(trades)
    ensue.match(frame, PAIRS % "a.price AS x", time="ts", type="type").count()
    counted = spark.range(0, 8, 1, 8).mapInArrow(frozen, "objects long").collect()
    assert max(row.objects for row in counted) > 0  # workers are used again
    assert gc.get_freeze_count() == before
