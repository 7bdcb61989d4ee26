"""JSON in answers: what JSON has no number for is null, bodies of notes are not read again."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from starlette.responses import Response

MEDIA = "application/json"
_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


def json_answer(content: Any) -> Response:
    """Values of events as JSON.

    >>> json_answer({"x": float("nan"), 7: [1.5]}).body
    b'{"x":null,"7":[1.5]}'
    """
    return Response(orjson.dumps(content, default=str, option=_OPTIONS), media_type=MEDIA)


def with_bodies(fields: Mapping[str, Any], name: str, bodies: Iterable[bytes]) -> Response:
    """A JSON object of some fields and a list of objects that are JSON already.

    >>> with_bodies({"next": 7}, "items", [b'{"a":1}', b'{"a":2}']).body
    b'{"next":7,"items":[{"a":1},{"a":2}]}'
    """
    head = orjson.dumps(fields, option=_OPTIONS)[:-1] + (b"," if fields else b"")
    body = b'%b"%b":[%b]}' % (head, name.encode(), b",".join(bodies))
    return Response(body, media_type=MEDIA)
