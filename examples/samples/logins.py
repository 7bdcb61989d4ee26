"""Logins of users from their devices, and the first ones from a device in 90 days.

Users log in from one to three devices, over and over. Today some do so from a device that is new,
from one that they have not used for more than 90 days, from one that is somebody else's, or from
one from which somebody tried in vain before: all of that is new. It is told once, however often
they log in from there afterwards. What only looks new: a device that was used 89 days ago, and
logins that fail.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

NEW_DEVICE = """\
EVENT NewDevice AS SEQ(Login l) WHERE l.ok
ANTI JOIN ARCHIVE logins SEQ(Login m) WHERE m.ok
    RANGE 90 days BEFORE START ON [user] and [device]
RETURN l.user AS user, l.device AS device, l.ts AS ts"""

_TODAY = np.datetime64("2026-03-16T00:00:00", "us")
_DAY = 86_400.0
_PAST, _RANGE = 120 * _DAY, 90 * _DAY
_LOGINS_PER_USER = 60.0  # on average; turns a number of logins into one of users

Numbers = NDArray[np.int64]
Seconds = NDArray[np.float64]  # from this midnight


class Logins(NamedTuple):
    """The logins of 120 days, those of today, and which of these are from a new device."""

    past: pa.Table  # ts, user, device, ok; in the order of ts
    live: pa.Table  # the same of today
    new: pa.Table  # user, device, ts: the first one of today; in the order of ts


def logins(events: int = 50_000, seed: int = 7) -> Logins:
    """About `events` logins, past and live, and the first ones from a device in 90 days.

    >>> log = logins(2_000)
    >>> log.live.column_names
    ['ts', 'user', 'device', 'ok']
    >>> log.new.column_names
    ['user', 'device', 'ts']
    """
    log = _Log(np.random.default_rng(seed), max(30, round(events / _LOGINS_PER_USER)))
    log.tell()
    user, device, time, ok = (np.concatenate(column) for column in zip(*log.noted, strict=True))
    order = np.argsort(time, kind="stable")
    table = _table(user[order], device[order], time[order])
    table = table.append_column("ok", pa.array(ok[order]))
    past = int((time < 0).sum())
    user, device, time = (np.concatenate(column) for column in zip(*log.new, strict=True))
    order = np.argsort(time, kind="stable")
    return Logins(
        table.slice(0, past),
        table.slice(past),
        _table(user[order], device[order], time[order]).select(["user", "device", "ts"]),
    )


class _Log:
    """What users do with their devices; every login is noted down."""

    def __init__(self, random: np.random.Generator, users: int) -> None:
        self.random, self.users = random, users
        self.devices = 0
        self.noted: list[tuple[Numbers, Numbers, Seconds, NDArray[np.bool_]]] = []
        self.new: list[tuple[Numbers, Numbers, Seconds]] = []

    def tell(self) -> None:
        owner = np.repeat(np.arange(self.users), self.random.integers(1, 4, self.users))
        own = self.bought(len(owner))
        self.use(owner, own)
        some = self.random.permutation(self.users)[: self.users // 2]
        fresh, back, borrowing, tried, just, vain = np.array_split(some, 6)
        self.be_new(fresh, self.bought(len(fresh)))
        self.come_back(back, after=(_RANGE + _DAY, _PAST))
        self.be_new(borrowing, own[np.searchsorted(owner, (borrowing + 1) % self.users)])
        self.be_tried(tried)
        self.come_back(just, after=(_RANGE - 2 * _DAY, _RANGE - _DAY))
        self.log_in(vain, self.bought(len(vain)), self.today(len(vain)), ok=False)

    # ---- stories

    def use(self, users: Numbers, devices: Numbers) -> None:
        """A device in use: about every four days, in the last weeks for sure, today perhaps."""
        times = 30
        at = self.random.uniform(-_PAST, 0, (len(users), times))
        at[:, 0] = self.random.uniform(-20 * _DAY, 0, len(users))
        for nth in range(times):
            # Who mistypes a password is in at the second attempt.
            failed = self.random.random(len(users)) < 0.03
            self.log_in(users[failed], devices[failed], at[failed, nth] - 20, ok=False)
            self.log_in(users, devices, at[:, nth])
        today = self.random.random(len(users)) < 0.6
        for _ in range(2):
            self.log_in(users[today], devices[today], self.today(int(today.sum())))

    def be_new(self, users: Numbers, devices: Numbers) -> None:
        """Today for the first time, and then up to three times more."""
        first = self.today(len(users)) / 2
        self.new.append((users, devices, first))
        self.log_in(users, devices, first)
        for _ in range(3):
            again = self.random.random(len(users)) < 0.5
            later = self.random.uniform(first[again] + 60, _DAY)
            self.log_in(users[again], devices[again], later)

    def come_back(self, users: Numbers, after: tuple[float, float]) -> None:
        """From a device last used so long ago."""
        devices = self.bought(len(users))
        now = self.today(len(users))
        ago = now - self.random.uniform(*after, len(users))
        self.log_in(users, devices, np.maximum(ago, -_PAST))
        self.log_in(users, devices, now)
        if after[0] > _RANGE:
            self.new.append((users, devices, now))

    def be_tried(self, users: Numbers) -> None:
        """Somebody tried in vain, days before the user succeeds."""
        devices = self.bought(len(users))
        self.log_in(users, devices, -self.random.uniform(1, 60, len(users)) * _DAY, ok=False)
        self.be_new(users, devices)

    # ---- devices, times

    def bought(self, devices: int) -> Numbers:
        self.devices += devices
        return np.arange(self.devices - devices, self.devices)

    def today(self, logins: int) -> Seconds:
        return self.random.uniform(0, _DAY, logins)

    def log_in(self, users: Numbers, devices: Numbers, at: Seconds, *, ok: bool = True) -> None:
        self.noted.append((users, devices, at, np.full(len(users), ok)))


def _table(users: Numbers, devices: Numbers, time: Seconds) -> pa.Table:
    return pa.table(
        {
            "ts": pa.array(_TODAY + np.floor(time * 1e6).astype("m8[us]"), pa.timestamp("us", "UTC")),
            "user": _names("user", users),
            "device": _names("device", devices),
        }
    )


def _names(what: str, numbers: Numbers) -> pa.Array:
    every = int(numbers.max(initial=0)) + 1
    return pa.array([f"{what}-{n:05d}" for n in range(every)], pa.string()).take(pa.array(numbers))
