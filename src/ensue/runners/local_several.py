"""Several queries over tables in memory: one order, one scan."""

import warnings
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ensue.columns.stream import Shape, in_order
from ensue.engine.interrupts import listening
from ensue.errors import did_you_mean
from ensue.runners import local
from ensue.runners.local import Progress, stream_of
from ensue.workload.arguments import Arguments, bundles_of
from ensue.workload.foresight import warn_of_explosion
from ensue.workload.query_names import Name, Names
from ensue.workload.relevance import types_that_matter
from ensue.workload.several import Several
from ensue.workload.timed_out import Bundle


def match(
    events: Any,
    queries: Names,
    given: Arguments,
    progress: Progress | None = None,
) -> dict[Name, pa.Table]:
    """The matches of each query, as Arrow tables."""
    table, shape = stream_of(events, time=given.time, type=given.type, order=given.order)
    bundles = bundles_of(queries, shape, given)
    types = types_that_matter(query for b in bundles.values() for query in b.queries)
    ordered = in_order(table, shape, given.bad_events, types)
    for bundle in bundles.values():
        warn_of_explosion(bundle.main, ordered, stacklevel=5)
    with listening():
        found = match_in_order(list(bundles.values()), ordered, progress)
    return dict(zip(bundles, found, strict=True))


def match_in_order(
    bundles: Sequence[Bundle],
    events: pa.Table,
    progress: Progress | None = None,
    *,
    whole: bool = True,
) -> list[pa.Table]:
    """The result of each, in events that are in the order of the stream.

    `whole`: these are all events, so that a type that does not occur is worth a warning.
    """
    if len(bundles) == 1:  # nothing to share
        return [local.match_in_order(bundles[0], events, progress, whole=whole)]
    several = Several([query for b in bundles for query in b.queries])
    tables = iter(several.match(events, progress))
    if whole and several.unseen:
        _warn(several.unseen, events, bundles[0].main.shape)
    return [b.merged([next(tables) for _ in b.queries]) for b in bundles]


def _warn(unseen: set[str], events: pa.Table, shape: Shape) -> None:
    column = shape.schema.type_column
    if column is None or events.num_rows == 0:
        return
    known = sorted({str(v) for v in events.column(column).unique().to_pylist() if v is not None})
    for name in sorted(unseen):
        hint = did_you_mean(name, known)
        warnings.warn(f"no event is of type '{name}': {hint}", stacklevel=5)
