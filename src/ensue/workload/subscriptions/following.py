"""A matcher that follows its set of subscriptions: changes count from the next events on."""

import warnings

import pyarrow as pa

from ensue.errors import QueryError
from ensue.plan.limits import Limits
from ensue.workload.source import Source
from ensue.workload.stage import Fed
from ensue.workload.subscriptions.fleet import Fleet
from ensue.workload.subscriptions.matcher import FleetMatcher
from ensue.workload.subscriptions.subscribed import Subscribed


class Following(FleetMatcher):
    """All subscriptions of a set in this process. It looks at the log before it goes on."""

    def __init__(
        self, subscribed: Subscribed, source: Source, limits: Limits, *, streaming: bool
    ) -> None:
        super().__init__(Fleet(source.shape, streaming=streaming), limits)
        self.log = subscribed.log
        self.refused: dict[str, str] = {}  # that came later and do not fit the events, and why
        self._follow(subscribed.version)

    def feed(self, given: Fed) -> list[pa.Table]:
        """What the next events complete."""
        self._follow(self.log.latest())
        return super().feed(given)

    def advance(self, now: float) -> list[pa.Table]:
        """What only waited for time to pass."""
        self._follow(self.log.latest())
        return super().advance(now)

    def _follow(self, version: int) -> None:
        if version <= self.version:
            return
        now = self.now
        first = not self.version and not self.rows
        changes = self.log.alive(version) if first else self.log.changes(self.version, version)
        for number, change in changes:
            try:
                self.fleet.take(change, number, None if first else now)
            except QueryError as error:
                if first:
                    raise
                self.refused[change.name] = str(error)
                said = f"subscription '{change.name}' cannot be matched here: {error}"
                warnings.warn(said, stacklevel=4)
        self.renewed(version)
        self.fleet.nodes.reuse()

    def restore(self, data: bytes) -> None:
        """Goes on where the saved one stopped, with the set as it is now."""
        version = self.version
        super().restore(data)
        self.version = max(version, self.version)
