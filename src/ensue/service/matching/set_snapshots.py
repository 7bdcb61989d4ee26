"""The set of subscriptions made ready, beside the file of a service: a restart compiles no texts.

A snapshot says of which release, of which stream and of which subscriptions it is; one of others
is passed over, and so is one that is damaged or that others may have written. All that is in it is
in the file, too.
"""

import hashlib
import json
import logging
import shutil
from importlib.metadata import version as release_of
from pathlib import Path
from sqlite3 import Connection

from ensue.private_files import distrusted
from ensue.service.columns import Columns
from ensue.service.store import subscriptions
from ensue.workload.subscriptions.catalogue.snapshots import Snapshots
from ensue.workload.subscriptions.fleet import Fleet

_LOG = logging.getLogger(__name__)


class SetSnapshots:
    """Snapshots of a service's set in a folder that only its owner reads and writes."""

    def __init__(self, folder: Path, columns: Columns) -> None:
        self.folder = folder
        self._snapshots = Snapshots(folder)
        described = json.dumps(columns.source.described(), sort_keys=True)
        self._release = f"{release_of('ensue')} {described}"

    def newest(self, db: Connection, version: int) -> tuple[int, Path] | None:
        """The version and the folder of a snapshot that is not behind a version of the set."""
        if not self.folder.exists() or self._distrusts(self.folder):
            return None
        found = self._snapshots.newest(version, checked=True)
        if found is None or self._distrusts(found.folder):
            return None
        part = self._part(db, found.version)
        return (found.version, found.part(part)) if part in found.parts else None

    def write(self, db: Connection, version: int, fleet: Fleet) -> bool:
        """Writes the set of a version, in place of earlier ones; whether it is there."""
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            if self._distrusts(self.folder):
                return False
            self.folder.chmod(0o700)
            if self.newest(db, version) is None:
                self.discard()
                self.folder.mkdir(mode=0o700)
            self._snapshots.write(version, {self._part(db, version): fleet})
            self._snapshots.sweep()
        except OSError as error:
            _LOG.warning(
                "%s cannot be written, so the next start takes longer: %s", self.folder, error
            )
            return False
        return True

    def discard(self) -> None:
        """Removes what cannot be used."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _part(self, db: Connection, version: int) -> str:
        """The name of a set: equal names are equal sets of equal streams."""
        found = hashlib.sha256(self._release.encode())
        for row in subscriptions.alive_rows(db, version):
            found.update(repr(tuple(row)).encode())
        return f"set-{found.hexdigest()}"

    def _distrusts(self, place: Path) -> bool:
        try:
            strange = "is a link" if place.is_symlink() else distrusted(place.stat())
        except OSError as error:
            strange = f"cannot be read: {error.strerror or error}"
        if strange is not None:
            _LOG.warning("%s %s: it is not used, and all texts are compiled", place, strange)
        return strange is not None
