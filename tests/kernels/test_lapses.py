"""The search for an event in an interval finds what a look at all of them finds."""

from random import Random

import numpy as np
import pytest

from ensue.kernels.match_selection import mark_violations

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize("time", [np.int64, np.float64])
@pytest.mark.parametrize("seed", range(20))
def test_like_looking_at_all(seed, time):
    random = Random(seed)
    events = sorted(
        (random.randint(0, 2), end, end - random.choice((0, 0, 1, 3)), row)
        for row, end in enumerate(sorted(random.randint(0, 12) for _ in range(random.randint(0, 15))))
    )
    key, ends, starts, rows = (np.array([e[k] for e in events], np.int64) for k in range(4))
    count = random.randint(0, 9)
    of = np.array([random.randint(0, 3) for _ in range(count)], np.int64)
    after = np.array([random.randint(-2, 12) for _ in range(count)], time)
    until = np.array([random.randint(-2, 14) for _ in range(count)], time)
    own = np.array([[random.randint(-1, 15) for _ in range(2)] for _ in range(count)], np.int64)
    own = own.reshape(count, 2)
    spoilt = np.zeros(count, np.bool_)
    mark_violations(
        np.searchsorted(key, of), np.searchsorted(key, of, side="right"),
        starts.astype(time), ends.astype(time), rows, after, until, own, spoilt,
    )  # fmt: skip
    for k in range(count):
        inside = [
            row
            for its_key, end, start, row in events
            if its_key == of[k] and after[k] < start and end <= until[k] and row not in own[k]
        ]
        assert spoilt[k] == bool(inside)
