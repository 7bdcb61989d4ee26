"""How much a matcher may hold: asked before it takes more, and the error if it is too much."""

import math
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from ensue.algebra.query import Query
from ensue.columns.arrow_kinds import Unit
from ensue.engine import asking_less
from ensue.errors import LimitError
from ensue.languages.printing import show
from ensue.plan.limits import Limits, size_text
from ensue.schema import Kind, Schema

UNKNOWN = 8 << 30  # bytes of a machine that does not say how many it has
WAY_BYTES = 1_000  # that a way to arrange events takes as a Python object
MOST_TEXT = 300  # characters of a query in an error
MOST_ROWS = (1 << 31) - 1  # of a table: links between rows have 32 bits
_MORE = 'max_matches=, max_partial_matches= and memory= allow more, as in memory="8 GB"'
_BOUNDS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@lru_cache(maxsize=1)
def machine_memory() -> float:
    """The memory of this machine, or of the container it runs this process in."""
    try:
        found = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        found = float(UNKNOWN)
    for place in _BOUNDS:
        try:
            found = min(found, int(Path(place).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no such bound, or "max"
            continue
    return found


@dataclass(frozen=True, slots=True)
class Holding:
    """What a matcher would hold after the next step, and where in the stream it is."""

    partial_matches: int
    matches: int  # found and not handed over
    size: float  # bytes
    row: int  # of the stream
    time: float | None


class Allowance:
    """The bounds of one matcher.

    >>> from ensue.languages.patterns import parse
    >>> from ensue.schema import one_table
    >>> schema = one_table({"t": Kind.INTEGER}, time="t", type_column=None)
    >>> few = Allowance(Limits(max_matches=10), parse("SEQ(A a, B b) WITHIN 5"), schema, "us")
    >>> few.ask(Holding(3, 11, 1e3, 41, 7))
    Traceback (most recent call last):
    ...
    ensue.errors.LimitError: the query finds more matches than max_matches=10 allows
      query: SEQ(A a, B b) WITHIN 5
      where: event 42 of the stream, at 7: 11 matches found, 3 partial matches held, 1 KB
      hint: try one of these
        - USING next takes the next event that fits; ...
        - a key, WHERE [column], if all events of a match agree in a column
        - a shorter WITHIN
        - LIMIT n keeps the first n matches of each last event
        - RETURN COUNT(*) counts them without listing them
        - max_matches=, max_partial_matches= and memory= allow more, as in memory="8 GB"
    """

    def __init__(self, limits: Limits, query: Query, schema: Schema, unit: Unit) -> None:
        self.limits = limits
        self.size = limits.bytes_of(machine_memory(), os.cpu_count() or 1)
        self._query = query
        self._calendar = schema.time_kind in (Kind.TIMESTAMP, Kind.DATE)
        self._ticks = 1e9 if unit == "ns" else 1e6

    @property
    def unlimited(self) -> bool:
        counts = (self.limits.max_matches, self.limits.max_partial_matches)
        return math.isinf(self.size) and counts == (None, None)

    def ask(self, held: Holding) -> None:
        """An error if a matcher may not hold so much."""
        most, partial = self.limits.max_matches, self.limits.max_partial_matches
        if most is not None and held.matches > most:
            raise self._error(f"finds more matches than max_matches={most:,} allows", held)
        if partial is not None and held.partial_matches > partial:
            problem = f"holds more partial matches than max_partial_matches={partial:,} allows"
            raise self._error(problem, held)
        if held.size > self.size:
            raise self._error(f"needs {size_text(held.size)}, {self._allowed()}", held)

    def full(self, held: Holding) -> LimitError:
        """The error of a matcher with a table that cannot become larger."""
        return self._error(f"needs more than {MOST_ROWS:,} rows in a table", held)

    def refused(self, held: Holding) -> LimitError:
        """The error of a matcher that the system gives no more memory, as under `ulimit -v`."""
        return self._error("needs more memory than the system gives this process", held)

    def most_matches(self, width: int, held: Holding) -> int:
        """How many matches of so many numbers a kernel may write without asking."""
        most = self.limits.max_matches
        left = math.inf if most is None else most - held.matches + 1
        return int(min(max(left, 0), self.most_entries(width, held)))

    def most_entries(self, width: int, held: Holding) -> int:
        """The same for rows of a table: one that grows is there twice for a moment."""
        room = max(self.size - held.size, 0) / (16 * max(1, width))
        return int(min(room, MOST_ROWS))

    def most_ways(self) -> int | None:
        """How many ways to arrange events the reference may list; None: any number."""
        partial, room = self.limits.max_partial_matches, self.size / WAY_BYTES
        if partial is not None:
            return int(min(partial, room))
        return None if math.isinf(room) else int(room)

    def too_many(self, held: Holding) -> LimitError:
        """The error of the reference, which lists every way to arrange events."""
        return self._error(
            f"has more than {held.partial_matches:,} ways to arrange its events, "
            "and the reference path lists them all",
            held,
        )

    def _allowed(self) -> str:
        limits = self.limits
        if limits.memory is not None:
            return f"and memory= allows {size_text(self.size)}"
        share = f"{limits.share:.0%} of this machine's"
        shared = ", shared by its cores" if limits.lanes else ""
        return f"and it may take {size_text(self.size)} ({share}{shared})"

    def _error(self, problem: str, held: Holding) -> LimitError:
        text = self._query.text or show(self._query)
        text = " ".join(text.split())
        if len(text) > MOST_TEXT:
            text = f"{text[:MOST_TEXT]} ..."
        name = "the query" if self._query.name is None else f"the query {self._query.name}"
        return LimitError(
            f"{name} {problem}\n"
            f"  query: {text}\n"
            f"  where: event {held.row + 1:,} of the stream{self._moment(held.time)}: "
            f"{held.matches:,} matches found, {held.partial_matches:,} partial matches held, "
            f"{size_text(held.size)}\n"
            f"{asking_less.hint(self._query, _MORE)}"
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
