"""All templates, and how one becomes OPSL."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ensue.errors import QueryError, did_you_mean
from ensue.service.templates.borders import ENTERS, LEAVES, STAYS, enters, leaves, stays
from ensue.service.templates.company import NEAR, STRAYS, near, strays
from ensue.service.templates.reading import Given, read
from ensue.service.templates.silence import NOT_SEEN, not_seen
from ensue.service.templates.template import Filled, Template, TemplateStream

_WRITERS: dict[str, tuple[Template, Callable[[Given], Filled]]] = {
    template.name: (template, write)
    for template, write in (
        (ENTERS, enters),
        (LEAVES, leaves),
        (STAYS, stays),
        (NOT_SEEN, not_seen),
        (NEAR, near),
        (STRAYS, strays),
    )
}
TEMPLATES: Mapping[str, Template] = MappingProxyType(
    {name: template for name, (template, _) in _WRITERS.items()}
)


def fill(name: str, values: Mapping[str, Any], stream: TemplateStream) -> Filled:
    """A template as OPSL for a stream. QueryError says which value is wrong, and what is wanted.

    >>> print(
    ...     fill(
    ...         "leaves", {"region": "Depot", "object": 17}, TemplateStream("id", earth=True)
    ...     ).text
    ... )
    -- Tells when 17 leaves Depot: was inside for 2 minutes, then more than 50 m from Depot for
    -- 2 minutes, at most 30 minutes later.
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
    return write(read(template.on(stream), values, stream))
