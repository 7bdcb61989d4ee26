"""Access paths of an archive join: the four paths, their costs, and the choice (R10).

Costs are microseconds of a processor for all events of a call. For an unbounded stream, `EVENTS`
events are assumed to amortise one-time costs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp

from ensue.options import ACCESSES, format_size
from ensue.planner.statistics import format_number


@dataclass(frozen=True, slots=True)
class ReadCosts:
    """Cost of reading an archive."""

    access: float  # C_access: each read
    file: float  # C_file: each opened file
    row: float  # C_row: each scanned row
    picked: float  # C_row of a read by key
    listed: float  # each row of a requested key, regardless of its time
    event: float  # each returned event
    keyed: float  # additional cost of an event of a read by key
    piece: float  # each requested key


@dataclass(frozen=True, slots=True)
class ArchiveCosts:
    """Cost of detecting and joining live and archived matches."""

    comparison: float  # the unit of the estimates of C_L and C_A
    event: float  # an event through the scan of a matcher
    used: float  # additional cost, if it is of a type in the pattern
    match: float  # a match as a row of a table
    call: float  # C_call: a matcher for the events of a read
    join: float  # a join of live with archived matches, regardless of their number
    instance: float  # each archived match that a join visits
    pair: float  # C_pair: each row of the result
    admit: float  # the check whether the key of an event has archived events
    memory: ReadCosts
    stored: ReadCosts


COSTS = ArchiveCosts(
    comparison=0.005,
    event=0.034,
    used=0.045,
    match=0.2,
    call=800.0,
    join=500.0,
    instance=0.33,
    pair=0.85,
    admit=0.022,
    memory=ReadCosts(
        access=280.0, file=0.0, row=0.012, picked=0.12, listed=0.003, event=0.048, keyed=0.0,
        piece=0.0,
    ),
    stored=ReadCosts(
        access=3_900.0, file=300.0, row=0.01, picked=0.012, listed=0.0, event=0.35, keyed=0.13,
        piece=2.7,
    ),
)  # fmt: skip


PAPER_NAMES = {"eager": "ALAA", "lazy": "LLAA", "grouped": "SLLAA", "archive_first": "OLLAA"}

# Assumptions without statistics.
EVENTS = 1_000_000.0  # events of a stream that amortise one-time reads
BATCH = 10_000.0  # events of a micro-batch
ROWS = 1_000_000.0  # events of an archive of unknown size
KEYS = 1_000.0  # keys of an archive
EVENTS_PER_KEY = 100.0  # minimum events of a key
SHARE = 0.5  # of events of a type in the pattern
ROWS_PER_GROUP = 8_192.0  # rows of a row group
WARN_MICROSECONDS = 500_000  # extra microseconds of an unclustered archive that cause a warning
BYTES_PER_MATCH = 200.0  # bytes of a stored archived match


@dataclass(frozen=True, slots=True)
class LiveStatistics:
    """Statistics of the live events, and of the live pattern over them."""

    events: float = EVENTS  # n_L
    batch: float = BATCH  # events per micro-batch
    cost: float = 10.0  # C_L: per event, in comparisons
    matches: float = 0.01  # per event
    share: float = SHARE  # of the events that the pattern can use
    rate: float | None = None  # events per unit of time; None: the rate of the archive
    window: float | None = None  # maximum duration of a live match
    latency: float = 0.0  # how long a match may wait to be grouped with others
    assumed: bool = True  # `matches` is not measured


@dataclass(frozen=True, slots=True)
class ArchiveStatistics:
    """Statistics of an archive, and of the pattern over it."""

    name: str
    far: float  # length of the range
    wider: float = 0.0  # margin read around it; infinity: all events of the key
    rows: float = ROWS  # N_archive
    span: float | None = None  # their time span
    files: int = 0  # 0: the archive is in memory
    clustered: bool = True  # events of a key are stored together
    buckets: int | None = None
    keyed: bool = True  # it is read by a key
    keys: float = KEYS  # number of keys
    share: float = SHARE  # of its events that the pattern can use
    cost: float = 10.0  # C_A: per such event, in comparisons
    matches: float = 0.01  # archived matches per row
    own: bool = False  # live events are appended to it
    assumed: bool = True  # `matches` is not measured

    @property
    def rate(self) -> float:
        """Events per unit of time; without a span, the range covers all rows."""
        return self.rows / max(self.far if self.span is None else self.span, 1e-9)

    def inside(self, length: float) -> float:
        """The rows of a time range, of all keys."""
        return min(self.rows, self.rate * length)


@dataclass(frozen=True, slots=True)
class AccessCandidate:
    """An access path with its cost per event, or the reason why it is impossible."""

    name: str
    cost: float  # microseconds per live event
    words: str = ""
    impossible: str = ""

    @property
    def paper(self) -> str:
        """The name of the path in the paper."""
        return PAPER_NAMES[self.name]


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """The chosen access path, and the alternatives."""

    access: str
    candidates: tuple[AccessCandidate, ...] = ()
    why: str = ""  # if it is not the cost
    live: LiveStatistics | None = None
    archives: tuple[ArchiveStatistics, ...] = ()

    def candidate(self, name: str) -> AccessCandidate:
        return next(c for c in self.candidates if c.name == name)


def choose_access_path(
    live: LiveStatistics,
    archives: Sequence[ArchiveStatistics],
    *,
    requested: str | None = None,
    impossible: Mapping[str, str] | None = None,
    memory: float | None = None,
    costs: ArchiveCosts = COSTS,
) -> AccessDecision:
    """Chooses the requested access path, or the cheapest possible one."""
    reasons = dict(impossible or {})
    model = _AccessCosts(live, tuple(archives), costs)
    stored = model.stored_bytes
    if memory is not None and stored > memory:
        much = f"{format_size(int(stored))} of archived matches exceed {format_size(int(memory))}"
        reasons.setdefault("eager", much)
        reasons.setdefault("archive_first", much)
    candidates = tuple(
        AccessCandidate(name, 0.0, impossible=reasons[name]) if name in reasons else model.candidate(name)
        for name in ACCESSES
    )
    if requested is not None:
        return AccessDecision(requested, candidates, "requested", live, tuple(archives))
    possible = [c for c in candidates if not c.impossible]
    best = min(possible, key=lambda c: (c.cost, ORDER.index(c.name)))
    return AccessDecision(best.name, candidates, "", live, tuple(archives))


ORDER = ("grouped", "eager", "archive_first", "lazy")  # preference at equal cost


class _AccessCosts:
    """The costs of the access paths of one query."""

    def __init__(self, live: LiveStatistics, archives: tuple[ArchiveStatistics, ...], costs: ArchiveCosts) -> None:
        self.live, self.archives, self.costs = live, archives, costs
        self.count = max(1.0, live.events)
        self.matches = live.matches * self.count  # m
        self.batches = max(1.0, self.count / max(1.0, live.batch))
        self.rate = live.rate or max((past.rate for past in archives), default=1.0)
        self.duration = self.count / self.rate  # time span of the live events

    def candidate(self, name: str) -> AccessCandidate:
        paths = (self._eager, self._lazy, self._compute_grouped_cost, self._archive_first)
        cost, words = paths[ACCESSES.index(name)]()
        return AccessCandidate(name, cost / self.count, words)

    def _detect_live(self, share: float = 1.0) -> float:
        per_event = self.costs.event + self.costs.used * self.live.share
        per_event += self.costs.comparison * self.live.cost
        return share * self.count * per_event + self.matches * self.costs.match

    def _detect_archived(self, past: ArchiveStatistics, events: float, matches: float) -> float:
        per_event = self.costs.event + self.costs.used + self.costs.comparison * past.cost
        return events * per_event + matches * self.costs.match

    def _pairs(self) -> float:
        """The cost of the result rows, the same for all paths."""
        rows = 0.0
        for past in self.archives:
            inside = past.inside(self._overlap(past, past.far))
            rows += self.matches * (inside * past.matches / self._keys(past))
        return rows * self.costs.pair

    @staticmethod
    def _keys(past: ArchiveStatistics) -> float:
        return max(1.0, past.keys) if past.keyed else 1.0

    def _overlap(self, past: ArchiveStatistics, length: float) -> float:
        """The part of a range inside an archive: live ranges move away from one that is static."""
        if past.own or self.duration <= 0:
            return length
        if length >= self.duration:
            return length - self.duration / 2
        return length * length / (2 * self.duration)

    def groups(self) -> float:
        """n: the number of joint lookups of live matches."""
        lookups = self.batches
        if self.live.latency > 0:
            lookups = min(lookups, max(1.0, self.duration / self.live.latency))
        return max(1.0, lookups * _compute_probability(self.matches / lookups)) if self.matches else 0.0

    def _read(self, past: ArchiveStatistics, keys: float | None, length: float, events: float) -> float:
        """One read of a time range, of all keys (None) or some, that returns `events`."""
        reading = self.costs.stored if past.files else self.costs.memory
        files, rows = self.estimate_reads(past, keys, length)
        cost = reading.access + files * reading.file + events * reading.event
        if keys is None:
            return cost + rows * reading.row
        listed = past.rows * keys / self._keys(past)
        cost += rows * reading.picked + listed * reading.listed
        return cost + events * reading.keyed + keys * reading.piece

    def estimate_reads(self, past: ArchiveStatistics, keys: float | None, length: float) -> tuple[float, float]:
        """The opened files, and the scanned rows."""
        inside = past.inside(length)
        if not past.files:  # an index lists the events of a key
            return 0.0, inside if keys is None else inside * keys / self._keys(past)
        buckets = past.buckets or 1  # files of one time range
        rows_per_file = past.rows / past.files
        ranges = past.files / buckets
        opened = min(ranges, inside / past.rows * ranges + 1) * buckets
        if keys is None or not past.clustered:
            return opened, min(past.rows, max(inside, opened * min(rows_per_file, ROWS_PER_GROUP)))
        opened = opened / buckets * min(buckets, keys)
        groups = max(1.0, rows_per_file / ROWS_PER_GROUP)
        scanned = min(groups, max(1.0, keys / buckets))  # row groups of a file with such keys
        return opened, opened * rows_per_file * scanned / groups

    def _estimate_stored(self, past: ArchiveStatistics) -> float:
        """Archived matches that are stored if all are detected in advance."""
        matches = past.inside(past.far + past.wider) * past.matches
        if not past.own:
            return matches
        # n_A: live events that were appended and have not left the range yet
        return matches + min(self.count, past.rate * past.far) * past.matches

    @property
    def stored_bytes(self) -> float:
        return sum(map(self._estimate_stored, self.archives)) * BYTES_PER_MATCH

    def _detect_all_archived(self) -> float:
        """Detects all archived matches once, and those of appended live events."""
        total = 0.0
        for past in self.archives:
            length = past.far + past.wider
            events = past.inside(length) * past.share
            total += self._read(past, None, length, events) + self.costs.call
            total += self._detect_archived(past, events, events / past.share * past.matches)
            if past.own:
                appended = self.count * past.share
                total += self._detect_archived(past, appended, self.count * past.matches)
        return total

    def _joins(self, count: float, instances: float) -> float:
        return count * (self.costs.join + instances * self.costs.instance)

    def _eager(self) -> tuple[float, str]:
        stored = sum(map(self._estimate_stored, self.archives))
        joins = self.batches * _compute_probability(self.matches / self.batches)
        cost = self._detect_live() + self._detect_all_archived() + self._joins(joins, stored)
        words = f"{_many(stored, 'archived match', 'archived matches')} stored"
        return cost + self._pairs(), words

    def _archive_first(self) -> tuple[float, str]:
        past = self.archives[0]
        stored = self._estimate_stored(past)
        share = _compute_probability(stored / self._keys(past)) if past.keyed else _compute_probability(stored)
        joins = self.batches * _compute_probability(self.matches / self.batches)
        cost = self._detect_live(share) + self._detect_all_archived() + self._joins(joins, stored)
        cost += self.batches * stored * self.costs.instance + self.count * self.costs.admit
        return cost + self._pairs(), f"{share:.0%} of the live events matched"

    def _lazy(self) -> tuple[float, str]:
        cost = self._detect_live() + self._pairs()
        for past in self.archives:
            keys = self._keys(past)
            new = keys * _compute_probability(self.matches / keys)  # keys that are read for the first time
            range_ = self._overlap(past, past.far + past.wider)
            again = min(range_, self.duration * keys / max(1.0, self.matches) + past.wider)
            for reads, length in ((new, range_), (self.matches - new, again)):
                events = past.inside(length) * past.share / keys
                read = self._read(past, 1.0 if past.keyed else None, length, events)
                matches = events / past.share * past.matches
                each = read + self._detect_archived(past, events, matches)
                cost += reads * (each + self.costs.call * _compute_probability(events))
        cost += self._joins(self.matches * len(self.archives), 0.0)
        lookups = _many(self.matches * len(self.archives), "read", "reads")
        return cost, f"{lookups}, one per live match"

    def _compute_grouped_cost(self) -> tuple[float, str]:
        groups = self.groups()
        cost = self._detect_live() + self._pairs() + self._joins(groups, 0.0)
        size = self.matches / groups if groups else 0.0
        duration = self.duration / max(1.0, groups)
        for past in self.archives:
            all_keys = self._keys(past)
            keys = all_keys * _compute_probability(size / all_keys)
            range_ = self._overlap(past, past.far + past.wider)
            # the first match of a group reaches further back than the average one
            further = min(past.far + past.wider, range_ + duration / 2)
            length = range_ + duration if past.own else further
            # a key is read for the ranges of its live matches, without the gaps between them
            requested = min(length, size / max(keys, 1e-9) * range_)
            events = past.inside(requested) * past.share * keys / all_keys
            matches = events / past.share * past.matches
            read = self._read(past, keys if past.keyed else None, length, events)
            each = read + self._detect_archived(past, events, matches)
            each += matches * self.costs.instance
            cost += groups * (each + self.costs.call)
        return cost, f"{_many(groups * len(self.archives), 'read', 'reads')} for groups of them"


def describe_unclustered(past: ArchiveStatistics, decision: AccessDecision, costs: ArchiveCosts = COSTS) -> str | None:
    """A warning if reads by key are expensive as events of a key are not stored together."""
    clustered = past.clustered and past.keyed
    if clustered or not past.files or decision.access not in ("lazy", "grouped"):
        return None
    model = _AccessCosts(decision.live or LiveStatistics(), (past,), costs)
    reads = model.matches if decision.access == "lazy" else model.groups()
    keys = 1.0 if past.keyed else None
    _, rows = model.estimate_reads(past, keys, past.far + past.wider)
    _, fewer = model.estimate_reads(replace(past, clustered=True), 1.0, past.far + past.wider)
    per_row = costs.stored.picked if past.keyed else costs.stored.row
    if reads * (rows - fewer) * per_row < WARN_MICROSECONDS:
        return None
    row = per_row / 1_000
    why = "the events of a key are not stored together"
    hint = "ensue archive create and append write a table that is clustered by key="
    if not past.keyed:
        why, hint = "ON has no key", "add [attr] or an equality to ON"
    return (
        f"{past.name}: {why}, so a read scans about {format_number(rows)} rows instead of "
        f"{format_number(fewer)} ({format_number(rows * row)} ms instead of {format_number(fewer * row)} ms), and "
        f"about {_many(max(1.0, reads), 'read is', 'reads are')} expected\n  hint: {hint}"
    )


def _compute_probability(expected: float) -> float:
    """The probability of at least one event, by the expected number."""
    return 1 - exp(-min(expected, 700.0))


def _many(count: float, singular: str, plural: str) -> str:
    text = format_number(max(0.0, count))
    return f"{text} {singular if text == '1' else plural}"
