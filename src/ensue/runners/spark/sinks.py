"""Where matches go. Each sink is a function of a micro-batch, and may be called twice with one."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import (
    DateType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ensue.errors import EventError
from ensue.extras import needed
from ensue.runners.spark.frames import quoted
from ensue.runners.spark.paths import literal, place
from ensue.runners.spark.tables import parquet_columns, require_same

Sink = Callable[[DataFrame, int], object]
_ROW_OF_MATCH = ("variable", "position")  # where a row is an event: which of its match
MICROSECONDS = {  # in JSON, where Spark writes milliseconds by default
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}

# Kinds of `end` whose values survive the way through a text.
_ORDERED = (TimestampType, TimestampNTZType, DateType, NumericType, StringType)
_NOT_OF_DELTA = re.compile(r"\\|%[0-9A-Fa-f]{2}|[\x00-\x1f\x7f]")  # it reads another path

# A task's file goes to the table when the task is done. With Spark's own default it waits in a
# folder aside for the others, where the next writer takes what a killed one has left for its own.
_DIRECT = {"mapreduce.fileoutputcommitter.algorithm.version": "2"}


@dataclass
class ParquetTable:
    """A folder of Parquet files to which matches are appended, each match once.

    A match that is there already is known by its `match_id` and left out: after a crash, or when
    the stream is run again with a new checkpoint. Only matches that end no later than the last one
    found at the start can be there, so others are appended without looking.
    """

    path: str
    _last_batch: int | None = field(default=None, repr=False)
    _doubtful: Column | None = field(default=None, repr=False)  # may be there; None: no table yet

    def __post_init__(self) -> None:
        literal(self.path)  # raises where Spark could write, but not look up what is there

    def __call__(self, matches: DataFrame, batch: int) -> None:
        matches = matches.persist()
        try:
            if self._last_batch is None or batch <= self._last_batch:
                table = self._table(matches)
                self._doubtful = None if table is None else _within(table, sql.max)
            self._last_batch = batch
            new = matches if self._doubtful is None else self._without_known(matches)
            if not new.isEmpty():
                new.write.mode("append").options(**_DIRECT).parquet(place(self.path))
        finally:
            matches.unpersist()

    def fit(self, session: SparkSession, columns: StructType) -> None:
        """Raises a RunnerError if the table is none, or has other columns."""
        require_same(self.path, parquet_columns(session, self.path), columns)

    def _without_known(self, matches: DataFrame) -> DataFrame:
        assert self._doubtful is not None
        maybe = matches.filter(self._doubtful)
        table = self._table(matches)
        if table is None or maybe.isEmpty():
            return matches
        named = identity(matches)
        known = table.filter(_within(maybe, sql.min)).select(*named).alias("known")
        same = reduce(
            lambda left, right: left & right,
            (sql.col(f"new.{n}").eqNullSafe(sql.col(f"known.{n}")) for n in named),
        )
        new = matches.alias("new").join(known, same, "left_anti")
        return new.select(*map(quoted, matches.columns))

    def _table(self, matches: DataFrame) -> DataFrame | None:
        try:
            reader = matches.sparkSession.read.schema(matches.schema)
            table = reader.parquet(literal(self.path))
            _ = table.columns  # Spark Connect looks at the path only when it is asked something
            return table
        except AnalysisException as error:
            if error.getCondition() == "PATH_NOT_FOUND":
                return None
            raise


def identity(matches: DataFrame) -> tuple[str, ...]:
    """The columns that tell rows apart: the id of the match, and of RETURN ALL EVENTS the place
    of the event in it.

    Other queries may have columns of these names: the same match has the same values in them.
    """
    names = matches.columns
    return ("match_id", "position") if {*_ROW_OF_MATCH} <= {*names} else ("match_id",)


def _within(matches: DataFrame, bound: Callable[[str], Column]) -> Column:
    """Whether a match ends no later than the last of these (`max`) or no earlier than the first.

    The bound does not become a datetime of Python, which would confuse the two hours that have
    one name when summer time ends. RETURN may put something in the place of `end` that is NULL,
    or that has no order: then any match may be among them.
    """
    kind = next((f.dataType for f in matches.schema if f.name == "end"), None)
    if not isinstance(kind, _ORDERED):
        return sql.lit(True)
    end = sql.col("end")
    instants = isinstance(kind, TimestampType)
    found = sql.unix_micros(bound("end")) if instants else bound("end").cast("string")
    value = matches.agg(found).first()[0]  # type: ignore[index]
    if value is None:
        return end.isNull()
    limit = sql.timestamp_micros(sql.lit(value)) if instants else sql.lit(value).cast(kind)
    return end.isNull() | (end <= limit if bound is sql.max else end >= limit)


@dataclass(frozen=True)
class DeltaTable:
    """A Delta table, written without a JVM by the `deltalake` package, each match once."""

    path: str
    storage_options: dict[str, str] | None = None

    def __post_init__(self) -> None:
        if odd := _NOT_OF_DELTA.search(place(self.path)):
            raise EventError(
                f"a Delta table cannot have {odd[0]!r} in its path: {self.path}\n"
                "  hint: name another folder, or use a Parquet table"
            )

    def fit(self, session: SparkSession, columns: StructType) -> None:  # noqa: ARG002
        """Raises a RunnerError if the table has other columns."""
        deltalake = _deltalake()
        if deltalake.DeltaTable.is_deltatable(self.path, self.storage_options):
            table = deltalake.DeltaTable(self.path, storage_options=self.storage_options)
            # Delta describes columns as Spark does
            known = StructType.fromJson(json.loads(table.schema().to_json()))
            require_same(self.path, known, columns)

    def __call__(self, matches: DataFrame, batch: int) -> None:  # noqa: ARG002
        deltalake = _deltalake()
        table = matches.toArrow()
        if not deltalake.DeltaTable.is_deltatable(self.path, self.storage_options):
            # creating it and filling it are two commits: a crash between them loses nothing
            deltalake.DeltaTable.create(
                self.path, table.schema, mode="ignore", storage_options=self.storage_options
            )
        if not table.num_rows:
            return
        known = deltalake.DeltaTable(self.path, storage_options=self.storage_options)
        (
            known.merge(
                table,
                predicate=" AND ".join(_same(name) for name in identity(matches)),
                source_alias="source",
                target_alias="target",
            )
            .when_not_matched_insert_all()
            .execute()
        )


def _same(name: str) -> str:
    target, source = f"target.{name}", f"source.{name}"
    return f"({target} = {source} OR ({target} IS NULL AND {source} IS NULL))"


def _deltalake() -> Any:
    with needed("a Delta table", "delta"):
        import deltalake
    return deltalake


@dataclass(frozen=True)
class KafkaTopic:
    """A Kafka topic: the key is the match's id, the value the match as JSON.

    A row of RETURN ALL EVENTS has the place of its event in the key, too: `id/1`.

    Kafka gets a match at least once; whoever reads can drop repetitions by the key.
    """

    servers: str
    topic: str
    options: dict[str, str] = field(default_factory=dict)

    def messages(self, matches: DataFrame) -> DataFrame:
        """Matches as keys and values."""
        key: Column = sql.lit(None)
        if "match_id" in matches.columns:
            key = sql.concat_ws("/", *(sql.col(name) for name in identity(matches)))
        return matches.select(
            key.cast("string").alias("key"),
            sql.to_json(sql.struct("*"), MICROSECONDS).alias("value"),
        )

    def __call__(self, matches: DataFrame, batch: int) -> None:  # noqa: ARG002
        writer = (
            self.messages(matches)
            .write.format("kafka")
            .option("kafka.bootstrap.servers", self.servers)
        )
        writer.options(**self.options).option("topic", self.topic).save()


@dataclass(frozen=True)
class ParquetBatches:
    """A folder of Parquet files by micro-batch: one that is repeated replaces itself.

    For rows without an id, such as late events.
    """

    path: str

    def __call__(self, rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(f"{place(self.path)}/batch={batch}")


THOROUGH = (ParquetTable, DeltaTable, KafkaTopic, ParquetBatches)  # they ask for every row once
