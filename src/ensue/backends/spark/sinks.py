"""Sinks of matches: functions of a micro-batch, which may be called twice with the same one."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from types import MappingProxyType
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import DateType, NumericType, StringType, StructType, TimestampNTZType, TimestampType

from ensue.archives.delta_writer import commit
from ensue.archives.file_archive import FileArchive
from ensue.archives.parquet_writer import AddedFile, remove_files
from ensue.backends.spark.frames import quote_name
from ensue.backends.spark.match_frames import SeveralMatches
from ensue.backends.spark.spark_errors import get_condition, get_error_types, translate_error
from ensue.backends.spark.stream_folders import escape_path, get_local_folder, normalize_path
from ensue.errors import EventError, RunnerError
from ensue.optional_deps import require_extra
from ensue.runtime.query_spec import Name
from ensue.runtime.tasks.wire_format import Control

_NO_TABLE_YET = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
_SHOWN = 5  # columns listed in an error


def read_parquet_columns(session: SparkSession, path: str) -> StructType | None:
    """Read the columns of a folder of Parquet files; None if it has no files yet."""
    folder = get_local_folder(session, path)
    if folder is not None and folder.is_file():
        raise RunnerError(f"the output {path} is a file\n  hint: name a folder")
    if folder is not None and (folder / "_spark_metadata").exists():
        raise RunnerError(
            f"the output {path} was written by one of Spark's own file sinks: readers "
            "only see the files in its _spark_metadata\n"
            "  hint: name another folder, or remove _spark_metadata to include all files"
        )
    if folder is not None and (folder / "_delta_log").exists():
        raise RunnerError(
            f"the output {path} is a Delta table\n"
            f"  hint: ensue.delta_table({path!r}), on the command line --output delta:{path}"
        )
    try:
        return session.read.parquet(escape_path(path)).schema
    except get_error_types() as error:
        if get_condition(error) in _NO_TABLE_YET:
            return None
        raise RunnerError(
            f"the output {path} cannot be read as a table: {translate_error(error)}\n"
            "  hint: matches are added to the Parquet files there; remove other "
            "files, or name another folder"
        ) from None


def require_same_columns(path: str, table_columns: StructType | None, match_columns: StructType) -> None:
    """Raise RunnerError unless a table has the columns of the matches."""
    if table_columns is None:
        return
    before = {f.name: f.dataType.simpleString() for f in table_columns}
    now = {f.name: f.dataType.simpleString() for f in match_columns}
    if before == now:
        return
    differing = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    lines = [
        f"  {name}: there {before.get(name, 'missing')}, here {now.get(name, 'missing')}" for name in differing[:_SHOWN]
    ]
    if len(differing) > _SHOWN:
        lines.append(f"  and {len(differing) - _SHOWN} more")
    raise RunnerError(
        f"the table {path} has other columns than these matches:\n"
        + "\n".join(lines)
        + "\n  hint: the query or the columns of its events have changed since it was written; "
        "name another output"
    )


Sink = Callable[[DataFrame, int], object]
BatchStep = Callable[[DataFrame, int], None]  # processes a micro-batch and its number
_ROW_OF_MATCH = ("variable", "position")  # columns of RETURN ALL EVENTS, with a row for each event
MICROSECONDS = {  # in JSON, where Spark writes milliseconds by default
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}

# Types of `end` whose values can be converted to text and back.
_ORDERED = (TimestampType, TimestampNTZType, DateType, NumericType, StringType)
_NOT_OF_DELTA = re.compile(r"\\|%[0-9A-Fa-f]{2}|[\x00-\x1f\x7f]")  # Delta would use another path

# Commits the file of a task when the task ends. By default it waits in a temporary folder for the
# other tasks, where the next writer would also commit the files of a killed one.
_DIRECT = {"mapreduce.fileoutputcommitter.algorithm.version": "2"}


@dataclass
class ParquetTable:
    """A folder of Parquet files to which matches are appended, each match once.

    A match that is in the table already is recognized by its `match_id` and skipped: after a
    crash, or when the stream runs again with a new checkpoint. Only matches that end no later than
    the last one at the start can be in it, so others are appended without a lookup.
    """

    path: str
    _last_batch: int | None = field(default=None, repr=False)
    # the condition for matches that may be in the table; None: no table yet
    _doubtful: Column | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        escape_path(self.path)  # raises if Spark could write the table but not read it

    def __call__(self, matches: DataFrame, batch: int) -> None:
        matches = matches.persist()
        try:
            if self._last_batch is None or batch <= self._last_batch:
                table = self._table(matches)
                self._doubtful = None if table is None else _within(table, sql.max)
            self._last_batch = batch
            new = matches if self._doubtful is None else self._drop_known(matches)
            if not new.isEmpty():
                new.write.mode("append").options(**_DIRECT).parquet(normalize_path(self.path))
        finally:
            matches.unpersist()

    def fit(self, session: SparkSession, columns: StructType) -> None:
        """Raise RunnerError if the folder is not a table, or has other columns."""
        require_same_columns(self.path, read_parquet_columns(session, self.path), columns)

    def _drop_known(self, matches: DataFrame) -> DataFrame:
        assert self._doubtful is not None
        maybe = matches.filter(self._doubtful)
        table = self._table(matches)
        if table is None or maybe.isEmpty():
            return matches
        named = get_identity_columns(matches)
        known = table.filter(_within(maybe, sql.min)).select(*named).alias("known")
        same = reduce(
            lambda left, right: left & right, (sql.col(f"new.{n}").eqNullSafe(sql.col(f"known.{n}")) for n in named)
        )
        new = matches.alias("new").join(known, same, "left_anti")
        return new.select(*map(quote_name, matches.columns))

    def _table(self, matches: DataFrame) -> DataFrame | None:
        try:
            reader = matches.sparkSession.read.schema(matches.schema)
            table = reader.parquet(escape_path(self.path))
            _ = table.columns  # Spark Connect resolves the path lazily
            return table
        except AnalysisException as error:
            if error.getCondition() == "PATH_NOT_FOUND":
                return None
            raise


def get_identity_columns(matches: DataFrame) -> tuple[str, ...]:
    """Return the columns that identify a row: the match id, and for RETURN ALL EVENTS the
    position of the event.

    Other queries may have columns of these names, with the same values for the same match.
    """
    names = matches.columns
    return ("match_id", "position") if {*_ROW_OF_MATCH} <= {*names} else ("match_id",)


def _within(matches: DataFrame, bound: Callable[[str], Column]) -> Column:
    """Return the condition for matches that end no later than the last of these (`max`), or no
    earlier than the first.

    The bound is not converted to a Python datetime, which is ambiguous when summer time ends.
    RETURN may define an `end` that is NULL or has no order: then any match qualifies.
    """
    kind = next((f.dataType for f in matches.schema if f.name == "end"), None)
    if not isinstance(kind, _ORDERED):
        return sql.lit(True)
    end = sql.col("end")
    instants = isinstance(kind, TimestampType)
    bound_value = sql.unix_micros(bound("end")) if instants else bound("end").cast("string")
    value = matches.agg(bound_value).first()[0]  # type: ignore[index]
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
        if odd := _NOT_OF_DELTA.search(normalize_path(self.path)):
            raise EventError(
                f"a Delta table cannot have {odd[0]!r} in its path: {self.path}\n"
                "  hint: name another folder, or use a Parquet table"
            )

    def fit(self, session: SparkSession, columns: StructType) -> None:  # noqa: ARG002
        """Raise RunnerError if the table has other columns."""
        deltalake = _deltalake()
        if deltalake.DeltaTable.is_deltatable(self.path, self.storage_options):
            table = deltalake.DeltaTable(self.path, storage_options=self.storage_options)
            # Delta uses the JSON schema of Spark
            known = StructType.fromJson(json.loads(table.schema().to_json()))
            require_same_columns(self.path, known, columns)

    def __call__(self, matches: DataFrame, batch: int) -> None:  # noqa: ARG002
        deltalake = _deltalake()
        table = matches.toArrow()
        if not deltalake.DeltaTable.is_deltatable(self.path, self.storage_options):
            # two commits, create and insert: a crash between them loses nothing
            deltalake.DeltaTable.create(self.path, table.schema, mode="ignore", storage_options=self.storage_options)
        if not table.num_rows:
            return
        known = deltalake.DeltaTable(self.path, storage_options=self.storage_options)
        same = " AND ".join(
            f"(target.{n} = source.{n} OR (target.{n} IS NULL AND source.{n} IS NULL))"
            for n in get_identity_columns(matches)
        )
        merge = known.merge(table, predicate=same, source_alias="source", target_alias="target")
        merge.when_not_matched_insert_all().execute()


def _deltalake() -> Any:
    with require_extra("a Delta table", "delta"):
        import deltalake
    return deltalake


@dataclass(frozen=True)
class KafkaTopic:
    """A Kafka topic: the key is the match's id, the value the match as JSON.

    The key of a RETURN ALL EVENTS row includes the position of the event: `id/1`.

    Delivery is at least once; consumers can deduplicate by the key.
    """

    servers: str
    topic: str
    options: dict[str, str] = field(default_factory=dict)

    def messages(self, matches: DataFrame) -> DataFrame:
        key: Column = sql.lit(None)
        if "match_id" in matches.columns:
            key = sql.concat_ws("/", *(sql.col(name) for name in get_identity_columns(matches)))
        return matches.select(
            key.cast("string").alias("key"), sql.to_json(sql.struct("*"), MICROSECONDS).alias("value")
        )

    def __call__(self, matches: DataFrame, batch: int) -> None:  # noqa: ARG002
        writer = self.messages(matches).write.format("kafka").option("kafka.bootstrap.servers", self.servers)
        writer.options(**self.options).option("topic", self.topic).save()


@dataclass(frozen=True)
class ParquetBatches:
    """A folder of Parquet files by micro-batch; a repeated micro-batch replaces its files.

    For rows without an id, such as late events.
    """

    path: str

    def __call__(self, rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(f"{normalize_path(self.path)}/batch={batch}")


FULL_SCAN_SINKS = (ParquetTable, DeltaTable, KafkaTopic, ParquetBatches)  # they read every row


# ------------------------------------------------------------------------- several outputs


def make_archive_commit(archive: FileArchive, writer: str) -> BatchStep:
    """Make the step that commits the files of tasks to the archive.

    It is idempotent: an archive transaction has the writer and the number of the micro-batch.
    """

    def commit_files(batch: DataFrame, number: int) -> None:
        rows = batch.filter(sql.col("control") == str(Control.ARCHIVED)).select("matches").collect()
        files = [AddedFile.read(bytes(row[0]).decode()) for row in rows]
        if not commit(archive, files, writer, number):
            remove_files(archive.place, files)  # an earlier attempt has archived the same events

    return commit_files


def make_delivery_by_query(
    outputs: SeveralMatches,
    sinks: Mapping[Name, Sink],
    aside: Sink | None,
    further: Mapping[Control, BatchStep] = MappingProxyType({}),
) -> BatchStep:
    """Make the step that writes the matches of each query to its sink, and late events to `aside`;
    then the `further` steps process other control messages.

    A sink is only called with micro-batches that have matches for it, except for the only sink of
    a stream with `further` steps.
    """

    def deliver(batch: DataFrame, number: int) -> None:
        cached = batch.persist()
        try:
            # reads all rows, so that every task advances
            kinds = sql.coalesce(sql.col("control"), sql.col("query").cast("string"))
            present = {row[0] for row in cached.select(kinds).distinct().collect()}
            if Control.LATE in present and aside is not None:
                aside(outputs.late_events(cached), number)
            for output, name in enumerate(outputs):
                if str(output) in present or (further and len(outputs) == 1):
                    sinks[name](outputs.unpack(cached, name), number)
            for control, step in further.items():
                if control in present:
                    step(cached, number)
        finally:
            cached.unpersist()

    return deliver
