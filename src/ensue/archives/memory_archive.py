"""A table in memory as an archive."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.archives.archive import KEY, ArchiveLayout, ArchiveRead, ArchiveRows
from ensue.archives.row_selection import RowSelector
from ensue.vector.event_table import StreamSchema, drop_bad_times, find_stream_order, get_end_times
from ensue.vector.key_codes import ColumnCodes
from ensue.vector.take import take_rows

Ints = npt.NDArray[np.int64]

_STRANGERS = 10_000  # keys that were asked for in vain and are remembered


class RowIndex:
    """The rows of each value of a column."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column, self._lock = column, Lock()
        self._built()

    def _built(self) -> None:
        self._codes = ColumnCodes()
        codes = self._codes.encode(self._column).astype(np.int64)
        self._known = len(self._codes)
        strangers = int((codes < 0).sum())  # NULL is no object: its rows stand first
        counts = np.bincount(codes[codes >= 0] if strangers else codes, minlength=self._known)
        self._rows: Ints = _by_code(codes + 1, self._known + 1)
        self._offsets: Ints = strangers + np.concatenate([[0], np.cumsum(counts)])

    def rows(self, pieces: RowSelector, times: npt.NDArray[Any] | None) -> Ints:
        """The rows of the objects that are asked for, ascending; `times` are those of all rows.

        They may lie outside of the pieces. Without `times` they are not narrowed by time.
        """
        with self._lock:
            if len(self._codes) > self._known + _STRANGERS:
                self._built()
            codes = np.unique(self._codes.encode(pieces.wanted.pieces.column(KEY)))
            codes = codes[(codes >= 0) & (codes < self._known)].astype(np.int64)
            first, last = self._offsets[codes], self._offsets[codes + 1]
            rows = self._rows
        if not len(codes):
            return np.empty(0, np.int64)
        found = np.concatenate(
            [rows[a:b] for a, b in zip(first.tolist(), last.tolist(), strict=True)]
        )
        if times is not None:  # rows are in the order of time
            since = int(np.searchsorted(times, pieces.since.min(), "left"))
            until = int(np.searchsorted(times, pieces.until.max(), "right"))
            found = found[(found >= since) & (found < until)]
        return np.sort(found)


def _by_code(codes: Ints, count: int) -> Ints:
    """The places of codes below `count`, by code and then by place.

    NumPy sorts 16 bits at a time, which takes a fraction of what 64 bits take.

    >>> _by_code(np.array([70_000, 1, 70_000, 0]), 70_001)
    array([3, 1, 0, 2])
    """
    found: Ints = np.argsort((codes & 0xFFFF).astype(np.uint16), kind="stable")
    for bits in range(16, count.bit_length(), 16):
        part = ((codes[found] >> bits) & 0xFFFF).astype(np.uint16)
        found = found[np.argsort(part, kind="stable")]
    return found


# ----------------------------------------------------------------------
# A table in memory as an archive.


@dataclass(frozen=True, eq=False)
class TableArchive:
    """Past events that are held in memory, in the order of the stream."""

    events: pa.Table
    shape: StreamSchema
    key: tuple[str, ...] = ()
    complete: object | None = None

    @staticmethod
    def of(
        table: pa.Table, shape: StreamSchema, key: tuple[str, ...], complete: object
    ) -> "TableArchive":
        """A table of events in any order; those without a usable time are in no match."""
        usable, _ = drop_bad_times(table, shape, "drop")
        places = find_stream_order(usable, shape)
        events = usable if places is None else take_rows(usable, places)
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

    def layout(self) -> ArchiveLayout:
        """What it holds."""
        first, last = None, None
        if self.events.num_rows:
            schema = self.shape.schema
            last = self.events.column(schema.end)[-1].as_py()
            first = pc.min(self.events.column(schema.start)).as_py()
        return ArchiveLayout(
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

    def read(self, wanted: ArchiveRead) -> ArchiveRows:
        """Events by object and time."""
        began = perf_counter()
        pieces = RowSelector(wanted, self.shape)
        events = self._near(pieces)
        found = events.filter(pa.array(pieces.holds(events)))
        if wanted.columns is not None:
            found = found.select(list(wanted.columns))
        return ArchiveRows(found, rows=events.num_rows, seconds=perf_counter() - began)

    def _near(self, pieces: RowSelector) -> pa.Table:
        """Events that may be asked for: of the objects, or between the first and last time."""
        field = pieces.wanted.field
        if not len(pieces) or not self.events.num_rows:
            return self.events.slice(0, 0)
        times = self._ends if pieces.unit == self.shape.unit else None
        if field is not None:
            if field not in self._indexes:
                self._indexes[field] = RowIndex(self.events.column(field))
            return take_rows(self.events, self._indexes[field].rows(pieces, times))
        if times is None:
            return self.events
        first = int(np.searchsorted(times, pieces.since.min(), "left"))
        last = int(np.searchsorted(times, pieces.until.max(), "right"))
        return self.events.slice(first, max(0, last - first))

    @cached_property
    def _ends(self) -> npt.NDArray[Any]:
        return get_end_times(self.events, self.shape)

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
