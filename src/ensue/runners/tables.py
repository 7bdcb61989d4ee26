"""Tables of events in memory, of any library that speaks Arrow."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.columns.arrow_kinds import zones_of
from ensue.columns.stream import (
    PLACE,
    Shape,
    refuse_own_names,
    refuse_twice,
    shape_of,
    together,
)
from ensue.errors import EventError
from ensue.own_frames import outside
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
        "the path of a file, or a dict of one of these per event type"
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


@as_table.register(str)
@as_table.register(Path)
def _(events: str | Path) -> pa.Table:
    from ensue.runners.event_files import read_path

    def say(note: str) -> None:
        # its hint is for the command line
        warnings.warn(note.partition("\n")[0].removeprefix("note: "), stacklevel=outside())

    return read_path(str(events), say)


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
    named = names_of(time, type, order)
    if isinstance(events, Mapping):
        if type is not None:
            raise EventError("type= is for a single table; in a dict the keys are the types")
        if not events:
            raise EventError("an empty dict of events has no event types")
        tables = {str(name): _frame(table, named) for name, table in events.items()}
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
    table = _frame(events, named)
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


def names_of(
    time: str | tuple[str, str], type: str | None, order: Sequence[str]
) -> frozenset[str]:
    """The columns that a call names."""
    times = (time,) if isinstance(time, str) else time
    return frozenset((*times, *order, *(() if type is None else (type,))))


def without_index(events: Any, named: Collection[str] = ()) -> pa.Table:
    """Events as an Arrow table, without the index of pandas but for its `named` levels."""
    match world_of(events):
        case World.PANDAS:
            return _of_pandas(events, named)
        case World.POLARS_LAZY:
            return as_table(events.collect())
        case _:
            return as_table(events)


def _of_pandas(frame: Any, named: Collection[str]) -> pa.Table:
    """A DataFrame with the levels of its index that are named and that no column is called.

    A level without a name is called as `reset_index` calls it: `index`, or `level_0`, `level_1`.
    """
    columns = [str(name) for name in frame.columns]
    refuse_twice(columns)
    names = [
        str(name) if name is not None else "index" if frame.index.nlevels == 1 else f"level_{k}"
        for k, name in enumerate(frame.index.names)
    ]
    table = pa.Table.from_pandas(frame, preserve_index=False)
    wanted = [k for k, name in enumerate(names) if name in named and name not in columns]
    for place, number in enumerate(wanted):
        level = frame.index.get_level_values(number).to_frame(index=False, name=names[number])
        values = pa.Table.from_pandas(level, preserve_index=False).column(0)
        table = table.add_column(place, names[number], values)
    return table


def _frame(events: Any, named: Collection[str] = ()) -> pa.Table:
    table = without_index(events, named)
    refuse_own_names(table.column_names)
    return table
