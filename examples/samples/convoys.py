"""Convoys of a leader and its followers, some of which stray, and what looks like it.

Once a minute the leader reports where it is, and the others answer within seconds. A follower has
strayed if it was less than 500 metres from its leader and a minute later is more than 500 away.
Some are exactly 500 metres away, before or then; some answer a second too late, or not at all when
it matters. And where one follower is near and another one far all the time, nobody strays.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

_MORNING = np.datetime64("2026-03-16T06:00:00", "us")
_BORDER = 500.0  # metres
_LEG = 6  # minutes: a follower has one story in a leg
_STEP = 2_000.0  # metres that a leader goes in a minute, from leg to leg in another direction


class Convoys(NamedTuple):
    """The reports of a morning, how many convoys there are, and who has strayed."""

    reports: pa.Table  # ts, convoy, id, role, x, y: metres; in the order of ts
    convoys: int
    strayed: pa.Table  # subscription ("convoy-3"), id, start, end


def convoys(convoys: int = 100, followers: int = 4, minutes: int = 60, seed: int = 7) -> Convoys:
    """Convoys that drive for a while, and who of them has strayed.

    >>> morning = convoys(3)
    >>> morning.reports.column_names
    ['ts', 'convoy', 'id', 'role', 'x', 'y']
    >>> morning.strayed.column_names
    ['subscription', 'id', 'start', 'end']
    """
    drive = _Drive(np.random.default_rng(seed))
    for convoy in range(convoys):
        drive.convoy(convoy, followers, minutes // _LEG)
    drive.reports.sort(key=lambda report: report["ts"])
    drive.strayed.sort(key=lambda strayed: strayed["end"])
    return Convoys(pa.Table.from_pylist(drive.reports, _REPORT), convoys, pa.Table.from_pylist(drive.strayed, _STRAYED))


_TIME = pa.timestamp("us", "UTC")
_REPORT = pa.schema(
    {
        "ts": _TIME, "convoy": pa.int64(), "id": pa.int64(), "role": pa.string(),
        "x": pa.float64(), "y": pa.float64(),
    }
)  # fmt: skip
_STRAYED = pa.schema({"subscription": pa.string(), "id": pa.int64(), "start": _TIME, "end": _TIME})

# How far a follower is in the six minutes of a leg, and how late it answers; None: not at all.
# It is near in the first minute and in the last, but for those who are away all the time.
_STORIES: dict[str, tuple[tuple[float | None, float], ...]] = {
    "stays": ((100, 2), (120, 2), (90, 3), (110, 2), (80, 4), (100, 2)),
    "strays": ((100, 2), (499.5, 2), (500.5, 5), (3_000, 2), (900, 3), (100, 2)),
    "is on the border": ((100, 2), (500, 2), (900, 2), (500, 2), (500, 2), (100, 2)),
    "comes to the border": ((100, 2), (300, 2), (500, 2), (300, 2), (500, 2), (100, 2)),
    "answers late": ((100, 2), (120, 2), (900, 6), (900, 2), (900, 2), (100, 2)),
    "was too late before": ((100, 6), (120, 6), (900, 2), (900, 2), (900, 2), (100, 2)),
    "is silent": ((100, 2), (120, 2), (None, 0), (900, 2), (None, 0), (100, 2)),
    "is away": ((5_000, 2), (5_000, 2), (5_000, 3), (5_000, 2), (5_000, 2), (5_000, 4)),
}
_STRAYS = (1, 2)  # in "strays": the minute when it was near for the last time, and the next one


class _Drive:
    """Convoy by convoy; what is reported and who has strayed are noted down."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self.reports: list[dict[str, Any]] = []
        self.strayed: list[dict[str, Any]] = []

    def convoy(self, convoy: int, followers: int, legs: int) -> None:
        first = convoy * (followers + 1)  # the leader's number; those of the others follow
        start = int(self.random.integers(0, 3_600))
        x, y = self.random.integers(-50, 50, 2) * 1_000.0
        away = self.random.random(followers) < 0.2
        names = [name for name in _STORIES if name != "is away"]
        for leg in range(legs):
            step = _STEP * np.array([(1, 0), (0, 1), (-1, 0)][leg % 3])
            stories = self.random.choice(names, followers)
            for minute in range(_LEG):
                at = start + (leg * _LEG + minute) * 60
                self.report(at, convoy, first, "leader", x, y)
                for k in range(followers):
                    story = "is away" if away[k] else str(stories[k])
                    far, late = _STORIES[story][minute]
                    if far is not None:
                        self.report(at + late, convoy, first + 1 + k, "follower", x - far, y)
                x, y = np.array([x, y]) + step
            for k in np.flatnonzero((stories == "strays") & ~away).tolist():
                began, ended = (start + (leg * _LEG + minute) * 60 for minute in _STRAYS)
                answered = _STORIES["strays"][_STRAYS[1]][1]
                self.strayed.append(
                    {
                        "subscription": f"convoy-{convoy}", "id": first + 1 + k,
                        "start": _time(began), "end": _time(ended + answered),
                    }
                )  # fmt: skip

    def report(self, at: float, convoy: int, number: int, role: str, x: float, y: float) -> None:
        self.reports.append(
            {
                "ts": _time(at), "convoy": convoy, "id": number, "role": role,
                "x": float(x), "y": float(y),
            }
        )  # fmt: skip


def _time(seconds: float) -> Any:
    return (_MORNING + np.timedelta64(round(seconds * 1e6), "us")).item()
