"""When the last event of an archive ends, exactly: statistics may be rounded up."""

from datetime import date, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from ensue.archives.contract import SINCE, UNTIL, Archive, Wanted
from ensue.columns.arrow_kinds import plain_type

_EXACT = ("table", "frame")  # their layouts come from the events themselves
_ROUNDED = timedelta(milliseconds=2)  # Delta keeps milliseconds


def last_end(archive: Archive) -> pa.Array | None:
    """The end of an archive's last event, as an array of one; None: it has no events."""
    layout, schema = archive.layout(), archive.shape.schema
    if layout.rows == 0:
        return None
    if layout.kind in _EXACT:
        kind = plain_type(archive.shape.arrow.field(schema.end).type)
        return None if layout.until is None else pa.array([layout.until], kind)
    near = None
    if layout.until is not None and not schema.intervals:  # pieces are narrowed by starts
        near = _before(layout.until)
    for since in dict.fromkeys((near, None)):
        found = _last(archive, since)
        if found is not None:
            return found
    return None


def _last(archive: Archive, since: object) -> pa.Array | None:
    schema = archive.shape.schema
    kind = plain_type(archive.shape.arrow.field(schema.end).type)
    piece = pa.table({SINCE: pa.array([since], kind), UNTIL: pa.nulls(1, kind)})
    columns = tuple(dict.fromkeys((schema.start, schema.end)))
    ends = archive.read(Wanted(piece, columns=columns)).events.column(schema.end)
    return pa.array([pc.max(ends).as_py()], kind) if len(ends) else None


def _before(until: object) -> object:
    """A little before a bound."""
    match until:
        case datetime():
            return until - _ROUNDED
        case date():
            return until - timedelta(days=1)
        case _:
            return until
