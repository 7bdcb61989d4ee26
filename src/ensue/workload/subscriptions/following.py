"""A matcher that follows its set of subscriptions: changes count from the next events on."""

import pyarrow as pa

from ensue.plan.limits import Limits
from ensue.workload.source import Source
from ensue.workload.stage import Fed
from ensue.workload.subscriptions.catalogue.memory import MemoryLog
from ensue.workload.subscriptions.fleet import Fleet
from ensue.workload.subscriptions.matcher import FleetMatcher
from ensue.workload.subscriptions.shapes.table import numbers_of, pattern_rows
from ensue.workload.subscriptions.subscribed import Subscribed


class Following(FleetMatcher):
    """All subscriptions of a set in this process. It looks at the log before it goes on."""

    def __init__(
        self, subscribed: Subscribed, source: Source, limits: Limits, *, streaming: bool
    ) -> None:
        log = self.log = subscribed.log
        if isinstance(log, MemoryLog) and log.ready is not None:
            super().__init__(Fleet.open(log.ready, source.shape, streaming=streaming), limits)
            self.version = log.first
        else:
            super().__init__(Fleet(source.shape, streaming=streaming), limits)
        self.fleet.matchers.add(self)
        self._follow(subscribed.version)

    def feed(self, given: Fed) -> list[pa.Table]:
        """What the next events complete."""
        self._follow(self.log.latest())
        return super().feed(given)

    def advance(self, now: float) -> list[pa.Table]:
        """What only waited for time to pass."""
        self._follow(self.log.latest())
        return super().advance(now)

    def names_looking_at(self, events: pa.Table) -> set[str]:
        """The subscriptions that these events may matter to."""
        self._follow(self.log.latest())
        _, slots = self.fleet.index.route(events, self._places(events))
        leaves = self.fleet.nodes.leaf_of.array[slots]
        own = pattern_rows(leaves)
        numbers = self.fleet.nodes.looking_at(set(leaves[~own].tolist()))
        names = {m.name for n in numbers if (m := self.fleet.members.at(n)) is not None}
        patterns = set(numbers_of(leaves[own]).tolist())
        every = self.fleet.patterns.members.values()
        return names | {m.name for m in every if m.number in patterns}

    def _follow(self, version: int) -> None:
        if version <= self.version:
            return
        if not self.version and not self.rows:
            for number, change in self.log.alive(version):
                self.fleet.take(change, number)
        else:
            for number, change in self.log.changes(self.version, version):
                self.fleet.follow(change, number, self.now)
        self.version = version
        self.fleet.settle()

    def restore(self, data: bytes) -> None:
        """Goes on where the saved one stopped, with the set as it is now."""
        version = self.version
        super().restore(data)
        self.version = max(version, self.version)
