"""Where a match happened: the convex hull of its members' locations."""

import numpy as np
import pyarrow as pa

from ensue.columns.arrow_kinds import kind_of_arrow, plain_type
from ensue.columns.matches import Matches
from ensue.columns.rows import taken
from ensue.errors import EventError, RunnerError
from ensue.schema import Kind


def hulls(matches: Matches, column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The hull of each match, written as its members' locations are: WKT texts, or WKB bytes.

    Events without a location are passed over; a match of such events has none.
    """
    try:
        import shapely
    except ImportError as error:
        raise RunnerError(
            f"locations need Shapely ({error})\n  hint: pip install 'ensue[space]'"
        ) from None
    written = kind_of_arrow(column.type) is Kind.STRING
    owners, rows = [], []
    for variable in matches.variables:
        offsets, inside = matches.segments(variable)
        owners.append(np.repeat(np.arange(matches.count), np.diff(offsets)))
        rows.append(inside)
    owner = np.concatenate([np.zeros(0, np.int64), *owners])
    row = np.concatenate([np.zeros(0, np.int64), *rows])
    order = np.argsort(owner, kind="stable")
    owner, row = owner[order], row[order]
    unique, places = np.unique(row, return_inverse=True)
    encoded = taken(column, unique).to_pylist()
    try:
        known = (shapely.from_wkt if written else shapely.from_wkb)(np.array(encoded, object))
    except shapely.errors.ShapelyError as error:
        raise EventError(
            f"a location cannot be read: {error}\n"
            "  hint: write locations as WKT texts, such as 'POINT (8.5 47.4)', or as WKB bytes"
        ) from None
    members = known[places] if len(known) else np.zeros(0, object)
    there = ~shapely.is_missing(members)
    found = np.full(matches.count, None, object)
    if there.any():
        owner, members = owner[there], members[there]
        numbers, dense = np.unique(owner, return_inverse=True)
        together = shapely.geometrycollections(members, indices=dense)
        found[numbers] = shapely.convex_hull(together)
    hull = shapely.to_wkt(found) if written else shapely.to_wkb(found)
    return pa.array(list(hull), plain_type(column.type))


def check_location(schema: pa.Schema, name: str) -> None:
    """A column of texts or bytes."""
    kind = plain_type(schema.field(name).type)
    if kind_of_arrow(kind) is Kind.STRING or pa.types.is_binary(kind):
        return
    raise EventError(
        f"location={name!r} holds {kind}\n"
        "  hint: write locations as WKT texts, such as 'POINT (8.5 47.4)', or as WKB bytes"
    )
