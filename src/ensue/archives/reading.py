"""A read of an archive that consists of files: picked, decoded, judged, put into order."""

from dataclasses import dataclass
from time import perf_counter

import numpy as np
import pyarrow as pa

from ensue.archives import decoding, duck
from ensue.archives.contract import Read, Wanted
from ensue.archives.decoding import FILE, ROW
from ensue.archives.files import Files
from ensue.archives.picking import Picker
from ensue.archives.pieces import Pieces, needed
from ensue.columns.rows import rows_taken
from ensue.columns.stream import Shape, places_in_order


@dataclass(frozen=True, slots=True)
class Stored:
    """How the events of an archive are stored, beside what they are."""

    schema: pa.Schema  # of the table, with columns that are not shown
    key: tuple[str, ...] = ()
    buckets: int | None = None  # into which keys are hashed
    order: str | None = None  # the hidden column of the order in which events arrived
    day: float | None = None  # how long a part is, where times are numbers; 0: all of it


def read(
    files: Files, wanted: Wanted, shape: Shape, stored: Stored, engine: str | None = None
) -> Read:
    """The events that are asked for. `engine` is "duckdb" or "pyarrow"; None: what is there."""
    began = perf_counter()
    pieces = Pieces(wanted, shape)
    columns = needed(wanted, shape, () if stored.order is None else (stored.order,))
    picker = Picker(pieces, stored.key, stored.buckets)
    numbers = picker.files(files)
    quick = engine != "pyarrow" and duck.usable(files, numbers, columns, stored.schema)
    decode = duck.decoded if quick and len(numbers) else decoding.decoded
    found = decode(files, numbers, pieces, picker, columns, stored.schema)
    events = in_order(found.rows, shape, stored).select(list(columns.given))
    return Read(events, len(numbers), found.groups, found.looked_at, perf_counter() - began)


def in_order(rows: pa.Table, shape: Shape, stored: Stored) -> pa.Table:
    """Rows in the order of the stream: time, order columns, arrival, then where they lie."""
    if not rows.num_rows:
        return rows
    ties = [np.asarray(rows.column(name).to_numpy()) for name in (ROW, FILE)]
    if stored.order is not None:
        ties.append(np.asarray(rows.column(stored.order).to_numpy()))
    places = np.lexsort(ties)
    rows = rows_taken(rows, places)
    again = places_in_order(rows, shape)
    return rows if again is None else rows_taken(rows, again)
