"""A set of subscriptions made ready to be used, at the version that is asked for.

Making a large set ready takes long, so a process keeps those that it used last, and goes on from
them, or from the newest snapshot, to a later version; it never goes back: for an earlier version
the set is opened anew.
"""

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ensue.workload.subscriptions.catalogue.change_file import ChangeFile
from ensue.workload.subscriptions.catalogue.log import Log
from ensue.workload.subscriptions.catalogue.snapshots import Snapshot

Set = TypeVar("Set")
MOST_KEPT = 4  # versions of sets in the memory of a process
_kept: "OrderedDict[tuple[str, Any, int], Any]" = OrderedDict()
_opening = threading.RLock()


class Opens(Protocol[Set]):
    """How a kind of set is made ready. Equal ones make equal sets: they are keys of a table."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of a snapshot that it can begin with."""

    def empty(self) -> Set:
        """The set of version 0."""

    def opened(self, snapshot: Snapshot, /) -> Set:
        """The set of a snapshot, its tables mapped into memory."""

    def take(self, ready: Set, version: int, changes: ChangeFile, /) -> None:
        """Goes on to the next version."""

    def settle(self, ready: Set, /) -> None:
        """The set has come to the version that was asked for."""


def ready(folder: str | Path, opens: Opens[Set], version: int, *, later: bool = False) -> Set:
    """The set at a version. Whoever asks for a later one changes it: use it before.

    `later`: if a later one is there already, that will do.
    """
    with _opening:
        key = (str(folder), opens)
        if later:
            version = max([version, *(kept[2] for kept in _kept if kept[:2] == key)])
        earlier = [kept for kept in _kept if kept[:2] == key and kept[2] <= version]
        since = max((kept[2] for kept in earlier), default=-1)
        log = Log(folder)
        snapshot = None
        if since < version:
            newest = log.snapshots.newest(version, *opens.parts)
            if newest is not None and newest.version > since:
                # what is few changes away is nearer than a snapshot that has to be opened
                far = since < 0 or log.snapshots.due(log.total(since), log.total(newest.version))
                snapshot = newest if far else None
        if snapshot is not None:
            snapshot = log.snapshots.newest(version, *opens.parts, checked=True)
        found: Set
        if snapshot is not None and snapshot.version > since:
            found, since = opens.opened(snapshot), snapshot.version
        elif since >= 0:
            found = _kept.pop((*key, since))
        else:
            found, since = opens.empty(), 0
        if since < version:
            for changes in log.files(since, version):
                opens.take(found, changes.head.version, changes)
            opens.settle(found)
        _kept[*key, version] = found
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)
        return found


def forget() -> None:
    """Lets go of all sets that this process has made ready."""
    with _opening:
        _kept.clear()
