"""How many events come in a second."""

import time
from collections import deque

SPAN = 10.0  # seconds that are looked at


class Pace:
    """Counts what came lately. One thread counts, others look."""

    def __init__(self) -> None:
        self._came: deque[tuple[float, int]] = deque()

    def count(self, events: int, now: float | None = None) -> None:
        """Some came now."""
        moment = time.monotonic() if now is None else now
        self._came.append((moment, events))
        while self._came and self._came[0][0] < moment - SPAN:
            self._came.popleft()

    def a_second(self, now: float | None = None) -> float:
        """How many came in a second, over the last few.

        >>> pace = Pace()
        >>> pace.count(30, now=100.0)
        >>> pace.a_second(now=104.0), pace.a_second(now=120.0)
        (3.0, 0.0)
        """
        moment = time.monotonic() if now is None else now
        return sum(n for at, n in list(self._came) if at >= moment - SPAN) / SPAN
