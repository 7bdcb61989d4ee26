"""Outlines of regions as small pictures: the path of an SVG."""

from collections.abc import Iterator, Mapping
from typing import Any

WIDTH, HEIGHT, MARGIN = 46.0, 34.0, 3.0
_DOT = 2  # how large the smallest part of a picture is
_MOST = 400  # corners of a small picture; more of them nobody sees


def outline(geometry: Mapping[str, Any], radius: float | None = None) -> str:
    """The path of a region, fitted into the small picture; circles are all of one size.

    >>> outline({"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [2, 1], [0, 0]]]})
    'M3.0 27.0L43.0 27.0L43.0 7.0Z'
    >>> outline({"type": "Point", "coordinates": [5, 5]}, 3)
    'M9.0 17.0a14.0 14.0 0 1 0 28.0 0a14.0 14.0 0 1 0 -28.0 0Z'
    """
    if radius is not None:
        r = HEIGHT / 2 - MARGIN
        x = WIDTH / 2 - r
        arcs = "".join(f"a{r:.1f} {r:.1f} 0 1 0 {to:.1f} 0" for to in (2 * r, -2 * r))
        return f"M{x:.1f} {HEIGHT / 2:.1f}{arcs}Z"
    rings = [ring for ring in _rings(geometry) if len(ring) > 2]
    if not rings:
        return ""
    xs = [x for ring in rings for x, _ in ring]
    ys = [y for ring in rings for _, y in ring]
    wide, high = max(xs) - min(xs), max(ys) - min(ys)
    scale = min(
        (WIDTH - 2 * MARGIN) / wide if wide else float("inf"),
        (HEIGHT - 2 * MARGIN) / high if high else float("inf"),
    )
    left, top = (WIDTH - wide * scale) / 2, (HEIGHT - high * scale) / 2
    west, north = min(xs), max(ys)
    return "".join(
        _path([(left + (x - west) * scale, top + (north - y) * scale) for x, y in ring[:-1]])
        for ring in rings
    )


def _path(ring: list[tuple[float, float]]) -> str:
    """A ring as a path; one that is too small to be seen is a dot."""
    xs, ys = zip(*ring, strict=True)
    if max(max(xs) - min(xs), max(ys) - min(ys)) < _DOT:
        return f"M{xs[0] - _DOT / 2:.1f} {ys[0]:.1f}h{_DOT}v{_DOT}h-{_DOT}Z"
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in _fewer(ring)) + "Z"


def _rings(geometry: Mapping[str, Any]) -> Iterator[list[tuple[float, float]]]:
    match geometry.get("type"):
        case "Polygon":
            polygons = [geometry["coordinates"]]
        case "MultiPolygon":
            polygons = geometry["coordinates"]
        case _:
            polygons = []
    for polygon in polygons:
        for ring in polygon:
            yield [(float(corner[0]), float(corner[1])) for corner in ring]


def _fewer(ring: list[tuple[float, float]]) -> list[tuple[float, float]]:
    return ring[:: max(1, len(ring) // _MOST)]
