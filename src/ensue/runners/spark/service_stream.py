"""The stream behind a service: files of steps in, files of what they found out.

Folders on a file system that driver, workers and service share are all that the service and Spark
have in common, so the service may sit beside the driver or be a client of Spark Connect.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ensue.errors import EnsueError, RunnerError
from ensue.runners.spark.checkpoint_files import require_sound
from ensue.runners.spark.failure import failed, own_errors
from ensue.runners.spark.lanes import lane_count
from ensue.runners.spark.paths import place
from ensue.runners.spark.places import seen_from_here
from ensue.runners.spark.service_files import (
    FOUND,
    STEPS,
    FoundFiles,
    StepFiles,
    steps_in,
)
from ensue.runners.spark.service_lanes import DEALT, Deal, LaneProcessor, Work
from ensue.runners.spark.session import embedded
from ensue.runners.spark.types import spark_schema

SOURCE = "ensue_steps"
EVERY = "100 milliseconds"  # Spark looks for steps; without a pause it takes a third of a core
_STORE = "spark.sql.streaming.stateStore"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_POSITION = "position"
_ASKED_EVERY = 0.25  # seconds: over Spark Connect it is a request


class Steps(DataSource):
    """Files of steps as a source of a stream. Its offset is the number of a step.

    Spark's own source of files remembers every file that it ever read, and rewrites that list
    again and again; a service has a file for every micro-batch, and runs for years.
    """

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> StructType:
        return spark_schema(STEPS)

    def streamReader(self, schema: StructType) -> "StepReader":  # noqa: ARG002, N802
        return StepReader(Path(self.options["folder"]))


class StepReader(DataSourceStreamReader):
    """Reads the files of a folder. The service leaves the next one when this one is answered."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    # Spark gives these their names and arguments.

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {_POSITION: 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802
        return {_POSITION: StepFiles(self._folder).last}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        pieces = StepFiles(self._folder).between(start[_POSITION], end[_POSITION])
        return [InputPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield steps_in(*partition.value)


@dataclass(frozen=True)
class Leave:
    """Leaves what a micro-batch found for the service."""

    folder: str

    def __call__(self, found: DataFrame, batch: int) -> None:
        FoundFiles(Path(self.folder)).put(batch, found.toArrow())


class ServiceStream:
    """A query that runs."""

    def __init__(self, session: SparkSession, work: Work, folder: Path) -> None:
        self._session = _own(session, work.lanes)
        self._work, self._folder = work, folder
        self._query: Any = None
        self._asked = 0.0  # when it was seen to run

    def start(self) -> None:
        """Goes on from the checkpoint, or begins; one that runs goes on running."""
        checkpoint = place(self._folder / "checkpoint")
        with own_errors("the stream of the service does not start: "):
            if self._query is not None and self._query.isActive:
                return
            require_sound(checkpoint)
            self._session.dataSource.register(Steps)
            reader = self._session.readStream.format(SOURCE)
            steps = reader.option("folder", str(self._folder)).load()
            dealt = steps.mapInArrow(Deal(self._work), spark_schema(DEALT))
            found = dealt.groupBy("lane").transformWithState(
                LaneProcessor(self._work), spark_schema(FOUND), "append", "None"
            )
            writer = found.writeStream.outputMode("append").foreachBatch(Leave(str(self._folder)))
            writer = writer.option("checkpointLocation", checkpoint)
            self._query = writer.trigger(processingTime=EVERY).start()

    def failure(self) -> EnsueError | None:
        """Why it does not run; None: it does."""
        if self._query is None:
            return RunnerError("the stream of the service has not started")
        if time.monotonic() - self._asked < _ASKED_EVERY:
            return None
        with own_errors("the stream of the service cannot be reached: "):
            if self._query.isActive:
                self._asked = time.monotonic()
                return None
            stopped = RunnerError("somebody has stopped the stream of the service")
            return failed(self._query) or stopped

    def stop(self) -> None:
        """Stops it. What it has not finished is done again when it goes on."""
        query, self._query = self._query, None
        if query is not None:
            with own_errors("the stream of the service does not stop: "):
                query.stop()


@dataclass
class OwnSession:
    """A session that was given, or one that is started, and stopped again."""

    given: SparkSession | None
    settings: Mapping[str, str]
    made: SparkSession | None = None

    @classmethod
    def of(cls, given: SparkSession | None, settings: Mapping[str, str]) -> "OwnSession":
        """The session that was given, or that runs already in this process, or a new one."""
        return cls(SparkSession.getActiveSession() if given is None else given, settings)

    def open(self) -> SparkSession:
        """The session. Starting one takes some seconds."""
        if self.given is not None:
            return self.given
        if self.made is None:
            self.made = embedded(self.settings)
        return self.made

    def stream(self, work: Work, folder: Path) -> ServiceStream:
        """The stream of a service that meets it in a folder."""
        return ServiceStream(self.open(), work, folder)

    def tasks(self) -> int:
        """How many tasks run at a time; what it shuffles to, where that is not known."""
        session = self.open()
        if _remote(session):
            return lane_count(session.range(0), None)
        return int(session.sparkContext.defaultParallelism)

    def close(self) -> None:
        """Stops what was started here."""
        session, self.made = self.made, None
        if session is not None:
            with own_errors("Spark does not stop: "):
                session.stop()


def _remote(session: SparkSession) -> bool:
    """Whether it is one of Spark Connect."""
    return seen_from_here(session, "") is None


def _own(session: SparkSession, lanes: int) -> SparkSession:
    """The same session with settings of its own: as many partitions as lanes, and their store.

    With Spark Connect it is the session itself: another one would have to be closed, which is
    more than its public methods can do.
    """
    own = session if _remote(session) else session.newSession()
    own.conf.set("spark.sql.shuffle.partitions", str(lanes))
    own.conf.set(f"{_STORE}.providerClass", _ROCKSDB)
    own.conf.set(f"{_STORE}.rocksdb.changelogCheckpointing.enabled", "true")
    return own
