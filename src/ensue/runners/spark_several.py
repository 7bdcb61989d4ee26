"""Several queries on Spark DataFrames: one shuffle by distinct key, one scan in each task."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from ensue.compile.carrying import Carried, arrived, carried
from ensue.compile.stream import Columns, Shape, in_order, located, shape_again
from ensue.errors import EventError
from ensue.plan.planning import DEFAULT, Planning
from ensue.runners.local_several import bundles_of, match_in_order
from ensue.runners.named import Name, Names
from ensue.runners.several_job import PACKED, packed_rows
from ensue.runners.spark_batch import ARRIVAL
from ensue.runners.spark_frames import frame_of, unusable
from ensue.runners.spark_groups import Group, groups_of
from ensue.runners.spark_matches import PACKED_COLUMNS, SeveralMatches


def match(
    events: "DataFrame | Mapping[str, DataFrame]",
    queries: Names,
    *,
    time: str | tuple[str, str],
    type: str | None = None,
    order: Sequence[str] = (),
    location: str | None = None,
    bad_events: str = "raise",
    emit_timeouts: bool = False,
    planning: Planning = DEFAULT,
) -> SeveralMatches:
    """The matches of each query, as DataFrames that are computed when they are asked for."""
    frame, shape = frame_of(events, time=time, type=type, order=order)
    if bad_events not in ("raise", "drop"):
        raise EventError(f"bad_events is 'raise' or 'drop', not {bad_events!r}")
    bundles = bundles_of(queries, located(shape, location), planning, emit_timeouts=emit_timeouts)
    names = list(queries)
    pieces = []
    for group in groups_of([bundle.main for bundle in bundles.values()]):
        mine = {names[n]: carried(queries[names[n]]) for n in group.numbers}
        lane = SeveralLane(
            mine, group.numbers, time, type, tuple(order), location, shape.by_type, bad_events,
            emit_timeouts, planning,
        )  # fmt: skip
        lanes = _lanes(frame, group, keep_bad=bad_events == "raise")
        pieces.append(lanes.mapInArrow(lane, PACKED_COLUMNS))
    schemas = {name: bundle.result for name, bundle in bundles.items()}
    return SeveralMatches(schemas, reduce(DataFrame.union, pieces))


def _lanes(frame: DataFrame, group: Group, *, keep_bad: bool) -> DataFrame:
    """The events that can matter to a group, those of one partition in one lane."""
    kept = group.relevant()
    if kept is not None:
        bad = unusable(group.queries[0])
        frame = frame.filter(kept | bad if keep_bad else kept)
    frame = frame.withColumn(ARRIVAL, sql.monotonically_increasing_id())
    columns = group.columns()
    return frame.repartition(*columns) if columns else frame.repartition(1)


@dataclass(frozen=True)
class SeveralLane:
    """What a task does with its events. Everything is made anew where the task runs."""

    queries: Mapping[Name, Carried]
    numbers: tuple[int, ...]
    time: str | tuple[str, str]
    type: str | None
    order: tuple[str, ...]
    location: str | None
    by_type: Mapping[str, Columns] | None
    bad_events: str
    emit_timeouts: bool
    planning: Planning

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        kept = [batch for batch in batches if batch.num_rows]
        if not kept:
            return
        table = pa.Table.from_batches(kept)
        columns = table.drop_columns([ARRIVAL])
        sortable = self._shape(table.schema, (*self.order, ARRIVAL))
        shape = located(self._shape(columns.schema, self.order), self.location)
        queries = {name: arrived(query) for name, query in self.queries.items()}
        bundles = bundles_of(queries, shape, self.planning, emit_timeouts=self.emit_timeouts)
        events = in_order(table, sortable, self.bad_events).drop_columns([ARRIVAL])
        found = match_in_order(list(bundles.values()), events, whole=False)
        for number, matches in zip(self.numbers, found, strict=True):
            for row in packed_rows(number, matches):
                yield pa.record_batch([[part] for part in row], schema=PACKED)

    def _shape(self, schema: pa.Schema, order: Sequence[str]) -> Shape:
        return shape_again(schema, self.by_type, time=self.time, type=self.type, order=order)
