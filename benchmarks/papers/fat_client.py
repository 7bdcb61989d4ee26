"""Clients that get every event of their atoms and match by themselves, as one would write them."""

import sys
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

FAR, CLOSE = 300.0, 50.0  # metres
TOGETHER = 1_000  # microseconds


class Report(NamedTuple):
    """Where a vehicle was."""

    position: int
    ts: int
    id: int
    x: float
    y: float


class Client(Protocol):
    """Who has subscribed to atoms."""

    def take(self, report: Report) -> int:
        """The next event; how many matches it completes, of which only the newest counts."""


class Yard:
    """A square yard."""

    def __init__(self, x: float, side: int) -> None:
        self.x, self.side = x, side

    def away(self, report: Report) -> float:
        dx = max(self.x - report.x, 0.0, report.x - self.x - self.side)
        dy = max(-report.y, 0.0, report.y - self.side)
        return float((dx * dx + dy * dy) ** 0.5)


class Left:
    """A vehicle in its yard, and then far away."""

    def __init__(self, x: float, side: int, in_time: int) -> None:
        self.yard, self.in_time = Yard(x, side), in_time
        self.waiting: deque[Report] = deque()

    def begins(self, away: float) -> bool:
        return away == 0

    def ends(self, away: float) -> bool:
        return away > FAR

    def take(self, report: Report) -> int:
        waiting = self.waiting
        while waiting and waiting[0].ts < report.ts - self.in_time:
            waiting.popleft()
        away = self.yard.away(report)
        found = int(self.ends(away) and any(one.ts < report.ts for one in waiting))
        if self.begins(away):
            waiting.append(report)
        return found


class Arrived(Left):
    """The other way round."""

    def begins(self, away: float) -> bool:
        return away > FAR

    def ends(self, away: float) -> bool:
        return away == 0


class Strayed:
    """Two vehicles close to each other, and then far from each other."""

    def __init__(self, x: float, side: int, in_time: int) -> None:
        self.in_time = in_time
        self.reports: deque[Report] = deque()
        self.near: deque[tuple[int, int]] = deque()  # start and end

    def take(self, report: Report) -> int:
        while self.reports and self.reports[0].ts < report.ts - TOGETHER:
            self.reports.popleft()
        while self.near and self.near[0][1] < report.ts - self.in_time:
            self.near.popleft()
        found = 0
        for other in self.reports:
            if other.id == report.id:
                continue
            away = ((report.x - other.x) ** 2 + (report.y - other.y) ** 2) ** 0.5
            if away < CLOSE:
                self.near.append((other.ts, report.ts))
            elif away > CLOSE:
                found = found or int(any(end < other.ts for _, end in self.near))
        self.reports.append(report)
        return found


def held_bytes(client: Client) -> int:
    """What a client holds of events: its lists, and what is in them."""
    lists = [value for value in vars(client).values() if isinstance(value, deque)]
    entries = [entry for waiting in lists for entry in waiting]
    values = [value for entry in entries for value in entry]
    return sum(map(sys.getsizeof, [*lists, *entries, *values]))


CLIENTS: dict[str, Callable[[float, int, int], Client]] = {
    "left": Left, "arrived": Arrived, "strayed": Strayed,
}  # fmt: skip
