"""Small texts beside a checkpoint, on whatever file system it is."""

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from ensue.runners.spark.paths import literal


def text_at(session: SparkSession, place: str) -> str | None:
    """A text that was put there as a whole; None: there is none."""
    try:
        return str(session.read.text(literal(place), wholetext=True).collect()[0][0])
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise
    except IndexError:  # a writer was killed before its file was there
        return None


def put_text(session: SparkSession, place: str, text: str) -> None:
    """Puts a text there, in the place of the one that was."""
    table = session.createDataFrame(pa.table({"value": [text]})).coalesce(1)
    table.write.mode("overwrite").text(place)
