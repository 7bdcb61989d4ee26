"""What is asked about a subscription before it is made: whether it can be, how often it fires."""

from typing import Any

from fastapi import APIRouter, Response

from ensue.service.service import Service
from ensue.service.web.answers import Checked, TrialAnswer
from ensue.service.web.bodies import with_bodies
from ensue.service.web.forms import Asked, TrialForm
from ensue.service.web.geojson import regions_in
from ensue.service.web.permission import Reader
from ensue.service.web.turns import Turns


def trial_routes(service: Service, turns: Turns) -> APIRouter:
    """Adds /check and /trial."""
    routes = APIRouter(tags=["before subscribing"])

    @routes.post("/check", response_model=Checked)
    async def check(form: Asked, access: Reader) -> dict[str, Any]:
        """Whether a text could be subscribed to; if not, the problem says where it is wrong."""
        said = await service.check(**asked(form), user=access.user)
        return {"ok": True, "warnings": said}

    @routes.post("/trial", response_model=TrialAnswer)
    async def trial(form: TrialForm, access: Reader) -> Response:
        """How often a subscription would have fired over the events that are kept."""
        async with turns.one(access.user):
            found = await service.trial(**asked(form), since=form.since, user=access.user)
        fields = {
            "count": found.count,
            "by_object": found.by_object,
            "bars": found.bars,
            "events": found.events,
            "from": service.columns.shown(found.begin),
            "to": service.columns.shown(found.end),
            "seconds": found.seconds,
            "cut": found.cut,
        }
        return with_bodies(fields, "matches", found.matches)

    return routes


def asked(form: Asked) -> dict[str, Any]:
    """A text or template as the service takes it."""
    return {
        "text": form.text,
        "template": form.template,
        "values": form.values,
        "regions": None if form.regions is None else regions_in(form.regions),
        "language": form.language,
    }
