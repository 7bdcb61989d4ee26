"""A table in memory as an archive."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.archives.contract import Layout, Read, Wanted
from ensue.archives.pieces import Pieces
from ensue.archives.row_index import RowIndex
from ensue.columns.rows import rows_taken
from ensue.columns.stream import Shape, ends, places_in_order, with_time


@dataclass(frozen=True, eq=False)
class TableArchive:
    """Past events that are held in memory, in the order of the stream."""

    events: pa.Table
    shape: Shape
    key: tuple[str, ...] = ()
    complete: object | None = None

    @staticmethod
    def of(
        table: pa.Table, shape: Shape, key: tuple[str, ...], complete: object
    ) -> "TableArchive":
        """A table of events in any order; those without a usable time are in no match."""
        usable, _ = with_time(table, shape, "drop")
        places = places_in_order(usable, shape)
        events = usable if places is None else rows_taken(usable, places)
        return TableArchive(events, shape, key, complete)

    def pinned(self) -> "TableArchive":
        """Itself: a table in memory does not change."""
        return self

    def described(self) -> dict[str, object]:
        """Its columns, and a digest of what it holds."""
        return {
            "kind": "table",
            "place": "memory",
            "version": _digest(self.events),
            "time": [self.shape.schema.start, self.shape.schema.end],
            "type": self.shape.schema.type_column,
            "key": list(self.key),
            "order": list(self.shape.schema.order),
            "rows": self.events.num_rows,
        }

    def layout(self) -> Layout:
        """What it holds."""
        first, last = None, None
        if self.events.num_rows:
            schema = self.shape.schema
            last = self.events.column(schema.end)[-1].as_py()
            first = pc.min(self.events.column(schema.start)).as_py()
        return Layout(
            kind="table",
            place="memory",
            version=None,
            rows=self.events.num_rows,
            files=0,
            bytes=self.events.nbytes,
            since=first,
            until=last,
            clustered=True,
        )

    def read(self, wanted: Wanted) -> Read:
        """Events by object and time."""
        began = perf_counter()
        pieces = Pieces(wanted, self.shape)
        events = self._near(pieces)
        found = events.filter(pa.array(pieces.holds(events)))
        if wanted.columns is not None:
            found = found.select(list(wanted.columns))
        return Read(found, rows=events.num_rows, seconds=perf_counter() - began)

    def _near(self, pieces: Pieces) -> pa.Table:
        """Events that may be asked for: of the objects, or between the first and last time."""
        field = pieces.wanted.field
        if not len(pieces) or not self.events.num_rows:
            return self.events.slice(0, 0)
        times = self._ends if pieces.unit == self.shape.unit else None
        if field is not None:
            if field not in self._indexes:
                self._indexes[field] = RowIndex(self.events.column(field))
            return rows_taken(self.events, self._indexes[field].rows(pieces, times))
        if times is None:
            return self.events
        first = int(np.searchsorted(times, pieces.since.min(), "left"))
        last = int(np.searchsorted(times, pieces.until.max(), "right"))
        return self.events.slice(first, max(0, last - first))

    @cached_property
    def _ends(self) -> npt.NDArray[Any]:
        return ends(self.events, self.shape)

    @cached_property
    def _indexes(self) -> dict[str, RowIndex]:
        return {}

    def __getstate__(self) -> dict[str, object]:
        made = ("_ends", "_indexes")  # anew where it is needed
        return {name: value for name, value in self.__dict__.items() if name not in made}


def _digest(table: pa.Table) -> str:
    found = hashlib.blake2b(digest_size=16)
    found.update(str(table.schema.remove_metadata()).encode())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    found.update(sink.getvalue())
    return found.hexdigest()
