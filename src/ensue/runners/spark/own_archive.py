"""What is done with a micro-batch of a stream that writes its own archive."""

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from ensue.archives.stored import FileArchive
from ensue.archives.writing import commit
from ensue.archives.written_files import Added, discard
from ensue.runners.spark.matches import SeveralMatches
from ensue.runners.spark.sinks import Sink
from ensue.workload.lanes.packing import ARCHIVED, LATE_EVENTS
from ensue.workload.query_names import Name


def delivered_and_archived(
    outputs: SeveralMatches,
    sinks: Mapping[Name, Sink],
    aside: Sink | None,
    archive: FileArchive,
    writer: str,
) -> Callable[[DataFrame, int], None]:
    """Matches are delivered, then the files that tasks have written become part of the archive.

    Both may happen twice, and count once: matches are known by their ids, a transaction of the
    archive by the stream and the number of the micro-batch.
    """

    def step(batch: DataFrame, number: int) -> None:
        kept = batch.persist()
        try:
            if ARCHIVED in delivered(outputs, sinks, aside, kept, number):
                _commit(archive, _files(kept), writer, number)
        finally:
            kept.unpersist()

    return step


def delivered(
    outputs: SeveralMatches,
    sinks: Mapping[Name, Sink],
    aside: Sink | None,
    kept: DataFrame,
    number: int,
) -> set[int]:
    """Delivers the matches and late events of a micro-batch that is kept; gives what it has."""
    # all rows are asked for, so that every lane moves on
    present = {row[0] for row in kept.select("query").distinct().collect()}
    for output, name in enumerate(outputs):
        if output in present or len(outputs) == 1:
            sinks[name](outputs.unpacked(kept, name), number)
    if LATE_EVENTS in present and aside is not None:
        aside(outputs.late_events(kept), number)
    return present


def _files(batch: DataFrame) -> list[Added]:
    rows = batch.filter(sql.col("query") == ARCHIVED).select("matches").collect()
    return [Added.read(bytes(row[0]).decode()) for row in rows]


def _commit(archive: FileArchive, files: list[Added], writer: str, number: int) -> None:
    if not commit(archive, files, writer, number):
        discard(archive.place, files)  # an attempt before this one has archived the same events
