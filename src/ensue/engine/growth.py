"""Growing the tables of a kernel within the memory budget, and evicting unused codes."""

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from ensue.codegen.kernel_inputs import (
    MOST_NODES,
    MOST_OUT,
    NEEDS_DRAIN,
    NEEDS_OUTPUT,
    OUT_TOP,
    POSITION,
    STOP,
    STOPPED,
)
from ensue.engine.match_selection import OrderedSkipStrategy, SkipStrategy
from ensue.engine.memory_budget import MOST_ROWS, MemoryBudget, MemoryUsage, SharedUsage
from ensue.physical.structure import RoomRequest, StructureState
from ensue.vector.key_codes import KeyCodes
from ensue.vector.match_rows import Matches

if TYPE_CHECKING:
    from ensue.engine.engine import Engine
    from ensue.engine.interval_negation import IntervalNegationFilter

MOST_OUTPUT = 1 << 18  # rows up to which the output table grows


class TableAllocator:
    """Grows the tables of an engine within its memory budget."""

    def __init__(self, engine: "Engine", allowance: MemoryBudget) -> None:
        self._engine = weakref.ref(engine)  # a cycle would delay freeing tables
        self.allowance = allowance
        self.matches = 0  # returned by the engine and still counted
        self.size = 0.0  # bytes of these matches
        self.waiting, self.waiting_size = 0, 0.0  # the same for matches not returned yet
        self.counts = True  # False while events are replayed
        self.elsewhere = 0.0  # bytes used by other matchers of the same call
        self.shared: tuple[SharedUsage, int] | None = None  # with the number of its part of the table
        self.at: tuple[int, float] | None = None  # the current event and its time, for errors

    @property
    def engine(self) -> "Engine":
        engine = self._engine()
        assert engine is not None
        return engine

    def count_drained(self, piece: Matches) -> None:
        """Count matches that were moved out of the kernel's output."""
        if not self.counts:
            return
        self.waiting += piece.number
        self.waiting_size += piece.nbytes

    def keep(self, matches: Matches) -> None:
        """Count matches that the engine returns."""
        self.waiting, self.waiting_size = 0, 0.0
        if not self.counts:
            return
        self.matches += matches.number
        self.size += matches.nbytes
        self.ask()

    def hand_over(self) -> None:
        """Stop counting the matches returned so far."""
        self.matches, self.size = 0, 0.0

    def take_over(self, other: "TableAllocator") -> None:
        """Continue the counts of another engine of the same query."""
        self.matches, self.size, self.elsewhere = other.matches, other.size, other.elsewhere

    def compute_usage(self, more: float = 0.0) -> MemoryUsage:
        """The memory usage of the engine after allocating `more` bytes."""
        engine = self.engine
        tables = sum(table.nbytes for table in engine.state.tables.values())
        tables += engine.waiting_bytes
        # concatenating matches needs twice their size
        size, matches = tables + 2 * (self.size + self.waiting_size), self.matches + self.waiting
        elsewhere = self.elsewhere
        if self.shared is not None:
            usage, part = self.shared
            in_other_parts, found = usage.report(part, size, matches)
            elsewhere, matches = elsewhere + in_other_parts, matches + found
        return MemoryUsage(
            engine.partial_matches, matches, size + elsewhere + more, *(self.at or (engine.rows - 1, engine.now))
        )

    def ask(self, more: float = 0.0) -> None:
        """Raise LimitError if the engine may not allocate `more` bytes."""
        if not self.allowance.unlimited:
            self.allowance.ask(self.compute_usage(more))

    def allow(self) -> None:
        """Set the table sizes up to which the kernel may grow tables itself."""
        state, held = self.engine.state, self.compute_usage()
        tables, meta = state.tables, state.meta
        meta[STOP] = 0
        meta[MOST_OUT] = self.allowance.most_matches(tables["O"].shape[1], held)
        width = sum(tables[name].shape[1] for name in state.source.returned if name != "O")
        meta[MOST_NODES] = self.allowance.most_entries(width, held)

    def make(self, code: int, now: float, *, again: bool) -> None:
        """Handle a request code that a kernel returned before the event that ends at `now`.

        `again`: the kernel repeats the request at the same event.
        """
        engine, state = self.engine, self.engine.state
        tables, meta = state.tables, state.meta
        row = engine.rows + int(meta[POSITION])
        self.at = (row, now)
        if code == NEEDS_OUTPUT:
            crowded = meta[OUT_TOP] * 2 < len(tables["O"])  # one event needs more space
            self.drain()
            if crowded or len(tables["O"]) < MOST_OUTPUT:
                self.grow("O")
        elif code == NEEDS_DRAIN:
            self.drain()
            self.ask()
        elif code == STOPPED:  # the kernel reached the sizes set by `allow`
            self.drain()
            self.ask(max(2.0 * t.nbytes for t in tables.values()))
            raise self.allowance.full(self.compute_usage())
        else:
            state.make_room(RoomRequest(code, now, row, again), self)
        self.at = None

    def drain(self) -> None:
        """Move the matches out of the output table."""
        self.engine.drain()

    def grow(self, *names: str) -> None:
        """Double the capacity of some tables, within the budget."""
        state = self.engine.state
        tables = [state.tables[name] for name in names]
        self.ask(2.0 * sum(table.nbytes for table in tables))
        if 2 * len(tables[0]) > MOST_ROWS:
            raise self.allowance.full(self.compute_usage())
        state.grow(*names)


def evict_keys(
    state: StructureState[Any],
    keys: KeyCodes,
    skipping: SkipStrategy | None,
    lapsing: "IntervalNegationFilter | None" = None,
) -> None:
    """Evict the partitions that have no runs and no instances.

    A partition that returns may start from scratch: the count of its events only orders runs and
    instances relative to each other, and its AFTER MATCH SKIP position excludes only past events.
    """
    count = len(keys)
    if keys.known == 0:
        return
    alive = state.live_keys()[:count]
    if lapsing is not None:
        alive = alive | lapsing.live_keys(count)
    if isinstance(skipping, OrderedSkipStrategy):
        alive = alive | skipping.live_keys(count)
    kept = np.flatnonzero(alive)
    if len(kept) == count == keys.known:
        return
    state.keep_keys(kept, keys.keep(alive))
    if skipping is not None:
        skipping.keep(kept)
    if lapsing is not None:
        lapsing.keep_keys(kept)


def evict_strings(state: StructureState[Any], strings: KeyCodes) -> None:
    """Evict the strings whose codes no row of the packed tables holds.

    A row may have cells that were never written. Their content is an unused code, or it retains
    a string unnecessarily.
    """
    count = len(strings)
    if count == 0:
        return
    places = [
        (state.get_used_rows(columns.whole), columns.wholes[name])
        for columns in state.source.columns
        for name in sorted(columns.texts)
    ]
    alive = np.zeros(count, np.bool_)
    for table, column in places:
        codes = table[:, column]
        alive[codes[(codes >= 0) & (codes < count)]] = True
    if alive.all():
        return
    moved = strings.keep(alive)
    for table, column in places:
        codes = table[:, column]
        inside = (codes >= 0) & (codes < count)
        table[:, column] = np.where(inside, moved[np.where(inside, codes, 0)], -1)
