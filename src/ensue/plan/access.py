"""How an archive is accessed: the four ways, what each costs, and which is taken (R10).

Figures are microseconds of a processor for all events of a call. Of a stream, which has no end,
so many are assumed as make up for what is done once (`EVENTS`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp

from ensue.plan.access_costs import COSTS, Costs, Reading
from ensue.plan.estimates.decisions import figure
from ensue.plan.limits import size_text

ACCESSES = ("eager", "lazy", "grouped", "archive_first")
PAPER = {"eager": "ALAA", "lazy": "LLAA", "grouped": "SLLAA", "archive_first": "OLLAA"}

# What is assumed where nothing is known.
EVENTS = 1_000_000.0  # events of a stream that make up for what is read once
BATCH = 10_000.0  # events of a micro-batch
ROWS = 1_000_000.0  # events of an archive that does not say
KEYS = 1_000.0  # objects,
OF_A_KEY = 100.0  # each with at least so many events
SHARE = 0.5  # of events that are of a type that a pattern names
OF_A_GROUP = 8_192.0  # rows of a row group
DEAR = 500_000  # microseconds that an unclustered archive may cost more, before a warning
OF_A_MATCH = 200.0  # bytes of an archived match that is kept


@dataclass(frozen=True, slots=True)
class LiveSide:
    """What is known of the events that come, and of the live pattern over them."""

    events: float = EVENTS  # n_L
    batch: float = BATCH  # of them that are looked at together
    cost: float = 10.0  # C_L: of an event, in comparisons
    matches: float = 0.01  # of an event
    share: float = SHARE  # of the events that the pattern can use
    rate: float | None = None  # events a unit of time; None: as many as the archive has
    window: float | None = None  # how long a live match is at most
    latency: float = 0.0  # how long it may wait for others
    assumed: bool = True  # that `matches` is not measured


@dataclass(frozen=True, slots=True)
class PastSide:
    """What is known of an archive, and of the pattern over it."""

    name: str
    far: float  # how far back the range goes
    wider: float = 0.0  # how much more is read around it; infinity: everything of the object
    rows: float = ROWS  # N_archive
    span: float | None = None  # how long they took
    files: int = 0  # none: it is in memory
    clustered: bool = True  # events of an object lie together
    buckets: int | None = None
    keyed: bool = True  # it is read by a key
    keys: float = KEYS  # objects in it
    share: float = SHARE  # of its events that the pattern can use
    cost: float = 10.0  # C_A: of such an event, in comparisons
    matches: float = 0.01  # archived matches in a row of it
    own: bool = False  # what comes joins it
    assumed: bool = True  # that `matches` is not measured

    @property
    def rate(self) -> float:
        """Events a unit of time; where it is not known, the range is all of it."""
        return self.rows / max(self.far if self.span is None else self.span, 1e-9)

    def inside(self, length: float) -> float:
        """The rows in a stretch of time, of all objects."""
        return min(self.rows, self.rate * length)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to go: what it is expected to cost an event, or why it is none."""

    name: str
    cost: float  # microseconds a live event
    words: str = ""
    impossible: str = ""

    @property
    def paper(self) -> str:
        """What the paper calls it."""
        return PAPER[self.name]


@dataclass(frozen=True, slots=True)
class Decision:
    """The way that is taken, and the others."""

    access: str
    candidates: tuple[Candidate, ...] = ()
    why: str = ""  # if not for its cost
    live: LiveSide | None = None
    pasts: tuple[PastSide, ...] = ()

    def candidate(self, name: str) -> Candidate:
        return next(c for c in self.candidates if c.name == name)


def decide(
    live: LiveSide,
    pasts: Sequence[PastSide],
    *,
    wanted: str | None = None,
    impossible: Mapping[str, str] | None = None,
    memory: float | None = None,
    costs: Costs = COSTS,
) -> Decision:
    """The cheapest access that is possible, or the one that is asked for.

    >>> live = LiveSide(events=10_000, batch=10_000, matches=0.001)
    >>> past = PastSide("trades", far=1_000_000, rows=5_000_000, span=1_000_000)
    >>> found = decide(live, [past])
    >>> found.access, found.candidate("lazy").cost > found.candidate("grouped").cost
    ('grouped', True)
    """
    out = dict(impossible or {})
    weighed = _Weighed(live, tuple(pasts), costs)
    kept = weighed.kept_bytes
    if memory is not None and kept > memory:
        much = f"{size_text(int(kept))} of archived matches to keep: over {size_text(int(memory))}"
        out.setdefault("eager", much)
        out.setdefault("archive_first", much)
    candidates = tuple(
        Candidate(name, 0.0, impossible=out[name]) if name in out else weighed.candidate(name)
        for name in ACCESSES
    )
    if wanted is not None:
        return Decision(wanted, candidates, "asked for", live, tuple(pasts))
    possible = [c for c in candidates if not c.impossible]
    best = min(possible, key=lambda c: (c.cost, ORDER.index(c.name)))
    return Decision(best.name, candidates, "", live, tuple(pasts))


ORDER = ("grouped", "eager", "archive_first", "lazy")  # of those that cost the same


class _Weighed:
    """What the accesses of one query cost."""

    def __init__(self, live: LiveSide, pasts: tuple[PastSide, ...], costs: Costs) -> None:
        self.live, self.pasts, self.costs = live, pasts, costs
        self.count = max(1.0, live.events)
        self.matches = live.matches * self.count  # m
        self.batches = max(1.0, self.count / max(1.0, live.batch))
        self.rate = live.rate or max((past.rate for past in pasts), default=1.0)
        self.lasting = self.count / self.rate  # how long the live events take

    def candidate(self, name: str) -> Candidate:
        match name:
            case "eager":
                cost, words = self._eager()
            case "lazy":
                cost, words = self._lazy()
            case "grouped":
                cost, words = self._grouped()
            case _:
                cost, words = self._archive_first()
        return Candidate(name, cost / self.count, words)

    # ---------------------------------------------------------------------------- parts

    def _detecting_live(self, share: float = 1.0) -> float:
        of_one = self.costs.event + self.costs.used * self.live.share
        of_one += self.costs.comparison * self.live.cost
        return share * self.count * of_one + self.matches * self.costs.match

    def _detecting_past(self, past: PastSide, events: float, found: float) -> float:
        of_one = self.costs.event + self.costs.used + self.costs.comparison * past.cost
        return events * of_one + found * self.costs.match

    def _pairs(self) -> float:
        """What is joined in the end: the same for all."""
        return sum(self.matches * self._fitting(past) for past in self.pasts) * self.costs.pair

    def _fitting(self, past: PastSide) -> float:
        """Archived matches in the range of a live one."""
        inside = past.inside(self._overlap(past, past.far))
        return inside * past.matches / self._objects(past)

    @staticmethod
    def _objects(past: PastSide) -> float:
        return max(1.0, past.keys) if past.keyed else 1.0

    def _overlap(self, past: PastSide, length: float) -> float:
        """How much of a range lies in an archive: one that does not grow is left behind."""
        if past.own or self.lasting <= 0:
            return length
        if length >= self.lasting:
            return length - self.lasting / 2
        return length * length / (2 * self.lasting)

    def groups(self) -> float:
        """n: how often live matches are looked up together."""
        often = self.batches
        if self.live.latency > 0:
            often = min(often, max(1.0, self.lasting / self.live.latency))
        return max(1.0, often * _some(self.matches / often)) if self.matches else 0.0

    # ---------------------------------------------------------------------------- reading

    def _reading(self, past: PastSide) -> Reading:
        return self.costs.stored if past.files else self.costs.memory

    def _read(self, past: PastSide, objects: float | None, length: float, events: float) -> float:
        """One read of a stretch of time: of all objects (None), or of some. `events` are found."""
        reading = self._reading(past)
        files, rows = self.touched(past, objects, length)
        cost = reading.access + files * reading.file + events * reading.event
        if objects is None:
            return cost + rows * reading.row
        listed = past.rows * objects / self._objects(past)
        cost += rows * reading.picked + listed * reading.listed
        return cost + events * reading.keyed + objects * reading.piece

    def touched(self, past: PastSide, objects: float | None, length: float) -> tuple[float, float]:
        """The files that are opened, and the rows that are looked at."""
        inside = past.inside(length)
        if not past.files:  # an index says where the events of an object are
            return 0.0, inside if objects is None else inside * objects / self._objects(past)
        apart = past.buckets or 1  # files of one time
        of_a_file = past.rows / past.files
        times = past.files / apart
        opened = min(times, inside / past.rows * times + 1) * apart
        if objects is None or not past.clustered:
            return opened, min(past.rows, max(inside, opened * min(of_a_file, OF_A_GROUP)))
        opened = opened / apart * min(apart, objects)
        groups = max(1.0, of_a_file / OF_A_GROUP)
        asked = min(groups, max(1.0, objects / apart))  # groups of a file with such objects
        return opened, opened * of_a_file * asked / groups

    # ---------------------------------------------------------------------------- accesses

    def _kept(self, past: PastSide) -> float:
        """Archived matches that are kept where all are found beforehand."""
        found = past.inside(past.far + past.wider) * past.matches
        return found + (self._joining(past) * past.matches if past.own else 0.0)

    def _joining(self, past: PastSide) -> float:
        """n_A: events that join the past and have not left the range yet."""
        return min(self.count, past.rate * past.far)

    @property
    def kept_bytes(self) -> float:
        return sum(self._kept(past) for past in self.pasts) * OF_A_MATCH

    def _finding_all(self) -> float:
        """All archived matches, once, and those of events that come."""
        total = 0.0
        for past in self.pasts:
            length = past.far + past.wider
            events = past.inside(length) * past.share
            total += self._read(past, None, length, events) + self.costs.call
            total += self._detecting_past(past, events, events / past.share * past.matches)
            if past.own:
                own = self.count * past.share
                total += self._detecting_past(past, own, self.count * past.matches)
        return total

    def _joins(self, often: float, instances: float) -> float:
        return often * (self.costs.join + instances * self.costs.instance)

    def _eager(self) -> tuple[float, str]:
        kept = sum(map(self._kept, self.pasts))
        often = self.batches * _some(self.matches / self.batches)
        cost = self._detecting_live() + self._finding_all() + self._joins(often, kept)
        return cost + self._pairs(), f"{_many(kept, 'archived match', 'archived matches')} kept"

    def _archive_first(self) -> tuple[float, str]:
        past = self.pasts[0]
        kept = self._kept(past)
        share = _some(kept / self._objects(past)) if past.keyed else _some(kept)
        often = self.batches * _some(self.matches / self.batches)
        cost = self._detecting_live(share) + self._finding_all() + self._joins(often, kept)
        cost += self.batches * kept * self.costs.instance + self.count * self.costs.admit
        return cost + self._pairs(), f"{share:.0%} of the live events looked at"

    def _lazy(self) -> tuple[float, str]:
        cost = self._detecting_live() + self._pairs()
        for past in self.pasts:
            objects = self._objects(past)
            fresh = objects * _some(self.matches / objects)  # objects that are asked for first
            whole = self._overlap(past, past.far + past.wider)
            again = min(whole, self.lasting * objects / max(1.0, self.matches) + past.wider)
            for often, length in ((fresh, whole), (self.matches - fresh, again)):
                events = past.inside(length) * past.share / objects
                read = self._read(past, 1.0 if past.keyed else None, length, events)
                found = events / past.share * past.matches
                each = read + self._detecting_past(past, events, found)
                cost += often * (each + self.costs.call * _some(events))
        cost += self._joins(self.matches * len(self.pasts), 0.0)
        return cost, f"{_many(self.matches * len(self.pasts), 'read', 'reads')}, one a live match"

    def _grouped(self) -> tuple[float, str]:
        groups = self.groups()
        cost = self._detecting_live() + self._pairs() + self._joins(groups, 0.0)
        together = self.matches / groups if groups else 0.0
        lasting = self.lasting / max(1.0, groups)
        for past in self.pasts:
            all_objects = self._objects(past)
            objects = all_objects * _some(together / all_objects)
            whole = self._overlap(past, past.far + past.wider)
            # the first of a group reaches further back than they do on average
            further = min(past.far + past.wider, whole + lasting / 2)
            length = whole + lasting if past.own else further
            # of an object what its live matches ask for, not what lies between them
            asked = min(length, together / max(objects, 1e-9) * whole)
            events = past.inside(asked) * past.share * objects / all_objects
            found = events / past.share * past.matches
            read = self._read(past, objects if past.keyed else None, length, events)
            each = read + self._detecting_past(past, events, found)
            each += found * self.costs.instance
            cost += groups * (each + self.costs.call)
        return cost, f"{_many(groups * len(self.pasts), 'read', 'reads')} for groups of them"


def unclustered(past: PastSide, decision: Decision, costs: Costs = COSTS) -> str | None:
    """What reads of some objects cost where their events do not lie together; None: little more.

    >>> past = PastSide("trades", far=30, rows=20_000_000, span=30, files=30, clustered=False)
    >>> print(unclustered(past, decide(LiveSide(matches=0.001), [past], wanted="grouped")))
    trades: the events of an object are not stored together, so a read looks at about 20,000,000
    rows instead of 246,000 (240 ms instead of 2.95 ms), and about 100 reads are expected
      hint: ensue archive create and append write a table that is clustered by key=
    """
    together = past.clustered and past.keyed
    if together or not past.files or decision.access not in ("lazy", "grouped"):
        return None
    weighed = _Weighed(decision.live or LiveSide(), (past,), costs)
    reads = weighed.matches if decision.access == "lazy" else weighed.groups()
    objects = 1.0 if past.keyed else None
    _, rows = weighed.touched(past, objects, past.far + past.wider)
    _, fewer = weighed.touched(replace(past, clustered=True), 1.0, past.far + past.wider)
    of_a_row = costs.stored.picked if past.keyed else costs.stored.row
    if reads * (rows - fewer) * of_a_row < DEAR:
        return None
    row = of_a_row / 1_000
    why = "the events of an object are not stored together"
    hint = "ensue archive create and append write a table that is clustered by key="
    if not past.keyed:
        why, hint = "ON has no key", "add [attr] or an equality to ON"
    return (
        f"{past.name}: {why}, so a read looks at about {figure(rows)} rows instead of "
        f"{figure(fewer)} ({figure(rows * row)} ms instead of {figure(fewer * row)} ms), and "
        f"about {_many(max(1.0, reads), 'read is', 'reads are')} expected\n  hint: {hint}"
    )


def _some(expected: float) -> float:
    """The chance of at least one, where so many are expected."""
    return 1 - exp(-min(expected, 700.0))


def _many(count: float, one: str, several: str) -> str:
    shown = figure(max(0.0, count))
    return f"{shown} {one if shown == '1' else several}"
