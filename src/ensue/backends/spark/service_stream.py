"""The Spark stream of a service: it reads files of steps and writes files of results.

Service and Spark only share folders on a common file system, so the service may run beside the
driver or as a client of Spark Connect.

A step has a number, a text header and a body that only the service understands. Numbers increase,
every key group gets every step and ignores steps that it has processed, so the sender may repeat
steps. Time is part of the steps; Spark's watermark is not used.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import StructType

from ensue.backends.spark.frames import spark_schema
from ensue.backends.spark.session import freeze_loaded_code, get_or_create_session, silence_init_worker
from ensue.backends.spark.spark_errors import get_stream_failure, translate_errors
from ensue.backends.spark.state_store import KeyGroupStore, compute_state_keys, get_key_group_count
from ensue.backends.spark.stream import get_task_cache, use_rocksdb
from ensue.backends.spark.stream_folders import check_checkpoint, get_local_folder, normalize_path
from ensue.errors import EnsueError, RunnerError, StateError
from ensue.runtime.tasks.task_state import TaskCache, TaskStateStore

STEP_SCHEMA = pa.schema({"position": pa.int64(), "head": pa.string(), "body": pa.binary()})
ROUTED_SCHEMA = pa.schema({"key_group": pa.int32(), "first": pa.int64(), "steps": pa.binary()})
RESULT_SCHEMA = pa.schema(  # the last row of a key group has `counted` and its position
    {"key_group": pa.int32(), "position": pa.int64(), "found": pa.binary(), "counted": pa.string()}
)
STEPS_FOLDER, RESULTS_FOLDER = "steps", "found"
SOURCE = "ensue_steps"
TRIGGER_INTERVAL = "100 milliseconds"  # without one, polling takes a third of a core
_POSITION = "position"
_CHECK_INTERVAL = 0.25  # seconds: over Spark Connect a check is a request
_HALF_WRITTEN = ".tmp-"
_SUFFIX = ".arrow"
_DIGITS = 16
_PIECE = 1 << 20  # bytes of steps that justify a task


class ServiceStreamJob(Protocol):
    """Interface of the job that processes steps; it is sent to the tasks."""

    @property
    def key_groups(self) -> int: ...

    def route(self, steps: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, bytes]]:
        """Yield the number of the first step, and the packed steps, for each key group."""

    def run_task(
        self, store: TaskStateStore, place: int, pieces: Sequence[bytes], cache: TaskCache
    ) -> Iterator[Mapping[str, Any]]:
        """Process packed steps in a key group, and store its state; yield rows of results."""


class StepFiles:
    """The files of steps that the service sends to Spark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / STEPS_FOLDER

    def __iter__(self) -> Iterator[tuple[int, int, Path]]:
        """Yield the first and last step number and the path of each file, in order."""
        for path in sorted(self.folder.glob(f"[0-9]*{_SUFFIX}")):
            first, _, last = path.stem.partition("-")
            yield int(first), int(last), path

    @property
    def last(self) -> int:
        """The number of the last step; 0 without steps."""
        return max((last for _, last, _ in self), default=0)

    def put(self, steps: pa.Table) -> None:
        """Write steps to a new file."""
        first, last = steps["position"][0].as_py(), steps["position"][-1].as_py()
        name = f"{first:0{_DIGITS}}-{last:0{_DIGITS}}{_SUFFIX}"
        rows = max(1, steps.num_rows * _PIECE // max(_PIECE, steps.nbytes))
        _write(self.folder / name, steps, rows)

    def forget(self, upto: int) -> None:
        """Delete the files with steps up to a number."""
        for _, last, path in self:
            if last <= upto:
                path.unlink(missing_ok=True)

    def between(self, after: int, upto: int) -> list[tuple[Path, int]]:
        """Return the record batches of the steps in a range of numbers."""
        pieces: list[tuple[Path, int]] = []
        if after < upto and not any(last == upto for _, last, _ in self):
            raise StateError(
                f"the steps after {after} up to {upto} are missing in {self.folder}\n"
                "  hint: restore the folder together with the file of the service"
            )
        for _, last, path in self:
            if after < last <= upto:
                with pa.ipc.open_file(path) as reader:
                    pieces += [(path, number) for number in range(reader.num_record_batches)]
        return pieces


def read_steps(path: Path, piece: int) -> pa.RecordBatch:
    """Read a record batch of a step file."""
    with pa.ipc.open_file(path) as reader:
        return reader.get_batch(piece)


class ResultFiles:
    """The files of results that the service has not delivered yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / RESULTS_FOLDER

    def put(self, batch: int, found: pa.Table) -> None:
        """Write the results of a micro-batch; a repeated one replaces its file."""
        _write(self.folder / f"{batch:0{_DIGITS}}{_SUFFIX}", found)

    def oldest(self) -> tuple[int, Path] | None:
        """Return the number and file of the oldest micro-batch."""
        path = min(self.folder.glob(f"[0-9]*{_SUFFIX}"), default=None)
        return None if path is None else (int(path.stem), path)


def create_folders(folder: Path) -> None:
    """Create the folders, and delete incomplete files of a killed writer."""
    for name in (STEPS_FOLDER, RESULTS_FOLDER):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for incomplete in (folder / name).glob(f"{_HALF_WRITTEN}*"):
            incomplete.unlink(missing_ok=True)


def _write(path: Path, table: pa.Table, rows: int | None = None) -> None:
    temporary = path.with_name(f"{_HALF_WRITTEN}{path.name}")
    with temporary.open("wb") as file:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ------------------------------------------------------------------------------ in the workers


@dataclass(frozen=True)
class RouteSteps:
    """Routes steps to key groups, with one output row for each key group."""

    work: ServiceStreamJob

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        routed = list(self.work.route(row for batch in batches for row in batch.to_pylist()))
        if routed:
            columns = [compute_state_keys(self.work.key_groups), *zip(*routed, strict=True)]
            yield pa.record_batch(columns, schema=ROUTED_SCHEMA)
        freeze_loaded_code()


class ServiceProcessor(StatefulProcessor):
    """Runs a key group of the service with its state in Spark's store."""

    def __init__(self, work: ServiceStreamJob) -> None:
        self.work = work

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        silence_init_worker()

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.store = KeyGroupStore(handle)

    def handleInputRows(  # noqa: N802 - Spark prescribes the name and arguments
        self,
        key: Any,
        rows: Any,
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        pieces = [bytes(row.steps) for row in sorted(rows, key=lambda row: row.first)]
        place = compute_state_keys(self.work.key_groups).index(key[0])
        for row in self.work.run_task(self.store, place, pieces, get_task_cache()):
            yield Row(**row)

    def close(self) -> None:
        freeze_loaded_code()


# ------------------------------------------------------------------------------ on the driver


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
    use_rocksdb(configured)
    return configured
