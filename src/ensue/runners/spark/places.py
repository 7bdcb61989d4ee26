"""Which folders of a stream can be looked at from here, without Spark."""

from pathlib import Path

from pyspark.sql import SparkSession

from ensue.runners.spark.checkpoint_files import local_path


def seen_from_here(session: SparkSession, place: str) -> Path | None:
    """A folder as this process sees it; None: it is on another file system, or with Spark Connect
    maybe on another machine."""
    remote = type(session).__module__.startswith("pyspark.sql.connect")
    return None if remote else local_path(place)
