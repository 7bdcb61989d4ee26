"""Several queries on Spark DataFrames: one shuffle by distinct key, one scan in each task."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame

from ensue.columns.stream import Columns
from ensue.runners.local_several import match_in_order
from ensue.runners.spark.batch import in_lanes, lane_events
from ensue.runners.spark.frames import frame_of
from ensue.runners.spark.groups import groups_of
from ensue.runners.spark.matches import PACKED_COLUMNS, SeveralMatches
from ensue.workload.arguments import Arguments, bundles_of
from ensue.workload.foresight import warn_of_explosion
from ensue.workload.pickled_queries import Carried, arrived, carried
from ensue.workload.query_names import Name, Names
from ensue.workload.several_job import PACKED, packed_rows


def match(
    events: "DataFrame | Mapping[str, DataFrame]", queries: Names, given: Arguments
) -> SeveralMatches:
    """The matches of each query, as DataFrames that are computed when they are asked for."""
    frame, shape = frame_of(events, time=given.time, type=given.type, order=given.order)
    bundles = bundles_of(queries, shape, given)
    for bundle in bundles.values():
        warn_of_explosion(bundle.main, stacklevel=5)
    names = list(queries)
    pieces = []
    for group in groups_of([bundle.main for bundle in bundles.values()]):
        mine = {names[n]: carried(queries[names[n]]) for n in group.numbers}
        lane = SeveralLane(mine, group.numbers, given, shape.by_type)
        lanes = in_lanes(frame, group.queries, group.relevant(), group.columns(), given)
        pieces.append(lanes.mapInArrow(lane, PACKED_COLUMNS))
    schemas = {name: bundle.result for name, bundle in bundles.items()}
    return SeveralMatches(schemas, reduce(DataFrame.union, pieces))


@dataclass(frozen=True)
class SeveralLane:
    """What a task does with its events. Everything is made anew where the task runs."""

    queries: Mapping[Name, Carried]
    numbers: tuple[int, ...]
    given: Arguments
    by_type: Mapping[str, Columns] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = lane_events(batches, self.given, self.by_type)
        if found is None:
            return
        events, shape = found
        queries = {name: arrived(query) for name, query in self.queries.items()}
        bundles = bundles_of(queries, shape, self.given)
        tables = match_in_order(list(bundles.values()), events, whole=False)
        for number, matches in zip(self.numbers, tables, strict=True):
            for row in packed_rows(number, matches):
                yield pa.record_batch([[part] for part in row], schema=PACKED)
