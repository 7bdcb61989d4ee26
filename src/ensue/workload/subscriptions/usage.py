"""Memory and processor time by subscription, and which of them caused an error."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import numba_time

Floats = npt.NDArray[np.float64]
_STEPS = 40  # of a bisection


@dataclass(frozen=True, slots=True)
class Usage:
    """What subscriptions take, by name."""

    bytes: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)  # of the processor


class Meter:
    """Counts processor seconds of the thread that matches, without those for compiling."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Counts while something runs."""
        began, compiled = time.thread_time(), numba_time.seconds
        try:
            yield
        finally:
            spent = time.thread_time() - began - (numba_time.seconds - compiled)
            self.seconds += max(0.0, spent)


def shares_of(events: Floats, partial_matches: float) -> Floats:
    """The share of each subscription in the partial matches of an engine, by its held events.

    Partial matches grow as a power of the events they are made of; the power is the one by which
    all subscriptions together hold as many as the engine does.

    >>> shares_of(np.array([3.0, 1.0]), 4).tolist()
    [0.75, 0.25]
    >>> shares_of(np.array([20.0, 1.0, 1.0]), 2.0**20).round(4).tolist()
    [1.0, 0.0, 0.0]
    """
    if not len(events):
        return events
    low, high = 1.0, 1.0
    while (events**high).sum() < partial_matches and high < 64 and events.max() > 1:
        high *= 2
    for _ in range(_STEPS if high > 1 else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if (events**middle).sum() < partial_matches else (low, middle)
    weights = (events / events.max()) ** high
    found: Floats = weights / weights.sum()
    return found
