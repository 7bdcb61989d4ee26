"""The subscriptions of a fleet by name and by number; those of files are read when asked for."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

IDENTITY = 32  # bytes: 16 of the name, then 16 of what it means


@dataclass(frozen=True, slots=True)
class Member:
    """A subscription of a fleet."""

    name: str
    number: int  # in the table of nodes
    identity: bytes  # by which its matches are known


def name_digest(name: str) -> bytes:
    """The first half of an identity."""
    return blake2b(name.encode(), digest_size=16).digest()


class Members:
    """Subscriptions that come and go.

    >>> members = Members()
    >>> members.add(Member("a", 3, bytes(32)))
    >>> members.at(3).name, members.at(4), len(members), list(members)
    ('a', None, 1, ['a'])
    >>> members.pop("a").number, members.pop("a"), members.at(3)
    (3, None, None)
    """

    def __init__(self, saved: "_Saved | None" = None) -> None:
        self._saved = saved
        self._known: dict[str, Member | None] = {}  # that came or went since
        self._by_number: dict[int, Member | None] = {}
        self._count = 0 if saved is None else saved.count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        if self._saved is not None:
            yield from (n for n in self._saved.names() if n not in self._known)
        yield from (name for name, member in self._known.items() if member is not None)

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def get(self, name: str) -> Member | None:
        """The one of a name."""
        if name in self._known:
            return self._known[name]
        return None if self._saved is None else self._saved.named(name)

    def at(self, number: int) -> Member | None:
        """The one of a number."""
        if number in self._by_number:
            return self._by_number[number]
        return None if self._saved is None else self._saved.at(number)

    def add(self, member: Member) -> None:
        """One more, of a name and a number that no other has."""
        self._known[member.name] = member
        self._by_number[member.number] = member
        self._count += 1

    def pop(self, name: str) -> Member | None:
        """One less; None: there was none of that name."""
        member = self.get(name)
        if member is None:
            return None
        if self._saved is None:
            del self._known[name], self._by_number[member.number]
        else:
            self._known[name] = self._by_number[member.number] = None
        self._count -= 1
        return member

    # ------------------------------------------------------------------------ files

    def save(self, folder: Path) -> None:
        """Writes all of them into an empty folder."""
        members = sorted((self._there(name) for name in self), key=lambda m: m.identity[:8])
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

    def _there(self, name: str) -> Member:
        found = self.get(name)
        assert found is not None
        return found

    @classmethod
    def open(cls, folder: Path) -> "Members":
        """Those that were saved there, their files mapped into memory."""
        return cls(_Saved(folder))


class _Saved:
    """Subscriptions in files, by the digests of their names."""

    def __init__(self, folder: Path) -> None:
        self._names, self._offsets, self._identities, self._hashes, numbers, order = (
            _mapped(folder / f"{name}.npy")
            for name in ("names", "offsets", "identities", "hashes", "numbers", "by_number")
        )
        self._numbers, self._order = numbers, order
        self._sorted = numbers[order]
        self.count = len(numbers)

    def names(self) -> Iterator[str]:
        return (self._member(place).name for place in range(self.count))

    def named(self, name: str) -> Member | None:
        hashed = int.from_bytes(name_digest(name)[:8], "big")
        place = int(np.searchsorted(self._hashes, np.uint64(hashed)))
        while place < self.count and int(self._hashes[place]) == hashed:
            if (found := self._member(place)).name == name:
                return found
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


def _mapped(path: Path) -> Any:
    if np.load(path, mmap_mode="r").size == 0:  # nothing cannot be mapped
        return np.load(path)
    return np.load(path, mmap_mode="r")
