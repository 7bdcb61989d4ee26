"""Matches a table with a hierarchy in several threads: stage by stage, each in parts by the hash of its key."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from ensue.analyzer.hierarchy_layers import get_layer_column
from ensue.engine.engine import Engine
from ensue.engine.interrupts import run_in_threads
from ensue.engine.memory_budget import SharedUsage
from ensue.errors import LimitError
from ensue.ir.hierarchy import LAST_POSITION
from ensue.operators.hierarchy.compiled_hierarchy import CompiledHierarchy, CompiledStage
from ensue.operators.hierarchy.hierarchy_matcher import POSITIONED, HierarchyMatcher, concat_tables
from ensue.runtime.compiled_query import can_match_in_parts, has_many_events
from ensue.runtime.event_pruning import can_prune_events
from ensue.runtime.pipeline import run_to_end
from ensue.runtime.stage import StageInput
from ensue.runtime.table_parts import ScanPool, count_large_parts, find_types, group_rows_by_key
from ensue.vector.arrow_numpy import Bools, Ints, wrap_numbers
from ensue.vector.arrow_types import kind_of_arrow
from ensue.vector.take import take_rows


def can_split_table(stages: Sequence[CompiledStage]) -> bool:
    """Whether threads can match the key groups of some stage; limits on matches are for all of them together."""
    limits = stages[0].layers[0].prepared.planning.limits
    keyed = [layer for stage in stages if stage.stage.key for layer in stage.layers]
    return (
        limits.thread_count > 1
        and limits.max_matches is None
        and bool(keyed)
        and all(can_match_in_parts(query) for layer in keyed for query in layer.queries)
    )


def find_relevant(stage: CompiledStage, threads: int) -> Callable[[pa.Table], Bools] | None:
    """Returns what finds the input events that can change the result of a stage; None: all can."""
    layers = [layer for layer in stage.layers if layer.source.reads_raw]
    tested = [layer for layer in layers if layer.source.alone and all(map(can_prune_events, layer.queries))]
    column, types = stage.shape.schema.type_column, stage.reads.types
    if len(tested) < len(layers):
        if column is None or types is None:
            return None
        return find_types(column, types)
    scans = [ScanPool(query.program, threads) for layer in tested for query in layer.queries]

    def find(events: pa.Table) -> Bools:
        found = np.zeros(events.num_rows, np.bool_)
        for pool in scans:
            with pool.lend() as scan:
                found |= scan.get_roles(events) != 0
        return found

    return find


class HierarchyTableMatcher:
    """Matches a hierarchy over a table; the complex events of a stage have the positions of their members."""

    def __init__(self, hierarchy: CompiledHierarchy, stages: Sequence[CompiledStage]) -> None:
        self.hierarchy, self.stages = hierarchy, stages
        self.threads = stages[0].layers[0].prepared.planning.limits.thread_count
        self._batch: StageInput | None = None

    def process(self, batch: StageInput) -> list[pa.Table]:
        self._batch = batch
        return []

    def on_watermark(self, now: float) -> list[pa.Table]:  # noqa: ARG002
        assert self._batch is not None
        batch, whole = self._batch, HierarchyMatcher(self.hierarchy)
        if not has_many_events(batch.events):
            return run_to_end(whole, batch)
        try:
            return self._match_stages(whole.find_starts(batch))
        except LimitError:  # one thread needs less memory, or names the event at which a limit is exceeded
            return run_to_end(HierarchyMatcher(self.hierarchy), batch)

    def _match_stages(self, starts: Ints | None) -> list[pa.Table]:
        delivered: dict[str, pa.Table] = {}
        forwarded: dict[str, pa.Table] = {}
        for number, stage in enumerate(self.stages):
            tables = iter(self._match_stage(number, starts, {name: forwarded[name] for name in stage.takes}))
            delivered |= {name: next(tables) for name in stage.delivered}
            for name, table in zip(stage.stage.gives, tables, strict=True):
                order = np.argsort(table.column(LAST_POSITION).to_numpy(), kind="stable")
                forwarded[name] = take_rows(table, order)
        return [delivered[name] for name in self.hierarchy.delivered]

    def _match_stage(self, number: int, starts: Ints | None, lower: Mapping[str, pa.Table]) -> list[pa.Table]:
        """Returns the tables of a stage, from all its parts."""
        batch, stage = self._batch, self.stages[number]
        assert batch is not None
        events = batch.bare
        key, own_key = stage.stage.key, tuple(map(get_layer_column, stage.stage.key))
        kinds = {tuple(kind_of_arrow(table.schema.field(n).type) for n in own_key) for table in lower.values()}
        kinds.add(tuple(kind_of_arrow(events.schema.field(n).type) for n in key))
        # values of different types may be equal, though their hashes differ
        parts = count_large_parts(events.num_rows, self.threads) if key and len(kinds) == 1 else 1

        tables = [(events, group_rows_by_key(events, key, parts, self.threads, find_relevant(stage, self.threads)))]
        tables += [(table, group_rows_by_key(table, own_key, parts, self.threads)) for table in lower.values()]
        queries = [query for layer in stage.layers for query in layer.queries]
        for query in queries if parts > 1 else ():
            _ = query.program  # generated once, not in each thread
        usages = [SharedUsage() for _ in queries]
        finished = SharedUsage()  # of the results of all parts

        def match_part(part: int) -> list[pa.Table]:
            matcher = HierarchyMatcher(self.hierarchy, stage, POSITIONED)
            for usage, engine in zip(usages, matcher.engines, strict=True):
                if parts > 1:
                    assert isinstance(engine, Engine)
                    engine.room.shared = usage, part
            matcher.set_foreign_memory(finished.report(part, 0.0, 0)[0])
            own, *others = (take_rows(table, groups[part]) for table, groups in tables)
            rows = tables[0][1][part]
            for name, positions in zip(POSITIONED, (rows, rows if starts is None else starts[rows]), strict=True):
                own = own.append_column(name, wrap_numbers(positions))
            result = run_to_end(matcher, StageInput(own, dict(zip(lower, others, strict=True)), POSITIONED))
            finished.report(part, sum(table.nbytes for table in result), 0)
            for usage in usages:
                usage.report(part, 0.0, 0)
            return result

        done = number * parts

        def report(_: int) -> None:
            nonlocal done
            done += 1
            batch.report(batch.events.num_rows * done // (parts * len(self.stages)))

        pieces = run_in_threads([partial(match_part, part) for part in range(parts)], self.threads, report)
        return [concat_tables(tables[0].schema, tables) for tables in zip(*pieces, strict=True)]
