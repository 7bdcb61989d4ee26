"""Where the events of each object are in a table that is in the order of the stream."""

from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.archives.contract import KEY
from ensue.archives.pieces import Pieces
from ensue.columns.keys import ColumnCodes

Ints = npt.NDArray[np.int64]

_FEW = 64  # objects whose rows are narrowed by time, one after the other
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
        self._rows: Ints = np.argsort(codes, kind="stable")
        self._offsets: Ints = np.searchsorted(codes[self._rows], np.arange(self._known + 1))

    def rows(self, pieces: Pieces, times: npt.NDArray[Any] | None) -> Ints:
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
        found = [rows[a:b] for a, b in zip(first.tolist(), last.tolist(), strict=True)]
        if times is not None and len(found) <= _FEW:
            since, until = pieces.since.min(), pieces.until.max()
            found = [_between(own, times, since, until) for own in found]
        return np.sort(np.concatenate(found))


def _between(rows: Ints, times: npt.NDArray[Any], since: Any, until: Any) -> Ints:
    own = times[rows]
    first = int(np.searchsorted(own, since, "left"))
    return rows[first : max(first, int(np.searchsorted(own, until, "right")))]
