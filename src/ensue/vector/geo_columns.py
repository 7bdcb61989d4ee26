"""Columns of places: those of events, hulls of matches, places and regions in expressions, and functions of them.

An event's place is in a column of WKT texts or WKB bytes, or in two columns of numbers. It is
convex: a polygon stands for its hull. The place of a match is the convex hull of its members'.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.errors import EventError, did_you_mean
from ensue.functions import CIRCLE, EARTH, EARTH_LOCATION, FUNCTIONS, LOCATION, SPACES, WKT
from ensue.geo.geometry import ConvexHull
from ensue.geo.wkt import MAX_COORDINATE, Circle, Points, Polygons, format_wkt, read_wkt
from ensue.ir import subscription
from ensue.kernels import geometry, geometry_pairs
from ensue.kernels.polygons import X, Y
from ensue.kernels.regions import RegionTable
from ensue.schema import Schema, ValueKind
from ensue.vector.arrow_numpy import Bools, Floats, Ints, as_read_only, build_texts, floats, to_single_array, validity
from ensue.vector.arrow_types import kind_of_arrow, plain_type
from ensue.vector.column_values import PlaceVector, Vector, broadcast, create_nulls
from ensue.vector.evaluation import combine_validity, get_common_length, to_floats
from ensue.vector.geo_regions import Regions
from ensue.vector.match_rows import Matches
from ensue.vector.take import take_rows

_HINT = (
    "  hint: write locations as WKT texts, such as 'POINT (8.5 47.4)', or as WKB bytes,\n"
    '        or name two columns of numbers: location=("lon", "lat")'
)


@dataclass(frozen=True, slots=True)
class ConvexPlaces:
    """Convex places, one per row: corners counter-clockwise; no corners where there is no place.

    Row i has the corners from `first[i]` up to `first[i + 1]`. On the earth the longitudes of an
    event begin between -180 and 180, and may extend beyond.
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

    @property
    def single_points(self) -> bool:
        """Whether every place is a point."""
        return len(self.x) == len(self) and self.points

    def repeat(self, length: int) -> "ConvexPlaces":
        """Repeat the first place for every row."""
        size = int(self.first[1])
        return ConvexPlaces(
            np.tile(self.x[:size], length), np.tile(self.y[:size], length), np.arange(length + 1) * size
        )

    def take(self, rows: Ints) -> "ConvexPlaces":
        """Select the places of some rows."""
        sizes = np.diff(self.first)[rows]
        first = np.append(0, np.cumsum(sizes)).astype(np.int64)
        at = np.repeat(self.first[:-1][rows] - first[:-1], sizes) + np.arange(first[-1])
        return ConvexPlaces(self.x[at], self.y[at], first)

    def texts(self) -> list[str | None]:
        """Convert to WKT.

        >>> ConvexPlaces(np.array([1.5]), np.array([2.0]), np.array([0, 1, 1])).texts()
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


def read_places(events: pa.Table, schema: Schema) -> ConvexPlaces:
    """Read the places of events. NULL, empty geometries and non-numbers are no place.

    On the earth neither are latitudes beyond 90 and longitudes beyond 540 degrees.
    """
    return _places(events, schema, None)


def parse_places(column: pa.Array | pa.ChunkedArray, space: str) -> ConvexPlaces:
    """Read the places in a column of WKT texts or WKB bytes."""
    return _convex(*_corners(column, None), space)


def _places(events: pa.Table, schema: Schema, rows: Ints | None) -> ConvexPlaces:
    """Read places; `rows` are the row numbers for errors, if not those of the table."""
    match schema.location:
        case None:
            nothing = np.zeros(0)
            return ConvexPlaces(nothing, nothing, np.zeros(events.num_rows + 1, np.int64))
        case (across, along):
            x, y = _numbers(events.column(across)), _numbers(events.column(along))
            first = np.arange(events.num_rows + 1)
        case name:
            x, y, first = _corners(events.column(name), rows)
    return _convex(x, y, first, schema.space)


def _numbers(column: pa.ChunkedArray) -> Floats:
    array = to_single_array(column.cast(pa.float64()))
    valid = validity(array)
    return floats(array) if valid is None else np.where(valid, floats(array), np.nan)


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


def _convex(x: Floats, y: Floats, first: Ints, space: str) -> ConvexPlaces:
    usable = is_usable(x, y, space)
    if not usable.all():
        x, y, first = _drop_unusable(x, y, first, usable)
    single = int(np.diff(first).max(initial=0)) <= 1
    if space == "earth":
        x = _normalize_longitudes(x if single else _short_way(x, first), first)
    return ConvexPlaces(x, y, first) if single else _compute_hulls(x, y, first)


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


def _compute_hulls(x: Floats, y: Floats, first: Ints) -> ConvexPlaces:
    out_x, out_y, begin = np.empty(len(x)), np.empty(len(y)), np.empty(len(first), np.int64)
    geometry.compute_hulls(x, y, first, out_x, out_y, begin)
    return ConvexPlaces(out_x[: begin[-1]].copy(), out_y[: begin[-1]].copy(), begin)


def format_locations(events: pa.Table, schema: Schema) -> pa.Array:
    """The places of events as WKT texts."""
    return build_texts(read_places(events, schema).texts())


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
    return build_texts(_get_match_hulls(matches, events, schema).texts())


def _get_match_hulls(matches: Matches, events: pa.Table, schema: Schema) -> ConvexPlaces:
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
    return _merge_hulls(known.take(places), owner, matches.count, schema.space)


def _merge_hulls(members: ConvexPlaces, owner: Ints, count: int, space: str) -> ConvexPlaces:
    """The hull of the places of each owner, which ascend; on the earth, around the first one."""
    sizes = np.diff(members.first)
    x, nonempty = members.x, np.flatnonzero(sizes)
    if space == "earth" and len(nonempty):  # shift longitudes by full turns
        start, owners = x[members.first[nonempty]], owner[nonempty]
        leads = np.append(True, owners[1:] != owners[:-1])
        leader = start[leads][np.cumsum(leads) - 1]
        turns = 360.0 * np.floor((leader - start) / 360 + 0.5)
        x = x + np.repeat(turns, sizes[nonempty])
    corners = np.bincount(owner, weights=sizes, minlength=count).astype(np.int64)
    return _compute_hulls(x, members.y, np.append(0, np.cumsum(corners)).astype(np.int64))


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
        return _table(self.text, SPACES[space])

    def corners(self, space: int) -> ConvexPlaces:
        """The corners of its hull, for every row."""
        return _hull_corners(self.text, SPACES[space]).repeat(self.rows)


PlaceValues = ConvexPlaces | ConstantRegion


def format_circle(x: float, y: float, radius: float) -> str:
    """A circle in the notation of regions."""
    return format_wkt(Circle(float(x), float(y), float(radius)))


@lru_cache(maxsize=256)
def _table(text: str, space: str) -> RegionTable:
    regions = Regions(space)
    regions.add(subscription.Region(text))
    return regions.table


@lru_cache(maxsize=256)
def _hull_corners(text: str, space: str) -> ConvexPlaces:
    hull = FUNCTIONS["hull" if space == "plane" else "earth_hull"]
    place = hull([FUNCTIONS[WKT]([text])])
    assert isinstance(place, ConvexHull)
    return to_corners([place])


def to_corners(places: Sequence[ConvexHull | None]) -> ConvexPlaces:
    """Places as corners; a missing place has none."""
    sizes = [0 if place is None else len(place.corners) for place in places]
    corners = np.array([c for p in places if p is not None for c in p.corners], np.float64)
    x, y = np.ascontiguousarray(corners.reshape(-1, 2).T)
    return ConvexPlaces(x, y, np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))


def format_places(places: PlaceValues, valid: Bools | None) -> pa.Array:
    """Convert places to WKT."""
    if isinstance(places, ConstantRegion):
        return pa.array([places.text] * len(places), pa.string())
    return pa.array(places.texts(), pa.string(), mask=None if valid is None else ~valid)


Routine = Callable[[Sequence[Vector]], Vector]

# ---- constructors


def _point(space: int, arguments: Sequence[Vector]) -> PlaceVector:
    length = get_common_length(*arguments)
    x, y = (broadcast(v, length) for v in arguments)
    a, b = to_floats(x), to_floats(y)
    if space == geometry.EARTH:  # longitudes between -180 and 180, as for events
        a = np.where(np.abs(a) > 180, a - 360.0 * np.floor((a + 180) / 360), a)
    return _mask_unusable(ConvexPlaces(a, b, np.arange(len(a) + 1)), combine_validity(x.valid, y.valid), space)


def _locate(space: int, arguments: Sequence[Vector]) -> PlaceVector:
    if len(arguments) == 2:
        return _point(space, arguments)
    (column,) = arguments
    places = parse_places(column.values, SPACES[space])
    valid: Bools = np.diff(places.first) > 0
    return PlaceVector(places, None if valid.all() else valid)


def _mask_unusable(corners: ConvexPlaces, valid: Bools | None, space: int) -> PlaceVector:
    """Set places with unusable coordinates to NULL, and points also to 0 for the kernels."""
    usable = is_usable(corners.x, corners.y, SPACES[space])
    if usable.all():
        return PlaceVector(corners, valid)
    if corners.single_points:
        x, y = np.where(usable, corners.x, 0.0), np.where(usable, corners.y, 0.0)
        return PlaceVector(ConvexPlaces(x, y, corners.first), combine_validity(valid, usable))
    sizes = np.diff(corners.first)
    bad = np.bincount(np.repeat(np.arange(len(sizes)), sizes)[~usable], minlength=len(sizes))
    return PlaceVector(corners, combine_validity(valid, bad == 0))


def _circle(*numbers: Vector) -> PlaceVector:
    x, y, radius = (v.values[0].item() for v in numbers)
    return PlaceVector(ConstantRegion(format_circle(x, y, radius)))


def _read(text: Vector) -> PlaceVector:
    wkt = text.values[0].as_py()
    if isinstance(read_wkt(wkt), Points):
        place = FUNCTIONS[WKT]([wkt])
        assert isinstance(place, ConvexHull)
        return PlaceVector(to_corners([place]))
    return PlaceVector(ConstantRegion(wkt))


# ---- relations


def _measure(measure: Callable[..., Vector], space: int, arguments: Sequence[Vector]) -> Vector:
    """Apply a function of two places; NULL where an argument is."""
    length = get_common_length(*arguments)
    p, q = (_to_space(place, space) for place in arguments[:2])
    others = arguments[2:]
    result = broadcast(measure(p.places, q.places, space, *others), length)
    valid = reduce(combine_validity, (broadcast(v, length).valid for v in (p, q, *others)))
    return Vector(result.kind, result.values, valid)


def _to_space(vector: Vector, space: int) -> PlaceVector:
    """Places in this space: those of a query on the plane may lie off the earth."""
    assert isinstance(vector, PlaceVector)
    if space == geometry.EARTH and isinstance(vector.places, ConvexPlaces):
        return _mask_unusable(vector.places, vector.valid, space)
    return vector


def _distance(a: PlaceValues, b: PlaceValues, space: int) -> Vector:
    if isinstance(a, ConstantRegion):
        a, b = b, a
    if isinstance(b, ConstantRegion):
        result = geometry_pairs.region_distances(b.table(space), *_arrays(a, space), space)
    else:
        result = geometry_pairs.column_distances(*_arrays(a, space), *_arrays(b, space), space)
    return Vector(ValueKind.FLOAT, result)


def _inside(q: PlaceValues, p: PlaceValues, space: int) -> Vector:
    return _test(geometry.INSIDE, p, q, space)


def _overlaps(p: PlaceValues, q: PlaceValues, space: int) -> Vector:
    p, q = (q, p) if isinstance(q, ConstantRegion) else (p, q)
    return _test(geometry.OVERLAP, p, q, space)


def _test(where: int, p: PlaceValues, q: PlaceValues, space: int) -> Vector:
    """Whether q lies inside p, or overlaps it."""
    if isinstance(p, ConstantRegion):
        result = geometry_pairs.region_tests(p.table(space), where, *_arrays(q, space), space)
    else:
        result = geometry_pairs.column_tests(where, *_arrays(p, space), *_arrays(q, space), space)
    return Vector(ValueKind.BOOLEAN, result)


def _same_place(p: PlaceValues, q: PlaceValues, space: int, limit: Vector) -> Vector:
    centres = [*_centres(p, space), *_centres(q, space)]
    length = next((len(v) for v in centres if len(v) != 1), 1)
    aligned = [as_read_only(np.full(length, v[0]) if len(v) != length else v) for v in centres]
    result = geometry_pairs.point_distances(*aligned, space)
    return Vector(ValueKind.BOOLEAN, result < to_floats(limit))


def _centres(places: PlaceValues, space: int) -> tuple[Floats, Floats]:
    if isinstance(places, ConstantRegion):
        row = places.table(space).rows[0]
        return row[X : X + 1], row[Y : Y + 1]
    if places.single_points:
        return places.x, places.y
    x, y = geometry_pairs.column_centres(*_arrays(places, space))
    return x, y


def _arrays(places: PlaceValues, space: int) -> tuple[Floats, Floats, Ints]:
    corners = _get_corners(places, space)
    return as_read_only(corners.x), as_read_only(corners.y), as_read_only(corners.first)


def _get_corners(places: PlaceValues, space: int) -> ConvexPlaces:
    return places.corners(space) if isinstance(places, ConstantRegion) else places


# ---- hulls


def _hull(space: int, arguments: Sequence[Vector]) -> Vector:
    """The hull of all places that are not NULL; NULL without any."""
    length = get_common_length(*arguments)
    parts = [broadcast(a, length) for a in arguments]
    known = [_to_space(part, space) for part in parts if isinstance(part, PlaceVector)]
    if not known:
        return create_nulls(length)
    corners = [_get_corners(part.places, space) for part in known]
    offsets = np.cumsum([0, *(len(c.x) for c in corners)])
    first = [c.first[1:] + offset for c, offset in zip(corners, offsets, strict=False)]
    xs, ys = (np.concatenate([getattr(c, axis) for c in corners]) for axis in ("x", "y"))
    present = np.concatenate([np.ones(length, np.bool_) if part.valid is None else part.valid for part in known])
    order = np.arange(len(known) * length).reshape(len(known), length).T.ravel()  # by row, then by part
    order = order[present[order]]
    members = ConvexPlaces(xs, ys, np.concatenate([[0], *first])).take(order)
    hulls = _merge_hulls(members, order % length, length, SPACES[space])
    valid: Bools = np.diff(hulls.first) > 0
    return PlaceVector(hulls, None if valid.all() else valid)


def _in_space(space: int) -> dict[str, Routine]:
    prefix = EARTH if space == geometry.EARTH else ""
    measures: dict[str, Callable[..., Vector]] = {
        "distance": _distance, "inside": _inside, "overlaps": _overlaps,
        "same_place": _same_place,
    }  # fmt: skip
    routines: dict[str, Routine] = {prefix + name: partial(_measure, form, space) for name, form in measures.items()}
    routines[f"{prefix}hull"] = partial(_hull, space)
    routines[f"{prefix}point"] = partial(_point, space)
    routines[EARTH_LOCATION if prefix else LOCATION] = partial(_locate, space)
    return routines


PLACE_ROUTINES: dict[str, Routine] = {
    CIRCLE: lambda arguments: _circle(*arguments),
    WKT: lambda arguments: _read(*arguments),
    **_in_space(geometry.PLANE),
    **_in_space(geometry.EARTH),
}
