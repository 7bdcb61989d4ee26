"""The functions of places on vectors, by compiled loops."""

from collections.abc import Callable, Sequence
from functools import partial, reduce

import numpy as np

from ensue.functions import CIRCLE, EARTH, EARTH_LOCATION, FUNCTIONS, LOCATION, SPACES, WKT
from ensue.geo.geometry import ConvexHull
from ensue.geo.wkt import Points, read_wkt
from ensue.kernels import geometry, geometry_pairs
from ensue.kernels.polygons import X, Y
from ensue.schema import ValueKind
from ensue.vector.arrow_numpy import Bools, Floats, Ints, as_read_only
from ensue.vector.column_values import PlaceVector, Vector, broadcast, create_nulls
from ensue.vector.geo_columns import (
    ConstantRegion,
    PlaceCorners,
    PlaceValues,
    format_circle,
    is_usable,
    parse_places,
    to_corners,
)
from ensue.vector.operators import combine_validity, get_common_length, to_floats

Routine = Callable[[Sequence[Vector]], Vector]

# ---- constructors


def _point(space: int, arguments: Sequence[Vector]) -> PlaceVector:
    length = get_common_length(*arguments)
    x, y = (broadcast(v, length) for v in arguments)
    a, b = to_floats(x), to_floats(y)
    if space == geometry.EARTH:  # longitudes between -180 and 180, as for events
        a = np.where(np.abs(a) > 180, a - 360.0 * np.floor((a + 180) / 360), a)
    return _mask_unusable(PlaceCorners(a, b), combine_validity(x.valid, y.valid), space)


def _locate(space: int, arguments: Sequence[Vector]) -> PlaceVector:
    if len(arguments) == 2:
        return _point(space, arguments)
    (column,) = arguments
    places = parse_places(column.values, SPACES[space])
    valid: Bools = np.diff(places.first) > 0
    corners = PlaceCorners(places.x, places.y, None if places.points and valid.all() else places.first)
    return PlaceVector(corners, None if valid.all() else valid)


def _mask_unusable(corners: PlaceCorners, valid: Bools | None, space: int) -> PlaceVector:
    """Set places with unusable coordinates to NULL, and points also to 0 for the kernels."""
    usable = is_usable(corners.x, corners.y, SPACES[space])
    if usable.all():
        return PlaceVector(corners, valid)
    if corners.first is None:
        x, y = np.where(usable, corners.x, 0.0), np.where(usable, corners.y, 0.0)
        return PlaceVector(PlaceCorners(x, y), combine_validity(valid, usable))
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
    if space == geometry.EARTH and isinstance(vector.places, PlaceCorners):
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
    if places.first is None:
        return places.x, places.y
    x, y = geometry_pairs.column_centres(*_arrays(places, space))
    return x, y


def _arrays(places: PlaceValues, space: int) -> tuple[Floats, Floats, Ints]:
    corners = places.corners(space) if isinstance(places, ConstantRegion) else places
    return as_read_only(corners.x), as_read_only(corners.y), as_read_only(corners.starts())


# ---- hulls


def _hull(space: int, arguments: Sequence[Vector]) -> Vector:
    """The hull of all places that are not NULL; NULL without any."""
    length = get_common_length(*arguments)
    parts = [broadcast(a, length) for a in arguments]
    known = [_to_space(part, space) for part in parts if isinstance(part, PlaceVector)]
    if not known:
        return create_nulls(length)
    counts, sources = [], []
    leader = np.full(length, np.nan)  # the longitude of the first place of each row
    for part in known:
        x, y, starts = _arrays(part.places, space)
        count = np.diff(starts)
        count = count if part.valid is None else np.where(part.valid, count, 0)
        turn = np.zeros(length)
        if space == geometry.EARTH and len(x):
            own = np.where(count > 0, x[np.minimum(starts[:-1], len(x) - 1)], np.nan)
            leader = np.where(np.isnan(leader), own, leader)
            turn = np.where(count > 0, 360.0 * np.floor((leader - own) / 360.0 + 0.5), 0.0)
        counts.append(count)
        sources.append((x, y, starts[:-1], turn))
    first = np.concatenate([[0], np.cumsum(np.sum(counts, axis=0))])
    all_x, all_y = np.empty(first[-1]), np.empty(first[-1])
    place = first[:-1].copy()
    for count, (x, y, start, turn) in zip(counts, sources, strict=True):
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        target, source = np.repeat(place, count) + within, np.repeat(start, count) + within
        all_x[target], all_y[target] = x[source] + np.repeat(turn, count), y[source]
        place += count
    hull_x, hull_y, begin = np.empty(first[-1]), np.empty(first[-1]), np.empty_like(first)
    geometry.compute_hulls(as_read_only(all_x), as_read_only(all_y), as_read_only(first), hull_x, hull_y, begin)
    valid: Bools = first[1:] > first[:-1]
    corners = PlaceCorners(hull_x[: begin[-1]], hull_y[: begin[-1]], begin)
    return PlaceVector(corners, None if valid.all() else valid)


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
