"""Matches that were found, as numbers of rows, and where the search stands."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ensue.columns.buffers import Bools, Ints

Labels = npt.NDArray[np.int16]


@dataclass
class Search:
    """Where the search stands in each partition, and what is known of what comes."""

    position: Ints  # the first row that no match was looked for from
    number: Ints  # matches so far
    covered: Ints  # rows before this one are in a match
    opened: Bools  # more rows may come
    begun: Bools  # rows came before those that are here
    now: float | None = None  # no row comes any more with an earlier time

    @classmethod
    def whole(cls, bounds: Ints) -> "Search":
        """From the first rows of partitions that are whole."""
        count = len(bounds) - 1
        return cls(
            bounds[:-1].copy(),
            np.zeros(count, np.int64),
            bounds[:-1].copy(),
            np.zeros(count, np.bool_),
            np.zeros(count, np.bool_),
        )


@dataclass(frozen=True, slots=True)
class Found:
    """Some matches. Match m has the rows `starts[m]` to `stops[m]`, of which `labels` from
    `offsets[m]` on say the variables; with EXCLUDED in it, a row is left out of the result."""

    starts: Ints
    stops: Ints
    numbers: Ints
    partitions: Ints
    labels: Labels
    offsets: Ints
    unmatched: Ints  # rows that no match has, where they are asked for

    def __len__(self) -> int:
        return len(self.starts)
