"""Matching in this process, on tables in memory."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ensue.algebra.query import Query
from ensue.columns.stream import in_order, shape_of, with_time
from ensue.engine.interrupts import listening
from ensue.engine.sampling import sampled
from ensue.errors import did_you_mean
from ensue.own_frames import outside
from ensue.plan.estimates.statistics import Statistics
from ensue.runners.tables import arranged_of, stream_of
from ensue.source.compiling import waited_for
from ensue.workload.arguments import Arguments
from ensue.workload.foresight import warn_of_explosion
from ensue.workload.prepared import prepare
from ensue.workload.query_names import Name
from ensue.workload.source import Source
from ensue.workload.work import Progress, Unseen
from ensue.workload.workload import Workload

STREAMING = False


def read(events: Any, given: Arguments) -> tuple[pa.Table, Source]:
    """The events as one table, not yet in order, and what is known of them."""
    given.require_table()
    if given.arranging is not None:
        events, arranged = arranged_of(events, given.arranging)
        given = replace(given, time=arranged.time, order=arranged.order)
        shape = shape_of(events.schema, time=given.time, type=given.type, order=given.order)
        return events, Source.of(shape, given)
    table, shape = stream_of(
        events,
        time=given.time,
        type=given.type,
        order=given.order,
        drop=given.bad_events == "drop",
    )
    return table, Source.of(shape, given)


def lanes(frame: pa.Table, given: Arguments) -> int:  # noqa: ARG001
    """There is one: all events are here."""
    return 1


def run(workload: Workload, events: pa.Table, given: Arguments) -> Mapping[Name, pa.Table]:
    """All matches in a table of events, as Arrow tables by output."""
    came, rows = events, workload.works[0].rows if len(workload.works) == 1 else None
    events = in_order(came, workload.source.shape, given.bad_events, workload.types, rows)
    seen = events if rows is None else came
    for work in workload.works:
        for prepared in work.expected:
            warn_of_explosion(prepared, seen if work.of_events else None)
    found: dict[int, pa.Table] = {}
    unseen: list[Unseen] = []
    with listening(), waited_for():
        for number, work in enumerate(workload.works):
            share = _share(given.progress, number, len(workload.works), seen.num_rows)
            whole = work.matched(events, share)
            for output, table in zip(work.outputs, whole.tables, strict=True):
                table, finished = output.given(table), output.finished
                found[output.number] = table if finished is None else finished.of(table)
            unseen.append(whole.unseen)
    if given.progress is not None and seen.num_rows and not events.num_rows:
        given.progress(seen.num_rows, seen.num_rows)  # nothing had to be looked at
    _warn_of_unseen(unseen, seen, workload)
    return {output.name: found[output.number] for output in workload.outputs}


def ordered(events: Any, given: Arguments, types: Collection[str] | None) -> pa.Table:
    """The events in the order of the stream; None: those of every type matter."""
    table, source = read(events, given)
    return in_order(table, source.shape, types=types)


def measured(
    events: Any, query: Query, given: Arguments, *, sample: int = 10_000, seed: int = 0
) -> Statistics:
    """The statistics of tables of events."""
    table, source = read(events, given)
    usable, _ = with_time(table, source.shape, "drop")
    return sampled(prepare(query, source.shape), usable, sample=sample, seed=seed)


def _share(progress: Progress | None, number: int, works: int, events: int) -> Progress | None:
    """The progress of one of several works, as a part of all of it; some events may be left out
    of what it works on."""
    if progress is None:
        return None
    return lambda done, total: progress(
        (number * events + done * events // total) // works, events
    )


def _warn_of_unseen(found: Sequence[Unseen], events: pa.Table, workload: Workload) -> None:
    column = workload.source.shape.schema.type_column
    if column is None or not events.num_rows or not any(unseen.types for unseen in found):
        return
    seen = sorted({str(v) for v in events.column(column).unique().to_pylist() if v is not None})
    for unseen in found:
        for name in sorted(unseen.types - set(seen)):
            hint = did_you_mean(name, [*unseen.defined, *seen])
            warnings.warn(f"no event is of type '{name}': {hint}", stacklevel=outside())
