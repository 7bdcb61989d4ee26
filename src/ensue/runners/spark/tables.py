"""The table that matches go to, looked at before a stream starts: has it their columns?"""

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from ensue.errors import RunnerError
from ensue.runners.spark.failure import condition_of, failure, spark_errors
from ensue.runners.spark.paths import literal
from ensue.runners.spark.places import seen_from_here

_NO_TABLE_YET = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
_SHOWN = 5  # columns of a long list


def parquet_columns(session: SparkSession, path: str) -> StructType | None:
    """The columns of a folder of Parquet files; None: there is no file yet."""
    folder = seen_from_here(session, path)
    if folder is not None and folder.is_file():
        raise RunnerError(f"the output {path} is a file\n  hint: name a folder")
    if folder is not None and (folder / "_spark_metadata").exists():
        raise RunnerError(
            f"the output {path} was written by one of Spark's own file sinks: readers "
            "only see the files in its _spark_metadata\n"
            "  hint: name another folder, or remove _spark_metadata to include all files"
        )
    if folder is not None and (folder / "_delta_log").exists():
        raise RunnerError(
            f"the output {path} is a Delta table\n"
            f"  hint: ensue.delta_table({path!r}), on the command line --output delta:{path}"
        )
    try:
        return session.read.parquet(literal(path)).schema
    except spark_errors() as error:
        if condition_of(error) in _NO_TABLE_YET:
            return None
        raise RunnerError(
            f"the output {path} cannot be read as a table: {failure(error)}\n"
            "  hint: matches are added to the Parquet files there; remove other "
            "files, or name another folder"
        ) from None


def require_same(path: str, there: StructType | None, here: StructType) -> None:
    """Raises a RunnerError unless a table has the columns of the matches that go there."""
    if there is None:
        return
    before = {f.name: f.dataType.simpleString() for f in there}
    now = {f.name: f.dataType.simpleString() for f in here}
    if before == now:
        return
    differing = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    lines = [
        f"  {name}: there {before.get(name, 'missing')}, here {now.get(name, 'missing')}"
        for name in differing[:_SHOWN]
    ]
    if len(differing) > _SHOWN:
        lines.append(f"  and {len(differing) - _SHOWN} more")
    raise RunnerError(
        f"the table {path} has other columns than these matches:\n"
        + "\n".join(lines)
        + "\n  hint: the query or the columns of its events have changed since it was written; "
        "name another output"
    )
