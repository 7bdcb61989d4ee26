"""What subscribers are told: a match, that a subscription started, or that it ended."""

from dataclasses import dataclass
from typing import Any

import orjson

MATCH, STARTED, ENDED, RESYNC = "match", "started", "ended", "resync"


@dataclass(frozen=True, slots=True)
class Note:
    """A notification. Its number grows, and is the token to go on from."""

    number: int
    subscription: int
    user: int
    kind: str
    match_id: str | None
    at: float  # when it was committed, in seconds since 1970
    body: bytes  # JSON, the same bytes for every way of delivery

    @property
    def content(self) -> dict[str, Any]:
        """The body, read."""
        found: dict[str, Any] = orjson.loads(self.body)
        return found

    @property
    def frame(self) -> bytes:
        """The note as a server-sent event."""
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (self.number, self.kind.encode(), self.body)


def resync(number: int) -> Note:
    """Says that notes before `number` are gone: whoever needs them has to look elsewhere.

    >>> resync(7).frame
    b'id: 7\\nevent: resync\\ndata: {"kind":"resync","after":7}\\n\\n'
    """
    body = orjson.dumps({"kind": RESYNC, "after": number})
    return Note(number, 0, 0, RESYNC, None, 0.0, body)
