"""Snapshots of a subscription set at a version: compiled tables that readers map into memory.

A snapshot is a folder with a folder for each part and a list of its files. It is written under a
temporary name and renamed when complete. A snapshot whose files do not fit its list, or of
another format, is ignored: the log has everything that is in a snapshot.
"""

import json
import os
import shutil
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from ensue.errors import QueryError, did_you_mean
from ensue.operators.subscriptions.catalog.change import ChangeKind, list_abandoned_files, sync_folder, temporary_path

FORMAT = 1
KEPT_SNAPSHOTS = 3  # newest snapshots; older ones stay only while a stream needs them
MIN_CHANGES = 10_000  # changes before the first snapshot
_DIGITS = 12
_LIST = "list"
_PIECE = 1 << 20  # bytes per read


class SnapshotPart(Protocol):
    """A part of a snapshot, which is written to a folder."""

    def save(self, folder: Path, /) -> None:
        """Writes it as files to an empty folder."""


@dataclass(frozen=True, slots=True)
class CatalogSnapshot:
    """A snapshot of the set at a version."""

    version: int
    folder: Path
    parts: frozenset[str]

    def part(self, name: str) -> Path:
        """Returns the folder of a part."""
        return self.folder / name


class CatalogSnapshots:
    """The snapshots of a log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def newest(self, until: int, *parts: str, checked: bool = False) -> CatalogSnapshot | None:
        """Returns the newest complete snapshot up to a version that has all these parts.

        `checked` also verifies its checksums, which reads all of it.
        """
        for version in sorted(self._versions(), reverse=True):
            if version <= until:
                snapshot = self._read(version, checked=checked)
                if snapshot is not None and snapshot.parts.issuperset(parts):
                    return snapshot
        return None

    def write(self, version: int, parts: Mapping[str, SnapshotPart]) -> None:
        """Writes a snapshot of a version unless it exists."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in list_abandoned_files(self.folder):
            shutil.rmtree(path, ignore_errors=True)
        target = self.folder / f"{version:0{_DIGITS}}"
        if self._read(version) is not None:
            return
        written = temporary_path(self.folder)
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
            if target.exists():  # a damaged one, or one of another release
                shutil.rmtree(target)
            try:
                written.rename(target)
            except OSError:
                if self._read(version) is None:  # otherwise another writer was faster
                    raise
            sync_folder(self.folder)
        finally:
            shutil.rmtree(written, ignore_errors=True)

    def sweep(self, used: Collection[int] = ()) -> None:
        """Removes old snapshots, except the newest and those of versions in use."""
        versions = sorted(self._versions())
        needed = set(versions[-KEPT_SNAPSHOTS:])
        for version in used:
            needed |= set([known for known in versions if known <= version][-1:])
        for version in versions:
            if version not in needed:
                shutil.rmtree(self.folder / f"{version:0{_DIGITS}}", ignore_errors=True)

    def due(self, before: int, total: int) -> bool:
        """Whether a new snapshot pays, given the changes in the last one and in total.

        >>> [CatalogSnapshots(Path()).due(*case) for case in ((0, 9_999), (0, 10_000), (10**6, 10**6 + 1))]
        [False, True, False]
        """
        return total - before >= max(MIN_CHANGES, before // 4)

    def _versions(self) -> list[int]:
        try:
            return [int(e.name) for e in os.scandir(self.folder) if e.name.isdigit()]
        except FileNotFoundError:
            return []

    def _read(self, version: int, *, checked: bool = False) -> CatalogSnapshot | None:
        """Reads a snapshot if it is complete."""
        folder = self.folder / f"{version:0{_DIGITS}}"
        try:
            listed = json.loads((folder / _LIST).read_text())
            if listed["format"] != FORMAT or listed["version"] != version:
                return None
            for name, (size, checksum) in listed["files"].items():
                path = folder / name
                if path.stat().st_size != size or (checked and _checksum(path) != checksum):
                    return None
            return CatalogSnapshot(version, folder, frozenset(listed["parts"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _checksum(path: Path) -> int:
    """Computes a fast checksum against accidental damage."""
    checksum = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---------------------------------------------------------------------------- names

_ROW_BITS = 32
_FILE = "names.arrow"


class SubscriptionNames:
    """The names in use at a version, each with the version and the row of its definition.

    >>> names = SubscriptionNames()
    >>> names.take(1, [(ChangeKind.ADD, "a"), (ChangeKind.ADD, "b")])
    >>> names.take(2, [(ChangeKind.CANCEL, "a"), (ChangeKind.REPLACE, "b")])
    >>> list(names)
    [('b', 2, 1)]
    >>> names.check_changes([(ChangeKind.ADD, "b")])
    Traceback (most recent call last):
    ensue.errors.QueryError: there is a subscription 'b' already
      hint: replace it, or cancel it first
    """

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        mask = (1 << _ROW_BITS) - 1
        for name, place in self._places.items():
            yield name, place >> _ROW_BITS, place & mask

    def check_changes(self, changes: Iterable[tuple[ChangeKind, str]]) -> None:
        """Raises a QueryError if an existing name is added or an unknown one is changed."""
        exists: dict[str, bool] = {}
        for kind, name in changes:
            known = exists.get(name, name in self._places)
            if kind is ChangeKind.ADD and known:
                raise QueryError(f"there is a subscription '{name}' already", hint="replace it, or cancel it first")
            if kind is not ChangeKind.ADD and not known:
                raise _unknown(name, self._places)
            exists[name] = kind is not ChangeKind.CANCEL

    def take(self, version: int, changes: Iterable[tuple[ChangeKind, str]]) -> None:
        """Applies the changes of the next version."""
        for row, (kind, name) in enumerate(changes):
            if kind is ChangeKind.CANCEL:
                self._places.pop(name, None)
            else:
                self._places[name] = version << _ROW_BITS | row

    def save(self, folder: Path) -> None:
        places = pa.array(self._places.values(), pa.int64())
        table = pa.table({"name": pa.array(self._places, pa.string()), "place": places})
        with pa.ipc.new_file(str(folder / _FILE), table.schema) as writer:
            writer.write_table(table, max_chunksize=1 << 16)

    @classmethod
    def open(cls, folder: Path) -> "SubscriptionNames":
        """Reads saved names."""
        names = cls()
        with pa.memory_map(str(folder / _FILE)) as file:
            table = pa.ipc.open_file(file).read_all()
            places = zip(table["name"].to_pylist(), table["place"].to_pylist(), strict=True)
            names._places = dict(places)
        return names


def _unknown(name: str, known: dict[str, int]) -> QueryError:
    near = list(known) if len(known) <= 10_000 else []  # comparing with more takes too long
    return QueryError(f"there is no subscription '{name}'", hint=did_you_mean(name, near))
