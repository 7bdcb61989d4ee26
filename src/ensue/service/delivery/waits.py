"""How long to wait before a target that failed is tried again: longer each time, never in step."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from ensue.errors import ServiceError

Chance = Callable[[], float]  # a number from 0 up to 1

MINUTE, HOUR = 60.0, 3_600.0


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds to wait after the first failure in a row, the second, and so on; the last repeats.

    `jitter` is the part of a wait that chance adds or takes, so that targets which failed
    together do not come back together.

    >>> waits = Waits((5.0, 60.0), jitter=0.2)
    >>> [waits.after(failures, lambda: 0.5) for failures in (1, 2, 3)]
    [5.0, 60.0, 60.0]
    >>> waits.after(2, lambda: 0.0), waits.after(2, lambda: 1.0)
    (48.0, 72.0)
    """

    steps: tuple[float, ...]
    jitter: float = 0.2
    most: float = 24 * HOUR  # no wait is longer, whatever a receiver asks for

    def __post_init__(self) -> None:
        steps = self.steps
        if not steps or steps[0] <= 0 or any(a > b for a, b in pairwise(steps)):
            raise ServiceError(f"waits of {steps} seconds\n  hint: at least one, above 0, growing")
        if not 0 <= self.jitter < 1:
            raise ServiceError(
                f"a jitter of {self.jitter}\n  hint: from 0 up to, not including, 1"
            )

    def after(
        self, failures: int, chance: Chance = random.random, asked: float | None = None
    ) -> float:
        """Seconds to wait after so many failures in a row; `asked` is what the receiver wants.

        >>> Waits((5.0,), most=3600.0).after(1, lambda: 0.5, asked=120.0)
        120.0
        >>> Waits((5.0,), most=3600.0).after(1, lambda: 0.5, asked=1e9)
        3600.0
        """
        step = self.steps[min(max(failures, 1), len(self.steps)) - 1]
        spread = step * (1 + self.jitter * (2 * chance() - 1))
        return min(self.most, max(spread, asked or 0.0))


# The schedule that Standard Webhooks recommends: ten tries in three days.
REQUESTS = Waits(
    (
        5.0,
        5 * MINUTE,
        30 * MINUTE,
        2 * HOUR,
        5 * HOUR,
        10 * HOUR,
        14 * HOUR,
        20 * HOUR,
        24 * HOUR,
    )
)
# A broker is one's own and comes back within minutes.
BROKERS = Waits((1.0, 2.0, 5.0, 10.0, 20.0, 30.0, MINUTE))
