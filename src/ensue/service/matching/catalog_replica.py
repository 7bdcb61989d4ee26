"""Replicas of a service's subscriptions: a log for Spark workers, and compiled snapshots.

Versions are those of the database. The log is append-only, so after a crash the missing versions
are appended.
"""

import hashlib
import json
import logging
import shutil
from importlib.metadata import version as package_version
from itertools import groupby
from pathlib import Path
from sqlite3 import Connection

from ensue.api import Subscriptions
from ensue.cache_files import find_trust_problem
from ensue.errors import StateError
from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.catalog.catalog_snapshots import CatalogSnapshots
from ensue.operators.subscriptions.catalog.change import ChangeKind
from ensue.operators.subscriptions.subscription_set import SubscriptionSet
from ensue.service.event_columns import EventColumns
from ensue.service.store import subscription_store


class CatalogReplica:
    """The log of a service's subscriptions, in a folder that Spark workers read."""

    def __init__(self, folder: Path, columns: EventColumns) -> None:
        self.columns = columns
        self.folder = folder
        _ = self.subscriptions
        self.log = CatalogLog(folder)

    @property
    def subscriptions(self) -> Subscriptions:
        return Subscriptions(**self.columns.subscriptions(folder=self.folder))

    def require_not_ahead(self, db: Connection) -> None:
        """Raises StateError if the log has versions that the database lacks."""
        if self.log.latest() > subscription_store.get_version(db):
            raise replica_ahead_error(self.folder)

    def follow(self, db: Connection) -> None:
        """Appends the versions that the log lacks."""
        latest = self.log.latest()
        newest = subscription_store.get_version(db)
        if newest <= latest:
            return
        changes = subscription_store.read_changes_after(db, latest, newest)
        for number, pairs in groupby(changes, lambda pair: pair[0]):
            if self.log.append(change for _, change in pairs) != number:
                raise StateError(
                    f"version {number} of the subscriptions is missing in {self.folder}\n"
                    "  hint: restore the folder together with its database"
                )


class VersionGroup:
    """Decides which versions of the set can be matched in one batch.

    A name that is cancelled and added again would have to exist twice.
    """

    def __init__(self, log: CatalogLog, floor: int) -> None:
        self._log = log
        self._version = floor
        self._cancelled: set[str] = set()

    def can_add(self, version: int) -> bool:
        """Whether changes up to a version can be added to the group."""
        for number, change in self._log.changes(self._version, version):
            if change.kind is ChangeKind.REPLACE or change.name in self._cancelled:
                return False
            if change.kind is ChangeKind.CANCEL:
                self._cancelled.add(change.name)
            self._version = number
        return True


def replica_ahead_error(folder: Path) -> StateError:
    """The error for a stream folder that is ahead of its database."""
    return StateError(
        f"{folder} is ahead of the database of the service: the database is an older copy, or "
        "lost its last commits in a power failure\n"
        "  hint: restore both from the same backup; synchronous=FULL survives a power failure"
    )


_LOG = logging.getLogger(__name__)


class CompiledSnapshots:
    """Snapshots of the compiled set, in a private folder: a restart then compiles no texts."""

    def __init__(self, folder: Path, columns: EventColumns) -> None:
        self.folder = folder
        self._snapshots = CatalogSnapshots(folder)
        described = json.dumps(columns.source.to_dict(), sort_keys=True)
        self._release = f"{package_version('ensue')} {described}"

    def newest(self, db: Connection, version: int) -> tuple[int, Path] | None:
        """Returns version and folder of a snapshot that is not newer than `version`."""
        if not self.folder.exists() or self._distrusts(self.folder):
            return None
        newest = self._snapshots.newest(version, checked=True)
        if newest is None or self._distrusts(newest.folder):
            return None
        part = self._part(db, newest.version)
        return (newest.version, newest.part(part)) if part in newest.parts else None

    def write(self, db: Connection, version: int, subscription_set: SubscriptionSet) -> bool:
        """Writes the set of a version, replacing earlier ones; returns whether it succeeded."""
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            if self._distrusts(self.folder):
                return False
            self.folder.chmod(0o700)
            if self.newest(db, version) is None:
                self.discard()
                self.folder.mkdir(mode=0o700)
            self._snapshots.write(version, {self._part(db, version): subscription_set})
            self._snapshots.sweep()
        except OSError as error:
            _LOG.warning("%s cannot be written, so the next start takes longer: %s", self.folder, error)
            return False
        return True

    def discard(self) -> None:
        """Deletes unusable snapshots."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _part(self, db: Connection, version: int) -> str:
        """A name that identifies the set and the stream."""
        digest = hashlib.sha256(self._release.encode())
        for row in subscription_store.read_set_rows(db, version):
            digest.update(repr(tuple(row)).encode())
        return f"set-{digest.hexdigest()}"

    def _distrusts(self, path: Path) -> bool:
        try:
            problem = "is a link" if path.is_symlink() else find_trust_problem(path.stat())
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
        if problem is not None:
            _LOG.warning("%s %s: it is not used, and all texts are compiled", path, problem)
        return problem is not None
