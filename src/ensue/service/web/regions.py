"""Regions over HTTP."""

import asyncio
import re
from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any

from fastapi import APIRouter

from ensue.errors import QueryError
from ensue.service.access import Access
from ensue.service.looking import checked_region
from ensue.service.refusals import ConflictError, OverLimitError
from ensue.service.service import Service
from ensue.service.store import regions as store
from ensue.service.web.answers import ChangedRegion, Imported, RegionAnswer, RegionsAnswer
from ensue.service.web.forms import (
    ChangedRegionForm,
    FeaturesForm,
    NewRegionForm,
    RegionForm,
)
from ensue.service.web.geojson import drawn, text_of
from ensue.service.web.permission import Reader, Subscriber

# One comma a corner, and one more between rings: near enough, and no text has to be read.
_CORNERS = """
    SELECT coalesce(sum(length(text) - length(replace(text, ',', ''))), 0)
    FROM regions WHERE user = ?"""
_ODD = re.compile(r"[^\w-]+")


def region_routes(service: Service) -> APIRouter:
    """Adds /regions."""
    routes = APIRouter(prefix="/regions", tags=["regions"])

    def require_room(db: Connection, access: Access) -> None:
        """Regions that are kept count as those of subscriptions do."""
        most = access.limits(service.limits).corners_per_user
        used = db.execute(_CORNERS, (access.user,)).fetchone()[0]
        if used > most:
            raise OverLimitError(
                "corners_per_user",
                f"the regions of a user have at most {most:,} corners, and these would be "
                f"{used:,}\n  hint: simplify them, or remove some",
            )

    @routes.get("", response_model=RegionsAnswer)
    async def regions(access: Reader) -> dict[str, Any]:
        """The regions of whoever asks, and those of the service."""
        shared = service.core.catalogue.shared_regions

        def find(db: Connection) -> list[dict[str, Any]]:
            own = store.regions_of(db, access.user)
            items = [_shown(name, text, shared=False) for name, text in own.items()]
            items += [_shown(n, text, shared=True) for n, text in shared.items() if n not in own]
            return sorted(items, key=lambda one: str(one["name"]))

        return {"items": await service.look(find)}

    @routes.post("", status_code=201, response_model=RegionAnswer)
    async def add(form: NewRegionForm, access: Subscriber) -> dict[str, Any]:
        """Keeps a region under a name, which subscriptions may use."""
        text = _text(form.name, form)

        def put(db: Connection) -> None:
            if store.region_of(db, access.user, form.name) is not None:
                raise ConflictError(
                    f"there is a region '{form.name}' already\n"
                    f"  hint: PUT /api/v1/regions/{form.name} gives it another shape"
                )
            service.core.catalogue.put_region(db, access.user, form.name, text, apply=False)
            require_room(db, access)

        await service.do(put)
        return _shown(form.name, text, shared=False)

    @routes.put("/{name}", response_model=ChangedRegion)
    async def put(name: str, form: ChangedRegionForm, access: Subscriber) -> dict[str, Any]:
        """Gives a region another shape, or makes it."""
        text = _text(name, form)

        def change(db: Connection) -> list[int]:
            changed = service.core.catalogue.put_region(
                db, access.user, name, text, apply=form.apply
            )
            require_room(db, access)
            return changed

        return {**_shown(name, text, shared=False), "subscriptions": await service.do(change)}

    @routes.delete("/{name}", status_code=204)
    async def remove(name: str, access: Subscriber) -> None:
        """Forgets a region. Subscriptions that were made with it go on."""
        await service.remove_region(name, user=access.user)

    @routes.post("/import", response_model=Imported)
    async def bring(form: FeaturesForm, access: Subscriber) -> dict[str, Any]:
        """Keeps all regions of a GeoJSON file, and says which are none."""
        space = service.stream.space
        taken, refused = await asyncio.to_thread(_regions_of, form.features, space)

        def put_all(db: Connection) -> None:
            for name, text in taken.items():
                service.core.catalogue.put_region(db, access.user, name, text, apply=False)
            require_room(db, access)

        await service.do(put_all)
        return {"added": list(taken), "refused": refused}

    def _text(name: str, form: RegionForm) -> str:
        given = form.text if form.text is not None else text_of(form.geojson)
        return checked_region(name, given, service.stream.space)

    return routes


def _regions_of(
    features: Sequence[dict[str, Any]], space: str
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The regions of features by name, and those that are none, with the reason."""
    taken: dict[str, str] = {}
    refused: list[dict[str, Any]] = []
    for place, feature in enumerate(features):
        name = _name_of(feature, place)
        try:
            if name in taken:
                raise QueryError("an earlier feature has the same name")
            taken[name] = checked_region(name, text_of(feature), space)
        except QueryError as error:
            refused.append({"feature": place, "name": name, "detail": error.problem})
    return taken, refused


def _shown(name: str, text: str, *, shared: bool) -> dict[str, Any]:
    geometry, radius, corners = drawn(text)
    return {
        "name": name, "text": text, "geometry": geometry, "radius": radius,
        "corners": corners, "shared": shared,
    }  # fmt: skip


def _name_of(feature: Any, place: int) -> str:
    """A name that can stand in a subscription, from the properties of a feature.

    >>> _name_of({"properties": {"name": "Depot (north)"}}, 0), _name_of({}, 4)
    ('Depot_north', 'region_5')
    """
    properties = feature.get("properties")
    given = properties.get("name") if isinstance(properties, dict) else None
    name = _ODD.sub("_", str(given)).strip("_") if given is not None else ""
    if not name:
        return f"region_{place + 1}"
    return f"region_{name}" if name[0].isdigit() else name
