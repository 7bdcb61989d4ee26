"""A set of subscriptions up to a version, made ready: tables that readers map into memory.

A snapshot is a folder with a folder for each part, and a list of its files. It is written under a
name of its own and renamed when all of it is there, so what bears a number is whole; one whose
files are not those of its list (a copy that was broken off, a disk that lost them) is passed over,
and so is one of another format: all that is in a snapshot is in the log, too.
"""

import json
import os
import shutil
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ensue.workload.subscriptions.catalogue.exclusive import abandoned, durable, half_written

FORMAT = 1
KEPT = 3  # of the newest; older ones stay only where a stream needs them
FIRST = 10_000  # changes from which on a snapshot is worth it
_DIGITS = 12
_LIST = "list"
_PIECE = 1 << 20  # bytes that are read at a time


class Saves(Protocol):
    """A part of a snapshot: anything that can be put into a folder."""

    def save(self, folder: Path, /) -> None:
        """Writes all of it as files in an empty folder."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The set up to a version."""

    version: int
    folder: Path
    parts: frozenset[str]

    def part(self, name: str) -> Path:
        """The folder of a part."""
        return self.folder / name


class Snapshots:
    """The snapshots of a log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def newest(self, until: int, *parts: str, checked: bool = False) -> Snapshot | None:
        """The newest one that is whole, has all these parts, and is not behind a version.

        `checked`: also its checksums fit, for which all of it is read once.
        """
        for version in sorted(self._versions(), reverse=True):
            if version <= until:
                found = self._read(version, checked=checked)
                if found is not None and found.parts.issuperset(parts):
                    return found
        return None

    def write(self, version: int, parts: Mapping[str, Saves]) -> None:
        """Writes the set up to a version, unless somebody has."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in abandoned(self.folder):
            shutil.rmtree(left, ignore_errors=True)
        place = self.folder / f"{version:0{_DIGITS}}"
        if self._read(version) is not None:
            return
        written = half_written(self.folder)
        try:
            for name, part in parts.items():
                (written / name).mkdir(parents=True)
                part.save(written / name)
            files = {
                path.relative_to(written).as_posix(): (path.stat().st_size, _checksum(path))
                for path in sorted(written.rglob("*"))
                if path.is_file()
            }
            for name in files:
                _flush(written / name)
            listed = {"format": FORMAT, "version": version, "parts": [*parts], "files": files}
            (written / _LIST).write_text(json.dumps(listed))
            _flush(written / _LIST)
            if place.exists():  # one that is broken, or that another release has written
                shutil.rmtree(place)
            try:
                written.rename(place)
            except OSError:
                if self._read(version) is None:  # else another was quicker
                    raise
            durable(self.folder)
        finally:
            shutil.rmtree(written, ignore_errors=True)

    def sweep(self, used: Collection[int] = ()) -> None:
        """Removes old ones: all but the newest, and those from which versions in use are read."""
        versions = sorted(self._versions())
        needed = set(versions[-KEPT:])
        for version in used:
            needed |= set([known for known in versions if known <= version][-1:])
        for version in versions:
            if version not in needed:
                shutil.rmtree(self.folder / f"{version:0{_DIGITS}}", ignore_errors=True)

    def due(self, before: int, total: int) -> bool:
        """Whether a new one is worth its room: of so many changes the last one had `before`.

        >>> [
        ...     Snapshots(Path()).due(*case)
        ...     for case in ((0, 9_999), (0, 10_000), (10**6, 10**6 + 1))
        ... ]
        [False, True, False]
        """
        return total - before >= max(FIRST, before // 4)

    def _versions(self) -> list[int]:
        try:
            return [int(e.name) for e in os.scandir(self.folder) if e.name.isdigit()]
        except FileNotFoundError:
            return []

    def _read(self, version: int, *, checked: bool = False) -> Snapshot | None:
        """One that is whole."""
        folder = self.folder / f"{version:0{_DIGITS}}"
        try:
            listed = json.loads((folder / _LIST).read_text())
            if listed["format"] != FORMAT or listed["version"] != version:
                return None
            for name, (size, checksum) in listed["files"].items():
                path = folder / name
                if path.stat().st_size != size or (checked and _checksum(path) != checksum):
                    return None
            return Snapshot(version, folder, frozenset(listed["parts"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _checksum(path: Path) -> int:
    """Of a file: against accidents, and quick."""
    found = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            found = zlib.crc32(piece, found)
    return found


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
