"""The memory of matchers: budgets, growing tables within them, and the error when a query exceeds them."""

import math
import os
import threading
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ensue.analyzer.output_mode import is_summarized
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
from ensue.errors import LimitError
from ensue.ir.query import Query
from ensue.ir.selection import Strategy
from ensue.ir.traversal import find_subset_variables, get_kleene_variables
from ensue.options import Limits, format_size
from ensue.physical.structure import RoomRequest, StructureState
from ensue.schema import Schema, ValueKind
from ensue.vector.arrow_types import Unit
from ensue.vector.key_codes import KeyCodes
from ensue.vector.match_rows import Matches

if TYPE_CHECKING:
    from ensue.engine.engine import Engine
    from ensue.engine.interval_negation import IntervalNegationFilter

PAGE = "docs/strategies.md"


def format_hint(query: Query, *more: str) -> str:
    """Format suggestions as the hint of an error."""
    ways = [*suggest_cheaper_query(query), *more]
    return "\n".join(["  hint: try one of these", *(f"    - {way}" for way in ways)])


def suggest_cheaper_query(query: Query) -> list[str]:
    """Suggest changes that make a query hold and find less, the most effective one first.

    >>> from ensue.parser.pattern_parser import parse
    >>> for way in suggest_cheaper_query(parse("SEQ(A+ a[], B b) USING next WITHIN 5")):
    ...     print(way)
    AFTER MATCH SKIP PAST LAST EVENT reports one match, not one for each event that can begin it
    a key, WHERE [column], if all events of a match agree in a column
    a shorter WITHIN
    LIMIT n keeps the first n matches of each last event
    RETURN COUNT(*) counts them without listing them
    """
    ways = []
    if repeated := find_subset_variables(query.pattern, query.strategy):
        ways.append(
            f"USING next takes the events for {repeated[0]}[] in order; without it, every "
            f"subset of them is a match. {PAGE} explains the choice"
        )
    elif query.strategy is Strategy.ANY:
        ways.append(
            "USING next takes the next event that fits; without it, every one that fits makes a "
            f"match. {PAGE} explains the choice"
        )
    if get_kleene_variables(query.pattern) and query.after is None:
        ways.append("AFTER MATCH SKIP PAST LAST EVENT reports one match, not one for each event that can begin it")
    if repeated:
        ways.append("a bounded repetition, as in {3,5}")
    if not query.equivalence:
        ways.append("a key, WHERE [column], if all events of a match agree in a column")
    ways.append("a WITHIN" if query.within is None else "a shorter WITHIN")
    if not is_summarized(query) and query.limit is None:
        ways.append("LIMIT n keeps the first n matches of each last event")
        ways.append("RETURN COUNT(*) counts them without listing them")
    return ways


UNKNOWN = 8 << 30  # assumed where the system reports no size
WAY_BYTES = 1_000  # estimated size of a binding as Python objects
MOST_TEXT = 300  # characters of a query in an error message
MOST_ROWS = (1 << 31) - 1  # links between rows have 32 bits
_MORE = 'ensue.Limits(max_matches=..., max_partial_matches=..., memory="8 GB") allows more'
_BOUNDS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@lru_cache(maxsize=1)
def get_machine_memory() -> float:
    """The memory of this machine, or of the container of this process."""
    try:
        size = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        size = float(UNKNOWN)
    for path in _BOUNDS:
        try:
            size = min(size, int(Path(path).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no such bound, or "max"
            continue
    return size


@dataclass(frozen=True, slots=True)
class Usage:
    """What a matcher holds."""

    partial_matches: int = 0
    state_bytes: int = 0  # approximate size of `snapshot()`
    held_bytes: int = 0  # memory in use, with spare capacity

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.partial_matches + other.partial_matches,
            self.state_bytes + other.state_bytes,
            self.held_bytes + other.held_bytes,
        )

    def add_bytes(self, size: int) -> "Usage":
        """The usage with a buffer of `size` bytes that is part of the state."""
        return Usage(self.partial_matches, self.state_bytes + size, self.held_bytes + size)


def sum_usage(usages: Iterable[Usage]) -> Usage:
    return sum(usages, Usage())


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """What a matcher will hold after the next step, and its position in the stream."""

    partial_matches: int
    matches: int  # returned and still counted
    size: float  # bytes
    row: int  # of the stream
    time: float | None


class SharedUsage:
    """What engines hold that match the parts of one table in several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, tuple[float, int]] = {}  # bytes and matches, by part

    def report(self, part: int, size: float, matches: int) -> tuple[float, int]:
        """Note what one engine holds; return the bytes and matches of the others."""
        with self._lock:
            self._held[part] = size, matches
            others = [held for number, held in self._held.items() if number != part]
        return sum(size for size, _ in others), sum(count for _, count in others)


class MemoryBudget:
    """Checks the usage of one matcher against its limits."""

    def __init__(self, limits: Limits, query: Query, schema: Schema, unit: Unit) -> None:
        self.limits = limits
        self.size = limits.compute_memory_bound(get_machine_memory(), os.cpu_count() or 1)
        self._query = query
        self._calendar = schema.time_kind in (ValueKind.TIMESTAMP, ValueKind.DATE)
        self._ticks = 1e9 if unit == "ns" else 1e6

    @property
    def unlimited(self) -> bool:
        counts = (self.limits.max_matches, self.limits.max_partial_matches)
        return math.isinf(self.size) and counts == (None, None)

    def ask(self, held: MemoryRequest) -> None:
        """Raise LimitError if a matcher exceeds its limits."""
        most, partial = self.limits.max_matches, self.limits.max_partial_matches
        if most is not None and held.matches > most:
            raise self._error(f"finds more matches than max_matches={most:,} allows", held)
        if partial is not None and held.partial_matches > partial:
            problem = f"holds more partial matches than max_partial_matches={partial:,} allows"
            raise self._error(problem, held)
        if held.size > self.size:
            raise self._error(f"needs {format_size(held.size)}, {self._format_limit()}", held)

    def full(self, held: MemoryRequest) -> LimitError:
        """The error for a table that cannot grow."""
        return self._error(f"needs more than {MOST_ROWS:,} rows in a table", held)

    def build_allocation_error(self, held: MemoryRequest) -> LimitError:
        """The error when the system refuses to allocate memory, as under `ulimit -v`."""
        return self._error("needs more memory than the system gives this process", held)

    def most_matches(self, width: int, held: MemoryRequest) -> int:
        """How many matches of `width` numbers a kernel may write before it asks again."""
        most = self.limits.max_matches
        left = math.inf if most is None else most - held.matches + 1
        return int(min(max(left, 0), self.most_entries(width, held)))

    def most_entries(self, width: int, held: MemoryRequest) -> int:
        """How many rows of `width` numbers tables may hold; growing one needs twice its size."""
        room = max(self.size - held.size, 0) / (16 * max(1, width))
        return int(min(room, MOST_ROWS))

    def most_ways(self) -> int | None:
        """How many bindings the reference may enumerate; None: unlimited."""
        partial, room = self.limits.max_partial_matches, self.size / WAY_BYTES
        if partial is not None:
            return int(min(partial, room))
        return None if math.isinf(room) else int(room)

    def too_many(self, held: MemoryRequest) -> LimitError:
        """The error of the reference, which enumerates all bindings."""
        return self._error(
            f"has more than {held.partial_matches:,} ways to arrange its events, and the reference path lists them all",
            held,
        )

    def _format_limit(self) -> str:
        limits = self.limits
        if limits.memory_size is not None:
            return f"and ensue.Limits(memory=...) allows {format_size(self.size)}"
        share = f"{limits.memory_share:.0%} of this machine's"
        shared = ", shared by its cores" if limits.per_core else ""
        return f"and it may take {format_size(self.size)} ({share}{shared})"

    def _error(self, problem: str, held: MemoryRequest) -> LimitError:
        from ensue.printing.pattern_printer import format_query

        text = self._query.text or format_query(self._query)
        text = " ".join(text.split())
        if len(text) > MOST_TEXT:
            text = f"{text[:MOST_TEXT]} ..."
        name = "the query" if self._query.name is None else f"the query {self._query.name}"
        return LimitError(
            f"{name} {problem}\n"
            f"  query: {text}\n"
            f"  where: event {held.row + 1:,} of the stream{self._moment(held.time)}: "
            f"{held.matches:,} matches found, {held.partial_matches:,} partial matches held, "
            f"{format_size(held.size)}\n"
            f"{format_hint(self._query, _MORE)}"
        )

    def _moment(self, time: float | None) -> str:
        if time is None:
            return ""
        if not self._calendar:
            return f", at {time:g}"
        try:
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=time / self._ticks)
        except OverflowError:
            return ""
        return f", at {moment:%Y-%m-%d %H:%M:%S}"


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

    def build_request(self, more: float = 0.0) -> MemoryRequest:
        """What the engine holds after allocating `more` bytes."""
        engine = self.engine
        tables = engine.state.nbytes + engine.waiting_bytes
        # concatenating matches needs twice their size
        size, matches = tables + 2 * (self.size + self.waiting_size), self.matches + self.waiting
        elsewhere = self.elsewhere
        if self.shared is not None:
            usage, part = self.shared
            in_other_parts, found = usage.report(part, size, matches)
            elsewhere, matches = elsewhere + in_other_parts, matches + found
        return MemoryRequest(
            engine.partial_matches, matches, size + elsewhere + more, *(self.at or (engine.rows - 1, engine.now))
        )

    def ask(self, more: float = 0.0) -> None:
        """Raise LimitError if the engine may not allocate `more` bytes."""
        if not self.allowance.unlimited:
            self.allowance.ask(self.build_request(more))

    def allow(self) -> None:
        """Set the table sizes up to which the kernel may grow tables itself."""
        state, held = self.engine.state, self.build_request()
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
            raise self.allowance.full(self.build_request())
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
            raise self.allowance.full(self.build_request())
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
