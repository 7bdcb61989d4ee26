"""Functions of places: what an event's place is, and how two of them lie.

A place is a point, a segment or a convex polygon, given by its corners; a region that a query
writes down is any shape. On the earth coordinates are degrees and lengths are metres: each
function that measures has a twin for it, which a query gets where events lie there.
"""

from collections.abc import Callable

from ensue.algebra import places
from ensue.algebra.functions.record import Function, OverPoints, Routine, Takes
from ensue.algebra.values import number
from ensue.schema import Kind

WKT = "wkt"  # WKT 'POLYGON (...)' is a call of it
CIRCLE = "circle"
LOCATION = ".location"  # a.location is a call of it, over the columns that say where a was
EARTH = "earth_"
SPACES = ("plane", "earth")  # compiled code knows them by their numbers

_TWO = (Takes.PLACE, Takes.PLACE)


def on_earth(function: str) -> str:
    """The function that a query means where events lie on the earth.

    >>> on_earth("distance"), on_earth("point"), on_earth("earth_distance")
    ('earth_distance', 'point', 'earth_distance')
    """
    return EARTH + function if function in _MEASURING else function


def _point(x: object, y: object) -> places.Place | None:
    return places.point(float(number(x)), float(number(y)))


def _located(written: object, y: object = None) -> places.Place | None:
    match written:
        case str() | bytes():
            return places.place_of(written)
        case _:
            return _point(written, y)


def _circle(x: object, y: object, radius: object) -> places.Shape:
    return places.circle(float(number(x)), float(number(y)), float(number(radius)))


def _measuring(space: str) -> tuple[Function, ...]:
    """The functions that ask how far or how places lie, in the plane or on the earth."""

    def named(name: str) -> str:
        return name if space == "plane" else EARTH + name

    def hull(*parts: places.AnyPlace | None) -> places.Place | None:
        return places.hull([part for part in parts if part is not None], space)

    def asked(of: Callable[..., object]) -> Callable[..., object]:
        return lambda p, q: of(p, q, space)

    met, within = (
        f"(1 if {space}_points_meet({points}) else 0)"
        for points in ("{ax}, {ay}, {bx}, {by}", "{bx}, {by}, {ax}, {ay}")
    )
    apart = f"{space}_point_distance({{ax}}, {{ay}}, {{bx}}, {{by}})"
    of_hulls = f"({{a}}, {{b}}, {SPACES.index(space)})"
    return (
        Function(
            named("inside"),
            _TWO,
            Kind.BOOLEAN,
            asked(places.inside),
            vector=Routine(named("inside")),
            kernel=OverPoints(within, f"(1 if points_inside{of_hulls} else 0)"),
        ),
        Function(
            named("overlaps"),
            _TWO,
            Kind.BOOLEAN,
            asked(places.overlaps),
            vector=Routine(named("overlaps")),
            kernel=OverPoints(met, f"(1 if points_overlap{of_hulls} else 0)"),
        ),
        Function(
            named("distance"),
            _TWO,
            Kind.FLOAT,
            asked(places.distance),
            vector=Routine(named("distance")),
            kernel=OverPoints(apart, f"points_distance{of_hulls}"),
        ),
        Function(
            named("same_place"),
            (*_TWO, Takes.NUMBER),
            Kind.BOOLEAN,
            lambda p, q, limit: places.centre_distance(p, q, space) < number(limit),
            vector=Routine(named("same_place")),
            kernel=OverPoints(
                f"(1 if {apart} < {{x}} else 0)", f"(1 if points_apart{of_hulls} < {{x}} else 0)"
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


_ON_A_PLANE = _measuring("plane")
_MEASURING = tuple(record.name for record in _ON_A_PLANE)

PLACES = (
    Function("point", (Takes.NUMBER, Takes.NUMBER), Kind.PLACE, _point, vector=Routine("point")),
    Function(CIRCLE, (Takes.NUMBER,) * 3, Kind.PLACE, _circle, vector=Routine(CIRCLE)),
    Function(WKT, (Takes.TEXT,), Kind.PLACE, lambda text: places.shape_of(str(text)),
             vector=Routine(WKT)),
    Function(
        LOCATION,
        (Takes.WRITTEN,),
        Kind.PLACE,
        _located,
        optional=(Takes.NUMBER,),
        vector=Routine(LOCATION),
    ),
    *_ON_A_PLANE,
    *_measuring("earth"),
)  # fmt: skip
