"""A set of subscriptions as it is asked of a stream."""

from dataclasses import dataclass

from ensue.workload.subscriptions.catalogue.log import Log
from ensue.workload.subscriptions.catalogue.memory import MemoryLog


@dataclass(frozen=True)
class Subscribed:
    """Subscriptions over one stream, from a version of their log on."""

    log: Log | MemoryLog
    version: int

    @property
    def folder(self) -> str | None:
        """Where the log is; None: in memory."""
        return str(self.log.folder) if isinstance(self.log, Log) else None
