"""Converts between Spark and Arrow types."""

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as spark

from ensue.errors import EventError

_SIMPLE: list[tuple[type[spark.DataType], pa.DataType]] = [
    (spark.BooleanType, pa.bool_()),
    (spark.ByteType, pa.int8()),
    (spark.ShortType, pa.int16()),
    (spark.IntegerType, pa.int32()),
    (spark.LongType, pa.int64()),
    (spark.FloatType, pa.float32()),
    (spark.DoubleType, pa.float64()),
    (spark.StringType, pa.string()),
    (spark.BinaryType, pa.binary()),
    (spark.DateType, pa.date32()),
    (spark.TimestampType, pa.timestamp("us", "UTC")),
    (spark.TimestampNTZType, pa.timestamp("us")),
    (spark.DayTimeIntervalType, pa.duration("us")),
    (spark.NullType, pa.null()),
]


def to_arrow(kind: spark.DataType) -> pa.DataType:
    """Return the Arrow type of a Spark column."""
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark.ArrayType):
        return pa.list_(pa.field("element", to_arrow(kind.elementType), kind.containsNull))
    if isinstance(kind, spark.MapType):
        return pa.map_(to_arrow(kind.keyType), to_arrow(kind.valueType))
    if isinstance(kind, spark.StructType):
        return pa.struct([pa.field(f.name, to_arrow(f.dataType), f.nullable) for f in kind])
    for ours, arrow in _SIMPLE:
        if isinstance(kind, ours):
            return arrow
    raise EventError(
        f"columns of the Spark type {kind.simpleString()} are not supported\n"
        "  hint: cast the column, or leave it out with df.drop(...)"
    )


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """Return the Arrow schema of a DataFrame."""
    return pa.schema([pa.field(f.name, to_arrow(f.dataType), f.nullable) for f in schema])


def from_arrow(kind: pa.DataType) -> spark.DataType:
    """Return the Spark type of a result column."""
    if pa.types.is_decimal(kind):
        return spark.DecimalType(kind.precision, kind.scale)
    if pa.types.is_map(kind):
        return spark.MapType(from_arrow(kind.key_type), from_arrow(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return spark.ArrayType(from_arrow(kind.value_type))
    if pa.types.is_struct(kind):
        return spark.StructType([spark.StructField(f.name, from_arrow(f.type)) for f in kind])
    if pa.types.is_timestamp(kind):
        return spark.TimestampType() if kind.tz else spark.TimestampNTZType()
    for ours, arrow in _SIMPLE:
        if kind == arrow:
            return spark.DayTimeIntervalType() if pa.types.is_duration(kind) else ours()
    raise EventError(f"a result column of type {kind} has no Spark type")


def spark_schema(schema: pa.Schema) -> spark.StructType:
    """Return the Spark schema of a result."""
    return spark.StructType([spark.StructField(f.name, from_arrow(f.type)) for f in schema])


def get_session_zone(session: SparkSession) -> str:
    """Return the time zone of a session's TIMESTAMP columns, such as Europe/Zurich."""
    return str(session.conf.get("spark.sql.session.timeZone"))
