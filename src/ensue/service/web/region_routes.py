"""Regions over HTTP."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from sqlite3 import Connection
from typing import Any

import orjson
from fastapi import APIRouter

from ensue.errors import QueryError
from ensue.geo.wkt import Circle, Points, Polygons, read_wkt
from ensue.service.access import Principal
from ensue.service.errors import ConflictError, OverLimitError
from ensue.service.queries import validate_region
from ensue.service.service import Service
from ensue.service.store import journal
from ensue.service.web import schemas
from ensue.service.web.guard import ReadAccess, SubscribeAccess
from ensue.vector.geo_regions import normalize_region

_HINT = "use a Polygon or MultiPolygon of RFC 7946"


def parse_regions(regions: Mapping[str, Any]) -> dict[str, str]:
    """Converts regions, each a text or GeoJSON, to texts."""
    return {
        name: normalize_region(value) if isinstance(value, str) else geojson_to_text(value)
        for name, value in regions.items()
    }


def geojson_to_text(geojson: Any) -> str:
    """Converts a GeoJSON geometry or feature to the text of a region.

    >>> geojson_to_text({"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]})
    'POLYGON ((0 0, 1 0, 1 1, 0 0))'
    """
    import shapely

    geometry = geojson.get("geometry") if _kind(geojson) == "Feature" else geojson
    if _kind(geometry) not in ("Polygon", "MultiPolygon"):
        what = _kind(geometry) or "this"
        raise QueryError(f"{what} is not a region in GeoJSON", hint=_HINT)
    try:
        shape = shapely.from_geojson(orjson.dumps(geometry))
    except (shapely.errors.ShapelyError, ValueError, TypeError) as error:
        raise QueryError(f"this GeoJSON cannot be read: {error}", hint=_HINT) from None
    return normalize_region(shape)


def text_to_geojson(text: str) -> tuple[dict[str, Any], float | None, int]:
    """Converts a region to GeoJSON; returns it with the radius of a circle and the corner count.

    >>> text_to_geojson("CIRCLE (1 2, 3)")
    ({'type': 'Point', 'coordinates': [1.0, 2.0]}, 3.0, 1)
    """
    shape = read_wkt(text)
    match shape:
        case Circle(x, y, radius):
            return {"type": "Point", "coordinates": [x, y]}, radius, 1
        case Points(points):
            return {"type": "MultiPoint", "coordinates": points}, None, len(points)
        case Polygons(polygons):
            corners = sum(len(ring) - 1 for ring in shape.rings)
            if len(polygons) == 1:
                return {"type": "Polygon", "coordinates": polygons[0]}, None, corners
            return {"type": "MultiPolygon", "coordinates": polygons}, None, corners


def _kind(geojson: Any) -> str | None:
    kind = geojson.get("type") if isinstance(geojson, Mapping) else None
    return kind if isinstance(kind, str) else None


_ODD = re.compile(r"[^\w-]+")


def region_routes(service: Service) -> APIRouter:
    """Adds /regions."""
    routes = APIRouter(prefix="/regions", tags=["regions"])

    def require_room(db: Connection, access: Principal) -> None:
        """Applies the quota to stored regions, too."""
        most = access.limits(service.limits).corners_per_user
        used = journal.count_region_corners(db, access.user)
        if used > most:
            raise OverLimitError(
                "corners_per_user",
                f"the regions of a user have at most {most:,} corners, and these would be "
                f"{used:,}\n  hint: simplify them, or remove some",
            )

    @routes.get("", response_model=schemas.Items[schemas.RegionAnswer])
    async def regions(access: ReadAccess) -> dict[str, Any]:
        """Lists one's regions, and those of the service."""
        shared = service.core.catalog.shared_regions

        def find(db: Connection) -> list[dict[str, Any]]:
            own = journal.list_regions(db, access.user)
            items = [_describe_region(name, text, shared=False) for name, text in own.items()]
            items += [_describe_region(n, text, shared=True) for n, text in shared.items() if n not in own]
            return sorted(items, key=lambda item: str(item["name"]))

        return {"items": await service.look(find)}

    @routes.post("", status_code=201, response_model=schemas.RegionAnswer)
    async def add(form: schemas.NewRegionForm, access: SubscribeAccess) -> dict[str, Any]:
        """Stores a region under a name that subscriptions can use."""

        def require_new(db: Connection) -> None:
            if journal.get_region(db, access.user, form.name) is not None:
                raise ConflictError(
                    f"there is already a region '{form.name}'\n  hint: change it with PUT /api/v1/regions/{form.name}"
                )

        return await store(form.name, form, access, require_new)

    @routes.put("/{name}", response_model=schemas.RegionAnswer)
    async def put(name: str, form: schemas.ChangedRegionForm, access: SubscribeAccess) -> dict[str, Any]:
        """Changes or creates a region."""
        return await store(name, form, access, apply=form.apply)

    async def store(
        name: str,
        form: schemas.RegionForm,
        access: Principal,
        check: Callable[[Connection], None] = lambda _: None,
        *,
        apply: bool = False,
    ) -> dict[str, Any]:
        region = form.text if form.text is not None else geojson_to_text(form.geojson)
        text = validate_region(name, region, service.stream.space)

        def change(db: Connection) -> list[int]:
            check(db)
            changed = service.core.catalog.put_region(db, access.user, name, text, apply=apply)
            require_room(db, access)
            return changed

        return {**_describe_region(name, text, shared=False), "subscriptions": await service.do(change)}

    @routes.delete("/{name}", status_code=204)
    async def remove(name: str, access: SubscribeAccess) -> None:
        """Deletes a region; subscriptions that use it keep its shape."""
        await service.remove_region(name, user=access.user)

    @routes.post("/import", response_model=schemas.ImportAnswer)
    async def import_regions(form: schemas.FeaturesForm, access: SubscribeAccess) -> dict[str, Any]:
        """Imports the regions of a GeoJSON file; the answer lists invalid ones."""
        space = service.stream.space
        regions, rejected = await asyncio.to_thread(_parse_regions, form.features, space)

        def put_all(db: Connection) -> None:
            for name, text in regions.items():
                service.core.catalog.put_region(db, access.user, name, text, apply=False)
            require_room(db, access)

        await service.do(put_all)
        return {"added": list(regions), "refused": rejected}

    return routes


def _parse_regions(features: Sequence[dict[str, Any]], space: str) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Returns the regions of features by name, and the invalid features with their errors."""
    regions: dict[str, str] = {}
    rejected: list[dict[str, Any]] = []
    for index, feature in enumerate(features):
        name = _derive_name(feature, index)
        try:
            if name in regions:
                raise QueryError("an earlier feature has the same name")
            regions[name] = validate_region(name, geojson_to_text(feature), space)
        except QueryError as error:
            rejected.append({"feature": index, "name": name, "detail": error.problem})
    return regions, rejected


def _describe_region(name: str, text: str, *, shared: bool) -> dict[str, Any]:
    geometry, radius, corners = text_to_geojson(text)
    return {
        "name": name, "text": text, "geometry": geometry, "radius": radius,
        "corners": corners, "shared": shared,
    }  # fmt: skip


def _derive_name(feature: Any, index: int) -> str:
    """Derives a name that subscriptions can use from the properties of a feature.

    >>> _derive_name({"properties": {"name": "Depot (north)"}}, 0), _derive_name({}, 4)
    ('Depot_north', 'region_5')
    """
    properties = feature.get("properties")
    title = properties.get("name") if isinstance(properties, dict) else None
    name = _ODD.sub("_", str(title)).strip("_") if title is not None else ""
    if not name:
        return f"region_{index + 1}"
    return f"region_{name}" if name[0].isdigit() else name
