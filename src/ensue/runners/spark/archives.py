"""DataFrames as archives, in batch: their rows come to the tasks that have the live events."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from ensue.archives.contract import Archive, Layout, Read, Wanted
from ensue.archives.tables import TableArchive
from ensue.brief_errors import brief_task
from ensue.columns.arrow_kinds import kind_of_arrow
from ensue.columns.rows import no_rows
from ensue.columns.stream import Shape
from ensue.errors import EventError
from ensue.own_frames import outside
from ensue.plan.limits import size_text
from ensue.runners.spark.frames import WholeStreamWarning, quoted
from ensue.runners.spark.types import arrow_schema as _arrow_schema
from ensue.runners.spark.types import spark_schema
from ensue.schema import Kind
from ensue.workload.chain import Chain
from ensue.workload.stage import ARRIVAL, LooksBack

LARGE = 64 << 20  # bytes of a table in memory that every task is sent
MOST = 1 << 30
_LIVE, _PAST, _KEY = "__live", "__past", "__key"


class LargeArchiveWarning(UserWarning):
    """A table in memory that every task of Spark gets a copy of."""


@dataclass(frozen=True, eq=False)
class FrameArchive:
    """A batch DataFrame of past events. It is split as the live events are, never read alone."""

    frame: DataFrame
    shape: Shape
    key: tuple[str, ...] = ()
    complete: object | None = None

    def pinned(self) -> "FrameArchive":
        """Itself: what it reads, Spark says when it is computed."""
        return self

    def described(self) -> dict[str, object]:
        """Its columns; what it holds is not known before it is computed."""
        schema = self.shape.schema
        return {
            "kind": "frame",
            "place": "DataFrame",
            "version": None,
            "time": [schema.start, schema.end],
            "type": schema.type_column,
            "key": list(self.key),
            "order": list(schema.order),
        }

    def layout(self) -> Layout:
        """How far it reaches: one pass over its times."""
        schema = self.shape.schema
        start, end = (sql.col(quoted(name)) for name in (schema.start, schema.end))
        found = self.frame.agg(
            sql.min(start).alias("since"), sql.max(end).alias("until"), sql.count(end).alias("n")
        ).toArrow()
        return Layout(
            kind="frame",
            place="DataFrame",
            version=None,
            rows=found.column("n")[0].as_py(),
            files=0,
            bytes=None,
            since=found.column("since")[0].as_py(),
            until=found.column("until")[0].as_py(),
        )

    def read(self, wanted: Wanted) -> Read:  # noqa: ARG002
        raise EventError(
            "a DataFrame can only be an archive for batch DataFrames of events\n"
            "  hint: pass the path of its table, or frame.toArrow() if it is small"
        )


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The columns of a DataFrame as Arrow has them."""
    if frame.isStreaming:
        raise EventError(
            "a stream cannot be an archive: its events are not there yet\n"
            "  hint: read its table with spark.read, or pass the table's path"
        )
    return _arrow_schema(frame.schema)


def frame_archive(
    frame: DataFrame, shape: Shape, key: tuple[str, ...], complete: object | None
) -> FrameArchive:
    """A DataFrame as an archive."""
    return FrameArchive(frame, shape, key, complete)


def archives_of(chain: Chain) -> Mapping[str, Archive]:
    """Those that the first stage of a chain looks things up in."""
    stage = chain.stages[0]
    return stage.archives if isinstance(stage, LooksBack) else {}


def refuse_frames(chain: Chain) -> None:
    """A stream has no use for an archive that is a DataFrame."""
    for name, archive in archives_of(chain).items():
        if isinstance(archive, FrameArchive):
            raise EventError(
                f"the archive '{name}' is a DataFrame, which a stream cannot use for lookups\n"
                "  hint: pass the path of its table: ensue.archive(path, ...)"
            )


def refuse_large(chain: Chain) -> None:
    """What is in the memory of this process goes to every task: it must not be too much."""
    for name, archive in archives_of(chain).items():
        if not isinstance(archive, TableArchive) or archive.events.nbytes <= LARGE:
            continue
        size = size_text(archive.events.nbytes)
        hint = "pass a DataFrame or the path of a table: tasks read what they need from it"
        if archive.events.nbytes > MOST:
            raise EventError(
                f"the archive '{name}' is a table in memory of {size}, too large to send to every "
                f"Spark task\n  hint: {hint}"
            )
        warnings.warn(
            f"the archive '{name}' is a table in memory of {size}, which every task of Spark is "
            f"sent\n  hint: {hint}",
            LargeArchiveWarning,
            stacklevel=outside(),
        )


# ------------------------------------------------------------------------------ side by side


@dataclass(frozen=True)
class SideBySide:
    """Live events and the rows of DataFrames that are archives, brought together by key."""

    chain: Chain  # with empty archives in the place of the DataFrames
    frames: Mapping[str, FrameArchive]

    @classmethod
    def of(cls, chain: Chain) -> "SideBySide | None":
        """None: no archive of the chain is a DataFrame."""
        frames = {n: a for n, a in archives_of(chain).items() if isinstance(a, FrameArchive)}
        if not frames:
            return None
        empty = {
            name: TableArchive(no_rows(one.shape.arrow), one.shape, one.key, one.complete)
            for name, one in frames.items()
        }
        return cls(chain.with_archives(0, empty), frames)

    @property
    def key(self) -> tuple[str, ...]:
        """The fields by which both sides are split."""
        stage = self.chain.stages[0]
        assert isinstance(stage, LooksBack)
        common = [stage.split_like(name) for name in self.frames]
        return tuple(n for n in stage.reads.key if all(n in fields for fields in common))

    def brought_together(self, live: DataFrame) -> DataFrame:
        """All rows, those of one key in one task: those of each side in a column of its own."""
        key = self.key
        if not key and self.chain.stages[0].reads.key:
            warnings.warn(
                f"the archive '{next(iter(self.frames))}' is a DataFrame that ON does not join by "
                f"the stream's key ({', '.join(self.chain.stages[0].reads.key)}): one task, on "
                "one core, will match all events",
                WholeStreamWarning,
                stacklevel=outside(),
            )
        schema = self.chain.source.arriving([ARRIVAL])
        pieces = [self._columns(live, schema, key, _LIVE)]
        for number, (name, archive) in enumerate(self.frames.items()):
            frame = self._relevant(archive.frame, name, archive)
            frame = frame.withColumn(ARRIVAL, sql.monotonically_increasing_id())
            arriving = archive.shape.arrow.append(pa.field(ARRIVAL, pa.int64()))
            pieces.append(self._columns(frame, arriving, key, f"{_PAST}{number}"))
        whole = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), pieces)
        keys = [sql.col(f"{_KEY}{number}") for number in range(len(key))]
        return whole.repartition(*keys) if keys else whole.repartition(1)

    def _relevant(self, frame: DataFrame, name: str, archive: FrameArchive) -> DataFrame:
        stage, column = self.chain.stages[0], archive.shape.schema.type_column
        assert isinstance(stage, LooksBack)
        types = stage.archived_types(name)
        if types is not None and column is not None:
            frame = frame.filter(sql.col(quoted(column)).isin(sorted(types)))
        for field in self.key:
            frame = frame.filter(sql.col(quoted(field)).isNotNull())  # NULL equals nothing
        return frame

    def _columns(
        self, frame: DataFrame, schema: pa.Schema, key: tuple[str, ...], side: str
    ) -> DataFrame:
        whole = sql.struct(*(sql.col(quoted(name)) for name in schema.names)).alias(side)
        keys = [self._hashed(name).alias(f"{_KEY}{number}") for number, name in enumerate(key)]
        return frame.select(whole, *keys)

    def _hashed(self, name: str) -> Column:
        """A key as the live events have it: what is equal has one hash."""
        live = self.chain.source.arrow.field(name)
        (field,) = spark_schema(pa.schema([live]))
        column = sql.col(quoted(name)).try_cast(field.dataType)
        return column + sql.lit(0.0) if kind_of_arrow(live.type) is Kind.FLOAT else column


@dataclass(frozen=True)
class Apart:
    """In a task: the rows of archives become tables, the others go to the matcher."""

    matched: Any  # a callable with a chain, as `batch.Only`
    frames: tuple[tuple[str, Shape, tuple[str, ...]], ...]

    @classmethod
    def of(cls, both: SideBySide, matched: "Callable[[Chain], Any]") -> "Apart":
        frames = tuple((name, one.shape, one.key) for name, one in both.frames.items())
        return cls(matched(both.chain), frames)

    @brief_task
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        live: list[pa.RecordBatch] = []
        past: list[list[pa.RecordBatch]] = [[] for _ in self.frames]
        for batch in batches:
            live += _rows(batch, _LIVE)
            for number, kept in enumerate(past):
                kept += _rows(batch, f"{_PAST}{number}")
        if not live:
            return
        archives = {
            name: _table(kept, shape, key)
            for (name, shape, key), kept in zip(self.frames, past, strict=True)
        }
        chain = self.matched.chain.with_archives(0, archives)
        yield from replace(self.matched, chain=chain)(iter(live))


def _rows(batch: pa.RecordBatch, side: str) -> Iterator[pa.RecordBatch]:
    column = batch.column(side)
    kept = column.drop_null()
    if len(kept):
        yield pa.RecordBatch.from_struct_array(kept)


def _table(batches: list[pa.RecordBatch], shape: Shape, key: tuple[str, ...]) -> TableArchive:
    schema = shape.arrow.append(pa.field(ARRIVAL, pa.int64()))
    whole = pa.Table.from_batches(batches).cast(schema) if batches else no_rows(schema)
    whole = whole.sort_by(ARRIVAL).drop_columns([ARRIVAL])
    return TableArchive.of(whole, shape, key, None)
