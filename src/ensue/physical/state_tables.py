"""Tables that a kernel reads and writes between events: their shapes, growth and compaction."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.codegen.kernel_inputs import META_SIZE, OUT_TOP, KernelContext
from ensue.codegen.state_layout import StateColumns

Table = npt.NDArray[Any]

INITIAL_ROWS = 1_024
SPARSE = 1 << 16  # rows above which a nearly empty table is shrunk


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """A row for each partition."""

    fresh: int = 0  # initial value of the row of a new partition


@dataclass(frozen=True, slots=True)
class FilledRows:
    """Rows in insertion order, up to the number at a position of `meta`."""

    top: int
    alive: int | None = None  # the position that counts live rows, if there are gaps
    scratch: bool = False  # only for the matches in the output: cleared with them

    @property
    def used(self) -> int:
        """The position in `meta` with the number of live rows."""
        return self.top if self.alive is None else self.alive


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table of a structure: its name in the kernel's source, and the layout of its rows."""

    name: str
    rows: KeyedRows | FilledRows
    width: int | None = None  # numbers in a row; None: the table has one dimension
    dtype: type[np.generic] = np.int64

    def allocate(self, count: int) -> Table:
        """New rows with their initial values."""
        width = () if self.width is None else (self.width,)
        fresh = self.rows.fresh if isinstance(self.rows, KeyedRows) else 0
        return np.full((count, *width), fresh, self.dtype)


def make_named_shapes(columns: StateColumns, rows: KeyedRows | FilledRows) -> tuple[TableShape, TableShape]:
    """The two tables of named columns: of integers, and of floats."""
    wholes, reals = columns.widths()
    return (TableShape(columns.whole, rows, wholes), TableShape(columns.real, rows, reals, np.float64))


class StateTables:
    """Arrays by name: those of a structure, the output `O`, `meta`, and counters."""

    def __init__(self, shapes: Iterable[TableShape], frame: KernelContext, output: int) -> None:
        self._adopt(shapes)
        self.tables: dict[str, Table] = {"meta": np.zeros(META_SIZE, np.int64)}
        for name, shape in self.shapes.items():
            self.tables[name] = shape.allocate(1 if isinstance(shape.rows, KeyedRows) else INITIAL_ROWS)
        for name in frame.tally.tables:
            self.tables[name] = np.zeros((max(1, len(frame.tally.labels)), 2), np.int64)
        self.tables["O"] = np.zeros((4 * INITIAL_ROWS, max(1, output)), np.int64)

    def _adopt(self, shapes: Iterable[TableShape]) -> None:
        self.shapes = {shape.name: shape for shape in shapes}
        every = self.shapes.values()
        self.by_key = [shape for shape in every if isinstance(shape.rows, KeyedRows)]
        # tables whose rows belong to live entries
        self.listed = {shape.name: shape.rows for shape in every if isinstance(shape.rows, FilledRows)}
        # one table for each set of rows, except scratch
        self._sized = {rows: name for name, rows in self.listed.items() if not rows.scratch}

    @property
    def meta(self) -> Table:
        return self.tables["meta"]

    def get_used_rows(self, name: str) -> Table:
        """The filled rows of a listed table."""
        return self.tables[name][: int(self.meta[self.listed[name].top])]

    def grow(self, *names: str) -> None:
        """Doubles some tables."""
        for name in names:
            old = self.tables[name]
            self.resize(name, len(old), len(old) * 2)

    def resize(self, name: str, used: int, size: int) -> None:
        """Resizes a table that is filled up to some row."""
        old = self.tables[name]
        new = np.zeros((size, *old.shape[1:]), old.dtype)
        new[:used] = old[:used]
        self.tables[name] = new

    def room_for_keys(self, count: int) -> None:
        """Makes room for at least `count` partitions."""
        for shape in self.by_key:
            old = self.tables[shape.name]
            if count <= len(old):  # all of them have the same size
                return
            new = shape.allocate(max(count, len(old) * 2))
            new[: len(old)] = old
            self.tables[shape.name] = new

    @property
    def key_room(self) -> int:
        """The number of partitions that fit."""
        return len(self.tables[self.by_key[0].name])

    def fitting_room(self, used: int) -> int:
        """The size to which an oversized table is shrunk."""
        return max(INITIAL_ROWS, 2 * used)

    @property
    def is_sparse(self) -> bool:
        """Whether a table is much larger than its content."""
        for rows, name in self._sized.items():
            size = len(self.tables[name])
            if size > SPARSE and size > 8 * int(self.meta[rows.used]):
                return True
        return False

    def pack(self) -> None:
        """Compacts live rows and shrinks oversized tables."""
        for name, rows in self.listed.items():
            used = int(self.meta[rows.top])
            if len(self.tables[name]) > (size := self.fitting_room(used)):
                self.resize(name, used, size)

    def reset_output(self) -> None:
        """Resets the output after its matches were taken."""
        self.meta[OUT_TOP] = 0
        for rows in self.listed.values():
            if rows.scratch:
                self.meta[rows.top] = 0

    def take_shape(
        self, shapes: Iterable[TableShape], before: Sequence[StateColumns], after: Sequence[StateColumns]
    ) -> None:
        """Changes the columns and keeps the content; values without a null flag are not null."""
        self._adopt(shapes)
        for old, new in zip(before, after, strict=True):
            self._move(new.whole, old.wholes, new.wholes)
            self._move(new.real, old.reals, new.reals)

    def _move(self, name: str, before: dict[str, int], after: dict[str, int]) -> None:
        table = self.tables[name]
        moved = self.shapes[name].allocate(len(table))
        for column, number in after.items():
            if column in before:
                moved[:, number] = table[:, before[column]]
            elif column.endswith("_ok"):
                moved[:, number] = 1
        self.tables[name] = moved

    def keep_keys(self, kept: Table, moved: Table) -> None:  # noqa: ARG002  for tables that hold keys
        """Keeps the partitions `kept`, in this order; `moved` maps them to their new codes."""
        for shape in self.by_key:
            new = shape.allocate(max(1, len(kept)))
            new[: len(kept)] = self.tables[shape.name][kept]
            self.tables[shape.name] = new

    def drop_keys(self, gone: npt.NDArray[np.bool_]) -> None:
        """Clears the rows of some partitions."""
        for shape in self.by_key:
            self.tables[shape.name][gone] = shape.allocate(1)[0]

    def used_parts(self, keys: int) -> dict[str, Table]:
        """The tables without free room and output."""
        sizes = {shape.name: max(1, keys) for shape in self.by_key}
        sizes |= {name: int(self.meta[rows.top]) for name, rows in self.listed.items()}
        return {name: table[: sizes.get(name, len(table))] for name, table in self.tables.items() if name != "O"}

    def saved_size(self, keys: int) -> int:
        """The approximate size of `used_parts` in bytes, with `keys` keys and without gaps."""
        size = self.meta.nbytes
        for shape in self.by_key:
            size += max(1, keys) * self.tables[shape.name][:1].nbytes
        for name, rows in self.listed.items():
            size += int(self.meta[rows.used]) * self.tables[name][:1].nbytes
        return size
