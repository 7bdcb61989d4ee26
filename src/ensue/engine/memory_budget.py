"""The memory budget of a matcher, and the error when a query exceeds it."""

import math
import os
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from ensue.analyzer.output_mode import is_summarized
from ensue.errors import LimitError
from ensue.ir.query import Query
from ensue.ir.selection import Strategy
from ensue.ir.traversal import find_subset_variables, get_kleene_variables
from ensue.options import Limits, format_size
from ensue.schema import Schema, ValueKind
from ensue.vector.arrow_types import Unit

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
class MemoryUsage:
    """The memory usage of a matcher after the next step, and its position in the stream."""

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

    def ask(self, held: MemoryUsage) -> None:
        """Raise LimitError if a matcher exceeds its limits."""
        most, partial = self.limits.max_matches, self.limits.max_partial_matches
        if most is not None and held.matches > most:
            raise self._error(f"finds more matches than max_matches={most:,} allows", held)
        if partial is not None and held.partial_matches > partial:
            problem = f"holds more partial matches than max_partial_matches={partial:,} allows"
            raise self._error(problem, held)
        if held.size > self.size:
            raise self._error(f"needs {format_size(held.size)}, {self._format_limit()}", held)

    def full(self, held: MemoryUsage) -> LimitError:
        """The error for a table that cannot grow."""
        return self._error(f"needs more than {MOST_ROWS:,} rows in a table", held)

    def build_allocation_error(self, held: MemoryUsage) -> LimitError:
        """The error when the system refuses to allocate memory, as under `ulimit -v`."""
        return self._error("needs more memory than the system gives this process", held)

    def most_matches(self, width: int, held: MemoryUsage) -> int:
        """How many matches of `width` numbers a kernel may write before it asks again."""
        most = self.limits.max_matches
        left = math.inf if most is None else most - held.matches + 1
        return int(min(max(left, 0), self.most_entries(width, held)))

    def most_entries(self, width: int, held: MemoryUsage) -> int:
        """How many rows of `width` numbers tables may hold; growing one needs twice its size."""
        room = max(self.size - held.size, 0) / (16 * max(1, width))
        return int(min(room, MOST_ROWS))

    def most_ways(self) -> int | None:
        """How many bindings the reference may enumerate; None: unlimited."""
        partial, room = self.limits.max_partial_matches, self.size / WAY_BYTES
        if partial is not None:
            return int(min(partial, room))
        return None if math.isinf(room) else int(room)

    def too_many(self, held: MemoryUsage) -> LimitError:
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

    def _error(self, problem: str, held: MemoryUsage) -> LimitError:
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
