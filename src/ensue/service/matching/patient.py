"""The set of subscriptions for steps that are matched together, though it changed in between.

Those that come are there from the start: an event knows its version, and what came later does not
see it. Those that go stay until all steps from before are matched, and what they find behind
their end is left out. So many changes cost no more micro-batches than none.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ensue.columns.stream import Shape
from ensue.workload.stage import MicroBatch, Version
from ensue.workload.subscriptions.catalogue.change import Kind
from ensue.workload.subscriptions.catalogue.change_file import ChangeFile
from ensue.workload.subscriptions.catalogue.log import Log
from ensue.workload.subscriptions.catalogue.snapshots import Snapshot
from ensue.workload.subscriptions.fleet import Fleet
from ensue.workload.subscriptions.laned import LanedStage
from ensue.workload.subscriptions.opened import FleetsOf, snapshot

STREAM = "service"  # in the place of the id of a query: a service has one stream
_ENDING = "ending"


class PatientFleet(Fleet):
    """Subscriptions of which some have ended, and are still there for earlier events."""

    def __init__(self, shape: Shape, *, streaming: bool = False, lanes: int = 1) -> None:
        super().__init__(shape, streaming=streaming, lanes=lanes)
        self.version = 0
        self.ending: dict[str, int] = {}  # with which version they have ended

    def let_go(self, floor: int) -> None:
        """No event from before this version comes any more."""
        over = [name for name, version in self.ending.items() if version <= floor]
        for name in over:
            self.end(name)
        if over:
            self.settle()

    def end(self, name: str) -> None:
        """One less, also for earlier events."""
        self.ending.pop(name, None)
        self.cancel(name)

    def came_with(self, name: str, version: int) -> bool:
        """Whether there is a subscription of a name that came with a version or before."""
        pattern = self.patterns.members.get(name)
        if pattern is not None:
            return pattern.since <= version
        member = self.members.get(name)
        return member is not None and self.nodes.arrays().since[member.number] <= version

    def seen(self, found: pa.Table, version: int) -> pa.Table:
        """What was found with events of a version, without what had ended by then."""
        if not found.num_rows or not self.ending:
            return found
        over = [name for name, ended in self.ending.items() if ended <= version]
        names = found.column("subscription")
        return found.filter(pc.invert(pc.is_in(names, value_set=pa.array(over, pa.string()))))

    def save(self, folder: Path) -> None:
        """Writes all of it into an empty folder."""
        super().save(folder)
        said = {"version": self.version, "ending": self.ending}
        (folder / _ENDING).write_text(json.dumps(said))

    @classmethod
    def open(
        cls, folder: Path, shape: Shape, *, streaming: bool = False, lanes: int = 1
    ) -> "PatientFleet":
        """What was saved there for events of this shape."""
        fleet = super().open(folder, shape, streaming=streaming, lanes=lanes)
        assert isinstance(fleet, PatientFleet)
        said = json.loads((folder / _ENDING).read_text())
        fleet.version, fleet.ending = said["version"], said["ending"]
        return fleet


@dataclass(frozen=True)
class PatientFleets(FleetsOf):
    """How such sets are made ready."""

    floor: int = field(default=0, compare=False)

    @property
    def part(self) -> str:
        """Under which name a snapshot has it."""
        return f"patient-{self.shape}"

    def empty(self) -> PatientFleet:
        """No subscriptions."""
        return PatientFleet(self.source.shape, streaming=self.streaming, lanes=self.lanes)

    def opened(self, snapshot: Snapshot) -> PatientFleet:
        """Those of a snapshot."""
        return PatientFleet.open(
            snapshot.part(self.part), self.source.shape, streaming=self.streaming,
            lanes=self.lanes,
        )  # fmt: skip

    def take(self, ready: Fleet, version: int, changes: ChangeFile) -> None:
        """Goes on to the next version."""
        assert isinstance(ready, PatientFleet)
        for change in changes:
            if change.kind is Kind.CANCEL and version > self.floor:
                ready.ending[change.name] = version
            elif change.kind is Kind.CANCEL:
                ready.cancel(change.name)
            else:
                if change.name in ready.ending:  # steps are cut before a name comes again
                    ready.end(change.name)
                ready.follow(change, version)
        ready.version = version

    def at(self, log: Log, version: int, *, later: bool = False) -> PatientFleet:
        """The fleet at a version, or at a later one if that is there."""
        fleet = super().at(log, version, later=later)
        assert isinstance(fleet, PatientFleet)
        fleet.let_go(self.floor)
        return fleet


@dataclass(frozen=True)
class PatientStage(LanedStage):
    """All subscriptions of a service, dealt out to lanes."""

    floor: int = 0

    def from_floor(self, floor: int) -> "PatientStage":
        """The same for steps from which on nothing counts that was cancelled up to a version."""
        return self if floor == self.floor else replace(self, floor=floor)

    def fleets(self, stream: str, lanes: int) -> PatientFleets:
        """How this process makes the set ready."""
        made = PatientFleets.of(self.source, streaming=self.streaming, lanes=lanes, stream=stream)
        assert isinstance(made, PatientFleets)
        return replace(made, floor=self.floor)

    def _version(self, batch: MicroBatch | None) -> Version | None:
        """Who sends a step says itself which version it has; in the place of a first micro-batch
        a version has its floor."""
        return None if batch is None else Version(batch.number, self.floor, batch.stream)

    def _fleet(self, version: Version | None, lanes: int) -> Fleet:
        """A later set will do: nobody in it that came later sees an earlier event."""
        log = self.subscribed.log
        if version is None or not isinstance(log, Log):
            return super()._fleet(version, lanes)
        fleets = self.fleets(version.stream, lanes)
        found = fleets.at(log, version.number, later=True)
        snapshot(log, fleets, found.version, found)
        return found

    def __reduce__(self) -> Any:
        return PatientStage, (
            self.subscribed, self.source, self.output, self.limits, self.streaming,
        )  # fmt: skip
