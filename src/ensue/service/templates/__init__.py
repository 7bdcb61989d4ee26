"""Templates of frequent subscriptions, written as OPSL that users can edit."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ensue.errors import QueryError, did_you_mean
from ensue.service.templates.geofences import GEOFENCES
from ensue.service.templates.parameters import ParameterValues, parse_values
from ensue.service.templates.proximity import PROXIMITY
from ensue.service.templates.template import FilledTemplate, Template, TemplateStream

_WRITERS: dict[str, tuple[Template, Callable[[ParameterValues], FilledTemplate]]] = {
    template.name: (template, write) for template, write in (*GEOFENCES, *PROXIMITY)
}
TEMPLATES: Mapping[str, Template] = MappingProxyType({name: template for name, (template, _) in _WRITERS.items()})


def fill_template(name: str, values: Mapping[str, Any], stream: TemplateStream) -> FilledTemplate:
    """Writes a template as OPSL for a stream; QueryError names the wrong value.

    >>> print(fill_template("leaves", {"region": "Depot", "object": 17}, TemplateStream("id", earth=True)).text)
    -- Reports when 17 leaves Depot: was inside for 2 minutes, then more than 50 m from Depot
    -- for 2 minutes, at most 30 minutes later.
    =|($inside;; 30 minutes)($outside;)
        && !($inside;; 2 minutes)(DIST(Depot; >; 50)(ARITH:id = 17))
        && !($outside;; 2 minutes)(@(Depot)(ARITH:id = 17)),
        $inside; = @(Depot)(ARITH:id = 17),
        $outside; = DIST(Depot; >; 50)(ARITH:id = 17)
    WITH select = once
    """
    if name not in _WRITERS:
        raise QueryError(f"there is no template '{name}'", hint=did_you_mean(name, _WRITERS))
    template, write = _WRITERS[name]
    return write(parse_values(template.on(stream), values, stream))
