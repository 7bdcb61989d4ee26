"""A stage of a tower over events that are all there."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from ensue.columns.rows import no_rows
from ensue.columns.stream import in_order, shape_again
from ensue.workload.live_stage import live_stage
from ensue.workload.stage_rows import Packed, packed_outputs, unpacked
from ensue.workload.tower_job import TowerJob

ARRIVAL = "__arrival"


def matched(
    job: TowerJob, number: int, raw: pa.Table, made: dict[str, pa.Table]
) -> Iterator[Packed]:
    """What a stage gives for the events of some lanes; `raw` has a column ARRIVAL."""
    stage = job.stages[number]
    sortable = shape_again(
        raw.schema, job.by_type, time=job.time, type=job.type, order=(*job.order, ARRIVAL)
    )
    live = live_stage(stage, [ARRIVAL])
    found = live.feed(in_order(raw, sortable), made)
    left = live.finish()
    tables = [pa.concat_tables(pair) for pair in zip(found, left, strict=True)]
    yield from packed_outputs(job, number, tables)


def taken(job: TowerJob, number: int, blobs: Iterable[bytes]) -> Iterator[Packed]:
    """The same for events that were packed for the stage."""
    arrow = job.arrow.append(pa.field(ARRIVAL, pa.int64()))
    raw: list[pa.Table] = [no_rows(arrow)]
    made: dict[str, list[pa.Table]] = {}
    for blob in blobs:
        name, table = unpacked(blob)
        if name is None:
            raw.append(table.cast(arrow))
        else:
            made.setdefault(name, []).append(table.replace_schema_metadata(None))
    takes = job.stages[number].takes
    whole = {n: pa.concat_tables(t).cast(takes[n]) for n, t in made.items()}
    yield from matched(job, number, pa.concat_tables(raw), whole)
