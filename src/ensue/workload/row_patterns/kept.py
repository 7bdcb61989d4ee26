"""The rows of partitions that a search still needs, found by partition."""

import numpy as np
import pyarrow as pa

from ensue.columns.buffers import Bools, Ints
from ensue.columns.rows import no_rows, rows_taken

_PIECES = 32  # tables that rows may lie in


class KeptRows:
    """Rows of partitions, which are known by their codes.

    The rows of a partition lie one behind the other. Those that take their place are put behind
    all others, and what nobody refers to any more is dropped when it is as much as the rest.

    >>> kept = KeptRows(pa.schema({"x": pa.int64()}))
    >>> kept.put(np.array([0, 1]), np.array([2, 1]), pa.table({"x": [1, 2, 3]}))
    >>> kept.put(np.array([0]), np.array([1]), pa.table({"x": [4]}))
    >>> kept.of(np.array([0, 1]))["x"].to_pylist(), kept.counts.tolist()
    ([4, 3], [1, 1])
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._pieces: list[pa.Table] = []
        self._rows = 0  # of all pieces
        self._first: Ints = np.zeros(0, np.int64)
        self.counts: Ints = np.zeros(0, np.int64)  # by code

    def reserve(self, codes: int) -> None:
        """Makes room for so many partitions."""
        missing = codes - len(self.counts)
        if missing > 0:
            more = np.zeros(max(missing, len(self.counts)), np.int64)
            self._first = np.concatenate([self._first, more])
            self.counts = np.concatenate([self.counts, more])

    def of(self, codes: Ints) -> pa.Table:
        """The rows of some partitions, one partition behind the other."""
        rows = spans(self._first[codes], self.counts[codes])
        return rows_taken(self._whole(), rows) if len(rows) else no_rows(self._schema)

    def put(self, codes: Ints, counts: Ints, rows: pa.Table) -> None:
        """The rows of some partitions from now on, one partition behind the other."""
        if len(codes):
            self.reserve(int(codes.max()) + 1)
        self._first[codes] = self._rows + np.cumsum(counts) - counts
        self.counts[codes] = counts
        if rows.num_rows:
            self._pieces.append(rows)
            self._rows += rows.num_rows
        held = int(self.counts.sum())
        if not held:
            self._pieces, self._rows = [], 0
        elif len(self._pieces) > _PIECES or self._rows > 2 * held + 1_024:
            self._pack()

    def keep(self, alive: Bools) -> None:
        """Forgets partitions; the others have codes from 0 on, in their order."""
        codes = np.flatnonzero(alive)
        self._first, self.counts = self._first[codes], self.counts[codes]
        self._pack()

    def _pack(self) -> None:
        held = np.flatnonzero(self.counts)
        table = self.of(held).combine_chunks()
        self._pieces, self._rows = [table], table.num_rows
        self._first[held] = np.cumsum(self.counts[held]) - self.counts[held]

    def _whole(self) -> pa.Table:
        if not self._pieces:
            return no_rows(self._schema)
        if len(self._pieces) == 1:
            return self._pieces[0]
        return pa.concat_tables(self._pieces).unify_dictionaries()

    @property
    def nbytes(self) -> int:
        held = int(self.counts.sum())
        size = sum(int(piece.nbytes) for piece in self._pieces)
        return 16 * len(self.counts) + (size * held // self._rows if self._rows else 0)


def spans(first: Ints, counts: Ints) -> Ints:
    """The numbers from each of some on, so many each.

    >>> spans(np.array([5, 9]), np.array([2, 3])).tolist()
    [5, 6, 9, 10, 11]
    """
    before = np.cumsum(counts) - counts
    found: Ints = np.repeat(first - before, counts) + np.arange(int(counts.sum()))
    return found
