"""The store of events that matchers still need: those that later matches may contain."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.matches import Matches
from ensue.columns.rows import no_rows, rows_taken
from ensue.columns.stream import Shape
from ensue.engine.state import from_bytes, to_bytes
from ensue.results.identity import ORDINAL
from ensue.workload.twins import Twins

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Held:
    """Events of the past and their rows in the stream, which ascend."""

    events: pa.Table  # with their ordinals: their twins may be gone
    rows: Rows

    @classmethod
    def nothing(cls, shape: Shape) -> "Held":
        schema = shape.arrow.append(pa.field(ORDINAL, pa.int64()))
        return cls(no_rows(schema), np.zeros(0, np.int64))

    def joined_by(
        self, events: pa.Table, first: int, members: Iterable[Rows], twins: Twins
    ) -> "Held":
        """These and those of the new events, from row `first` on, that are among `members`."""
        wanted = np.zeros(events.num_rows, np.bool_)
        for rows in members:
            wanted[rows[rows >= first] - first] = True
        numbers = twins.ordinals(events, wanted)
        places = np.flatnonzero(wanted)
        if not len(places):
            return self
        if len(places) < events.num_rows:
            events = rows_taken(events, places)
        numbered = events.append_column(ORDINAL, pa.array(numbers[places]))
        return Held(
            pa.concat_tables([self.events, numbered.cast(self.events.schema)]),
            np.concatenate([self.rows, first + places]),
        )

    def only(self, rows: Rows) -> "Held":
        """Those of some rows, which are all here."""
        if len(rows) == len(self.rows):
            return self
        places = np.searchsorted(self.rows, rows)
        return Held(rows_taken(self.events, places).combine_chunks(), self.rows[places])

    def placed(self, matches: Matches) -> Matches:
        """Matches as places in these events."""
        return matches.moved(lambda rows: places_of(self.rows, rows))

    @property
    def nbytes(self) -> int:
        return int(self.events.nbytes + self.rows.nbytes)

    def save(self) -> bytes:
        """The events; their rows are saved beside them."""
        return to_bytes(self.events)

    def again(self, events: bytes, rows: Rows) -> "Held":
        """What was saved, with the columns of these."""
        table = from_bytes(events)
        if ORDINAL not in table.column_names:  # saved before events knew their number
            table = table.append_column(ORDINAL, pa.array(np.zeros(len(table), np.int64)))
        return Held(table.cast(self.events.schema), rows)


def places_of(known: Rows, rows: Rows) -> Rows:
    """Where rows stand among known ones, which ascend; -1 stays."""
    if not len(rows):
        return rows
    return np.where(rows < 0, np.int64(-1), np.searchsorted(known, rows))
