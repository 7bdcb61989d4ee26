"""The log of a subscription set: an immutable sequence of changes in a shared folder, or in
memory.

    folder/settings             settings of all subscriptions, written once
    folder/changes/000000000001 the changes of version 1; version 0 is the empty set
    folder/snapshots/...        the compiled set up to a version (`catalog_snapshots.py`)
    folder/pins/...             the version that a micro-batch uses (`version_pins.py`)

A version is one file with exclusive creation. Of two concurrent writers the second finds the
number taken, checks its changes against those of the first, and takes the next number. So no
change is lost, and existing files never change.
"""

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import count, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from ensue.cached import cached_property
from ensue.errors import StateError
from ensue.operators.subscriptions.catalog.catalog_snapshots import CatalogSnapshots, SnapshotPart, SubscriptionNames
from ensue.operators.subscriptions.catalog.change import (
    ChangeFile,
    ChangeFileWriter,
    ChangeKind,
    SubscriptionChange,
    create_exclusively,
    damage_error,
    link_exclusively,
    list_abandoned_files,
    read_header,
    temporary_path,
)

SETTINGS_FORMAT = 1
DIGITS = 12  # of a version in its file name


class CatalogLog:
    """The log of a subscription set in a folder. A folder without changes is the empty set."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()  # tasks have other working directories
        self._known = -1  # the newest known version; -1: not read yet
        self._names: tuple[int, SubscriptionNames] | None = None
        self._writing = threading.Lock()

    @property
    def _changes(self) -> Path:
        return self.folder / "changes"

    @cached_property
    def snapshots(self) -> CatalogSnapshots:
        return CatalogSnapshots(self.folder / "snapshots")

    @property
    def identity(self) -> str:
        """Identifies the set in a checkpoint by its folder, since its content changes."""
        return f"folder {self.folder}"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return CatalogLog, (str(self.folder),)

    def append(self, changes: Iterable[SubscriptionChange]) -> int:
        """Appends changes atomically and returns their version.

        Raises a QueryError if an existing name is added, or an unknown one is cancelled or
        replaced. Without changes no version is created.
        """
        self._changes.mkdir(parents=True, exist_ok=True)
        for path in list_abandoned_files(self._changes):
            path.unlink(missing_ok=True)
        path = temporary_path(self._changes)
        try:
            written = ChangeFileWriter(path, changes, time.time_ns() // 1_000)
            if not written.head.count:
                return self.latest()
            with self._writing:
                return self._append(written)
        finally:
            path.unlink(missing_ok=True)

    def _append(self, written: ChangeFileWriter) -> int:
        while True:
            version = self.latest() + 1
            self._advance_names(version - 1).check_changes(_read_kinds(written.read()))
            written.number(version, self.total(version - 1) + written.head.count)
            if link_exclusively(written.path, self._path(version)):
                self._known = version
                return version

    def _advance_names(self, version: int) -> SubscriptionNames:
        """Returns the names at a version, advanced from the last call."""
        if self._names is None or self._names[0] > version:
            self._names = self._names_in_snapshot(version)
        since, names = self._names
        for file in self.files(since, version):
            names.take(file.head.version, _read_kinds(file))
            self._names = file.head.version, names
        return names

    def _names_in_snapshot(self, version: int) -> tuple[int, SubscriptionNames]:
        snapshot = self.snapshots.newest(version, "names", checked=True)
        if snapshot is None:
            return 0, SubscriptionNames()
        return snapshot.version, SubscriptionNames.open(snapshot.part("names"))

    def snapshot(self, version: int, parts: Mapping[str, SnapshotPart]) -> None:
        """Writes a snapshot of the compiled set at a version."""
        self.snapshots.write(version, {"names": self.names(version), **parts})

    def snapshot_due(self, version: int, *parts: str) -> bool:
        """Whether many changes lie between the last snapshot with these parts and a version."""
        last = self.snapshots.newest(version, *parts)
        before = 0 if last is None else self.total(last.version)
        return self.snapshots.due(before, self.total(version))

    def settle(self, settings: Mapping[str, Any]) -> None:
        """Writes the settings of all subscriptions once; a StateError names one that differs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        requested: dict[str, Any] = json.loads(json.dumps(dict(settings)))  # as JSON returns it
        path = self.folder / "settings"
        text = json.dumps({"format": SETTINGS_FORMAT, "settings": requested})
        known = self.settings()
        if known is None and not create_exclusively(path, text.encode()):
            known = self.settings()
        for name in {} if known is None else {**known, **requested}:
            existing, expected = (known or {}).get(name), requested.get(name)
            if existing != expected:
                raise StateError(
                    f"the set of subscriptions in {self.folder} has {name}={existing!r}, "
                    f"not {expected!r}\n"
                    "  hint: pass the settings that it was created with, or name another folder"
                )

    def settings(self) -> dict[str, Any] | None:
        """Returns the settings, or None before `settle`."""
        path = self.folder / "settings"
        try:
            read = json.loads(path.read_bytes())
            format = read["format"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise damage_error(path, "it is not what was written") from None
        if format != SETTINGS_FORMAT:
            raise StateError(
                f"{path} was written in format {format}, and this release reads format "
                f"{SETTINGS_FORMAT}\n  hint: use the release that wrote it"
            )
        settings: dict[str, Any] = read["settings"]
        return settings

    def latest(self) -> int:
        """Returns the newest version; 0 if the log is empty."""
        if self._known < 0:
            self._known = self._find_latest()
        while self._path(self._known + 1).exists():
            self._known += 1
        return self._known

    def _find_latest(self) -> int:
        """Lists the folder for its newest version and checks that none is missing."""
        try:
            names = [entry.name for entry in os.scandir(self._changes)]
        except FileNotFoundError:
            return 0
        numbers = [int(name) for name in names if len(name) >= DIGITS and name.isdigit()]
        newest = max(numbers, default=0)
        if len(numbers) < newest:
            missing = next(n for n in range(1, newest) if not self._path(n).exists())
            raise damage_error(self._path(missing), "it is missing")
        return newest

    def total(self, version: int) -> int:
        """Counts the changes up to a version."""
        return read_header(self._path(version), version).total if version else 0

    def changes(self, since: int = 0, until: int | None = None) -> Iterator[tuple[int, SubscriptionChange]]:
        """Yields the changes after version `since` up to `until`, each with its version."""
        for file in self.files(since, until):
            for change in file:
                yield file.head.version, change

    def files(self, since: int = 0, until: int | None = None) -> Iterator[ChangeFile]:
        """Yields the same changes as files, which can be read as columns."""
        for version in range(since + 1, (self.latest() if until is None else until) + 1):
            yield self._file(version)

    def _file(self, version: int) -> ChangeFile:
        return ChangeFile.open(self._path(version), version)

    def names(self, version: int | None = None) -> SubscriptionNames:
        """Returns the names in use at a version."""
        version = self.latest() if version is None else version
        since, names = self._names_in_snapshot(version)
        for file in self.files(since, version):
            names.take(file.head.version, _read_kinds(file))
        return names

    def alive(self, version: int | None = None) -> Iterator[tuple[int, SubscriptionChange]]:
        """Yields the subscriptions at a version, each with the version that defined it."""
        version = self.latest() if version is None else version
        positions = sorted((defined, row) for _, defined, row in self.names(version))
        for defined, rows in groupby(positions, key=itemgetter(0)):
            for change in self._file(defined).iterate_rows([row for _, row in rows]):
                yield defined, change

    def _path(self, version: int) -> Path:
        return self._changes / f"{version:0{DIGITS}}"


def _read_kinds(file: ChangeFile) -> Iterator[tuple[ChangeKind, str]]:
    """Yields the kind and the name of each change."""
    for batch in file.batches():
        kinds = [ChangeKind(value) for value in batch["kind"].to_pylist()]
        yield from zip(kinds, batch["name"].to_pylist(), strict=True)


# ---------------------------------------------------------------------------- in memory

_numbers = count()


class MemoryLog:
    """The log of a subscription set in memory. Pickling copies its current content."""

    def __init__(
        self, version: int = 0, alive: Iterable[tuple[int, SubscriptionChange]] = (), *, ready: Path | None = None
    ) -> None:
        """Creates an empty log, or one that starts with the subscriptions of a version.

        `ready` is a folder with the set at that version, as `SubscriptionSet.save` writes it.
        """
        self.number = next(_numbers)  # identifies the set within the process
        self.first = version
        self.ready = ready
        self._base = list(alive)
        self._files: list[list[SubscriptionChange]] = []
        self._names = SubscriptionNames()
        for defined, change in self._base:
            self._names.take(defined, [(ChangeKind.ADD, change.name)])

    def append(self, changes: Iterable[SubscriptionChange]) -> int:
        """Appends changes atomically and returns their version."""
        new = list(changes)
        if not new:
            return self.latest()
        kinds = [(change.kind, change.name) for change in new]
        self._names.check_changes(kinds)
        self._files.append(new)
        self._names.take(self.latest(), kinds)
        return self.latest()

    def latest(self) -> int:
        """Returns the newest version; 0 if the log is empty."""
        return self.first + len(self._files)

    def total(self, version: int) -> int:
        """Counts the changes up to a version, of the first one the remaining subscriptions."""
        return len(self._base) + sum(map(len, self._files[: version - self.first]))

    def changes(self, since: int = 0, until: int | None = None) -> Iterator[tuple[int, SubscriptionChange]]:
        """Yields the changes after version `since` up to `until`, each with its version."""
        last = self.latest() if until is None else until
        for version in range(max(since, self.first) + 1, last + 1):
            for change in self._files[version - 1 - self.first]:
                yield version, change

    def alive(self, version: int | None = None) -> Iterator[tuple[int, SubscriptionChange]]:
        """Yields the subscriptions at a version, each with the version that defined it."""
        subscriptions = {change.name: (number, change) for number, change in self._base}
        for number, change in self.changes(until=version):
            subscriptions.pop(change.name, None)
            if change.kind is not ChangeKind.CANCEL:
                subscriptions[change.name] = number, change
        yield from subscriptions.values()

    @property
    def identity(self) -> str:
        """Identifies the set in a checkpoint by its content."""
        texts = sorted(repr((c.name, c.text, c.language, dict(c.regions))) for _, c in self.alive())
        return f"memory {blake2b(chr(0).join(texts).encode(), digest_size=16).hexdigest()}"

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def __reduce__(self) -> tuple[Any, ...]:
        # pickle passes the changes of each version to `append`
        return MemoryLog, (self.first, self._base), None, iter(self._files)
