"""Spatial functions: locations of events, and relations between them.

A location is a point, a segment or a convex polygon, given by its corners; a region in a query has
any shape. On the earth coordinates are degrees and lengths are metres: each function that measures
has a variant with the prefix `earth_`, which the analyzer chooses if the events are on the earth.
"""

from collections.abc import Callable
from functools import lru_cache
from math import floor

from ensue.errors import EventError
from ensue.functions.record import (
    CIRCLE,
    EARTH,
    EARTH_LOCATION,
    LOCATION,
    SPACES,
    WKT,
    PointsForm,
    RoutineForm,
    ScalarFunction,
    define,
)
from ensue.geo import geometry
from ensue.geo.wkt import Circle, Point, Points, Polygons, read_points, read_wkt
from ensue.ir.values import to_number


def get_earth_variant(function: str) -> str:
    """Returns the variant of a function for events on the earth.

    >>> get_earth_variant("distance"), get_earth_variant("circle")
    ('earth_distance', 'circle')
    """
    return _ON_EARTH.get(function, function)


def _define_constructors(space: str) -> tuple[ScalarFunction, ...]:
    """Defines the constructors of locations, in the plane or on the earth."""

    def point(x: object, y: object) -> geometry.ConvexHull | None:
        at = float(to_number(x)), float(to_number(y))
        return geometry.locate_event((at,), space)

    def locate(written: object, y: object = None) -> geometry.ConvexHull | None:
        match written:
            case str() | bytes():
                return geometry.locate_event(_points(written), space)
            case _:
                return point(written, y)

    prefix = "" if space == "plane" else EARTH
    location = LOCATION if space == "plane" else EARTH_LOCATION
    return (
        define(f"{prefix}point(number, number) -> place", point, RoutineForm(f"{prefix}point")),
        define(f"{location}(written, number?) -> place", locate, RoutineForm(location)),
    )


def _points(written: str | bytes) -> tuple[Point, ...]:
    """Parses the location of an event."""
    points = read_points(written)
    if points is None:
        raise EventError(
            f"a location cannot be read: {written!r:.80}\n"
            "  hint: write locations as WKT texts, such as 'POINT (8.5 47.4)', or as WKB bytes"
        )
    return points


def _circle(*numbers: object) -> Circle:
    return Circle(*(float(to_number(number)) for number in numbers))


@lru_cache(maxsize=256)
def _parse_constant(text: str) -> geometry.ConvexHull | geometry.Shape | None:
    """Parses a constant: a region, or points that stand for their hull."""
    parsed = read_wkt(text)
    return geometry.build_hull(parsed.points) if isinstance(parsed, Points) else parsed


@lru_cache(maxsize=256)
def _unwrap(polygons: Polygons) -> Polygons:
    return geometry.unwrap_polygons(polygons)


def _define_measures(space: str) -> tuple[ScalarFunction, ...]:
    """Defines the spatial relations and measures, in the plane or on the earth."""

    prefix = "" if space == "plane" else EARTH

    def unwrap(p: geometry.ConvexHull | geometry.Shape) -> geometry.ConvexHull | geometry.Shape:
        return _unwrap(p) if space == "earth" and isinstance(p, Polygons) else p

    def is_valid(p: geometry.ConvexHull | geometry.Shape | None) -> bool:
        """Whether it is a valid location in this space."""
        return p is not None and (
            not isinstance(p, geometry.ConvexHull)
            or all(geometry.is_valid_point(corner, space) for corner in p.corners)
        )

    def to_hull(p: geometry.ConvexHull | geometry.Shape) -> geometry.ConvexHull:
        assert not isinstance(p, Circle)  # the analyzer rejects circles here
        if isinstance(p, geometry.ConvexHull):
            return p
        hull = geometry.build_hull(sum(p.rings, ()))
        assert hull is not None
        return hull

    def in_order(
        p: geometry.ConvexHull | geometry.Shape, q: geometry.ConvexHull | geometry.Shape
    ) -> tuple[geometry.ConvexHull | geometry.Shape, geometry.ConvexHull]:
        p, q = unwrap(p), unwrap(q)
        if not isinstance(q, geometry.ConvexHull):
            p, q = q, p
        assert isinstance(q, geometry.ConvexHull)
        return p, q

    def hull(*parts: geometry.ConvexHull | geometry.Shape | None) -> geometry.ConvexHull | None:
        known = [to_hull(unwrap(p)).corners for p in parts if p is not None and is_valid(p)]
        if space == "earth" and known:  # shift longitudes to the revolution nearest to the first
            first = known[0][0][0]
            turns = [360.0 * floor((first - corners[0][0]) / 360.0 + 0.5) for corners in known]
            known = [tuple((x + turn, y) for x, y in corners) for corners, turn in zip(known, turns, strict=True)]
        return geometry.build_hull(corner for corners in known for corner in corners)

    def centroid_distance(p: geometry.ConvexHull | geometry.Shape, q: geometry.ConvexHull | geometry.Shape) -> float:
        return geometry.compute_point_distance(
            geometry.compute_centroid(unwrap(p), space), geometry.compute_centroid(unwrap(q), space), space
        )

    number = SPACES.index(space)
    met, within = (
        f"(1 if points_meet({points}, {number}) else 0)"
        for points in ("{ax}, {ay}, {bx}, {by}", "{bx}, {by}, {ax}, {ay}")
    )
    far = f"place_distance({{ax}}, {{ay}}, {{bx}}, {{by}}, {number})"
    of_hulls = f"({{a}}, {{b}}, {number})"

    def relation(name: str, arguments: str, function: Callable[..., object], one: str, several: str) -> ScalarFunction:
        """Defines a function of two locations: NULL if one of them is not valid in this space.

        `one` and `several` are its kernel forms for points and for hulls of points.
        """
        name, kernel = prefix + name, PointsForm(number, one, several)
        return define(
            f"{name}{arguments}",
            lambda p, q, *more: function(p, q, *more) if is_valid(p) and is_valid(q) else None,
            RoutineForm(name),
            kernel,
        )

    return (
        relation(
            "inside",
            "(place, place) -> boolean",
            lambda q, p: geometry.is_inside(to_hull(unwrap(q)), unwrap(p), space),
            within,
            f"(1 if points_inside{of_hulls} else 0)",
        ),
        relation(
            "overlaps",
            "(place, place) -> boolean",
            lambda p, q: geometry.do_overlap(*in_order(p, q), space),
            met,
            f"(1 if points_overlap{of_hulls} else 0)",
        ),
        relation(
            "distance",
            "(place, place) -> float",
            lambda p, q: geometry.compute_distance(*in_order(p, q), space),
            far,
            f"points_distance{of_hulls}",
        ),
        relation(
            "same_place",
            "(place, place, number) -> boolean",
            lambda p, q, limit: centroid_distance(p, q) < to_number(limit),
            f"(1 if {far} < {{x}} else 0)",
            f"(1 if points_apart{of_hulls} < {{x}} else 0)",
        ),
        define(f"{prefix}hull(place...) -> place", hull, RoutineForm(f"{prefix}hull"), sees_null=True),
    )


_ON_A_PLANE = (*_define_constructors("plane"), *_define_measures("plane"))
_THERE = (*_define_constructors("earth"), *_define_measures("earth"))
_ON_EARTH = {here.name: there.name for here, there in zip(_ON_A_PLANE, _THERE, strict=True)}

PLACES = (
    define(f"{CIRCLE}(number, number, number) -> place", _circle, RoutineForm(CIRCLE)),
    define(f"{WKT}(text) -> place", lambda text: _parse_constant(str(text)), RoutineForm(WKT)),
    *_ON_A_PLANE,
    *_THERE,
)
