"""Reads event files, topics and generated streams as DataFrames.

Text columns are typed by the rules of `text_columns`, as on Arrow.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import DataType, StringType, StructField, StructType, TimestampNTZType, TimestampType

from ensue.backends import text_files
from ensue.backends.spark.frames import get_column, normalize_times
from ensue.backends.spark.spark_errors import get_error_types, translate_error, translate_errors
from ensue.backends.text_columns import (
    DEFAULT_TEXT_OPTIONS,
    TIME_KINDS,
    CellKind,
    CellTest,
    TextFileOptions,
    TimeFormat,
    check_header,
    find_passed_tests,
    infer_cell_kind,
    select_time_kinds,
)
from ensue.errors import EventError, RunnerError

SAMPLE_RECORDS = 1_000  # records of a topic from which its columns are inferred
TRIAL_KEYS = 100
_SCALA = "2.13"

# ------------------------------------------------------------------------- batches


def read_events(
    session: SparkSession, paths: Sequence[str], form: str, spelling: TextFileOptions = DEFAULT_TEXT_OPTIONS
) -> DataFrame:
    """Read files or folders of events; `form` is csv, tsv, json or parquet.

    Text files get common column types; of JSON, with one object a line, only times are converted.
    """
    named = ", ".join(paths)
    with translate_errors(f"cannot read events from {named}: ", EventError):
        if form == "parquet":
            return session.read.parquet(*paths)
        if form == "json":
            return _infer_types(session.read.json(list(paths), mode="FAILFAST"), named, spelling, only_times=True)
        frames = [_read_rows(session, path, spelling.between(form), spelling) for path in paths]
        union = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
        return _infer_types(union, named, spelling)


# ------------------------------------------------------------------------- streams


def read_folder(
    session: SparkSession,
    path: str,
    form: str,
    schema: StructType | None = None,
    spelling: TextFileOptions = DEFAULT_TEXT_OPTIONS,
) -> DataFrame:
    """Stream the existing and future files of a folder; `form` is csv, tsv, json or parquet.

    Without a schema the columns are inferred from the existing files. A cell of another type is NULL.
    """
    columns = schema or read_events(session, [path], form, spelling).schema
    if schema is None and form != "parquet":
        # read times without a zone as UTC, as watermarks are
        columns = replace_types(columns, lambda f: isinstance(f.dataType, TimestampNTZType), TimestampType())
    with translate_errors(f"cannot read a stream from {path}: ", EventError):
        match form:
            case "csv" | "tsv":
                text = replace_types(columns, lambda _: True, StringType())
                options: dict[str, Any] = CSV_OPTIONS | {"sep": spelling.between(form), "multiLine": True}
                frame = session.readStream.schema(text).csv(path, **options | {"mode": "PERMISSIVE"})
                return cast_to_schema(frame, columns, spelling)
            case "json":
                texts = replace_times_by_text(columns, spelling)
                frame = session.readStream.schema(texts).json(path)
                return cast_to_schema(frame, columns, spelling)
            case _:
                return session.readStream.schema(columns).parquet(path)


def read_kafka(
    session: SparkSession,
    servers: str,
    topic: str,
    schema: StructType | None = None,
    spelling: TextFileOptions = DEFAULT_TEXT_OPTIONS,
) -> DataFrame:
    """Stream a topic of JSON values from its first record on.

    Without a schema the columns are inferred from its first records.
    """
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
        columns = replace_types(columns, lambda f: spelling.requires_format(f.name), TimestampType())
    texts = replace_times_by_text(columns, spelling)
    value = sql.from_json(sql.col("value").cast("string"), texts)
    return cast_to_schema(records.select(value.alias("event")).select("event.*"), columns, spelling)


def _infer_columns(session: SparkSession, options: dict[str, str]) -> StructType:
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


def read_rate(session: SparkSession, rows: int) -> DataFrame:
    """Generate a test stream of `rows` events a second: ts, type (A, B, C), key and value.

    Type, key and value are pseudo-random functions of the event number.
    """
    numbered = session.readStream.format("rate").option("rowsPerSecond", rows).load()
    number = sql.col("value")

    def pick(seed: int, below: int) -> Column:
        return sql.pmod(sql.xxhash64(number, sql.lit(seed)), sql.lit(below))

    return numbered.select(
        sql.col("timestamp").alias("ts"),
        sql.substring(sql.lit("ABC"), pick(1, 3).cast("int") + 1, sql.lit(1)).alias("type"),
        pick(2, TRIAL_KEYS).alias("key"),
        (pick(3, 10_000) / 100).alias("value"),
    )


def parse_columns(text: str) -> StructType:
    """Parse columns declared as in SQL: `ts timestamp, type string`."""
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


# ------------------------------------------------------------------------- times as text


def to_iso_form(column: Column, format: TimeFormat) -> Column:
    """Convert texts of a time format to ISO; a text without that format becomes NULL."""

    def convert(texts: pa.Array) -> pa.Array:
        return text_files.to_iso_form(texts, format)

    iso: Column = sql.arrow_udf(convert, "string")(column)  # type: ignore[attr-defined]
    return iso


# ------------------------------------------------------------------------- files

# Quotes are doubled inside quotes. A row with too few or too many cells, or a file with another
# header than the others, is an error.
CSV_OPTIONS = {
    "header": True,
    "quote": '"',
    "escape": '"',
    "nullValue": "",
    "emptyValue": "",
    "mode": "FAILFAST",
    "enforceSchema": False,
}
_TYPES = {
    CellKind.INTEGER: "bigint",
    CellKind.NUMBER: "double",
    CellKind.BOOLEAN: "boolean",
    CellKind.DATE: "date",
    CellKind.TIMESTAMP: "timestamp_ntz",
    CellKind.INSTANT: "timestamp",
}
_FITTING = {CellTest.INTEGER: (CellKind.INTEGER,), CellTest.DATE: (CellKind.DATE,), CellTest.TIMESTAMP: TIME_KINDS}
_SAMPLE = 200


def _read_rows(session: SparkSession, path: str, separator: str, spelling: TextFileOptions) -> DataFrame:
    options: dict[str, Any] = CSV_OPTIONS | {"sep": separator, "multiLine": _has_multiline_cells(session, path)}
    first = session.read.csv(path, **(options | {"header": False})).head(1)
    if not first:
        raise EventError(f"cannot read events from {path}: there is no header")
    check_header(list(first[0]), path, spelling)
    return session.read.csv(path, **options)


def _infer_types(frame: DataFrame, path: str, spelling: TextFileOptions, *, only_times: bool = False) -> DataFrame:
    frame = replace_null_words(frame, spelling)
    _require_texts(frame, path, spelling)
    formatted = _parse_formatted(frame, spelling)
    others = frame.select(*(get_column(n) for n in frame.columns if n not in formatted))
    column_kinds = infer_kinds(others, path) if others.columns else {}
    column_kinds = select_time_kinds(column_kinds) if only_times else column_kinds
    converted = {n: _cast(get_column(n), kind) for n, kind in column_kinds.items() if kind is not CellKind.TEXT}
    return frame.withColumns(converted | formatted)


def replace_null_words(frame: DataFrame, spelling: TextFileOptions) -> DataFrame:
    if not spelling.nulls:
        return frame
    return frame.withColumns(
        {name: sql.when(~get_column(name).isin(*spelling.nulls), get_column(name)) for name in _texts(frame)}
    )


def _texts(frame: DataFrame) -> list[str]:
    return [f.name for f in frame.schema.fields if isinstance(f.dataType, StringType)]


def _require_texts(frame: DataFrame, path: str, spelling: TextFileOptions) -> None:
    texts = _texts(frame)
    for field in frame.schema.fields:
        if spelling.requires_format(field.name) and field.name not in texts:
            raise EventError(
                f"column '{field.name}' of {path} holds {field.dataType.simpleString()} and not "
                "text, so it has no time format\n"
                "  hint: leave out --time-format"
            )


def _parse_formatted(frame: DataFrame, spelling: TextFileOptions) -> dict[str, Column]:
    """Parse the columns that have, or must have, the time format."""
    format = spelling.time_format
    if format is None:
        return {}
    texts = [name for name in _texts(frame) if spelling.requires_format(name) or not spelling.times]
    parsed = {name: parse_formatted_times(get_column(name), spelling) for name in texts}
    if not parsed:
        return {}
    known = [sql.count(get_column(name)) for name in texts]
    first_bad = [sql.min(sql.when(parsed[name].isNull(), get_column(name))) for name in texts]
    (row,) = frame.agg(*known, *first_bad).collect()
    for name, count, bad in zip(texts, row[: len(texts)], row[len(texts) :], strict=True):
        if spelling.requires_format(name):
            if bad is not None and not spelling.drop:
                raise spelling.build_time_error(name, bad, "the first one in alphabetical order")
        elif bad is not None or not count:
            del parsed[name]
    return parsed


def parse_formatted_times(column: Column, spelling: TextFileOptions) -> Column:
    """Parse a text column by the time format; other texts become NULL."""
    assert spelling.time_format is not None
    kind = CellKind.INSTANT if spelling.time_format.zoned else CellKind.TIMESTAMP
    return _cast(to_iso_form(column, spelling.time_format), kind)


def cast_to_schema(frame: DataFrame, schema: StructType, spelling: TextFileOptions = DEFAULT_TEXT_OPTIONS) -> DataFrame:
    """Cast a frame to a schema; a text of another type becomes NULL."""
    frame = replace_null_words(frame, spelling)
    texts, formatted_times = _texts(frame), _list_time_columns(schema, spelling)
    return frame.select(
        *(
            (
                parse_formatted_times(get_column(field.name), spelling).cast(field.dataType)
                if field.name in formatted_times
                else _cast_declared(field)
            ).alias(field.name)
            if field.name in texts
            else get_column(field.name)
            for field in schema.fields
        )
    )


def _cast_declared(field: StructField) -> Column:
    column = get_column(field.name)
    dated = field.dataType.typeName().startswith(("timestamp", "date"))
    return (normalize_times(column) if dated else column).try_cast(field.dataType)


def _list_time_columns(schema: StructType, spelling: TextFileOptions) -> set[str]:
    """Return the timestamp columns that the time format applies to."""
    if spelling.time_format is None:
        return set()
    times = [f.name for f in schema.fields if f.dataType.typeName().startswith("timestamp")]
    return {name for name in times if spelling.requires_format(name) or not spelling.times}


def replace_times_by_text(schema: StructType, spelling: TextFileOptions) -> StructType:
    """Replace the timestamp columns that the time format applies to by text columns."""
    formatted_times = _list_time_columns(schema, spelling)
    return replace_types(schema, lambda field: field.name in formatted_times, StringType())


def replace_types(schema: StructType, matches: Callable[[StructField], bool], type: DataType) -> StructType:
    return StructType([StructField(f.name, type) if matches(f) else f for f in schema.fields])


def _has_multiline_cells(session: SparkSession, path: str) -> bool:
    """Whether a quoted cell may span lines; files without such cells are read in parallel."""
    unquoted = sql.replace(sql.col("value"), sql.lit('"'), sql.lit(""))
    quotes = sql.length("value") - sql.length(unquoted)
    return bool(session.read.text(path).where(quotes % 2 == 1).head(1))


def infer_kinds(frame: DataFrame, path: str) -> dict[str, CellKind]:
    names = _texts(frame)
    # the first cells rule out most types, and each test of all cells costs
    first = frame.select(*map(get_column, names)).head(_SAMPLE) if names else []
    aggregates: list[Column] = []
    for number, name in enumerate(names):
        column = get_column(name)
        aggregates.append(sql.count(column).alias(f"{number} known"))
        for question in find_passed_tests(row[number] for row in first):
            aggregates.append(sql.every(column.rlike(question.value)).alias(f"{number} {question}"))
            aggregates += [
                sql.every(_cast(column, kind).isNotNull() | column.isNull()).alias(f"{number} {kind}")
                for kind in _FITTING.get(question, ())
            ]
    if not aggregates:
        return {}
    (row,) = frame.agg(*aggregates).collect()
    values = row.asDict()
    return {name: _kind(values, number, name, path) for number, name in enumerate(names)}


def _kind(values: Mapping[str, Any], number: int, name: str, path: str) -> CellKind:
    if not values[f"{number} known"]:
        return CellKind.TEXT
    kind = infer_cell_kind(
        lambda question: bool(values.get(f"{number} {question}")), lambda kind: bool(values[f"{number} {kind}"])
    )
    if kind in TIME_KINDS and not values.get(f"{number} {CellTest.MICROSECONDS}"):
        raise EventError(
            f"column '{name}' of {path} has times finer than microseconds, which Spark truncates\n"
            "  hint: run without Spark, or write them as whole numbers"
        )
    return kind


def _cast(column: Column, kind: CellKind) -> Column:
    dated = kind is CellKind.DATE or kind in TIME_KINDS
    return (normalize_times(column) if dated else column).try_cast(_TYPES[kind])
