"""Several queries over one stream in memory: one scan, equal matching parts run once."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from ensue.columns.buffers import Ints
from ensue.columns.matches import Matches
from ensue.columns.rows import taken, whole_column
from ensue.columns.stream import slices
from ensue.results.identity import ORDINAL, RowHashes, ordinals, times_of
from ensue.schema import names_of
from ensue.workload.prepared import Prepared, build_result, joined_of, time_ordered
from ensue.workload.queries.shared_engine import Watcher, renumbered, uses_of, watchers_of
from ensue.workload.queries.shared_scan import Block

BLOCK = 1 << 22  # events that are scanned at a time
Progress = Callable[[int, int], None]


class WholeScan:
    """Queries over events that are all there."""

    def __init__(self, queries: Sequence[Prepared], *, ordered: bool = False) -> None:
        self.queries = list(queries)
        self.ordered = ordered  # results are by the times of matches
        self.unseen: set[str] = set()  # types that no event had

    def match(
        self, events: pa.Table, progress: Progress | None = None, *, block: int = BLOCK
    ) -> list[pa.Table]:
        """The result of each query in events that are in the order of the stream."""
        watchers = watchers_of(self.queries)
        events = pa.table(
            [whole_column(events, name) for name in events.column_names], schema=events.schema
        )
        found: dict[int, Matches] = {}
        if events.num_rows <= block:
            self._in_one_block(watchers, events, found, progress)
        else:
            self._in_blocks(watchers, events, found, progress, block)
        return self._built(found, events)

    def _in_one_block(
        self,
        watchers: list[Watcher],
        events: pa.Table,
        found: dict[int, Matches],
        progress: Progress | None,
    ) -> None:
        """One matcher after the other: none has to wait for more events."""
        block = self._block(watchers, events)
        self.unseen = self._types(watchers, block)
        total, held = len(watchers), 0
        while watchers:
            watcher = watchers.pop(0)  # its room is free for the next
            watcher.engine.others_hold(held)
            fed, rows = watcher.feed(block, lasting=False)
            matches = joined_of(watcher.engine, [fed, watcher.finish()])
            if rows is not None:
                matches = renumbered(matches, rows)
            found.update(dict.fromkeys(watcher.members, matches))
            held += matches.nbytes
            if progress is not None:
                progress((total - len(watchers)) * events.num_rows // total, events.num_rows)

    def _in_blocks(
        self,
        watchers: list[Watcher],
        events: pa.Table,
        found: dict[int, Matches],
        progress: Progress | None,
        size: int,
    ) -> None:
        pieces: list[list[Matches]] = [[] for _ in watchers]
        numbers: list[list[Ints]] = [[] for _ in watchers]
        held = [0] * len(watchers)
        unseen: set[str] | None = None
        done = 0
        for part in slices(events, size):
            block = self._block(watchers, part)
            without = self._types(watchers, block)
            unseen = without if unseen is None else unseen & without
            for k, watcher in enumerate(watchers):
                watcher.engine.others_hold(sum(held) - held[k])
                fed, rows = watcher.feed(block, lasting=True)
                pieces[k].append(fed)
                held[k] += fed.nbytes
                numbers[k].append(done + (np.arange(block.count) if rows is None else rows))
            done += block.count
            if progress is not None:
                progress(done, events.num_rows)
        self.unseen = unseen or set()
        for k, watcher in enumerate(watchers):
            matches = joined_of(watcher.engine, [*pieces[k], watcher.finish()])
            matches = renumbered(matches, np.concatenate(numbers[k]))
            found.update(dict.fromkeys(watcher.members, matches))

    def _block(self, watchers: list[Watcher], events: pa.Table) -> Block:
        shape = self.queries[0].shape
        _, schema = shape.physical(self.queries[0].query)
        return Block(events, schema, shape.unit, uses_of(watchers))

    def _types(self, watchers: list[Watcher], block: Block) -> set[str]:
        """The types of positive events that a block lacks."""
        roles = [r for w in watchers for r in w.prepared.plan.roles if not r.negative]
        wanted = {name for role in roles for name in names_of(role.type)}
        return {name for name in wanted if not block.has_type(name)}

    def _built(self, found: dict[int, Matches], events: pa.Table) -> list[pa.Table]:
        """The tables; which events are alike, and what their ids are, is found out once."""
        wanted = np.zeros(events.num_rows, np.bool_)
        for matches in found.values():
            for variable in matches.variables:
                wanted[matches.elements(variable)] = True
        end = self.queries[0].shape.schema.end
        rows = np.flatnonzero(wanted)
        numbers = ordinals(events, wanted, times_of(events, end))[rows] if len(rows) else rows
        columns = [taken(whole_column(events, name), rows) for name in events.column_names]
        known = pa.table(columns, schema=events.schema)
        known = known.append_column(ORDINAL, pa.array(numbers))
        hashes = RowHashes(known, end)
        places = np.zeros(events.num_rows, np.int64)
        places[rows] = np.arange(len(rows))
        built = []
        for number, prepared in enumerate(self.queries):
            matches = renumbered(found[number], places)
            if self.ordered:
                matches = time_ordered(prepared, matches, known)
            built.append(build_result(prepared, matches, known, hashes))
        return built
