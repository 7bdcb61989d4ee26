"""Which keys can be spared: a score of each, the smallest go first.

Three policies. `tpm` goes by creation: the oldest partial matches first. `stpm`, as the paper
prints it, by W = e.t + dt p, when a key's next event is expected. `need` by the discounted chance
that the key is needed at all, given how long it has been quiet:

    N = p E[exp(-(g - u) / h); g >= u] / (1 - p F(u))

p is the chance that another event follows one of this state, g the gap to it with distribution
F, u how long ago the last event was, h the time between two evictions.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.runtime.spill.resident_keys import WindowDeadlines
from ensue.vector.event_table import StreamSchema, get_end_times
from ensue.vector.key_codes import ColumnCodes

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BINS = 128
_FINEST = 2.0**-20  # of the window: shorter gaps fall into the first bin
_MOST = 1 << 20  # counts of a state from which on old ones fade


@dataclass(frozen=True, slots=True)
class IdleKeys:
    """Keys as a policy sees them, all arrays by key. Times are floats."""

    created: Floats  # when its oldest event came that is still inside the window
    last: Floats  # when its last one came
    state: Ints  # what its last event was
    deadline: Floats  # when it is needed though no event comes; infinity: never


def score_tpm(keys: IdleKeys) -> Floats:
    """TPM: by creation."""
    return keys.created


def score_stpm(keys: IdleKeys, gaps: "GapHistogram") -> Floats:
    """STPM as printed: W = e.t + dt_i p(E_i+1 | E_i)."""
    return np.asarray(keys.last + gaps.longest[keys.state] * gaps.chance[keys.state])


def score_need(keys: IdleKeys, gaps: "GapHistogram", now: float, horizon: float) -> Floats:
    """The discounted chance that a key is needed; one with a deadline surely is."""
    by_event = gaps.needed(keys.state, now - keys.last, horizon)
    by_time = np.exp(-np.maximum(keys.deadline - now, 0.0) / horizon)
    return np.maximum(by_event, by_time)


@dataclass
class GapHistogram:
    """The gaps between an event of a key and its next one, counted by the state of the first.

    Bins get wider with the gap: the last one ends with the window.

    >>> gaps = GapHistogram(100.0, 1)
    >>> gaps.follow(np.array([0, 0, 0]), np.array([10.0, 20.0, 30.0]))
    >>> gaps.lapse(np.array([0]))
    >>> float(gaps.chance[0]), float(gaps.longest[0])
    (0.75, 30.0)
    """

    window: float
    states: int
    followed: Floats = field(init=False)  # by state and bin
    lapsed: Floats = field(init=False)  # events of a state that none followed inside the window
    longest: Floats = field(init=False)
    waiting: Floats = field(init=False)  # by state and age: what comes of them is not known yet

    def __post_init__(self) -> None:
        self.followed = np.zeros((self.states, BINS))
        self.waiting = np.zeros((self.states, BINS))
        self.lapsed = np.zeros(self.states)
        self.longest = np.zeros(self.states)
        inner = np.geomspace(self.window * _FINEST, self.window, BINS)
        self._edges = np.concatenate([[0.0], inner])

    # ---------------------------------------------------------------------------- counting

    def follow(self, state: Ints, gap: Floats) -> None:
        """Events of some states were followed by others after such gaps."""
        self.room_for(state)
        counted = np.bincount(state * BINS + self._bins(gap), minlength=self.states * BINS)
        self.followed += counted.reshape(self.states, BINS)
        np.maximum.at(self.longest, state, gap)
        self._fade()

    def lapse(self, state: Ints) -> None:
        """Events of some states were followed by none."""
        self.room_for(state)
        self.lapsed += np.bincount(state, minlength=self.states)

    def room_for(self, state: Ints) -> None:
        """There are so many states now."""
        more = (int(state.max()) + 1 if len(state) else 0) - self.states
        if more > 0:
            self.followed = np.concatenate([self.followed, np.zeros((more, BINS))])
            self.waiting = np.concatenate([self.waiting, np.zeros((more, BINS))])
            self.lapsed = np.concatenate([self.lapsed, np.zeros(more)])
            self.longest = np.concatenate([self.longest, np.zeros(more)])
            self.states += more

    def _fade(self) -> None:
        """A stream changes: what was counted long ago counts less."""
        many = self.followed.sum(1) + self.lapsed > _MOST
        if many.any():
            self.followed[many] /= 2
            self.lapsed[many] /= 2

    # ---------------------------------------------------------------------------- what is known

    def wait(self, state: Ints, age: Floats) -> None:
        """Of these events it is not known yet whether another follows; they are so old now."""
        self.room_for(state)
        counted = np.bincount(state * BINS + self._bins(age), minlength=self.states * BINS)
        self.waiting = counted.reshape(self.states, BINS).astype(np.float64)

    def _bins(self, gap: Floats) -> Ints:
        return np.clip(np.searchsorted(self._edges, gap, side="right") - 1, 0, BINS - 1)

    def _steps(self) -> Floats:
        """By state and bin, the chance that the next event comes after such a gap: p dF.

        Those that still wait count as long as they have (Kaplan and Meier): a stream that has
        just begun has seen short gaps only.
        """
        known = self.followed + self.waiting
        reached = np.cumsum(known[:, ::-1], 1)[:, ::-1] - self.waiting / 2 + self.lapsed[:, None]
        hazard = self.followed / np.maximum(reached, 1e-9)
        hazard = np.minimum(np.where(reached > 0, hazard, 0.0), 1.0)
        left = np.cumprod(1 - hazard, 1)
        return np.asarray(hazard * np.concatenate([np.ones((self.states, 1)), left[:, :-1]], 1))

    @property
    def seen(self) -> npt.NDArray[np.bool_]:
        """Which states there were."""
        return np.asarray((self.followed + self.waiting).sum(1) + self.lapsed > 0)

    @property
    def chance(self) -> Floats:
        """p by state: that another event follows. Of what was never seen: a half."""
        return np.where(self.seen, self._steps().sum(1), 0.5)

    def needed(self, state: Ints, age: Floats, horizon: float) -> Floats:
        """N for each key: its state, the age u of its last event, and h."""
        if not len(state):
            return np.zeros(0)
        self.room_for(state)
        steps = self._steps()
        edges, width = self._edges, np.diff(self._edges)
        even = horizon / width * -np.expm1(-width / horizon)  # E[exp(-g/h)] of an even bin
        fall = np.exp(-width / horizon)
        # p E[exp(-(g - u)/h); g >= u] at each edge, from the last to the first
        left = np.zeros((self.states, BINS + 1))
        for k in reversed(range(BINS)):
            left[:, k] = steps[:, k] * even[k] + left[:, k + 1] * fall[k]
        below = np.cumsum(steps, 1)  # p F
        age = np.clip(age, 0.0, self.window)
        place = self._bins(age)
        rest = edges[place + 1] - age  # of the bin that the age is in
        inside = steps[state, place] * horizon / width[place] * -np.expm1(-rest / horizon)
        expected = inside + left[state, place + 1] * np.exp(-rest / horizon)
        known = below[state, place] - steps[state, place] * rest / width[place]
        found = expected / np.maximum(1 - known, 1e-9)
        return np.where(self.seen[state], found, 0.5 * np.exp(-age / horizon))

    # ---------------------------------------------------------------------------- state

    def save(self) -> dict[str, npt.NDArray[Any]]:
        """What was counted, as arrays."""
        return {"followed": self.followed, "lapsed": self.lapsed, "longest": self.longest}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Goes on with what was counted."""
        if "followed" in arrays and arrays["followed"].shape[1] == BINS:
            self.followed, self.lapsed = arrays["followed"], arrays["lapsed"]
            self.longest, self.states = arrays["longest"], len(arrays["lapsed"])
            self.waiting = np.zeros_like(self.followed)


# ----------------------------------------------------------------------
# What is learned of keys as their events come: how long they are quiet, and whether for ever.

SAMPLE_RATE = 8  # of so many keys one is watched, where there are many
FEW = 4_096  # keys that are all watched
STATES = 16  # where events have one type: how many a key has had, up to so many
MAX_TYPES = 1_024

Codes = npt.NDArray[np.int64]


class KeyStatistics:
    """Counts gaps between events of a key by the state that the first of them left the key in.

    The state is the type of the last event; where there is only one type, it is the number of
    events that the key has inside the window.
    """

    def __init__(self, shape: StreamSchema, window: float) -> None:
        self.gaps = GapHistogram(max(float(window), 1e-9), STATES)
        self._shape = shape
        self._typed = shape.schema.type_column
        self._types = ColumnCodes()
        self._columns = list(dict.fromkeys((shape.schema.end, self._typed or shape.schema.end)))
        self._last = np.zeros(0)  # by code: when its last event came
        self._state = np.full(0, -1, np.int32)  # and its state; -1: nothing is known of it
        self._watched = np.zeros(0, np.bool_)  # whether it is one of the sample

    def state_of(self, table: pa.Table, rows: Codes, count: Codes) -> Codes:
        """The state in which keys are: of each its last row, and how many events it has."""
        if self._typed is None:
            return np.minimum(count, STATES).astype(np.int64) - 1
        types = self._types.encode(table.column(self._typed).take(pa.array(rows)))
        return np.clip(types.astype(np.int64), 0, MAX_TYPES)

    def watch(self, table: pa.Table, codes: Codes) -> None:
        """Events that have come, in the order of the stream."""
        if not len(codes):
            return
        self._room(int(codes.max()) + 1)
        sample = np.flatnonzero(self._watched[codes])
        if len(sample) < len(codes):
            table, codes = table.select(self._columns).take(pa.array(sample)), codes[sample]
        if not len(codes):
            return
        times = get_end_times(table, self._shape).astype(np.float64)
        states = self._states(table, codes)
        order = np.argsort(codes, kind="stable")
        codes, times, states = codes[order], times[order], states[order]
        first = np.r_[True, codes[1:] != codes[:-1]]
        before = np.where(first, self._last[codes], np.r_[0.0, times[:-1]])
        state = np.where(first, self._state[codes], np.r_[-1, states[:-1]])
        known = state >= 0
        gap = times - before
        inside = known & (gap <= self.gaps.window)
        self.gaps.follow(state[inside].astype(np.int64), gap[inside])
        self.gaps.lapse(state[known & ~inside].astype(np.int64))
        last = np.r_[first[1:], True]
        self._last[codes[last]], self._state[codes[last]] = times[last], states[last]

    def _states(self, table: pa.Table, codes: Codes) -> npt.NDArray[np.int32]:
        if self._typed is not None:
            found = self._types.encode(table.column(self._typed))
            return np.clip(found, 0, MAX_TYPES).astype(np.int32)
        # how many events a key has had, as far as is known here
        order = np.argsort(codes, kind="stable")
        same = codes[order]
        first = np.flatnonzero(np.r_[True, same[1:] != same[:-1]])
        counts = np.diff(np.r_[first, len(same)])
        place = np.arange(len(same)) - np.repeat(first, counts)
        states = np.empty(len(codes), np.int32)
        states[order] = np.minimum(self._state[same] + 1 + place, STATES - 1)
        return states

    def look(self, now: float) -> None:
        """It is `now`, and of some keys it is not known whether more of them comes."""
        known = np.flatnonzero(self._state >= 0)
        self.gaps.wait(self._state[known].astype(np.int64), now - self._last[known])

    def lapse_before(self, time: float) -> None:
        """Of keys that have been quiet since, nothing follows any more."""
        gone = np.flatnonzero((self._state >= 0) & (self._last < time))
        if len(gone):
            self.gaps.lapse(self._state[gone].astype(np.int64))
            self._state[gone] = -1

    def renumber(self, moved: npt.NDArray[np.int32]) -> None:
        """Keys have other codes from now on."""
        known = np.flatnonzero(moved[: len(self._last)] >= 0)
        count = int(moved.max(initial=-1)) + 1
        last, state = np.zeros(count), np.full(count, -1, np.int32)
        watched = np.zeros(count, np.bool_)
        new = moved[known]
        last[new], state[new] = self._last[known], self._state[known]
        watched[new] = self._watched[known]
        self._last, self._state, self._watched = last, state, watched

    @property
    def nbytes(self) -> int:
        return int(self._last.nbytes + self._state.nbytes)

    def save(self) -> dict[str, npt.NDArray[Any]]:
        """What was counted. Types go by the order in which they came, so they are saved too."""
        names = "\n".join(str(name) for name in self._types.values()).encode()
        return self.gaps.save() | {"types": np.frombuffer(names, np.uint8)}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Goes on with what was counted."""
        if "types" in arrays:
            names = arrays["types"].tobytes().decode()
            if names:
                self._types.encode(pa.array(names.split("\n")))
            self.gaps.restore(arrays)

    def _room(self, count: int) -> None:
        if count > len(self._last):
            more = max(count, 2 * len(self._last)) - len(self._last)
            new = np.arange(len(self._last), len(self._last) + more)
            watched = (new < FEW) | (new % SAMPLE_RATE == 0)
            self._watched = np.concatenate([self._watched, watched])
            self._last = np.concatenate([self._last, np.zeros(more)])
            self._state = np.concatenate([self._state, np.full(more, -1, np.int32)])


# ----------------------------------------------------------------------
# The choice of keys that can be spared, by a policy and by what was learned.

KeyCodes = npt.NDArray[np.int64]


class EvictionPolicy:
    """Ranks keys: those that can be spared best come first."""

    def __init__(
        self, policy: str, shape: StreamSchema, deadlines: WindowDeadlines, observed: KeyStatistics
    ) -> None:
        self.policy = policy  # one of EVICT
        self._shape, self._deadlines, self._observed = shape, deadlines, observed
        self._evicted_at: float | None = None
        self._between: float | None = None  # time between two evictions

    def ranked(
        self, events: pa.Table, first: KeyCodes, count: KeyCodes, now: float | None
    ) -> npt.NDArray[np.intp]:
        """Keys by how well they can be spared: their events key by key, from the rows `first`."""
        last = first + count - 1
        times = get_end_times(events, self._shape).astype(np.float64)
        due = self._deadlines.of(events, first, now)
        due = np.where(due == self._deadlines.never, np.inf, due.astype(np.float64))
        state = self._observed.state_of(events, last, count)
        keys = IdleKeys(times[first], times[last], state, due)
        return np.argsort(self._scores(keys, now), kind="stable")

    def _scores(self, keys: IdleKeys, now: float | None) -> npt.NDArray[np.float64]:
        gaps = self._observed.gaps
        if now is not None and self.policy != "tpm":
            self._observed.look(float(now))
        gaps.room_for(keys.state)
        match self.policy:
            case "tpm":
                return score_tpm(keys)
            case "stpm":
                return score_stpm(keys, gaps)
            case _:
                # who goes now is missed in the piece after this one at the earliest
                horizon = 2 * self._between if self._between else gaps.window / 16
                return score_need(keys, gaps, 0.0 if now is None else float(now), horizon)

    def evicted_at(self, now: float | None) -> None:
        """Learns how much time is between two evictions."""
        if now is not None and self._evicted_at is not None and now > self._evicted_at:
            passed = float(now - self._evicted_at)
            self._between = passed if self._between is None else (3 * self._between + passed) / 4
        self._evicted_at = now
