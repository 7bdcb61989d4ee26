"""Streams to read: a folder that files are put into, a topic of Kafka, a generated one."""

from typing import TYPE_CHECKING

from ensue.errors import EventError, RunnerError
from ensue.runners.spark import text as spark_text
from ensue.runners.spark.failure import failure, spark_errors
from ensue.runners.spark.session import read
from ensue.runners.text_columns import PLAIN, Spelling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SAMPLE = 1_000  # records of a topic that are looked at to know its columns
TRIAL_KEYS = 100
_SCALA = "2.13"


def folder(
    session: "SparkSession",
    path: str,
    form: str,
    schema: "StructType | None" = None,
    spelling: Spelling = PLAIN,
) -> "DataFrame":
    """The files of a folder, and those that come; `form` is csv, tsv, json or parquet.

    Without a schema the files that are there say what the columns are.
    """
    known = schema or read(session, path, form, spelling).schema
    if schema is None and form != "parquet":
        known = _in_utc(known)
    try:
        match form:
            case "csv" | "tsv":
                separator = spelling.between(form)
                return spark_text.csv_stream(session, path, separator, known, spelling)
            case "json":
                texts = spark_text.read_as_text(known, spelling)
                frame = session.readStream.schema(texts).json(path)
                return spark_text.as_declared(frame, known, spelling)
            case _:
                return session.readStream.schema(known).parquet(path)
    except spark_errors() as error:
        raise EventError(f"cannot read a stream from {path}: {failure(error)}") from None


def _in_utc(schema: "StructType") -> "StructType":
    """Of a stream, times without a zone are instants in UTC: watermarks are, too."""
    from pyspark.sql.types import StructField, StructType, TimestampNTZType, TimestampType

    return StructType(
        [
            StructField(f.name, TimestampType()) if isinstance(f.dataType, TimestampNTZType) else f
            for f in schema.fields
        ]
    )


def kafka(
    session: "SparkSession",
    servers: str,
    topic: str,
    schema: "StructType | None" = None,
    spelling: Spelling = PLAIN,
) -> "DataFrame":
    """A topic whose values are JSON, from its first record on.

    Without a schema its first records say what the columns are.
    """
    from pyspark.sql import functions as sql

    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    try:
        known = _sampled(session, options) if schema is None else schema
        records = session.readStream.format("kafka").options(**options).load()
    except spark_errors() as error:
        said = str(failure(error))
        if "data source: kafka" in said or "DATA_SOURCE_NOT_FOUND" in said:
            raise RunnerError(_no_connector(session.version)) from None
        raise EventError(f"cannot read the topic {topic} at {servers}: {said}") from None
    if schema is None:
        known = _with_times(known, spelling)
    texts = spark_text.read_as_text(known, spelling)
    value = sql.from_json(sql.col("value").cast("string"), texts)
    return spark_text.as_declared(
        records.select(value.alias("event")).select("event.*"), known, spelling
    )


def _with_times(schema: "StructType", spelling: Spelling) -> "StructType":
    """The schema of a sample, in which texts of a format that is said are still texts."""
    from pyspark.sql.types import StructField, StructType, TimestampType

    return StructType(
        [
            StructField(f.name, TimestampType()) if spelling.asks(f.name) else f
            for f in schema.fields
        ]
    )


def _sampled(session: "SparkSession", options: dict[str, str]) -> "StructType":
    records = session.read.format("kafka").options(**options).load()
    values = records.selectExpr("cast(value as string) as value").limit(SAMPLE).collect()
    texts = [row.value for row in values if row.value is not None]
    if not texts:
        raise EventError(
            f"the topic {options['subscribe']} is empty, so its columns are not known\n"
            '  hint: give them with --schema "ts timestamp, type string, ..."'
        )
    # A list has to become a Dataset of Java: PySpark does so for an RDD of texts.
    known = session.read.option("inferTimestamp", "true").json(
        session.sparkContext.parallelize(texts, 1)
    )
    if known.columns == ["_corrupt_record"]:
        raise EventError(
            f"the values of the topic {options['subscribe']} are not JSON objects: "
            f"{texts[0][:60]!r}"
        )
    return known.schema


def _no_connector(release: str) -> str:
    return (
        "this Spark has no connector to Kafka\n"
        "  hint: its jars with --jars (ensue.testing.kafka.jars() fetches them), or --packages "
        f"org.apache.spark:spark-sql-kafka-0-10_{_SCALA}:{release} if Maven has that release"
    )


def rate(session: "SparkSession", rows: int) -> "DataFrame":
    """A stream for trials, so many events a second: ts, type (A, B, C), key and value.

    Type, key and value look random and depend on the number of the event only.
    """
    from pyspark.sql import functions as sql

    numbered = session.readStream.format("rate").option("rowsPerSecond", rows).load()
    number = sql.col("value")

    def drawn(seed: int, below: int) -> "sql.Column":  # type: ignore[name-defined]
        return sql.pmod(sql.xxhash64(number, sql.lit(seed)), sql.lit(below))

    return numbered.select(
        sql.col("timestamp").alias("ts"),
        sql.substring(sql.lit("ABC"), drawn(1, 3).cast("int") + 1, sql.lit(1)).alias("type"),
        drawn(2, TRIAL_KEYS).alias("key"),
        (drawn(3, 10_000) / 100).alias("value"),
    )


def columns_of(text: str) -> "StructType":
    """The columns that a text declares as SQL does: `ts timestamp, type string`."""
    from pyspark.sql.types import StructType

    said = "it names no columns"
    try:
        declared = StructType.fromDDL(text)
        if isinstance(declared, StructType):  # a text such as `int` is a type without columns
            return declared
    except spark_errors() as error:
        said = str(failure(error))
    raise EventError(
        f"the schema {text!r} cannot be read: {said}\n"
        '  hint: write it like "ts timestamp, type string, price double"'
    )
