"""The options of a call: limits, how events are read, what is returned, archives, places and histories."""

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ensue.errors import EventError, did_you_mean
from ensue.ir.values import parse_duration

if TYPE_CHECKING:
    from ensue.archives.archive import Archive

EVICTION_POLICIES = ("need", "tpm", "stpm")  # eviction policies of keys; the first is the default
ACCESSES = ("eager", "lazy", "grouped", "archive_first")  # access paths to archives
DEFAULT_SHARE = 1 / 4  # default share of the machine's memory
REFUSE, ALLOW = "refuse", "allow"  # what a stream does if its history ends before it begins
DEFAULT = "usual"  # the default of an option for which None has a meaning
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?i?b|%)\s*", re.IGNORECASE)
_POWERS = {"b": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def list_names(argument: str, value: object) -> tuple[str, ...]:
    """Returns one name or several as a tuple."""
    if isinstance(value, str):
        return (value,)
    names = tuple(value) if isinstance(value, Iterable) else (value,)
    if all(isinstance(name, str) for name in names):
        return names
    raise EventError(f"{argument}={value!r} must be a name or several names")


def _shed_ms(shed: Any) -> int | None:
    if shed is None:
        return None
    if not isinstance(shed, str):
        raise EventError(f"shed={shed!r} is not a length of time\n  hint: write it like shed='30 seconds'")
    length = parse_duration(shed) // 1_000_000
    if length <= 0:
        raise EventError(f"shed={shed!r} is too short\n  hint: at least a millisecond")
    return length


def _memory(memory: Any) -> tuple[float | None, float]:
    if memory is None:
        return None, DEFAULT_SHARE
    if isinstance(memory, int | float) and not isinstance(memory, bool) and memory > 0:
        return memory, DEFAULT_SHARE
    if isinstance(memory, str):
        if memory.strip().lower() == "unlimited":
            return math.inf, DEFAULT_SHARE
        size = _SIZE.fullmatch(memory)
        if size and float(size[1]) > 0:
            amount, unit = float(size[1]), size[2].lower()
            if unit != "%":
                base = 1_024 if "i" in unit else 1_000
                return int(amount * base ** _POWERS[unit[0]]), DEFAULT_SHARE
            if amount <= 100:
                return None, amount / 100
    raise EventError(
        f"memory={memory!r} is not a size\n"
        '  hint: a text such as "4 GB", "500 MB" or "50%", a number of bytes, or "unlimited"'
    )


def format_count(number: int, noun: str) -> str:
    """Formats a number of things.

    >>> format_count(1, "row"), format_count(2_000, "match"), format_count(0, "entry")
    ('1 row', '2,000 matches', '0 entries')
    """
    plural = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}{'es' if noun.endswith('ch') else 's'}"
    return f"{number:,} {noun if number == 1 else plural}"


def format_size(size: float) -> str:
    """Formats a size with its unit.

    >>> format_size(6.4e9), format_size(512), format_size(25_165_824)
    ('6.4 GB', '512 bytes', '25 MB')
    """
    for unit, power in (("TB", 4), ("GB", 3), ("MB", 2), ("KB", 1)):
        if size >= 1_000**power:
            amount = size / 1_000**power
            return f"{amount:,.0f} {unit}" if amount >= 10 else f"{amount:.2g} {unit}"
    return f"{size:,.0f} bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on the memory and the matches of a query; inside them they change no match.

    >>> Limits(memory="4 GB", max_matches=1_000)
    Limits(max_matches=1000, max_partial_matches=None, memory='4 GB', evict=None, shed=None, threads=None)

    Args:
        max_matches: Limits the matches of a table, of a key group on Spark, of a key group and
            micro-batch of a stream, or of one call of `feed` of a live matcher.
        max_partial_matches: Limits the partial matches held at the same time.
        memory: How much one matcher may use: "4 GB", "50%" of the machine's memory, a number of
            bytes, or "unlimited". The default is a quarter of the machine's memory, on Spark
            divided among its cores. A query that uses more raises a LimitError with advice; a
            stream spills keys to disk, as their events of the last window, and loads them before
            they are needed: nothing is lost.
        evict: Which keys of a stream are spilled first: "need" (the default: those least likely
            to be needed soon), "tpm" (the oldest) or "stpm".
        threads: How many threads match a table in this process; the default is the environment's
            ENSUE_THREADS, else one for each core. The result does not depend on it. A task of Spark
            has one.
        shed: Load shedding on Spark: drop keys when the newest event of a micro-batch lags the
            clock by more than this, such as "30 seconds": those least likely to complete a match,
            a quarter of them at first, all of them at four times the lag. Matches stay correct;
            losses are counted in `RunningStream.progress`, and listed with `start(..., shed_to=)`.
    """

    max_matches: int | None = None
    max_partial_matches: int | None = None
    memory: int | float | str | None = None
    evict: str | None = None
    shed: str | None = None
    threads: int | None = None
    per_core: bool = field(default=False, repr=False)  # set on Spark: one of several, one for each core

    def __post_init__(self) -> None:
        counts = {
            "max_matches": self.max_matches, "max_partial_matches": self.max_partial_matches, "threads": self.threads,
        }  # fmt: skip
        for name, count in counts.items():
            positive = isinstance(count, int) and not isinstance(count, bool) and count > 0
            if count is not None and not positive:
                raise EventError(f"{name}={count!r} must be a positive whole number")
        _memory(self.memory)
        if self.evict is not None and self.evict not in EVICTION_POLICIES:
            raise EventError(f"evict={self.evict!r} is not an eviction policy\n  hint: {', '.join(EVICTION_POLICIES)}")
        _shed_ms(self.shed)

    @property
    def memory_size(self) -> float | None:
        """Bytes; None: a share of the machine's memory, infinity: no bound."""
        return _memory(self.memory)[0]

    @property
    def memory_share(self) -> float:
        """The share of the machine's memory, where `memory` is no number of bytes."""
        return _memory(self.memory)[1]

    @property
    def shed_ms(self) -> int | None:
        """The lag of a stream at which keys are dropped."""
        return _shed_ms(self.shed)

    @property
    def thread_count(self) -> int:
        if self.per_core:
            return 1
        return self.threads or get_default_threads()

    @property
    def can_evict(self) -> bool:
        """Whether keys of a stream are spilled when memory is short.

        Keys are spilled if a call limits the memory or allows eviction or shedding; otherwise
        exceeding the memory is an error.
        """
        size, share = _memory(self.memory)
        limited = share != DEFAULT_SHARE if size is None else not math.isinf(size)
        return limited or self.evict is not None or self.shed is not None

    def compute_memory_bound(self, machine: float, cores: int) -> float:
        size, share = _memory(self.memory)
        return machine * share / (cores if self.per_core else 1) if size is None else size


def get_default_threads() -> int:
    """ENSUE_THREADS, else the number of cores that this process may use."""
    text = os.environ.get("ENSUE_THREADS", "")
    if not text:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not text.isdecimal() or int(text) < 1:
        raise EventError(f"ENSUE_THREADS={text!r} must be a positive whole number")
    return int(text)


UNLIMITED = Limits(memory=math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """How events are read, in particular those of a stream.

    >>> StreamOptions(bad_events="drop", key_groups=8)
    StreamOptions(late_events='count', bad_events='drop', key_groups=8, max_ahead='usual')

    Args:
        late_events: "count" counts events that are later than the watermark allows (see
            `RunningStream.progress` and `live.late`), "deliver" also returns them: in a column `late_event`,
            or by `live.late_events()`.
        bad_events: "drop" drops events without a valid time instead of raising an EventError, in
            a live matcher also rows that do not fit the schema, which `live.dropped` counts.
            Events of types that the query does not name are always dropped, unless the position
            of every event matters.
        key_groups: The number of key groups that partitions are hashed into on Spark, each with
            its own state; by default spark.sql.shuffle.partitions. It is fixed for the life of a
            checkpoint.
        max_ahead: How far ahead of the clock an event may be on Spark, such as "1 hour". Events
            further ahead are dropped and counted, since they would advance the watermark and make
            all others late. The default is a day, if the time column holds timestamps and the
            call has a watermark; None accepts every event.
    """

    late_events: str = "count"
    bad_events: str = "raise"
    key_groups: int | None = None
    max_ahead: str | timedelta | None = DEFAULT

    def __post_init__(self) -> None:
        if self.bad_events not in ("raise", "drop"):
            raise EventError(f"bad_events must be 'raise' or 'drop', not {self.bad_events!r}")
        if self.late_events not in ("count", "deliver"):
            raise EventError(f"late_events must be 'count' or 'deliver', not {self.late_events!r}")

    @property
    def drops_bad_events(self) -> bool:
        return self.bad_events == "drop"

    @property
    def delivers_late_events(self) -> bool:
        return self.late_events == "deliver"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """What a match returns.

    >>> OutputOptions(levels=["Incident"], trace=True)
    OutputOptions(levels=('Incident',), trace=True, flat=False, emit_timeouts=False, ids=True)

    Args:
        levels: The definitions of the query whose events are returned too, or "all". The result
            is then a dict by level; the key of the query itself is its name, or "".
        trace: Add a column `members` with the events of a match, for `ensue.trace`. A query
            without RETURN has them anyway, if it has no definitions.
        flat: Plain columns instead of structs: an event `a` is the columns `a.price`,
            `a.volume`, ..., a list of events is a list for each field. In a query,
            `RETURN a.*` does it for one event.
        emit_timeouts: Also return partial matches whose window ended before they were complete.
            A column `timed_out` distinguishes them from matches; missing parts are NULL.
        ids: False leaves out the column `match_id`, which takes a part of the time of a query with
            many matches. A stream needs it.
    """

    levels: Sequence[str] | str | None = None
    trace: bool = False
    flat: bool = False
    emit_timeouts: bool = False
    ids: bool = True

    def __post_init__(self) -> None:
        if self.levels is not None and not isinstance(self.levels, str):
            object.__setattr__(self, "levels", list_names("levels", self.levels))


@dataclass(frozen=True, eq=False)
class Archives:
    """The archives that JOIN ARCHIVE names, and how they are read.

    >>> import ensue
    >>> import pyarrow as pa
    >>> past = ensue.archive(pa.table({"t": [1], "tag": ["x"]}), time="t", key="tag")
    >>> Archives({"old": past}, own="old", access="lazy").own
    'old'

    Args:
        archives: The archives by name, each from `ensue.archive`.
        own: The name of the archive that the events themselves belong to: a match is then joined
            with the archive and the events before it.
        access: How an archive is read: "eager" (all of it, in advance), "lazy" (for each live
            match), "grouped" (for many at a time) or "archive_first" (live events without
            archived matches are skipped); by default the cheapest. All give the same matches.
        latency: How long a live match of a stream may wait for a common lookup with others.
    """

    archives: "Mapping[str, Archive]"
    _: KW_ONLY
    own: str | None = None
    access: str | None = None
    latency: str | int | float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.archives, Mapping):
            raise EventError(
                "archives= is a dict of archives by the names that JOIN ARCHIVE uses\n"
                '  hint: archives={"trades": ensue.archive(place, time=..., key=...)}'
            )
        for name, archive in self.archives.items():
            if not hasattr(type(archive), "pinned"):  # a DataFrame may have a column of that name
                raise EventError(
                    f"archives[{name!r}] is no archive but of type {type(archive).__name__}\n"
                    "  hint: wrap it, as in ensue.archive(table, time=..., key=...)"
                )
        if self.own is not None and self.own not in self.archives:
            hint = did_you_mean(str(self.own), list(self.archives)) or f"ensue.Archives({{{self.own!r}: ...}}, own=...)"
            raise EventError(f"own={self.own!r} is none of the archives\n  hint: {hint}")
        if self.access is not None and self.access not in ACCESSES:
            raise EventError(
                f"access={self.access!r} is none of {', '.join(map(repr, ACCESSES))}\n"
                "  hint: leave it out, and the cheapest is taken"
            )

    @classmethod
    def wrap(cls, archives: "Mapping[str, Archive] | Archives | None") -> "Archives":
        """The archives of a call, which may be a plain mapping."""
        return archives if isinstance(archives, Archives) else cls({} if archives is None else archives)


@dataclass(frozen=True, slots=True)
class Location:
    """Where events are; a match then has a `location` too, the convex hull of those of its events.

    >>> Location("lon", "lat", space="earth")
    Location(x='lon', y='lat', space='earth')

    Args:
        x: A column of geometries (WKT texts or WKB bytes), or with `y` one of numbers.
        y: The second column of numbers.
        space: With "earth", x and y are degrees of longitude and latitude, and lengths are metres.
    """

    x: str
    y: str | None = None
    _: KW_ONLY
    space: str = "plane"

    @property
    def columns(self) -> str | tuple[str, str]:
        return self.x if self.y is None else (self.x, self.y)


@dataclass(frozen=True, eq=False)
class History:
    """Past events that a stream starts with, for `ensue.start(..., history=)`.

    `events` are those that `history=` takes; older ones than `since` are left out. If the stream
    starts later than the history ends, it stops with a StateError that names the gap; with
    `gap="allow"` it goes on, since nothing happened in between.

    >>> History("/data/readings", since=7).gap
    'refuse'
    """

    events: Any
    since: Any = None
    gap: str = REFUSE

    def __post_init__(self) -> None:
        if self.events is None:
            raise EventError("a history needs events\n  hint: leave out history=, to start a stream without one")
        if self.gap not in (REFUSE, ALLOW):
            raise EventError(f"gap= must be {REFUSE!r} or {ALLOW!r}, not {self.gap!r}")


@dataclass(frozen=True, eq=False)
class ArchiveWriter:
    """The archive that a stream writes, and when, for `ensue.start(..., archive=)`.

    `archive` is the result of `ensue.archive` for one that Ensue has created, or its name among
    those of `ensue.match`. Relevant events stay in the state of a key group until it has `rows`
    of them (50,000), or one of them is older than `age`, such as "1 hour"; then they become files
    of the archive, in one transaction per micro-batch. Late events do not.

    >>> ArchiveWriter("passes", rows=10_000, age="1 hour")
    ArchiveWriter(archive='passes', rows=10000, age='1 hour')
    """

    archive: "str | Archive"
    rows: int | None = None
    age: str | int | float | None = None

    def __post_init__(self) -> None:
        if self.rows is not None and self.rows < 1:
            raise EventError(f"rows={self.rows}: an archive takes at least 1 event at a time")
