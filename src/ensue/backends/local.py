"""Matching in this process, on tables in memory."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ensue.backends.dataframe_libs import arrange_rows, find_text_times, is_read_in_batches, read_event_table, warn_note
from ensue.codegen.kernel_cache import mark_waiting
from ensue.engine.interrupts import allow_interrupts
from ensue.errors import did_you_mean
from ensue.ir.query import Query
from ensue.planner.statistics import Statistics
from ensue.projection.match_order import sort_result
from ensue.runtime.compiled_query import compile_query
from ensue.runtime.event_pruning import warn_if_expensive
from ensue.runtime.pipeline import run_to_end
from ensue.runtime.query_spec import Name
from ensue.runtime.source_schema import SourceOptions, SourceSchema
from ensue.runtime.stage import OutputTable, Progress, StageInput, UnseenTypes
from ensue.runtime.workload import Workload
from ensue.traceback_filter import find_stacklevel
from ensue.vector.event_table import check_reserved_names, create_schema, drop_bad_times, select_events, sort_events
from ensue.vector.take import create_empty_table

if TYPE_CHECKING:
    from ensue.runtime.spill.spilled_events import SpilledEvents

STREAMING = False


def read(events: Any, options: SourceOptions) -> tuple[pa.Table | pa.RecordBatchReader, SourceSchema]:
    options.require_table()
    if is_read_in_batches(events) and not options.whole and options.arranging is None:
        from ensue.backends.event_files import open_batches

        batches = open_batches(events, warn_note)
        if batches is not None and not find_text_times(batches.schema, options.time):
            check_reserved_names(batches.schema.names)
            shape = create_schema(batches.schema, time=options.time, type=options.type, order=options.order)
            return batches, SourceSchema.from_options(shape, options)
    if options.arranging is not None:
        events, arranged = arrange_rows(events, options.arranging)
        options = replace(options, time=arranged.time, order=arranged.order)
        shape = create_schema(events.schema, time=options.time, type=options.type, order=options.order)
        return events, SourceSchema.from_options(shape, options)
    drop = options.stream.drops_bad_events
    table, shape = read_event_table(events, time=options.time, type=options.type, order=options.order, drop=drop)
    return table, SourceSchema.from_options(shape, options)


def key_groups(frame: pa.Table, options: SourceOptions) -> int:  # noqa: ARG001
    """Return 1: all events are in this process."""
    return 1


def run(workload: Workload, events: pa.Table | pa.RecordBatchReader, options: SourceOptions) -> Mapping[Name, pa.Table]:
    if isinstance(events, pa.Table):
        return _match(workload, events, options)
    from ensue.runtime.spill.spilled_events import collect_events

    with allow_interrupts(), collect_events(workload, events, options.stream.bad_events) as collected:
        return _match(workload, collected, options)


def _match(workload: Workload, seen: "pa.Table | SpilledEvents", options: SourceOptions) -> Mapping[Name, pa.Table]:
    events, selection = seen, None
    if isinstance(seen, pa.Table):
        find_roles = workload.works[0].rows if len(workload.works) == 1 else None
        given = (seen, workload.source.shape, options.stream.bad_events, workload.types)
        events, selection = (sort_events(*given), None) if find_roles is None else select_events(*given, find_roles)
        seen = events if find_roles is None else seen
        for work in workload.works:
            for prepared in work.expected:
                warn_if_expensive(prepared, seen if work.of_events else None)
    results: dict[int, pa.Table] = {}
    unseen: list[UnseenTypes] = []
    with allow_interrupts(), mark_waiting():
        for number, work in enumerate(workload.works):
            share = _share(options.progress, number, len(workload.works), seen.num_rows)
            stage = work.as_single_stage()
            if isinstance(events, pa.Table):
                matcher = stage.table_matcher()
                tables = run_to_end(matcher, StageInput.from_events(events, share, selection))
                unseen.append(work.find_unseen(matcher, events, tables))
            else:
                tables, missing = events.match(work, share)
                unseen.append(missing)
            delivered = dict(stage.iterate_outputs(tables))
            for output in work.outputs:
                results[output.number] = _finish_result(output, delivered.get(output.number))
    if options.progress is not None and seen.num_rows and not events.num_rows:
        options.progress(seen.num_rows, seen.num_rows)  # pruning left no events to match
    _warn_of_unseen(unseen, seen, workload)
    return {output.name: results[output.number] for output in workload.outputs}


def _finish_result(output: OutputTable, table: pa.Table | None) -> pa.Table:
    """Sorts, converts and aggregates the result of a table; None: there is no match."""
    if table is None:
        table = create_empty_table(output.schema)
    else:
        table = output.convert(sort_result(table, output.meaning, output.sorted_by) if output.sorted_by else table)
    return table if output.finished is None else output.finished.finish(table)


def measure(events: Any, query: Query, options: SourceOptions, *, sample: int = 10_000, seed: int = 0) -> Statistics:
    from ensue.engine.sampling import sample_statistics

    table, source = read(events, replace(options, whole=True))
    assert isinstance(table, pa.Table)
    usable, _ = drop_bad_times(table, source.shape, "drop")
    return sample_statistics(compile_query(query, source.shape), usable, sample=sample, seed=seed)


def _share(progress: Progress | None, number: int, works: int, events: int) -> Progress | None:
    """Scale the progress of one operator to all of them; it may see fewer events than the table
    has."""
    if progress is None:
        return None
    return lambda done, total: progress((number * events + done * events // total) // works, events)


def _warn_of_unseen(types: Sequence[UnseenTypes], events: "pa.Table | SpilledEvents", workload: Workload) -> None:
    column = workload.source.shape.schema.type_column
    if column is None or not events.num_rows or not any(unseen.types for unseen in types):
        return
    names = events.column(column).unique().to_pylist() if isinstance(events, pa.Table) else events.types
    seen = sorted({str(v) for v in names if v is not None})
    for unseen in types:
        for name in sorted(unseen.types - set(seen)):
            hint = did_you_mean(name, [*unseen.defined, *seen])
            warnings.warn(f"no event is of type '{name}': {hint}", stacklevel=find_stacklevel())


class Backend(Protocol):
    """Interface of the modules that run workloads: `local`, `spark.batch`, `spark.stream`."""

    @property
    def STREAMING(self) -> bool:  # noqa: N802  a constant of the module
        """Whether the input is a stream."""

    def read(self, events: Any, options: SourceOptions, /) -> tuple[Any, SourceSchema]:
        """Read the events into one table or DataFrame, with their source schema."""

    def key_groups(self, frame: Any, options: SourceOptions, /) -> int:
        """Return the number of key groups of a partitioned stage."""

    def run(self, workload: Workload, frame: Any, options: SourceOptions, /) -> Mapping[Name, Any]:
        """Return the outputs of a workload by name."""

    def measure(self, events: Any, query: Query, options: SourceOptions, /, *, sample: int, seed: int) -> Statistics:
        """Measure the statistics of the events that a query reads."""
