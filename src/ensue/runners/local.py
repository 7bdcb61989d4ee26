"""Matching in this process, on tables in memory."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import singledispatch
from typing import Any

import pyarrow as pa

from ensue.algebra.query import Query
from ensue.columns.matches import Matches
from ensue.columns.stream import (
    Shape,
    in_order,
    refuse_own_names,
    shape_of,
    slices,
    together,
    with_time,
)
from ensue.engine.adaptive import AdaptiveEngine
from ensue.engine.engine import Engine
from ensue.engine.interrupts import listening
from ensue.engine.reference import ReferenceEngine
from ensue.engine.sampling import sampled
from ensue.errors import EventError, did_you_mean
from ensue.plan.estimates.statistics import Statistics
from ensue.workload.arguments import Arguments
from ensue.workload.foresight import warn_of_explosion
from ensue.workload.prepared import Prepared, build_result, joined_of, prepare
from ensue.workload.relevance import types_that_matter
from ensue.workload.timed_out import Bundle

SLICE = 1 << 20  # rows a kernel looks at before it can be interrupted

Progress = Callable[[int, int], None]


@singledispatch
def as_table(events: Any) -> pa.Table:
    """Events of any library that speaks Arrow, as an Arrow table."""
    if hasattr(events, "__arrow_c_stream__") or hasattr(events, "__arrow_c_array__"):
        return pa.table(events)
    if hasattr(events, "to_arrow_table"):
        return events.to_arrow_table()
    raise EventError(
        f"events of type {type(events).__name__} are not understood\n"
        "  hint: pass an Arrow, pandas or Polars table, a Spark DataFrame, "
        "or a dict of one table per event type"
    )


@as_table.register
def _(events: pa.Table) -> pa.Table:
    return events


@as_table.register
def _(events: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([events])


@as_table.register
def _(events: pa.RecordBatchReader) -> pa.Table:
    return events.read_all()


@as_table.register(list)
def _(events: list[Any]) -> pa.Table:
    if events and all(isinstance(e, pa.RecordBatch) for e in events):
        return pa.Table.from_batches(events)
    if events and all(isinstance(e, Mapping) for e in events):
        return pa.Table.from_pylist(events)
    raise EventError(
        "a list of events must hold record batches or dicts"
        + ("" if events else "; this one is empty, and an empty list has no columns")
    )


def stream_of(
    events: Any,
    *,
    time: str | tuple[str, str],
    type: str | None = None,
    order: Sequence[str] = (),
) -> tuple[pa.Table, Shape]:
    """The events as one table, not yet in order, and their shape."""
    if isinstance(events, Mapping):
        if type is not None:
            raise EventError("type= goes with one table; a dict of tables is typed by its keys")
        if not events:
            raise EventError("an empty dict of events has no event types")
        tables = {str(name): _frame(table) for name, table in events.items()}
        return together(tables, time=time, order=order)
    table = _frame(events)
    return table, shape_of(table.schema, time=time, type=type, order=order)


def _frame(events: Any) -> pa.Table:
    # pandas' own Arrow stream would carry its index along
    pandas = type(events).__module__.startswith("pandas.")
    table = pa.Table.from_pandas(events, preserve_index=False) if pandas else as_table(events)
    refuse_own_names(table.column_names)
    return table


def match(
    events: Any,
    query: Query,
    given: Arguments,
    progress: Progress | None = None,
) -> pa.Table:
    """All matches in tables of events, as an Arrow table."""
    table, shape = stream_of(events, time=given.time, type=given.type, order=given.order)
    queries = given.bundle(query, shape)
    ordered = in_order(table, shape, given.bad_events, types_that_matter(queries.queries))
    warn_of_explosion(queries.main, ordered)
    with listening():
        return match_in_order(queries, ordered, progress)


def measured(
    events: Any,
    query: Query,
    *,
    time: str | tuple[str, str],
    type: str | None = None,
    order: Sequence[str] = (),
    sample: int = 10_000,
    seed: int = 0,
) -> Statistics:
    """The statistics of tables of events."""
    table, shape = stream_of(events, time=time, type=type, order=order)
    usable, _ = with_time(table, shape, "drop")
    return sampled(prepare(query, shape), usable, sample=sample, seed=seed)


def match_in_order(
    queries: Bundle | Prepared,
    events: pa.Table,
    progress: Progress | None = None,
    *,
    whole: bool = True,
) -> pa.Table:
    """All matches in events that are in the order of the stream.

    `whole`: these are all events, so that a type that does not occur is worth a warning.
    """
    if isinstance(queries, Prepared):
        return _match_all((queries,), events, progress, whole)[0]
    return queries.merged(_match_all(queries.queries, events, progress, whole))


def _match_all(
    queries: Sequence[Prepared], events: pa.Table, progress: Progress | None, whole: bool
) -> list[pa.Table]:
    """The result of each query, in one pass over the events."""
    engines = [query.engine() for query in queries]
    found: list[list[Matches]] = [[] for _ in engines]
    for piece in slices(events, SLICE):
        for engine, matches in zip(engines, found, strict=True):
            others = (m.nbytes for other in found if other is not matches for m in other)
            engine.others_hold(sum(others))
            matches.append(engine.feed(piece))
        if progress is not None:
            progress(engines[0].rows, events.num_rows)
    if whole and not isinstance(engines[0], ReferenceEngine):
        _warn_of_unseen(engines[0], events, queries[0])
    return [
        build_result(query, joined_of(engine, [*matches, engine.finish()]), events)
        for query, engine, matches in zip(queries, engines, found, strict=True)
    ]


def _warn_of_unseen(engine: Engine | AdaptiveEngine, events: pa.Table, prepared: Prepared) -> None:
    wanted = {r.type for r in prepared.plan.roles if not r.negative}
    unseen = [name for name in engine.scan.unseen_types() if name in wanted]
    column = prepared.shape.schema.type_column
    if not unseen or column is None or events.num_rows == 0:
        return
    known = sorted({str(v) for v in events.column(column).unique().to_pylist() if v is not None})
    for name in unseen:
        hint = did_you_mean(name, known)
        warnings.warn(f"no event is of type '{name}': {hint}", stacklevel=5)
