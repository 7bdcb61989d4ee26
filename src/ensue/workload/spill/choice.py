"""The choice of keys that can be spared, by a policy and by what was learned."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.stream import Shape, ends
from ensue.workload.spill.deadlines import Deadlines
from ensue.workload.spill.observed import Observed
from ensue.workload.spill.scores import Quiet, need, stpm, tpm

Codes = npt.NDArray[np.int64]


class Choice:
    """Ranks keys: those that can be spared best come first."""

    def __init__(
        self, policy: str, shape: Shape, deadlines: Deadlines, observed: Observed
    ) -> None:
        self.policy = policy  # one of EVICT
        self._shape, self._deadlines, self._observed = shape, deadlines, observed
        self._evicted_at: float | None = None
        self._between: float | None = None  # time between two evictions

    def ranked(
        self, events: pa.Table, first: Codes, count: Codes, now: float | None
    ) -> npt.NDArray[np.intp]:
        """Keys by how well they can be spared: their events key by key, from the rows `first`."""
        last = first + count - 1
        times = ends(events, self._shape).astype(np.float64)
        due = self._deadlines.of(events, first, now)
        due = np.where(due == self._deadlines.never, np.inf, due.astype(np.float64))
        state = self._observed.state_of(events, last, count)
        keys = Quiet(times[first], times[last], state, due)
        return np.argsort(self._scores(keys, now), kind="stable")

    def _scores(self, keys: Quiet, now: float | None) -> npt.NDArray[np.float64]:
        gaps = self._observed.gaps
        if now is not None and self.policy != "tpm":
            self._observed.look(float(now))
        gaps.room_for(keys.state)
        match self.policy:
            case "tpm":
                return tpm(keys)
            case "stpm":
                return stpm(keys, gaps)
            case _:
                # who goes now is missed in the piece after this one at the earliest
                horizon = 2 * self._between if self._between else gaps.window / 16
                return need(keys, gaps, 0.0 if now is None else float(now), horizon)

    def evicted_at(self, now: float | None) -> None:
        """Learns how much time is between two evictions."""
        if now is not None and self._evicted_at is not None and now > self._evicted_at:
            passed = float(now - self._evicted_at)
            self._between = passed if self._between is None else (3 * self._between + passed) / 4
        self._evicted_at = now
