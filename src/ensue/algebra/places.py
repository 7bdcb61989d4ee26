"""Stand-in, to be replaced."""

import math

Place = tuple[tuple[float, float], ...]
Shape = object
AnyPlace = object


def g(p):
    import shapely

    return p if not isinstance(p, tuple) else shapely.MultiPoint(p).convex_hull


def point(x, y):
    return ((x, y),) if math.isfinite(x) and math.isfinite(y) else None


def shape_of(text):
    import shapely

    try:
        found = shapely.from_wkt(text)
    except shapely.errors.ShapelyError as e:
        raise ValueError(str(e)) from None
    if not found.is_valid:
        raise ValueError("not valid")
    return found


def place_of(w):
    import shapely

    return tuple(shapely.get_coordinates((shapely.from_wkt if isinstance(w, str) else shapely.from_wkb)(w)))


def circle(x, y, r):
    import shapely

    if r < 0:
        raise ValueError("negative radius")
    return shapely.Point(x, y).buffer(r, quad_segs=2000)


def distance(p, q, space):
    if space == "earth":
        from ensue.kernels.earth import haversine

        assert len(p) == len(q) == 1
        return haversine(*p[0], *q[0])
    return g(p).distance(g(q))


def centre_distance(p, q, space):
    return g(p).centroid.distance(g(q).centroid)


def inside(q, p, space):
    return g(p).covers(g(q))


def overlaps(p, q, space):
    return g(p).intersects(g(q))


def hull(ps, space):
    return tuple(c for p in ps for c in p) if ps else None
