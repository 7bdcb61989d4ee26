"""Where events and matches happened.

An event's place is in a column of WKT texts or WKB bytes, or in two columns of numbers. It is
convex: a polygon stands for its hull. A match happened in the convex hull of its members' places.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.algebra.wkt import Points, Polygons, written
from ensue.columns.arrow_kinds import kind_of_arrow, plain_type
from ensue.columns.buffers import Ints
from ensue.columns.matches import Matches
from ensue.columns.region_shapes import FARTHEST, SPACES, imported_shapely
from ensue.columns.rows import rows_taken
from ensue.errors import EventError, did_you_mean
from ensue.kernels import geometry
from ensue.schema import Kind, Schema

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_HINT = (
    "  hint: write locations as WKT texts, such as 'POINT (8.5 47.4)', or as WKB bytes,\n"
    '        or name two columns of numbers: location=("lon", "lat")'
)


@dataclass(frozen=True, slots=True)
class Places:
    """Convex places, one an event: its corners, counter-clockwise; none where there is no place.

    Event i has the corners from `first[i]` up to `first[i + 1]`. On the earth its longitudes begin
    between -180 and 180, and may lead beyond that.
    """

    x: Floats
    y: Floats
    first: Ints

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def points(self) -> bool:
        """Whether none has more than one corner."""
        return len(self) == 0 or int(np.diff(self.first).max()) <= 1

    def of(self, rows: Ints) -> "Places":
        """Those of some events."""
        sizes = np.diff(self.first)[rows]
        first = np.append(0, np.cumsum(sizes)).astype(np.int64)
        at = np.repeat(self.first[:-1][rows] - first[:-1], sizes) + np.arange(first[-1])
        return Places(self.x[at], self.y[at], first)

    def texts(self) -> list[str | None]:
        """As WKT.

        >>> Places(np.array([1.5]), np.array([2.0]), np.array([0, 1, 1])).texts()
        ['POINT (1.5 2)', None]
        """
        corners = list(zip(self.x.tolist(), self.y.tolist(), strict=True))
        ends = self.first.tolist()
        return [_text(corners[a:b]) for a, b in pairwise(ends)]


def _text(corners: Sequence[tuple[float, float]]) -> str | None:
    if not corners:
        return None
    if len(corners) > 2:
        return written(Polygons((((*corners, corners[0]),),)))
    return written(Points(tuple(corners)))


# ------------------------------------------------------------------------------ of events


def places_of(events: pa.Table, schema: Schema) -> Places:
    """The places of events. NULL, an empty geometry, and what is no number are no place.

    On the earth neither are latitudes beyond 90 and longitudes beyond 540 degrees.
    """
    return _places(events, schema, None)


def written_places(column: pa.Array | pa.ChunkedArray, space: str) -> Places:
    """The places that texts or bytes describe, likewise."""
    return _convex(*_corners(column, None), space)


def _places(events: pa.Table, schema: Schema, rows: Ints | None) -> Places:
    """Likewise; `rows` is what errors call the events, if not by their numbers."""
    match schema.location:
        case None:
            nothing = np.zeros(0)
            return Places(nothing, nothing, np.zeros(events.num_rows + 1, np.int64))
        case (across, along):
            x, y = _numbers(events.column(across)), _numbers(events.column(along))
            first = np.arange(events.num_rows + 1)
        case name:
            x, y, first = _corners(events.column(name), rows)
    return _convex(x, y, first, schema.space)


def _numbers(column: pa.ChunkedArray) -> Floats:
    numbers = column.cast(pa.float64()).fill_null(np.nan).to_numpy()
    return np.asarray(numbers, np.float64)


def _corners(column: pa.ChunkedArray, rows: Ints | None) -> tuple[Floats, Floats, Ints]:
    shapely = imported_shapely()
    encoded = np.empty(len(column), object)
    encoded[:] = column.to_pylist()
    written_ = kind_of_arrow(column.type) is Kind.STRING
    read = shapely.from_wkt if written_ else shapely.from_wkb
    known = read(encoded, on_invalid="ignore")
    bad = np.flatnonzero(shapely.is_missing(known) & (encoded != None))  # noqa: E711  each of them
    if len(bad):
        text, row = repr(encoded[bad[0]])[:80], bad[0] if rows is None else rows[bad[0]]
        raise EventError(f"a location cannot be read: {text} (row {row})\n{_HINT}")
    corners, owner = shapely.get_coordinates(known, return_index=True)
    counts = np.bincount(owner, minlength=len(known))
    first = np.append(0, np.cumsum(counts)).astype(np.int64)
    return corners[:, 0].copy(), corners[:, 1].copy(), first


def _convex(x: Floats, y: Floats, first: Ints, space: str) -> Places:
    fine = (np.abs(x) <= FARTHEST) & (np.abs(y) <= FARTHEST)
    if space == "earth":
        fine &= (np.abs(y) <= 90) & (np.abs(x) <= 540)
    if not fine.all():
        x, y, first = _without(x, y, first, fine)
    single = int(np.diff(first).max(initial=0)) <= 1
    if space == "earth":
        x = _begun(x if single else _short_way(x, first), first)
    return Places(x, y, first) if single else _hulled(x, y, first)


def _without(x: Floats, y: Floats, first: Ints, fine: Bools) -> tuple[Floats, Floats, Ints]:
    """Without the places that have a corner which is not fine."""
    sizes = np.diff(first)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    whole = np.ones(len(sizes), np.bool_)
    whole[owner[~fine]] = False
    kept = whole[owner]
    ends = np.append(0, np.cumsum(np.where(whole, sizes, 0))).astype(np.int64)
    return x[kept], y[kept], ends


def _short_way(x: Floats, first: Ints) -> Floats:
    """Longitudes that lead the short way over 180 degrees, from corner to corner of a place."""
    jumps = np.diff(x, prepend=0.0)
    begins = first[:-1][np.diff(first) > 0]
    jumps[begins] = 0.0
    turned = (np.abs(jumps) > 180) & (np.abs(jumps) != 360)
    turns = np.cumsum(np.where(turned, -360.0 * np.sign(jumps), 0.0))
    found: Floats = x + turns - np.repeat(turns[begins], np.diff(np.append(begins, len(x))))
    return found


def _begun(x: Floats, first: Ints) -> Floats:
    """Longitudes of which the first of each place is between -180 and 180."""
    begins = first[:-1][np.diff(first) > 0]
    start = x[begins]
    turns = np.where(np.abs(start) > 180, 360.0 * np.floor((start + 180) / 360), 0.0)
    found: Floats = x - np.repeat(turns, np.diff(np.append(begins, len(x))))
    return found


def _hulled(x: Floats, y: Floats, first: Ints) -> Places:
    out_x, out_y, begin = np.empty(len(x)), np.empty(len(y)), np.empty(len(first), np.int64)
    geometry.hulls(x, y, first, out_x, out_y, begin)
    return Places(out_x[: begin[-1]].copy(), out_y[: begin[-1]].copy(), begin)


def location_texts(events: pa.Table, schema: Schema) -> pa.Array:
    """The places of events as WKT texts."""
    return pa.array(places_of(events, schema).texts(), pa.string())


# ------------------------------------------------------------------------------ of matches


def hulls(matches: Matches, events: pa.Table, schema: Schema) -> pa.Array:
    """The hull of each match, written as its members' locations are: WKT texts, or WKB bytes.

    Events without a location are passed over; a match of such events has none.
    """
    texts = hull_texts(matches, events, schema)
    type = location_type(events.schema, schema)
    if kind_of_arrow(type) is Kind.STRING:
        return texts.cast(type)
    shapely = imported_shapely()
    encoded = shapely.to_wkb(shapely.from_wkt(np.array(texts.to_pylist(), object)))
    return pa.array(list(encoded), type)


def hull_texts(matches: Matches, events: pa.Table, schema: Schema) -> pa.Array:
    """The hull of each match as a WKT text."""
    return pa.array(_hulls(matches, events, schema).texts(), pa.string())


def _hulls(matches: Matches, events: pa.Table, schema: Schema) -> Places:
    owners, rows = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for variable in matches.variables:
        offsets, inside = matches.segments(variable)
        owners.append(np.repeat(np.arange(matches.count), np.diff(offsets)))
        rows.append(inside)
    owner, row = np.concatenate(owners), np.concatenate(rows)
    order = np.lexsort((row, owner))  # by their places in the stream: the first decides the turn
    owner, row = owner[order], row[order]
    unique, places = np.unique(row, return_inverse=True)
    location = schema.location
    names = [location] if isinstance(location, str) else list(location or ())
    known = _places(rows_taken(events.select(names), unique), schema, unique)
    members = known.of(places)
    sizes = np.diff(members.first)
    x = members.x
    if schema.space == "earth":
        x = _around_the_first(members, owner)
    counts = np.bincount(owner, weights=sizes, minlength=matches.count).astype(np.int64)
    first = np.append(0, np.cumsum(counts)).astype(np.int64)
    return _hulled(x, members.y, first)


def _around_the_first(members: Places, owner: Ints) -> Floats:
    """Longitudes of members, each turned towards the first member of its match."""
    sizes = np.diff(members.first)
    there = np.flatnonzero(sizes)
    if not len(there):
        return members.x
    start = members.x[members.first[there]]
    _, leaders, groups = np.unique(owner[there], return_index=True, return_inverse=True)
    turns = 360.0 * np.floor((start[leaders][groups] - start) / 360 + 0.5)
    found: Floats = members.x + np.repeat(turns, sizes[there])
    return found


def location_type(arrow: pa.Schema, schema: Schema) -> pa.DataType:
    """What a match's location is written as."""
    if isinstance(schema.location, str):
        return plain_type(arrow.field(schema.location).type)
    return pa.string()


# ------------------------------------------------------------------------------ as given


def check_location(schema: pa.Schema, location: Any, space: str) -> str | tuple[str, str]:
    """What a call says of places: a column of texts or bytes, or two of numbers."""
    if space not in SPACES:
        raise EventError(f"space must be 'plane' or 'earth', not {space!r}")
    if location is None:
        raise EventError(
            f"space={space!r} needs places, and there are none\n"
            '  hint: name their columns: location="place", or location=("lon", "lat")'
        )
    names: tuple[str, ...] = (location,) if isinstance(location, str) else tuple(location)
    if len(names) not in (1, 2) or not all(isinstance(name, str) for name in names):
        raise EventError(f"location={location!r} must be a column or a pair of columns (x, y)")
    for name in names:
        if name not in schema.names:
            hint = did_you_mean(name, schema.names)
            raise EventError(f"no column '{name}' for location=\n  hint: {hint}")
    types = [plain_type(schema.field(name).type) for name in names]
    if len(names) == 2:
        for name, type in zip(names, types, strict=True):
            if not kind_of_arrow(type).numeric:
                raise EventError(
                    f"location={location!r}: '{name}' holds {type}\n"
                    "  hint: a pair of columns holds numbers: x and y, or longitude and latitude"
                )
        return names[0], names[1]
    if kind_of_arrow(types[0]) is Kind.STRING or pa.types.is_binary(types[0]):
        return names[0]
    raise EventError(f"location={names[0]!r} holds {types[0]}\n{_HINT}")
