"""Batch DataFrames as archives: their rows are shuffled to the tasks of the live events."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from ensue.archives.archive import Archive, ArchiveLayout, ArchiveRead, ArchiveRows, ReadOnlyArchive, describe_archive
from ensue.archives.memory_archive import TableArchive
from ensue.backends.spark.frames import WholeStreamWarning, get_column, spark_schema
from ensue.backends.spark.frames import arrow_schema as _arrow_schema
from ensue.brief_tracebacks import shorten_task_tracebacks
from ensue.errors import EventError
from ensue.options import format_size
from ensue.runtime.pipeline import PipelinePlan
from ensue.runtime.stage import ARRIVAL, ArchiveReadingStage
from ensue.schema import ValueKind
from ensue.traceback_filter import find_stacklevel
from ensue.vector.arrow_types import kind_of_arrow
from ensue.vector.event_table import StreamSchema
from ensue.vector.take import create_empty_table

WARNING_BYTES = 64 << 20  # bytes of a table in memory that is sent to every task
MAX_BYTES = 1 << 30
_LIVE, _PAST, _KEY = "__live", "__past", "__key"


class LargeArchiveWarning(UserWarning):
    """A large table in memory is sent to every Spark task."""


@dataclass(frozen=True, eq=False)
class FrameArchive(ReadOnlyArchive):
    """A batch DataFrame of past events, which is partitioned like the live events."""

    frame: DataFrame
    shape: StreamSchema
    key: tuple[str, ...] = ()
    complete: object | None = None

    def describe(self) -> dict[str, object]:
        """Describe its columns; its content is unknown before it is computed."""
        return describe_archive(self, "frame", "DataFrame", None)

    def layout(self) -> ArchiveLayout:
        """Compute its time range in one pass."""
        schema = self.shape.schema
        start, end = (get_column(name) for name in (schema.start, schema.end))
        range_row = self.frame.agg(
            sql.min(start).alias("since"), sql.max(end).alias("until"), sql.count(end).alias("n")
        ).toArrow()
        return ArchiveLayout(
            kind="frame",
            place="DataFrame",
            version=None,
            rows=range_row.column("n")[0].as_py(),
            files=0,
            bytes=None,
            since=range_row.column("since")[0].as_py(),
            until=range_row.column("until")[0].as_py(),
        )

    def read(self, request: ArchiveRead) -> ArchiveRows:  # noqa: ARG002
        raise EventError(
            "a DataFrame can only be an archive for batch DataFrames of events\n"
            "  hint: pass the path of its table, or frame.toArrow() if it is small"
        )


def arrow_schema(frame: DataFrame) -> pa.Schema:
    if frame.isStreaming:
        raise EventError(
            "a stream cannot be an archive: its events have not arrived yet\n"
            "  hint: read its table with spark.read, or pass the table's path"
        )
    return _arrow_schema(frame.schema)


frame_archive = FrameArchive  # as `archives.factory` calls it


def get_archives(chain: PipelinePlan) -> Mapping[str, Archive]:
    """Return the archives that the first stage of a chain joins."""
    stage = chain.stages[0]
    return stage.archives if isinstance(stage, ArchiveReadingStage) else {}


def reject_dataframe_archives(chain: PipelinePlan) -> None:
    for name, archive in get_archives(chain).items():
        if isinstance(archive, FrameArchive):
            raise EventError(
                f"the archive '{name}' is a DataFrame, which a stream cannot use for lookups\n"
                "  hint: pass the path of its table: ensue.archive(path, ...)"
            )


def reject_large_tables(chain: PipelinePlan) -> None:
    """Warn of, or reject, large tables in memory that would be sent to every task."""
    for name, archive in get_archives(chain).items():
        if not isinstance(archive, TableArchive) or archive.events.nbytes <= WARNING_BYTES:
            continue
        size = format_size(archive.events.nbytes)
        hint = "pass a DataFrame or the path of a table: tasks read what they need from it"
        if archive.events.nbytes > MAX_BYTES:
            raise EventError(
                f"the archive '{name}' is a table in memory of {size}, too large to send to every "
                f"Spark task\n  hint: {hint}"
            )
        warnings.warn(
            f"the archive '{name}' is a table in memory of {size}, which is sent to every Spark task\n  hint: {hint}",
            LargeArchiveWarning,
            stacklevel=find_stacklevel(),
        )


# ------------------------------------------------------------------------------ co-partitioning


@dataclass(frozen=True)
class CoPartitioning:
    """Shuffles live events and the rows of DataFrame archives by the same key."""

    chain: PipelinePlan  # with empty archives instead of the DataFrames
    frames: Mapping[str, FrameArchive]

    @classmethod
    def from_pipeline(cls, chain: PipelinePlan) -> "CoPartitioning | None":
        """Return None if no archive of the chain is a DataFrame."""
        frames = {n: a for n, a in get_archives(chain).items() if isinstance(a, FrameArchive)}
        if not frames:
            return None
        empty = {
            name: TableArchive(create_empty_table(archive.shape.arrow), archive.shape, archive.key, archive.complete)
            for name, archive in frames.items()
        }
        return cls(chain.with_archives(0, empty), frames)

    @property
    def key(self) -> tuple[str, ...]:
        """The fields by which both sides are partitioned."""
        stage = self.chain.stages[0]
        assert isinstance(stage, ArchiveReadingStage)
        common = [stage.split_like(name) for name in self.frames]
        return tuple(n for n in stage.reads.key if all(n in fields for fields in common))

    def shuffle(self, live: DataFrame) -> DataFrame:
        """Union and shuffle all rows by key, with one struct column for each side."""
        key = self.key
        if not key and self.chain.stages[0].reads.key:
            warnings.warn(
                f"the archive '{next(iter(self.frames))}' is a DataFrame that ON does not join by "
                f"the stream's key ({', '.join(self.chain.stages[0].reads.key)}): one task, on "
                "one core, will match all events",
                WholeStreamWarning,
                stacklevel=find_stacklevel(),
            )
        schema = self.chain.source.get_arrival_schema([ARRIVAL])
        pieces = [self._columns(live, schema, key, _LIVE)]
        for number, (name, archive) in enumerate(self.frames.items()):
            frame = self._relevant(archive.frame, name, archive)
            frame = frame.withColumn(ARRIVAL, sql.monotonically_increasing_id())
            arriving = archive.shape.arrow.append(pa.field(ARRIVAL, pa.int64()))
            pieces.append(self._columns(frame, arriving, key, f"{_PAST}{number}"))
        union = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), pieces)
        keys = [sql.col(f"{_KEY}{number}") for number in range(len(key))]
        return union.repartition(*keys) if keys else union.repartition(1)

    def _relevant(self, frame: DataFrame, name: str, archive: FrameArchive) -> DataFrame:
        stage, column = self.chain.stages[0], archive.shape.schema.type_column
        assert isinstance(stage, ArchiveReadingStage)
        types = stage.archived_types(name)
        if types is not None and column is not None:
            frame = frame.filter(get_column(column).isin(sorted(types)))
        for field in self.key:
            frame = frame.filter(get_column(field).isNotNull())  # NULL equals nothing
        return frame

    def _columns(self, frame: DataFrame, schema: pa.Schema, key: tuple[str, ...], side: str) -> DataFrame:
        row = sql.struct(*(get_column(name) for name in schema.names)).alias(side)
        keys = [self._hash_key(name).alias(f"{_KEY}{number}") for number, name in enumerate(key)]
        return frame.select(row, *keys)

    def _hash_key(self, name: str) -> Column:
        """Cast a key to the type of the live events, with equal hashes for equal values."""
        live = self.chain.source.arrow.field(name)
        (field,) = spark_schema(pa.schema([live]))
        column = get_column(name).try_cast(field.dataType)
        return column + sql.lit(0.0) if kind_of_arrow(live.type) is ValueKind.FLOAT else column


@dataclass(frozen=True)
class SplitArchives:
    """Splits the input of a task into archive tables and the live events of the matcher."""

    matched: Any  # a callable with a chain, as `batch.Only`
    frames: tuple[tuple[str, StreamSchema, tuple[str, ...]], ...]

    @classmethod
    def split(cls, both: CoPartitioning, matched: "Callable[[PipelinePlan], Any]") -> "SplitArchives":
        frames = tuple((name, archive.shape, archive.key) for name, archive in both.frames.items())
        return cls(matched(both.chain), frames)

    @shorten_task_tracebacks
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        live: list[pa.RecordBatch] = []
        past: list[list[pa.RecordBatch]] = [[] for _ in self.frames]
        for batch in batches:
            live += _rows(batch, _LIVE)
            for number, batches_of_archive in enumerate(past):
                batches_of_archive += _rows(batch, f"{_PAST}{number}")
        if not live:
            return
        archives = {
            name: _table(batches_of_archive, shape, key)
            for (name, shape, key), batches_of_archive in zip(self.frames, past, strict=True)
        }
        chain = self.matched.chain.with_archives(0, archives)
        yield from replace(self.matched, chain=chain)(iter(live))


def _rows(batch: pa.RecordBatch, side: str) -> Iterator[pa.RecordBatch]:
    column = batch.column(side)
    rows = column.drop_null()
    if len(rows):
        yield pa.RecordBatch.from_struct_array(rows)


def _table(batches: list[pa.RecordBatch], shape: StreamSchema, key: tuple[str, ...]) -> TableArchive:
    schema = shape.arrow.append(pa.field(ARRIVAL, pa.int64()))
    table = pa.Table.from_batches(batches).cast(schema) if batches else create_empty_table(schema)
    table = table.sort_by(ARRIVAL).drop_columns([ARRIVAL])
    return TableArchive.from_table(table, shape, key, None)
