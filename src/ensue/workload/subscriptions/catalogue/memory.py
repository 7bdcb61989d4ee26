"""A set of subscriptions that only this process knows: the same log, in memory."""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any

from ensue.workload.subscriptions.catalogue.change import Change, Kind
from ensue.workload.subscriptions.catalogue.names import Names

_numbers = count()


class MemoryLog:
    """The changes of a set. Elsewhere it arrives as it was when it was sent."""

    def __init__(
        self,
        version: int = 0,
        alive: Iterable[tuple[int, Change]] = (),
        *,
        ready: Path | None = None,
    ) -> None:
        """Empty, or as a set was at a version: what came before that is not known here.

        `ready` is a folder with the set at that version, as `Fleet.save` writes it.
        """
        self.number = next(_numbers)  # which set of this process it is
        self.first = version
        self.ready = ready
        self._base = list(alive)
        self._files: list[list[Change]] = []
        self._names = Names()
        for came, change in self._base:
            self._names.take(came, [(Kind.ADD, change.name)])

    def append(self, changes: Iterable[Change]) -> int:
        """Makes changes, all of them or none, and gives the version that has them."""
        new = list(changes)
        if not new:
            return self.latest()
        kinds = [(change.kind, change.name) for change in new]
        self._names.checked(kinds)
        self._files.append(new)
        self._names.take(self.latest(), kinds)
        return self.latest()

    def latest(self) -> int:
        """The newest version; 0 if there is none."""
        return self.first + len(self._files)

    def total(self, version: int) -> int:
        """How many changes have led to a version, of the first one those that are left."""
        return len(self._base) + sum(map(len, self._files[: version - self.first]))

    def changes(self, since: int = 0, until: int | None = None) -> Iterator[tuple[int, Change]]:
        """The changes behind version `since`, up to and with `until`, each with its version."""
        last = self.latest() if until is None else until
        for version in range(max(since, self.first) + 1, last + 1):
            for change in self._files[version - 1 - self.first]:
                yield version, change

    def alive(self, version: int | None = None) -> Iterator[tuple[int, Change]]:
        """The subscriptions at a version, each with the version it came with, in that order."""
        found = {change.name: (number, change) for number, change in self._base}
        for number, change in self.changes(until=version):
            found.pop(change.name, None)
            if change.kind is not Kind.CANCEL:
                found[change.name] = number, change
        yield from found.values()

    @property
    def identity(self) -> str:
        """What a checkpoint knows the set by."""
        return f"memory {digest(self.alive())}"

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _again, (self._files, self.first, self._base)


def digest(alive: Iterable[tuple[int, Change]]) -> str:
    """What subscriptions say, in whichever order they came."""
    texts = sorted(repr((c.name, c.text, c.language, dict(c.regions))) for _, c in alive)
    return blake2b("\0".join(texts).encode(), digest_size=16).hexdigest()


def _again(
    files: list[list[Change]], version: int = 0, alive: Iterable[tuple[int, Change]] = ()
) -> MemoryLog:
    log = MemoryLog(version, alive)
    for changes in files:
        log.append(changes)
    return log
