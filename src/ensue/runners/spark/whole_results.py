"""Groups of matches, their order, and the first rows, on DataFrames.

What orders matches is in their columns, so Spark sorts as a table in memory is sorted: NaN is
greater than all numbers, NULL comes last unless it is asked for first, and what is equal is in the
order of time. The matches of a group come together in one task, which puts them into that order
before it takes them together.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import DoubleType, FloatType

from ensue.algebra.whole_results import Sorting
from ensue.columns.rows import no_rows
from ensue.results.whole_results import Finished
from ensue.runners.spark.frames import quoted
from ensue.runners.spark.types import spark_schema


def finished_frame(matches: DataFrame, finished: Finished) -> DataFrame:
    """The result of all matches, computed when it is asked for."""
    finishing = finished.finishing
    if finishing.whole.grouped:
        # by number: Spark takes a name with a dot for a path
        numbered = matches.toDF(*(f"c{number}" for number in range(len(matches.columns))))
        places = [finished.matches.get_field_index(key.source) for key in finishing.keys]
        keys = [_equal(numbered, f"c{place}") for place in places]
        together = numbered.repartition(*keys) if keys else numbered.repartition(1)
        rows = together.mapInArrow(Groups(finished), spark_schema(finished.rows))
    else:
        rows = matches
    if finishing.order or finishing.whole.first is not None:
        by = [_sorted(key) for key in finishing.order]
        rows = rows.orderBy(*by, *(sql.col(quoted(name)) for name in finished.times))
    if finishing.whole.first is not None:
        rows = rows.limit(finishing.whole.first)
    shown = finished.shown
    return rows.select(*(sql.col(quoted(shown[name])).alias(name) for name in shown))


def _equal(matches: DataFrame, name: str) -> Column:
    """A key, the same where groups take it for the same: both zeros are one."""
    column = sql.col(name)
    kind = matches.schema[name].dataType
    return column + sql.lit(0.0) if isinstance(kind, DoubleType | FloatType) else column


def _sorted(key: Sorting) -> Column:
    column = sql.col(quoted(key.source))
    if key.descending:
        return column.desc_nulls_first() if key.nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if key.nulls_first else column.asc_nulls_last()


@dataclass(frozen=True)
class Groups:
    """The groups of the matches of a task, which are all there."""

    finished: Finished

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = self.finished.matches
        came = [
            pa.Table.from_batches([batch]).rename_columns(wanted.names).cast(wanted)
            for batch in batches
            if batch.num_rows
        ]
        groups = self.finished.grouped(pa.concat_tables([no_rows(wanted), *came]))
        yield from groups.cast(self.finished.rows).to_batches()
