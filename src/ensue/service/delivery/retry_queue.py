"""Retry backoff with jitter, and the fair queue of deliveries."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

RandomSource = Callable[[], float]  # a number from 0 up to 1

MINUTE, HOUR = 60.0, 3_600.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Backoff in seconds after the first, second, ... consecutive failure; the last value repeats.

    `jitter` is the random share of a delay, so that targets that failed together are not retried
    together.
    """

    steps: tuple[float, ...]
    jitter: float = 0.2
    most: float = 24 * HOUR  # upper bound, also for delays requested by receivers

    def after(self, failures: int, chance: RandomSource = random.random, requested: float | None = None) -> float:
        """Computes the delay after consecutive failures, at least the one that was requested."""
        step = self.steps[min(max(failures, 1), len(self.steps)) - 1]
        spread = step * (1 + self.jitter * (2 * chance() - 1))
        return min(self.most, max(spread, requested or 0.0))


# The schedule recommended by Standard Webhooks: ten attempts in three days.
WEBHOOK_BACKOFF = Backoff((5.0, 5 * MINUTE, 30 * MINUTE, *(hours * HOUR for hours in (2, 5, 10, 14, 20, 24))))
# Brokers are operated locally and recover within minutes.
BROKER_BACKOFF = Backoff((1.0, 2.0, 5.0, 10.0, 20.0, 30.0, MINUTE))
SOURCE_BACKOFF = Backoff((0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15.0), jitter=0.25)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConcurrencyShares:
    """Concurrency limits: in total, per user, and per receiver of a user.

    A user with many unresponsive receivers fills at most the user's share, and an unresponsive
    receiver at most its share of the user's.

    >>> ConcurrencyShares.from_total(64)
    ConcurrencyShares(in_all=64, per_user=48, per_place=16)
    """

    in_all: int
    per_user: int
    per_place: int

    @classmethod
    def from_total(cls, in_all: int) -> "ConcurrencyShares":
        """Computes shares that leave capacity for others."""
        return cls(in_all, max(1, in_all * 3 // 4), max(1, in_all // 4))


@dataclass(slots=True)
class _Receiver(Generic[T]):
    line: deque[T] = field(default_factory=deque)
    going: int = 0  # items in progress
    called: bool = False  # scheduled in its user's row


@dataclass(slots=True)
class _User(Generic[T]):
    receivers: dict[str, _Receiver[T]] = field(default_factory=dict)
    row: deque[str] = field(default_factory=deque)  # receivers that can be served
    going: int = 0
    called: bool = False  # scheduled in the row of users


class FairQueue(Generic[T]):
    """A fair queue, round robin over users and over the receivers of a user."""

    def __init__(self, shares: ConcurrencyShares) -> None:
        self._shares = shares
        self._users: dict[int, _User[T]] = {}
        self._row: deque[int] = deque()  # users that can be served
        self.going = 0
        self.waiting = 0

    def add(self, user: int, receiver: str, item: T) -> None:
        user_queue = self._users.setdefault(user, _User())
        user_queue.receivers.setdefault(receiver, _Receiver()).line.append(item)
        self.waiting += 1
        self._call(user, receiver)

    def take(self) -> tuple[int, str, T] | None:
        """Returns the next item, or None while all shares are in use."""
        if self.going >= self._shares.in_all or not self._row:
            return None
        user = self._row.popleft()
        user_queue = self._users[user]
        user_queue.called = False
        name = user_queue.row.popleft()
        receiver = user_queue.receivers[name]
        receiver.called = False
        item = receiver.line.popleft()
        self.waiting -= 1
        for counter in (self, user_queue, receiver):
            counter.going += 1
        self._call(user, name)
        return user, name, item

    def done(self, user: int, receiver: str) -> None:
        user_queue = self._users[user]
        for counter in (self, user_queue, user_queue.receivers[receiver]):
            counter.going -= 1
        self._call(user, receiver)
        if not user_queue.receivers[receiver].line and not user_queue.receivers[receiver].going:
            del user_queue.receivers[receiver]
        if not user_queue.receivers:
            del self._users[user]

    def _call(self, user: int, name: str) -> None:
        """Schedules a receiver and its user if they have items and free shares."""
        user_queue = self._users[user]
        receiver = user_queue.receivers[name]
        if not receiver.called and receiver.line and receiver.going < self._shares.per_place:
            receiver.called = True
            user_queue.row.append(name)
        if not user_queue.called and user_queue.row and user_queue.going < self._shares.per_user:
            user_queue.called = True
            self._row.append(user)
