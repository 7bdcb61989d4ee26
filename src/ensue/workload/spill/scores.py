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

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BINS = 128
_FINEST = 2.0**-20  # of the window: shorter gaps fall into the first bin
_MOST = 1 << 20  # counts of a state from which on old ones fade


@dataclass(frozen=True, slots=True)
class Quiet:
    """Keys as a policy sees them, all arrays by key. Times are floats."""

    created: Floats  # when its oldest event came that is still inside the window
    last: Floats  # when its last one came
    state: Ints  # what its last event was
    deadline: Floats  # when it is needed though no event comes; infinity: never


def tpm(keys: Quiet) -> Floats:
    """TPM: by creation."""
    return keys.created


def stpm(keys: Quiet, gaps: "Gaps") -> Floats:
    """STPM as printed: W = e.t + dt_i p(E_i+1 | E_i)."""
    return np.asarray(keys.last + gaps.longest[keys.state] * gaps.chance[keys.state])


def need(keys: Quiet, gaps: "Gaps", now: float, horizon: float) -> Floats:
    """The discounted chance that a key is needed; one with a deadline surely is."""
    by_event = gaps.needed(keys.state, now - keys.last, horizon)
    by_time = np.exp(-np.maximum(keys.deadline - now, 0.0) / horizon)
    return np.maximum(by_event, by_time)


@dataclass
class Gaps:
    """The gaps between an event of a key and its next one, counted by the state of the first.

    Bins get wider with the gap: the last one ends with the window.

    >>> gaps = Gaps(100.0, 1)
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
