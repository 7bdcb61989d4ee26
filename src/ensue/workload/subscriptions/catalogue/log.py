"""A set of subscriptions as an immutable log of its changes, in a folder that machines share.

    folder/settings             what all subscriptions have in common, written once
    folder/changes/000000000001 the changes of version 1; version 0 is the empty set
    folder/snapshots/...        the set up to a version, made ready (`snapshots.py`)
    folder/pins/...             which version a micro-batch uses (`pins.py`)

A version is one file, created by one of all who try (`exclusive.py`): of two writers at a time the
second finds the number taken, looks at what the first has changed, and takes the next number. So
nothing is ever lost, and what is there never changes.
"""

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from ensue.computed import cached_property
from ensue.errors import StateError
from ensue.workload.subscriptions.catalogue.change import Change, Kind
from ensue.workload.subscriptions.catalogue.change_file import (
    ChangeFile,
    Written,
    damaged,
    read_head,
)
from ensue.workload.subscriptions.catalogue.exclusive import (
    abandoned,
    created,
    half_written,
    linked,
)
from ensue.workload.subscriptions.catalogue.names import Names
from ensue.workload.subscriptions.catalogue.snapshots import Saves, Snapshots

SETTINGS_FORMAT = 1
DIGITS = 12  # of a version in the name of its file


class Log:
    """The changes of a set of subscriptions. A folder without changes is the empty set."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()  # tasks have other working folders
        self._known = -1  # the newest version that was seen; -1: nobody has looked
        self._names: tuple[int, Names] | None = None
        self._writing = threading.Lock()

    @property
    def _changes(self) -> Path:
        return self.folder / "changes"

    @cached_property
    def snapshots(self) -> Snapshots:
        return Snapshots(self.folder / "snapshots")

    @property
    def identity(self) -> str:
        """What a checkpoint knows the set by: it may change, so by where it is."""
        return f"folder {self.folder}"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return Log, (str(self.folder),)

    # ---------------------------------------------------------------------------- writing

    def append(self, changes: Iterable[Change]) -> int:
        """Makes changes, all of them or none, and gives the version that has them.

        A name that is in use cannot be added, and one that is not can neither be cancelled nor
        replaced: QueryError. No changes make no version.
        """
        self._changes.mkdir(parents=True, exist_ok=True)
        for path in abandoned(self._changes):
            path.unlink(missing_ok=True)
        path = half_written(self._changes)
        try:
            written = Written(path, changes, time.time_ns() // 1_000)
            if not written.head.count:
                return self.latest()
            with self._writing:
                return self._append(written)
        finally:
            path.unlink(missing_ok=True)

    def _append(self, written: Written) -> int:
        while True:
            version = self.latest() + 1
            self._names_now(version - 1).checked(_kinds(written.read()))
            written.number(version, self.total(version - 1) + written.head.count)
            if linked(written.path, self._path(version)):
                self._known = version
                return version

    def _names_now(self, version: int) -> Names:
        """The names at a version, moved on from where they were last asked for."""
        if self._names is None or self._names[0] > version:
            self._names = self._names_in_snapshot(version)
        since, names = self._names
        for number, change in self._files(since, version):
            names.take(number, _kinds(change))
            self._names = number, names
        return names

    def _names_in_snapshot(self, version: int) -> tuple[int, Names]:
        found = self.snapshots.newest(version, "names", checked=True)
        if found is None:
            return 0, Names()
        return found.version, Names.open(found.part("names"))

    def snapshot(self, version: int, parts: Mapping[str, Saves]) -> None:
        """Keeps the set up to a version as it is ready to be used."""
        self.snapshots.write(version, {"names": self.names(version), **parts})

    def snapshot_due(self, version: int, *parts: str) -> bool:
        """Whether there are many changes between the last one with these parts and a version."""
        last = self.snapshots.newest(version, *parts)
        before = 0 if last is None else self.total(last.version)
        return self.snapshots.due(before, self.total(version))

    def settle(self, settings: Mapping[str, Any]) -> None:
        """Writes down what all subscriptions have in common; it is the same for ever."""
        self.folder.mkdir(parents=True, exist_ok=True)
        given: dict[str, Any] = json.loads(json.dumps(dict(settings)))  # as it is read again
        path = self.folder / "settings"
        text = json.dumps({"format": SETTINGS_FORMAT, "settings": given})
        known = self.settings()
        if known is None and not created(path, text.encode()):
            known = self.settings()
        for name in {} if known is None else {**known, **given}:
            then, now = (known or {}).get(name), given.get(name)
            if then != now:
                raise StateError(
                    f"the set of subscriptions in {self.folder} has {name}={then!r}, not {now!r}\n"
                    "  hint: pass what it was made with, or name another folder"
                )

    # ---------------------------------------------------------------------------- reading

    def settings(self) -> dict[str, Any] | None:
        """What was settled; None: nothing yet."""
        path = self.folder / "settings"
        try:
            read = json.loads(path.read_bytes())
            format = read["format"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise damaged(path, "it is not what was written") from None
        if format != SETTINGS_FORMAT:
            raise StateError(
                f"{path} was written in format {format}, and this release reads format "
                f"{SETTINGS_FORMAT}\n  hint: use the release that wrote it"
            )
        found: dict[str, Any] = read["settings"]
        return found

    def latest(self) -> int:
        """The newest version; 0 if there is none."""
        if self._known < 0:
            self._known = self._counted()
        while self._path(self._known + 1).exists():
            self._known += 1
        return self._known

    def _counted(self) -> int:
        """The newest version of a folder that is looked at for the first time."""
        try:
            numbers = [int(entry.name) for entry in os.scandir(self._changes) if _is(entry.name)]
        except FileNotFoundError:
            return 0
        newest = max(numbers, default=0)
        if len(numbers) < newest:
            missing = next(n for n in range(1, newest) if not self._path(n).exists())
            raise damaged(self._path(missing), "it is missing")
        return newest

    def total(self, version: int) -> int:
        """How many changes there are up to a version."""
        return read_head(self._path(version), version).total if version else 0

    def at(self, version: int) -> int:
        """When a version was made: microseconds since 1970 on the writer's clock."""
        return read_head(self._path(version), version).at

    def changes(self, since: int = 0, until: int | None = None) -> Iterator[tuple[int, Change]]:
        """The changes behind version `since`, up to and with `until`, each with its version."""
        for number, file in self._files(since, self.latest() if until is None else until):
            for change in file:
                yield number, change

    def files(self, since: int = 0, until: int | None = None) -> Iterator[ChangeFile]:
        """The same as files, which give their changes as columns, too."""
        for _, file in self._files(since, self.latest() if until is None else until):
            yield file

    def _files(self, since: int, until: int) -> Iterator[tuple[int, ChangeFile]]:
        for number in range(since + 1, until + 1):
            yield number, self._file(number)

    def _file(self, version: int) -> ChangeFile:
        return ChangeFile.open(self._path(version), version)

    def names(self, version: int | None = None) -> Names:
        """The names in use at a version."""
        version = self.latest() if version is None else version
        since, names = self._names_in_snapshot(version)
        for number, file in self._files(since, version):
            names.take(number, _kinds(file))
        return names

    def alive(self, version: int | None = None) -> Iterator[tuple[int, Change]]:
        """The subscriptions at a version, each with the version it came with, in that order."""
        version = self.latest() if version is None else version
        places = sorted((came, row) for _, came, row in self.names(version))
        for came, some in groupby(places, key=itemgetter(0)):
            for change in self._file(came).some([row for _, row in some]):
                yield came, change

    def _path(self, version: int) -> Path:
        return self._changes / f"{version:0{DIGITS}}"


def _is(name: str) -> bool:
    return len(name) >= DIGITS and name.isdigit()


def _kinds(file: ChangeFile) -> Iterator[tuple[Kind, str]]:
    """What happens to which names."""
    for batch in file.batches():
        kinds = [Kind(value) for value in batch["kind"].to_pylist()]
        yield from zip(kinds, batch["name"].to_pylist(), strict=True)
