"""The subscriptions of a service as a log in a folder, where workers on Spark read them.

Versions are those of the file. What is in the log never changes, so after a crash it is enough to
append what is missing.
"""

from itertools import groupby
from pathlib import Path
from sqlite3 import Connection

from ensue.api import Subscriptions
from ensue.errors import StateError
from ensue.service.columns import Columns
from ensue.service.store import subscriptions
from ensue.workload.subscriptions.catalogue.change import Kind
from ensue.workload.subscriptions.catalogue.log import Log


class Mirror:
    """The log of a service, as far as it was written."""

    def __init__(self, folder: Path, columns: Columns) -> None:
        self.columns = columns
        self.folder = folder
        _ = self.subscriptions
        self.log = Log(folder)

    @property
    def subscriptions(self) -> Subscriptions:
        """The set as anybody sees it."""
        return Subscriptions(**self.columns.subscriptions(folder=self.folder))

    def require_not_ahead(self, db: Connection) -> None:
        """StateError if the log has versions that the file does not know."""
        if self.log.latest() > subscriptions.version_of(db):
            raise ahead(self.folder)

    def follow(self, db: Connection) -> None:
        """Appends what the file has behind it."""
        latest = self.log.latest()
        newest = subscriptions.version_of(db)
        if newest <= latest:
            return
        changes = subscriptions.changes_behind(db, latest, newest)
        for number, some in groupby(changes, lambda pair: pair[0]):
            if self.log.append(change for _, change in some) != number:
                raise StateError(
                    f"version {number} of the subscriptions is missing in {self.folder}\n"
                    "  hint: restore the folder together with its file"
                )

    def together(self, floor: int) -> "Together":
        """What can be matched together from a version on."""
        return Together(self.log, floor)


class Together:
    """Which versions of the set can be matched together.

    A name that goes and comes again would have to be there twice.
    """

    def __init__(self, log: Log, floor: int) -> None:
        self._log = log
        self._version = floor
        self._gone: set[str] = set()

    def takes(self, version: int) -> bool:
        """Whether steps of one more version can be among them."""
        for number, change in self._log.changes(self._version, version):
            if change.kind is Kind.REPLACE or change.name in self._gone:
                return False
            if change.kind is Kind.CANCEL:
                self._gone.add(change.name)
            self._version = number
        return True


def ahead(folder: Path) -> StateError:
    """What to say where the folder of a stream knows more than its file."""
    return StateError(
        f"{folder} has come further than the file of the service: the file is an older copy, or "
        "a power cut took its last moments\n"
        "  hint: restore both from the same moment; synchronous=FULL survives a power cut"
    )
