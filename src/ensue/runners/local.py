"""Matching in this process, on tables in memory."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import singledispatch
from typing import Any

import pyarrow as pa

from ensue.algebra.query import Query
from ensue.compile.engine import Engine, joined
from ensue.compile.matcher import Prepared, build_result, prepare, slices
from ensue.compile.stream import Shape, in_order, located, shape_of, together
from ensue.errors import EventError, did_you_mean

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
    if type(events).__module__.startswith("pandas."):
        return pa.Table.from_pandas(events, preserve_index=False)
    return as_table(events)


def match(
    events: Any,
    query: Query,
    *,
    time: str | tuple[str, str],
    type: str | None = None,
    order: Sequence[str] = (),
    location: str | None = None,
    bad_events: str = "raise",
    progress: Progress | None = None,
) -> pa.Table:
    """All matches in tables of events, as an Arrow table."""
    table, shape = stream_of(events, time=time, type=type, order=order)
    prepared = prepare(query, located(shape, location))
    return match_in_order(prepared, in_order(table, shape, bad_events), progress)


def match_in_order(
    prepared: Prepared,
    events: pa.Table,
    progress: Progress | None = None,
    *,
    whole: bool = True,
) -> pa.Table:
    """All matches in events that are in the order of the stream.

    `whole`: these are all events, so that a type that does not occur is worth a warning.
    """
    engine = prepared.engine()
    found = []
    for piece in slices(events, SLICE):
        found.append(engine.feed(piece))
        if progress is not None:
            progress(engine.rows, events.num_rows)
    found.append(engine.finish())
    if isinstance(engine, Engine):
        matches = joined([f for f in found if f.count], engine.program.source.output)
        if whole:
            _warn_of_unseen(engine, events, prepared)
    else:
        matches = found[-1]
    return build_result(prepared, matches, events)


def _warn_of_unseen(engine: Engine, events: pa.Table, prepared: Prepared) -> None:
    wanted = {r.type for r in prepared.plan.roles if not r.negative}
    unseen = [name for name in engine.scan.unseen_types() if name in wanted]
    column = prepared.shape.schema.type_column
    if not unseen or column is None or events.num_rows == 0:
        return
    known = sorted({str(v) for v in events.column(column).unique().to_pylist() if v is not None})
    for name in unseen:
        hint = did_you_mean(name, known)
        warnings.warn(f"no event is of type '{name}': {hint}", stacklevel=5)
