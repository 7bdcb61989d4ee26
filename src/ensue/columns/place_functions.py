"""The functions of places over vectors: compiled loops, no Python for each row."""

from collections.abc import Callable, Sequence
from functools import partial, reduce

import numpy as np

from ensue.algebra.functions import CIRCLE, EARTH, EARTH_LOCATION, FUNCTIONS, LOCATION, SPACES, WKT
from ensue.algebra.places import Place
from ensue.algebra.wkt import Points, read_wkt
from ensue.columns.buffers import Bools, Floats, Ints, frozen
from ensue.columns.location import written_places
from ensue.columns.operators import as_floats, both, common_length
from ensue.columns.place_vectors import Corners, PlaceValues, Region, circle_text, corners_of
from ensue.columns.region_shapes import FARTHEST
from ensue.columns.values import PlaceVector, Vector, nulls, spread
from ensue.kernels import geometry, place_columns
from ensue.kernels.polygons import X, Y
from ensue.schema import Kind

Routine = Callable[[Sequence[Vector]], Vector]

# ---- places from numbers and texts


def _point(space: int, arguments: Sequence[Vector]) -> PlaceVector:
    length = common_length(*arguments)
    x, y = (spread(v, length) for v in arguments)
    a, b = as_floats(x), as_floats(y)
    if space == geometry.EARTH:  # longitudes between -180 and 180, as of all events
        a = np.where(np.abs(a) > 180, a - 360.0 * np.floor((a + 180) / 360), a)
    return _there(Corners(a, b), both(x.valid, y.valid), space)


def _located(space: int, arguments: Sequence[Vector]) -> PlaceVector:
    if len(arguments) == 2:
        return _point(space, arguments)
    (written,) = arguments
    places = written_places(written.values, SPACES[space])
    there: Bools = np.diff(places.first) > 0
    corners = Corners(places.x, places.y, None if places.points and there.all() else places.first)
    return PlaceVector(corners, None if there.all() else there)


def _there(corners: Corners, valid: Bools | None, space: int) -> PlaceVector:
    """Places that are there, and on the earth on it; of others loops see no odd numbers."""
    fine = _fits(corners.x, corners.y, space)
    if fine.all():
        return PlaceVector(corners, valid)
    if corners.first is None:
        x, y = np.where(fine, corners.x, 0.0), np.where(fine, corners.y, 0.0)
        return PlaceVector(Corners(x, y), both(valid, fine))
    sizes = np.diff(corners.first)
    bad = np.bincount(np.repeat(np.arange(len(sizes)), sizes)[~fine], minlength=len(sizes))
    return PlaceVector(corners, both(valid, bad == 0))


def _fits(x: Floats, y: Floats, space: int) -> Bools:
    found: Bools = (np.abs(x) <= FARTHEST) & (np.abs(y) <= FARTHEST)
    if space == geometry.EARTH:
        found &= (np.abs(x) <= 540) & (np.abs(y) <= 90)
    return found


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
    p, q = (_here(place, space) for place in arguments[:2])
    others = arguments[2:]
    found = spread(of(p.places, q.places, space, *others), length)
    valid = reduce(both, (spread(v, length).valid for v in (p, q, *others)))
    return Vector(found.kind, found.values, valid)


def _here(vector: Vector, space: int) -> PlaceVector:
    """Places as this space has them: what a plane's query measures may not be on the earth."""
    assert isinstance(vector, PlaceVector)
    if space == geometry.EARTH and isinstance(vector.places, Corners):
        return _there(vector.places, vector.valid, space)
    return vector


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
    known = [_here(part, space) for part in parts if isinstance(part, PlaceVector)]
    if not known:
        return nulls(length)
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
        to, of = np.repeat(place, count) + within, np.repeat(start, count) + within
        all_x[to], all_y[to] = x[of] + np.repeat(turn, count), y[of]
        place += count
    hull_x, hull_y, begin = np.empty(first[-1]), np.empty(first[-1]), np.empty_like(first)
    geometry.hulls(frozen(all_x), frozen(all_y), frozen(first), hull_x, hull_y, begin)
    there: Bools = first[1:] > first[:-1]
    corners = Corners(hull_x[: begin[-1]], hull_y[: begin[-1]], begin)
    return PlaceVector(corners, None if there.all() else there)


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
    found[f"{named}point"] = partial(_point, space)
    found[EARTH_LOCATION if named else LOCATION] = partial(_located, space)
    return found


PLACE_ROUTINES: dict[str, Routine] = {
    CIRCLE: lambda arguments: _circle(*arguments),
    WKT: lambda arguments: _read(*arguments),
    **_in_space(geometry.PLANE),
    **_in_space(geometry.EARTH),
}
