"""Tables of events in memory, of any library that speaks Arrow."""

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.columns.arrow_kinds import zones_of
from ensue.columns.stream import PLACE, Shape, refuse_own_names, shape_of, together
from ensue.errors import EventError
from ensue.runners.text_times import say_so, text_times, with_times
from ensue.runners.worlds import World, world_of
from ensue.workload.arranged import Arranged, Arranging


@singledispatch
def as_table(events: Any) -> pa.Table:
    """Events of any library that speaks Arrow, as an Arrow table."""
    if hasattr(events, "__arrow_c_stream__") or hasattr(events, "__arrow_c_array__"):
        return pa.table(events)
    if hasattr(events, "to_arrow_table"):
        return events.to_arrow_table()
    raise EventError(
        f"events of type {type(events).__name__} are not supported\n"
        "  hint: pass an Arrow, pandas or Polars table, a DuckDB relation, a Spark DataFrame, "
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
    drop: bool = False,
) -> tuple[pa.Table, Shape]:
    """The events as one table, not yet in order, and their shape.

    Times that are text are read; `drop`: one that is no time is NULL, and no error.
    """
    if isinstance(events, Mapping):
        if type is not None:
            raise EventError("type= is for a single table; in a dict the keys are the types")
        if not events:
            raise EventError("an empty dict of events has no event types")
        tables = {str(name): _frame(table) for name, table in events.items()}
        texts = {name: text_times(table.schema, time) for name, table in tables.items()}
        if any(texts.values()):
            zoned = any(zones_of(table.schema) for table in tables.values())
            tables = {
                name: with_times(table, texts[name], drop=drop, zoned=zoned)
                if texts[name]
                else table
                for name, table in tables.items()
            }
            say_so(sorted({name for names in texts.values() for name in names}))
        return together(tables, time=time, order=order)
    table = _frame(events)
    if names := text_times(table.schema, time):
        table = with_times(table, names, drop=drop)
        say_so(names)
    return table, shape_of(table.schema, time=time, type=type, order=order)


def arranged_of(events: Any, arranging: Arranging) -> tuple[pa.Table, Arranged]:
    """The rows of one table as queries want them that order and split them in their own ways."""
    if isinstance(events, Mapping):
        raise EventError(
            "MATCH_RECOGNIZE reads one table, and these are several\n"
            "  hint: pass one table, with a column for the type of events"
        )
    table = _frame(events)
    arranged = arranging(table.schema)
    table = arranged.with_computed(table)
    if arranged.numbered:
        table = table.append_column(PLACE, pa.array(np.arange(table.num_rows)))
    return table, arranged


def without_index(events: Any) -> pa.Table:
    """The same, without what pandas has beside its columns: its own Arrow stream carries it."""
    match world_of(events):
        case World.PANDAS:
            return pa.Table.from_pandas(events, preserve_index=False)
        case World.POLARS_LAZY:
            return as_table(events.collect())
        case _:
            return as_table(events)


def _frame(events: Any) -> pa.Table:
    table = without_index(events)
    refuse_own_names(table.column_names)
    return table
