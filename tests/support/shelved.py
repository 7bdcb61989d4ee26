"""An archive in memory that is read slice by slice, as one of files is."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.archives.archive import SINCE, UNTIL, ArchiveLayout, ArchiveRead, ArchiveRows
from ensue.vector.event_table import StreamSchema, create_schema, sort_events


@dataclass(frozen=True)
class Shelved:
    """Past events. `broken` is a file: while it is there, only their times can be read."""

    events: pa.Table
    time: str | tuple[str, str]
    type: str | None = None
    complete: object | None = None
    told: bool = True  # whether the layout says from when to when
    broken: Path | None = None

    @property
    def shape(self) -> StreamSchema:
        return create_schema(self.events.schema, time=self.time, type=self.type, order=())

    @property
    def key(self) -> tuple[str, ...]:
        return ()

    def pinned(self) -> "Shelved":
        return self

    def describe(self) -> dict[str, object]:
        return {"kind": "shelved", "version": "7"}

    def layout(self) -> ArchiveLayout:
        schema = self.shape.schema
        since = until = None
        if self.told and self.events.num_rows:
            since = pc.min(self.events.column(schema.start)).as_py()
            until = pc.max(self.events.column(schema.end)).as_py()
        rows = self.events.num_rows
        return ArchiveLayout("shelved", "memory", "7", rows, 1, self.events.nbytes, since, until)

    def read(self, wanted: ArchiveRead) -> ArchiveRows:
        schema = self.shape.schema
        only_times = set(wanted.columns or ("all",)) <= {schema.start, schema.end}
        if self.broken is not None and self.broken.exists() and not only_times:
            raise OSError("the shelf is broken")
        start, end = self.events.column(schema.start), self.events.column(schema.end)
        kept = np.zeros(self.events.num_rows, np.bool_)
        for piece in wanted.pieces.to_pylist():
            mine = np.ones(self.events.num_rows, np.bool_)
            if piece[SINCE] is not None:
                mine &= pc.greater_equal(start, pa.scalar(piece[SINCE], start.type)).to_numpy()
            if piece[UNTIL] is not None:
                mine &= pc.less_equal(end, pa.scalar(piece[UNTIL], end.type)).to_numpy()
            kept |= mine
        if wanted.types is not None and schema.type_column is not None:
            types = pa.array(sorted(wanted.types), pa.string())
            kept &= pc.is_in(self.events.column(schema.type_column), types).to_numpy()
        found = sort_events(self.events.filter(pa.array(kept)), self.shape, "raise")
        return ArchiveRows(found if wanted.columns is None else found.select(list(wanted.columns)))
