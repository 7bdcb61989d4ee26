"""A set of subscriptions as a kind of work."""

from dataclasses import dataclass

import pyarrow as pa

from ensue.plan.limits import Limits
from ensue.workload.prepared import Prepared
from ensue.workload.source import Source
from ensue.workload.stage import Fed, Output, Reads, StageMatcher
from ensue.workload.subscriptions.fleet import built_fleet, fleet_of
from ensue.workload.subscriptions.following import Following
from ensue.workload.subscriptions.laned import LanedStage
from ensue.workload.subscriptions.matcher import matched_in
from ensue.workload.subscriptions.stage import EVERYTHING, SubscriptionStage
from ensue.workload.subscriptions.subscribed import Subscribed
from ensue.workload.work import Progress, Whole


@dataclass(frozen=True)
class SubscriptionWork:
    """All subscriptions of a set."""

    subscribed: Subscribed
    source: Source
    output: Output
    limits: Limits
    streaming: bool = False
    of_events: bool = True
    rows: None = None  # all events are needed

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (self.output,)

    @property
    def expected(self) -> tuple[Prepared, ...]:
        """What they find cannot be foreseen."""
        return ()

    @property
    def reads(self) -> Reads:
        return EVERYTHING

    def matched(self, events: pa.Table, progress: Progress | None = None) -> Whole:
        """The matches in events that are in the order of the stream."""
        version = self.subscribed.version
        with built_fleet(self.subscribed, self.source) as fleet:
            return Whole([matched_in(events, fleet, version, self.limits, progress=progress)])

    def chains(self) -> tuple[tuple[LanedStage, ...], ...]:
        """One stage, whose lanes get the events that are routed to them."""
        given = (self.subscribed, self.source, self.output, self.limits, self.streaming)
        stage = LanedStage(*given)
        stage.require_fit()
        return ((stage,),)

    def whole(self) -> "WholeStage":
        given = (self.subscribed, self.source, self.output, self.limits, self.streaming)
        return WholeStage(*given)


@dataclass(frozen=True)
class WholeStage(SubscriptionStage):
    """All subscriptions of a set where one lane has all events."""

    def matcher(self) -> StageMatcher:
        """A matcher that follows the set as it changes."""
        return Following(self.subscribed, self.source, self.limits, streaming=self.streaming)

    def matched(self, given: Fed) -> list[pa.Table]:
        """What is found where all events are there."""
        fleet = fleet_of(self.subscribed, self.source, streaming=self.streaming)
        return [matched_in(given.bare, fleet, self.subscribed.version, self.limits)]
