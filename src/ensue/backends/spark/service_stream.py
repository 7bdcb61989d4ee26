"""The Spark stream of a service: it reads files of steps and writes files of results.

Service and Spark only share folders on a common file system, so the service may run beside the
driver or as a client of Spark Connect.
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

from ensue.backends.spark.arrow_types import spark_schema
from ensue.backends.spark.checkpoint_files import check_checkpoint
from ensue.backends.spark.paths import get_local_folder, normalize_path
from ensue.backends.spark.service_tasks import (
    RESULT_SCHEMA,
    ROUTED_SCHEMA,
    STEP_SCHEMA,
    ResultFiles,
    RouteSteps,
    ServiceProcessor,
    ServiceStreamJob,
    StepFiles,
    read_steps,
)
from ensue.backends.spark.session import get_or_create_session
from ensue.backends.spark.spark_errors import get_stream_failure, translate_errors
from ensue.backends.spark.state_store import get_key_group_count
from ensue.errors import EnsueError, RunnerError

SOURCE = "ensue_steps"
TRIGGER_INTERVAL = "100 milliseconds"  # without one, polling takes a third of a core
_STORE = "spark.sql.streaming.stateStore"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_POSITION = "position"
_CHECK_INTERVAL = 0.25  # seconds: over Spark Connect a check is a request


class StepSource(DataSource):
    """A stream source of step files, whose offset is a step number.

    Spark's file source keeps a growing list of all files, and a long-running service writes one
    for every micro-batch.
    """

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> StructType:
        return spark_schema(STEP_SCHEMA)

    def streamReader(self, schema: StructType) -> "StepReader":  # noqa: ARG002, N802
        return StepReader(Path(self.options["folder"]))


class StepReader(DataSourceStreamReader):
    """Reads the step files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    # Spark prescribes these names and arguments.

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {_POSITION: 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802
        return {_POSITION: StepFiles(self._folder).last}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        pieces = StepFiles(self._folder).between(start[_POSITION], end[_POSITION])
        return [InputPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield read_steps(*partition.value)


@dataclass(frozen=True)
class WriteResults:
    """Writes the results of a micro-batch for the service."""

    folder: str

    def __call__(self, found: DataFrame, batch: int) -> None:
        ResultFiles(Path(self.folder)).put(batch, found.toArrow())


class ServiceStream:
    """The streaming query of a service."""

    def __init__(self, session: SparkSession, work: ServiceStreamJob, folder: Path) -> None:
        self._session = _configure(session, work.key_groups)
        self._work, self._folder = work, folder
        self._query: Any = None
        self._checked = 0.0  # when it was last known to run

    def start(self) -> None:
        """Start the query, or continue from its checkpoint, unless it is running."""
        checkpoint = normalize_path(self._folder / "checkpoint")
        with translate_errors("the stream of the service could not be started: "):
            if self._query is not None and self._query.isActive:
                return
            check_checkpoint(checkpoint)
            self._session.dataSource.register(StepSource)
            reader = self._session.readStream.format(SOURCE)
            steps = reader.option("folder", str(self._folder)).load()
            dealt = steps.mapInArrow(RouteSteps(self._work), spark_schema(ROUTED_SCHEMA))
            found = dealt.groupBy("key_group").transformWithState(
                ServiceProcessor(self._work), spark_schema(RESULT_SCHEMA), "append", "None"
            )
            writer = found.writeStream.outputMode("append").foreachBatch(WriteResults(str(self._folder)))
            writer = writer.option("checkpointLocation", checkpoint)
            self._query = writer.trigger(processingTime=TRIGGER_INTERVAL).start()

    def failure(self) -> EnsueError | None:
        """Return the error of a query that does not run; None if it runs."""
        if self._query is None:
            return RunnerError("the stream of the service has not started")
        if time.monotonic() - self._checked < _CHECK_INTERVAL:
            return None
        with translate_errors("the stream of the service cannot be reached: "):
            if self._query.isActive:
                self._checked = time.monotonic()
                return None
            stopped = RunnerError("the stream of the service was stopped from outside")
            return get_stream_failure(self._query) or stopped

    def stop(self) -> None:
        """Stop the query; it repeats unfinished micro-batches when it continues."""
        query, self._query = self._query, None
        if query is not None:
            with translate_errors("the stream of the service could not be stopped: "):
                query.stop()


@dataclass
class ServiceSession:
    """The user's session, or one that the service starts and stops."""

    user_session: SparkSession | None
    settings: Mapping[str, str]
    own_session: SparkSession | None = None

    @classmethod
    def get_or_create(cls, user_session: SparkSession | None, settings: Mapping[str, str]) -> "ServiceSession":
        """Use the given session, or the active one, or a new one."""
        return cls(SparkSession.getActiveSession() if user_session is None else user_session, settings)

    def open(self) -> SparkSession:
        """Return the session, starting one if necessary, which takes some seconds."""
        if self.user_session is not None:
            return self.user_session
        if self.own_session is None:
            self.own_session = get_or_create_session(self.settings)
        return self.own_session

    def stream(self, work: ServiceStreamJob, folder: Path) -> ServiceStream:
        """Create the stream of a service that exchanges files in a folder."""
        return ServiceStream(self.open(), work, folder)

    def tasks(self) -> int:
        """Return the number of parallel tasks, or the shuffle partitions if that is unknown."""
        session = self.open()
        if _is_remote(session):
            return get_key_group_count(session.range(0), None)
        return int(session.sparkContext.defaultParallelism)

    def close(self) -> None:
        """Stop the session if it was started here."""
        session, self.own_session = self.own_session, None
        if session is not None:
            with translate_errors("Spark could not be stopped: "):
                session.stop()


def _is_remote(session: SparkSession) -> bool:
    """Whether a session is one of Spark Connect."""
    return get_local_folder(session, "") is None


def _configure(session: SparkSession, key_groups: int) -> SparkSession:
    """Return a new session of the same application, with a partition for each key group.

    With Spark Connect it is the session itself: its public API cannot close another one.
    """
    configured = session if _is_remote(session) else session.newSession()
    configured.conf.set("spark.sql.shuffle.partitions", str(key_groups))
    configured.conf.set(f"{_STORE}.providerClass", _ROCKSDB)
    configured.conf.set(f"{_STORE}.rocksdb.changelogCheckpointing.enabled", "true")
    return configured
