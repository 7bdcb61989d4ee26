"""What trucks report on a day, and what is to be found in it."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from samples.fleet.roads import Place, moved

MIDNIGHT = np.datetime64("2026-03-16T00:00:00", "us")
_TIME = pa.timestamp("us", "UTC")
_REPORT = pa.schema(
    {
        "ts": _TIME, "id": pa.int64(), "type": pa.string(), "x": pa.float64(), "y": pa.float64(),
        "speed": pa.float64(),
    }
)  # fmt: skip
_NOTE = pa.schema({"subscription": pa.string(), "object": pa.int64(), "at": _TIME, "end": _TIME})

_NOISE = 8.0  # metres that a position is wrong by, as it happens
_TYPES = ("truck", "truck", "tanker", "reefer")

Story = TypeVar("Story")


class Deck(Generic[Story]):
    """Stories in random order; none comes again before all others have."""

    def __init__(self, random: np.random.Generator, stories: Sequence[Story]) -> None:
        self._random = random
        self._stories = stories
        self._left: list[int] = []

    def draw(self) -> Story:
        """The next one."""
        if not self._left:
            self._left = self._random.permutation(len(self._stories)).tolist()
        return self._stories[self._left.pop()]


class Logbook:
    """Reports and notes of all trucks; times are seconds since midnight."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self._reports: list[dict[str, Any]] = []
        self._notes: list[dict[str, Any]] = []
        self._types: dict[int, str] = {}

    def between(self, least: int, most: int) -> int:
        """A random number, both ends included."""
        return int(self.random.integers(least, most, endpoint=True))

    def report(self, at: int, truck: int, place: Place, speed: float = 0.0, *, exact: bool = False) -> None:
        """Where a truck is, wrong by some metres unless it is to be exact; speed in m/s."""
        if not exact:
            place = moved(place, *self.random.uniform(-_NOISE, _NOISE, 2).tolist())
        type = self._types.setdefault(truck, str(self.random.choice(_TYPES)))
        self._reports.append(
            {
                "ts": _time(at, truck), "id": truck, "type": type, "x": place[0], "y": place[1],
                "speed": round(speed * 3.6, 1),
            }
        )  # fmt: skip

    def to_be_found(self, subscription: str, truck: int, at: int, lasts: int) -> None:
        """A match whose last report is that of `at`, and that is over so much later."""
        self._notes.append(
            {
                "subscription": subscription, "object": truck, "at": _time(at, truck),
                "end": _time(at + lasts, truck),
            }
        )  # fmt: skip

    def reports(self) -> pa.Table:
        """In the order of their times."""
        return pa.Table.from_pylist(sorted(self._reports, key=lambda one: one["ts"]), _REPORT)

    def notes(self) -> pa.Table:
        """In the order in which they become known."""

        def order(note: dict[str, Any]) -> tuple[Any, ...]:
            return note["end"], note["subscription"], note["object"]

        return pa.Table.from_pylist(sorted(self._notes, key=order), _NOTE)


def _time(seconds: int, truck: int) -> Any:
    """No two trucks report in the same millisecond."""
    return (MIDNIGHT + np.timedelta64(seconds * 1_000 + truck, "ms")).item()
