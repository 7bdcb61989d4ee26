"""The functions of places over vectors: compiled loops, no Python for each row."""

from collections.abc import Callable, Sequence
from functools import partial, reduce

import numpy as np

from ensue.algebra.functions import CIRCLE, EARTH, LOCATION, WKT
from ensue.columns.buffers import Bools, Floats, Ints, frozen
from ensue.columns.operators import as_floats, both, common_length
from ensue.columns.place_vectors import Corners, Region
from ensue.columns.values import Vector, nulls, spread
from ensue.kernels import geometry, place_columns
from ensue.schema import Kind

Routine = Callable[[Sequence[Vector]], Vector]

# ---- places from numbers and texts


def _point(x: Vector, y: Vector) -> Vector:
    length = common_length(x, y)
    given = [spread(v, length) for v in (x, y)]
    a, b = (as_floats(v) for v in given)
    valid = reduce(both, (v.valid for v in given))
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.all():
        valid = both(valid, finite)
    if valid is not None:  # loops meet only numbers that they can compute with
        a, b = np.where(valid, a, 0.0), np.where(valid, b, 0.0)
    return Vector(Kind.PLACE, Corners(a, b), valid)


def _located(written: Vector, y: Vector | None = None) -> Vector:
    if y is not None:
        return _point(written, y)
    raise NotImplementedError


def _circle(*numbers: Vector) -> Vector:
    x, y, radius = (v.values[0].item() for v in numbers)
    return Vector(Kind.PLACE, Region(f"CIRCLE ({x!r} {y!r}, {radius!r})"))


def _read(text: Vector) -> Vector:
    return Vector(Kind.PLACE, Region(text.values[0].as_py()))


# ---- how places lie


def _measured(of: Callable[..., Vector], space: int, arguments: Sequence[Vector]) -> Vector:
    p, q, *others = arguments
    length = common_length(*arguments)
    found = of(p, q, space, *others)
    valid = reduce(both, (spread(v, length).valid for v in arguments))
    return (
        spread(Vector(found.kind, found.values, None), length)
        if valid is None
        else Vector(found.kind, spread(found, length).values, valid)
    )


def _distance(p: Vector, q: Vector, space: int) -> Vector:
    a, b = p.values, q.values
    if isinstance(a, Region):
        a, b = b, a
    if isinstance(b, Region):
        x, y, first = _arrays(a)
        found = place_columns.region_distances(b.table(space), x, y, first, space)
    else:
        found = place_columns.column_distances(*_arrays(a), *_arrays(b), space)
    return Vector(Kind.FLOAT, found)


def _test(where: int, p: Vector, q: Vector, space: int) -> Vector:
    """Whether q lies inside p, or overlaps it."""
    a, b = p.values, q.values
    if where == geometry.OVERLAP and isinstance(b, Region):
        a, b = b, a
    if isinstance(a, Region):
        x, y, first = _arrays(b)
        found = place_columns.region_tests(a.table(space), where, x, y, first, space)
    else:
        found = place_columns.column_tests(where, *_arrays(a), *_arrays(b), space)
    return Vector(Kind.BOOLEAN, found)


def _inside(q: Vector, p: Vector, space: int) -> Vector:
    return _test(geometry.INSIDE, p, q, space)


def _overlaps(p: Vector, q: Vector, space: int) -> Vector:
    return _test(geometry.OVERLAP, p, q, space)


def _same_place(p: Vector, q: Vector, space: int, limit: Vector) -> Vector:
    ax, ay = _centres(p.values, space)
    bx, by = _centres(q.values, space)
    length = max(len(ax), len(bx)) if len(ax) and len(bx) else 0
    spread_out = [frozen(np.broadcast_to(v, length).copy()) for v in (ax, ay, bx, by)]
    found = place_columns.point_distances(*spread_out, space)
    return Vector(Kind.BOOLEAN, found < as_floats(limit))


def _centres(places: Corners | Region, space: int) -> tuple[Floats, Floats]:
    if isinstance(places, Region):
        (centre,) = places.table(space).centre
        return centre[:1], centre[1:]
    if places.first is None:
        return places.x, places.y
    return place_columns.column_centres(*_arrays(places))


def _arrays(places: Corners | Region) -> tuple[Floats, Floats, Ints]:
    corners = places.corners() if isinstance(places, Region) else places
    return frozen(corners.x), frozen(corners.y), frozen(corners.starts())


# ---- hulls


def _hull(space: int, arguments: Sequence[Vector]) -> Vector:
    """The hull of what is there; NULL where nothing is."""
    length = common_length(*arguments)
    parts = [spread(a, length) for a in arguments if a.kind is not Kind.NULL]
    if not parts:
        return nulls(length)
    counts, sources = [], []
    for part in parts:
        corners = part.values.corners() if isinstance(part.values, Region) else part.values
        starts = corners.starts()
        count = np.diff(starts)
        counts.append(count if part.valid is None else np.where(part.valid, count, 0))
        sources.append((corners, starts[:-1]))
    first = np.concatenate([[0], np.cumsum(np.sum(counts, axis=0))])
    x, y = np.empty(first[-1]), np.empty(first[-1])
    place = first[:-1].copy()
    for count, (corners, start) in zip(counts, sources, strict=True):
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        to, of = np.repeat(place, count) + within, np.repeat(start, count) + within
        x[to], y[to] = corners.x[of], corners.y[of]
        place += count
    there: Bools = first[1:] > first[:-1]
    found = place_columns.column_hulls(frozen(x), frozen(y), frozen(first), space)
    return Vector(Kind.PLACE, Corners(*found), None if there.all() else there)


def _in_space(space: int) -> dict[str, Routine]:
    named = EARTH if space == geometry.EARTH else ""
    of = {"distance": _distance, "inside": _inside, "overlaps": _overlaps}
    found: dict[str, Routine] = {
        named + name: partial(_measured, form, space) for name, form in of.items()
    }
    found[f"{named}same_place"] = partial(_measured, _same_place, space)
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
