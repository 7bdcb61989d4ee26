"""Notifications to subscribers: a match, the start or the end of a subscription."""

from dataclasses import dataclass
from typing import Any

import orjson

MATCH, STARTED, ENDED, RESYNC = "match", "started", "ended", "resync"


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification; its increasing number is the token for resuming."""

    number: int
    subscription: int
    user: int
    kind: str
    match_id: str | None
    at: float  # when it was committed, in seconds since 1970
    body: bytes  # JSON, the same bytes for every target

    @property
    def content(self) -> dict[str, Any]:
        """The parsed body."""
        content: dict[str, Any] = orjson.loads(self.body)
        return content

    @property
    def frame(self) -> bytes:
        """The notification as a server-sent event."""
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (self.number, self.kind.encode(), self.body)


def create_resync(number: int) -> Notification:
    """Announces that the notifications before `number` have expired.

    >>> create_resync(7).frame
    b'id: 7\\nevent: resync\\ndata: {"kind":"resync","after":7}\\n\\n'
    """
    body = orjson.dumps({"kind": RESYNC, "after": number})
    return Notification(number, 0, 0, RESYNC, None, 0.0, body)
