"""The tables that a kernel reads and writes between events: their shapes, and the room in them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.source.kernel_inputs import META_SIZE, OUT_TOP, Frame
from ensue.source.table_columns import Columns

Table = npt.NDArray[Any]

FIRST_ROOM = 1_024
SPARSE = 1 << 16  # rows from which on a table that is nearly empty is made smaller


@dataclass(frozen=True, slots=True)
class ByKey:
    """A row for each partition."""

    fresh: int = 0  # what the row of a new partition is filled with


@dataclass(frozen=True, slots=True)
class UpTo:
    """Rows in the order they were needed, up to the number at a place of `meta`."""

    top: int
    alive: int | None = None  # the place that counts those in use, where there are gaps
    scratch: bool = False  # only for the matches in the output: empty once these are taken out

    @property
    def used(self) -> int:
        """The place in `meta` that says how many rows are in use."""
        return self.top if self.alive is None else self.alive


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table of a structure: its name in the kernel's source, and what its rows are."""

    name: str
    rows: ByKey | UpTo
    width: int | None = None  # numbers in a row; None: the table has one dimension
    dtype: type[np.generic] = np.int64

    def filled(self, count: int) -> Table:
        """So many new rows."""
        width = () if self.width is None else (self.width,)
        fresh = self.rows.fresh if isinstance(self.rows, ByKey) else 0
        return np.full((count, *width), fresh, self.dtype)


def named(columns: Columns, rows: UpTo) -> tuple[TableShape, TableShape]:
    """The two tables of named columns: of whole numbers, and of floats."""
    wholes, reals = columns.widths()
    return (
        TableShape(columns.whole, rows, wholes),
        TableShape(columns.real, rows, reals, np.float64),
    )


class Tables:
    """Arrays by name: a structure's own, the output `O`, `meta`, and what the kernel counts."""

    def __init__(self, shapes: Iterable[TableShape], frame: Frame, output: int) -> None:
        self._adopt(shapes)
        self.tables: dict[str, Table] = {"meta": np.zeros(META_SIZE, np.int64)}
        for name, shape in self.shapes.items():
            self.tables[name] = shape.filled(1 if isinstance(shape.rows, ByKey) else FIRST_ROOM)
        for name in frame.tally.tables:
            self.tables[name] = np.zeros((max(1, len(frame.tally.labels)), 2), np.int64)
        self.tables["O"] = np.zeros((4 * FIRST_ROOM, max(1, output)), np.int64)

    def _adopt(self, shapes: Iterable[TableShape]) -> None:
        self.shapes = {shape.name: shape for shape in shapes}
        every = self.shapes.values()
        self.by_key = [shape for shape in every if isinstance(shape.rows, ByKey)]
        # those whose rows come and go with what is alive
        self.listed = {shape.name: shape.rows for shape in every if isinstance(shape.rows, UpTo)}
        # one of those that have the same rows, unless it is scratch
        self._sized = {rows: name for name, rows in self.listed.items() if not rows.scratch}

    @property
    def meta(self) -> Table:
        return self.tables["meta"]

    def used(self, name: str) -> Table:
        """The rows of a listed table, without the room behind them."""
        return self.tables[name][: int(self.meta[self.listed[name].top])]

    # ---------------------------------------------------------------------------- room

    def grow(self, *names: str) -> None:
        """Twice the room in some tables."""
        for name in names:
            old = self.tables[name]
            self.resize(name, len(old), len(old) * 2)

    def resize(self, name: str, used: int, size: int) -> None:
        """Another size for a table that is used up to some row."""
        old = self.tables[name]
        new = np.zeros((size, *old.shape[1:]), old.dtype)
        new[:used] = old[:used]
        self.tables[name] = new

    def room_for_keys(self, count: int) -> None:
        """At least so many partitions."""
        for shape in self.by_key:
            old = self.tables[shape.name]
            if count <= len(old):  # and so in all of them
                return
            new = shape.filled(max(count, len(old) * 2))
            new[: len(old)] = old
            self.tables[shape.name] = new

    @property
    def key_room(self) -> int:
        """How many partitions there is room for."""
        return len(self.tables[self.by_key[0].name])

    def fitting_room(self, used: int) -> int:
        """How large a table is made that has become too large for what it holds."""
        return max(FIRST_ROOM, 2 * used)

    @property
    def is_sparse(self) -> bool:
        """Whether a table has become much too large for what it holds."""
        for rows, name in self._sized.items():
            size = len(self.tables[name])
            if size > SPARSE and size > 8 * int(self.meta[rows.used]):
                return True
        return False

    def pack(self) -> None:
        """Moves all that is alive together and lets the room go that a burst has left."""
        for name, rows in self.listed.items():
            used = int(self.meta[rows.top])
            if len(self.tables[name]) > (size := self.fitting_room(used)):
                self.resize(name, used, size)

    def drained(self) -> None:
        """The matches in the output have been taken out."""
        self.meta[OUT_TOP] = 0
        for rows in self.listed.values():
            if rows.scratch:
                self.meta[rows.top] = 0

    # ---------------------------------------------------------------------------- other shapes

    def take_shape(
        self, shapes: Iterable[TableShape], before: Sequence[Columns], after: Sequence[Columns]
    ) -> None:
        """The same content with other columns; values that had no mark so far are there."""
        self._adopt(shapes)
        for old, new in zip(before, after, strict=True):
            self._move(new.whole, old.wholes, new.wholes)
            self._move(new.real, old.reals, new.reals)

    def _move(self, name: str, before: dict[str, int], after: dict[str, int]) -> None:
        table = self.tables[name]
        moved = self.shapes[name].filled(len(table))
        for column, number in after.items():
            if column in before:
                moved[:, number] = table[:, before[column]]
            elif column.endswith("_ok"):
                moved[:, number] = 1
        self.tables[name] = moved

    # ---------------------------------------------------------------------------- keys

    def keep_keys(self, kept: Table, moved: Table) -> None:  # noqa: ARG002  for those that hold keys
        """Forgets partitions: those of `kept` stay, in this order; `moved` has their new codes."""
        for shape in self.by_key:
            new = shape.filled(max(1, len(kept)))
            new[: len(kept)] = self.tables[shape.name][kept]
            self.tables[shape.name] = new

    def drop_keys(self, gone: npt.NDArray[np.bool_]) -> None:
        """Drops all that there is of some partitions, of all that there is room for."""
        for shape in self.by_key:
            self.tables[shape.name][gone] = (
                shape.rows.fresh if isinstance(shape.rows, ByKey) else 0
            )

    # ---------------------------------------------------------------------------- saving

    def used_parts(self, keys: int) -> dict[str, Table]:
        """The tables without the room around what they hold, nor the output."""
        sizes = {shape.name: max(1, keys) for shape in self.by_key}
        sizes |= {name: int(self.meta[rows.top]) for name, rows in self.listed.items()}
        return {
            name: table[: sizes.get(name, len(table))]
            for name, table in self.tables.items()
            if name != "O"
        }

    def saved_size(self, keys: int) -> int:
        """About how many bytes `used_parts` are, with so many keys and without gaps."""
        size = self.meta.nbytes
        for shape in self.by_key:
            size += max(1, keys) * _row_bytes(self.tables[shape.name])
        for name, rows in self.listed.items():
            size += int(self.meta[rows.used]) * _row_bytes(self.tables[name])
        return size


def _row_bytes(table: Table) -> int:
    return table.itemsize * int(np.prod(table.shape[1:], dtype=np.int64))
