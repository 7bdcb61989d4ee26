"""An embedded Spark: the session of the command line and the demo, and files through it."""

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ensue.errors import EnsueError, EventError, RunnerError
from ensue.extras import needed
from ensue.runners.spark import text as spark_text
from ensue.runners.spark.failure import failure, spark_errors
from ensue.runners.spark.paths import place
from ensue.runners.text_columns import PLAIN, Spelling

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",  # a timestamp without a zone then means what it says
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def embedded(settings: Mapping[str, str] | None = None) -> "SparkSession":
    """The session that runs already, or a new one inside this process, on all of its cores.

    `settings` are those of Spark, for a new session, such as `spark.jars`.
    """
    with needed("Spark", "spark"):
        from pyspark.sql import SparkSession
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    _require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    parts = 2 * (os.cpu_count() or 1)
    builder = SparkSession.builder.master("local[*]").appName("ensue")
    defaults = _SETTINGS | {"spark.sql.shuffle.partitions": str(parts)}
    for key, value in (defaults | dict(settings or {})).items():
        builder = builder.config(key, value)
    _quiet()
    with _java_messages_to_a_file() as messages:
        try:
            return builder.getOrCreate()
        except Exception as error:  # noqa: BLE001  whatever it is: Spark does not start
            said = messages.read_text(errors="replace").strip().splitlines()
            last = "\n".join(f"  {line}" for line in said[-5:]) or f"  {error}"
            raise RunnerError(
                f"Spark does not start:\n{last}\n  hint: it needs Java 17 or newer"
            ) from None


def _quiet() -> None:
    """PySpark also logs an error that is caught, with all of Java's stack, on standard error."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)


def read(session: "SparkSession", path: str, form: str, spelling: Spelling = PLAIN) -> "DataFrame":
    """The events of a file or folder; `form` is csv, tsv, json or parquet."""
    if form != "parquet":
        return read_text(session, [path], form, spelling)
    try:
        return session.read.parquet(path)
    except spark_errors() as error:
        raise EventError(f"cannot read events from {path}: {failure(error)}") from None


def read_text(
    session: "SparkSession", paths: Sequence[str], form: str, spelling: Spelling = PLAIN
) -> "DataFrame":
    """The events of text files, whose columns are of one kind in all of them."""
    try:
        if form == "json":
            return spark_text.json(session, paths, spelling)
        return spark_text.csv(session, paths, form, spelling)
    except spark_errors() as error:
        several = ", ".join(paths)
        raise EventError(f"cannot read events from {several}: {failure(error)}") from None


def collect(matches: "DataFrame") -> "pa.Table":
    """Runs the query: all matches as an Arrow table."""
    try:
        return matches.toArrow()
    except spark_errors() as error:
        raise _unfinished(error) from None


def write_parquet(matches: "DataFrame", folder: str) -> None:
    """Runs the query: all matches into a new folder of Parquet files."""
    try:
        matches.write.parquet(place(folder))
    except spark_errors() as error:
        raise _unfinished(error) from None


def _unfinished(error: Exception) -> EnsueError:
    why = failure(error)
    return RunnerError(f"Spark could not finish: {why}") if isinstance(why, RunnerError) else why


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if (home and (Path(home) / "bin" / "java").exists()) or shutil.which("java"):
        return
    raise RunnerError(
        "Spark needs Java 17 or newer, and there is none on PATH or in JAVA_HOME\n"
        "  hint: apt-get install openjdk-17-jre-headless (Debian, Ubuntu), "
        "brew install openjdk@17 (macOS), or run with the local engine"
    )


@contextmanager
def _java_messages_to_a_file() -> Iterator[Path]:
    """Java inherits our standard error and greets with warnings there: give it a file instead."""
    handle, name = tempfile.mkstemp(prefix="ensue-spark-", suffix=".log")
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(handle, 2)
    try:
        yield Path(name)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(handle)
        Path(name).unlink()
