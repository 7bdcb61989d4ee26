"""The events of the last window of the keys that are in memory."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.buffers import Bools
from ensue.columns.rows import no_rows, rows_taken
from ensue.columns.stream import Shape, ends

Codes = npt.NDArray[np.int64]
Times = npt.NDArray[Any]
MANY = 64  # parts that are not put together yet


class Resident:
    """Events with the codes of their keys. Those of one key are in the order of the stream."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._tables: list[pa.Table] = [no_rows(shape.arrow)]
        self._codes: list[Codes] = [np.zeros(0, np.int64)]
        self._bytes = 0

    def add(self, table: pa.Table, codes: Codes) -> None:
        """Further events: of keys that are new here, or behind the others of their keys."""
        if not table.num_rows:
            return
        self._tables.append(table.cast(self._shape.arrow))
        self._codes.append(codes)
        self._bytes += int(table.nbytes + codes.nbytes)
        if len(self._tables) > MANY:
            self._join()

    def _join(self) -> None:
        if len(self._tables) > 1:
            table = pa.concat_tables(self._tables).unify_dictionaries().combine_chunks()
            self._set(table, np.concatenate(self._codes))

    def _set(self, table: pa.Table, codes: Codes) -> None:
        self._tables, self._codes = [table], [codes]
        self._bytes = int(table.nbytes + codes.nbytes)

    @property
    def table(self) -> pa.Table:
        self._join()
        return self._tables[0]

    @property
    def codes(self) -> Codes:
        self._join()
        return self._codes[0]

    @property
    def ends(self) -> Times:
        return ends(self.table, self._shape)

    def __len__(self) -> int:
        return sum(map(len, self._codes))

    @property
    def nbytes(self) -> int:
        return self._bytes

    def by_key(self) -> npt.NDArray[np.int64]:
        """The rows key by key."""
        return np.argsort(self.codes, kind="stable").astype(np.int64, copy=False)

    def times_and_types(self, places: npt.NDArray[np.int64]) -> pa.Table:
        """Of some events when they were, and of which type."""
        schema = self._shape.schema
        names = dict.fromkeys((schema.start, schema.end, schema.type_column or schema.end))
        return rows_taken(self.table.select(list(names)), places)

    def rows(self, places: npt.NDArray[np.int64]) -> pa.Table:
        """Some of the events, as a table of its own memory."""
        return rows_taken(self.table, places).combine_chunks()

    def keep(self, kept: Bools) -> None:
        """Only some of the events."""
        if not kept.all():
            places = np.flatnonzero(kept)
            self._set(self.rows(places), self.codes[places])

    def sort(self) -> None:
        """By time: those of one key stay in their order."""
        times = self.ends
        if not bool((times[1:] >= times[:-1]).all()):
            places = np.argsort(times, kind="stable")
            self._set(self.rows(places), self.codes[places])

    def renumber(self, moved: npt.NDArray[np.int32]) -> None:
        """Keys have other codes from now on."""
        self._set(self.table, moved[self.codes].astype(np.int64))
