"""What every matcher can do, from the engine of one query to all that runs in a lane."""

from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.matches import Matches

Given = TypeVar("Given", contravariant=True)  # noqa: PLC0105  as they read best
Found = TypeVar("Found", covariant=True)  # noqa: PLC0105


class Matcher(Protocol[Given, Found]):
    """Finds matches in events that come piece by piece, in the order of the stream.

    A query is given tables of events, what runs in a lane also complex events of other lanes. An
    engine finds `Matches` (rows of the events), a query a table, a lane a table for each output.
    However the stream is cut, they find the same.
    """

    def feed(self, events: Given, /) -> Found:
        """What the next events complete, or show to be complete."""

    def advance(self, now: float, /) -> Found:
        """What only waited for time to pass: no event that ends before `now` comes any more."""

    def finish(self) -> Found:
        """What only waited for the stream to end."""

    def deadline(self) -> float | None:
        """The time behind which `advance` finds or forgets something; None: there is none."""

    @property
    def partial_matches(self) -> int:
        """How many partial matches it holds."""

    @property
    def state_bytes(self) -> int:
        """About as many bytes as `save` gives."""

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""

    def restore(self, data: bytes, /) -> None:
        """Goes on where the saved one stopped."""


class RowMatcher(Matcher[pa.Table, Matches], Protocol):
    """The engine of one query: it numbers the events, and whoever feeds it keeps them."""

    @property
    def rows(self) -> int:
        """How many events it was given."""

    def held_rows(self) -> npt.NDArray[np.int64]:
        """The events that later matches may contain, ascending."""

    @property
    def held_bytes(self) -> int:
        """How much memory it takes, with the room that it has made for more."""

    def hand_over(self) -> None:
        """What it has found is with whoever asked for it."""

    def others_hold(self, size: float, /) -> None:
        """Others hold so many bytes of what it may have."""
