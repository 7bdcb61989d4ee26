"""Regions as maps have them: GeoJSON to the texts of regions, and back."""

from collections.abc import Mapping
from typing import Any

import orjson

from ensue.algebra.wkt import Circle, Points, Polygons, read_wkt
from ensue.columns.region_shapes import region_text
from ensue.errors import QueryError

_HINT = "a Polygon or MultiPolygon, as RFC 7946 has it"


def regions_in(given: Mapping[str, Any]) -> dict[str, str]:
    """Regions by name, each a text or GeoJSON, as texts."""
    return {
        name: region_text(value) if isinstance(value, str) else text_of(value)
        for name, value in given.items()
    }


def text_of(geojson: Any) -> str:
    """The text of a region that is given as GeoJSON: a geometry, or a feature.

    >>> text_of({"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]})
    'POLYGON ((0 0, 1 0, 1 1, 0 0))'
    """
    import shapely

    found = geojson.get("geometry") if _kind(geojson) == "Feature" else geojson
    if _kind(found) not in ("Polygon", "MultiPolygon"):
        what = _kind(found) or "this"
        raise QueryError(f"{what} is no region in GeoJSON", hint=_HINT)
    try:
        shape = shapely.from_geojson(orjson.dumps(found))
    except (shapely.errors.ShapelyError, ValueError, TypeError) as error:
        raise QueryError(f"this GeoJSON cannot be read: {error}", hint=_HINT) from None
    return region_text(shape)


def drawn(text: str) -> tuple[dict[str, Any], float | None, int]:
    """A region as GeoJSON, the radius if it is a circle around that point, and its corners.

    >>> drawn("CIRCLE (1 2, 3)")
    ({'type': 'Point', 'coordinates': [1.0, 2.0]}, 3.0, 1)
    """
    found = read_wkt(text)
    match found:
        case Circle(x, y, radius):
            return {"type": "Point", "coordinates": [x, y]}, radius, 1
        case Points(points):
            return {"type": "MultiPoint", "coordinates": points}, None, len(points)
        case Polygons(polygons):
            corners = sum(len(ring) - 1 for ring in found.rings)
            if len(polygons) == 1:
                return {"type": "Polygon", "coordinates": polygons[0]}, None, corners
            return {"type": "MultiPolygon", "coordinates": polygons}, None, corners


def _kind(geojson: Any) -> str | None:
    kind = geojson.get("type") if isinstance(geojson, Mapping) else None
    return kind if isinstance(kind, str) else None
