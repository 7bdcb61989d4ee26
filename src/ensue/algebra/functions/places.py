"""Functions of places: what an event's place is, and how two of them lie.

A place is a point, a segment or a convex polygon, given by its corners; a region that a query
writes down is any shape. On the earth coordinates are degrees and lengths are metres: each
function that measures has a twin for it, which a query gets where events lie there.
"""

from collections.abc import Callable
from functools import lru_cache
from math import floor

from ensue.algebra.functions.record import Function, OverPoints, Routine, Takes
from ensue.algebra.places import (
    Place,
    Shape,
    between,
    centre,
    distance,
    hull_of,
    inside,
    overlaps,
    place_around,
    somewhere,
    unwrapped,
)
from ensue.algebra.values import number
from ensue.algebra.wkb import read_wkb
from ensue.algebra.wkt import Circle, Geometry, Point, Points, Polygons, read_wkt
from ensue.errors import EventError, QueryError
from ensue.schema import Kind

WKT = "wkt"  # WKT 'POLYGON (...)' is a call of it
CIRCLE = "circle"
LOCATION = ".location"  # a.location is a call of it, over the columns that say where a was
EARTH_LOCATION = ".earth_location"  # likewise, where places are on the earth
EARTH = "earth_"
SPACES = ("plane", "earth")  # compiled code knows them by their numbers

_TWO = (Takes.PLACE, Takes.PLACE)


def on_earth(function: str) -> str:
    """The function that a query means where events lie on the earth.

    >>> on_earth("distance"), on_earth("circle"), on_earth("earth_distance")
    ('earth_distance', 'circle', 'earth_distance')
    """
    return _ON_EARTH.get(function, function)


def _placing(space: str) -> tuple[Function, ...]:
    """The functions that make places, in the plane or on the earth."""

    def point(x: object, y: object) -> Place | None:
        at = float(number(x)), float(number(y))
        return place_around((at,), space)

    def located(written: object, y: object = None) -> Place | None:
        match written:
            case str():
                return place_around(_points(lambda: read_wkt(written)), space)
            case bytes():
                return place_around(_points(lambda: read_wkb(written)), space)
            case _:
                return point(written, y)

    return (
        Function(
            "point" if space == "plane" else f"{EARTH}point",
            (Takes.NUMBER, Takes.NUMBER),
            Kind.PLACE,
            point,
            vector=Routine("point" if space == "plane" else f"{EARTH}point"),
        ),
        Function(
            LOCATION if space == "plane" else EARTH_LOCATION,
            (Takes.WRITTEN,),
            Kind.PLACE,
            located,
            optional=(Takes.NUMBER,),
            vector=Routine(LOCATION if space == "plane" else EARTH_LOCATION),
        ),
    )


def _points(read: Callable[[], Geometry]) -> tuple[Point, ...]:
    """The points of an event's place as it is written."""
    try:
        found = read()
        if isinstance(found, Circle):
            raise QueryError("a place cannot be a circle")
    except QueryError as error:
        raise EventError(
            f"a location cannot be read: {error.problem}\n"
            "  hint: write locations as WKT texts, such as 'POINT (8.5 47.4)', or as WKB bytes"
        ) from None
    return found.points if isinstance(found, Points) else sum(found.rings, ())


def _circle(x: object, y: object, radius: object) -> Circle:
    return Circle(float(number(x)), float(number(y)), float(number(radius)))


@lru_cache(maxsize=256)
def _written(text: str) -> Place | Shape | None:
    """What a query writes down: a region, or points that stand for their hull."""
    found = read_wkt(text)
    return hull_of(found.points) if isinstance(found, Points) else found


@lru_cache(maxsize=256)
def _turned(polygons: Polygons) -> Polygons:
    return unwrapped(polygons)


def _measuring(space: str) -> tuple[Function, ...]:
    """The functions that ask how far or how places lie, in the plane or on the earth."""

    def named(name: str) -> str:
        return name if space == "plane" else EARTH + name

    def at(p: Place | Shape) -> Place | Shape:
        return _turned(p) if space == "earth" and isinstance(p, Polygons) else p

    def there(p: Place | Shape | None) -> bool:
        """Whether it is a place here: what a plane's query measures may not be on the earth."""
        return p is not None and (
            not isinstance(p, Place) or all(somewhere(corner, space) for corner in p.corners)
        )

    def solid(p: Place | Shape) -> Place:
        assert not isinstance(p, Circle)  # refused by the check
        if isinstance(p, Place):
            return p
        found = hull_of(sum(p.rings, ()))
        assert found is not None
        return found

    def in_order(p: Place | Shape, q: Place | Shape) -> tuple[Place | Shape, Place]:
        p, q = at(p), at(q)
        if not isinstance(q, Place):
            p, q = q, p
        assert isinstance(q, Place)
        return p, q

    def hull(*parts: Place | Shape | None) -> Place | None:
        known = [solid(at(p)).corners for p in parts if p is not None and there(p)]
        if space == "earth" and known:  # beside the first
            first = known[0][0][0]
            turns = [360.0 * floor((first - own[0][0]) / 360.0 + 0.5) for own in known]
            known = [
                tuple((x + turn, y) for x, y in own)
                for own, turn in zip(known, turns, strict=True)
            ]
        return hull_of(corner for own in known for corner in own)

    def asked(of: Callable[..., object]) -> Callable[..., object]:
        """NULL where a place is none here."""
        return lambda p, q, *more: of(p, q, *more) if there(p) and there(q) else None

    def apart(p: Place | Shape, q: Place | Shape) -> float:
        return between(centre(at(p), space), centre(at(q), space), space)

    there_are = f"{space}_places"
    met, within = (
        f"(1 if {space}_points_meet({points}) else 0)"
        for points in ("{ax}, {ay}, {bx}, {by}", "{bx}, {by}, {ax}, {ay}")
    )
    far = f"{space}_point_distance({{ax}}, {{ay}}, {{bx}}, {{by}})"
    of_hulls = f"({{a}}, {{b}}, {SPACES.index(space)})"
    return (
        Function(
            named("inside"),
            _TWO,
            Kind.BOOLEAN,
            asked(lambda q, p: inside(solid(at(q)), at(p), space)),
            vector=Routine(named("inside")),
            kernel=OverPoints(there_are, within, f"(1 if points_inside{of_hulls} else 0)"),
        ),
        Function(
            named("overlaps"),
            _TWO,
            Kind.BOOLEAN,
            asked(lambda p, q: overlaps(*in_order(p, q), space)),
            vector=Routine(named("overlaps")),
            kernel=OverPoints(there_are, met, f"(1 if points_overlap{of_hulls} else 0)"),
        ),
        Function(
            named("distance"),
            _TWO,
            Kind.FLOAT,
            asked(lambda p, q: distance(*in_order(p, q), space)),
            vector=Routine(named("distance")),
            kernel=OverPoints(there_are, far, f"points_distance{of_hulls}"),
        ),
        Function(
            named("same_place"),
            (*_TWO, Takes.NUMBER),
            Kind.BOOLEAN,
            asked(lambda p, q, limit: apart(p, q) < number(limit)),
            vector=Routine(named("same_place")),
            kernel=OverPoints(
                there_are,
                f"(1 if {far} < {{x}} else 0)",
                f"(1 if points_apart{of_hulls} < {{x}} else 0)",
            ),
        ),
        Function(
            named("hull"),
            (Takes.PLACE,),
            Kind.PLACE,
            hull,
            repeats=True,
            sees_null=True,
            vector=Routine(named("hull")),
        ),
    )


_ON_A_PLANE = (*_placing("plane"), *_measuring("plane"))
_THERE = (*_placing("earth"), *_measuring("earth"))
_ON_EARTH = {here.name: there.name for here, there in zip(_ON_A_PLANE, _THERE, strict=True)}

PLACES = (
    Function(CIRCLE, (Takes.NUMBER,) * 3, Kind.PLACE, _circle, vector=Routine(CIRCLE)),
    Function(
        WKT, (Takes.TEXT,), Kind.PLACE, lambda text: _written(str(text)), vector=Routine(WKT)
    ),
    *_ON_A_PLANE,
    *_THERE,
)
