"""What stages of subscriptions have in common: one table of matches for all of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ensue.plan.limits import Limits
from ensue.workload.source import Source
from ensue.workload.stage import ARRIVAL, Output, Reads
from ensue.workload.subscriptions.subscribed import Subscribed

EVERYTHING = Reads(None)  # which events matter is found out by routing


@dataclass(frozen=True)
class SubscriptionStage:
    """All subscriptions of a set over one stream, and the output that their matches go to."""

    subscribed: Subscribed
    source: Source
    output: Output
    limits: Limits
    streaming: bool = False
    whole_stream: str | None = None
    takes: Mapping[str, pa.Schema] = field(default_factory=dict)
    hold: int = 0
    arrival: tuple[str, ...] = (ARRIVAL,)
    reads: Reads = EVERYTHING

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (self.output,)

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
