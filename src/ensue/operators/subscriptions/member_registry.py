"""The registry of a set's subscriptions by name and number, and their use of memory and time."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import numba_time
from ensue.operators.subscriptions.growing_columns import Column, GrowingColumns, KeyIndex, map_arrays, save_arrays

HALF = 16  # bytes of an identity that are of the name; as many are of the meaning


@dataclass(frozen=True, slots=True)
class Member:
    """A subscription of a set."""

    name: str
    number: int  # in the network table
    identity: bytes  # part of its match ids


def hash_name(name: str) -> bytes:
    """Hashes a name: the first half of an identity."""
    return blake2b(name.encode(), digest_size=HALF).digest()


class MemberRegistry:
    """The subscriptions of a set by name and by number; the names of saved ones are read on demand.

    >>> members = MemberRegistry()
    >>> members.add(Member("a", 3, hash_name("a") + bytes(HALF)))
    >>> members.at(3).name, members.at(4), len(members), [member.name for member in members]
    ('a', None, 1, ['a'])
    >>> members.pop("a").number, members.pop("a"), members.at(3)
    (3, None, None)
    """

    def __init__(self) -> None:
        self._rows = GrowingColumns(key=Column(np.uint64, 2), meaning=Column(np.uint8, HALF))
        self._index = KeyIndex(self._rows)
        self._names: dict[int, str] = {}  # of the members that were added since they were saved
        self._saved: dict[str, npt.NDArray[Any]] = {"offsets": np.zeros(1, np.int64), "names": np.zeros(0, np.uint8)}

    def __len__(self) -> int:
        return len(self._index)

    def __iter__(self) -> Iterator[Member]:
        return map(self._member, self._index)

    def get(self, name: str) -> Member | None:
        number = self._index.find(hash_name(name))
        return None if number < 0 else self._member(number)

    def at(self, number: int) -> Member | None:
        """Returns the subscription of a number."""
        known = number in self._names
        if not known and number < self._rows.count:
            known = self._index.find(self._index.get_key(number)) == number
        return self._member(number) if known else None

    def add(self, member: Member) -> None:
        """Adds a subscription with a new name and number."""
        self._rows.reach(member.number + 1)
        self._index.add(member.identity[:HALF], member.number)
        self._rows["meaning"][member.number] = np.frombuffer(member.identity[HALF:], np.uint8)
        self._names[member.number] = member.name

    def pop(self, name: str) -> Member | None:
        """Removes a subscription and returns it."""
        member = self.get(name)
        if member is not None:
            self._index.remove(member.identity[:HALF])
            self._names.pop(member.number, None)
        return member

    def _member(self, number: int) -> Member:
        identity = self._index.get_key(number) + self._rows["meaning"][number].tobytes()
        return Member(self._name(number), number, identity)

    def _name(self, number: int) -> str:
        if number in self._names:
            return self._names[number]
        begin, end = self._saved["offsets"][number : number + 2]
        return bytes(self._saved["names"][begin:end]).decode()

    def save(self, folder: Path) -> None:
        """Writes all subscriptions to an empty folder."""
        self._rows.save(folder / "rows")
        self._index.save(folder / "index")
        names = [b""] * self._rows.count
        for number in self._index:
            names[number] = self._name(number).encode()
        offsets = np.cumsum([0, *map(len, names)], dtype=np.int64)
        save_arrays(folder, {"offsets": offsets, "names": np.frombuffer(b"".join(names), np.uint8)})

    @classmethod
    def open(cls, folder: Path) -> "MemberRegistry":
        """Opens saved subscriptions; their files are mapped into memory."""
        members = cls()
        members._rows.open(folder / "rows")
        members._index.open(folder / "index")
        members._saved = map_arrays(folder, members._saved)
        return members


# ---------------------------------------------------------------------------- usage

Floats = npt.NDArray[np.float64]
_STEPS = 40  # of the bisection


@dataclass(frozen=True, slots=True)
class SubscriptionUsage:
    """The memory and CPU time of subscriptions, by name."""

    bytes: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)  # of CPU time


class CpuMeter:
    """Measures the CPU seconds of the matching thread, without compilation."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measures a block."""
        began, compiled = time.thread_time(), numba_time.seconds
        try:
            yield
        finally:
            spent = time.thread_time() - began - (numba_time.seconds - compiled)
            self.seconds += max(0.0, spent)


def estimate_shares(events: Floats, partial_matches: float) -> Floats:
    """Returns the share of each subscription in the partial matches of an engine.

    Partial matches grow as a power of the held events; the exponent is the one for which
    all subscriptions together have as many as the engine.

    >>> estimate_shares(np.array([3.0, 1.0]), 4).tolist()
    [0.75, 0.25]
    >>> estimate_shares(np.array([20.0, 1.0, 1.0]), 2.0**20).round(4).tolist()
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
    shares: Floats = weights / weights.sum()
    return shares
