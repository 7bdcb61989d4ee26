"""Runs of one piece of work, and their times."""

import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of one piece of work, all with the same outcome.

    >>> Runs(7, (0.5, 0.2, 0.3), (0.1, 0.2, 0.1)).median
    0.3
    """

    matches: int
    seconds: tuple[float, ...]  # by the clock on the wall
    cpu_seconds: tuple[float, ...]  # of this process: less disturbed by its neighbours

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def report(self, events: int) -> dict[str, object]:
        """What goes into a file of results."""
        return {
            "matches": self.matches,
            "best_seconds": self.best,
            "median_seconds": self.median,
            "cpu_seconds": min(self.cpu_seconds),
            "events_per_second": events / self.best,
            "median_events_per_second": events / self.median,
            "matches_per_second": self.matches / self.best,
        }


def repeated(work: Callable[[], tuple["Clock", int]], times: int) -> Runs:
    """Does a piece of work several times; it says how long it took and what it found."""
    done = [work() for _ in range(times)]
    found = {matches for _, matches in done}
    if len(found) != 1:
        raise AssertionError(f"the runs found different numbers of matches: {sorted(found)}")
    return Runs(found.pop(), tuple(clock.seconds for clock, _ in done), tuple(clock.cpu_seconds for clock, _ in done))


class Clock:
    """Adds up the time spent inside `with clock:`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self.user_seconds = 0.0  # of these, without what the system did, such as finding memory

    def __enter__(self) -> "Clock":
        self._user = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._wall
        self.cpu_seconds += time.process_time() - self._cpu
        self.user_seconds += resource.getrusage(resource.RUSAGE_SELF).ru_utime - self._user
