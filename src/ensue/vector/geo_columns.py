"""Columns of places: those of events, hulls of matches, and places and regions in expressions.

An event's place is in a column of WKT texts or WKB bytes, or in two columns of numbers. It is
convex: a polygon stands for its hull. The place of a match is the convex hull of its members'.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.errors import EventError, did_you_mean
from ensue.functions import FUNCTIONS, WKT
from ensue.functions import SPACES as FUNCTION_SPACES
from ensue.geo.geometry import ConvexHull
from ensue.geo.wkt import MAX_COORDINATE, Circle, Points, Polygons, format_wkt
from ensue.ir import subscription
from ensue.kernels import geometry
from ensue.kernels.regions import RegionTable
from ensue.schema import Schema, ValueKind
from ensue.vector.arrow_numpy import Bools, Floats, Ints
from ensue.vector.arrow_types import kind_of_arrow, plain_type
from ensue.vector.geo_regions import SPACES, Regions
from ensue.vector.match_rows import Matches
from ensue.vector.take import take_rows

_HINT = (
    "  hint: write locations as WKT texts, such as 'POINT (8.5 47.4)', or as WKB bytes,\n"
    '        or name two columns of numbers: location=("lon", "lat")'
)


@dataclass(frozen=True, slots=True)
class EventPlaces:
    """The convex places of events: corners counter-clockwise; no corners where there is no place.

    Event i has the corners from `first[i]` up to `first[i + 1]`. On the earth its longitudes begin
    between -180 and 180, and may extend beyond.
    """

    x: Floats
    y: Floats
    first: Ints

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def points(self) -> bool:
        """Whether no place has more than one corner."""
        return len(self) == 0 or int(np.diff(self.first).max()) <= 1

    def take(self, rows: Ints) -> "EventPlaces":
        """Select the places of some events."""
        sizes = np.diff(self.first)[rows]
        first = np.append(0, np.cumsum(sizes)).astype(np.int64)
        at = np.repeat(self.first[:-1][rows] - first[:-1], sizes) + np.arange(first[-1])
        return EventPlaces(self.x[at], self.y[at], first)

    def texts(self) -> list[str | None]:
        """Convert to WKT.

        >>> EventPlaces(np.array([1.5]), np.array([2.0]), np.array([0, 1, 1])).texts()
        ['POINT (1.5 2)', None]
        """
        corners = list(zip(self.x.tolist(), self.y.tolist(), strict=True))
        return [_text(corners[a:b]) for a, b in pairwise(self.first.tolist())]


def _text(corners: Sequence[tuple[float, float]]) -> str | None:
    if not corners:
        return None
    if len(corners) > 2:
        return format_wkt(Polygons((((*corners, corners[0]),),)))
    return format_wkt(Points(tuple(corners)))


# ------------------------------------------------------------------------------ of events


def read_places(events: pa.Table, schema: Schema) -> EventPlaces:
    """Read the places of events. NULL, empty geometries and non-numbers are no place.

    On the earth neither are latitudes beyond 90 and longitudes beyond 540 degrees.
    """
    return _places(events, schema, None)


def parse_places(column: pa.Array | pa.ChunkedArray, space: str) -> EventPlaces:
    """Read the places in a column of WKT texts or WKB bytes."""
    return _convex(*_corners(column, None), space)


def _places(events: pa.Table, schema: Schema, rows: Ints | None) -> EventPlaces:
    """Read places; `rows` are the row numbers for errors, if not those of the table."""
    match schema.location:
        case None:
            nothing = np.zeros(0)
            return EventPlaces(nothing, nothing, np.zeros(events.num_rows + 1, np.int64))
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
    import shapely

    encoded = np.empty(len(column), object)
    encoded[:] = column.to_pylist()
    is_text = kind_of_arrow(column.type) is ValueKind.STRING
    read = shapely.from_wkt if is_text else shapely.from_wkb
    try:
        with np.errstate(all="ignore"):  # NaN is no place
            known = read(encoded, on_invalid="fix")
    except NotImplementedError as curve:
        raise EventError(f"a location cannot be read: {curve}\n{_HINT}") from None
    bad = np.flatnonzero(shapely.is_missing(known) & (encoded != None))  # noqa: E711  elementwise
    if len(bad):
        text, row = repr(encoded[bad[0]])[:80], bad[0] if rows is None else rows[bad[0]]
        raise EventError(f"a location cannot be read: {text} (row {row})\n{_HINT}")
    corners, owner = shapely.get_coordinates(known, return_index=True)
    counts = np.bincount(owner, minlength=len(known))
    first = np.append(0, np.cumsum(counts)).astype(np.int64)
    return corners[:, 0].copy(), corners[:, 1].copy(), first


def is_usable(x: Floats, y: Floats, space: str) -> Bools:
    """Which coordinates are numbers in the range of the space."""
    widest, highest = (540, 90) if space == "earth" else (MAX_COORDINATE, MAX_COORDINATE)
    return np.asarray((np.abs(x) <= widest) & (np.abs(y) <= highest))


def _convex(x: Floats, y: Floats, first: Ints, space: str) -> EventPlaces:
    usable = is_usable(x, y, space)
    if not usable.all():
        x, y, first = _drop_unusable(x, y, first, usable)
    single = int(np.diff(first).max(initial=0)) <= 1
    if space == "earth":
        x = _normalize_longitudes(x if single else _short_way(x, first), first)
    return EventPlaces(x, y, first) if single else _compute_hulls(x, y, first)


def _drop_unusable(x: Floats, y: Floats, first: Ints, usable: Bools) -> tuple[Floats, Floats, Ints]:
    """Drop the places that have an unusable corner."""
    sizes = np.diff(first)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    complete = np.ones(len(sizes), np.bool_)
    complete[owner[~usable]] = False
    kept = complete[owner]
    ends = np.append(0, np.cumsum(np.where(complete, sizes, 0))).astype(np.int64)
    return x[kept], y[kept], ends


def _short_way(x: Floats, first: Ints) -> Floats:
    """Unwrap longitudes so that each edge takes the short way over 180 degrees."""
    jumps = np.diff(x, prepend=0.0)
    begins = first[:-1][np.diff(first) > 0]
    jumps[begins] = 0.0
    crosses = (np.abs(jumps) > 180) & (np.abs(jumps) != 360)
    turns = np.cumsum(np.where(crosses, -360.0 * np.sign(jumps), 0.0))
    unwrapped: Floats = x + turns - np.repeat(turns[begins], np.diff(np.append(begins, len(x))))
    return unwrapped


def _normalize_longitudes(x: Floats, first: Ints) -> Floats:
    """Shift places by full turns so that the first longitude is between -180 and 180."""
    begins = first[:-1][np.diff(first) > 0]
    start = x[begins]
    turns = np.where(np.abs(start) > 180, 360.0 * np.floor((start + 180) / 360), 0.0)
    shifted: Floats = x - np.repeat(turns, np.diff(np.append(begins, len(x))))
    return shifted


def _compute_hulls(x: Floats, y: Floats, first: Ints) -> EventPlaces:
    out_x, out_y, begin = np.empty(len(x)), np.empty(len(y)), np.empty(len(first), np.int64)
    geometry.compute_hulls(x, y, first, out_x, out_y, begin)
    return EventPlaces(out_x[: begin[-1]].copy(), out_y[: begin[-1]].copy(), begin)


def format_locations(events: pa.Table, schema: Schema) -> pa.Array:
    """The places of events as WKT texts."""
    return pa.array(read_places(events, schema).texts(), pa.string())


# ------------------------------------------------------------------------------ of matches


def compute_match_hulls(matches: Matches, events: pa.Table, schema: Schema) -> pa.Array:
    """The hull of each match in the encoding of the location column: WKT texts or WKB bytes.

    Events without a location are ignored; a match of only such events has none.
    """
    texts = format_match_hulls(matches, events, schema)
    type = location_type(events.schema, schema)
    if kind_of_arrow(type) is ValueKind.STRING:
        return texts.cast(type)
    import shapely

    encoded = shapely.to_wkb(shapely.from_wkt(np.array(texts.to_pylist(), object)))
    return pa.array(list(encoded), type)


def format_match_hulls(matches: Matches, events: pa.Table, schema: Schema) -> pa.Array:
    """The hull of each match as a WKT text."""
    return pa.array(_get_match_hulls(matches, events, schema).texts(), pa.string())


def _get_match_hulls(matches: Matches, events: pa.Table, schema: Schema) -> EventPlaces:
    owners, rows = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for variable in matches.variables:
        offsets, inside = matches.segments(variable)
        owners.append(np.repeat(np.arange(matches.count), np.diff(offsets)))
        rows.append(inside)
    owner, row = np.concatenate(owners), np.concatenate(rows)
    order = np.lexsort((row, owner))  # in stream order: the first one decides the turn
    owner, row = owner[order], row[order]
    unique, places = np.unique(row, return_inverse=True)
    location = schema.location
    names = [location] if isinstance(location, str) else list(location or ())
    known = _places(take_rows(events.select(names), unique), schema, unique)
    members = known.take(places)
    sizes = np.diff(members.first)
    x = _around_the_first(members, owner) if schema.space == "earth" else members.x
    counts = np.bincount(owner, weights=sizes, minlength=matches.count).astype(np.int64)
    first = np.append(0, np.cumsum(counts)).astype(np.int64)
    return _compute_hulls(x, members.y, first)


def _around_the_first(members: EventPlaces, owner: Ints) -> Floats:
    """Shift the longitudes of members by full turns towards the first member of their match."""
    sizes = np.diff(members.first)
    nonempty = np.flatnonzero(sizes)
    if not len(nonempty):
        return members.x
    start = members.x[members.first[nonempty]]
    _, leaders, groups = np.unique(owner[nonempty], return_index=True, return_inverse=True)
    turns = 360.0 * np.floor((start[leaders][groups] - start) / 360 + 0.5)
    shifted: Floats = members.x + np.repeat(turns, sizes[nonempty])
    return shifted


def location_type(arrow: pa.Schema, schema: Schema) -> pa.DataType:
    """The Arrow type of a match's location."""
    if isinstance(schema.location, str):
        return plain_type(arrow.field(schema.location).type)
    return pa.string()


# ------------------------------------------------------------------------------ validation


def check_location(schema: pa.Schema, location: Any, space: str) -> str | tuple[str, str]:
    """Check the location argument: a column of texts or bytes, or two columns of numbers."""
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
    if kind_of_arrow(types[0]) is ValueKind.STRING or pa.types.is_binary(types[0]):
        return names[0]
    raise EventError(f"location={names[0]!r} holds {types[0]}\n{_HINT}")


# ------------------------------------------------------------------------------ vectors


@dataclass(frozen=True, slots=True, eq=False)
class PlaceCorners:
    """Convex places, one per row: row k has the corners from `first[k]` up to `first[k + 1]`.

    If `first` is None, all places are points: row k has corner k.
    """

    x: Floats
    y: Floats
    first: Ints | None = None

    def __len__(self) -> int:
        return len(self.x) if self.first is None else len(self.first) - 1

    def starts(self) -> Ints:
        """`first`, also if all places are points."""
        return np.arange(len(self.x) + 1) if self.first is None else self.first

    def repeat(self, length: int) -> "PlaceCorners":
        """Repeat the first place for every row."""
        size = int(self.starts()[1])
        x, y = np.tile(self.x[:size], length), np.tile(self.y[:size], length)
        return PlaceCorners(x, y, None if size == 1 else np.arange(length + 1) * size)


@dataclass(frozen=True, slots=True, eq=False)
class ConstantRegion:
    """A region written in a query, the same for all rows."""

    text: str
    rows: int = 1

    def __len__(self) -> int:
        return self.rows

    def repeat(self, length: int) -> "ConstantRegion":
        return ConstantRegion(self.text, length)

    def table(self, space: int) -> RegionTable:
        """The region table for kernels, with one row."""
        return _table(self.text, FUNCTION_SPACES[space])

    def corners(self, space: int) -> PlaceCorners:
        """The corners of its hull, for every row."""
        return _hull_corners(self.text, FUNCTION_SPACES[space]).repeat(self.rows)


PlaceValues = PlaceCorners | ConstantRegion


def format_circle(x: float, y: float, radius: float) -> str:
    """A circle in the notation of regions."""
    return format_wkt(Circle(float(x), float(y), float(radius)))


@lru_cache(maxsize=256)
def _table(text: str, space: str) -> RegionTable:
    regions = Regions(space)
    regions.add(subscription.Region(text))
    return regions.table


@lru_cache(maxsize=256)
def _hull_corners(text: str, space: str) -> PlaceCorners:
    hull = FUNCTIONS["hull" if space == "plane" else "earth_hull"]
    place = hull([FUNCTIONS[WKT]([text])])
    assert isinstance(place, ConvexHull)
    return to_corners([place])


def to_corners(places: Sequence[ConvexHull | None]) -> PlaceCorners:
    """Places as corners; a missing place has none."""
    sizes = [0 if place is None else len(place.corners) for place in places]
    corners = np.array([c for p in places if p is not None for c in p.corners], np.float64)
    x, y = np.ascontiguousarray(corners.reshape(-1, 2).T)
    return PlaceCorners(x, y, np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))


def format_places(places: PlaceValues, valid: Bools | None) -> pa.Array:
    """Convert places to WKT."""
    if isinstance(places, ConstantRegion):
        return pa.array([places.text] * len(places), pa.string())
    texts = EventPlaces(places.x, places.y, places.starts()).texts()
    return pa.array(texts, pa.string(), mask=None if valid is None else ~valid)
