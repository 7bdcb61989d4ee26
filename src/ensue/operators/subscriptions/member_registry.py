"""The registry of a set's subscriptions by name and number, and their use of memory and time."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import numba_time
from ensue.operators.subscriptions.predicate_index.index_arrays import SavedMapping, map_array

IDENTITY = 32  # bytes: 16 of the name, then 16 of the meaning


@dataclass(frozen=True, slots=True)
class Member:
    """A subscription of a set."""

    name: str
    number: int  # in the network table
    identity: bytes  # part of its match ids


def hash_name(name: str) -> bytes:
    """Hashes a name: the first half of an identity."""
    return blake2b(name.encode(), digest_size=16).digest()


class MemberRegistry(SavedMapping[str, Member]):
    """The subscriptions of a set by name; saved ones are read from files on demand.

    >>> members = MemberRegistry()
    >>> members.add(Member("a", 3, bytes(32)))
    >>> members.at(3).name, members.at(4), len(members), list(members)
    ('a', None, 1, ['a'])
    >>> members.pop("a").number, members.pop("a", None), members.at(3)
    (3, None, None)
    """

    def __init__(self, saved: "_SavedMembers | None" = None) -> None:
        super().__init__(0 if saved is None else saved.count)
        self._saved = saved
        self._by_number: dict[int, Member | None] = {}  # changes since the files were saved

    def _read(self, name: str) -> Member | None:
        return None if self._saved is None else self._saved.get_member(name)

    def _saved_keys(self) -> Iterator[str]:
        return iter(()) if self._saved is None else self._saved.names()

    def at(self, number: int) -> Member | None:
        """Returns the subscription of a number."""
        if number in self._by_number:
            return self._by_number[number]
        return None if self._saved is None else self._saved.at(number)

    def add(self, member: Member) -> None:
        """Adds a subscription with a new name and number."""
        self[member.name] = self._by_number[member.number] = member

    def __delitem__(self, name: str) -> None:
        self._by_number[self[name].number] = None
        super().__delitem__(name)

    def save(self, folder: Path) -> None:
        """Writes all subscriptions to an empty folder."""
        members = sorted(self.values(), key=lambda m: m.identity[:8])
        encoded = [member.name.encode() for member in members]
        offsets = np.zeros(len(members) + 1, np.int64)
        np.cumsum([len(name) for name in encoded], out=offsets[1:])
        identities = np.frombuffer(b"".join(m.identity for m in members), np.uint8)
        numbers = np.array([member.number for member in members], np.int64)
        for name, array in (
            ("names", np.frombuffer(b"".join(encoded), np.uint8)),
            ("offsets", offsets),
            ("identities", identities.reshape(-1, IDENTITY)),
            ("hashes", identities.reshape(-1, IDENTITY)[:, :8].copy().view(">u8")[:, 0]),
            ("numbers", numbers),
            ("by_number", np.argsort(numbers)),
        ):
            np.save(folder / f"{name}.npy", array, allow_pickle=False)

    @classmethod
    def open(cls, folder: Path) -> "MemberRegistry":
        """Opens saved subscriptions; their files are mapped into memory."""
        return cls(_SavedMembers(folder))


class _SavedMembers:
    """Saved subscriptions, sorted by the digests of their names."""

    def __init__(self, folder: Path) -> None:
        self._names, self._offsets, self._identities, self._hashes, numbers, order = (
            map_array(folder / f"{name}.npy")
            for name in ("names", "offsets", "identities", "hashes", "numbers", "by_number")
        )
        self._numbers, self._order = numbers, order
        self._sorted = numbers[order]
        self.count = len(numbers)

    def names(self) -> Iterator[str]:
        return (self._member(place).name for place in range(self.count))

    def get_member(self, name: str) -> Member | None:
        hashed = int.from_bytes(hash_name(name)[:8], "big")
        place = int(np.searchsorted(self._hashes, np.uint64(hashed)))
        while place < self.count and int(self._hashes[place]) == hashed:
            if (member := self._member(place)).name == name:
                return member
            place += 1
        return None

    def at(self, number: int) -> Member | None:
        place = int(np.searchsorted(self._sorted, number))
        if place == self.count or self._sorted[place] != number:
            return None
        return self._member(int(self._order[place]))

    def _member(self, place: int) -> Member:
        begin, end = self._offsets[place : place + 2]
        name = self._names[begin:end].tobytes().decode()
        return Member(name, int(self._numbers[place]), self._identities[place].tobytes())


# ---------------------------------------------------------------------------- usage

Floats = npt.NDArray[np.float64]
_STEPS = 40  # of the bisection


@dataclass(frozen=True, slots=True)
class Usage:
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
