"""Stream sources: a folder of files, a Kafka topic, or a generated stream."""

from typing import TYPE_CHECKING

from ensue.backends.spark import spark_text
from ensue.backends.spark.session import read_events
from ensue.backends.spark.spark_errors import get_error_types, translate_error, translate_errors
from ensue.backends.text_columns import DEFAULT_TEXT_OPTIONS, TextFileOptions
from ensue.errors import EventError, RunnerError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SAMPLE_RECORDS = 1_000  # records of a topic from which its columns are inferred
TRIAL_KEYS = 100
_SCALA = "2.13"


def read_folder(
    session: "SparkSession",
    path: str,
    form: str,
    schema: "StructType | None" = None,
    spelling: TextFileOptions = DEFAULT_TEXT_OPTIONS,
) -> "DataFrame":
    """Stream the existing and future files of a folder; `form` is csv, tsv, json or parquet.

    Without a schema the columns are inferred from the existing files.
    """
    from pyspark.sql.types import TimestampNTZType, TimestampType

    columns = schema or read_events(session, path, form, spelling).schema
    if schema is None and form != "parquet":
        # read times without a zone as UTC, as watermarks are
        columns = spark_text.replace_types(columns, lambda f: isinstance(f.dataType, TimestampNTZType), TimestampType())
    with translate_errors(f"cannot read a stream from {path}: ", EventError):
        match form:
            case "csv" | "tsv":
                separator = spelling.between(form)
                return spark_text.read_csv_stream(session, path, separator, columns, spelling)
            case "json":
                texts = spark_text.replace_times_by_text(columns, spelling)
                frame = session.readStream.schema(texts).json(path)
                return spark_text.cast_to_schema(frame, columns, spelling)
            case _:
                return session.readStream.schema(columns).parquet(path)


def read_kafka(
    session: "SparkSession",
    servers: str,
    topic: str,
    schema: "StructType | None" = None,
    spelling: TextFileOptions = DEFAULT_TEXT_OPTIONS,
) -> "DataFrame":
    """Stream a topic of JSON values from its first record on.

    Without a schema the columns are inferred from its first records.
    """
    from pyspark.sql import functions as sql
    from pyspark.sql.types import TimestampType

    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    try:
        columns = _infer_columns(session, options) if schema is None else schema
        records = session.readStream.format("kafka").options(**options).load()
    except get_error_types() as error:
        message = str(translate_error(error))
        if "data source: kafka" in message or "DATA_SOURCE_NOT_FOUND" in message:
            connector = f"org.apache.spark:spark-sql-kafka-0-10_{_SCALA}:{session.version}"
            raise RunnerError(
                "this Spark has no Kafka connector\n"
                f"  hint: --packages {connector} if Maven has that release, otherwise --jars with "
                "those of another one; docs/kafka.md names them"
            ) from None
        raise EventError(f"cannot read the topic {topic} at {servers}: {message}") from None
    if schema is None:
        # columns with a time format are text in the sample
        columns = spark_text.replace_types(columns, lambda f: spelling.requires_format(f.name), TimestampType())
    texts = spark_text.replace_times_by_text(columns, spelling)
    value = sql.from_json(sql.col("value").cast("string"), texts)
    return spark_text.cast_to_schema(records.select(value.alias("event")).select("event.*"), columns, spelling)


def _infer_columns(session: "SparkSession", options: dict[str, str]) -> "StructType":
    records = session.read.format("kafka").options(**options).load()
    values = records.selectExpr("cast(value as string) as value").limit(SAMPLE_RECORDS).collect()
    texts = [row.value for row in values if row.value is not None]
    if not texts:
        raise EventError(
            f"the topic {options['subscribe']} is empty, so its columns are not known\n"
            '  hint: give them with --schema "ts timestamp, type string, ..."'
        )
    # PySpark only accepts JSON texts as an RDD
    sample = session.read.option("inferTimestamp", "true").json(session.sparkContext.parallelize(texts, 1))
    if sample.columns == ["_corrupt_record"]:
        raise EventError(f"the values of the topic {options['subscribe']} are not JSON objects: {texts[0][:60]!r}")
    return sample.schema


def read_rate(session: "SparkSession", rows: int) -> "DataFrame":
    """Generate a test stream of `rows` events a second: ts, type (A, B, C), key and value.

    Type, key and value are pseudo-random functions of the event number.
    """
    from pyspark.sql import functions as sql

    numbered = session.readStream.format("rate").option("rowsPerSecond", rows).load()
    number = sql.col("value")

    def pick(seed: int, below: int) -> "sql.Column":  # type: ignore[name-defined]
        return sql.pmod(sql.xxhash64(number, sql.lit(seed)), sql.lit(below))

    return numbered.select(
        sql.col("timestamp").alias("ts"),
        sql.substring(sql.lit("ABC"), pick(1, 3).cast("int") + 1, sql.lit(1)).alias("type"),
        pick(2, TRIAL_KEYS).alias("key"),
        (pick(3, 10_000) / 100).alias("value"),
    )


def parse_columns(text: str) -> "StructType":
    """Parse columns declared as in SQL: `ts timestamp, type string`."""
    from pyspark.sql.types import StructType

    problem = "it names no columns"
    try:
        declared = StructType.fromDDL(text)
        if isinstance(declared, StructType):  # a text such as `int` is a type without columns
            return declared
    except get_error_types() as error:
        problem = str(translate_error(error))
    raise EventError(
        f"the schema {text!r} cannot be read: {problem}\n"
        '  hint: write it like "ts timestamp, type string, price double"'
    )
