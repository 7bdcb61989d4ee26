"""The embedded Spark session, and settings of Python workers."""

import gc
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ensue.backends.spark.spark_errors import translate_errors
from ensue.backends.spark.stream_folders import normalize_path
from ensue.errors import RunnerError
from ensue.optional_deps import require_extra
from ensue.runtime.stage import MicroBatch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",  # reads a timestamp without a zone unchanged
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def get_or_create_session(settings: Mapping[str, str] | None = None) -> "SparkSession":
    """Return the active session, or a new one in this process, on all cores.

    `settings` are Spark settings for a new session, such as `spark.jars`.
    """
    with require_extra("Spark", "spark"):
        from pyspark.logger import PySparkLogger
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
    # stop PySpark from logging caught errors with Java's stack trace on standard error
    PySparkLogger.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    with _java_messages_to_a_file() as messages:
        try:
            return builder.getOrCreate()
        except Exception as error:  # noqa: BLE001  any error: Spark does not start
            lines = messages.read_text(errors="replace").strip().splitlines()
            last = "\n".join(f"  {line}" for line in lines[-5:]) or f"  {error}"
            raise RunnerError(f"Spark does not start:\n{last}\n  hint: it needs Java 17 or newer") from None


def collect(matches: "DataFrame") -> "pa.Table":
    with translate_errors("Spark could not finish: "):
        return matches.toArrow()


def write_parquet(matches: "DataFrame", folder: str) -> None:
    with translate_errors("Spark could not finish: "):
        matches.write.parquet(normalize_path(folder))


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
    """Redirect standard error to a file, since Java prints warnings there when it starts."""
    handle, name = tempfile.mkstemp(prefix="ensue-spark-", suffix=".log")
    sys.stderr.flush()
    original = os.dup(2)
    os.dup2(handle, 2)
    try:
        yield Path(name)
    finally:
        os.dup2(original, 2)
        os.close(original)
        os.close(handle)
        Path(name).unlink()


# ------------------------------------------------------------------------- Python workers

# the process on the driver's machine that asks a StatefulProcessor for its state variables
_INIT_WORKER = "pyspark.sql.streaming.transform_with_state_driver_worker"
_frozen = {"modules": 0}  # the number of modules at the last gc.freeze


def freeze_loaded_code() -> None:
    """Exclude all objects from garbage collection if a task has loaded modules.

    Only Spark workers do so, not the user's process.
    """
    from pyspark import TaskContext

    if TaskContext.get() is None or len(sys.modules) == _frozen["modules"]:
        return
    _frozen["modules"] = len(sys.modules)
    gc.collect()
    gc.freeze()


def silence_init_worker() -> None:
    """Discard the debug output of PySpark's init worker, which Spark copies to the terminal.

    Its errors do not go through standard output.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name == _INIT_WORKER:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until it ends


_BATCH_ID, _QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"


def get_micro_batch() -> MicroBatch | None:
    """Return the micro-batch of the current task; None if Spark does not tell."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return None
    number, stream = (context.getLocalProperty(name) for name in (_BATCH_ID, _QUERY_ID))
    return None if number is None or stream is None else MicroBatch(stream, int(number))


def build_micro_batch_error() -> RunnerError:
    return RunnerError(
        "this Spark does not tell its tasks which micro-batch they belong to, so they cannot "
        "agree on its subscriptions\n"
        "  hint: run the stream with the PySpark that Ensue is tested with (4.3)"
    )
