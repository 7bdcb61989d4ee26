"""A multi-version subscription set, for steps of different versions in one micro-batch.

Added subscriptions are present from the start: an event carries its version, and later
subscriptions ignore it. Cancelled ones stay until all earlier steps are matched, and their later
matches are dropped. So changes of the set do not need separate micro-batches.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.catalog.change import ChangeFile, ChangeKind
from ensue.operators.subscriptions.subscription_loader import SubscriptionSetLoader, write_due_snapshot
from ensue.operators.subscriptions.subscription_operator import RoutedSubscriptionStage
from ensue.operators.subscriptions.subscription_set import SubscriptionSet
from ensue.runtime.stage import MicroBatch, SubscriptionVersion
from ensue.vector.event_table import StreamSchema

STREAM = "service"  # in place of a query id: a service has one stream
_ENDING = "ending"


class MultiVersionSet(SubscriptionSet):
    """A subscription set in which cancelled subscriptions stay for earlier events."""

    def __init__(self, shape: StreamSchema, *, streaming: bool = False, key_groups: int = 1) -> None:
        super().__init__(shape, streaming=streaming, key_groups=key_groups)
        self.version = 0
        self.ending: dict[str, int] = {}  # cancelled ones, with the version of the cancellation

    def drop_ended(self, floor: int) -> None:
        """Removes the subscriptions that were cancelled up to version `floor`."""
        over = [name for name, version in self.ending.items() if version <= floor]
        for name in over:
            self.end(name)
        if over:
            self.settle()

    def end(self, name: str) -> None:
        """Removes a subscription, also for earlier events."""
        self.ending.pop(name, None)
        self.cancel(name)

    def was_added_by(self, name: str, version: int) -> bool:
        """Whether a subscription was added at a version or before it."""
        pattern = self.patterns.members.get(name)
        if pattern is not None:
            return pattern.since <= version
        member = self.members.get(name)
        return member is not None and self.nodes.arrays().since[member.number] <= version

    def filter_cancelled(self, matches: pa.Table, version: int) -> pa.Table:
        """Drops matches of subscriptions that were cancelled at a version or before."""
        if not matches.num_rows or not self.ending:
            return matches
        over = [name for name, ended in self.ending.items() if ended <= version]
        names = matches.column("subscription")
        return matches.filter(pc.invert(pc.is_in(names, value_set=pa.array(over, pa.string()))))

    def save(self, folder: Path) -> None:
        """Writes the set into an empty folder."""
        super().save(folder)
        state = {"version": self.version, "ending": self.ending}
        (folder / _ENDING).write_text(json.dumps(state))

    @classmethod
    def open(
        cls, folder: Path, shape: StreamSchema, *, streaming: bool = False, key_groups: int = 1
    ) -> "MultiVersionSet":
        """Opens a saved set for events of this shape."""
        opened = super().open(folder, shape, streaming=streaming, key_groups=key_groups)
        assert isinstance(opened, MultiVersionSet)
        state = json.loads((folder / _ENDING).read_text())
        opened.version, opened.ending = state["version"], state["ending"]
        return opened


@dataclass(frozen=True)
class MultiVersionLoader(SubscriptionSetLoader):
    """Loads multi-version sets."""

    kind: ClassVar[type[SubscriptionSet]] = MultiVersionSet
    floor: int = field(default=0, compare=False)

    def take(self, ready: SubscriptionSet, version: int, changes: ChangeFile) -> None:
        """Applies the changes of the next version."""
        assert isinstance(ready, MultiVersionSet)
        for change in changes:
            if change.kind is ChangeKind.CANCEL and version > self.floor:
                ready.ending[change.name] = version
            elif change.kind is ChangeKind.CANCEL:
                ready.cancel(change.name)
            else:
                if change.name in ready.ending:  # steps are split before a name is added again
                    ready.end(change.name)
                ready.follow(change, version)
        ready.version = version

    def at(self, log: CatalogLog, version: int, *, later: bool = False) -> MultiVersionSet:
        """Loads the set at a version, or at a later one that is already loaded."""
        loaded = super().at(log, version, later=later)
        assert isinstance(loaded, MultiVersionSet)
        loaded.drop_ended(self.floor)
        return loaded


@dataclass(frozen=True)
class MultiVersionStage(RoutedSubscriptionStage):
    """All subscriptions of a service, partitioned into key groups."""

    floor: int = 0

    def from_floor(self, floor: int) -> "MultiVersionStage":
        """The same stage without subscriptions that were cancelled up to version `floor`."""
        return self if floor == self.floor else replace(self, floor=floor)

    def set_loader(self, stream: str, key_groups: int) -> MultiVersionLoader:
        loader = MultiVersionLoader.build(self.source, streaming=self.streaming, key_groups=key_groups, stream=stream)
        assert isinstance(loader, MultiVersionLoader)
        return replace(loader, floor=self.floor)

    def _version(self, batch: MicroBatch | None) -> SubscriptionVersion | None:
        """The version of a step, with its floor in place of the first micro-batch."""
        if batch is None:
            return None
        return SubscriptionVersion(batch.number, self.floor, batch.stream)

    def _load_set(self, version: SubscriptionVersion | None, key_groups: int) -> SubscriptionSet:
        """Loads the set, or a later one, whose new subscriptions ignore earlier events."""
        log = self.subscribed.log
        if version is None or not isinstance(log, CatalogLog):
            return super()._load_set(version, key_groups)
        loader = self.set_loader(version.stream, key_groups)
        loaded = loader.at(log, version.number, later=True)
        write_due_snapshot(log, loader, loaded.version, loaded)
        return loaded

    def __reduce__(self) -> Any:
        return MultiVersionStage, (
            self.subscribed, self.source, self.output, self.limits, self.streaming,
        )  # fmt: skip
