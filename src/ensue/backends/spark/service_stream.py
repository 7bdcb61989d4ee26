"""The Spark stream of a service: it reads files of steps and writes files of results.

Service and Spark only share folders on a common file system, so the service may run beside the
driver or as a client of Spark Connect.

A step is a clock (`StreamClock`), which has its number, watermark and version of the subscriptions, and its
events, in stream order. The stream is an ordinary one in which the service takes the place of Spark's watermark.
"""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ensue.backends.spark.frames import spark_schema
from ensue.backends.spark.session import get_or_create_session
from ensue.backends.spark.spark_errors import get_stream_failure, translate_errors
from ensue.backends.spark.state_store import get_key_group_count
from ensue.backends.spark.stream import FLOW, PackSteps, StageProcessor, use_rocksdb
from ensue.backends.spark.stream_folders import check_checkpoint, get_local_folder, normalize_path
from ensue.errors import EnsueError, RunnerError, StateError
from ensue.runtime.pipeline import PipelinePlan

STEP_SCHEMA = pa.schema({"clock": pa.string(), "events": pa.binary()})
STEPS_FOLDER, RESULTS_FOLDER = "steps", "found"
RESULT_COLUMNS = ["sender", "place", "control", "blob", "partial_matches", "state_bytes"]  # of a stream's rows
SOURCE = "ensue_steps"
TRIGGER_INTERVAL = "100 milliseconds"  # without one, polling takes a third of a core
_POSITION = "position"
_CHECK_INTERVAL = 0.25  # seconds: over Spark Connect a check is a request
_HALF_WRITTEN = ".tmp-"
_SUFFIX = ".arrow"
_DIGITS = 16
_PIECE = 1 << 20  # bytes of steps that justify a task


class StepFiles:
    """The files of steps that the service sends to Spark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / STEPS_FOLDER

    def __iter__(self) -> Iterator[tuple[int, int, Path]]:
        """Yield the numbers after and up to which each file has steps, and its path, in order."""
        for path in sorted(self.folder.glob(f"[0-9]*{_SUFFIX}")):
            after, _, last = path.stem.partition("-")
            yield int(after), int(last), path

    @property
    def last(self) -> int:
        """The number of the last step; 0 without steps."""
        return max((last for _, last, _ in self), default=0)

    def put(self, after: int, last: int, steps: pa.Table) -> None:
        """Write the steps in a range of numbers to a new file."""
        name = f"{after:0{_DIGITS}}-{last:0{_DIGITS}}{_SUFFIX}"
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
        at = after
        for begin, last, path in self:
            if begin == at and last <= upto:
                with pa.ipc.open_file(path) as reader:
                    pieces += [(path, number) for number in range(reader.num_record_batches)]
                at = last
        if at < upto:
            raise StateError(
                f"the steps after {at} up to {upto} are missing in {self.folder}\n"
                "  hint: restore the folder together with the file of the service"
            )
        return pieces


def read_step_batch(path: Path, piece: int) -> pa.RecordBatch:
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
        yield read_step_batch(*partition.value)


@dataclass(frozen=True)
class WriteResults:
    """Writes the results of a micro-batch for the service."""

    folder: str

    def __call__(self, found: DataFrame, batch: int) -> None:
        ResultFiles(Path(self.folder)).put(batch, found.select(RESULT_COLUMNS).toArrow())


class ServiceStream:
    """The streaming query of a service."""

    def __init__(self, session: SparkSession, chain: PipelinePlan, folder: Path) -> None:
        self._session = _configure(session, chain.key_groups)
        self._chain, self._folder = chain, folder
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
            flow = steps.mapInArrow(PackSteps(self._chain), FLOW).groupBy(self._chain.grouped_by)
            found = flow.transformWithState(StageProcessor(self._chain, 0, None), FLOW, "append", "None")
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

    def stream(self, chain: PipelinePlan, folder: Path) -> ServiceStream:
        """Create the stream of a service that exchanges files in a folder."""
        return ServiceStream(self.open(), chain, folder)

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
