"""An embedded Spark: the session of the command line and the demo, and files through it."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ensue.errors import EventError, RunnerError

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


def embedded() -> "SparkSession":
    """The session that runs already, or a new one inside this process, on all of its cores."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise RunnerError(
            f"Spark is not installed ({error})\n  hint: pip install 'ensue[spark]'"
        ) from None
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    _require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    parts = 2 * (os.cpu_count() or 1)
    builder = SparkSession.builder.master("local[*]").appName("ensue")
    for key, value in (_SETTINGS | {"spark.sql.shuffle.partitions": str(parts)}).items():
        builder = builder.config(key, value)
    with _java_messages_to_a_file() as messages:
        try:
            return builder.getOrCreate()
        except Exception as error:  # noqa: BLE001  whatever it is: Spark does not start
            said = messages.read_text(errors="replace").strip().splitlines()
            last = "\n".join(f"  {line}" for line in said[-5:]) or f"  {error}"
            raise RunnerError(
                f"Spark does not start:\n{last}\n  hint: it needs Java 17 or newer"
            ) from None


def read(session: "SparkSession", path: str, form: str) -> "DataFrame":
    """The events of a file or folder; `form` is csv, tsv, json or parquet."""
    from pyspark.errors import PySparkException

    reader = session.read
    try:
        match form:
            case "csv" | "tsv":
                separator = "," if form == "csv" else "\t"
                return reader.csv(path, header=True, inferSchema=True, sep=separator)
            case "json":
                return reader.option("inferTimestamp", "true").json(path)
            case _:
                return reader.parquet(path)
    except PySparkException as error:
        raise EventError(f"cannot read events from {path}: {_first_line(error)}") from None


def collect(matches: "DataFrame") -> "pa.Table":
    """Runs the query: all matches as an Arrow table."""
    from pyspark.errors import PySparkException

    try:
        return matches.toArrow()
    except PySparkException as error:
        raise RunnerError(f"Spark could not finish: {_first_line(error)}") from None


def write_parquet(matches: "DataFrame", folder: str) -> None:
    """Runs the query: all matches into a new folder of Parquet files."""
    from pyspark.errors import PySparkException

    try:
        matches.write.parquet(folder)
    except PySparkException as error:
        raise RunnerError(f"Spark could not finish: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    # Of an error in a Python worker, the line that counts is the last of its traceback.
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    raised = [line for line in lines if line.startswith(("ensue.", "pyarrow.lib.Arrow"))]
    return (raised or lines or [type(error).__name__])[0]


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
