"""Eviction: which queries can evict or shed keys, and the policies: the keys with the lowest scores go first.

`tpm` evicts the oldest partial matches. `stpm`, as in the paper, scores by W = e.t + dt p, the
expected time of a key's next event. `need` scores by the discounted probability that the key is
needed, given its idle time:

    N = p E[exp(-(g - u) / h); g >= u] / (1 - p F(u))

p is the probability that another event follows one of this state, g the gap to it with
distribution F, u the age of the last event, h the time between two evictions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.errors import QueryError
from ensue.ir.traversal import iterate_negations
from ensue.planner.capabilities import can_wait, why_not_evicted, why_not_shed
from ensue.runtime.compiled_query import CompiledQuery
from ensue.runtime.spill.resident_keys import WindowDeadlines, find_runs, grow_array
from ensue.schema import ValueKind
from ensue.vector.arrow_types import window_to_ticks
from ensue.vector.event_table import StreamSchema, get_end_times
from ensue.vector.key_codes import ColumnCodes

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BINS = 128
_FINEST = 2.0**-20  # of the window: shorter gaps fall into the first bin
_MAX_COUNT = 1 << 20  # of a state, after which its counts are halved


@dataclass(frozen=True, slots=True)
class IdleKeys:
    """The input of a policy, all arrays by key. Times are floats."""

    created: Floats  # time of its oldest event inside the window
    last: Floats  # time of its last event
    state: Ints  # of its last event
    deadline: Floats  # without further events; infinity: none


def score_tpm(keys: IdleKeys) -> Floats:
    """TPM: by creation."""
    return keys.created


def score_stpm(keys: IdleKeys, gaps: "GapHistogram") -> Floats:
    """STPM as printed: W = e.t + dt_i p(E_i+1 | E_i)."""
    return np.asarray(keys.last + gaps.longest[keys.state] * gaps.chance[keys.state])


def score_need(keys: IdleKeys, gaps: "GapHistogram", now: float, horizon: float) -> Floats:
    """The discounted probability that a key is needed; 1 at its deadline."""
    by_event = gaps.estimate_need(keys.state, now - keys.last, horizon)
    by_time = np.exp(-np.maximum(keys.deadline - now, 0.0) / horizon)
    return np.maximum(by_event, by_time)


@dataclass
class GapHistogram:
    """Histogram of the gaps between events of a key, by the state of the first event.

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
    lapsed: Floats = field(init=False)  # events of a state without a next one inside the window
    longest: Floats = field(init=False)
    waiting: Floats = field(init=False)  # by state and age: their gaps are not known yet

    def __post_init__(self) -> None:
        self.followed = np.zeros((self.states, BINS))
        self.waiting = np.zeros((self.states, BINS))
        self.lapsed = np.zeros(self.states)
        self.longest = np.zeros(self.states)
        inner = np.geomspace(self.window * _FINEST, self.window, BINS)
        self._edges = np.concatenate([[0.0], inner])

    def follow(self, state: Ints, gap: Floats) -> None:
        """Counts events that were followed by others after these gaps."""
        self.followed += self._count(state, gap)
        np.maximum.at(self.longest, state, gap)
        # streams change: old counts lose weight
        many = self.followed.sum(1) + self.lapsed > _MAX_COUNT
        self.followed[many] /= 2
        self.lapsed[many] /= 2

    def lapse(self, state: Ints) -> None:
        """Counts events that no other followed."""
        self.grow(state)
        self.lapsed += np.bincount(state, minlength=self.states)

    def grow(self, state: Ints) -> None:
        """Adds the states up to the largest of these."""
        more = int(state.max(initial=-1)) + 1 - self.states
        if more > 0:
            for name in ("followed", "waiting", "lapsed", "longest"):
                counts = getattr(self, name)
                more_counts = np.zeros((more, *counts.shape[1:]))
                setattr(self, name, np.concatenate([counts, more_counts]))
            self.states += more

    def wait(self, state: Ints, age: Floats) -> None:
        """Sets the events whose next event is not known yet, with their ages."""
        self.waiting = self._count(state, age)

    def _count(self, state: Ints, gap: Floats) -> Floats:
        self.grow(state)
        counts = np.bincount(state * BINS + self._bins(gap), minlength=self.states * BINS)
        return counts.reshape(self.states, BINS).astype(np.float64)

    def _bins(self, gap: Floats) -> Ints:
        return np.clip(np.searchsorted(self._edges, gap, side="right") - 1, 0, BINS - 1)

    def _steps(self) -> Floats:
        """By state and bin, the probability that the next event has such a gap: p dF.

        Waiting events are censored (Kaplan and Meier): a new stream has seen short gaps only.
        """
        known = self.followed + self.waiting
        reached = np.cumsum(known[:, ::-1], 1)[:, ::-1] - self.waiting / 2 + self.lapsed[:, None]
        hazard = self.followed / np.maximum(reached, 1e-9)
        hazard = np.minimum(np.where(reached > 0, hazard, 0.0), 1.0)
        left = np.cumprod(1 - hazard, 1)
        return np.asarray(hazard * np.concatenate([np.ones((self.states, 1)), left[:, :-1]], 1))

    @property
    def seen(self) -> npt.NDArray[np.bool_]:
        return np.asarray((self.followed + self.waiting).sum(1) + self.lapsed > 0)

    @property
    def chance(self) -> Floats:
        """p by state: the probability that another event follows; 0.5 for unseen states."""
        return np.where(self.seen, self._steps().sum(1), 0.5)

    def estimate_need(self, state: Ints, age: Floats, horizon: float) -> Floats:
        """N for each key: its state, the age u of its last event, and h."""
        if not len(state):
            return np.zeros(0)
        self.grow(state)
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

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        return {"followed": self.followed, "lapsed": self.lapsed, "longest": self.longest}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        self.followed, self.lapsed = arrays["followed"], arrays["lapsed"]
        self.longest, self.states = arrays["longest"], len(arrays["lapsed"])
        self.waiting = np.zeros_like(self.followed)


SAMPLE_RATE = 8  # one of 8 keys is observed, where there are many
FEW = 4_096  # keys that are all observed
STATES = 16  # number of events of a key, up to this, where events have one type
MAX_TYPES = 1_024

Codes = npt.NDArray[np.int64]


class KeyStatistics:
    """Statistics of the gaps between events of a key, by the key's state after the first event.

    The state is the type of the last event; where events have no type, it is the number of events
    that the key has inside the window.
    """

    def __init__(self, shape: StreamSchema, window: float) -> None:
        self.gaps = GapHistogram(max(float(window), 1e-9), STATES)
        self._shape = shape
        self._typed = shape.schema.type_column
        self._types = ColumnCodes()
        self._columns = list(dict.fromkeys((shape.schema.end, self._typed or shape.schema.end)))
        self._last = np.zeros(0)  # by code: time of its last event
        self._state = np.full(0, -1, np.int32)  # and its state; -1: unknown

    def get_states(self, table: pa.Table, rows: Codes, count: Codes) -> Codes:
        """The states of keys, given their last rows and their numbers of events."""
        if self._typed is None:
            return np.minimum(count, STATES).astype(np.int64) - 1
        types = self._types.encode(table.column(self._typed).take(pa.array(rows)))
        return np.clip(types.astype(np.int64), 0, MAX_TYPES)

    def observe(self, table: pa.Table, codes: Codes) -> None:
        """Counts the gaps of events, which are in stream order."""
        if not len(codes):
            return
        count = int(codes.max()) + 1
        self._last = grow_array(self._last, count)
        self._state = grow_array(self._state, count, -1)
        sample = np.flatnonzero(_is_sampled(codes))
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
        # the number of observed events of a key
        order = np.argsort(codes, kind="stable")
        same = codes[order]
        place = np.arange(len(same)) - np.repeat(*find_runs(same))
        states = np.empty(len(codes), np.int32)
        states[order] = np.minimum(self._state[same] + 1 + place, STATES - 1)
        return states

    def note_waiting(self, now: float) -> None:
        """Counts the keys whose next event is not known at `now`."""
        known = np.flatnonzero(self._state >= 0)
        self.gaps.wait(self._state[known].astype(np.int64), now - self._last[known])

    def expire_before(self, time: float) -> None:
        """Counts keys without events since `time` as lapsed."""
        gone = np.flatnonzero((self._state >= 0) & (self._last < time))
        if len(gone):
            self.gaps.lapse(self._state[gone].astype(np.int64))
            self._state[gone] = -1

    def renumber(self, moved: npt.NDArray[np.int32]) -> None:
        """Replaces the codes of keys; `moved` is the new code by old code."""
        moved = moved[: len(self._last)]
        known = np.flatnonzero((moved >= 0) & _is_sampled(moved))
        count = int(moved.max(initial=-1)) + 1
        last, state = np.zeros(count), np.full(count, -1, np.int32)
        last[moved[known]], state[moved[known]] = self._last[known], self._state[known]
        self._last, self._state = last, state

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """The counts, and the types in the order of their codes."""
        names = "\n".join(str(name) for name in self._types.values()).encode()
        return self.gaps.snapshot() | {"types": np.frombuffer(names, np.uint8)}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        if names := arrays["types"].tobytes().decode():
            self._types.encode(pa.array(names.split("\n")))
        self.gaps.restore(arrays)


def _is_sampled(codes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    return np.asarray((codes < FEW) | (codes % SAMPLE_RATE == 0))


class EvictionPolicy:
    """Ranks keys by their scores, the lowest first."""

    def __init__(self, policy: str, shape: StreamSchema, deadlines: WindowDeadlines, observed: KeyStatistics) -> None:
        self.policy = policy  # one of EVICT
        self._shape, self._deadlines, self._observed = shape, deadlines, observed
        self._evicted_at: float | None = None
        self._between: float | None = None  # time between two evictions

    def rank(self, events: pa.Table, first: Codes, count: Codes, now: float | None) -> npt.NDArray[np.intp]:
        """The order of keys by score; events are sorted by key, and begin at the rows `first`."""
        last = first + count - 1
        times = get_end_times(events, self._shape).astype(np.float64)
        due = self._deadlines.compute_deadlines(events, first, now)
        due = np.where(due == self._deadlines.never, np.inf, due.astype(np.float64))
        state = self._observed.get_states(events, last, count)
        keys = IdleKeys(times[first], times[last], state, due)
        return np.argsort(self._scores(keys, now), kind="stable")

    def _scores(self, keys: IdleKeys, now: float | None) -> npt.NDArray[np.float64]:
        gaps = self._observed.gaps
        if now is not None and self.policy != "tpm":
            self._observed.note_waiting(float(now))
        gaps.grow(keys.state)
        match self.policy:
            case "tpm":
                return score_tpm(keys)
            case "stpm":
                return score_stpm(keys, gaps)
            case _:
                # a key evicted now is missed in the next piece at the earliest
                horizon = 2 * self._between if self._between else gaps.window / 16
                return score_need(keys, gaps, 0.0 if now is None else float(now), horizon)

    def note_eviction(self, now: float | None) -> None:
        """Updates the average time between two evictions."""
        if now is not None and self._evicted_at is not None and now > self._evicted_at:
            passed = float(now - self._evicted_at)
            self._between = passed if self._between is None else (3 * self._between + passed) / 4
        self._evicted_at = now


# ------------------------------------------------------------------- queries that can evict or shed


@dataclass(frozen=True, slots=True)
class SpillUnit:
    """The unit of eviction: the events of one key inside the window."""

    key: tuple[str, ...]  # columns
    reach: float  # the length of the window
    windows: tuple[float, ...]  # of the queries that wait for the end of their windows


def why_not_evictable(queries: Sequence[CompiledQuery]) -> str | None:
    """Why the keys of these queries cannot be evicted; None if they can."""
    for prepared in queries:
        why = why_not_evicted(prepared.plan)
        if why is not None:
            return why
    if not _find_common_key(queries):
        return "its queries have no [attr] in common that would split their events into keys"
    return None


def build_eviction_error(why: str) -> QueryError:
    return QueryError(
        f"the query cannot be evicted: {why}",
        hint="leave out evict of ensue.Limits: memory is then a bound at which the query is stopped",
    )


def require_sheddable(queries: Sequence[CompiledQuery]) -> None:
    """Raises a QueryError if the keys of these queries cannot be shed."""
    reasons = (why_not_shed(prepared.plan) for prepared in queries)
    why = next((why for why in reasons if why is not None), None) or why_not_evictable(queries)
    if why is not None:
        raise build_shedding_error(why)
    kind = queries[0].shape.schema.time_kind
    if kind is not ValueKind.TIMESTAMP:
        raise build_shedding_error(f"its time column holds {kind.value}s, which no clock can be compared with")


def build_shedding_error(why: str) -> QueryError:
    return QueryError(
        f"the query cannot shed load: {why}",
        hint="leave out shed of ensue.Limits: a slow stream falls behind, and nothing is lost",
    )


def get_spill_unit(queries: Sequence[CompiledQuery]) -> SpillUnit:
    """The key and window by which queries are evicted."""
    lengths, waiting = [], []
    for prepared in queries:
        query = prepared.plan.query
        length = window_to_ticks(query.within, prepared.shape.unit)
        assert length is not None
        late = query.unfinished or can_wait(query.pattern)
        # negated events of a match that still waits may be a window older than the match
        twice = late and sum(1 for _ in iterate_negations(query.pattern)) > 1
        lengths.append(2 * length if twice else length)
        waiting += [length] if late else []
    return SpillUnit(_find_common_key(queries), max(lengths), tuple(sorted(set(waiting))))


def _find_common_key(queries: Sequence[CompiledQuery]) -> tuple[str, ...]:
    """The fields that partition the events of all queries."""
    keys = [{e.field_name for e in p.plan.query.equivalence} for p in queries]
    return tuple(sorted(set.intersection(*keys))) if keys else ()
