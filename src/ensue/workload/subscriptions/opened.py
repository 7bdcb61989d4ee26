"""A fleet made ready from its log: at a version, in whichever process asks for it."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from ensue.errors import QueryError
from ensue.workload.source import Source
from ensue.workload.subscriptions.catalogue.change_file import ChangeFile
from ensue.workload.subscriptions.catalogue.log import Log
from ensue.workload.subscriptions.catalogue.pins import in_use
from ensue.workload.subscriptions.catalogue.ready import ready
from ensue.workload.subscriptions.catalogue.snapshots import Snapshot
from ensue.workload.subscriptions.fleet import Fleet


@dataclass(frozen=True)
class FleetsOf:
    """How fleets are made ready for events of one shape, for one stream and its lanes.

    Streams that use the same log may be at different versions, so each has its own.
    """

    source: Source = field(compare=False)
    streaming: bool
    lanes: int
    stream: str
    shape: str  # the digest of what the source says of events

    @classmethod
    def of(cls, source: Source, *, streaming: bool, lanes: int, stream: str) -> "FleetsOf":
        said = json.dumps(source.described(), sort_keys=True)
        digest = hashlib.sha256(said.encode()).hexdigest()[:16]
        return cls(source, streaming, lanes, stream, digest)

    @property
    def part(self) -> str:
        """Under which name a snapshot has it: tables are for events of one shape."""
        return f"fleet-{self.shape}"

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.part,)

    def empty(self) -> Fleet:
        """No subscriptions."""
        return Fleet(self.source.shape, streaming=self.streaming, lanes=self.lanes)

    def opened(self, snapshot: Snapshot) -> Fleet:
        """Those of a snapshot."""
        return Fleet.open(
            snapshot.part(self.part), self.source.shape, streaming=self.streaming,
            lanes=self.lanes,
        )  # fmt: skip

    def take(self, ready: Fleet, version: int, changes: ChangeFile) -> None:
        """Goes on to the next version; one that does not fit the events is left out."""
        for change in changes:
            ready.follow(change, version)

    def settle(self, ready: Fleet) -> None:
        """Matchers let go of what was cancelled, so that its numbers can be used again."""
        ready.settle()

    def at(self, log: Log, version: int, *, later: bool = False) -> Fleet:
        """The fleet at a version; with `later` at that one or a later one, if it is there."""
        return ready(log.folder, self, version, later=later)


def prepared(log: Log, fleets: FleetsOf, version: int) -> Fleet:
    """The fleet at a version, on the machine that starts a job: all of it has to fit.

    Where many changes lie behind the last snapshot, a new one saves the tasks from reading them.
    """
    fleet = fleets.at(log, version)
    for name, why in fleet.refused.items():
        raise QueryError(f"subscription '{name}': {why}", hint="cancel it, or replace it")
    snapshot(log, fleets, version, fleet)
    return fleet


def snapshot(log: Log, fleets: FleetsOf, version: int, fleet: Any) -> None:
    """Keeps a fleet for others, if it is worth it."""
    if log.snapshot_due(version, fleets.part):
        log.snapshot(version, {fleets.part: fleet})
        log.snapshots.sweep(in_use(log))
