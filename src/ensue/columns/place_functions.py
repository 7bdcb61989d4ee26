"""The functions of places over vectors: compiled loops, no Python for each row."""

from collections.abc import Callable, Sequence
from functools import partial, reduce

import numpy as np
import pyarrow as pa

from ensue.algebra.functions import CIRCLE, EARTH, FUNCTIONS, LOCATION, WKT
from ensue.algebra.places import Place
from ensue.algebra.wkt import Points, read_wkt
from ensue.columns.buffers import Bools, Floats, Ints, frozen
from ensue.columns.operators import as_floats, both, common_length
from ensue.columns.place_vectors import Corners, PlaceValues, Region, circle_text, corners_of
from ensue.columns.region_shapes import imported_shapely
from ensue.columns.values import PlaceVector, Vector, nulls, spread
from ensue.errors import EventError
from ensue.kernels import geometry, place_columns
from ensue.kernels.polygons import X, Y
from ensue.schema import Kind

Routine = Callable[[Sequence[Vector]], Vector]

# ---- places from numbers and texts


def _point(x: Vector, y: Vector) -> PlaceVector:
    length = common_length(x, y)
    given = [spread(v, length) for v in (x, y)]
    a, b = (as_floats(v) for v in given)
    valid = reduce(both, (v.valid for v in given))
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.all():
        valid = both(valid, finite)
    if valid is not None:  # loops meet only numbers that they can compute with
        a, b = np.where(valid, a, 0.0), np.where(valid, b, 0.0)
    return PlaceVector(Corners(a, b), valid)


def _located(written: Vector, y: Vector | None = None) -> PlaceVector:
    if y is not None:
        return _point(written, y)
    return _hulls_of(written.values, texts=written.kind is Kind.STRING)


def _hulls_of(written: pa.Array, *, texts: bool) -> PlaceVector:
    """The hulls of places that are written as WKT or WKB; NULL where there is no point."""
    shapely = imported_shapely()
    read = shapely.from_wkt if texts else shapely.from_wkb
    try:
        shapes = read(np.array(written.to_pylist(), np.object_))
    except (shapely.errors.ShapelyError, TypeError) as error:
        raise EventError(
            f"a location cannot be read: {error}\n"
            "  hint: write locations as WKT texts, such as 'POINT (8.5 47.4)', or as WKB bytes"
        ) from None
    points, owners = shapely.get_coordinates(shapes, return_index=True)
    finite = np.isfinite(points).all(axis=1)
    count = np.bincount(owners, minlength=len(shapes))
    there = (count > 0) & (np.bincount(owners[~finite], minlength=len(shapes)) == 0)
    kept = there[owners]
    first = np.concatenate([[0], np.cumsum(np.where(there, count, 0))])
    x, y = (frozen(np.ascontiguousarray(points[kept, axis])) for axis in (0, 1))
    corners = Corners(*place_columns.column_hulls(x, y, frozen(first), geometry.PLANE))
    return PlaceVector(corners, None if there.all() else there)


def _circle(*numbers: Vector) -> PlaceVector:
    x, y, radius = (v.values[0].item() for v in numbers)
    return PlaceVector(Region(circle_text(x, y, radius)))


def _read(text: Vector) -> PlaceVector:
    read = text.values[0].as_py()
    if isinstance(read_wkt(read), Points):
        place = FUNCTIONS[WKT]([read])
        assert isinstance(place, Place)
        return PlaceVector(corners_of([place]))
    return PlaceVector(Region(read))


# ---- how places lie


def _measured(of: Callable[..., Vector], space: int, arguments: Sequence[Vector]) -> Vector:
    """A function of two places, NULL where an argument is."""
    length = common_length(*arguments)
    p, q, *others = arguments
    assert isinstance(p, PlaceVector)
    assert isinstance(q, PlaceVector)
    found = spread(of(p.places, q.places, space, *others), length)
    valid = reduce(both, (spread(v, length).valid for v in arguments))
    return Vector(found.kind, found.values, valid)


def _distance(a: PlaceValues, b: PlaceValues, space: int) -> Vector:
    if isinstance(a, Region):
        a, b = b, a
    if isinstance(b, Region):
        found = place_columns.region_distances(b.table(space), *_arrays(a, space), space)
    else:
        found = place_columns.column_distances(*_arrays(a, space), *_arrays(b, space), space)
    return Vector(Kind.FLOAT, found)


def _inside(q: PlaceValues, p: PlaceValues, space: int) -> Vector:
    return _test(geometry.INSIDE, p, q, space)


def _overlaps(p: PlaceValues, q: PlaceValues, space: int) -> Vector:
    if isinstance(q, Region):
        p, q = q, p
    return _test(geometry.OVERLAP, p, q, space)


def _test(where: int, p: PlaceValues, q: PlaceValues, space: int) -> Vector:
    """Whether q lies inside p, or overlaps it."""
    if isinstance(p, Region):
        found = place_columns.region_tests(p.table(space), where, *_arrays(q, space), space)
    else:
        found = place_columns.column_tests(where, *_arrays(p, space), *_arrays(q, space), space)
    return Vector(Kind.BOOLEAN, found)


def _same_place(p: PlaceValues, q: PlaceValues, space: int, limit: Vector) -> Vector:
    centres = [*_centres(p, space), *_centres(q, space)]
    length = next((len(v) for v in centres if len(v) != 1), 1)
    given = [frozen(np.full(length, v[0]) if len(v) != length else v) for v in centres]
    found = place_columns.point_distances(*given, space)
    return Vector(Kind.BOOLEAN, found < as_floats(limit))


def _centres(places: PlaceValues, space: int) -> tuple[Floats, Floats]:
    if isinstance(places, Region):
        row = places.table(space).rows[0]
        return row[X : X + 1], row[Y : Y + 1]
    if places.first is None:
        return places.x, places.y
    x, y = place_columns.column_centres(*_arrays(places, space))
    return x, y


def _arrays(places: PlaceValues, space: int) -> tuple[Floats, Floats, Ints]:
    corners = places.corners(space) if isinstance(places, Region) else places
    return frozen(corners.x), frozen(corners.y), frozen(corners.starts())


# ---- hulls


def _hull(space: int, arguments: Sequence[Vector]) -> Vector:
    """The hull of what is there; NULL where nothing is."""
    length = common_length(*arguments)
    parts = [spread(a, length) for a in arguments]
    counts, sources = [], []
    for part in parts:
        if isinstance(part, PlaceVector):
            x, y, starts = _arrays(part.places, space)
            count = np.diff(starts)
            counts.append(count if part.valid is None else np.where(part.valid, count, 0))
            sources.append((x, y, starts[:-1]))
    if not counts:
        return nulls(length)
    first = np.concatenate([[0], np.cumsum(np.sum(counts, axis=0))])
    all_x, all_y = np.empty(first[-1]), np.empty(first[-1])
    place = first[:-1].copy()
    for count, (x, y, start) in zip(counts, sources, strict=True):
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        to, of = np.repeat(place, count) + within, np.repeat(start, count) + within
        all_x[to], all_y[to] = x[of], y[of]
        place += count
    there: Bools = first[1:] > first[:-1]
    found = place_columns.column_hulls(frozen(all_x), frozen(all_y), frozen(first), space)
    return PlaceVector(Corners(*found), None if there.all() else there)


def _in_space(space: int) -> dict[str, Routine]:
    named = EARTH if space == geometry.EARTH else ""
    of: dict[str, Callable[..., Vector]] = {
        "distance": _distance, "inside": _inside, "overlaps": _overlaps,
        "same_place": _same_place,
    }  # fmt: skip
    found: dict[str, Routine] = {
        named + name: partial(_measured, form, space) for name, form in of.items()
    }
    found[f"{named}hull"] = partial(_hull, space)
    return found


PLACE_ROUTINES: dict[str, Routine] = {
    "point": lambda arguments: _point(*arguments),
    CIRCLE: lambda arguments: _circle(*arguments),
    WKT: lambda arguments: _read(*arguments),
    LOCATION: lambda arguments: _located(*arguments),
    **_in_space(geometry.PLANE),
    **_in_space(geometry.EARTH),
}
