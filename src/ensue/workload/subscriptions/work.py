"""A set of subscriptions as a kind of work: one stage, one table of matches for all of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ensue.columns.stream import slices
from ensue.computed import cached_property
from ensue.plan.limits import Limits
from ensue.workload.prepared import Prepared
from ensue.workload.source import Source
from ensue.workload.stage import ARRIVAL, Fed, Output, Reads, StageMatcher
from ensue.workload.subscriptions.fleet import Fleet, fleet_of
from ensue.workload.subscriptions.following import Following
from ensue.workload.subscriptions.laned import LanedStage
from ensue.workload.subscriptions.matcher import SLICE, FleetMatcher
from ensue.workload.subscriptions.subscribed import Subscribed
from ensue.workload.work import Progress, Whole

EVERYTHING = Reads(None)  # which events matter is found out by routing


@dataclass(frozen=True)
class SubscriptionWork:
    """All subscriptions of a set."""

    subscribed: Subscribed
    source: Source
    output: Output
    limits: Limits
    streaming: bool = False
    of_events: bool = True

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
        matcher = FleetMatcher(fleet_of(self.subscribed, self.source), self.limits)
        matcher.version = self.subscribed.version
        found = []
        for piece in slices(events, SLICE):
            found.append(matcher.feed_events(piece))
            if progress is not None:
                progress(matcher.rows, events.num_rows)
        return Whole([pa.concat_tables([*found, *matcher.finish()])])

    def chains(self) -> tuple[tuple[LanedStage, ...], ...]:
        """One stage, whose lanes get the events that are routed to them."""
        given = (self.subscribed, self.source, self.output, self.limits, self.streaming)
        stage = LanedStage(*given)
        stage.require_fit()
        return ((stage,),)

    def whole(self) -> "SubscriptionStage":
        return SubscriptionStage(
            self.subscribed, self.source, self.output, self.limits, self.streaming
        )


@dataclass(frozen=True)
class SubscriptionStage:
    """All subscriptions of a set in one lane."""

    subscribed: Subscribed
    source: Source
    output: Output
    limits: Limits
    streaming: bool = False
    whole_stream: str | None = None
    takes: Mapping[str, pa.Schema] = field(default_factory=dict)
    hold: int = 0
    arrival: tuple[str, ...] = (ARRIVAL,)

    @property
    def reads(self) -> Reads:
        return EVERYTHING

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (self.output,)

    @cached_property
    def fleet(self) -> Fleet:
        return fleet_of(self.subscribed, self.source, streaming=self.streaming)

    def matcher(self) -> StageMatcher:
        """A matcher that follows the set as it changes."""
        return Following(self.subscribed, self.source, self.limits, streaming=self.streaming)

    def matched(self, given: Fed) -> list[pa.Table]:
        """What is found where all events are there."""
        matcher = FleetMatcher(self.fleet, self.limits)
        matcher.version = self.subscribed.version
        return [pa.concat_tables([*matcher.feed(given), *matcher.finish()])]

    def matches(self, found: Sequence[pa.Table]) -> int:
        """How many matches were found."""
        return sum(table.num_rows for table in found)

    def delivered(self, found: Sequence[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        """The matches, with the number of their output."""
        for table in found:
            if table.num_rows:
                yield self.output.number, table

    def sent(self, found: Sequence[pa.Table]) -> Iterator[tuple[str, pa.Table]]:  # noqa: ARG002
        """No other stage is made of what subscriptions find."""
        return iter(())
